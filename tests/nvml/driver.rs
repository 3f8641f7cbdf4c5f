//! The helper beside a simulated driver: by itself, record by record, and with edgeward.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use edgeward::memory::kernel::Notice;
use edgeward::memory::record::{BYTES, Fault, Record, State, Why};
use edgeward::sim::model::healthy;
use edgeward::sim::server::SimServer;
use edgeward::time::now;

use super::program::{Folder, Program, SOON, run};
use super::{LIMIT, alone, helper, in_folder, serves};

const MIB: u64 = 1 << 20;

/// The simulated libnvidia-ml.so.1: the folder that it is in.
fn library() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("nvml-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/nvml/libnvidia-ml.c");
        let mut command = Command::new("cc");
        command.args(["-shared", "-fPIC", "-O1", "-o"]).arg(folder.join("libnvidia-ml.so.1")).arg(source);
        assert!(command.status().unwrap().success(), "the simulated library is not built");
        folder
    })
}

/// A box: what its driver plays, its kernel's log and its cards.
struct Played {
    folder: Folder,
    /// Held open, so that the log never ends.
    kmsg: std::fs::File,
}

impl Played {
    fn new(script: &str) -> Played {
        let folder = Folder::new();
        let path = folder.0.join("kmsg");
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        let kmsg = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
        std::fs::create_dir(folder.0.join("pci")).unwrap();
        let played = Played { folder, kmsg };
        played.plays(script);
        played
    }

    /// From now on.
    fn plays(&self, script: &str) {
        // In one step: it is read at each call.
        let path = self.folder.write("script.new", script);
        std::fs::rename(path, self.folder.0.join("script")).unwrap();
    }

    /// The driver's calls so far.
    fn calls(&self) -> String {
        std::fs::read_to_string(self.folder.0.join("script.calls")).unwrap_or_default()
    }

    fn says(&self, line: &str) {
        (&self.kmsg).write_all(line.as_bytes()).unwrap();
    }

    fn env(&self) -> [(&'static str, PathBuf); 5] {
        [
            ("LD_LIBRARY_PATH", library().to_owned()),
            ("FAKE_NVML", self.folder.0.join("script")),
            ("EDGEWARD_NVML_KMSG", self.folder.0.join("kmsg")),
            ("EDGEWARD_NVML_PCI", self.folder.0.join("pci")),
            ("EDGEWARD_NVML_RETRY_MS", "500".into()),
        ]
    }

    /// A card on the bus, with its files of these contents.
    fn card(&self, name: &str, status: &str, control: &str) {
        let folder = self.folder.0.join("pci").join(name);
        std::fs::create_dir_all(folder.join("power")).unwrap();
        for (file, text) in [
            ("vendor", "0x10de"),
            ("class", "0x030000"),
            ("power/runtime_status", status),
            ("power/control", control),
        ] {
            std::fs::write(folder.join(file), format!("{text}\n")).unwrap();
        }
    }
}

/// The helper's other end.
struct Talk {
    stream: UnixStream,
    seen: Vec<Record>,
}

impl Talk {
    fn over(stream: UnixStream) -> Talk {
        stream.set_read_timeout(Some(SOON)).unwrap();
        let mut talk = Talk { stream, seen: Vec::new() };
        let mut line = Vec::new();
        while line.last() != Some(&b'\n') {
            let mut byte = [0];
            talk.stream.read_exact(&mut byte).unwrap();
            line.extend(byte);
        }
        assert_eq!(line, format!("edgeward-nvml {}\n", super::VERSION).as_bytes());
        talk
    }

    fn next(&mut self) -> Record {
        let mut bytes = [0; BYTES];
        self.stream.read_exact(&mut bytes).unwrap();
        let record = Record::decode(&bytes).unwrap().unwrap();
        self.seen.push(record.clone());
        record
    }

    /// Reads until one is as wanted.
    fn until(&mut self, wanted: impl Fn(&Record) -> bool) -> Record {
        let start = now();
        loop {
            let record = self.next();
            if wanted(&record) {
                return record;
            }
            assert!(start.elapsed() < SOON, "not among {:?}", self.seen);
        }
    }
}

/// The helper as a child, killed when dropped.
struct Alone(Child);

impl Alone {
    fn start(played: &Played) -> (Alone, Talk) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut command = Command::new(helper());
        command.env_clear().envs(played.env());
        command.stdin(OwnedFd::from(theirs.try_clone().unwrap())).stdout(OwnedFd::from(theirs));
        let child = command.spawn().unwrap();
        // What the command holds of it would keep it open.
        drop(command);
        (Alone(child), Talk::over(ours))
    }

    /// On a socket, as systemd passes it; NVML is tried again after `retry` ms.
    fn on(played: &Played, path: &Path, retry: &str) -> Alone {
        let listener = UnixListener::bind(path).unwrap();
        let place = "exec 3<&0 </dev/null; export LISTEN_PID=$$ LISTEN_FDS=1; exec \"$0\"";
        let mut command = Command::new("/bin/sh");
        command.args(["-c".as_ref(), place.as_ref(), helper().as_os_str()]).env_clear().envs(played.env());
        command.env("EDGEWARD_NVML_RETRY_MS", retry);
        command.stdin(OwnedFd::from(listener)).stdout(Stdio::null());
        Alone(command.spawn().unwrap())
    }

    fn ends(&mut self) -> Option<i32> {
        let start = now();
        while start.elapsed() < SOON {
            if let Some(status) = self.0.try_wait().unwrap() {
                return Some(status.code().unwrap_or(-1));
            }
            std::thread::yield_now();
        }
        None
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn told(record: &Record) -> Option<(State, u64, u64)> {
    match record {
        Record::Figures(0, figures) => Some((figures.state, figures.total / MIB, figures.free / MIB)),
        _ => None,
    }
}

#[test]
fn figures_come_by_both_versions_of_the_call() {
    for script in ["", "v1"] {
        let played = Played::new(script);
        let (_helper, mut talk) = Alone::start(&played);
        assert_eq!(talk.next(), Record::Starting);
        let first = talk.until(|record| told(record).is_some());
        assert_eq!(told(&first), Some((State::Told, 8000, 6000)), "{script}");
        let Record::Figures(_, figures) = first else { panic!("{first:?}") };
        assert_eq!(figures.clocks, 0x40);
    }
}

#[test]
fn a_gpu_without_memory_of_its_own_says_so() {
    let played = Played::new("unsupported noevents");
    let (_helper, mut talk) = Alone::start(&played);
    let first = talk.until(|record| told(record).is_some());
    assert_eq!(told(&first), Some((State::Shared, 0, 0)));
}

#[test]
fn a_process_list_that_grows_while_it_is_asked_for_is_asked_for_again() {
    let played = Played::new("processes=3 grow");
    let (_helper, mut talk) = Alone::start(&played);
    // Not even three tries are enough: what was told before counts.
    talk.until(|record| told(record).is_some());
    talk.until(|record| told(record).is_some());
    assert!(!talk.seen.iter().any(|record| matches!(record, Record::Processes(..))), "{:?}", talk.seen);
    assert!(played.calls().matches("ComputeRunningProcesses").count() >= 6, "{}", played.calls());
    played.plays("processes=9");
    let Record::Processes(0, true, list) = talk.until(|record| matches!(record, Record::Processes(..)))
    else {
        panic!("{:?}", talk.seen)
    };
    assert_eq!((list.len(), list[0].pid, list[0].kib), (7, 1000, 100 << 10));
    let Record::Processes(0, false, list) = talk.next() else { panic!("{:?}", talk.seen) };
    assert_eq!((list.len(), list[1].pid, list[1].kib), (2, 1008, 108 << 10));
}

#[test]
fn a_lost_gpu_is_down_until_it_is_back_and_is_let_go_of_meanwhile() {
    let played = Played::new("");
    let (_helper, mut talk) = Alone::start(&played);
    talk.until(|record| told(record).is_some());
    for (script, fault) in [
        ("lost", Fault::Lost),
        ("gone", Fault::Lost),
        ("reset", Fault::NeedsReset),
        ("recovery=2", Fault::Recovery),
    ] {
        played.plays(script);
        talk.until(|record| matches!(record, Record::Down(0, why, _) if *why == fault));
        assert!(!talk.seen.iter().any(|record| matches!(record, Record::Blind(..))), "{:?}", talk.seen);
    }
    assert!(played.calls().contains("nvmlShutdown"), "who resets it needs it alone");
    played.plays("");
    talk.until(|record| told(record).is_some());
}

#[test]
fn without_a_driver_it_is_blind_and_with_a_new_one_it_sees() {
    let played = Played::new("nodriver");
    let (_helper, mut talk) = Alone::start(&played);
    assert_eq!(talk.until(|record| matches!(record, Record::Blind(..))), Record::Blind(Why::NoDriver, 9));
    played.plays("gpus=0");
    talk.until(|record| matches!(record, Record::Blind(Why::NoDevice, _)));
    played.plays("");
    talk.until(|record| told(record).is_some());
}

#[test]
fn it_ends_where_its_library_is_another_release_than_the_driver() {
    let played = Played::new("mismatch");
    let (mut helper, mut talk) = Alone::start(&played);
    talk.until(|record| *record == Record::Blind(Why::Mismatch, 18));
    assert_eq!(helper.ends(), Some(0));
}

#[test]
fn without_the_library_it_still_hears_the_kernel_and_knows_whose_a_socket_is() {
    let played = Played::new("");
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut command = Command::new(helper());
    command.env_clear().envs(played.env()).env_remove("LD_LIBRARY_PATH");
    command.stdin(OwnedFd::from(theirs.try_clone().unwrap())).stdout(OwnedFd::from(theirs));
    let _helper = Alone(command.spawn().unwrap());
    drop(command);
    let mut talk = Talk::over(ours);
    talk.until(|record| matches!(record, Record::Blind(Why::NoLibrary, _)));
    // A process writes the first two; the kernel marks them as such.
    played.says("12,7,8,-;Out of memory: Killed process 1 (init) total-vm:1kB\n");
    played.says("11,7,8,-;NVRM: Xid (PCI:0000:01:00): 79, pid=1\n");
    played.says("6,8,9,-;usb 1-1: new device\n SUBSYSTEM=usb\n");
    played
        .says("3,9,9,-;Memory cgroup out of memory: Killed process 42 (ollama) total-vm:1kB, anon-rss:1kB\n");
    played.says("4,9,9,-;NVRM: Xid (PCI:0000:01:00): 31, pid=42, name=ollama\n");
    let mut notices = Vec::new();
    while notices.len() < 2 {
        if let Record::Kernel(notice) = talk.until(|record| matches!(record, Record::Kernel(_))) {
            notices.push(notice);
        }
    }
    let killed = Notice::Killed { pid: 42, name: "ollama".try_into().unwrap(), group: true };
    assert_eq!(notices, [killed, Notice::Xid { code: 31, pid: Some(42) }]);

    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let inode = rustix::fs::fstat(&socket).unwrap().st_ino;
    talk.stream.write_all(&Record::Who(5, inode).encode()).unwrap();
    let answer = talk.until(|record| matches!(record, Record::Owner(..)));
    assert!(
        matches!(answer, Record::Owner(5, Some(owner)) if owner.pid == std::process::id() && owner.start > 0),
        "{answer:?}"
    );
    drop(socket);
    talk.stream.write_all(&Record::Who(6, inode).encode()).unwrap();
    assert_eq!(talk.until(|record| matches!(record, Record::Owner(..))), Record::Owner(6, None));
}

#[test]
fn an_xid_is_told_by_the_driver_too() {
    let played = Played::new("");
    let (_helper, mut talk) = Alone::start(&played);
    talk.until(|record| told(record).is_some());
    played.plays("xid=79");
    assert_eq!(talk.until(|record| matches!(record, Record::Xid(..))), Record::Xid(0, 79));
}

#[test]
fn a_gpu_that_sleeps_is_not_asked_and_one_that_may_is_let() {
    let played = Played::new("");
    played.card("0000:01:00.0", "suspended", "auto");
    let (_helper, mut talk) = Alone::start(&played);
    for _ in 0..4 {
        let record = talk.next();
        assert_eq!(told(&record), Some((State::Asleep, 0, 0)), "{record:?}");
    }
    assert_eq!(played.calls(), "", "not even NVML's start");
    played.card("0000:01:00.0", "active", "auto");
    let awake = talk.until(|record| matches!(told(record), Some((State::Told, ..))));
    assert!(matches!(awake, Record::Figures(0, figures) if figures.pci == 0x0100), "{awake:?}");
    assert!(
        played.calls().contains("ByPciBusId") && !played.calls().contains("ByIndex"),
        "{}",
        played.calls()
    );
    // Another one that sleeps beside it is left alone.
    played.card("0000:02:00.0", "suspended", "auto");
    assert!(!played.calls().contains("nvmlShutdown"), "{}", played.calls());
    // Ten seconds, and nobody uses it.
    let start = now();
    while told(&talk.next()).is_none_or(|(state, ..)| state == State::Told) {
        assert!(start.elapsed() < 2 * SOON);
    }
    assert!(played.calls().trim_end().ends_with("nvmlShutdown"), "{}", played.calls());
}

#[test]
fn it_ends_with_its_parent_even_while_the_driver_hangs() {
    let played = Played::new("");
    let (mut helper, mut talk) = Alone::start(&played);
    talk.until(|record| told(record).is_some());
    played.plays("hang");
    let calls = played.calls().len();
    let start = now();
    while played.calls().len() == calls {
        assert!(start.elapsed() < SOON);
        std::thread::yield_now();
    }
    drop(talk);
    assert!(helper.ends().is_some());
}

#[test]
fn on_a_socket_it_serves_who_comes_again_and_ends_when_nobody_is_there() {
    let played = Played::new("");
    let path = played.folder.0.join("nvml.sock");
    let mut helper = Alone::on(&played, &path, "500");
    let mut first = Talk::over(UnixStream::connect(&path).unwrap());
    first.until(|record| told(record).is_some());
    // A successor, while the one before it still drains.
    let mut second = Talk::over(UnixStream::connect(&path).unwrap());
    second.until(|record| told(record).is_some());
    first.until(|record| told(record).is_some());
    drop(first);
    second.until(|record| told(record).is_some());
    drop(second);
    let mut third = Talk::over(UnixStream::connect(&path).unwrap());
    third.until(|record| told(record).is_some());
    assert_eq!(played.calls().matches("nvmlInit_v2").count(), 1, "one for all of them");
    // Whatever the kernel goes on about.
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                played.says("6,1,2,-;eth0: link is up\n");
                std::thread::park_timeout(Duration::from_millis(100));
            }
        });
        drop(third);
        let ended = helper.ends();
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(ended, Some(0));
    });
}

/// What `edgeward boards` says beside a helper on a socket.
fn boards(script: &str) -> String {
    let (played, folder) = (Played::new(script), alone());
    let socket = folder.0.join("nvml.sock");
    // Until then one of another release than the driver's lives on.
    let _helper = Alone::on(&played, &socket, "60000");
    let served = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", served.local_addr().unwrap());
    let config = format!(
        "[memory]\nboard = \"x86-rtx\"\n[[target]]\nname = \"box\"\nkind = \"vllm\"\nurl = \"{url}\"\n"
    );
    let config = folder.write("boards.toml", &config);
    let mut command = Command::new(folder.0.join("edgeward"));
    command.args(["boards", "--config"]).arg(config).env_clear().env("EDGEWARD_NVML_SOCKET", socket);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn boards_shows_what_it_sees_or_why_it_does_not() {
    for (script, lines) in [
        ("free=6000 gpus=2", ["  + GPU 0: 6000 MiB of 8000 MiB free, by the helper\n", "  + GPU 1: "]),
        (
            "unsupported noevents",
            ["  + GPU 0: its memory is the box's\n", "the card's own memory: no file tells"],
        ),
        ("lost", ["  - GPU 0: has fallen off the bus\n", "the card's own memory: no file tells"]),
        ("mismatch", ["different releases (NVML 18); reboot", "  + the helper, edgeward-nvml: /"]),
        (
            "nodriver",
            [
                "the NVIDIA driver is not loaded (NVML 9); load it",
                &format!("nvml.sock, version {}\n", super::VERSION),
            ],
        ),
    ] {
        let told = boards(script);
        let own = format!("  + box's process: {}, by its socket; ", std::process::id());
        for line in lines.into_iter().chain(["  + the kernel's log: ", &own]) {
            assert!(told.contains(line), "{script}: {line}\n{told}");
        }
    }
}

/// edgeward beside the real helper on this box.
async fn edgeward(played: &Played) -> (Program, SimServer) {
    let (folder, server) = (alone(), SimServer::start(healthy("a")).await.unwrap());
    let exports: String =
        played.env().iter().map(|(name, value)| format!("export {name}='{}'\n", value.display())).collect();
    let path = folder.write("edgeward-nvml", &format!("#!/bin/sh\n{exports}exec '{}'\n", helper().display()));
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    let command = in_folder(&folder, &server);
    (Program::started(folder, command).await, server)
}

/// Ends in its own way, so that it takes the helper along.
async fn end(program: &Program) {
    program.terminate();
    assert_eq!(program.exit_code().await, Some(0), "{}", program.log());
}

const FREE: &str = "edgeward_gpu_memory_free_bytes{gpu=\"0\"}";
const UP: &str = "edgeward_gpu_up{gpu=\"0\"}";

#[test]
fn a_leak_on_the_gpu_is_seen_as_pressure() {
    run(LIMIT, async {
        let played = Played::new("free=6000");
        let (program, _server) = edgeward(&played).await;
        program.logged(&["INFO", "gpu_seen"]).await;
        program.until_metric(FREE, (6000 * MIB) as f64).await;
        assert!(!program.log().contains(" pressure"), "{}", program.log());
        let status = program.status().await;
        assert_eq!(status["gpu"]["helper"], "sees", "{status}");
        assert_eq!(status["gpu"]["gpus"][0]["total_bytes"], 8000 * MIB, "{status}");
        assert_eq!(
            (program.metric(UP).await, program.metric("edgeward_helper_hears_kernel").await),
            (1.0, 1.0)
        );
        played.plays("free=6000 leak=1500");
        program.logged(&["pressure", "axis=device"]).await;
        end(&program).await;
    });
}

#[test]
fn down_and_blind_are_two_things() {
    run(LIMIT, async {
        let played = Played::new("");
        let (program, _server) = edgeward(&played).await;
        program.logged(&["gpu_seen"]).await;
        played.plays("lost");
        program.logged(&["WARN", "gpu_down", "gpu=0", "has fallen off the bus"]).await;
        program.until_metric(UP, 0.0).await;
        assert!(!program.log().contains("gpu_blind"), "{}", program.log());
        played.plays("");
        program.logged(&["INFO", "gpu_up"]).await;
        program.until_metric(UP, 1.0).await;
        serves(&program).await;
        end(&program).await;
    });
}

#[test]
fn after_an_upgrade_of_the_driver_the_helper_is_started_anew() {
    run(LIMIT, async {
        let played = Played::new("mismatch");
        let (program, _server) = edgeward(&played).await;
        program.logged(&["WARN", "gpu_blind", "different releases", "reboot"]).await;
        program.until_metric("edgeward_helper_restarts_total", 2.0).await;
        played.plays("");
        program.logged(&["INFO", "gpu_seen"]).await;
        assert!(!program.log().contains("gpu_down"), "{}", program.log());
        // It goes on until somebody reboots: said once.
        assert_eq!(program.log().matches("gpu_blind").count(), 1, "{}", program.log());
        assert_eq!(program.log().matches(" helper_").count(), 1, "{}", program.log());
        end(&program).await;
    });
}

#[test]
fn a_call_that_hangs_for_ever_makes_it_stale_and_clients_are_served() {
    run(LIMIT, async {
        let played = Played::new("");
        let (program, _server) = edgeward(&played).await;
        program.logged(&["gpu_seen"]).await;
        let before = super::children(program.pid());
        played.plays("hang");
        program.logged(&["WARN", "helper_stale", "silent_secs=2"]).await;
        program.until_metric("edgeward_helper_up", 0.0).await;
        serves(&program).await;
        let killed = async {
            while super::children(program.pid()).trim() == before.trim() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(2 * SOON, killed).await.expect("the helper is killed");
        program.logged(&["WARN", "helper_restarted", "said nothing for 10 seconds"]).await;
        let seen = program.log().matches("gpu_seen").count();
        played.plays("");
        let again = async {
            while program.log().matches("gpu_seen").count() == seen {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(SOON, again).await.expect("another is started");
        serves(&program).await;
        end(&program).await;
    });
}

#[test]
fn nvidia_smi_stands_in_where_there_is_no_helper() {
    run(LIMIT, async {
        let (folder, server) = (alone(), SimServer::start(healthy("a")).await.unwrap());
        let script = "#!/bin/sh\necho \"$@\" >\"${0%/*}/asked\"\nwhile echo '0, 8000, 5000'; do /bin/sleep 0.3; done\n";
        let path = folder.write("nvidia-smi", script);
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut command = in_folder(&folder, &server);
        command.env("PATH", &folder.0);
        let program = Program::started(folder, command).await;
        program.logged(&["WARN", "helper_replaced"]).await;
        program.until_metric(FREE, (5000 * MIB) as f64).await;
        let asked = std::fs::read_to_string(program.folder.0.join("asked")).unwrap();
        assert!(asked.contains("-lms 1000") && asked.contains("memory.free"), "{asked}");
        end(&program).await;
    });
}
