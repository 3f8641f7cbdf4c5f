//! A full disk and a read-only folder: nothing that edgeward cannot keep keeps it from serving.

use std::fs;
use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use edgeward::sim::model::healthy;
use edgeward::sim::server::SimServer;

use crate::LIMIT;
use crate::program::{CHAT, Folder, Program, SOON, ask, chat, command, run, target};

/// Where the process listens, by the kernel's tables: it may have no way to say.
fn listens(pid: u32) -> Option<SocketAddr> {
    let links = fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    let sockets: Vec<String> = links
        .filter_map(|entry| Some(fs::read_link(entry.ok()?.path()).ok()?.to_string_lossy().into_owned()))
        .filter_map(|link| Some(link.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
        .collect();
    let table = fs::read_to_string(format!("/proc/{pid}/net/tcp")).ok()?;
    table.lines().skip(1).find_map(|line| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let listening = columns.get(3) == Some(&"0A") && sockets.iter().any(|inode| columns[9] == inode);
        let port = u16::from_str_radix(columns[1].split_once(':')?.1, 16).ok()?;
        listening.then(|| SocketAddr::from(([127, 0, 0, 1], port)))
    })
}

#[test]
fn a_log_on_a_full_disk_stops_nobody() {
    run(LIMIT, async {
        let server = SimServer::start(healthy("a")).await.unwrap();
        let folder = Folder::new();
        let config = format!("listen = [\"127.0.0.1:0\"]\n{}", target("a", "openai", &server, ""));
        let full = || Stdio::from(fs::OpenOptions::new().write(true).open("/dev/full").unwrap());
        let mut child = command(&folder, "run", &config, &[]).stdout(full()).stderr(full()).spawn().unwrap();
        let pid = child.id().unwrap();
        let found = async {
            loop {
                if let Some(addr) = listens(pid) {
                    return addr;
                }
                assert!(child.try_wait().unwrap().is_none(), "it ended");
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        let addr = tokio::time::timeout(SOON, found).await.expect("it listens");
        for _ in 0..3 {
            let answer = ask(addr, "POST", CHAT, &[], &chat(true)).await;
            assert_eq!((answer.status, answer.clean), (200, true), "{}", answer.text());
        }
        let metrics = ask(addr, "GET", "/edgeward/metrics", &[], "").await.text();
        let lost = metrics.lines().find_map(|line| line.strip_prefix("edgeward_log_lines_lost_total "));
        assert!(lost.is_some_and(|lost| lost.parse::<f64>().unwrap() >= 3.0), "{metrics}");
        child.kill().await.unwrap();
    });
}

#[test]
fn a_socket_that_cannot_be_made_is_said_once_and_clients_are_served() {
    run(LIMIT, async {
        let server = SimServer::start(healthy("a")).await.unwrap();
        // No such folder; one that no one may write to, root included; a file where a folder should be.
        for place in ["missing/admin.sock", "/proc/edgeward.sock", "edgeward.toml/admin.sock"] {
            let config = format!("admin_listen = \"{place}\"\n{}", target("a", "openai", &server, ""));
            let program = Program::start(&config).await;
            program.logged(&["ERROR", "admin_unavailable", place]).await;
            program.logged(&["started"]).await;
            let answer = ask(program.addr, "POST", CHAT, &[], &chat(true)).await;
            assert_eq!((answer.status, answer.clean), (200, true), "{}", answer.text());
            assert_eq!(program.status().await["targets"][0]["committed"], 1);
            assert_eq!(program.log().matches("admin_unavailable").count(), 1, "{}", program.log());
            program.terminate();
            assert_eq!(program.exit_code().await, Some(0), "{}", program.log());
        }
    });
}
