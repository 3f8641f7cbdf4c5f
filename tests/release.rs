//! A built release, as its user has it: the version, `check`, and a failover between two servers.
//!
//! `tests/release` runs this once for each architecture, with `EDGEWARD_PROGRAM` naming the program (before it an
//! emulator, if it needs one); without that it is the program that cargo built for the tests.
#![cfg(feature = "sim")]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test's helpers may fail the test"
)]

use std::path::Path;
use std::time::Duration;

use edgeward::dialect::Dialect;
use edgeward::sim::cases;
use edgeward::sim::model::healthy;
use edgeward::sim::server::SimServer;
use support::{Edgeward, post, program, run, said};

#[expect(dead_code, reason = "shared with tests that look closer")]
mod support;

/// An emulated program is some ten times slower.
const LIMIT: Duration = Duration::from_secs(60);

const CONFIG: &str = r#"
listen = ["127.0.0.1:0"]

[[target]]
name = "box"
kind = "vllm"
url = "BOX"
place = "local"
group = "primary"

[[target]]
name = "cloud"
kind = "vllm"
url = "CLOUD"
place = "cloud"
models = { "*" = "m" }
group = "fallback"

[router]
groups = ["primary", "fallback"]
"#;

/// `EX_CONFIG` of sysexits.h.
const EXIT_CONFIG: i32 = 78;

async fn answers(arguments: &[&str]) -> (Option<i32>, String) {
    let done = program().args(arguments).env_clear().output().await.unwrap();
    (done.status.code(), String::from_utf8([done.stdout, done.stderr].concat()).unwrap())
}

#[test]
fn version() {
    run(LIMIT, async {
        let wanted = format!("edgeward {}\n", env!("CARGO_PKG_VERSION"));
        assert_eq!(answers(&["--version"]).await, (Some(0), wanted));
    });
}

#[test]
fn check() {
    run(LIMIT, async {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd/edgeward.toml");
        let (code, text) = answers(&["check", "--config", shipped.to_str().unwrap()]).await;
        assert_eq!(code, Some(0), "{text}");
        let wrong = folder.join(format!("release-{}.toml", std::process::id()));
        std::fs::write(&wrong, "listen = [\"127.0.0.1:8484\"]\nlisten_on = 1\n").unwrap();
        let (code, text) = answers(&["check", "--config", wrong.to_str().unwrap()]).await;
        std::fs::remove_file(&wrong).unwrap();
        assert_eq!(code, Some(EXIT_CONFIG), "{text}");
        assert!(text.contains("listen_on"), "{text}");
    });
}

/// Out of memory, no answer at all, an end before the first token: the client sees none of it.
#[test]
fn failover() {
    run(LIMIT, async {
        let troubles = ["chat-oom-500", "chat-empty-200", "chat-done-only"];
        let scripts: Vec<_> = troubles.iter().map(|id| cases::find(id).unwrap().unwrap().script).collect();
        let local = SimServer::start(scripts).await.unwrap();
        let healthy = healthy("cloud");
        let text = healthy.text();
        let cloud = SimServer::start(healthy).await.unwrap();
        let edgeward =
            Edgeward::start(&CONFIG.replace("BOX", &local.url()).replace("CLOUD", &cloud.url())).await;
        let body = r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}"#;
        for trouble in troubles {
            let answer = post(edgeward.addr, "/v1/chat/completions", body, &[]).await;
            let (got, log) = (answer.text(), edgeward.log());
            assert_eq!(answer.status, 200, "{trouble}: {got}\n{log}");
            assert_eq!(answer.header("x-edgeward-target"), Some("cloud"), "{trouble}\n{log}");
            let attempts = answer.header("x-edgeward-attempts").unwrap();
            assert!(attempts.starts_with("box:") && attempts.ends_with(",cloud:committed"), "{attempts}");
            let said = said(Dialect::OpenaiChat, true, &answer.body);
            assert!(answer.clean && said.ended && said.errors.is_empty(), "{trouble}: {got}");
            assert_eq!(said.text, text, "{trouble}");
        }
        assert_eq!((local.counts().requests, cloud.counts().requests), (3, 3));
    });
}
