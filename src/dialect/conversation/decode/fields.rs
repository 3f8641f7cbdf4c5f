//! An object's members, taken one by one, each with its place and its type.

use serde_json::Number;

use super::super::json::{At, Json};
use super::super::text::Text;
use crate::dialect::conversation::{Conversation, Part};
use crate::dialect::request::BadRequest;

/// An object that is being read. A `null` counts as absent.
pub(super) struct Fields<'a> {
    /// Where it stands.
    pub(super) at: At<'a>,
    members: Vec<(String, Json)>,
}

impl<'a> Fields<'a> {
    pub(super) fn new(json: Json, at: At<'a>) -> Result<Self, BadRequest> {
        match json {
            Json::Object(members) => Ok(Fields { at, members }),
            other => Err(wrong(&at, "an object", &other)),
        }
    }

    /// Takes a member, of whatever type.
    pub(super) fn take(&mut self, key: &str) -> Option<Json> {
        match self.shared(key) {
            Some(Json::Long(text)) => Some(Json::String(text.into_string())),
            other => other,
        }
    }

    /// Takes a member; a long text may still be the body's.
    pub(super) fn shared(&mut self, key: &str) -> Option<Json> {
        let (_, value) = self.members.iter_mut().find(|(name, _)| name == key)?;
        Some(std::mem::replace(value, Json::Null)).filter(|value| *value != Json::Null)
    }

    /// Takes members that say nothing to anybody else.
    pub(super) fn skip(&mut self, keys: &[&str]) {
        for key in keys {
            let _skipped = self.take(key);
        }
    }

    pub(super) fn string(&mut self, key: &str) -> Result<Option<String>, BadRequest> {
        match self.take(key) {
            None => Ok(None),
            Some(Json::String(text)) => Ok(Some(text)),
            Some(other) => Err(wrong(&self.at.key(key), "a string", &other)),
        }
    }

    /// A string that may be a picture.
    pub(super) fn long(&mut self, key: &str) -> Result<Option<Text>, BadRequest> {
        match self.shared(key) {
            None => Ok(None),
            Some(json) => long(json).map(Some).map_err(|other| wrong(&self.at.key(key), "a string", &other)),
        }
    }

    /// The same; it must be there.
    pub(super) fn long_text(&mut self, key: &str) -> Result<Text, BadRequest> {
        self.long(key)?.ok_or_else(|| self.at.key(key).bad("is missing"))
    }

    /// A string that must be there.
    pub(super) fn text(&mut self, key: &str) -> Result<String, BadRequest> {
        self.string(key)?.ok_or_else(|| self.at.key(key).bad("is missing"))
    }

    pub(super) fn bool(&mut self, key: &str) -> Result<Option<bool>, BadRequest> {
        match self.take(key) {
            None => Ok(None),
            Some(Json::Bool(value)) => Ok(Some(value)),
            Some(other) => Err(wrong(&self.at.key(key), "true or false", &other)),
        }
    }

    pub(super) fn number(&mut self, key: &str) -> Result<Option<Number>, BadRequest> {
        match self.take(key) {
            None => Ok(None),
            Some(Json::Number(number)) => Ok(Some(number)),
            Some(other) => Err(wrong(&self.at.key(key), "a number", &other)),
        }
    }

    /// A whole number, not negative.
    pub(super) fn count(&mut self, key: &str) -> Result<Option<u64>, BadRequest> {
        let Some(number) = self.number(key)? else { return Ok(None) };
        // Some clients write 256.0.
        let whole = |it: &f64| it.fract() == 0.0 && (0.0..9e15).contains(it);
        match number.as_u64().or_else(|| number.as_f64().filter(whole).map(|it| it as u64)) {
            Some(count) => Ok(Some(count)),
            None => Err(self.at.key(key).bad("must be a whole number, and not negative")),
        }
    }

    /// The same of a limit, which some clients turn off with -1 (llama.cpp, LM Studio).
    pub(super) fn limit(&mut self, key: &str) -> Result<Option<u64>, BadRequest> {
        let off = |json: &Json| matches!(json, Json::Number(number) if number.as_i64() == Some(-1));
        if self.members.iter().any(|(name, value)| name == key && off(value)) {
            self.skip(&[key]);
        }
        self.count(key)
    }

    /// An array's items; none, where there is no array.
    pub(super) fn array(&mut self, key: &str) -> Result<Vec<Json>, BadRequest> {
        match self.take(key) {
            None => Ok(Vec::new()),
            Some(Json::Array(items)) => Ok(items),
            Some(other) => Err(wrong(&self.at.key(key), "an array", &other)),
        }
    }

    pub(super) fn object(&mut self, key: &str) -> Result<Option<Json>, BadRequest> {
        match self.take(key) {
            None => Ok(None),
            Some(object @ Json::Object(_)) => Ok(Some(object)),
            Some(other) => Err(wrong(&self.at.key(key), "an object", &other)),
        }
    }

    /// What nobody took.
    pub(super) fn rest(&mut self) -> Vec<(String, Json)> {
        let mut members = std::mem::take(&mut self.members);
        members.retain(|(_, value)| *value != Json::Null);
        members
    }
}

/// The text of a string that may be a picture; else what it is.
pub(super) fn long(json: Json) -> Result<Text, Json> {
    match json {
        Json::String(text) => Ok(text.into()),
        Json::Long(text) => Ok(text),
        other => Err(other),
    }
}

fn wrong(at: &At<'_>, wanted: &str, got: &Json) -> BadRequest {
    at.bad(format_args!("must be {wanted}, not {}", kind(got)))
}

/// What a value is, with its article.
pub(super) fn kind(json: &Json) -> &'static str {
    match json {
        Json::Null => "null",
        Json::Bool(_) => "a boolean",
        Json::Number(_) => "a number",
        Json::String(_) | Json::Long(_) => "a string",
        Json::Array(_) => "an array",
        Json::Object(_) => "an object",
    }
}

/// A string, or parts, each read by `part`.
pub(super) fn content(
    talk: &mut Conversation,
    fields: &mut Fields<'_>,
    key: &str,
    part: fn(&mut Conversation, Fields<'_>) -> Result<Part, BadRequest>,
) -> Result<Vec<Part>, BadRequest> {
    let here = fields.at;
    let at = here.key(key);
    match fields.take(key) {
        None => Ok(Vec::new()),
        Some(Json::String(text)) => Ok(vec![Part::Text(text)]),
        Some(Json::Array(items)) => {
            let one = |(index, item)| part(talk, Fields::new(item, at.index(index))?);
            items.into_iter().enumerate().map(one).collect()
        }
        Some(other) => {
            Err(at.bad(format_args!("must be a string or an array of parts, not {}", kind(&other))))
        }
    }
}
