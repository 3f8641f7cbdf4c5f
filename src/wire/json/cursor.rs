//! A pull reader of JSON that allocates nothing, recurses nowhere, and can be cut at any byte.
//!
//! serde_json would do but for two things: it allocates on every string with an escape and on
//! nested values it skips, and it says nothing about a text that is cut. Here a reader sees each
//! member as it passes, so what came before a cut, or before a fault, is known.
//!
//! It is lenient where clients are: invalid UTF-8, raw control characters and lone surrogates in
//! strings pass; duplicate keys are each shown, in order; escaped keys are shown escaped.

use std::borrow::Cow;
use std::ops::Range;

use memchr::memchr2;

use crate::limits::JSON_DEPTH_MAX;

// Each open level is one bit of a u128.
const _: () = assert!(JSON_DEPTH_MAX < 128);

/// Why reading ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Not JSON.
    Bad,
    /// The text ends within a value: it may be the beginning of good JSON.
    End,
    /// Nested deeper than [`JSON_DEPTH_MAX`].
    TooDeep,
}

/// A JSON string as it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Str<'a> {
    /// Between the quotes, escapes as they stand.
    pub raw: &'a [u8],
    /// Where `raw` begins in the text.
    pub at: usize,
    /// False when the text ended before the closing quote.
    pub whole: bool,
}

impl Str<'_> {
    /// Whether it is, whole and unescaped, `text`.
    #[must_use]
    pub fn is(&self, text: &[u8]) -> bool {
        self.whole && self.raw == text
    }

    /// Where it is in the text, without its quotes.
    #[must_use]
    pub const fn inside(&self) -> Range<usize> {
        self.at..self.at + self.raw.len()
    }

    /// Where it is in the text, quotes included. Meaningful for a whole string.
    #[must_use]
    pub const fn quoted(&self) -> Range<usize> {
        self.at - 1..self.at + self.raw.len() + 1
    }
}

/// Whether a key as the cursor shows it (escapes kept) decodes to `name`.
#[must_use]
pub fn key_is(raw: &[u8], name: &str) -> bool {
    if !raw.contains(&b'\\') {
        return raw == name.as_bytes();
    }
    let quoted = [b"\"", raw, b"\""].concat();
    serde_json::from_slice::<Cow<'_, str>>(&quoted).is_ok_and(|key| key == name)
}

/// A string's inside with its escapes resolved, for a person to read; as it stands where it cannot
/// be, with what is no UTF-8 replaced. Allocates.
#[must_use]
pub fn readable(raw: &[u8]) -> String {
    let quoted = [b"\"", raw, b"\""].concat();
    serde_json::from_slice(&quoted).unwrap_or_else(|_| String::from_utf8_lossy(raw).into_owned())
}

/// A place in a JSON text. Every method takes exactly one value, of whatever type.
#[derive(Clone, Debug)]
pub struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    depth: usize,
}

impl<'a> Cursor<'a> {
    /// At the beginning of `bytes`.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Cursor { bytes, at: 0, depth: 0 }
    }

    /// Where it is: the next unread byte.
    #[must_use]
    pub const fn at(&self) -> usize {
        self.at
    }

    /// What was read since it was at `start`.
    #[must_use]
    pub fn since(&self, start: usize) -> &'a [u8] {
        self.bytes.get(start..self.at).unwrap_or_default()
    }

    /// The next byte that is no white space, not taken; a value's first one tells its type.
    ///
    /// # Errors
    /// [`Stop::End`] when there is none.
    pub fn peek(&mut self) -> Result<u8, Stop> {
        loop {
            match self.bytes.get(self.at) {
                Some(b' ' | b'\n' | b'\r' | b'\t') => self.at += 1,
                Some(byte) => return Ok(*byte),
                None => return Err(Stop::End),
            }
        }
    }

    /// Nothing but white space is left.
    ///
    /// # Errors
    /// [`Stop::Bad`] when something is.
    pub fn finish(&mut self) -> Result<(), Stop> {
        match self.peek() {
            Err(Stop::End) => Ok(()),
            _ => Err(Stop::Bad),
        }
    }

    /// Shows each member of an object: its key and the cursor at its value, which `member` may take
    /// or leave. Any other value is skipped; `false` says so.
    ///
    /// # Errors
    /// When the text is not JSON, ends, or nests too deep; or what `member` gave.
    pub fn object<F>(&mut self, mut member: F) -> Result<bool, Stop>
    where
        F: FnMut(&'a [u8], &mut Self) -> Result<(), Stop>,
    {
        if self.peek()? != b'{' {
            self.skip()?;
            return Ok(false);
        }
        self.open()?;
        if self.peek()? == b'}' {
            self.close();
            return Ok(true);
        }
        loop {
            let key = self.key()?;
            self.peek()?;
            let start = self.at;
            member(key, self)?;
            if self.at == start {
                self.skip()?;
            }
            match self.peek()? {
                b',' => self.at += 1,
                b'}' => {
                    self.close();
                    return Ok(true);
                }
                _ => return Err(Stop::Bad),
            }
        }
    }

    /// Shows each element of an array, as [`Cursor::object`] does members.
    ///
    /// # Errors
    /// As [`Cursor::object`].
    pub fn array<F>(&mut self, mut element: F) -> Result<bool, Stop>
    where
        F: FnMut(&mut Self) -> Result<(), Stop>,
    {
        if self.peek()? != b'[' {
            self.skip()?;
            return Ok(false);
        }
        self.open()?;
        if self.peek()? == b']' {
            self.close();
            return Ok(true);
        }
        loop {
            self.peek()?;
            let start = self.at;
            element(self)?;
            if self.at == start {
                self.skip()?;
            }
            match self.peek()? {
                b',' => self.at += 1,
                b']' => {
                    self.close();
                    return Ok(true);
                }
                _ => return Err(Stop::Bad),
            }
        }
    }

    /// A string; `None` for any other value, which is skipped. A string that the text's end cuts is
    /// given as far as it goes; what is read next then is [`Stop::End`].
    ///
    /// # Errors
    /// When the text is not JSON, ends, or nests too deep.
    pub fn string(&mut self) -> Result<Option<Str<'a>>, Stop> {
        if self.peek()? != b'"' {
            self.skip()?;
            return Ok(None);
        }
        self.quoted().map(Some)
    }

    /// A whole number that fits; `None` for any other value, which is skipped.
    ///
    /// # Errors
    /// As [`Cursor::string`].
    pub fn number(&mut self) -> Result<Option<u64>, Stop> {
        let range = self.value()?;
        let digits = self.bytes.get(range).and_then(|raw| std::str::from_utf8(raw).ok());
        Ok(digits.and_then(|digits| digits.parse().ok()))
    }

    /// `true`; any other value is skipped.
    ///
    /// # Errors
    /// As [`Cursor::string`].
    pub fn is_true(&mut self) -> Result<bool, Stop> {
        let range = self.value()?;
        Ok(self.bytes.get(range) == Some(b"true"))
    }

    /// Whether a value says anything: not `null`, `false`, `0`, `""`, `[]` or `{}`. A cut one does
    /// as soon as anything of its content was seen.
    ///
    /// # Errors
    /// As [`Cursor::string`].
    pub fn truthy(&mut self) -> Result<bool, Stop> {
        match self.peek()? {
            b'"' => Ok(!self.quoted()?.raw.is_empty()),
            b'{' | b'[' => {
                let mut inner = self.clone();
                inner.at += 1;
                let some = !matches!(inner.peek(), Ok(b'}' | b']') | Err(_));
                match self.skip() {
                    Err(Stop::End) if some => {
                        self.at = self.bytes.len();
                        Ok(true)
                    }
                    result => result.map(|()| some),
                }
            }
            _ => {
                let range = self.value()?;
                Ok(!matches!(self.bytes.get(range), Some(b"null" | b"false" | b"0")))
            }
        }
    }

    /// Any value: where it is.
    ///
    /// # Errors
    /// As [`Cursor::string`].
    pub fn value(&mut self) -> Result<Range<usize>, Stop> {
        self.peek()?;
        let start = self.at;
        self.skip()?;
        Ok(start..self.at)
    }

    /// Any value, checked and passed over.
    ///
    /// # Errors
    /// As [`Cursor::string`].
    pub fn skip(&mut self) -> Result<(), Stop> {
        let mut objects = 0_u128; // innermost level lowest
        let mut levels = 0_usize;
        loop {
            let first = self.peek()?;
            match first {
                b'{' | b'[' => {
                    self.room(levels)?;
                    self.at += 1;
                    if matches!((first, self.peek()?), (b'{', b'}') | (b'[', b']')) {
                        self.at += 1;
                    } else {
                        levels += 1;
                        objects = objects << 1 | u128::from(first == b'{');
                        if first == b'{' {
                            self.key()?;
                        }
                        continue;
                    }
                }
                b'"' => {
                    if !self.quoted()?.whole {
                        return Err(Stop::End);
                    }
                }
                b't' => self.literal(b"true")?,
                b'f' => self.literal(b"false")?,
                b'n' => self.literal(b"null")?,
                _ => self.numeral()?,
            }
            loop {
                if levels == 0 {
                    return Ok(());
                }
                match (self.peek()?, objects & 1 == 1) {
                    (b',', object) => {
                        self.at += 1;
                        if object {
                            self.key()?;
                        }
                        break;
                    }
                    (b'}', true) | (b']', false) => {
                        self.at += 1;
                        levels -= 1;
                        objects >>= 1;
                    }
                    _ => return Err(Stop::Bad),
                }
            }
        }
    }

    /// Whether one level more may open, within `levels` that are not counted in `depth`.
    fn room(&self, levels: usize) -> Result<(), Stop> {
        if self.depth + levels < JSON_DEPTH_MAX { Ok(()) } else { Err(Stop::TooDeep) }
    }

    fn open(&mut self) -> Result<(), Stop> {
        self.room(0)?;
        self.depth += 1;
        self.at += 1;
        Ok(())
    }

    fn close(&mut self) {
        self.depth -= 1;
        self.at += 1;
    }

    /// A key and its colon.
    fn key(&mut self) -> Result<&'a [u8], Stop> {
        if self.peek()? != b'"' {
            return Err(Stop::Bad);
        }
        let key = self.quoted()?;
        if self.peek()? != b':' {
            return Err(Stop::Bad);
        }
        self.at += 1;
        Ok(key.raw)
    }

    /// A string, at its opening quote.
    fn quoted(&mut self) -> Result<Str<'a>, Stop> {
        let start = self.at + 1;
        let mut at = start;
        loop {
            let rest = self.bytes.get(at..).unwrap_or_default();
            let Some(found) = memchr2(b'"', b'\\', rest) else {
                self.at = self.bytes.len();
                let raw = self.bytes.get(start..).unwrap_or_default();
                return Ok(Str { raw, at: start, whole: false });
            };
            at += found;
            if rest.get(found) == Some(&b'"') {
                self.at = at + 1;
                let raw = self.bytes.get(start..at).unwrap_or_default();
                return Ok(Str { raw, at: start, whole: true });
            }
            at += match self.bytes.get(at + 1) {
                Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => 2,
                Some(b'u') => {
                    let digits = self.bytes.get(at + 2..).unwrap_or_default();
                    if !digits.iter().take(4).all(u8::is_ascii_hexdigit) {
                        return Err(Stop::Bad);
                    }
                    2 + digits.len().min(4)
                }
                Some(_) => return Err(Stop::Bad),
                None => 1,
            };
        }
    }

    fn literal(&mut self, word: &[u8]) -> Result<(), Stop> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        if rest.starts_with(word) {
            self.at += word.len();
            Ok(())
        } else if word.starts_with(rest) {
            Err(Stop::End)
        } else {
            Err(Stop::Bad)
        }
    }

    fn numeral(&mut self) -> Result<(), Stop> {
        if self.bytes.get(self.at) == Some(&b'-') {
            self.at += 1;
        }
        match self.bytes.get(self.at) {
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => self.digits()?,
            Some(_) => return Err(Stop::Bad),
            None => return Err(Stop::End),
        }
        if self.bytes.get(self.at) == Some(&b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.bytes.get(self.at), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.bytes.get(self.at), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(())
    }

    /// One digit or more.
    fn digits(&mut self) -> Result<(), Stop> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        match rest.iter().take_while(|byte| byte.is_ascii_digit()).count() {
            0 if rest.is_empty() => Err(Stop::End),
            0 => Err(Stop::Bad),
            count => {
                self.at += count;
                Ok(())
            }
        }
    }
}
