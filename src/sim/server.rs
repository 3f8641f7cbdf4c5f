//! Simulated servers on real sockets: they play scripts, and count what their peers did.

use std::cell::RefCell;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet, spawn_local};

pub use super::event::SimEvent;
use super::play::Step;
use super::request::Conn;
pub use super::request::SimRequest;
use super::script::Script;

/// What a server does with its requests.
#[derive(Clone)]
pub enum Behaviour {
    /// The same script for each.
    Same(Rc<Script>),
    /// One script a request, in turn; the last one for all further requests.
    Turns(Rc<[Script]>),
    /// A script made for the request. It cannot refuse before a request was read.
    By(Rc<dyn Fn(&SimRequest) -> Script>),
}

impl From<Script> for Behaviour {
    fn from(script: Script) -> Self {
        Behaviour::Same(Rc::new(script))
    }
}

impl From<Vec<Script>> for Behaviour {
    fn from(scripts: Vec<Script>) -> Self {
        Behaviour::Turns(scripts.into())
    }
}

impl Behaviour {
    /// A script made for each request.
    pub fn by(make: impl Fn(&SimRequest) -> Script + 'static) -> Self {
        Behaviour::By(Rc::new(make))
    }
}

/// What happened at a server so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections accepted.
    pub accepted: u64,
    /// Of these, closed by either side. `accepted - closed` are open.
    pub closed: u64,
    /// Requests received: the whole of them, or for `EARLY` scripts their head.
    pub requests: u64,
    /// Requests whose script was played to its end.
    pub completed: u64,
    /// Requests whose peer closed or reset the connection before the script's end.
    pub aborted: u64,
}

impl Counts {
    /// Connections that are open.
    #[must_use]
    pub const fn open(&self) -> u64 {
        self.accepted.saturating_sub(self.closed)
    }
}

/// Who is told of events, at once and on the server's own thread.
type Listener = Rc<dyn Fn(SimEvent)>;

struct Shared {
    behaviour: RefCell<Behaviour>,
    listener: RefCell<Option<Listener>>,
    turn: RefCell<usize>,
    counts: watch::Sender<Counts>,
    requests: RefCell<Vec<SimRequest>>,
}

impl Shared {
    fn count(&self, change: impl FnOnce(&mut Counts)) {
        self.counts.send_modify(change);
    }

    fn tell(&self, event: impl FnOnce() -> SimEvent) {
        let listener = self.listener.borrow().clone();
        if let Some(listener) = listener {
            listener(event());
        }
    }

    /// Takes the turn if the next script refuses its connection.
    fn refuses(&self) -> bool {
        let refuses = match &*self.behaviour.borrow() {
            Behaviour::Same(script) => script.refuses(),
            Behaviour::Turns(scripts) => self.peek(scripts).is_some_and(Script::refuses),
            Behaviour::By(_) => false,
        };
        if refuses {
            *self.turn.borrow_mut() += 1;
        }
        refuses
    }

    fn peek<'a>(&self, scripts: &'a [Script]) -> Option<&'a Script> {
        scripts.get(*self.turn.borrow()).or(scripts.last())
    }

    fn script(&self, request: &SimRequest) -> Script {
        let behaviour = self.behaviour.borrow().clone();
        match behaviour {
            Behaviour::Same(script) => (*script).clone(),
            Behaviour::Turns(scripts) => self.peek(&scripts).cloned().unwrap_or_default(),
            Behaviour::By(make) => make(request),
        }
    }

    /// Whether the next script is played before the body is read.
    fn early(&self) -> bool {
        match &*self.behaviour.borrow() {
            Behaviour::Same(script) => script.early,
            Behaviour::Turns(scripts) => self.peek(scripts).is_some_and(|script| script.early),
            Behaviour::By(_) => false,
        }
    }
}

/// A simulated server on a loopback port. Dropping it closes its listener and its connections.
pub struct SimServer {
    addr: SocketAddr,
    shared: Rc<Shared>,
    task: AbortHandle,
}

impl Drop for SimServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl SimServer {
    /// Starts one on a free port of 127.0.0.1. Must run within a `LocalSet`.
    ///
    /// # Errors
    /// No socket.
    pub async fn start(behaviour: impl Into<Behaviour>) -> io::Result<SimServer> {
        SimServer::bind((Ipv4Addr::LOCALHOST, 0).into(), behaviour).await
    }

    /// Starts one at `addr`. Must run within a `LocalSet`.
    ///
    /// # Errors
    /// The address is taken, or not ours.
    pub async fn bind(addr: SocketAddr, behaviour: impl Into<Behaviour>) -> io::Result<SimServer> {
        let listener = TcpListener::bind(addr).await?;
        let addr = listener.local_addr()?;
        let shared = Rc::new(Shared {
            behaviour: RefCell::new(behaviour.into()),
            listener: RefCell::new(None),
            turn: RefCell::new(0),
            counts: watch::Sender::new(Counts::default()),
            requests: RefCell::new(Vec::new()),
        });
        let task = spawn_local(accept(listener, Rc::clone(&shared))).abort_handle();
        Ok(SimServer { addr, shared, task })
    }

    /// Where it listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// `http://127.0.0.1:PORT`, without a path.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Behaves otherwise from the next request on; turns start anew.
    pub fn set(&self, behaviour: impl Into<Behaviour>) {
        *self.shared.behaviour.borrow_mut() = behaviour.into();
        *self.shared.turn.borrow_mut() = 0;
    }

    /// Tells `listener` of each event from now on. It must not block, and keeps what it needs within its own bounds.
    pub fn tell(&self, listener: impl Fn(SimEvent) + 'static) {
        *self.shared.listener.borrow_mut() = Some(Rc::new(listener));
    }

    /// What happened so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        *self.shared.counts.borrow()
    }

    /// The requests received so far, in order.
    #[must_use]
    pub fn requests(&self) -> Vec<SimRequest> {
        self.shared.requests.borrow().clone()
    }

    /// Waits until the counts are as asked for, and gives them. Waits for ever if they never are.
    pub async fn until(&self, met: impl Fn(&Counts) -> bool) -> Counts {
        let mut counts = self.shared.counts.subscribe();
        let seen = counts.wait_for(met).await.map(|counts| *counts);
        // The sender lives as long as `self`.
        seen.unwrap_or_default()
    }

    /// Waits until `n` requests were received.
    pub async fn requested(&self, n: u64) -> Counts {
        self.until(|counts| counts.requests >= n).await
    }

    /// Waits until `n` connections were closed, by either side.
    pub async fn closed(&self, n: u64) -> Counts {
        self.until(|counts| counts.closed >= n).await
    }

    /// Waits until `n` requests were aborted by their peer.
    pub async fn aborted(&self, n: u64) -> Counts {
        self.until(|counts| counts.aborted >= n).await
    }

    /// Waits until no connection is open.
    pub async fn idle(&self) -> Counts {
        self.until(|counts| counts.open() == 0).await
    }
}

async fn accept(listener: TcpListener, shared: Rc<Shared>) {
    // Aborts the connections when the server is dropped.
    let mut connections = JoinSet::new();
    let mut next = 0;
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else {
                    // Out of descriptors: let other tasks give some back.
                    tokio::task::yield_now().await;
                    continue;
                };
                shared.count(|counts| counts.accepted += 1);
                shared.tell(|| SimEvent::Accepted(next));
                let open = Open(Rc::clone(&shared));
                connections.spawn_local(serve(stream, next, open));
                next += 1;
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Counts its connection as closed when dropped; made before the socket is moved, dropped after it.
struct Open(Rc<Shared>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.count(|counts| counts.closed += 1);
    }
}

/// How an exchange left its connection.
enum After {
    Keep,
    Close,
    Reset,
}

async fn serve(stream: TcpStream, connection: u64, open: Open) {
    let _ = stream.set_nodelay(true);
    // Declared before `conn`, so dropped after it: the count follows the socket's end.
    let open = open;
    let mut conn = Conn::new(stream);
    let shared = &open.0;
    if shared.refuses() {
        let _ = conn.stream.set_zero_linger();
        return;
    }
    loop {
        match exchange(&mut conn, connection, shared).await {
            After::Keep => {}
            After::Close => return,
            After::Reset => {
                let _ = conn.stream.set_zero_linger();
                return;
            }
        }
    }
}

async fn exchange(conn: &mut Conn, connection: u64, shared: &Shared) -> After {
    let Ok(Some(mut request)) = conn.head(connection).await else { return After::Close };
    let early = shared.early();
    if !early {
        let expects =
            request.header("expect").is_some_and(|value| value.eq_ignore_ascii_case("100-continue"));
        if expects && !conn.write(b"HTTP/1.1 100 Continue\r\n\r\n").await {
            return After::Close;
        }
        match conn.body(&request).await {
            Ok(body) => request.body = body,
            Err(_) => return After::Close,
        }
    }
    let script = shared.script(&request);
    *shared.turn.borrow_mut() += 1;
    // An unread body cannot be told from a next request.
    let reusable = !early && !request.wants_close();
    shared.requests.borrow_mut().push(request);
    shared.count(|counts| counts.requests += 1);
    shared.tell(|| SimEvent::Requested(connection));
    let after = play(conn, &script, shared).await;
    match after {
        None => {
            shared.count(|counts| counts.aborted += 1);
            shared.tell(|| SimEvent::HungUp);
            After::Close
        }
        Some(after) => {
            shared.count(|counts| counts.completed += 1);
            shared.tell(|| match after {
                After::Keep => SimEvent::Kept,
                After::Close => SimEvent::Closing,
                After::Reset => SimEvent::Resetting,
            });
            if matches!(after, After::Keep) && !reusable { After::Close } else { after }
        }
    }
}

/// `None`: the peer went away first.
async fn play(conn: &mut Conn, script: &Script, shared: &Shared) -> Option<After> {
    for step in script.steps() {
        match step {
            Step::Write(bytes) => {
                // Told first: what its readers do about it comes after it.
                shared.tell(|| SimEvent::Writing(bytes.clone()));
                if !conn.write(&bytes).await {
                    return None;
                }
            }
            Step::Wait(time) => {
                shared.tell(|| SimEvent::Pausing(time));
                tokio::select! {
                    () = tokio::time::sleep(time) => {}
                    () = conn.gone() => return None,
                }
            }
            Step::Keep => return Some(After::Keep),
            Step::Close => return Some(After::Close),
            Step::Reset => return Some(After::Reset),
        }
    }
    Some(After::Close)
}

/// A loopback address where nothing listens, for as long as this lives.
pub struct RefusedPort {
    addr: SocketAddr,
    // Bound, never listening: the port is ours, and connecting to it is refused.
    _socket: socket2::Socket,
}

impl RefusedPort {
    /// The address.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }
}

/// Reserves a port of 127.0.0.1 where nothing listens.
///
/// # Errors
/// No socket.
pub fn refused_port() -> io::Result<RefusedPort> {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())?;
    let addr = socket.local_addr()?.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?;
    Ok(RefusedPort { addr, _socket: socket })
}
