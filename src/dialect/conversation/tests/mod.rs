//! Conversations from each client's dialect to each target's protocol, and what is refused on the way.

mod any;
mod bad;
mod media;
mod messages;
mod settings;
mod taken;
mod tools;

use bytes::Bytes;
use serde_json::{Value, json};

use super::*;
use crate::limits;

/// Nothing is held.
fn nothing(_: Reference<'_>) -> Option<Blob> {
    None
}

fn terms(to: Dialect, model: &str) -> Terms<'_> {
    Terms {
        to,
        model,
        flavor: Flavor::Other,
        ask_usage: false,
        strict: false,
        urls: false,
        files: false,
        loading: false,
        resolve: &nothing,
    }
}

fn read(client: Dialect, body: &Value) -> Conversation {
    decode(client, body.to_string().as_bytes()).unwrap_or_else(|bad| panic!("{bad}: {body}"))
}

fn write(talk: &Conversation, terms: &Terms<'_>) -> (Value, Encoded) {
    let encoded = encode(talk, terms).unwrap_or_else(|cannot| panic!("{}", cannot.words("box")));
    let body = serde_json::from_slice(&encoded.body)
        .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&encoded.body)));
    (body, encoded)
}

/// A body for another target.
fn go(client: Dialect, body: &Value, to: Dialect, model: &str) -> Value {
    write(&read(client, body), &terms(to, model)).0
}

/// Names of what is left out.
fn left_out(client: Dialect, body: &Value, terms: &Terms<'_>) -> Vec<String> {
    write(&read(client, body), terms).1.dropped.into_iter().map(|it| it.field.into_owned()).collect()
}

/// Bare OpenAI messages.
fn chat(messages: Value) -> Value {
    json!({"model": "m", "messages": messages})
}

const CLAUDE: &str = "claude-sonnet-4-5";
const GEMINI: &str = "gemini-2.5-flash";
