//! Bodies that nobody is given: each fault with its place.

use super::*;
use proptest::prelude::*;

fn fault(client: Dialect, body: &[u8]) -> BadRequest {
    match decode(client, body) {
        Err(bad) => bad,
        Ok(_) => panic!("accepted: {}", String::from_utf8_lossy(body)),
    }
}

#[test]
fn each_fault_is_told_with_its_place() {
    use Dialect::{Anthropic, OllamaChat, OpenaiChat, OpenaiResponses};
    for (client, body, path, words) in [
        (
            OpenaiChat,
            r#"{"messages":[{"role":"user","content":"a"},{"role":"bot"}]}"#,
            "messages[1].role",
            "unknown role `bot`",
        ),
        (OpenaiChat, r#"{"messages":[{"role":"user","content":5}]}"#, "messages[0].content", "not a number"),
        (OpenaiChat, r#"{"messages":{"role":"user"}}"#, "messages", "must be an array, not an object"),
        (OpenaiChat, r#"{"messages":[]}"#, "messages", "must have a message"),
        (OpenaiChat, r#"{}"#, "messages", "must have a message"),
        (OpenaiChat, r#"{"messages":[{"content":"a"}]}"#, "messages[0].role", "is missing"),
        (OpenaiChat, r#"{"messages":["a"]}"#, "messages[0]", "must be an object, not a string"),
        (
            OpenaiChat,
            r#"{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"data:image/png;base64,!!"}}]}]}"#,
            "messages[0].content[1].image_url.url",
            "broken base64",
        ),
        (
            OpenaiChat,
            r#"{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"ftp://h/x"}}]}]}"#,
            "messages[0].content[0].image_url.url",
            "must be an http, https or data URL",
        ),
        (
            OpenaiChat,
            r#"{"messages":[{"role":"user","content":[{"type":"smell"}]}]}"#,
            "messages[0].content[0].type",
            "`smell`",
        ),
        (
            OpenaiChat,
            r#"{"messages":[{"role":"system","content":[{"type":"file","file":{"file_id":"a"}}]}]}"#,
            "messages[0]",
            "words alone",
        ),
        (OpenaiChat, r#"{"messages":[{"role":"user"}]}"#, "messages[0].content", "is missing"),
        (
            OllamaChat,
            r#"{"messages":[{"role":"user","tool_calls":[{"function":{"name":"f"}}]}]}"#,
            "messages[0]",
            "only the assistant",
        ),
        (
            OpenaiChat,
            r#"{"temperature":"hot","messages":[]}"#,
            "temperature",
            "must be a number, not a string",
        ),
        (OpenaiChat, r#"{"max_tokens":-2,"messages":[]}"#, "max_tokens", "whole number"),
        (OpenaiChat, r#"{"max_tokens":1.5,"messages":[]}"#, "max_tokens", "whole number"),
        (OpenaiChat, r#"{"n":1000,"messages":[]}"#, "n", "at most 128"),
        (OpenaiChat, r#"{"temperature":NaN,"messages":[]}"#, "temperature", "not valid JSON"),
        (OpenaiChat, r#"{"temperature":1e999,"messages":[]}"#, "temperature", "not valid JSON"),
        (OpenaiChat, r#"{"messages":[{"role":"user","role":"system"}]}"#, "messages[0].role", "given twice"),
        (
            OpenaiChat,
            r#"{"messages":[{"role":"user","rol\u0065":"system"}]}"#,
            "messages[0].role",
            "given twice",
        ),
        (OpenaiChat, r#"{"model":"a","model":"b"}"#, "model", "given twice"),
        (
            OpenaiChat,
            r#"{"messages":[{"role":"user","content":"a}]}"#,
            "messages[0].content",
            "not valid JSON",
        ),
        (
            OpenaiChat,
            r#"{"messages":[{"role":"user","content":"\ud800"}]}"#,
            "messages[0].content",
            "not valid JSON",
        ),
        (OpenaiChat, r#"{"messages":[1]} x"#, "", "not valid JSON"),
        (OpenaiChat, r#"[]"#, "", "the body must be an object, not an array"),
        (
            OpenaiChat,
            r#"{"tools":[{"type":"function","function":{}}],"messages":[]}"#,
            "tools[0].function.name",
            "is missing",
        ),
        (OpenaiChat, r#"{"tool_choice":"maybe","messages":[]}"#, "tool_choice", "must be `auto`"),
        (
            OpenaiChat,
            r#"{"response_format":{"type":"xml"},"messages":[]}"#,
            "response_format.type",
            "must be `text`",
        ),
        (OpenaiChat, r#"{"reasoning_effort":"huge","messages":[]}"#, "reasoning_effort", "must be `none`"),
        (OpenaiChat, r#"{"stop":["a",1],"messages":[]}"#, "stop[1]", "must be a string"),
        (
            OpenaiResponses,
            r#"{"input":[{"type":"function_call","call_id":"a","name":"f","arguments":3}]}"#,
            "input[0].arguments",
            "not a number",
        ),
        (OpenaiResponses, r#"{"input":7}"#, "input", "must be a string or an array"),
        (OpenaiResponses, r#"{}"#, "input", "is missing"),
        (
            OllamaChat,
            r#"{"messages":[{"role":"user","images":["!!!!"]}]}"#,
            "messages[0].images[0]",
            "broken base64",
        ),
        (OllamaChat, r#"{"messages":[],"format":"xml"}"#, "format", "must be `json`"),
        (
            OllamaChat,
            r#"{"messages":[],"options":{"temperature":true}}"#,
            "options.temperature",
            "not a boolean",
        ),
        (
            OllamaChat,
            r#"{"messages":[{"role":"tool","tool_name":"f","content":"x"}]}"#,
            "messages[0]",
            "`f` answers no open call",
        ),
        (
            Anthropic,
            r#"{"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"A"}}]}]}"#,
            "messages[0].content[0].source.data",
            "broken base64",
        ),
        (
            Anthropic,
            r#"{"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"a"}]}]}"#,
            "messages[0].content[0]",
            "`a` answers no open call",
        ),
        (
            Anthropic,
            r#"{"messages":[{"role":"assistant","content":[{"type":"tool_result","tool_use_id":"a"}]}]}"#,
            "messages[0].content[0]",
            "message of the user",
        ),
        (Anthropic, r#"{"thinking":{"type":"deep"},"messages":[]}"#, "thinking.type", "must be `enabled`"),
        (
            Anthropic,
            r#"{"tools":[{"name":"f","input_schema":[]}],"messages":[]}"#,
            "tools[0].input_schema",
            "must be an object",
        ),
    ] {
        let bad = fault(client, body.as_bytes());
        assert_eq!(bad.path, path, "{body}: {bad}");
        assert!(bad.message.contains(words), "{body}: {bad}");
        assert!(path.is_empty() || bad.message.contains(&format!("`{path}`")), "{bad}");
    }
}

#[test]
fn absurd_bodies_are_refused_before_they_cost_anything() {
    let deep = format!("{{\"messages\":{}", "[".repeat(300_000));
    assert!(fault(Dialect::OpenaiChat, deep.as_bytes()).too_deep);
    let wide = format!("{{\"messages\":[{}0]}}", "0,".repeat(limits::CONVERSATION_VALUES_MAX));
    let bad = fault(Dialect::OpenaiChat, wide.as_bytes());
    assert!(bad.message.contains("more than 500000 values") && bad.path.starts_with("messages["), "{bad}");
    assert!(fault(Dialect::OpenaiChat, b"{\"model\":\"\xff\"}").path.contains("model"));
    let long = json!({"model":"m".repeat(10_000),"messages":[]}).to_string();
    assert_eq!(fault(Dialect::OpenaiChat, long.as_bytes()).path, "model");
    let keys: Vec<String> = (0..100_000).map(|at| format!("\"k{at}\":0")).collect();
    let twice = format!("{{{},\"k7\":1}}", keys.join(","));
    assert_eq!(fault(Dialect::OpenaiChat, twice.as_bytes()).path, "k7");
    let long = format!("{{\"{}\":1x}}", "k".repeat(10_000));
    assert!(fault(Dialect::OpenaiChat, long.as_bytes()).message.len() < 300);
    let calls: Vec<Value> =
        (0..2_000).map(|at| json!({"id":at.to_string(),"function":{"name":"f","arguments":"{}"}})).collect();
    let body =
        chat(json!([{"role":"user","content":"a"},{"role":"assistant","tool_calls":calls}])).to_string();
    let bad = fault(Dialect::OpenaiChat, body.as_bytes());
    assert!(bad.message.contains("more than 1024 calls"), "{bad}");
}

/// Words that requests are made of, so that some of what is made up is nearly one.
fn nearly() -> impl Strategy<Value = Value> {
    let word = prop::sample::select(vec![
        "user",
        "assistant",
        "system",
        "tool",
        "text",
        "image_url",
        "tool_use",
        "tool_result",
        "function",
        "function_call",
        "message",
        "a",
        "",
        "data:image/png;base64,AAAA",
        "https://h/a.png",
        "{}",
        "thinking",
        "base64",
        "url",
        "auto",
        "json",
        "json_schema",
    ]);
    let key = prop::sample::select(vec![
        "messages",
        "role",
        "content",
        "type",
        "text",
        "image_url",
        "url",
        "tool_calls",
        "function",
        "name",
        "id",
        "arguments",
        "tool_call_id",
        "tool_use_id",
        "input",
        "source",
        "data",
        "media_type",
        "images",
        "tools",
        "system",
        "prompt",
        "options",
        "stop",
        "format",
        "thinking",
        "call_id",
        "output",
        "max_tokens",
        "x",
    ]);
    let leaf = prop_oneof![
        6 => word.prop_map(|word| json!(word)),
        1 => any::<i32>().prop_map(|number| json!(number)),
        1 => any::<bool>().prop_map(|it| json!(it)),
        1 => Just(Value::Null),
    ];
    leaf.prop_recursive(6, 60, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            prop::collection::btree_map(key.clone().prop_map(str::to_owned), inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

const CLIENTS: [Dialect; 9] = [
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

proptest! {
    #[test]
    fn nothing_panics_on_bytes(body in prop::collection::vec(any::<u8>(), 0..120)) {
        for client in CLIENTS {
            let _ = decode(client, &body);
        }
    }

    #[test]
    fn nothing_panics_on_json(body in nearly(), messages in prop::collection::vec(nearly(), 0..4)) {
        let body = match body {
            Value::Object(mut map) => {
                map.insert("messages".into(), Value::Array(messages));
                Value::Object(map)
            }
            other => other,
        };
        for client in CLIENTS {
            if let Ok(talk) = decode(client, body.to_string().as_bytes()) {
                any::every_target_takes(&talk);
            }
        }
    }
}
