//! Health through the built program: breakers and probes, as clients and operators see them.

use edgeward::sim::model::healthy;
use edgeward::sim::script::parse;
use edgeward::sim::server::SimServer;

use crate::LIMIT;
use crate::program::{CHAT, Program, Wire, ask, chat, request, run, target, token};

const BROKEN: &str = "REPLY 500 application/json|{\"error\":{\"message\":\"it broke\"}}";

#[test]
fn a_target_that_fails_repeatedly_rests_and_shows_its_recovery_with_one_request() {
    run(LIMIT, async {
        let a = SimServer::start(parse(BROKEN).unwrap()).await.unwrap();
        let b = SimServer::start(healthy("b")).await.unwrap();
        let config = format!(
            "[breaker]\nconsecutive = 3\ncooldown = \"1s\"\n{}{}",
            target("a", "openai", &a, ""),
            target("b", "openai", &b, "")
        );
        let program = Program::start(&config).await;
        for _ in 0..3 {
            let answer = ask(program.addr, "POST", CHAT, &[], &chat(true)).await;
            assert_eq!(answer.header("x-edgeward-attempts"), Some("a:http_5xx,b:committed"));
        }
        program.logged(&["breaker_opened", "target=a", "model=m", "cause=http_5xx"]).await;
        let answer = ask(program.addr, "POST", CHAT, &[], &chat(true)).await;
        assert_eq!(answer.header("x-edgeward-attempts"), Some("b:committed"));
        assert_eq!(a.counts().requests, 3, "it is left alone");
        a.set(healthy("a"));
        // Asked until its rest is over: then one request goes there, and it is back.
        while a.counts().requests == 3 {
            assert_eq!(ask(program.addr, "POST", CHAT, &[], &chat(true)).await.status, 200);
        }
        program.logged(&["breaker_closed", "target=a"]).await;
    });
}

#[test]
fn a_trial_that_streams_for_long_keeps_nobody_from_the_only_target() {
    run(LIMIT, async {
        let server = SimServer::start(parse(BROKEN).unwrap()).await.unwrap();
        let config =
            format!("[breaker]\nconsecutive = 1\ncooldown = \"1s\"\n{}", target("a", "openai", &server, ""));
        let program = Program::start(&config).await;
        assert_eq!(ask(program.addr, "POST", CHAT, &[], &chat(true)).await.status, 502);
        server.set(parse(&format!("SSE\n{}HANG 60000", token("held"))).unwrap());
        while program.status().await["targets"][0]["models"][0]["breaker"] != "half_open" {
            tokio::task::yield_now().await;
        }
        let mut trial = Wire::connect(program.addr).await;
        trial.write(request("POST", CHAT, &[], &chat(true))).await;
        trial.until("held").await;
        server.set(healthy("a"));
        let answer = ask(program.addr, "POST", CHAT, &[], &chat(true)).await;
        assert_eq!((answer.status, answer.clean), (200, true), "{}", answer.text());
        program.logged(&["breaker_closed", "target=a"]).await;
    });
}

#[test]
fn the_time_of_a_whole_answer_is_not_that_of_a_first_token() {
    run(LIMIT, async {
        for (terms, stream, known) in
            [("collect = false", false, false), ("collect = false", true, true), ("", false, true)]
        {
            let server = SimServer::start(healthy("a")).await.unwrap();
            let program = Program::start(&target("a", "openai", &server, terms)).await;
            assert_eq!(ask(program.addr, "POST", CHAT, &[], &chat(stream)).await.status, 200);
            let status = program.status().await;
            let model = &status["targets"][0]["models"][0];
            assert_eq!(model["first_token_p95_ms"].is_u64(), known, "{model}");
            let counted = program.metric("edgeward_time_to_first_token_seconds_count{target=\"a\"}").await;
            assert_eq!(counted, f64::from(u8::from(known)));
        }
    });
}

#[test]
fn what_clients_do_opens_no_breaker() {
    run(LIMIT, async {
        let refuses = "REPLY 400 application/json|{\"error\":{\"message\":\"no\"}}";
        let a = SimServer::start(parse(refuses).unwrap()).await.unwrap();
        let program =
            Program::start(&format!("[breaker]\nconsecutive = 1\n{}", target("a", "openai", &a, ""))).await;
        for _ in 0..3 {
            assert_eq!(ask(program.addr, "POST", CHAT, &[], &chat(true)).await.status, 400);
        }
        for script in ["HANG 60000", "SSE\nC : keep\\n\\n\nHANG 60000"] {
            a.set(parse(script).unwrap());
            let before = a.counts();
            let mut wire = Wire::connect(program.addr).await;
            wire.write(request("POST", CHAT, &[], &chat(true))).await;
            a.requested(before.requests + 1).await;
            drop(wire);
            a.aborted(before.aborted + 1).await;
        }
        program.until_metric("edgeward_requests_total{outcome=\"client_gone\"}", 2.0).await;
        a.set(healthy("a"));
        assert_eq!(ask(program.addr, "POST", CHAT, &[], &chat(true)).await.status, 200);
        assert!(!program.log().contains("breaker_opened"), "{}", program.log());
    });
}

#[test]
fn a_probe_marks_down_fast_and_helps_up() {
    run(LIMIT, async {
        let a = SimServer::start(parse(BROKEN).unwrap()).await.unwrap();
        let b = SimServer::start(healthy("b")).await.unwrap();
        let config = format!(
            "[probe]\nevery = \"1s\"\ntimeout = \"1s\"\ndown_after = 1\n{}{}",
            target("a", "vllm", &a, ""),
            target("b", "openai", &b, "probe = false")
        );
        let program = Program::start(&config).await;
        program.logged(&["probe_down", "target=a", "cause=http_5xx"]).await;
        let answer = ask(program.addr, "POST", CHAT, &[], &chat(true)).await;
        assert_eq!(answer.header("x-edgeward-attempts"), Some("b:committed"));
        a.set(edgeward::sim::server::Behaviour::by({
            let good = healthy("a");
            move |request| match request.path.as_str() {
                "/health" => parse("REPLY 200 text/plain|").unwrap(),
                _ => good.answer(request),
            }
        }));
        program.logged(&["probe_up", "target=a"]).await;
        let answer = ask(program.addr, "POST", CHAT, &[], &chat(true)).await;
        assert_eq!(answer.header("x-edgeward-attempts"), Some("a:committed"));
    });
}
