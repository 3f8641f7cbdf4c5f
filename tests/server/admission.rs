//! Admission at local servers: who goes there, what is loaded meanwhile, who waits for memory and for how long.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::rc::Rc;
use std::time::Duration;

use edgeward::sim::model::healthy;
use edgeward::sim::script::{Script, parse};
use edgeward::sim::server::{Behaviour, SimRequest, SimServer};
use serde_json::{Value, json};

use crate::LIMIT;
use crate::program::{Answer, CHAT, Folder, Program, SOON, Wire, ask, chat, request, run, target};
use crate::reload::rewrite;
use crate::watchdog::overwrite;

const MIB: u64 = 1 << 20;
const OLLAMA: &str = "/api/chat";

/// An Ollama that loads what it is asked for.
#[derive(Clone, Default)]
pub struct Ollama(pub Rc<RefCell<State>>);

pub struct State {
    /// Name and context of what is loaded.
    pub resident: Vec<(String, u64)>,
    /// What a model's files have, in bytes.
    size: u64,
    /// A load, as a script.
    pub load: String,
    /// How long it takes to its first token where the request itself has to load, in milliseconds.
    pub cold: u64,
    /// It has no other model than `m`.
    lacks: bool,
    /// What is loaded is never listed under the name that it was asked for by.
    hides: bool,
}

impl Default for State {
    fn default() -> Self {
        State {
            resident: Vec::new(),
            size: 100 * MIB,
            cold: 0,
            load: "WAIT 300\nREPLY 200 application/json | {}".to_owned(),
            lacks: false,
            hides: false,
        }
    }
}

impl Ollama {
    pub async fn start(&self, name: &str) -> SimServer {
        let (state, good) = (Rc::clone(&self.0), healthy(name));
        let by = move |request: &SimRequest| {
            let mut state = state.borrow_mut();
            let body = request.json();
            let model = body["model"].as_str().unwrap_or_default().to_owned();
            let context = body.pointer("/options/num_ctx").and_then(Value::as_u64).unwrap_or(4096);
            let json = |value: &Value| Script::reply(200, "application/json", value.to_string());
            if state.lacks && !model.is_empty() && model != "m" {
                let said = json!({"error": format!("model '{model}' not found")});
                return Script::reply(404, "application/json", said.to_string());
            }
            match request.path.as_str() {
                "/api/ps" if state.hides => json(&json!({"models": []})),
                "/api/ps" => {
                    let one = |(name, context): &(String, u64)| {
                        json!({"name": name, "model": name, "size": state.size, "size_vram": 0,
                               "context_length": context})
                    };
                    json(&json!({"models": state.resident.iter().map(one).collect::<Vec<_>>()}))
                }
                "/api/tags" => json(&json!({"models": [{"name": "m:latest", "size": state.size}]})),
                "/api/show" => json(&json!({"model_info": {
                    "general.architecture": "llama", "llama.block_count": 2, "llama.context_length": 131_072,
                    "llama.embedding_length": 64, "llama.attention.head_count": 4,
                    "llama.attention.head_count_kv": 4}})),
                "/api/generate" | "/api/embed" if is_warm_up(request) => {
                    if state.load.contains("REPLY 200") {
                        state.resident = vec![(format!("{model}:latest"), context)];
                    }
                    parse(&state.load).unwrap()
                }
                _ => {
                    let there = state.resident.iter().any(|(name, _)| *name == format!("{model}:latest"));
                    state.resident = vec![(format!("{model}:latest"), context)];
                    let load = Duration::from_millis(if there { 0 } else { state.cold });
                    good.clone().paced(8, load, Duration::ZERO).answer(request)
                }
            }
        };
        SimServer::start(Behaviour::by(by)).await.unwrap()
    }
}

fn is_warm_up(request: &SimRequest) -> bool {
    let body = request.json();
    body["prompt"] == "" || body["input"] == ""
}

pub fn warm_ups(server: &SimServer) -> Vec<Value> {
    server.requests().iter().filter(|request| is_warm_up(request)).map(SimRequest::json).collect()
}

/// A cgroup with 2 GiB, of which a twentieth is used.
pub fn group() -> Folder {
    let group = Folder::new();
    for (name, text) in [
        ("memory.max", "2147483648\n"),
        ("memory.high", "max\n"),
        ("memory.current", "0100000000\n"),
        ("memory.stat", "inactive_file 0\nactive_file 0\n"),
        ("memory.events", "oom_kill 0\n"),
    ] {
        group.write(name, text);
    }
    group
}

/// Nobody waits for the box.
pub fn watched(group: &Folder, more: &str) -> String {
    format!("[elsewhere]\nafter = \"0s\"\n{}", remembered(group, more))
}

pub fn remembered(group: &Folder, more: &str) -> String {
    format!(
        "[memory]\ncgroup = \"{}\"\ninterval = \"10ms\"\nfloor = \"32MiB\"\nhold = \"1s\"\n{more}\n",
        group.0.display()
    )
}

fn on_the_lan(kind: &str, server: &SimServer) -> String {
    target("shelf", kind, server, "").replace("place = \"local\"", "place = \"lan\"")
}

/// A program that has looked at its memory, and asked the server on its box.
pub async fn looked(config: &str) -> Program {
    let program = Program::start(config).await;
    program.until_metric("edgeward_memory_pressure", 0.0).await;
    let heard = async {
        while program.status().await.pointer("/targets/0/local/heard_secs").is_none_or(Value::is_null) {}
    };
    tokio::time::timeout(SOON, heard).await.expect("it is asked what it has");
    program
}

async fn asked(program: &Program, path: &str, body: &Value) -> Answer {
    let answer = ask(program.addr, "POST", path, &[], &body.to_string()).await;
    assert_eq!((answer.status, answer.clean), (200, true), "{}\n{}", answer.text(), program.log());
    answer
}

async fn answered_by(program: &Program, body: &Value) -> String {
    asked(program, OLLAMA, body).await.header("x-edgeward-target").unwrap().to_owned()
}

fn simple() -> Value {
    json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]})
}

fn with_context(tokens: u32) -> Value {
    json!({"model": "m", "messages": [], "options": {"num_ctx": tokens, "temperature": 0.1}})
}

#[test]
fn a_cold_model_is_loaded_once_while_another_target_answers() {
    run(LIMIT, async {
        let (here, there) = (Ollama::default(), Ollama::default());
        let (box_, shelf) = (here.start("a").await, there.start("b").await);
        let group = group();
        let config =
            target("box", "ollama", &box_, "") + &on_the_lan("ollama", &shelf) + &watched(&group, "");
        let program = looked(&config).await;

        // Three at once, of which the first goes away while the model is loaded for it.
        let mut wires = Vec::new();
        for _ in 0..3 {
            let mut wire = Wire::connect(program.addr).await;
            wire.write(request("POST", OLLAMA, &[], &simple().to_string())).await;
            wires.push(wire);
        }
        program.logged(&["model_loading", "target=box", "model=m"]).await;
        drop(wires.remove(0));
        for mut wire in wires {
            let answer = wire.answer().await;
            assert_eq!(
                answer.header("x-edgeward-attempts"),
                Some("box:not_loaded,shelf:committed"),
                "{}",
                program.log()
            );
        }
        program.logged(&["request_shed", "target=box", "pressure=green"]).await;
        program.logged(&["model_loaded", "target=box", "model=m"]).await;
        assert_eq!(warm_ups(&box_), [json!({"model": "m", "prompt": "", "stream": false})]);
        assert_eq!(answered_by(&program, &simple()).await, "box", "{}", program.log());

        // Other options are another load; the model's own again, too.
        assert_eq!(answered_by(&program, &with_context(8192)).await, "shelf");
        let again = async {
            while answered_by(&program, &with_context(8192)).await != "box" {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(SOON, again).await.expect("it is loaded again");
        let wanted = json!({"model": "m", "options": {"num_ctx": 8192}, "prompt": "", "stream": false});
        assert_eq!(warm_ups(&box_)[1..], [wanted]);

        let status = program.status().await;
        let local = status.pointer("/targets/0/local").unwrap();
        assert!(local["resident"][0].as_str().unwrap().starts_with("m:latest (100 MiB"), "{local}");
        assert!(status.pointer("/targets/1/local").unwrap().is_null(), "{status}");
        let metrics = program.metrics().await;
        assert!(metrics["edgeward_shed_requests_total{reason=\"cold\"}"] >= 2.0, "{metrics:?}");
        assert_eq!(metrics["edgeward_target_loaded_models{target=\"box\"}"], 1.0);
        assert_eq!(box_.counts().aborted, 0);
        // Nothing of it counts as an attempt, or as a failure.
        assert_eq!(
            metrics
                .keys()
                .filter(|key| key.contains("edgeward_attempts_total") && !key.contains("client_gone"))
                .count(),
            2,
            "{metrics:?}"
        );
    });
}

#[test]
fn what_does_not_fit_or_must_not_be_loaded_is_answered_elsewhere_alone() {
    run(LIMIT, async {
        for (size, more, why) in [(5000 * MIB, "", "too_large"), (100 * MIB, "warm_up = false", "cold")] {
            let here = Ollama::default();
            here.0.borrow_mut().size = size;
            let (box_, shelf) = (here.start("a").await, Ollama::default().start("b").await);
            let group = group();
            let config =
                target("box", "ollama", &box_, "") + &on_the_lan("ollama", &shelf) + &watched(&group, more);
            let program = looked(&config).await;
            for _ in 0..3 {
                assert_eq!(answered_by(&program, &simple()).await, "shelf", "{}", program.log());
            }
            let shed = format!("edgeward_shed_requests_total{{reason=\"{why}\"}}");
            assert_eq!(program.metric(&shed).await, 3.0);
            assert!(warm_ups(&box_).is_empty());
            // Who must stay on the box goes there all the same.
            let near = [("x-edgeward-local-only", "true")];
            let answer = ask(program.addr, "POST", OLLAMA, &near, &simple().to_string()).await;
            assert_eq!(answer.header("x-edgeward-attempts"), Some("box:committed"), "{}", answer.text());
            program.logged(&["model_loaded", "target=box"]).await;
        }
    });
}

#[test]
fn a_load_that_failed_is_told_and_not_tried_again_at_once() {
    run(LIMIT, async {
        let here = Ollama::default();
        here.0.borrow_mut().load =
            "REPLY 500 application/json | {\"error\":\"model requires more system memory\"}".to_owned();
        let (box_, shelf) = (here.start("a").await, Ollama::default().start("b").await);
        let group = group();
        let config =
            target("box", "ollama", &box_, "") + &on_the_lan("ollama", &shelf) + &watched(&group, "");
        let program = looked(&config).await;
        assert_eq!(answered_by(&program, &simple()).await, "shelf");
        program.logged(&["WARN", "model_load_failed", "target=box", "more system memory"]).await;
        for _ in 0..3 {
            assert_eq!(answered_by(&program, &simple()).await, "shelf");
        }
        assert_eq!(warm_ups(&box_).len(), 1);
        let status = program.status().await;
        assert_eq!(status.pointer("/targets/0/failed"), Some(&json!(0)), "it is no attempt of anybody's");
    });
}

#[test]
fn a_load_beside_the_requests_outlives_a_reload_and_ends_with_the_program() {
    run(LIMIT, async {
        let here = Ollama::default();
        here.0.borrow_mut().load = "WAIT 60000\nREPLY 200 application/json | {}".to_owned();
        let (box_, shelf) = (here.start("a").await, Ollama::default().start("b").await);
        let group = group();
        let config =
            target("box", "ollama", &box_, "") + &on_the_lan("ollama", &shelf) + &watched(&group, "");
        let program = looked(&config).await;
        assert_eq!(answered_by(&program, &simple()).await, "shelf");
        program.logged(&["model_loading", "target=box"]).await;
        let changed = config.replace("kind = \"ollama\"", "kind = \"ollama\"\nweight = 7");
        rewrite(&program, &format!("listen = [\"127.0.0.1:0\"]\n{changed}"));
        program.logged(&[" reloaded ", "weight"]).await;
        for _ in 0..3 {
            assert_eq!(answered_by(&program, &simple()).await, "shelf", "{}", program.log());
        }
        assert_eq!((warm_ups(&box_).len(), box_.counts().aborted), (1, 0));
        program.terminate();
        assert_eq!(program.exit_code().await, Some(0));
        tokio::time::timeout(SOON, async {
            while box_.counts().aborted == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await
        .expect("its load is given up");
    });
}

#[test]
fn what_the_server_does_not_have_is_never_loaded() {
    run(LIMIT, async {
        let here = Ollama::default();
        here.0.borrow_mut().lacks = true;
        let (box_, shelf) = (here.start("a").await, Ollama::default().start("b").await);
        let group = group();
        let config =
            target("box", "ollama", &box_, "") + &on_the_lan("ollama", &shelf) + &watched(&group, "");
        let program = looked(&config).await;
        let other = json!({"model": "typo", "messages": [{"role": "user", "content": "hi"}]});
        assert_eq!(answered_by(&program, &other).await, "shelf");
        // Nobody else may have it: the server says what it says, and nothing was loaded.
        let near = [("x-edgeward-local-only", "true")];
        let answer = ask(program.addr, "POST", OLLAMA, &near, &other.to_string()).await;
        assert_eq!(answer.status, 404, "{}", answer.text());
        // What it has is loaded all the same.
        assert_eq!(answered_by(&program, &simple()).await, "shelf");
        program.logged(&["model_loaded", "target=box", "model=m"]).await;
        assert_eq!(warm_ups(&box_).len(), 1);
        let told = |line: &str| line.contains("model_load") && line.contains("typo");
        assert!(!program.log().lines().any(told), "{}", program.log());
    });
}

#[test]
fn a_model_that_the_server_never_lists_is_loaded_once() {
    run(LIMIT, async {
        let here = Ollama::default();
        here.0.borrow_mut().hides = true;
        let (box_, shelf) = (here.start("a").await, Ollama::default().start("b").await);
        let group = group();
        let config =
            target("box", "ollama", &box_, "") + &on_the_lan("ollama", &shelf) + &watched(&group, "");
        let program = looked(&config).await;
        assert_eq!(answered_by(&program, &simple()).await, "shelf");
        program.logged(&["model_loaded", "target=box", "model=m"]).await;
        let here = async { while answered_by(&program, &simple()).await != "box" {} };
        tokio::time::timeout(SOON, here).await.expect("it goes there");
        for _ in 0..5 {
            assert_eq!(answered_by(&program, &simple()).await, "box", "{}", program.log());
        }
        assert_eq!(warm_ups(&box_).len(), 1);
    });
}

#[test]
fn more_context_than_a_model_was_trained_for_is_no_other_context() {
    run(LIMIT, async {
        let here = Ollama::default();
        here.0.borrow_mut().resident = vec![("m:latest".to_owned(), 131_072)];
        let (box_, shelf) = (here.start("a").await, Ollama::default().start("b").await);
        let group = group();
        let config = target("box", "ollama", &box_, "")
            + &on_the_lan("ollama", &shelf)
            + &watched(&group, "warm_up = false");
        let program = looked(&config).await;
        assert_eq!(answered_by(&program, &with_context(1_000_000)).await, "box", "{}", program.log());
    });
}

#[test]
fn a_server_that_cannot_say_what_it_has_is_asked_all_the_same() {
    run(LIMIT, async {
        for says in ["WAIT 60000", "REPLY 500 application/json | {}", "REPLY 200 text/html | <html>"] {
            let good = healthy("a");
            let box_ = SimServer::start(Behaviour::by(move |request| match request.path.as_str() {
                "/api/ps" => parse(says).unwrap(),
                _ => good.answer(request),
            }));
            let (box_, shelf) = (box_.await.unwrap(), Ollama::default().start("b").await);
            let group = group();
            let config =
                target("box", "ollama", &box_, "") + &on_the_lan("ollama", &shelf) + &watched(&group, "");
            let program = Program::start(&config).await;
            program.until_metric("edgeward_memory_pressure", 0.0).await;
            let start = edgeward::time::now();
            for _ in 0..30 {
                assert_eq!(answered_by(&program, &simple()).await, "box", "{says}: {}", program.log());
            }
            // Only who comes before it is known that it does not say waits for that.
            assert!(start.elapsed() < Duration::from_secs(6), "{says}: {:?}", start.elapsed());
            assert!(warm_ups(&box_).is_empty());
        }
    });
}

#[test]
fn embeddings_are_warmed_by_an_empty_embedding() {
    run(LIMIT, async {
        let (box_, shelf) = (Ollama::default().start("a").await, Ollama::default().start("b").await);
        let group = group();
        let family = |target: String| target + "embeddings = \"e\"\n";
        let config = family(target("box", "ollama", &box_, ""))
            + &family(on_the_lan("ollama", &shelf))
            + &watched(&group, "");
        let program = looked(&config).await;
        asked(&program, "/api/embed", &json!({"model": "m", "input": "x"})).await;
        program.logged(&["model_loaded", "target=box"]).await;
        assert_eq!(warm_ups(&box_), [json!({"model": "m", "input": ""})]);
    });
}

#[test]
fn a_server_without_a_free_slot_is_passed_over() {
    run(LIMIT, async {
        let good = healthy("a");
        let box_ = SimServer::start(Behaviour::by(move |request| {
            let json = |text: &str| Script::reply(200, "application/json", text);
            match request.path.as_str() {
                "/props" => json(r#"{"total_slots":2,"default_generation_settings":{"n_ctx":4096}}"#),
                "/slots" => json(
                    r#"[{"id":0,"n_ctx":4096,"is_processing":true},{"id":1,"n_ctx":4096,"is_processing":true}]"#,
                ),
                _ => good.answer(request),
            }
        }));
        let (box_, shelf) = (box_.await.unwrap(), SimServer::start(healthy("b")).await.unwrap());
        let group = group();
        let config =
            target("box", "llamacpp", &box_, "") + &on_the_lan("openai", &shelf) + &watched(&group, "");
        let program = looked(&config).await;
        let answer = ask(program.addr, "POST", CHAT, &[], &chat(true)).await;
        assert_eq!(answer.header("x-edgeward-target"), Some("shelf"), "{}", program.log());
        program.logged(&["request_shed", "target=box", "is busy"]).await;
        assert_eq!(program.metric("edgeward_shed_requests_total{reason=\"busy\"}").await, 1.0);
        let status = program.status().await;
        assert_eq!(status.pointer("/targets/0/local/busy"), Some(&json!(2)), "{status}");
    });
}

#[test]
fn a_server_whose_cache_is_full_is_passed_over_until_it_is_not() {
    run(LIMIT, async {
        let good = healthy("a");
        let used = Rc::new(RefCell::new("0.97"));
        let said = Rc::clone(&used);
        let box_ = SimServer::start(Behaviour::by(move |request| match request.path.as_str() {
            "/metrics" => Script::reply(
                200,
                "text/plain; version=0.0.4",
                format!(
                    "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{{engine=\"0\"}} 1\n\
                     vllm:num_requests_waiting{{engine=\"0\"}} 0\nvllm:kv_cache_usage_perc{{engine=\"0\"}} {}\n\
                     vllm:cache_config_info{{block_size=\"16\",num_gpu_blocks=\"512\"}} 1\n",
                    said.borrow()
                ),
            ),
            _ => good.answer(request),
        }));
        let (box_, shelf) = (box_.await.unwrap(), SimServer::start(healthy("b")).await.unwrap());
        let group = group();
        let config = target("box", "vllm", &box_, "") + &on_the_lan("openai", &shelf) + &watched(&group, "");
        let program = looked(&config).await;
        let by = async || {
            let answer = ask(program.addr, "POST", CHAT, &[], &chat(true)).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
            answer.header("x-edgeward-target").unwrap().to_owned()
        };
        assert_eq!(by().await, "shelf", "{}", program.log());
        program.logged(&["request_shed", "target=box"]).await;
        assert_eq!(program.metric("edgeward_shed_requests_total{reason=\"tokens\"}").await, 1.0);
        // It is asked again soon, since requests come.
        *used.borrow_mut() = "0.03";
        let back = async {
            while by().await != "box" {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(SOON, back).await.expect("it has room again");
    });
}

#[test]
fn without_memory_requests_go_elsewhere_or_wait_and_are_told_when_to_come_again() {
    run(2 * LIMIT, async {
        let here = Ollama::default();
        here.0.borrow_mut().resident = vec![("m:latest".to_owned(), 4096)];
        let (box_, shelf) = (here.start("a").await, SimServer::start(healthy("b")).await.unwrap());
        let group = group();
        let queue = "[queue]\ntime = \"20s\"\nlength = 1\n";
        let memory = watched(&group, "").replace("32MiB", "300MiB");
        let config = target("box", "ollama", &box_, "") + &on_the_lan("openai", &shelf) + queue + &memory;
        let program = looked(&config).await;
        let answer = ask(program.addr, "POST", CHAT, &[], &chat(true)).await;
        assert_eq!(answer.header("x-edgeward-target"), Some("box"), "{}", program.log());

        // Low: what is loaded and small goes, the rest does not.
        overwrite(&group, "memory.current", "2070000000\n");
        program.until_metric("edgeward_memory_pressure", 1.0).await;
        assert_eq!(answered_by(&program, &simple()).await, "box");
        let mut long = String::new();
        (0..20_000).for_each(|word| write!(long, "w{word} ").unwrap());
        for body in [
            json!({"model": "m", "messages": [{"role": "user", "content": long}]}),
            json!({"model": "other", "messages": [{"role": "user", "content": "hi"}]}),
        ] {
            let answer = asked(&program, CHAT, &body).await;
            assert_eq!(answer.header("x-edgeward-target"), Some("shelf"), "{}", program.log());
        }
        let metrics = program.metrics().await;
        for why in ["not_small", "not_resident"] {
            assert_eq!(metrics[&format!("edgeward_shed_requests_total{{reason=\"{why}\"}}")], 1.0, "{why}");
        }

        // About to run out: nothing new.
        overwrite(&group, "memory.events", "oom_kill 1\n");
        program.until_metric("edgeward_memory_pressure", 2.0).await;
        let answer = ask(program.addr, "POST", CHAT, &[], &chat(true)).await;
        assert_eq!(answer.header("x-edgeward-target"), Some("shelf"));
        program.logged(&["request_shed", "target=box", "pressure=red"]).await;
        // What takes no memory goes all the same.
        assert_eq!(ask(program.addr, "GET", "/api/tags", &[], "").await.status, 200);

        // A prompt that may not leave the box waits, and who finds the queue full is told so in its own dialect.
        let near = [("x-edgeward-local-only", "true")];
        let mut waiting = Wire::connect(program.addr).await;
        waiting.write(request("POST", OLLAMA, &near, &simple().to_string())).await;
        let waits =
            async { while program.status().await.pointer("/targets/0/local/waiting") != Some(&json!(1)) {} };
        tokio::time::timeout(SOON, waits).await.expect("it waits");
        let messages =
            json!({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]});
        for (path, body, error) in [
            (OLLAMA, simple().to_string(), "/error"),
            (CHAT, chat(true), "/error/message"),
            ("/v1/messages", messages.to_string(), "/error/message"),
        ] {
            let answer = ask(program.addr, "POST", path, &near, &body).await;
            assert_eq!(answer.status, 503, "{path}: {}", answer.text());
            assert!(answer.header("retry-after").is_some(), "{path}");
            let said: Value = serde_json::from_slice(&answer.body).unwrap();
            let said = said.pointer(error).and_then(Value::as_str).unwrap_or_default();
            assert!(said.contains("about to run out of memory"), "{path}: {}", answer.text());
        }
        assert_eq!(program.metric("edgeward_requests_total{outcome=\"unavailable\"}").await, 3.0);

        // It is over: the kill is forgotten after ten seconds.
        let before = box_.counts().requests;
        overwrite(&group, "memory.current", "0100000000\n");
        let answer = tokio::time::timeout(LIMIT, async {
            loop {
                if program.metric("edgeward_memory_pressure").await < 2.0 {
                    return waiting.answer().await;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });
        let answer = answer.await.expect("it goes");
        assert_eq!(
            (answer.status, answer.header("x-edgeward-target")),
            (200, Some("box")),
            "{}",
            answer.text()
        );
        assert!(box_.counts().requests > before);
    });
}

#[test]
fn who_waits_for_memory_waits_for_the_queues_time() {
    run(LIMIT, async {
        let box_ = SimServer::start(healthy("a")).await.unwrap();
        let group = group();
        let memory = watched(&group, "").replace("32MiB", "300MiB");
        let config = target("box", "openai", &box_, "") + "[queue]\ntime = \"200ms\"\n" + &memory;
        let program = Program::start(&config).await;
        program.until_metric("edgeward_memory_pressure", 0.0).await;
        overwrite(&group, "memory.current", "2070000000\n");
        overwrite(&group, "memory.events", "oom_kill 1\n");
        program.until_metric("edgeward_memory_pressure", 2.0).await;
        let before = edgeward::time::now();
        let answer = ask(program.addr, "POST", CHAT, &[], &chat(true)).await;
        assert_eq!((answer.status, answer.header("retry-after").is_some()), (503, true), "{}", answer.text());
        assert!(before.elapsed() >= Duration::from_millis(200));
        assert_eq!(box_.counts().requests, 0);
        program.logged(&["request_shed", "target=box", "pressure=red"]).await;
        let status = program.status().await;
        assert_eq!(status.pointer("/targets/0/failed"), Some(&json!(0)), "{status}");
        assert_eq!(status.pointer("/targets/0/local/waiting"), Some(&json!(0)), "{status}");
    });
}

#[test]
fn what_only_reads_is_asked_of_the_first_whatever_is_loaded_there() {
    run(LIMIT, async {
        let here = Ollama::default();
        here.0.borrow_mut().size = 5000 * MIB;
        let (box_, shelf) = (here.start("a").await, Ollama::default().start("b").await);
        let group = group();
        let config =
            target("box", "ollama", &box_, "") + &on_the_lan("ollama", &shelf) + &watched(&group, "");
        let program = looked(&config).await;
        for (method, path, body) in
            [("GET", "/api/tags", ""), ("GET", "/api/ps", ""), ("POST", "/api/show", "{\"model\":\"m\"}")]
        {
            let answer = ask(program.addr, method, path, &[], body).await;
            assert_eq!(answer.header("x-edgeward-target"), Some("box"), "{path}: {}", answer.text());
        }
        let status = program.status().await;
        assert_eq!(status.pointer("/targets/0/local/in_flight"), Some(&json!(0)), "{status}");
    });
}

#[test]
fn who_is_asked_in_another_dialect_is_somebody_else_too() {
    run(LIMIT, async {
        let here = Ollama::default();
        // Its load takes until the test is over.
        here.0.borrow_mut().load = "WAIT 60000\nREPLY 500 application/json | {}".to_owned();
        let (box_, shelf) = (here.start("a").await, SimServer::start(healthy("b")).await.unwrap());
        let group = group();
        let config =
            target("box", "ollama", &box_, "") + &on_the_lan("openai", &shelf) + &watched(&group, "");
        let program = looked(&config).await;
        assert_eq!(answered_by(&program, &simple()).await, "shelf", "{}", program.log());
        program.logged(&["model_loading", "target=box"]).await;
        assert_eq!(answered_by(&program, &simple()).await, "shelf", "it would wait for the load");
    });
}

#[test]
fn where_memory_is_not_watched_nobody_is_asked() {
    run(LIMIT, async {
        let box_ = Ollama::default().start("a").await;
        let program = Program::start(&target("box", "ollama", &box_, "")).await;
        assert_eq!(answered_by(&program, &simple()).await, "box");
        let paths: Vec<_> = box_.requests().iter().map(|request| request.path.clone()).collect();
        assert_eq!(paths, [OLLAMA]);
    });
}
