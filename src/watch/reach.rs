//! What of the system this user can reach, for `edgeward boards`: each way by which a death is seen, tried once.

use std::fs;
use std::io::{self, ErrorKind};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{Access, Mode, OFlags};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};
use rustix::process::{Pid, PidfdFlags};

use super::helper::{self, DEAF_REMEDY, Helper};
use crate::config::{Board, Config, Kind, Place};
use crate::memory::advice::Seen;

/// How long a local server may take to accept a connection, and the kernel to answer.
const PATIENCE: Duration = Duration::from_millis(200);
/// What allows most of what is missing.
const HELPER: &str = "the helper does it: sudo systemctl enable --now edgeward-nvml.socket";

/// One way.
#[derive(Debug)]
pub struct Way {
    /// What it shows.
    pub what: &'static str,
    /// How; or why not, and what helps.
    pub state: Result<String, (io::Error, &'static str)>,
}

/// Whether this user is root, who reaches more than the service.
#[must_use]
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Every way, tried; by way of the `helper`, as far as it was asked.
#[must_use]
pub fn ways(asked: &Helper, env: &dyn Fn(&str) -> Option<String>) -> [Way; 5] {
    let socket = env(helper::SOCKET_VARIABLE).filter(|path| !path.is_empty());
    let socket = socket.unwrap_or_else(|| helper::SOCKET.to_owned());
    let way = |what, how: &str, tried: io::Result<()>, remedy| Way {
        what,
        state: tried.map(|()| how.to_owned()).map_err(|error| (error, remedy)),
    };
    let there = asked.version().is_some();
    let mut log =
        way("the kernel's log", "/dev/kmsg", kernel_log(), if there { DEAF_REMEDY } else { HELPER });
    if log.state.is_err() && asked.hears_kernel() {
        log.state = Ok("by the helper".to_owned());
    }
    let mut others =
        way("other users' processes", "/proc/1/fd", fs::read_dir("/proc/1/fd").map(drop), HELPER);
    if others.state.is_err() && there {
        // What of it was given up is seen by what it says of servers alone.
        others.state = Ok("the helper is asked".to_owned());
    }
    [
        Way { what: "the helper, edgeward-nvml", state: the_helper(&socket, asked) },
        log,
        way(
            "the end of a process",
            "pidfd_open",
            rustix::process::pidfd_open(Pid::INIT, PidfdFlags::empty()).map(drop).map_err(io::Error::from),
            "Linux 5.3 has it; in a container its seccomp profile must allow it",
        ),
        way(
            "who serves a port",
            "socket diagnostics",
            socket_diagnostics(),
            "the kernel needs tcp_diag (sudo modprobe tcp_diag), a unit AF_NETLINK in RestrictAddressFamilies=",
        ),
        others,
    ]
}

/// How it was reached, or why not.
fn the_helper(socket: &str, asked: &Helper) -> Result<String, (io::Error, &'static str)> {
    if let Some(version) = asked.version() {
        return Ok(format!("{socket}, version {version}"));
    }
    listens(Path::new(socket)).map_err(|error| {
        let remedy = match error.kind() {
            ErrorKind::PermissionDenied => "it is the service's to ask: sudo -u edgeward edgeward boards",
            _ => {
                "install it from edgeward's release, then sudo systemctl enable --now edgeward-nvml.socket; \
                 without it no figures of NVIDIA's driver, no kernel log, no other users' processes"
            }
        };
        (error, remedy)
    })?;
    match asked.trouble() {
        // With another release of the library than the driver's it ends once it has said so.
        Some(why) if asked.gpus(|known| known.blind().is_none()) => Err((
            io::Error::other(why),
            "look at systemctl status edgeward-nvml.socket and journalctl -u edgeward-nvml",
        )),
        _ => Ok(socket.to_owned()),
    }
}

/// Whether a socket is there that this user may connect to.
fn listens(path: &Path) -> io::Result<()> {
    if !fs::metadata(path)?.file_type().is_socket() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "it is no socket"));
    }
    Ok(rustix::fs::access(path, Access::WRITE_OK)?)
}

fn kernel_log() -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(rustix::fs::open("/dev/kmsg", flags, Mode::empty()).map(drop)?)
}

/// Asks the kernel for the first listening TCP socket (sock_diag(7)).
fn socket_diagnostics() -> io::Result<()> {
    const DUMP_BY_FAMILY: [u16; 2] = [20, 0x301];
    const ERROR: u16 = 2;
    let mut ask = Vec::with_capacity(72);
    ask.extend(72_u32.to_ne_bytes());
    DUMP_BY_FAMILY.iter().for_each(|half| ask.extend(half.to_ne_bytes()));
    ask.extend([0; 8]);
    // AF_INET, IPPROTO_TCP, nothing more of each, and only those that listen.
    ask.extend([2, 6, 0, 0]);
    ask.extend((1_u32 << 10).to_ne_bytes());
    ask.resize(72, 0);
    let socket = rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        Some(rustix::net::netlink::SOCK_DIAG),
    )?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(PATIENCE))?;
    rustix::net::send(&socket, &ask, SendFlags::empty())?;
    let mut answer = [MaybeUninit::<u8>::uninit(); 8192];
    let ((said, _), _) = rustix::net::recv(&socket, &mut answer, RecvFlags::empty())?;
    let number = |at: usize| said.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
    let kind = said.get(4..6).and_then(|bytes| bytes.try_into().ok()).map(u16::from_ne_bytes);
    match kind {
        Some(ERROR) => {
            let errno = number(16).map_or(0, i32::from_ne_bytes);
            Err(io::Error::from_raw_os_error(errno.saturating_neg()))
        }
        Some(_) => Ok(()),
        None => Err(ErrorKind::InvalidData.into()),
    }
}

/// Which kinds of the configuration's local servers accept connections now, each once.
#[must_use]
pub fn servers(config: &Config) -> Vec<Kind> {
    let mut kinds = Vec::new();
    for target in config.targets.iter().filter(|target| target.place == Place::Local) {
        let Some(port) = target.url.port() else { continue };
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        if !kinds.contains(&target.kind) && TcpStream::connect_timeout(&address, PATIENCE).is_ok() {
            kinds.push(target.kind);
        }
    }
    kinds
}

/// Files that advice depends on: `with` sees them.
pub fn seen<T>(
    root: &Path,
    board: Board,
    shared: bool,
    total: u32,
    servers: &[Kind],
    with: impl FnOnce(&Seen<'_>) -> T,
) -> T {
    let there = |path: &str| root.join(path).exists();
    with(&Seen {
        board,
        shared,
        total,
        servers,
        swaps: &fs::read(root.join("proc/swaps")).unwrap_or_default(),
        nvidia: there("proc/driver/nvidia"),
        persistent: there("run/nvidia-persistenced/socket"),
        upgrades: there("etc/apt/apt.conf.d/20auto-upgrades"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_told_from_what_is_none() {
        let path = std::env::temp_dir().join(format!("edgeward-reach-{}.sock", std::process::id()));
        assert_eq!(listens(&path).unwrap_err().kind(), ErrorKind::NotFound);
        fs::write(&path, "").unwrap();
        assert_eq!(listens(&path).unwrap_err().to_string(), "it is no socket");
        fs::remove_file(&path).unwrap();
        let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        assert!(listens(&path).is_ok());
        fs::remove_file(&path).unwrap();
    }

    /// Each has its answer or its error, and none waits: the kernel here is the test's.
    #[test]
    fn every_way_is_tried() {
        let all = ways(&Helper::default(), &|_| None);
        assert!(all.iter().all(|way| {
            way.state.as_ref().map_or_else(|(why, _)| !why.to_string().is_empty(), |how| !how.is_empty())
        }));
        let who = all.iter().find(|way| way.what == "who serves a port").unwrap();
        assert!(who.state.is_ok(), "{who:?}");
    }
}
