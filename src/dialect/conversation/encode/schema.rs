//! A JSON schema as Anthropic takes one for an answer.

use super::super::json::{Json, write_string};

/// Keywords that it refuses (its page on structured outputs, "JSON Schema limitations").
const REFUSED: &[&str] = &[
    "$schema",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minProperties",
    "maxProperties",
];
/// What it cannot express at all.
const FOREIGN: &[&str] =
    &["oneOf", "not", "if", "then", "else", "patternProperties", "dependentSchemas", "prefixItems"];

/// Writes `schema` with each object closed and without what is refused; false where that would change what it
/// means, and then what was written is of no use.
pub(super) fn closed(schema: &Json, out: &mut Vec<u8>) -> bool {
    let Json::Object(members) = schema else {
        schema.write(out);
        // `true` takes anything.
        return matches!(schema, Json::Object(_));
    };
    let object =
        schema.get("properties").is_some() || schema.get("type").and_then(Json::as_str) == Some("object");
    let more = schema.get("additionalProperties");
    if object && (schema.get("properties").is_none() || more.is_some_and(|more| *more != Json::Bool(false))) {
        return false;
    }
    if members.iter().any(|(key, _)| FOREIGN.contains(&key.as_str())) {
        return false;
    }
    out.push(b'{');
    let mut comma = false;
    let mut name = |key: &str, out: &mut Vec<u8>| {
        if std::mem::replace(&mut comma, true) {
            out.push(b',');
        }
        write_string(key, out);
        out.push(b':');
    };
    for (key, value) in members.iter().filter(|(key, _)| !REFUSED.contains(&key.as_str())) {
        name(key, out);
        let kept = match (key.as_str(), value) {
            ("properties" | "$defs" | "definitions", Json::Object(named)) => {
                all(named.iter().map(|(key, value)| (Some(key.as_str()), value)), (b'{', b'}'), out)
            }
            ("anyOf" | "allOf", Json::Array(items)) => {
                all(items.iter().map(|value| (None, value)), (b'[', b']'), out)
            }
            ("items", value) => closed(value, out),
            (_, value) => {
                value.write(out);
                true
            }
        };
        if !kept {
            return false;
        }
    }
    if object && more.is_none() {
        name("additionalProperties", out);
        out.extend_from_slice(b"false");
    }
    out.push(b'}');
    true
}

fn all<'a>(
    schemas: impl Iterator<Item = (Option<&'a str>, &'a Json)>,
    brackets: (u8, u8),
    out: &mut Vec<u8>,
) -> bool {
    out.push(brackets.0);
    for (at, (name, schema)) in schemas.enumerate() {
        if at > 0 {
            out.push(b',');
        }
        if let Some(name) = name {
            write_string(name, out);
            out.push(b':');
        }
        if !closed(schema, out) {
            return false;
        }
    }
    out.push(brackets.1);
    true
}
