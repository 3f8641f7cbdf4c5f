//! Answers from any server's protocol in any client's: a decoder for each server, an encoder for each client, and
//! the neutral pieces between them.
//!
//! ```text
//! raw event ── Decoder::event ──▶ Piece, Piece, … ── Encoder::piece ──▶ whole frames for the client
//! ```
//!
//! Pieces come in an order that suits the strictest protocol, Anthropic's, so that no encoder needs to sort them:
//! a call's arguments come between its [`Piece::ToolStart`] and its [`Piece::ToolEnd`], with nothing else of the same
//! choice in between; [`Piece::Finish`], one for each choice, comes at the end, and right after it [`Piece::Done`].
//! [`Piece::Error`] is the last piece of its stream.
//!
//! [`Translation`] is all of it: a server's bytes in, a client's bytes out. [`Answer`] is an answer that is whole.
//!
//! Nobody fakes an ending: a decoder says `Done` only for its protocol's own end marker or, where the stream ended
//! cleanly, for finish reasons that were all there; an encoder writes its end marker only for `Done`.

mod answer;
mod begun;
mod calls;
mod decoder;
mod encoder;
mod from_anthropic;
mod from_gemini;
mod from_ollama;
mod from_openai;
mod heard;
mod models;
mod resume;
mod seam;
mod stream;
mod text;
mod to_anthropic;
mod to_ollama;
mod to_openai;
mod to_responses;
mod view;

pub use answer::{Answer, whole};
pub use begun::anthropic_begun;
pub use decoder::Decoder;
pub use encoder::{Encoder, Outcome, Terms, Took};
pub use heard::Heard;
pub use models::{anthropic_model, anthropic_models};
pub use seam::{Join, Seam, join};
pub use stream::{State, Translation};

use crate::cause::Failure;

/// A piece of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Once, before anything else.
    Start {
        /// As the server calls the answer; may be empty.
        id: String,
        /// As the server calls the model; may be empty.
        model: String,
    },
    /// What follows, up to the next one, is about this choice; about choice 0 at first. Below
    /// [`crate::limits::ANSWER_CHOICES`].
    Choice(u32),
    /// The answer's text; never empty.
    Text(String),
    /// Thinking; never empty.
    Thinking(String),
    /// Anthropic's signature of the thinking before it; without words before it, of thinking that is not shown.
    Signature(String),
    /// Anthropic's thinking that only itself can read.
    Redacted(String),
    /// The words of a refusal; never empty.
    Refusal(String),
    /// A call begins.
    ToolStart {
        /// Counted by the decoder, from 0 in each choice.
        index: u32,
        /// As the server calls it; empty where it does not.
        id: String,
        /// The function.
        name: String,
        /// Gemini's thought signature of this call; mostly empty.
        signature: String,
    },
    /// More of the current call's arguments: a part of a JSON text, cut anywhere between two characters.
    ToolArguments {
        /// As in its `ToolStart`.
        index: u32,
        /// Never empty.
        delta: String,
    },
    /// The current call is whole, or as whole as it will be.
    ToolEnd {
        /// As in its `ToolStart`.
        index: u32,
    },
    /// How likely the next text's tokens were: a JSON array of `{"token","logprob","bytes","top_logprobs"}`, as OpenAI
    /// has it under `logprobs.content`.
    Logprobs(String),
    /// Why the choice ended.
    Finish(Finish),
    /// Counts so far: a later one replaces what it gives.
    Usage(Usage),
    /// The server gave up, or what it sent is no answer. The last piece.
    Error(Failure),
    /// The answer is whole. The last piece.
    Done,
}

/// Why a choice ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finish {
    /// The model's own end, or a stop sequence that the server does not name.
    Stop,
    /// This stop sequence.
    Sequence(String),
    /// A token limit.
    Length,
    /// The model waits for the results of its calls.
    Calls,
    /// A content filter.
    Filtered,
    /// The model, or its provider, refused.
    Refused,
    /// Anthropic's `pause_turn`: the answer so far goes back, and the model goes on.
    Paused,
    /// Ollama loaded the model; nothing was asked.
    Loaded,
    /// Ollama unloaded it.
    Unloaded,
}

/// Tokens, as far as the server reported them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Of the prompt, those from a cache included.
    pub prompt: Option<u64>,
    /// Generated, thinking included.
    pub completion: Option<u64>,
    /// Of the prompt, read from a cache.
    pub cached: Option<u64>,
    /// Of the prompt, written to a cache (Anthropic).
    pub cache_written: Option<u64>,
    /// Of those generated, thinking.
    pub reasoning: Option<u64>,
}

impl Usage {
    /// `later` where it says something, else what was said before.
    #[must_use]
    pub fn then(self, later: Usage) -> Usage {
        Usage {
            prompt: later.prompt.or(self.prompt),
            completion: later.completion.or(self.completion),
            cached: later.cached.or(self.cached),
            cache_written: later.cache_written.or(self.cache_written),
            reasoning: later.reasoning.or(self.reasoning),
        }
    }

    /// Both together, as far as either is known.
    #[must_use]
    pub fn plus(self, other: Usage) -> Usage {
        let sum = |a: Option<u64>, b: Option<u64>| match (a, b) {
            (Some(a), Some(b)) => Some(a.saturating_add(b)),
            (one, other) => one.or(other),
        };
        Usage {
            prompt: sum(self.prompt, other.prompt),
            completion: sum(self.completion, other.completion),
            cached: sum(self.cached, other.cached),
            cache_written: sum(self.cache_written, other.cache_written),
            reasoning: sum(self.reasoning, other.reasoning),
        }
    }

    /// Of prompt and completion together.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.prompt.unwrap_or(0).saturating_add(self.completion.unwrap_or(0))
    }
}

#[cfg(test)]
mod tests;
