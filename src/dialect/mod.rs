//! What the bytes mean, per protocol: requests, stream frames, whole answers, error texts.

mod anthropic;
pub mod classify;
pub mod collect;
pub mod conversation;
pub mod event;
mod gemini;
mod inline;
mod inspect;
mod known;
mod members;
mod needs;
mod ollama;
mod openai;
pub mod reply;
pub mod request;
mod responses;
pub mod thoughts;
pub mod translate;
mod trouble;

pub use classify::{classify, classify_status, error_text, fitting, is_moderation, refuses_streams};
pub use inspect::{
    inspect_answer, inspect_answer_prefix, inspect_cut, inspect_event, is_native_error, member_range,
};

use crate::wire::Framing;

/// What a stream says by a last frame without a model's name.
pub const NAMELESS_END: &str =
    "the stream ended after a frame without a model name, as Ollama ends one whose runner died";

/// A protocol's way to ask for and to send an answer. One per endpoint that streams or answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// OpenAI `/v1/chat/completions`.
    OpenaiChat,
    /// OpenAI `/v1/completions`.
    OpenaiCompletions,
    /// OpenAI `/v1/responses`.
    OpenaiResponses,
    /// OpenAI `/v1/embeddings`.
    OpenaiEmbeddings,
    /// Ollama `/api/chat`.
    OllamaChat,
    /// Ollama `/api/generate`.
    OllamaGenerate,
    /// Ollama `/api/embed` and `/api/embeddings`.
    OllamaEmbed,
    /// Anthropic `/v1/messages`.
    Anthropic,
    /// Gemini `:streamGenerateContent`.
    Gemini,
}

impl Dialect {
    /// How this dialect frames a stream.
    #[must_use]
    pub const fn framing(self) -> Framing {
        match self {
            Dialect::OllamaChat | Dialect::OllamaGenerate | Dialect::OllamaEmbed => Framing::Ndjson,
            Dialect::OpenaiChat
            | Dialect::OpenaiCompletions
            | Dialect::OpenaiResponses
            | Dialect::OpenaiEmbeddings
            | Dialect::Anthropic
            | Dialect::Gemini => Framing::Sse,
        }
    }

    /// Whether a request in this dialect can ask for a stream.
    #[must_use]
    pub const fn streams(self) -> bool {
        !matches!(self, Dialect::OpenaiEmbeddings | Dialect::OllamaEmbed)
    }

    /// Whether it asks a model to go on with a conversation or a text, which every kind of target can be asked for.
    #[must_use]
    pub const fn converses(self) -> bool {
        !matches!(self, Dialect::OpenaiEmbeddings | Dialect::OllamaEmbed | Dialect::Gemini)
    }

    /// Its name in logs and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Dialect::OpenaiChat => "openai_chat",
            Dialect::OpenaiCompletions => "openai_completions",
            Dialect::OpenaiResponses => "openai_responses",
            Dialect::OpenaiEmbeddings => "openai_embeddings",
            Dialect::OllamaChat => "ollama_chat",
            Dialect::OllamaGenerate => "ollama_generate",
            Dialect::OllamaEmbed => "ollama_embed",
            Dialect::Anthropic => "anthropic",
            Dialect::Gemini => "gemini",
        }
    }
}

#[cfg(test)]
mod tests;
