//! One server-sent event: its name, its data, and what in it is no SSE at all.

use std::ops::Range;

use memchr::{memchr, memchr2};

/// What one complete raw event says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SseEvent<'a> {
    /// The last `event:` field's value; empty when there is none.
    pub name: &'a [u8],
    /// The `data:` lines' values, joined by LF. `None`: no such line.
    pub data: Option<&'a [u8]>,
    /// Where `data` is in the raw event; `None` when it had to be joined.
    pub data_at: Option<Range<usize>>,
    /// It has comment lines.
    pub comments: bool,
    /// It has fields: `data`, `event`, `id` or `retry`.
    pub fields: bool,
    /// Lines that are no SSE field: from the first one's first byte to the last one's last.
    /// A field name that SSE does not know is ignored by browsers, but here it is bare JSON,
    /// HTML, or `proxy error: …` in a body that promised events.
    pub stray: Option<Range<usize>>,
}

impl SseEvent<'_> {
    /// Only comments: a sign of life that says nothing.
    #[must_use]
    pub const fn comment_only(&self) -> bool {
        self.comments && !self.fields && self.stray.is_none()
    }

    /// Nothing at all: blank lines.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        !self.comments && !self.fields && self.stray.is_none()
    }
}

/// The `join` buffer is too small for the event's data. A buffer as long as the event never is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JoinFull;

/// Reads one raw event, as [`super::Splitter`] marks it off; the last one of a stream may lack its
/// blank line, or its line end. Data on several lines is joined in `join`; on one line it is
/// borrowed from `raw`. A byte order mark at the beginning is skipped.
///
/// # Errors
/// [`JoinFull`] when data on several lines is longer than `join`.
pub fn parse<'a>(raw: &'a [u8], join: &'a mut [u8]) -> Result<SseEvent<'a>, JoinFull> {
    let mut event = SseEvent::default();
    let mut joined = None;
    for line in lines(raw) {
        match field(raw, &line) {
            Field::Blank => continue,
            Field::Comment => {
                event.comments = true;
                continue;
            }
            Field::Stray => {
                let start = event.stray.as_ref().map_or(line.start, |stray| stray.start);
                event.stray = Some(start..line.end);
                continue;
            }
            Field::Event(value) => event.name = &raw[value],
            Field::Other => {}
            Field::Data(value) => match (&event.data_at, joined) {
                (None, None) => event.data_at = Some(value),
                (Some(first), None) => {
                    let len = append(join, 0, &raw[first.clone()])?;
                    let len = append(join, len, b"\n")?;
                    joined = Some(append(join, len, &raw[value])?);
                    event.data_at = None;
                }
                (_, Some(len)) => {
                    let len = append(join, len, b"\n")?;
                    joined = Some(append(join, len, &raw[value])?);
                }
            },
        }
        event.fields = true;
    }
    event.data = match joined {
        Some(len) => join.get(..len),
        None => event.data_at.clone().map(|at| &raw[at]),
    };
    Ok(event)
}

/// Where the first `data:` line's value is, and the event's name as far as it was given before:
/// all that can be read of an event that is not whole.
#[must_use]
pub fn first_data(raw: &[u8]) -> (&[u8], Option<Range<usize>>) {
    let mut name: &[u8] = b"";
    for line in lines(raw) {
        match field(raw, &line) {
            Field::Event(value) => name = &raw[value],
            Field::Data(value) => return (name, Some(value)),
            Field::Blank | Field::Comment | Field::Stray | Field::Other => {}
        }
    }
    (name, None)
}

/// The parts of a raw event that are no comment lines, in order: what of a held event is released.
/// An event of comments alone gives nothing.
pub fn without_comments(raw: &[u8]) -> impl Iterator<Item = Range<usize>> + '_ {
    let mut comments = false;
    let mut substance = false;
    for line in lines(raw) {
        match field(raw, &line) {
            Field::Blank => {}
            Field::Comment => comments = true,
            Field::Stray | Field::Event(_) | Field::Data(_) | Field::Other => substance = true,
        }
    }
    Kept { raw, at: if comments && !substance { raw.len() } else { 0 }, last: None }
}

struct Kept<'a> {
    raw: &'a [u8],
    at: usize,
    /// The last byte given.
    last: Option<u8>,
}

impl Iterator for Kept<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        let mut kept: Option<Range<usize>> = None;
        while let Some(line) = line_at(self.raw, self.at) {
            if matches!(field(self.raw, &line), Field::Comment) {
                if kept.is_some() {
                    break;
                }
            } else {
                // A comment that stood between a CR and an LF must leave its own LF there, or
                // two line ends would become one.
                let glued = kept.is_none()
                    && self.last == Some(b'\r')
                    && line.start > 0
                    && self.raw.get(line.start) == Some(&b'\n');
                let start = kept.map_or(line.start - usize::from(glued), |kept| kept.start);
                kept = Some(start..line.next);
            }
            self.at = line.next;
        }
        if let Some(kept) = &kept {
            self.last = self.raw.get(kept.end - 1).copied();
        }
        kept
    }
}

enum Field {
    Blank,
    Comment,
    Data(Range<usize>),
    Event(Range<usize>),
    /// `id` or `retry`: known, and of no use here.
    Other,
    Stray,
}

/// A line: its text is `start..end`, the next one begins at `next`.
struct Line {
    start: usize,
    end: usize,
    next: usize,
}

fn lines(raw: &[u8]) -> impl Iterator<Item = Line> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        let line = line_at(raw, at)?;
        at = line.next;
        Some(line)
    })
}

fn line_at(raw: &[u8], start: usize) -> Option<Line> {
    let rest = raw.get(start..).filter(|rest| !rest.is_empty())?;
    let Some(len) = memchr2(b'\n', b'\r', rest) else {
        return Some(Line { start, end: raw.len(), next: raw.len() });
    };
    let crlf = rest.get(len..len + 2) == Some(b"\r\n");
    Some(Line { start, end: start + len, next: start + len + 1 + usize::from(crlf) })
}

fn field(raw: &[u8], line: &Line) -> Field {
    let mut start = line.start;
    if start == 0 && raw.starts_with(b"\xEF\xBB\xBF") {
        start = 3;
    }
    let text = raw.get(start..line.end).unwrap_or_default();
    let Some(first) = text.first() else { return Field::Blank };
    if *first == b':' {
        return Field::Comment;
    }
    let colon = memchr(b':', text.get(..6).unwrap_or(text)).unwrap_or(text.len());
    let mut value = start + colon;
    if text.get(colon) == Some(&b':') {
        value += 1 + usize::from(text.get(colon + 1) == Some(&b' '));
    }
    match text.get(..colon).unwrap_or_default() {
        b"data" => Field::Data(value..line.end),
        b"event" => Field::Event(value..line.end),
        b"id" | b"retry" => Field::Other,
        _ => Field::Stray,
    }
}

fn append(join: &mut [u8], at: usize, bytes: &[u8]) -> Result<usize, JoinFull> {
    let end = at + bytes.len();
    join.get_mut(at..end).ok_or(JoinFull)?.copy_from_slice(bytes);
    Ok(end)
}

#[cfg(test)]
mod tests;
