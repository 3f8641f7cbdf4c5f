//! What one model server refuses and another target can serve goes on; a limit that does not fit is asked again as one
//! that does.

use edgeward::sim::model::healthy;
use edgeward::sim::script::parse;
use edgeward::sim::server::{Behaviour, SimServer};
use serde_json::Value;

use crate::LIMIT;
use crate::program::{CHAT, Program, ask, run, target};

const TOOLS: &str = r#"{"model":"m","messages":[{"role":"user","content":"hi"}],"tools":[{"type":"function","function":{"name":"f"}}],"stream":STREAM}"#;

fn vllm(message: &str) -> String {
    let message = Value::from(message);
    format!(
        "REPLY 400 application/json | {{\"error\":{{\"message\":{message},\"type\":\"BadRequestError\",\"code\":400}}}}"
    )
}

fn too_large(wish: u64, window: u64, prompt: u64) -> String {
    vllm(&format!(
        "'max_tokens' or 'max_completion_tokens' is too large: {wish}. This model's maximum context length is \
         {window} tokens and your request has {prompt} input tokens ({wish} > {window} - {prompt})."
    ))
}

/// A server with a window of 4096 tokens, 1000 of which the prompt has: it answers what fits, and refuses the rest.
fn window(name: &'static str) -> Behaviour {
    let good = healthy(name);
    Behaviour::by(move |request| {
        let body = request.json();
        let limits = [&body["max_tokens"], &body["max_completion_tokens"], &body["max_output_tokens"]];
        let wish = limits.iter().find_map(|limit| limit.as_u64()).unwrap_or(0);
        if wish > 3096 { parse(&too_large(wish, 4096, 1000)).unwrap() } else { good.answer(request) }
    })
}

async fn start(behaviour: impl Into<Behaviour>) -> SimServer {
    SimServer::start(behaviour).await.unwrap()
}

#[test]
fn tools_that_a_box_does_not_take_go_to_the_cloud() {
    run(LIMIT, async {
        for refusal in [
            vllm("\"auto\" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set"),
            vllm("tool_choice=\"required\" requires --tool-call-parser to be set"),
            "REPLY 500 application/json | {\"error\":{\"code\":500,\"message\":\"tools param requires --jinja flag\",\"type\":\"server_error\"}}".to_owned(),
        ] {
            let (a, b) = (start(parse(&refusal).unwrap()).await, start(healthy("b")).await);
            let config = target("box", "vllm", &a, "") + &target("cloud", "openai", &b, "");
            let program = Program::start(&config).await;
            for round in 0..5 {
                let body = TOOLS.replace("STREAM", if round % 2 == 0 { "true" } else { "false" });
                let answer = ask(program.addr, "POST", CHAT, &[("x-edgeward-session", &round.to_string())], &body).await;
                assert_eq!(answer.status, 200, "{}", answer.text());
                assert_eq!(answer.header("x-edgeward-attempts"), Some("box:unsupported,cloud:committed"));
                assert_eq!(answer.header("x-edgeward-fitted"), None);
            }
            // It is as well as before: others it serves.
            let status = program.status().await;
            assert_eq!(
                (&status["targets"][0]["candidate"], &status["targets"][0]["failed"]),
                (&Value::from(true), &Value::from(0)),
                "{}", status["targets"][0]
            );
            a.set(healthy("a"));
            let answer = ask(program.addr, "POST", CHAT, &[], &crate::program::chat(true)).await;
            assert_eq!(answer.header("x-edgeward-attempts"), Some("box:committed"));
        }
    });
}

#[test]
fn where_nobody_takes_it_the_client_gets_the_refusal_itself() {
    run(LIMIT, async {
        let refusal = vllm("tool_choice=\"required\" requires --tool-call-parser to be set");
        let a = start(parse(&refusal).unwrap()).await;
        let program = Program::start(&target("box", "vllm", &a, "")).await;
        for stream in ["true", "false"] {
            let answer = ask(program.addr, "POST", CHAT, &[], &TOOLS.replace("STREAM", stream)).await;
            assert_eq!(answer.status, 400, "{}", answer.text());
            assert!(refusal.ends_with(&answer.text()), "unchanged: {}", answer.text());
            assert_eq!(answer.header("x-edgeward-attempts"), Some("box:unsupported"));
        }
        // Nor is what llama.cpp calls its own fault worth asking for again, as clients do after a 5xx.
        a.set(parse("REPLY 500 application/json | {\"error\":{\"code\":500,\"message\":\"tools param requires --jinja flag\"}}").unwrap());
        let answer = ask(program.addr, "POST", CHAT, &[], &TOOLS.replace("STREAM", "false")).await;
        assert_eq!(answer.status, 400, "{}", answer.text());
        assert!(answer.text().contains("requires --jinja"), "{}", answer.text());
        a.set(parse(&refusal).unwrap());
        // One that is not there says nothing about the request: it may be tried again.
        let gone = crate::program::target_at("gone", "vllm", "http://127.0.0.1:1", "");
        let program = Program::start(&(gone + &target("box", "vllm", &a, ""))).await;
        let answer = ask(program.addr, "POST", CHAT, &[], &TOOLS.replace("STREAM", "true")).await;
        assert_eq!(answer.status, 502, "{}", answer.text());
        assert_eq!(answer.header("x-edgeward-attempts"), Some("gone:refused,box:unsupported"));
    });
}

#[test]
fn a_limit_that_does_not_fit_is_asked_again_with_what_does() {
    run(LIMIT, async {
        for (path, kind, body, key) in [
            (
                CHAT,
                "vllm",
                r#"{"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":4000"#,
                "max_tokens",
            ),
            (
                CHAT,
                "vllm",
                r#"{"model":"m","messages":[{"role":"user","content":"hi"}],"max_completion_tokens":4000"#,
                "max_completion_tokens",
            ),
            ("/v1/completions", "vllm", r#"{"model":"m","prompt":"hi","max_tokens":4000"#, "max_tokens"),
            (
                "/v1/responses",
                "vllm",
                r#"{"model":"m","input":"hi","max_output_tokens":4000"#,
                "max_output_tokens",
            ),
            // Written anew in another dialect.
            (
                "/api/chat",
                "vllm",
                r#"{"model":"m","messages":[{"role":"user","content":"hi"}],"options":{"num_predict":4000}"#,
                "max_tokens",
            ),
            (
                "/v1/messages",
                "openai",
                r#"{"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":4000"#,
                "max_tokens",
            ),
        ] {
            let (a, b) = (start(window("a")).await, start(healthy("b")).await);
            let config = target("box", kind, &a, "") + &target("cloud", "openai", &b, "");
            let program = Program::start(&config).await;
            for stream in [true, false] {
                let before = a.requests().len();
                let answer =
                    ask(program.addr, "POST", path, &[], &format!("{body},\"stream\":{stream}}}")).await;
                let what = format!("{path} {kind} {stream}: {}", answer.text());
                assert_eq!(answer.status, 200, "{what}");
                assert_eq!(answer.header("x-edgeward-attempts"), Some("box:committed"), "{what}");
                assert_eq!(answer.header("x-edgeward-fitted"), Some("max_tokens=3096"), "{what}");
                let asked: Vec<_> =
                    a.requests().iter().skip(before).map(|it| it.json()[key].as_u64().unwrap()).collect();
                assert_eq!(asked, [4000, 3096], "{what}");
            }
            assert_eq!(b.counts().requests, 0);
            program.logged(&["limit_fitted", "max_tokens=3096"]).await;
        }
    });
}

#[test]
fn too_little_room_is_an_overflow_that_goes_to_the_cloud() {
    run(LIMIT, async {
        let body = |wish: u64| {
            format!(
                r#"{{"model":"m","messages":[{{"role":"user","content":"hi"}}],"max_tokens":{wish},"stream":true}}"#
            )
        };
        for (wish, window, prompt) in [(1000, 4096, 3900), (16_000, 4096, 100), (500, 4096, 5000)] {
            let a = start(parse(&too_large(wish, window, prompt)).unwrap()).await;
            let b = start(healthy("b")).await;
            let config = target("box", "vllm", &a, "") + &target("cloud", "openai", &b, "");
            let program = Program::start(&config).await;
            let answer = ask(program.addr, "POST", CHAT, &[], &body(wish)).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
            assert_eq!(answer.header("x-edgeward-attempts"), Some("box:context_overflow,cloud:committed"));
            assert_eq!((a.counts().requests, answer.header("x-edgeward-fitted")), (1, None));
            assert_eq!(b.requests()[0].json()["max_tokens"], wish, "as the client wrote it");
        }
        // It refuses what is said to fit, too: once is enough, and a client is told of its own words only.
        let stubborn = too_large(4000, 4096, 1000);
        let a = start(parse(&stubborn).unwrap()).await;
        let b = start(healthy("b")).await;
        let config = target("box", "vllm", &a, "") + &target("cloud", "openai", &b, "");
        let program = Program::start(&config).await;
        let answer = ask(program.addr, "POST", CHAT, &[], &body(4000)).await;
        assert_eq!(answer.header("x-edgeward-attempts"), Some("box:context_overflow,cloud:committed"));
        assert_eq!((a.counts().requests, answer.header("x-edgeward-fitted")), (2, None));
        let first = Behaviour::by(move |request| {
            let wish = request.json()["max_tokens"].as_u64().unwrap();
            parse(&if wish == 4000 { stubborn.clone() } else { vllm("some other rule of ours") }).unwrap()
        });
        a.set(first);
        let program = Program::start(&target("box", "vllm", &a, "")).await;
        let answer = ask(program.addr, "POST", CHAT, &[], &body(4000)).await;
        assert_eq!(answer.status, 400);
        assert!(answer.text().contains("is too large: 4000"), "{}", answer.text());
        assert_eq!(answer.header("x-edgeward-fitted"), None);
    });
}
