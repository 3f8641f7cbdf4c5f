//! An error in any of the shapes that servers give it, gathered as a frame is read.

use std::ops::Range;

use super::classify::{Text, classify_text};
use super::event::ErrorFact;
use crate::cause::Cause;
use crate::wire::json::{Cursor, Stop, Str};

/// What a frame has said so far that may be an error. Shapes: WIRE.md 10.2 item 3.
#[derive(Debug, Default)]
pub(super) struct Trouble<'a> {
    /// A shape that is an error whatever else the frame says.
    pub(super) certain: bool,
    /// The frame has what an answer has, so a bare `code` and `message` are no error.
    pub(super) answers: bool,
    /// For a person.
    message: Option<Range<usize>>,
    /// `type`, `code`, `status`: words for machines, matched before the message.
    labels: [Option<Str<'a>>; 3],
    code: Option<u64>,
    flat_code: bool,
    flat_message: bool,
}

impl<'a> Trouble<'a> {
    /// A top-level member that the protocol itself has no use for.
    pub(super) fn member(&mut self, key: &[u8], c: &mut Cursor<'a>) -> Result<(), Stop> {
        match key {
            b"error" => self.error(c)?,
            b"error_message" => self.say(c)?,
            b"error_type" => {
                let label = c.string()?;
                self.certain |= label.is_some_and(|label| !label.raw.is_empty());
                self.label(label);
            }
            b"object" => self.certain |= c.string()?.is_some_and(|object| object.is(b"error")),
            b"type" => {
                let label = c.string()?;
                self.certain |= label.is_some_and(|label| label.is(b"error"));
                self.label(label);
            }
            b"message" | b"detail" => {
                let told = self.message.is_some();
                let text = text(c)?;
                self.flat_message |= text.is_some();
                if !told {
                    self.message = text;
                }
            }
            b"code" => self.flat_code |= self.code(c)?,
            _ => {}
        }
        Ok(())
    }

    /// The value of a member named `error`: a string, an object, anything but nothing.
    pub(super) fn error(&mut self, c: &mut Cursor<'a>) -> Result<(), Stop> {
        match c.peek()? {
            b'{' => {
                c.object(|key, c| {
                    self.certain = true;
                    match key {
                        b"message" | b"msg" | b"detail" => self.say(c)?,
                        b"type" | b"status" => {
                            let label = c.string()?;
                            self.label(label);
                        }
                        b"code" => {
                            self.code(c)?;
                        }
                        _ => {}
                    }
                    Ok(())
                })?;
            }
            _ => self.say(c)?,
        }
        Ok(())
    }

    fn label(&mut self, label: Option<Str<'a>>) {
        if let Some(label) = label
            && !label.is(b"error")
            && let Some(free) = self.labels.iter_mut().find(|free| free.is_none())
        {
            *free = Some(label);
        }
    }

    /// The fact, if there was an error in `bytes`.
    pub(super) fn settle(self, bytes: &[u8]) -> Option<ErrorFact> {
        if !self.certain && (self.answers || !self.flat_code || !self.flat_message) {
            return None;
        }
        let text = self.message.clone().unwrap_or(0..bytes.len());
        Some(ErrorFact { cause: self.cause(bytes, &text), text })
    }

    fn cause(&self, bytes: &[u8], text: &Range<usize>) -> Cause {
        let mut haystack = Text::new();
        for label in self.labels.iter().flatten() {
            haystack.push(label.raw);
        }
        haystack.push(bytes.get(text.clone()).unwrap_or_default());
        classify_text(self.status(), &haystack)
    }

    /// The error's own code where it looks like an HTTP status.
    fn status(&self) -> Option<u16> {
        self.code.and_then(|code| u16::try_from(code).ok()).filter(|code| (400..600).contains(code))
    }

    /// What an error body says: the text for a person, the words for machines.
    pub(super) fn into_parts(self) -> (Option<Range<usize>>, [Option<Str<'a>>; 3]) {
        (self.message, self.labels)
    }

    fn say(&mut self, c: &mut Cursor<'a>) -> Result<(), Stop> {
        if let Some(text) = text(c)? {
            self.certain = true;
            self.message = Some(text);
        }
        Ok(())
    }

    /// A code: a number, or a string that is a number or a word. Whether it is one at all, and not 0.
    fn code(&mut self, c: &mut Cursor<'a>) -> Result<bool, Stop> {
        if c.peek()? != b'"' {
            self.code = c.number()?;
            return Ok(self.code.is_some_and(|code| code != 0));
        }
        let Some(word) = c.string()? else { return Ok(false) };
        match std::str::from_utf8(word.raw).ok().and_then(|word| word.parse().ok()) {
            Some(code) => self.code = Some(code),
            None => self.label(Some(word)),
        }
        Ok(!word.raw.is_empty() && self.code != Some(0))
    }
}

/// A value's text: a string's inside, or the value as it stands; `None` if it says nothing.
fn text(c: &mut Cursor<'_>) -> Result<Option<Range<usize>>, Stop> {
    if c.peek()? == b'"' {
        return Ok(c.string()?.filter(|text| !text.raw.is_empty()).map(|text| text.inside()));
    }
    let start = c.at();
    Ok(c.truthy()?.then(|| start..c.at()))
}
