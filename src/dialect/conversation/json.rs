//! A JSON tree that keeps its members' order, refuses keys given twice, and knows where it is when it fails.
//!
//! `serde_json::Value` sorts members (a schema's order is the order in which a model fills it in) and lets the last
//! of two equal keys win.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::fmt;

use bytes::Bytes;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Number;

use super::super::request::BadRequest;
use super::text::Text;
use super::words::short;
use crate::limits;
use crate::wire::json;

/// A JSON value. Members stay in their order.
#[derive(Clone, Debug, PartialEq)]
pub enum Json {
    /// `null`.
    Null,
    /// `true`, `false`.
    Bool(bool),
    /// A number, as far as 64 bits hold it.
    Number(Number),
    /// A string, decoded.
    String(String),
    /// The same, a long one: it may be a picture.
    Long(Text),
    /// An array.
    Array(Vec<Json>),
    /// An object; no key twice.
    Object(Vec<(String, Json)>),
}

impl Json {
    /// A member of an object.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Json> {
        match self {
            Json::Object(members) => members.iter().find(|(name, _)| name == key).map(|(_, value)| value),
            _ => None,
        }
    }

    /// The text of a string.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Json::String(text) => Some(text),
            Json::Long(text) => Some(text),
            _ => None,
        }
    }

    /// Writes it compactly.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Json::Null => out.extend_from_slice(b"null"),
            Json::Bool(true) => out.extend_from_slice(b"true"),
            Json::Bool(false) => out.extend_from_slice(b"false"),
            Json::Number(number) => out.extend_from_slice(number.to_string().as_bytes()),
            Json::String(text) => write_string(text, out),
            Json::Long(text) => write_string(text, out),
            Json::Array(items) => {
                out.push(b'[');
                for (at, item) in items.iter().enumerate() {
                    if at > 0 {
                        out.push(b',');
                    }
                    item.write(out);
                }
                out.push(b']');
            }
            Json::Object(members) => {
                out.push(b'{');
                for (at, (key, value)) in members.iter().enumerate() {
                    if at > 0 {
                        out.push(b',');
                    }
                    write_string(key, out);
                    out.push(b':');
                    value.write(out);
                }
                out.push(b'}');
            }
        }
    }

    /// Its compact text.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = Vec::new();
        self.write(&mut out);
        String::from_utf8(out).unwrap_or_default()
    }
}

/// A string as JSON writes it.
pub(super) fn write_string(text: &str, out: &mut Vec<u8>) {
    // To a vector nothing fails.
    let _written = serde_json::to_writer(out, text);
}

/// A place in a body: `messages[3].content[1].image_url.url`. Lives on the stack of whoever walks the tree.
#[derive(Clone, Copy)]
pub(super) struct At<'a> {
    parent: Option<&'a At<'a>>,
    step: Step<'a>,
}

#[derive(Clone, Copy)]
enum Step<'a> {
    Root,
    Key(&'a str),
    Index(usize),
}

impl<'a> At<'a> {
    pub(super) const ROOT: At<'static> = At { parent: None, step: Step::Root };

    pub(super) fn key(&'a self, key: &'a str) -> At<'a> {
        At { parent: Some(self), step: Step::Key(key) }
    }

    pub(super) fn index(&'a self, index: usize) -> At<'a> {
        At { parent: Some(self), step: Step::Index(index) }
    }

    /// A fault at this place.
    pub(super) fn bad(&self, what: impl fmt::Display) -> BadRequest {
        BadRequest::at(self.to_string(), what)
    }
}

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            write!(f, "{parent}")?;
        }
        match self.step {
            Step::Root => Ok(()),
            Step::Key(key) => {
                let inner = self.parent.is_some_and(|parent| parent.parent.is_some());
                write!(f, "{}{}", if inner { "." } else { "" }, short(key))
            }
            Step::Index(index) => write!(f, "[{index}]"),
        }
    }
}

/// Reads a whole JSON text.
pub(super) fn parse(text: &[u8]) -> Result<Json, BadRequest> {
    read(text, None)
}

/// The same, which does not copy long texts.
pub(super) fn parse_shared(text: &Bytes) -> Result<Json, BadRequest> {
    read(text, Some(text))
}

fn read(text: &[u8], body: Option<&Bytes>) -> Result<Json, BadRequest> {
    if json::profile(text).is_err() {
        return Err(BadRequest::too_deep());
    }
    let reading =
        Reading { left: Cell::new(limits::CONVERSATION_VALUES_MAX), place: RefCell::new(None), body };
    let mut de = serde_json::Deserializer::from_slice(text);
    let seed = Seed { at: At::ROOT, reading: &reading };
    match seed.deserialize(&mut de).and_then(|json| de.end().map(|()| json)) {
        Ok(json) => Ok(json),
        Err(e) => {
            let place = reading.place.take().unwrap_or_default();
            Err(BadRequest::at(place, format_args!("is not valid JSON: {e}")))
        }
    }
}

/// What one reading shares among its levels.
struct Reading<'a> {
    /// So many values more are read.
    left: Cell<usize>,
    /// Where it failed; the innermost place is told first.
    place: RefCell<Option<String>>,
    /// What is read, where its long texts are to share its memory.
    body: Option<&'a Bytes>,
}

#[derive(Clone, Copy)]
struct Seed<'a> {
    at: At<'a>,
    reading: &'a Reading<'a>,
}

impl Seed<'_> {
    fn note<E>(&self, at: &At<'_>, error: E) -> E {
        self.reading.place.borrow_mut().get_or_insert_with(|| at.to_string());
        error
    }
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Json;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Json, D::Error> {
        match self.reading.left.get().checked_sub(1) {
            Some(left) => self.reading.left.set(left),
            None => {
                let what = format!("more than {} values", limits::CONVERSATION_VALUES_MAX);
                return Err(D::Error::custom(what));
            }
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
        Ok(Json::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
        Ok(Json::Number(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Json, E> {
        Number::from_f64(value).map(Json::Number).ok_or_else(|| E::custom("a number out of range"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Json, E> {
        Ok(Json::String(value.to_owned()))
    }

    fn visit_borrowed_str<E>(self, value: &'de str) -> Result<Json, E> {
        let body = self.reading.body.filter(|_| value.len() >= limits::LONG_TEXT_BYTES);
        let shared = body.and_then(|body| Text::slice(body, value));
        Ok(shared.map_or_else(|| Json::String(value.to_owned()), Json::Long))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Json, A::Error> {
        let mut items = Vec::new();
        loop {
            let at = self.at.index(items.len());
            let seed = Seed { at, reading: self.reading };
            match seq.next_element_seed(seed).map_err(|e| self.note(&at, e))? {
                Some(item) => items.push(item),
                None => return Ok(Json::Array(items)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json, A::Error> {
        let mut members: Vec<(String, Json)> = Vec::new();
        let mut seen = HashSet::new();
        while let Some(key) = map.next_key::<String>().map_err(|e| self.note(&self.at, e))? {
            let at = self.at.key(&key);
            // A few are compared one by one; sets are for objects that were made to be slow.
            let twice = if members.len() < MANY {
                members.iter().any(|(known, _)| *known == key)
            } else {
                if seen.is_empty() {
                    seen.extend(members.iter().map(|(known, _)| known.clone()));
                }
                !seen.insert(key.clone())
            };
            if twice {
                return Err(self.note(&at, A::Error::custom("the key is given twice")));
            }
            let seed = Seed { at, reading: self.reading };
            let value = map.next_value_seed(seed).map_err(|e| self.note(&at, e))?;
            members.push((key, value));
        }
        Ok(Json::Object(members))
    }
}

/// Members from which on keys are found in a set.
const MANY: usize = 32;
