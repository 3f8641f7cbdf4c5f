//! Reading HTTP/1.1 requests from a socket: head, sized and chunked bodies, pipelined ones kept.

use std::io;

use tokio::net::TcpStream;

/// Bytes of a request's head.
const HEAD_MAX: usize = 64 * 1024;
/// Bytes of a request's body.
const BODY_MAX: usize = 64 * 1024 * 1024;
/// Bytes of later requests kept while one is being answered.
const PIPELINE_MAX: usize = 64 * 1024;
/// Bytes of one read.
const READ: usize = 16 * 1024;

/// One request, as it was received.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SimRequest {
    /// Which connection it came on, from 0 in the order of acceptance.
    pub connection: u64,
    /// `POST` and so on.
    pub method: String,
    /// The path with its query.
    pub path: String,
    /// Name and value, in order, as sent.
    pub headers: Vec<(String, String)>,
    /// The body, chunk framing removed. Empty for `EARLY` scripts.
    pub body: Vec<u8>,
}

impl SimRequest {
    /// The first header of this name, in any case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut all = self.headers.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name));
        all.next().map(|(_, value)| value.as_str())
    }

    /// The body as JSON; `Null` where it is none.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    pub(super) fn wants_close(&self) -> bool {
        self.header("connection").is_some_and(|value| value.to_ascii_lowercase().contains("close"))
    }
}

/// A connection and what was read from it but not used yet.
pub(super) struct Conn {
    pub(super) stream: TcpStream,
    buf: Vec<u8>,
}

impl Conn {
    pub(super) fn new(stream: TcpStream) -> Self {
        Conn { stream, buf: Vec::new() }
    }

    /// The next request's head, or `None` at a clean end before one.
    pub(super) async fn head(&mut self, connection: u64) -> io::Result<Option<SimRequest>> {
        let end = loop {
            if let Some(at) = self.buf.windows(4).position(|four| four == b"\r\n\r\n") {
                break at;
            }
            if self.buf.len() > HEAD_MAX {
                return Err(bad("request head too long"));
            }
            if self.fill().await? == 0 {
                return if self.buf.is_empty() { Ok(None) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
            }
        };
        let head: Vec<u8> = self.buf.drain(..end + 4).collect();
        let head = String::from_utf8(head).map_err(|_| bad("request head is not UTF-8"))?;
        let mut lines = head.split("\r\n");
        let mut first = lines.next().unwrap_or_default().split(' ');
        let (Some(method), Some(path), Some("HTTP/1.1"), None) =
            (first.next(), first.next(), first.next(), first.next())
        else {
            return Err(bad("not an HTTP/1.1 request line"));
        };
        let mut request = SimRequest {
            connection,
            method: method.to_owned(),
            path: path.to_owned(),
            ..SimRequest::default()
        };
        for line in lines.filter(|line| !line.is_empty()) {
            let (name, value) = line.split_once(':').ok_or_else(|| bad("header without a colon"))?;
            request.headers.push((name.to_owned(), value.trim().to_owned()));
        }
        Ok(Some(request))
    }

    /// The body that belongs to `request`.
    pub(super) async fn body(&mut self, request: &SimRequest) -> io::Result<Vec<u8>> {
        let chunked =
            request.header("transfer-encoding").is_some_and(|value| value.eq_ignore_ascii_case("chunked"));
        if !chunked {
            let Some(length) = request.header("content-length") else { return Ok(Vec::new()) };
            let length: usize = length.parse().map_err(|_| bad("Content-Length is no number"))?;
            return self.exactly(length, 0).await;
        }
        let mut body = Vec::new();
        loop {
            let line = self.line().await?;
            let size = line.split(';').next().unwrap_or_default().trim();
            let size = usize::from_str_radix(size, 16).map_err(|_| bad("chunk size is no number"))?;
            if size == 0 {
                while !self.line().await?.is_empty() {}
                return Ok(body);
            }
            let chunk = self.exactly(size, body.len()).await?;
            body.extend_from_slice(&chunk);
            if !self.line().await?.is_empty() {
                return Err(bad("chunk longer than its size"));
            }
        }
    }

    /// Resolves when the peer has closed or reset the connection; keeps what it sends meanwhile.
    pub(super) async fn gone(&mut self) {
        // Past the bound nothing is read, so an end behind it is not seen.
        while self.buf.len() <= PIPELINE_MAX {
            if matches!(self.fill().await, Ok(0) | Err(_)) {
                return;
            }
        }
        std::future::pending().await
    }

    /// Writes all of `bytes`, in one write where the socket takes it. `false`: the peer is gone.
    pub(super) async fn write(&mut self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            // A peer that closes with bytes unread resets, which ends a stalled write too.
            if self.stream.writable().await.is_err() {
                return false;
            }
            match self.stream.try_write(bytes) {
                Ok(n) => bytes = bytes.get(n..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return false,
            }
        }
        // One thread: whoever reads this gets its turn between two writes.
        tokio::task::yield_now().await;
        true
    }

    async fn exactly(&mut self, length: usize, already: usize) -> io::Result<Vec<u8>> {
        if length.saturating_add(already) > BODY_MAX {
            return Err(bad("request body too long"));
        }
        while self.buf.len() < length {
            if self.fill().await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(self.buf.drain(..length).collect())
    }

    async fn line(&mut self) -> io::Result<String> {
        let end = loop {
            if let Some(at) = self.buf.windows(2).position(|two| two == b"\r\n") {
                break at;
            }
            if self.buf.len() > HEAD_MAX {
                return Err(bad("chunk line too long"));
            }
            if self.fill().await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        };
        let line: Vec<u8> = self.buf.drain(..end + 2).take(end).collect();
        String::from_utf8(line).map_err(|_| bad("chunk line is not UTF-8"))
    }

    /// One read; 0 at the end.
    async fn fill(&mut self) -> io::Result<usize> {
        let mut piece = vec![0; READ];
        loop {
            self.stream.readable().await?;
            match self.stream.try_read(&mut piece) {
                Ok(n) => {
                    self.buf.extend_from_slice(piece.get(..n).unwrap_or_default());
                    return Ok(n);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
}

fn bad(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
