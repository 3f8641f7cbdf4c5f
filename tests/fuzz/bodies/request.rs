//! A client's body: whatever is accepted gives each target a valid body that asks for the same.

use std::collections::BTreeMap;

use bytes::Bytes;
use edgeward::dialect::Dialect;
use edgeward::dialect::request::{Call, Changes, apply, decode};
use serde_json::value::RawValue;

/// In the order of an input's first byte: `0` to `6`.
const DIALECTS: [Dialect; 7] = [
    Dialect::OpenaiChat,
    Dialect::OpenaiCompletions,
    Dialect::OpenaiResponses,
    Dialect::OpenaiEmbeddings,
    Dialect::OllamaChat,
    Dialect::OllamaGenerate,
    Dialect::Anthropic,
];

/// An input: a dialect, a byte of options, then the body.
pub fn run(data: &[u8]) {
    let Some((&[dialect, options], body)) = data.split_first_chunk() else { return };
    let dialect = DIALECTS[usize::from(dialect.wrapping_sub(b'0')) % DIALECTS.len()];
    let Ok(call) = decode(dialect, body) else { return };
    let before = members(body);
    let asked: Option<String> = match before.get("model").map(|raw| raw.get()) {
        None | Some("null") => None,
        Some(raw) => serde_json::from_str(raw).ok(),
    };
    assert_eq!(call.model, asked.unwrap_or_default());
    let told = before.get("stream").map(|raw| raw.get()).filter(|raw| *raw != "null");
    let default = matches!(dialect, Dialect::OllamaChat | Dialect::OllamaGenerate);
    assert_eq!(call.stream, told.map_or(default, |raw| raw == "true") && dialect.streams());

    let changes = Changes {
        model: (options & 1 != 0).then_some("a \"quoted\"\\\u{7}name"),
        ask_stream: options & 8 != 0,
        ask_usage: options & 2 != 0,
        ask_progress: options & 4 != 0,
        max_tokens: (options & 16 != 0).then_some(300),
    };
    let edits = call.edits(&changes);
    let mut at = 0;
    for (range, _) in &edits {
        assert!(at <= range.start && range.start <= range.end && range.end <= body.len(), "{edits:?}");
        at = range.end;
    }
    if changes == Changes::default() {
        assert!(edits.is_empty());
    }
    let sent = apply(&Bytes::copy_from_slice(body), edits).concat();
    let Ok(again) = decode(dialect, &sent) else {
        panic!("refused by ourselves: {:?}", String::from_utf8_lossy(&sent));
    };
    same(&call, &again, &changes);
    let after = members(&sent);
    let limits = |key: &str| {
        let limit = matches!(key, "max_tokens" | "max_completion_tokens" | "max_output_tokens" | "options");
        limit && changes.max_tokens.is_some()
    };
    let edited =
        |key: &str| matches!(key, "model" | "stream" | "stream_options" | "return_progress") || limits(key);
    for (key, raw) in before.iter().filter(|(key, _)| !edited(key)) {
        assert_eq!(after.get(key).map(|raw| raw.get()), Some(raw.get()), "{key} changed");
    }
    assert!(after.keys().all(|key| edited(key) || before.contains_key(key)), "a key that nobody asked for");
    options_kept(&before, &after);
}

fn same(call: &Call, again: &Call, changes: &Changes<'_>) {
    assert_eq!(again.model, changes.model.unwrap_or(&call.model));
    let streams = call.stream || (changes.ask_stream && call.dialect.streams());
    assert_eq!(again.stream, streams);
    let most = changes.max_tokens.unwrap_or(u64::MAX);
    assert_eq!(again.max_tokens, call.max_tokens.map(|limit| limit.min(most)));
    assert_eq!((again.needs, again.conversation), (call.needs, call.conversation));
    assert_eq!(
        again.wants_usage,
        call.wants_usage || (changes.ask_usage && (call.stream || changes.ask_stream))
    );
    assert_eq!(
        again.wants_progress,
        call.wants_progress || (changes.ask_progress && (call.stream || changes.ask_stream))
    );
    assert!(again.edits(changes).iter().all(|(range, _)| !range.is_empty()), "asked for twice");
}

/// Whatever else the client asked for in `stream_options` stays.
fn options_kept(before: &BTreeMap<String, Box<RawValue>>, after: &BTreeMap<String, Box<RawValue>>) {
    let Some(before) = before.get("stream_options").filter(|raw| raw.get().starts_with('{')) else { return };
    let Some(after) = after.get("stream_options") else { panic!("stream_options are gone") };
    let (before, after) = (members(before.get().as_bytes()), members(after.get().as_bytes()));
    for (key, raw) in before.iter().filter(|(key, _)| *key != "include_usage") {
        assert_eq!(after.get(key).map(|raw| raw.get()), Some(raw.get()), "{key} changed");
    }
}

fn members(body: &[u8]) -> BTreeMap<String, Box<RawValue>> {
    serde_json::from_slice(body).unwrap_or_else(|e| panic!("accepted, and no object: {e}"))
}
