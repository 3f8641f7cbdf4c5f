//! The built program and its NVML helper: over a socket as systemd passes it, over a pipe, and helpers gone wrong.
//! As units of a real systemd: `tests/systemd/run`.
#![cfg(feature = "sim")]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test's helpers may fail the test"
)]

use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::OnceLock;
use std::time::Duration;

use edgeward::sim::model::healthy;
use edgeward::sim::server::SimServer;
use program::{CHAT, Folder, Program, SOON, ask, chat, command, run, target};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};

#[expect(dead_code, reason = "the server's tests use more of it")]
#[path = "server/program.rs"]
mod program;

#[path = "nvml/driver.rs"]
mod driver;

/// For one test.
const LIMIT: Duration = Duration::from_secs(30);
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The helper, built where the program lies: cargo builds another package's program for no test.
fn helper() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let profile = Path::new(env!("CARGO_BIN_EXE_edgeward")).parent().unwrap();
        let name = profile.file_name().unwrap().to_str().unwrap();
        let status = std::process::Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--locked", "--package", "edgeward-nvml", "--profile"])
            .arg(if name == "debug" { "dev" } else { name })
            .arg("--target-dir")
            .arg(profile.parent().unwrap())
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status();
        assert!(status.unwrap().success(), "the helper is not built");
        profile.join("edgeward-nvml")
    })
}

/// A folder with the program, so that what lies beside it is the test's choice.
fn alone() -> Folder {
    let folder = Folder::new();
    std::fs::hard_link(env!("CARGO_BIN_EXE_edgeward"), folder.0.join("edgeward")).unwrap();
    folder
}

/// `edgeward run` of that folder. The helper's socket is `nvml.sock` there, whether there is one or not.
fn in_folder(folder: &Folder, server: &SimServer) -> Command {
    let config = format!("listen = [\"127.0.0.1:0\"]\n{}", target("a", "openai", server, ""));
    let usual = command(folder, "run", &config, &[]);
    let mut command = Command::new(folder.0.join("edgeward"));
    command.args(usual.as_std().get_args()).env_clear().stdin(Stdio::null()).kill_on_drop(true);
    command.env("EDGEWARD_NVML_SOCKET", folder.0.join("nvml.sock"));
    command
}

/// Runs the program beside this helper, a shell's script.
async fn beside(script: &str) -> (Program, SimServer) {
    let (folder, server) = (alone(), SimServer::start(healthy("a")).await.unwrap());
    let path = folder.write("edgeward-nvml", &format!("#!/bin/sh\n{script}\n"));
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    let command = in_folder(&folder, &server);
    (Program::started(folder, command).await, server)
}

async fn serves(program: &Program) {
    let answer = ask(program.addr, "POST", CHAT, &[], &chat(true)).await;
    assert_eq!((answer.status, answer.clean), (200, true), "{}", answer.text());
}

fn children(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap()
        + &std::fs::read_dir(format!("/proc/{pid}/task"))
            .unwrap()
            .filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("children")).ok())
            .collect::<String>()
}

/// No child is left, not even a zombie.
async fn childless(program: &Program) {
    let gone = async {
        while !children(program.pid()).trim().is_empty() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let in_time = tokio::time::timeout(SOON, gone).await;
    in_time.unwrap_or_else(|_| panic!("children: {}", children(program.pid())));
}

/// It has ended.
async fn gone(child: &str) {
    let gone = async {
        // A zombie, where whoever has inherited it takes its time, has no command line any more.
        while std::fs::read(format!("/proc/{child}/cmdline")).is_ok_and(|line| !line.is_empty()) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(SOON, gone).await.expect("the child ends");
}

/// The helper on a listening socket, put where systemd puts it.
fn activated(listener: UnixListener) -> Child {
    let place = "exec 3<&0 </dev/null; export LISTEN_PID=$$ LISTEN_FDS=1; exec \"$0\"";
    let mut command = Command::new("/bin/sh");
    command.args(["-c".as_ref(), place.as_ref(), helper().as_os_str()]).env_clear();
    command.stdin(OwnedFd::from(listener)).stdout(Stdio::null()).kill_on_drop(true);
    command.spawn().unwrap()
}

#[test]
fn over_a_socket_that_systemd_holds() {
    run(LIMIT, async {
        let (folder, server) = (alone(), SimServer::start(healthy("a")).await.unwrap());
        let mut helper = activated(UnixListener::bind(folder.0.join("nvml.sock")).unwrap());
        let command = in_folder(&folder, &server);
        let program = Program::started(folder, command).await;
        program.logged(&["INFO", "helper_ready", &format!("helper={VERSION}")]).await;
        serves(&program).await;
        assert_eq!(program.log().matches(" helper_").count(), 1, "{}", program.log());
        program.terminate();
        assert_eq!(program.exit_code().await, Some(0), "{}", program.log());
        let ended = tokio::time::timeout(SOON, helper.wait()).await.expect("it ends").unwrap();
        assert_eq!(ended.code(), Some(0));
    });
}

#[test]
fn over_a_pipe_as_a_child() {
    run(LIMIT, async {
        let (folder, server) = (alone(), SimServer::start(healthy("a")).await.unwrap());
        std::fs::hard_link(helper(), folder.0.join("edgeward-nvml")).unwrap();
        let command = in_folder(&folder, &server);
        let program = Program::started(folder, command).await;
        program.logged(&["INFO", "helper_ready", &format!("helper={VERSION}")]).await;
        serves(&program).await;
        let child = children(program.pid()).trim().to_owned();
        program.terminate();
        assert_eq!(program.exit_code().await, Some(0), "{}", program.log());
        gone(&child).await;
    });
}

#[test]
fn a_child_of_another_release_is_named_and_gets_no_keys() {
    run(LIMIT, async {
        let (folder, server) = (alone(), SimServer::start(healthy("a")).await.unwrap());
        let script = "#!/bin/sh\nenv >\"${0%/*}/seen\"\necho edgeward-nvml 9.9.9\nexec sleep 600\n";
        let path = folder.write("edgeward-nvml", script);
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut command = in_folder(&folder, &server);
        command.env("OPENAI_API_KEY", "sk-test").env("LD_LIBRARY_PATH", "/opt/driver");
        let program = Program::started(folder, command).await;
        program.logged(&["WARN", "helper_ready", "helper=9.9.9", &format!("version={VERSION}")]).await;
        let seen = std::fs::read_to_string(program.folder.0.join("seen")).unwrap();
        assert!(seen.contains("LD_LIBRARY_PATH=/opt/driver") && !seen.contains("sk-test"), "{seen}");
        program.logged(&["WARN", "helper_stale"]).await;
        // It takes the child along.
        program.terminate();
        assert_eq!(program.exit_code().await, Some(0), "{}", program.log());
    });
}

#[test]
fn one_that_says_nothing_is_given_up_while_clients_are_served() {
    run(LIMIT, async {
        let (program, _server) = beside("exec sleep 600").await;
        program.logged(&["started"]).await;
        serves(&program).await;
        assert!(!program.log().contains("helper_"), "{}", program.log());
        program.logged(&["WARN", "helper_unavailable", "said nothing within 5 seconds"]).await;
        childless(&program).await;
        program.terminate();
        assert_eq!(program.exit_code().await, Some(0), "{}", program.log());
    });
}

#[test]
fn one_that_talks_without_end_is_hung_up_on() {
    run(LIMIT, async {
        let (program, _server) = beside("exec cat /dev/zero").await;
        program.logged(&["WARN", "helper_unavailable", "longer than 256 bytes", "one release"]).await;
        childless(&program).await;
        serves(&program).await;
    });
}

#[test]
fn one_that_fails_and_one_that_is_no_program() {
    run(LIMIT, async {
        let (program, _server) = beside("exit 1").await;
        program.logged(&["WARN", "helper_unavailable", "ended before"]).await;
        childless(&program).await;
        let (folder, server) = (alone(), SimServer::start(healthy("a")).await.unwrap());
        folder.write("edgeward-nvml", "not even executable");
        let command = in_folder(&folder, &server);
        let program = Program::started(folder, command).await;
        program.logged(&["WARN", "helper_unavailable", "cannot start", "Permission denied"]).await;
        serves(&program).await;
    });
}

#[test]
fn its_end_takes_the_child_along() {
    run(LIMIT, async {
        let (program, _server) = beside("exec sleep 600").await;
        let asked = async {
            while children(program.pid()).trim().is_empty() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            children(program.pid()).split_whitespace().next().unwrap().to_owned()
        };
        let child = tokio::time::timeout(SOON, asked).await.expect("it is asked");
        program.terminate();
        assert_eq!(program.exit_code().await, Some(0), "{}", program.log());
        gone(&child).await;
    });
}

#[test]
fn under_systemd_none_is_started_in_the_sandbox() {
    run(LIMIT, async {
        let (folder, server) = (alone(), SimServer::start(healthy("a")).await.unwrap());
        std::fs::hard_link(helper(), folder.0.join("edgeward-nvml")).unwrap();
        let notify = folder.0.join("notify");
        let _systemd = UnixDatagram::bind(&notify).unwrap();
        let mut command = in_folder(&folder, &server);
        command.env("NOTIFY_SOCKET", &notify);
        let program = Program::started(folder, command).await;
        let parts =
            ["WARN", "helper_unavailable", "no socket at", "systemctl enable --now edgeward-nvml.socket"];
        program.logged(&parts).await;
        serves(&program).await;
    });
}

#[test]
fn a_socket_that_nobody_serves_is_no_reason_to_start_one() {
    run(LIMIT, async {
        let (folder, server) = (alone(), SimServer::start(healthy("a")).await.unwrap());
        drop(UnixListener::bind(folder.0.join("nvml.sock")).unwrap());
        let command = in_folder(&folder, &server);
        let program = Program::started(folder, command).await;
        program.logged(&["WARN", "helper_unavailable", "cannot connect to", "nvml.sock: "]).await;
        serves(&program).await;
    });
}

/// Whoever called listen(2) is the peer. Only root can be two users.
#[test]
fn a_socket_that_another_user_serves_is_not_listened_to() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    run(LIMIT, async {
        let (folder, server) = (alone(), SimServer::start(healthy("a")).await.unwrap());
        let script = "import os, socket, sys; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); \
            os.setuid(65534); s.listen(); print('up', flush=True); c = s.accept()[0]; \
            c.sendall(b'edgeward-nvml 0.1.0\\n'); c.recv(1); print('hung up on', flush=True)";
        let mut stranger = Command::new("python3")
            .args(["-c", script])
            .arg(folder.0.join("nvml.sock"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            // It is hung up on in the middle of its word.
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut said = BufReader::new(stranger.stdout.take().unwrap());
        let mut up = String::new();
        said.read_line(&mut up).await.unwrap();
        assert_eq!(up, "up\n");
        let command = in_folder(&folder, &server);
        let program = Program::started(folder, command).await;
        program.logged(&["WARN", "helper_unavailable", "served by user 65534"]).await;
        let mut rest = String::new();
        tokio::time::timeout(SOON, said.read_to_string(&mut rest)).await.expect("it is hung up on").unwrap();
        serves(&program).await;
    });
}

#[test]
fn a_box_without_the_driver_is_told_nothing() {
    run(LIMIT, async {
        if ["/dev/nvidiactl", "/proc/driver/nvidia"].iter().any(|path| Path::new(path).exists()) {
            return;
        }
        let server = SimServer::start(healthy("a")).await.unwrap();
        let config = target("a", "openai", &server, "");
        let program = Program::start_in(Folder::new(), &config, &[("EDGEWARD_LOG", "debug")]).await;
        program.logged(&["DEBUG", "the NVML helper is not asked"]).await;
        assert!(!program.log().contains("helper_"), "{}", program.log());
    });
}
