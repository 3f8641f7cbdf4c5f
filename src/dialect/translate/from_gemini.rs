//! Google's Gemini API: a chunk of a stream and a whole answer have one shape.

use super::calls::Delta;
use super::decoder::{Flow, Kind};
use super::text::{Fill, compact, fill};
use super::view::View;
use super::{Finish, Piece, Usage};
use crate::cause::{Cause, Failure};

pub(super) fn read(chunk: View<'_>, flow: &mut Flow, out: &mut Vec<Piece>) -> Result<(), Failure> {
    // Its errors may come in an array.
    flow.start(chunk.get("responseId").text(), chunk.get("modelVersion").text(), out);
    let mut result = Ok(());
    chunk.get("candidates").each(&mut |candidate| {
        if result.is_ok() && flow.choose(candidate.get("index").number().unwrap_or(0), out) {
            result = one(candidate, flow, out);
        }
    });
    flow.usage(usage(chunk.get("usageMetadata")), out);
    result?;
    // A prompt that was blocked gets this and no candidate: it is the answer.
    if !chunk.get("promptFeedback").get("blockReason").inside().is_empty() {
        flow.choose(0, out);
        flow.finish(Finish::Filtered);
    }
    Ok(())
}

fn one(candidate: View<'_>, flow: &mut Flow, out: &mut Vec<Piece>) -> Result<(), Failure> {
    let chosen = candidate.get("logprobsResult");
    if chosen.is_object() {
        logprobs(chosen, flow, out);
    }
    let mut result = Ok(());
    candidate.get("content").get("parts").each(&mut |part| {
        if result.is_ok() {
            result = one_part(part, flow, out);
        }
    });
    result?;
    let reason = candidate.get("finishReason");
    match finish(reason.inside()) {
        Ok(None) => {}
        Ok(Some(finish)) => flow.finish(finish),
        Err(what) => {
            let told = candidate.get("finishMessage").text();
            let words = if told.is_empty() { what.to_owned() } else { format!("{what}: {told}") };
            return Err(Failure::with(Cause::ErrorInStream, &words));
        }
    }
    Ok(())
}

/// Pictures, code that Google ran and its results have no place in a client's protocol, and are never asked for. Of
/// signatures Google insists only on a call's (<https://ai.google.dev/gemini-api/docs/thought-signatures>); in a client's
/// hands the others would pass for Anthropic's.
fn one_part(part: View<'_>, flow: &mut Flow, out: &mut Vec<Piece>) -> Result<(), Failure> {
    let function = part.get("functionCall");
    if function.is_object() {
        let arguments = function.get("args");
        let delta = Delta {
            slot: None,
            id: function.get("id").text(),
            name: function.get("name").text(),
            signature: part.get("thoughtSignature").text(),
            arguments: b"",
            object: arguments.is_object().then_some(arguments),
        };
        flow.end_call(out);
        flow.call(delta, out)?;
        flow.end_call(out);
        return Ok(());
    }
    let kind = if part.get("thought").is_true() { Kind::Thinking } else { Kind::Text };
    flow.say(kind, part.get("text").inside(), out);
    Ok(())
}

/// Of [`Finish`], as <https://ai.google.dev/api/generate-content#FinishReason> has them. What the model got wrong so
/// that there is no answer is an error.
fn finish(reason: &[u8]) -> Result<Option<Finish>, &'static str> {
    Ok(Some(match reason {
        b"" | b"FINISH_REASON_UNSPECIFIED" => return Ok(None),
        b"MAX_TOKENS" => Finish::Length,
        b"SAFETY"
        | b"RECITATION"
        | b"LANGUAGE"
        | b"BLOCKLIST"
        | b"PROHIBITED_CONTENT"
        | b"SPII"
        | b"IMAGE_SAFETY"
        | b"IMAGE_PROHIBITED_CONTENT"
        | b"IMAGE_RECITATION" => Finish::Filtered,
        b"MALFORMED_FUNCTION_CALL" => return Err("the model made a call that cannot be read"),
        b"UNEXPECTED_TOOL_CALL" => return Err("the model called a tool that it was not given"),
        b"TOO_MANY_TOOL_CALLS" => return Err("the model called too many tools in a row"),
        b"MISSING_THOUGHT_SIGNATURE" => return Err("a thought signature of an earlier turn is missing"),
        _ => Finish::Stop,
    }))
}

fn usage(usage: View<'_>) -> Usage {
    let count = |name| usage.get(name).number();
    let (said, thought) = (count("candidatesTokenCount"), count("thoughtsTokenCount"));
    let prompt = count("promptTokenCount");
    Usage {
        // What its own tools read counts as prompt, too.
        prompt: prompt.map(|prompt| prompt.saturating_add(count("toolUsePromptTokenCount").unwrap_or(0))),
        completion: match (said, thought) {
            (None, None) => None,
            (said, thought) => Some(said.unwrap_or(0).saturating_add(thought.unwrap_or(0))),
        },
        cached: count("cachedContentTokenCount"),
        cache_written: None,
        reasoning: thought,
    }
}

/// From `chosenCandidates` and `topCandidates`, which stand beside each other, one for each step.
fn logprobs(result: View<'_>, flow: &mut Flow, out: &mut Vec<Piece>) {
    let mut tops = Vec::new();
    result.get("topCandidates").each(&mut |step| {
        let mut top = Vec::new();
        step.get("candidates").each(&mut |candidate| {
            separate(&mut top);
            token(candidate, "", &mut top);
        });
        tops.push(top);
    });
    let mut tops = tops.into_iter();
    let mut json = b"[".to_vec();
    result.get("chosenCandidates").each(&mut |candidate| {
        if json.len() > 1 {
            json.push(b',');
        }
        let top = tops.next().and_then(|top| String::from_utf8(top).ok()).unwrap_or_default();
        token(candidate, &format!(",\"top_logprobs\":[{top}]"), &mut json);
    });
    json.push(b']');
    if json.len() > 2 {
        flow.logprobs(String::from_utf8(json).unwrap_or_default(), out);
    }
}

fn separate(list: &mut Vec<u8>) {
    if !list.is_empty() {
        list.push(b',');
    }
}

fn token(candidate: View<'_>, more: &str, out: &mut Vec<u8>) {
    let probability = candidate.get("logProbability");
    let number = if probability.is_null() { "0".to_owned() } else { compact(probability.raw()) };
    let text = candidate.get("token").text();
    fill(
        out,
        "{\"token\":$,\"logprob\":$,\"bytes\":null$}",
        &[Fill::Text(&text), Fill::Json(&number), Fill::Json(more)],
    );
}
