//! Google's Gemini API: a chunk of a stream and a whole answer have one shape.

use super::event::Finish;
use super::inspect::Look;
use crate::wire::json::{Cursor, Stop};

/// One chunk, or a whole answer.
pub(super) fn read<'a>(c: &mut Cursor<'a>, look: &mut Look<'a>) -> Result<(), Stop> {
    c.object(|key, c| {
        match key {
            b"modelVersion" => {
                look.model(c)?;
            }
            b"candidates" => {
                look.trouble.answers = true;
                c.array(|c| candidate(c, look))?;
            }
            b"promptFeedback" => feedback(c, look)?,
            b"usageMetadata" => {
                look.usage(c, b"promptTokenCount", &[b"candidatesTokenCount", b"thoughtsTokenCount"])?;
            }
            _ => look.trouble.member(key, c)?,
        }
        Ok(())
    })?;
    Ok(())
}

fn candidate<'a>(c: &mut Cursor<'a>, look: &mut Look<'a>) -> Result<(), Stop> {
    c.object(|key, c| {
        match key {
            b"content" => {
                c.object(|key, c| {
                    if key == b"parts" {
                        c.array(|c| part(c, look))?;
                    }
                    Ok(())
                })?;
            }
            b"finishReason" => {
                if let Some(reason) = c.string()? {
                    look.facts.finish = finish(reason.raw).or(look.facts.finish);
                }
            }
            _ => {}
        }
        Ok(())
    })?;
    Ok(())
}

fn part<'a>(c: &mut Cursor<'a>, look: &mut Look<'a>) -> Result<(), Stop> {
    let mut text = false;
    let mut thought = false;
    let result = c.object(|key, c| {
        match key {
            b"text" => text = c.truthy()?,
            b"thought" => thought = c.is_true()?,
            b"functionCall" | b"inlineData" | b"executableCode" | b"codeExecutionResult" | b"fileData" => {
                look.facts.content |= c.truthy()?;
            }
            _ => {}
        }
        Ok(())
    });
    look.facts.thinking |= text && thought;
    look.facts.content |= text && !thought;
    result.map(|_| ())
}

/// A prompt that was blocked gets this and no candidate: it is the answer, and its end.
fn feedback<'a>(c: &mut Cursor<'a>, look: &mut Look<'a>) -> Result<(), Stop> {
    c.object(|key, c| {
        if key == b"blockReason" && c.truthy()? {
            look.trouble.answers = true;
            look.facts.finish = Some(Finish::Filtered);
            look.facts.done = true;
        }
        Ok(())
    })?;
    Ok(())
}

fn finish(reason: &[u8]) -> Option<Finish> {
    match reason {
        b"" | b"FINISH_REASON_UNSPECIFIED" => None,
        b"MAX_TOKENS" => Some(Finish::Length),
        b"SAFETY"
        | b"RECITATION"
        | b"LANGUAGE"
        | b"BLOCKLIST"
        | b"PROHIBITED_CONTENT"
        | b"SPII"
        | b"IMAGE_SAFETY"
        | b"IMAGE_PROHIBITED_CONTENT"
        | b"IMAGE_RECITATION" => Some(Finish::Filtered),
        // STOP, and what the model itself got wrong (OTHER, MALFORMED_FUNCTION_CALL): its own end.
        _ => Some(Finish::Stop),
    }
}
