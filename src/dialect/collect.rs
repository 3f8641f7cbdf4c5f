//! A whole answer out of a stream, in the server's own protocol: what the same server would have said unstreamed.
//!
//! Edge servers compute a whole answer in silence. Asked for a stream instead, they show each token, so that a slow
//! answer can be told from a hung server. Pure: chunks in, one body out. Nothing is translated, and nothing is decoded:
//! members that edgeward knows nothing of stay, numbers keep their digits.
//!
//! It is bounded by its caller: [`Collector::bytes`] says what it holds.

mod fold;
mod node;

use super::Dialect;
use super::event::{Ends, Facts, Finish, Progress};
use super::inspect::inspect_event;
use crate::cause::{Cause, Failure};
use crate::limits::TRANSLATED_EVENT_BYTES;
use crate::wire::{Framing, Splitter, sse};
use fold::Fold;
use node::Unfit;

/// One answer in the making.
#[derive(Debug)]
pub struct Collector {
    dialect: Dialect,
    /// Thinking without `id` and `model` is a model swapper's banner, and no part of the answer.
    drops_banners: bool,
    splitter: Splitter,
    /// The event in the making.
    event: Vec<u8>,
    scratch: Vec<u8>,
    ends: Ends,
    done: bool,
    any_event: bool,
    nameless: bool,
    answering: bool,
    moved: bool,
    progress: Option<Progress>,
    fold: Fold,
    held: usize,
}

/// Whether answers of this protocol can be put together.
#[must_use]
pub const fn collects(dialect: Dialect) -> bool {
    match dialect {
        Dialect::OpenaiChat
        | Dialect::OpenaiCompletions
        | Dialect::OpenaiResponses
        | Dialect::OllamaChat
        | Dialect::OllamaGenerate
        | Dialect::Anthropic => true,
        Dialect::OpenaiEmbeddings | Dialect::OllamaEmbed | Dialect::Gemini => false,
    }
}

impl Collector {
    /// An empty one, for a stream in `dialect`, of which [`collects`] must be true. `drops_banners`: thinking without
    /// `id` and `model` is left out.
    #[must_use]
    pub fn new(dialect: Dialect, drops_banners: bool) -> Self {
        Collector {
            dialect,
            drops_banners,
            splitter: Splitter::new(dialect.framing()),
            event: Vec::new(),
            scratch: Vec::new(),
            ends: Ends::default(),
            done: false,
            any_event: false,
            nameless: false,
            answering: false,
            moved: false,
            progress: None,
            fold: Fold::new(dialect),
            held: 0,
        }
    }

    /// Takes the next bytes of the stream.
    ///
    /// # Errors
    /// What the stream says went wrong; or that it cannot be put together.
    pub fn push(&mut self, mut chunk: &[u8]) -> Result<(), Failure> {
        while let Some(end) = self.splitter.push(chunk) {
            let (last, rest) = chunk.split_at(end);
            chunk = rest;
            if self.event.is_empty() {
                self.complete(last)?;
            } else {
                let mut event = std::mem::take(&mut self.event);
                event.extend_from_slice(last);
                self.complete(&event)?;
                event.clear();
                self.event = event;
            }
        }
        self.event.extend_from_slice(chunk);
        if self.event.len() > TRANSLATED_EVENT_BYTES {
            let words = format!("an event of over {TRANSLATED_EVENT_BYTES} bytes");
            return Err(Failure::with(Cause::Overflow, &words));
        }
        Ok(())
    }

    /// The stream ended cleanly, or its end marker was there: the body of the whole answer. An empty one: the stream had
    /// nothing at all.
    ///
    /// # Errors
    /// It was not whole.
    pub fn end(&mut self) -> Result<Vec<u8>, Failure> {
        let rest = std::mem::take(&mut self.event);
        // A server that heeded neither the wish for a stream nor its content type.
        let untouched = !self.any_event && rest.trim_ascii_start().starts_with(b"{");
        if untouched && serde_json::from_slice::<serde::de::IgnoredAny>(&rest).is_ok() {
            return Ok(rest);
        }
        if !rest.is_empty() {
            let facts = self.inspected(&rest);
            // Half an event says nothing, but for an error in it; unless it is all that came.
            if !facts.alien || facts.error.is_some() || !self.any_event {
                self.complete(&rest)?;
            }
        }
        if self.is_whole() {
            return self.fold.body(self.held);
        }
        if self.nameless {
            return Err(Failure::with(Cause::Crashed, super::NAMELESS_END));
        }
        if self.any_event { Err(Failure::new(Cause::Truncated)) } else { Ok(Vec::new()) }
    }

    /// Whether a token was there.
    #[must_use]
    pub const fn is_answering(&self) -> bool {
        self.answering
    }

    /// Whether the protocol's end marker was there: nothing more is to come.
    #[must_use]
    pub const fn is_done(&self) -> bool {
        self.done
    }

    /// Whether the answer is whole should the stream end now.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.fold.has_body() && (self.done || self.ends.all(1))
    }

    /// Whether anything but signs of life came since the last call.
    pub fn take_moved(&mut self) -> bool {
        std::mem::take(&mut self.moved)
    }

    /// The last progress that the server reported of the prompt.
    #[must_use]
    pub const fn progress(&self) -> Option<Progress> {
        self.progress
    }

    /// What it holds, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.held + self.event.len()
    }

    fn inspected(&mut self, raw: &[u8]) -> Facts {
        if self.scratch.len() < raw.len() {
            self.scratch.resize(raw.len(), 0);
        }
        inspect_event(self.dialect, raw, &mut self.scratch)
    }

    fn complete(&mut self, raw: &[u8]) -> Result<(), Failure> {
        let facts = self.inspected(raw);
        if facts.blank {
            return Ok(());
        }
        self.any_event = true;
        if let Some(error) = &facts.error {
            return Err(error.failure(raw));
        }
        if facts.finish == Some(Finish::Failed) {
            return Err(Failure::new(Cause::ErrorInStream));
        }
        if facts.alien {
            let start = String::from_utf8_lossy(raw.get(..raw.len().min(120)).unwrap_or_default());
            return Err(Failure::with(Cause::Protocol, &start));
        }
        self.progress = facts.progress.or(self.progress);
        if facts.anonymous_thinking && self.drops_banners {
            return Ok(());
        }
        let spoke = facts.content || facts.thinking || facts.anonymous_thinking;
        self.moved |= facts.progress.is_none() || spoke;
        self.answering |= spoke;
        self.ends.note(&facts, spoke);
        self.done |= facts.done;
        self.nameless = facts.nameless;
        let added = match self.dialect.framing() {
            Framing::Ndjson => self.fold.take(raw.trim_ascii()),
            Framing::Sse => self.fold_event(raw),
        };
        self.held += added.map_err(unfit)?;
        Ok(())
    }

    fn fold_event(&mut self, raw: &[u8]) -> Result<usize, Unfit> {
        let mut join = std::mem::take(&mut self.scratch);
        let added = match sse::parse(raw, &mut join) {
            // Whatever a sign of life says is no part of the answer.
            Ok(event) if matches!(event.name, b"ping" | b"heartbeat" | b"keep-alive") => Ok(0),
            Ok(event) => match event.data.unwrap_or_default().trim_ascii() {
                b"" | b"[DONE]" | b"null" => Ok(0),
                data => self.fold.take(data),
            },
            Err(_) => Err(Unfit::Bad),
        };
        self.scratch = join;
        added
    }
}

fn unfit(why: Unfit) -> Failure {
    let words = match why {
        Unfit::Bad => "a frame that cannot be read",
        Unfit::Type => "a stream whose parts do not make one answer",
        Unfit::Calls => "more parts than one answer may have",
    };
    Failure::with(Cause::Protocol, words)
}

#[cfg(test)]
mod tests;
