//! Anthropic's typed events, and the message that is the whole answer.

use super::calls::Delta;
use super::decoder::{Flow, Kind};
use super::text::{compact, whole};
use super::view::View;
use super::{Finish, Piece, Usage};
use crate::cause::{Cause, Failure};

/// The content block that is open.
#[derive(Debug, Default)]
pub(super) enum Block {
    /// None, or one that needs no memory.
    #[default]
    Plain,
    /// A call, and the input that stood at its beginning: `{}` where the deltas bring it.
    Call { input: String },
    /// What the provider does by itself (`server_tool_use` and its result): nothing for a client of another protocol.
    Foreign,
}

/// What a block holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Is {
    Text,
    Thinking,
    Other,
}

/// Where the server's blocks stand, for whoever goes on after its events went out untouched.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Blocks {
    /// The open one's number, and whether it is text, thinking, or something else.
    pub(super) open: Option<(u64, Is)>,
    /// The next one's number.
    pub(super) next: u64,
}

/// One event. `message_start` may be missing: llama.cpp leaves it out when its first token is half a character.
pub(super) fn event(event: View<'_>, flow: &mut Flow, out: &mut Vec<Piece>) -> Result<(), Failure> {
    flow.choose(0, out);
    match event.get("type").inside() {
        b"message_start" => {
            let message = event.get("message");
            flow.start(message.get("id").text(), message.get("model").text(), out);
            // Its output_tokens are a placeholder.
            let usage = usage(message.get("usage"), flow.counted);
            flow.usage(Usage { completion: None, ..usage }, out);
        }
        b"content_block_start" => {
            flow.blocks.begin(event);
            end_block(flow, out)?;
            block(event.get("content_block"), flow, out)?;
        }
        b"content_block_delta" => delta(event.get("delta"), flow, out)?,
        b"content_block_stop" => {
            flow.blocks.open = None;
            end_block(flow, out)?;
        }
        b"message_delta" => {
            end_block(flow, out)?;
            finish(event.get("delta"), flow);
            flow.usage(usage(event.get("usage"), flow.counted), out);
        }
        _ => {}
    }
    Ok(())
}

impl Blocks {
    fn begin(&mut self, event: View<'_>) {
        let number = event.get("index").number().unwrap_or(self.next);
        let is = match event.get("content_block").get("type").inside() {
            b"text" => Is::Text,
            b"thinking" => Is::Thinking,
            _ => Is::Other,
        };
        *self = Blocks { open: Some((number, is)), next: number.saturating_add(1) };
    }
}

/// A whole message.
pub(super) fn answer(message: View<'_>, flow: &mut Flow, out: &mut Vec<Piece>) -> Result<(), Failure> {
    let content = message.get("content");
    if !content.is_array() {
        return Ok(());
    }
    flow.choose(0, out);
    flow.start(message.get("id").text(), message.get("model").text(), out);
    let mut result = Ok(());
    content.each(&mut |part| {
        if result.is_ok() {
            result = block(part, flow, out).and_then(|()| end_block(flow, out));
        }
    });
    finish(message, flow);
    flow.usage(usage(message.get("usage"), flow.counted), out);
    result
}

/// A block at its beginning, or a whole one.
fn block(block: View<'_>, flow: &mut Flow, out: &mut Vec<Piece>) -> Result<(), Failure> {
    let kind = block.get("type").inside();
    match kind {
        b"text" => flow.say(Kind::Text, block.get("text").inside(), out),
        b"thinking" => {
            flow.say(Kind::Thinking, block.get("thinking").inside(), out);
            flow.sign(block.get("signature").text(), out)?;
        }
        b"redacted_thinking" => flow.redacted(block.get("data").text(), out)?,
        b"tool_use" => {
            let delta =
                Delta { id: block.get("id").text(), name: block.get("name").text(), ..Delta::default() };
            flow.call(delta, out)?;
            let input = block.get("input");
            let input = if input.is_filled() { compact(input.raw()) } else { String::new() };
            flow.block = Block::Call { input };
        }
        _ => flow.block = Block::Foreign,
    }
    Ok(())
}

fn delta(delta: View<'_>, flow: &mut Flow, out: &mut Vec<Piece>) -> Result<(), Failure> {
    flow.say(Kind::Thinking, delta.get("thinking").inside(), out);
    flow.say(Kind::Text, delta.get("text").inside(), out);
    flow.sign(delta.get("signature").text(), out)?;
    let arguments = delta.get("partial_json").inside();
    if arguments.is_empty() {
        return Ok(());
    }
    match &mut flow.block {
        Block::Call { input } => {
            input.clear();
            flow.call(Delta { arguments, ..Delta::default() }, out)
        }
        Block::Foreign => Ok(()),
        Block::Plain => Err(Failure::with(Cause::Protocol, "arguments outside of a call")),
    }
}

fn end_block(flow: &mut Flow, out: &mut Vec<Piece>) -> Result<(), Failure> {
    if let Block::Call { input } = std::mem::take(&mut flow.block) {
        if let Some(object) = View::new(input.as_bytes()) {
            flow.call(Delta { object: Some(object), ..Delta::default() }, out)?;
        }
        flow.end_call(out);
    }
    Ok(())
}

/// From `message_delta`'s delta, or a whole message.
fn finish(from: View<'_>, flow: &mut Flow) {
    flow.finish(match from.get("stop_reason").inside() {
        b"" => return,
        b"max_tokens" | b"model_context_window_exceeded" => Finish::Length,
        b"tool_use" => Finish::Calls,
        b"refusal" => Finish::Refused,
        b"pause_turn" => Finish::Paused,
        b"stop_sequence" => match from.get("stop_sequence").inside() {
            b"" => Finish::Stop,
            sequence => Finish::Sequence(whole(sequence)),
        },
        _ => Finish::Stop,
    });
}

/// Anthropic counts what a cache gave, and got, apart from `input_tokens`. Servers of its protocol may say so at the
/// beginning alone, which is `before`.
fn usage(usage: View<'_>, before: Usage) -> Usage {
    let count = |name| usage.get(name).number();
    let cached = count("cache_read_input_tokens").or(before.cached);
    let cache_written = count("cache_creation_input_tokens").or(before.cache_written);
    let beside = cached.unwrap_or(0).saturating_add(cache_written.unwrap_or(0));
    Usage {
        prompt: count("input_tokens").map(|fresh| fresh.saturating_add(beside)),
        completion: count("output_tokens"),
        cached,
        cache_written,
        reasoning: None,
    }
}
