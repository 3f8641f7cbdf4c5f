//! The units of `systemd/`: systemd understands each line, and their sandboxes are as tight as promised.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test's helpers may fail the test"
)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const UNITS: [&str; 4] =
    ["edgeward.service", "edgeward.socket", "edgeward-nvml.service", "edgeward-nvml.socket"];
/// Newer than systemd 252, the oldest that CI has: `edgeward.service` says what is lost without them.
const NEWER: [&str; 2] = ["RestartSteps", "RestartMaxDelaySec"];
/// `systemd-analyze security` counts in tenths here: 1.5.
const EXPOSURE: &str = "15";

fn source(unit: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd").join(unit);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The units in a folder of their own, naming programs that exist here.
fn copies(name: &str, change: impl Fn(&str) -> String) -> (PathBuf, Vec<PathBuf>) {
    let folder =
        PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("units-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let paths = UNITS.map(|unit| {
        let text = source(unit)
            .replace("=/usr/bin/edgeward run", &format!("={} run", env!("CARGO_BIN_EXE_edgeward")))
            .replace("=/usr/libexec/edgeward/edgeward-nvml", "=/bin/true");
        let path = folder.join(unit);
        std::fs::write(&path, change(&text)).unwrap();
        path
    });
    (folder, paths.to_vec())
}

fn analyze(args: &[&str], units: &[PathBuf]) -> Output {
    Command::new("systemd-analyze")
        .args(args)
        .args(units)
        .stdin(Stdio::null())
        .output()
        .expect("systemd-analyze is needed: apt-get install systemd")
}

/// What it complains about, but for what is newer than itself.
fn complaints(output: &Output) -> Vec<String> {
    let known = |line: &&str| !NEWER.iter().any(|key| line.contains(&format!("Unknown key '{key}'")));
    String::from_utf8_lossy(&output.stderr).lines().filter(known).map(str::to_owned).collect()
}

fn verify(units: &[PathBuf]) -> Vec<String> {
    complaints(&analyze(&["verify", "--man=no", "--recursive-errors=no"], units))
}

#[test]
fn systemd_understands_each_line() {
    let (folder, units) = copies("good", str::to_owned);
    assert_eq!(verify(&units), Vec::<String>::new());
    std::fs::remove_dir_all(folder).unwrap();
    let (folder, units) = copies("bad", |text| text.replace("WatchdogSec=20s", "WatchDogSec=20s"));
    let told = verify(&units).join("\n");
    assert!(told.contains("Unknown key 'WatchDogSec'"), "a mistake is found: {told:?}");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn the_sandboxes_are_tight() {
    let security = |unit: &PathBuf| {
        let threshold = format!("--threshold={EXPOSURE}");
        analyze(&["security", "--offline=yes", "--no-pager", &threshold], std::slice::from_ref(unit))
    };
    let (folder, units) = copies("tight", str::to_owned);
    for unit in units.iter().filter(|unit| unit.extension().is_some_and(|kind| kind == "service")) {
        let output = security(unit);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
    std::fs::remove_dir_all(folder).unwrap();
    let (folder, units) = copies("loose", |text| text.replace("ProtectSystem=strict\nProtectHome=yes", ""));
    assert!(!security(&units[0]).status.success(), "a looser sandbox is found");
    std::fs::remove_dir_all(folder).unwrap();
}

/// Lines that belong together, or whose absence nothing else would show before a bad day.
#[test]
fn the_service_says_what_a_restart_and_a_bad_day_need() {
    let service = source("edgeward.service");
    let has = |line: &str| service.lines().any(|have| have == line);
    for line in [
        "Type=notify",
        "Environment=EDGEWARD_HANDOVER=yes",
        "KillMode=process",
        "RuntimeDirectoryPreserve=yes",
        "Restart=always",
        "StartLimitIntervalSec=0",
        "OOMScoreAdjust=-900",
        "LimitMEMLOCK=infinity",
        "After=ollama.service",
    ] {
        assert!(has(line), "edgeward.service has no line {line}");
    }
    for hard in ["Requires=ollama", "Wants=ollama", "BindsTo=ollama"] {
        assert!(!service.contains(hard), "{hard}: edgeward must start without it");
    }
    assert!(source("edgeward.socket").contains("\nTriggerLimitIntervalSec=0\n"));
}
