//! What holds for any bytes, and for the beginning of any frame.

use proptest::prelude::*;

use super::*;
use crate::dialect::{classify, classify_status, error_text, inspect_answer_prefix, inspect_cut};
use crate::wire::Framing;

const DIALECTS: [Dialect; 9] = [
    Dialect::OpenaiChat,
    Dialect::OpenaiCompletions,
    Dialect::OpenaiResponses,
    Dialect::OpenaiEmbeddings,
    Dialect::OllamaChat,
    Dialect::OllamaGenerate,
    Dialect::OllamaEmbed,
    Dialect::Anthropic,
    Dialect::Gemini,
];

/// Each with a token deep inside.
const TOKENS: [(Dialect, &str); 6] = [
    (
        Dialect::OpenaiChat,
        r#"{"id":"c1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"\u00e9 漢 \"x\""},"finish_reason":null}],"usage":null}"#,
    ),
    (Dialect::OpenaiCompletions, r#"{"id":"c1","model":"m","choices":[{"text":"A\n","index":0}]}"#),
    (Dialect::OpenaiResponses, r#"{"type":"response.output_text.delta","sequence_number":1,"delta":"A\\"}"#),
    (Dialect::OllamaChat, r#"{"model":"m","message":{"role":"assistant","content":"漢"},"done":false}"#),
    (
        Dialect::Anthropic,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"\ud83d\ude00"}}"#,
    ),
    (Dialect::Gemini, r#"{"candidates":[{"content":{"role":"model","parts":[{"text":"ok"}]},"index":0}]}"#),
];

fn framed(dialect: Dialect, json: &str) -> String {
    match dialect.framing() {
        Framing::Sse => format!("event: message\ndata: {json}"),
        Framing::Ndjson => json.to_owned(),
    }
}

#[test]
fn any_beginning_of_a_frame_is_sound_and_shows_its_token_once_it_is_there() {
    for (dialect, json) in TOKENS {
        let raw = framed(dialect, json);
        let offset = raw.len() - json.len();
        let mut shown_at = None;
        for end in 0..=raw.len() {
            let found = inspect_cut(dialect, dialect.framing(), &raw.as_bytes()[..end]);
            assert!(!found.alien, "{}", &raw.as_bytes()[..end].escape_ascii());
            assert_eq!(found.error, None);
            assert!(!found.done && !found.thinking);
            if found.content && shown_at.is_none() {
                shown_at = Some(end);
            }
            assert_eq!(found.content, shown_at.is_some(), "once shown, it stays");
            if end >= offset {
                let prefix = inspect_answer_prefix(dialect, &json.as_bytes()[..end - offset]);
                assert!(!prefix.alien && prefix.error.is_none());
            }
        }
        let shown_at = shown_at.expect("the whole frame has a token");
        assert!(shown_at < raw.len() - 2, "the token shows before the frame is whole: {json}");
        assert!(shown_at > offset);
    }
}

#[test]
fn a_frame_larger_than_any_buffer_commits_by_its_beginning() {
    let big = "x".repeat(70_000);
    let raw = format!(r#"data: {{"id":"c1","model":"m","choices":[{{"index":0,"delta":{{"content":"{big}"#);
    assert_eq!(words(&inspect_cut(Dialect::OpenaiChat, Framing::Sse, raw.as_bytes())), "content");
    let raw = format!(r#"data: {{"id":"c1","model":"m","choices":[{{"index":0,"delta":{{"role":"{big}"#);
    assert_eq!(words(&inspect_cut(Dialect::OpenaiChat, Framing::Sse, raw.as_bytes())), "");
    let raw = format!(
        "data: {{\"id\":\"c1\",\"model\":\"m\",\ndata: \"choices\":[{{\"delta\":{{\"content\":\"{big}"
    );
    assert!(!inspect_cut(Dialect::OpenaiChat, Framing::Sse, raw.as_bytes()).alien);
    let raw = format!("data: {{\"error\":{{\"message\":\"out of memory {big}");
    assert_eq!(words(&inspect_cut(Dialect::OpenaiChat, Framing::Sse, raw.as_bytes())), "error=oom");
    for (raw, says) in
        [("data: nonsense", "alien"), (": comment", ""), ("<html>", "alien"), ("{\"a\":", "alien")]
    {
        assert_eq!(words(&inspect_cut(Dialect::OpenaiChat, Framing::Sse, raw.as_bytes())), says, "{raw}");
    }
}

#[test]
fn the_beginning_of_a_long_answer_is_judged() {
    let start =
        r#"{"id":"c","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"long"#;
    assert_eq!(words(&inspect_answer_prefix(Dialect::OpenaiChat, start.as_bytes())), "content");
    let start = r#"{"object":"list","data":[{"object":"embedding","embedding":[0.1,0."#;
    assert_eq!(words(&inspect_answer_prefix(Dialect::OpenaiEmbeddings, start.as_bytes())), "content");
    let start = r#"{"error":{"message":"Loading model"#;
    assert_eq!(words(&inspect_answer_prefix(Dialect::OpenaiChat, start.as_bytes())), "error=loading");
    assert_eq!(words(&inspect_answer_prefix(Dialect::OpenaiChat, b"<html>")), "alien");
    assert_eq!(words(&inspect_answer_prefix(Dialect::OpenaiChat, b"")), "");
}

/// Bytes out of what frames are made of.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let part = prop_oneof![
        prop::sample::select(vec![
            "data: ",
            "event: error\n",
            "\n",
            "\r",
            "{",
            "}",
            "[",
            "]",
            ",",
            ":",
            "\"",
            "\\",
            "\"error\":",
            "\"choices\":",
            "\"delta\":",
            "\"content\":",
            "\"type\":",
            "\"message\":",
            "\"code\":",
            "\"usage\":",
            "\"model\":",
            "null",
            "7",
            "\"a\"",
            "[DONE]",
            "<html>",
            "{\"choices\":[{\"delta\":{\"content\":",
            "\"response.failed\"",
            "\"candidates\":",
            "\"tool_calls\":[{\"function\":{\"name\":",
        ])
        .prop_map(|text| text.as_bytes().to_vec()),
        prop::collection::vec(any::<u8>(), 0..4),
    ];
    prop::collection::vec(part, 0..16).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn no_bytes_panic_and_every_range_is_within(bytes in bytes(), room in 0_usize..64) {
        for dialect in DIALECTS {
            check_ranges(&inspect_event(dialect, &bytes, &mut vec![0; room]), &bytes);
            check_ranges(&inspect_event(dialect, &bytes, &mut vec![0; bytes.len()]), &bytes);
            check_ranges(&inspect_cut(dialect, dialect.framing(), &bytes), &bytes);
            check_ranges(&inspect_answer(dialect, &bytes), &bytes);
            check_ranges(&inspect_answer_prefix(dialect, &bytes), &bytes);
        }
        let _ = classify(None, &bytes);
        let _ = classify_status(500, &bytes);
        prop_assert!(bytes.get(error_text(&bytes)).is_some());
    }

    #[test]
    fn what_is_no_json_never_counts_as_a_token(bytes in bytes()) {
        for dialect in DIALECTS {
            let found = inspect_answer(dialect, &bytes);
            let json = serde_json::from_slice::<serde_json::Value>(&bytes).is_ok();
            prop_assert!(json || !found.content && !found.thinking && !found.done || has_lenient_bytes(&bytes));
        }
    }
}

/// What the reader lets pass and serde_json does not: control characters, broken UTF-8.
fn has_lenient_bytes(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err() || bytes.iter().any(|byte| *byte < 0x20)
}
