//! A model server that is a process of its own, which tests kill: what it has accepted outlives it, so that TCP tells nobody.

use std::io;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// By a request's model: `hold` gets no answer, its connection being held by a child, too; `own` gets none, and its connection
/// ends with the server; `eat` takes all memory. Another
/// one gets a process of its own and an answer the first time, and is held later. Whatever it starts ends with its input.
const SCRIPT: &str = r#"
import json, os, socket, sys, threading
port = int(sys.argv[1]) if len(sys.argv) > 1 else 0
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind(("127.0.0.1", port))
listener.listen(64)
runners = {}
def say(*words):
    print(*words, flush=True)
def child(keep):
    ready, closed = os.pipe()
    pid = os.fork()
    if pid:
        # Until then it has the listener, too.
        os.close(closed)
        os.read(ready, 1)
        os.close(ready)
        return pid
    for fd in range(3, 256):
        if fd not in (keep, closed):
            try: os.close(fd)
            except OSError: pass
    os.close(closed)
    while os.read(0, 1): pass
    os._exit(0)
def serve(connection):
    data = b""
    while b"\r\n\r\n" not in data:
        more = connection.recv(65536)
        if not more: return
        data += more
    head, body = data.split(b"\r\n\r\n", 1)
    if not head.startswith(b"POST"):
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
        connection.close()
        return
    length = [int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")][0]
    while len(body) < length:
        body += connection.recv(65536)
    model = json.loads(body)["model"]
    if model == "eat":
        kept = []
        while True: kept.append(b"x" * (1 << 20))
    if model == "own":
        say("held", model)
        return connection
    if model == "hold" or model in runners:
        child(connection.fileno())
        say("held", model)
        return connection
    runners[model] = child(-1)
    say("runner", model, runners[model])
    text = 'data: {"id":"c","model":"m","choices":[{"index":0,"delta":{"content":"[box]"}}]}\n\n' \
           'data: {"id":"c","model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    connection.sendall(("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n" + text).encode())
    connection.close()
say("port", listener.getsockname()[1])
held = []
def one(connection):
    held.append(serve(connection))
while True:
    connection, _ = listener.accept()
    one(connection)
"#;

/// One of them.
pub struct Dying {
    pub url: String,
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    /// Whatever it starts lives as long as this.
    _input: ChildStdin,
}

impl Dying {
    /// `within`: words before it. `None` where there is no Python.
    pub async fn start(within: &[String]) -> Option<Dying> {
        Dying::start_at(within, "0").await
    }

    /// Another one, where this one was.
    pub async fn again(&self) -> Dying {
        let (_, port) = self.url.rsplit_once(':').unwrap();
        Dying::start_at(&[], port).await.unwrap()
    }

    async fn start_at(within: &[String], port: &str) -> Option<Dying> {
        let python = ["python3", "-c", SCRIPT, port].map(str::to_owned);
        let mut words = within.iter().chain(&python);
        let mut command = Command::new(words.next().unwrap());
        command
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        let mut child = match command.spawn() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            child => child.unwrap(),
        };
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut dying =
            Dying { url: String::new(), child, lines: BufReader::new(output).lines(), _input: input };
        let said = dying.says().await;
        let port = said.strip_prefix("port ").expect("its port");
        dying.url = format!("http://127.0.0.1:{port}");
        Some(dying)
    }

    pub fn pid(&self) -> u32 {
        self.child.id().unwrap()
    }

    /// What it says next.
    pub async fn says(&mut self) -> String {
        self.lines.next_line().await.unwrap().expect("it says something")
    }

    /// The next process that it has started for `model`.
    pub async fn runner(&mut self, model: &str) -> u32 {
        let said = self.says().await;
        said.strip_prefix(&format!("runner {model} ")).expect("a runner").parse().unwrap()
    }

    pub fn kill(&self) {
        kill(self.pid());
    }

    pub async fn signal(&mut self) -> Option<i32> {
        use std::os::unix::process::ExitStatusExt as _;
        self.child.wait().await.unwrap().signal()
    }
}

/// SIGKILL.
pub fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(pid.try_into().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}
