//! A JSON value that was checked once, and looked into without a copy.

use crate::wire::json::Cursor;

/// A value of good JSON, nested no deeper than [`crate::limits::JSON_DEPTH_MAX`]. Reading it again and again is
/// linear in its length each time: frames are short.
#[derive(Clone, Copy, Debug)]
pub(super) struct View<'a>(&'a [u8]);

impl<'a> View<'a> {
    /// Nothing: has no members, no elements, no text.
    pub(super) const NOTHING: View<'static> = View(b"null");

    /// One value with nothing but white space around it.
    pub(super) fn new(bytes: &'a [u8]) -> Option<Self> {
        let mut cursor = Cursor::new(bytes);
        let at = cursor.value().ok()?;
        cursor.finish().ok()?;
        bytes.get(at).map(View)
    }

    /// As it stands.
    pub(super) const fn raw(self) -> &'a [u8] {
        self.0
    }

    /// An object's member; the last of several; [`View::NOTHING`] without one.
    pub(super) fn get(self, name: &str) -> View<'a> {
        let mut found = View::NOTHING;
        let _checked = Cursor::new(self.0).object(|key, cursor| {
            if key == name.as_bytes() {
                let at = cursor.value()?;
                found = self.0.get(at).map_or(View::NOTHING, View);
            }
            Ok(())
        });
        found
    }

    /// Each element of an array.
    pub(super) fn each(self, element: &mut dyn FnMut(View<'a>)) {
        let _checked = Cursor::new(self.0).array(|cursor| {
            let at = cursor.value()?;
            element(self.0.get(at).map_or(View::NOTHING, View));
            Ok(())
        });
    }

    /// A string's inside, escapes kept; empty for anything else.
    pub(super) fn inside(self) -> &'a [u8] {
        self.0.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")).unwrap_or_default()
    }

    /// A string that is whole in itself; empty for anything else. What is no text in it is replaced.
    pub(super) fn text(self) -> String {
        super::text::whole(self.inside())
    }

    /// A string with these words, unescaped.
    pub(super) fn is(self, words: &str) -> bool {
        self.is_string() && self.inside() == words.as_bytes()
    }

    pub(super) fn is_string(self) -> bool {
        self.0.starts_with(b"\"")
    }

    pub(super) fn is_object(self) -> bool {
        self.0.starts_with(b"{")
    }

    pub(super) fn is_array(self) -> bool {
        self.0.starts_with(b"[")
    }

    pub(super) fn is_true(self) -> bool {
        self.0 == b"true"
    }

    pub(super) fn is_null(self) -> bool {
        self.0 == b"null"
    }

    /// An object or an array with something in it.
    pub(super) fn is_filled(self) -> bool {
        (self.is_object() || self.is_array())
            && self.0.get(1..self.0.len() - 1).is_some_and(|inside| !inside.trim_ascii().is_empty())
    }

    /// A whole number that fits.
    pub(super) fn number(self) -> Option<u64> {
        std::str::from_utf8(self.0).ok()?.parse().ok()
    }
}
