//! From the neutral form to a target's body.

mod anthropic;
mod anthropic_settings;
mod gemini;
mod ollama;
mod openai;
mod schema;
mod write;

use std::borrow::Cow;

use super::json::Json;
use super::words::short;
use super::{
    Cannot, Conversation, Dropped, Effort, Encoded, Flavor, Knob, Media, Outcome, Part, Reference, Role,
    Source, Terms, Thinking, Tool, ToolChoice, ids, media,
};
use crate::dialect::Dialect;
use crate::limits;
use write::Out;

/// One conversation on its way to one target.
struct Encoding<'a> {
    talk: &'a Conversation,
    terms: &'a Terms<'a>,
    out: Out,
    dropped: Vec<Dropped>,
    /// The client's choice of a tool, as far as it can be chosen.
    choice: &'a ToolChoice,
}

/// A medium as it is sent.
enum Sent<'a> {
    Data(Cow<'a, str>, Cow<'a, str>),
    Url(&'a str),
    File(&'a str),
}

/// Why a hosted tool is not sent.
const HOSTED: &str = "is a tool of the client's own provider";
/// Why a member is not sent.
const UNKNOWN: &str = "is not known to this target";
/// Why a knob is not sent.
const NO_KNOB: &str = "cannot be set at this target";
/// Said in a place where a provider wants the user to have spoken, or wants words.
const FILLER: &str = ".";

pub(super) fn encode(talk: &Conversation, terms: &Terms<'_>) -> Result<Encoded, Cannot> {
    if let Some(what) = talk.bound {
        return Err(Cannot::Bound(what));
    }
    if talk.turns.is_empty() && terms.to != Dialect::OllamaChat {
        return Err(Cannot::NoMessage);
    }
    if talk.choices > 1 && matches!(terms.to, Dialect::OllamaChat | Dialect::Anthropic) {
        return Err(Cannot::Choices(talk.choices));
    }
    let mut encoding =
        Encoding { talk, terms, out: Out::default(), dropped: Vec::new(), choice: &talk.choice };
    let path = match terms.to {
        Dialect::OpenaiChat => encoding.openai()?,
        Dialect::OllamaChat => encoding.ollama()?,
        Dialect::Anthropic => encoding.anthropic()?,
        Dialect::Gemini => encoding.gemini()?,
        Dialect::OpenaiCompletions
        | Dialect::OpenaiResponses
        | Dialect::OpenaiEmbeddings
        | Dialect::OllamaGenerate
        | Dialect::OllamaEmbed => return Err(Cannot::Dialect),
    };
    Ok(Encoded { path, body: encoding.out.body, dropped: encoding.dropped })
}

impl<'a> Encoding<'a> {
    /// The target is not sent this, which would change the answer.
    fn lack(&mut self, field: impl Into<Cow<'static, str>>, why: &'static str) -> Result<(), Cannot> {
        let dropped = Dropped { field: field.into(), why };
        if self.terms.strict {
            return Err(Cannot::Parameter(dropped));
        }
        self.list(dropped);
        Ok(())
    }

    /// The target is not sent this, on which no answer depends.
    fn note(&mut self, field: impl Into<Cow<'static, str>>, why: &'static str) {
        self.list(Dropped { field: field.into(), why });
    }

    fn list(&mut self, dropped: Dropped) {
        if self.dropped.len() < limits::DROPPED_MAX && !self.dropped.contains(&dropped) {
            self.dropped.push(dropped);
        }
    }

    /// A call's id as this target takes it.
    fn id(&self, id: &str) -> String {
        ids::to_target(self.terms.to, self.terms.flavor, id)
    }

    /// The tools that can be offered.
    fn tools(&mut self) -> Result<Vec<&'a Tool>, Cannot> {
        let mut tools = Vec::new();
        for tool in &self.talk.tools {
            if tool.hosted.is_some() {
                self.lack(short(&tool.name), HOSTED)?;
            } else if self.takes_name(&tool.name) {
                tools.push(tool);
            } else {
                return Err(Cannot::ToolName(tool.name.clone()));
            }
        }
        let chosen = match self.choice {
            ToolChoice::Named(name) => tools.iter().any(|tool| tool.name == *name),
            ToolChoice::Required => !tools.is_empty(),
            ToolChoice::Unsaid | ToolChoice::Auto | ToolChoice::None => true,
        };
        if !chosen {
            self.lack("tool_choice", "demands a tool that is not offered")?;
            self.choice = &ToolChoice::Auto;
        }
        Ok(tools)
    }

    /// OpenAI: `^[a-zA-Z0-9_-]{1,64}$`, Anthropic the same up to 128, Gemini with `.` and `:` and no digit first.
    fn takes_name(&self, name: &str) -> bool {
        let (most, more): (usize, &[u8]) = match self.terms.to {
            Dialect::Anthropic => (128, b"_-"),
            Dialect::Gemini => (64, b"_-.:"),
            _ if self.terms.flavor == Flavor::Openai && self.terms.to == Dialect::OpenaiChat => (64, b"_-"),
            _ => return !name.is_empty(),
        };
        let first = name.bytes().next().is_some_and(|it| it.is_ascii_alphabetic() || it == b'_');
        name.bytes().all(|byte| byte.is_ascii_alphanumeric() || more.contains(&byte))
            && (1..=most).contains(&name.len())
            && (first || self.terms.to != Dialect::Gemini)
    }

    /// The knobs that the target has, under its names.
    fn knobs(&mut self, name: fn(Flavor, Knob) -> Option<&'static str>) -> Result<(), Cannot> {
        for (knob, number) in &self.talk.sampling {
            match name(self.terms.flavor, *knob) {
                Some(name) => self.out.member(name).number(number),
                None => self.lack(knob.name(), NO_KNOB)?,
            }
        }
        Ok(())
    }

    /// What has a place in few dialects, where this target is none of them.
    fn leftovers(&mut self, extras: bool, options: bool) -> Result<(), Cannot> {
        let talk = self.talk;
        if talk.keep_alive.is_some() && self.terms.to != Dialect::OllamaChat {
            self.note("keep_alive", "tells how an Ollama model is loaded");
        }
        if !options {
            for (key, _) in &talk.options {
                let field = format!("options.{}", short(key));
                if ollama::LOADING.contains(&key.as_str()) {
                    self.note(field, "tells how an Ollama model is loaded");
                } else {
                    self.lack(field, UNKNOWN)?;
                }
            }
        }
        if !extras {
            for (key, _) in &talk.extras {
                self.lack(short(key), UNKNOWN)?;
            }
        }
        if talk.metadata.is_some() {
            self.note("metadata", "is a label at the client's own provider");
        }
        Ok(())
    }

    /// A medium's bytes, or what the target gets them by.
    fn sent(&self, medium: &'a Media, urls: bool, files: bool) -> Result<Sent<'a>, Cannot> {
        let (reference, cannot) = match &medium.source {
            Source::Data { media_type, base64 } => {
                return Ok(Sent::Data(Cow::Borrowed(media_type), Cow::Borrowed(&**base64)));
            }
            Source::Url(url) if urls && self.terms.urls => return Ok(Sent::Url(url)),
            Source::File(id) if files && self.terms.files => return Ok(Sent::File(id)),
            Source::Url(url) => (Reference::Url(url), Cannot::Url { at: medium.at.clone() }),
            Source::File(id) => {
                (Reference::File(self.talk.client, id), Cannot::File { at: medium.at.clone() })
            }
        };
        let blob = (self.terms.resolve)(reference).ok_or(cannot)?;
        let (media_type, base64) = media::in_base64(&blob);
        Ok(Sent::Data(Cow::Owned(media_type), Cow::Owned(base64)))
    }
}

impl Conversation {
    /// Whether it is the model's turn; else the last words are its own, to be gone on with.
    fn asks(&self) -> bool {
        let last = self.turns.iter().rfind(|turn| turn.role != Role::System);
        last.is_none_or(|turn| turn.role != Role::Assistant)
    }
}

/// This target does not take such a medium.
fn refuse(medium: &Media, what: &'static str) -> Cannot {
    Cannot::Media { at: medium.at.clone(), what }
}

/// All words of some parts, one line end between them; refusals count, thoughts do not.
fn words(parts: &[Part]) -> Cow<'_, str> {
    let mut texts = parts.iter().filter_map(|part| match part {
        Part::Text(text) | Part::Refusal(text) => Some(text.as_str()),
        _ => None,
    });
    let Some(first) = texts.next() else { return Cow::Borrowed("") };
    let rest: Vec<&str> = texts.collect();
    if rest.is_empty() {
        return Cow::Borrowed(first);
    }
    let mut all = String::from(first);
    for text in rest {
        all.push('\n');
        all.push_str(text);
    }
    Cow::Owned(all)
}

/// A result's words; where a protocol cannot say that it is an error, the words do.
fn outcome_words(outcome: &Outcome) -> Cow<'_, str> {
    let words = words(&outcome.parts);
    let told = words.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("error"));
    if outcome.error && !told { Cow::Owned(format!("Error: {words}")) } else { words }
}

/// What results have beside their words, each with its tool.
fn attachments(parts: &[Part]) -> impl Iterator<Item = (&str, &Media)> {
    let outcomes = parts.iter().filter_map(|part| match part {
        Part::Result(outcome) => Some(outcome),
        _ => None,
    });
    outcomes.flat_map(|outcome| {
        outcome.parts.iter().filter_map(|part| match part {
            Part::Media(medium) => Some((outcome.name.as_str(), medium)),
            _ => None,
        })
    })
}

impl Knob {
    /// OpenAI's, vLLM's and llama.cpp's name for it.
    fn name(self) -> &'static str {
        match self {
            Knob::Temperature => "temperature",
            Knob::TopP => "top_p",
            Knob::TopK => "top_k",
            Knob::MinP => "min_p",
            Knob::FrequencyPenalty => "frequency_penalty",
            Knob::PresencePenalty => "presence_penalty",
            Knob::RepeatPenalty => "repeat_penalty",
            Knob::Seed => "seed",
        }
    }
}

impl Thinking {
    /// How hard, where it is to think at all; a budget's size tells as much.
    fn hard(self) -> Option<Effort> {
        let by_budget = |budget| match budget {
            0..=1024 => Effort::Low,
            1025..=8192 => Effort::Medium,
            _ => Effort::High,
        };
        self.effort.or(self.budget.map(by_budget)).filter(|_| self.on != Some(false))
    }

    /// With how many tokens, where it is to think: Google's figures for the words (its page on OpenAI's libraries).
    fn tokens(self) -> u64 {
        self.budget.unwrap_or(match self.effort {
            Some(Effort::Minimal | Effort::Low) => 1024,
            None | Some(Effort::Medium) => 8192,
            Some(Effort::High | Effort::Higher | Effort::Max) => 24_576,
        })
    }
}
