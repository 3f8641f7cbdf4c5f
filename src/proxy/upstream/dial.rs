//! Opens sockets: names, addresses in turn, Unix paths, a forward proxy's tunnel.

use std::future::{Future, poll_fn};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::pin::Pin;
use std::task::Poll;

use http::HeaderValue;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

use super::fault;
use crate::cause::{Cause, Failure};
use crate::limits;

/// A forward proxy, from the environment.
pub(super) struct Forward {
    /// A name or an IP literal, without brackets.
    pub(super) host: String,
    pub(super) port: u16,
    /// From the proxy URL's user and password. Never printed.
    pub(super) credential: Option<HeaderValue>,
}

/// A TCP connection to whichever of the host's addresses answers first.
pub(super) async fn tcp(host: &str, port: u16) -> Result<TcpStream, Failure> {
    at(resolve(host, port).await?).await
}

/// The same to whichever of these answers first.
pub(super) async fn at(addresses: Vec<SocketAddr>) -> Result<TcpStream, Failure> {
    let stream = race(addresses).await?;
    tune(&stream);
    Ok(stream)
}

/// A connection to a Unix socket.
pub(super) async fn unix(path: &Path) -> Result<UnixStream, Failure> {
    UnixStream::connect(path).await.map_err(|error| refused_at(&path.display().to_string(), &error))
}

/// A TCP connection to `host:port` through `proxy`.
pub(super) async fn tunnel(proxy: &Forward, host: &str, port: u16) -> Result<TcpStream, Failure> {
    let by_proxy =
        |failure: Failure| Failure::with(failure.cause, &format!("proxy {}: {}", proxy.host, failure.detail));
    let mut stream = tcp(&proxy.host, proxy.port).await.map_err(by_proxy)?;
    let authority = bracketed(host, port);
    let mut head = format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n").into_bytes();
    if let Some(credential) = &proxy.credential {
        head.extend_from_slice(b"Proxy-Authorization: ");
        head.extend_from_slice(credential.as_bytes());
        head.extend_from_slice(b"\r\n");
    }
    head.extend_from_slice(b"\r\n");
    stream.write_all(&head).await.map_err(|error| by_proxy(fault::of_io(&error)))?;

    let mut answer = Vec::new();
    // The server speaks second in TLS, so that nothing may follow the head, and it can be read greedily.
    while !answer.ends_with(b"\r\n\r\n") {
        if answer.len() >= limits::PROXY_HEAD_BYTES {
            return Err(by_proxy(Failure::with(Cause::Protocol, "answered CONNECT with too much")));
        }
        match stream.read_buf(&mut answer).await {
            Ok(0) => {
                return Err(by_proxy(Failure::with(Cause::Closed, "closed without an answer to CONNECT")));
            }
            Ok(_) => {}
            Err(error) => return Err(by_proxy(fault::of_io(&error))),
        }
    }
    match answer.get(..12) {
        Some([b'H', b'T', b'T', b'P', b'/', b'1', b'.', _, b' ', b'2', _, _]) => Ok(stream),
        Some([b'H', b'T', b'T', b'P', b'/', b'1', b'.', _, b' ', status @ ..]) => {
            let status = String::from_utf8_lossy(status);
            Err(by_proxy(Failure::with(Cause::Unreachable, &format!("answered CONNECT with {status}"))))
        }
        _ => Err(by_proxy(Failure::with(Cause::Protocol, "does not speak HTTP"))),
    }
}

/// `host:port` as it stands in a URL.
pub(super) fn bracketed(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// The host's addresses, the two families in turn.
pub(super) async fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>, Failure> {
    // A literal needs no resolver, whose blocking call would cost a thread.
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let found = tokio::net::lookup_host((host, port)).await.map_err(|error| {
        // A resolver that finds no descriptor says so in some C libraries, and "no such name" in others.
        let cause = if fault::is_exhausted(&error) { Cause::Exhausted } else { Cause::Unreachable };
        Failure::with(cause, &format!("{host}: {error}"))
    })?;
    let (six, four): (Vec<_>, Vec<_>) = found.partition(SocketAddr::is_ipv6);
    let addresses = alternate(six, four);
    if addresses.is_empty() {
        return Err(Failure::with(Cause::Unreachable, &format!("{host}: no address")));
    }
    Ok(addresses)
}

/// The two families in turn, so that one that leads nowhere costs one step.
fn alternate(six: Vec<SocketAddr>, four: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let (mut six, mut four) = (six.into_iter(), four.into_iter());
    let mut all = Vec::new();
    loop {
        let pair = [six.next(), four.next()];
        if pair == [None, None] {
            break;
        }
        all.extend(pair.into_iter().flatten());
    }
    all.truncate(limits::CONNECT_ADDRESSES_MAX);
    all
}

type Attempt = Pin<Box<dyn Future<Output = Result<TcpStream, Failure>>>>;

/// Starts the next address when one fails, or keeps silent for [`limits::CONNECT_STAGGER`].
async fn race(addresses: Vec<SocketAddr>) -> Result<TcpStream, Failure> {
    let mut waiting = addresses.into_iter();
    let mut running: Vec<Attempt> = Vec::new();
    let mut failed = Failure::new(Cause::Unreachable);
    loop {
        if let Some(address) = waiting.next() {
            running.push(Box::pin(async move {
                TcpStream::connect(address).await.map_err(|error| refused_at(&address.to_string(), &error))
            }));
        } else if running.is_empty() {
            return Err(failed);
        }
        let first = poll_fn(|cx| {
            let done =
                running.iter_mut().enumerate().find_map(|(at, attempt)| match attempt.as_mut().poll(cx) {
                    Poll::Ready(outcome) => Some((at, outcome)),
                    Poll::Pending => None,
                });
            let Some((at, outcome)) = done else { return Poll::Pending };
            drop(running.swap_remove(at));
            Poll::Ready(outcome)
        });
        let outcome = if waiting.len() == 0 {
            first.await
        } else {
            match tokio::time::timeout(limits::CONNECT_STAGGER, first).await {
                Ok(outcome) => outcome,
                Err(_) => continue,
            }
        };
        match outcome {
            Ok(stream) => return Ok(stream),
            // A missing IPv6 route says less than what the IPv4 address said.
            Err(failure) if failed.cause == Cause::Unreachable => failed = failure,
            Err(_) => {}
        }
    }
}

fn refused_at(place: &str, error: &io::Error) -> Failure {
    if error.kind() == io::ErrorKind::TimedOut {
        return Failure::with(Cause::TimeoutConnect, place);
    }
    let failure = fault::of_io(error);
    Failure::with(failure.cause, &format!("{place}: {}", failure.detail))
}

/// Best effort: a connection without these is slower to send or to notice a dead peer, but works.
fn tune(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
    let keepalive = TcpKeepalive::new()
        .with_time(limits::TCP_KEEPALIVE_IDLE)
        .with_interval(limits::TCP_KEEPALIVE_INTERVAL);
    let _ = SockRef::from(stream).set_tcp_keepalive(&keepalive);
}

#[cfg(test)]
mod tests {
    use super::*;
    use socket2::{Domain, Socket, Type};

    #[tokio::test]
    async fn an_address_that_leads_nowhere_falls_to_the_next() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let good = listener.local_addr().unwrap();
        // No IPv6 listener there, and no IPv6 at all on some machines.
        let refused = SocketAddr::new("::1".parse().unwrap(), good.port());
        let (silent, _full) = silent();
        let racing = race(vec![refused, silent, good]);
        let stream = tokio::time::timeout(limits::CONNECT, racing).await.expect("in time").unwrap();
        assert_eq!(stream.peer_addr().unwrap(), good);
    }

    /// A listener whose queue is full: the kernel drops what else comes.
    fn silent() -> (SocketAddr, Vec<Socket>) {
        let new = || Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let listener = new();
        listener.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        listener.listen(0).unwrap();
        let address = listener.local_addr().unwrap();
        let mut all = vec![listener];
        for _ in 0..4 {
            let filler = new();
            filler.set_nonblocking(true).unwrap();
            let _ = filler.connect(&address);
            all.push(filler);
        }
        (address.as_socket().unwrap(), all)
    }

    #[tokio::test]
    async fn tokens_are_sent_at_once_and_dead_peers_noticed() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = tcp("127.0.0.1", listener.local_addr().unwrap().port()).await.unwrap();
        assert!(stream.nodelay().unwrap());
        assert!(SockRef::from(&stream).keepalive().unwrap());
    }

    #[tokio::test]
    async fn the_most_telling_failure_is_kept() {
        let closed = {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            listener.local_addr().unwrap()
        };
        let failure = race(vec![closed]).await.unwrap_err();
        assert_eq!(failure.cause, Cause::Refused, "{failure}");
        assert!(failure.detail.contains(&closed.to_string()), "{failure}");
    }

    #[test]
    fn families_alternate_and_are_bounded() {
        let six: SocketAddr = "[::1]:1".parse().unwrap();
        let four: SocketAddr = "127.0.0.1:1".parse().unwrap();
        assert_eq!(alternate(vec![six, six], vec![four]), [six, four, six]);
        assert_eq!(alternate(vec![], vec![four; 40]).len(), limits::CONNECT_ADDRESSES_MAX);
    }
}
