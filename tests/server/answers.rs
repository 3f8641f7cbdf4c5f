//! Whose answer a client gets, and what of it is changed.

use edgeward::dialect::Dialect;
use edgeward::sim::model::healthy;
use edgeward::sim::script::parse;
use edgeward::sim::server::{Behaviour, SimServer, refused_port};

use crate::LIMIT;
use crate::program::{CHAT, Program, ask, chat, run, target, target_at, token};
use crate::said::said;

async fn playing(script: &str) -> SimServer {
    SimServer::start(parse(script).unwrap()).await.unwrap()
}

async fn good(name: &str) -> SimServer {
    SimServer::start(healthy(name)).await.unwrap()
}

#[test]
fn when_every_target_is_rate_limited_the_client_is_told_until_when() {
    run(LIMIT, async {
        let one =
            playing("REPLY 429 application/json; Retry-After: 40 | {\"error\":{\"message\":\"slow\"}}").await;
        let two =
            playing("REPLY 429 application/json; Retry-After: 20 | {\"error\":{\"message\":\"slow\"}}").await;
        let program =
            Program::start(&(target("a", "openai", &one, "") + &target("b", "openai", &two, ""))).await;
        for round in 0..2 {
            let answer = ask(program.addr, "POST", CHAT, &[], &chat(true)).await;
            assert_eq!(answer.status, 503, "{}", answer.text());
            let seconds: u64 = answer.header("retry-after").unwrap().parse().unwrap();
            assert!((15..=20).contains(&seconds), "round {round}: {seconds}");
            assert!(
                answer.text().contains("a") && answer.text().contains("rate limited"),
                "{}",
                answer.text()
            );
        }
        assert_eq!((one.counts().requests, two.counts().requests), (1, 1));
        let status = program.status().await;
        assert_eq!(status["targets"][0]["candidate"], false);
        assert_eq!(ask(program.addr, "GET", "/edgeward/ready", &[], "").await.status, 503);
    });
}

#[test]
fn a_target_that_refuses_our_key_or_model_is_its_configurations_fault() {
    run(LIMIT, async {
        for (script, cause) in [
            ("REPLY 401 application/json | {\"error\":{\"message\":\"bad key\"}}", "unauthorized"),
            ("REPLY 403 application/json | {\"error\":{\"message\":\"not you\"}}", "unauthorized"),
            (
                "REPLY 404 application/json | {\"error\":{\"message\":\"model 'm' not found\"}}",
                "model_missing",
            ),
        ] {
            let (bad, other) = (playing(script).await, good("b").await);
            let program =
                Program::start(&(target("a", "openai", &bad, "") + &target("b", "openai", &other, ""))).await;
            let answer = ask(program.addr, "POST", CHAT, &[], &chat(true)).await;
            assert_eq!((answer.status, answer.header("x-edgeward-target")), (200, Some("b")));
            assert_eq!(answer.header("x-edgeward-attempts"), Some(format!("a:{cause},b:committed").as_str()));
            let status = program.status().await;
            let reason = status["targets"][0]["reason"].as_str().unwrap();
            // The client alone has named the model.
            let said = if cause == "model_missing" { "does not have model `m`" } else { "misconfigured" };
            assert!(reason.contains(said), "{reason}");
            assert_eq!(program.log().contains("ERROR"), cause != "model_missing", "{}", program.log());
            // Tried last from now on.
            let answer = ask(program.addr, "POST", CHAT, &[], &chat(true)).await;
            assert_eq!(answer.header("x-edgeward-attempts"), Some("b:committed"));
            assert_eq!(bad.counts().requests, 1);
            // But for a model that it may well have it keeps its place.
            let body = chat(true).replacen("\"model\":\"m\"", "\"model\":\"m2\"", 1);
            assert_ne!(body, chat(true));
            let answer = ask(program.addr, "POST", CHAT, &[], &body).await;
            let first = if cause == "model_missing" { "a:model_missing,b:committed" } else { "b:committed" };
            assert_eq!(answer.header("x-edgeward-attempts"), Some(first));
        }
    });
}

#[test]
fn a_prompt_too_long_goes_only_to_a_larger_or_an_unknown_window() {
    run(LIMIT, async {
        let overflow = "REPLY 400 application/json; x-request-id: r1 | {\"error\":{\"message\":\"This model's maximum context length is 4096 tokens\",\"type\":\"invalid_request_error\",\"code\":\"context_length_exceeded\"}}";
        for (contexts, by) in [
            (["context = 4096", "context = 4096", "context = 8192"], Some("c")),
            (["context = 4096", "context = 4096", ""], Some("c")),
            (["context = 4096", "context = 4096", "context = 2048"], None),
        ] {
            let (one, two, three) = (playing(overflow).await, good("b").await, good("c").await);
            let config = target("a", "openai", &one, contexts[0])
                + &target("b", "openai", &two, contexts[1])
                + &target("c", "openai", &three, contexts[2]);
            let program = Program::start(&config).await;
            for stream in [true, false] {
                let answer = ask(program.addr, "POST", CHAT, &[], &chat(stream)).await;
                assert_eq!(
                    answer.header("x-edgeward-target").filter(|_| answer.status == 200),
                    by,
                    "{contexts:?}"
                );
                if by.is_none() {
                    assert_eq!(answer.status, 400);
                    assert!(overflow.ends_with(&answer.text()), "unchanged: {}", answer.text());
                    assert_eq!(answer.header("x-request-id"), Some("r1"));
                }
                assert_eq!(two.counts().requests, 0);
            }
        }
    });
}

#[test]
fn a_clients_own_fault_comes_back_byte_for_byte_and_is_tried_nowhere_else() {
    run(LIMIT, async {
        let body = "{ \"error\" : {\"message\":\"messages: field required \\u00e4\", \"type\":\"invalid_request_error\"} }\n";
        for status in [400, 422] {
            let script = format!(
                "REPLY {status} application/json; Set-Cookie: a=b; Server: x | {}",
                body.replace('\\', "\\\\").replace('\n', "\\n")
            );
            let (bad, other) = (playing(&script).await, good("b").await);
            let program =
                Program::start(&(target("a", "openai", &bad, "") + &target("b", "openai", &other, ""))).await;
            for stream in [true, false] {
                let answer = ask(program.addr, "POST", CHAT, &[], &chat(stream)).await;
                assert_eq!((answer.status, answer.text().as_str(), answer.clean), (status, body, true));
                assert_eq!((answer.header("set-cookie"), answer.header("server")), (None, None));
                assert_eq!(answer.header("x-edgeward-target"), Some("a"));
            }
            assert_eq!(other.counts().requests, 0);
            assert_eq!(program.status().await["targets"][0]["failed"], 0);
        }
    });
}

#[test]
fn when_all_fail_each_dialect_names_every_target_and_cause() {
    run(LIMIT, async {
        let port = refused_port().unwrap();
        let oom = playing("REPLY 500 application/json | {\"error\":\"CUDA error: out of memory\"}").await;
        let html = playing("REPLY 200 text/html | <html>").await;
        let config = target_at("a", "ollama", &format!("http://{}", port.addr()), "")
            + &target("b", "ollama", &oom, "")
            + &target("c", "ollama", &html, "")
            + "[breaker]\nenabled = false\n";
        let program = Program::start(&config).await;
        for (path, pointer) in [
            (CHAT, "/error/message"),
            ("/v1/completions", "/error/message"),
            ("/v1/responses", "/error/message"),
            ("/v1/messages", "/error/message"),
            ("/api/chat", "/error"),
            ("/api/generate", "/error"),
        ] {
            for stream in [true, false] {
                let body = format!(
                    r#"{{"model":"m","stream":{stream},"max_tokens":9,"prompt":"x","input":"x","messages":[{{"role":"user","content":"x"}}]}}"#
                );
                let answer = ask(program.addr, "POST", path, &[], &body).await;
                assert_eq!((answer.status, answer.clean), (502, true), "{path}: {}", answer.text());
                let error: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
                let message = error.pointer(pointer).and_then(serde_json::Value::as_str).expect(path);
                for part in ["a: ", "b: ", "out of memory", "c: ", "text/html"] {
                    assert!(message.contains(part), "{path}: {part} in {message}");
                }
                assert_eq!(
                    answer.header("x-edgeward-attempts"),
                    Some("a:refused,b:cuda_oom,c:protocol"),
                    "{path}"
                );
                assert_eq!(answer.header("x-edgeward-target"), None);
            }
        }
    });
}

#[test]
fn the_clients_model_name_is_the_asked_or_the_real_one() {
    run(LIMIT, async {
        let server = good("a").await;
        for (rule, wanted) in [("asked", "alias"), ("real", "real-name")] {
            let config = format!(
                "model_name = \"{rule}\"\n{}",
                target("a", "ollama", &server, "models = { alias = \"real-name\" }")
            );
            let program = Program::start(&config).await;
            for (path, dialect) in [
                (CHAT, Dialect::OpenaiChat),
                ("/v1/completions", Dialect::OpenaiCompletions),
                ("/v1/responses", Dialect::OpenaiResponses),
                ("/v1/messages", Dialect::Anthropic),
                ("/api/chat", Dialect::OllamaChat),
                ("/api/generate", Dialect::OllamaGenerate),
            ] {
                for stream in [true, false] {
                    let body = format!(
                        r#"{{"mod\u0065l":"alias","stream":{stream},"max_tokens":9,"prompt":"x","input":"x","messages":[{{"role":"user","content":"x"}}]}}"#
                    );
                    let answer = ask(program.addr, "POST", path, &[], &body).await;
                    let said = said(dialect, stream, &answer.body);
                    assert!(!said.models.is_empty(), "{path} {stream}: {}", answer.text());
                    assert!(
                        said.models.iter().all(|name| name == wanted),
                        "{path} {stream}: {:?}",
                        said.models
                    );
                    assert_eq!(server.requests().pop().unwrap().json()["model"], "real-name", "{path}");
                }
            }
        }
    });
}

#[test]
fn usage_is_asked_for_and_hidden_again_where_the_client_did_not_ask() {
    run(LIMIT, async {
        let frames = |usage: &str| {
            format!(
                "SSE\nD {{\"id\":\"c\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"hi\"}}}}],\"usage\":null}}\n\
                 D {{\"id\":\"c\",\"choices\":[{{\"index\":0,\"delta\":{{}},\"finish_reason\":\"stop\"}}],\"usage\":null}}\n\
                 D {{\"id\":\"c\",\"choices\":[],\"usage\":{usage}}}\nD [DONE]\nEND"
            )
        };
        let server =
            playing(&frames("{\"prompt_tokens\":3,\"completion_tokens\":1,\"total_tokens\":4}")).await;
        let program = Program::start(&target("a", "openai", &server, "")).await;
        let hidden = ask(program.addr, "POST", CHAT, &[], &chat(true)).await;
        assert_eq!(server.requests().pop().unwrap().json()["stream_options"]["include_usage"], true);
        assert!(!hidden.text().contains("usage") && hidden.text().contains("[DONE]"), "{}", hidden.text());
        let asked = chat(true)
            .replace("\"stream\"", "\"stream_options\":{\"include_usage\":true,\"x\":1},\"stream\"");
        let shown = ask(program.addr, "POST", CHAT, &[], &asked).await;
        assert_eq!(
            server.requests().pop().unwrap().body,
            asked.as_bytes(),
            "nothing to change, nothing changed"
        );
        assert_eq!(shown.text().matches("usage").count(), 3, "{}", shown.text());
        let whole = ask(program.addr, "POST", CHAT, &[], &chat(true)).await;
        assert_eq!(whole.body, hidden.body);
        // A target that refuses the question is not asked it.
        let program = Program::start(&target("a", "openai", &server, "include_usage = false")).await;
        ask(program.addr, "POST", CHAT, &[], &chat(true)).await;
        assert_eq!(server.requests().pop().unwrap().body, chat(true).as_bytes());
    });
}

#[test]
fn a_whole_answer_larger_than_its_buffer_passes_and_a_bad_one_fails_over() {
    run(LIMIT, async {
        let long = "x".repeat(200_000);
        let text = format!(
            r#"{{"id":"c","model":"m","choices":[{{"index":0,"message":{{"role":"assistant","content":"{long}"}},"finish_reason":"stop"}}]}}"#
        );
        let server = playing(&format!("REPLY 200 application/json | {text}")).await;
        let other = good("b").await;
        let config = format!(
            "[limits]\nanswer_buffer = \"16KiB\"\nanswer_memory = \"16KiB\"\n{}{}",
            target("a", "openai", &server, ""),
            target("b", "openai", &other, "")
        );
        let program = Program::start(&config).await;
        let answer = ask(program.addr, "POST", CHAT, &[], &chat(false)).await;
        assert_eq!((answer.status, answer.clean, answer.header("x-edgeward-target")), (200, true, Some("a")));
        assert!(answer.body == text.as_bytes());
        program.until_metric("edgeward_answer_memory_bytes", 0.0).await;
        let error = format!(r#"{{"error":{{"message":"{long}"}}}}"#);
        server.set(parse(&format!("REPLY 200 application/json | {error}")).unwrap());
        let answer = ask(program.addr, "POST", CHAT, &[], &chat(false)).await;
        assert_eq!(
            (answer.status, answer.header("x-edgeward-target")),
            (200, Some("b")),
            "{:.300}",
            answer.text()
        );
        // A large one that breaks off after its commit ends uncleanly.
        server.set(parse(&format!("HEAD 200 application/json\nC {}\nCUT", &text[..150_000])).unwrap());
        let answer = ask(program.addr, "POST", CHAT, &[], &chat(false)).await;
        assert_eq!((answer.status, answer.clean), (200, false));
    });
}

#[test]
fn unknown_fields_survive_byte_for_byte_and_doubled_ones_are_refused() {
    run(LIMIT, async {
        let server = good("a").await;
        let program = Program::start(&target(
            "a",
            "openai",
            &server,
            "include_usage = false\nmodels = { \"*\" = \"*\", x = \"y\" }",
        ))
        .await;
        let body = "{ \"zz\" : [1.50, 1E+30, \"\\ud83d\\ude00\"] ,\"model\":\"x\", \"messages\":[ {\"content\":\"\u{e9}\\/\",\"role\":\"user\"}],\"stream\":true , \"n\":null}";
        assert_eq!(ask(program.addr, "POST", CHAT, &[], body).await.status, 200);
        assert_eq!(
            String::from_utf8(server.requests().pop().unwrap().body).unwrap(),
            body.replace("\"x\"", "\"y\"")
        );
        for bad in [
            r#"{"model":"a","mod\u0065l":"b"}"#,
            "{",
            "[]",
            "null",
            "{} {}",
            r#"{"model":1}"#,
            r#"{"stream":"yes"}"#,
        ] {
            let answer = ask(program.addr, "POST", CHAT, &[], bad).await;
            assert_eq!(answer.status, 400, "{bad}");
        }
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(200_000), "]".repeat(200_000));
        assert_eq!(ask(program.addr, "POST", CHAT, &[], &deep).await.status, 400);
        assert_eq!(server.counts().requests, 1);
    });
}

#[test]
fn an_error_event_after_the_commit_ends_the_stream() {
    run(LIMIT, async {
        let script = format!(
            "SSE\n{}D {{\"error\":{{\"message\":\"CUDA out of memory\",\"code\":500}}}}\n{}HANG 60000",
            token("hi"),
            token("more")
        );
        let server = playing(&script).await;
        let program = Program::start(&target("a", "openai", &server, "")).await;
        let answer = ask(program.addr, "POST", CHAT, &[], &chat(true)).await;
        let said = said(Dialect::OpenaiChat, true, &answer.body);
        assert_eq!(
            (said.text.as_str(), said.errors.len(), said.ended, answer.clean),
            ("hi", 1, false, false)
        );
        assert_eq!(program.metric("edgeward_requests_total{outcome=\"broken\"}").await, 1.0);
        assert_eq!(program.metric("edgeward_attempts_total{target=\"a\",result=\"cuda_oom\"}").await, 1.0);
    });
}

#[test]
fn an_end_that_cannot_be_said_in_the_clients_dialect_is_an_error() {
    run(LIMIT, async {
        // The server leaves `[DONE]` out, and its call's arguments are cut: only at the end it is known that Ollama's
        // client cannot be given them.
        let script = "SSE\nD {\"id\":\"c\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hi\"}}]}\n\
             D {\"id\":\"c\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"a\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"x\"}}]}}]}\n\
             D {\"id\":\"c\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\nEND";
        let server = playing(script).await;
        let program = Program::start(&target("a", "openai", &server, "")).await;
        let body = "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}";
        let answer = ask(program.addr, "POST", "/api/chat", &[], body).await;
        let said = said(Dialect::OllamaChat, true, &answer.body);
        assert_eq!(
            (said.text.as_str(), said.errors.len(), said.ended, answer.clean),
            ("hi", 1, false, false),
            "{}",
            answer.text()
        );
        assert_eq!(program.metric("edgeward_requests_total{outcome=\"broken\"}").await, 1.0);
    });
}

#[test]
fn a_server_without_the_clients_endpoint_is_asked_in_its_other_dialect() {
    run(LIMIT, async {
        let chat = format!(
            "SSE\n{}D {{\"id\":\"c\",\"model\":\"m\",\"choices\":[{{\"index\":0,\"delta\":{{}},\"finish_reason\":\"stop\"}}]}}\n\
             D [DONE]\nEND",
            token("hi")
        );
        for (kind, path, body, dialect) in [
            (
                "openai",
                "/v1/responses",
                r#"{"model":"m","input":"hi","stream":true}"#,
                Dialect::OpenaiResponses,
            ),
            (
                "openai",
                "/v1/completions",
                r#"{"model":"m","prompt":"hi","stream":true}"#,
                Dialect::OpenaiCompletions,
            ),
            (
                "vllm",
                "/v1/messages",
                r#"{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hi"}],"stream":true}"#,
                Dialect::Anthropic,
            ),
        ] {
            let (script, missing) = (
                parse(&chat).unwrap(),
                parse("REPLY 404 application/json | {\"detail\":\"Not Found\"}").unwrap(),
            );
            let speaks = Behaviour::by(move |request| {
                if request.path.ends_with("/chat/completions") { script.clone() } else { missing.clone() }
            });
            let server = SimServer::start(speaks).await.unwrap();
            let program = Program::start(&target("a", kind, &server, "")).await;
            let answer = ask(program.addr, "POST", path, &[], body).await;
            let said = said(dialect, true, &answer.body);
            assert_eq!(
                (answer.status, said.text.as_str(), said.ended, answer.clean),
                (200, "hi", true, true),
                "{path}: {}",
                answer.text()
            );
            assert_eq!(answer.header("x-edgeward-attempts"), Some("a:committed"), "{path}");
        }
    });
}

#[test]
fn an_empty_answer_that_is_passed_on_shows_nothing_that_edgeward_asked_for() {
    run(LIMIT, async {
        let server = playing(
            "SSE\nD {\"id\":\"c\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}],\"usage\":null}\n\
             D {\"id\":\"c\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}],\"usage\":null}\n\
             D {\"id\":\"c\",\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":1}}\nD [DONE]\nEND",
        )
        .await;
        let program = Program::start(&target("a", "openai", &server, "")).await;
        let answer = ask(program.addr, "POST", CHAT, &[], &chat(true)).await;
        assert_eq!((answer.status, answer.clean), (200, true));
        let text = answer.text();
        assert!(text.contains("\"finish_reason\":\"stop\"") && text.contains("[DONE]"), "{text}");
        assert!(!text.contains("usage"), "{text}");
    });
}
