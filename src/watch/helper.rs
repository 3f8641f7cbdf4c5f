//! Asks the NVML helper who it is: on its Unix socket, or as a child on a pipe where no systemd holds that.
//!
//! Once, beside serving, and never in its way: whatever the helper or the driver behind it does, what is asked here
//! has an end, takes a bounded line, and tells one event.

use std::fmt;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::{UnixStream, unix::pipe};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::{spawn_blocking, spawn_local};
use tracing::debug;

use crate::limits;
use crate::observe::events;

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

/// Asks the helper for its version and logs it, or why there is none. Says nothing on a box without an NVIDIA driver.
pub async fn greet(place: Place) {
    if !place.wanted {
        debug!("No NVIDIA driver here: the NVML helper is not asked");
        return;
    }
    match ask(&place).await {
        Ok(version) => events::helper_ready(&version),
        Err(trouble) => events::helper_unavailable(&trouble.to_string(), trouble.remedy()),
    }
}

async fn ask(place: &Place) -> Result<String, Trouble> {
    match UnixStream::connect(&place.socket).await {
        Ok(stream) => {
            let uid = stream.peer_cred().map_err(Trouble::Reading)?.uid();
            // The socket's peer is whoever called listen(2): systemd, so root.
            if uid != 0 && uid != rustix::process::geteuid().as_raw() {
                return Err(Trouble::Stranger(place.socket.clone(), uid));
            }
            hello(stream).await
        }
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(Trouble::Connecting(place.socket.clone(), error))
        }
        Err(_) if place.systemd => Err(Trouble::NoSocket(place.socket.clone())),
        Err(_) => child().await,
    }
}

/// Asks over a pipe. The child's end is not waited for here: a driver may hold it even from SIGKILL.
async fn child() -> Result<String, Trouble> {
    let beside = std::env::current_exe().ok().and_then(|own| Some(own.parent()?.join(NAME)));
    let packaged = Path::new(FOLDER).join(NAME);
    let program = beside.into_iter().chain([packaged]).find(|path| path.is_file());
    let program = program.ok_or(Trouble::NoProgram)?;
    // Before there is a child, so that no end is missed.
    let ends = signal(SignalKind::child()).map_err(Trouble::Reading)?;
    let mut command = Command::new(&program);
    command.env_clear().stdin(Stdio::null()).stdout(Stdio::piped());
    if let Some(path) = std::env::var_os(LIBRARY_PATH) {
        command.env(LIBRARY_PATH, path);
    }
    // On a thread: a program is read from a disk that may be slow.
    let started = spawn_blocking(move || command.spawn()).await;
    let started = started.unwrap_or_else(|failed| Err(io::Error::other(failed)));
    let mut helper = Helper(started.map_err(|error| Trouble::Starting(program, error))?);
    let said = match helper.pipe() {
        Ok(pipe) => hello(pipe).await,
        Err(error) => Err(Trouble::Reading(error)),
    };
    spawn_local(helper.end(ends));
    said
}

/// The child; killed when dropped.
struct Helper(Child);

impl Helper {
    fn pipe(&mut self) -> io::Result<pipe::Receiver> {
        let stdout = self.0.stdout.take().ok_or(ErrorKind::BrokenPipe)?;
        pipe::Receiver::from_owned_fd(OwnedFd::from(stdout))
    }

    /// Kills it and takes its exit status, so that no zombie stays.
    async fn end(mut self, mut ends: Signal) {
        let _ended_already = self.0.kill();
        while let Ok(None) = self.0.try_wait() {
            if ends.recv().await.is_none() {
                return;
            }
        }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ended_already = self.0.kill();
    }
}

/// The version in the helper's first line, within [`limits::HELPER_ANSWER`].
async fn hello(from: impl AsyncRead + Unpin) -> Result<String, Trouble> {
    let line = tokio::time::timeout(limits::HELPER_ANSWER, line(from)).await;
    let line = line.unwrap_or(Err(Trouble::Silent))?;
    version(&line).map(str::to_owned).ok_or(Trouble::Unclear)
}

/// One line, without its end.
async fn line(mut from: impl AsyncRead + Unpin) -> Result<Vec<u8>, Trouble> {
    let mut line = Vec::with_capacity(limits::HELPER_LINE_BYTES);
    while line.len() < limits::HELPER_LINE_BYTES {
        let mut piece = [0; limits::HELPER_LINE_BYTES];
        let room = piece.get_mut(line.len()..).unwrap_or_default();
        let count = from.read(room).await.map_err(Trouble::Reading)?;
        let piece = room.get(..count).filter(|piece| !piece.is_empty()).ok_or(Trouble::Ended)?;
        if let Some(end) = piece.iter().position(|&byte| byte == b'\n') {
            line.extend_from_slice(piece.get(..end).unwrap_or_default());
            return Ok(line);
        }
        line.extend_from_slice(piece);
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
    use std::time::Duration;

    use tokio::io::AsyncWriteExt;

    use super::*;

    async fn told(pieces: &[&[u8]]) -> Result<String, String> {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        for piece in pieces {
            theirs.write_all(piece).await.unwrap();
        }
        drop(theirs);
        hello(ours).await.map_err(|trouble| trouble.to_string())
    }

    #[tokio::test]
    async fn a_version_is_taken_and_nothing_else() {
        assert_eq!(told(&[b"edgeward-nvml 0.1.0\n"]).await, Ok("0.1.0".to_owned()));
        assert_eq!(told(&[b"edgeward-", b"nvml 1.2.3-rc.1+b\nmore"]).await, Ok("1.2.3-rc.1+b".to_owned()));
        let longest = format!("edgeward-nvml {}\n", "1".repeat(limits::HELPER_LINE_BYTES - 15));
        assert!(told(&[longest.as_bytes()]).await.is_ok());
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
            let trouble = told(&[said]).await.unwrap_err();
            assert!(trouble.contains(want), "{:?}: {trouble}", String::from_utf8_lossy(said));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn silence_has_an_end_however_slowly_it_is_broken() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let drip = async {
            loop {
                theirs.write_all(b"e").await.unwrap();
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        };
        let said = tokio::select! {
            said = hello(ours) => said,
            () = drip => return,
        };
        assert!(matches!(said, Err(Trouble::Silent)), "{said:?}");
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
