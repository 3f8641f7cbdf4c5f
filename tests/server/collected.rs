//! Clients that want whole answers: a local server is asked for a stream, and the answer is put together.

use std::cell::Cell;
use std::rc::Rc;

use edgeward::sim::model::healthy;
use edgeward::sim::script::{Script, parse};
use edgeward::sim::server::{Behaviour, SimRequest, SimServer};
use serde_json::Value;

use crate::LIMIT;
use crate::admission::{group, looked, watched};
use crate::program::{Answer, CHAT, Program, Wire, ask, chat, request, run, target, token};

const OLLAMA: &str = "/api/chat";
const MESSAGES: &str = "/v1/messages";

async fn playing(script: &str) -> SimServer {
    SimServer::start(parse(script).unwrap()).await.unwrap()
}

fn json(answer: &Answer) -> Value {
    serde_json::from_str(&answer.text()).unwrap_or_else(|_| panic!("no JSON: {}", answer.text()))
}

fn frames(finish: &str) -> String {
    format!(
        "SSE\n{}{}D {{\"id\":\"c1\",\"model\":\"m\",\"system_fingerprint\":\"fp\",\"choices\":[{{\"index\":0,\"delta\":{{}},\
         \"finish_reason\":\"{finish}\"}}]}}\nD {{\"id\":\"c1\",\"choices\":[],\"usage\":{{\"prompt_tokens\":3,\
         \"completion_tokens\":2}}}}\nD [DONE]\nEND",
        token("on"),
        token("e"),
    )
}

const SHORT: &str = "[deadlines]\nfirst_token = \"300ms\"\nfirst_token_per_1k = \"0s\"\n";

#[test]
fn a_whole_answer_may_take_longer_than_its_first_token() {
    run(LIMIT, async {
        let slow = format!("SSE\n{}", token("a")) + "EVERY 100 8 " + &token("b") + "D [DONE]\nEND";
        let (slow, cloud) = (playing(&slow).await, SimServer::start(healthy("cloud")).await.unwrap());
        let config =
            SHORT.to_owned() + &target("box", "openai", &slow, "") + &target("cloud", "openai", &cloud, "");
        let program = Program::start(&config).await;
        let answer = ask(program.addr, "POST", CHAT, &[], &chat(false)).await;
        assert_eq!(answer.header("x-edgeward-attempts"), Some("box:committed"), "{}", answer.text());
        assert_eq!(answer.header("content-type"), Some("application/json"));
        assert_eq!(json(&answer)["choices"][0]["message"]["content"], "abbbbbbbb");
        let asked = slow.requests().remove(0).json();
        assert_eq!(
            (&asked["stream"], &asked["stream_options"]["include_usage"]),
            (&true.into(), &true.into())
        );
        // Asked for the whole, the same server has to be trusted for `answer`, and no longer.
        let whole = playing("WAIT 900\nREPLY 200 application/json | {\"choices\":[{\"message\":{\"content\":\"w\"},\"finish_reason\":\"stop\"}]}").await;
        for (answer, attempts) in
            [("", "box:committed"), ("answer = \"400ms\"\n", "box:timeout_answer,cloud:committed")]
        {
            let config = SHORT.to_owned()
                + answer
                + &target("box", "openai", &whole, "collect = false")
                + &target("cloud", "openai", &cloud, "");
            let program = Program::start(&config).await;
            let answer = ask(program.addr, "POST", CHAT, &[], &chat(false)).await;
            assert_eq!(answer.header("x-edgeward-attempts"), Some(attempts), "{}", answer.text());
        }
    });
}

#[test]
fn until_its_end_it_fails_over() {
    run(LIMIT, async {
        let error = "D {\"error\":{\"message\":\"CUDA out of memory\"}}\nEND";
        for (end, cause) in [
            ("RST", "reset"),
            ("CUT", "closed"),
            ("END", "truncated"),
            (error, "cuda_oom"),
            ("HANG 60000", "timeout_between_tokens"),
        ] {
            let dying = playing(&format!("SSE\n{}{}{end}", token("a"), token("b"))).await;
            let cloud = SimServer::start(healthy("cloud")).await.unwrap();
            let config = "[deadlines]\nbetween_tokens = \"300ms\"\n".to_owned()
                + &target("box", "openai", &dying, "")
                + &target("cloud", "openai", &cloud, "");
            let program = Program::start(&config).await;
            let answer = ask(program.addr, "POST", CHAT, &[], &chat(false)).await;
            let attempts = format!("box:{cause},cloud:committed");
            assert_eq!(answer.header("x-edgeward-attempts"), Some(attempts.as_str()), "{}", answer.text());
            assert_eq!((answer.status, answer.clean), (200, true));
            assert_eq!(dying.counts().requests, 1, "nobody is asked twice");
            program.logged(&["attempt_failed", "target=box", cause]).await;
        }
    });
}

#[test]
fn it_says_what_its_stream_says() {
    run(LIMIT, async {
        let server = playing(&frames("length")).await;
        let program =
            Program::start(&target("box", "openai", &server, "models = { \"*\" = \"real\" }")).await;
        let answer = ask(program.addr, "POST", CHAT, &[], &chat(false)).await;
        let said = json(&answer);
        assert_eq!(
            (&said["object"], &said["model"], &said["system_fingerprint"]),
            (&"chat.completion".into(), &"m".into(), &"fp".into()),
            "{said}"
        );
        let choice = &said["choices"][0];
        assert_eq!(
            (&choice["message"]["content"], &choice["finish_reason"]),
            (&"one".into(), &"length".into())
        );
        assert_eq!(said["usage"]["completion_tokens"], 2);
        program.logged(&["request_done", "completion_tokens=2", "status=200"]).await;
        // For a client of another dialect the same.
        let body = r#"{"model":"m","stream":false,"messages":[{"role":"user","content":"hi"}]}"#;
        let answer = ask(program.addr, "POST", OLLAMA, &[], body).await;
        assert_eq!(
            (&json(&answer)["message"]["content"], &json(&answer)["done"]),
            (&"one".into(), &true.into())
        );
        let body = r#"{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}"#;
        let answer = ask(program.addr, "POST", MESSAGES, &[], body).await;
        assert_eq!(json(&answer)["content"][0]["text"], "one");
        assert!(server.requests().iter().all(|request| request.json()["stream"] == true));
    });
}

#[test]
fn what_a_stream_cannot_say_is_asked_for_whole() {
    run(LIMIT, async {
        let whole = "REPLY 200 application/json | {\"choices\":[{\"message\":{\"content\":\"w\"},\"finish_reason\":\"stop\"}]}";
        let server = playing(whole).await;
        let program = Program::start(&target("box", "openai", &server, "")).await;
        for more in [r#""n":2"#, r#""best_of":3"#, r#""prompt_logprobs":1"#, r#""x_vendor":{}"#] {
            let body = chat(false).replacen("\"stream\"", &format!("{more},\"stream\""), 1);
            let answer = ask(program.addr, "POST", CHAT, &[], &body).await;
            assert_eq!(json(&answer)["choices"][0]["message"]["content"], "w", "{}", answer.text());
            let asked = server.requests().pop().unwrap();
            assert_eq!(String::from_utf8_lossy(&asked.body), body, "byte for byte");
        }
    });
}

#[test]
fn a_model_without_streams_is_found_out_once() {
    run(LIMIT, async {
        let refuses = "REPLY 400 application/json | {\"error\":{\"message\":\"Streaming is not supported for this model\"}}";
        let whole = "REPLY 200 application/json | {\"choices\":[{\"message\":{\"content\":\"w\"},\"finish_reason\":\"stop\"}]}";
        let plain = whole.replace("application/json", "text/plain");
        let mixed = format!(
            "SSE\n{}D {{\"choices\":[{{\"delta\":{{\"content\":[{{\"type\":\"text\"}}]}}}}]}}\nD [DONE]\nEND",
            token("a")
        );
        // Refused; or not heeded: the whole answer comes at once, as it may be called; or a stream that is none.
        for first in [refuses, whole, plain.as_str(), mixed.as_str()] {
            let once = first == whole || first == plain;
            let first = first.to_owned();
            let script = move |request: &SimRequest| {
                let streams = request.json()["stream"] == true;
                parse(if streams { &first } else { whole }).unwrap()
            };
            let server = SimServer::start(Behaviour::by(script)).await.unwrap();
            let program = Program::start(&target("box", "openai", &server, "")).await;
            let answer = ask(program.addr, "POST", CHAT, &[], &chat(false)).await;
            assert_eq!(answer.header("x-edgeward-attempts"), Some("box:committed"), "{}", answer.text());
            let asked: Vec<bool> =
                server.requests().iter().map(|request| request.json()["stream"] == true).collect();
            assert_eq!(asked, if once { vec![true] } else { vec![true, false] });
            let answer = ask(program.addr, "POST", CHAT, &[], &chat(false)).await;
            assert_eq!(answer.status, 200);
            assert_eq!(server.requests().pop().unwrap().json()["stream"], false, "from now on");
        }
    });
}

#[test]
fn a_client_that_leaves_cancels_it() {
    run(LIMIT, async {
        let server = playing(&format!("SSE\n{}EVERY 20 1000 {}", token("a"), token("b"))).await;
        let program = Program::start(&target("box", "openai", &server, "")).await;
        let mut wire = Wire::connect(program.addr).await;
        wire.write(request("POST", CHAT, &[], &chat(false))).await;
        server.requested(1).await;
        drop(wire);
        program.logged(&["request_done", "client_gone"]).await;
        program.until_metric("edgeward_body_memory_bytes", 0.0).await;
    });
}

/// A llama.cpp whose first token takes `silence`, and which says of its slots that it computes, or that it does not.
async fn silent_for(silence: u64, works: bool) -> SimServer {
    let computed = Rc::new(Cell::new(0));
    let by = move |request: &SimRequest| {
        let json = |text: String| Script::reply(200, "application/json", text);
        match request.path.as_str() {
            "/props" => json(r#"{"total_slots":1,"default_generation_settings":{"n_ctx":4096}}"#.to_owned()),
            "/v1/models" => json(r#"{"data":[{"id":"m"}]}"#.to_owned()),
            "/slots" => {
                computed.set(computed.get() + u64::from(works));
                let decoded = computed.get();
                json(format!(
                    r#"[{{"id":0,"n_ctx":4096,"is_processing":false,"next_token":[{{"n_decoded":{decoded}}}]}}]"#
                ))
            }
            _ => parse(&format!("WAIT {silence}\nSSE\n{}D [DONE]\nEND", token("late"))).unwrap(),
        }
    };
    SimServer::start(Behaviour::by(by)).await.unwrap()
}

#[test]
fn a_server_that_is_seen_to_work_is_not_hung() {
    run(LIMIT, async {
        for (works, attempts) in [(true, "box:committed"), (false, "box:timeout_first_token,cloud:committed")]
        {
            let (server, cloud) =
                (silent_for(7000, works).await, SimServer::start(healthy("cloud")).await.unwrap());
            let group = group();
            // Longer than two looks at its slots.
            let config = "[deadlines]\nfirst_token = \"4s\"\nfirst_token_per_1k = \"0s\"\n".to_owned()
                + &target("box", "llamacpp", &server, "")
                + &target("cloud", "openai", &cloud, "")
                + &watched(&group, "");
            let program = looked(&config).await;
            for stream in [true, false] {
                let answer = ask(program.addr, "POST", CHAT, &[], &chat(stream)).await;
                assert_eq!(answer.header("x-edgeward-attempts"), Some(attempts), "{}", program.log());
            }
        }
    });
}

#[test]
fn an_empty_answer_is_json_as_well() {
    run(LIMIT, async {
        let empty = "SSE\nD {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\"},\"finish_reason\":\"stop\"}]}\n\
                     D {\"id\":\"c\",\"choices\":[],\"usage\":{\"completion_tokens\":2}}\nD [DONE]\nEND";
        let server = playing(empty).await;
        let program = Program::start(&target("box", "openai", &server, "")).await;
        let answer = ask(program.addr, "POST", CHAT, &[], &chat(false)).await;
        assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")));
        assert_eq!(json(&answer)["choices"][0]["finish_reason"], "stop");
    });
}

#[test]
fn a_silent_server_leaves_time_for_the_others() {
    run(LIMIT, async {
        let (silent, cloud) =
            (playing("HANG 60000").await, SimServer::start(healthy("cloud")).await.unwrap());
        let config = "[deadlines]\ntotal = \"4s\"\nfirst_token = \"1s\"\n".to_owned()
            + &target("box", "openai", &silent, "")
            + &target("cloud", "openai", &cloud, "");
        let program = Program::start(&config).await;
        let body = chat(false).replacen("\"stream\"", "\"x_vendor\":1,\"stream\"", 1);
        let answer = ask(program.addr, "POST", CHAT, &[], &body).await;
        assert_eq!(answer.header("x-edgeward-attempts"), Some("box:timeout_answer,cloud:committed"));
    });
}

/// Its clients, and their budgets, go by the counts.
#[test]
fn a_server_whose_stream_counts_nothing_is_asked_for_whole_answers_later() {
    run(LIMIT, async {
        let uncounted = format!("SSE\n{}D [DONE]\nEND", token("a"));
        for (script, whole_later) in [(uncounted, true), (frames("stop"), false)] {
            let server = playing(&script).await;
            let program = Program::start(&target("box", "openai", &server, "")).await;
            for _ in 0..2 {
                ask(program.addr, "POST", CHAT, &[], &chat(false)).await;
            }
            let asked: Vec<bool> =
                server.requests().iter().map(|request| request.json()["stream"] == true).collect();
            assert_eq!(asked, [true, !whole_later]);
        }
    });
}
