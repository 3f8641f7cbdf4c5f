//! To whom a conversation is written, and what comes of it.

use std::borrow::Cow;

use bytes::Bytes;

use crate::dialect::Dialect;

/// To whom a conversation is written, and how.
#[derive(Clone, Copy)]
pub struct Terms<'a> {
    /// The target's protocol: `OpenaiChat`, `OllamaChat`, `Anthropic` or `Gemini`.
    pub to: Dialect,
    /// The target's name for the model.
    pub model: &'a str,
    /// Which server speaks OpenAI's protocol.
    pub flavor: Flavor,
    /// Ask for a usage chunk, whatever the client asked for.
    pub ask_usage: bool,
    /// What the target cannot do is refused rather than left out.
    pub strict: bool,
    /// A URL may be given to the target, which fetches it itself.
    pub urls: bool,
    /// Ids of files are this target's own: it is the provider that the client knows.
    pub files: bool,
    /// Ollama: the client may say how its model is loaded (`keep_alive`, `num_ctx`, `num_gpu`, …).
    pub loading: bool,
    /// The bytes behind a reference, where the box holds them.
    pub resolve: &'a dyn Fn(Reference<'_>) -> Option<Blob>,
}

/// Which server speaks OpenAI's protocol: what it takes beyond it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flavor {
    /// OpenAI itself: refuses what it does not know.
    Openai,
    /// vLLM.
    Vllm,
    /// llama.cpp.
    Llamacpp,
    /// Another one, of which nothing is known.
    #[default]
    Other,
}

/// Bytes that the body only names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reference<'a> {
    /// At a URL.
    Url(&'a str),
    /// In the files of the provider that is native to this dialect.
    File(Dialect, &'a str),
}

/// Bytes that were named.
#[derive(Clone, Debug)]
pub struct Blob {
    /// The MIME type.
    pub media_type: String,
    /// The bytes.
    pub bytes: Bytes,
}

/// A request as one target takes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// The path, and for Gemini a query, below the target's base.
    pub path: String,
    /// The body: JSON.
    pub body: Vec<u8>,
    /// What the target cannot do and was left out, for the log.
    pub dropped: Vec<Dropped>,
}

/// A parameter that a target is not sent as the client gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// Its name.
    pub field: Cow<'static, str>,
    /// Why, as the end of a sentence that begins with the field.
    pub why: &'static str,
}

/// Why a conversation cannot be put to a target, which is then no candidate. [`Cannot::words`] tells the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cannot {
    /// Strict: it would have to be left out.
    Parameter(Dropped),
    /// A medium that is given by a provider's file id, of which the box has no bytes.
    File {
        /// Where it stands.
        at: String,
    },
    /// A medium at a URL that the target does not fetch, and of which the box has no bytes.
    Url {
        /// Where it stands.
        at: String,
    },
    /// A medium of a kind or type that the target does not take.
    Media {
        /// Where it stands.
        at: String,
        /// What it is, with its article.
        what: &'static str,
    },
    /// A tool whose name the target does not take.
    ToolName(String),
    /// Several answers beside each other.
    Choices(u32),
    /// What only the server can serve that the client's dialect is native to.
    Bound(&'static str),
    /// No message at all: a request that only loads a model.
    NoMessage,
    /// It ends with the assistant's own words, which this model does not continue.
    Prefill,
    /// Nobody writes requests in this dialect.
    Dialect,
}
