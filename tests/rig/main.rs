//! Real traces in small: each leak is seen in time, and what is healthy is left alone. And one real leak, to its end.
//! `rig.py` makes the traces, and many more, and says what the watchdog saw of them.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test's helpers may fail the test")]

use std::path::{Path, PathBuf};
use std::process::Command;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/rig")
}

fn replayed(name: &str) -> String {
    let trace = folder().join("traces").join(format!("{name}.trace"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_edgeward"));
    let output = command.args(["replay", "--looks"]).arg(trace).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Seconds from `level` to the kill; 0 where it did not come.
fn lead(said: &str, level: &str) -> f64 {
    let line = said.lines().find(|line| line.contains("killed for memory")).expect("a kill");
    let lead =
        line.split([';', ',']).find_map(|part| part.trim().strip_prefix(level)?.strip_suffix(" s before"));
    lead.map_or(0.0, |lead| lead.trim().parse().unwrap())
}

#[test]
fn each_real_leak_is_seen_in_time() {
    for (name, amber, red) in [
        ("leak-1-3", 25.0, 10.0),
        ("leak-10-9", 9.0, 7.0),
        // 6.8 s from its beginning to its end.
        ("leak-100-2", 5.0, 4.0),
        ("leak-100-6", 12.0, 6.0),
        // It grows in steps, with minutes between them.
        ("server-0", 60.0, 20.0),
    ] {
        let said = replayed(name);
        assert!(lead(&said, "amber") >= amber && lead(&said, "red") >= red, "{name}: {said}");
        assert!(said.contains("; 1 kills, of which 0"), "{name}: {said}");
    }
}

#[test]
fn what_is_healthy_is_left_alone() {
    for name in ["cache-0", "walk-0"] {
        let said = replayed(name);
        assert!(said.contains("; 0 episodes, ") && said.contains("; 0 kills, "), "{name}: {said}");
    }
}

#[test]
fn a_real_leak_is_seen_before_the_kernel_ends_it() {
    let mut command = Command::new("python3");
    command.arg(folder().join("rig.py")).args(["short", "--edgeward", env!("CARGO_BIN_EXE_edgeward")]);
    let roots = ["/sys/fs/cgroup/memory", "/sys/fs/cgroup"].map(Path::new);
    let root = roots.into_iter().find(|root| root.join("cgroup.procs").exists());
    let probe = root.map(|root| root.join(format!("edgeward-rig-probe-{}", std::process::id())));
    if !probe.is_some_and(|probe| std::fs::create_dir(&probe).is_ok() && std::fs::remove_dir(probe).is_ok()) {
        assert!(std::env::var_os("CI").is_none(), "CI must run this where a memory cgroup can be made");
        eprintln!("not shown: this user may make no memory cgroup");
        return;
    }
    let output = command.output().expect("python3");
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
}
