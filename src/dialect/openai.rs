//! OpenAI chat and completions as everybody speaks them, embeddings, and llama.cpp's `/completion`.

use std::ops::Range;

use super::event::{Finish, Progress, Usage};
use super::inspect::Look;
use crate::cause::Cause;
use crate::wire::json::{Cursor, Stop, Str};

/// What only the whole frame can tell.
#[derive(Default)]
struct Seen {
    /// It has an `id` or a `model` that is not empty.
    named: bool,
    empty_model: bool,
    fp_ollama: bool,
    /// `choices` is there, with so many.
    choices: Option<usize>,
    /// llama.cpp's `/completion`: top-level `content`, `stop`, `stop_type`.
    bare_content: bool,
    bare_stop: bool,
    bare_limit: bool,
    choices_at: Range<usize>,
    usage_at: Range<usize>,
}

/// One frame of a stream, or a whole answer.
pub(super) fn read<'a>(c: &mut Cursor<'a>, look: &mut Look<'a>) -> Result<(), Stop> {
    let mut seen = Seen::default();
    let result = members(c, look, &mut seen);
    decide(look, &seen);
    result
}

fn members<'a>(c: &mut Cursor<'a>, look: &mut Look<'a>, seen: &mut Seen) -> Result<(), Stop> {
    c.object(|key, c| {
        match key {
            b"id" => seen.named |= c.string()?.is_some_and(|id| !id.raw.is_empty()),
            b"model" => {
                if let Some(model) = look.model(c)? {
                    seen.named |= !model.raw.is_empty();
                    seen.empty_model = model.is(b"");
                }
            }
            b"system_fingerprint" => {
                let (at, fingerprint) = (c.at(), c.string()?);
                seen.fp_ollama = fingerprint.is_some_and(|fp| fp.is(b"fp_ollama"));
                if fingerprint.is_some_and(|fp| !fp.raw.is_empty()) {
                    look.facts.besides ^= hash(key, c.since(at));
                }
            }
            b"choices" => {
                let at = c.at();
                seen.choices = Some(0);
                c.array(|c| {
                    seen.choices = seen.choices.map(|count| count + 1);
                    choice(c, look)
                })?;
                seen.choices_at = at..c.at();
            }
            b"usage" => {
                let at = c.at();
                if c.peek()? == b'n' {
                    look.facts.usage_null = Some(c.value()?);
                } else {
                    look.usage(c, b"prompt_tokens", &[b"completion_tokens"])?;
                    seen.usage_at = at..c.at();
                }
            }
            // Padding, other bytes in each frame.
            b"obfuscation" | b"created" => c.skip()?,
            // llama.cpp's own count, unasked; `usage` says the same and more where it is there.
            b"timings" => {
                let counted = usage(c, b"prompt_n", &[b"predicted_n"])?;
                look.facts.usage = look.facts.usage.or(counted);
            }
            b"prompt_progress" => progress(c, look)?,
            b"data" => embeddings(c, look)?,
            b"content" => seen.bare_content = c.truthy()?,
            b"stop" => seen.bare_stop = c.is_true()?,
            b"stop_type" => seen.bare_limit = c.string()?.is_some_and(|kind| kind.is(b"limit")),
            _ => {
                let at = c.at();
                look.trouble.member(key, c)?;
                if c.at() == at {
                    c.skip()?;
                }
                let value = c.since(at);
                if key != b"object" && value != b"null" {
                    look.facts.besides ^= hash(key, value);
                }
            }
        }
        Ok(())
    })?;
    Ok(())
}

/// A member as one number that is not 0, in which its place among others does not show (FNV-1a).
fn hash(key: &[u8], value: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    key.iter().chain(b":").chain(value).fold(0xcbf2_9ce4_8422_2325, step) | 1
}

fn decide(look: &mut Look<'_>, seen: &Seen) {
    look.trouble.answers = seen.choices.is_some();
    let facts = &mut look.facts;
    facts.nameless = seen.empty_model && seen.fp_ollama;
    if seen.choices.is_none() {
        facts.content |= seen.bare_content;
        if seen.bare_stop {
            facts.done = true;
            facts.finish = Some(if seen.bare_limit { Finish::Length } else { Finish::Stop });
        }
    }
    if facts.thinking && !seen.named && !look.whole {
        facts.thinking = false;
        facts.anonymous_thinking = true;
    }
    facts.usage_only =
        seen.choices == Some(0) && facts.usage.is_some() && facts.progress.is_none() && !facts.content;
    let both = facts.usage_only && !seen.usage_at.is_empty();
    facts.usage_only_at = both.then(|| [seen.choices_at.clone(), seen.usage_at.clone()]);
}

fn choice<'a>(c: &mut Cursor<'a>, look: &mut Look<'a>) -> Result<(), Stop> {
    let (mut index, mut ended) = (0, false);
    c.object(|key, c| {
        match key {
            b"index" => index = c.number()?.unwrap_or(0),
            b"delta" | b"message" => delta(c, look)?,
            b"text" => look.facts.content |= look.token(c)?,
            b"finish_reason" => {
                if let Some(reason) = c.string()? {
                    ended = !reason.raw.is_empty();
                    look.facts.reason = (ended && reason.whole).then(|| reason.quoted());
                    finish(look, reason);
                }
            }
            _ => {}
        }
        Ok(())
    })?;
    let bit = 1 << index.min(63);
    look.facts.choices |= bit;
    look.facts.ended |= if ended { bit } else { 0 };
    Ok(())
}

fn delta<'a>(c: &mut Cursor<'a>, look: &mut Look<'a>) -> Result<(), Stop> {
    c.object(|key, c| {
        match key {
            // `images`: OpenRouter's generated pictures.
            b"content" | b"refusal" | b"images" => look.facts.content |= look.token(c)?,
            b"reasoning_content" | b"reasoning" | b"reasoning_details" => {
                look.facts.thinking |= look.token(c)?
            }
            b"tool_calls" => {
                c.array(|c| {
                    c.object(|key, c| {
                        if matches!(key, b"function" | b"custom") {
                            look.more();
                            call(c, look)?;
                        }
                        Ok(())
                    })?;
                    Ok(())
                })?;
            }
            b"function_call" => {
                look.more();
                call(c, look)?;
            }
            b"audio" => {
                c.object(|key, c| {
                    if matches!(key, b"data" | b"transcript") {
                        look.more();
                        look.facts.content |= c.truthy()?;
                    }
                    Ok(())
                })?;
            }
            _ => {}
        }
        Ok(())
    })?;
    Ok(())
}

/// A call counts once it names its function or has arguments.
fn call<'a>(c: &mut Cursor<'a>, look: &mut Look<'a>) -> Result<(), Stop> {
    c.object(|key, c| {
        if matches!(key, b"name" | b"arguments" | b"input") {
            look.facts.content |= c.truthy()?;
        }
        Ok(())
    })?;
    Ok(())
}

fn finish(look: &mut Look<'_>, reason: Str<'_>) {
    let finish = match reason.raw {
        b"" => return,
        b"length" | b"max_tokens" => Finish::Length,
        b"content_filter" => Finish::Filtered,
        b"error" | b"abort" => return look.fail(Cause::ErrorInStream),
        // DeepSeek's.
        b"insufficient_system_resource" => return look.fail(Cause::Overloaded),
        _ => Finish::Stop,
    };
    look.facts.finish = Some(finish);
}

fn progress<'a>(c: &mut Cursor<'a>, look: &mut Look<'a>) -> Result<(), Stop> {
    let mut progress = Progress { processed: 0, total: 0 };
    let known = c.object(|key, c| {
        match key {
            b"processed" => progress.processed = c.number()?.unwrap_or(0),
            b"total" => progress.total = c.number()?.unwrap_or(0),
            _ => {}
        }
        Ok(())
    })?;
    if known {
        look.facts.progress = Some(progress);
    }
    Ok(())
}

fn embeddings<'a>(c: &mut Cursor<'a>, look: &mut Look<'a>) -> Result<(), Stop> {
    if c.peek()? != b'[' {
        // SiliconFlow's flat error has `"data":null`.
        return c.skip();
    }
    c.array(|c| {
        c.object(|key, c| {
            if key == b"embedding" {
                look.trouble.answers = true;
                look.facts.content |= c.truthy()?;
            }
            Ok(())
        })?;
        Ok(())
    })?;
    Ok(())
}

/// Counts in OpenAI's shape; several keys add up to the completion.
pub(super) fn usage(c: &mut Cursor<'_>, prompt: &[u8], completion: &[&[u8]]) -> Result<Option<Usage>, Stop> {
    let mut usage = Usage::default();
    let known = c.object(|key, c| {
        if key == prompt {
            usage.prompt = c.number()?;
        } else if completion.contains(&key)
            && let Some(count) = c.number()?
        {
            usage.completion = Some(usage.completion.unwrap_or(0).saturating_add(count));
        }
        Ok(())
    })?;
    Ok(known.then_some(usage))
}
