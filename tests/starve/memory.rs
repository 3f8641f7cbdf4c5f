//! Memory runs out beside it: edgeward is locked in, and others are ended.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use edgeward::sim::model::healthy;
use edgeward::sim::server::SimServer;
use tokio::process::{Child, Command};

use crate::program::{CHAT, Folder, Program, SOON, Wire, ask, chat, request, run, target};
use crate::{LIMIT, by, status_bytes};

/// Words before a program that may lock as much memory as it likes; `None` where this user can start none such.
fn unlimited() -> Option<&'static [&'static str]> {
    let words: [&[&str]; 2] =
        [&["prlimit", "--memlock=unlimited:unlimited"], &["setpriv", "--inh-caps=+ipc_lock"]];
    words.into_iter().find(|words| {
        let mut command = std::process::Command::new("env");
        command.args(*words).arg("true").output().is_ok_and(|output| output.status.success())
    })
}

/// The same before one that may lock nearly nothing; root is exempt from the limit, unless this is taken from it.
fn limited() -> Vec<&'static str> {
    let mut words = vec!["prlimit", "--memlock=65536:65536"];
    let root = std::process::Command::new("setpriv").args(["--bounding-set=-ipc_lock", "true"]).output();
    if root.is_ok_and(|output| output.status.success()) {
        words.extend(["setpriv", "--bounding-set=-ipc_lock"]);
    }
    words
}

#[test]
fn memory_is_locked_where_it_may_be_and_said_where_not() {
    run(LIMIT, async {
        let server = SimServer::start(healthy("a")).await.unwrap();
        let target = target("a", "openai", &server, "");
        let (few, most) = (limited(), unlimited());
        // Configuration, limits; what is said, or that nothing is.
        for (config, limits, said) in [
            ("", Some(few.as_slice()), Some("INFO  memory_not_locked")),
            ("lock_memory = true\n", Some(&few), Some("ERROR memory_not_locked")),
            ("lock_memory = false\n", most, None),
            ("", most, Some("INFO  memory_locked")),
        ] {
            let Some(limits) = limits else { continue };
            let folder = Folder::new();
            let command = by(limits, &folder, &format!("{config}{target}"));
            let program = Program::started(folder, command).await;
            program.logged(&["started"]).await;
            match said {
                Some(said) => assert!(program.log().contains(said), "{said}: {}", program.log()),
                None => assert!(!program.log().contains("locked"), "{}", program.log()),
            }
            let locked = status_bytes(program.pid(), "VmLck");
            if said.is_some_and(|said| said.ends_with("memory_locked")) {
                // The gates' pool alone, which nothing has touched yet, is 4 MiB.
                assert!(locked > 4 << 20, "{locked}");
                let gone = locked - status_bytes(program.pid(), "VmRSS").min(locked);
                assert!(gone < 1 << 20, "{gone} bytes of {locked} that are locked are not here");
            } else {
                assert_eq!(locked, 0);
            }
            // Memory that comes later is had, and locked as it is touched.
            let long = "word ".repeat(2 << 20);
            let body = format!(r#"{{"model":"m","messages":[{{"role":"user","content":"{long}"}}]}}"#);
            let answer = ask(program.addr, "POST", CHAT, &[], &body).await;
            assert_eq!((answer.status, answer.clean), (200, true), "{}", answer.text());
        }
    });
}

/// A memory cgroup of its own, removed with it. Version 2 or 1, whichever there is.
pub struct Cgroup(pub PathBuf);

impl Cgroup {
    /// `None` where this user may make none.
    pub fn new(name: &str, bytes: u64) -> Option<Cgroup> {
        let (root, limit) = if Path::new("/sys/fs/cgroup/cgroup.controllers").exists() {
            ("/sys/fs/cgroup", "memory.max")
        } else {
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
        };
        let path = Path::new(root).join(format!("edgeward-{name}-{}", std::process::id()));
        fs::create_dir(&path).ok()?;
        let group = Cgroup(path);
        fs::write(group.0.join(limit), bytes.to_string()).ok()?;
        // No way out into swap; a kernel without swap accounting has no such file.
        for (file, none) in [("memory.swap.max", "0"), ("memory.swappiness", "0")] {
            let _not_there = fs::write(group.0.join(file), none);
        }
        Some(group)
    }

    /// Words before a program that runs in it from its first page on.
    pub fn within(&self) -> [String; 4] {
        let procs = self.0.join("cgroup.procs");
        let script = format!("echo $$ > {} && exec \"$@\"", procs.display());
        ["sh".to_owned(), "-c".to_owned(), script, "sh".to_owned()]
    }

    /// Takes all memory that there is, until it is ended for it: tail keeps a line until it ends.
    fn hog(&self) -> Child {
        let script =
            "echo 900 > /proc/$$/oom_score_adj; echo $$ > \"$0/cgroup.procs\" && exec tail /dev/zero";
        Command::new("sh").args(["-c", script]).arg(&self.0).kill_on_drop(true).spawn().unwrap()
    }

    /// Takes what is written to it, and keeps it: a leak as fast as a test writes.
    pub fn leak(&self) -> Child {
        let script =
            "echo 900 > /proc/$$/oom_score_adj; echo $$ > \"$0/cgroup.procs\" && exec tail 2> /dev/null";
        let mut command = Command::new("sh");
        command.args(["-c", script]).arg(&self.0).stdin(Stdio::piped()).stdout(Stdio::null());
        command.kill_on_drop(true).spawn().unwrap()
    }

    /// How full it ever was.
    fn peak(&self) -> Option<u64> {
        let files = ["memory.peak", "memory.max_usage_in_bytes"];
        files.iter().find_map(|file| fs::read_to_string(self.0.join(file)).ok()?.trim().parse().ok())
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // Its last process may still be on its way out.
        for _ in 0..1000 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_hog_beside_it_is_ended_and_streams_go_on() {
    run(LIMIT, async {
        const ROOM: u64 = 96 << 20;
        let Some(group) = Cgroup::new("starve", ROOM) else {
            assert!(std::env::var_os("CI").is_none(), "CI must run this where a memory cgroup can be made");
            eprintln!("not shown: this user may make no memory cgroup");
            return;
        };
        let model = healthy("a").paced(25, Duration::ZERO, Duration::from_millis(40));
        let server = SimServer::start(model.clone()).await.unwrap();
        let folder = Folder::new();
        let config = target("a", "openai", &server, "");
        let within = group.within();
        let words: Vec<&str> =
            within.iter().map(String::as_str).chain(unlimited().into_iter().flatten().copied()).collect();
        let command = by(&words, &folder, &config);
        let program = Program::started(folder, command).await;
        // As the unit does. Who may not lower it has the hog raise its own: the kernel compares the two.
        let _may_not = fs::write(format!("/proc/{}/oom_score_adj", program.pid()), "-900");

        for _ in 0..2 {
            let mut streams = Vec::new();
            for _ in 0..4 {
                let mut wire = Wire::connect(program.addr).await;
                wire.write(request("POST", CHAT, &[], &chat(true))).await;
                wire.until("[a]").await;
                streams.push(wire);
            }
            let mut hog = group.hog();
            let ended = tokio::time::timeout(SOON, hog.wait()).await.expect("the hog is ended").unwrap();
            assert_eq!(ended.signal(), Some(9), "by the kernel, for its memory");
            for wire in &mut streams {
                let answer = wire.answer().await;
                assert!(answer.clean, "{}", answer.text());
                assert!(answer.text().contains("[DONE]"), "{}", answer.text());
            }
        }
        assert!(group.peak().is_some_and(|peak| peak > ROOM * 9 / 10), "{:?}", group.peak());
        // And with the hog still at it: every request of a while is served.
        server.set(healthy("a"));
        let mut hog = group.hog();
        let mut served = 0;
        let deadline = edgeward::time::now() + SOON;
        while hog.try_wait().unwrap().is_none() && edgeward::time::now() < deadline {
            let answer = ask(program.addr, "POST", CHAT, &[], &chat(true)).await;
            assert_eq!((answer.status, answer.clean), (200, true), "{}", answer.text());
            served += 1;
        }
        assert!(served > 0);
        assert_eq!(hog.wait().await.unwrap().signal(), Some(9));
        assert_eq!(ask(program.addr, "POST", CHAT, &[], &chat(false)).await.status, 200);
        program.terminate();
        assert_eq!(program.exit_code().await, Some(0), "{}", program.log());
    });
}
