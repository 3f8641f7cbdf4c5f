//! From pieces to a client's frames: what all dialects have in common.

use std::time::Duration;

use super::text::{Fill, fill};
use super::{Finish, Piece, Usage, to_anthropic, to_ollama, to_openai, to_responses};
use crate::cause::Failure;
use crate::dialect::Dialect;
use crate::dialect::conversation::ids;
use crate::dialect::reply::Problem;

/// What an answer is called, and what of it the client wants.
#[derive(Clone, Debug, Default)]
pub struct Terms {
    /// Unlike any other answer's, of letters, digits and `-`; each dialect puts its own prefix before it. Calls that the
    /// server gave no id get one made from it.
    pub id: String,
    /// The model's name as the client is to see it; the server's own where it is empty.
    pub model: String,
    /// When the answer began, in seconds since 1970.
    pub created: u64,
    /// OpenAI: a last chunk with the usage was asked for.
    pub wants_usage: bool,
    /// The client asked for no thinking, and gets none.
    pub hides_thinking: bool,
    /// How long a whole answer took; of a stream [`Encoder::took`] tells it.
    pub took: Took,
}

/// How long an answer took; Ollama tells its clients.
#[derive(Clone, Copy, Debug, Default)]
pub struct Took {
    /// Up to the first token.
    pub first: Duration,
    /// In all.
    pub total: Duration,
}

/// How far an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// More may come.
    Open,
    /// The client has its dialect's end.
    Done,
    /// The client was told of an error: the connection is to end uncleanly.
    Failed,
}

/// Writes one client's stream.
#[derive(Debug)]
pub struct Encoder {
    pub(super) common: Common,
    pub(super) body: Body,
    pub(super) outcome: Outcome,
}

/// What each dialect's writer needs.
#[derive(Debug)]
pub(super) struct Common {
    pub(super) terms: Terms,
    pub(super) client: Dialect,
    /// Of all servers together.
    pub(super) usage: Usage,
    /// Of those before the present one.
    pub(super) before: Usage,
    /// Of the present one.
    pub(super) latest: Usage,
    /// The server's own id is the client's.
    pub(super) adopts: bool,
    /// That id.
    pub(super) adopted: String,
    pub(super) choice: u32,
    /// Of choice 0.
    pub(super) finish: Option<Finish>,
    /// Of the next text.
    pub(super) logprobs: Option<String>,
}

#[derive(Debug)]
pub(super) enum Body {
    Openai(to_openai::Stream),
    Responses(Box<to_responses::Stream>),
    Ollama(to_ollama::Stream),
    Anthropic(to_anthropic::Stream),
}

impl Encoder {
    /// An encoder for a client's dialect; `None` for those that no answer is streamed in.
    #[must_use]
    pub fn new(client: Dialect, terms: Terms) -> Option<Self> {
        let body = match client {
            Dialect::OpenaiChat | Dialect::OpenaiCompletions => Body::Openai(to_openai::Stream::default()),
            Dialect::OpenaiResponses => Body::Responses(Box::default()),
            Dialect::OllamaChat | Dialect::OllamaGenerate => Body::Ollama(to_ollama::Stream::default()),
            Dialect::Anthropic => Body::Anthropic(to_anthropic::Stream::default()),
            Dialect::OpenaiEmbeddings | Dialect::OllamaEmbed | Dialect::Gemini => return None,
        };
        Some(Encoder { common: Common::new(client, terms), body, outcome: Outcome::Open })
    }

    /// How long it took so far: what is said last counts.
    pub const fn took(&mut self, took: Took) {
        self.common.terms.took = took;
    }

    /// Appends the piece's frames, each one whole; nothing after the end or an error. What the dialect cannot say (a
    /// third choice in Ollama's) is left out.
    ///
    /// # Errors
    /// The piece's own, where it is one; or that to leave out what cannot be said would be a lie, or that too much must
    /// be kept. Nothing was appended then: the caller says it in its own words, with [`Encoder::fail`].
    pub fn piece(&mut self, piece: &Piece, out: &mut Vec<u8>) -> Result<(), Failure> {
        if self.outcome != Outcome::Open {
            return Ok(());
        }
        if let Piece::Error(failure) = piece {
            return Err(failure.clone());
        }
        if !self.common.note(piece) {
            return Ok(());
        }
        let Encoder { common, body, .. } = self;
        match body {
            Body::Openai(stream) => stream.piece(common, piece, out),
            Body::Responses(stream) => stream.piece(common, piece, out)?,
            Body::Ollama(stream) => stream.piece(common, piece, out)?,
            Body::Anthropic(stream) => stream.piece(common, piece, out),
        }
        if *piece == Piece::Done {
            self.outcome = Outcome::Done;
        }
        Ok(())
    }

    /// The answer broke: appends the dialect's own error, and no end.
    pub fn fail(&mut self, problem: &Problem, out: &mut Vec<u8>) -> Outcome {
        if self.outcome == Outcome::Open {
            self.outcome = Outcome::Failed;
            match &mut self.body {
                Body::Responses(stream) => stream.fail(&self.common, problem, out),
                Body::Openai(_) | Body::Ollama(_) | Body::Anthropic(_) => {
                    out.extend_from_slice(&problem.event(self.common.client));
                }
            }
        }
        self.outcome
    }

    /// How far the answer is.
    #[must_use]
    pub const fn outcome(&self) -> Outcome {
        self.outcome
    }
}

impl Common {
    pub(super) const fn new(client: Dialect, terms: Terms) -> Self {
        const NONE: Usage =
            Usage { prompt: None, completion: None, cached: None, cache_written: None, reasoning: None };
        Common {
            terms,
            client,
            usage: NONE,
            before: NONE,
            latest: NONE,
            adopts: false,
            adopted: String::new(),
            choice: 0,
            finish: None,
            logprobs: None,
        }
    }

    /// What every dialect keeps; whether the dialect's own writer is to see the piece.
    fn note(&mut self, piece: &Piece) -> bool {
        match piece {
            Piece::Start { id, .. } if std::mem::take(&mut self.adopts) => {
                self.adopted.clone_from(id);
                return self.note(piece);
            }
            Piece::Start { model, .. } if self.terms.model.is_empty() => self.terms.model.clone_from(model),
            Piece::Choice(choice) => self.choice = *choice,
            Piece::Usage(usage) => {
                self.latest = self.latest.then(*usage);
                self.usage = self.before.plus(self.latest);
            }
            Piece::Finish(finish) if self.choice == 0 => self.finish = Some(finish.clone()),
            Piece::Thinking(_) | Piece::Signature(_) | Piece::Redacted(_) if self.terms.hides_thinking => {
                return false;
            }
            _ => {}
        }
        let many = matches!(self.client, Dialect::OpenaiChat | Dialect::OpenaiCompletions);
        many || self.choice == 0 || *piece == Piece::Done
    }

    /// The id that a client sees of a call.
    pub(super) fn call_id(&self, index: u32, id: &str) -> String {
        if !id.is_empty() {
            return ids::to_client(id);
        }
        match self.choice {
            0 => ids::fresh(&self.terms.id, index),
            choice => ids::fresh(&format!("{} {choice}", self.terms.id), index),
        }
    }

    /// The answer's own id, with its dialect's prefix.
    pub(super) fn id(&self) -> String {
        if !self.adopted.is_empty() {
            return self.adopted.clone();
        }
        let prefix = match self.client {
            Dialect::OpenaiCompletions => "cmpl-",
            Dialect::OpenaiResponses => "resp_",
            Dialect::Anthropic => "msg_",
            _ => "chatcmpl-",
        };
        format!("{prefix}{}", self.terms.id)
    }

    /// What the dialect calls the reason.
    pub(super) fn reason(&self, finish: &Finish) -> &'static str {
        match self.client {
            Dialect::Anthropic => match finish {
                Finish::Stop | Finish::Loaded | Finish::Unloaded => "end_turn",
                Finish::Sequence(_) => "stop_sequence",
                Finish::Length => "max_tokens",
                Finish::Calls => "tool_use",
                Finish::Filtered | Finish::Refused => "refusal",
                Finish::Paused => "pause_turn",
            },
            Dialect::OllamaChat | Dialect::OllamaGenerate => match finish {
                Finish::Stop | Finish::Sequence(_) | Finish::Calls | Finish::Paused => "stop",
                Finish::Length => "length",
                Finish::Filtered => "content_filter",
                Finish::Refused => "refusal",
                Finish::Loaded => "load",
                Finish::Unloaded => "unload",
            },
            _ => match finish {
                Finish::Calls if self.client == Dialect::OpenaiChat => "tool_calls",
                Finish::Length => "length",
                Finish::Filtered | Finish::Refused => "content_filter",
                Finish::Stop
                | Finish::Sequence(_)
                | Finish::Calls
                | Finish::Paused
                | Finish::Loaded
                | Finish::Unloaded => "stop",
            },
        }
    }
}

/// Arguments that must be an object and whole, as JSON on one line.
pub(super) fn object(arguments: &str) -> Option<String> {
    let view = super::view::View::new(arguments.as_bytes()).filter(|view| view.is_object())?;
    Some(super::text::compact(view.raw()))
}

/// A call whose arguments a client cannot be given.
pub(super) fn unreadable(name: &str) -> Failure {
    Failure::with(
        crate::cause::Cause::Protocol,
        &format!("the arguments of the call of `{name}` are no JSON object"),
    )
}

/// OpenAI's counts.
pub(super) fn openai_usage(usage: &Usage) -> String {
    let mut out = Vec::new();
    fill(
        &mut out,
        "{\"prompt_tokens\":$,\"completion_tokens\":$,\"total_tokens\":$,\
         \"prompt_tokens_details\":{\"cached_tokens\":$},\"completion_tokens_details\":{\"reasoning_tokens\":$}}",
        &[
            Fill::Number(usage.prompt.unwrap_or(0)),
            Fill::Number(usage.completion.unwrap_or(0)),
            Fill::Number(usage.total()),
            Fill::Number(usage.cached.unwrap_or(0)),
            Fill::Number(usage.reasoning.unwrap_or(0)),
        ],
    );
    String::from_utf8(out).unwrap_or_default()
}
