//! A configuration file that changes under a running program: at once, in part, as a rollout, or not at all.

use std::path::PathBuf;
use std::rc::Rc;

use edgeward::sim::model::healthy;
use edgeward::sim::server::{SimServer, refused_port};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::Notify;

use crate::LIMIT;
use crate::program::{CHAT, Program, Wire, ask, chat, find, quiet, request, run, target, target_at, token};

const HERE: &str = "listen = [\"127.0.0.1:0\"]\n";

/// Puts another configuration in the file's place, as an editor does.
pub fn rewrite(program: &Program, config: &str) {
    let new = program.folder.write("edgeward.toml.new", &format!("{config}{}", quiet(config)));
    std::fs::rename(new, program.folder.0.join("edgeward.toml")).unwrap();
}

/// Lines of the log that have all of `parts`.
fn lines(program: &Program, parts: &[&str]) -> Vec<String> {
    let log = program.log();
    log.lines().filter(|line| parts.iter().all(|part| line.contains(part))).map(str::to_owned).collect()
}

/// Who answers the next request; `None` where nobody does.
async fn answers(program: &Program) -> Option<String> {
    let answer = ask(program.addr, "POST", CHAT, &[], &chat(true)).await;
    (answer.status == 200).then(|| answer.header("x-edgeward-target").unwrap().to_owned())
}

/// A model server that sends one token, and the rest when it is told to.
struct Patient {
    url: String,
    go: Rc<Notify>,
}

impl Patient {
    async fn start() -> Patient {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let go = Rc::new(Notify::new());
        let told = Rc::clone(&go);
        tokio::task::spawn_local(async move {
            loop {
                let (mut socket, _) = listener.accept().await.unwrap();
                let told = Rc::clone(&told);
                tokio::task::spawn_local(async move {
                    let mut read = Vec::new();
                    while find(&read, b"\r\n\r\n{").is_none() && socket.read_buf(&mut read).await.unwrap() > 0
                    {
                    }
                    let event = |text: &str| token(text).replacen("D ", "data: ", 1) + "\n";
                    let first =
                        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
                    socket.write_all((first.to_owned() + &event("first")).as_bytes()).await.unwrap();
                    told.notified().await;
                    let last = event("last").replace("}}]", "},\"finish_reason\":\"stop\"}]");
                    let _ = socket.write_all((last + "data: [DONE]\n\n").as_bytes()).await;
                });
            }
        });
        Patient { url, go }
    }
}

/// A port that was free a moment ago.
async fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port()
}

#[test]
fn a_changed_file_is_in_use_and_a_bad_one_changes_nothing() {
    run(LIMIT, async {
        let (a, b) =
            (SimServer::start(healthy("a")).await.unwrap(), SimServer::start(healthy("b")).await.unwrap());
        let program = Program::start(&target("a", "openai", &a, "")).await;
        assert_eq!(answers(&program).await.as_deref(), Some("a"));
        let secret = "sk-very-secret-0123456789";
        program.folder.write("key", secret);
        let new = HERE.to_owned() + &target("b", "openai", &b, "key = { file = \"key\" }");
        rewrite(&program, &new);
        program
            .logged(&["reloaded", "targets=1", "target \\\"a\\\": removed", "target \\\"b\\\": added"])
            .await;
        assert_eq!(answers(&program).await.as_deref(), Some("b"));
        assert!(!program.log().contains(secret));

        rewrite(&program, &(new.clone() + "[limit]\n"));
        program.logged(&["reload_failed", "edgeward.toml:", "limit: is not a key"]).await;
        assert_eq!(answers(&program).await.as_deref(), Some("b"));
        std::fs::remove_file(program.folder.0.join("edgeward.toml")).unwrap();
        program.logged(&["reload_failed", "there is no such file"]).await;
        assert_eq!(answers(&program).await.as_deref(), Some("b"));
        rewrite(&program, &new);
        program.logged(&["reloaded", "nothing changed"]).await;
        assert_eq!(lines(&program, &[" reloaded "]).len(), 2);

        // What memory was made for at the start.
        rewrite(&program, &format!("lock_memory = false\n{new}[limits]\ngated_streams = 3\n"));
        program.logged(&["reloaded", "restart=lock_memory,limits.gated_streams"]).await;
    });
}

#[test]
fn listeners_come_and_go_and_a_running_stream_keeps_its_own() {
    run(LIMIT, async {
        let patient = Patient::start().await;
        let b = SimServer::start(healthy("b")).await.unwrap();
        let folder = crate::program::Folder::new();
        let admin = |name: &str| folder.0.join(name);
        let (first, second) = (admin("one.sock"), admin("two.sock"));
        let operators = |path: &PathBuf| format!("admin_listen = \"{}\"\n", path.display());
        let old = operators(&first) + &target_at("old", "openai", &patient.url, "");
        let new = target("b", "openai", &b, "");
        let program = Program::start_in(folder, &old, &[]).await;
        let mut running = Wire::connect(program.addr).await;
        running.write(request("POST", CHAT, &[("Connection", "close")], &chat(true))).await;
        running.until("first").await;

        // A port that is taken: nothing changes.
        let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let taken = taken.local_addr().unwrap();
        rewrite(&program, &format!("listen = [\"{taken}\"]\n{}{new}", operators(&second)));
        program.logged(&["reload_failed", &format!("cannot listen on {taken}")]).await;
        assert!(TcpStream::connect(program.addr).await.is_ok() && first.exists() && !second.exists());

        // One more, then only that one; then the same port at every address.
        let port = free_port().await;
        let loopback = format!("127.0.0.1:{port}");
        rewrite(&program, &format!("listen = [\"127.0.0.1:0\", \"{loopback}\"]\n{}{new}", operators(&first)));
        program.logged(&["reloaded", &loopback]).await;
        for addr in [program.addr, loopback.parse().unwrap()] {
            let answer = ask(addr, "POST", CHAT, &[], &chat(true)).await;
            assert_eq!(answer.header("x-edgeward-target"), Some("b"));
        }
        let mut idle = Wire::connect(program.addr).await;
        rewrite(&program, &format!("listen = [\"{loopback}\"]\n{}{new}", operators(&second)));
        program.logged(&["reloaded", "two.sock"]).await;
        let asked = ask(loopback.parse().unwrap(), "POST", CHAT, &[], &chat(true)).await;
        assert_eq!(asked.status, 200);
        let refused = async { while TcpStream::connect(program.addr).await.is_ok() {} };
        tokio::time::timeout(crate::program::SOON, refused).await.expect("the old one is closed");
        idle.write(request("POST", CHAT, &[], &chat(true))).await;
        assert_eq!(idle.answer().await.status, 200, "its connections go on");
        let mut asked = Wire::over(UnixStream::connect(&second).await.unwrap());
        asked.write(request("GET", "/edgeward/status", &[], "")).await;
        assert_eq!(asked.answer().await.status, 200);
        assert!(!first.exists());

        rewrite(&program, &format!("listen = [\"0.0.0.0:{port}\"]\nallow_anonymous = true\n{new}"));
        program.logged(&["reloaded", "0.0.0.0"]).await;
        let asked = ask(loopback.parse().unwrap(), "POST", CHAT, &[], &chat(true)).await;
        assert_eq!(asked.status, 200);
        let shared = std::net::TcpListener::bind(("127.0.0.1", port));
        assert!(shared.is_err(), "nobody else can have the port");
        assert!(!second.exists());

        // Four reloads later.
        patient.go.notify_waiters();
        let rest = String::from_utf8(running.rest().await).unwrap();
        assert!(rest.contains("last") && rest.contains("[DONE]"), "{rest}");
        program.logged(&["request_done", "target=old", "outcome=answered"]).await;
    });
}

fn rollout(share: &str, hold: &str, min_samples: u32) -> String {
    format!("\n[rollout]\nshare = \"{share}\"\nhold = \"{hold}\"\nmin_samples = {min_samples}\n")
}

#[test]
fn a_rollout_takes_its_share_and_then_everything() {
    run(LIMIT, async {
        let (a, b) =
            (SimServer::start(healthy("a")).await.unwrap(), SimServer::start(healthy("b")).await.unwrap());
        let program = Program::start(&target("a", "openai", &a, "")).await;
        let terms = rollout("50%", "1s", 4);
        rewrite(&program, &(HERE.to_owned() + &target("b", "openai", &b, "") + &terms));
        program.logged(&["rollout_started", "share=50%"]).await;
        let mut seen = Vec::new();
        for _ in 0..8 {
            seen.extend(answers(&program).await);
        }
        assert_eq!(seen, ["a", "b", "a", "b", "a", "b", "a", "b"]);
        program.logged(&["rollout_promoted", "few=false", "new=\"4 requests, 0 rescued, 0 failed"]).await;
        for _ in 0..4 {
            assert_eq!(answers(&program).await.as_deref(), Some("b"));
        }
        assert!(program.status().await["rollout"].is_null());
    });
}

#[test]
fn a_rollout_to_a_dead_target_is_rolled_back_and_costs_its_share_at_most() {
    run(LIMIT, async {
        let a = SimServer::start(healthy("a")).await.unwrap();
        let dead = refused_port().unwrap();
        let program = Program::start(&target("a", "openai", &a, "")).await;
        let bad = target_at("b", "openai", &format!("http://{}", dead.addr()), "");
        rewrite(&program, &(HERE.to_owned() + &bad + &rollout("20%", "60s", 5)));
        program.logged(&["rollout_started"]).await;
        let (mut asked, mut failed) = (0, 0);
        while lines(&program, &["rollout_rolled_back"]).is_empty() {
            asked += 1;
            failed += u32::from(answers(&program).await.is_none());
            assert!(failed * 5 <= asked && failed <= 6, "{failed} of {asked} failed");
            if failed == 4 {
                let status = program.status().await;
                let rollout = &status["rollout"];
                assert_eq!((&rollout["share_permille"], &rollout["min_samples"]), (&200.into(), &5.into()));
                assert_eq!((&rollout["new"]["requests"], &rollout["new"]["failed"]), (&4.into(), &4.into()));
                assert_eq!(rollout["old"]["failed"], 0);
            }
        }
        program.logged(&["rollout_rolled_back", "each of its first requests failed"]).await;
        for _ in 0..10 {
            assert_eq!(answers(&program).await.as_deref(), Some("a"));
        }
        assert!(program.status().await["rollout"].is_null());
    });
}

#[test]
fn a_rollout_behind_a_healthy_fallback_is_rolled_back_as_well() {
    run(LIMIT, async {
        let (a, b) =
            (SimServer::start(healthy("a")).await.unwrap(), SimServer::start(healthy("b")).await.unwrap());
        let dead = refused_port().unwrap();
        let fallback = target("b", "openai", &b, "");
        let program = Program::start(&(target("a", "openai", &a, "") + &fallback)).await;
        let bad = target_at("a", "openai", &format!("http://{}", dead.addr()), "") + &fallback;
        rewrite(&program, &(HERE.to_owned() + &bad + &rollout("50%", "60s", 8)));
        program.logged(&["rollout_started"]).await;
        while lines(&program, &["rollout_rolled_back"]).is_empty() {
            assert!(answers(&program).await.is_some(), "the fallback answers");
        }
        program.logged(&["rollout_rolled_back", "the first one fails"]).await;
        assert_eq!(answers(&program).await.as_deref(), Some("a"));
    });
}

#[test]
fn during_a_rollout_keys_count_at_once_and_another_reload_replaces_or_ends_it() {
    run(LIMIT, async {
        let (a, b) =
            (SimServer::start(healthy("a")).await.unwrap(), SimServer::start(healthy("b")).await.unwrap());
        let (to_a, to_b) = (target("a", "openai", &a, ""), target("b", "openai", &b, ""));
        let program = Program::start(&to_a).await;
        let terms = rollout("50%", "60s", 10);
        let write =
            |more: &str, targets: &str| rewrite(&program, &(HERE.to_owned() + more + targets + &terms));

        // No change of the routing is no rollout.
        write("hosts = [\"box.lan\"]\n", &to_a);
        program.logged(&["reloaded", "box.lan"]).await;
        assert!(program.status().await["rollout"].is_null());
        let named = || ask(program.addr, "GET", "/v1/models", &[("Host", "box.lan")], "");
        assert_eq!(named().await.status, 200);

        write("", &to_b);
        program.logged(&["rollout_started"]).await;
        assert_eq!(named().await.status, 403, "everything else is in use at once");
        answers(&program).await;
        answers(&program).await;
        let requests = |status: &serde_json::Value| {
            (status["rollout"]["old"]["requests"].clone(), status["rollout"]["new"]["requests"].clone())
        };
        assert_eq!(requests(&program.status().await), (1.into(), 1.into()));

        // The same routing, and something else: the rollout goes on.
        write("hosts = [\"other.lan\"]\n", &to_b);
        program.logged(&["reloaded", "other.lan"]).await;
        assert_eq!(requests(&program.status().await), (1.into(), 1.into()));
        let seen = [answers(&program).await, answers(&program).await];
        assert_eq!(seen.map(Option::unwrap), ["a", "b"]);

        // Another routing: another rollout, against the same old one.
        write("", &(to_a.clone() + "weight = 7\n"));
        program.logged(&["reloaded", "target \\\"a\\\": added"]).await;
        program.logged(&["rollout_rolled_back", "yet another routing", "new=\"2 requests"]).await;
        assert_eq!(requests(&program.status().await), (0.into(), 0.into()));
        assert_eq!(lines(&program, &["rollout_started"]).len(), 2);
        assert_eq!(answers(&program).await.as_deref(), Some("a"));

        // The old routing: none.
        write("hosts = [\"last.lan\"]\n", &to_a);
        program.logged(&["rollout_rolled_back", "has the old routing again"]).await;
        assert!(program.status().await["rollout"].is_null());
        assert_eq!(answers(&program).await.as_deref(), Some("a"));

        // No rollout any more: all of it at once, and that is said.
        write("", &to_b);
        program.logged(&["reloaded", "hosts: last.lan"]).await;
        rewrite(&program, &(HERE.to_owned() + &to_b));
        program.logged(&["rollout_promoted", "few=true"]).await;
        assert!(program.status().await["rollout"].is_null());
        assert_eq!(answers(&program).await.as_deref(), Some("b"));
    });
}

#[test]
fn a_drill_says_nothing_about_a_rollout() {
    run(LIMIT, async {
        let a = SimServer::start(healthy("a")).await.unwrap();
        let to_a = target("a", "openai", &a, "");
        let program = Program::start(&to_a).await;
        rewrite(&program, &(HERE.to_owned() + &to_a + "weight = 7\n" + &rollout("50%", "60s", 1)));
        program.logged(&["rollout_started"]).await;
        let json = [("content-type", "application/json")];
        let drill = ask(program.addr, "POST", "/edgeward/drill", &json, r#"{"yes":true,"requests":2}"#).await;
        assert_eq!(drill.status, 200, "{}", drill.text());
        assert_eq!([answers(&program).await, answers(&program).await], [None, None]);
        for _ in 0..2 {
            assert_eq!(answers(&program).await.as_deref(), Some("a"));
        }
        let status = program.status().await;
        for side in ["old", "new"] {
            let side = &status["rollout"][side];
            assert_eq!((&side["requests"], &side["failed"]), (&1.into(), &0.into()), "{status}");
        }
    });
}
