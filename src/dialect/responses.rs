//! OpenAI Responses: typed events, and the response object that is both their end and the whole answer.

use super::event::Finish;
use super::inspect::Look;
use crate::cause::Cause;
use crate::wire::json::{Cursor, Stop, Str};

#[derive(Default)]
struct Seen<'a> {
    kind: Option<Str<'a>>,
    /// `delta` is not empty.
    delta: bool,
    /// An added item is a call.
    call: bool,
    status: Option<Str<'a>>,
    /// `incomplete_details.reason`.
    incomplete: Option<Str<'a>>,
}

/// One event of a stream, or a whole answer.
pub(super) fn read<'a>(c: &mut Cursor<'a>, look: &mut Look<'a>) -> Result<(), Stop> {
    let mut seen = Seen::default();
    let result = members(c, look, &mut seen);
    if look.whole {
        decide_answer(look, &seen)
    } else {
        decide_event(look, &seen)
    }
    result
}

fn members<'a>(c: &mut Cursor<'a>, look: &mut Look<'a>, seen: &mut Seen<'a>) -> Result<(), Stop> {
    c.object(|key, c| {
        match key {
            b"type" => seen.kind = c.string()?,
            b"delta" => seen.delta = c.truthy()?,
            b"item" => {
                c.object(|key, c| {
                    if key == b"type" {
                        seen.call = c.string()?.is_some_and(is_call);
                    }
                    Ok(())
                })?;
            }
            b"response" => {
                c.object(|key, c| response(key, c, look, seen))?;
            }
            _ => response(key, c, look, seen)?,
        }
        Ok(())
    })?;
    Ok(())
}

/// A member of the response object.
fn response<'a>(
    key: &[u8],
    c: &mut Cursor<'a>,
    look: &mut Look<'a>,
    seen: &mut Seen<'a>,
) -> Result<(), Stop> {
    match key {
        b"model" => {
            look.model(c)?;
        }
        b"status" => seen.status = c.string()?,
        b"usage" => look.usage(c, b"input_tokens", &[b"output_tokens"])?,
        b"incomplete_details" => {
            c.object(|key, c| {
                if key == b"reason" {
                    seen.incomplete = c.string()?;
                }
                Ok(())
            })?;
        }
        b"output" => {
            look.trouble.answers = true;
            // In a stream, what `output` repeats came as deltas before.
            if look.whole {
                c.array(|c| item(c, look))?;
            }
        }
        _ => look.trouble.member(key, c)?,
    }
    Ok(())
}

/// One item of a whole answer's `output`.
fn item<'a>(c: &mut Cursor<'a>, look: &mut Look<'a>) -> Result<(), Stop> {
    let mut kind = None;
    let mut words = false;
    let result = c.object(|key, c| {
        match key {
            b"type" => kind = c.string()?,
            b"content" | b"summary" => {
                c.array(|c| {
                    c.object(|key, c| {
                        if matches!(key, b"text" | b"refusal" | b"transcript") {
                            words |= c.truthy()?;
                        }
                        Ok(())
                    })?;
                    Ok(())
                })?;
            }
            _ => {}
        }
        Ok(())
    });
    match kind {
        Some(kind) if kind.is(b"reasoning") => look.facts.thinking |= words,
        Some(kind) => look.facts.content |= words || is_call(kind),
        None => look.facts.content |= words,
    }
    result.map(|_| ())
}

/// A function's call, or a hosted tool's: `function_call`, `web_search_call`, `mcp_call`, …
fn is_call(kind: Str<'_>) -> bool {
    kind.whole && kind.raw.ends_with(b"_call")
}

fn decide_event(look: &mut Look<'_>, seen: &Seen<'_>) {
    let kind = match seen.kind {
        Some(kind) if kind.whole => kind.raw,
        Some(_) => return,
        None => look.name,
    };
    match kind {
        b"error" => look.trouble.certain = true,
        b"response.failed" | b"response.cancelled" => {
            look.facts.done = true;
            look.fail(Cause::ErrorInStream);
        }
        b"response.completed" => {
            look.facts.done = true;
            look.facts.finish = Some(Finish::Stop);
        }
        b"response.incomplete" => {
            look.facts.done = true;
            look.facts.finish = Some(incomplete(seen));
        }
        b"response.output_item.added" => look.facts.content |= seen.call,
        _ if kind.ends_with(b".delta") => {
            let thinking = kind.starts_with(b"response.reasoning");
            look.facts.thinking |= seen.delta && thinking;
            look.facts.content |= seen.delta && !thinking;
        }
        _ => {}
    }
}

fn decide_answer(look: &mut Look<'_>, seen: &Seen<'_>) {
    match seen.status.map(|status| status.raw) {
        Some(b"completed") => look.facts.finish = Some(Finish::Stop),
        Some(b"incomplete") => look.facts.finish = Some(incomplete(seen)),
        Some(b"failed" | b"cancelled") => look.fail(Cause::ErrorInStream),
        _ => {}
    }
}

fn incomplete(seen: &Seen<'_>) -> Finish {
    match seen.incomplete.map(|reason| reason.raw) {
        Some(b"content_filter") => Finish::Filtered,
        _ => Finish::Length,
    }
}
