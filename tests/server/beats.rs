//! Time: signs of life, first tokens, progress, stalls, the total.

use std::time::Duration;

use edgeward::dialect::Dialect;
use edgeward::sim::model::healthy;
use edgeward::sim::script::parse;
use edgeward::sim::server::SimServer;

use crate::LIMIT;
use crate::program::{Answer, CHAT, Program, Wire, ask, chat, request, run, target, token};
use crate::said::said;

/// One request with a heartbeat before a silent target and then a healthy one, or a broken one.
async fn beaten(path: &str, kind: &str, second: &str) -> (Wire, Answer) {
    let silent = SimServer::start(parse("HANG 60000").unwrap()).await.unwrap();
    let good = match second {
        "" => SimServer::start(healthy("b")).await.unwrap(),
        script => SimServer::start(parse(script).unwrap()).await.unwrap(),
    };
    let config = format!(
        "heartbeat = \"60ms\"\n[deadlines]\nfirst_token = \"300ms\"\nload = \"300ms\"\nfirst_token_per_1k = \"0s\"\n{}{}",
        target("a", kind, &silent, ""),
        target("b", kind, &good, "")
    );
    let program = Program::start(&config).await;
    let mut wire = Wire::connect(program.addr).await;
    let body = r#"{"model":"m","stream":true,"max_tokens":50,"messages":[{"role":"user","content":"hi"}]}"#;
    wire.write(request("POST", path, &[], body)).await;
    let head = wire.peek_head().await;
    let answer = wire.answer().await;
    assert_eq!(head.header("x-edgeward-target"), None, "the target can still change");
    assert!(head.header("x-edgeward-request-id").is_some());
    assert_eq!(head.header("x-accel-buffering"), Some("no"));
    assert_eq!((answer.status, answer.headers.len()), (200, head.headers.len()));
    (wire, answer)
}

#[test]
fn a_silent_wait_shows_what_each_dialects_clients_bear_and_ends_well() {
    run(LIMIT, async {
        let text = healthy("b").text();
        for (path, kind, dialect, beat, content_type) in [
            (CHAT, "openai", Dialect::OpenaiChat, ": waiting", "text/event-stream"),
            ("/v1/messages", "anthropic", Dialect::Anthropic, "event: ping\n", "text/event-stream"),
            ("/api/chat", "ollama", Dialect::OllamaChat, "", "application/x-ndjson"),
        ] {
            let (_wire, answer) = beaten(path, kind, "").await;
            assert!(
                answer.header("content-type").unwrap().starts_with(content_type),
                "{path}: {:?}",
                answer.headers
            );
            let said = said(dialect, true, &answer.body);
            assert_eq!((said.text.as_str(), said.ended, answer.clean), (text.as_str(), true, true), "{path}");
            assert_eq!((said.errors, said.junk), (vec![], vec![]), "{path}");
            let beats = if beat.is_empty() { 0 } else { answer.text().matches(beat).count() };
            let wanted = if beat.is_empty() { 0..1 } else { 2..9 };
            assert!(wanted.contains(&beats), "{path}: {}", answer.text());
        }
    });
}

#[test]
fn when_all_fail_after_the_first_sign_of_life_the_stream_says_so_and_breaks() {
    run(LIMIT, async {
        for (path, kind, dialect) in [
            (CHAT, "openai", Dialect::OpenaiChat),
            ("/v1/messages", "anthropic", Dialect::Anthropic),
            ("/api/chat", "ollama", Dialect::OllamaChat),
        ] {
            for second in [
                "REPLY 500 application/json | {\"error\":\"CUDA out of memory\"}",
                "REPLY 400 application/json | {\"error\":{\"message\":\"bad messages\",\"type\":\"invalid_request_error\"}}",
            ] {
                let (_wire, answer) = beaten(path, kind, second).await;
                let said = said(dialect, true, &answer.body);
                assert_eq!(
                    (said.text.as_str(), said.ended, answer.clean),
                    ("", false, false),
                    "{path}: {}",
                    answer.text()
                );
                assert_eq!(said.errors.len(), 1, "{path}: {}", answer.text());
                let telling = if second.contains("500") { "out of memory" } else { "bad messages" };
                assert!(said.errors[0].contains(telling), "{path}: {}", said.errors[0]);
            }
        }
    });
}

#[test]
fn first_token_deadlines_are_the_routes_over_the_targets_over_the_default() {
    run(LIMIT, async {
        let slow = SimServer::start(healthy("a").paced(2, Duration::from_millis(900), Duration::ZERO))
            .await
            .unwrap();
        let good = SimServer::start(healthy("b")).await.unwrap();
        let config = format!(
            "[deadlines]\nfirst_token = \"30s\"\nfirst_token_per_1k = \"0s\"\n{}{}\
             [[route]]\nmodel = \"patient*\"\ndeadlines = {{ first_token = \"20s\" }}\n\
             [[route]]\nmodel = \"hasty\"\ndeadlines = {{ first_token = \"100ms\" }}\n",
            target("a", "openai", &slow, "deadlines = { first_token = \"400ms\" }"),
            target("b", "openai", &good, "")
        );
        let program = Program::start(&config).await;
        for (model, by) in [("m", "b"), ("patient-1", "a"), ("hasty", "b")] {
            for stream in [true, false] {
                let body = chat(stream).replace("\"m\"", &format!("\"{model}\""));
                let answer = ask(program.addr, "POST", CHAT, &[], &body).await;
                assert_eq!(answer.header("x-edgeward-target"), Some(by), "{model}");
                if by == "b" {
                    assert_eq!(
                        answer.header("x-edgeward-attempts"),
                        Some("a:timeout_first_token,b:committed")
                    );
                }
            }
        }
    });
}

#[test]
fn a_long_prompt_is_given_more_time() {
    run(LIMIT, async {
        let slow = SimServer::start(healthy("a").paced(2, Duration::from_millis(700), Duration::ZERO))
            .await
            .unwrap();
        let good = SimServer::start(healthy("b")).await.unwrap();
        let config = format!(
            "[deadlines]\nfirst_token = \"200ms\"\nfirst_token_per_1k = \"1s\"\n{}{}",
            target("a", "openai", &slow, ""),
            target("b", "openai", &good, "")
        );
        let program = Program::start(&config).await;
        let long = chat(true).replace("hi", &"some words of a long prompt ".repeat(800));
        assert_eq!(ask(program.addr, "POST", CHAT, &[], &long).await.header("x-edgeward-target"), Some("a"));
        assert_eq!(
            ask(program.addr, "POST", CHAT, &[], &chat(true)).await.header("x-edgeward-target"),
            Some("b")
        );
    });
}

#[test]
fn only_real_progress_extends_the_wait_and_not_for_ever() {
    run(LIMIT, async {
        let good = SimServer::start(healthy("b")).await.unwrap();
        let progress = |n: u32| {
            format!(
                "D {{\"choices\":[],\"prompt_progress\":{{\"total\":5000,\"cache\":0,\"processed\":{n},\"time_ms\":1}}}}\n"
            )
        };
        let steps = |count: u32, grows: bool| {
            (1..=count)
                .map(|n| progress(if grows { n * 100 } else { 100 }) + "WAIT 200\n")
                .collect::<String>()
        };
        let end = token("hi")
            + "D {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\nD [DONE]\nEND";
        for (what, script, by) in [
            ("progress", format!("SSE\n{}{end}", steps(6, true)), Some("a")),
            ("the same over and over", format!("SSE\n{}{end}", steps(6, false)), Some("b")),
            ("comments", format!("SSE\nEVERY 100 30 C : keep\\n\\n\n{end}"), Some("b")),
            // It works as long as it says; another target keeps a share of the total.
            ("progress without end", format!("SSE\n{}{end}", steps(40, true)), Some("b")),
        ] {
            let slow = SimServer::start(parse(&script).unwrap()).await.unwrap();
            let config = format!(
                "[deadlines]\nfirst_token = \"500ms\"\nfirst_token_per_1k = \"0s\"\ntotal = \"3s\"\n{}{}",
                target("a", "llamacpp", &slow, ""),
                target("b", "openai", &good, "")
            );
            let program = Program::start(&config).await;
            let answer = ask(program.addr, "POST", CHAT, &[], &chat(true)).await;
            assert_eq!(answer.header("x-edgeward-target"), by, "{what}: {}", answer.text());
            assert!(!answer.text().contains("prompt_progress"), "{what}: hidden again");
            assert_eq!(slow.requests()[0].json()["return_progress"], true);
            if what == "progress without end" {
                // The verdict says how far it came.
                program.logged(&["of 5000 tokens"]).await;
            }
        }
    });
}

#[test]
fn a_stall_after_the_commit_ends_the_stream_honestly() {
    run(LIMIT, async {
        for stall in ["HANG 60000", "EVERY 50 1000 C : keep\\n\\n"] {
            let server =
                SimServer::start(parse(&format!("SSE\n{}{stall}", token("hi"))).unwrap()).await.unwrap();
            let config =
                format!("[deadlines]\nbetween_tokens = \"300ms\"\n{}", target("a", "openai", &server, ""));
            let program = Program::start(&config).await;
            let answer = ask(program.addr, "POST", CHAT, &[], &chat(true)).await;
            let said = said(Dialect::OpenaiChat, true, &answer.body);
            assert_eq!(
                (said.text.as_str(), said.ended, answer.clean, said.errors.len()),
                ("hi", false, false, 1),
                "{stall}: {}",
                answer.text()
            );
            tokio::time::timeout(Duration::from_secs(1), server.idle()).await.unwrap();
            assert_eq!(
                program
                    .metric("edgeward_attempts_total{target=\"a\",result=\"timeout_between_tokens\"}")
                    .await,
                1.0
            );
        }
    });
}

#[test]
fn the_total_bounds_the_time_before_the_commit_only() {
    run(LIMIT, async {
        let silent = SimServer::start(parse("HANG 60000").unwrap()).await.unwrap();
        for stream in [true, false] {
            let config = format!(
                "[deadlines]\ntotal = \"500ms\"\nfirst_token = \"300ms\"\nfirst_token_per_1k = \"0s\"\n{}",
                ["a", "b", "c"].map(|name| target(name, "openai", &silent, "")).concat()
            );
            let program = Program::start(&config).await;
            let answer = ask(program.addr, "POST", CHAT, &[], &chat(stream)).await;
            assert_eq!((answer.status, answer.clean), (504, true), "{}", answer.text());
            assert!(
                answer.text().contains("a: ")
                    && answer.text().contains("b: ")
                    && !answer.text().contains("c: "),
                "{}",
                answer.text()
            );
        }
        let long = SimServer::start(healthy("a").paced(8, Duration::ZERO, Duration::from_millis(100)))
            .await
            .unwrap();
        let program =
            Program::start(&format!("[deadlines]\ntotal = \"300ms\"\n{}", target("a", "openai", &long, "")))
                .await;
        let answer = ask(program.addr, "POST", CHAT, &[], &chat(true)).await;
        assert_eq!(said(Dialect::OpenaiChat, true, &answer.body).text, healthy("a").text());
        assert!(answer.clean);
    });
}
