//! Who gets a request, through the built program: weights, conversations, prompts that stay in.

use edgeward::sim::model::healthy;
use edgeward::sim::server::{SimServer, refused_port};

use crate::LIMIT;
use crate::program::{CHAT, Program, ask, chat, run, target, target_at};

/// In one group, unlike [`target`]'s.
fn in_group(name: &str, server: &SimServer, more: &str) -> String {
    target(name, "vllm", server, more).replace(&format!("group = \"{name}\""), "group = \"g\"")
}

async fn answered_by(program: &Program, headers: &[(&str, &str)], body: &str) -> String {
    let answer = ask(program.addr, "POST", CHAT, headers, body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.header("x-edgeward-target").unwrap_or_default().to_owned()
}

#[test]
fn a_prompt_that_must_stay_in_does_and_an_unclear_wish_is_refused() {
    run(LIMIT, async {
        let (near, far) =
            (SimServer::start(healthy("a")).await.unwrap(), SimServer::start(healthy("b")).await.unwrap());
        let lan = target("lan", "vllm", &far, "").replace("place = \"local\"", "place = \"lan\"");
        // The LAN's is asked first; what stays on the box goes past it.
        let program = Program::start(&(lan + &target("box", "vllm", &near, ""))).await;
        let name = "X-Edgeward-Local-Only";
        assert_eq!(answered_by(&program, &[], &chat(true)).await, "lan");
        assert_eq!(answered_by(&program, &[(name, "lan")], &chat(true)).await, "lan");
        assert_eq!(answered_by(&program, &[(name, "true")], &chat(true)).await, "box");
        let before = (near.counts().requests, far.counts().requests);
        let answer = ask(program.addr, "POST", CHAT, &[(name, "yes")], &chat(true)).await;
        assert_eq!(answer.status, 400);
        assert!(answer.text().contains("`x-edgeward-local-only` must be `true`"), "{}", answer.text());
        assert_eq!((near.counts().requests, far.counts().requests), before);
        let seen = near.requests().pop().unwrap();
        assert_eq!(seen.header("x-edgeward-local-only"), None, "it says nothing to a target");
    });
}

#[test]
fn who_could_have_answered_but_for_the_prompts_bounds_is_named_beside_who_failed() {
    run(LIMIT, async {
        let far = SimServer::start(healthy("b")).await.unwrap();
        let dead = refused_port().unwrap();
        let lan = target("lan", "vllm", &far, "").replace("place = \"local\"", "place = \"lan\"");
        let gone = target_at("box", "vllm", &format!("http://{}", dead.addr()), "max_retries = 0");
        let program = Program::start(&(gone + &lan)).await;
        let answer = ask(program.addr, "POST", CHAT, &[("x-edgeward-local-only", "true")], &chat(true)).await;
        assert_eq!(answer.status, 502);
        let text = answer.text();
        assert!(text.contains("lan is off this box, and this prompt must stay on it"), "{text}");
        assert_eq!(far.counts().requests, 0);
    });
}

#[test]
fn requests_go_by_weight_and_a_session_stays() {
    run(LIMIT, async {
        let (a, b) =
            (SimServer::start(healthy("a")).await.unwrap(), SimServer::start(healthy("b")).await.unwrap());
        let config = in_group("a", &a, "weight = 3") + &in_group("b", &b, "weight = 1");
        let program = Program::start(&config).await;
        let mut by = Vec::new();
        for _ in 0..4 {
            by.push(answered_by(&program, &[], &chat(true)).await);
        }
        assert_eq!(by.iter().filter(|name| *name == "a").count(), 3, "{by:?}");
        // What health learns of their speed may shift weights a little from here on: a session does not care.
        let session = [("X-Edgeward-Session", "s1")];
        let first = answered_by(&program, &session, &chat(true)).await;
        for _ in 0..6 {
            assert_eq!(answered_by(&program, &session, &chat(true)).await, first);
        }
    });
}
