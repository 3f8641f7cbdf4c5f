//! Real input: real llama.cpp servers die, hang and come back, and a client sees one whole answer.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test's helpers fail the test by panicking, as the test itself does"
)]

mod http;
mod process;
mod translated;
mod whole;
mod world;

use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use http::Answer;
use world::{Edgeward, MODEL, Model, PATIENT, World};

/// Far more than a short prompt takes; a first step of a long one is done by then even on a busy machine.
const SHORT: Duration = Duration::from_secs(3);
const SHORT_KEYS: &str = r#"deadlines = { first_token = "3s", first_token_per_1k = "0s" }"#;

fn chat(text: &str) -> Value {
    json!({
        "model": MODEL,
        "messages": [{ "role": "user", "content": text }],
        "temperature": 0,
        "max_tokens": 16,
        "stream": true,
    })
}

/// About 360 tokens, which llama.cpp computes in steps of 64 over some seconds.
fn long_chat() -> Value {
    chat(&"Tell me a story about a fox and a hen. ".repeat(30))
}

/// Asks edgeward for a chat.
fn ask(edgeward: u16, body: &Value) -> Answer {
    ask_at(edgeward, "/v1/chat/completions", body)
}

fn ask_at(edgeward: u16, path: &str, body: &Value) -> Answer {
    let answer = http::post(edgeward, path, body).unwrap();
    assert_eq!(answer.status, 200, "{answer:?}");
    answer
}

fn assert_answered_by(answer: &Answer, target: &str) {
    assert_eq!(answer.header("x-edgeward-target"), target, "{answer:?}");
}

/// The local server's cause, from `local:CAUSE,cloud:committed`.
fn local_cause(answer: &Answer) -> String {
    let attempts = answer.header("x-edgeward-attempts");
    attempts
        .strip_prefix("local:")
        .and_then(|rest| rest.strip_suffix(",cloud:committed"))
        .unwrap_or_else(|| panic!("attempts {attempts:?}: {answer:?}"))
        .to_owned()
}

#[test]
fn a_stream_through_edgeward_equals_a_direct_one_frame_for_frame() {
    let world = World::start();
    let mut with_usage = chat("Name three colours.");
    with_usage["stream_options"] = json!({ "include_usage": true });
    let cases = [
        ("/v1/chat/completions", chat("Name three colours.")),
        ("/v1/chat/completions", with_usage),
        ("/v1/chat/completions", long_chat()),
        (
            "/v1/completions",
            json!({ "model": MODEL, "prompt": "Once upon a time", "temperature": 0, "max_tokens": 16, "stream": true }),
        ),
    ];
    for (path, body) in cases {
        let direct = http::post(world.local.port, path, &body).unwrap();
        let through = ask_at(world.edgeward.port, path, &body);
        assert_answered_by(&through, "local");
        assert_eq!(through.header("content-type"), direct.header("content-type"));
        assert!(direct.comparable().len() > 8, "{direct:?}");
        assert_eq!(through.comparable(), direct.comparable(), "{path} {body}");
    }

    let mut whole = chat("Name three colours.");
    whole["stream"] = json!(false);
    let direct = http::post(world.local.port, "/v1/chat/completions", &whole).unwrap().json();
    let through = ask(world.edgeward.port, &whole);
    assert!(through.complete);
    let through = through.json();
    for field in ["choices", "model", "usage", "object"] {
        assert_eq!(through[field], direct[field], "{field}");
    }
}

#[test]
fn a_client_that_asks_for_prompt_progress_sees_it() {
    let world = World::start();
    let mut body = long_chat();
    body["return_progress"] = json!(true);
    let through = ask(world.edgeward.port, &body);
    assert_answered_by(&through, "local");
    let progress: Vec<u64> = through
        .events()
        .0
        .iter()
        .filter_map(|event| event["prompt_progress"]["processed"].as_u64())
        .collect();
    assert!(progress.len() > 2 && progress.is_sorted(), "{progress:?}");
}

#[test]
fn what_a_local_server_cannot_serve_goes_to_the_cloud_and_the_rest_stays() {
    let world = World::with(&["--no-jinja", "--ctx", "256", "--parallel", "1"], PATIENT);
    let mut tools = chat("Name three colours.");
    tools["tools"] =
        json!([{ "type": "function", "function": { "name": "f", "parameters": { "type": "object" } } }]);
    let mut several = chat("Name three colours.");
    several["n"] = json!(2);
    let refused = [(&tools, "unsupported"), (&several, "unsupported"), (&long_chat(), "context_overflow")];
    for stream in [true, false] {
        for (body, cause) in refused {
            let mut body = body.clone();
            body["stream"] = json!(stream);
            let answer = ask(world.edgeward.port, &body);
            assert_answered_by(&answer, "cloud");
            assert_eq!(local_cause(&answer), cause);
        }
    }
    assert_answered_by(&ask(world.edgeward.port, &chat("Name three fruits.")), "local");
}

#[test]
fn a_local_server_killed_while_it_computes_the_prompt_is_not_noticed() {
    let mut world = World::start();
    let body = long_chat();
    let expected = http::post(world.cloud.port, "/v1/chat/completions", &body).unwrap();

    let answer = thread::scope(|scope| {
        let client = scope.spawn(|| ask(world.edgeward.port, &body));
        world.local.wait_computing_prompt();
        world.local.process.kill();
        client.join().unwrap()
    });
    assert_answered_by(&answer, "cloud");
    let cause = local_cause(&answer);
    assert!(["reset", "closed", "crashed"].contains(&cause.as_str()), "{cause}");
    assert_eq!(answer.comparable(), expected.comparable());
    assert!(!answer.chat_text().is_empty());

    // Nothing listens there any more: the next request goes the same way, at once.
    let answer = ask(world.edgeward.port, &chat("Name three colours."));
    assert_answered_by(&answer, "cloud");
    assert!(!answer.chat_text().is_empty());
}

#[test]
fn a_local_server_stopped_before_the_request_runs_into_the_first_token_deadline() {
    let world = World::with(&[], SHORT_KEYS);
    let body = chat("Name three colours.");
    world.local.process.signal("STOP");

    let asked = edgeward::time::now();
    let answer = ask(world.edgeward.port, &body);
    let took = edgeward::time::now() - asked;
    assert_answered_by(&answer, "cloud");
    assert_eq!(local_cause(&answer), "timeout_first_token");
    assert!(took >= SHORT, "{took:?}");
    assert!(!answer.chat_text().is_empty());

    world.local.process.signal("CONT");
    world::wait_for("the local server to be used again", || {
        let answer = ask(world.edgeward.port, &body);
        !answer.chat_text().is_empty() && answer.header("x-edgeward-target") == "local"
    });
}

#[test]
fn a_local_server_stopped_while_it_computes_the_prompt_runs_into_the_first_token_deadline() {
    let world = World::with(&[], SHORT_KEYS);
    let body = long_chat();
    let answer = thread::scope(|scope| {
        let client = scope.spawn(|| ask(world.edgeward.port, &body));
        world.local.wait_computing_prompt();
        world.local.process.signal("STOP");
        client.join().unwrap()
    });
    assert_answered_by(&answer, "cloud");
    assert_eq!(local_cause(&answer), "timeout_first_token");
    assert!(!answer.chat_text().is_empty());
}

#[test]
fn a_local_server_that_starts_later_is_used_again() {
    let _turn = world::take_turn();
    let (_cloud, front) = world::start_cloud();
    let port = world::free_port();
    let edgeward = Edgeward::start(port, &front, PATIENT);
    let body = chat("Name three colours.");

    let answer = ask(edgeward.port, &body);
    assert_answered_by(&answer, "cloud");
    assert_eq!(local_cause(&answer), "refused");
    let by_cloud = answer.comparable();

    let _local = Model::start("local llama.cpp", port, &[]);
    world::wait_for("the local server to be used", || {
        let answer = ask(edgeward.port, &body);
        assert_eq!(answer.comparable(), by_cloud);
        answer.header("x-edgeward-target") == "local"
    });
}

#[test]
fn an_error_inside_a_200_before_the_first_token_is_not_noticed() {
    // Both slots share 512 tokens of context. The first request holds 300 and more with each token; the second's
    // prompt of 300 exhausts the rest after llama.cpp sent its 200 and its progress.
    let world = World::with(
        &["--shared-ctx", "--ctx", "512"],
        r#"context = 512
deadlines = { first_token = "60s" }"#,
    );
    let mut first = chat(&"word ".repeat(270));
    first["max_tokens"] = json!(400);
    first["ignore_eos"] = json!(true);
    let mut second = chat(&"Tell me a story about a fox and a hen. ".repeat(24));
    second["max_tokens"] = json!(8);

    let _first = http::send(world.local.port, "/v1/chat/completions", &first).unwrap();
    world.local.wait_generating();
    let answer = ask(world.edgeward.port, &second);
    assert_answered_by(&answer, "cloud");
    let cause = local_cause(&answer);
    assert!(["context_overflow", "overloaded", "error_in_stream"].contains(&cause.as_str()), "{cause}");
    assert!(!answer.chat_text().is_empty());
}

#[test]
fn a_client_that_leaves_before_the_first_token_frees_the_slot() {
    let world = World::start();
    // Seconds of prompt on the fastest machine, so that the slot becomes free before a first token or not at all.
    let body = chat(&"Tell me a story about a fox and a hen. ".repeat(300));
    let client = http::send(world.edgeward.port, "/v1/chat/completions", &body).unwrap();
    world.local.wait_computing_prompt();
    drop(client);
    world.local.wait_idle_without_token();
    world.cloud.wait_idle();
}

#[test]
fn the_openai_client_streams_embeds_and_leaves() {
    let world = World::start();
    let client = world::python("openai_client.py")
        .arg(format!("http://127.0.0.1:{}/v1", world.edgeward.port))
        .arg(MODEL)
        .arg(format!("http://127.0.0.1:{}/slots", world.local.port))
        .output()
        .unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&client.stdout), String::from_utf8_lossy(&client.stderr));
    assert!(client.status.success(), "{stdout}{stderr}");
    assert!(stdout.ends_with("done\n"), "{stdout}{stderr}");
    world.local.wait_idle();
}

#[test]
fn a_healthy_slow_box_keeps_its_work() {
    let _turn = world::take_turn();
    let mut scenes = world::python("healthy.py");
    translated::passes(scenes.args(["--quick", "--edgeward", env!("CARGO_BIN_EXE_edgeward")]));
}
