//! Hedges: the next target beside one whose first token is late; the first of the two is the answer.

use edgeward::sim::model::healthy;
use edgeward::sim::script::{Script, parse};
use edgeward::sim::server::{Behaviour, SimServer};

use crate::LIMIT;
use crate::program::{Answer, CHAT, Program, Wire, ask, chat, request, run, target};

const HEDGE: &str = "[hedge]\nenabled = true\nshare = \"100%\"\n[breaker]\nconsecutive = 1\n";

struct Both {
    a: SimServer,
    b: SimServer,
    program: Program,
}

/// Two healthy servers, of which the first is known to be fast.
async fn both(config: &str) -> Both {
    let (a, b) =
        (SimServer::start(healthy("a")).await.unwrap(), SimServer::start(healthy("b")).await.unwrap());
    let config = format!("{config}{}{}", target("a", "openai", &a, ""), target("b", "openai", &b, ""));
    let program = Program::start(&config).await;
    for _ in 0..40 {
        // The slowest of them may be hedged by now.
        assert_eq!(ask(program.addr, "POST", CHAT, &[], &chat(true)).await.status, 200);
    }
    Both { a, b, program }
}

impl Both {
    async fn asked(&self) -> Answer {
        ask(self.program.addr, "POST", CHAT, &[], &chat(true)).await
    }
}

/// The healthy server's answer after a pause.
fn after(millis: u32, name: &'static str) -> Behaviour {
    let good = healthy(name);
    Behaviour::by(move |request| {
        let mut script: Script = parse(&format!("WAIT {millis}")).unwrap();
        script.ops.extend(good.answer(request).ops);
        script
    })
}

#[test]
fn the_next_target_answers_for_a_late_one_and_the_late_one_is_cancelled() {
    run(LIMIT, async {
        let both = both(HEDGE).await;
        let before = both.a.counts();
        both.a.set(parse("HANG 60000").unwrap());
        let hedges = "edgeward_hedges_total{target=\"b\"}";
        let counted = both.program.metric(hedges).await;
        let answer = both.asked().await;
        assert_eq!((answer.status, answer.clean), (200, true), "{}", answer.text());
        assert_eq!(answer.header("x-edgeward-attempts"), Some("a:hedged,b:committed"));
        assert_eq!(both.program.metric(hedges).await, counted + 1.0);
        assert!(answer.text().contains("[DONE]") && answer.header("x-edgeward-target") == Some("b"));
        both.a.aborted(before.aborted + 1).await;
        let status = both.program.status().await;
        for target in status["targets"].as_array().unwrap() {
            assert_eq!((&target["failed"], &target["in_flight"]), (&0.into(), &0.into()), "{target}");
        }
        assert!(!both.program.log().contains("breaker_opened"), "charged to nobody's breaker");
    });
}

#[test]
fn the_late_one_may_still_be_first() {
    run(LIMIT, async {
        let both = both(HEDGE).await;
        let before = both.b.counts();
        both.a.set(after(700, "a"));
        both.b.set(parse("HANG 60000").unwrap());
        let answer = both.asked().await;
        assert_eq!(answer.header("x-edgeward-attempts"), Some("b:hedged,a:committed"));
        assert_eq!((answer.status, answer.clean), (200, true), "{}", answer.text());
        both.b.aborted(before.aborted + 1).await;
    });
}

#[test]
fn a_hedge_that_fails_leaves_the_first_and_a_first_that_fails_leaves_the_hedge() {
    run(LIMIT, async {
        let both = both(HEDGE).await;
        both.a.set(after(700, "a"));
        both.b.set(parse("REPLY 500 application/json|{}").unwrap());
        let answer = both.asked().await;
        assert_eq!(answer.header("x-edgeward-attempts"), Some("b:http_5xx,a:committed"));
        assert_eq!((answer.status, answer.clean), (200, true), "{}", answer.text());
        both.program.logged(&["breaker_opened", "target=b"]).await;
    });
    run(LIMIT, async {
        let both = both(HEDGE).await;
        both.a.set(parse("SSE\nC : keep\\n\\n\nWAIT 600\nRST").unwrap());
        both.b.set(after(1200, "b"));
        let before = both.b.counts();
        let answer = both.asked().await;
        let attempts = answer.header("x-edgeward-attempts").unwrap();
        assert!(attempts.starts_with("a:") && attempts.ends_with(",b:committed"), "{attempts}");
        assert_eq!((answer.status, answer.clean), (200, true), "{}", answer.text());
        assert_eq!(both.b.counts().requests, before.requests + 1, "the hedge is the next attempt");
    });
}

#[test]
fn a_hangup_ends_both_and_off_means_off() {
    run(LIMIT, async {
        let both = both(HEDGE).await;
        both.a.set(parse("HANG 60000").unwrap());
        both.b.set(parse("HANG 60000").unwrap());
        let before = (both.a.counts(), both.b.counts());
        let mut wire = Wire::connect(both.program.addr).await;
        wire.write(request("POST", CHAT, &[], &chat(true))).await;
        both.b.requested(before.1.requests + 1).await;
        drop(wire);
        both.a.aborted(before.0.aborted + 1).await;
        both.b.aborted(before.1.aborted + 1).await;
        both.program.until_metric("edgeward_gated_streams", 0.0).await;
    });
    run(LIMIT, async {
        let both = both("").await;
        both.a.set(after(700, "a"));
        let answer = both.asked().await;
        assert_eq!(answer.header("x-edgeward-attempts"), Some("a:committed"));
        assert_eq!(both.b.counts().requests, 0);
    });
}
