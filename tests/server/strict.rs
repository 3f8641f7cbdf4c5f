//! HTTP/1.1 as strictly as it must be where another box in between may read it otherwise.

use edgeward::sim::model::healthy;
use edgeward::sim::server::SimServer;

use crate::LIMIT;
use crate::program::{CHAT, Program, Wire, chat, request, run, target};

/// A head that is a good request's but for `lines`.
fn head(lines: &str) -> String {
    format!("POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{lines}")
}

#[test]
fn a_request_that_two_readers_could_frame_differently_is_refused() {
    run(LIMIT, async {
        let server = SimServer::start(healthy("a")).await.unwrap();
        let program = Program::start(&target("a", "openai", &server, "")).await;
        let body = chat(false);
        let length = body.len();
        let chunked = format!("{length:x}\r\n{body}\r\n0\r\n\r\n");
        let sized = format!("Content-Length: {length}\r\n");
        let cases = [
            ("length, then chunked", head(&format!("{sized}Transfer-Encoding: chunked\r\n\r\n{chunked}"))),
            ("chunked, then length", head(&format!("Transfer-Encoding: chunked\r\n{sized}\r\n{chunked}"))),
            ("the same length twice", head(&format!("{sized}{sized}\r\n{body}"))),
            ("two lengths", head(&format!("{sized}Content-Length: 1\r\n\r\n{body}"))),
            ("a list of lengths", head(&format!("Content-Length: {length}, {length}\r\n\r\n{body}"))),
            ("a signed length", head(&format!("Content-Length: +{length}\r\n\r\n{body}"))),
            ("an empty length", head(&format!("Content-Length:\r\n\r\n{body}"))),
            (
                "chunked twice",
                head(&format!("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n{chunked}")),
            ),
            ("another coding", head(&format!("Transfer-Encoding: gzip, chunked\r\n\r\n{chunked}"))),
            ("identity", head(&format!("Transfer-Encoding: identity\r\n\r\n{chunked}"))),
            ("chunked is not last", head(&format!("Transfer-Encoding: chunked, gzip\r\n\r\n{chunked}"))),
            ("a folded value", head(&format!("X-A: 1\r\n 2\r\n{sized}\r\n{body}"))),
            ("a folded length", head(&format!("Content-Length:\r\n {length}\r\n\r\n{body}"))),
            ("a folded first line", format!("POST {CHAT} HTTP/1.1\r\n Host: localhost\r\n{sized}\r\n{body}")),
            ("a bare CR", head(&format!("X-A: 1\rX-B: 2\r\n{sized}\r\n{body}"))),
            ("a CR before CRLF", head(&format!("X-A: 1\r\r\n{sized}\r\n{body}"))),
            ("a bare LF", head(&format!("X-A: 1\n{sized}\r\n{body}"))),
            ("bare LFs only", head(&format!("{sized}\r\n{body}")).replace("\r\n", "\n")),
            ("a bare LF ends the head", head(&format!("{sized}\n{body}"))),
            ("a space before the colon", head(&format!("Content-Length : {length}\r\n\r\n{body}"))),
            ("a zero byte", head(&format!("X-A: \0\r\n{sized}\r\n{body}"))),
            ("a name with a space", head(&format!("X A: 1\r\n{sized}\r\n{body}"))),
            ("no colon", head(&format!("X-A\r\n{sized}\r\n{body}"))),
            ("two spaces", head(&format!("{sized}\r\n{body}")).replace("POST ", "POST  ")),
            (
                "HTTP/1.0 and chunked",
                head(&format!("Transfer-Encoding: chunked\r\n\r\n{chunked}")).replace("1.1", "1.0"),
            ),
            ("a chunk size with a sign", head(&format!("Transfer-Encoding: chunked\r\n\r\n+{chunked}"))),
            ("a chunk size with 0x", head(&format!("Transfer-Encoding: chunked\r\n\r\n0x{chunked}"))),
            (
                "a bare LF after a chunk's size",
                head(&format!("Transfer-Encoding: chunked\r\n\r\n{length:x}\n{body}\r\n0\r\n\r\n")),
            ),
            (
                "a chunk longer than its size",
                head(&format!("Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n", length - 1)),
            ),
        ];
        let mut wrong = Vec::new();
        for (what, bytes) in &cases {
            // All at once, and in single bytes.
            for piece in [bytes.len(), 1] {
                let mut wire = Wire::connect(program.addr).await;
                for piece in bytes.as_bytes().chunks(piece) {
                    wire.write(piece).await;
                    if piece.len() == 1 {
                        tokio::task::yield_now().await;
                    }
                }
                // Smuggled, if what came before is read otherwise.
                wire.write(request("GET", "/edgeward/health", &[("X-Smuggled", "1")], "")).await;
                let answer = wire.answer().await;
                let ended = wire.ends().await;
                if answer.status != 400 || !ended {
                    wrong.push(format!("{what}: {} {}, ended: {ended}", answer.status, answer.text()));
                }
            }
        }
        assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
        assert_eq!(server.counts().requests, 0);
    });
}

#[test]
fn a_bad_request_behind_good_ones_is_refused_in_its_turn() {
    run(LIMIT, async {
        let server = SimServer::start(healthy("a")).await.unwrap();
        let program = Program::start(&target("a", "openai", &server, "")).await;
        let body = chat(false);
        let length = body.len();
        let bad = head(&format!(
            "Content-Length: {length}\r\nTransfer-Encoding: chunked\r\n\r\n{length:x}\r\n{body}\r\n0\r\n\r\n"
        ));
        let good = request("POST", CHAT, &[], &body);
        let chunked = head(&format!(
            "Transfer-Encoding: chunked\r\n\r\n5;a=b\r\n{}\r\n{:x}\r\n{}\r\n0\r\nX-Trailer: 1\r\n\r\n",
            &body[..5],
            length - 5,
            &body[5..]
        ));
        let mut wire = Wire::connect(program.addr).await;
        wire.write([good.as_str(), &chunked, "\r\n", &good, &bad, &good].concat()).await;
        for _ in 0..3 {
            let answer = wire.answer().await;
            assert_eq!((answer.status, answer.clean), (200, true), "{}", answer.text());
        }
        let refused = wire.answer().await;
        assert_eq!(
            (refused.status, refused.header("connection")),
            (400, Some("close")),
            "{}",
            refused.text()
        );
        assert!(wire.ends().await);
        assert_eq!(server.counts().requests, 3);
        assert!(server.requests().iter().all(|request| request.json()["messages"][0]["content"] == "hi"));
    });
}
