//! From bytes to facts: one raw event, the beginning of one, one whole answer, the beginning of one.

use std::ops::Range;

use super::classify::classify;
use super::event::{ErrorFact, Facts, Finish, Usage};
use super::trouble::Trouble;
use super::{Dialect, anthropic, gemini, ollama, openai, responses};
use crate::cause::Cause;
use crate::wire::Framing;
use crate::wire::json::{Cursor, Stop, Str};
use crate::wire::sse;

/// A byte order mark, which a stream may begin with.
const MARK: &[u8] = b"\xEF\xBB\xBF";

/// What a frame has said so far; each protocol's reader writes into it.
pub(super) struct Look<'a> {
    pub(super) facts: Facts,
    pub(super) trouble: Trouble<'a>,
    /// A whole answer, not a frame of a stream.
    pub(super) whole: bool,
    /// Values so far that count as tokens.
    pub(super) texts: u32,
    /// The SSE event's name; empty without one.
    pub(super) name: &'a [u8],
}

impl<'a> Look<'a> {
    /// The model's name; where it is becomes a fact.
    pub(super) fn model(&mut self, c: &mut Cursor<'a>) -> Result<Option<Str<'a>>, Stop> {
        let model = c.string()?.filter(|model| model.whole);
        self.facts.model = model.map(|model| model.quoted());
        Ok(model)
    }

    /// Whether a value that counts as a token says anything; a lone string's place becomes a fact.
    pub(super) fn token(&mut self, c: &mut Cursor<'a>) -> Result<bool, Stop> {
        if c.peek()? != b'"' {
            let says = c.truthy()?;
            if says {
                self.more();
            }
            return Ok(says);
        }
        let Some(text) = c.string()? else { return Ok(false) };
        let says = !text.raw.is_empty();
        if says {
            self.texts += 1;
            self.facts.text = (self.texts == 1 && text.whole).then(|| text.inside());
        }
        Ok(says)
    }

    /// Something else than a string counts as a token.
    pub(super) fn more(&mut self) {
        self.texts += 1;
        self.facts.text = None;
    }

    /// Token counts, in a shape of this protocol.
    pub(super) fn usage(
        &mut self,
        c: &mut Cursor<'a>,
        prompt: &[u8],
        completion: &[&[u8]],
    ) -> Result<(), Stop> {
        let usage: Option<Usage> = openai::usage(c, prompt, completion)?;
        self.facts.usage = usage.or(self.facts.usage);
        Ok(())
    }

    /// The engine says that it gave up. An error in the same frame says more, and stands.
    pub(super) fn fail(&mut self, cause: Cause) {
        self.facts.finish = Some(Finish::Failed);
        self.facts.error = Some(ErrorFact { cause, text: 0..0 });
    }

    fn settle(self, bytes: &[u8]) -> Facts {
        let mut facts = self.facts;
        facts.error = match (self.trouble.settle(bytes), facts.error) {
            (Some(told), Some(failed)) if told.cause == Cause::ErrorInStream => {
                Some(ErrorFact { cause: failed.cause, text: told.text })
            }
            (Some(told), _) => Some(told),
            (None, Some(failed)) => Some(ErrorFact { text: 0..bytes.len(), ..failed }),
            (None, None) => None,
        };
        facts
    }
}

/// What one complete raw event of a stream says, as [`crate::wire::Splitter`] marks it off. The last
/// event of a stream may lack its end. `join` is room for data on several lines; as long as `raw`,
/// it always suffices, and where it does not, the event is judged by its first line.
///
/// Ranges in the facts are relative to `raw`. A blank piece, a comment, a ping: no facts.
#[must_use]
pub fn inspect_event(dialect: Dialect, raw: &[u8], join: &mut [u8]) -> Facts {
    match dialect.framing() {
        Framing::Ndjson => line(dialect, raw),
        Framing::Sse => event(dialect, raw, join),
    }
}

/// What the beginning of an event says that is too long to be held whole. Only what is there for
/// certain: a token, an error. `alien` when it cannot be the beginning of this protocol's event.
#[must_use]
pub fn inspect_cut(dialect: Dialect, framing: Framing, start: &[u8]) -> Facts {
    if MARK.starts_with(start) {
        return Facts::default();
    }
    match framing {
        Framing::Ndjson => {
            let text = start.strip_prefix(MARK).unwrap_or(start);
            beginning(dialect, text, b"", false, start.len() - text.len())
        }
        Framing::Sse => match sse::first_data(start) {
            (name, Some(data)) => {
                let text = start.get(data.clone()).unwrap_or_default();
                beginning(dialect, text, name, false, data.start)
            }
            // Comments and the like without end: nothing, and nothing wrong, but for bare text.
            (_, None) => {
                let stray = sse::parse(start, &mut []).ok().and_then(|event| event.stray);
                let text = stray.and_then(|stray| start.get(stray)).unwrap_or_default();
                let a_field_begins = [&b"data"[..], b"event", b"retry", b"id"];
                let alien = !a_field_begins.iter().any(|name| name.starts_with(text));
                Facts { alien, ..Facts::default() }
            }
        },
    }
}

/// Whether an error event is one that this dialect's clients know as one; else edgeward writes its own.
/// llama.cpp sends its own shape on `/v1/messages` and `/v1/responses` (WIRE.md 3.2).
#[must_use]
pub fn is_native_error(dialect: Dialect, raw: &[u8]) -> bool {
    match dialect {
        Dialect::OpenaiChat
        | Dialect::OpenaiCompletions
        | Dialect::OpenaiEmbeddings
        | Dialect::OllamaChat
        | Dialect::OllamaGenerate
        | Dialect::OllamaEmbed
        | Dialect::Gemini => has_key(raw, b"\"error\""),
        Dialect::Anthropic => {
            let (name, _) = sse::first_data(raw);
            name == b"error" && memchr::memmem::find(raw, b"\"type\":\"error\"").is_some()
        }
        Dialect::OpenaiResponses => matches!(sse::first_data(raw).0, b"error" | b"response.failed"),
    }
}

/// Whether a quoted name stands somewhere with a colon after it.
fn has_key(raw: &[u8], name: &[u8]) -> bool {
    memchr::memmem::find_iter(raw, name)
        .any(|at| raw.get(at + name.len()..).is_some_and(|rest| rest.trim_ascii_start().starts_with(b":")))
}

/// The whole member `"name":value` around a value, with the comma that its removal makes superfluous.
/// `None` where the text around is not as JSON has it.
#[must_use]
pub fn member_range(raw: &[u8], value: &Range<usize>) -> Option<Range<usize>> {
    let before = raw.get(..value.start)?.trim_ascii_end().strip_suffix(b":")?.trim_ascii_end();
    let name = before.strip_suffix(b"\"")?;
    let open = memchr::memrchr(b'"', name)?;
    let before = raw.get(..open)?.trim_ascii_end();
    if before.ends_with(b",") {
        return Some(before.len() - 1..value.end);
    }
    let after = raw.get(value.end..)?;
    let blank = after.len() - after.trim_ascii_start().len();
    let comma = usize::from(after.get(blank) == Some(&b','));
    Some(open..value.end + if comma == 1 { blank + 1 } else { 0 })
}

/// What a whole, non-streamed answer with status 200 says. `done` when it is well-formed JSON.
#[must_use]
pub fn inspect_answer(dialect: Dialect, body: &[u8]) -> Facts {
    let (mut facts, result) = read(dialect, body, b"", true);
    match result {
        Ok(()) => facts.done = true,
        Err(_) => facts = Facts { alien: true, error: facts.error, ..Facts::default() },
    }
    facts
}

/// What the beginning of an answer says that is too long to be held whole: sound when neither
/// `alien` nor `error`; tokens are shown as far as they were seen.
#[must_use]
pub fn inspect_answer_prefix(dialect: Dialect, start: &[u8]) -> Facts {
    beginning(dialect, start, b"", true, 0)
}

fn line(dialect: Dialect, raw: &[u8]) -> Facts {
    let text = raw.strip_prefix(MARK).unwrap_or(raw);
    let mut facts = frame(dialect, text, b"");
    facts.blank = text.trim_ascii().is_empty();
    shift(&mut facts, raw.len() - text.len());
    facts
}

fn event(dialect: Dialect, raw: &[u8], join: &mut [u8]) -> Facts {
    let Ok(event) = sse::parse(raw, join) else {
        return inspect_cut(dialect, Framing::Sse, raw);
    };
    let data = event.data.unwrap_or_default().trim_ascii();
    let mut facts = match data {
        b"[DONE]" => Facts { done: is_openai(dialect), ..Facts::default() },
        _ => frame(dialect, data, event.name),
    };
    facts.blank = event.is_empty() || event.comment_only();
    facts.comments = event.comments;
    match &event.data_at {
        Some(at) => {
            let text = raw.get(at.clone()).unwrap_or_default();
            shift(&mut facts, at.start + text.len() - text.trim_ascii_start().len());
        }
        None => {
            facts.model = None;
            facts.usage_null = None;
            facts.usage_only_at = None;
            facts.reason = None;
            facts.text = None;
            facts.error = facts.error.map(|error| ErrorFact { text: 0..raw.len(), ..error });
        }
    }
    match event.name {
        b"error" if facts.error.is_none() => {
            let text = event.data_at.clone().unwrap_or(0..raw.len());
            facts.error = Some(ErrorFact { cause: classify(None, data), text });
        }
        // Whatever a ping's body is, it is no sign of trouble.
        b"ping" | b"heartbeat" | b"keep-alive" if facts.alien => {
            facts = Facts { comments: facts.comments, ..Facts::default() };
        }
        _ => {}
    }
    if let Some(stray) = event.stray {
        judge_stray(dialect, raw, stray, event.data.is_some(), &mut facts);
    }
    facts
}

/// Text in a body that promised events: bare JSON, HTML, a proxy's own words. Beside good data an
/// unknown field is ignored, as browsers do.
fn judge_stray(dialect: Dialect, raw: &[u8], stray: Range<usize>, has_data: bool, facts: &mut Facts) {
    let text = raw.get(stray.clone()).unwrap_or_default();
    let cause = classify(None, text);
    let foreign = matches!(text.first(), Some(b'{' | b'[' | b'"' | b'<')) || cause != Cause::ErrorInStream;
    if has_data && !foreign {
        return;
    }
    facts.alien = true;
    if facts.error.is_none() {
        let (found, _) = read(dialect, text, b"", false);
        facts.error = found.error.map(|mut error| {
            error.text = error.text.start + stray.start..error.text.end + stray.start;
            error
        });
    }
    if facts.error.is_none() && cause != Cause::ErrorInStream {
        facts.error = Some(ErrorFact { cause, text: stray });
    }
}

/// A whole frame; nothing for an empty one.
fn frame(dialect: Dialect, text: &[u8], name: &[u8]) -> Facts {
    if text.trim_ascii().is_empty() {
        return Facts::default();
    }
    match read(dialect, text, name, false) {
        (facts, Ok(())) => facts,
        (facts, Err(_)) => Facts { alien: true, error: facts.error, ..Facts::default() },
    }
}

/// The beginning of a frame or an answer, which stands at `offset` in the bytes looked at.
fn beginning(dialect: Dialect, text: &[u8], name: &[u8], whole: bool, offset: usize) -> Facts {
    let (mut facts, result) = read(dialect, text, name, whole);
    facts.alien = matches!(result, Err(Stop::Bad | Stop::TooDeep));
    shift(&mut facts, offset);
    facts
}

fn read(dialect: Dialect, text: &[u8], name: &[u8], whole: bool) -> (Facts, Result<(), Stop>) {
    let mut c = Cursor::new(text);
    let mut look = Look { facts: Facts::default(), trouble: Trouble::default(), whole, texts: 0, name };
    let result = value(dialect, &mut c, &mut look).and_then(|()| c.finish());
    (look.settle(text), result)
}

/// An object; or an array of them, as Gemini sends its errors.
fn value<'a>(dialect: Dialect, c: &mut Cursor<'a>, look: &mut Look<'a>) -> Result<(), Stop> {
    match c.peek()? {
        b'{' => object(dialect, c, look),
        b'[' => c.array(|c| object(dialect, c, look)).map(|_| ()),
        _ => Err(Stop::Bad),
    }
}

fn object<'a>(dialect: Dialect, c: &mut Cursor<'a>, look: &mut Look<'a>) -> Result<(), Stop> {
    match dialect {
        Dialect::OpenaiChat | Dialect::OpenaiCompletions | Dialect::OpenaiEmbeddings => openai::read(c, look),
        Dialect::OpenaiResponses => responses::read(c, look),
        Dialect::OllamaChat | Dialect::OllamaGenerate | Dialect::OllamaEmbed => ollama::read(c, look),
        Dialect::Anthropic => anthropic::read(c, look),
        Dialect::Gemini => gemini::read(c, look),
    }
}

/// Whose streams end with `[DONE]`; elsewhere it is a stray habit, and no end.
const fn is_openai(dialect: Dialect) -> bool {
    matches!(dialect, Dialect::OpenaiChat | Dialect::OpenaiCompletions | Dialect::OpenaiEmbeddings)
}

fn shift(facts: &mut Facts, by: usize) {
    let move_on = |range: Range<usize>| range.start + by..range.end + by;
    facts.usage_only_at = facts.usage_only_at.take().map(|both| both.map(move_on));
    facts.reason = facts.reason.take().map(move_on);
    facts.model = facts.model.take().map(move_on);
    facts.usage_null = facts.usage_null.take().map(move_on);
    facts.text = facts.text.take().map(move_on);
    if let Some(error) = &mut facts.error {
        error.text = error.text.start + by..error.text.end + by;
    }
}
