//! The simulated servers themselves, over real sockets: what they send, keep, and count.
#![cfg(feature = "sim")]
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test's helpers may fail the test")]

use std::io;
use std::time::Duration;

use edgeward::sim::cases;
use edgeward::sim::model::healthy;
use edgeward::sim::script::{Op, Script, parse};
use edgeward::sim::server::{Behaviour, Counts, SimServer, refused_port};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::{JoinSet, LocalSet};

/// A test that hangs must fail, not hang the run.
const LIMIT: Duration = Duration::from_secs(20);

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(LocalSet::new().run_until(async {
        tokio::time::timeout(LIMIT, test).await.expect("the test took too long");
    }));
}

async fn serve(script: &str) -> SimServer {
    SimServer::start(parse(script).unwrap()).await.unwrap()
}

async fn connect(server: &SimServer) -> TcpStream {
    TcpStream::connect(server.addr()).await.unwrap()
}

const POST: &str = "POST /v1/x HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody";

/// Reads until `end` was seen.
async fn read_until(stream: &mut TcpStream, end: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    while !bytes.ends_with(end) {
        assert_ne!(stream.read_buf(&mut bytes).await.unwrap(), 0, "{:?}", String::from_utf8_lossy(&bytes));
    }
    bytes
}

/// Reads to the end; how it ended.
async fn read_all(stream: &mut TcpStream) -> (Vec<u8>, io::Result<()>) {
    let mut bytes = Vec::new();
    loop {
        match stream.read_buf(&mut bytes).await {
            Ok(0) => return (bytes, Ok(())),
            Ok(_) => {}
            Err(error) => return (bytes, Err(error)),
        }
    }
}

/// Without its hangs and waits, and after that a close, so that a client can read to the end.
fn brisk(script: &Script) -> Script {
    let still = |op: &Op| match op {
        Op::Every { times, op, .. } => {
            Op::Every { gap: Duration::ZERO, times: (*times).min(50), op: op.clone() }
        }
        Op::End => Op::EndClose,
        other => other.clone(),
    };
    let ops = script.ops.iter().filter(|op| !matches!(op, Op::Wait(_) | Op::Hang(_)));
    let mut ops: Vec<Op> = ops.map(still).collect();
    ops.push(Op::Cut);
    Script { ops, ..script.clone() }
}

#[test]
fn every_case_is_played_byte_for_byte() {
    run(async {
        let mut all = JoinSet::new();
        for case in cases::all().unwrap() {
            all.spawn_local(async move {
                let script = brisk(&case.script);
                let server = SimServer::start(script.clone()).await.unwrap();
                let mut client = connect(&server).await;
                // A script that refuses may reset before this is written.
                let _ = client.write_all(POST.as_bytes()).await;
                let (bytes, end) = read_all(&mut client).await;
                let resets = script.ops.iter().any(|op| matches!(op, Op::Reset | Op::Refuse));
                assert_eq!(end.is_err(), resets, "{}", case.id);
                assert!(bytes == script.wire(), "{}", case.id);
                let counts = server.idle().await;
                assert_eq!((counts.accepted, counts.closed, counts.aborted), (1, 1, 0), "{}", case.id);
                assert_eq!(counts.completed, u64::from(!script.refuses()), "{}", case.id);
            });
            // Files open at once stay few.
            if all.len() >= 32 {
                all.join_next().await.unwrap().unwrap();
            }
        }
        while let Some(done) = all.join_next().await {
            done.unwrap();
        }
    });
}

#[test]
fn ops_are_separate_writes() {
    run(async {
        let server = serve("SSE\nC one\nWAIT 30\nC two\nEND").await;
        let mut client = connect(&server).await;
        client.write_all(POST.as_bytes()).await.unwrap();
        // The second chunk is not there before the wait is over.
        let first = read_until(&mut client, b"3\r\none\r\n").await;
        assert!(first.starts_with(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"));
        let second = read_until(&mut client, b"0\r\n\r\n").await;
        assert_eq!(second, b"3\r\ntwo\r\n0\r\n\r\n");
    });
}

#[test]
fn a_kept_connection_serves_again_and_pipelined_requests_wait_their_turn() {
    run(async {
        let turns: Vec<Script> =
            ["SSE\nC a\nEND", "WAIT 20\nREPLY 500 text/plain | b", "REPLY 200 text/plain | c"]
                .map(|text| parse(text).unwrap())
                .into();
        let server = SimServer::start(turns).await.unwrap();
        let mut client = connect(&server).await;
        client.write_all([POST, POST].concat().as_bytes()).await.unwrap();
        read_until(&mut client, b"0\r\n\r\n").await;
        let second = read_until(&mut client, b"\r\n\r\nb").await;
        assert!(second.starts_with(b"HTTP/1.1 500 Internal Server Error\r\n"));
        // The last turn stays.
        for _ in 0..2 {
            client.write_all(POST.as_bytes()).await.unwrap();
            read_until(&mut client, b"\r\n\r\nc").await;
        }
        drop(client);
        let counts = server.closed(1).await;
        assert_eq!(counts, Counts { accepted: 1, closed: 1, requests: 4, completed: 4, aborted: 0 });
        assert!(server.requests().iter().all(|request| request.connection == 0 && request.body == b"body"));
    });
}

#[test]
fn requests_are_recorded_with_their_chunked_bodies() {
    run(async {
        let server = serve("REPLY 200 text/plain | ok").await;
        let mut client = connect(&server).await;
        let head = "POST /a?b=c HTTP/1.1\r\nHost: a\r\nX-Two:  v \r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n";
        client.write_all(head.as_bytes()).await.unwrap();
        assert_eq!(read_until(&mut client, b"\r\n\r\n").await, b"HTTP/1.1 100 Continue\r\n\r\n");
        for byte in "3;x=y\r\n{\"a\r\nA\r\n\":[1,2,3]}\r\n0\r\nT: 1\r\n\r\n".bytes() {
            client.write_all(&[byte]).await.unwrap();
        }
        read_until(&mut client, b"\r\n\r\nok").await;
        let requests = server.requests();
        assert_eq!((requests[0].method.as_str(), requests[0].path.as_str()), ("POST", "/a?b=c"));
        assert_eq!(requests[0].header("x-two"), Some("v"));
        assert_eq!(requests[0].body, b"{\"a\":[1,2,3]}");
        assert_eq!(requests[0].json()["a"][2], 3);
    });
}

#[test]
fn a_peer_that_goes_away_is_counted_at_once() {
    for script in [
        "HANG 600000",
        "WAIT 600000\nSSE",
        "SSE\nC x\nHANG 600000",
        "SSE\nEVERY 10 1000000 C x",
        // The peer does not read: the writes stall, and only the closed socket ends them.
        "SSE\nREP 1000000 FILL 65536",
    ] {
        for reset in [false, true] {
            run(async {
                let server = serve(script).await;
                let client = connect(&server).await;
                client.writable().await.unwrap();
                client.try_write(POST.as_bytes()).unwrap();
                let counts = server.requested(1).await;
                assert_eq!((counts.open(), counts.aborted, counts.completed), (1, 0, 0), "{script}");
                if reset {
                    client.set_zero_linger().unwrap();
                }
                drop(client);
                let counts = server.aborted(1).await;
                assert_eq!((counts.aborted, counts.completed), (1, 0), "{script}");
                assert_eq!(server.idle().await.closed, 1, "{script}");
            });
        }
    }
}

#[test]
fn a_half_sent_request_is_closed_but_no_request() {
    run(async {
        let server = serve("REPLY 200 text/plain | ok").await;
        for part in ["", "POST / HT", "POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nhalf", "nonsense\r\n\r\n"]
        {
            let mut client = connect(&server).await;
            client.write_all(part.as_bytes()).await.unwrap();
        }
        let counts = server.closed(4).await;
        assert_eq!((counts.accepted, counts.requests, counts.aborted), (4, 0, 0));
    });
}

#[test]
fn refusals_take_their_turn() {
    run(async {
        let turns: Vec<Script> =
            ["REFUSE", "REPLY 200 text/plain | ok"].map(|text| parse(text).unwrap()).into();
        let server = SimServer::start(turns).await.unwrap();
        let mut client = connect(&server).await;
        let (_, end) = read_all(&mut client).await;
        assert_eq!(end.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
        let mut client = connect(&server).await;
        client.write_all(POST.as_bytes()).await.unwrap();
        read_until(&mut client, b"ok").await;
        assert_eq!(server.counts().requests, 1);
    });
}

#[test]
fn nothing_listens_at_a_refused_port() {
    run(async {
        let port = refused_port().unwrap();
        let error = TcpStream::connect(port.addr()).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    });
}

#[test]
fn dropping_a_server_closes_its_connections() {
    run(async {
        let server = serve("SSE\nHANG 600000").await;
        let mut client = connect(&server).await;
        client.write_all(POST.as_bytes()).await.unwrap();
        read_until(&mut client, b"\r\n\r\n").await;
        let addr = server.addr();
        drop(server);
        assert_eq!(read_all(&mut client).await.0, b"");
        let error = TcpStream::connect(addr).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    });
}

#[test]
fn a_healthy_server_answers_by_what_is_asked() {
    run(async {
        let model = healthy("cloud").paced(3, Duration::from_millis(5), Duration::from_millis(5));
        let server = SimServer::start(model).await.unwrap();
        let mut client = connect(&server).await;
        let body = r#"{"model":"asked","stream":true,"messages":[]}"#;
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        client.write_all([&head, body].concat().as_bytes()).await.unwrap();
        let answer = read_until(&mut client, b"0\r\n\r\n").await;
        let answer = String::from_utf8(answer).unwrap();
        for part in
            ["\"content\":\"[cloud]\"", "\"content\":\" gate\"", "\"model\":\"asked\"", "data: [DONE]"]
        {
            assert!(answer.contains(part), "{part} in {answer}");
        }
        client.write_all(b"GET /api/version HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        read_until(&mut client, b"}").await;
        // And it can become another.
        server.set(Behaviour::by(|request| Script::reply(418, "text/plain", request.path.clone())));
        client.write_all(b"GET /tea HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await.unwrap();
        let (answer, end) = read_all(&mut client).await;
        assert!(answer.starts_with(b"HTTP/1.1 418 ") && answer.ends_with(b"/tea") && end.is_ok());
    });
}
