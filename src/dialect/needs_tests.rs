//! What a request needs, and which conversation it is, in every dialect's own form.

use proptest::prelude::*;

use super::*;
use crate::dialect::request::decode;

fn call(dialect: Dialect, body: &str) -> crate::dialect::request::Call {
    decode(dialect, body.as_bytes()).unwrap_or_else(|bad| panic!("{body}: {bad}"))
}

fn key(dialect: Dialect, body: &str) -> (u64, bool) {
    let conversation = call(dialect, body).conversation.unwrap_or_else(|| panic!("no conversation: {body}"));
    (conversation.key, conversation.later)
}

const NONE: Needs =
    Needs { tools: false, images: false, json: false, urls: false, files: false, named: false };

#[test]
fn what_is_needed_is_seen_in_every_dialect() {
    use Dialect::{Anthropic, OllamaChat, OllamaGenerate, OpenaiChat, OpenaiCompletions, OpenaiResponses};
    let tools = Needs { tools: true, ..NONE };
    let images = Needs { images: true, ..NONE };
    let json = Needs { json: true, ..NONE };
    for (dialect, body, want) in [
        (OpenaiChat, r#"{"messages":[{"role":"user","content":"type image_url"}],"tools":[]}"#, NONE),
        (OpenaiChat, r#"{"tools":null,"response_format":{"type":"text"}}"#, NONE),
        (OpenaiChat, r#"{"tools":[{"type":"function"}]}"#, tools),
        (OpenaiChat, r#"{"functions":[{"name":"f"}]}"#, tools),
        (OpenaiChat, r#"{"response_format":{"type":"json_object"}}"#, json),
        (OpenaiCompletions, r#"{"response_format":{"json_schema":{},"type":"json_schema"}}"#, json),
        (
            OpenaiChat,
            r#"{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"data:x"}}]}]}"#,
            images,
        ),
        (OpenaiResponses, r#"{"input":"image","tools":[{"type":"function"}]}"#, tools),
        (
            OpenaiResponses,
            r#"{"input":[{"role":"user","content":[{"type":"input_image","image_url":"data:x"}]}]}"#,
            images,
        ),
        (
            OpenaiResponses,
            r#"{"input":[{"type":"function_call_output","output":[{"type":"input_image"}]}]}"#,
            images,
        ),
        (OpenaiResponses, r#"{"text":{"format":{"type":"json_schema","schema":{}}}}"#, json),
        (OpenaiResponses, r#"{"text":{"format":{"type":"text"},"verbosity":"low"}}"#, NONE),
        (Anthropic, r#"{"tools":[{"name":"f"}]}"#, tools),
        (Anthropic, r#"{"messages":[{"role":"user","content":[{"type":"image","source":{}}]}]}"#, images),
        (
            Anthropic,
            r#"{"messages":[{"role":"user","content":[{"type":"tool_result","content":[{"type":"image"}]}]}]}"#,
            images,
        ),
        (Anthropic, r#"{"output_format":{"type":"json_schema"}}"#, json),
        (Anthropic, r#"{"output_config":{"effort":"low","format":{"type":"json_schema"}}}"#, json),
        (OllamaChat, r#"{"format":"json"}"#, json),
        (OllamaChat, r#"{"format":{"type":"object"}}"#, json),
        (OllamaChat, r#"{"format":"","tools":[{}]}"#, tools),
        (OllamaChat, r#"{"messages":[{"role":"user","content":"a","images":["aGk="]}]}"#, images),
        (OllamaChat, r#"{"messages":[{"role":"user","content":"a","images":[]}]}"#, NONE),
        (OllamaGenerate, r#"{"prompt":"a","images":["aGk="]}"#, images),
        (OllamaGenerate, r#"{"prompt":"a","format":"json"}"#, json),
    ] {
        assert_eq!(call(dialect, body).needs, want, "{body}");
    }
}

#[test]
fn what_is_only_named_is_seen_wherever_a_server_would_look() {
    use Dialect::{Anthropic, OpenaiChat, OpenaiEmbeddings, OpenaiResponses};
    let told = |dialect, body: &str| {
        let needs = call(dialect, body).needs;
        (needs.urls, needs.files, needs.named)
    };
    let content = |key: &str, part: &str| format!(r#"{{"{key}":[{{"role":"user","content":[{part}]}}]}}"#);
    let (url, file, named, none) =
        ((true, false, false), (false, true, false), (false, false, true), (false, false, false));
    for (dialect, part, want) in [
        (OpenaiChat, r#"{"type":"image_url","image_url":{"detail":"low","url":"https://h/a.png"}}"#, url),
        (OpenaiChat, r#"{"type":"image_url","image_url":"http://h/a.png"}"#, url),
        (OpenaiChat, r#"{"image\u005furl":{"\u0075rl":"http://h/a.png"}}"#, url),
        (OpenaiChat, r#"{"type":"image_url","image_url":{"url":"file:///etc/passwd"}}"#, url),
        // Whoever writes it so wants to hide it.
        (OpenaiChat, r#"{"type":"image_url","image_url":{"url":" data:image/png;base64,aGk="}}"#, url),
        (OpenaiChat, r#"{"type":"image_url","image_url":{"url":"DATA:image/png;base64,aGk="}}"#, none),
        (OpenaiChat, r#"{"type":"video_url","video_url":{"url":"http://h/a.mp4"}}"#, url),
        (OpenaiChat, r#"{"type":"audio_url","audio_url":{"url":"http://h/a.wav"}}"#, url),
        (OpenaiChat, r#"{"type":"text","text":"see http://h/a.png"}"#, none),
        (OpenaiChat, r#"{"type":"input_audio","input_audio":{"data":"aGk=","format":"wav"}}"#, none),
        (OpenaiChat, r#"{"type":"file","file":{"file_id":"file-1"}}"#, file),
        (OpenaiChat, r#"{"type":"file","file":{"file_data":"data:application/pdf;base64,aGk="}}"#, none),
        (OpenaiChat, r#"{"type":"file","file":{"file_id":"file-1","file_data":"aGk="}}"#, named),
        (OpenaiEmbeddings, r#"{"type":"image_url","image_url":{"url":"https://h/a.png"}}"#, url),
        (Anthropic, r#"{"type":"image","source":{"type":"url","url":"https://h/a.png"}}"#, url),
        (Anthropic, r#"{"type":"document","source":{"type":"url","url":"https://h/a.pdf"}}"#, url),
        (Anthropic, r#"{"type":"image","source":{"type":"base64","data":"aGk="}}"#, none),
        (Anthropic, r#"{"type":"document","source":{"type":"file","file_id":"f"}}"#, file),
        (
            Anthropic,
            r#"{"type":"tool_result","content":[{"type":"image","source":{"type":"url","url":"http://h"}}]}"#,
            url,
        ),
        (
            Anthropic,
            r#"{"type":"document","source":{"type":"content","content":[{"type":"image","source":{"url":"http://h"}}]}}"#,
            url,
        ),
    ] {
        assert_eq!(told(dialect, &content("messages", part)), want, "{part}");
    }
    for (part, want) in [
        (r#"{"type":"input_image","image_url":"https://h/a.png"}"#, url),
        (r#"{"type":"input_image","image_url":"data:image/png;base64,aGk="}"#, none),
        (r#"{"type":"input_image","file_id":"file-1"}"#, file),
        (r#"{"type":"input_image","file_id":null,"image_url":"data:,"}"#, none),
        (r#"{"type":"input_file","file_url":"https://h/a.pdf"}"#, url),
        (r#"{"type":"input_file","file_id":"file-1"}"#, file),
        (r#"{"type":"input_file","file_id":"file-1","file_data":"aGk="}"#, named),
    ] {
        assert_eq!(told(OpenaiResponses, &content("input", part)), want, "{part}");
    }
    let shot = r#"{"input":[{"type":"computer_call_output","output":{"type":"input_image","image_url":"http://h"}}]}"#;
    assert_eq!(told(OpenaiResponses, shot), url);
}

#[test]
fn a_conversation_keeps_its_key_from_turn_to_turn() {
    use Dialect::{Anthropic, OllamaChat, OpenaiChat, OpenaiResponses};
    let turns = |dialect, first: &str, second: &str| {
        let (one, two) = (key(dialect, first), key(dialect, second));
        assert_eq!((one.0, one.1, two.1), (two.0, false, true), "{first}\n{second}");
        one.0
    };
    let a = turns(
        OpenaiChat,
        r#"{"messages":[{"role":"system","content":"s"},{"role":"user","content":"hi"}]}"#,
        r#"{"model":"m","messages":[{"role":"system","content":"s"},{"role":"user","content":"hi"},{"role":"assistant","content":"yes?"},{"role":"user","content":"more"}]}"#,
    );
    let b = turns(
        OpenaiChat,
        r#"{"messages":[{"role":"system","content":"s"},{"role":"user","content":"ho"}]}"#,
        r#"{"messages":[{"role":"system","content":"s"},{"role":"user","content":"ho"},{"role":"assistant","tool_calls":[]}]}"#,
    );
    let c =
        key(OpenaiChat, r#"{"messages":[{"role":"system","content":"t"},{"role":"user","content":"hi"}]}"#).0;
    assert!(a != b && a != c && b != c, "beginnings tell them apart");
    turns(
        OllamaChat,
        r#"{"messages":[{"role":"user","content":"hi","images":["eA=="]}]}"#,
        r#"{"messages":[{"role":"user","content":"hi","images":["eA=="]},{"role":"assistant","content":"yes"}]}"#,
    );
    // Cache marks move on with each turn; the system prompt may stand anywhere.
    let d = turns(
        Anthropic,
        r#"{"system":"s","messages":[{"role":"user","content":[{"type":"text","text":"hi","cache_control":{"type":"ephemeral"}}]}]}"#,
        r#"{"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]},{"role":"assistant","content":"yes"}],"system":[{"type":"text","text":"s"}]}"#,
    );
    let e = key(Anthropic, r#"{"system":"t","messages":[{"role":"user","content":"hi"}]}"#).0;
    assert_ne!(d, e, "so do system prompts");
    turns(
        OpenaiResponses,
        r#"{"input":"hi","instructions":"s"}"#,
        r#"{"instructions":"s","input":[{"role":"user","content":[{"type":"input_text","text":"hi"}]},{"type":"function_call","name":"f"}]}"#,
    );
}

#[test]
fn who_names_the_conversation_is_believed() {
    let one =
        key(Dialect::OpenaiChat, r#"{"prompt_cache_key":"k","messages":[{"role":"user","content":"a"}]}"#);
    let two = key(Dialect::OpenaiResponses, r#"{"prompt_cache_key":"k","input":"b"}"#);
    assert!(one == two && one.1);
    assert_ne!(key(Dialect::OpenaiChat, r#"{"prompt_cache_key":"l"}"#), one);
    for none in [r#"{"prompt_cache_key":null}"#, r#"{"prompt_cache_key":""}"#, r#"{"messages":[]}"#, "{}"] {
        assert_eq!(call(Dialect::OpenaiChat, none).conversation, None, "{none}");
    }
    let system_only = r#"{"messages":[{"role":"system","content":"a"}]}"#;
    assert_eq!(call(Dialect::OpenaiChat, system_only).conversation, None);
}

#[test]
fn only_the_beginning_of_a_long_beginning_is_hashed_and_its_length() {
    let body = |len: usize, last: char| {
        format!(r#"{{"messages":[{{"role":"user","content":"{}{last}"}}]}}"#, "x".repeat(len))
    };
    let chat = |body: String| key(Dialect::OpenaiChat, &body).0;
    let long = limits::CONVERSATION_BYTES;
    assert_ne!(chat(body(10, 'a')), chat(body(10, 'b')));
    assert_eq!(chat(body(long, 'a')), chat(body(long, 'b')));
    assert_ne!(chat(body(long, 'a')), chat(body(long + 1, 'a')));
}

const DIALECTS: [Dialect; 5] = [
    Dialect::OpenaiChat,
    Dialect::OpenaiResponses,
    Dialect::OllamaChat,
    Dialect::OllamaGenerate,
    Dialect::Anthropic,
];

/// Values of any form where a certain one is due.
fn value() -> impl Strategy<Value = serde_json::Value> {
    let word = prop::sample::select(vec!["user", "assistant", "image", "json_object", "", "\"\\é"]);
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i32>().prop_map(Into::into),
        word.prop_map(Into::into),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let key = prop::sample::select(vec!["role", "content", "type", "text", "images", "format", "output"]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Into::into),
            prop::collection::hash_map(key, inner, 0..4).prop_map(|members| {
                serde_json::Value::Object(members.into_iter().map(|(k, v)| (k.to_owned(), v)).collect())
            }),
        ]
    })
}

proptest! {
    #[test]
    fn whatever_forms_the_members_have_it_is_accepted_as_before(
        messages in value(), input in value(), system in value(), tools in value(), format in value(),
    ) {
        let body = serde_json::json!({
            "messages": messages, "input": input, "system": system, "tools": tools, "format": format,
            "response_format": format, "text": format, "prompt_cache_key": system, "images": tools,
        });
        let text = body.to_string();
        for dialect in DIALECTS {
            let call = decode(dialect, text.as_bytes());
            prop_assert!(call.is_ok(), "{:?}", call.err());
            let again = decode(dialect, text.as_bytes()).map(|call| (call.needs, call.conversation));
            prop_assert_eq!(Ok((call.as_ref().unwrap().needs, call.unwrap().conversation)), again);
        }
    }
}
