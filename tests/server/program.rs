//! The built program with its files, its environment and its end; a connection that a test writes bytes on.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use edgeward::sim::server::SimServer;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::task::LocalSet;

/// For what must happen, and does within milliseconds on an idle machine.
pub const SOON: Duration = Duration::from_secs(8);

/// Runs `test` as the program itself runs: on one thread, with local tasks. Fails it after `limit`.
pub fn run(limit: Duration, test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(LocalSet::new().run_until(async {
        tokio::time::timeout(limit, test).await.expect("the test took too long");
    }));
}

/// One answer, as it came.
#[derive(Debug, Default)]
pub struct Answer {
    /// 0 where no head came.
    pub status: u16,
    /// Names in lower case, in order.
    pub headers: Vec<(String, String)>,
    /// Chunk framing removed.
    pub body: Vec<u8>,
    /// Whether the body's end was said: its last chunk, or its `Content-Length`.
    pub clean: bool,
}

impl Answer {
    /// The first header of this name, given in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// Where `needle` begins.
pub fn find(bytes: &[u8], needle: &[u8]) -> Option<usize> {
    memchr::memmem::find(bytes, needle)
}

/// A folder of its own for one test's files; removed when dropped.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new() -> Folder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("server-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The program's command on a configuration in `folder`.
pub fn command(folder: &Folder, verb: &str, config: &str, env: &[(&str, &str)]) -> Command {
    let path = folder.write("edgeward.toml", config);
    let mut command = Command::new(env!("CARGO_BIN_EXE_edgeward"));
    command
        .args([verb.as_ref(), "--config".as_ref(), path.as_os_str()])
        .env_clear()
        .envs(env.iter().copied())
        .stdin(Stdio::null())
        .kill_on_drop(true);
    command
}

/// Runs the program to its end.
pub async fn outcome(verb: &str, config: &str) -> Output {
    let folder = Folder::new();
    tokio::time::timeout(SOON, command(&folder, verb, config, &[]).output()).await.unwrap().unwrap()
}

/// `edgeward run`, killed by its process id when dropped.
pub struct Program {
    pub addr: SocketAddr,
    pub folder: Folder,
    log: Rc<RefCell<String>>,
    child: RefCell<Child>,
}

impl Program {
    /// Starts it with `listen` on a free port; `config` has everything else.
    pub async fn start(config: &str) -> Program {
        Program::start_in(Folder::new(), config, &[]).await
    }

    pub async fn start_in(folder: Folder, config: &str, env: &[(&str, &str)]) -> Program {
        let config = format!("listen = [\"127.0.0.1:0\"]\n{config}{}", quiet(config));
        let command = command(&folder, "run", &config, env);
        Program::started(folder, command).await
    }

    /// By a command that ends in being it, on a configuration that listens on a free port.
    pub async fn started(folder: Folder, mut command: Command) -> Program {
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let log = Rc::new(RefCell::new(String::new()));
        let keep = Rc::clone(&log);
        let (found, address) = tokio::sync::oneshot::channel();
        tokio::task::spawn_local(async move {
            let mut found = Some(found);
            while let Ok(Some(line)) = lines.next_line().await {
                let said = line.split_once("listening on http").and_then(|(_, rest)| rest.split_once("://"));
                if let Some(addr) = said.and_then(|(_, addr)| addr.trim().parse().ok())
                    && let Some(found) = found.take()
                {
                    let _: Result<(), SocketAddr> = found.send(addr);
                }
                let mut log = keep.borrow_mut();
                log.push_str(&line);
                log.push('\n');
            }
        });
        let addr = tokio::time::timeout(SOON, address).await;
        let Ok(Ok(addr)) = addr else { panic!("edgeward does not listen; it printed:\n{}", log.borrow()) };
        Program { addr, folder, log, child: RefCell::new(child) }
    }

    pub fn log(&self) -> String {
        self.log.borrow().clone()
    }

    /// Waits until it has printed a line with all of `parts`.
    pub async fn logged(&self, parts: &[&str]) {
        let there = || self.log().lines().any(|line| parts.iter().all(|part| line.contains(part)));
        let printed = async {
            while !there() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        if tokio::time::timeout(SOON, printed).await.is_err() {
            panic!("no line with {parts:?}:\n{}", self.log());
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.borrow().id().unwrap()
    }

    pub fn terminate(&self) {
        let pid = self.pid().to_string();
        assert!(std::process::Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    }

    #[expect(clippy::await_holding_refcell_ref, reason = "nobody else waits for it")]
    pub async fn exit_code(&self) -> Option<i32> {
        let mut child = self.child.borrow_mut();
        tokio::time::timeout(SOON, child.wait()).await.expect("it ends").unwrap().code()
    }

    /// Resident memory, in bytes.
    pub fn memory(&self) -> usize {
        let pid = self.pid();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
    }

    /// Every series of the metrics page by its name and labels.
    pub async fn metrics(&self) -> BTreeMap<String, f64> {
        let answer = ask(self.addr, "GET", "/edgeward/metrics", &[], "").await;
        assert_eq!(answer.status, 200);
        let text = answer.text();
        let series = text.lines().filter(|line| !line.starts_with('#')).map(|line| {
            let (name, value) = line.rsplit_once(' ').expect("a name and a value");
            (name.to_owned(), value.parse().expect("a number"))
        });
        series.collect()
    }

    /// One series; zero where it is not there.
    pub async fn metric(&self, series: &str) -> f64 {
        self.metrics().await.get(series).copied().unwrap_or_default()
    }

    /// Asks until one series has this value.
    pub async fn until_metric(&self, series: &str, wanted: f64) {
        self.until_metric_is(series, |value| value == wanted).await;
    }

    /// Asks until one series is as wanted.
    pub async fn until_metric_is(&self, series: &str, wanted: impl Fn(f64) -> bool) {
        let reached = async {
            while !wanted(self.metric(series).await) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        if tokio::time::timeout(SOON, reached).await.is_err() {
            panic!("{series} is {}", self.metric(series).await);
        }
    }

    pub async fn status(&self) -> Value {
        let answer = ask(self.addr, "GET", "/edgeward/status", &[], "").await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        serde_json::from_slice(&answer.body).unwrap()
    }
}

/// Without requests of the program's own, which a test that counts would see; unless it is about them.
pub fn quiet(config: &str) -> &'static str {
    match (config.contains("[probe]"), config.contains("[memory]")) {
        (true, true) => "",
        (true, false) => "\n[memory]\nenabled = false\n",
        (false, true) => "\n[probe]\nenabled = false\n",
        (false, false) => "\n[probe]\nenabled = false\n[memory]\nenabled = false\n",
    }
}

/// One `[[target]]` that keeps every model's name, in a group of its own: they are tried in their order, and each is
/// asked once unless `more`, which has further keys, says otherwise.
pub fn target(name: &str, kind: &str, server: &SimServer, more: &str) -> String {
    target_at(name, kind, &server.url(), more)
}

pub fn target_at(name: &str, kind: &str, url: &str, more: &str) -> String {
    let once = if more.contains("max_retries") { "" } else { "max_retries = 0\n" };
    format!(
        "\n[[target]]\nname = \"{name}\"\nkind = \"{kind}\"\nurl = \"{url}\"\nplace = \"local\"\ngroup = \"{name}\"\n{once}{more}\n"
    )
}

/// A connection with what was read and not used yet.
pub struct Wire<S = TcpStream> {
    pub stream: S,
    buf: Vec<u8>,
}

impl Wire {
    pub async fn connect(addr: SocketAddr) -> Wire {
        let stream = TcpStream::connect(addr).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Wire::over(stream)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Wire<S> {
    pub fn over(stream: S) -> Wire<S> {
        Wire { stream, buf: Vec::new() }
    }

    /// Writes, if the other end still takes it.
    pub async fn write(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.stream.write_all(bytes.as_ref()).await;
    }

    /// One more read. `false` at the end.
    async fn more(&mut self) -> bool {
        let read = tokio::time::timeout(SOON, self.stream.read_buf(&mut self.buf)).await;
        matches!(read.expect("something comes, or the end"), Ok(n) if n > 0)
    }

    /// Whether the other end closes, nothing more being said.
    pub async fn ends(&mut self) -> bool {
        self.buf.is_empty() && !self.more().await
    }

    async fn head_bytes(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(end) = find(&self.buf, b"\r\n\r\n") {
                return Some(self.buf.drain(..end + 4).collect());
            }
            if !self.more().await {
                return None;
            }
        }
    }

    /// A head; informational ones too. `None` where the connection ends before.
    pub async fn head(&mut self) -> Option<Answer> {
        self.head_bytes().await.map(parse_head)
    }

    /// The head that comes next, left where it is.
    pub async fn peek_head(&mut self) -> Answer {
        let head = self.head_bytes().await.expect("a head");
        self.buf.splice(..0, head.iter().copied());
        parse_head(head)
    }

    /// Reads until `needle` was in the body, which may be chunked.
    pub async fn until(&mut self, needle: &str) {
        while find(&self.buf, needle.as_bytes()).is_none() {
            assert!(self.more().await, "{needle} in {}", String::from_utf8_lossy(&self.buf));
        }
    }

    /// Everything up to the connection's end.
    pub async fn rest(&mut self) -> Vec<u8> {
        while self.more().await {}
        std::mem::take(&mut self.buf)
    }

    /// The next whole answer, framed as its head says; status 0 where none comes.
    pub async fn answer(&mut self) -> Answer {
        self.answer_to("POST").await
    }

    pub async fn answer_to(&mut self, method: &str) -> Answer {
        let Some(mut answer) = self.head().await else { return Answer::default() };
        let length = answer.header("content-length").map(|text| text.parse::<usize>().unwrap());
        if method == "HEAD" || answer.status == 204 {
            answer.clean = true;
        } else if answer.header("transfer-encoding") == Some("chunked") {
            self.chunks(&mut answer).await;
        } else {
            let length = length.expect("a length");
            while self.buf.len() < length && self.more().await {}
            answer.clean = self.buf.len() >= length;
            answer.body = self.buf.drain(..length.min(self.buf.len())).collect();
        }
        answer
    }

    async fn chunks(&mut self, answer: &mut Answer) {
        loop {
            let line = loop {
                if let Some(line) = find(&self.buf, b"\r\n") {
                    break line;
                }
                if !self.more().await {
                    return;
                }
            };
            let size = usize::from_str_radix(std::str::from_utf8(&self.buf[..line]).unwrap(), 16).unwrap();
            while self.buf.len() < line + 2 + size + 2 {
                if !self.more().await {
                    return;
                }
            }
            answer.body.extend_from_slice(&self.buf[line + 2..line + 2 + size]);
            self.buf.drain(..line + 2 + size + 2);
            if size == 0 {
                answer.clean = true;
                return;
            }
        }
    }
}

fn parse_head(head: Vec<u8>) -> Answer {
    let head = String::from_utf8(head).unwrap();
    let mut lines = head.split("\r\n");
    let status = lines.next().unwrap().strip_prefix("HTTP/1.1 ").expect("HTTP/1.1");
    let mut answer = Answer { status: status[..3].parse().unwrap(), ..Answer::default() };
    for line in lines.filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':').unwrap();
        answer.headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    answer
}

/// A request's bytes. A body makes it `application/json` with its length.
pub fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> String {
    let mut text = format!("{method} {path} HTTP/1.1\r\n");
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        text += "Host: localhost\r\n";
    }
    if !body.is_empty() {
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type")) {
            text += "Content-Type: application/json\r\n";
        }
        text += &format!("Content-Length: {}\r\n", body.len());
    }
    for (name, value) in headers {
        text += &format!("{name}: {value}\r\n");
    }
    text + "\r\n" + body
}

/// One request on a connection of its own.
pub async fn ask(addr: SocketAddr, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
    let mut wire = Wire::connect(addr).await;
    wire.write(request(method, path, headers, body)).await;
    wire.answer_to(method).await
}

/// A chat request's body.
pub fn chat(stream: bool) -> String {
    format!(r#"{{"model":"m","stream":{stream},"messages":[{{"role":"user","content":"hi"}}]}}"#)
}

pub const CHAT: &str = "/v1/chat/completions";

/// An OpenAI chunk with this content, as a script's line.
pub fn token(text: &str) -> String {
    format!(
        "D {{\"id\":\"c1\",\"model\":\"m\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}}}}]}}\n"
    )
}
