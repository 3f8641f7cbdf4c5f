//! HTTP/2: many requests on one connection, and which of its failures are safe to repeat.

use super::tls::{ALWAYS, Authority, accept, https, listen};
use super::*;
use crate::cause::Cause;
use h2::server::{Connection, SendResponse};
use h2::{Reason, RecvStream};
use http::Response;
use tokio::task::spawn_local;
use tokio_rustls::TlsAcceptor;

type Server = Connection<tokio_rustls::server::TlsStream<TcpStream>, Bytes>;

struct Cloud {
    listener: TcpListener,
    acceptor: TlsAcceptor,
    upstreams: Upstreams,
    _authority: Authority,
}

async fn cloud() -> Cloud {
    let authority = Authority::new();
    let (listener, port) = listen().await;
    let acceptor = authority.server("localhost", ALWAYS, &["h2", "http/1.1"]);
    let upstreams = upstreams(https(port, Place::Cloud, &authority));
    Cloud { listener, acceptor, upstreams, _authority: authority }
}

impl Cloud {
    async fn accept(&self) -> Server {
        let stream = accept(&self.listener, &self.acceptor).await;
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        h2::server::handshake(stream).await.unwrap()
    }
}

/// The next request, while the connection goes on being driven by a task.
fn drive(mut server: Server) -> tokio::sync::mpsc::Receiver<(Request<RecvStream>, SendResponse<Bytes>)> {
    let (sender, requests) = tokio::sync::mpsc::channel(8);
    spawn_local(async move {
        while let Some(Ok(request)) = server.accept().await {
            if sender.send(request).await.is_err() {
                break;
            }
        }
    });
    requests
}

async fn body_of(stream: &mut RecvStream) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(data) = stream.data().await {
        let data = data.unwrap();
        stream.flow_control().release_capacity(data.len()).unwrap();
        body.extend_from_slice(&data);
    }
    body
}

#[tokio::test]
async fn requests_share_a_connection_and_a_drop_resets_one_stream() {
    local(async {
        let cloud = cloud().await;
        let (link, server) = tokio::join!(cloud.upstreams.connect(0, false), cloud.accept());
        let link = link.unwrap();
        assert!(link.is_http2() && !link.reused);
        let mut requests = drive(server);

        let first = spawn_local(link.send(post("/v1/x?y=1", Bytes::from_static(b"{\"a\":1}"))));
        let (mut asked, mut answer) = requests.recv().await.unwrap();
        assert_eq!(asked.uri().path_and_query().unwrap(), "/v1/x?y=1");
        assert_eq!(asked.uri().scheme_str(), Some("https"));
        let port = cloud.listener.local_addr().unwrap().port();
        assert_eq!(asked.uri().authority().unwrap().as_str(), format!("localhost:{port}"));
        assert_eq!(asked.headers()["content-length"], "7");
        assert!(!asked.headers().contains_key("host"));
        assert_eq!(body_of(asked.body_mut()).await, b"{\"a\":1}");
        let mut sending = answer.send_response(Response::new(()), false).unwrap();
        let mut first = first.await.unwrap().unwrap();
        sending.send_data(Bytes::from_static(b"one"), false).unwrap();
        assert_eq!(first.chunk().await.unwrap().unwrap(), "one");

        // A second stream beside it, on the same connection: the listener accepts nothing more.
        let link = cloud.upstreams.connect(0, false).await.unwrap();
        assert!(link.reused && link.is_http2());
        let waiting = spawn_local(link.send(small()));
        let (_asked, mut second) = requests.recv().await.unwrap();

        // The answer's reader goes away in the body, the other one before the head.
        drop(first);
        let reason = std::future::poll_fn(|cx| sending.poll_reset(cx)).await.unwrap();
        assert_eq!(reason, Reason::CANCEL);
        waiting.abort();
        let reason = std::future::poll_fn(|cx| second.poll_reset(cx)).await.unwrap();
        assert_eq!(reason, Reason::CANCEL);

        // The connection lives.
        let third = spawn_local(cloud.upstreams.connect(0, false).await.unwrap().send(small()));
        let (_asked, mut answer) = requests.recv().await.unwrap();
        let mut sending = answer.send_response(Response::new(()), false).unwrap();
        sending.send_data(Bytes::from_static(b"ok"), true).unwrap();
        let mut third = third.await.unwrap().unwrap();
        assert!(third.reused);
        assert_eq!(read(&mut third).await, (b"ok".to_vec(), None));
    })
    .await;
}

#[tokio::test]
async fn a_refused_stream_may_be_sent_again_and_another_reset_not() {
    local(async {
        for (reason, stale, cause) in [
            (Reason::REFUSED_STREAM, true, Cause::Reset),
            (Reason::INTERNAL_ERROR, false, Cause::Reset),
            (Reason::CANCEL, false, Cause::Closed),
        ] {
            let cloud = cloud().await;
            let (link, server) = tokio::join!(cloud.upstreams.connect(0, false), cloud.accept());
            let mut requests = drive(server);
            let sent = spawn_local(link.unwrap().send(small()));
            let (_asked, mut answer) = requests.recv().await.unwrap();
            answer.send_reset(reason);
            match sent.await.unwrap().unwrap_err() {
                SendError::Stale(failure) => assert_eq!((stale, failure.cause), (true, cause), "{failure}"),
                SendError::Failed(failure) => assert_eq!((stale, failure.cause), (false, cause), "{failure}"),
            }
            assert_eq!(cloud.upstreams.sweep(crate::time::now()).len(), 0);
            assert_eq!(
                cloud.upstreams.idle(0),
                usize::from(!stale),
                "a refusing connection takes nothing more"
            );
        }
    })
    .await;
}

#[tokio::test]
async fn a_reset_in_the_body_is_a_failure() {
    local(async {
        let cloud = cloud().await;
        let (link, server) = tokio::join!(cloud.upstreams.connect(0, false), cloud.accept());
        let mut requests = drive(server);
        let sent = spawn_local(link.unwrap().send(small()));
        let (_asked, mut answer) = requests.recv().await.unwrap();
        let mut sending = answer.send_response(Response::new(()), false).unwrap();
        let mut reply = sent.await.unwrap().unwrap();
        sending.send_reset(Reason::INTERNAL_ERROR);
        assert_eq!(read(&mut reply).await.1.unwrap().cause, Cause::Reset);
    })
    .await;
}

#[tokio::test]
async fn bytes_of_goaway_from_the_field() {
    // SETTINGS, RST_STREAM(1, REFUSED_STREAM), GOAWAY(last 0, NO_ERROR); then without the RST_STREAM.
    const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
    const REFUSED: &[u8] = &[0, 0, 4, 3, 0, 0, 0, 0, 1, 0, 0, 0, 7];
    const GOAWAY: &[u8] = &[0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    local(async {
        for frames in [[SETTINGS, REFUSED, GOAWAY].concat(), [SETTINGS, GOAWAY].concat()] {
            let cloud = cloud().await;
            let server = async {
                let mut stream = accept(&cloud.listener, &cloud.acceptor).await;
                // Preface, SETTINGS, and the request's first frames.
                let mut seen = vec![0; 24 + 9];
                stream.read_exact(&mut seen).await.unwrap();
                // HEADERS are there when a frame of type 1 begins.
                let mut payload = usize::from(seen[26]);
                loop {
                    let mut rest = vec![0; payload + 9];
                    stream.read_exact(&mut rest).await.unwrap();
                    let frame = &rest[payload..];
                    if frame[3] == 1 {
                        break;
                    }
                    payload = usize::from(frame[1]) << 8 | usize::from(frame[2]);
                }
                say(&mut stream, frames).await;
                stream
            };
            let client = async {
                let link = cloud.upstreams.connect(0, false).await.unwrap();
                assert!(!link.reused);
                link.send(small()).await
            };
            let (_stream, sent) = tokio::join!(server, client);
            assert!(matches!(sent, Err(SendError::Stale(_))), "{sent:?}");
            assert_eq!(cloud.upstreams.sweep(crate::time::now()).len(), 0);
            assert_eq!(cloud.upstreams.idle(0), 0);
        }
    })
    .await;
}

#[tokio::test]
async fn a_reused_connection_that_dies_without_a_byte_is_stale() {
    local(forgotten(false)).await;
}

#[tokio::test]
async fn a_reused_connection_that_has_vanished_is_noticed_by_its_silence() {
    local(forgotten(true)).await;
}

/// A box in the middle forgets an idle connection: it resets it when something is sent on it, or is silent.
async fn forgotten(silent: bool) {
    let authority = Authority::new();
    let (listener, port) = listen().await;
    let (middle, middle_port) = listen().await;
    let acceptor = authority.server("localhost", ALWAYS, &["h2"]);
    let upstreams = upstreams(https(middle_port, Place::Cloud, &authority));
    let (forget, may_forget) = tokio::sync::oneshot::channel::<()>();
    spawn_local(async move {
        let (mut near, _) = middle.accept().await.unwrap();
        let mut far = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        tokio::select! {
            ended = tokio::io::copy_bidirectional(&mut near, &mut far) => panic!("{ended:?}"),
            told = may_forget => told.unwrap(),
        }
        if silent {
            std::future::pending::<()>().await;
        }
        near.readable().await.unwrap();
        reset(near);
    });
    let accepted = async { h2::server::handshake(accept(&listener, &acceptor).await).await.unwrap() };
    let (link, server) = tokio::join!(upstreams.connect(0, false), accepted);
    let mut requests = drive(server);
    let sent = spawn_local(link.unwrap().send(small()));
    let (_asked, mut answer) = requests.recv().await.unwrap();
    answer.send_response(Response::new(()), true).unwrap();
    assert_eq!(read(&mut sent.await.unwrap().unwrap()).await.1, None);
    assert_eq!(upstreams.idle(0), 1);

    forget.send(()).unwrap();
    if silent {
        // Nothing is left but timers: the clock jumps to each.
        tokio::time::pause();
    }
    let link = upstreams.connect(0, false).await.unwrap();
    assert!(link.reused);
    let sent = link.send(small()).await;
    assert!(matches!(sent, Err(SendError::Stale(_))), "{sent:?}");
    assert_eq!(upstreams.sweep(crate::time::now()).len(), 0);
    assert_eq!(upstreams.idle(0), 0);
}

#[tokio::test]
async fn a_warm_spare_is_used_and_replaced() {
    local(async {
        let authority = Authority::new();
        for alpn in [&["h2"][..], &["http/1.1"]] {
            let (listener, port) = listen().await;
            let acceptor = authority.server("localhost", ALWAYS, alpn);
            let target = Target { spare: true, ..https(port, Place::Cloud, &authority) };
            let upstreams = upstreams(target);
            assert_eq!(upstreams.sweep(crate::time::now()), [0], "none yet");
            let server = async {
                let stream = accept(&listener, &acceptor).await;
                if alpn == ["h2"] {
                    let mut server = h2::server::handshake(stream).await.unwrap();
                    spawn_local(async move { server.accept().await.is_some() });
                } else {
                    spawn_local(async move { !request(&mut { stream }).await.0.is_empty() });
                }
            };
            tokio::join!(async { upstreams.warm(0).await.unwrap() }, server);
            upstreams.warm(0).await.unwrap();
            assert_eq!(upstreams.idle(0), 1, "one is enough");
            assert!(upstreams.sweep(crate::time::now()).is_empty());
            let link = upstreams.connect(0, false).await.unwrap();
            assert!(link.reused, "{alpn:?}");
            // Its server closes it on the request.
            assert!(link.send(small()).await.is_err());
            while upstreams.sweep(crate::time::now()).is_empty() {
                tokio::task::yield_now().await;
            }
            // A server that is gone does not matter here.
            drop(listener);
            assert_eq!(upstreams.warm(0).await.unwrap_err().cause, Cause::Refused);
            assert_eq!(upstreams.idle(0), 0);
        }
    })
    .await;
}
