//! Ollama's own API: a line of a stream and a whole answer have one shape.

use super::calls::Delta;
use super::decoder::{Flow, Kind};
use super::view::View;
use super::{Finish, Piece, Usage};
use crate::cause::Failure;

pub(super) fn read(line: View<'_>, flow: &mut Flow, out: &mut Vec<Piece>) -> Result<(), Failure> {
    flow.start(String::new(), line.get("model").text(), out);
    flow.choose(0, out);
    let message = line.get("message");
    // `/api/generate` has them at the top.
    for said in [message, line] {
        flow.say(Kind::Thinking, said.get("thinking").inside(), out);
    }
    let logprobs = line.get("logprobs");
    if logprobs.is_array() && logprobs.is_filled() {
        flow.logprobs(super::text::compact(logprobs.raw()), out);
    }
    flow.say(Kind::Text, message.get("content").inside(), out);
    flow.say(Kind::Text, line.get("response").inside(), out);
    let mut result = Ok(());
    for said in [message, line] {
        said.get("tool_calls").each(&mut |call| {
            if result.is_ok() {
                result = whole_call(call, flow, out);
            }
        });
    }
    result?;
    if line.get("done").is_true() {
        flow.finish(match line.get("done_reason").inside() {
            b"length" => Finish::Length,
            b"load" => Finish::Loaded,
            b"unload" => Finish::Unloaded,
            b"content_filter" => Finish::Filtered,
            b"refusal" => Finish::Refused,
            _ => Finish::Stop,
        });
        // Both are left out when 0.
        flow.usage(
            Usage {
                prompt: Some(line.get("prompt_eval_count").number().unwrap_or(0)),
                completion: Some(line.get("eval_count").number().unwrap_or(0)),
                ..Usage::default()
            },
            out,
        );
    }
    Ok(())
}

fn whole_call(call: View<'_>, flow: &mut Flow, out: &mut Vec<Piece>) -> Result<(), Failure> {
    let function = call.get("function");
    let arguments = function.get("arguments");
    let delta = Delta {
        // Each one is whole, so none goes on.
        slot: None,
        id: call.get("id").text(),
        name: function.get("name").text(),
        signature: String::new(),
        arguments: arguments.inside(),
        object: arguments.is_object().then_some(arguments),
    };
    flow.end_call(out);
    flow.call(delta, out)?;
    flow.end_call(out);
    Ok(())
}
