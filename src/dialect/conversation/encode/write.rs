//! JSON, written as it is thought of: commas come by themselves.

use serde_json::Number;

use super::super::json::{Json, write_string};

/// A body so far.
#[derive(Default)]
pub(super) struct Out {
    pub(super) body: Vec<u8>,
}

impl Out {
    /// What stands before a value: a comma, unless something was opened or named just now.
    fn next(&mut self) {
        if !matches!(self.body.last(), None | Some(b'{' | b'[' | b':')) {
            self.body.push(b',');
        }
    }

    pub(super) fn open(&mut self, bracket: u8) {
        self.next();
        self.body.push(bracket);
    }

    pub(super) fn close(&mut self, bracket: u8) {
        self.body.push(bracket);
    }

    /// A member's name; its value comes next.
    pub(super) fn member(&mut self, key: &str) -> &mut Self {
        self.next();
        write_string(key, &mut self.body);
        self.body.push(b':');
        self
    }

    pub(super) fn string(&mut self, text: &str) {
        self.next();
        write_string(text, &mut self.body);
    }

    /// A string that needs no escapes: base64.
    pub(super) fn plain(&mut self, before: &[&str], text: &str) {
        self.next();
        self.body.push(b'"');
        for part in before {
            self.body.extend_from_slice(part.as_bytes());
        }
        self.body.extend_from_slice(text.as_bytes());
        self.body.push(b'"');
    }

    /// A JSON text that was read before.
    pub(super) fn raw(&mut self, text: &str) {
        self.next();
        self.body.extend_from_slice(text.trim().as_bytes());
    }

    pub(super) fn json(&mut self, json: &Json) {
        self.next();
        json.write(&mut self.body);
    }

    pub(super) fn bool(&mut self, value: bool) {
        self.raw(if value { "true" } else { "false" });
    }

    pub(super) fn number(&mut self, number: &Number) {
        self.raw(&number.to_string());
    }

    pub(super) fn count(&mut self, count: u64) {
        self.raw(&count.to_string());
    }

    /// A member that is a string.
    pub(super) fn text(&mut self, key: &str, text: &str) {
        self.member(key).string(text);
    }

    /// A call's arguments as an object; what is none is wrapped in one.
    pub(super) fn arguments(&mut self, arguments: &str, object: bool) {
        if object {
            self.raw(arguments);
        } else {
            self.open(b'{');
            self.text("invalid_json", arguments);
            self.close(b'}');
        }
    }

    /// An array of strings.
    pub(super) fn strings<'a>(&mut self, texts: impl Iterator<Item = &'a String>) {
        self.open(b'[');
        for text in texts {
            self.string(text);
        }
        self.close(b']');
    }
}
