//! A long text of a body: a slice of it, where it stands there as it is.

use std::fmt;
use std::ops::Deref;

use bytes::Bytes;

/// A text that may be a picture of many megabytes: it shares the body's memory where the body has it without escapes.
#[derive(Clone)]
pub struct Text(Held);

#[derive(Clone)]
enum Held {
    Own(String),
    /// UTF-8.
    Slice(Bytes),
}

impl Text {
    /// A part of `body`, if `part` is one.
    pub(super) fn slice(body: &Bytes, part: &str) -> Option<Text> {
        let start = (part.as_ptr() as usize).checked_sub(body.as_ptr() as usize)?;
        let end = start.checked_add(part.len())?;
        (end <= body.len()).then(|| Text(Held::Slice(body.slice(start..end))))
    }

    /// What comes from this byte on; all of it, if no character begins there.
    pub(super) fn from(self, at: usize) -> Text {
        // Not by looking at the text, all of which is checked each time.
        if self.bytes().get(at).is_some_and(|byte| byte & 0xC0 == 0x80) {
            return self;
        }
        Text(match self.0 {
            Held::Own(text) => Held::Own(text.get(at..).unwrap_or_default().to_owned()),
            Held::Slice(bytes) => Held::Slice(bytes.slice(at.min(bytes.len())..)),
        })
    }

    /// Its bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        match &self.0 {
            Held::Own(text) => text.as_bytes(),
            Held::Slice(bytes) => bytes,
        }
    }

    /// As a text of its own.
    #[must_use]
    pub fn into_string(self) -> String {
        match self.0 {
            Held::Own(text) => text,
            Held::Slice(_) => (*self).to_owned(),
        }
    }
}

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        match &self.0 {
            Held::Own(text) => text,
            // It was found to be UTF-8 when it was parsed.
            Held::Slice(bytes) => std::str::from_utf8(bytes).unwrap_or_default(),
        }
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Text(Held::Own(text))
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl PartialEq for Text {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}
