//! How the helper is reached: on its Unix socket, or as a child where no systemd holds that; and where there is none,
//! nvidia-smi.

use std::fmt;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use rustix::net::sockopt::socket_peercred;
use socket2::{Domain, SockAddr, Socket, Type};
use tokio::sync::oneshot;

use crate::limits;

/// Where `edgeward-nvml.socket` listens.
pub const SOCKET: &str = "/run/edgeward-nvml/nvml.sock";
/// Names another socket; the helper is then asked even where no NVIDIA driver is to be seen.
pub const SOCKET_VARIABLE: &str = "EDGEWARD_NVML_SOCKET";
/// The helper's program, and the first word that it says.
pub(super) const NAME: &str = "edgeward-nvml";
/// Where a package has it; else it lies beside edgeward itself.
const FOLDER: &str = "/usr/libexec/edgeward";
/// One of these is there while an NVIDIA driver is. The unit's sandbox hides the first.
const DRIVER: [&str; 2] = ["/dev/nvidiactl", "/proc/driver/nvidia"];
/// The only variable that the helper is given: where the driver's library lies, if not in its usual place. Others
/// may hold keys.
const LIBRARY_PATH: &str = "LD_LIBRARY_PATH";
/// What stands in for the helper, and what it is asked: it writes a line a GPU each second, for as long as it runs.
pub(super) const SMI: &str = "nvidia-smi";
const SMI_ARGUMENTS: [&str; 4] =
    ["--query-gpu=index,memory.total,memory.free", "--format=csv,noheader,nounits", "-lms", "1000"];
/// Where it is looked for without a PATH.
const USUAL_PATH: &str = "/usr/bin:/usr/local/bin:/bin";
/// The kernel's list of what is on the PCI bus.
const PCI: &str = "/sys/bus/pci/devices";
/// NVIDIA's, there.
const NVIDIA: &str = "0x10de";

/// Where the helper is to be found, and whether there is anything for it to do.
#[derive(Clone, Debug)]
pub struct Place {
    pub(super) socket: PathBuf,
    systemd: bool,
    named: bool,
}

impl Place {
    /// As the environment says. Under systemd the helper is a unit of its own: started from here it would inherit a
    /// sandbox without the GPU's devices.
    #[must_use]
    pub fn from_env(env: &dyn Fn(&str) -> Option<String>, systemd: bool) -> Self {
        let named = env(SOCKET_VARIABLE).filter(|path| !path.is_empty());
        let wanted = named.is_some();
        Place { socket: named.unwrap_or_else(|| SOCKET.to_owned()).into(), systemd, named: wanted }
    }

    /// Whether it is asked: its socket was named, a driver is here by now, or systemd has its socket, which also hears
    /// the kernel's log where there is no GPU.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.expects_gpu() || self.systemd && self.socket.exists()
    }

    /// Whether it is news that the helper knows of no GPU.
    pub(super) fn expects_gpu(&self) -> bool {
        self.named || DRIVER.iter().any(|path| Path::new(path).exists())
    }
}

/// Who is at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who {
    Helper,
    Smi,
}

/// A connection to it. Dropped, it takes a child along.
#[derive(Debug)]
pub(super) struct Link {
    pub who: Who,
    pub stream: UnixStream,
    pub child: Option<Running>,
}

/// A child of ours.
#[derive(Debug)]
pub(super) struct Running(Child);

impl Running {
    /// Whether it has ended. It leaves no zombie then.
    pub fn is_over(&mut self) -> bool {
        // What cannot be asked for is not there.
        !matches!(self.0.try_wait(), Ok(None))
    }

    /// Ends it. It may take its time: a driver holds a process even from SIGKILL.
    pub fn kill(&mut self) {
        let _ended_already = self.0.kill();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
        let _not_yet = self.0.try_wait();
    }
}

/// Connects, or starts a child, on a thread of its own: both may wait for a disk.
///
/// # Errors
/// Why there is none.
pub(super) async fn open(place: Place) -> Result<Link, Trouble> {
    let (done, result) = oneshot::channel();
    let work = move || {
        // Nobody waits any more: what was opened is closed, and a child ends.
        let _nobody = done.send(reach(&place));
    };
    thread::Builder::new().name("helper".to_owned()).spawn(work).map_err(Trouble::Reading)?;
    result.await.unwrap_or(Err(Trouble::Ended))
}

fn reach(place: &Place) -> Result<Link, Trouble> {
    match connect(&place.socket) {
        Ok(stream) => {
            let uid = socket_peercred(&stream).map_err(|e| Trouble::Reading(e.into()))?.uid;
            // The socket's peer is whoever called listen(2): systemd, so root.
            if !uid.is_root() && uid != rustix::process::geteuid() {
                return Err(Trouble::Stranger(place.socket.clone(), uid.as_raw()));
            }
            unblocked(Link { who: Who::Helper, stream, child: None })
        }
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(Trouble::Connecting(place.socket.clone(), error))
        }
        Err(_) if place.systemd => Err(Trouble::NoSocket(place.socket.clone())),
        Err(_) => start(),
    }
}

fn unblocked(link: Link) -> Result<Link, Trouble> {
    link.stream.set_nonblocking(true).map_err(Trouble::Reading)?;
    Ok(link)
}

/// In time, even where the queue of who listens is full.
fn connect(path: &Path) -> io::Result<UnixStream> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_write_timeout(Some(limits::HELPER_ANSWER))?;
    socket.connect(&SockAddr::unix(path)?)?;
    Ok(OwnedFd::from(socket).into())
}

/// Starts the helper, or what stands in for it; its stdin and stdout are the other end of what this returns.
fn start() -> Result<Link, Trouble> {
    let beside = std::env::current_exe().ok().and_then(|own| Some(own.parent()?.join(NAME)));
    let packaged = Path::new(FOLDER).join(NAME);
    if let Some(program) = beside.into_iter().chain([packaged]).find(|path| path.is_file()) {
        return spawn(Who::Helper, program, &[]);
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| USUAL_PATH.into());
    let smi = std::env::split_paths(&path).map(|folder| folder.join(SMI)).find(|path| path.is_file());
    match smi {
        Some(_) if a_card_may_sleep() => Err(Trouble::MaySleep),
        Some(program) => spawn(Who::Smi, program, &SMI_ARGUMENTS),
        None => Err(Trouble::NoProgram),
    }
}

fn spawn(who: Who, program: PathBuf, arguments: &[&str]) -> Result<Link, Trouble> {
    // The same kind of stream as systemd's socket gives, so that one reader does for both.
    let (ours, theirs) = UnixStream::pair().map_err(Trouble::Reading)?;
    let mut command = Command::new(&program);
    let stdin = match who {
        // Its end is how the helper learns of ours.
        Who::Helper => OwnedFd::from(theirs.try_clone().map_err(Trouble::Reading)?).into(),
        Who::Smi => Stdio::null(),
    };
    command.args(arguments).env_clear().stdin(stdin).stdout(OwnedFd::from(theirs));
    if let Some(path) = std::env::var_os(LIBRARY_PATH) {
        command.env(LIBRARY_PATH, path);
    }
    let child = command.spawn().map_err(|error| Trouble::Starting(program, error))?;
    unblocked(Link { who, stream: ours, child: Some(Running(child)) })
}

/// nvidia-smi asks every second whether a GPU sleeps or not, and so keeps it from it.
fn a_card_may_sleep() -> bool {
    let Ok(entries) = fs::read_dir(PCI) else { return false };
    let says = |folder: &Path, file: &str, word: &str| {
        fs::read_to_string(folder.join(file)).is_ok_and(|text| text.trim() == word)
    };
    let mut cards = entries.flatten().map(|entry| entry.path()).filter(|path| says(path, "vendor", NVIDIA));
    cards.any(|card| says(&card, "power/control", "auto"))
}

/// Why the helper says nothing.
#[derive(Debug)]
pub(super) enum Trouble {
    NoSocket(PathBuf),
    Connecting(PathBuf, io::Error),
    Stranger(PathBuf, u32),
    NoProgram,
    MaySleep,
    Starting(PathBuf, io::Error),
    Reading(io::Error),
    /// It gave no first line.
    Silent,
    /// It ended before that.
    Ended,
    /// It ended.
    Gone,
    /// It has nothing said for long.
    Mute,
    TooLong,
    Unclear,
    /// Its records are of this version.
    Other(u8),
    /// One that was killed is still there.
    Stuck,
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
            Trouble::MaySleep => {
                write!(
                    f,
                    "no {NAME} beside edgeward's program or in {FOLDER}, and {SMI} would keep the GPU awake"
                )
            }
            Trouble::Starting(path, error) => write!(f, "cannot start {}: {error}", path.display()),
            Trouble::Reading(error) => write!(f, "cannot read what it says: {error}"),
            Trouble::Silent => {
                write!(f, "it said nothing within {} seconds", limits::HELPER_ANSWER.as_secs())
            }
            Trouble::Ended => f.write_str("it ended before it said its version"),
            Trouble::Gone => f.write_str("it ended"),
            Trouble::Mute => {
                write!(f, "it said nothing for {} seconds", limits::HELPER_HOPELESS.as_secs())
            }
            Trouble::TooLong => {
                write!(f, "its first line is longer than {} bytes", limits::HELPER_LINE_BYTES)
            }
            Trouble::Unclear => f.write_str("its first line names no version"),
            Trouble::Other(version) => write!(f, "its records are of version {version}"),
            Trouble::Stuck => f.write_str("the one before was killed and does not end"),
        }
    }
}

impl Trouble {
    /// What helps.
    pub fn remedy(&self) -> &'static str {
        match self {
            Trouble::NoSocket(_) => "systemctl enable --now edgeward-nvml.socket",
            Trouble::Connecting(..) => "look at systemctl status edgeward-nvml.socket",
            Trouble::Stranger(..) => "find out who made it, and remove it",
            Trouble::NoProgram | Trouble::MaySleep => "put it there, from edgeward's release for this board",
            Trouble::Starting(..) => "install the one from edgeward's release for this board",
            Trouble::Reading(_) | Trouble::Silent | Trouble::Ended | Trouble::Gone | Trouble::Mute => {
                "look at journalctl -u edgeward-nvml, and whether nvidia-smi answers"
            }
            Trouble::TooLong | Trouble::Unclear | Trouble::Other(_) => {
                "install edgeward and edgeward-nvml from one release"
            }
            Trouble::Stuck => "the driver holds it: dmesg | grep NVRM, and if need be reboot",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_asked_where_there_is_a_driver_or_a_socket_is_named() {
        let place = Place::from_env(&|name| (name == SOCKET_VARIABLE).then(|| "/x".to_owned()), true);
        assert_eq!((place.socket.to_str(), place.is_wanted(), place.systemd), (Some("/x"), true, true));
        for none in [None, Some(String::new())] {
            let place = Place::from_env(&|_| none.clone(), false);
            assert_eq!(place.socket.to_str(), Some(SOCKET));
            assert_eq!(place.is_wanted(), DRIVER.iter().any(|path| Path::new(path).exists()));
        }
    }
}
