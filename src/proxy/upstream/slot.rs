//! One target: the way to it, and its idle connections.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::time::{Duration, Instant};

use http::HeaderValue;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;

use super::body::RequestBody;
use super::dial::{self, Forward};
use super::fault;
use super::http1::Http1;
use super::meter::{Meter, Metered};
use super::tls::{Tls, Trust};
use super::{ProxyRules, authority};
use crate::cause::{Cause, Failure};
use crate::config::{Place, Target, TargetUrl};
use crate::limits;
use crate::observe;
use crate::proxy::socket::Socket;
use crate::task;
use crate::time;

/// A target's connections and how to make more.
pub(super) struct Slot {
    url: TargetUrl,
    /// For the Host header, and for HTTP/2's `:authority`.
    pub(super) host: HeaderValue,
    tls: Option<Tls>,
    forward: Option<Forward>,
    idle_for: Duration,
    spare: bool,
    warming: Cell<bool>,
    /// The most recently used one last.
    idle: RefCell<Vec<(Box<Http1>, Instant)>>,
    shared: RefCell<Vec<Rc<Http2>>>,
}

/// A connection that is ready for one request.
pub(super) enum Via {
    Http1(Box<Http1>),
    Http2(Stream),
}

/// An HTTP/2 connection, driven by a task of its own until the last of these and its streams are gone.
pub(super) struct Http2 {
    sender: http2::SendRequest<RequestBody>,
    pub(super) meter: Rc<Meter>,
    streams: Cell<usize>,
    used: Cell<Instant>,
    /// Takes no further streams.
    pub(super) retired: Cell<bool>,
}

/// The right to one stream of an HTTP/2 connection.
pub(super) struct Stream(pub(super) Rc<Http2>);

impl Slot {
    pub(super) fn new(target: &Target, trust: &mut Trust, proxies: &ProxyRules) -> Result<Self, String> {
        let authority = authority(&target.url);
        let host = HeaderValue::from_str(&authority).map_err(|_| format!("`{authority}` is no host"))?;
        let (mut tls, mut forward) = (None, None);
        if let TargetUrl::Https { host, .. } = &target.url {
            let http2 = target.place == Place::Cloud;
            tls = Some(Tls::new(trust.config(&target.roots, http2)?, host)?);
            if target.place != Place::Local {
                forward = forward_for(&authority, proxies)?;
            }
        }
        let idle_for = match target.place {
            Place::Local | Place::Lan => limits::IDLE_LOCAL,
            Place::Cloud => limits::IDLE_CLOUD,
        };
        Ok(Slot {
            url: target.url.clone(),
            host,
            tls,
            forward,
            idle_for,
            spare: target.spare,
            warming: Cell::new(false),
            idle: RefCell::default(),
            shared: RefCell::default(),
        })
    }

    /// Of a host that is no target, for one request.
    pub(super) fn visited(url: TargetUrl, tls: Option<Tls>) -> Result<Self, String> {
        let authority = authority(&url);
        Ok(Slot {
            host: HeaderValue::from_str(&authority).map_err(|_| format!("`{authority}` is no host"))?,
            url,
            tls,
            forward: None,
            idle_for: Duration::ZERO,
            spare: false,
            warming: Cell::new(false),
            idle: RefCell::default(),
            shared: RefCell::default(),
        })
    }

    /// A new connection, TLS and HTTP's own greeting included.
    pub(super) async fn open(&self) -> Result<Via, Failure> {
        let (host, port) = match &self.url {
            TargetUrl::Unix { path } => return over_http1(Socket::Unix(dial::unix(path).await?)).await,
            TargetUrl::Http { host, port, .. } | TargetUrl::Https { host, port, .. } => (host, *port),
        };
        let tcp = match &self.forward {
            Some(proxy) => dial::tunnel(proxy, host, port).await?,
            None => dial::tcp(host, port).await?,
        };
        self.over(tcp).await
    }

    /// The same on a connection that is made already.
    pub(super) async fn over(&self, tcp: TcpStream) -> Result<Via, Failure> {
        let Some(tls) = &self.tls else { return over_http1(Socket::Tcp(tcp)).await };
        let (stream, agreed_http2) = tls.handshake(tcp).await?;
        let socket = Socket::tls(stream);
        if !agreed_http2 {
            return over_http1(socket).await;
        }
        let connection = Rc::new(http2(socket).await?);
        let mut shared = self.shared.borrow_mut();
        if shared.len() < limits::IDLE_MAX {
            shared.push(Rc::clone(&connection));
        }
        Ok(Via::Http2(Stream::of(connection)))
    }

    /// An idle connection that is young enough and still open, as far as this end can know.
    pub(super) fn checkout(&self, now: Instant) -> Option<Via> {
        if let Some(via) = self.share(now) {
            return Some(via);
        }
        let mut idle = self.idle.borrow_mut();
        while let Some((mut connection, since)) = idle.pop() {
            if now.saturating_duration_since(since) < self.idle_for && connection.is_ready() {
                return Some(Via::Http1(connection));
            }
        }
        None
    }

    /// A stream of a connection that carries several.
    pub(super) fn share(&self, now: Instant) -> Option<Via> {
        let mut shared = self.shared.borrow_mut();
        shared.retain(|connection| connection.usable(now, self.idle_for));
        let roomy = shared.iter().find(|connection| connection.streams.get() < limits::H2_STREAMS_MAX);
        roomy.map(|connection| Via::Http2(Stream::of(Rc::clone(connection))))
    }

    /// Takes a connection back after a whole response, if it can carry another one.
    pub(super) fn put_back(&self, mut connection: Box<Http1>) {
        if !connection.is_ready() {
            return;
        }
        let mut idle = self.idle.borrow_mut();
        if idle.len() >= limits::IDLE_MAX {
            idle.remove(0);
        }
        idle.push((connection, time::now()));
    }

    /// Drops what cannot be used any more. True: nothing is left.
    pub(super) fn sweep(&self, now: Instant) -> bool {
        self.shared.borrow_mut().retain(|connection| connection.usable(now, self.idle_for));
        self.idle.borrow_mut().retain_mut(|(connection, since)| {
            now.saturating_duration_since(*since) < self.idle_for && connection.is_ready()
        });
        self.idle_count() == 0
    }

    pub(super) fn idle_count(&self) -> usize {
        self.idle.borrow().len() + self.shared.borrow().len()
    }

    pub(super) fn wants_spare(&self) -> bool {
        self.spare && !self.warming.get()
    }

    /// Closes what carries nothing. Returns how many those were.
    pub(super) fn close_idle(&self) -> usize {
        let idle = std::mem::take(&mut *self.idle.borrow_mut()).len();
        let mut shared = self.shared.borrow_mut();
        let before = shared.len();
        shared.retain(|connection| connection.streams.get() > 0);
        idle + before - shared.len()
    }

    pub(super) async fn warm(&self) -> Result<(), Failure> {
        if self.warming.get() || !self.sweep(time::now()) {
            return Ok(());
        }
        self.warming.set(true);
        let _done = Finally(&self.warming);
        match tokio::time::timeout(limits::WARM_TIME, self.open()).await {
            Ok(Ok(Via::Http1(connection))) => self.put_back(connection),
            // `open` has kept it already.
            Ok(Ok(Via::Http2(_))) => {}
            Ok(Err(failure)) => return Err(failure),
            Err(_) => return Err(Failure::new(Cause::TimeoutConnect)),
        }
        Ok(())
    }
}

/// Clears a flag however its scope is left, a dropped future included.
struct Finally<'a>(&'a Cell<bool>);

impl Drop for Finally<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

impl Http2 {
    fn usable(&self, now: Instant, idle_for: Duration) -> bool {
        let young = self.streams.get() > 0 || now.saturating_duration_since(self.used.get()) < idle_for;
        young && !self.retired.get() && !self.sender.is_closed() && !self.meter.is_deaf()
    }

    pub(super) fn sender(&self) -> http2::SendRequest<RequestBody> {
        self.sender.clone()
    }
}

impl Stream {
    fn of(connection: Rc<Http2>) -> Self {
        connection.streams.set(connection.streams.get() + 1);
        Stream(connection)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.0.streams.set(self.0.streams.get() - 1);
        self.0.used.set(time::now());
    }
}

async fn over_http1(socket: Socket) -> Result<Via, Failure> {
    Ok(Via::Http1(Box::new(Http1::open(socket).await?)))
}

async fn http2(socket: Socket) -> Result<Http2, Failure> {
    let (io, meter) = Metered::new(socket);
    let head_bytes = u32::try_from(limits::UPSTREAM_HEAD_BYTES).unwrap_or(u32::MAX);
    let (sender, driver) = http2::Builder::new(Here)
        .timer(TokioTimer::new())
        .initial_stream_window_size(limits::H2_STREAM_WINDOW)
        .initial_connection_window_size(limits::H2_CONNECTION_WINDOW)
        .max_header_list_size(head_bytes)
        .keep_alive_interval(limits::H2_PING_INTERVAL)
        .keep_alive_timeout(limits::H2_PING_TIMEOUT)
        .handshake(TokioIo::new(io))
        .await
        .map_err(|error| fault::of_http2(&error).0)?;
    task::start(async move {
        // Each stream is told of it too; here is nobody left to tell.
        if let Err(error) = driver.await {
            observe::fine("HTTP/2 connection ended", None, &error);
        }
    });
    Ok(Http2 {
        sender,
        meter,
        streams: Cell::new(0),
        used: Cell::new(time::now()),
        retired: Cell::new(false),
    })
}

/// Spawns hyper's HTTP/2 tasks on this thread.
#[derive(Clone, Copy)]
struct Here;

impl<F: Future + 'static> hyper::rt::Executor<F> for Here {
    fn execute(&self, future: F) {
        task::start(async move {
            future.await;
        });
    }
}

/// The forward proxy that the environment names for `https://authority`.
pub(super) fn forward_for(authority: &str, proxies: &ProxyRules) -> Result<Option<Forward>, String> {
    let target = http::Uri::builder()
        .scheme("https")
        .authority(authority)
        .path_and_query("/")
        .build()
        .map_err(|_| format!("`{authority}` is no host"))?;
    let Some(proxy) = proxies.intercept(&target) else { return Ok(None) };
    let uri = proxy.uri();
    let (Some("http"), Some(host)) = (uri.scheme_str(), uri.host()) else {
        return Err(format!(
            "the environment's proxy {uri} is not one of http://; name such a one in HTTPS_PROXY, or this host in NO_PROXY"
        ));
    };
    Ok(Some(Forward {
        host: host.trim_start_matches('[').trim_end_matches(']').to_owned(),
        port: uri.port_u16().unwrap_or(80),
        credential: proxy.basic_auth().cloned(),
    }))
}
