//! File descriptors run out: streams live, clients wait or are told, and it goes on when they return.

use std::collections::BTreeSet;
use std::time::Duration;

use edgeward::sim::model::healthy;
use edgeward::sim::server::SimServer;

use crate::program::{CHAT, Folder, Program, Wire, ask, chat, request, run, target};
use crate::{LIMIT, by};

/// The numbers of the descriptors that it has open.
fn open(pid: u32) -> BTreeSet<u64> {
    let names = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    names.map(|entry| entry.unwrap().file_name().to_string_lossy().parse().unwrap()).collect()
}

/// Allows descriptors below `limit` from now on; open ones stay.
fn allow(pid: u32, limit: u64) {
    let status = std::process::Command::new("prlimit")
        .args(["--pid", &pid.to_string(), &format!("--nofile={limit}:")])
        .status()
        .unwrap();
    assert!(status.success(), "prlimit");
}

/// Leaves it none.
fn exhaust(pid: u32) {
    let open = open(pid);
    allow(pid, (0..).find(|number| !open.contains(number)).unwrap());
}

fn soft_limit(pid: u32) -> String {
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    line.split_whitespace().nth(3).unwrap().to_owned()
}

#[test]
fn streams_live_clients_wait_and_are_served_when_descriptors_return() {
    run(LIMIT, async {
        let model = healthy("a").paced(12, Duration::ZERO, Duration::from_millis(100));
        let server = SimServer::start(model.clone()).await.unwrap();
        let program = Program::start(&target("a", "openai", &server, "")).await;
        let mut early = Wire::connect(program.addr).await;
        early.write(request("GET", "/edgeward/health", &[], "")).await;
        assert_eq!(early.answer().await.status, 200);
        let mut stream = Wire::connect(program.addr).await;
        stream.write(request("POST", CHAT, &[], &chat(true))).await;
        stream.until("[a]").await;

        exhaust(program.pid());
        let mut waiting = Wire::connect(program.addr).await;
        waiting.write(request("GET", "/edgeward/health", &[], "")).await;
        program.logged(&["ERROR", "accept_failed"]).await;
        // A request on a connection that is there finds no way to its target, which is not the target's fault.
        early.write(request("POST", CHAT, &[], &chat(true))).await;
        let refused = early.answer().await;
        assert_eq!(refused.status, 503, "{}", refused.text());
        assert!(refused.header("retry-after").is_some());
        assert!(refused.text().contains("no file descriptor"), "{}", refused.text());
        assert_eq!(refused.header("x-edgeward-attempts"), Some("a:exhausted"));
        let answer = stream.answer().await;
        assert!(answer.clean, "{}", answer.text());
        assert!(answer.text().contains("[DONE]"), "{}", answer.text());

        allow(program.pid(), 4096);
        assert_eq!(waiting.answer().await.status, 200, "the one who waited");
        let answer = ask(program.addr, "POST", CHAT, &[], &chat(true)).await;
        assert_eq!((answer.status, answer.clean), (200, true));
        let status = program.status().await;
        assert_eq!(status["targets"][0]["failed"], 0, "{status}");
        let told = program.log().lines().filter(|line| line.contains("accept_failed")).count();
        assert_eq!(told, 1, "once, not for each try: {}", program.log());
    });
}

#[test]
fn an_idle_connection_gives_way_to_a_request() {
    run(LIMIT, async {
        let (one, two) = (
            SimServer::start(healthy("one")).await.unwrap(),
            SimServer::start(healthy("two")).await.unwrap(),
        );
        let config = target("one", "openai", &one, "models = { \"x\" = \"*\" }")
            + &target("two", "openai", &two, "models = { \"m\" = \"*\" }");
        let program = Program::start(&config).await;
        let mut wire = Wire::connect(program.addr).await;
        wire.write(request("POST", CHAT, &[], &chat(true).replace("\"m\"", "\"x\""))).await;
        assert_eq!(wire.answer().await.header("x-edgeward-target"), Some("one"));
        let alone = open(program.pid());
        assert_eq!(program.status().await["targets"][0]["idle_connections"], 1);
        // Until nothing is left open of the connection that asked.
        while open(program.pid()) != alone {
            tokio::task::yield_now().await;
        }
        exhaust(program.pid());
        wire.write(request("POST", CHAT, &[], &chat(true))).await;
        let answer = wire.answer().await;
        assert_eq!((answer.status, answer.header("x-edgeward-target")), (200, Some("two")));
        assert_eq!(one.closed(1).await.open(), 0);
    });
}

#[test]
fn the_limit_is_raised_and_connections_are_let_in_as_far_as_it_goes() {
    run(LIMIT, async {
        let server = SimServer::start(healthy("a")).await.unwrap();
        let config = target("a", "openai", &server, "");
        let folder = Folder::new();
        let enough = by(&["prlimit", "--nofile=64:4096"], &folder, &config);
        let program = Program::started(folder, enough).await;
        assert_eq!(soft_limit(program.pid()), "4096");
        assert!(!program.log().contains("descriptors_low"), "{}", program.log());

        let folder = Folder::new();
        let few = by(&["prlimit", "--nofile=56:56"], &folder, &config);
        let program = Program::started(folder, few).await;
        program.logged(&["WARN", "descriptors_low", "have=56", "need=2096", "connections=4"]).await;
        let mut inside = Vec::new();
        for _ in 0..4 {
            let mut wire = Wire::connect(program.addr).await;
            wire.write(request("GET", "/edgeward/health", &[], "")).await;
            assert_eq!(wire.answer().await.status, 200);
            inside.push(wire);
        }
        // Many more: each is told, or closed, and none of them takes what the four need.
        let mut outside = Vec::new();
        for _ in 0..100 {
            outside.push(Wire::connect(program.addr).await);
        }
        for wire in &mut inside {
            wire.write(request("POST", CHAT, &[], &chat(true))).await;
        }
        for wire in &mut inside {
            let answer = wire.answer().await;
            assert_eq!((answer.status, answer.clean), (200, true), "{}", answer.text());
        }
        assert!(String::from_utf8_lossy(&outside.remove(0).rest().await).contains(" 503 "));
        assert!(!program.log().contains("accept_failed"), "{}", program.log());
    });
}

#[test]
fn check_says_that_the_limit_is_low() {
    run(LIMIT, async {
        let folder = Folder::new();
        let path = folder.write("edgeward.toml", "[limits]\nconnections = 1000\n");
        for (limit, low) in [("--nofile=1024:1024", true), ("--nofile=64:4096", false)] {
            let mut checked = tokio::process::Command::new("prlimit");
            checked.args([limit, env!("CARGO_BIN_EXE_edgeward"), "check", "--config"]).arg(&path);
            let output = checked.output().await.unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            assert!(output.status.success(), "{text}");
            assert!(text.lines().any(|line| line.starts_with("memory    at most 2")), "{text}");
            assert_eq!(text.contains("needs 2048 file descriptors and 1024 are allowed"), low, "{text}");
        }
    });
}
