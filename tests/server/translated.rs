//! Every client's dialect in front of every kind of target, through the program: streams, whole answers, refusals, hedges.

use edgeward::dialect::Dialect;
use edgeward::sim::model::healthy;
use edgeward::sim::script::parse;
use edgeward::sim::server::{Behaviour, SimServer};
use serde_json::Value;

use crate::LIMIT;
use crate::program::{Program, ask, run, target, token};
use crate::said::said;

/// Each dialect's endpoint and a request without its end, and what makes it one for a stream.
const CLIENTS: [(&str, &str, Dialect); 6] = [
    (
        "/v1/chat/completions",
        r#"{"model":"m","messages":[{"role":"user","content":"hi"}]"#,
        Dialect::OpenaiChat,
    ),
    ("/v1/completions", r#"{"model":"m","prompt":"hi""#, Dialect::OpenaiCompletions),
    ("/v1/responses", r#"{"model":"m","input":"hi""#, Dialect::OpenaiResponses),
    (
        "/v1/messages",
        r#"{"model":"m","max_tokens":99,"messages":[{"role":"user","content":"hi"}]"#,
        Dialect::Anthropic,
    ),
    ("/api/chat", r#"{"model":"m","messages":[{"role":"user","content":"hi"}]"#, Dialect::OllamaChat),
    ("/api/generate", r#"{"model":"m","prompt":"hi""#, Dialect::OllamaGenerate),
];

fn body(start: &str, stream: bool) -> String {
    format!("{start},\"stream\":{stream}}}")
}

/// Gemini's protocol: a healthy answer.
fn gemini() -> Behaviour {
    let part = |text: &str, more: &str| {
        format!(
            "{{\"candidates\":[{{\"index\":0,\"content\":{{\"role\":\"model\",\"parts\":[{{\"text\":\"{text}\"}}]}}{more}}}],\
             \"usageMetadata\":{{\"promptTokenCount\":7,\"candidatesTokenCount\":3}},\"modelVersion\":\"g\",\"responseId\":\"r\"}}"
        )
    };
    let end = ",\"finishReason\":\"STOP\"";
    let stream = parse(&format!("SSE\nD {}\nD {}\nEND", part("It is ", ""), part("well.", end))).unwrap();
    let whole = parse(&format!("REPLY 200 application/json | {}", part("It is well.", end))).unwrap();
    Behaviour::by(move |request| {
        let streams = request.path.contains("/v1beta/models/m:streamGenerateContent?alt=sse");
        if streams { stream.clone() } else { whole.clone() }
    })
}

#[test]
fn every_client_is_answered_by_every_kind() {
    run(LIMIT, async {
        for (kind, behaviour, wanted) in [
            ("anthropic", Behaviour::from(healthy("a")), healthy("a").text()),
            ("openai", healthy("a").into(), healthy("a").text()),
            ("vllm", healthy("a").into(), healthy("a").text()),
            ("ollama", healthy("a").into(), healthy("a").text()),
            ("gemini", gemini(), "It is well.".to_owned()),
        ] {
            let server = SimServer::start(behaviour).await.unwrap();
            let program = Program::start(&target("a", kind, &server, "models = { m = \"m\" }")).await;
            for (path, start, dialect) in CLIENTS {
                for stream in [true, false] {
                    let answer = ask(program.addr, "POST", path, &[], &body(start, stream)).await;
                    let said = said(dialect, stream, &answer.body);
                    let all = format!("{kind} {path} {stream}: {}", answer.text());
                    // Of Responses, whole answers are not read there.
                    let text = match (stream, dialect) {
                        (false, Dialect::OpenaiResponses) => {
                            let body: Value = serde_json::from_slice(&answer.body).unwrap();
                            body["output"][0]["content"][0]["text"].as_str().unwrap_or_default().to_owned()
                        }
                        _ => said.text,
                    };
                    assert_eq!(
                        (answer.status, text.as_str(), answer.clean),
                        (200, wanted.as_str(), true),
                        "{all}"
                    );
                    assert!(
                        (said.ended || !stream) && said.errors.is_empty() && said.junk.is_empty(),
                        "{all}"
                    );
                    let framing = match (stream, dialect) {
                        (false, _) => "application/json",
                        (true, Dialect::OllamaChat | Dialect::OllamaGenerate) => "application/x-ndjson",
                        (true, _) => "text/event-stream",
                    };
                    assert!(answer.header("content-type").is_some_and(|it| it.starts_with(framing)), "{all}");
                }
            }
        }
    });
}

#[test]
fn a_refusal_is_told_in_the_clients_dialect_with_its_status() {
    run(LIMIT, async {
        let refusal = "REPLY 400 application/json | {\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"too odd\"}}";
        let server = SimServer::start(parse(refusal).unwrap()).await.unwrap();
        let program = Program::start(&target("a", "anthropic", &server, "")).await;
        for (path, start, _) in CLIENTS {
            for stream in [true, false] {
                let answer = ask(program.addr, "POST", path, &[], &body(start, stream)).await;
                let error: Value = serde_json::from_slice(&answer.body).unwrap();
                assert_eq!(
                    (answer.status, answer.header("content-type")),
                    (400, Some("application/json")),
                    "{path}"
                );
                let message = match path {
                    "/api/chat" | "/api/generate" => &error["error"],
                    _ => &error["error"]["message"],
                };
                assert!(message.as_str().is_some_and(|it| it.contains("too odd")), "{path}: {error}");
            }
        }
    });
}

#[test]
fn what_one_target_does_not_take_of_what_was_written_for_it_another_may() {
    run(LIMIT, async {
        for (words, goes_on) in [("max_tokens: 99999 > 8192", true), ("flagged by moderation", false)] {
            let refusal = format!(
                "REPLY 400 application/json | {{\"type\":\"error\",\"error\":{{\"type\":\"invalid_request_error\",\"message\":\"{words}\"}}}}"
            );
            let a = SimServer::start(parse(&refusal).unwrap()).await.unwrap();
            let b = SimServer::start(healthy("b")).await.unwrap();
            let program =
                Program::start(&(target("a", "anthropic", &a, "") + &target("b", "openai", &b, ""))).await;
            let (path, start, _) = CLIENTS[0];
            let answer = ask(program.addr, "POST", path, &[], &body(start, true)).await;
            assert_eq!(answer.status, if goes_on { 200 } else { 400 }, "{}", answer.text());
            assert_eq!(b.counts().requests, u64::from(goes_on));
        }
    });
}

#[test]
fn a_hedge_is_read_and_written_in_its_own_dialect() {
    run(LIMIT, async {
        let (a, b) =
            (SimServer::start(healthy("a")).await.unwrap(), SimServer::start(healthy("b")).await.unwrap());
        let hedge = "[hedge]\nenabled = true\nshare = \"100%\"\n[breaker]\nconsecutive = 1\n";
        let config = format!("{hedge}{}{}", target("a", "anthropic", &a, ""), target("b", "openai", &b, ""));
        let program = Program::start(&config).await;
        let (path, start, dialect) = CLIENTS[4];
        for _ in 0..40 {
            assert_eq!(ask(program.addr, "POST", path, &[], &body(start, true)).await.status, 200);
        }
        a.set(parse("HANG 60000").unwrap());
        let answer = ask(program.addr, "POST", path, &[], &body(start, true)).await;
        assert_eq!(answer.header("x-edgeward-attempts"), Some("a:hedged,b:committed"));
        let said = said(dialect, true, &answer.body);
        assert_eq!((said.text, said.ended, answer.clean), (healthy("b").text(), true, true));
        assert!(b.requests().iter().all(|request| request.path.ends_with("/chat/completions")));
        assert!(a.requests().iter().all(|request| request.path == "/v1/messages"));
    });
}

#[test]
fn gemini_goes_on_with_what_another_target_had_said() {
    run(LIMIT, async {
        let broken = format!("SSE\n{}{}WAIT 30\nRST", token("The fox"), token(" runs."));
        let a = SimServer::start(parse(&broken).unwrap()).await.unwrap();
        let b = SimServer::start(gemini()).await.unwrap();
        let config = target("a", "openai", &a, "") + &target("b", "gemini", &b, "");
        let program = Program::start(&config).await;
        let (path, start, dialect) = CLIENTS[0];
        let headers = [("x-edgeward-on-break", "continue")];
        let answer = ask(program.addr, "POST", path, &headers, &body(start, true)).await;
        let said = said(dialect, true, &answer.body);
        assert_eq!(
            (said.text.as_str(), said.ended, answer.clean),
            ("The fox runs.It is well.", true, true),
            "{}",
            answer.text()
        );
        let sent = b.requests().last().unwrap().json();
        let contents = sent["contents"].as_array().unwrap();
        let roles: Vec<_> = contents.iter().map(|turn| turn["role"].as_str().unwrap()).collect();
        assert_eq!(roles, ["user", "model", "user"]);
        assert_eq!(contents[1]["parts"][0]["text"], "The fox runs.");
    });
}
