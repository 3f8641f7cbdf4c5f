//! Listeners: TCP with or without TLS for clients, a Unix socket for operators.

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use socket2::{Domain, Protocol, SockRef, Type};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio_rustls::TlsAcceptor;

use super::current::Current;
use super::gateway::{Gateway, Process};
use super::server;
use super::socket::Socket;
use crate::config::ServerTls;
use crate::limits;
use crate::observe::{self, Limit, events};
use crate::task;

/// Connections that wait to be accepted, per listener.
const BACKLOG: i32 = 1024;
/// After an accept that failed for want of file descriptors or memory, before the next: existing streams must
/// end first.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Binds one client address. `shared`: beside another socket of this user that allows it (`SO_REUSEPORT`).
///
/// # Errors
/// The address is in use, or not this machine's.
pub fn bind(address: SocketAddr, shared: bool) -> io::Result<TcpListener> {
    let socket = socket2::Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if shared {
        socket.set_reuse_port(true)?;
    }
    if address.is_ipv6() {
        socket.set_only_v6(address.ip() != std::net::Ipv6Addr::UNSPECIFIED)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// Binds the operators' socket, readable by its owner and group only. A socket that an earlier run left is removed.
///
/// # Errors
/// The folder cannot be written, or another edgeward listens there.
pub fn bind_admin(path: &Path) -> io::Result<UnixListener> {
    if let Ok(metadata) = std::fs::symlink_metadata(path)
        && metadata.file_type().is_socket()
    {
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, "another edgeward listens there"));
        }
        std::fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660))?;
    Ok(listener)
}

/// Reads the LAN side's certificate and key.
///
/// # Errors
/// A file that cannot be read, is no PEM, or does not fit the other.
pub fn tls(files: &ServerTls) -> Result<TlsAcceptor, String> {
    let name = |path: &Path| path.display().to_string();
    let chain = CertificateDer::pem_file_iter(&files.cert)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|e| format!("{}: {e}", name(&files.cert)))?;
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|e| format!("{}: {e}", name(&files.key)))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map(|builder| builder.with_no_client_auth())
        .and_then(|builder| builder.with_single_cert(chain, key))
        .map_err(|e| format!("{} and {}: {e}", name(&files.cert), name(&files.key)))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Accepts clients for ever.
pub async fn clients(current: Rc<Current>, listener: Rc<TcpListener>) {
    loop {
        match listener.accept().await {
            Ok((socket, peer)) => client_at(&current, socket, peer),
            Err(error) => accept_failed(&current.get(), &error).await,
        }
    }
}

/// Accepts those who wait at this moment, by the kernel's word and not by the event loop's, which may not have heard of
/// all: for a listener that is closed next, which would reset them.
pub fn waiting(current: &Rc<Current>, listener: &TcpListener) {
    // Whoever comes while this runs is let in too, but not for ever.
    for _ in 0..BACKLOG {
        let Ok((socket, peer)) = SockRef::from(listener).accept() else { return };
        let socket = socket.set_nonblocking(true).and_then(|()| TcpStream::from_std(socket.into()));
        if let (Ok(socket), Some(peer)) = (socket, peer.as_socket()) {
            client_at(current, socket, peer);
        }
    }
}

fn client_at(current: &Rc<Current>, socket: TcpStream, peer: SocketAddr) {
    // Nagle's algorithm would hold each token back until the last one is acknowledged.
    let _best_effort = socket.set_nodelay(true);
    client(current, Socket::Tcp(socket), Some(peer), current.tls());
}

/// Accepts clients on a Unix socket for ever. TLS is for networks.
pub async fn local_clients(current: Rc<Current>, listener: UnixListener) {
    loop {
        match listener.accept().await {
            Ok((socket, _)) => client(&current, Socket::Unix(socket), None, None),
            Err(error) => accept_failed(&current.get(), &error).await,
        }
    }
}

/// `tls`: before anything else, over `socket` if that is TCP.
fn client(current: &Rc<Current>, socket: Socket, peer: Option<SocketAddr>, tls: Option<TlsAcceptor>) {
    let current = Rc::clone(current);
    let gateway = current.get();
    if gateway.process.connections.get() >= gateway.config.limits.connections {
        gateway.metrics.limit(Limit::Connections);
        events::limit_hit(Limit::Connections, None);
        let Some(leaving) = Leaving::new() else { return };
        task::start(async move {
            let _leaving = leaving;
            let turned_away = turn_away(socket, tls.is_some());
            let _late = tokio::time::timeout(Duration::from_secs(1), turned_away).await;
        });
        return;
    }
    let handshake_time = gateway.config.limits.header_time;
    // From here on, handshake included: a connection is one before it can say so.
    let counted = Counted::new(&gateway);
    task::start(async move {
        let _counted = counted;
        let socket = match (tls, socket) {
            (Some(acceptor), Socket::Tcp(tcp)) => {
                let handshake = tokio::time::timeout(handshake_time, acceptor.accept(tcp));
                match handshake.await {
                    Ok(Ok(stream)) => Socket::tls(stream),
                    // The client's doing: it speaks plain HTTP, distrusts the certificate, or scans.
                    Ok(Err(error)) => return observe::fine("No TLS handshake", None, &error),
                    Err(late) => return observe::fine("No TLS handshake", None, &late),
                }
            }
            (_, socket) => socket,
        };
        server::serve(current, socket, peer, false).await;
    });
}

/// Too many connections: said as well as can be said without serving.
async fn turn_away(mut socket: Socket, tls: bool) {
    if !tls {
        let body = "{\"error\":{\"message\":\"edgeward has no room for another connection (limits.connections); try \
                    again shortly\",\"type\":\"server_error\",\"param\":null,\"code\":\"connections\"}}";
        let response = format!(
            "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: {}\r\ncontent-length: \
             {}\r\nconnection: close\r\n\r\n{body}",
            limits::RETRY_AFTER_SECS,
            body.len()
        );
        let _gone = socket.write_all(response.as_bytes()).await;
    }
    let _gone = socket.shutdown().await;
}

/// Accepts operators for ever.
pub async fn operators(current: Rc<Current>, listener: UnixListener) {
    loop {
        match listener.accept().await {
            Ok((socket, _)) => {
                let current = Rc::clone(&current);
                let counted = Counted::new(&current.get());
                task::start(async move {
                    let _counted = counted;
                    server::serve(current, Socket::Unix(socket), None, true).await;
                });
            }
            Err(error) => accept_failed(&current.get(), &error).await,
        }
    }
}

/// One of the few connections that are being turned away: each holds a file descriptor.
struct Leaving;

thread_local! {
    static LEAVING: Cell<usize> = const { Cell::new(0) };
}

impl Leaving {
    /// `None` where there are enough.
    fn new() -> Option<Self> {
        let leaving = LEAVING.get();
        (leaving < limits::TURNED_AWAY_MAX).then(|| {
            LEAVING.set(leaving + 1);
            Leaving
        })
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        LEAVING.set(LEAVING.get() - 1);
    }
}

/// One connection in the count.
struct Counted(Rc<Process>);

impl Counted {
    fn new(gateway: &Gateway) -> Self {
        let process = Rc::clone(&gateway.process);
        process.connections.set(process.connections.get() + 1);
        Counted(process)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.connections.set(self.0.connections.get().saturating_sub(1));
        self.0.connection_closed.notify_one();
    }
}

async fn accept_failed(gateway: &Gateway, error: &io::Error) {
    // ECONNABORTED and its like are one client's; everything else gets worse by trying at once.
    if matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset) {
        return;
    }
    events::accept_failed(error);
    // A waiting client is worth more than an idle connection.
    gateway.upstreams.close_idle();
    tokio::time::sleep(ACCEPT_PAUSE).await;
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use tokio::task::LocalSet;

    use super::*;
    use crate::proxy::upstream::ProxyRules;

    /// Nobody has waited for a connection, so the event loop knows of none.
    #[test]
    fn who_waits_at_a_listener_that_closes_is_served() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let answers = LocalSet::new().block_on(&runtime, async {
            let config = crate::config::parse("", Path::new("test"), &|_| None).unwrap().config;
            let gateway = Gateway::new(config, &ProxyRules::from_env(), None).unwrap();
            let current = Current::new(Rc::new(gateway), None);
            let listener = bind("127.0.0.1:0".parse().unwrap(), false).unwrap();
            let clients = [(); 3].map(|()| {
                let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                client.write_all(b"GET /edgeward/health HTTP/1.0\r\nhost: localhost\r\n\r\n").unwrap();
                client
            });
            waiting(&current, &listener);
            drop(listener);
            tokio::task::spawn_blocking(|| {
                clients.map(|mut client| {
                    let mut answer = String::new();
                    client.read_to_string(&mut answer).map(|_| answer)
                })
            })
            .await
            .unwrap()
        });
        assert!(answers.iter().all(|answer| answer.as_ref().unwrap().contains("200 OK")), "{answers:?}");
    }
}
