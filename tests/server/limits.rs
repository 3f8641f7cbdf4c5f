//! Connections, heads, bodies, memory, gates: each bound by its name, each with an answer of its own.

use std::time::Duration;

use edgeward::sim::model::healthy;
use edgeward::sim::script::parse;
use edgeward::sim::server::SimServer;
use tokio::io::AsyncWriteExt as _;

use crate::LIMIT;
use crate::program::{CHAT, Folder, Program, SOON, Wire, ask, chat, request, run, target, token};

fn hit(limit: &str) -> String {
    format!("edgeward_limit_hits_total{{limit=\"{limit}\"}}")
}

/// A chat request of about this many bytes: one image in base64, as a client writes it.
fn big(bytes: usize) -> String {
    let image = "iVBORw0KGgo+/AAA".repeat(bytes / 16);
    format!(
        r#"{{"model":"m","messages":[{{"role":"user","content":[{{"type":"image_url","image_url":{{"url":"data:image/png;base64,{image}"}}}}]}}]}}"#
    )
}

#[test]
fn one_connection_carries_many_requests_in_order() {
    run(LIMIT, async {
        let server = SimServer::start(healthy("a")).await.unwrap();
        let program = Program::start(&target("a", "openai", &server, "")).await;
        let mut wire = Wire::connect(program.addr).await;
        for _ in 0..3 {
            for stream in [true, false] {
                wire.write(request("POST", CHAT, &[], &chat(stream))).await;
                let answer = wire.answer().await;
                assert_eq!((answer.status, answer.clean), (200, true));
                assert_eq!(answer.header("content-type") == Some("text/event-stream"), stream);
            }
        }
        let all = [
            request("POST", CHAT, &[], &chat(true)),
            request("GET", "/edgeward/health", &[], ""),
            request("POST", CHAT, &[], "[]"),
            request("POST", CHAT, &[], &chat(false)),
            request("GET", "/nowhere", &[("Connection", "close")], ""),
        ];
        wire.write(all.concat()).await;
        for status in [200, 200, 400, 200, 404] {
            let answer = wire.answer().await;
            assert_eq!((answer.status, answer.clean), (status, true), "{}", answer.text());
        }
        assert!(wire.ends().await);
        assert_eq!(program.metric("edgeward_connections").await, 1.0);
    });
}

#[test]
fn a_large_request_sent_ahead_of_its_turn_comes_whole() {
    run(LIMIT, async {
        let slow = healthy("a").paced(2, Duration::from_millis(150), Duration::ZERO);
        let server = SimServer::start(slow).await.unwrap();
        let program = Program::start(&target("a", "openai", &server, "collect = false")).await;
        let body = big(1 << 20);
        let mut wire = Wire::connect(program.addr).await;
        let all = request("POST", CHAT, &[], &chat(true)) + &request("POST", CHAT, &[], &body);
        wire.write(all).await;
        assert_eq!((wire.answer().await.status, wire.answer().await.status), (200, 200));
        assert!(server.requests()[1].body == body.as_bytes());
    });
}

#[test]
fn a_photo_album_passes_byte_for_byte() {
    run(LIMIT, async {
        let server = SimServer::start(healthy("a")).await.unwrap();
        let program = Program::start(&target("a", "openai", &server, "collect = false")).await;
        let body = big(30 << 20);
        let before = edgeward::time::now();
        let mut wire = Wire::connect(program.addr).await;
        wire.write(request("POST", CHAT, &[], &body)).await;
        let answer = wire.answer().await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let took = before.elapsed();
        let sent = server.requests().remove(0);
        assert!(sent.body == body.as_bytes(), "{} bytes of {}", sent.body.len(), body.len());
        // A tree of it, or a copy a frame, takes many times this (unoptimized, on a busy machine).
        assert!(took < Duration::from_secs(6), "{took:?}");
        let memory = program.memory();
        assert!(memory < 90 << 20, "{memory}");
        // The same in chunks, on the same connection.
        let mut chunked = format!(
            "POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        );
        for piece in body.as_bytes().chunks(300_000) {
            chunked += &format!("{:x}\r\n{}\r\n", piece.len(), std::str::from_utf8(piece).unwrap());
        }
        wire.write(chunked + "0\r\n\r\n").await;
        assert_eq!(wire.answer().await.status, 200);
        let sent = server.requests().remove(1);
        assert!(sent.body == body.as_bytes(), "{} bytes of {}", sent.body.len(), body.len());
        assert_eq!(sent.header("transfer-encoding"), None);
        program.until_metric("edgeward_body_memory_bytes", 0.0).await;
    });
}

#[test]
fn a_body_over_its_bound_is_refused_before_it_is_sent() {
    run(LIMIT, async {
        let server = SimServer::start(healthy("a")).await.unwrap();
        let config = format!("[limits]\nmax_body = \"64KiB\"\n{}", target("a", "openai", &server, ""));
        let program = Program::start(&config).await;
        let head = |lines: &str| {
            format!(
                "POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{lines}\r\n"
            )
        };
        // Asked first, nothing is sent.
        let mut wire = Wire::connect(program.addr).await;
        wire.write(head("Content-Length: 65537\r\nExpect: 100-continue\r\n")).await;
        assert_eq!(wire.answer().await.status, 413);
        // Not asked: the answer comes all the same, and survives the rest of a body that nobody reads.
        for lines in ["Content-Length: 10000000\r\n", "Transfer-Encoding: chunked\r\n"] {
            let mut wire = Wire::connect(program.addr).await;
            wire.write(head(lines)).await;
            let piece = if lines.contains("chunked") { "4000\r\n" } else { "" }.to_owned()
                + &" ".repeat(0x4000)
                + if lines.contains("chunked") { "\r\n" } else { "" };
            for _ in 0..20 {
                wire.write(&piece).await;
            }
            let answer = wire.answer().await;
            for _ in 0..20 {
                // Many clients give up at a write that fails, and never read why.
                wire.stream.write_all(piece.as_bytes()).await.expect("the rest is read and dropped");
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            assert_eq!((answer.status, answer.clean), (413, true), "{lines}");
            assert!(answer.text().contains("limits.max_body"), "{}", answer.text());
        }
        assert_eq!(program.metric(&hit("max_body")).await, 3.0);
        assert_eq!(server.counts().requests, 0);
        // One byte less is taken.
        let body = format!("{}{}", chat(false), " ".repeat(65536 - chat(false).len()));
        assert_eq!(ask(program.addr, "POST", CHAT, &[], &body).await.status, 200);
    });
}

#[test]
fn heads_are_bounded_in_bytes_fields_and_time() {
    run(LIMIT, async {
        let config = "[limits]\nheader_bytes = \"8KiB\"\nmax_headers = 16\nheader_time = \"300ms\"\n";
        let program = Program::start(config).await;
        let long = "x".repeat(9000);
        let answer = ask(program.addr, "GET", "/edgeward/health", &[("X-Long", &long)], "").await;
        assert_eq!(answer.status, 431);
        let many: Vec<(&str, &str)> = vec![("X-Many", "1"); 16];
        let mut wire = Wire::connect(program.addr).await;
        wire.write(request("GET", "/edgeward/health", &many, "")).await;
        assert_eq!(wire.answer().await.status, 431);
        assert_eq!(ask(program.addr, "GET", "/edgeward/health", &many[1..], "").await.status, 200);
        let mut wire = Wire::connect(program.addr).await;
        wire.write("GET /edgeward/health HTTP/1.1\r\nHost:").await;
        assert!(wire.ends().await || wire.answer().await.status == 408);
        program.until_metric(&hit("header_bytes"), 1.0).await;
        program.until_metric(&hit("max_headers"), 1.0).await;
        program.until_metric(&hit("header_time"), 1.0).await;
    });
}

#[test]
fn an_idle_connection_ends_without_a_word() {
    run(LIMIT, async {
        let times = "idle_time = \"300ms\"\nheader_time = \"50ms\"\nbody_time = \"20s\"\n";
        let slow = r#"WAIT 400
REPLY 200 application/json | {"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}]}"#;
        let server = SimServer::start(parse(slow).unwrap()).await.unwrap();
        let program =
            Program::start(&format!("[limits]\n{times}{}", target("a", "openai", &server, ""))).await;
        let mut silent = Wire::connect(program.addr).await;
        let mut wire = Wire::connect(program.addr).await;
        // Longer than a head may take; neither time counts while an answer is under way.
        wire.write(request("POST", CHAT, &[], &chat(false))).await;
        assert_eq!(wire.answer().await.status, 200);
        assert!(wire.ends().await && silent.ends().await);
        assert_eq!(program.metric(&hit("header_time")).await, 0.0);
        assert!(!program.log().contains("limit_hit") && !program.log().contains("WARN"), "{}", program.log());
    });
}

#[test]
fn a_body_that_dawdles_ends_with_408() {
    run(LIMIT, async {
        let config = "[limits]\nbody_time = \"300ms\"\n";
        let program = Program::start(config).await;
        let mut wire = Wire::connect(program.addr).await;
        let whole = request("POST", CHAT, &[], &chat(false));
        wire.write(&whole[..whole.len() - 1]).await;
        let answer = wire.answer().await;
        assert_eq!((answer.status, answer.clean), (408, true));
        assert!(answer.text().contains("limits.body_time"));
        assert!(wire.ends().await);
        assert_eq!(program.metric(&hit("body_time")).await, 1.0);
    });
}

#[test]
fn one_connection_too_many_is_told_so() {
    run(LIMIT, async {
        let program = Program::start("[limits]\nconnections = 2\n").await;
        let mut first = Wire::connect(program.addr).await;
        let mut second = Wire::connect(program.addr).await;
        for wire in [&mut first, &mut second] {
            wire.write(request("GET", "/edgeward/health", &[], "")).await;
            assert_eq!(wire.answer().await.status, 200);
        }
        let mut third = Wire::connect(program.addr).await;
        third.write(request("GET", "/edgeward/health", &[], "")).await;
        let answer = third.answer().await;
        assert_eq!((answer.status, answer.clean), (503, true));
        assert!(answer.header("retry-after").is_some() && answer.text().contains("limits.connections"));
        drop((first, third));
        second.write(request("GET", "/edgeward/metrics", &[], "")).await;
        assert!(second.answer().await.text().contains(&format!("{} 1", hit("connections"))));
        loop {
            // The freed place is there as soon as the server has seen the close.
            if ask(program.addr, "GET", "/edgeward/health", &[], "").await.status == 200 {
                return;
            }
        }
    });
}

#[test]
fn bodies_together_are_bounded_and_wait_for_room() {
    run(LIMIT, async {
        let server = SimServer::start(parse("HANG 60000").unwrap()).await.unwrap();
        let config = format!(
            "[limits]\nmax_body = \"64KiB\"\nbody_memory = \"100KiB\"\nqueue_time = \"400ms\"\n{}",
            target("a", "openai", &server, "")
        );
        let program = Program::start(&config).await;
        let body = chat(false) + &" ".repeat(60 << 10);
        let mut first = Wire::connect(program.addr).await;
        first.write(request("POST", CHAT, &[], &body)).await;
        server.requested(1).await;
        assert_eq!(program.metric("edgeward_body_memory_bytes").await, f64::from(61 << 10));
        let answer = ask(program.addr, "POST", CHAT, &[], &body).await;
        assert_eq!(answer.status, 503, "{}", answer.text());
        assert!(answer.header("retry-after").is_some() && answer.text().contains("limits.body_memory"));
        assert_eq!(program.metric(&hit("body_memory")).await, 1.0);
        // A small one still passes.
        let mut small = Wire::connect(program.addr).await;
        small.write(request("POST", CHAT, &[], &chat(false))).await;
        server.requested(2).await;
        // And a waiting one as soon as there is room.
        server.set(healthy("a"));
        let mut second = Wire::connect(program.addr).await;
        second.write(request("POST", CHAT, &[], &body)).await;
        program.until_metric("edgeward_connections", 4.0).await;
        drop(first);
        assert_eq!(second.answer().await.status, 200);
    });
}

#[test]
fn bodies_that_are_only_announced_take_no_room() {
    run(LIMIT, async {
        let server = SimServer::start(healthy("a")).await.unwrap();
        let config = format!(
            "[limits]\nmax_body = \"1MiB\"\nbody_memory = \"2MiB\"\n{}",
            target("a", "openai", &server, "")
        );
        let program = Program::start(&config).await;
        let mut announced = Vec::new();
        for _ in 0..4 {
            let mut wire = Wire::connect(program.addr).await;
            let body = " ".repeat(1 << 20);
            let whole = request("POST", CHAT, &[], &body);
            wire.write(&whole[..whole.len() - body.len()]).await;
            announced.push(wire);
        }
        program.until_metric("edgeward_connections", 5.0).await;
        assert_eq!(program.metric("edgeward_body_memory_bytes").await, 0.0);
        assert_eq!(ask(program.addr, "POST", CHAT, &[], &chat(false)).await.status, 200);
        // One that has begun, and every other one that fits beside it, leave room for chats.
        for wire in &mut announced {
            wire.write(" ").await;
        }
        assert_eq!(ask(program.addr, "POST", CHAT, &[], &chat(false)).await.status, 200);
    });
}

#[test]
fn a_stream_waits_for_a_gate_buffer_and_no_longer_than_it_is_told_to() {
    run(LIMIT, async {
        let server = SimServer::start(parse("SSE\nHANG 60000").unwrap()).await.unwrap();
        let config = format!(
            "[limits]\ngated_streams = 1\nqueue_time = \"400ms\"\n{}",
            target("a", "openai", &server, "")
        );
        let program = Program::start(&config).await;
        let mut first = Wire::connect(program.addr).await;
        first.write(request("POST", CHAT, &[], &chat(true))).await;
        server.requested(1).await;
        let answer = ask(program.addr, "POST", CHAT, &[], &chat(true)).await;
        assert_eq!(answer.status, 503, "{}", answer.text());
        assert!(answer.header("retry-after").is_some() && answer.text().contains("limits.gated_streams"));
        assert_eq!(program.metric(&hit("gated_streams")).await, 1.0);
        assert_eq!(server.counts().requests, 1);
        // What is not streamed needs none.
        server.set(healthy("a"));
        assert_eq!(ask(program.addr, "POST", CHAT, &[], &chat(false)).await.status, 200);
        let mut second = Wire::connect(program.addr).await;
        second.write(request("POST", CHAT, &[], &chat(true))).await;
        program.until_metric("edgeward_connections", 3.0).await;
        drop(first);
        assert_eq!(second.answer().await.status, 200);
        // A committed stream holds none.
        server.set(parse(&format!("SSE\n{}HANG 60000", token("hi"))).unwrap());
        let mut third = Wire::connect(program.addr).await;
        third.write(request("POST", CHAT, &[], &chat(true))).await;
        third.until("hi").await;
        program.until_metric("edgeward_gated_streams", 0.0).await;
    });
}

#[test]
fn a_request_whose_turn_has_not_come_hides_no_hangup() {
    run(LIMIT, async {
        let server = SimServer::start(parse("HANG 60000").unwrap()).await.unwrap();
        let program = Program::start(&target("a", "openai", &server, "")).await;
        let mut wire = Wire::connect(program.addr).await;
        wire.write(request("POST", CHAT, &[], &chat(true)) + &request("POST", CHAT, &[], &chat(true))).await;
        server.requested(1).await;
        drop(wire);
        tokio::time::timeout(SOON, server.aborted(1)).await.expect("the hangup is seen");
        assert_eq!(server.counts().requests, 1);
    });
}

#[test]
fn every_other_bound_that_is_met_is_counted_by_its_name() {
    run(LIMIT, async {
        let server = SimServer::start(healthy("a")).await.unwrap();
        let other = SimServer::start(healthy("b")).await.unwrap();
        let config = format!(
            "[limits]\ngate_buffer = \"4KiB\"\nanswer_buffer = \"16KiB\"\nrequest_time = \"500ms\"\n{}{}",
            target("a", "openai", &server, ""),
            target("b", "openai", &other, "")
        );
        let program = Program::start(&config).await;
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(200), "]".repeat(200));
        assert_eq!(ask(program.addr, "POST", CHAT, &[], &deep).await.status, 400);
        assert_eq!(program.metric(&hit("json_depth")).await, 1.0);
        let frame = format!("SSE\nC data: {{\"x\":\"{}\nHANG 60000", "y".repeat(6000));
        server.set(parse(&frame).unwrap());
        let answer = ask(program.addr, "POST", CHAT, &[], &chat(true)).await;
        assert_eq!(answer.header("x-edgeward-attempts"), Some("a:overflow,b:committed"));
        assert_eq!(program.metric(&hit("gate_buffer")).await, 1.0);
        let long = "x".repeat(20_000);
        let whole = format!(
            r#"REPLY 200 application/json | {{"choices":[{{"message":{{"content":"{long}"}},"finish_reason":"stop"}}]}}"#
        );
        server.set(parse(&whole).unwrap());
        assert_eq!(
            ask(program.addr, "POST", CHAT, &[], &chat(false)).await.header("x-edgeward-target"),
            Some("a")
        );
        assert_eq!(program.metric(&hit("answer_buffer")).await, 1.0);
        server.set(parse("HANG 60000").unwrap());
        let answer = ask(program.addr, "POST", CHAT, &[], &chat(true)).await;
        assert_eq!(answer.status, 504, "{}", answer.text());
        assert_eq!(program.metric(&hit("request_time")).await, 1.0);
    });
}

#[test]
fn a_request_that_came_to_no_attempt_has_its_line_too() {
    run(LIMIT, async {
        let config = "[limits]\nmax_body = \"1KiB\"\n[[key]]\nname = \"k\"\nenv = \"K\"\n";
        let key = "a-key-of-some-length-0123";
        let program = Program::start_in(Folder::new(), config, &[("K", key)]).await;
        let keyed = [("X-Api-Key", key)];
        let long = chat(true) + &" ".repeat(2000);
        for (headers, body, status) in
            [(&[][..], chat(true), 401), (&keyed, "{".to_owned(), 400), (&keyed, long, 413)]
        {
            let answer = ask(program.addr, "POST", CHAT, headers, &body).await;
            assert_eq!(answer.status, status);
            let id = answer.header("x-edgeward-request-id").unwrap();
            program.logged(&["request_done", id, &format!("status={status}")]).await;
        }
    });
}
