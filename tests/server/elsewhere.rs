//! A healthy box keeps its work: who is busy, or loads a model, is waited for before another target gets the request.

use std::time::Duration;

use edgeward::sim::model::healthy;
use edgeward::sim::script::{Script, parse};
use edgeward::sim::server::{Behaviour, SimServer};
use serde_json::{Value, json};

use crate::LIMIT;
use crate::admission::{Ollama, group, looked, remembered, warm_ups};
use crate::program::{Answer, CHAT, Program, SOON, Wire, ask, chat, request, run, target, token};

const OLLAMA: &str = "/api/chat";
/// How long an answer goes on that somebody else waits for.
const HOLDS: Duration = Duration::from_millis(1500);

/// A llama.cpp with one slot, whose answers take a while where the prompt says so.
async fn one_slot() -> SimServer {
    let good = healthy("a");
    let end = "D {\"id\":\"c1\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\nD [DONE]\nEND";
    let slow = format!("SSE\n{}WAIT {}\n{end}", token("held"), HOLDS.as_millis());
    let behaviour = Behaviour::by(move |request| {
        let json = |text: &str| Script::reply(200, "application/json", text);
        match request.path.as_str() {
            "/props" => json(r#"{"total_slots":1,"default_generation_settings":{"n_ctx":4096}}"#),
            "/slots" => json(r#"[{"id":0,"n_ctx":4096,"is_processing":false}]"#),
            _ if String::from_utf8_lossy(&request.body).contains("hold") => parse(&slow).unwrap(),
            _ if String::from_utf8_lossy(&request.body).contains("late") => {
                good.clone().paced(8, HOLDS / 2, Duration::ZERO).answer(request)
            }
            _ => good.answer(request),
        }
    });
    SimServer::start(behaviour).await.unwrap()
}

fn cloud(kind: &str, server: &SimServer) -> String {
    target("cloud", kind, server, "models = { \"*\" = \"m\" }")
        .replace("place = \"local\"", "place = \"cloud\"")
}

fn after(after: &str) -> String {
    format!("[elsewhere]\nafter = {after}\n")
}

/// Requests for answers, of edgeward's clients.
fn answers(server: &SimServer) -> usize {
    server.requests().iter().filter(|request| request.path == CHAT).count()
}

/// An answer under way, with its first token.
async fn held(program: &Program) -> Wire {
    let mut wire = Wire::connect(program.addr).await;
    wire.write(request("POST", CHAT, &[], &chat(true).replace("hi", "hold"))).await;
    wire.until("held").await;
    wire
}

async fn asks(program: &Program, headers: &[(&str, &str)], body: &str) -> Answer {
    let answer = ask(program.addr, "POST", CHAT, headers, body).await;
    assert_eq!((answer.status, answer.clean), (200, true), "{}\n{}", answer.text(), program.log());
    answer
}

/// Nothing was held against the box.
async fn no_failure(program: &Program) {
    let status = program.status().await;
    assert_eq!(status.pointer("/targets/0/failed"), Some(&json!(0)), "{status}");
    let metrics = program.metrics().await;
    let failed = |series: &&String| {
        series.contains("edgeward_attempts_total") && !series.contains("result=\"committed\"")
    };
    let failed: Vec<_> = metrics.keys().filter(failed).filter(|series| series.contains("\"box\"")).collect();
    assert!(failed.is_empty(), "{failed:?}");
    assert!(!program.log().contains("attempt_failed"), "{}", program.log());
}

#[test]
fn the_second_of_two_people_is_answered_by_the_box() {
    run(LIMIT, async {
        // By its places, and by its own slots.
        for by_places in [true, false] {
            let (box_, sky) = (one_slot().await, SimServer::start(healthy("b")).await.unwrap());
            let group = group();
            let program = if by_places {
                let config = target("box", "llamacpp", &box_, "max_concurrent = 1") + &cloud("openai", &sky);
                Program::start(&config).await
            } else {
                let config =
                    target("box", "llamacpp", &box_, "") + &cloud("openai", &sky) + &remembered(&group, "");
                looked(&config).await
            };
            let mut first = held(&program).await;
            let start = edgeward::time::now();
            for stream in [true, false] {
                let answer = asks(&program, &[], &chat(stream)).await;
                assert_eq!(answer.header("x-edgeward-attempts"), Some("box:committed"), "{}", program.log());
            }
            assert!(start.elapsed() >= HOLDS / 2, "{:?}", start.elapsed());
            assert!(first.answer().await.clean);
            assert_eq!((answers(&box_), sky.counts().requests), (3, 0));
            no_failure(&program).await;
        }
    });
}

#[test]
fn who_does_not_wait_leaves_at_once_and_says_why() {
    run(LIMIT, async {
        for by_places in [true, false] {
            let (box_, sky) = (one_slot().await, SimServer::start(healthy("b")).await.unwrap());
            let group = group();
            let program = if by_places {
                let config = target("box", "llamacpp", &box_, "max_concurrent = 1") + &cloud("openai", &sky);
                Program::start(&(config + &after("\"0s\""))).await
            } else {
                let config = target("box", "llamacpp", &box_, "") + &cloud("openai", &sky);
                looked(&(config + &remembered(&group, "") + &after("{ cloud = \"0s\" }"))).await
            };
            let session = [("x-edgeward-session", "s1")];
            let first = held(&program).await;
            let answer = asks(&program, &session, &chat(true)).await;
            assert_eq!(answer.header("x-edgeward-attempts"), Some("box:busy,cloud:committed"));
            program.logged(&["request_shed", "target=box", "busy"]).await;
            program.logged(&["request_done", "attempts=box:busy,cloud:committed"]).await;
            assert_eq!(program.metric("edgeward_shed_requests_total{reason=\"busy\"}").await, 1.0);
            no_failure(&program).await;
            // The conversation is at home: its next turn goes there.
            drop(first);
            box_.aborted(1).await;
            program.until_metric("edgeward_requests_total{outcome=\"client_gone\"}", 1.0).await;
            let answer = asks(&program, &session, &chat(true)).await;
            assert_eq!(answer.header("x-edgeward-attempts"), Some("box:committed"), "{}", program.log());
        }
    });
}

#[test]
fn who_never_leaves_waits_until_its_time_is_up() {
    run(LIMIT, async {
        let (box_, sky) = (one_slot().await, SimServer::start(healthy("b")).await.unwrap());
        let config =
            target("box", "llamacpp", &box_, "max_concurrent = 1\ndeadlines = { total = \"300ms\" }")
                + &cloud("openai", &sky)
                + &after("\"never\"");
        let program = Program::start(&config).await;
        let mut first = held(&program).await;
        let answer = ask(program.addr, "POST", CHAT, &[], &chat(true)).await;
        assert_eq!((answer.status, answer.header("x-edgeward-attempts")), (504, Some("box:busy")));
        assert!(answer.text().contains("busy"), "{}", answer.text());
        assert!(first.answer().await.clean, "nothing happens to who was there");
        assert_eq!((answers(&box_), sky.counts().requests), (1, 0));
        no_failure(&program).await;
    });
}

#[test]
fn what_is_known_to_take_longer_is_not_waited_for() {
    run(LIMIT, async {
        let (box_, sky) = (one_slot().await, SimServer::start(healthy("b")).await.unwrap());
        let group = group();
        let config = target("box", "llamacpp", &box_, "")
            + &cloud("openai", &sky)
            + &remembered(&group, "")
            + &after("\"1s\"");
        let program = looked(&config).await;
        // It learns how long answers are here.
        assert!(held(&program).await.answer().await.clean);
        let _first = held(&program).await;
        let start = edgeward::time::now();
        let answer = asks(&program, &[], &chat(true)).await;
        assert_eq!(
            answer.header("x-edgeward-attempts"),
            Some("box:busy,cloud:committed"),
            "{}",
            program.log()
        );
        assert!(start.elapsed() < Duration::from_millis(900), "{:?}", start.elapsed());
        no_failure(&program).await;
    });
}

#[test]
fn a_prompt_that_stays_waits_at_the_server_and_who_goes_away_leaves_the_queue() {
    run(LIMIT, async {
        let (box_, sky) = (one_slot().await, SimServer::start(healthy("b")).await.unwrap());
        let group = group();
        let config = target("box", "llamacpp", &box_, "") + &cloud("openai", &sky) + &remembered(&group, "");
        let program = looked(&config).await;
        let _first = held(&program).await;
        let mut gone = Wire::connect(program.addr).await;
        gone.write(request("POST", CHAT, &[], &chat(true))).await;
        let waits =
            async { while program.status().await.pointer("/targets/0/local/waiting") != Some(&json!(1)) {} };
        tokio::time::timeout(SOON, waits).await.expect("it waits");
        drop(gone);
        program.until_metric("edgeward_requests_total{outcome=\"client_gone\"}", 1.0).await;
        let status = program.status().await;
        assert_eq!(status.pointer("/targets/0/local/waiting"), Some(&json!(0)), "{status}");
        let near = [("x-edgeward-local-only", "true")];
        let answer = asks(&program, &near, &chat(true)).await;
        assert_eq!(answer.header("x-edgeward-attempts"), Some("box:committed"));
        assert_eq!((answers(&box_), sky.counts().requests), (2, 0));
    });
}

#[test]
fn behind_others_no_first_token_is_late() {
    run(LIMIT, async {
        let (box_, group) = (one_slot().await, group());
        let config = target("box", "llamacpp", &box_, "deadlines = { first_token = \"200ms\" }");
        let program = looked(&(config + &remembered(&group, ""))).await;
        let _first = held(&program).await;
        let answer = asks(&program, &[], &chat(true).replace("hi", "late")).await;
        assert_eq!(answer.header("x-edgeward-attempts"), Some("box:committed"), "{}", program.log());
        no_failure(&program).await;
    });
}

/// What a cold Ollama and a cloud say to `body`.
async fn cold(load: &str, more: &str) -> (Program, SimServer, SimServer, Ollama) {
    let here = Ollama::default();
    here.0.borrow_mut().load = load.to_owned();
    let (box_, sky) = (here.start("a").await, SimServer::start(healthy("b")).await.unwrap());
    let config = target("box", "ollama", &box_, "") + &cloud("openai", &sky) + more;
    (looked(&config).await, box_, sky, here)
}

fn simple() -> Value {
    json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]})
}

async fn answered(program: &Program) -> String {
    let answer = ask(program.addr, "POST", OLLAMA, &[], &simple().to_string()).await;
    assert_eq!((answer.status, answer.clean), (200, true), "{}\n{}", answer.text(), program.log());
    answer.header("x-edgeward-attempts").unwrap().to_owned()
}

#[test]
fn a_model_that_loads_in_time_is_waited_for() {
    run(LIMIT, async {
        let group = group();
        let load = "WAIT 500\nREPLY 200 application/json | {}";
        let (program, box_, sky, _) = cold(load, &remembered(&group, "")).await;
        let (one, other) = tokio::join!(answered(&program), answered(&program));
        assert_eq!([one, other], ["box:committed", "box:committed"], "{}", program.log());
        assert_eq!((warm_ups(&box_).len(), sky.counts().requests), (1, 0));
        no_failure(&program).await;
    });
}

#[test]
fn a_model_that_takes_longer_is_loaded_while_the_cloud_answers() {
    run(LIMIT, async {
        let group = group();
        let load = "WAIT 1200\nREPLY 200 application/json | {}";
        let more = remembered(&group, "") + &after("\"400ms\"");
        let (program, box_, _sky, here) = cold(load, &more).await;
        let start = edgeward::time::now();
        assert_eq!(answered(&program).await, "box:not_loaded,cloud:committed", "{}", program.log());
        assert!(start.elapsed() >= Duration::from_millis(400), "{:?}", start.elapsed());
        program.logged(&["request_shed", "target=box"]).await;
        program.logged(&["model_loaded", "target=box", "model=m"]).await;
        assert_eq!(answered(&program).await, "box:committed", "{}", program.log());
        // It is known now how long that takes: the next one leaves at once, and has it loaded.
        here.0.borrow_mut().resident.clear();
        let gone = async {
            while program.status().await.pointer("/targets/0/local/resident") != Some(&json!([])) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(LIMIT, gone).await.expect("it is seen to be gone");
        let start = edgeward::time::now();
        assert_eq!(answered(&program).await, "box:not_loaded,cloud:committed", "{}", program.log());
        assert!(start.elapsed() < Duration::from_millis(400), "{:?}", start.elapsed());
        let loaded = async {
            while warm_ups(&box_).len() < 2 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(SOON, loaded).await.expect("it is loaded again");
        assert_eq!(box_.counts().aborted, 0);
        no_failure(&program).await;
    });
}

#[test]
fn without_warm_ups_the_request_itself_loads_its_model() {
    run(LIMIT, async {
        let group = group();
        let more = remembered(&group, "warm_up = false") + &after("\"1s\"");
        let (program, box_, sky, here) = cold("REFUSE", &more).await;
        here.0.borrow_mut().cold = 300;
        assert_eq!(answered(&program).await, "box:committed", "{}", program.log());
        program.logged(&["model_loaded", "target=box", "model=m"]).await;
        assert_eq!((warm_ups(&box_).len(), sky.counts().requests), (0, 0));
        no_failure(&program).await;
    });
}

#[test]
fn a_load_that_its_request_leaves_is_given_up_and_that_is_said() {
    run(LIMIT, async {
        let group = group();
        let more = remembered(&group, "warm_up = false") + &after("\"300ms\"");
        let (program, box_, sky, here) = cold("REFUSE", &more).await;
        here.0.borrow_mut().cold = 60_000;
        assert_eq!(answered(&program).await, "box:not_loaded,cloud:committed", "{}", program.log());
        box_.aborted(1).await;
        program.logged(&["request_shed", "target=box", "warm_up = false", "nothing does"]).await;
        assert_eq!((warm_ups(&box_).len(), sky.counts().requests), (0, 1));
        no_failure(&program).await;
    });
}

#[test]
fn where_no_other_target_answers_the_box_is_waited_for_longer_than_the_queues_time() {
    run(LIMIT, async {
        let broken = parse("REPLY 500 application/json|{}").unwrap();
        let (box_, sky) = (one_slot().await, SimServer::start(broken).await.unwrap());
        let queue = "[queue]\ntime = \"50ms\"\n";
        let config = |elsewhere: &str| {
            let targets = target("box", "llamacpp", &box_, "max_concurrent = 1") + &cloud("openai", &sky);
            targets + queue + &after(elsewhere)
        };
        // The cloud fails, and time is left.
        let program = Program::start(&config("\"100ms\"")).await;
        let mut first = held(&program).await;
        let answer = asks(&program, &[], &chat(true)).await;
        assert_eq!(answer.header("x-edgeward-target"), Some("box"), "{}", program.log());
        let attempts = answer.header("x-edgeward-attempts").unwrap();
        assert!(attempts.starts_with("box:busy,cloud:http_5xx") && attempts.ends_with("box:committed"));
        assert!(first.answer().await.clean);
        // It must not leave the box.
        let near = [("x-edgeward-local-only", "true")];
        for elsewhere in ["\"10s\"", "\"never\""] {
            let program = Program::start(&config(elsewhere)).await;
            let mut first = held(&program).await;
            let answer = asks(&program, &near, &chat(true)).await;
            assert_eq!(answer.header("x-edgeward-attempts"), Some("box:committed"), "{}", program.log());
            assert!(first.answer().await.clean);
        }
    });
}

#[test]
fn a_box_that_fails_its_probe_meanwhile_is_not_waited_for_though_the_cloud_is_broken() {
    run(LIMIT, async {
        let hold = parse(&format!("SSE\n{}HANG 60000", token("held"))).unwrap();
        let hangs = std::rc::Rc::new(std::cell::Cell::new(false));
        let behaviour = {
            let (good, hangs) = (healthy("a"), std::rc::Rc::clone(&hangs));
            Behaviour::by(move |request| match request.path.as_str() {
                "/health" if hangs.get() => parse("HANG 60000").unwrap(),
                _ if String::from_utf8_lossy(&request.body).contains("hold") => hold.clone(),
                _ => good.answer(request),
            })
        };
        let broken = parse("REPLY 500 application/json|{}").unwrap();
        let (box_, sky) =
            (SimServer::start(behaviour).await.unwrap(), SimServer::start(broken).await.unwrap());
        let config = target("box", "llamacpp", &box_, "max_concurrent = 1")
            + &cloud("openai", &sky)
            + &after("\"100ms\"")
            + "[probe]\nevery = \"1s\"\ntimeout = \"1s\"\ndown_after = 1\n";
        let program = Program::start(&config).await;
        let _first = held(&program).await;
        let mut waits = Wire::connect(program.addr).await;
        waits.write(request("POST", CHAT, &[], &chat(true))).await;
        // The cloud has failed, and the box's place is waited for.
        program.until_metric("edgeward_attempts_total{target=\"cloud\",result=\"http_5xx\"}", 1.0).await;
        hangs.set(true);
        let answer = waits.answer().await;
        assert_eq!(answer.status, 502, "{}", answer.text());
        program.logged(&["probe_down", "target=box"]).await;
    });
}
