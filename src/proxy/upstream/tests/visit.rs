//! A host that is no target: asked by its own name at an address that was looked at, directly or through the proxy.

use std::net::SocketAddr;

use super::super::Visits;
use super::tls::{ALWAYS, Authority, accept, listen};
use super::*;
use crate::cause::Cause;

fn url(port: u16) -> TargetUrl {
    // Nobody resolves this name.
    TargetUrl::Https { host: "pictures.invalid".to_owned(), port, base: String::new() }
}

fn get() -> Request<RequestBody> {
    Request::builder().uri("/a.png?x=1").body(RequestBody::empty()).unwrap()
}

#[tokio::test]
async fn the_name_is_in_the_certificate_and_the_address_is_the_one_given() {
    local(async {
        let authority = Authority::new();
        let (listener, port) = listen().await;
        let here = SocketAddr::from(([127, 0, 0, 1], port));
        let visits = Visits::new(&Roots::File(authority.file.clone()), direct()).unwrap();
        let good = authority.server("pictures.invalid", ALWAYS, &["h2", "http/1.1"]);
        let server = async {
            let mut stream = accept(&listener, &good).await;
            let head = head(&mut stream).await;
            say(&mut stream, OK).await;
            head
        };
        let client = async {
            let link = visits.connect(url(port), vec![here]).await.unwrap();
            link.send(get()).await.unwrap().status
        };
        let (head, status) = tokio::join!(server, client);
        assert_eq!(status, 200);
        assert!(head.starts_with("GET /a.png?x=1 HTTP/1.1\r\n"), "{head}");
        assert!(head.contains(&format!("host: pictures.invalid:{port}\r\n")), "{head}");

        let other = authority.server("localhost", ALWAYS, &[]);
        let server = async {
            let (stream, _) = listener.accept().await.unwrap();
            let _refused = other.accept(stream).await;
        };
        let (_, failed) = tokio::join!(server, visits.connect(url(port), vec![here]));
        assert_eq!(failed.map(|_| ()).unwrap_err().cause, Cause::Tls);
    })
    .await;
}

#[tokio::test]
async fn a_forward_proxy_is_told_the_address_and_not_the_name() {
    local(async {
        let authority = Authority::new();
        let (listener, port) = listen().await;
        let proxy = ProxyRules::builder().https(format!("http://127.0.0.1:{port}")).build();
        let visits = Visits::new(&Roots::File(authority.file.clone()), proxy).unwrap();
        let server = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let head = head(&mut stream).await;
            say(&mut stream, "HTTP/1.1 403 Forbidden\r\n\r\n").await;
            head
        };
        let there = SocketAddr::from(([192, 0, 2, 7], 443));
        let (head, failed) = tokio::join!(server, visits.connect(url(443), vec![there]));
        assert!(head.starts_with("CONNECT 192.0.2.7:443 HTTP/1.1\r\n"), "{head}");
        assert!(!head.contains("pictures"), "{head}");
        assert!(failed.is_err());
    })
    .await;
}
