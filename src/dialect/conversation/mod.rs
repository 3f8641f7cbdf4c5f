//! A request as no provider writes it: read from any client's dialect, written in any target's.
//!
//! `decode` reads a client's body once; `encode` writes it anew for each target that is tried, so that a failover
//! never edits what the previous target was sent. Same-dialect traffic does not come here: it goes through
//! [`super::request`], byte for byte.

mod decode;
mod encode;
pub mod ids;
mod json;
mod media;
mod models;
mod prefix;
mod terms;
mod text;
mod turns;
mod words;

use serde_json::Number;

use super::Dialect;
use super::request::BadRequest;
use bytes::Bytes;
pub use json::Json;
pub use media::{image_type, in_base64};
pub use terms::{Blob, Cannot, Dropped, Encoded, Flavor, Reference, Terms};
pub use text::Text;

/// One request, provider-neutral.
#[derive(Clone, Debug, PartialEq)]
pub struct Conversation {
    /// The dialect it was asked in; ids of files are this provider's.
    pub client: Dialect,
    /// The model asked for; empty when none was named.
    pub model: String,
    /// What was said, in order, system prompts included. Empty for a request that only loads a model.
    pub turns: Vec<Turn>,
    /// Tools offered to the model.
    pub tools: Vec<Tool>,
    /// Whether and which tool must be called.
    pub choice: ToolChoice,
    /// Whether several tools may be called at once.
    pub parallel: Option<bool>,
    /// The form that the answer must have.
    pub format: Format,
    /// Whether and how much to think.
    pub thinking: Thinking,
    /// How tokens are drawn, as the client gave it; each knob at most once.
    pub sampling: Vec<(Knob, Number)>,
    /// OpenAI's `logit_bias`: token ids are a model's own.
    pub logit_bias: Option<Json>,
    /// Where generation ends.
    pub stop: Vec<String>,
    /// The answer's length at most, in tokens, thinking included.
    pub max_tokens: Option<u64>,
    /// Answers beside each other; at least 1.
    pub choices: u32,
    /// Log-probabilities are asked for, with so many alternatives.
    pub logprobs: Option<u64>,
    /// The client's name for its own user.
    pub user: Option<String>,
    /// The client's own labels.
    pub metadata: Option<Json>,
    /// Whether a stream is asked for.
    pub stream: bool,
    /// Whether the client asked for a usage chunk in the stream.
    pub wants_usage: bool,
    /// Ollama: how long the model stays loaded.
    pub keep_alive: Option<Json>,
    /// Ollama's `options` that have no neutral form.
    pub options: Vec<(String, Json)>,
    /// Members of the body that have no neutral form: vLLM's and llama.cpp's own, and unknown ones.
    pub extras: Vec<(String, Json)>,
    /// What only the server can serve that the client's dialect is native to; the first one found.
    pub bound: Option<&'static str>,
}

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Instructions: `system`, `developer`, a field of their own.
    System,
    /// The user.
    User,
    /// The model.
    Assistant,
    /// Results of the calls in the assistant's turn before; holds [`Part::Result`] alone.
    Tool,
}

/// What one of them said.
#[derive(Clone, Debug, PartialEq)]
pub struct Turn {
    /// Who.
    pub role: Role,
    /// What.
    pub parts: Vec<Part>,
}

/// A piece of a turn.
#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    /// Words.
    Text(String),
    /// A picture, a document, a sound.
    Media(Media),
    /// What the model thought.
    Thought(Thought),
    /// The model's refusal in words.
    Refusal(String),
    /// The model calls a tool.
    Call(Call),
    /// What came of a call.
    Result(Outcome),
}

/// A picture, a document, a sound.
#[derive(Clone, Debug, PartialEq)]
pub struct Media {
    /// What it is.
    pub kind: MediaKind,
    /// Where its bytes are.
    pub source: Source,
    /// A document's file name.
    pub name: Option<String>,
    /// OpenAI's `detail` of an image.
    pub detail: Option<String>,
    /// Its id in the provider's files, where that stands beside its bytes.
    pub id: Option<String>,
    /// Where it stands in the client's body.
    pub at: String,
}

/// What a medium is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MediaKind {
    /// A picture.
    Image,
    /// A PDF or another file.
    Document,
    /// A recording.
    Audio,
}

/// Where a medium's bytes are.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// In the body: standard base64 with padding, checked.
    Data {
        /// The MIME type.
        media_type: String,
        /// The bytes.
        base64: Text,
    },
    /// At an `http` or `https` URL.
    Url(String),
    /// In the files that the client's provider keeps.
    File(String),
}

/// What the model thought.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Thought {
    /// In words; empty where only a signature is left.
    pub text: String,
    /// The provider's proof that it is unchanged (Anthropic).
    pub signature: Option<String>,
    /// Thinking that only the provider can read (Anthropic's `redacted_thinking`).
    pub redacted: Option<String>,
}

/// A call of a tool.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// Unique among the conversation's calls; made up by position where the client gives none.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// JSON text.
    pub arguments: String,
    /// Whether `arguments` is an object; small models write other things.
    pub object: bool,
    /// Gemini's signature of the thinking that led here.
    pub signature: Option<String>,
}

/// What came of a call.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The call's id.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// Texts and media.
    pub parts: Vec<Part>,
    /// It failed.
    pub error: bool,
}

/// A tool offered to the model.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// What it does.
    pub description: Option<String>,
    /// A JSON schema of its arguments' object.
    pub parameters: Option<Json>,
    /// Arguments must keep to the schema.
    pub strict: Option<bool>,
    /// A tool that the client's provider runs or defines itself: its type.
    pub hosted: Option<String>,
}

/// Whether and which tool must be called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ToolChoice {
    /// Nothing was said: as the model likes.
    #[default]
    Unsaid,
    /// As the model likes.
    Auto,
    /// None.
    None,
    /// Some tool.
    Required,
    /// This one.
    Named(String),
}

/// The form that the answer must have.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Format {
    /// Any.
    #[default]
    Text,
    /// A JSON object.
    Json,
    /// JSON of this schema.
    Schema {
        /// Its name.
        name: Option<String>,
        /// What it is for.
        description: Option<String>,
        /// The JSON schema.
        schema: Json,
        /// It must be kept to exactly.
        strict: Option<bool>,
    },
}

/// Whether and how much to think. Nothing said: as the model does by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Thinking {
    /// On or off.
    pub on: Option<bool>,
    /// How hard.
    pub effort: Option<Effort>,
    /// With so many tokens at most.
    pub budget: Option<u64>,
}

/// How hard to think.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effort {
    /// As little as can be.
    Minimal,
    /// Little.
    Low,
    /// Some.
    Medium,
    /// Much.
    High,
    /// More.
    Higher,
    /// As much as can be.
    Max,
}

/// How tokens are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Knob {
    /// `temperature`.
    Temperature,
    /// `top_p`.
    TopP,
    /// `top_k`.
    TopK,
    /// `min_p`.
    MinP,
    /// `frequency_penalty`.
    FrequencyPenalty,
    /// `presence_penalty`.
    PresencePenalty,
    /// `repeat_penalty`, vLLM's `repetition_penalty`.
    RepeatPenalty,
    /// `seed`.
    Seed,
}

/// Reads a client's body.
///
/// # Errors
/// Not JSON, too deep, too many values, a key twice, a field of the wrong type, an unknown role, broken base64, a
/// tool's result without its call: a [`BadRequest`] that names the place.
pub fn decode(client: Dialect, body: &[u8]) -> Result<Conversation, BadRequest> {
    decode::decode(client, json::parse(body)?)
}

/// The same, which shares the body's memory where that holds a picture.
///
/// # Errors
/// As [`decode()`].
pub fn decode_shared(client: Dialect, body: &Bytes) -> Result<Conversation, BadRequest> {
    decode::decode(client, json::parse_shared(body)?)
}

/// Where a body names this, as [`Conversation::references`] tells it.
#[must_use]
pub fn place_of(client: Dialect, body: &Bytes, reference: Reference<'_>) -> Option<String> {
    let talk = decode_shared(client, body).ok()?;
    talk.references().find(|(_, named)| *named == reference).map(|(at, _)| at.to_owned())
}

/// Writes a conversation for a target.
///
/// # Errors
/// [`Cannot`], where the target cannot be asked this.
pub fn encode(conversation: &Conversation, terms: &Terms<'_>) -> Result<Encoded, Cannot> {
    encode::encode(conversation, terms)
}

impl Conversation {
    /// What the body only names, with its place in the body: the shell may get the bytes before it encodes.
    pub fn references(&self) -> impl Iterator<Item = (&str, Reference<'_>)> {
        self.media().filter_map(|medium| {
            let reference = match &medium.source {
                Source::Url(url) => Reference::Url(url),
                Source::File(id) => Reference::File(self.client, id),
                Source::Data { .. } => return None,
            };
            Some((medium.at.as_str(), reference))
        })
    }

    /// Files whose bytes stand beside their ids, with their types.
    pub fn named_bytes(&self) -> impl Iterator<Item = (Reference<'_>, &str, Vec<u8>)> {
        self.media().filter_map(|medium| match (&medium.id, &medium.source) {
            (Some(id), Source::Data { media_type, base64 }) => {
                Some((Reference::File(self.client, id), media_type.as_str(), media::bytes(base64)))
            }
            _ => None,
        })
    }

    fn media(&self) -> impl Iterator<Item = &Media> {
        fn within(part: &Part) -> &[Part] {
            match part {
                Part::Result(outcome) => &outcome.parts,
                other => std::slice::from_ref(other),
            }
        }
        let parts = self.turns.iter().flat_map(|turn| &turn.parts).flat_map(within);
        parts.filter_map(|part| match part {
            Part::Media(medium) => Some(medium),
            _ => None,
        })
    }

    /// A knob's setting.
    #[must_use]
    pub fn knob(&self, knob: Knob) -> Option<&Number> {
        self.sampling.iter().find(|(set, _)| *set == knob).map(|(_, number)| number)
    }
}

#[cfg(test)]
mod tests;
