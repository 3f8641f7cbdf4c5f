//! `sd_notify(3)`: one datagram a message to systemd, or through the anchor to it.

use std::io::Write;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixStream};

use super::{Env, Leash};

/// Says to systemd how it goes. To nobody, outside systemd.
#[derive(Debug)]
pub struct Notify(Way);

#[derive(Debug)]
enum Way {
    Nobody,
    Systemd(UnixDatagram),
    Anchor(UnixStream),
}

impl Notify {
    /// To the socket that `NOTIFY_SOCKET` names: a path, or `@` and an abstract name.
    #[must_use]
    pub fn from_env(env: &Env<'_>) -> Self {
        Notify(env("NOTIFY_SOCKET").and_then(|name| connect(&name)).map_or(Way::Nobody, Way::Systemd))
    }

    /// Through the anchor, whose messages systemd takes: they come from the main process.
    pub(super) fn through(leash: &Leash) -> Self {
        Notify(leash.speaker().map_or(Way::Nobody, Way::Anchor))
    }

    /// Whether no systemd has started this process as a service that says how it goes.
    #[must_use]
    pub fn is_nobody(&self) -> bool {
        matches!(self.0, Way::Nobody)
    }

    /// One message: assignments, a line each. Never waits; nobody listening is no trouble of ours.
    pub fn say(&self, message: &str) {
        let _lost = match &self.0 {
            Way::Nobody => Ok(()),
            Way::Systemd(socket) => socket.send(message.as_bytes()).map(drop),
            Way::Anchor(leash) => {
                let mut leash = leash;
                let mut framed = Vec::with_capacity(message.len() + 1);
                framed.extend_from_slice(message.as_bytes());
                framed.push(super::leash::END);
                leash.write_all(&framed)
            }
        };
    }

    /// To the anchor: its successor may bind the listeners. systemd is told nothing.
    pub fn let_go(&self) {
        if matches!(self.0, Way::Anchor(_)) {
            self.say(super::leash::LET_GO);
        }
    }

    /// What `systemctl status` shows.
    pub fn status(&self, text: &str) {
        self.say(&format!("STATUS={text}"));
    }
}

fn connect(name: &str) -> Option<UnixDatagram> {
    let address = match name.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(name),
    };
    let socket = UnixDatagram::unbound().ok()?;
    socket.connect_addr(&address.ok()?).ok()?;
    // systemd that is busy must not hold up the event loop; a sign of life comes again.
    socket.set_nonblocking(true).ok()?;
    Some(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_datagram_by_path_and_by_abstract_name() {
        let name = format!("edgeward-notify-{}", std::process::id());
        let path = std::env::temp_dir().join(&name);
        let by_path = UnixDatagram::bind(&path).unwrap();
        let by_name = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        for (listener, said) in [(by_path, path.display().to_string()), (by_name, format!("@{name}"))] {
            let notify = Notify::from_env(&|_: &str| Some(said.clone()));
            notify.say("READY=1\nSTATUS=x");
            let mut buffer = [0; 64];
            let length = listener.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..length], b"READY=1\nSTATUS=x");
        }
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn without_systemd_nobody_is_told() {
        for none in [None, Some("/nonexistent/notify".to_owned())] {
            let notify = Notify::from_env(&|_: &str| none.clone());
            assert!(matches!(notify.0, Way::Nobody));
            notify.say("READY=1");
        }
    }
}
