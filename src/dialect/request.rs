//! A client's request body, read just far enough to route it and to know where it must be changed.
//!
//! The body is never parsed into a tree: its top level is scanned once, and what the targets need
//! changed is expressed as edits of byte ranges. Everything else survives byte for byte.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::ops::Range;

use bytes::Bytes;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::collect::collects;
use super::inline::sorted;
use super::members::{Key, Members};
pub use super::needs::{Conversation, Form, Named, Needs, Options};
use super::needs::{Scan, ollama_options};
use super::{Dialect, known};
use crate::limits::{self, COLLECTED_LOGPROBS_MAX};
use crate::wire::json;

/// What a request asks for, as far as routing and the gate need to know.
#[derive(Clone, Debug)]
pub struct Call {
    /// The client's protocol.
    pub dialect: Dialect,
    /// The model it asked for; empty when it named none.
    pub model: String,
    /// Whether it wants a stream. Ollama streams unless told not to.
    pub stream: bool,
    /// Whether it asked for a usage chunk itself.
    pub wants_usage: bool,
    /// Whether it asked for prompt progress itself.
    pub wants_progress: bool,
    /// Its token limit, whatever the field is called; the largest where it has several.
    pub max_tokens: Option<u64>,
    /// How many answers beside each other it asked for (OpenAI's `n`).
    pub choices: u32,
    /// Whether a stream says all that its whole answer would: it asks for one answer, and for nothing that edgeward does
    /// not know.
    pub collectable: bool,
    /// Ollama's `options`, as far as edgeward reads them.
    pub options: Options,
    /// The prompt's length, estimated from the body, in tokens.
    pub prompt_tokens: u64,
    /// What not every target can do.
    pub needs: Needs,
    /// What the body only names.
    pub named: Vec<Named>,
    /// It names more than that.
    pub names_more: bool,
    /// Which conversation it belongs to, where there is one.
    pub conversation: Option<Conversation>,
    spans: Spans,
}

/// Where in the body the fields are that a target may need changed.
#[derive(Clone, Debug, Default)]
struct Spans {
    /// After the opening brace.
    open: usize,
    /// Whether the object has any member.
    any: bool,
    model: Option<Range<usize>>,
    stream: Option<Range<usize>>,
    stream_options: Option<StreamOptions>,
    return_progress: Option<Range<usize>>,
    /// Each token limit.
    limits: Vec<(u64, Range<usize>)>,
}

/// `stream_options`, where a usage chunk is asked for.
#[derive(Clone, Debug)]
struct StreamOptions {
    value: Range<usize>,
    is_object: bool,
    any: bool,
    include_usage: Option<Range<usize>>,
}

/// A body that no target is given: the client's own mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRequest {
    /// What is wrong and where, for a person.
    pub message: String,
    /// The field at fault, if it is one.
    pub param: Option<&'static str>,
    /// Where in the body the fault is, as `messages[3].content[1].image_url.url`; empty where it is no one place.
    pub path: String,
    /// It met [`limits::JSON_DEPTH_MAX`].
    pub too_deep: bool,
}

impl BadRequest {
    fn new(message: impl Into<String>) -> Self {
        BadRequest { message: message.into(), param: None, path: String::new(), too_deep: false }
    }

    /// A fault at a place in the body, which the message begins with.
    pub(super) fn at(path: String, what: impl fmt::Display) -> Self {
        let message = if path.is_empty() { format!("the body {what}") } else { format!("`{path}`: {what}") };
        BadRequest { path, ..BadRequest::new(message) }
    }

    /// It met [`limits::JSON_DEPTH_MAX`].
    pub(super) fn too_deep() -> Self {
        let what = format!("the body is nested deeper than {} levels", limits::JSON_DEPTH_MAX);
        BadRequest { too_deep: true, ..BadRequest::new(what) }
    }

    fn field(param: &'static str, message: impl Into<String>) -> Self {
        BadRequest { param: Some(param), path: param.to_owned(), ..BadRequest::new(message) }
    }
}

impl fmt::Display for BadRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// How the body must differ for one target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes<'a> {
    /// The model name to send, where it is not the asked-for one.
    pub model: Option<&'a str>,
    /// Ask for a stream, although the client wants a whole answer.
    pub ask_stream: bool,
    /// Ask for a usage chunk.
    pub ask_usage: bool,
    /// Ask for prompt progress (llama.cpp).
    pub ask_progress: bool,
    /// The token limit to send, where the asked-for one is larger.
    pub max_tokens: Option<u64>,
}

/// One replacement: these bytes of the body become those.
pub type Edit = (Range<usize>, Vec<u8>);

/// Reads a request body.
///
/// # Errors
/// Not JSON, not an object, too deep, a key twice, or a field of the wrong type: a [`BadRequest`]
/// that names it.
pub fn decode(dialect: Dialect, body: &[u8]) -> Result<Call, BadRequest> {
    let profile = json::profile(body).map_err(|_| BadRequest::too_deep())?;
    let scan = Scan::new(dialect, body);
    let mut reader = Reader { body, seen: HashSet::new(), call: Draft::default(), scan, fault: None };
    let mut de = serde_json::Deserializer::from_slice(body);
    let parsed = (&mut reader).deserialize(&mut de).and_then(|()| de.end());
    if let Some(fault) = reader.fault {
        return Err(fault);
    }
    parsed.map_err(|e| BadRequest::new(format!("the body is not valid JSON: {e}")))?;
    let draft = reader.call;
    let open = body.iter().position(|b| *b == b'{').map_or(0, |at| at + 1);
    let streams_by_default = matches!(dialect, Dialect::OllamaChat | Dialect::OllamaGenerate);
    Ok(Call {
        dialect,
        model: draft.model.unwrap_or_default(),
        stream: draft.stream.unwrap_or(streams_by_default) && dialect.streams(),
        wants_usage: draft.wants_usage,
        wants_progress: draft.wants_progress,
        max_tokens: draft.spans.limits.iter().map(|(limit, _)| *limit).max(),
        choices: draft.choices.unwrap_or(1).max(1),
        collectable: collects(dialect) && !draft.foreign && draft.choices.is_none_or(|choices| choices == 1),
        options: draft.options,
        prompt_tokens: profile.estimated_tokens(),
        needs: reader.scan.needs,
        conversation: reader.scan.conversation(),
        named: reader.scan.references,
        names_more: reader.scan.more,
        spans: Spans { open, any: !reader.seen.is_empty(), ..draft.spans },
    })
}

impl Call {
    /// A call that has no body to read: `GET /api/tags` and its like.
    #[must_use]
    pub fn bare(dialect: Dialect, model: &str) -> Call {
        Call {
            dialect,
            model: model.to_owned(),
            stream: false,
            wants_usage: false,
            wants_progress: false,
            max_tokens: None,
            choices: 1,
            collectable: false,
            options: Options::default(),
            prompt_tokens: 0,
            needs: Needs::default(),
            named: Vec::new(),
            names_more: false,
            conversation: None,
            spans: Spans::default(),
        }
    }

    /// The edits that give a target its body: sorted, not overlapping.
    #[must_use]
    pub fn edits(&self, changes: &Changes<'_>) -> Vec<Edit> {
        let mut edits: Vec<Edit> = Vec::new();
        let mut first_members = Vec::new();
        if let Some(model) = changes.model {
            let quoted = quote(model);
            match &self.spans.model {
                Some(span) => edits.push((span.clone(), quoted)),
                None => member(&mut first_members, "model", &quoted),
            }
        }
        let streams = self.stream || changes.ask_stream;
        if changes.ask_stream && !self.stream {
            match &self.spans.stream {
                Some(span) => edits.push((span.clone(), b"true".to_vec())),
                None => member(&mut first_members, "stream", b"true"),
            }
        }
        if changes.ask_usage && streams && !(self.stream && self.wants_usage) {
            self.ask_usage(&mut edits, &mut first_members);
        }
        if changes.ask_progress && streams && !(self.stream && self.wants_progress) {
            match &self.spans.return_progress {
                Some(span) => edits.push((span.clone(), b"true".to_vec())),
                None => member(&mut first_members, "return_progress", b"true"),
            }
        }
        if let Some(most) = changes.max_tokens {
            let above = self.spans.limits.iter().filter(|(limit, _)| *limit > most);
            edits.extend(above.map(|(_, span)| (span.clone(), most.to_string().into_bytes())));
        }
        if !first_members.is_empty() {
            if !self.spans.any {
                first_members.pop();
            }
            edits.push((self.spans.open..self.spans.open, first_members));
        }
        sorted(edits)
    }

    fn ask_usage(&self, edits: &mut Vec<Edit>, first_members: &mut Vec<u8>) {
        match &self.spans.stream_options {
            None => member(first_members, "stream_options", br#"{"include_usage":true}"#),
            Some(options) if !options.is_object => {
                edits.push((options.value.clone(), br#"{"include_usage":true}"#.to_vec()));
            }
            Some(StreamOptions { include_usage: Some(span), .. }) => {
                edits.push((span.clone(), b"true".to_vec()));
            }
            Some(options) => {
                let at = options.value.start + 1;
                let text: &[u8] =
                    if options.any { br#""include_usage":true,"# } else { br#""include_usage":true"# };
                edits.push((at..at, text.to_vec()));
            }
        }
    }
}

/// A body with its edits, without copying it: the slices that make it up.
#[must_use]
pub fn apply(body: &Bytes, edits: Vec<Edit>) -> Vec<Bytes> {
    let mut slices = Vec::with_capacity(2 * edits.len() + 1);
    let mut at = 0;
    for (range, text) in edits {
        slices.push(body.slice(at..range.start));
        slices.push(Bytes::from(text));
        at = range.end;
    }
    slices.push(body.slice(at..));
    slices
}

/// A string as JSON writes it.
#[must_use]
pub fn quote(text: &str) -> Vec<u8> {
    serde_json::to_vec(text).unwrap_or_else(|_| b"\"\"".to_vec())
}

fn member(out: &mut Vec<u8>, key: &str, value: &[u8]) {
    out.extend_from_slice(&quote(key));
    out.push(b':');
    out.extend_from_slice(value);
    out.push(b',');
}

#[derive(Default)]
struct Draft {
    model: Option<String>,
    stream: Option<bool>,
    wants_usage: bool,
    wants_progress: bool,
    choices: Option<u32>,
    /// It has a member that edgeward knows nothing of, or one that asks for several answers.
    foreign: bool,
    options: Options,
    spans: Spans,
}

struct Reader<'a> {
    body: &'a [u8],
    seen: HashSet<Cow<'a, str>>,
    call: Draft,
    scan: Scan,
    fault: Option<BadRequest>,
}

impl<'a> Reader<'a> {
    fn span(&self, raw: &'a RawValue) -> Range<usize> {
        let start = (raw.get().as_ptr() as usize).saturating_sub(self.body.as_ptr() as usize);
        start..start + raw.get().len()
    }

    fn field(&mut self, key: &str, raw: &'a RawValue) -> Result<(), BadRequest> {
        let text = raw.get();
        let null = text == "null";
        match key {
            "model" => {
                if !null {
                    let name: String = serde_json::from_str(text)
                        .map_err(|_| BadRequest::field("model", "`model` must be a string"))?;
                    if name.len() > limits::MODEL_NAME_BYTES {
                        return Err(BadRequest::field(
                            "model",
                            format!("`model` is longer than {} bytes", limits::MODEL_NAME_BYTES),
                        ));
                    }
                    self.call.model = Some(name);
                }
                self.call.spans.model = Some(self.span(raw));
            }
            "stream" => {
                match text {
                    "true" => self.call.stream = Some(true),
                    "false" => self.call.stream = Some(false),
                    "null" => {}
                    _ => return Err(BadRequest::field("stream", "`stream` must be true or false")),
                }
                self.call.spans.stream = Some(self.span(raw));
            }
            "stream_options" => self.stream_options(raw)?,
            "return_progress" => {
                self.call.wants_progress = text == "true";
                self.call.spans.return_progress = Some(self.span(raw));
            }
            "max_tokens" | "max_completion_tokens" | "max_output_tokens" => {
                let limit = text.parse().ok().map(|limit| (limit, self.span(raw)));
                self.call.spans.limits.extend(limit);
            }
            "n" => self.call.choices = text.parse().ok(),
            "options" => {
                let (limit, options) = ollama_options(text);
                let start = self.span(raw).start;
                let limit = limit.map(|(limit, at)| (limit, start + at.start..start + at.end));
                self.call.spans.limits.extend(limit);
                self.call.options = options;
            }
            // A list of prompts asks for as many answers.
            "prompt" => self.call.foreign |= text.starts_with('['),
            // With more of them an answer soon has more than may be held.
            "top_logprobs" => {
                self.call.foreign |= text.parse().is_ok_and(|most: u32| most > COLLECTED_LOGPROBS_MAX)
            }
            _ => self.call.foreign |= !null && !known::is_known(self.scan.dialect, key),
        }
        Ok(())
    }

    fn stream_options(&mut self, raw: &'a RawValue) -> Result<(), BadRequest> {
        let value = self.span(raw);
        let is_object = raw.get().starts_with('{');
        let mut options = StreamOptions { value, is_object, any: false, include_usage: None };
        if is_object {
            let mut inner = Members(Vec::new());
            let mut de = serde_json::Deserializer::from_str(raw.get());
            (&mut inner).deserialize(&mut de).map_err(|e| {
                BadRequest::field("stream_options", format!("`stream_options` cannot be read: {e}"))
            })?;
            options.any = !inner.0.is_empty();
            for (key, raw) in inner.0 {
                if key == "include_usage" {
                    if options.include_usage.is_some() {
                        return Err(BadRequest::field("stream_options", "`include_usage` is given twice"));
                    }
                    self.call.wants_usage = raw.get() == "true";
                    options.include_usage = Some(self.span(raw));
                }
            }
        } else if raw.get() != "null" {
            return Err(BadRequest::field("stream_options", "`stream_options` must be an object"));
        }
        self.call.spans.stream_options = Some(options);
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for &mut Reader<'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for &mut Reader<'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(Key(key)) = map.next_key()? {
            let raw: &'de RawValue = map.next_value()?;
            if self.fault.is_some() {
                continue;
            }
            if let Err(fault) = self.field(&key, raw) {
                self.fault = Some(fault);
            }
            self.scan.member(&key, raw.get());
            if self.seen.contains(&key) {
                self.fault = Some(BadRequest::new(format!("the key `{}` is given twice", shorten(&key))));
            } else {
                self.seen.insert(key);
            }
        }
        Ok(())
    }
}

fn shorten(key: &str) -> String {
    key.chars().take(60).collect()
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
