//! The environment's forward proxy: asked for clouds, never for this box.

use super::tls::{ALWAYS, Authority, accept, https, listen};
use super::*;
use crate::cause::Cause;
use tokio::task::spawn_local;

fn rules(port: u16, no: &str) -> ProxyRules {
    ProxyRules::builder().all(format!("http://me:secret@127.0.0.1:{port}")).no(no.to_owned()).build()
}

#[tokio::test]
async fn a_cloud_is_reached_through_the_proxy() {
    local(async {
        let authority = Authority::new();
        let (listener, port) = listen().await;
        let (proxy, proxy_port) = listen().await;
        let acceptor = authority.server("localhost", ALWAYS, &[]);
        let asked = spawn_local(async move {
            let (mut stream, _) = proxy.accept().await.unwrap();
            let asked = head(&mut stream).await;
            say(&mut stream, "HTTP/1.1 200 Connection established\r\nVia: x\r\n\r\n").await;
            let mut server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            let _ = tokio::io::copy_bidirectional(&mut stream, &mut server).await;
            asked
        });
        spawn_local(async move {
            let mut stream = accept(&listener, &acceptor).await;
            request(&mut stream).await;
            say(&mut stream, OK).await;
            stream.shutdown().await.unwrap();
        });
        let target = https(port, Place::Cloud, &authority);
        let upstreams = Upstreams::new(&[target], &rules(proxy_port, "elsewhere.example")).unwrap();
        let mut reply = ask(&upstreams).await.unwrap();
        assert_eq!(read(&mut reply).await, (b"ok".to_vec(), None));
        drop((reply, upstreams));
        let host = format!("localhost:{port}");
        assert_eq!(
            asked.await.unwrap(),
            format!(
                "CONNECT {host} HTTP/1.1\r\nHost: {host}\r\nProxy-Authorization: Basic bWU6c2VjcmV0\r\n\r\n"
            )
        );
    })
    .await;
}

#[tokio::test]
async fn local_targets_and_no_proxy_go_straight() {
    local(async {
        let authority = Authority::new();
        for (place, no) in [(Place::Local, ""), (Place::Cloud, "localhost"), (Place::Cloud, "*")] {
            let (listener, port) = listen().await;
            let (proxy, proxy_port) = listen().await;
            let acceptor = authority.server("localhost", ALWAYS, &[]);
            let target = https(port, place, &authority);
            let upstreams = Upstreams::new(&[target], &rules(proxy_port, no)).unwrap();
            tokio::select! {
                (link, _server) = async { tokio::join!(upstreams.connect(0, false), accept(&listener, &acceptor)) } => {
                    link.unwrap();
                }
                _ = proxy.accept() => panic!("{place:?} with NO_PROXY {no:?} went to the proxy"),
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_proxy_that_does_not_let_through() {
    local(async {
        let authority = Authority::new();
        let endless = "x".repeat(crate::limits::PROXY_HEAD_BYTES + 1);
        for (answer, cause, word) in [
            ("HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", Cause::Unreachable, "407"),
            ("HTTP/1.0 503 No\r\nContent-Length: 2\r\n\r\n", Cause::Unreachable, "503"),
            ("SSH-2.0-x\r\n\r\n", Cause::Protocol, "HTTP"),
            ("HTTP/1.1 2", Cause::Closed, "CONNECT"),
            (&endless, Cause::Protocol, "too much"),
        ] {
            let answer = answer.to_owned();
            let (proxy, proxy_port) = listen().await;
            spawn_local(async move {
                let (mut stream, _) = proxy.accept().await.unwrap();
                head(&mut stream).await;
                say(&mut stream, answer).await;
            });
            let target = https(9, Place::Cloud, &authority);
            let upstreams = Upstreams::new(&[target], &rules(proxy_port, "")).unwrap();
            let failure = upstreams.connect(0, false).await.unwrap_err();
            assert_eq!(failure.cause, cause, "{failure}");
            assert!(failure.detail.contains(word) && failure.detail.contains("proxy 127.0.0.1"), "{failure}");
            assert!(!failure.detail.contains("secret"));
        }
    })
    .await;
}

#[test]
fn a_proxy_that_is_not_spoken_is_told_at_the_start() {
    let authority = Authority::new();
    for url in ["socks5://me:secret@127.0.0.1:1080", "https://me:secret@127.0.0.1:3128"] {
        let rules = ProxyRules::builder().all(url).build();
        let error = Upstreams::new(&[https(9, Place::Cloud, &authority)], &rules).err().unwrap();
        let text = error.to_string();
        assert!(text.contains("NO_PROXY") && !text.contains("secret"), "{text}");
        assert!(Upstreams::new(&[https(9, Place::Local, &authority)], &rules).is_ok());
    }
}

#[test]
fn host_headers() {
    let name = |url| super::super::authority(&url);
    let base = String::new;
    assert_eq!(name(TargetUrl::Http { host: "box".into(), port: 80, base: base() }), "box");
    assert_eq!(name(TargetUrl::Http { host: "box".into(), port: 443, base: base() }), "box:443");
    assert_eq!(name(TargetUrl::Https { host: "::1".into(), port: 443, base: base() }), "[::1]");
    assert_eq!(name(TargetUrl::Https { host: "::1".into(), port: 8443, base: base() }), "[::1]:8443");
    assert_eq!(name(TargetUrl::Unix { path: "/run/x.sock".into() }), "localhost");
}
