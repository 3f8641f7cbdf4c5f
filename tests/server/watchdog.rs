//! Memory runs out, by a cgroup's files that a test writes: local targets get nothing new, in a rollout's routing too.

use std::fs::OpenOptions;
use std::io::Write as _;

use edgeward::sim::model::healthy;
use edgeward::sim::server::SimServer;

use crate::LIMIT;
use crate::program::{CHAT, Folder, Program, SOON, ask, chat, quiet, run, target};

const PRESSURE: &str = "edgeward_memory_pressure";

/// Figures of the same length over what is there: a reader sees the old ones or the new ones.
pub fn overwrite(folder: &Folder, name: &str, text: &str) {
    let mut file = OpenOptions::new().write(true).open(folder.0.join(name)).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

async fn answers(program: &Program) -> String {
    let answer = ask(program.addr, "POST", CHAT, &[], &chat(true)).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.header("x-edgeward-target").unwrap().to_owned()
}

fn rewrite(program: &Program, config: &str) {
    let text = format!("listen = [\"127.0.0.1:0\"]\n{config}{}", quiet(config));
    let new = program.folder.write("edgeward.toml.new", &text);
    std::fs::rename(new, program.folder.0.join("edgeward.toml")).unwrap();
}

#[test]
fn red_bars_local_targets_in_each_routing_until_it_is_over() {
    run(2 * LIMIT, async {
        let group = Folder::new();
        for (name, text) in [
            ("memory.max", "1073741824\n"),
            ("memory.high", "max\n"),
            ("memory.current", "0100000000\n"),
            ("memory.stat", "inactive_file 0\nactive_file 0\n"),
            ("memory.events", "oom_kill 0\n"),
        ] {
            group.write(name, text);
        }
        let (here, there) =
            (SimServer::start(healthy("a")).await.unwrap(), SimServer::start(healthy("b")).await.unwrap());
        let local = target("box", "openai", &here, "");
        let lan = target("shelf", "openai", &there, "").replace("place = \"local\"", "place = \"lan\"");
        let memory = format!(
            "[memory]\ncgroup = \"{}\"\ninterval = \"10ms\"\nfloor = \"300MiB\"\nhold = \"1h\"\n",
            group.0.display()
        );
        let config = format!("{local}{lan}{memory}");
        let program = Program::start(&config).await;
        program.until_metric(PRESSURE, 0.0).await;
        assert_eq!(answers(&program).await, "box");

        overwrite(&group, "memory.current", "1000000000\n");
        program.until_metric(PRESSURE, 1.0).await;
        program.logged(&["WARN  pressure", "pressure=amber", "axis=cgroup", "available=73742336"]).await;
        assert_eq!(answers(&program).await, "box", "Amber is only told");
        let status = program.status().await;
        let said = |path| status.pointer(path).and_then(|word| word.as_str()).unwrap_or_default();
        assert_eq!(said("/memory/pressure"), "amber");
        assert!(said("/memory/figures").starts_with("70 MiB of 1024 MiB (cgroup), low below 300 MiB"));

        // All requests go through a routing that is tried, and was made before the second sign.
        let rollout = "[rollout]\nshare = \"100%\"\nmin_samples = 1000\n";
        rewrite(&program, &format!("heartbeat = \"9s\"\n{rollout}{config}"));
        program.logged(&["rollout_started"]).await;
        assert_eq!(answers(&program).await, "box");
        overwrite(&group, "memory.events", "oom_kill 1\n");
        program.until_metric(PRESSURE, 2.0).await;
        program.logged(&["WARN  pressure", "pressure=red"]).await;
        assert_eq!(answers(&program).await, "shelf");
        let status = program.status().await;
        assert_eq!(status.pointer("/targets/0/candidate").and_then(|is| is.as_bool()), Some(false));

        // What only this process knows is forgotten with it.
        rewrite(&program, &config.replace("[memory]\n", "[memory]\nenabled = false\n"));
        program.logged(&["reloaded", "memory.enabled: true → false"]).await;
        let back = async { while answers(&program).await != "box" {} };
        tokio::time::timeout(SOON, back).await.expect("it is not watched any more");
        assert!(!program.metrics().await.contains_key(PRESSURE));
    });
}

#[test]
fn what_it_sees_is_recorded_of_the_running_one() {
    run(LIMIT, async {
        let server = SimServer::start(healthy("a")).await.unwrap();
        let program = Program::start(&format!(
            "{}[memory]\ninterval = \"10ms\"\n",
            target("box", "openai", &server, "")
        ))
        .await;
        // The second is no rest of the first.
        for _ in 0..2 {
            let (mut trace, mut path) = (String::new(), "/edgeward/trace?begin");
            while trace.matches("\ns ").count() < 2 {
                let answer = ask(program.addr, "POST", path, &[], "{}").await;
                assert_eq!(answer.status, 200, "{}", answer.text());
                trace.push_str(&answer.text());
                path = "/edgeward/trace";
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
            let another = ask(program.addr, "POST", "/edgeward/trace?begin", &[], "{}").await;
            assert_eq!(another.status, 409);
            assert!(another.text().contains("another `edgeward record` is running"), "{}", another.text());
            assert_eq!(ask(program.addr, "POST", "/edgeward/trace?end", &[], "{}").await.status, 200);
            assert!(trace.starts_with("edgeward-trace 1 ") && trace.contains("\nk "), "{trace}");
        }
        let other = [("origin", "http://elsewhere.example")];
        let refused = ask(program.addr, "POST", "/edgeward/trace", &other, "{}").await;
        assert_eq!(refused.status, 403, "{}", refused.text());
    });
}
