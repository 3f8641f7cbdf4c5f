//! What one frame of a stream, or one whole answer, says: the neutral facts that the gate and
//! the relay decide on.

use std::ops::Range;

use crate::cause::{Cause, Failure};
use crate::wire::json;

/// Why a model says that it stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// The model's own end, a stop sequence, or a tool call: a whole answer.
    Stop,
    /// A token limit.
    Length,
    /// A content filter or a refusal: an answer in itself, never a reason to try another provider.
    Filtered,
    /// Ollama's `load` / `unload`: nothing was to be generated.
    Loaded,
    /// The engine gave up: `error`, `abort`, `insufficient_system_resource`.
    Failed,
}

/// Token counts, as far as the server reported them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt: Option<u64>,
    /// Tokens generated, thinking included.
    pub completion: Option<u64>,
}

/// Prompt progress that an engine really reports (llama.cpp's `prompt_progress`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Prompt tokens done.
    pub processed: u64,
    /// Prompt tokens in all.
    pub total: u64,
}

/// What one frame says. A frame may say several things at once (Ollama's last token with `done`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Nothing but comments or blank lines: a sign of life that says nothing.
    pub blank: bool,
    /// It has comment lines beside its fields.
    pub comments: bool,
    /// It carries content or a tool call.
    pub content: bool,
    /// It carries thinking.
    pub thinking: bool,
    /// It carries thinking, but neither `id` nor `model`: a model swapper's banner, unless
    /// `drop_anonymous_reasoning` is off. `thinking` is then false.
    pub anonymous_thinking: bool,
    /// A finish reason.
    pub finish: Option<Finish>,
    /// OpenAI's choices in this frame, one bit for each index; the last bit is shared by all from 63 on.
    pub choices: u64,
    /// Those of them that have a finish reason.
    pub ended: u64,
    /// Where the finish reason's word is (quotes included), as OpenAI's protocol has it. `None` for joined data.
    pub reason: Option<Range<usize>>,
    /// Usage; kept even when the frame carries nothing else.
    pub usage: Option<Usage>,
    /// The frame is *only* usage (OpenAI: `"choices":[]` with `usage`): hidden from a client that did not ask.
    pub usage_only: bool,
    /// Of such a frame, where the values of `choices` and of `usage` are: what it says beside them may be the client's.
    /// `None` for joined data.
    pub usage_only_at: Option<[Range<usize>; 2]>,
    /// What the frame says beside its answer (OpenAI: `system_fingerprint`, `service_tier`, and what else is no `null`),
    /// as one number to compare; 0: nothing.
    pub besides: u64,
    /// The protocol's end marker: `[DONE]`, `message_stop`, `response.completed`, `done:true`.
    pub done: bool,
    /// An error in any shape. The text is for a person; the cause is decided. Always there with
    /// [`Finish::Failed`].
    pub error: Option<ErrorFact>,
    /// Where the one string is, without its quotes, that makes it a token frame; `None` when several do, or
    /// something else.
    pub text: Option<Range<usize>>,
    /// Prompt progress. Frames with it carry nothing for the client.
    pub progress: Option<Progress>,
    /// Where, in the bytes that were looked at, the value of the model's name is (quotes included).
    /// `None` when data that stood on several lines had to be joined.
    pub model: Option<Range<usize>>,
    /// Where an explicit `"usage":null` member's value is, so that it can be cut out.
    /// `None` for joined data, too.
    pub usage_null: Option<Range<usize>>,
    /// Not this protocol at all: not JSON, HTML, a stray line.
    pub alien: bool,
    /// The model's name is empty and the fingerprint `fp_ollama`: with the end of the stream,
    /// Ollama's swallowed error. An empty name alone is Azure's filter report, and harmless.
    pub nameless: bool,
}

/// An error found inside a 2xx, or in an error body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorFact {
    /// By the needle table.
    pub cause: Cause,
    /// Where its text is in the bytes that were looked at (raw JSON string content, escapes kept;
    /// or the whole frame).
    pub text: Range<usize>,
}

impl ErrorFact {
    /// The failure that it is, with its words; `raw`: the bytes that were looked at.
    #[must_use]
    pub fn failure(&self, raw: &[u8]) -> Failure {
        Failure::with(self.cause, &json::readable(raw.get(self.text.clone()).unwrap_or_default()))
    }
}

/// Which choices of a stream were seen, and which of them are finished. A frame of a protocol without choices is about
/// its only one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ends {
    /// Bits as in [`Facts::choices`].
    seen: u64,
    /// Those whose last word was a finish reason.
    ended: u64,
}

impl Ends {
    /// Takes what a frame says. `spoke`: it has content or thinking.
    pub fn note(&mut self, facts: &Facts, spoke: bool) {
        let about = facts.choices.max(1);
        self.seen |= facts.choices;
        if spoke {
            self.ended &= !about;
        }
        if facts.finish.is_some() {
            self.ended |= if facts.choices == 0 { about } else { facts.ended };
        }
    }

    /// Whether each choice is finished, of `expected` at least.
    #[must_use]
    pub const fn all(&self, expected: u32) -> bool {
        let seen = self.seen.count_ones();
        self.ended.count_ones() >= if expected > seen { expected } else { seen }
    }

    /// Whether none is.
    #[must_use]
    pub const fn none(&self) -> bool {
        self.ended == 0
    }
}
