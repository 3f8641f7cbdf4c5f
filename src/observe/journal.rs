//! journald's native protocol: one datagram an event, a field a line, values with their length.
//!
//! Own code, because the crate for it blocks the thread for as long as journald takes nothing.
//! Format: <https://systemd.io/JOURNAL_NATIVE_PROTOCOL/>.

use std::fmt::Write as _;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use tracing::{Level, Metadata};

use super::sink::Fields;
use crate::limits;

/// Where journald listens.
pub const SOCKET: &str = "/run/systemd/journal/socket";

/// A way to journald.
pub struct Journal {
    socket: UnixDatagram,
    path: PathBuf,
    /// The last datagram found no room: the next ones do not wait for any.
    stuck: AtomicBool,
}

impl Journal {
    /// `None` when nobody listens at `path`.
    pub fn open(path: impl AsRef<Path>) -> Option<Self> {
        let path = path.as_ref().to_owned();
        let socket = UnixDatagram::unbound().ok()?;
        socket.set_write_timeout(Some(limits::LOG_WAIT)).ok()?;
        // journald takes an empty datagram for nothing.
        socket.send_to(&[], &path).ok()?;
        Some(Journal { socket, path, stuck: AtomicBool::new(false) })
    }

    /// Whether it was taken. Waits for room up to [`limits::LOG_WAIT`], but not twice in a row.
    /// `out` is empty, and holds the datagram afterwards.
    pub fn send(&self, metadata: &Metadata<'_>, fields: &Fields, out: &mut Vec<u8>) -> bool {
        encode(metadata, fields, out);
        // Always sent whole or not at all.
        let sent = self.socket.send_to(out, &self.path).is_ok();
        if sent == self.stuck.load(Ordering::Relaxed) {
            self.stuck.store(!sent, Ordering::Relaxed);
            // If it cannot be set, each line waits its bounded time.
            drop(self.socket.set_nonblocking(!sent));
        }
        sent
    }
}

fn encode(metadata: &Metadata<'_>, fields: &Fields, out: &mut Vec<u8>) {
    // syslog's: err, warning, info, debug.
    let priority = match super::level_of(metadata) {
        Level::ERROR => "3",
        Level::WARN => "4",
        Level::INFO => "6",
        Level::DEBUG | Level::TRACE => "7",
    };
    put(out, "PRIORITY", priority);
    put(out, "SYSLOG_IDENTIFIER", "edgeward");
    if let (Some(file), Some(line)) = (metadata.file(), metadata.line()) {
        put(out, "CODE_FILE", file);
        let mut digits = heapless::String::<10>::new();
        // Ten digits hold every u32.
        let _fits = write!(digits, "{line}");
        put(out, "CODE_LINE", &digits);
    }
    let message = if fields.message.is_empty() { metadata.name() } else { &fields.message };
    put(out, "MESSAGE", message);
    for (name, value) in fields.iter() {
        put(out, name, value);
    }
}

/// Names are upper case, digits and `_`, and begin with a letter; journald drops others.
fn put(out: &mut Vec<u8>, name: &str, value: &str) {
    let value = &value[..value.floor_char_boundary(limits::LOG_VALUE_BYTES)];
    let name = name
        .trim_start_matches('_')
        .bytes()
        .map(|byte| if byte.is_ascii_alphanumeric() { byte.to_ascii_uppercase() } else { b'_' });
    out.extend(name);
    out.push(b'\n');
    out.extend_from_slice(&(value.len() as u64).to_le_bytes());
    out.extend_from_slice(value.as_bytes());
    out.push(b'\n');
}

#[cfg(test)]
pub mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// As journald reads a datagram.
    pub fn parse(mut datagram: &[u8]) -> BTreeMap<String, String> {
        let mut fields = BTreeMap::new();
        while !datagram.is_empty() {
            let end = datagram.iter().position(|&byte| byte == b'\n').unwrap();
            let name = std::str::from_utf8(&datagram[..end]).unwrap().to_owned();
            assert!(name.starts_with(|c: char| c.is_ascii_uppercase()), "{name:?}");
            let (length, rest) = datagram[end + 1..].split_at(8);
            let length = usize::try_from(u64::from_le_bytes(length.try_into().unwrap())).unwrap();
            fields.insert(name, String::from_utf8(rest[..length].to_vec()).unwrap());
            assert_eq!(rest[length], b'\n');
            datagram = &rest[length + 1..];
        }
        fields
    }

    #[test]
    fn nobody_there_is_no_journal() {
        assert!(Journal::open("/nonexistent/edgeward/journal").is_none());
    }

    #[test]
    fn values_are_bounded_and_may_hold_anything() {
        let mut out = Vec::new();
        put(&mut out, "edgeward_cause", "two\nlines=x");
        put(&mut out, "_odd.name", &"ü".repeat(limits::LOG_VALUE_BYTES));
        let fields = parse(&out);
        assert_eq!(fields.get("EDGEWARD_CAUSE").map(String::as_str), Some("two\nlines=x"));
        assert!(fields.get("ODD_NAME").is_some_and(|value| value.len() <= limits::LOG_VALUE_BYTES));
    }
}
