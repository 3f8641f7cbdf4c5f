//! A readable line on stderr: `12:03:04.567Z WARN  attempt_failed request=… target=box cause=oom`.

use std::fmt::{self, Write as _};
use std::io::{IsTerminal, Write as _};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tracing::Level;

use super::sink::{FIELD_PREFIX, Fields};
use crate::limits;

/// Our stderr.
pub struct Stderr {
    /// A file or a pipe is read later, so its lines have a date.
    dated: bool,
    /// The last line found no room: the next ones do not wait for any.
    stuck: AtomicBool,
}

impl Stderr {
    /// Whatever it is connected to.
    pub fn new() -> Self {
        Stderr { dated: !std::io::stderr().is_terminal(), stuck: AtomicBool::new(false) }
    }

    /// Whether it was taken. Waits for room up to [`limits::LOG_WAIT`], but not twice in a row.
    pub fn write(&self, line: &[u8]) -> bool {
        let date = line.iter().position(|byte| *byte == b'T').filter(|_| !self.dated);
        let line = date.and_then(|date| line.get(date + 1..)).unwrap_or(line);
        let stderr = std::io::stderr();
        let wait = if self.stuck.load(Ordering::Relaxed) { Duration::ZERO } else { limits::LOG_WAIT };
        let room = has_room(&stderr, wait);
        self.stuck.store(!room, Ordering::Relaxed);
        room && stderr.lock().write_all(line).is_ok()
    }
}

/// Whether a line fits, now or within `wait`, without blocking the write: a pipe that polls writable has room for a whole page, and no
/// line is longer ([`limits::LOG_LINE_BYTES`]).
fn has_room(to: &impl AsFd, wait: Duration) -> bool {
    let mut ready = [PollFd::new(to, PollFlags::OUT)];
    let wait = Timespec { tv_sec: 0, tv_nsec: wait.subsec_nanos().into() };
    poll(&mut ready, Some(&wait)).is_ok() && ready[0].revents().contains(PollFlags::OUT)
}

/// One event as text; always one line, its newline included.
pub struct Line<'a> {
    /// Its level.
    pub level: Level,
    /// When.
    pub at: SystemTime,
    /// Its fields and message.
    pub fields: &'a Fields,
}

impl Line<'_> {
    /// At the end of `out`, which is empty.
    pub fn write_to(&self, out: &mut Vec<u8>) {
        let mut text = Text(out);
        // Text takes everything.
        let _infallible = write_line(&mut text, self);
        if out.len() >= limits::LOG_LINE_BYTES {
            let room = limits::LOG_LINE_BYTES - "…\n".len();
            // Back to where a character begins.
            let cut = (0..=room).rev().find(|&at| out.get(at).is_none_or(|byte| byte & 0xC0 != 0x80));
            out.truncate(cut.unwrap_or(0));
            out.extend_from_slice("…".as_bytes());
        }
        out.push(b'\n');
    }
}

/// Text in a buffer of bytes.
struct Text<'a>(&'a mut Vec<u8>);

impl fmt::Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

fn write_line(out: &mut Text<'_>, line: &Line<'_>) -> fmt::Result {
    write_time(out, line.at)?;
    write!(out, " {:5} ", line.level.as_str())?;
    // Our events are told by their fields; their message says the same in words, for the journal.
    match line.fields.get("edgeward_event") {
        Some(event) => out.write_str(event)?,
        None => {
            for c in line.fields.message.chars() {
                out.write_char(if c.is_control() { ' ' } else { c })?;
            }
        }
    }
    for (name, value) in line.fields.iter() {
        if name == "edgeward_event" || name == "message_id" {
            continue;
        }
        write!(out, " {}=", name.strip_prefix(FIELD_PREFIX).unwrap_or(name))?;
        let plain = |c: char| c.is_ascii_graphic() && !matches!(c, '"' | '=' | '\\');
        if !value.is_empty() && value.chars().all(plain) {
            out.write_str(value)?;
        } else {
            // Debug escapes whatever could begin a new line or move a cursor.
            write!(out, "{value:?}")?;
        }
    }
    Ok(())
}

/// RFC 3339 in UTC, to the second.
#[must_use]
pub fn utc(at: SystemTime) -> String {
    let mut line = Vec::new();
    let _infallible = write_time(&mut Text(&mut line), at);
    let text = String::from_utf8_lossy(&line);
    text.split_once('.').map_or_else(|| text.to_string(), |(seconds, _)| format!("{seconds}Z"))
}

/// RFC 3339 in UTC, to the millisecond.
fn write_time(out: &mut Text<'_>, at: SystemTime) -> fmt::Result {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, second) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (year, month, day) = civil(days);
    write!(
        out,
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:03}Z",
        second / 3600,
        second / 60 % 60,
        second % 60,
        since.subsec_millis()
    )
}

/// Days since 1970 as year, month and day (H. Hinnant, "chrono-compatible low-level date algorithms").
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    (year, month, day_of_year - (153 * shifted + 2) / 5 + 1)
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

    /// Keeps lines instead of writing them.
    pub struct Kept(Arc<Mutex<Vec<String>>>);

    impl Subscriber for Kept {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }
        fn event(&self, event: &Event<'_>) {
            let mut fields = Fields::default();
            event.record(&mut fields);
            let at = UNIX_EPOCH + Duration::from_millis(1_700_000_000_123);
            let mut line = Vec::new();
            Line { level: *event.metadata().level(), at, fields: &fields }.write_to(&mut line);
            self.0.lock().unwrap().push(String::from_utf8(line).unwrap());
        }
        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }
        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    /// A subscriber that keeps lines, and its lines.
    pub fn kept() -> (Kept, Arc<Mutex<Vec<String>>>) {
        let kept = Arc::new(Mutex::new(Vec::new()));
        (Kept(Arc::clone(&kept)), kept)
    }

    /// The lines that `log` makes.
    pub fn lines(log: impl FnOnce()) -> Vec<String> {
        let (subscriber, kept) = kept();
        tracing::subscriber::with_default(subscriber, log);
        let lines = kept.lock().unwrap();
        lines.clone()
    }

    #[test]
    fn an_event_is_one_plain_line() {
        let shown = lines(|| {
            tracing::warn!(
                message_id = "00",
                edgeward_event = "attempt_failed",
                edgeward_target = "box",
                edgeward_detail = "CUDA error: out of memory",
                edgeward_took_us = 1200,
                edgeward_none = Option::<u64>::None,
                "in words"
            );
            tracing::info!(other = "", "plain message");
        });
        assert_eq!(
            shown,
            [
                "2023-11-14T22:13:20.123Z WARN  attempt_failed target=box detail=\"CUDA error: out of memory\" took_us=1200\n",
                "2023-11-14T22:13:20.123Z INFO  plain message other=\"\"\n",
            ]
        );
    }

    #[test]
    fn nothing_forges_a_line_and_none_is_too_long() {
        let nasty = "a\n12:00:00Z ERROR forged\r\u{1b}[2J\u{202e}=\"";
        let long = "ü".repeat(limits::LOG_LINE_BYTES);
        let shown = lines(|| {
            tracing::info!(edgeward_event = "request_done", edgeward_model = nasty);
            tracing::info!("{nasty}");
            tracing::info!(value = long);
        });
        for line in &shown {
            assert!(line.len() <= limits::LOG_LINE_BYTES);
            let body = line.strip_suffix('\n').unwrap();
            assert!(!body.chars().any(char::is_control), "{body:?}");
        }
        assert!(!shown[0].contains('\u{202e}'));
        assert!(shown[2].ends_with("…\n"));
    }

    #[test]
    fn a_full_pipe_is_seen_before_it_would_block() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let line = "x".repeat(limits::LOG_LINE_BYTES);
        let mut written = 0;
        // If room were promised wrongly, the write would block for ever.
        while has_room(&writer, limits::LOG_WAIT) {
            writer.write_all(line.as_bytes()).unwrap();
            written += 1;
        }
        assert!(written > 0);
        drop(reader);
        assert!(writer.write_all(b"nobody there").is_err());
    }

    #[test]
    fn dates_are_right() {
        for (days, date) in [
            (0, (1970, 1, 1)),
            (11_016, (2000, 2, 29)),
            (19_782, (2024, 2, 29)),
            (20_088, (2024, 12, 31)),
            (47_541, (2100, 3, 1)),
        ] {
            assert_eq!(civil(days), date);
        }
    }
}
