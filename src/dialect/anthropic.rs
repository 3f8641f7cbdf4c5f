//! Anthropic Messages: typed events, and the message that is the whole answer.

use super::event::{Finish, Usage};
use super::inspect::Look;
use super::openai;
use crate::wire::json::{Cursor, Stop, Str};

#[derive(Default)]
struct Seen<'a> {
    kind: Option<Str<'a>>,
    block: Block<'a>,
    delta: Block<'a>,
    stop: Option<Str<'a>>,
    usage: Option<Usage>,
}

/// A content block, or a piece of one.
#[derive(Default)]
struct Block<'a> {
    kind: Option<Str<'a>>,
    /// Text, or a tool's input, is not empty.
    words: bool,
    thinking: bool,
}

/// One event of a stream, or a whole answer.
pub(super) fn read<'a>(c: &mut Cursor<'a>, look: &mut Look<'a>) -> Result<(), Stop> {
    let mut seen = Seen::default();
    let result = members(c, look, &mut seen);
    decide(look, &seen);
    result
}

fn members<'a>(c: &mut Cursor<'a>, look: &mut Look<'a>, seen: &mut Seen<'a>) -> Result<(), Stop> {
    c.object(|key, c| {
        match key {
            b"type" => seen.kind = c.string()?,
            b"content_block" => block(c, &mut seen.block, &mut seen.stop)?,
            b"delta" => block(c, &mut seen.delta, &mut seen.stop)?,
            b"message" if c.peek()? == b'{' => {
                c.object(|key, c| message(key, c, look, seen))?;
            }
            _ => message(key, c, look, seen)?,
        }
        Ok(())
    })?;
    Ok(())
}

/// A member of the message object.
fn message<'a>(key: &[u8], c: &mut Cursor<'a>, look: &mut Look<'a>, seen: &mut Seen<'a>) -> Result<(), Stop> {
    match key {
        b"model" => {
            look.model(c)?;
        }
        b"usage" => seen.usage = openai::usage(c, b"input_tokens", &[b"output_tokens"])?,
        b"stop_reason" => seen.stop = c.string()?,
        b"content" if look.whole => {
            look.trouble.answers = true;
            c.array(|c| {
                let mut one = Block::default();
                let result = block(c, &mut one, &mut seen.stop);
                show(look, &one);
                result
            })?;
        }
        _ => look.trouble.member(key, c)?,
    }
    Ok(())
}

fn block<'a>(c: &mut Cursor<'a>, block: &mut Block<'a>, stop: &mut Option<Str<'a>>) -> Result<(), Stop> {
    c.object(|key, c| {
        match key {
            b"type" => block.kind = c.string()?,
            b"text" | b"partial_json" => block.words |= c.truthy()?,
            b"thinking" => block.thinking |= c.truthy()?,
            b"stop_reason" => *stop = c.string()?,
            _ => {}
        }
        Ok(())
    })?;
    Ok(())
}

/// What a block at its start, or a whole one, shows.
fn show(look: &mut Look<'_>, block: &Block<'_>) {
    let kind = block.kind.filter(|kind| kind.whole).map_or(&b""[..], |kind| kind.raw);
    let tool = kind.ends_with(b"tool_use") || kind.ends_with(b"_tool_result");
    look.facts.content |= block.words || tool;
    look.facts.thinking |= block.thinking || kind == b"redacted_thinking";
}

fn decide(look: &mut Look<'_>, seen: &Seen<'_>) {
    if let Some(stop) = seen.stop.filter(|stop| stop.whole) {
        look.facts.finish = Some(match stop.raw {
            b"max_tokens" | b"model_context_window_exceeded" => Finish::Length,
            b"refusal" => Finish::Filtered,
            _ => Finish::Stop,
        });
    }
    look.facts.usage = seen.usage;
    if look.whole {
        look.trouble.certain |= seen.kind.is_some_and(|kind| kind.is(b"error"));
        return;
    }
    let kind = match seen.kind {
        Some(kind) if kind.whole => kind.raw,
        Some(_) => return,
        None => look.name,
    };
    match kind {
        b"error" => look.trouble.certain = true,
        // Its output_tokens are a placeholder.
        b"message_start" => {
            look.facts.usage = seen.usage.map(|usage| Usage { completion: None, ..usage });
        }
        b"content_block_start" => show(look, &seen.block),
        b"content_block_delta" => {
            look.facts.content |= seen.delta.words;
            look.facts.thinking |= seen.delta.thinking;
        }
        b"message_stop" => look.facts.done = true,
        _ => {}
    }
}
