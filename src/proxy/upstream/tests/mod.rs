//! Upstream connections against servers that speak raw bytes, over loopback.

mod faults;
mod http1;
mod http2;
mod proxy;
mod tls;
mod upload;
mod visit;

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::LocalSet;

use super::{ProxyRules, Reply, RequestBody, SendError, Upstreams};
use crate::cause::Failure;
use crate::config::{Kind, ModelMap, Place, Roots, Target, TargetUrl};

/// Only a test that hangs reaches this.
const PATIENCE: Duration = Duration::from_secs(20);

/// Runs `test` where everything here must run, and not for ever.
async fn local<T>(test: impl Future<Output = T>) -> T {
    LocalSet::new().run_until(soon(test)).await
}

async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what).await.expect("in time")
}

fn target(url: TargetUrl, place: Place) -> Target {
    Target {
        collect: false,
        name: "box".to_owned(),
        kind: Kind::Ollama,
        url,
        place,
        group: "primary".to_owned(),
        region: None,
        weight: 100,
        max_retries: 0,
        key: None,
        forward_key: false,
        models: ModelMap::default(),
        embeddings: None,
        context: None,
        deadlines: Default::default(),
        roots: Roots::Bundled,
        include_usage: true,
        spare: false,
        max_concurrent: None,
        capabilities: crate::config::Capabilities::default(),
        probe: crate::config::TargetProbe::default(),
        process: None,
        metered: false,
        price: None,
        budget: crate::config::Budget::default(),
        discovered: false,
    }
}

fn http(port: u16) -> TargetUrl {
    TargetUrl::Http { host: "127.0.0.1".to_owned(), port, base: String::new() }
}

fn direct() -> ProxyRules {
    ProxyRules::builder().build()
}

fn upstreams(target: Target) -> Upstreams {
    Upstreams::new(&[target], &direct()).unwrap()
}

/// A listener, and connections to it as a local target.
async fn plain() -> (TcpListener, Upstreams) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, upstreams(target(http(port), Place::Local)))
}

fn post(path: &str, body: impl Into<RequestBody>) -> Request<RequestBody> {
    Request::builder().method(Method::POST).uri(path).body(body.into()).unwrap()
}

fn small() -> Request<RequestBody> {
    post("/api/chat", Bytes::from_static(b"{}"))
}

async fn ask(upstreams: &Upstreams) -> Result<Reply, SendError> {
    let link = upstreams.connect(0, false).await.map_err(SendError::Failed)?;
    link.send(small()).await
}

/// The body, up to its end or its failure.
async fn read(reply: &mut Reply) -> (Vec<u8>, Option<Failure>) {
    let mut body = Vec::new();
    loop {
        match reply.chunk().await {
            None => return (body, None),
            Some(Ok(bytes)) => body.extend_from_slice(&bytes),
            Some(Err(failure)) => return (body, Some(failure)),
        }
    }
}

/// A request's head, as it stood on the wire, and its body by Content-Length.
async fn request(stream: &mut (impl AsyncRead + Unpin)) -> (String, Vec<u8>) {
    let head = head(stream).await;
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "))
        .map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.unwrap();
    (head, body)
}

async fn head(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

async fn say(stream: &mut (impl AsyncWrite + Unpin), bytes: impl AsRef<[u8]>) {
    stream.write_all(bytes.as_ref()).await.unwrap();
    stream.flush().await.unwrap();
}

/// A whole answer that leaves the connection open.
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// Closes with RST instead of FIN.
fn reset(stream: TcpStream) {
    socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
}

/// Waits until the peer closes, however it does; fails if it sends anything.
async fn closed(stream: &mut (impl AsyncRead + Unpin)) {
    let mut more = [0; 1];
    match stream.read(&mut more).await {
        Ok(0) | Err(_) => {}
        Ok(_) => panic!("the peer sent more"),
    }
}
