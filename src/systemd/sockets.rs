//! Socket activation: listening sockets that systemd has opened and passed (`sd_listen_fds(3)`).

use std::net::{SocketAddr, TcpListener};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixListener;

use rustix::io::{FdFlags, fcntl_setfd};
use socket2::{Socket, Type};

use super::{Env, is_ours};
use crate::limits::PASSED_SOCKETS_MAX;

/// The first passed descriptor: `SD_LISTEN_FDS_START`.
const FIRST: RawFd = 3;
/// `FileDescriptorName=` of the operators' socket. Any other name is a socket for clients, `client` by custom.
const ADMIN: &str = "admin";

/// One passed listening socket.
#[derive(Debug)]
pub enum Passed {
    /// For clients, over TCP.
    Tcp(TcpListener),
    /// For clients on this box.
    Unix(UnixListener),
    /// For operators.
    Admin(UnixListener),
    /// Of no use, and why.
    Useless(String),
}

impl Passed {
    /// Where a client's TCP socket listens.
    #[must_use]
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        match self {
            Passed::Tcp(listener) => listener.local_addr().ok(),
            Passed::Unix(_) | Passed::Admin(_) | Passed::Useless(_) => None,
        }
    }
}

/// Takes what was passed to this process. To be called once.
pub(super) fn take(env: &Env<'_>) -> Vec<Passed> {
    let count = count(env);
    let names = env("LISTEN_FDNAMES").unwrap_or_default();
    let names = names.split(':').chain(std::iter::repeat(""));
    (FIRST..).take(count).zip(names).map(|(fd, name)| adopt(owned(fd), name)).collect()
}

fn count(env: &Env<'_>) -> usize {
    if !is_ours(env, "LISTEN_PID") {
        return 0;
    }
    let count: usize = env("LISTEN_FDS").and_then(|count| count.parse().ok()).unwrap_or(0);
    count.min(PASSED_SOCKETS_MAX)
}

#[expect(unsafe_code, reason = "the protocol passes descriptors by number; nothing else can own them")]
fn owned(fd: RawFd) -> OwnedFd {
    // SAFETY: whoever set LISTEN_FDS for this process has opened these for it and closed none, and they are
    // taken once, before anything else is opened. A number that is none only fails in each later call.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

fn adopt(fd: OwnedFd, name: &str) -> Passed {
    // Not for children. Passed descriptors are inheritable by nature.
    let _bad_descriptor = fcntl_setfd(&fd, FdFlags::CLOEXEC);
    let socket = Socket::from(fd);
    let useless = |why: &str| Passed::Useless(format!("systemd's socket {name:?} {why}"));
    let listens = matches!(socket.is_listener(), Ok(true)) && matches!(socket.r#type(), Ok(Type::STREAM));
    if !listens {
        return useless("is no listening stream socket: ListenStream= makes one");
    }
    let Ok(address) = socket.local_addr() else { return useless("has no address") };
    if socket.set_nonblocking(true).is_err() {
        return useless("cannot be used without waiting");
    }
    match (address.is_unix(), name == ADMIN) {
        (true, true) => Passed::Admin(OwnedFd::from(socket).into()),
        (true, false) => Passed::Unix(OwnedFd::from(socket).into()),
        // Whoever can connect to it may do everything.
        (false, true) => useless("is for operators and must be a Unix socket"),
        (false, false) => Passed::Tcp(OwnedFd::from(socket).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_meant_for_this_process_is_counted() {
        let own = std::process::id().to_string();
        for (fds, pid, wanted) in [
            (Some("2"), Some(own.as_str()), 2),
            (Some("2"), None, 2),
            (Some("2"), Some("1"), 0),
            (Some("99999"), None, PASSED_SOCKETS_MAX),
            (Some("-1"), None, 0),
            (None, Some(own.as_str()), 0),
        ] {
            let env = |name: &str| match name {
                "LISTEN_FDS" => fds.map(str::to_owned),
                "LISTEN_PID" => pid.map(str::to_owned),
                _ => None,
            };
            assert_eq!(count(&env), wanted, "{fds:?} {pid:?}");
        }
    }

    #[test]
    fn each_socket_finds_its_use() {
        let tcp = || OwnedFd::from(TcpListener::bind("127.0.0.1:0").unwrap());
        let path = std::env::temp_dir().join(format!("edgeward-passed-{}", std::process::id()));
        let unix = || {
            let _ = std::fs::remove_file(&path);
            OwnedFd::from(UnixListener::bind(&path).unwrap())
        };
        assert!(matches!(adopt(tcp(), "client"), Passed::Tcp(_)));
        assert!(matches!(adopt(tcp(), "edgeward.socket"), Passed::Tcp(_)));
        assert!(matches!(adopt(unix(), "client"), Passed::Unix(_)));
        assert!(matches!(adopt(unix(), "admin"), Passed::Admin(_)));
        assert!(matches!(adopt(tcp(), "admin"), Passed::Useless(_)));
        let datagram = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(matches!(adopt(datagram.into(), "client"), Passed::Useless(_)));
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(matches!(adopt(file.into(), "client"), Passed::Useless(_)));
        std::fs::remove_file(path).unwrap();
    }
}
