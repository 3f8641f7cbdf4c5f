//! Asks the NVML helper who it is: on its Unix socket, or as a child where no systemd holds that.
//!
//! Once, on a thread of its own, so that it is never in the way of serving: starting a program waits for a disk, and
//! a driver may hold a process even from SIGKILL. What is asked has an end, takes a bounded line, tells one event.

use std::fmt;
use std::io::{self, ErrorKind, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::net::sockopt::socket_peercred;
use socket2::{Domain, SockAddr, Socket, Type};

use crate::limits;
use crate::observe::{self, events};
use crate::time::now;

/// Where `edgeward-nvml.socket` listens.
pub const SOCKET: &str = "/run/edgeward-nvml/nvml.sock";
/// Names another socket; the helper is then asked even where no NVIDIA driver is to be seen.
pub const SOCKET_VARIABLE: &str = "EDGEWARD_NVML_SOCKET";
/// The helper's program, and the first word that it says.
const NAME: &str = "edgeward-nvml";
/// Where a package has it; else it lies beside edgeward itself.
const FOLDER: &str = "/usr/libexec/edgeward";
/// One of these is there while an NVIDIA driver is. The unit's sandbox hides the first.
const DRIVER: [&str; 2] = ["/dev/nvidiactl", "/proc/driver/nvidia"];
/// The only variable that the helper is given: where the driver's library lies, if not in its usual place. Others
/// may hold keys.
const LIBRARY_PATH: &str = "LD_LIBRARY_PATH";

/// Where the helper is to be found, and whether there is anything for it to do.
#[derive(Clone, Debug)]
pub struct Place {
    socket: PathBuf,
    systemd: bool,
    wanted: bool,
}

impl Place {
    /// As the environment says. Under systemd the helper is a unit of its own: started from here it would inherit a
    /// sandbox without the GPU's devices.
    #[must_use]
    pub fn from_env(env: &dyn Fn(&str) -> Option<String>, systemd: bool) -> Self {
        let named = env(SOCKET_VARIABLE).filter(|path| !path.is_empty());
        let wanted = named.is_some() || DRIVER.iter().any(|path| Path::new(path).exists());
        Place { socket: named.unwrap_or_else(|| SOCKET.to_owned()).into(), systemd, wanted }
    }
}

/// A question to the helper under way. Dropped, it takes the child along.
#[must_use]
pub struct Greeting(Started);

/// The child, while it may have to be killed by whom it was not started by.
type Started = Arc<Mutex<Option<Child>>>;

impl Drop for Greeting {
    fn drop(&mut self) {
        drop(taken(&self.0));
    }
}

/// Takes the child out, killed.
fn taken(started: &Started) -> Option<Child> {
    let mut child = started.lock().unwrap_or_else(PoisonError::into_inner).take()?;
    let _ended_already = child.kill();
    Some(child)
}

/// Asks the helper for its version and logs it, or why there is none. Says nothing on a box without an NVIDIA driver.
pub fn greet(place: Place) -> Greeting {
    let started = Started::default();
    if !place.wanted {
        observe::fine("the NVML helper is not asked", None, &"no NVIDIA driver here");
        return Greeting(started);
    }
    let shared = Arc::clone(&started);
    let asking = move || {
        tell(ask(&place, &shared));
        // Its exit status is taken, so that no zombie stays.
        if let Some(mut child) = taken(&shared) {
            let _status = child.wait();
        }
    };
    if let Err(error) = thread::Builder::new().name("helper".to_owned()).spawn(asking) {
        tell(Err(Trouble::Reading(error)));
    }
    Greeting(started)
}

fn tell(answer: Result<String, Trouble>) {
    match answer {
        Ok(version) => events::helper_ready(&version),
        Err(trouble) => events::helper_unavailable(&trouble.to_string(), trouble.remedy()),
    }
}

fn ask(place: &Place, started: &Started) -> Result<String, Trouble> {
    let stream = match connect(&place.socket) {
        Ok(stream) => {
            let uid = socket_peercred(&stream).map_err(|e| Trouble::Reading(e.into()))?.uid;
            // The socket's peer is whoever called listen(2): systemd, so root.
            if !uid.is_root() && uid != rustix::process::geteuid() {
                return Err(Trouble::Stranger(place.socket.clone(), uid.as_raw()));
            }
            stream
        }
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(Trouble::Connecting(place.socket.clone(), error));
        }
        Err(_) if place.systemd => return Err(Trouble::NoSocket(place.socket.clone())),
        Err(_) => start(started)?,
    };
    hello(stream, limits::HELPER_ANSWER)
}

/// In time, even where the queue of who listens is full.
fn connect(path: &Path) -> io::Result<UnixStream> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_write_timeout(Some(limits::HELPER_ANSWER))?;
    socket.connect(&SockAddr::unix(path)?)?;
    Ok(OwnedFd::from(socket).into())
}

/// Starts the helper; its stdout is the other end of what this returns.
fn start(started: &Started) -> Result<UnixStream, Trouble> {
    let beside = std::env::current_exe().ok().and_then(|own| Some(own.parent()?.join(NAME)));
    let packaged = Path::new(FOLDER).join(NAME);
    let program = beside.into_iter().chain([packaged]).find(|path| path.is_file());
    let program = program.ok_or(Trouble::NoProgram)?;
    // The same kind of stream as systemd's socket gives, so that one reader does for both.
    let (ours, theirs) = UnixStream::pair().map_err(Trouble::Reading)?;
    let mut command = Command::new(&program);
    command.env_clear().stdin(Stdio::null()).stdout(OwnedFd::from(theirs));
    if let Some(path) = std::env::var_os(LIBRARY_PATH) {
        command.env(LIBRARY_PATH, path);
    }
    let child = command.spawn().map_err(|error| Trouble::Starting(program, error))?;
    *started.lock().unwrap_or_else(PoisonError::into_inner) = Some(child);
    Ok(ours)
}

/// The version in the helper's first line, within `limit`, however slowly it comes.
fn hello(mut from: UnixStream, limit: Duration) -> Result<String, Trouble> {
    let deadline = now() + limit;
    let mut line = [0; limits::HELPER_LINE_BYTES];
    let mut length = 0;
    while let Some(room) = line.get_mut(length..).filter(|room| !room.is_empty()) {
        let left = deadline.saturating_duration_since(now());
        if left.is_zero() {
            return Err(Trouble::Silent);
        }
        from.set_read_timeout(Some(left)).map_err(Trouble::Reading)?;
        let count = match from.read(room) {
            Ok(0) => return Err(Trouble::Ended),
            Ok(count) => count,
            // Asked again until the time is up.
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => continue,
            Err(error) => return Err(Trouble::Reading(error)),
        };
        length += count;
        let said = line.get(..length).unwrap_or_default();
        if let Some(end) = said.iter().position(|&byte| byte == b'\n') {
            let version = version(said.get(..end).unwrap_or_default());
            return version.map(str::to_owned).ok_or(Trouble::Unclear);
        }
    }
    Err(Trouble::TooLong)
}

/// Of `edgeward-nvml 1.2.3`; nothing that a log could not take.
fn version(line: &[u8]) -> Option<&str> {
    let version = std::str::from_utf8(line).ok()?.strip_prefix(NAME)?.strip_prefix(' ')?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".+-".contains(&byte);
    (!version.is_empty() && version.bytes().all(plain)).then_some(version)
}

/// Why the helper gave no version.
#[derive(Debug)]
enum Trouble {
    NoSocket(PathBuf),
    Connecting(PathBuf, io::Error),
    Stranger(PathBuf, u32),
    NoProgram,
    Starting(PathBuf, io::Error),
    Reading(io::Error),
    Silent,
    Ended,
    TooLong,
    Unclear,
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::NoSocket(path) => write!(f, "no socket at {}", path.display()),
            Trouble::Connecting(path, error) => write!(f, "cannot connect to {}: {error}", path.display()),
            Trouble::Stranger(path, uid) => {
                write!(f, "{} is served by user {uid}, not by root or by edgeward's own", path.display())
            }
            Trouble::NoProgram => write!(f, "no {NAME} beside edgeward's program or in {FOLDER}"),
            Trouble::Starting(path, error) => write!(f, "cannot start {}: {error}", path.display()),
            Trouble::Reading(error) => write!(f, "cannot read what it says: {error}"),
            Trouble::Silent => {
                write!(f, "it said nothing within {} seconds", limits::HELPER_ANSWER.as_secs())
            }
            Trouble::Ended => f.write_str("it ended before it said its version"),
            Trouble::TooLong => {
                write!(f, "its first line is longer than {} bytes", limits::HELPER_LINE_BYTES)
            }
            Trouble::Unclear => f.write_str("its first line names no version"),
        }
    }
}

impl Trouble {
    /// What helps.
    fn remedy(&self) -> &'static str {
        match self {
            Trouble::NoSocket(_) => "systemctl enable --now edgeward-nvml.socket",
            Trouble::Connecting(..) => "look at systemctl status edgeward-nvml.socket",
            Trouble::Stranger(..) => "find out who made it, and remove it",
            Trouble::NoProgram => "put it there, from edgeward's release for this board",
            Trouble::Starting(..) => "install the one from edgeward's release for this board",
            Trouble::Reading(_) | Trouble::Silent | Trouble::Ended => {
                "look at journalctl -u edgeward-nvml, and whether nvidia-smi answers"
            }
            Trouble::TooLong | Trouble::Unclear => "install edgeward and edgeward-nvml from one release",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn told(pieces: &[&[u8]]) -> Result<String, String> {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        for piece in pieces {
            theirs.write_all(piece).unwrap();
        }
        drop(theirs);
        hello(ours, limits::HELPER_ANSWER).map_err(|trouble| trouble.to_string())
    }

    #[test]
    fn a_version_is_taken_and_nothing_else() {
        assert_eq!(told(&[b"edgeward-nvml 0.1.0\n"]), Ok("0.1.0".to_owned()));
        assert_eq!(told(&[b"edgeward-", b"nvml 1.2.3-rc.1+b\nmore"]), Ok("1.2.3-rc.1+b".to_owned()));
        let longest = format!("edgeward-nvml {}\n", "1".repeat(limits::HELPER_LINE_BYTES - 15));
        assert!(told(&[longest.as_bytes()]).is_ok());
        for (said, want) in [
            (&b""[..], "ended"),
            (b"edgeward-nvml 0.1.0", "ended"),
            (b"\n", "names no version"),
            (b"edgeward-nvml \n", "names no version"),
            (b"edgeward-nvml\t1\n", "names no version"),
            (b"edgeward-nvml 1 2\n", "names no version"),
            (b"edgeward-nvml 1\x1b[2J\n", "names no version"),
            (b"edgeward-nvml \xff\n", "names no version"),
            (b"edgeward 0.1.0\n", "names no version"),
            (&[b'x'; limits::HELPER_LINE_BYTES], "longer"),
            (&[b'x'; 8 * limits::HELPER_LINE_BYTES], "longer"),
        ] {
            let trouble = told(&[said]).unwrap_err();
            assert!(trouble.contains(want), "{:?}: {trouble}", String::from_utf8_lossy(said));
        }
    }

    #[test]
    fn silence_has_an_end() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        assert!(matches!(hello(ours, Duration::from_millis(20)), Err(Trouble::Silent)));
    }

    #[test]
    fn it_is_asked_where_there_is_a_driver_or_a_socket_is_named() {
        let place = Place::from_env(&|name| (name == SOCKET_VARIABLE).then(|| "/x".to_owned()), true);
        assert_eq!((place.socket.to_str(), place.wanted, place.systemd), (Some("/x"), true, true));
        for none in [None, Some(String::new())] {
            let place = Place::from_env(&|_| none.clone(), false);
            assert_eq!(place.socket.to_str(), Some(SOCKET));
            assert_eq!(place.wanted, DRIVER.iter().any(|path| Path::new(path).exists()));
        }
    }
}
