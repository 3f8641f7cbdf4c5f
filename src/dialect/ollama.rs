//! Ollama's own API: a line of a stream and a whole answer have one shape.

use super::event::{Finish, Usage};
use super::inspect::Look;
use crate::wire::json::{Cursor, Stop, Str};

#[derive(Default)]
struct Seen<'a> {
    done: bool,
    reason: Option<Str<'a>>,
    prompt: Option<u64>,
    completion: Option<u64>,
}

/// One line, or a whole answer.
pub(super) fn read<'a>(c: &mut Cursor<'a>, look: &mut Look<'a>) -> Result<(), Stop> {
    let mut seen = Seen::default();
    let result = members(c, look, &mut seen);
    if seen.done {
        look.facts.done = true;
        look.facts.finish = Some(match seen.reason.map(|reason| reason.raw) {
            Some(b"length") => Finish::Length,
            Some(b"load" | b"unload") => Finish::Loaded,
            _ => Finish::Stop,
        });
        // Both are left out when 0.
        look.facts.usage =
            Some(Usage { prompt: seen.prompt.or(Some(0)), completion: seen.completion.or(Some(0)) });
    }
    result
}

fn members<'a>(c: &mut Cursor<'a>, look: &mut Look<'a>, seen: &mut Seen<'a>) -> Result<(), Stop> {
    c.object(|key, c| {
        match key {
            b"model" => {
                look.model(c)?;
            }
            b"message" if c.peek()? == b'{' => {
                look.trouble.answers = true;
                c.object(|key, c| words(key, c, look))?;
            }
            b"response" | b"thinking" | b"image" | b"images" => words(key, c, look)?,
            // Of /api/embed and /api/embeddings.
            b"embeddings" | b"embedding" => look.facts.content |= c.truthy()?,
            b"done" => seen.done = c.is_true()?,
            b"done_reason" => seen.reason = c.string()?,
            b"prompt_eval_count" => seen.prompt = c.number()?,
            b"eval_count" => seen.completion = c.number()?,
            _ => look.trouble.member(key, c)?,
        }
        Ok(())
    })?;
    Ok(())
}

fn words<'a>(key: &[u8], c: &mut Cursor<'a>, look: &mut Look<'a>) -> Result<(), Stop> {
    match key {
        b"content" | b"response" | b"tool_calls" | b"image" | b"images" => {
            look.facts.content |= c.truthy()?
        }
        b"thinking" => look.facts.thinking |= c.truthy()?,
        _ => {}
    }
    Ok(())
}
