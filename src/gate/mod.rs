//! The gate: holds an attempt's first bytes until they prove that the model is answering.
//!
//! Bytes go in, a verdict comes out. It commits on a first token (WIRE.md 10.1) and on an answer
//! that is whole without one (a refusal, Ollama's load reply), and on nothing else. The held bytes
//! live in one fixed buffer from a [`pool::Pool`]; the gate allocates nothing until it fails, when
//! it keeps the target's words.
//!
//! The caller owns the clock and the sockets: a deadline that passes is [`Gate::expire`], a
//! connection that breaks is [`Gate::broken`].

pub mod answer;
pub mod pool;
pub mod repetition;

use crate::cause::{Cause, Failure};
use crate::config::{CommitOn, OnEmptyStop};
use crate::dialect::event::{Facts, Finish, Progress, Usage};
use crate::dialect::{self, Dialect};
use crate::wire::{Framing, Splitter};
use pool::Buffer;

/// What the gate decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The model is answering: release the held bytes, this target owns the stream.
    Commit,
    /// The attempt failed.
    Failed(Failure),
    /// It ended well-formed and without a token.
    Empty(Emptiness),
    /// The buffer was full before a token was seen.
    Overflow,
}

/// How empty an empty answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Emptiness {
    /// Not even an end marker: a closed stream.
    Nothing,
    /// An end marker or a finish reason, and no token reported.
    NoToken,
    /// `stop`, with tokens reported that were not shown: legitimate in some reports, a hidden
    /// failure in others; policy decides.
    StopWithTokens,
}

/// What the gate is told about the request and its configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// The protocol of the stream.
    pub dialect: Dialect,
    /// What commits.
    pub commit_on: CommitOn,
    /// Whether `stop` with unseen tokens is an answer.
    pub on_empty_stop: OnEmptyStop,
    /// Whether reasoning without `id` and `model` is a banner.
    pub drop_anonymous_reasoning: bool,
    /// The request allowed at most one token, so that none is an answer.
    pub tiny: bool,
    /// Progress frames were asked for by edgeward: they are not held.
    pub drop_progress: bool,
}

/// What became of one push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Bytes of the chunk that are now held or dropped. Less than the chunk only with a verdict.
    pub consumed: usize,
    /// The verdict, once there is one.
    pub verdict: Option<Verdict>,
}

/// The state machine of one attempt's first bytes.
#[derive(Debug)]
pub struct Gate {
    rules: Rules,
    splitter: Splitter,
    buffer: Buffer,
    /// Bytes held in `buffer`.
    held: usize,
    /// Where in the held bytes the current, incomplete event begins.
    event: usize,
    finish: Option<Finish>,
    usage: Usage,
    done: bool,
    any_event: bool,
    nameless: bool,
    progress: Option<Progress>,
}

impl Gate {
    /// A gate over a pool's buffer.
    #[must_use]
    pub fn new(rules: Rules, buffer: Buffer) -> Self {
        Gate {
            splitter: Splitter::new(rules.dialect.framing()),
            rules,
            buffer,
            held: 0,
            event: 0,
            finish: None,
            usage: Usage::default(),
            done: false,
            any_event: false,
            nameless: false,
            progress: None,
        }
    }

    /// Takes the next bytes of the stream. After a verdict the gate must not be pushed again.
    pub fn push(&mut self, chunk: &[u8]) -> Step {
        let mut consumed = 0;
        while consumed < chunk.len() {
            let room = self.capacity() - self.held;
            if room == 0 {
                match self.make_room() {
                    Some(verdict) => return Step { consumed, verdict: Some(verdict) },
                    None => continue,
                }
            }
            let rest = &chunk[consumed..];
            let rest = &rest[..rest.len().min(room)];
            let (taken, complete) = match self.splitter.push(rest) {
                Some(end) => (end, true),
                None => (rest.len(), false),
            };
            self.buffer.bytes_mut()[self.held..self.held + taken].copy_from_slice(&rest[..taken]);
            self.held += taken;
            consumed += taken;
            if complete && let Some(verdict) = self.event_complete() {
                return Step { consumed, verdict: Some(verdict) };
            }
        }
        Step { consumed, verdict: None }
    }

    /// The stream ended cleanly. An unfinished last event is looked at first.
    pub fn end(&mut self) -> Verdict {
        if self.held > self.event
            && let Some(verdict) = self.event_complete()
        {
            return verdict;
        }
        self.judge_end()
    }

    /// The connection broke. A finish reason that was already there still makes it an answer.
    pub fn broken(&mut self, failure: Failure) -> Verdict {
        if self.finish.is_some() || self.done { self.judge_end() } else { Verdict::Failed(failure) }
    }

    /// The first-token deadline passed. A stream that said it was finished is judged as ended.
    pub fn expire(&mut self, cause: Cause) -> Verdict {
        self.broken(Failure::new(cause))
    }

    /// The last progress that the engine reported.
    #[must_use]
    pub fn progress(&self) -> Option<Progress> {
        self.progress
    }

    /// The held bytes, in order: everything pushed but the dropped comments and progress frames.
    #[must_use]
    pub fn held(&self) -> &[u8] {
        &self.buffer.bytes()[..self.held]
    }

    /// Gives the buffer back for the next attempt.
    #[must_use]
    pub fn into_buffer(self) -> Buffer {
        self.buffer
    }

    fn capacity(&self) -> usize {
        self.buffer.bytes().len()
    }

    /// The event at the end of the held bytes is complete: what does it say?
    fn event_complete(&mut self) -> Option<Verdict> {
        let (event, held) = (self.event, self.held);
        let (before, spare) = self.buffer.bytes_mut().split_at_mut(held);
        let facts = dialect::inspect_event(self.rules.dialect, &before[event..], spare);
        if self.droppable(&facts) {
            self.held = event;
            self.any_event |= !facts.blank;
            self.progress = facts.progress.or(self.progress);
            return None;
        }
        self.event = held;
        self.weigh(&facts, event)
    }

    /// Comments, blank events, and progress that only edgeward asked for, are not held.
    fn droppable(&self, facts: &Facts) -> bool {
        let says_more = self.is_token(facts) || facts.error.is_some() || facts.finish.is_some() || facts.done;
        facts.blank || (self.rules.drop_progress && facts.progress.is_some() && !says_more)
    }

    fn is_token(&self, facts: &Facts) -> bool {
        let banner = facts.anonymous_thinking && self.rules.drop_anonymous_reasoning;
        let thinking = facts.thinking || (facts.anonymous_thinking && !banner);
        facts.content || (thinking && self.rules.commit_on == CommitOn::Any)
    }

    fn weigh(&mut self, facts: &Facts, at: usize) -> Option<Verdict> {
        self.any_event = true;
        self.progress = facts.progress.or(self.progress);
        if let Some(error) = &facts.error {
            let failure = error.failure(self.held().get(at..).unwrap_or_default());
            return Some(Verdict::Failed(failure));
        }
        if self.is_token(facts) {
            return Some(Verdict::Commit);
        }
        if facts.alien {
            let start = &self.held()[at..self.held.min(at + 120)];
            return Some(Verdict::Failed(Failure::with(Cause::Protocol, &String::from_utf8_lossy(start))));
        }
        self.nameless = facts.nameless;
        self.done |= facts.done;
        if let Some(usage) = facts.usage {
            self.usage.prompt = usage.prompt.or(self.usage.prompt);
            self.usage.completion = usage.completion.or(self.usage.completion);
        }
        self.finish = facts.finish.or(self.finish);
        match facts.finish {
            Some(Finish::Filtered | Finish::Loaded) => Some(Verdict::Commit),
            Some(Finish::Failed) => Some(Verdict::Failed(Failure::new(Cause::ErrorInStream))),
            Some(Finish::Stop | Finish::Length) | None => facts.done.then(|| self.judge_end()),
        }
    }

    /// The stream is over and no token was seen.
    fn judge_end(&self) -> Verdict {
        if self.rules.tiny && self.finish.is_some() {
            return Verdict::Commit;
        }
        let reported = self.usage.completion.unwrap_or(0) > 0;
        match self.finish {
            Some(Finish::Stop) if reported => match self.rules.on_empty_stop {
                OnEmptyStop::Pass => Verdict::Commit,
                OnEmptyStop::FailoverOnce => Verdict::Empty(Emptiness::StopWithTokens),
            },
            Some(_) => Verdict::Empty(Emptiness::NoToken),
            None if self.done => Verdict::Empty(Emptiness::NoToken),
            None if self.nameless => Verdict::Failed(Failure::with(Cause::Crashed, dialect::NAMELESS_END)),
            None if self.any_event => Verdict::Failed(Failure::new(Cause::Truncated)),
            None => Verdict::Empty(Emptiness::Nothing),
        }
    }

    /// The buffer is full. Comment lines of the event in the making are dropped, a first frame too large to
    /// hold commits if its beginning shows a token; else it is an overflow.
    fn make_room(&mut self) -> Option<Verdict> {
        let framing = self.rules.dialect.framing();
        if framing == Framing::Sse && self.drop_comment_lines() {
            return None;
        }
        let cut = &self.buffer.bytes()[self.event..self.held];
        let facts = dialect::inspect_cut(self.rules.dialect, framing, cut);
        let token = self.is_token(&facts) && facts.error.is_none();
        Some(if token { Verdict::Commit } else { Verdict::Overflow })
    }

    /// Drops the comment lines with which the pending event begins, and of one without an end all but its
    /// colon. Whether that made room.
    fn drop_comment_lines(&mut self) -> bool {
        let (event, held) = (self.event, self.held);
        let pending = &self.buffer.bytes()[event..held];
        // The LF of a CRLF that was cut in two.
        let mut kept = usize::from(pending.first() == Some(&b'\n'));
        while pending.get(kept) == Some(&b':') {
            let Some(end) = memchr::memchr2(b'\n', b'\r', &pending[kept..]) else {
                self.buffer.bytes_mut()[event] = b':';
                self.held = event + 1;
                return self.held < held;
            };
            let crlf = pending[kept + end..].starts_with(b"\r\n");
            kept += end + 1 + usize::from(crlf);
        }
        self.buffer.bytes_mut().copy_within(event + kept..held, event);
        self.held = held - kept;
        kept > 0
    }
}

#[cfg(test)]
mod tests;
