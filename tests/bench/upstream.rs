//! A model server that costs next to nothing, so that what is measured is the proxy before it.
//!
//! One thread, two listeners: the local target and the one to fail over to. The model's name in
//! a request chooses what it does ([`Mode`]); the second listener always answers at once.

use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};

use crate::{find, now};

/// Tokens of every stream.
pub const TOKENS: usize = 20;
/// What each token's text begins with; clients look for it.
pub const TOKEN_MARK: &[u8] = b"\"content\":\"tok";
/// Between two tokens of a [`Mode::Paced`] stream: 200 tokens a second.
pub const PACE: Duration = Duration::from_millis(5);
/// Sent before the hold of [`Mode::HoldFull`], in bytes: three quarters of edgeward's default gate buffer.
const PREAMBLE_BYTES: usize = 48 * 1024;
const ROLE: &str = r#"{"id":"chatcmpl-bench","object":"chat.completion.chunk","created":1700000000,"model":"bench","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}"#;

/// What the local target does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// All tokens at once, each a write of its own.
    Burst,
    /// The first token at once, then one each [`PACE`].
    Paced,
    /// A role frame, then nothing until released.
    Hold,
    /// [`PREAMBLE_BYTES`] of role frames, then nothing until released.
    HoldFull,
    /// A reset once the request is read.
    DieHead,
    /// A reset after the response's head and a role frame.
    DieRole,
}

impl Mode {
    const ALL: [Mode; 6] =
        [Mode::Burst, Mode::Paced, Mode::Hold, Mode::HoldFull, Mode::DieHead, Mode::DieRole];

    /// The model to ask for.
    pub const fn model(self) -> &'static str {
        match self {
            Mode::Burst => "burst",
            Mode::Paced => "paced",
            Mode::Hold => "hold",
            Mode::HoldFull => "hold-full",
            Mode::DieHead => "die-head",
            Mode::DieRole => "die-role",
        }
    }
}

/// One step of an answer.
enum Step {
    Write(Vec<u8>),
    Pause,
    Hold,
    Die,
}

fn chunk(data: &str) -> Vec<u8> {
    let event = format!("data: {data}\n\n");
    format!("{:x}\r\n{event}\r\n", event.len()).into_bytes()
}

/// The whole answer of one mode; `usage`: the client asked for it, so it comes, as from real servers.
fn script(mode: Mode, usage: bool) -> Vec<Step> {
    if mode == Mode::DieHead {
        return vec![Step::Die];
    }
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n\
                Transfer-Encoding: chunked\r\n\r\n";
    // Under the name that was asked for, as model servers do.
    let chunk =
        |text: &str| chunk(&text.replace(r#""model":"bench""#, &format!(r#""model":"{}""#, mode.model())));
    let mut steps = vec![Step::Write([head.as_bytes(), &chunk(ROLE)].concat())];
    match mode {
        Mode::DieRole => steps.push(Step::Die),
        Mode::Hold => steps.push(Step::Hold),
        Mode::HoldFull => {
            let role = chunk(ROLE);
            let count = PREAMBLE_BYTES / role.len();
            steps.push(Step::Write(role.repeat(count)));
            steps.push(Step::Hold);
        }
        Mode::Burst | Mode::Paced | Mode::DieHead => {}
    }
    for n in 0..TOKENS {
        if mode == Mode::Paced && n > 0 {
            steps.push(Step::Pause);
        }
        steps.push(Step::Write(chunk(&format!(
            r#"{{"id":"chatcmpl-bench","object":"chat.completion.chunk","created":1700000000,"model":"bench","choices":[{{"index":0,"delta":{{"content":"tok{n:02} "}},"finish_reason":null}}]}}"#
        ))));
    }
    steps.push(Step::Write(chunk(
        r#"{"id":"chatcmpl-bench","object":"chat.completion.chunk","created":1700000000,"model":"bench","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#,
    )));
    if usage {
        steps.push(Step::Write(chunk(
            r#"{"id":"chatcmpl-bench","object":"chat.completion.chunk","created":1700000000,"model":"bench","choices":[],"usage":{"prompt_tokens":60,"completion_tokens":20,"total_tokens":80}}"#,
        )));
    }
    steps.push(Step::Write([chunk("[DONE]").as_slice(), b"0\r\n\r\n"].concat()));
    steps
}

/// An answer under way.
struct Answer {
    script: (Mode, bool),
    step: usize,
    offset: usize,
    /// In a [`Step::Hold`], until released.
    held: bool,
    /// In a [`Step::Pause`], until its timer.
    paused: bool,
}

struct Conn {
    stream: TcpStream,
    second: bool,
    requests: u64,
    input: Vec<u8>,
    answer: Option<Answer>,
    /// A control answer that waits for this many held streams.
    waits_for: Option<usize>,
}

enum Next {
    Keep,
    Close,
    Reset,
}

struct Server {
    poll: Poll,
    scripts: HashMap<(Mode, bool), Vec<Step>>,
    conns: BTreeMap<usize, Conn>,
    timers: BinaryHeap<std::cmp::Reverse<(Instant, usize)>>,
    next_token: usize,
    /// Some control request waits for held streams.
    waited_for: bool,
    /// When the local target last reset a connection that nobody took over yet.
    died: Option<Instant>,
    /// For each death that the second listener took over: nanoseconds, and whether its connection had served before.
    failovers: Vec<(u128, bool)>,
}

const LISTENERS: usize = 2;

/// Runs until its standard input ends or it is killed; prints its two ports once it listens.
pub fn serve() -> io::Result<()> {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let mut listeners = [TcpListener::bind(any)?, TcpListener::bind(any)?];
    let mut server = Server {
        poll: Poll::new()?,
        scripts: Mode::ALL
            .iter()
            .flat_map(|&mode| [(mode, false), (mode, true)])
            .map(|key| (key, script(key.0, key.1)))
            .collect(),
        conns: BTreeMap::new(),
        timers: BinaryHeap::new(),
        next_token: LISTENERS,
        waited_for: false,
        died: None,
        failovers: Vec::new(),
    };
    for (n, listener) in listeners.iter_mut().enumerate() {
        server.poll.registry().register(listener, Token(n), Interest::READABLE)?;
    }
    println!("{} {}", listeners[0].local_addr()?.port(), listeners[1].local_addr()?.port());
    let mut events = Events::with_capacity(256);
    loop {
        let wait = server.timers.peek().map(|entry| entry.0.0.saturating_duration_since(now()));
        match server.poll.poll(&mut events, wait) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        for event in &events {
            match event.token().0 {
                n if n < LISTENERS => server.accept(&listeners[n], n == 1)?,
                token => server.ready(token),
            }
        }
        while let Some(&std::cmp::Reverse((at, token))) = server.timers.peek() {
            if at > now() {
                break;
            }
            server.timers.pop();
            server.pause_over(token);
        }
    }
}

impl Server {
    fn accept(&mut self, listener: &TcpListener, second: bool) -> io::Result<()> {
        loop {
            let mut stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(_) => continue,
            };
            stream.set_nodelay(true)?;
            let token = self.next_token;
            self.next_token += 1;
            self.poll.registry().register(
                &mut stream,
                Token(token),
                Interest::READABLE | Interest::WRITABLE,
            )?;
            let conn = Conn { stream, second, requests: 0, input: Vec::new(), answer: None, waits_for: None };
            self.conns.insert(token, conn);
            self.ready(token);
        }
    }

    fn ready(&mut self, token: usize) {
        let Some(conn) = self.conns.get_mut(&token) else { return };
        let mut chunk = [0; 16 * 1024];
        loop {
            match conn.stream.read(&mut chunk) {
                Ok(0) => return self.drop_conn(token),
                Ok(n) => conn.input.extend_from_slice(&chunk[..n]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => return self.drop_conn(token),
            }
        }
        if conn.answer.is_none()
            && let Some((head, end)) = whole_request(&conn.input)
        {
            // The arrival, before anything else is done for it.
            let arrived = now();
            let request: Vec<u8> = conn.input.drain(..end).collect();
            conn.requests += 1;
            self.request(token, &request, head, arrived);
        }
        self.go_on(token);
    }

    fn request(&mut self, token: usize, request: &[u8], head: usize, arrived: Instant) {
        let Some(conn) = self.conns.get_mut(&token) else { return };
        let path = request.split(|&byte| byte == b' ').nth(1).unwrap_or_default();
        if path == b"/bench/release" {
            reply(conn, "{}");
            let held: Vec<usize> = self.conns.iter().filter(|(_, c)| c.held()).map(|(&t, _)| t).collect();
            for token in held {
                if let Some(answer) = self.conns.get_mut(&token).and_then(|conn| conn.answer.as_mut()) {
                    answer.held = false;
                    answer.step += 1;
                }
                self.go_on(token);
            }
        } else if let Some(count) = path.strip_prefix(b"/bench/held/") {
            conn.waits_for = std::str::from_utf8(count).ok().and_then(|count| count.parse().ok());
            self.tell_waiting();
        } else if path == b"/bench/failovers" {
            let lines: Vec<String> = std::mem::take(&mut self.failovers)
                .iter()
                .map(|(nanos, warm)| format!("{nanos} {}", if *warm { "warm" } else { "cold" }))
                .collect();
            reply(conn, &lines.join("\n"));
        } else if request.starts_with(b"GET ") {
            let models: Vec<String> = Mode::ALL
                .iter()
                .map(|mode| format!(r#"{{"id":"{}","object":"model","owned_by":"bench"}}"#, mode.model()))
                .collect();
            reply(conn, &format!(r#"{{"object":"list","data":[{}]}}"#, models.join(",")));
        } else {
            let body = &request[head..];
            let mode = if conn.second {
                if let Some(died) = self.died.take() {
                    self.failovers.push(((arrived - died).as_nanos(), conn.requests > 1));
                }
                Mode::Burst
            } else {
                let name = model(body);
                Mode::ALL.into_iter().find(|mode| mode.model().as_bytes() == name).unwrap_or(Mode::Burst)
            };
            let usage = find(body, b"\"include_usage\":true").is_some();
            conn.answer =
                Some(Answer { script: (mode, usage), step: 0, offset: 0, held: false, paused: false });
        }
    }

    fn pause_over(&mut self, token: usize) {
        if let Some(answer) = self.conns.get_mut(&token).and_then(|conn| conn.answer.as_mut())
            && answer.paused
        {
            answer.paused = false;
            answer.step += 1;
            self.go_on(token);
        }
    }

    fn go_on(&mut self, token: usize) {
        let Some(conn) = self.conns.get_mut(&token) else { return };
        let Some(answer) = &mut conn.answer else { return };
        let Some(steps) = self.scripts.get(&answer.script) else { return };
        let next = loop {
            match steps.get(answer.step) {
                None => {
                    conn.answer = None;
                    break Next::Keep;
                }
                Some(Step::Write(bytes)) => match conn.stream.write(&bytes[answer.offset..]) {
                    Ok(n) => {
                        answer.offset += n;
                        if answer.offset == bytes.len() {
                            answer.step += 1;
                            answer.offset = 0;
                        }
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break Next::Keep,
                    Err(_) => break Next::Close,
                },
                Some(Step::Pause) => {
                    if !answer.paused {
                        answer.paused = true;
                        self.timers.push(std::cmp::Reverse((now() + PACE, token)));
                    }
                    break Next::Keep;
                }
                Some(Step::Hold) => {
                    answer.held = true;
                    break Next::Keep;
                }
                Some(Step::Die) => break Next::Reset,
            }
        };
        match next {
            Next::Keep => {
                if self.waited_for {
                    self.tell_waiting();
                }
            }
            Next::Close => self.drop_conn(token),
            Next::Reset => {
                // Closing with a linger of zero sends a reset. The clock is read before it: what is
                // measured is rather too long than too short.
                if let Some(conn) = self.conns.remove(&token) {
                    drop(socket2::SockRef::from(&conn.stream).set_linger(Some(Duration::ZERO)));
                    self.died = Some(now());
                    drop(conn);
                }
            }
        }
    }

    /// Answers whoever waits for as many held streams as there are now.
    fn tell_waiting(&mut self) {
        let held = self.conns.values().filter(|conn| conn.held()).count();
        for conn in self.conns.values_mut() {
            if conn.waits_for.is_some_and(|count| held >= count) {
                conn.waits_for = None;
                reply(conn, "{}");
            }
        }
        self.waited_for = self.conns.values().any(|conn| conn.waits_for.is_some());
    }

    fn drop_conn(&mut self, token: usize) {
        self.conns.remove(&token);
    }
}

impl Conn {
    fn held(&self) -> bool {
        self.answer.as_ref().is_some_and(|answer| answer.held)
    }
}

fn reply(conn: &mut Conn, body: &str) {
    let answer = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    // Small, on an empty socket: it fits, or the peer is gone and the next read says so.
    drop(conn.stream.write(answer.as_bytes()));
}

/// Where the body begins and the request ends, once it is whole.
fn whole_request(input: &[u8]) -> Option<(usize, usize)> {
    let head = find(input, b"\r\n\r\n")? + 4;
    let length = input[..head]
        .split(|&byte| byte == b'\n')
        .filter_map(|line| std::str::from_utf8(line).ok()?.trim().split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .and_then(|(_, value)| value.trim().parse().ok())
        .unwrap_or(0);
    (input.len() >= head + length).then_some((head, head + length))
}

fn model(body: &[u8]) -> &[u8] {
    let Some(at) = find(body, b"\"model\":") else { return b"" };
    body[at + 8..].split(|&byte| byte == b'"').nth(1).unwrap_or_default()
}
