//! A script as steps on a connection: what is written, when, and how it ends. Pure.

use std::collections::VecDeque;
use std::io::Write;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::script::{Head, Op, Script};

/// One thing to do on the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Write these bytes, in one write.
    Write(Vec<u8>),
    /// Do nothing for this long.
    Wait(Duration),
    /// The answer is over, the connection may be used again.
    Keep,
    /// Close with FIN.
    Close,
    /// Close with a reset.
    Reset,
}

/// The steps of a script, in order. Ends after the first `Keep`, `Close` or `Reset`; always with one of them.
pub struct Steps<'a> {
    ops: std::slice::Iter<'a, Op>,
    repeat: Option<(&'a Op, u32, Duration)>,
    ready: VecDeque<Step>,
    gzip: Option<GzEncoder<Vec<u8>>>,
    over: bool,
}

impl Script {
    /// What to do on the connection.
    #[must_use]
    pub fn steps(&self) -> Steps<'_> {
        Steps {
            ops: self.ops.iter(),
            repeat: None,
            ready: VecDeque::new(),
            gzip: self.gzip.then(|| GzEncoder::new(Vec::new(), Compression::fast())),
            over: false,
        }
    }

    /// Every byte that this script sends, in order.
    #[must_use]
    pub fn wire(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for step in self.steps() {
            if let Step::Write(piece) = step {
                bytes.extend_from_slice(&piece);
            }
        }
        bytes
    }
}

impl Iterator for Steps<'_> {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        loop {
            if let Some(step) = self.ready.pop_front() {
                self.over = matches!(step, Step::Keep | Step::Close | Step::Reset);
                if self.over {
                    self.ready.clear();
                }
                return Some(step);
            }
            if self.over {
                return None;
            }
            match self.repeat.take() {
                Some((op, left, gap)) if left > 0 => {
                    self.repeat = Some((op, left - 1, gap));
                    self.one(op);
                    if gap > Duration::ZERO {
                        self.ready.push_back(Step::Wait(gap));
                    }
                }
                _ => match self.ops.next() {
                    Some(Op::Every { gap, times, op }) => self.repeat = Some((op, *times, *gap)),
                    Some(op) => self.one(op),
                    None => self.ready.push_back(Step::Keep),
                },
            }
        }
    }
}

impl Steps<'_> {
    fn one(&mut self, op: &Op) {
        match op {
            Op::Wait(time) => self.ready.push_back(Step::Wait(*time)),
            Op::Head(head) => {
                let coding = if self.gzip.is_some() { "Content-Encoding: gzip\r\n" } else { "" };
                self.write(head_bytes(head, &format!("{coding}Transfer-Encoding: chunked\r\n")));
            }
            Op::Reply(head, body) => {
                let mut bytes = head_bytes(head, &format!("Content-Length: {}\r\n", body.len()));
                bytes.extend_from_slice(body);
                self.write(bytes);
            }
            Op::Chunk(text) => self.chunk(text),
            Op::Bytes(text) => text.iter().for_each(|byte| self.chunk(&[*byte])),
            Op::Raw(bytes) => self.write(bytes.clone()),
            // The parser does not nest them, and code that does gets one turn.
            Op::Every { op, .. } => self.one(op),
            Op::End => self.end(Step::Keep),
            Op::EndClose => self.end(Step::Close),
            Op::Cut => self.ready.push_back(Step::Close),
            Op::Reset | Op::Refuse => self.ready.push_back(Step::Reset),
            Op::Hang(time) => self.ready.extend([Step::Wait(*time), Step::Close]),
        }
    }

    fn write(&mut self, bytes: Vec<u8>) {
        self.ready.push_back(Step::Write(bytes));
    }

    fn chunk(&mut self, text: &[u8]) {
        let text = match &mut self.gzip {
            None => text.to_vec(),
            Some(gzip) => {
                // Writing into a Vec does not fail.
                let _ = gzip.write_all(text).and_then(|()| gzip.flush());
                std::mem::take(gzip.get_mut())
            }
        };
        self.write(chunk_bytes(&text));
    }

    fn end(&mut self, then: Step) {
        let mut bytes = Vec::new();
        if let Some(rest) =
            self.gzip.take().and_then(|gzip| gzip.finish().ok()).filter(|rest| !rest.is_empty())
        {
            bytes = chunk_bytes(&rest);
        }
        bytes.extend_from_slice(b"0\r\n\r\n");
        self.write(bytes);
        self.ready.push_back(then);
    }
}

fn chunk_bytes(text: &[u8]) -> Vec<u8> {
    let mut bytes = format!("{:x}\r\n", text.len()).into_bytes();
    bytes.extend_from_slice(text);
    bytes.extend_from_slice(b"\r\n");
    bytes
}

fn head_bytes(head: &Head, framing: &str) -> Vec<u8> {
    use std::fmt::Write as _;
    let mut text = format!("HTTP/1.1 {} {}\r\n", head.status, reason(head.status));
    // Writing into a String does not fail.
    let _ = write!(text, "Content-Type: {}\r\n", head.content_type);
    for (name, value) in &head.headers {
        let _ = write!(text, "{name}: {value}\r\n");
    }
    text.push_str(framing);
    text.push_str("\r\n");
    text.into_bytes()
}

const fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        302 => "Found",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        408 => "Request Timeout",
        409 => "Conflict",
        413 => "Payload Too Large",
        422 => "Unprocessable Entity",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        _ => "Simulated",
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;
    use crate::sim::script::parse;

    #[test]
    fn a_stream_on_the_wire() {
        let script = parse("SSE\nD hi\nWAIT 5\nRAW zz\nEND\nD never").unwrap();
        let steps: Vec<Step> = script.steps().collect();
        assert_eq!(
            steps,
            [
                Step::Write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec()
                ),
                Step::Write(b"a\r\ndata: hi\n\n\r\n".to_vec()),
                Step::Wait(Duration::from_millis(5)),
                Step::Write(b"zz".to_vec()),
                Step::Write(b"0\r\n\r\n".to_vec()),
                Step::Keep,
            ]
        );
    }

    #[test]
    fn every_end_is_one_step() {
        for (text, last) in [
            ("CUT", Step::Close),
            ("RST", Step::Reset),
            ("REFUSE", Step::Reset),
            ("HANG 1", Step::Close),
            ("SSE\nENDCLOSE", Step::Close),
            ("REPLY 200 text/plain | x", Step::Keep),
            ("REP 2 CUT", Step::Close),
        ] {
            let script = parse(text).unwrap();
            let steps: Vec<Step> = script.steps().collect();
            let ends = |step: &&Step| matches!(step, Step::Keep | Step::Close | Step::Reset);
            assert_eq!(steps.iter().filter(ends).count(), 1, "{text}");
            assert_eq!(steps.last(), Some(&last), "{text}");
        }
    }

    #[test]
    fn repeats_with_gaps_and_single_bytes() {
        let script = parse("EVERY 7 2 C x\nBYTES ab\nCUT").unwrap();
        let gap = Step::Wait(Duration::from_millis(7));
        let chunk = |text: &str| Step::Write(format!("1\r\n{text}\r\n").into_bytes());
        assert_eq!(
            script.steps().collect::<Vec<_>>(),
            [chunk("x"), gap.clone(), chunk("x"), gap, chunk("a"), chunk("b"), Step::Close]
        );
    }

    #[test]
    fn gzip_is_readable_after_each_chunk() {
        let script = parse("GZIP\nSSE\nD one\nD two\nEND").unwrap();
        let wire = script.wire();
        let body = wire.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
        assert!(String::from_utf8_lossy(&wire[..body]).contains("Content-Encoding: gzip\r\n"));
        let mut gz = Vec::new();
        let mut rest = &wire[body..];
        let mut seen = Vec::new();
        loop {
            let line = rest.windows(2).position(|two| two == b"\r\n").unwrap();
            let size = usize::from_str_radix(std::str::from_utf8(&rest[..line]).unwrap(), 16).unwrap();
            if size == 0 {
                break;
            }
            gz.extend_from_slice(&rest[line + 2..line + 2 + size]);
            rest = &rest[line + 4 + size..];
            let mut plain = Vec::new();
            // Fails at the cut end until the last chunk; what came before it is there.
            let _ = flate2::read::GzDecoder::new(gz.as_slice()).read_to_end(&mut plain);
            seen.push(String::from_utf8(plain).unwrap());
        }
        assert_eq!(seen[0], "data: one\n\n");
        assert_eq!(seen[1], "data: one\n\ndata: two\n\n");
    }
}
