//! Large request bodies: whole when they are wanted, in nobody's way when they are not.

use super::*;
use std::rc::Rc;
use tokio::task::spawn_local;

#[tokio::test]
async fn an_early_answer_is_not_lost() {
    // Longer than what comes with the head in one read.
    let says: Rc<str> = format!("{{\"error\":\"too large{}\"}}", ".".repeat(30_000)).into();
    let body = Bytes::from(vec![b'x'; 24 << 20]);
    local(async {
        for round in 0..20 {
            let (listener, upstreams) = plain().await;
            let (says, expected) = (Rc::clone(&says), Rc::clone(&says));
            let server = spawn_local(async move {
                let (mut stream, _) = listener.accept().await.unwrap();
                head(&mut stream).await;
                let close = if round % 2 == 0 { "Connection: close\r\n" } else { "" };
                let length = says.len();
                say(
                    &mut stream,
                    format!("HTTP/1.1 413 Too Large\r\nContent-Length: {length}\r\n{close}\r\n{says}"),
                )
                .await;
                // Unread bytes lie here: the close is an RST.
                drop(stream);
            });
            let slices = RequestBody::new(vec![body.clone(), body.clone()]);
            let link = upstreams.connect(0, false).await.unwrap();
            let mut reply = link.send(post("/v1/chat/completions", slices)).await.unwrap();
            assert_eq!(reply.status, 413);
            assert_eq!(read(&mut reply).await, (expected.as_bytes().to_vec(), None), "round {round}");
            assert_eq!(upstreams.idle(0), 0, "it was left in the middle of a request");
            server.await.unwrap();
        }
    })
    .await;
}

#[tokio::test]
async fn a_large_body_arrives_whole() {
    local(async {
        let (listener, upstreams) = plain().await;
        let piece: Rc<Vec<u8>> = Rc::new((0..8_000_003u32).map(|at| (at % 251) as u8).collect());
        let expected = Rc::clone(&piece);
        let server = spawn_local(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let (_, body) = request(&mut stream).await;
            assert!(body[..expected.len()] == expected[..] && body[expected.len()..] == expected[..]);
            say(&mut stream, OK).await;
            closed(&mut stream).await;
        });
        let piece = Bytes::copy_from_slice(&piece);
        let body = RequestBody::new(vec![piece.clone(), piece]);
        assert_eq!(body.len(), 16_000_006);
        let mut reply = upstreams.connect(0, false).await.unwrap().send(post("/", body)).await.unwrap();
        assert_eq!(read(&mut reply).await.1, None);
        assert_eq!(upstreams.idle(0), 1);
        drop((reply, upstreams));
        server.await.unwrap();
    })
    .await;
}
