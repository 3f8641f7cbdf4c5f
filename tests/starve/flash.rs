//! What is written, for boxes whose disk wears out: nothing at rest, a bounded line a request.

use std::time::Duration;

use edgeward::sim::model::healthy;
use edgeward::sim::server::SimServer;

use crate::LIMIT;
use crate::program::{CHAT, Program, ask, chat, run, target};

/// Seconds of a day.
const DAY: u64 = 24 * 3600;
/// A request that is answered is told in at most this, in bytes.
const LINE_MAX: u64 = 400;

/// From `/proc/PID/io`: bytes given to write(2) and its like, and bytes that went to a disk.
fn written(pid: u32) -> (u64, u64) {
    let io = std::fs::read_to_string(format!("/proc/{pid}/io")).unwrap();
    let field = |name: &str| {
        let line = io.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().parse::<u64>().unwrap()
    };
    (field("wchar:"), field("write_bytes:"))
}

#[test]
fn nothing_is_written_at_rest_and_a_line_a_request() {
    run(LIMIT, async {
        let server = SimServer::start(healthy("a")).await.unwrap();
        let program = Program::start(&target("a", "openai", &server, "")).await;
        assert_eq!(ask(program.addr, "POST", CHAT, &[], &chat(true)).await.status, 200);
        program.logged(&["request_done"]).await;
        let lines = |program: &Program| program.log().lines().count() as u64;
        let (told, bytes) = (lines(&program), program.log().len() as u64);
        // What lies between is measured, not waited for: two rounds of each of its timers.
        tokio::time::sleep(Duration::from_millis(2200)).await;
        assert_eq!(lines(&program), told, "at rest: {}", program.log());

        const REQUESTS: u64 = 50;
        for _ in 0..REQUESTS {
            assert_eq!(ask(program.addr, "POST", CHAT, &[], &chat(true)).await.status, 200);
        }
        while lines(&program) < told + REQUESTS {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        assert_eq!(lines(&program), told + REQUESTS, "{}", program.log());
        let each = (program.log().len() as u64 - bytes) / REQUESTS;
        assert!(each < LINE_MAX, "{each}");
        // Logs go where stderr goes; no file of its own is written.
        let (_, to_disk) = written(program.pid());
        assert_eq!(to_disk, 0, "bytes to disk");
        println!(
            "log: 0 bytes at rest; {each} a request, {} MB a day at one a second",
            each * DAY / 1_000_000
        );
    });
}
