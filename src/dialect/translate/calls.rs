//! Calls one after another: OpenAI's protocol may mix the arguments of several, no other one can.

use super::Piece;
use super::text::Tail;
use super::view::View;
use crate::cause::{Cause, Failure};
use crate::limits::{ANSWER_CALLS, CALL_BYTES};

/// What one delta says about a call.
#[derive(Debug, Default)]
pub(super) struct Delta<'a> {
    /// The server's number of it, where it gives one.
    pub(super) slot: Option<u64>,
    /// The server's name for it; empty where it gives none.
    pub(super) id: String,
    /// The function; empty when it was named before.
    pub(super) name: String,
    pub(super) signature: String,
    /// A JSON string's inside, escapes kept: more of the arguments.
    pub(super) arguments: &'a [u8],
    /// Arguments as JSON, and all of them.
    pub(super) object: Option<View<'a>>,
}

/// The calls of one choice.
#[derive(Debug, Default)]
pub(super) struct Calls {
    /// Calls begun, so the next one's index.
    begun: u32,
    open: Option<Call>,
    /// Begun while the open one's arguments were not whole.
    waiting: Vec<Call>,
    /// Slots of those that ended.
    ended: Vec<u64>,
}

#[derive(Debug, Default)]
struct Call {
    slot: Option<u64>,
    id: String,
    name: String,
    signature: String,
    /// What came before its turn.
    held: String,
    tail: Tail,
    extent: Extent,
}

impl Call {
    fn is(&self, delta: &Delta<'_>) -> bool {
        let same_slot = match (self.slot, delta.slot) {
            (Some(mine), Some(its)) => mine == its,
            // Without numbers, a name begins a call.
            _ => delta.name.is_empty() || !delta.id.is_empty() && delta.id == self.id,
        };
        // Some servers number every call 0.
        let same_id = delta.id.is_empty() || self.id.is_empty() || delta.id == self.id;
        same_slot && same_id
    }
}

impl Calls {
    /// Whether the choice has called anything.
    pub(super) const fn any(&self) -> bool {
        self.begun > 0
    }

    /// Whether the open call's arguments are still to come.
    pub(super) fn busy(&self) -> bool {
        self.open.as_ref().is_some_and(|call| !call.extent.is_whole())
    }

    /// Takes a delta.
    ///
    /// # Errors
    /// When it belongs to no call, or too much of others has to wait.
    pub(super) fn delta(&mut self, delta: Delta<'_>, out: &mut Vec<Piece>) -> Result<(), Failure> {
        let known = self.open.iter_mut().chain(self.waiting.iter_mut().rev()).find(|call| call.is(&delta));
        let late = known.is_none() && delta.name.is_empty() && delta.id.is_empty();
        let call = match known {
            Some(call) => call,
            None if late && delta.arguments.trim_ascii().is_empty() && delta.object.is_none() => {
                return Ok(());
            }
            None if late => {
                let which = if delta.slot.is_some_and(|slot| self.ended.contains(&slot)) {
                    "ended"
                } else {
                    "unknown"
                };
                return Err(failure(Cause::Protocol, &format!("arguments for a call that is {which}")));
            }
            None => {
                if self.begun as usize + self.waiting.len() >= ANSWER_CALLS as usize {
                    return Err(failure(
                        Cause::NoBuffer,
                        &format!("more than {ANSWER_CALLS} calls in one answer"),
                    ));
                }
                self.waiting.push(Call { slot: delta.slot, ..Call::default() });
                match self.waiting.last_mut() {
                    Some(call) => call,
                    None => return Ok(()),
                }
            }
        };
        if call.id.is_empty() {
            call.id = delta.id;
        }
        if call.name.is_empty() {
            call.name = delta.name;
        }
        if call.signature.is_empty() {
            call.signature = delta.signature;
        }
        let more = match delta.object {
            Some(object) => super::text::compact(object.raw()),
            None => call.tail.push(delta.arguments),
        };
        call.extent.push(&more);
        call.held.push_str(&more);
        self.advance(out);
        if self.waiting.iter().map(|call| call.held.len()).sum::<usize>() > CALL_BYTES {
            return Err(failure(
                Cause::NoBuffer,
                &format!("more than {CALL_BYTES} bytes of arguments mixed with another call's"),
            ));
        }
        Ok(())
    }

    /// Something else begins: the open call is over.
    pub(super) fn end_open(&mut self, out: &mut Vec<Piece>) {
        let Some(mut call) = self.open.take() else { return };
        let index = self.begun.saturating_sub(1);
        call.held.push_str(&call.tail.flush());
        if call.extent.is_empty() && call.held.is_empty() {
            // No arguments at all: every protocol but this one says so with an empty object.
            call.held.push_str("{}");
        }
        give(&mut call, index, out);
        out.push(Piece::ToolEnd { index });
        if let Some(slot) = call.slot {
            self.ended.push(slot);
        }
    }

    /// The choice is over: whatever waits has its turn.
    pub(super) fn end(&mut self, out: &mut Vec<Piece>) {
        self.end_open(out);
        for call in std::mem::take(&mut self.waiting) {
            self.begin(call, out);
            self.end_open(out);
        }
    }

    /// The next call's turn comes when the open one's arguments are whole.
    fn advance(&mut self, out: &mut Vec<Piece>) {
        loop {
            if let Some(open) = &mut self.open {
                give(open, self.begun.saturating_sub(1), out);
            }
            let next = self.waiting.first().is_some_and(|call| !call.name.is_empty());
            if !next || self.busy() {
                return;
            }
            self.end_open(out);
            let call = self.waiting.remove(0);
            self.begin(call, out);
        }
    }

    fn begin(&mut self, mut call: Call, out: &mut Vec<Piece>) {
        let index = self.begun;
        self.begun += 1;
        out.push(Piece::ToolStart {
            index,
            id: std::mem::take(&mut call.id),
            name: call.name.clone(),
            signature: std::mem::take(&mut call.signature),
        });
        // What tells it from others stays.
        if let Some(Piece::ToolStart { id, .. }) = out.last() {
            call.id.clone_from(id);
        }
        self.open = Some(call);
    }
}

fn give(call: &mut Call, index: u32, out: &mut Vec<Piece>) {
    if !call.held.is_empty() {
        out.push(Piece::ToolArguments { index, delta: std::mem::take(&mut call.held) });
    }
}

fn failure(cause: Cause, words: &str) -> Failure {
    Failure::with(cause, words)
}

/// How far a JSON text that comes in parts has come.
#[derive(Clone, Copy, Debug, Default)]
struct Extent {
    depth: u32,
    in_string: bool,
    escaped: bool,
    begun: bool,
}

impl Extent {
    fn push(&mut self, text: &str) {
        for byte in text.bytes() {
            self.begun |= !byte.is_ascii_whitespace();
            if self.in_string {
                match byte {
                    _ if self.escaped => self.escaped = false,
                    b'\\' => self.escaped = true,
                    b'"' => self.in_string = false,
                    _ => {}
                }
                continue;
            }
            match byte {
                b'"' => self.in_string = true,
                b'{' | b'[' => self.depth = self.depth.saturating_add(1),
                b'}' | b']' => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
        }
    }

    const fn is_empty(self) -> bool {
        !self.begun
    }

    const fn is_whole(self) -> bool {
        self.begun && self.depth == 0 && !self.in_string
    }
}
