//! Asks a running edgeward, on its operators' socket or its client listener.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::config::{self, Config, DEFAULT_PATH, Env, Problems, Reader, Seen};
use crate::limits;

/// How long a running one may take to answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// Where the packaged unit has its operators' socket.
const UNIT_SOCKET: &str = "/run/edgeward/admin.sock";

/// The configuration of a running one, as far as it can be read in this shell. To ask it `listen` and `admin_listen` are
/// enough: a mistake elsewhere in the file keeps nobody from asking.
pub(super) struct Running {
    /// What could not be understood has its default.
    pub config: Config,
    /// The mistakes.
    pub problems: Problems,
}

impl Running {
    /// By the file at `path`, or in its usual place, or without one.
    ///
    /// # Errors
    /// The file that was named cannot be read.
    pub fn new(path: Option<&Path>, env: &Env<'_>) -> Result<Self, Problems> {
        let usual = path.is_none_or(|path| path == Path::new(DEFAULT_PATH));
        let Seen { config, problems, .. } = config::see(path, env, Reader::Operator);
        let mut config = match config {
            Some(config) => config,
            None if usual => config::discover(env, &[]).config,
            None => return Err(problems),
        };
        // systemd names it to the service alone, by RUNTIME_DIRECTORY.
        let socket = Path::new(UNIT_SOCKET);
        if usual && may_exist(&socket.try_exists()) {
            config.admin_listen.get_or_insert_with(|| socket.to_owned());
        }
        Ok(Running { config, problems })
    }

    /// Says that there are mistakes, if there are, and that they are in nobody's way.
    ///
    /// # Errors
    /// Only when `err` cannot be written.
    pub fn tell(&self, err: &mut dyn Write) -> io::Result<()> {
        let Some(first) = self.problems.0.first() else { return Ok(()) };
        let more = match self.problems.0.len() - 1 {
            0 => String::new(),
            more => format!(" (and {more} more: edgeward check)"),
        };
        writeln!(err, "edgeward: going on in spite of the file: {first}{more}")
    }
}

/// What a running one answered.
pub(super) struct Said {
    /// The HTTP status.
    pub status: u16,
    /// The body, whole.
    pub body: Vec<u8>,
}

/// Sends `method path` with `body`, as JSON, to the one that runs with `config`; it answers in `accept` where it can.
///
/// # Errors
/// None answers: who was asked, and what went wrong.
pub(super) fn ask(
    config: &Config,
    method: &str,
    path: &str,
    accept: &str,
    body: &str,
) -> Result<Said, String> {
    let request = request(method, path, accept, body);
    let mut tried = Vec::new();
    if let Some(path_of_socket) = &config.admin_listen {
        let asked = UnixStream::connect(path_of_socket).and_then(|socket| {
            socket.set_read_timeout(Some(PATIENCE))?;
            exchange(socket.into(), &request)
        });
        match asked {
            Ok(said) => return Ok(said),
            Err(error) => tried.push(unopened(path_of_socket, &error, group_of(path_of_socket).as_deref())),
        }
    }
    if config.tls.is_some() {
        let advice = match config.admin_listen {
            None => "; set `admin_listen` to ask on a socket of its own",
            Some(_) => "",
        };
        tried.push(format!("the client listener speaks TLS{advice}"));
    }
    for address in config.listen.iter().filter(|_| config.tls.is_none()) {
        let asked = TcpStream::connect_timeout(&reachable(*address), PATIENCE).and_then(|socket| {
            socket.set_read_timeout(Some(PATIENCE))?;
            exchange(socket.into(), &request)
        });
        match asked {
            // Then what kept this from the socket says more.
            Ok(Said { status: status @ (401 | 403), .. }) if !tried.is_empty() => {
                tried.push(format!(
                    "{address}: it answers {status}: it takes this for a request from elsewhere"
                ));
            }
            Ok(said) => return Ok(said),
            Err(error) => tried.push(format!("{address}: {error}")),
        }
    }
    Err(tried.join("; "))
}

/// Whether a file may be there: its folder may keep this user from knowing.
fn may_exist(looked: &io::Result<bool>) -> bool {
    match looked {
        Ok(exists) => *exists,
        Err(error) => error.kind() == io::ErrorKind::PermissionDenied,
    }
}

/// Why `socket`, which belongs to `group`, could not be asked.
fn unopened(socket: &Path, error: &io::Error, group: Option<&str>) -> String {
    let advice = match group {
        _ if error.kind() != io::ErrorKind::PermissionDenied => String::new(),
        // Of root's group is nobody else.
        Some(group) if group != "root" => format!(
            ": join {group}'s group (sudo usermod -aG {group} $USER, which counts from the next login on) or use sudo"
        ),
        _ => ": use sudo".to_owned(),
    };
    format!("{}: {error}{advice}", socket.display())
}

/// The group that `socket` belongs to, by its name; by its folder, where that keeps this user from looking.
fn group_of(socket: &Path) -> Option<String> {
    let id = socket.ancestors().find_map(|path| path.metadata().ok())?.gid().to_string();
    let groups = std::fs::read_to_string("/etc/group").ok()?;
    let mut fields = groups.lines().map(|line| line.split(':'));
    fields.find_map(|mut fields| {
        let name = fields.next()?;
        (fields.nth(1)? == id).then(|| name.to_owned())
    })
}

/// The same for a body that must come with 200.
///
/// # Errors
/// None answers, or another status.
pub(super) fn get(config: &Config, path: &str, accept: &str) -> Result<Vec<u8>, String> {
    let Said { status, body } = ask(config, "GET", path, accept, "")?;
    if status == 200 { Ok(body) } else { Err(refused(status)) }
}

/// A status that is no 200, in words.
pub(super) fn refused(status: u16) -> String {
    match status {
        401 | 403 => not_heard(status),
        status => format!("it answers {status}: is it of this version?"),
    }
}

/// A running one wants a key, or an operator.
pub(super) fn not_heard(status: u16) -> String {
    format!(
        "it answers {status}: it takes this for a request from elsewhere; set `admin_listen`, and ask on the box itself"
    )
}

/// Where to connect to reach what listens on `address`: loopback for "every address".
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        ip if !ip.is_unspecified() => ip,
        ip if ip.is_ipv4() => Ipv4Addr::LOCALHOST.into(),
        _ => Ipv6Addr::LOCALHOST.into(),
    };
    SocketAddr::new(ip, address.port())
}

fn request(method: &str, path: &str, accept: &str, body: &str) -> String {
    let length = if body.is_empty() {
        String::new()
    } else {
        format!("content-type: application/json\r\ncontent-length: {}\r\n", body.len())
    };
    format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\naccept: {accept}\r\nconnection: close\r\n{length}\r\n{body}"
    )
}

/// A file is read and written as a stream socket is: one way for both kinds.
fn exchange(socket: OwnedFd, request: &str) -> io::Result<Said> {
    let mut socket = File::from(socket);
    socket.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    socket.take(limits::OPERATOR_ANSWER_BYTES as u64).read_to_end(&mut answer)?;
    let bad = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    let split = memchr::memmem::find(&answer, b"\r\n\r\n").ok_or_else(|| bad("the answer is not HTTP"))?;
    let head = String::from_utf8_lossy(answer.get(..split).unwrap_or_default()).into_owned();
    let status = head.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
    let status = status.ok_or_else(|| bad("the answer is not HTTP/1.1"))?;
    if head.to_ascii_lowercase().contains("\r\ntransfer-encoding:") {
        return Err(bad("the answer is not an edgeward's"));
    }
    answer.drain(..split + 4);
    Ok(Said { status, body: answer })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_that_others_may_use_says_how_to_be_one_of_them() {
        let socket = Path::new(UNIT_SOCKET);
        let denied = || io::Error::from(io::ErrorKind::PermissionDenied);
        let said = unopened(socket, &denied(), Some("edgeward"));
        assert!(
            said.contains("join edgeward's group (sudo usermod -aG edgeward $USER")
                && said.ends_with("or use sudo"),
            "{said}"
        );
        assert!(unopened(socket, &denied(), Some("root")).ends_with(": use sudo"));
        assert!(unopened(socket, &denied(), None).ends_with(": use sudo"));
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        assert!(!unopened(socket, &refused, Some("edgeward")).contains("sudo"));
        // The unit's folder is its group's alone (RuntimeDirectoryMode=0750).
        assert!(may_exist(&Err(denied())) && may_exist(&Ok(true)) && !may_exist(&Ok(false)));
        assert_eq!(group_of(Path::new("/etc/no such file")).as_deref(), Some("root"));
    }

    #[test]
    fn a_socket_that_is_configured_is_not_advised() {
        let folder = std::env::temp_dir().join(format!("edgeward-ask-{}", std::process::id()));
        let mut config = config::discover(&|_: &str| None, &[]).config;
        config.listen = Vec::new();
        config.tls = Some(config::ServerTls { cert: folder.join("cert.pem"), key: folder.join("key.pem") });
        let tried = |config: &Config| ask(config, "GET", "/", "*/*", "").err().unwrap();
        assert!(tried(&config).contains("set `admin_listen`"));
        config.admin_listen = Some(folder.join("admin.sock"));
        let said = tried(&config);
        assert!(said.contains("admin.sock: ") && said.ends_with("the client listener speaks TLS"), "{said}");
    }
}
