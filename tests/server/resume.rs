//! Streams that break after their first token: an error, a restart, or another target that goes on with what was said.

use edgeward::sim::model::healthy;
use edgeward::sim::script::{Script, parse};
use edgeward::sim::server::{Behaviour, SimServer};
use serde_json::{Value, json};

use crate::LIMIT;
use crate::program::{Answer, CHAT, Program, Wire, ask, chat, request, run, target, token};

const ON_BREAK: &str = "x-edgeward-on-break";

struct Two {
    a: SimServer,
    b: SimServer,
    program: Program,
}

/// A server that breaks, and one that may go on; each of its kind.
async fn two(config: &str, a: (&str, &str), b: (&str, Behaviour)) -> Two {
    let (first, second) =
        (SimServer::start(parse(a.1).unwrap()).await.unwrap(), SimServer::start(b.1).await.unwrap());
    let config = format!("{config}\n{}{}", target("a", a.0, &first, ""), target("b", b.0, &second, ""));
    let program = Program::start(&config).await;
    Two { a: first, b: second, program }
}

fn script(text: &str) -> Behaviour {
    let script: Script = parse(text).unwrap();
    Behaviour::by(move |_| script.clone())
}

/// The tokens of a chat's stream, and a reset.
fn breaks(tokens: &[&str]) -> String {
    let tokens: String = tokens.iter().map(|text| token(text)).collect();
    format!("SSE\n{tokens}WAIT 30\nRST")
}

/// A chat's stream that ends well.
fn ends(tokens: &[&str]) -> String {
    let tokens: String = tokens.iter().map(|text| token(text)).collect();
    format!(
        "SSE\n{tokens}D {{\"id\":\"c2\",\"model\":\"m\",\"choices\":[{{\"index\":0,\"delta\":{{}},\"finish_reason\":\"stop\"}}]}}\n\
         D {{\"id\":\"c2\",\"model\":\"m\",\"choices\":[],\"usage\":{{\"prompt_tokens\":9,\"completion_tokens\":4,\"total_tokens\":13}}}}\n\
         D [DONE]\nEND"
    )
}

/// The JSON of each event, or line.
fn events(answer: &Answer) -> Vec<Value> {
    let text = answer.text();
    let lines = text.lines().map(|line| line.strip_prefix("data: ").unwrap_or(line));
    lines.filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn text(answer: &Answer) -> String {
    let events = events(answer);
    events.iter().filter_map(|event| event.pointer("/choices/0/delta/content")?.as_str()).collect()
}

fn restarts(answer: &Answer) -> Vec<Value> {
    events(answer).iter().filter_map(|event| event.pointer("/edgeward/restart").cloned()).collect()
}

async fn asked(two: &Two, policy: &str) -> Answer {
    ask(two.program.addr, "POST", CHAT, &[(ON_BREAK, policy)], &chat(true)).await
}

/// The body of the last request to `server`.
fn body(server: &SimServer) -> Value {
    server.requests().last().map(|request| request.json()).unwrap_or_default()
}

#[test]
fn without_a_policy_a_break_is_an_error_and_nobody_else_is_asked() {
    run(LIMIT, async {
        let two = two("", ("openai", &breaks(&["The fox", " runs"])), ("openai", healthy("b").into())).await;
        for headers in [&[][..], &[(ON_BREAK, "error")]] {
            let answer = ask(two.program.addr, "POST", CHAT, headers, &chat(true)).await;
            assert_eq!((answer.status, answer.clean, text(&answer).as_str()), (200, false, "The fox runs"));
            assert!(answer.text().contains("\"error\"") && !answer.text().contains("[DONE]"));
        }
        assert_eq!(two.b.counts().requests, 0);
        let bad = asked(&two, "again").await;
        assert_eq!(bad.status, 400, "{}", bad.text());
        assert!(bad.text().contains("x-edgeward-on-break"), "{}", bad.text());
        two.program.until_metric("edgeward_body_memory_bytes", 0.0).await;
    });
}

#[test]
fn another_target_goes_on_with_what_was_said() {
    run(LIMIT, async {
        let on = ends(&[" runs", " over", " the hill."]);
        let two = two("", ("openai", &breaks(&["The fox", " runs"])), ("openai", script(&on))).await;
        let answer = asked(&two, "continue").await;
        assert_eq!((answer.status, answer.clean), (200, true), "{}", answer.text());
        assert_eq!(
            text(&answer),
            "The fox runs over the hill.",
            "what is said twice is cut: {}",
            answer.text()
        );
        assert!(answer.text().contains("[DONE]") && restarts(&answer).is_empty());
        let all = events(&answer);
        assert!(all.iter().all(|event| event["id"] == "c1" && event["model"] == "m"), "{all:?}");
        let roles = all.iter().filter(|event| event.pointer("/choices/0/delta/role").is_some()).count();
        assert!(roles <= 1, "{all:?}");
        let asked = body(&two.b);
        let messages = asked["messages"].as_array().unwrap();
        let [.., said, instruction] = messages.as_slice() else { panic!("{asked}") };
        assert_eq!(said, &json!({"role":"assistant","content":"The fox runs"}));
        assert_eq!(instruction["role"], "user");
        two.program
            .logged(&["stream_resumed", "from=a", "target=b", "how=continue", "after=12", "cause=reset"])
            .await;
        two.program.logged(&["request_done", "attempts=a:reset,b:committed", "outcome=answered"]).await;
        let counted =
            two.program.metric("edgeward_broken_streams_total{policy=\"continue\",outcome=\"resumed\"}");
        assert_eq!(counted.await, 1.0);
        let status = two.program.status().await;
        assert_eq!(status["targets"][0]["failed"], 1, "the broken attempt is the target's: {status}");
        assert_eq!(status["targets"][1]["failed"], 0);
        two.program.until_metric("edgeward_body_memory_bytes", 0.0).await;
        two.program.until_metric("edgeward_gated_streams", 0.0).await;
    });
}

#[test]
fn the_beginning_is_given_in_the_form_that_each_kind_takes() {
    run(LIMIT, async {
        for (kind, prefilled) in [("vllm", true), ("llamacpp", true), ("openai", false)] {
            let two = two(
                "on_break = \"continue\"",
                ("openai", &breaks(&["The fox ", ""])),
                (kind, script(&ends(&[" runs"]))),
            )
            .await;
            let answer = ask(two.program.addr, "POST", CHAT, &[], &chat(true)).await;
            assert_eq!(
                (answer.clean, text(&answer).as_str()),
                (true, "The fox runs"),
                "{kind} {}",
                answer.text()
            );
            let asked = body(&two.b);
            let last = asked["messages"].as_array().unwrap().last().cloned().unwrap();
            assert_eq!(last["role"] == "assistant", prefilled, "{kind}: {asked}");
            assert!(!prefilled || last["content"] == "The fox", "{kind}: {asked}");
            let vllm = asked["continue_final_message"] == true && asked["add_generation_prompt"] == false;
            assert_eq!(vllm, kind == "vllm", "{asked}");
            assert_eq!(
                asked.pointer("/chat_template_kwargs/enable_thinking"),
                prefilled.then_some(&json!(false))
            );
        }
        for (kind, path, model, last) in [
            ("ollama", "/api/chat", "m", "assistant"),
            ("anthropic", "/v1/messages", "claude-3-haiku-20240307", "assistant"),
            // Newer ones take no beginning of an answer.
            ("anthropic", "/v1/messages", "claude-opus-4-7", "user"),
        ] {
            let more = format!("models = {{ \"*\" = \"{model}\" }}\n");
            let a = SimServer::start(parse(&breaks(&["The fox"])).unwrap()).await.unwrap();
            let b = SimServer::start(healthy("b")).await.unwrap();
            let config = format!(
                "on_break = \"continue\"\n{}{}",
                target("a", "openai", &a, ""),
                target("b", kind, &b, &more)
            );
            let program = Program::start(&config).await;
            let answer = ask(program.addr, "POST", CHAT, &[], &chat(true)).await;
            assert!(answer.clean && text(&answer).starts_with("The fox[b]"), "{kind}: {}", answer.text());
            assert_eq!(b.requests().last().unwrap().path, path);
            let asked = body(&b);
            assert_eq!(asked["messages"].as_array().unwrap().last().unwrap()["role"], last, "{asked}");
        }
    });
}

#[test]
fn a_restart_is_told_and_the_whole_answer_follows() {
    run(LIMIT, async {
        let two = two("", ("openai", &breaks(&["The fox", " runs"])), ("openai", healthy("b").into())).await;
        let answer = asked(&two, "restart").await;
        assert_eq!((answer.status, answer.clean), (200, true), "{}", answer.text());
        assert_eq!(restarts(&answer), [json!({"after": 12, "cause": "reset"})]);
        assert_eq!(text(&answer), format!("The fox runs{}", healthy("b").text()));
        assert_eq!(
            body(&two.b),
            serde_json::from_str::<Value>(&chat(true))
                .map(|mut body| {
                    body["stream_options"] = json!({"include_usage": true});
                    body
                })
                .unwrap(),
            "as any other attempt is asked"
        );
        two.program.logged(&["stream_resumed", "how=restart"]).await;
    });
}

/// What each dialect's client asks, and how its server says two words and breaks.
fn dialects() -> Vec<(&'static str, Value, String)> {
    let messages = json!([{"role":"user","content":"hi"}]);
    vec![
        (CHAT, json!({"model":"m","messages":messages,"stream":true}), breaks(&["The fox", " runs"])),
        (
            "/v1/completions",
            json!({"model":"m","prompt":"hi","stream":true}),
            "SSE\nD {\"id\":\"c1\",\"model\":\"m\",\"choices\":[{\"index\":0,\"text\":\"The fox runs\"}]}\nWAIT 30\nRST".to_owned(),
        ),
        ("/v1/responses", json!({"model":"m","input":"hi","stream":true}), breaks(&["The fox", " runs"])),
        (
            "/v1/messages",
            json!({"model":"m","messages":messages,"max_tokens":99,"stream":true}),
            "SSE\nC event: message_start\\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"m\",\"content\":[],\"usage\":{\"input_tokens\":5,\"output_tokens\":1}}}\\n\\n\n\
             C event: content_block_start\\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\\n\\n\n\
             C event: content_block_delta\\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"The fox runs\"}}\\n\\n\nWAIT 30\nRST".to_owned(),
        ),
        (
            "/api/chat",
            json!({"model":"m","messages":messages}),
            "ND\nL {\"model\":\"m\",\"created_at\":\"2026-01-01T00:00:00Z\",\"message\":{\"role\":\"assistant\",\"content\":\"The fox runs\"},\"done\":false}\nWAIT 30\nRST".to_owned(),
        ),
        (
            "/api/generate",
            json!({"model":"m","prompt":"hi"}),
            "ND\nL {\"model\":\"m\",\"created_at\":\"2026-01-01T00:00:00Z\",\"response\":\"The fox runs\",\"done\":false}\nWAIT 30\nRST".to_owned(),
        ),
    ]
}

/// The text of a stream of any dialect, with `|` for a restart, and its end, if it has its own.
fn spoken(answer: &Answer) -> (String, bool) {
    let mut said = String::new();
    let mut ended = answer.text().contains("[DONE]");
    for event in events(answer) {
        if event.get("edgeward").is_some() {
            said.push('|');
        }
        let kind = event["type"].as_str().unwrap_or_default();
        let text = match kind {
            "response.output_text.delta" => event["delta"].as_str(),
            "content_block_delta" => event.pointer("/delta/text").and_then(Value::as_str),
            _ => ["/choices/0/delta/content", "/choices/0/text", "/message/content", "/response"]
                .iter()
                .find_map(|path| event.pointer(path)?.as_str()),
        };
        said.push_str(text.unwrap_or_default());
        ended |= event["done"] == true || ["message_stop", "response.completed"].contains(&kind);
    }
    (said, ended)
}

#[test]
fn each_dialects_stream_goes_on_in_its_own_shape() {
    run(LIMIT * 2, async {
        for (path, request, broken) in dialects() {
            let kind = match path {
                "/v1/messages" => "anthropic",
                "/api/chat" | "/api/generate" => "ollama",
                _ => "openai",
            };
            for other in ["openai", "ollama", "anthropic"] {
                let two = two("", (kind, &broken), (other, healthy("b").into())).await;
                for (policy, wanted) in [
                    ("error", "The fox runs".to_owned()),
                    ("continue", format!("The fox runs{}", healthy("b").text())),
                    ("restart", format!("The fox runs|{}", healthy("b").text())),
                ] {
                    if (path, policy) == ("/v1/responses", "error") {
                        // Its own server is asked in its own dialect then, which this one does not play.
                        continue;
                    }
                    let answer =
                        ask(two.program.addr, "POST", path, &[(ON_BREAK, policy)], &request.to_string())
                            .await;
                    let whole = policy != "error";
                    assert_eq!(answer.clean, whole, "{path} {other} {policy} {}", answer.text());
                    assert_eq!(spoken(&answer), (wanted, whole), "{path} {other} {policy} {}", answer.text());
                    shape(path, &answer);
                }
            }
        }
    });
}

/// What clients go by besides the words.
fn shape(path: &str, answer: &Answer) {
    let all = events(answer);
    let words = answer.text();
    match path {
        "/v1/responses" => {
            let numbers: Vec<_> = all.iter().filter_map(|event| event["sequence_number"].as_u64()).collect();
            assert!(numbers.iter().copied().eq(0..numbers.len() as u64), "{words}");
            let created = all.iter().filter(|event| event["type"] == "response.created").count();
            assert_eq!(created, 1, "{words}");
        }
        "/v1/messages" => {
            assert_eq!(words.matches("event: message_start").count(), 1, "{words}");
            let mut open = None;
            let mut next = 0;
            for event in &all {
                let index = event["index"].as_u64();
                match event["type"].as_str().unwrap_or_default() {
                    "content_block_start" => {
                        assert_eq!((open, index), (None, Some(next)), "{words}");
                        (open, next) = (index, next + 1);
                    }
                    "content_block_delta" => assert_eq!(open, index, "{words}"),
                    "content_block_stop" => assert_eq!(open.take(), index, "{words}"),
                    _ => {}
                }
            }
        }
        CHAT => assert_eq!(
            all.iter().filter_map(|event| event["id"].as_str()).filter(|id| *id != "c1").count(),
            0
        ),
        _ => {}
    }
}

const CALL: &str = "D {\"id\":\"c1\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"t1\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":\"}}]}}]}\n";
const THINKING: &str = "D {\"id\":\"c1\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"reasoning_content\":\"hm\"}}]}\n";

#[test]
fn what_is_no_plain_text_is_never_continued() {
    run(LIMIT, async {
        let plain = chat(true);
        let json_mode = json!({"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true,
            "response_format":{"type":"json_object"}})
        .to_string();
        for (what, broken, body) in [
            ("a call", format!("SSE\n{}{CALL}WAIT 30\nRST", token("So")), &plain),
            ("thinking", format!("SSE\n{THINKING}WAIT 30\nRST"), &plain),
            ("json", breaks(&["{\\\"a\\\":"]), &json_mode),
        ] {
            let two = two("", ("openai", &broken), ("openai", healthy("b").into())).await;
            let answer = ask(two.program.addr, "POST", CHAT, &[(ON_BREAK, "continue")], body).await;
            assert!(!answer.clean && answer.text().contains("\"error\""), "{what}: {}", answer.text());
            assert_eq!(two.b.counts().requests, 0, "{what}");
            let barred = "edgeward_broken_streams_total{policy=\"continue\",outcome=\"barred\"}";
            assert_eq!(two.program.metric(barred).await, 1.0, "{what}");
            let answer =
                ask(two.program.addr, "POST", CHAT, &[(ON_BREAK, "continue_or_restart")], body).await;
            assert!(answer.clean && restarts(&answer).len() == 1, "{what}: {}", answer.text());
            assert!(text(&answer).ends_with(&healthy("b").text()), "{what}");
        }
    });
}

#[test]
fn a_refusal_of_the_beginning_never_masks_what_went_wrong_first() {
    run(LIMIT, async {
        let refuses = Behaviour::by(|request| {
            let last =
                request.json()["messages"].as_array().and_then(|all| all.last().cloned()).unwrap_or_default();
            if last["role"] == "assistant" {
                return Script::reply(
                    400,
                    "application/json",
                    "{\"error\":{\"message\":\"no prefill\",\"type\":\"invalid_request_error\"}}",
                );
            }
            healthy("b").answer(request)
        });
        let two = two("", ("openai", &breaks(&["The fox"])), ("vllm", refuses)).await;
        let answer = asked(&two, "continue").await;
        assert!(!answer.clean && !answer.text().contains("no prefill"), "{}", answer.text());
        assert!(
            answer.text().contains("a: connection reset") && answer.text().contains("\"reset\""),
            "{}",
            answer.text()
        );
        two.program
            .logged(&["request_done", "attempts=a:reset,b:client_fault", "cause=reset", "outcome=broken"])
            .await;
        let answer = asked(&two, "continue_or_restart").await;
        assert!(answer.clean, "{}", answer.text());
        assert_eq!(text(&answer), format!("The fox{}", healthy("b").text()));
        assert_eq!(restarts(&answer), [json!({"after": 7, "cause": "reset"})]);
    });
}

#[test]
fn nobody_left_or_nobody_well_is_the_first_error() {
    run(LIMIT, async {
        for (what, second) in
            [("fails", "REPLY 500 application/json|{}"), ("breaks before a token", "SSE\nRST")]
        {
            for policy in ["continue", "restart", "continue_or_restart"] {
                let two = two("", ("openai", &breaks(&["The fox"])), ("openai", script(second))).await;
                let answer = asked(&two, policy).await;
                assert!(!answer.clean && !answer.text().contains("[DONE]"), "{what}: {}", answer.text());
                assert_eq!(answer.text().matches("\"error\"").count(), 1, "{what}: {}", answer.text());
                assert!(answer.text().contains("a: connection reset"), "{what}: {}", answer.text());
                assert_eq!(two.b.counts().requests, 1, "{what} {policy}");
                two.program.until_metric("edgeward_gated_streams", 0.0).await;
                two.program.until_metric("edgeward_body_memory_bytes", 0.0).await;
                two.program.until_metric("edgeward_requests_total{outcome=\"broken\"}", 1.0).await;
            }
        }
        let only = SimServer::start(parse(&breaks(&["The fox"])).unwrap()).await.unwrap();
        let program =
            Program::start(&format!("on_break = \"restart\"\n{}", target("a", "openai", &only, ""))).await;
        let answer = ask(program.addr, "POST", CHAT, &[], &chat(true)).await;
        assert!(!answer.clean && answer.text().contains("a: connection reset"), "{}", answer.text());
    });
}

#[test]
fn the_second_one_may_break_too() {
    run(LIMIT, async {
        let a = SimServer::start(parse(&breaks(&["The fox"])).unwrap()).await.unwrap();
        let b = SimServer::start(parse(&breaks(&[" runs"])).unwrap()).await.unwrap();
        let c = SimServer::start(parse(&ends(&[" home."])).unwrap()).await.unwrap();
        let config = format!(
            "on_break = \"continue\"\n{}{}{}",
            target("a", "openai", &a, ""),
            target("b", "openai", &b, ""),
            target("c", "openai", &c, "")
        );
        let program = Program::start(&config).await;
        let answer = ask(program.addr, "POST", CHAT, &[], &chat(true)).await;
        assert_eq!((answer.clean, text(&answer).as_str()), (true, "The fox runs home."), "{}", answer.text());
        program.logged(&["request_done", "attempts=a:reset,b:reset,c:committed"]).await;
    });
}

#[test]
fn usage_is_of_both_and_native_errors_are_not_shown() {
    run(LIMIT, async {
        let broken = format!(
            "SSE\n{}D {{\"id\":\"c1\",\"model\":\"m\",\"choices\":[],\"usage\":{{\"prompt_tokens\":7,\"completion_tokens\":2,\"total_tokens\":9}}}}\n\
             D {{\"error\":{{\"message\":\"CUDA out of memory\",\"type\":\"server_error\"}}}}\nEND",
            token("The fox")
        );
        let two = two("", ("openai", &broken), ("openai", script(&ends(&[" runs"])))).await;
        let body = json!({"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true,
            "stream_options":{"include_usage":true}});
        let answer = ask(two.program.addr, "POST", CHAT, &[(ON_BREAK, "continue")], &body.to_string()).await;
        assert!(answer.clean && !answer.text().contains("CUDA"), "{}", answer.text());
        let last =
            events(&answer).iter().filter_map(|event| event.get("usage").cloned()).next_back().unwrap();
        assert_eq!((&last["prompt_tokens"], &last["completion_tokens"]), (&json!(16), &json!(6)), "{last}");
        two.program.logged(&["request_done", "prompt_tokens=16", "completion_tokens=6"]).await;
    });
}

#[test]
fn a_client_that_leaves_meanwhile_ends_both_and_a_drain_is_told() {
    run(LIMIT, async {
        let two = two(
            "[limits]\ndrain = \"200ms\"",
            ("openai", &breaks(&["The fox"])),
            ("openai", script("HANG 60000")),
        )
        .await;
        let mut wire = Wire::connect(two.program.addr).await;
        wire.write(request("POST", CHAT, &[(ON_BREAK, "continue")], &chat(true))).await;
        wire.until("The fox").await;
        two.b.requested(1).await;
        drop(wire);
        two.b.aborted(1).await;
        two.program.until_metric("edgeward_requests_total{outcome=\"client_gone\"}", 1.0).await;
        two.program.until_metric("edgeward_gated_streams", 0.0).await;
        assert_eq!(two.program.status().await["targets"][1]["failed"], 0);
        let mut wire = Wire::connect(two.program.addr).await;
        wire.write(request("POST", CHAT, &[(ON_BREAK, "continue")], &chat(true))).await;
        wire.until("The fox").await;
        two.b.requested(2).await;
        two.program.terminate();
        wire.until("draining").await;
        assert!(!wire.rest().await.ends_with(b"0\r\n\r\n"));
        assert_eq!(two.program.exit_code().await, Some(0));
        assert!(two.a.counts().requests == 2);
    });
}

#[test]
fn a_cap_on_what_it_costs_and_the_files_word_count() {
    run(LIMIT, async {
        let config = "on_break = \"continue\"\n[resume]\ncontinue_max_tokens = 1\nby_header = false";
        let two = two(
            config,
            ("openai", &breaks(&["The fox runs over the hill"])),
            ("openai", healthy("b").into()),
        )
        .await;
        let answer = asked(&two, "restart").await;
        assert!(!answer.clean && two.b.counts().requests == 0, "{}", answer.text());
    });
    run(LIMIT, async {
        let config = "[[route]]\nmodel = \"m*\"\non_break = \"restart\"";
        let two = two(config, ("openai", &breaks(&["The fox"])), ("openai", healthy("b").into())).await;
        let answer = ask(two.program.addr, "POST", CHAT, &[], &chat(true)).await;
        assert_eq!(restarts(&answer).len(), 1, "{}", answer.text());
    });
}

#[test]
fn a_stream_that_goes_round_in_circles_is_ended_and_never_continued() {
    run(LIMIT, async {
        let circles = format!("SSE\n{}EVERY 1 400 {}HANG 60000", token("So"), token(" and then"));
        for (config, policy, restarted) in [
            ("[repetition]\nenabled = true", "error", false),
            ("[repetition]\nenabled = true", "continue", false),
            ("[repetition]\nenabled = true", "continue_or_restart", true),
        ] {
            let two = two(config, ("openai", &circles), ("openai", healthy("b").into())).await;
            let answer = asked(&two, policy).await;
            assert_eq!(
                (answer.clean, restarts(&answer).len()),
                (restarted, usize::from(restarted)),
                "{}",
                answer.text()
            );
            assert_eq!(
                answer.text().contains("says the same again and again"),
                !restarted,
                "{}",
                answer.text()
            );
            assert_eq!(two.b.counts().requests, u64::from(restarted));
            assert!(text(&answer).len() < 2000, "it is seen in time: {}", text(&answer).len());
            two.a.idle().await;
            two.program
                .until_metric("edgeward_attempts_total{target=\"a\",result=\"repetition\"}", 1.0)
                .await;
        }
        // It comes to its end before anybody has looked: there is nothing to end.
        let piece = " and then".repeat(200);
        let whole = format!(
            "SSE\nC data: {{\"id\":\"c\",\"model\":\"m\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{piece}\"}}}}]}}\\n\\n\
             data: {{\"id\":\"c\",\"model\":\"m\",\"choices\":[{{\"index\":0,\"delta\":{{}},\"finish_reason\":\"stop\"}}]}}\\n\\n\
             data: [DONE]\\n\\n\nEND"
        );
        let two_more =
            two("[repetition]\nenabled = true", ("openai", &whole), ("openai", healthy("b").into())).await;
        let answer = asked(&two_more, "error").await;
        assert!(answer.clean && answer.text().ends_with("data: [DONE]\n\n"), "{}", answer.text());
        let two =
            two("", ("openai", &circles.replace("HANG 60000", "END")), ("openai", healthy("b").into())).await;
        let answer = ask(two.program.addr, "POST", CHAT, &[], &chat(true)).await;
        assert!(text(&answer).len() > 3600, "off, nobody looks");
    });
}
