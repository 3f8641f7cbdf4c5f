//! Places at targets with `max_concurrent`: passed over while others can serve, waited for in turn, shed beyond that.

use edgeward::sim::model::healthy;
use edgeward::sim::script::parse;
use edgeward::sim::server::{Behaviour, SimServer};

use crate::LIMIT;
use crate::program::{CHAT, Program, Wire, ask, chat, request, run, target, token};

/// Holds a stream open after its first token, for models that say so; else is healthy.
fn holds() -> Behaviour {
    let good = healthy("a");
    Behaviour::by(move |request| {
        if String::from_utf8_lossy(&request.body).contains("hold") {
            parse(&format!("SSE\n{}HANG 60000", token("held"))).unwrap()
        } else {
            good.answer(request)
        }
    })
}

fn hold() -> String {
    chat(true).replace("hi", "hold")
}

/// A stream that has its place until it is dropped.
async fn held(program: &Program) -> Wire {
    let mut wire = Wire::connect(program.addr).await;
    wire.write(request("POST", CHAT, &[], &hold())).await;
    wire.until("held").await;
    wire
}

#[test]
fn a_busy_target_is_passed_over_while_another_can_serve() {
    run(LIMIT, async {
        let (a, b) =
            (SimServer::start(holds()).await.unwrap(), SimServer::start(healthy("b")).await.unwrap());
        let config = target("a", "openai", &a, "max_concurrent = 1") + &target("b", "openai", &b, "");
        let program = Program::start(&config).await;
        let wire = held(&program).await;
        let answer = ask(program.addr, "POST", CHAT, &[], &chat(true)).await;
        assert_eq!((answer.status, answer.header("x-edgeward-target")), (200, Some("b")));
        assert_eq!(answer.header("x-edgeward-attempts"), Some("b:committed"), "it costs no attempt");
        drop(wire);
        a.aborted(1).await;
        program.until_metric("edgeward_requests_total{outcome=\"client_gone\"}", 1.0).await;
        let answer = ask(program.addr, "POST", CHAT, &[], &chat(true)).await;
        assert_eq!(answer.header("x-edgeward-target"), Some("a"), "its place is free again");
    });
}

#[test]
fn what_needs_no_place_takes_none() {
    run(LIMIT, async {
        let good = healthy("a");
        let a = SimServer::start(Behaviour::by(move |request| match request.path.as_str() {
            "/api/show" => parse("HANG 60000").unwrap(),
            _ => good.answer(request),
        }));
        let (a, b) = (a.await.unwrap(), SimServer::start(healthy("b")).await.unwrap());
        let config = target("a", "ollama", &a, "max_concurrent = 1") + &target("b", "openai", &b, "");
        let program = Program::start(&config).await;
        let mut wire = Wire::connect(program.addr).await;
        wire.write(request("POST", "/api/show", &[], r#"{"model":"m"}"#)).await;
        a.requested(1).await;
        let answer = ask(program.addr, "POST", CHAT, &[], &chat(true)).await;
        assert_eq!(answer.header("x-edgeward-attempts"), Some("a:committed"));
    });
}

#[test]
fn a_request_waits_for_its_turn_and_is_served_then() {
    run(LIMIT, async {
        let server = SimServer::start(holds()).await.unwrap();
        let config =
            format!("[queue]\ntime = \"20s\"\n{}", target("a", "openai", &server, "max_concurrent = 1"));
        let program = Program::start(&config).await;
        let wire = held(&program).await;
        let mut waiting = Wire::connect(program.addr).await;
        waiting.write(request("POST", CHAT, &[], &chat(true))).await;
        // One that waits and goes away leaves the queue.
        let mut gone = Wire::connect(program.addr).await;
        gone.write(request("POST", CHAT, &[], &chat(true))).await;
        while program.status().await["requests"] != 3 {
            tokio::task::yield_now().await;
        }
        drop(gone);
        while program.status().await["requests"] != 2 {
            tokio::task::yield_now().await;
        }
        assert_eq!(server.counts().requests, 1);
        drop(wire);
        let answer = waiting.answer().await;
        assert_eq!((answer.status, answer.clean), (200, true), "{}", answer.text());
        assert_eq!(server.counts().requests, 2);
        // Nobody holds a place any more.
        assert_eq!(ask(program.addr, "POST", CHAT, &[], &chat(true)).await.status, 200);
    });
}

#[test]
fn who_fails_over_to_a_busy_target_waits_there_too() {
    run(LIMIT, async {
        let broken = "REPLY 500 application/json|{}";
        let (a, b) = (
            SimServer::start(parse(&format!("WAIT 300\n{broken}")).unwrap()).await.unwrap(),
            SimServer::start(healthy("b")).await.unwrap(),
        );
        let config = format!(
            "[queue]\ntime = \"20s\"\n{}{}",
            target("a", "openai", &a, ""),
            target("b", "openai", &b, "max_concurrent = 1")
        );
        let program = Program::start(&config).await;
        let mut wires = Vec::new();
        for stream in [true, false, true, false] {
            let mut wire = Wire::connect(program.addr).await;
            wire.write(request("POST", CHAT, &[], &chat(stream))).await;
            wires.push(wire);
        }
        for mut wire in wires {
            let answer = wire.answer().await;
            assert_eq!((answer.status, answer.clean), (200, true), "{}", answer.text());
            assert_eq!(answer.header("x-edgeward-attempts"), Some("a:http_5xx,b:committed"));
        }
        let status = program.status().await;
        assert_eq!(
            (&status["targets"][1]["in_flight"], &status["targets"][1]["waiting"]),
            (&0.into(), &0.into())
        );
    });
}

#[test]
fn who_gets_no_place_in_time_is_told_when_to_come_again() {
    run(LIMIT, async {
        for (queue, waits) in [
            ("[queue]\nlength = 0\n", false),
            ("[queue]\ntime = \"0s\"\n", false),
            ("[queue]\ntime = \"100ms\"\n[elsewhere]\nafter = \"0s\"\n", true),
            // No shorter than one that may leave.
            ("[queue]\ntime = \"1ms\"\n[elsewhere]\nafter = \"100ms\"\n", true),
        ] {
            let server = SimServer::start(holds()).await.unwrap();
            let config = queue.to_owned() + &target("a", "openai", &server, "max_concurrent = 1");
            let program = Program::start(&config).await;
            let _wire = held(&program).await;
            let before = edgeward::time::now();
            let answer = ask(program.addr, "POST", CHAT, &[], &chat(true)).await;
            assert_eq!(answer.status, 503, "{}", answer.text());
            assert!(answer.text().contains("max_concurrent") && answer.header("retry-after").is_some());
            assert_eq!(before.elapsed().as_millis() >= 100, waits);
            assert_eq!(program.metric("edgeward_limit_hits_total{limit=\"queue\"}").await, 1.0);
            assert_eq!(server.counts().requests, 1);
        }
    });
}
