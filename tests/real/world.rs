//! The real servers of a test: llama.cpp as local, llama.cpp behind TLS as cloud, edgeward before both.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::Value;

use crate::http;
use crate::process::Process;

/// The model's name at both servers and for the clients.
pub const MODEL: &str = "smollm2";
/// More than a healthy local server ever needs here.
pub const PATIENT: &str = r#"deadlines = { first_token = "60s" }"#;
/// Nothing that a test waits for takes longer, on the slowest machine that the tests run on.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Between two looks at a server that tells of nothing by itself.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// One llama.cpp server.
pub struct Model {
    pub process: Process,
    pub port: u16,
}

impl Model {
    /// Starts it on `port`; 0 lets the system choose. `options` are `server.py`'s.
    pub fn start(name: &'static str, port: u16, options: &[&str]) -> Model {
        let mut command = python("server.py");
        command.args(["--embeddings", "--batch", "64", "--alias", MODEL, "--port", &port.to_string()]);
        command.args(options);
        let (process, port) = Process::start(name, &mut command, "ready ");
        Model { process, port: port.parse().unwrap() }
    }

    /// Waits until it computes a prompt, with a part of it already done and no token yet.
    pub fn wait_computing_prompt(&self) {
        wait_for("a prompt under computation", || {
            self.slots().iter().any(|slot| {
                assert!(decoded(slot) == 0, "the prompt is too short to be caught: {slot}");
                slot["n_prompt_tokens_processed"].as_u64().is_some_and(|done| done > 0)
            })
        });
    }

    /// Waits until it shows tokens.
    pub fn wait_generating(&self) {
        wait_for("a token", || self.slots().iter().any(|slot| decoded(slot) > 0));
    }

    /// Waits until no slot is at work.
    pub fn wait_idle(&self) {
        wait_for("a free slot", || self.slots().iter().all(|slot| slot["is_processing"] == false));
    }

    /// As [`Model::wait_idle`], but no slot may have come as far as a token.
    pub fn wait_idle_without_token(&self) {
        wait_for("a free slot", || {
            let slots = self.slots();
            assert!(slots.iter().all(|slot| decoded(slot) == 0), "it went on to the first token: {slots:?}");
            slots.iter().all(|slot| slot["is_processing"] == false)
        });
    }

    /// Whether the latest request of all slots asked for a stream.
    pub fn last_streamed(&self) -> bool {
        let slots = self.slots();
        let last = slots.iter().max_by_key(|slot| slot["id_task"].as_i64()).unwrap();
        last["params"]["stream"] == true
    }

    fn slots(&self) -> Vec<Value> {
        let answer = http::get(self.port, "/slots").unwrap();
        answer.json().as_array().unwrap().clone()
    }
}

/// Tokens that a slot at work has shown; 0 for one at rest.
fn decoded(slot: &Value) -> u64 {
    if slot["is_processing"] == true { slot["next_token"][0]["n_decoded"].as_u64().unwrap() } else { 0 }
}

/// nginx with a certificate made for the test.
pub struct TlsFront {
    _process: Process,
    pub port: u16,
    pub ca_file: PathBuf,
}

impl TlsFront {
    pub fn start(upstream: u16) -> TlsFront {
        let (process, rest) =
            Process::start("nginx", python("tls_front.py").arg(upstream.to_string()), "ready ");
        let (port, ca_file) = rest.split_once(' ').unwrap();
        TlsFront { _process: process, port: port.parse().unwrap(), ca_file: ca_file.into() }
    }
}

/// edgeward itself, with its configuration in a directory of its own.
pub struct Edgeward {
    _process: Process,
    pub port: u16,
    directory: PathBuf,
}

impl Edgeward {
    /// Starts it before a local server on `local` and the cloud behind `front`. `local_keys` are more lines of
    /// the local target's configuration.
    pub fn start(local: u16, front: &TlsFront, local_keys: &str) -> Edgeward {
        Edgeward::configured(&format!(
            r#"
[[target]]
name = "local"
kind = "llamacpp"
url = "http://127.0.0.1:{local}"
place = "local"
group = "primary"
embeddings = "{MODEL}"
{local_keys}

[[target]]
name = "cloud"
kind = "llamacpp"
url = "https://localhost:{tls}"
place = "cloud"
group = "fallback"
ca_file = "{ca_file}"
context = 4096
models = {{ "*" = "{MODEL}" }}

[router]
groups = ["primary", "fallback"]
"#,
            tls = front.port,
            ca_file = front.ca_file.display(),
        ))
    }

    /// Starts it with this configuration, but for where it listens.
    pub fn configured(config: &str) -> Edgeward {
        static STARTED: AtomicUsize = AtomicUsize::new(0);
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("edgeward-real-{}-{number}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let listen =
            format!("listen = [\"127.0.0.1:0\"]\nadmin_listen = \"{}/admin.sock\"\n", directory.display());
        let file = directory.join("edgeward.toml");
        fs::write(&file, listen + config).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_edgeward"));
        command.args(["run", "--config"]).arg(&file);
        let (process, port) = Process::start("edgeward", &mut command, "listening on http://127.0.0.1:");
        let digits = port.find(|c: char| !c.is_ascii_digit()).unwrap_or(port.len());
        Edgeward { _process: process, port: port[..digits].parse().unwrap(), directory }
    }
}

impl Drop for Edgeward {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Two llama.cpp servers, nginx, edgeward. One world at a time: two would starve each other of the processor.
pub struct World {
    // Fields are dropped in this order: first who asks, then who is asked.
    pub edgeward: Edgeward,
    pub local: Model,
    pub cloud: Model,
    _front: TlsFront,
    _turn: File,
}

impl World {
    /// With a local server of the usual size and patience for it.
    pub fn start() -> World {
        World::with(&[], PATIENT)
    }

    /// With these options for the local server, and these lines in its target's configuration.
    pub fn with(local_options: &[&str], local_keys: &str) -> World {
        let turn = take_turn();
        let (cloud, front) = start_cloud();
        let local = Model::start("local llama.cpp", 0, local_options);
        let edgeward = Edgeward::start(local.port, &front, local_keys);
        World { edgeward, local, cloud, _front: front, _turn: turn }
    }
}

/// A llama.cpp server, and nginx before it.
pub fn start_cloud() -> (Model, TlsFront) {
    let cloud = Model::start("cloud llama.cpp", 0, &[]);
    let front = TlsFront::start(cloud.port);
    (cloud, front)
}

/// Waits for this machine's turn, across test processes too; it ends when the file is dropped.
pub fn take_turn() -> File {
    let turn = File::create(std::env::temp_dir().join("edgeward-real.lock")).unwrap();
    turn.lock().unwrap();
    turn
}

/// A port on which nothing listens now.
pub fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}

/// A Python program from this directory, with the venv that `tests/run` makes.
pub fn python(script: &str) -> Command {
    let interpreter = test_cache().join("venv/bin/python");
    assert!(
        interpreter.exists(),
        "{} is missing: run tests/run, which installs the real model server",
        interpreter.display()
    );
    let mut command = Command::new(interpreter);
    command.arg("-B").arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/real").join(script));
    command
}

fn test_cache() -> PathBuf {
    if let Some(path) = std::env::var_os("EDGEWARD_TEST_CACHE") {
        return path.into();
    }
    let cache = std::env::var_os("XDG_CACHE_HOME").map_or_else(
        || Path::new(&std::env::var_os("HOME").expect("HOME is set")).join(".cache"),
        PathBuf::from,
    );
    cache.join("edgeward")
}

/// Looks again and again until `holds`, or panics after [`WAIT_MAX`].
pub fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let end = edgeward::time::now() + WAIT_MAX;
    while !holds() {
        assert!(edgeward::time::now() < end, "waited in vain for {what}");
        std::thread::park_timeout(LOOK_AGAIN);
    }
}
