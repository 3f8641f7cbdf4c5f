//! Follows a client's HTTP/1.1 bytes: where each request ends, and whether every reader would agree on that.
//!
//! hyper parses the requests. It also forgives (measured with 1.12): a length beside a transfer coding, the
//! same length twice, other codings before `chunked`, bare line feeds. A box in between may read those
//! otherwise and take a part of one request for another, so they are refused; what hyper refuses itself
//! (folded lines, bare carriage returns, broken names) is not looked at here.

/// Bytes of a head's line that are kept: the longest one that matters is a transfer coding's.
const LINE_BYTES: usize = 64;
/// Bytes of a chunk's size line and of one trailer line.
const CHUNK_LINE_BYTES: u32 = 1024;
/// Trailer lines.
const TRAILERS_MAX: u32 = 100;

/// What is wrong with a request's framing, in words.
pub type Violation = &'static str;

/// Where the bytes stand after a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Inside a request.
    Inside,
    /// At a request's end; the bytes after it are another's.
    End,
    /// A head is whole and breaks the rules: nothing after it may be read.
    BadHead(Violation),
    /// A body's framing breaks the rules at this byte.
    BadBody(Violation),
}

/// The scanner of one connection.
#[derive(Debug, Default)]
pub struct Scanner {
    state: State,
    line: heapless::Vec<u8, LINE_BYTES>,
    /// The whole line's length, its line feed not counted.
    length: usize,
    /// The last byte was a carriage return.
    cr: bool,
    /// Lines of this head with something in them.
    lines: u32,
    /// Header fields of the last head.
    fields: u32,
    sized: Option<u64>,
    chunked: bool,
    violation: Option<Violation>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Head,
    Sized(u64),
    ChunkSize {
        size: u64,
        digits: u32,
        extension: bool,
        length: u32,
    },
    ChunkData(u64),
    /// After a chunk's data: how many bytes of its CRLF were there.
    ChunkEnd(u32),
    Trailer {
        lines: u32,
        length: u32,
    },
    Refused,
}

const CHUNK_SIZE: State = State::ChunkSize { size: 0, digits: 0, extension: false, length: 0 };

impl Scanner {
    /// Whether no byte of a next request was seen yet.
    #[must_use]
    pub fn between(&self) -> bool {
        self.state == State::Head && self.lines == 0 && self.length == 0
    }

    /// Whether a head has begun and is not whole yet.
    #[must_use]
    pub fn in_head(&self) -> bool {
        self.state == State::Head && !self.between()
    }

    /// Header fields of the head that was read last, or is being read.
    #[must_use]
    pub fn fields(&self) -> u32 {
        self.fields
    }

    /// Follows `bytes` up to the end of the request that they belong to. Gives how many that were, and
    /// where they lead. After a violation it takes nothing more.
    pub fn push(&mut self, bytes: &[u8]) -> (usize, Place) {
        let mut at = 0;
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            let (taken, place) = match self.state {
                State::Head => self.head(rest),
                State::Sized(left) => self.data(rest, left, State::Sized),
                State::ChunkData(left) => self.data(rest, left, State::ChunkData),
                State::ChunkSize { .. } | State::ChunkEnd(_) | State::Trailer { .. } => {
                    self.chunk(rest.first().copied().unwrap_or_default())
                }
                State::Refused => return (at, Place::BadBody("the connection is refused")),
            };
            at += taken;
            if place != Place::Inside {
                return (at, place);
            }
        }
        (at, Place::Inside)
    }

    fn head(&mut self, bytes: &[u8]) -> (usize, Place) {
        let end = memchr::memchr(b'\n', bytes);
        let piece = bytes.get(..end.unwrap_or(bytes.len())).unwrap_or_default();
        let room = self.line.capacity() - self.line.len();
        // It fits: the room was looked at.
        let _fits = self.line.extend_from_slice(piece.get(..room.min(piece.len())).unwrap_or_default());
        self.length += piece.len();
        if let Some(last) = piece.last() {
            self.cr = *last == b'\r';
        }
        let Some(end) = end else { return (bytes.len(), Place::Inside) };
        (end + 1, self.line_end())
    }

    fn line_end(&mut self) -> Place {
        let cr = std::mem::take(&mut self.cr);
        let length = std::mem::take(&mut self.length) - usize::from(cr);
        let line = std::mem::take(&mut self.line);
        if !cr {
            self.violation.get_or_insert("a line ends with a bare line feed");
        }
        if length > 0 {
            let request_line = self.lines == 0;
            self.lines += 1;
            self.fields = self.lines - 1;
            if !request_line {
                let kept = line.get(..length.min(line.len())).unwrap_or_default();
                self.field(kept, length > LINE_BYTES);
            }
            return Place::Inside;
        }
        if self.lines == 0 {
            // Empty lines before a request are passed over, RFC 9112 2.2.
            return self.violation.map_or(Place::Inside, |why| self.refuse_head(why));
        }
        self.head_end()
    }

    fn field(&mut self, line: &[u8], cut: bool) {
        let Some(colon) = memchr::memchr(b':', line) else { return };
        let (name, value) = line.split_at(colon);
        let value = value.get(1..).unwrap_or_default().trim_ascii();
        let mut bad = |why| {
            self.violation.get_or_insert(why);
        };
        if name.eq_ignore_ascii_case(b"content-length") {
            let digits = !cut && !value.is_empty() && value.iter().all(u8::is_ascii_digit);
            let length =
                std::str::from_utf8(value).ok().filter(|_| digits).and_then(|text| text.parse().ok());
            match (length, self.sized) {
                (None, _) => bad("its Content-Length is not a number of bytes"),
                (Some(_), Some(_)) => bad("it has more than one Content-Length"),
                (Some(length), None) => self.sized = Some(length),
            }
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            if cut || !value.eq_ignore_ascii_case(b"chunked") {
                bad("its Transfer-Encoding is not `chunked`");
            } else if self.chunked {
                bad("it has more than one Transfer-Encoding");
            }
            self.chunked = true;
        }
    }

    fn head_end(&mut self) -> Place {
        if self.sized.is_some() && self.chunked {
            self.violation.get_or_insert("it has both Content-Length and Transfer-Encoding");
        }
        if let Some(why) = self.violation {
            return self.refuse_head(why);
        }
        let (sized, chunked) = (self.sized, self.chunked);
        *self = Scanner { fields: self.fields, ..Scanner::default() };
        match sized.unwrap_or(0) {
            _ if chunked => self.state = CHUNK_SIZE,
            0 => return Place::End,
            length => self.state = State::Sized(length),
        }
        Place::Inside
    }

    fn refuse_head(&mut self, why: Violation) -> Place {
        self.state = State::Refused;
        Place::BadHead(why)
    }

    fn data(&mut self, bytes: &[u8], left: u64, state: fn(u64) -> State) -> (usize, Place) {
        let taken = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
        let left = left - taken as u64;
        let chunk = matches!(self.state, State::ChunkData(_));
        self.state = match left {
            0 if chunk => State::ChunkEnd(0),
            0 => State::Head,
            left => state(left),
        };
        (taken, if self.state == State::Head { Place::End } else { Place::Inside })
    }

    /// One byte of the chunks' own framing.
    fn chunk(&mut self, byte: u8) -> (usize, Place) {
        let cr = std::mem::replace(&mut self.cr, byte == b'\r');
        if cr != (byte == b'\n') {
            return self.refuse_body("a line of its chunks does not end with CRLF");
        }
        let next = match self.state {
            State::ChunkSize { size, digits, extension, length } if byte == b'\n' => {
                let _ = (extension, length);
                match (digits, size) {
                    (0, _) => None,
                    (_, 0) => Some(State::Trailer { lines: 0, length: 0 }),
                    (_, size) => Some(State::ChunkData(size)),
                }
            }
            State::ChunkSize { size, digits, extension, length } if length < CHUNK_LINE_BYTES => {
                let digit = char::from(byte).to_digit(16);
                match (extension, digit, byte) {
                    (_, _, b'\r') => Some(self.state),
                    (true, _, _) => Some(State::ChunkSize { size, digits, extension, length: length + 1 }),
                    (false, Some(digit), _) if digits < 16 => Some(State::ChunkSize {
                        size: size << 4 | u64::from(digit),
                        digits: digits + 1,
                        extension,
                        length: length + 1,
                    }),
                    (false, _, b';') if digits > 0 => {
                        Some(State::ChunkSize { size, digits, extension: true, length: length + 1 })
                    }
                    _ => None,
                }
            }
            State::ChunkEnd(0) if byte == b'\r' => Some(State::ChunkEnd(1)),
            State::ChunkEnd(1) if byte == b'\n' => Some(CHUNK_SIZE),
            State::Trailer { length: 0, .. } if byte == b'\n' => Some(State::Head),
            State::Trailer { lines, .. } if byte == b'\n' && lines < TRAILERS_MAX => {
                Some(State::Trailer { lines: lines + 1, length: 0 })
            }
            State::Trailer { .. } if byte == b'\r' => Some(self.state),
            State::Trailer { lines, length } if byte != b'\n' && length < CHUNK_LINE_BYTES => {
                Some(State::Trailer { lines, length: length + 1 })
            }
            _ => None,
        };
        let Some(next) = next else { return self.refuse_body("its chunks are not framed as they should be") };
        self.state = next;
        (1, if next == State::Head { Place::End } else { Place::Inside })
    }

    /// The byte at fault is not taken: no reader behind this one gets to see a line's end in it.
    fn refuse_body(&mut self, why: Violation) -> (usize, Place) {
        self.state = State::Refused;
        (0, Place::BadBody(why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The requests' lengths, and the violation that ended it.
    fn scan(bytes: &[u8], step: usize) -> (Vec<usize>, Option<Violation>) {
        let mut scanner = Scanner::default();
        let (mut ends, mut length) = (Vec::new(), 0);
        for piece in bytes.chunks(step) {
            let mut piece = piece;
            while !piece.is_empty() {
                let (taken, place) = scanner.push(piece);
                piece = &piece[taken..];
                length += taken;
                match place {
                    Place::Inside => assert!(piece.is_empty()),
                    Place::End => ends.push(std::mem::take(&mut length)),
                    Place::BadHead(why) | Place::BadBody(why) => return (ends, Some(why)),
                }
            }
        }
        assert_eq!(scanner.between(), length == 0);
        (ends, None)
    }

    const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    const SIZED: &str = "POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\n\r\n\r\nx";
    const CHUNKED: &str = "POST / HTTP/1.1\r\nTRANSFER-ENCODING:  Chunked \r\n\r\n00a;b=\"\r\n0123456789\r\n1\r\nx\r\n0\r\nA: b\r\n\r\n";

    #[test]
    fn requests_end_where_they_end_in_any_split() {
        let all = [GET, SIZED, CHUNKED, "\r\n", GET].concat();
        let wanted = vec![GET.len(), SIZED.len(), CHUNKED.len(), GET.len() + 2];
        for step in 1..=all.len() {
            assert_eq!(scan(all.as_bytes(), step), (wanted.clone(), None), "{step}");
        }
    }

    #[test]
    fn what_readers_could_read_differently_is_a_violation_in_any_split() {
        let heads = [
            "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n",
            "Content-Length: 1\r\ncontent-length: 1\r\n",
            "Content-Length: 1, 1\r\n",
            "Content-Length: +1\r\n",
            "Content-Length:\r\n",
            "Content-Length: 99999999999999999999\r\n",
            "Content-Length:                                                                  1\r\n",
            "Transfer-Encoding: gzip, chunked\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "A: b\n",
        ];
        for head in heads {
            for bad in
                [format!("POST / HTTP/1.1\r\n{head}\r\n"), format!("POST / HTTP/1.1\r\nA: b\r\n{head}\r\n")]
            {
                let all = [GET, &bad, GET].concat();
                for step in 1..=all.len() {
                    let (ends, why) = scan(all.as_bytes(), step);
                    assert_eq!((ends, why.is_some()), (vec![GET.len()], true), "{bad:?} by {step}");
                }
            }
        }
        for chunks in [
            "+1\r\n",
            "0x1\r\n",
            "1\n",
            "1\r\nxx",
            "1\r\nx\n",
            "\r\n",
            "g\r\n",
            "0\r\n\n",
            "1 \r\n",
            "1\rx",
            "11111111111111111\r\n",
        ] {
            let all = format!("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}{GET}");
            for step in 1..=all.len() {
                let (ends, why) = scan(all.as_bytes(), step);
                assert!(ends.is_empty() && why.is_some(), "{chunks:?} by {step}");
            }
        }
    }

    #[test]
    fn lines_that_never_end_are_bounded() {
        let long = "a".repeat(2000);
        for rest in
            [format!("1;{long}"), format!("0\r\n{long}"), "0\r\n".to_owned() + &"a: b\r\n".repeat(200)]
        {
            let all = format!("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{rest}");
            assert!(scan(all.as_bytes(), 100).1.is_some());
        }
    }
}
