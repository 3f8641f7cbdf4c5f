//! Stopping a request: by its client's hangup, by its id, by SIGTERM, by a client that takes no bytes.

use std::time::Duration;

use edgeward::sim::model::healthy;
use edgeward::sim::script::parse;
use edgeward::sim::server::SimServer;
use serde_json::Value;
use tokio::net::TcpSocket;

use crate::LIMIT;
use crate::program::{CHAT, Program, SOON, Wire, ask, chat, find, request, run, target, target_at, token};

/// What the issue promises between a client's hangup and the upstream's; tests run beside others.
const PROMPT: Duration = Duration::from_millis(500);
/// A request's outcome on the metrics page.
fn outcome(name: &str) -> String {
    format!("edgeward_requests_total{{outcome=\"{name}\"}}")
}

/// Each phase of an attempt, as a script.
fn phases() -> Vec<(&'static str, String)> {
    vec![
        ("before the head", "HANG 60000".to_owned()),
        ("gating", "SSE\nC : keep\\n\\n\nHANG 60000".to_owned()),
        ("relaying", format!("SSE\n{}HANG 60000", token("hi"))),
    ]
}

/// The only request under way, by the id that its error log or its head would name.
async fn the_id(program: &Program, wire: &mut Wire, committed: bool) -> Option<String> {
    let _ = program;
    if !committed {
        return None;
    }
    let head = wire.head().await.unwrap();
    head.header("x-edgeward-request-id").map(str::to_owned)
}

#[test]
fn a_clients_hangup_in_each_phase_ends_the_attempt_and_counts_against_nobody() {
    run(LIMIT, async {
        for (phase, streamed) in phases() {
            for stream in [true, false] {
                let script = match phase {
                    _ if stream => streamed.clone(),
                    "before the head" => "HANG 60000".to_owned(),
                    _ => "HEAD 200 application/json\nC {\"choices\"\nHANG 60000".to_owned(),
                };
                let server = SimServer::start(parse(&script).unwrap()).await.unwrap();
                let program = Program::start(&target("a", "openai", &server, "")).await;
                let mut wire = Wire::connect(program.addr).await;
                wire.write(request("POST", CHAT, &[], &chat(stream))).await;
                server.requested(1).await;
                if phase == "relaying" && stream {
                    wire.until("hi").await;
                }
                assert_eq!(server.counts().open(), 1, "{phase}");
                drop(wire);
                let gone = tokio::time::timeout(PROMPT, server.idle()).await;
                assert!(gone.is_ok(), "{phase}: {:?}", server.counts());
                program.until_metric(&outcome("client_gone"), 1.0).await;
                let status = program.status().await;
                let target = &status["targets"][0];
                assert_eq!(
                    (&target["failed"], &target["in_flight"]),
                    (&0.into(), &0.into()),
                    "{phase}: {target}"
                );
                assert_eq!(status["requests"], 0);
            }
        }
    });
}

#[test]
fn a_hangup_while_the_body_is_read_or_waits_leaves_nothing_behind() {
    run(LIMIT, async {
        let server = SimServer::start(healthy("a")).await.unwrap();
        let program = Program::start(&target("a", "openai", &server, "")).await;
        let mut wire = Wire::connect(program.addr).await;
        let whole = request("POST", CHAT, &[], &chat(true));
        wire.write(&whole[..whole.len() - 1]).await;
        program.until_metric("edgeward_connections", 2.0).await;
        drop(wire);
        program.until_metric("edgeward_connections", 1.0).await;
        program.until_metric("edgeward_body_memory_bytes", 0.0).await;
        assert_eq!(server.counts().accepted, 0);
    });
}

#[test]
fn delete_by_id_ends_a_committed_stream_honestly_and_frees_its_target() {
    run(LIMIT, async {
        let (_, script) = phases().pop().unwrap();
        let server = SimServer::start(parse(&script).unwrap()).await.unwrap();
        let program = Program::start(&target("a", "openai", &server, "")).await;
        let mut wire = Wire::connect(program.addr).await;
        wire.write(request("POST", CHAT, &[], &chat(true))).await;
        let id = the_id(&program, &mut wire, true).await.unwrap();
        wire.until("hi").await;
        let path = format!("/edgeward/requests/{id}");
        let page = ask(program.addr, "DELETE", &path, &[("Origin", "http://localhost")], "").await;
        assert_eq!(page.status, 403);
        let cancelled = ask(program.addr, "DELETE", &path, &[], "").await;
        assert_eq!(cancelled.status, 200, "{}", cancelled.text());
        tokio::time::timeout(PROMPT, server.idle()).await.expect("the target is free at once");
        wire.until("cancelled").await;
        assert!(!wire.rest().await.windows(6).any(|six| six == b"[DONE]"));
        assert_eq!(ask(program.addr, "DELETE", &path, &[], "").await.status, 404, "it is over");
        assert_eq!(program.metric(&outcome("cancelled")).await, 1.0);
        assert_eq!(program.status().await["targets"][0]["failed"], 0);
    });
}

#[test]
fn delete_by_id_works_before_the_commit_too() {
    run(LIMIT, async {
        // The heartbeat's early head gives the id away.
        for script in ["HANG 60000", "SSE\nC : keep\\n\\n\nHANG 60000"] {
            let server = SimServer::start(parse(script).unwrap()).await.unwrap();
            let config = format!("heartbeat = \"50ms\"\n{}", target("a", "openai", &server, ""));
            let program = Program::start(&config).await;
            let mut wire = Wire::connect(program.addr).await;
            wire.write(request("POST", CHAT, &[], &chat(true))).await;
            let id = the_id(&program, &mut wire, true).await.unwrap();
            wire.until(": waiting").await;
            let path = format!("/edgeward/requests/{id}");
            assert_eq!(ask(program.addr, "DELETE", &path, &[], "").await.status, 200);
            tokio::time::timeout(PROMPT, server.idle()).await.expect("the target is free at once");
            let rest = wire.rest().await;
            assert!(find(&rest, b"cancelled").is_some() && find(&rest, b"[DONE]").is_none());
            assert!(!rest.ends_with(b"0\r\n\r\n"), "{}", String::from_utf8_lossy(&rest));
            assert_eq!(program.metric(&outcome("cancelled")).await, 1.0);
        }
    });
}

#[test]
fn a_cancel_needs_the_requests_own_key_or_an_operators() {
    run(LIMIT, async {
        let (_, script) = phases().pop().unwrap();
        let server = SimServer::start(parse(&script).unwrap()).await.unwrap();
        let config =
            ["one", "two"].map(|name| format!("[[key]]\nname = \"{name}\"\nenv = \"{name}\"\n")).concat()
                + &target("a", "openai", &server, "");
        let env = [("one", "key-one-0123456789abcdef"), ("two", "key-two-0123456789abcdef")];
        let program = Program::start_in(crate::program::Folder::new(), &config, &env).await;
        let mut wire = Wire::connect(program.addr).await;
        wire.write(request("POST", CHAT, &[("X-Api-Key", env[0].1)], &chat(true))).await;
        let id = the_id(&program, &mut wire, true).await.unwrap();
        let path = format!("/edgeward/requests/{id}");
        for foreign in [("X-Api-Key", "wrong-key-0123456789"), ("X-Forwarded-For", "203.0.113.9")] {
            assert_eq!(ask(program.addr, "DELETE", &path, &[foreign], "").await.status, 401);
        }
        let other = [("X-Api-Key", env[1].1), ("X-Forwarded-For", "203.0.113.9")];
        assert_eq!(ask(program.addr, "DELETE", &path, &other, "").await.status, 404);
        // From the box itself, every key is an operator's; other peers are `Live`'s own tests.
        assert_eq!(ask(program.addr, "DELETE", &path, &[("X-Api-Key", env[1].1)], "").await.status, 200);
        tokio::time::timeout(PROMPT, server.idle()).await.unwrap();
        drop(wire);
    });
}

#[test]
fn a_client_that_reads_nothing_slows_its_target_and_is_cut_in_the_end() {
    run(LIMIT, async {
        let endless = parse(&format!("SSE\n{}REP 100000 PAD 4000\nEND", token("hi"))).unwrap();
        for by_id in [false, true] {
            let server = SimServer::start(endless.clone()).await.unwrap();
            let write_time = if by_id { "60s" } else { "1500ms" };
            // What is locked is resident, used or not: it would hide what this client costs.
            let config = format!(
                "lock_memory = false\n[limits]\nwrite_time = \"{write_time}\"\n{}",
                target("a", "openai", &server, "")
            );
            let program = Program::start(&config).await;
            let at_rest = program.memory();
            let socket = TcpSocket::new_v4().unwrap();
            socket.set_recv_buffer_size(4096).unwrap();
            let mut wire = Wire::over(socket.connect(program.addr).await.unwrap());
            wire.write(request("POST", CHAT, &[], &chat(true))).await;
            let id = the_id(&program, &mut wire, true).await.unwrap();
            if by_id {
                // It is held up: nothing of it moves any more.
                let cancelled =
                    ask(program.addr, "DELETE", &format!("/edgeward/requests/{id}"), &[], "").await;
                assert_eq!(cancelled.status, 200);
            }
            let within = Duration::from_secs(if by_id { 2 } else { 12 });
            let cut = tokio::time::timeout(within, server.idle()).await;
            assert!(cut.is_ok(), "by id: {by_id}, {:?}", server.counts());
            assert_eq!((server.counts().aborted, server.counts().completed), (1, 0));
            let grown = program.memory().saturating_sub(at_rest);
            assert!(grown < 8 << 20, "{grown} bytes more for a client that reads nothing");
            if !by_id {
                program.until_metric("edgeward_limit_hits_total{limit=\"write_time\"}", 1.0).await;
            }
            program.until_metric("edgeward_connections", 1.0).await;
            assert_eq!(program.status().await["targets"][0]["failed"], 0);
        }
    });
}

#[test]
fn sigterm_lets_streams_finish_in_the_time_that_they_have() {
    run(LIMIT, async {
        let model = healthy("a").paced(8, Duration::ZERO, Duration::from_millis(60));
        let server = SimServer::start(model.clone()).await.unwrap();
        let program = Program::start(&target("a", "openai", &server, "")).await;
        let mut idle = Wire::connect(program.addr).await;
        idle.write(request("GET", "/edgeward/health", &[], "")).await;
        assert_eq!(idle.answer().await.status, 200);
        // As browsers do, in case they need it.
        let mut unused = Wire::connect(program.addr).await;
        program.until_metric("edgeward_connections", 3.0).await;
        let mut wire = Wire::connect(program.addr).await;
        wire.write(request("POST", CHAT, &[], &chat(true))).await;
        let head = wire.head().await.unwrap();
        assert_eq!(head.status, 200);
        wire.until("[a]").await;
        program.terminate();
        assert!(idle.ends().await && unused.ends().await, "idle connections are closed");
        let refused = tokio::net::TcpStream::connect(program.addr).await;
        assert!(refused.is_err(), "no new connections");
        let rest = wire.rest().await;
        assert!(find(&rest, b"[DONE]").is_some() && rest.ends_with(b"0\r\n\r\n"));
        assert_eq!(program.exit_code().await, Some(0));
    });
}

#[test]
fn a_connection_that_was_accepted_before_the_end_is_served_its_request() {
    run(LIMIT, async {
        let server = SimServer::start(healthy("a")).await.unwrap();
        let program = Program::start(&target("a", "openai", &server, "")).await;
        let mut fresh = Wire::connect(program.addr).await;
        program.until_metric("edgeward_connections", 2.0).await;
        program.terminate();
        // From here on it is stopping.
        while tokio::net::TcpStream::connect(program.addr).await.is_ok() {}
        fresh.write(request("POST", CHAT, &[], &chat(true))).await;
        let answer = fresh.answer().await;
        assert_eq!((answer.status, answer.clean), (200, true), "{}", answer.text());
        assert_eq!(answer.header("connection"), Some("close"));
        assert_eq!(program.exit_code().await, Some(0));
    });
}

#[test]
fn what_outlives_the_drain_ends_honestly() {
    run(LIMIT, async {
        for (phase, script) in phases() {
            let server = SimServer::start(parse(&script).unwrap()).await.unwrap();
            let config = format!("[limits]\ndrain = \"200ms\"\n{}", target("a", "openai", &server, ""));
            let program = Program::start(&config).await;
            let mut wire = Wire::connect(program.addr).await;
            wire.write(request("POST", CHAT, &[], &chat(true))).await;
            server.requested(1).await;
            if phase == "relaying" {
                wire.until("hi").await;
            }
            program.terminate();
            if phase == "relaying" {
                wire.until("draining").await;
                assert!(!wire.rest().await.ends_with(b"0\r\n\r\n"));
            } else {
                let answer = wire.answer().await;
                assert_eq!((answer.status, answer.clean), (503, true), "{phase}: {}", answer.text());
                assert!(answer.header("retry-after").is_some());
            }
            tokio::time::timeout(PROMPT, server.idle()).await.unwrap();
            assert_eq!(program.exit_code().await, Some(0), "{phase}");
        }
    });
}

#[test]
fn a_hangup_while_connecting_leaves_no_attempt() {
    run(LIMIT, async {
        // A listener whose queue is full: connecting to it hangs.
        let full = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        full.bind(&std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        full.listen(0).unwrap();
        let addr = full.local_addr().unwrap().as_socket().unwrap();
        let _fill: Vec<_> = (0..4)
            .map(|_| {
                let socket =
                    socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
                socket.set_nonblocking(true).unwrap();
                let _pending = socket.connect(&addr.into());
                socket
            })
            .collect();
        let config = format!("deadlines = {{ connect = \"30s\" }}\n{}", "")
            + &target_at("a", "openai", &format!("http://{addr}"), "");
        let program = Program::start(&config).await;
        let mut wire = Wire::connect(program.addr).await;
        wire.write(request("POST", CHAT, &[], &chat(true))).await;
        let in_flight = async || -> Value { program.status().await["targets"][0]["in_flight"].clone() };
        while in_flight().await != 1 {}
        drop(wire);
        let gone = async { while in_flight().await != 0 {} };
        tokio::time::timeout(SOON, gone).await.unwrap();
        program.until_metric(&outcome("client_gone"), 1.0).await;
        assert_eq!(program.status().await["targets"][0]["failed"], 0);
    });
}

#[test]
fn a_body_still_on_its_way_at_the_drains_end_is_answered() {
    run(LIMIT, async {
        let server = SimServer::start(healthy("a")).await.unwrap();
        let config = format!("[limits]\ndrain = \"200ms\"\n{}", target("a", "openai", &server, ""));
        let program = Program::start(&config).await;
        let mut wire = Wire::connect(program.addr).await;
        let whole = request("POST", CHAT, &[], &chat(true));
        wire.write(&whole[..whole.len() - 5]).await;
        while program.status().await["requests"] != 1 {}
        program.terminate();
        let answer = wire.answer().await;
        assert_eq!(answer.status, 503, "{}", answer.text());
        assert!(answer.text().contains("stopping"), "{}", answer.text());
        assert_eq!(program.exit_code().await, Some(0));
        assert_eq!(server.counts().requests, 0);
    });
}
