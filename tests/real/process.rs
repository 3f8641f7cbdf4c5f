//! Processes that a test starts, hears, signals, and always ends.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

/// A server that is not ready by then will never be.
const START_MAX: Duration = Duration::from_secs(30);
/// A helper ends by then once its stdin is closed; else it is killed.
const END_MAX: Duration = Duration::from_secs(2);
/// How much of a process's output is shown when a test fails, in bytes.
const SHOWN: usize = 4000;

/// A running process; dropping it ends it, whatever the test's fate.
pub struct Process {
    name: &'static str,
    child: Child,
    /// Our helpers end when this closes.
    stdin: Option<ChildStdin>,
    output: Arc<Mutex<String>>,
    /// Closed when both of its outputs are.
    closed: mpsc::Receiver<String>,
}

impl Process {
    /// Starts it and waits for the first line, on either output, that has `ready` in it; gives the line's rest.
    pub fn start(name: &'static str, command: &mut Command, ready: &'static str) -> (Process, String) {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| {
                panic!("{name} does not start ({e}): run tests/run, which installs what is missing")
            });
        let output = Arc::new(Mutex::new(String::new()));
        let (lines, closed) = mpsc::channel();
        let (stdout, stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        listen(stdout, ready, lines.clone(), Arc::clone(&output));
        listen(stderr, ready, lines, Arc::clone(&output));
        let stdin = child.stdin.take();
        let process = Process { name, child, stdin, output, closed };
        match process.closed.recv_timeout(START_MAX) {
            Ok(rest) => (process, rest),
            Err(e) => panic!("{name} is not ready ({e}): {}", process.output()),
        }
    }

    /// The end of what it printed so far.
    pub fn output(&self) -> String {
        let output = self.output.lock().unwrap();
        let from = output.len().saturating_sub(SHOWN);
        output[output.ceil_char_boundary(from)..].to_owned()
    }

    /// Sends a signal by its name (`KILL`, `STOP`, `CONT`, `TERM`).
    pub fn signal(&self, signal: &str) {
        let sent = Command::new("sh")
            .args(["-c", "kill -s \"$0\" \"$1\"", signal, &self.child.id().to_string()])
            .status()
            .unwrap();
        assert!(sent.success(), "no signal {signal} to {}", self.name);
    }

    /// Kills it as the kernel's OOM killer would, and waits until it is gone.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.stdin.take());
        // A stopped process sees no end of its input; one that is gone cannot be signalled. Neither matters here.
        let _ = self.closed.recv_timeout(if self.name == "edgeward" { Duration::ZERO } else { END_MAX });
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- {}\n{}", self.name, self.output());
        }
    }
}

fn listen(
    from: impl Read + Send + 'static,
    ready: &'static str,
    lines: mpsc::Sender<String>,
    output: Arc<Mutex<String>>,
) {
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            if let Some(rest) = line.split_once(ready).map(|(_, rest)| rest) {
                // The receiver is gone when the test is over.
                let _ = lines.send(rest.trim().to_owned());
            }
            let mut output = output.lock().unwrap();
            output.push_str(&line);
            output.push('\n');
        }
    });
}
