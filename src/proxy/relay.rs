//! After the commit: the target's bytes become the client's, event by event, with only what must change
//! changed.
//!
//! Pure: chunks in, slices of them out. Nothing is copied but an event that was cut across chunks, which is
//! joined to be read. An event in the making is held back until it is whole (up to a bound), so that a stream that breaks
//! never ends in half an event.

use std::ops::Range;

use bytes::Bytes;

use super::shape::Shape;
use crate::cause::{Cause, Failure};
use crate::dialect::event::{Ends, Facts, Finish, Usage};
use crate::dialect::{self, Dialect};
use crate::limits::RELAY_EVENT_BYTES;
use crate::wire::{Framing, Splitter, sse};

/// What is changed on the way.
#[derive(Clone, Debug, Default)]
pub struct Edits {
    /// The client did not ask for usage: usage chunks and `"usage":null` are edgeward's doing.
    pub hide_usage: bool,
    /// The client did not ask for prompt progress.
    pub hide_progress: bool,
    /// The model name that the client sees, as a JSON string with its quotes.
    pub model: Option<Bytes>,
    /// An error does not go to the client as it comes: the stream may go on.
    pub hide_error: bool,
    /// The target was given the beginning of the answer as its own words.
    pub prefilled: bool,
    /// The client asked for no thinking. Only where the answer is translated: else its own server was told so.
    pub hide_thinking: bool,
}

/// What the relayed stream has said so far.
#[derive(Clone, Debug, Default)]
pub struct Said {
    /// Each choice has its finish reason, and nothing was said after it.
    pub finished: bool,
    /// The protocol's end marker.
    pub done: bool,
    /// An error event; its text is bounded.
    pub error: Option<Failure>,
    /// That error went to the client as it came, being in its dialect.
    pub error_shown: bool,
    /// The last usage reported.
    pub usage: Option<Usage>,
}

/// The relay of one stream.
#[derive(Debug)]
pub struct Relay {
    dialect: Dialect,
    edits: Edits,
    splitter: Splitter,
    said: Said,
    /// How many choices the client asked for. A server may show more: one for each of several prompts.
    expected: u32,
    ends: Ends,
    /// The current event's chunks so far, held back.
    pieces: Vec<Bytes>,
    pieces_len: usize,
    /// The current event is too long to hold back: its bytes pass unlooked-at until its end. What its
    /// beginning says of the stream's end holds from then on.
    passing: Option<Facts>,
    /// Comments are dropped: these are the gate's held bytes.
    dropping_comments: bool,
    /// The event held back began in the gate's held bytes: its comments are dropped, too.
    began_held: bool,
    scratch: Vec<u8>,
    moved: bool,
    spoke: bool,
    shape: Option<Shape>,
    /// What the client was last told beside the answer, as in [`Facts::besides`].
    besides: u64,
    /// The last finish reason, as it stands; kept where usage is hidden.
    reason: Option<Bytes>,
}

impl Relay {
    /// A relay for a stream from its first byte on.
    #[must_use]
    pub fn new(dialect: Dialect, edits: Edits) -> Self {
        Relay {
            dialect,
            edits,
            splitter: Splitter::new(dialect.framing()),
            said: Said::default(),
            expected: 1,
            ends: Ends::default(),
            pieces: Vec::new(),
            pieces_len: 0,
            passing: None,
            dropping_comments: false,
            began_held: false,
            scratch: Vec::new(),
            moved: false,
            spoke: false,
            shape: None,
            besides: 0,
            reason: None,
        }
    }

    /// The client asked for this many choices: the stream is finished when all are.
    #[must_use]
    pub fn expecting(self, choices: u32) -> Self {
        Relay { expected: choices.min(u64::BITS), ..self }
    }

    /// What the stream has said.
    #[must_use]
    pub fn said(&self) -> &Said {
        &self.said
    }

    /// Whether anything but comments came since the last call.
    pub fn take_moved(&mut self) -> bool {
        std::mem::take(&mut self.moved)
    }

    /// Whether content or thinking came since the last call.
    pub fn take_spoke(&mut self) -> bool {
        std::mem::take(&mut self.spoke)
    }

    /// The gate's held bytes, comments dropped.
    pub fn held(&mut self, held: Bytes, out: &mut Vec<Bytes>) {
        self.dropping_comments = true;
        self.push(held, out);
        self.began_held = !self.pieces.is_empty();
        self.dropping_comments = false;
    }

    /// The next chunk. Appends what the client gets; after an error event nothing more.
    pub fn push(&mut self, chunk: Bytes, out: &mut Vec<Bytes>) {
        let mut run = Run { chunk, start: 0, end: 0 };
        while run.end < run.chunk.len() && self.said.error.is_none() {
            let at = run.end;
            match self.splitter.push(run.chunk.get(at..).unwrap_or_default()) {
                Some(length) => self.event(at, at + length, &mut run, out),
                None => {
                    run.flush(out);
                    let piece = run.chunk.slice(at..);
                    run.skip_to(run.chunk.len());
                    self.unfinished(piece, out);
                }
            }
        }
        run.flush(out);
    }

    /// The body ended cleanly: what was held back of a last event without its empty line. Half an event is
    /// dropped.
    pub fn end(&mut self, out: &mut Vec<Bytes>) {
        let before = out.len();
        let passed = self.passing.take().is_some();
        if self.pieces_len > 0 {
            let last = self.joined(&Bytes::new());
            let facts = self.inspected(&last);
            if facts.alien && facts.error.is_none() {
                return;
            }
            let mut run = Run { chunk: last, start: 0, end: 0 };
            self.event(0, run.chunk.len(), &mut run, out);
            run.flush(out);
        }
        let gave = passed || out.len() > before;
        if gave && self.said.error.is_none() && !self.splitter.is_between() {
            // The line end that the target left out, so that what follows is an event of its own.
            out.push(Bytes::from_static(match self.dialect.framing() {
                Framing::Sse => b"\n\n",
                Framing::Ndjson => b"\n",
            }));
        }
    }

    /// The stream broke: whether the client's bytes stop inside an event.
    #[must_use]
    pub fn cut_inside_event(&self) -> bool {
        self.passing.is_some()
    }

    fn unfinished(&mut self, piece: Bytes, out: &mut Vec<Bytes>) {
        if self.passing.is_some() {
            self.moved = true;
            out.push(piece);
            return;
        }
        self.pieces_len += piece.len();
        self.pieces.push(piece);
        if self.pieces_len > RELAY_EVENT_BYTES {
            self.pass(out);
        }
    }

    /// The event in the making is too long: what was held back of it goes, by what can be seen of it.
    fn pass(&mut self, out: &mut Vec<Bytes>) {
        let beginning = self.joined(&Bytes::new());
        let facts = dialect::inspect_cut(self.dialect, self.dialect.framing(), &beginning);
        self.moved = true;
        self.note(&Facts { finish: None, done: false, ..facts.clone() }, &beginning);
        if self.said.error.is_some() {
            return;
        }
        let dropping_comments = std::mem::take(&mut self.began_held);
        match self.edited(&beginning, &facts, dropping_comments, true) {
            Some(parts) => out.extend(parts.into_iter().filter(|part| !part.is_empty())),
            None => out.push(beginning),
        }
        self.passing = Some(facts);
    }

    fn inspected(&mut self, raw: &[u8]) -> Facts {
        if self.scratch.len() < raw.len() {
            self.scratch.resize(raw.len(), 0);
        }
        dialect::inspect_event(self.dialect, raw, &mut self.scratch)
    }

    /// An event is whole: the chunk's bytes from `at` to `end`, and whatever was held back before them.
    fn event(&mut self, at: usize, end: usize, run: &mut Run, out: &mut Vec<Bytes>) {
        if let Some(beginning) = self.passing.take() {
            self.moved = true;
            self.finish(&beginning, false);
            self.said.done |= beginning.done;
            run.keep_to(end);
            return;
        }
        let last = run.chunk.slice(at..end);
        let in_chunk = self.pieces.is_empty();
        let raw = if in_chunk { last } else { self.joined(&last) };
        let dropping_comments = std::mem::take(&mut self.began_held) || self.dropping_comments;
        // With nothing finished there is nothing that a plain token could take back.
        if in_chunk && self.ends.none() && self.shape.as_ref().is_some_and(|shape| shape.fits(&raw)) {
            self.moved = true;
            self.spoke = true;
            run.keep_to(end);
            return;
        }
        let facts = self.inspected(&raw);
        let keep = if facts.blank {
            // A sign of life. Useful to the client, but nothing of it belongs before the first token.
            !dropping_comments
        } else {
            self.moved = true;
            self.note(&facts, &raw);
            if self.said.error.is_some() {
                self.said.error_shown =
                    !self.edits.hide_error && dialect::is_native_error(self.dialect, &raw);
                self.said.error_shown
            } else {
                !self.hides(&facts)
            }
        };
        let edited = if !facts.blank && self.said.error.is_none() {
            self.edited(&raw, &facts, dropping_comments, keep)
        } else {
            None
        };
        if facts.besides != 0 {
            self.besides = facts.besides;
        }
        if let Some(reason) = facts.reason.clone().filter(|_| self.edits.hide_usage) {
            self.reason = raw.get(reason).map(Bytes::copy_from_slice);
        }
        match (keep || edited.is_some(), edited) {
            (true, None) if in_chunk => {
                self.shape = Shape::learn(&raw, &facts).or(self.shape.take());
                run.keep_to(end);
            }
            (true, None) => {
                run.skip_to(end);
                out.push(raw);
            }
            (true, Some(parts)) => {
                run.flush(out);
                run.skip_to(end);
                out.extend(parts.into_iter().filter(|part| !part.is_empty()));
            }
            (false, _) => {
                run.flush(out);
                run.skip_to(end);
            }
        }
    }

    fn joined(&mut self, last: &Bytes) -> Bytes {
        if last.is_empty() && self.pieces.len() == 1 {
            self.pieces_len = 0;
            return self.pieces.pop().unwrap_or_default();
        }
        let mut whole = Vec::with_capacity(self.pieces_len + last.len());
        self.pieces.drain(..).for_each(|piece| whole.extend_from_slice(&piece));
        whole.extend_from_slice(last);
        self.pieces_len = 0;
        Bytes::from(whole)
    }

    fn note(&mut self, facts: &Facts, raw: &Bytes) {
        let spoke = facts.content || facts.thinking || facts.anonymous_thinking;
        self.spoke |= spoke;
        self.finish(facts, spoke);
        self.said.done |= facts.done;
        self.said.usage = facts.usage.or(self.said.usage);
        if facts.finish == Some(Finish::Failed) && facts.error.is_none() {
            self.said.error = Some(Failure::new(Cause::ErrorInStream));
        }
        if let Some(error) = &facts.error {
            self.said.error = Some(error.failure(raw));
        }
    }

    fn finish(&mut self, facts: &Facts, spoke: bool) {
        self.ends.note(facts, spoke);
        self.said.finished = self.ends.all(self.expected);
    }

    fn hides(&self, facts: &Facts) -> bool {
        let says_more = facts.content || facts.thinking || facts.finish.is_some() || facts.done;
        (self.edits.hide_usage && facts.usage_only)
            || (self.edits.hide_progress && facts.progress.is_some() && !says_more)
    }

    /// Of an event that is hidden for its usage: what to cut out and to put in, so that the client still gets what else
    /// it says and no event before it said. vLLM has its `system_fingerprint` there alone once it is asked for usage. Many
    /// clients look into the first choice of each event, and take the last one's finish reason: a choice stands there that
    /// adds no text, and says again why the answer ended.
    fn without_usage(&self, raw: &[u8], facts: &Facts) -> Option<[(Range<usize>, Bytes); 2]> {
        let [choices, usage] = facts.usage_only_at.clone().filter(|_| self.edits.hide_usage)?;
        if facts.besides == 0 || facts.besides == self.besides {
            return None;
        }
        let choice: &[u8] = match self.dialect {
            Dialect::OpenaiCompletions => br#"[{"index":0,"text":"","logprobs":null,"finish_reason":"#,
            _ => br#"[{"index":0,"delta":{"content":""},"finish_reason":"#,
        };
        // Of several choices each has its own.
        let reason = self.reason.as_deref().filter(|_| self.expected == 1).unwrap_or(b"null");
        let choice = Bytes::from([choice, reason, b"}]"].concat());
        let usage = dialect::member_range(raw, &usage)?;
        Some([(choices, choice), (usage, Bytes::new())])
    }

    /// The event as the client gets it, where that differs from how it came; of one that is not kept, what of it is.
    fn edited(&self, raw: &Bytes, facts: &Facts, dropping_comments: bool, keep: bool) -> Option<Vec<Bytes>> {
        let kept = if keep { None } else { Some(self.without_usage(raw, facts)?) };
        let model = match (&self.edits.model, &facts.model) {
            (Some(name), Some(range)) if raw.get(range.clone()) != Some(name) => {
                Some((range.clone(), name.clone()))
            }
            _ => None,
        };
        let usage = match &facts.usage_null {
            Some(range) if self.edits.hide_usage => {
                dialect::member_range(raw, range).map(|range| (range, Bytes::new()))
            }
            _ => None,
        };
        let comments = dropping_comments && facts.comments;
        if model.is_none() && usage.is_none() && kept.is_none() && !comments {
            return None;
        }
        let mut cuts: heapless::Vec<_, 4> =
            model.into_iter().chain(usage).chain(kept.into_iter().flatten()).collect();
        cuts.sort_unstable_by_key(|(range, _)| range.start);
        // A member that stands there twice.
        if cuts.windows(2).any(|pair| matches!(pair, [first, second] if first.0.end > second.0.start)) {
            return None;
        }
        let mut parts: heapless::Vec<Bytes, 9> = heapless::Vec::new();
        let mut at = 0;
        for (range, text) in cuts {
            parts.extend([raw.slice(at..range.start), text]);
            at = range.end;
        }
        parts.extend([raw.slice(at..)]);
        if comments {
            let whole = Bytes::from(parts.concat());
            return Some(sse::without_comments(&whole).map(|range| whole.slice(range)).collect());
        }
        // Each slice becomes an HTTP chunk of its own: an ordinary frame is cheaper copied together.
        if raw.len() <= COPY_BYTES {
            return Some(vec![Bytes::from(parts.concat())]);
        }
        Some(parts.into_iter().collect())
    }
}

/// An edited event up to this size leaves as one piece.
const COPY_BYTES: usize = 4096;

/// Events of one chunk that leave untouched leave as one slice: from `start` to `end` is kept and not sent yet.
struct Run {
    chunk: Bytes,
    start: usize,
    end: usize,
}

impl Run {
    fn keep_to(&mut self, end: usize) {
        self.end = end;
    }

    fn skip_to(&mut self, end: usize) {
        self.start = end;
        self.end = end;
    }

    fn flush(&mut self, out: &mut Vec<Bytes>) {
        if self.start < self.end {
            out.push(self.chunk.slice(self.start..self.end));
            self.start = self.end;
        }
    }
}

#[cfg(test)]
#[path = "relay_tests.rs"]
mod tests;
