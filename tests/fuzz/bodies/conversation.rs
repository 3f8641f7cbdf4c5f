//! A client's body for another provider: whatever is accepted gives each target a body by its rules, and in a
//! dialect that both clients and targets speak, the same body again.

use edgeward::dialect::Dialect;
use edgeward::dialect::conversation::{Blob, Flavor, Reference, Terms, decode, encode};
use serde_json::Value;

/// In the order of an input's first byte: `0` to `5`.
const CLIENTS: [Dialect; 6] = [
    Dialect::OpenaiChat,
    Dialect::OpenaiCompletions,
    Dialect::OpenaiResponses,
    Dialect::OllamaChat,
    Dialect::OllamaGenerate,
    Dialect::Anthropic,
];

const TARGETS: [(Dialect, &str, Flavor); 10] = [
    (Dialect::OpenaiChat, "gpt-4o", Flavor::Openai),
    (Dialect::OpenaiChat, "gpt-5", Flavor::Openai),
    (Dialect::OpenaiChat, "x", Flavor::Vllm),
    (Dialect::OllamaChat, "x", Flavor::Other),
    (Dialect::OllamaChat, "gpt-oss", Flavor::Other),
    (Dialect::Anthropic, "claude-3-7-sonnet", Flavor::Other),
    (Dialect::Anthropic, "claude-opus-5", Flavor::Other),
    (Dialect::Anthropic, "claude-opus-5-5", Flavor::Other),
    (Dialect::Gemini, "gemini-2.5-pro", Flavor::Other),
    (Dialect::Gemini, "gemini-3-flash", Flavor::Other),
];

/// An input: a dialect, a byte of options, then the body.
pub fn run(data: &[u8]) {
    let Some((&[client, options], body)) = data.split_first_chunk() else { return };
    let client = CLIENTS[usize::from(client.wrapping_sub(b'0')) % CLIENTS.len()];
    let talk = match decode(client, body) {
        Ok(talk) => talk,
        Err(bad) => {
            assert!(!bad.message.is_empty() && bad.message.len() < 16 * 1024);
            return;
        }
    };
    let held = |_: Reference<'_>| {
        let bytes = bytes::Bytes::from_static(b"\x89PNG\r\n\x1a\n");
        (options & 1 != 0).then(|| Blob { media_type: "image/png".to_owned(), bytes })
    };
    for (to, model, flavor) in TARGETS {
        let terms = Terms {
            to,
            model,
            flavor,
            ask_usage: options & 2 != 0,
            strict: options & 4 != 0,
            urls: options & 8 != 0,
            files: options & 16 != 0,
            loading: options & 32 != 0,
            resolve: &held,
        };
        let encoded = match encode(&talk, &terms) {
            Ok(encoded) => encoded,
            Err(cannot) => {
                assert!(cannot.words("box").contains("`box`"));
                continue;
            }
        };
        let sent = json(&encoded.body);
        match to {
            Dialect::Anthropic => alternates(&sent["messages"], "content", "assistant"),
            Dialect::Gemini => {
                alternates(&sent["contents"], "parts", "model");
                continue;
            }
            _ => {}
        }
        // There and back: what was written is read, and written again as it was.
        let again = match decode(to, &encoded.body) {
            Ok(again) => again,
            // A call's arguments, which were a text, are part of the tree now.
            Err(bad) if bad.too_deep => continue,
            Err(bad) => panic!("refused by ourselves: {bad}: {sent}"),
        };
        match encode(&again, &terms) {
            Ok(encoded) => assert_eq!(json(&encoded.body), sent),
            Err(cannot) => panic!("{}: {sent}", cannot.words("box")),
        }
    }
}

fn json(body: &[u8]) -> Value {
    serde_json::from_slice(body).unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(body)))
}

/// The user begins, roles alternate, and nobody says nothing.
fn alternates(list: &Value, parts: &str, model: &str) {
    let Some(list) = list.as_array().filter(|list| !list.is_empty()) else { panic!("no messages: {list}") };
    for (at, one) in list.iter().enumerate() {
        assert_eq!(one["role"], if at % 2 == 0 { "user" } else { model }, "{list:?}");
        assert!(one[parts].as_array().is_some_and(|parts| !parts.is_empty()), "{list:?}");
    }
}
