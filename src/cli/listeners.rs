//! The listeners of a serving process, and how a reload changes them: new ones are bound before anything else happens,
//! those that stay are not touched, and those that go stop accepting while their connections go on.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use socket2::SockRef;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::config::Config;
use crate::observe::events;
use crate::proxy::current::Current;
use crate::proxy::listen;
use crate::task::{self, Local};

/// All of them.
pub(super) struct Listeners {
    current: Rc<Current>,
    /// Bound by us.
    clients: Vec<Client>,
    /// From systemd: they win over `listen`, and stay.
    passed: Vec<Accepting>,
    /// Where those of them are that are reached over a network.
    passed_at: Vec<SocketAddr>,
    operators: Option<Operators>,
}

struct Client {
    /// As the configuration has it: its port may be 0.
    asked: SocketAddr,
    listener: Rc<TcpListener>,
    accepting: Accepting,
}

struct Operators {
    /// `None`: systemd's, which stays.
    path: Option<PathBuf>,
    accepting: Accepting,
}

/// What is open before the first client may come.
#[derive(Default)]
pub(super) struct Open {
    /// Bound by us, for this address.
    pub clients: Vec<(SocketAddr, TcpListener)>,
    /// From systemd.
    pub passed: Vec<TcpListener>,
    /// From systemd.
    pub local_clients: Vec<UnixListener>,
    /// From systemd, or bound by us at this path.
    pub operators: Vec<(Option<PathBuf>, UnixListener)>,
}

/// A reload's new listeners, bound and not in use yet.
pub(super) struct Prepared {
    clients: Vec<(SocketAddr, TcpListener)>,
    operators: Option<(PathBuf, UnixListener)>,
}

impl Listeners {
    /// Accepts on all of them from here on.
    pub fn accept(current: &Rc<Current>, open: Open) -> Self {
        let mut listeners = Listeners {
            current: Rc::clone(current),
            clients: Vec::new(),
            passed: Vec::new(),
            passed_at: open.passed.iter().filter_map(|listener| listener.local_addr().ok()).collect(),
            operators: None,
        };
        for (asked, listener) in open.clients {
            listeners.add(asked, listener);
        }
        for listener in open.passed {
            let accepting = listen::clients(Rc::clone(current), Rc::new(listener));
            listeners.passed.push(Accepting::new(Box::pin(accepting)));
        }
        for listener in open.local_clients {
            let accepting = listen::local_clients(Rc::clone(current), listener);
            listeners.passed.push(Accepting::new(Box::pin(accepting)));
        }
        for (path, listener) in open.operators {
            let accepting = Accepting::new(Box::pin(listen::operators(Rc::clone(current), listener)));
            match (path, &mut listeners.operators) {
                (path, first @ None) => *first = Some(Operators { path, accepting }),
                // systemd may pass several.
                (_, Some(_)) => listeners.passed.push(accepting),
            }
        }
        listeners
    }

    fn add(&mut self, asked: SocketAddr, listener: TcpListener) {
        let listener = Rc::new(listener);
        let (current, last) = (Rc::clone(&self.current), Rc::clone(&listener));
        let accept = Box::pin(listen::clients(Rc::clone(&self.current), Rc::clone(&listener)));
        let accepting = Accepting::and_then(accept, Some(Box::new(move || listen::waiting(&current, &last))));
        self.clients.push(Client { asked, listener, accepting });
    }

    /// Where clients connect, over a network.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let bound = self.clients.iter().filter_map(|client| client.listener.local_addr().ok());
        bound.chain(self.passed_at.iter().copied()).collect()
    }

    /// Binds what `config` has beyond what is open.
    ///
    /// # Errors
    /// In words: what cannot be bound. Nothing has changed then.
    pub fn prepare(&self, config: &Config) -> Result<Prepared, String> {
        let mut clients = Vec::new();
        if self.has_passed() {
            open_to_all(config, &self.passed_at)?;
        } else {
            let new = config.listen.iter().filter(|&&address| self.has(address).is_none());
            for &address in new {
                let listener =
                    self.bind(config, address).map_err(|e| format!("cannot listen on {address}: {e}"))?;
                clients.push((address, listener));
            }
        }
        Ok(Prepared { clients, operators: self.bind_operators(config.admin_listen.as_deref())? })
    }

    /// From here on these, and those of before that `config` still has.
    pub fn apply(&mut self, prepared: Prepared, config: &Config) {
        if !self.has_passed() {
            self.clients.retain(|client| config.listen.contains(&client.asked));
        }
        for (asked, listener) in prepared.clients {
            self.add(asked, listener);
        }
        let path = self.operators.as_ref().and_then(|operators| operators.path.clone());
        if let Some(old) = path.filter(|old| config.admin_listen.as_ref() != Some(old)) {
            self.operators = None;
            let _already_gone = std::fs::remove_file(old);
        }
        if let Some((path, listener)) = prepared.operators {
            let accepting = Accepting::new(Box::pin(listen::operators(Rc::clone(&self.current), listener)));
            self.operators = Some(Operators { path: Some(path), accepting });
        }
    }

    /// Closes all of them. What waits to be accepted is left to a successor where there is one.
    pub async fn close(self) {
        let mut accepting: Vec<Accepting> = self.passed;
        accepting.extend(self.clients.into_iter().map(|client| client.accepting));
        if let Some(operators) = self.operators {
            accepting.push(operators.accepting);
            if let Some(path) = operators.path {
                let _already_gone = std::fs::remove_file(path);
            }
        }
        for accepting in accepting {
            accepting.close().await;
        }
    }

    /// systemd's sockets win over `listen`.
    pub fn has_passed(&self) -> bool {
        !self.passed.is_empty()
    }

    fn has(&self, address: SocketAddr) -> Option<&Client> {
        self.clients.iter().find(|client| client.asked == address)
    }

    /// Beside a listener of ours that goes, where the two would not both have their port: from 127.0.0.1 to every
    /// address and back.
    fn bind(&self, config: &Config, address: SocketAddr) -> io::Result<TcpListener> {
        let first = listen::bind(address, false);
        let leaving = self.clients.iter().filter(|client| !config.listen.contains(&client.asked));
        let leaving: Vec<SockRef<'_>> = leaving
            .filter(|client| client.listener.local_addr().is_ok_and(|at| at.port() == address.port()))
            .map(|client| SockRef::from(&*client.listener))
            .collect();
        match first {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && !leaving.is_empty() => {}
            first => return first,
        }
        // Only for as long as this takes: another program shall not be able to share the port.
        for socket in &leaving {
            socket.set_reuse_port(true)?;
        }
        let bound = listen::bind(address, true);
        for socket in &leaving {
            let _as_it_was = socket.set_reuse_port(false);
        }
        if let Ok(listener) = &bound {
            let _as_it_was = SockRef::from(listener).set_reuse_port(false);
        }
        bound
    }

    fn bind_operators(&self, path: Option<&Path>) -> Result<Option<(PathBuf, UnixListener)>, String> {
        let have = self.operators.as_ref();
        let Some(path) = path else { return Ok(None) };
        if have.is_some_and(|have| have.path.as_deref().is_none_or(|have| have == path)) {
            return Ok(None);
        }
        match listen::bind_admin(path) {
            Ok(listener) => Ok(Some((path.to_owned(), listener))),
            Err(error) if have.is_some() => {
                Err(format!("cannot make the operators' socket {} (admin_listen): {error}", path.display()))
            }
            // As at the start: it takes the operators' comfort, not the clients' answers.
            Err(error) => {
                events::admin_unavailable(path, &error);
                Ok(None)
            }
        }
    }
}

/// Sockets that systemd has opened to a network, and a configuration that lets in whoever comes.
///
/// # Errors
/// In words: what to write into the configuration.
pub(super) fn open_to_all(config: &Config, passed: &[SocketAddr]) -> Result<(), String> {
    // `allow_anonymous` has its default by `listen`, which these addresses replace.
    let beyond = passed.iter().find(|address| !address.ip().to_canonical().is_loopback());
    let home = config.listen.iter().all(|address| address.ip().is_loopback());
    match beyond {
        Some(beyond) if home && config.keys.is_empty() => Err(format!(
            "edgeward.socket is open to the network at {beyond}, and no key is configured: add [[key]], or write \
             listen = [\"{beyond}\"] and allow_anonymous = true into the configuration"
        )),
        _ => Ok(()),
    }
}

/// Says where it listens, since that is not where `config` says.
pub(super) fn passed_win(passed: &[SocketAddr], config: &Config) {
    let join = |all: &[SocketAddr]| all.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    events::passed_sockets(&format!(
        "listening on {}, as edgeward.socket says, not on {} (listen)",
        join(passed),
        join(&config.listen)
    ));
}

/// A task that accepts connections. Dropped, it accepts what waits already and ends.
struct Accepting {
    task: JoinHandle<()>,
    _until: oneshot::Sender<()>,
}

impl Accepting {
    fn new(accept: Local<()>) -> Self {
        Accepting::and_then(accept, None)
    }

    /// Does `last` before it ends.
    fn and_then(accept: Local<()>, last: Option<Box<dyn FnOnce()>>) -> Self {
        let (until, ended) = oneshot::channel::<()>();
        let ended = async move {
            let _dropped = ended.await;
            // What has come by now is known to the event loop after this.
            tokio::task::yield_now().await;
        };
        let task = task::start(async move {
            tokio::select! {
                biased;
                () = accept => {}
                () = ended => {}
            }
            if let Some(last) = last {
                last();
            }
        });
        Accepting { task, _until: until }
    }

    /// Ends it at once. An aborted task is dropped, and its listener closed, when it is awaited.
    async fn close(self) {
        self.task.abort();
        let _aborted = self.task.await;
    }
}
