//! `edgeward status`: asks a running edgeward, on its operators' socket or its client listener.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use super::{EXIT_CONFIG, EXIT_FAILED, EXIT_GOOD};
use crate::config::{self, Config, Env};
use crate::proxy::operator::{RolloutStatus, SideStatus, Status};

/// How long a running one may take to answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// Prints a running one's targets. Returns the exit code: 1 where none answers.
///
/// # Errors
/// Only when `out` or `err` cannot be written.
pub fn status(
    path: Option<&Path>,
    env: &Env<'_>,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> io::Result<u8> {
    let config = match config::load_or_discover(path, env) {
        Ok(loaded) => loaded.config,
        Err(problems) => {
            writeln!(err, "{problems}")?;
            return Ok(EXIT_CONFIG);
        }
    };
    match ask(&config) {
        Ok(status) => {
            show(&status, out)?;
            Ok(EXIT_GOOD)
        }
        Err(tried) => {
            writeln!(err, "edgeward: no running edgeward answers: {tried}")?;
            writeln!(
                err,
                "start it with `edgeward run`, or name the file that it was started with: --config F"
            )?;
            Ok(EXIT_FAILED)
        }
    }
}

fn ask(config: &Config) -> Result<Status, String> {
    let mut tried = Vec::new();
    if let Some(path) = &config.admin_listen {
        let asked = UnixStream::connect(path).and_then(|socket| {
            socket.set_read_timeout(Some(PATIENCE))?;
            get(socket)
        });
        match asked {
            Ok(status) => return Ok(status),
            Err(error) => tried.push(format!("{}: {error}", path.display())),
        }
    }
    if config.tls.is_some() {
        tried.push(
            "the client listener speaks TLS; set `admin_listen` to ask on a socket of its own".to_owned(),
        );
        return Err(tried.join("; "));
    }
    for address in &config.listen {
        let asked = TcpStream::connect_timeout(&reachable(*address), PATIENCE).and_then(|socket| {
            socket.set_read_timeout(Some(PATIENCE))?;
            get(socket)
        });
        match asked {
            Ok(status) => return Ok(status),
            Err(error) => tried.push(format!("{address}: {error}")),
        }
    }
    Err(tried.join("; "))
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

fn get(mut socket: impl Read + Write) -> io::Result<Status> {
    socket.write_all(b"GET /edgeward/status HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    socket.take(crate::limits::CLIENT_FAULT_BODY_BYTES as u64).read_to_end(&mut answer)?;
    let bad = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    let split = memchr::memmem::find(&answer, b"\r\n\r\n").ok_or_else(|| bad("the answer is not HTTP"))?;
    let (head, body) = answer.split_at(split);
    if !head.starts_with(b"HTTP/1.1 200") {
        let line = String::from_utf8_lossy(head.split(|byte| *byte == b'\r').next().unwrap_or_default())
            .into_owned();
        return Err(bad(&format!("it answers {line}; ask from the box itself, or set `admin_listen`")));
    }
    serde_json::from_slice(body.get(4..).unwrap_or_default())
        .map_err(|_| bad("the answer is not an edgeward's"))
}

fn side(side: &SideStatus) -> String {
    let SideStatus { requests, rescued, failed, first_token_p95_ms } = side;
    let p95 = first_token_p95_ms.map(|p95| format!(", first token within {p95} ms")).unwrap_or_default();
    format!("{requests} requests, {rescued} rescued, {failed} failed{p95}")
}

fn show(status: &Status, out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "edgeward {}, up {} s, {} connections, {} requests running{}",
        status.version,
        status.uptime_secs,
        status.connections,
        status.requests,
        if status.draining { ", stopping" } else { "" }
    )?;
    if status.clock_wrong {
        writeln!(out, "  ! this box's clock is wrong: it shows a time before this program was built")?;
    }
    if let Some(rollout) = &status.rollout {
        let RolloutStatus { share_permille, since_secs, hold_secs, min_samples, old, new } = rollout;
        let share = f64::from(*share_permille) / 10.0;
        writeln!(
            out,
            "  ~ a new routing takes {share}% of the requests, for {since_secs} s of {hold_secs} s"
        )?;
        writeln!(out, "    new: {} (judged from {min_samples} on)", side(new))?;
        writeln!(out, "    old: {}", side(old))?;
    }
    let width = status.targets.iter().map(|target| target.name.len()).max().unwrap_or(0);
    for target in &status.targets {
        writeln!(
            out,
            "  {} {:width$}  {:9} {:6} {}  answered {}, failed {}, running {}: {}",
            if target.candidate { "+" } else { "-" },
            target.name,
            target.kind,
            target.place,
            target.url,
            target.committed,
            target.failed,
            target.in_flight,
            target.reason
        )?;
    }
    if status.targets.is_empty() {
        writeln!(out, "  no targets")?;
    }
    Ok(())
}
