//! The built program on a box that starves: of memory, of file descriptors, of disk, of the right time.
#![cfg(feature = "sim")]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test's helpers may fail the test"
)]

use std::time::Duration;

mod clock;
mod deaths;
mod descriptors;
mod disk;
#[expect(dead_code, reason = "the server's tests use more of it")]
#[path = "../server/dying.rs"]
mod dying;
mod flash;
mod memory;
mod morning;
#[expect(dead_code, reason = "the server's tests use more of it")]
#[path = "../server/program.rs"]
mod program;
mod wall;
mod watchdog;

/// For one test.
const LIMIT: Duration = Duration::from_secs(30);

/// `edgeward run` on `config`, started by other programs that end in being it: prlimit(1), setpriv(1).
fn by(words: &[&str], folder: &program::Folder, config: &str) -> tokio::process::Command {
    let path = folder.write("edgeward.toml", &format!("listen = [\"127.0.0.1:0\"]\n{config}"));
    let mut command = tokio::process::Command::new("env");
    command
        .args(words)
        .args([env!("CARGO_BIN_EXE_edgeward"), "run", "--config"])
        .arg(path)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .stdin(std::process::Stdio::null())
        .kill_on_drop(true);
    command
}

/// A number in kB that `/proc/PID/status` has under `name`, in bytes.
fn status_bytes(pid: u32, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}
