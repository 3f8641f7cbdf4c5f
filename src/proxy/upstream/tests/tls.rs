//! Certificates, trust, and what TLS says when it fails.

use super::*;
use crate::cause::Cause;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::task::spawn_local;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// A certificate authority with its PEM file, removed with it.
pub(super) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    pub(super) file: PathBuf,
}

impl Authority {
    pub(super) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, format!("authority {count}"));
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let file = std::env::temp_dir().join(format!("edgeward-ca-{}-{count}.pem", std::process::id()));
        std::fs::write(&file, issuer.pem()).unwrap();
        Authority { issuer, file }
    }

    /// A server for `name`, valid in the years given, that agrees on one of `alpn`.
    pub(super) fn server(&self, name: &str, years: [i32; 2], alpn: &[&str]) -> TlsAcceptor {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.not_before = date_time_ymd(years[0], 1, 1);
        params.not_after = date_time_ymd(years[1], 1, 1);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let mut config =
            ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_no_client_auth()
                .with_single_cert(vec![certificate.der().clone()], key)
                .unwrap();
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        TlsAcceptor::from(Arc::new(config))
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.file);
    }
}

/// Long enough for any clock that this runs under.
pub(super) const ALWAYS: [i32; 2] = [2000, 2999];

pub(super) fn https(port: u16, place: Place, authority: &Authority) -> Target {
    let url = TargetUrl::Https { host: "localhost".to_owned(), port, base: String::new() };
    Target { roots: Roots::File(authority.file.clone()), ..target(url, place) }
}

pub(super) async fn listen() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

pub(super) async fn accept(listener: &TcpListener, acceptor: &TlsAcceptor) -> TlsStream<TcpStream> {
    let (stream, _) = listener.accept().await.unwrap();
    // Else what follows the session tickets waits for their ACK, and a close in between loses it.
    stream.set_nodelay(true).unwrap();
    acceptor.accept(stream).await.unwrap()
}

#[tokio::test]
async fn a_trusted_server_answers_over_http1_and_sessions_resume() {
    local(async {
        let authority = Authority::new();
        let (listener, port) = listen().await;
        let acceptor = authority.server("localhost", ALWAYS, &["h2", "http/1.1"]);
        let upstreams = upstreams(https(port, Place::Lan, &authority));
        let server = spawn_local(async move {
            let mut kinds = Vec::new();
            for _ in 0..2 {
                let mut stream = accept(&listener, &acceptor).await;
                assert_eq!(stream.get_ref().1.server_name(), Some("localhost"));
                assert_eq!(
                    stream.get_ref().1.alpn_protocol(),
                    Some(&b"http/1.1"[..]),
                    "no HTTP/2 on the LAN"
                );
                let (head, _) = request(&mut stream).await;
                assert!(head.contains(&format!("host: localhost:{port}\r\n")), "{head}");
                say(&mut stream, OK).await;
                kinds.push(stream.get_ref().1.handshake_kind().unwrap());
                closed(&mut stream).await;
            }
            kinds
        });
        for _ in 0..2 {
            let link = upstreams.connect(0, true).await.unwrap();
            let mut reply = link.send(small()).await.unwrap();
            assert_eq!(reply.chunk().await.unwrap().unwrap(), "ok");
        }
        let kinds = server.await.unwrap();
        assert_eq!(kinds, [rustls::HandshakeKind::Full, rustls::HandshakeKind::Resumed]);
    })
    .await;
}

#[tokio::test]
async fn a_certificate_that_does_not_fit_is_told() {
    local(async {
        let (trusted, other) = (Authority::new(), Authority::new());
        let cases = [
            (other.server("localhost", ALWAYS, &[]), Cause::Tls, "not trusted"),
            (trusted.server("localhost", [2900, 2999], &[]), Cause::Clock, "not valid yet"),
            (trusted.server("localhost", [2000, 2001], &[]), Cause::Tls, "expired"),
            (trusted.server("elsewhere", ALWAYS, &[]), Cause::Tls, "not valid for name"),
        ];
        for (acceptor, cause, word) in cases {
            let (listener, port) = listen().await;
            spawn_local(async move { acceptor.accept(listener.accept().await.unwrap().0).await.map(drop) });
            let upstreams = upstreams(https(port, Place::Cloud, &trusted));
            let failure = upstreams.connect(0, false).await.unwrap_err();
            assert_eq!(failure.cause, cause, "{word}: {failure}");
            assert!(failure.detail.contains(word), "{word}: {failure}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_server_without_tls_and_one_that_closes() {
    local(async {
        let authority = Authority::new();
        for (answer, cause) in [(&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], Cause::Tls), (b"", Cause::Closed)]
        {
            let (listener, port) = listen().await;
            spawn_local(async move {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut hello = [0; 4096];
                assert!(stream.read(&mut hello).await.unwrap() > 0);
                say(&mut stream, answer).await;
            });
            let upstreams = upstreams(https(port, Place::Cloud, &authority));
            assert_eq!(upstreams.connect(0, false).await.unwrap_err().cause, cause);
        }
    })
    .await;
}

#[tokio::test]
async fn dropping_the_handshake_closes_the_socket() {
    local(async {
        let authority = Authority::new();
        let (listener, port) = listen().await;
        let upstreams = upstreams(https(port, Place::Cloud, &authority));
        let silent = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut hello = [0; 4096];
            assert!(stream.read(&mut hello).await.unwrap() > 0);
            stream
        };
        let mut stream = tokio::select! {
            stream = silent => stream,
            link = upstreams.connect(0, false) => panic!("{link:?}"),
        };
        closed(&mut stream).await;
    })
    .await;
}

#[tokio::test]
async fn a_cut_without_close_notify_is_no_clean_end() {
    local(async {
        let authority = Authority::new();
        let (listener, port) = listen().await;
        let acceptor = authority.server("localhost", ALWAYS, &[]);
        let upstreams = upstreams(https(port, Place::Lan, &authority));
        spawn_local(async move {
            let mut stream = accept(&listener, &acceptor).await;
            request(&mut stream).await;
            say(&mut stream, "HTTP/1.1 200 OK\r\n\r\nto the end?").await;
        });
        let mut reply = ask(&upstreams).await.unwrap();
        let (body, failure) = read(&mut reply).await;
        assert_eq!(body, b"to the end?");
        assert_eq!(failure.unwrap().cause, Cause::Closed);
    })
    .await;
}

#[tokio::test]
async fn an_early_answer_is_not_lost_over_tls() {
    let says: &str = &"x".repeat(30_000);
    let expected = says.as_bytes().to_vec();
    let body = Bytes::from(vec![b'x'; 24 << 20]);
    local(async {
        let authority = Authority::new();
        let (listener, port) = listen().await;
        let acceptor = authority.server("localhost", ALWAYS, &[]);
        let upstreams = upstreams(https(port, Place::Lan, &authority));
        for _ in 0..5 {
            let server = async {
                let mut stream = accept(&listener, &acceptor).await;
                head(&mut stream).await;
                say(&mut stream, format!("HTTP/1.1 413 No\r\nContent-Length: {}\r\n\r\n{says}", says.len()))
                    .await;
            };
            let client = async {
                let link = upstreams.connect(0, false).await.unwrap();
                link.send(post("/v1/chat/completions", body.clone())).await.unwrap()
            };
            let (mut reply, ()) = tokio::join!(client, server);
            assert_eq!(reply.status, 413);
            assert_eq!(read(&mut reply).await, (expected.clone(), None));
        }
    })
    .await;
}

#[test]
fn a_bad_ca_file_names_target_and_file() {
    let error = |file: PathBuf| {
        let url = TargetUrl::Https { host: "localhost".to_owned(), port: 443, base: String::new() };
        let target = Target { roots: Roots::File(file), ..target(url, Place::Cloud) };
        Upstreams::new(&[target], &direct()).err().unwrap().to_string()
    };
    let missing = error("/nonexistent/ca.pem".into());
    assert!(missing.starts_with("target `box`: /nonexistent/ca.pem: "), "{missing}");
    let empty = std::env::temp_dir().join(format!("edgeward-empty-{}.pem", std::process::id()));
    std::fs::write(&empty, "no PEM here\n").unwrap();
    let message = error(empty.clone());
    std::fs::remove_file(&empty).unwrap();
    assert!(message.ends_with("no certificate in it"), "{message}");
}

#[test]
fn bundled_roots_build() {
    let url = TargetUrl::Https { host: "api.example".to_owned(), port: 443, base: String::new() };
    Upstreams::new(&[target(url, Place::Cloud)], &direct()).unwrap();
}
