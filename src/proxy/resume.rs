//! Whether, and how, a stream that broke after its first token goes on at another target.
//!
//! Pure: what was asked and said in, a decision out. [`super::drive`] performs it.

use crate::cause::{Cause, Fault};
use crate::config::{Kind, OnBreak};
use crate::dialect::Dialect;
use crate::dialect::conversation::Conversation;
use crate::dialect::translate::Heard;
use crate::limits::RESUMES_MAX;
use crate::observe::resume_events::Resumed;
use crate::route::{self, Candidate};
use crate::wire::json::BYTES_PER_TOKEN;

/// A committed stream that broke.
#[derive(Debug)]
pub struct Broken<'a> {
    /// What is to be done then.
    pub policy: OnBreak,
    /// Why it broke.
    pub cause: Cause,
    /// What it had said.
    pub heard: &'a Heard,
    /// What was asked; `None` where that has no neutral form.
    pub asked: Option<&'a Conversation>,
    /// How long that is, in estimated tokens.
    pub prompt_tokens: u64,
    /// `resume.continue_max_tokens`.
    pub most_tokens: u64,
    /// The client's bytes stop within an event, or after an end of which the rest is missing.
    pub beyond_repair: bool,
    /// How often this stream has gone on before.
    pub before: usize,
}

impl Broken<'_> {
    /// How it goes on.
    ///
    /// # Errors
    /// It does not: why, as the end of a sentence that begins with the stream.
    pub fn how(&self) -> Result<Resumed, &'static str> {
        if self.cause.fault() != Fault::Upstream {
            return Err("did not break by its target's fault");
        }
        if self.beyond_repair || self.heard.finished() {
            return Err("broke where nothing can follow");
        }
        if self.before >= RESUMES_MAX {
            return Err("has gone on elsewhere before");
        }
        match self.cannot_continue() {
            None => Ok(Resumed::Continue),
            Some(_) if self.policy.restarts() => Ok(Resumed::Restart),
            Some(why) => Err(why),
        }
    }

    fn cannot_continue(&self) -> Option<&'static str> {
        if !self.policy.continues() {
            return Some("may not be continued");
        }
        match self.cause {
            Cause::Repetition => return Some("went round in circles"),
            Cause::ContextOverflow => return Some("is too long for its target"),
            _ => {}
        }
        let Some(asked) = self.asked else { return Some("was asked for in a form of one provider alone") };
        let tokens = self.prompt_tokens.saturating_add(said_tokens(self.heard));
        if tokens > self.most_tokens {
            return Some("would cost more than resume.continue_max_tokens");
        }
        asked.cannot_go_on().or_else(|| self.heard.cannot_go_on())
    }
}

/// What was said, in estimated tokens.
#[must_use]
pub fn said_tokens(heard: &Heard) -> u64 {
    heard.text().len() as u64 / BYTES_PER_TOKEN
}

/// Those who may go on: of `all`, whoever has not failed this request, in their own dialect where they are given the
/// answer's beginning.
#[must_use]
pub fn left(
    all: &[Candidate],
    failed: &[usize],
    how: Resumed,
    kind: impl Fn(usize) -> Option<Kind>,
) -> Vec<Candidate> {
    let fresh = all.iter().filter(|candidate| !failed.contains(&candidate.target));
    let own = |candidate: &Candidate| {
        let mut candidate = candidate.clone();
        candidate.hedge = false;
        if how == Resumed::Continue {
            // As for a client whose dialect no server of this kind speaks.
            let foreign = match kind(candidate.target)? {
                Kind::Vllm | Kind::Llamacpp | Kind::Openai => Dialect::OllamaChat,
                Kind::Ollama | Kind::Anthropic | Kind::Gemini => Dialect::OpenaiChat,
            };
            candidate.wire = match kind(candidate.target)? {
                Kind::Ollama => Dialect::OllamaChat,
                other => route::wire(other, foreign)?,
            };
        }
        Some(candidate)
    };
    fresh.filter_map(own).collect()
}

/// Whether a target of this kind takes the answer's beginning as its own words. Of Anthropic's models only older ones do.
#[must_use]
pub const fn takes_prefix(kind: Kind) -> bool {
    match kind {
        Kind::Ollama | Kind::Vllm | Kind::Llamacpp | Kind::Anthropic => true,
        Kind::Openai | Kind::Gemini => false,
    }
}

/// Whether a target that failed so may have failed by the answer's beginning alone, and can still give a whole answer.
#[must_use]
pub const fn by_the_prefix(cause: Cause) -> bool {
    matches!(
        cause,
        Cause::ClientFault
            | Cause::Untranslatable
            | Cause::Unsupported
            | Cause::ContextOverflow
            | Cause::Empty
            | Cause::HttpStatus
    )
}

#[cfg(test)]
#[path = "resume_tests.rs"]
mod tests;
