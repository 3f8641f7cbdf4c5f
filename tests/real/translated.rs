//! Real clients of every dialect against targets of every kind: what crosses from one to the other, both ways.

use std::fmt::Write as _;
use std::process::Command;

use crate::process::Process;
use crate::world::{self, Edgeward, MODEL, Model};

/// The kinds of `targets.py`, and what a base URL of theirs ends with.
const KINDS: [(&str, &str); 4] = [("openai", "/v1"), ("ollama", ""), ("anthropic", ""), ("gemini", "")];

/// Scripted servers of every kind, failing ones first, and edgeward before them.
fn scripted() -> (Process, String, Edgeward) {
    let (servers, port) = Process::start("scripted servers", &mut world::python("targets.py"), "ready ");
    let mut config = String::from("[router]\ngroups = [\"primary\", \"fallback\"]\n");
    let mut target = |name: &str, kind: &str, group: &str, path: &str, models: &str| {
        write!(
            config,
            r#"
[[target]]
name = "{name}"
kind = "{kind}"
url = "http://127.0.0.1:{port}{path}"
place = "cloud"
group = "{group}"
max_retries = 0
models = {{ {models} }}
"#
        )
        .unwrap();
    };
    for (kind, end) in [KINDS[0], KINDS[2]] {
        let (name, path) = (format!("failing-{kind}"), format!("/failing{end}"));
        target(&name, kind, "primary", &path, r#""over-*" = "x""#);
    }
    for (kind, end) in KINDS {
        let models = format!(r#""{kind}" = "{kind}", "over-{kind}" = "{kind}""#);
        target(kind, kind, "fallback", &format!("/{kind}{end}"), &models);
    }
    target("llamacpp", "llamacpp", "fallback", "/llamacpp", r#""llamacpp" = "llamacpp""#);
    (servers, format!("http://127.0.0.1:{port}"), Edgeward::configured(&config))
}

/// Runs a client to its end, which must be a good one.
pub fn passes(client: &mut Command) {
    let output = client.output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{stdout}{stderr}");
}

fn against_every_kind(client: &str) {
    let (_servers, url, edgeward) = scripted();
    let edgeward = format!("http://127.0.0.1:{}", edgeward.port);
    passes(world::python("translated.py").args([client, &edgeward, &url]));
}

#[test]
fn the_openai_client_is_answered_by_every_kind_of_target() {
    against_every_kind("openai");
}

#[test]
fn the_openai_client_is_answered_by_other_kinds_through_responses() {
    against_every_kind("responses");
}

#[test]
fn the_anthropic_client_is_answered_by_every_kind_of_target() {
    against_every_kind("anthropic");
}

#[test]
fn the_ollama_client_is_answered_by_every_kind_of_target() {
    against_every_kind("ollama");
}

#[test]
fn an_agent_calls_its_tools_with_every_kind_of_target() {
    let (_servers, url, edgeward) = scripted();
    passes(world::python("agent.py").args([&format!("http://127.0.0.1:{}", edgeward.port), &url]));
}

#[test]
fn clients_of_every_dialect_are_answered_by_a_real_llama_cpp() {
    let _turn = world::take_turn();
    let model = Model::start("local llama.cpp", 0, &[]);
    let edgeward = Edgeward::configured(&format!(
        r#"
deadlines = {{ first_token = "60s" }}

[[target]]
name = "translated"
kind = "openai"
url = "http://127.0.0.1:{port}/v1"
models = {{ "translated" = "{MODEL}" }}

[[target]]
name = "native"
kind = "llamacpp"
url = "http://127.0.0.1:{port}"
models = {{ "native" = "{MODEL}" }}
"#,
        port = model.port
    ));
    // With other kinds than its own, `native` is asked for a translation as well.
    for client in ["openai", "responses", "anthropic", "ollama"] {
        let edgeward = format!("http://127.0.0.1:{}", edgeward.port);
        passes(world::python("translated.py").args([client, &edgeward]));
    }
}
