//! The kernel kills a model server for its memory: the cause is known when its requests go on elsewhere.

use edgeward::sim::model::healthy;
use edgeward::sim::server::SimServer;

use crate::LIMIT;
use crate::dying::Dying;
use crate::memory::Cgroup;
use crate::program::{CHAT, Program, Wire, request, run, target, target_at};

const ROOM: u64 = 96 << 20;

#[test]
fn a_server_that_is_killed_for_its_memory_is_told_as_that() {
    run(2 * LIMIT, async {
        let Some(group) = Cgroup::new("deaths", ROOM) else {
            assert!(std::env::var_os("CI").is_none(), "CI must run this where a memory cgroup can be made");
            eprintln!("not shown: this user may make no memory cgroup");
            return;
        };
        let Some(mut dying) = Dying::start(&group.within()).await else {
            assert!(std::env::var_os("CI").is_none(), "CI must run this where there is Python");
            eprintln!("not shown: there is no python3");
            return;
        };
        let shelf = SimServer::start(healthy("shelf")).await.unwrap();
        let lan = target("shelf", "openai", &shelf, "").replace("place = \"local\"", "place = \"lan\"");
        let memory = "[memory]\nenabled = false\n";
        let program =
            Program::start(&format!("{}{lan}{memory}", target_at("box", "llamacpp", &dying.url, ""))).await;
        program.logged(&["server_found", "target=box", &format!("pid={}", dying.pid())]).await;

        let chat = |model: &str| {
            format!(r#"{{"model":"{model}","stream":true,"messages":[{{"role":"user","content":"hi"}}]}}"#)
        };
        let mut wires = Vec::new();
        for model in ["hold", "hold", "eat"] {
            let mut wire = Wire::connect(program.addr).await;
            wire.write(request("POST", CHAT, &[], &chat(model))).await;
            if model == "hold" {
                assert_eq!(dying.says().await, "held hold");
            }
            wires.push(wire);
        }
        let answer = wires[0].answer().await;
        assert_eq!(
            answer.header("x-edgeward-attempts"),
            Some("box:oom_kill,shelf:committed"),
            "{}",
            program.log()
        );
        for wire in &mut wires[1..] {
            let answer = wire.answer().await;
            assert_eq!((answer.status, answer.clean), (200, true), "{}", answer.text());
        }
        program
            .logged(&[
                "WARN  server_died",
                "target=box",
                "cause=oom_kill",
                "LLAMA_ARG_CACHE_RAM=512",
                "left_us=",
            ])
            .await;
        assert_eq!(dying.signal().await, Some(9), "by the kernel, for its memory");
        let status = program.status().await;
        let reason = status["targets"][0]["reason"].as_str().unwrap();
        assert!(reason.contains("the kernel killed the model server for its memory"), "{reason}");
    });
}
