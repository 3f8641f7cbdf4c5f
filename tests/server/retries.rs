//! The same target again: after what, how often, and what ends the wait.

use edgeward::sim::model::healthy;
use edgeward::sim::script::{Op, Script, parse};
use edgeward::sim::server::{Behaviour, SimServer};

use crate::LIMIT;
use crate::program::{CHAT, Program, Wire, ask, chat, request, run, target};

const BROKEN: &str = "REPLY 500 application/json|{\"error\":{\"message\":\"it broke\"}}";

/// Fails the first `failures` requests by this script, then is healthy.
fn fails(failures: usize, script: &str) -> Behaviour {
    let (bad, good) = (parse(script).unwrap(), healthy("a"));
    let asked = std::cell::Cell::new(0);
    Behaviour::by(move |request| {
        asked.set(asked.get() + 1);
        if asked.get() <= failures { bad.clone() } else { good.answer(request) }
    })
}

/// A reply that names a pause.
fn limited(seconds: u32) -> Script {
    let Op::Reply(mut head, body) = parse(&BROKEN.replace("500", "429")).unwrap().ops.remove(0) else {
        panic!("a reply")
    };
    head.headers.push(("Retry-After".to_owned(), seconds.to_string()));
    vec![Op::Reply(head, body)].into()
}

#[test]
fn a_retry_mends_what_passes_and_sends_the_same_request() {
    run(LIMIT, async {
        let server = SimServer::start(fails(2, BROKEN)).await.unwrap();
        let program = Program::start(&target("a", "openai", &server, "max_retries = 2")).await;
        for (n, stream) in [true, false].into_iter().enumerate() {
            let key = format!("once-{n}");
            let before = edgeward::time::now();
            let answer = ask(program.addr, "POST", CHAT, &[("Idempotency-Key", &key)], &chat(stream)).await;
            assert_eq!((answer.status, answer.clean), (200, true), "{}", answer.text());
            let attempts = if n == 0 { "a:http_5xx,a:http_5xx,a:committed" } else { "a:committed" };
            assert_eq!(answer.header("x-edgeward-attempts"), Some(attempts));
            if n == 0 {
                assert!(before.elapsed().as_millis() >= 600, "200 and 400 ms between them");
            }
        }
        let requests = server.requests();
        assert_eq!(requests.len(), 4);
        for (at, sent) in requests.iter().enumerate() {
            let first = if at < 3 { 0 } else { 3 };
            assert_eq!(sent.header("idempotency-key"), Some(format!("once-{}", first / 3).as_str()));
            assert_eq!(sent.body, requests[first].body);
        }
    });
}

#[test]
fn others_come_first_or_the_same_where_the_configuration_says_so() {
    run(LIMIT, async {
        for (first, attempts) in
            [("failover", "a:http_5xx,b:http_5xx,a:committed"), ("retry", "a:http_5xx,a:committed")]
        {
            let a = SimServer::start(fails(1, BROKEN)).await.unwrap();
            let b = SimServer::start(fails(1, BROKEN)).await.unwrap();
            let config = format!(
                "[retry]\nfirst = \"{first}\"\n{}{}",
                target("a", "openai", &a, "max_retries = 1"),
                target("b", "openai", &b, "")
            );
            let program = Program::start(&config).await;
            let answer = ask(program.addr, "POST", CHAT, &[], &chat(true)).await;
            assert_eq!(answer.header("x-edgeward-attempts"), Some(attempts));
            assert_eq!((answer.status, answer.clean), (200, true));
        }
    });
}

#[test]
fn a_refused_connection_is_tried_again_and_told_as_often() {
    run(LIMIT, async {
        let port = edgeward::sim::server::refused_port().unwrap();
        let url = format!("http://{}", port.addr());
        let config = crate::program::target_at("a", "openai", &url, "max_retries = 1");
        let program = Program::start(&config).await;
        let answer = ask(program.addr, "POST", CHAT, &[], &chat(true)).await;
        assert_eq!(answer.status, 502, "{}", answer.text());
        assert_eq!(answer.header("x-edgeward-attempts"), Some("a:refused,a:refused"));
        assert_eq!(program.metric("edgeward_attempts_total{target=\"a\",result=\"refused\"}").await, 2.0);
    });
}

#[test]
fn a_mistake_of_the_client_is_not_sent_twice() {
    run(LIMIT, async {
        let script = "REPLY 400 application/json|{\"error\":{\"message\":\"no\"}}";
        let server = SimServer::start(parse(script).unwrap()).await.unwrap();
        let program = Program::start(&target("a", "openai", &server, "max_retries = 2")).await;
        let answer = ask(program.addr, "POST", CHAT, &[], &chat(true)).await;
        assert_eq!((answer.status, server.counts().requests), (400, 1));
    });
}

#[test]
fn a_long_pause_is_left_to_the_client() {
    run(LIMIT, async {
        let server = SimServer::start(limited(60)).await.unwrap();
        let program = Program::start(&target("a", "openai", &server, "max_retries = 2")).await;
        let answer = ask(program.addr, "POST", CHAT, &[], &chat(true)).await;
        assert_eq!((answer.status, server.counts().requests), (503, 1));
        let pause: u64 = answer.header("retry-after").unwrap().parse().unwrap();
        assert!((50..=60).contains(&pause), "{pause}");
    });
}

#[test]
fn a_pause_beats_and_ends_with_a_cancel_or_the_clients_hangup() {
    run(LIMIT, async {
        for hangup in [false, true] {
            let server = SimServer::start(limited(5)).await.unwrap();
            let config =
                format!("heartbeat = \"50ms\"\n{}", target("a", "openai", &server, "max_retries = 2"));
            let program = Program::start(&config).await;
            let mut wire = Wire::connect(program.addr).await;
            wire.write(request("POST", CHAT, &[], &chat(true))).await;
            server.requested(1).await;
            let head = wire.peek_head().await;
            wire.until(": waiting").await;
            server.idle().await;
            let outcome = if hangup {
                drop(wire);
                "client_gone"
            } else {
                let path = format!("/edgeward/requests/{}", head.header("x-edgeward-request-id").unwrap());
                assert_eq!(ask(program.addr, "DELETE", &path, &[], "").await.status, 200);
                let answer = wire.answer().await;
                assert!(!answer.clean && answer.text().contains("cancelled"), "{}", answer.text());
                "cancelled"
            };
            program.until_metric(&format!("edgeward_requests_total{{outcome=\"{outcome}\"}}"), 1.0).await;
            assert_eq!(server.counts().requests, 1);
        }
    });
}
