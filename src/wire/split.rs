//! Where an event ends: a state machine over the stream's bytes that keeps none of them.

use memchr::{memchr, memchr2};

use super::Framing;

/// Finds the ends of events in one stream. It holds no bytes: its caller keeps them.
///
/// Concatenated in order, the pieces it marks off are the stream, byte for byte. A piece may hold
/// no event at all (a blank line, which NDJSON servers and DeepSeek send as a sign of life): it
/// parses to nothing.
///
/// SSE lines end with LF, CRLF or CR, mixed as they come. A CR that is the last byte known ends
/// its line at once, for its LF may never come; an LF that does follow in the next chunk becomes
/// the first byte of the next piece and ends no line.
#[derive(Clone, Debug)]
pub struct Splitter {
    framing: Framing,
    /// Bytes of an unfinished event were seen.
    pending: bool,
    /// SSE: the current line has bytes.
    in_line: bool,
    /// SSE: the last chunk ended with a CR; an LF that comes next belongs to it.
    after_cr: bool,
}

impl Splitter {
    /// At the beginning of a stream.
    #[must_use]
    pub const fn new(framing: Framing) -> Self {
        Splitter { framing, pending: false, in_line: false, after_cr: false }
    }

    /// Takes the next bytes. `Some(n)`: the current event ends with the first `n` bytes of `chunk`
    /// (1 and up); call again with the rest. `None`: all of `chunk` was taken, the event goes on.
    #[must_use = "the rest of the chunk must be pushed again"]
    pub fn push(&mut self, chunk: &[u8]) -> Option<usize> {
        match self.framing {
            Framing::Sse => self.push_sse(chunk),
            Framing::Ndjson => self.push_ndjson(chunk),
        }
    }

    /// Whether the stream may end here without cutting an event: nothing of one is pending.
    /// An LF that only completes the last event's CRLF is nothing.
    #[must_use]
    pub const fn is_between(&self) -> bool {
        !self.pending
    }

    fn push_ndjson(&mut self, chunk: &[u8]) -> Option<usize> {
        let end = memchr(b'\n', chunk);
        self.pending = match end {
            Some(_) => false,
            None => self.pending || !chunk.is_empty(),
        };
        end.map(|end| end + 1)
    }

    fn push_sse(&mut self, chunk: &[u8]) -> Option<usize> {
        let mut at = 0;
        if self.after_cr && !chunk.is_empty() {
            self.after_cr = false;
            at = usize::from(chunk.first() == Some(&b'\n'));
        }
        while let Some(found) = chunk.get(at..).and_then(|rest| memchr2(b'\n', b'\r', rest)) {
            let blank = found == 0 && !self.in_line;
            let is_cr = chunk.get(at + found) == Some(&b'\r');
            self.in_line = false;
            at += found + 1;
            if is_cr {
                match chunk.get(at) {
                    Some(b'\n') => at += 1,
                    Some(_) => {}
                    None => self.after_cr = true,
                }
            }
            if blank {
                self.pending = false;
                return Some(at);
            }
            self.pending = true;
        }
        if at < chunk.len() {
            self.in_line = true;
            self.pending = true;
        }
        None
    }
}

#[cfg(test)]
mod tests;
