//! What integration tests need: the built program on a free port, a raw client, and what a client reads.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::task::LocalSet;

mod said;
#[allow(unused_imports, reason = "not every test that shares this file reads answers")]
pub use said::{Said, said};

/// What the program prints on stderr, the address following.
const LISTENING: &str = "listening on http://";
/// The program says where it listens within this time, or the test fails.
const START: Duration = Duration::from_secs(10);
/// What of an answer is not there after this is not waited for.
const ANSWER: Duration = Duration::from_secs(10);

/// Runs `test` as the program itself runs: on one thread, with local tasks. Fails it after `limit`.
pub fn run(limit: Duration, test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(LocalSet::new().run_until(async {
        tokio::time::timeout(limit, test).await.expect("the test took too long");
    }));
}

/// The program under test: `EDGEWARD_PROGRAM`, its words parted by spaces, so that an emulator may stand before it;
/// else the one that cargo built.
pub fn program() -> Command {
    let named = std::env::var("EDGEWARD_PROGRAM").unwrap_or_default();
    let mut words = named.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or(env!("CARGO_BIN_EXE_edgeward")));
    command.args(words);
    command
}

/// The program, running with a configuration of its own. Killed, by its process id, when dropped.
pub struct Edgeward {
    /// Where clients connect.
    pub addr: SocketAddr,
    log: Rc<RefCell<String>>,
    config: PathBuf,
    _child: Child,
}

impl Drop for Edgeward {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.config);
    }
}

impl Edgeward {
    /// Starts `edgeward run` and waits until it says where it listens. The configuration should have
    /// `listen = ["127.0.0.1:0"]`. Fails the test, with what was printed, if it ends first.
    pub async fn start(config: &str) -> Edgeward {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("edgeward-{}-{}.toml", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        // Requests of its own would be counted as a test's.
        let quiet = ["[probe]", "[memory]"].map(|table| {
            if config.contains(table) { String::new() } else { format!("\n{table}\nenabled = false\n") }
        });
        std::fs::write(&path, config.to_owned() + &quiet.concat()).unwrap();
        let mut child = program()
            .args(["run".as_ref(), "--config".as_ref(), path.as_os_str()])
            // Keys and proxies of whoever runs the tests are none of theirs.
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let log = Rc::new(RefCell::new(String::new()));
        let keep = Rc::clone(&log);
        let (found, address) = tokio::sync::oneshot::channel();
        tokio::task::spawn_local(async move {
            let mut found = Some(found);
            while let Ok(Some(line)) = lines.next_line().await {
                let after = line.split_once(LISTENING).map(|(_, after)| after);
                if let Some(found) = after.and_then(address_of).and_then(|addr| Some((addr, found.take()?))) {
                    let _ = found.1.send(found.0);
                }
                let mut log = keep.borrow_mut();
                log.push_str(&line);
                log.push('\n');
            }
        });
        let addr = tokio::time::timeout(START, address).await;
        let Ok(Ok(addr)) = addr else {
            panic!("edgeward did not say where it listens; it printed:\n{}", log.borrow());
        };
        Edgeward { addr, log, config: path, _child: child }
    }

    /// What it printed so far.
    pub fn log(&self) -> String {
        self.log.borrow().clone()
    }
}

fn address_of(text: &str) -> Option<SocketAddr> {
    let end = text.find(|c: char| !(c.is_ascii_digit() || ".:[]".contains(c))).unwrap_or(text.len());
    text[..end].parse().ok()
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
    /// Whether it had no end, clean or not, in the time that a test waits.
    pub late: bool,
    /// When the request was sent.
    pub sent: Option<Instant>,
    /// Each chunk of the body (each read, where it is not chunked), and when it was there.
    pub pieces: Vec<(Instant, Vec<u8>)>,
}

impl Answer {
    /// The first header of this name, given in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// From the request to the last piece of the answer; zero where none came.
    pub fn took(&self) -> Duration {
        let last = self.pieces.last().map(|(at, _)| *at);
        last.zip(self.sent).map(|(last, sent)| last.duration_since(sent)).unwrap_or_default()
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// Posts a JSON body and reads the answer to its end, however that comes, or until it is late.
pub async fn post(addr: SocketAddr, path: &str, body: &str, headers: &[(&str, &str)]) -> Answer {
    let mut answer = Answer { sent: Some(edgeward::time::now()), ..Answer::default() };
    let stream = send(addr, path, body, headers).await;
    answer.late = tokio::time::timeout(ANSWER, receive(stream, &mut answer)).await.is_err();
    answer
}

/// Posts a JSON body and gives the connection.
pub async fn send(addr: SocketAddr, path: &str, body: &str, headers: &[(&str, &str)]) -> TcpStream {
    let mut head = format!(
        "POST {path} HTTP/1.1\r\nHost: {addr}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n",
        body.len()
    );
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    let mut stream = TcpStream::connect(addr).await.unwrap();
    stream.set_nodelay(true).unwrap();
    stream.write_all([&head, "\r\n", body].concat().as_bytes()).await.unwrap();
    stream
}

/// Reads one answer, to the end that it announces or to the connection's.
async fn receive(mut stream: TcpStream, answer: &mut Answer) {
    let mut buf = Vec::new();
    let head = loop {
        if let Some(end) = find(&buf, b"\r\n\r\n") {
            break buf.drain(..end + 4).collect::<Vec<u8>>();
        }
        if !matches!(stream.read_buf(&mut buf).await, Ok(n) if n > 0) {
            return;
        }
    };
    let head = String::from_utf8(head).expect("a head in UTF-8");
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.strip_prefix("HTTP/1.1 ")).and_then(|rest| rest.get(..3));
    answer.status = status.and_then(|status| status.parse().ok()).expect("a status line");
    for line in lines.filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':').expect("a header with a colon");
        answer.headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let length: Option<usize> = answer.header("content-length").map(|text| text.parse().expect("a length"));
    let chunked = answer.header("transfer-encoding") == Some("chunked");
    loop {
        take_body(answer, &mut buf, chunked, length);
        if answer.clean || !matches!(stream.read_buf(&mut buf).await, Ok(n) if n > 0) {
            return;
        }
    }
}

/// Moves what is whole from `buf` into the answer.
fn take_body(answer: &mut Answer, buf: &mut Vec<u8>, chunked: bool, length: Option<usize>) {
    let now = edgeward::time::now();
    if !chunked {
        if !buf.is_empty() {
            answer.body.extend_from_slice(buf);
            answer.pieces.push((now, std::mem::take(buf)));
        }
        answer.clean = length.is_some_and(|length| answer.body.len() >= length);
        return;
    }
    while let Some(line) = find(buf, b"\r\n") {
        let size = String::from_utf8_lossy(&buf[..line]).into_owned();
        let size = size.split(';').next().unwrap_or_default().trim();
        let size = usize::from_str_radix(size, 16).expect("a chunk size");
        if size == 0 {
            answer.clean = find(buf, b"\r\n\r\n").is_some();
            return;
        }
        if buf.len() < line + 2 + size + 2 {
            return;
        }
        let chunk = buf[line + 2..line + 2 + size].to_vec();
        buf.drain(..line + 2 + size + 2);
        answer.body.extend_from_slice(&chunk);
        answer.pieces.push((now, chunk));
    }
}

/// Where `needle` begins.
pub fn find(bytes: &[u8], needle: &[u8]) -> Option<usize> {
    bytes.windows(needle.len()).position(|window| window == needle)
}
