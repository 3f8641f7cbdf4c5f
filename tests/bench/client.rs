//! The load: keep-alive clients on one thread, each with one request under way, no HTTP library.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use crate::upstream::{Mode, TOKEN_MARK, TOKENS};
use crate::{find, now};

/// No answer may take longer than this; a proxy that hangs must not hang the bench.
const PATIENCE: Duration = Duration::from_secs(20);

/// Some keep-alive connections to one address.
pub struct Clients {
    poll: Poll,
    conns: Vec<Conn>,
    host: String,
}

struct Conn {
    stream: TcpStream,
    input: Vec<u8>,
    sent: Instant,
    answer: Answer,
    busy: bool,
}

/// What a run of requests showed.
#[derive(Default)]
pub struct Seen {
    /// Of each answer, from the request's write to its first token's read.
    pub first_token: Vec<Duration>,
    /// The whole run.
    pub elapsed: Duration,
}

fn bad(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

impl Clients {
    /// Connects `count` clients.
    pub fn connect(addr: SocketAddr, count: usize) -> io::Result<Self> {
        let poll = Poll::new()?;
        let mut conns = Vec::with_capacity(count);
        for n in 0..count {
            let stream = std::net::TcpStream::connect(addr)?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            let mut stream = TcpStream::from_std(stream);
            poll.registry().register(&mut stream, Token(n), Interest::READABLE)?;
            conns.push(Conn {
                stream,
                input: Vec::with_capacity(16 * 1024),
                sent: now(),
                answer: Answer::default(),
                busy: false,
            });
        }
        Ok(Clients { poll, conns, host: addr.to_string() })
    }

    /// Sends one request on each connection, and does not wait.
    pub fn send_all(&mut self, mode: Mode) -> io::Result<()> {
        let request = request(&self.host, mode);
        self.conns.iter_mut().try_for_each(|conn| conn.send(&request))
    }

    /// Waits for the answers of [`Clients::send_all`].
    pub fn collect_all(&mut self) -> io::Result<Seen> {
        self.drive(&[], 0, &mut |_| Ok(()))
    }

    /// Makes `count` requests, each connection its next one when it has its answer.
    pub fn run(&mut self, mode: Mode, count: usize) -> io::Result<Seen> {
        self.run_watched(mode, count, &mut |_| Ok(()))
    }

    /// [`Clients::run`], telling `watch` the number of answers after each.
    pub fn run_watched(
        &mut self,
        mode: Mode,
        count: usize,
        watch: &mut dyn FnMut(usize) -> io::Result<()>,
    ) -> io::Result<Seen> {
        let request = request(&self.host, mode);
        let mut left = count;
        for conn in self.conns.iter_mut().take(count) {
            conn.send(&request)?;
            left -= 1;
        }
        self.drive(&request, left, watch)
    }

    fn drive(
        &mut self,
        request: &[u8],
        mut left: usize,
        watch: &mut dyn FnMut(usize) -> io::Result<()>,
    ) -> io::Result<Seen> {
        let begun = now();
        let mut seen = Seen::default();
        let mut busy = self.conns.iter().filter(|conn| conn.busy).count();
        seen.first_token.reserve(left + busy);
        let mut events = Events::with_capacity(64);
        while busy > 0 {
            match self.poll.poll(&mut events, Some(PATIENCE)) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            }
            if events.is_empty() {
                return Err(bad(format!("{busy} answers did not come within {PATIENCE:?}")));
            }
            for event in &events {
                let conn = &mut self.conns[event.token().0];
                if let Some(first) = conn.receive()? {
                    seen.first_token.push(first);
                    watch(seen.first_token.len())?;
                    if left > 0 {
                        left -= 1;
                        conn.send(request)?;
                    } else {
                        busy -= 1;
                    }
                }
            }
        }
        seen.elapsed = now() - begun;
        Ok(seen)
    }
}

impl Conn {
    fn send(&mut self, request: &[u8]) -> io::Result<()> {
        self.input.clear();
        self.answer = Answer::default();
        self.busy = true;
        self.sent = now();
        let written = self.stream.write(request)?;
        if written == request.len() { Ok(()) } else { Err(bad("a request did not fit its socket".into())) }
    }

    /// Reads what is there; the time to the first token once the answer is whole and good.
    fn receive(&mut self) -> io::Result<Option<Duration>> {
        let mut chunk = [0; 16 * 1024];
        loop {
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(bad(format!("closed in an answer: {}", self.shown()))),
                Ok(n) => self.input.extend_from_slice(&chunk[..n]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
            self.answer.take(&self.input).map_err(|what| bad(format!("{what}: {}", self.shown())))?;
            if self.answer.first.is_none() && find(&self.answer.body, TOKEN_MARK).is_some() {
                self.answer.first = Some(now() - self.sent);
            }
        }
        if !self.busy || !self.answer.ended {
            return Ok(None);
        }
        let tokens = memchr::memmem::find_iter(&self.answer.body, TOKEN_MARK).count();
        let done = self.answer.body.ends_with(b"data: [DONE]\n\n");
        match self.answer.first {
            Some(first) if tokens == TOKENS && done => {
                self.busy = false;
                Ok(Some(first))
            }
            _ => Err(bad(format!("{tokens} tokens, done: {done}: {}", self.shown()))),
        }
    }

    fn shown(&self) -> String {
        let cut = self.input.len().min(600);
        String::from_utf8_lossy(&self.input[..cut]).into_owned()
    }
}

/// A chunked 200, taken apart as it comes: proxies cut chunks where they like, also inside a token.
#[derive(Default)]
struct Answer {
    /// Of the input, taken so far; 0 until the head is whole.
    taken: usize,
    /// Of the current chunk's data, still to come.
    left: usize,
    body: Vec<u8>,
    first: Option<Duration>,
    ended: bool,
}

impl Answer {
    fn take(&mut self, input: &[u8]) -> Result<(), &'static str> {
        if self.taken == 0 {
            let Some(head) = find(input, b"\r\n\r\n") else { return Ok(()) };
            if !input.starts_with(b"HTTP/1.1 200 ") {
                return Err("not a 200");
            }
            if !input[..head].to_ascii_lowercase().ends_with(b"transfer-encoding: chunked")
                && find(&input[..head].to_ascii_lowercase(), b"transfer-encoding: chunked\r\n").is_none()
            {
                return Err("not chunked");
            }
            // The line end before the first size stands where a chunk's own line end would.
            self.taken = head + 2;
        }
        while self.taken < input.len() && !self.ended {
            let rest = &input[self.taken..];
            if self.left > 0 {
                let part = &rest[..self.left.min(rest.len())];
                self.body.extend_from_slice(part);
                self.left -= part.len();
                self.taken += part.len();
                continue;
            }
            let Some(size) = rest.strip_prefix(b"\r\n") else {
                return if rest == b"\r" { Ok(()) } else { Err("no line end before a chunk") };
            };
            let Some(end) = find(size, b"\r\n") else { return Ok(()) };
            let text = std::str::from_utf8(&size[..end]).map_err(|_| "no chunk size")?;
            self.left = usize::from_str_radix(text, 16).map_err(|_| "no chunk size")?;
            if self.left == 0 {
                if size[end..].len() < 4 {
                    return Ok(());
                }
                self.ended = size[end..].starts_with(b"\r\n\r\n");
                return if self.ended { Ok(()) } else { Err("trailers") };
            }
            self.taken += 2 + end + 2;
        }
        Ok(())
    }
}

fn request(host: &str, mode: Mode) -> Vec<u8> {
    let body = format!(
        r#"{{"model":"{}","stream":true,"temperature":0.7,"messages":[{{"role":"system","content":"You are a concise assistant on an edge device. Answer in one or two sentences, in the language of the question."}},{{"role":"user","content":"What does the status light on the left side of the cabinet mean when it blinks twice, and whom should I call about it?"}}]}}"#,
        mode.model()
    );
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n\
         Accept: text/event-stream\r\nUser-Agent: bench\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// One small `GET` on a connection of its own; the body.
pub fn get(addr: SocketAddr, path: &str) -> io::Result<String> {
    let mut stream = std::net::TcpStream::connect(addr)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: bench\r\n\r\n")?;
    let mut input = Vec::new();
    let mut chunk = [0; 64 * 1024];
    loop {
        let n = stream.read(&mut chunk)?;
        if n == 0 {
            return Err(bad(format!("{path}: closed")));
        }
        input.extend_from_slice(&chunk[..n]);
        let text = String::from_utf8_lossy(&input);
        if let Some((head, body)) = text.split_once("\r\n\r\n")
            && let Some(length) = head.split("Content-Length: ").nth(1)
            && let Some(Ok(length)) = length.lines().next().map(str::parse::<usize>)
            && body.len() >= length
        {
            return Ok(body.to_owned());
        }
    }
}
