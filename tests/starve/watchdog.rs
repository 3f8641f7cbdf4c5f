//! A real leak in a real memory cgroup: edgeward sees the end before the kernel makes one, and clients see neither.

use std::os::unix::process::ExitStatusExt as _;
use std::time::Duration;

use edgeward::sim::model::healthy;
use edgeward::sim::server::SimServer;
use tokio::io::AsyncWriteExt as _;

use crate::LIMIT;
use crate::memory::Cgroup;
use crate::program::{CHAT, Program, SOON, ask, chat, run, target};

const ROOM: u64 = 256 << 20;
const PRESSURE: &str = "edgeward_memory_pressure";

async fn answered_by(program: &Program) -> String {
    let answer = ask(program.addr, "POST", CHAT, &[], &chat(true)).await;
    assert_eq!((answer.status, answer.clean), (200, true), "{}", answer.text());
    answer.header("x-edgeward-target").unwrap().to_owned()
}

#[test]
fn requests_leave_a_leaking_server_before_the_kernel_kills_it_and_come_back() {
    run(3 * LIMIT, async {
        let Some(group) = Cgroup::new("watchdog", ROOM) else {
            assert!(std::env::var_os("CI").is_none(), "CI must run this where a memory cgroup can be made");
            eprintln!("not shown: this user may make no memory cgroup");
            return;
        };
        let (box_, shelf) =
            (SimServer::start(healthy("a")).await.unwrap(), SimServer::start(healthy("b")).await.unwrap());
        let config = format!(
            "{}{}[memory]\ncgroup = \"{}\"\nfloor = \"96MiB\"\ninterval = \"10ms\"\nhold = \"1s\"\n",
            target("box", "openai", &box_, ""),
            target("shelf", "openai", &shelf, "").replace("place = \"local\"", "place = \"lan\""),
            group.0.display(),
        );
        let program = Program::start(&config).await;
        program.until_metric(PRESSURE, 0.0).await;
        assert_eq!(answered_by(&program).await, "box");

        let mut hog = group.leak();
        let mut leak = hog.stdin.take().unwrap();
        let piece = vec![b'x'; 256 << 10];
        // It grows with each answer of edgeward's, so that edgeward is never late for want of a processor.
        let mut red = false;
        while !red && leak.write_all(&piece).await.is_ok() {
            red = program.metric(PRESSURE).await == 2.0;
        }
        assert!(red && hog.try_wait().unwrap().is_none(), "red while it lives: {}", program.log());
        program.logged(&["pressure=red", "axis=cgroup"]).await;
        // And on, until the kernel ends it: nobody is answered by the box any more.
        let mut others = 0;
        loop {
            let was_red = program.metric(PRESSURE).await == 2.0;
            let by = answered_by(&program).await;
            if was_red && program.metric(PRESSURE).await == 2.0 {
                assert_eq!(by, "shelf", "{}", program.log());
                others += 1;
            }
            if leak.write_all(&piece).await.is_err() {
                break;
            }
        }
        let ended = tokio::time::timeout(SOON, hog.wait()).await.expect("it is ended").unwrap();
        assert_eq!(ended.signal(), Some(9), "by the kernel, for its memory");
        assert!(others > 0, "{}", program.log());

        let green = async {
            while program.metric(PRESSURE).await != 0.0 {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(LIMIT, green).await.expect("well again");
        program.logged(&["pressure=green"]).await;
        assert_eq!(answered_by(&program).await, "box");
        let status = program.status().await;
        assert_eq!(status.pointer("/memory/pressure").and_then(|word| word.as_str()), Some("green"));
    });
}
