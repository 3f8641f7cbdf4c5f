//! Each way to fail has its cause, and only what is safe to send again is called stale.

use super::*;
use crate::cause::Cause;
use crate::limits;
use tokio::task::spawn_local;

/// What a server does after its answer.
#[derive(Clone, Copy, PartialEq)]
enum Then {
    Close,
    Reset,
}

/// The head's outcome, else the body's, of one request to a server that answers with `bytes`.
async fn outcome(bytes: impl AsRef<[u8]> + 'static, then: Then) -> Result<Vec<u8>, (&'static str, Failure)> {
    let (listener, upstreams) = plain().await;
    spawn_local(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        request(&mut stream).await;
        let _ = stream.write_all(bytes.as_ref()).await;
        if then == Then::Reset {
            reset(stream);
        }
    });
    match ask(&upstreams).await {
        Err(SendError::Stale(failure)) => Err(("stale", failure)),
        Err(SendError::Failed(failure)) => Err(("head", failure)),
        Ok(mut reply) => {
            let (body, failure) = read(&mut reply).await;
            assert_eq!(upstreams.idle(0), 0);
            if let Some(failure) = failure {
                assert_eq!(
                    reply.chunk().await,
                    Some(Err(failure.clone())),
                    "a failure never turns into an end"
                );
                return Err(("body", failure));
            }
            Ok(body)
        }
    }
}

async fn fails(bytes: impl AsRef<[u8]> + 'static, then: Then) -> (&'static str, Cause) {
    let (stage, failure) = outcome(bytes, then).await.unwrap_err();
    (stage, failure.cause)
}

#[tokio::test]
async fn before_the_head() {
    local(async {
        assert_eq!(fails("", Then::Reset).await, ("head", Cause::Reset));
        assert_eq!(fails("", Then::Close).await, ("head", Cause::Closed));
        assert_eq!(fails("HTTP/1.1 200 OK\r\nContent-Ty", Then::Close).await, ("head", Cause::Closed));
        assert_eq!(fails("HTTP/1.1 100 Continue\r\n\r\n", Then::Close).await, ("head", Cause::Closed));
        assert_eq!(fails("SSH-2.0-OpenSSH_9.6\r\n", Then::Close).await, ("head", Cause::Protocol));
        assert_eq!(fails(vec![0x15, 3, 1, 0, 2, 2, 70], Then::Close).await, ("head", Cause::Protocol));
        let long = format!("HTTP/1.1 200 OK\r\nx: {}", "x".repeat(limits::UPSTREAM_HEAD_BYTES));
        assert_eq!(fails(long, Then::Close).await, ("head", Cause::Protocol));
        let many = "x: y\r\n".repeat(limits::UPSTREAM_HEADERS_MAX + 1);
        assert_eq!(
            fails(format!("HTTP/1.1 200 OK\r\n{many}\r\n"), Then::Close).await,
            ("head", Cause::Protocol)
        );
        let many = "x: y\r\n".repeat(limits::UPSTREAM_HEADERS_MAX - 1);
        let fine = format!("HTTP/1.1 200 OK\r\n{many}Content-Length: 2\r\n\r\nok");
        assert_eq!(outcome(fine, Then::Close).await, Ok(b"ok".to_vec()));
    })
    .await;
}

#[tokio::test]
async fn in_the_body() {
    local(async {
        let short = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok";
        assert_eq!(fails(short, Then::Close).await, ("body", Cause::Closed));
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        for cut in ["", "2", "2\r\n", "2\r\no", "2\r\nok", "2\r\nok\r\n", "2\r\nok\r\n0\r\n"] {
            assert_eq!(
                fails(format!("{chunked}{cut}"), Then::Close).await,
                ("body", Cause::Closed),
                "{cut:?}"
            );
        }
        for broken in ["zz\r\nok\r\n", "2\r\nokay\r\n", "ffffffffffffffffff\r\n"] {
            assert_eq!(
                fails(format!("{chunked}{broken}"), Then::Close).await,
                ("body", Cause::Protocol),
                "{broken:?}"
            );
        }
        let (stage, cause) = fails(format!("{chunked}2\r\nok\r\n"), Then::Reset).await;
        assert_eq!((stage, cause), ("body", Cause::Reset));
        let gzip = "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\ndata: no gzip at all\n\n";
        assert_eq!(fails(gzip, Then::Close).await, ("body", Cause::Protocol));
        let brotli = "HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 2\r\n\r\nok";
        let (stage, failure) = outcome(brotli, Then::Close).await.unwrap_err();
        assert_eq!((stage, failure.cause), ("body", Cause::Protocol));
        assert!(failure.detail.contains("br"), "{failure}");
    })
    .await;
}

#[tokio::test]
async fn a_failure_closes_the_connection_at_once() {
    local(async {
        let (listener, upstreams) = plain().await;
        let server = spawn_local(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            request(&mut stream).await;
            say(&mut stream, "HTTP/1.1 200 OK\r\nContent-Encoding: zstd\r\n\r\n").await;
            closed(&mut stream).await;
        });
        let mut reply = ask(&upstreams).await.unwrap();
        assert_eq!(reply.chunk().await.unwrap().unwrap_err().cause, Cause::Protocol);
        server.await.unwrap();
        drop(reply);
    })
    .await;
}

#[tokio::test]
async fn without_a_connection() {
    local(async {
        let (listener, upstreams_) = plain().await;
        let address = listener.local_addr().unwrap().to_string();
        drop(listener);
        let failure = upstreams_.connect(0, false).await.unwrap_err();
        assert_eq!(failure.cause, Cause::Refused);
        assert!(failure.detail.contains(&address), "{failure}");

        let nowhere = TargetUrl::Unix { path: "/nonexistent/edgeward.sock".into() };
        let failure = upstreams(target(nowhere, Place::Local)).connect(0, false).await.unwrap_err();
        assert_eq!(failure.cause, Cause::Refused);

        // Longer than a label may be, so that no resolver is asked.
        let url = TargetUrl::Http { host: "a".repeat(64), port: 80, base: String::new() };
        let failure = upstreams(target(url, Place::Lan)).connect(0, false).await.unwrap_err();
        assert_eq!(failure.cause, Cause::Unreachable);

        let failure = upstreams_.connect(1, false).await.unwrap_err();
        assert_eq!(failure.cause, Cause::Internal);
    })
    .await;
}

/// The second request's outcome on a connection that the first one left idle.
async fn second(bytes: &'static str, then: Then) -> Result<Reply, SendError> {
    let (listener, upstreams) = plain().await;
    spawn_local(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        request(&mut stream).await;
        say(&mut stream, OK).await;
        request(&mut stream).await;
        say(&mut stream, bytes).await;
        if then == Then::Reset {
            reset(stream);
        }
    });
    read(&mut ask(&upstreams).await.unwrap()).await;
    let link = upstreams.connect(0, false).await.unwrap();
    assert!(link.reused);
    link.send(small()).await
}

#[tokio::test]
async fn stale_is_a_reused_connection_without_a_byte() {
    local(async {
        let stale = |outcome| matches!(outcome, Err(SendError::Stale(_)));
        assert!(stale(second("", Then::Close).await));
        assert!(stale(second("", Then::Reset).await));
        let outcome = second("H", Then::Close).await;
        assert!(matches!(&outcome, Err(SendError::Failed(f)) if f.cause == Cause::Closed), "{outcome:?}");
        let outcome = second("HTTP/1.1 200 OK\r\nContent-Le", Then::Close).await;
        assert!(matches!(&outcome, Err(SendError::Failed(f)) if f.cause == Cause::Closed), "{outcome:?}");
        let mut reply = second("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok", Then::Close).await.unwrap();
        assert_eq!(read(&mut reply).await.1.unwrap().cause, Cause::Closed);
    })
    .await;
}
