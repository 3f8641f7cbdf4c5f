//! A whole answer out of a stream, in the server's own protocol: what the same server would have said unstreamed.
//!
//! Edge servers compute a whole answer in silence. Asked for a stream instead, they show each token, so that a slow
//! answer can be told from a hung server. Pure: chunks in, one body out. Nothing is translated, and nothing is decoded:
//! members that edgeward knows nothing of stay, numbers keep their digits.
//!
//! It is bounded by its caller: [`Collector::bytes`] says what it holds.

mod node;

use std::ops::Range;

use super::Dialect;
use super::event::{Ends, Facts, Finish, Progress};
use super::inspect::inspect_event;
use crate::cause::{Cause, Failure};
use crate::limits::{ANSWER_CHOICES, TRANSLATED_EVENT_BYTES};
use crate::wire::json::{Cursor, readable};
use crate::wire::{Framing, Splitter, sse};
use node::{Members, Node, Unfit};

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
    /// What the answer's top level says.
    top: Members,
    /// OpenAI's choices by their numbers, Anthropic's blocks.
    parts: Vec<(u64, Part)>,
    held: usize,
}

/// One choice of OpenAI's, or one content block of Anthropic's.
#[derive(Debug, Default)]
struct Part {
    members: Members,
    /// Anthropic: the JSON text of a call's input, as the inside of a string.
    input: Vec<u8>,
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
            top: Members::default(),
            parts: Vec::new(),
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
        if !rest.is_empty() {
            let facts = self.inspected(&rest);
            // Half an event says nothing, but for an error in it.
            if !facts.alien || facts.error.is_some() {
                self.complete(&rest)?;
            }
        }
        if self.is_whole() {
            return self.body();
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
        let has_body = self.dialect != Dialect::OpenaiResponses || self.top.get(b"response").is_some();
        has_body && (self.done || self.ends.all(1))
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
            Framing::Ndjson => self.fold(raw.trim_ascii()),
            Framing::Sse => self.fold_event(raw),
        };
        self.held += added.map_err(unfit)?;
        Ok(())
    }

    fn fold_event(&mut self, raw: &[u8]) -> Result<usize, Unfit> {
        let mut join = std::mem::take(&mut self.scratch);
        let added = match sse::parse(raw, &mut join) {
            Ok(event) => match event.data.unwrap_or_default().trim_ascii() {
                b"" | b"[DONE]" | b"null" => Ok(0),
                data => self.fold(data),
            },
            Err(_) => Err(Unfit::Bad),
        };
        self.scratch = join;
        added
    }

    fn fold(&mut self, data: &[u8]) -> Result<usize, Unfit> {
        match self.dialect {
            Dialect::OllamaChat | Dialect::OllamaGenerate => self.ollama(data),
            Dialect::Anthropic => self.anthropic(data),
            Dialect::OpenaiResponses => self.responses(data),
            _ => self.openai(data),
        }
    }

    /// The last frame has what the whole answer says of itself; texts and calls come in parts.
    fn ollama(&mut self, data: &[u8]) -> Result<usize, Unfit> {
        let top = &mut self.top;
        each(data, |key, c| match key {
            b"message" | b"response" | b"thinking" | b"logprobs" | b"tool_calls" => top.member(key, data, c),
            _ => replaced(top, key, data, c),
        })
    }

    fn openai(&mut self, data: &[u8]) -> Result<usize, Unfit> {
        let (top, parts) = (&mut self.top, &mut self.parts);
        each(data, |key, c| match key {
            b"choices" => {
                let (mut added, mut unfit) = (0, None);
                let read = c.array(|c| {
                    let at = c.value()?;
                    let raw = data.get(at).unwrap_or_default();
                    added += choice(parts, raw).inspect_err(|why| unfit = Some(*why))?;
                    Ok(())
                });
                match (unfit, read) {
                    (Some(unfit), _) => Err(unfit),
                    (None, Ok(_)) => Ok(added),
                    (None, Err(_)) => Err(Unfit::Bad),
                }
            }
            // Of a stream; a whole answer has another word, and no progress.
            b"object" | b"prompt_progress" => Ok(0),
            b"id" | b"created" | b"model" if top.says(key) => Ok(0),
            _ => replaced(top, key, data, c),
        })
    }

    /// The last event has all of the answer.
    fn responses(&mut self, data: &[u8]) -> Result<usize, Unfit> {
        let (mut last, mut response) = (false, None);
        each(data, |key, c| {
            match key {
                b"type" => {
                    let kind = c.string().map_err(|_| Unfit::Bad)?;
                    last = kind.is_some_and(|kind| {
                        kind.is(b"response.completed") || kind.is(b"response.incomplete")
                    });
                }
                b"response" => response = Some(c.value().map_err(|_| Unfit::Bad)?),
                _ => {}
            }
            Ok(0)
        })?;
        match response.and_then(|at| data.get(at)).filter(|_| last) {
            Some(raw) => Ok(self.top.replace(b"response", raw)),
            None => Ok(0),
        }
    }

    fn anthropic(&mut self, data: &[u8]) -> Result<usize, Unfit> {
        let (mut kind, mut index) = (None, 0);
        let (mut message, mut block, mut delta, mut usage) = (None, None, None, None);
        each(data, |key, c| {
            let mut value = || c.value().map(Some).map_err(|_| Unfit::Bad);
            match key {
                b"message" => message = value()?,
                b"content_block" => block = value()?,
                b"delta" => delta = value()?,
                b"usage" => usage = value()?,
                b"type" => kind = c.string().map_err(|_| Unfit::Bad)?,
                b"index" => index = c.number().map_err(|_| Unfit::Bad)?.unwrap_or(0),
                _ => {}
            }
            Ok(0)
        })?;
        let inside = |at: Option<Range<usize>>| at.and_then(|at| data.get(at)).unwrap_or(b"{}");
        match kind.map_or(&b""[..], |kind| kind.raw) {
            b"message_start" => {
                let (top, message) = (&mut self.top, inside(message));
                each(message, |key, c| match key {
                    b"content" => Ok(0),
                    b"usage" => top.member(key, message, c),
                    _ => replaced(top, key, message, c),
                })
            }
            b"content_block_start" => {
                let block = inside(block);
                let members = &mut part(&mut self.parts, index)?.members;
                // A call's input is empty here, and comes as text.
                each(block, |key, c| match key {
                    b"input" => replaced(members, key, block, c),
                    _ => members.member(key, block, c),
                })
            }
            b"content_block_delta" => {
                let (delta, part) = (inside(delta), part(&mut self.parts, index)?);
                each(delta, |key, c| match key {
                    b"type" => Ok(0),
                    b"partial_json" => {
                        let more = c.string().map_err(|_| Unfit::Bad)?.map_or(&b""[..], |json| json.raw);
                        part.input.extend_from_slice(more);
                        Ok(more.len())
                    }
                    b"citation" => {
                        let at = c.value().map_err(|_| Unfit::Bad)?;
                        let list = [b"[", delta.get(at).unwrap_or_default(), b"]"].concat();
                        part.members.member(b"citations", &list, &mut Cursor::new(&list))
                    }
                    _ => part.members.member(key, delta, c),
                })
            }
            b"message_delta" => {
                let (delta, usage, top) = (inside(delta), inside(usage), &mut self.top);
                let added = each(delta, |key, c| replaced(top, key, delta, c))?;
                if usage == b"{}" {
                    return Ok(added);
                }
                if !matches!(top.get(b"usage"), Some(Node::Object(_))) {
                    top.set(b"usage", Node::Object(Members::default()));
                }
                let Some(Node::Object(counts)) = top.get_mut(b"usage") else { return Ok(added) };
                Ok(added + each(usage, |key, c| replaced(counts, key, usage, c))?)
            }
            _ => Ok(0),
        }
    }

    /// The whole answer, as its server would have written it.
    fn body(&mut self) -> Result<Vec<u8>, Failure> {
        let mut top = std::mem::take(&mut self.top);
        let mut parts = std::mem::take(&mut self.parts);
        parts.sort_by_key(|(index, _)| *index);
        let mut out = Vec::with_capacity(self.held + 64);
        match self.dialect {
            Dialect::OpenaiResponses => {
                if let Some(Node::Raw(response)) = top.get(b"response") {
                    out.extend_from_slice(response);
                }
            }
            Dialect::OllamaChat | Dialect::OllamaGenerate => top.write(&mut out, b"{"),
            Dialect::Anthropic => {
                let blocks = parts.into_iter().map(|(_, part)| part.block()).collect::<Result<_, _>>()?;
                top.set(b"content", Node::List(blocks));
                for (key, missing) in [("type", "\"message\""), ("role", "\"assistant\"")] {
                    if !top.says(key.as_bytes()) {
                        top.set(key.as_bytes(), Node::Raw(missing.into()));
                    }
                }
                top.write(&mut out, b"{");
            }
            dialect => {
                let chat = dialect == Dialect::OpenaiChat;
                let choices =
                    parts.into_iter().map(|(index, part)| Node::Object(part.choice(index, chat))).collect();
                top.set(b"choices", Node::List(choices));
                let open: &[u8] = if chat {
                    b"{\"object\":\"chat.completion\","
                } else {
                    b"{\"object\":\"text_completion\","
                };
                top.write(&mut out, open);
            }
        }
        // A raw control character in a string passes every reader here, and none of a client's.
        if serde_json::from_slice::<serde::de::IgnoredAny>(&out).is_err() {
            return Err(Failure::with(Cause::Protocol, "frames that are no JSON"));
        }
        Ok(out)
    }
}

impl Part {
    fn choice(self, index: u64, chat: bool) -> Members {
        let mut members = self.members;
        members.set(b"index", Node::Raw(index.to_string().into_bytes()));
        // The end marker ends an answer of servers that give no reason.
        if !members.says(b"finish_reason") {
            members.set(b"finish_reason", Node::Text(b"stop".to_vec()));
        }
        if !chat {
            return members;
        }
        if members.get(b"message").is_none() {
            members.set(b"message", Node::Object(Members::default()));
        }
        if let Some(Node::Object(message)) = members.get_mut(b"message") {
            if !message.says(b"role") {
                message.set(b"role", Node::Text(b"assistant".to_vec()));
            }
            let mut calls = false;
            if let Some(Node::List(list)) = message.get_mut(b"tool_calls") {
                calls = !list.is_empty();
                for call in list {
                    if let Node::Object(call) = call {
                        call.remove(b"index");
                    }
                }
            }
            // Beside calls an empty text is none.
            if message.get(b"content").is_none() || (calls && !message.says(b"content")) {
                message.set(b"content", Node::Raw(b"null".to_vec()));
            }
        }
        members
    }

    fn block(self) -> Result<Node, Failure> {
        let mut members = self.members;
        if !self.input.is_empty() {
            let json = readable(&self.input);
            if serde_json::from_str::<serde::de::IgnoredAny>(&json).is_err() {
                return Err(Failure::with(Cause::Truncated, "a tool call's input that is no JSON"));
            }
            members.set(b"input", Node::Raw(json.into_bytes()));
        }
        Ok(Node::Object(members))
    }
}

fn choice(parts: &mut Vec<(u64, Part)>, raw: &[u8]) -> Result<usize, Unfit> {
    let mut index = 0;
    each(raw, |key, c| {
        if key == b"index" {
            index = c.number().map_err(|_| Unfit::Bad)?.unwrap_or(0);
        }
        Ok(0)
    })?;
    let members = &mut part(parts, index)?.members;
    each(raw, |key, c| match key {
        b"index" => Ok(0),
        b"delta" | b"message" => members.member(b"message", raw, c),
        b"text" | b"logprobs" | b"token_ids" => members.member(key, raw, c),
        _ => replaced(members, key, raw, c),
    })
}

/// The part of this number, which is begun if need be.
fn part(parts: &mut Vec<(u64, Part)>, index: u64) -> Result<&mut Part, Unfit> {
    let known = parts.iter().position(|(known, _)| *known == index);
    let at = match known {
        Some(at) => at,
        None if parts.len() < ANSWER_CHOICES as usize => {
            parts.push((index, Part::default()));
            parts.len() - 1
        }
        None => return Err(Unfit::Calls),
    };
    parts.get_mut(at).map(|(_, part)| part).ok_or(Unfit::Calls)
}

/// Each member of an object; the sum of what `member` gives.
fn each<'a, F>(data: &'a [u8], mut member: F) -> Result<usize, Unfit>
where
    F: FnMut(&'a [u8], &mut Cursor<'a>) -> Result<usize, Unfit>,
{
    let (mut sum, mut unfit) = (0, None);
    let read = Cursor::new(data).object(|key, c| {
        sum += member(key, c).inspect_err(|why| unfit = Some(*why))?;
        Ok(())
    });
    match (unfit, read) {
        (Some(unfit), _) => Err(unfit),
        (None, Ok(_)) => Ok(sum),
        (None, Err(_)) => Err(Unfit::Bad),
    }
}

/// The value at the cursor takes the place of the member of this name.
fn replaced<'a>(
    members: &mut Members,
    key: &[u8],
    data: &'a [u8],
    c: &mut Cursor<'a>,
) -> Result<usize, Unfit> {
    let at = c.value().map_err(|_| Unfit::Bad)?;
    Ok(members.replace(key, data.get(at).unwrap_or_default()))
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
