//! The language in which a simulated server's behaviour is written: one operation a line.
//!
//! | op | what goes out |
//! |---|---|
//! | `WAIT ms` | nothing |
//! | `REPLY status type[; Header: v …] \| body` | a whole response with `Content-Length` |
//! | `HEAD status type [Header: v; …]` | status line and headers, `Transfer-Encoding: chunked` |
//! | `SSE`, `ND` | `HEAD 200 text/event-stream`, `HEAD 200 application/x-ndjson` |
//! | `C text` | exactly one HTTP chunk holding `text` |
//! | `D text`, `L text` | one chunk: `data: text\n\n`, `text\n` |
//! | `RAW text`, `HEX bytes` | bytes outside chunk framing |
//! | `REP n op` | one op, n times |
//! | `EVERY ms n op` | one op and a wait of `ms`, n times |
//! | `PAD n`, `FILL n` | one `D` chunk whose content is n letters; one chunk of n letters, unframed |
//! | `BYTES text` | each byte of `text` in a chunk and a write of its own |
//! | `GZIP` | first: adds `Content-Encoding: gzip`; chunks go through one stream, flushed each |
//! | `END`, `ENDCLOSE` | the last chunk; the connection is kept, or ends with FIN |
//! | `CUT`, `RST`, `REFUSE` | FIN without the last chunk; reset; accept and reset at once |
//! | `HANG ms` | nothing; the connection is held open that long, then closed |
//! | `EARLY` | first line: play after the request's head, before its body was read |
//!
//! Text runs to the end of the line with the escapes `\n \r \t \xNN \\`; any other backslash is
//! itself. Lines that start with `;` are comments.

use std::fmt;
use std::time::Duration;

/// Repetitions in one `REP` or `EVERY`.
const TIMES_MAX: u32 = 10_000_000;
/// Bytes of one `PAD` or `FILL`.
const FILL_MAX: usize = 64 * 1024 * 1024;

/// One operation of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Nothing is sent for this long.
    Wait(Duration),
    /// A status line and headers; the body follows in chunks.
    Head(Head),
    /// A whole response with its `Content-Length`.
    Reply(Head, Vec<u8>),
    /// One HTTP chunk.
    Chunk(Vec<u8>),
    /// Each byte in a chunk and a write of its own.
    Bytes(Vec<u8>),
    /// Bytes outside the chunk framing.
    Raw(Vec<u8>),
    /// One operation several times, each followed by a gap (which may be zero).
    Every {
        /// The wait after each.
        gap: Duration,
        /// How often.
        times: u32,
        /// Never another `Every`.
        op: Box<Op>,
    },
    /// The last chunk; the connection is kept for the next request.
    End,
    /// The last chunk, then FIN.
    EndClose,
    /// FIN, nothing before it.
    Cut,
    /// A TCP reset.
    Reset,
    /// Hold the connection open for this long, then close it.
    Hang(Duration),
    /// Reset as soon as the connection is accepted.
    Refuse,
}

/// A response's status line and headers, but for those that say how the body is framed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The status code.
    pub status: u16,
    /// The content type, parameters included.
    pub content_type: String,
    /// Further headers, in order.
    pub headers: Vec<(String, String)>,
}

impl Head {
    /// A head with nothing but a status and a content type.
    #[must_use]
    pub fn new(status: u16, content_type: &str) -> Self {
        Head { status, content_type: content_type.to_owned(), headers: Vec::new() }
    }
}

/// What a simulated server does with one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
    /// Play after the request's head, before its body was read.
    pub early: bool,
    /// The chunks are one gzip stream, flushed after each.
    pub gzip: bool,
    /// In order. When they run out, the connection is kept for the next request.
    pub ops: Vec<Op>,
}

impl From<Vec<Op>> for Script {
    fn from(ops: Vec<Op>) -> Self {
        Script { early: false, gzip: false, ops }
    }
}

impl Script {
    /// A single whole response.
    #[must_use]
    pub fn reply(status: u16, content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        vec![Op::Reply(Head::new(status, content_type), body.into())].into()
    }

    /// The same with every wait (`WAIT`, `EVERY`) divided by `divisor`; `HANG`s stay. A divisor of 0 counts as 1.
    #[must_use]
    pub fn faster(mut self, divisor: u32) -> Self {
        let divisor = divisor.max(1);
        for op in &mut self.ops {
            hurry(op, divisor);
        }
        self
    }

    /// Whether the connection is reset before the request is read.
    #[must_use]
    pub fn refuses(&self) -> bool {
        matches!(self.ops.first(), Some(Op::Refuse))
    }

    /// The body's bytes as the script hands them out: one piece a chunk, or the reply's body.
    /// `RAW` bytes carry framing of their own and are left out; `EVERY` and `REP` are unrolled.
    #[must_use]
    pub fn payload(&self) -> Vec<Vec<u8>> {
        fn add(op: &Op, into: &mut Vec<Vec<u8>>) {
            match op {
                Op::Chunk(text) | Op::Reply(_, text) => into.push(text.clone()),
                Op::Bytes(text) => into.extend(text.iter().map(|byte| vec![*byte])),
                Op::Every { times, op, .. } => (0..*times).for_each(|_| add(op, into)),
                Op::Wait(_)
                | Op::Head(_)
                | Op::Raw(_)
                | Op::End
                | Op::EndClose
                | Op::Cut
                | Op::Reset
                | Op::Hang(_)
                | Op::Refuse => {}
            }
        }
        let mut pieces = Vec::new();
        self.ops.iter().for_each(|op| add(op, &mut pieces));
        pieces
    }
}

fn hurry(op: &mut Op, divisor: u32) {
    match op {
        Op::Wait(time) => *time /= divisor,
        Op::Every { gap, op, .. } => {
            *gap /= divisor;
            hurry(op, divisor);
        }
        _ => {}
    }
}

/// A line that is no operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub what: String,
}

impl fmt::Display for ScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

impl std::error::Error for ScriptError {}

/// Reads a script.
///
/// # Errors
/// The first line that is no operation, or that stands where it may not.
pub fn parse(text: &str) -> Result<Script, ScriptError> {
    let mut script = Script::default();
    let mut wants_head = false;
    for (index, line) in text.split('\n').enumerate() {
        let fail = |what: String| ScriptError { line: index + 1, what };
        if line.trim().is_empty() || line.starts_with(';') {
            continue;
        }
        match line.trim_end() {
            "EARLY" if script.ops.is_empty() && !script.gzip => script.early = true,
            "EARLY" => return Err(fail("EARLY stands on the first line only".into())),
            "GZIP" if script.ops.is_empty() => (script.gzip, wants_head) = (true, true),
            "GZIP" => return Err(fail("GZIP stands before the head".into())),
            _ => script.ops.push(op(line, true).map_err(fail)?),
        }
        if wants_head && script.ops.first().is_some_and(|op| !matches!(op, Op::Head(_))) {
            return Err(fail("GZIP is followed by SSE, ND or HEAD".into()));
        }
    }
    if script.ops.is_empty() {
        return Err(ScriptError { line: 1, what: "a script needs an operation".into() });
    }
    Ok(script)
}

fn op(line: &str, may_repeat: bool) -> Result<Op, String> {
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    let op = match word {
        "WAIT" => Op::Wait(millis(rest)?),
        "HANG" => Op::Hang(millis(rest)?),
        "REPLY" => {
            let (head, body) = rest.split_once('|').ok_or("REPLY needs `status type | body`")?;
            Op::Reply(parse_head(head)?, unescape(body.strip_prefix(' ').unwrap_or(body))?)
        }
        "HEAD" => Op::Head(parse_head(rest)?),
        "SSE" => Op::Head(Head::new(200, "text/event-stream")),
        "ND" => Op::Head(Head::new(200, "application/x-ndjson")),
        "C" => Op::Chunk(filled(unescape(rest)?)?),
        "BYTES" => Op::Bytes(filled(unescape(rest)?)?),
        "D" => Op::Chunk([b"data: ", unescape(rest)?.as_slice(), b"\n\n"].concat()),
        "L" => Op::Chunk([unescape(rest)?.as_slice(), b"\n"].concat()),
        "RAW" => Op::Raw(unescape(rest)?),
        "HEX" => Op::Raw(hex(rest)?),
        "PAD" => {
            let letters = "a".repeat(number(rest, FILL_MAX)?);
            Op::Chunk(
                format!(
                    "data: {{\"id\":\"c1\",\"model\":\"m\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{letters}\"}}}}]}}\n\n"
                )
                .into_bytes(),
            )
        }
        "FILL" => Op::Chunk(filled(vec![b'x'; number(rest, FILL_MAX)?])?),
        "REP" | "EVERY" if !may_repeat => return Err("REP and EVERY do not nest".into()),
        "REP" => {
            let (times, inner) = rest.split_once(' ').ok_or("REP needs `n op`")?;
            Op::Every { gap: Duration::ZERO, times: times_of(times)?, op: Box::new(op(inner, false)?) }
        }
        "EVERY" => {
            let mut parts = rest.splitn(3, ' ');
            let (Some(gap), Some(times), Some(inner)) = (parts.next(), parts.next(), parts.next()) else {
                return Err("EVERY needs `ms n op`".into());
            };
            Op::Every { gap: millis(gap)?, times: times_of(times)?, op: Box::new(op(inner, false)?) }
        }
        "END" => Op::End,
        "ENDCLOSE" => Op::EndClose,
        "CUT" => Op::Cut,
        "RST" => Op::Reset,
        "REFUSE" => Op::Refuse,
        other => return Err(format!("`{other}` is no operation")),
    };
    match op {
        Op::End | Op::EndClose | Op::Cut | Op::Reset | Op::Refuse if !rest.trim().is_empty() => {
            Err(format!("{word} takes nothing after it"))
        }
        op => Ok(op),
    }
}

/// An empty chunk would be the last one.
fn filled(text: Vec<u8>) -> Result<Vec<u8>, String> {
    if text.is_empty() { Err("an empty chunk would end the body".into()) } else { Ok(text) }
}

fn number(text: &str, max: usize) -> Result<usize, String> {
    let text = text.trim();
    match text.parse() {
        Ok(n) if n <= max => Ok(n),
        Ok(_) => Err(format!("{text} is more than {max}")),
        Err(_) => Err(format!("`{text}` is no number")),
    }
}

fn times_of(text: &str) -> Result<u32, String> {
    let times: u32 = text.trim().parse().map_err(|_| format!("`{text}` is no number"))?;
    if times > TIMES_MAX { Err(format!("{times} is more than {TIMES_MAX}")) } else { Ok(times) }
}

fn millis(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    text.parse().map(Duration::from_millis).map_err(|_| format!("`{text}` is no number of milliseconds"))
}

/// `status type`, then `;`-separated parts: `Name: value` is a header, anything else a parameter of the type.
fn parse_head(text: &str) -> Result<Head, String> {
    let (status, rest) = text.trim().split_once(' ').ok_or("needs a status and a content type")?;
    let status: u16 = status.parse().map_err(|_| format!("`{status}` is no status"))?;
    let (kind, more) = rest.trim().split_once(' ').unwrap_or((rest.trim(), ""));
    let mut head = Head::new(status, kind.trim_end_matches(';'));
    for part in more.split(';').map(str::trim).filter(|part| !part.is_empty()) {
        match part.split_once(':') {
            Some((name, value)) => head.headers.push((name.trim().to_owned(), value.trim().to_owned())),
            None => {
                head.content_type.push_str("; ");
                head.content_type.push_str(part);
            }
        }
    }
    Ok(head)
}

fn hex(text: &str) -> Result<Vec<u8>, String> {
    text.split_whitespace()
        .map(|pair| match (pair.len(), u8::from_str_radix(pair, 16)) {
            (2, Ok(byte)) => Ok(byte),
            _ => Err(format!("`{pair}` is no byte")),
        })
        .collect()
}

fn unescape(text: &str) -> Result<Vec<u8>, String> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        at += 1;
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        let plain = match bytes.get(at) {
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b't') => b'\t',
            Some(b'\\') => b'\\',
            Some(b'x') => {
                let digits = text.get(at + 1..at + 3).ok_or("\\x needs two hex digits")?;
                out.push(u8::from_str_radix(digits, 16).map_err(|_| "\\x needs two hex digits")?);
                at += 3;
                continue;
            }
            _ => {
                out.push(b'\\');
                continue;
            }
        };
        out.push(plain);
        at += 1;
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(line: &str) -> Op {
        let mut script = parse(line).unwrap();
        assert_eq!(script.ops.len(), 1);
        script.ops.pop().unwrap()
    }

    #[test]
    fn escapes_are_only_the_listed_ones() {
        assert_eq!(one(r#"C a\n\r\t\x7f\\n\"\q\"#), Op::Chunk(b"a\n\r\t\x7f\\n\\\"\\q\\".to_vec()));
        assert_eq!(one(r#"L {"error":"x \"y\""}"#), Op::Chunk(b"{\"error\":\"x \\\"y\\\"\"}\n".to_vec()));
        assert_eq!(one("C : ping  "), Op::Chunk(b": ping  ".to_vec()));
    }

    #[test]
    fn heads_tell_headers_from_parameters() {
        let Op::Reply(head, body) =
            one("REPLY 429 application/json; charset=utf-8; Retry-After: 7 | {\"a\":1}")
        else {
            panic!("a reply")
        };
        assert_eq!((head.status, head.content_type.as_str()), (429, "application/json; charset=utf-8"));
        assert_eq!(head.headers, [("Retry-After".to_owned(), "7".to_owned())]);
        assert_eq!(body, b"{\"a\":1}");
        let Op::Head(head) = one("HEAD 200 text/event-stream X-A: 1; X-B: b c") else { panic!("a head") };
        assert_eq!(head.headers.len(), 2);
        assert_eq!(head.headers[1].1, "b c");
    }

    #[test]
    fn repeats_and_hex() {
        assert_eq!(
            one("EVERY 20 3 C x y"),
            Op::Every { gap: Duration::from_millis(20), times: 3, op: Box::new(Op::Chunk(b"x y".to_vec())) }
        );
        assert_eq!(one("HEX 00 0a FF"), Op::Raw(vec![0, 10, 255]));
        assert_eq!(parse("; only\nREP 2 D a\nEND").unwrap().payload(), [b"data: a\n\n", b"data: a\n\n"]);
    }

    #[test]
    fn mistakes_name_their_line() {
        for (text, line) in [
            ("SSE\nFOO", 2),
            ("C ", 1),
            ("SSE\nEARLY", 2),
            ("GZIP\nC x", 2),
            ("\n\nREP 2 REP 3 C x", 3),
            ("RAW \\x4", 1),
            ("RAW \\xzz", 1),
            ("HEX 0", 1),
            ("WAIT soon", 1),
            ("REPLY 200 text/plain", 1),
            ("REPLY abc text/plain | x", 1),
            ("CUT now", 1),
            ("; nothing", 1),
        ] {
            assert_eq!(parse(text).expect_err(text).line, line, "{text}");
        }
    }

    #[test]
    fn faster_leaves_hangs() {
        let script = parse("WAIT 900\nEVERY 30 2 WAIT 60\nHANG 900").unwrap().faster(3);
        let ms = Duration::from_millis;
        assert_eq!(script.ops[0], Op::Wait(ms(300)));
        assert_eq!(script.ops[1], Op::Every { gap: ms(10), times: 2, op: Box::new(Op::Wait(ms(20))) });
        assert_eq!(script.ops[2], Op::Hang(ms(900)));
    }
}
