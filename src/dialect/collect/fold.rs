//! Frames of a stream put into one answer, each protocol's by its own rules.

use std::ops::Range;

use super::node::{Members, Node, Unfit};
use crate::cause::{Cause, Failure};
use crate::dialect::Dialect;
use crate::limits::ANSWER_CHOICES;
use crate::wire::json::{Cursor, readable};

/// The answer so far.
#[derive(Debug)]
pub(super) struct Fold {
    dialect: Dialect,
    /// What its top level says.
    top: Members,
    /// OpenAI's choices by their numbers, Anthropic's blocks.
    parts: Vec<(u64, Part)>,
}

/// One choice of OpenAI's, or one content block of Anthropic's.
#[derive(Debug, Default)]
struct Part {
    members: Members,
    /// Anthropic: the JSON text of a call's input, as the inside of a string.
    input: Vec<u8>,
}

impl Fold {
    pub(super) fn new(dialect: Dialect) -> Self {
        Fold { dialect, top: Members::default(), parts: Vec::new() }
    }

    /// Whether there is an answer to write, should the stream be whole.
    pub(super) fn has_body(&self) -> bool {
        self.dialect != Dialect::OpenaiResponses || self.top.get(b"response").is_some()
    }

    /// Takes one frame's JSON. Returns how many bytes it added.
    ///
    /// # Errors
    /// Why it cannot be a part of the answer.
    pub(super) fn take(&mut self, data: &[u8]) -> Result<usize, Unfit> {
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
        let mut others: Vec<(&[u8], Range<usize>)> = Vec::new();
        each(data, |key, c| {
            let mut value = || c.value().map(Some).map_err(|_| Unfit::Bad);
            match key {
                b"message" => message = value()?,
                b"content_block" => block = value()?,
                b"delta" => delta = value()?,
                b"usage" => usage = value()?,
                b"type" => kind = c.string().map_err(|_| Unfit::Bad)?,
                b"index" => index = c.number().map_err(|_| Unfit::Bad)?.unwrap_or(0),
                _ => others.push((key, c.value().map_err(|_| Unfit::Bad)?)),
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
                let mut added = each(delta, |key, c| replaced(top, key, delta, c))?;
                // What stands beside the delta is about the message, too.
                for (key, at) in others {
                    added += top.replace(key, data.get(at).unwrap_or_default());
                }
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
    /// About `length` bytes.
    ///
    /// # Errors
    /// It would be no JSON.
    pub(super) fn body(&mut self, length: usize) -> Result<Vec<u8>, Failure> {
        let mut top = std::mem::take(&mut self.top);
        let mut parts = std::mem::take(&mut self.parts);
        parts.sort_by_key(|(index, _)| *index);
        let mut out = Vec::with_capacity(length + 64);
        match self.dialect {
            Dialect::OpenaiResponses => {
                if let Some(Node::Raw(response)) = top.get(b"response") {
                    out.extend_from_slice(response);
                }
            }
            Dialect::OllamaChat | Dialect::OllamaGenerate => top.write(&mut out, b"{"),
            Dialect::Anthropic => {
                let limits = [&b"max_tokens"[..], b"model_context_window_exceeded"];
                let cut = limits.iter().any(|limit| top.is(b"stop_reason", limit));
                let blocks = parts.into_iter().map(|(_, part)| part.block(cut)).collect::<Result<_, _>>()?;
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

    /// `cut`: the answer ended by a limit.
    fn block(self, cut: bool) -> Result<Node, Failure> {
        let mut members = self.members;
        if !self.input.is_empty() {
            let json = readable(&self.input);
            match serde_json::from_str::<serde::de::IgnoredAny>(&json) {
                Ok(_) => {
                    members.set(b"input", Node::Raw(json.into_bytes()));
                }
                // As llama.cpp has it in its own whole answer: the limit cut the call.
                Err(_) if cut => {}
                Err(_) => return Err(Failure::with(Cause::Truncated, "a tool call's input that is no JSON")),
            }
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
