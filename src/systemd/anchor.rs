//! The unit's main process where a restart must not wait for a drain: it starts the server and stands for it.

use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::pin::pin;
use std::process::{Child, Command, ExitStatus, Stdio};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::leash::{END, LET_GO, Order};
use super::{Env, HANDOVER_VARIABLE, LEASH_VARIABLE, Notify, is_ours};
use crate::limits::HANDOVER;
use crate::task;

/// What a message may have, in bytes. Ours have about a hundred.
const MESSAGE_BYTES: usize = 4096;
/// The exit status of a shell whose child was ended by signal 0; the signal's number is added.
const BY_SIGNAL: i32 = 128;
/// The watchdog's signal: `WatchdogSignal=`.
const ABORT: i32 = 6;

/// Whether this process is to be an anchor.
#[must_use]
pub fn is_wanted(env: &Env<'_>) -> bool {
    let on =
        env(HANDOVER_VARIABLE).is_some_and(|value| matches!(value.as_str(), "1" | "yes" | "true" | "on"));
    on && env("NOTIFY_SOCKET").is_some() && env(LEASH_VARIABLE).is_none()
}

/// Starts the server, this same program with the same arguments, and stands for it until it ends, or has let go
/// of its listeners after SIGTERM. Returns the exit code.
///
/// # Errors
/// The server cannot be started.
pub fn run(env: &Env<'_>) -> io::Result<u8> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    let mut code = Ok(1);
    task::run(&runtime, pin!(async { code = anchor(env).await }));
    code
}

async fn anchor(env: &Env<'_>) -> io::Result<u8> {
    let signals = Signals::new()?;
    let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
    let server = start(env, theirs.into())?;
    ours.set_nonblocking(true)?;
    let notify = Notify::from_env(env);
    let mut anchor = Anchor { server, leash: UnixStream::from_std(ours)?, notify };
    Ok(anchor.stand(signals).await)
}

/// The server inherits the passed sockets by their numbers; whose they are is told by variables that name
/// this process, so these are left out.
fn start(env: &Env<'_>, leash: OwnedFd) -> io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(std::env::args_os().skip(1)).stdin(Stdio::from(leash)).env(LEASH_VARIABLE, "1");
    command.env_remove("NOTIFY_SOCKET");
    for (owner, what) in [("LISTEN_PID", "LISTEN_FDS"), ("WATCHDOG_PID", "WATCHDOG_USEC")] {
        if !is_ours(env, owner) {
            command.env_remove(what);
        }
        command.env_remove(owner);
    }
    command.spawn()
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    abort: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
            abort: signal(SignalKind::from_raw(ABORT))?,
        })
    }
}

struct Anchor {
    server: Child,
    leash: UnixStream,
    notify: Notify,
}

impl Anchor {
    async fn stand(&mut self, mut signals: Signals) -> u8 {
        let mut heard = Vec::new();
        let mut patience = None;
        loop {
            let order = tokio::select! {
                ended = hear(&mut self.leash, &mut heard) => {
                    if ended {
                        return self.ended(false);
                    }
                    if self.pass_on(&mut heard) && patience.is_some() {
                        return 0;
                    }
                    continue;
                }
                _ = signals.terminate.recv() => Order::Stop,
                _ = signals.interrupt.recv() => Order::Stop,
                _ = signals.hangup.recv() => Order::Reload,
                // systemd's watchdog: whoever is stuck, nothing is to be left of the server.
                _ = signals.abort.recv() => return self.ended(true),
                () = until(patience) => return self.ended(true),
            };
            if order == Order::Stop && patience.is_none() {
                self.notify.say("STOPPING=1");
                patience = Some(crate::time::now() + HANDOVER);
            }
            if self.leash.write_all(&[order.byte()]).await.is_err() {
                return self.ended(false);
            }
        }
    }

    /// Tells systemd what the server says, in the order of it. Returns whether it has let go.
    fn pass_on(&self, heard: &mut Vec<u8>) -> bool {
        let mut let_go = false;
        while let Some(end) = heard.iter().position(|&byte| byte == END) {
            let message: Vec<u8> = heard.drain(..=end).take(end).collect();
            match std::str::from_utf8(&message) {
                Ok(LET_GO) => let_go = true,
                Ok(message) => self.notify.say(message),
                Err(_) => {}
            }
        }
        let_go
    }

    /// The server's end, by force if `kill`. Returns the exit code for both.
    fn ended(&mut self, kill: bool) -> u8 {
        if kill {
            let _ended_already = self.server.kill();
        }
        self.server.wait().map_or(1, exit_code)
    }
}

/// Returns whether the other end is closed: the server has ended, it closes its stdin by nothing else.
async fn hear(leash: &mut UnixStream, heard: &mut Vec<u8>) -> bool {
    if heard.len() > MESSAGE_BYTES {
        heard.clear();
    }
    let mut buffer = [0; 512];
    match leash.read(&mut buffer).await {
        Ok(0) => true,
        Ok(length) => {
            heard.extend_from_slice(buffer.get(..length).unwrap_or_default());
            false
        }
        Err(error) => error.kind() != ErrorKind::Interrupted,
    }
}

async fn until(time: Option<std::time::Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time.into()).await,
        None => std::future::pending().await,
    }
}

fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| BY_SIGNAL + signal)).unwrap_or(1);
    u8::try_from(code).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_anchor_is_wanted_only_by_the_unit_and_only_once() {
        for (handover, socket, leash, wanted) in [
            (Some("yes"), true, false, true),
            (Some("no"), true, false, false),
            (None, true, false, false),
            (Some("yes"), false, false, false),
            (Some("yes"), true, true, false),
        ] {
            let env = |name: &str| match name {
                HANDOVER_VARIABLE => handover.map(str::to_owned),
                "NOTIFY_SOCKET" => socket.then(|| "/x".to_owned()),
                LEASH_VARIABLE => leash.then(|| "1".to_owned()),
                _ => None,
            };
            assert_eq!(is_wanted(&env), wanted, "{handover:?} {socket} {leash}");
        }
    }

    #[test]
    fn the_exit_code_is_the_server_s() {
        for (raw, wanted) in [(0, 0), (78 << 8, 78), (9, 137)] {
            assert_eq!(exit_code(ExitStatus::from_raw(raw)), wanted);
        }
    }
}
