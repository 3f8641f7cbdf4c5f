//! What of the system this user can reach, for `edgeward boards`: each way by which a death is seen, tried once.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Access, Mode, OFlags};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};
use rustix::process::{Pid, PidfdFlags};

use super::{helper, places};
use crate::config::{Board, Config, Kind, Memory, Place};
use crate::memory::advice::Seen;

/// How long a local server may take to accept a connection, and the kernel to answer.
const PATIENCE: Duration = Duration::from_millis(200);
/// Units that model servers usually are.
const UNITS: [&str; 5] =
    ["ollama.service", "vllm.service", "llama-server.service", "llamacpp.service", "sglang.service"];
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

/// Every way, tried.
#[must_use]
pub fn ways(memory: &Memory, env: &dyn Fn(&str) -> Option<String>) -> [Way; 6] {
    let socket = env(helper::SOCKET_VARIABLE).filter(|path| !path.is_empty());
    let socket = socket.unwrap_or_else(|| helper::SOCKET.to_owned());
    let way = |what, how: &str, tried: io::Result<()>, remedy| Way {
        what,
        state: tried.map(|()| how.to_owned()).map_err(|error| (error, remedy)),
    };
    [
        Way {
            what: "the helper, edgeward-nvml",
            state: listens(Path::new(&socket)).map(|()| socket).map_err(|error| {
                let remedy = "install it from edgeward's release, then sudo systemctl enable --now edgeward-nvml.socket; \
                              without it no figures of NVIDIA's driver, no kernel log, no other users' processes";
                (error, remedy)
            }),
        },
        way("the kernel's log", "/dev/kmsg", kernel_log(), HELPER),
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
        way("other users' processes", "/proc/1/fd", fs::read_dir("/proc/1/fd").map(drop), HELPER),
        Way {
            what: "the processes of a model server's unit",
            state: server_group(Path::new(places::ROOT), memory)
                .map(|path| path.display().to_string())
                .map_err(|error| {
                    (error, "start its unit; if it has another name than ollama or vllm, set `cgroup` in [memory]")
                }),
        },
    ]
}

/// Whether a socket is there that this user may connect to. Not tried: systemd would start the helper for it.
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

/// The list of processes of the cgroup that the model server lives in, by its configured folder or its usual name.
fn server_group(root: &Path, memory: &Memory) -> io::Result<PathBuf> {
    let slices = ["sys/fs/cgroup/system.slice", "sys/fs/cgroup/systemd/system.slice"];
    let usual = slices.iter().flat_map(|slice| UNITS.map(|unit| root.join(slice).join(unit)));
    let mut last = io::Error::new(ErrorKind::NotFound, "no unit of a usual name runs");
    for folder in memory.cgroup.clone().into_iter().chain(usual) {
        let path = folder.join("cgroup.procs");
        match File::open(&path) {
            Ok(_) => return Ok(path),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => last = error,
        }
    }
    Err(last)
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
    fn a_servers_processes_are_found_by_its_unit_or_where_the_configuration_says() {
        let root = std::env::temp_dir().join(format!("edgeward-reach-{}", std::process::id()));
        let memory = Memory::default();
        assert_eq!(server_group(&root, &memory).unwrap_err().to_string(), "no unit of a usual name runs");
        let unit = root.join("sys/fs/cgroup/system.slice/ollama.service");
        let other = root.join("other");
        for folder in [&unit, &other] {
            fs::create_dir_all(folder).unwrap();
            fs::write(folder.join("cgroup.procs"), "1\n").unwrap();
        }
        assert_eq!(server_group(&root, &memory).unwrap(), unit.join("cgroup.procs"));
        let named = Memory { cgroup: Some(other.clone()), ..memory };
        assert_eq!(server_group(&root, &named).unwrap(), other.join("cgroup.procs"));
        fs::remove_dir_all(root).unwrap();
    }

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
        let all = ways(&Memory::default(), &|_| None);
        assert!(all.iter().all(|way| {
            way.state.as_ref().map_or_else(|(why, _)| !why.to_string().is_empty(), |how| !how.is_empty())
        }));
        let who = all.iter().find(|way| way.what == "who serves a port").unwrap();
        assert!(who.state.is_ok(), "{who:?}");
    }
}
