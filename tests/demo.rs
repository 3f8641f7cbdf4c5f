//! `edgeward demo`, the built program: what a visitor sees is what is promised, and the exit code says so.
#![cfg(feature = "sim")]
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test's helpers may fail the test")]

use std::process::Stdio;
use std::time::Duration;

use edgeward::dialect::Dialect;
use edgeward::sim::demo::{Promise, SCENES, WIDTH};
use support::{post, run, said};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};

#[expect(dead_code, clippy::panic, reason = "shared; the demo brings its own configuration")]
mod support;

/// The demo's own promise.
const LIMIT: Duration = Duration::from_secs(15);

fn demo(once: &str) -> Child {
    Command::new(env!("CARGO_BIN_EXE_edgeward"))
        .arg("demo")
        .env_clear()
        .env("EDGEWARD_DEMO_ONCE", once)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

#[test]
fn each_scene_shows_what_it_promises() {
    run(LIMIT, async {
        let done = demo("1").wait_with_output().await.unwrap();
        let (text, errors) =
            (String::from_utf8(done.stdout).unwrap(), String::from_utf8(done.stderr).unwrap());
        assert!(done.status.success(), "{text}\n{errors}");
        assert_eq!(errors, "");
        assert!(!text.contains('\x1b'), "no colours where there is no terminal");
        for line in text.lines() {
            assert!(line.chars().count() <= WIDTH, "{line}");
            assert_eq!(line, line.trim_end());
        }
        // What precedes the first scene, then one block a scene.
        let blocks: Vec<&str> = text.split("\n\n").collect();
        let played: Vec<_> = SCENES.iter().filter(|scene| scene.played).collect();
        assert_eq!(blocks.len(), played.len() + 2, "{text}");
        for (block, scene) in blocks[1..].iter().zip(played) {
            let has = |what: &str| assert!(block.contains(what), "{what:?} is not in\n{block}");
            has(&format!("{:<14} {}", scene.model, scene.title));
            has(&format!("x-edgeward-target: {}", scene.target()));
            has(scene.attempts);
            has(&format!("gate  commits to {}", scene.target()));
            has(&format!("[{}]", scene.target()));
            match scene.promise {
                Promise::Broken => {
                    has("error: the answer broke off: box:");
                    has("no [DONE], and the connection breaks");
                    has("✓ broken off, and the client knows it");
                }
                Promise::Box | Promise::Cloud => {
                    has("[DONE], and a clean end");
                    has("is done: 13 tokens");
                    has("✓ answered whole; first token after ");
                }
            }
            if scene.promise == Promise::Cloud {
                assert!(!block.contains("commits to box"), "{block}");
                has(if scene.off() { "box   is off" } else { "box   says " });
            }
            assert_eq!(block.contains("is cancelled: its"), scene.hung_up, "{block}");
        }
        assert!(text.ends_with("8 requests: 7 answered whole, 1 broke midway and said so.\n"), "{text}");
    });
}

#[test]
fn then_it_serves_until_it_is_interrupted() {
    run(LIMIT, async {
        let mut child = demo("");
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut curls = Vec::new();
        while curls.len() < 3 {
            let line = lines.next_line().await.unwrap().expect("three commands, then it serves");
            if let Some(rest) = line.strip_prefix("curl -iN http://") {
                let (addr, path) = rest.split_once('/').unwrap();
                let path = path.split(' ').next().unwrap();
                let body = lines.next_line().await.unwrap().unwrap();
                let body = body.trim().strip_prefix("-d '").and_then(|body| body.strip_suffix('\''));
                curls.push((addr.parse().unwrap(), format!("/{path}"), body.unwrap().to_owned()));
            }
        }
        for ((addr, path, body), target) in curls.iter().zip(["box", "cloud", "cloud"]) {
            let answer = post(*addr, path, body, &[]).await;
            assert_eq!((answer.status, answer.clean), (200, true), "{body}");
            assert_eq!(answer.header("x-edgeward-target"), Some(target), "{body}");
            assert!(answer.text().contains(&format!("[{target}]")), "{}", answer.text());
        }
        // What is not played in the demo keeps its promise too.
        for scene in SCENES.iter().filter(|scene| !scene.played) {
            let body = format!(
                r#"{{"model":"{}","stream":true,"messages":[{{"role":"user","content":"hi"}}]}}"#,
                scene.model
            );
            let answer = post(curls[0].0, &curls[0].1, &body, &[]).await;
            assert_eq!((answer.status, answer.clean), (200, true), "{}", scene.model);
            assert_eq!(answer.header("x-edgeward-attempts"), Some(scene.attempts));
            let said = said(Dialect::OpenaiChat, true, &answer.body);
            assert!(said.ended && said.errors.is_empty() && said.text.contains(scene.target()), "{said:?}");
        }
        let id = child.id().unwrap().to_string();
        assert!(Command::new("kill").args(["-INT", &id]).status().await.unwrap().success());
        assert!(child.wait().await.unwrap().success());
        let mut rest = String::new();
        lines.into_inner().read_to_string(&mut rest).await.unwrap();
        assert!(rest.contains("box   says 500: CUDA out of memory."), "{rest}");
    });
}
