//! OpenAI's chat chunks, and the whole answers that differ from them only in `message` for `delta`.

use super::calls::Delta;
use super::decoder::{Flow, Kind};
use super::view::View;
use super::{Finish, Piece, Usage};
use crate::cause::Failure;

pub(super) fn read(frame: View<'_>, flow: &mut Flow, out: &mut Vec<Piece>) -> Result<(), Failure> {
    flow.start(frame.get("id").text(), frame.get("model").text(), out);
    let mut result = Ok(());
    frame.get("choices").each(&mut |choice| {
        if result.is_ok() && flow.choose(choice.get("index").number().unwrap_or(0), out) {
            result = one(choice, flow, out);
        }
    });
    flow.usage(usage(frame.get("usage")), out);
    result
}

fn one(choice: View<'_>, flow: &mut Flow, out: &mut Vec<Piece>) -> Result<(), Failure> {
    // A server that sends both says the same twice.
    let delta = choice.get("delta");
    let delta = if delta.is_object() { delta } else { choice.get("message") };
    thinking(delta, flow, out)?;
    let logprobs = choice.get("logprobs").get("content");
    if logprobs.is_array() && logprobs.is_filled() {
        flow.logprobs(super::text::compact(logprobs.raw()), out);
    }
    let content = delta.get("content");
    flow.say(Kind::Text, content.inside(), out);
    // Mistral's: parts, thinking among them.
    content.each(&mut |part| {
        flow.say(Kind::Text, part.get("text").inside(), out);
        part.get("thinking").each(&mut |part| flow.say(Kind::Thinking, part.get("text").inside(), out));
    });
    // Of `/v1/completions`; Together's chunks have it beside their delta.
    if !delta.is_object() {
        flow.say(Kind::Text, choice.get("text").inside(), out);
    }
    flow.say(Kind::Refusal, delta.get("refusal").inside(), out);
    calls(delta, flow, out)?;
    let reason = choice.get("finish_reason");
    if reason.is_string() && !reason.inside().is_empty() {
        flow.finish(finish(reason.inside(), choice));
    }
    Ok(())
}

/// Under whichever of its names; a server that sends two of them says the same twice.
fn thinking(delta: View<'_>, flow: &mut Flow, out: &mut Vec<Piece>) -> Result<(), Failure> {
    let mut plain = false;
    for name in ["reasoning_content", "reasoning"] {
        let text = delta.get(name).inside();
        if !plain {
            flow.say(Kind::Thinking, text, out);
        }
        plain |= !text.is_empty();
    }
    // OpenRouter's.
    let mut result = Ok(());
    delta.get("reasoning_details").each(&mut |detail| {
        if !plain {
            for name in ["text", "summary"] {
                flow.say(Kind::Thinking, detail.get(name).inside(), out);
            }
        }
        // What other providers can read again is of no use to a client that would give it to Anthropic.
        let format = detail.get("format");
        if result.is_ok() && (format.is_null() || format.inside().starts_with(b"anthropic")) {
            result = flow.sign(detail.get("signature").text(), out);
            if result.is_ok() && detail.get("type").is("reasoning.encrypted") {
                result = flow.redacted(detail.get("data").text(), out);
            }
        }
    });
    result
}

fn calls(delta: View<'_>, flow: &mut Flow, out: &mut Vec<Piece>) -> Result<(), Failure> {
    let mut result = Ok(());
    delta.get("tool_calls").each(&mut |call| {
        let function = call.get("function");
        if result.is_ok() && function.is_object() {
            let signature = call.get("extra_content").get("google").get("thought_signature").text();
            result = flow.call(read_call(call, function, signature), out);
        }
    });
    result?;
    // The form before `tool_calls`.
    let function = delta.get("function_call");
    if function.is_object() {
        flow.call(Delta { slot: Some(0), ..read_call(View::NOTHING, function, String::new()) }, out)?;
    }
    Ok(())
}

fn read_call<'a>(call: View<'a>, function: View<'a>, signature: String) -> Delta<'a> {
    let arguments = function.get("arguments");
    Delta {
        slot: call.get("index").number(),
        id: call.get("id").text(),
        name: function.get("name").text(),
        signature,
        arguments: arguments.inside(),
        object: arguments.is_object().then_some(arguments),
    }
}

fn finish(reason: &[u8], choice: View<'_>) -> Finish {
    match reason {
        b"length" | b"max_tokens" => Finish::Length,
        b"tool_calls" | b"function_call" | b"tool_use" => Finish::Calls,
        b"content_filter" | b"safety" => Finish::Filtered,
        b"refusal" => Finish::Refused,
        _ => {
            // vLLM's `stop_reason` and SGLang's `matched_stop`: the sequence, or a token's number.
            let sequence = [choice.get("stop_reason"), choice.get("matched_stop")];
            match sequence.into_iter().find(|sequence| !sequence.inside().is_empty()) {
                Some(sequence) => Finish::Sequence(sequence.text()),
                None => Finish::Stop,
            }
        }
    }
}

/// OpenAI's counts; DeepSeek's and llama.cpp's differ only in where the cached ones are.
fn usage(usage: View<'_>) -> Usage {
    let details = usage.get("prompt_tokens_details");
    Usage {
        prompt: usage.get("prompt_tokens").number(),
        completion: usage.get("completion_tokens").number(),
        cached: details.get("cached_tokens").number().or(usage.get("prompt_cache_hit_tokens").number()),
        cache_written: details.get("cache_write_tokens").number(),
        reasoning: usage.get("completion_tokens_details").get("reasoning_tokens").number(),
    }
}
