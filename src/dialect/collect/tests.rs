//! Streams put together, held against the whole answers of the same servers: `tests/transcripts/whole`.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

macro_rules! pair {
    ($name:literal) => {
        (
            $name,
            include_str!(concat!("../../../tests/transcripts/whole/", $name, ".json")),
            include_str!(concat!("../../../tests/transcripts/whole/", $name, ".sse")),
        )
    };
}

const CHAT: Dialect = Dialect::OpenaiChat;
const TEXT: Dialect = Dialect::OpenaiCompletions;

fn collected(dialect: Dialect, stream: &str) -> Result<Value, Failure> {
    let mut collector = Collector::new(dialect, true);
    collector.push(stream.as_bytes())?;
    let body = collector.end()?;
    Ok(serde_json::from_slice(&body).unwrap_or(Value::Null))
}

/// Without what differs between any two answers (ids, times, fingerprints, signatures), and with what means the same
/// written alike: a member that is `null` and one that is not there; no text beside calls or thinking; a call's arguments
/// in one spelling, which vLLM writes anew in its whole answers alone.
fn meaning(mut value: Value) -> Value {
    fn walk(value: &mut Value) {
        match value {
            Value::Object(members) => {
                for key in [
                    "id",
                    "created",
                    "created_at",
                    "completed_at",
                    "system_fingerprint",
                    "timings",
                    "call_id",
                    "signature",
                    "metrics",
                    "input_tokens_details",
                ] {
                    // A token's id is no answer's.
                    if !(key == "id" && members.contains_key("logprob")) {
                        members.remove(key);
                    }
                }
                let beside = ["tool_calls", "reasoning"].iter().any(|key| members.contains_key(*key));
                if beside && members.get("content") == Some(&json!("")) {
                    members.remove("content");
                }
                if members.get("type") == Some(&json!("reasoning")) {
                    members.remove("status");
                }
                if let Some(arguments) = members.get_mut("arguments")
                    && let Some(parsed) = arguments.as_str().and_then(|text| serde_json::from_str(text).ok())
                {
                    *arguments = parsed;
                }
                members.values_mut().for_each(walk);
                members.retain(|_, value| !value.is_null());
            }
            Value::Array(elements) => elements.iter_mut().for_each(walk),
            _ => {}
        }
    }
    walk(&mut value);
    value
}

#[test]
fn a_collected_stream_means_what_the_servers_own_whole_answer_means() {
    for (dialect, (name, whole, stream)) in [
        (CHAT, pair!("llamacpp-plain")),
        (CHAT, pair!("llamacpp-logprobs")),
        (CHAT, pair!("llamacpp-json")),
        (CHAT, pair!("llamacpp-stop")),
        (TEXT, pair!("llamacpp-comp")),
        (Dialect::Anthropic, pair!("llamacpp-msgs")),
        (Dialect::OpenaiResponses, pair!("llamacpp-resp")),
        (CHAT, pair!("vllm-chat-plain")),
        (CHAT, pair!("vllm-chat-unicode")),
        (CHAT, pair!("vllm-chat-logprobs")),
        (CHAT, pair!("vllm-chat-json-schema")),
        (CHAT, pair!("vllm-chat-tool-named")),
        (CHAT, pair!("vllm-chat-tool-required-strict")),
        (CHAT, pair!("vllm-chat-tool-auto-two-calls")),
        (CHAT, pair!("vllm-chat-stop")),
        (CHAT, pair!("vllm-chat-reasoning")),
        (TEXT, pair!("vllm-completions-plain")),
        (TEXT, pair!("vllm-completions-logprobs")),
        (Dialect::Anthropic, pair!("vllm-messages-plain")),
        (Dialect::Anthropic, pair!("vllm-messages-stop")),
        (Dialect::Anthropic, pair!("vllm-messages-tool-any-strict")),
        (Dialect::Anthropic, pair!("vllm-messages-reasoning")),
        (Dialect::OpenaiResponses, pair!("vllm-responses-plain")),
        (Dialect::OpenaiResponses, pair!("vllm-responses-tool-required-strict")),
        (Dialect::OpenaiResponses, pair!("vllm-responses-reasoning")),
    ] {
        let whole: Value = serde_json::from_str(whole).expect(name);
        let got = collected(dialect, stream).expect(name);
        assert_eq!(meaning(got), meaning(whole), "{name}");
    }
}

fn sse(events: &[Value]) -> String {
    let events: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    format!("{events}data: [DONE]\n\n")
}

fn delta(delta: &Value) -> Value {
    json!({"id": "c", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": null}]})
}

fn finish(reason: &str) -> Value {
    json!({"id": "c", "model": "m", "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
}

fn message(stream: &str) -> Value {
    collected(CHAT, stream).expect(stream)["choices"][0]["message"].clone()
}

#[test]
fn calls_are_put_together_whatever_their_numbers() {
    let call = |index: u32, id: &str, name: &str, arguments: &str| {
        let mut call = json!({"index": index, "function": {"arguments": arguments}});
        if !id.is_empty() {
            call["id"] = id.into();
            call["type"] = "function".into();
        }
        if !name.is_empty() {
            call["function"]["name"] = name.into();
        }
        delta(&json!({"tool_calls": [call]}))
    };
    let two = json!([
        {"id": "a", "type": "function", "function": {"arguments": "{\"x\":1}", "name": "f"}},
        {"id": "b", "type": "function", "function": {"arguments": "{}", "name": "g"}},
    ]);
    for events in [
        // As OpenAI has it; mixed; each numbered 0; the name in every chunk.
        vec![
            call(0, "a", "f", ""),
            call(0, "", "", "{\"x\""),
            call(0, "", "", ":1}"),
            call(1, "b", "g", "{}"),
        ],
        vec![
            call(0, "a", "f", "{\"x\""),
            call(1, "b", "g", "{"),
            call(0, "", "", ":1}"),
            call(1, "", "", "}"),
        ],
        vec![call(0, "a", "f", "{\"x\":1}"), call(0, "b", "g", "{}")],
        vec![call(0, "a", "f", "{\"x\""), call(0, "a", "f", ":1}"), call(1, "b", "g", "{}")],
    ] {
        let events =
            [vec![delta(&json!({"role": "assistant", "content": ""}))], events, vec![finish("tool_calls")]];
        let got = message(&sse(&events.concat()));
        assert_eq!(got["tool_calls"], two);
        assert_eq!((&got["content"], &got["role"]), (&Value::Null, &json!("assistant")));
    }
}

#[test]
fn members_that_nobody_knows_stay_and_numbers_keep_their_digits() {
    let stream = "data: {\"id\":\"c\",\"x_vendor\":{\"a\":[1.50]},\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\\ud83d\"},\
                  \"logprobs\":{\"content\":[{\"logprob\":-0.10000000149011612}]}}]}\n\n\
                  data: {\"id\":\"d\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\\ude00\",\"reasoning\":\"hm\"},\
                  \"logprobs\":{\"content\":[{\"logprob\":-1e-7}]},\"finish_reason\":\"stop\",\"stop_reason\":13}]}\n\n\
                  data: {\"choices\":[],\"usage\":{\"completion_tokens\":2},\"system_fingerprint\":\"fp\"}\n\ndata: [DONE]\n\n";
    let mut collector = Collector::new(CHAT, true);
    collector.push(stream.as_bytes()).unwrap();
    let body = String::from_utf8(collector.end().unwrap()).unwrap();
    assert!(
        body.contains("[1.50]") && body.contains("-0.10000000149011612") && body.contains("-1e-7"),
        "{body}"
    );
    let got: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        got["choices"][0]["message"],
        json!({"content": "😀", "reasoning": "hm", "role": "assistant"})
    );
    assert_eq!(got["choices"][0]["logprobs"]["content"].as_array().unwrap().len(), 2);
    assert_eq!(
        (
            &got["choices"][0]["stop_reason"],
            &got["id"],
            &got["usage"]["completion_tokens"],
            &got["system_fingerprint"]
        ),
        (&json!(13), &json!("c"), &json!(2), &json!("fp"))
    );
}

#[test]
fn ollamas_last_frame_is_the_answer_with_the_texts_of_all() {
    let stream = r#"{"model":"m","created_at":"1","message":{"role":"assistant","content":"","thinking":"h"},"done":false}
{"model":"m","created_at":"2","message":{"role":"assistant","content":"a","thinking":"m"},"done":false}
{"model":"m","created_at":"3","message":{"role":"assistant","content":"b","tool_calls":[{"function":{"name":"f","arguments":{}}}]},"done":false}
{"model":"m","created_at":"4","message":{"role":"assistant","content":""},"done":true,"done_reason":"stop","eval_count":3}
"#;
    let got = collected(Dialect::OllamaChat, stream).unwrap();
    let message = json!({"role": "assistant", "content": "ab", "thinking": "hm",
        "tool_calls": [{"function": {"name": "f", "arguments": {}}}]});
    let wanted = json!({"model": "m", "created_at": "4", "message": message, "done": true, "done_reason": "stop",
        "eval_count": 3});
    assert_eq!(got, wanted);
    let stream = "{\"model\":\"m\",\"response\":\"a\",\"done\":false}\n{\"model\":\"m\",\"response\":\"\",\"done\":true,\"context\":[1,2]}\n";
    let got = collected(Dialect::OllamaGenerate, stream).unwrap();
    assert_eq!(got, json!({"model": "m", "response": "a", "done": true, "context": [1, 2]}));
}

#[test]
fn anthropics_blocks_are_put_together() {
    let events = [
        json!({"type": "message_start", "message": {"id": "msg", "type": "message", "role": "assistant", "content": [],
            "model": "m", "stop_reason": null, "stop_sequence": null, "usage": {"input_tokens": 9, "output_tokens": 1}}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": "", "signature": ""}}),
        json!({"type": "ping"}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm"}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "c2ln"}}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "content_block_start", "index": 1, "content_block": {"type": "tool_use", "id": "t", "name": "f", "input": {}}}),
        json!({"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": ""}}),
        json!({"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": "{\"a\":\"\\\""}}),
        json!({"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": "b\"}"}}),
        json!({"type": "content_block_stop", "index": 1}),
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": null}, "usage": {"output_tokens": 7}}),
        json!({"type": "message_stop"}),
    ];
    let stream: String = events
        .iter()
        .map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap()))
        .collect();
    let got = collected(Dialect::Anthropic, &stream).unwrap();
    let content = json!([
        {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
        {"type": "tool_use", "id": "t", "name": "f", "input": {"a": "\"b"}},
    ]);
    let wanted = json!({"id": "msg", "type": "message", "role": "assistant", "content": content, "model": "m",
        "stop_reason": "tool_use", "stop_sequence": null, "usage": {"input_tokens": 9, "output_tokens": 7}});
    assert_eq!(got, wanted);
}

#[test]
fn what_is_not_whole_is_no_answer() {
    let token = sse(&[delta(&json!({"content": "a"}))]);
    let cut = token.strip_suffix("data: [DONE]\n\n").unwrap();
    let error = format!("{cut}data: {{\"error\":{{\"message\":\"CUDA out of memory\"}}}}\n\n");
    for (stream, cause) in [
        (cut, Cause::Truncated),
        (error.as_str(), Cause::CudaOom),
        ("data: <html>\n\n", Cause::Protocol),
        // The error comes before the end marker that follows it.
        ("data: {\"error\":{\"message\":\"no\"}}\n\ndata: [DONE]\n\n", Cause::ErrorInStream),
    ] {
        assert_eq!(collected(CHAT, stream).unwrap_err().cause, cause, "{stream}");
    }
    let mut nothing = Collector::new(CHAT, true);
    nothing.push(b": keep-alive\n\n").unwrap();
    assert_eq!((nothing.end().unwrap(), nothing.take_moved()), (Vec::new(), false));
    // A server that gives no reason, but the end marker.
    assert_eq!(collected(CHAT, &token).unwrap()["choices"][0]["finish_reason"], "stop");
    // And one that gives no marker, but the reason.
    let ended = sse(&[delta(&json!({"content": "a"})), finish("length")]);
    let unmarked = ended.strip_suffix("data: [DONE]\n\n").unwrap();
    assert_eq!(collected(CHAT, unmarked).unwrap()["choices"][0]["finish_reason"], "length");
}

#[test]
fn a_swappers_banner_is_no_part_of_the_answer() {
    let banner = json!({"choices": [{"delta": {"reasoning_content": "loading…"}}]});
    let stream = sse(&[banner, delta(&json!({"content": "a"})), finish("stop")]);
    let mut collector = Collector::new(CHAT, true);
    collector.push(stream.split_inclusive("\n\n").next().unwrap().as_bytes()).unwrap();
    assert!(!collector.is_answering());
    assert_eq!(message(&stream), json!({"role": "assistant", "content": "a"}));
}

#[test]
fn it_says_what_it_holds() {
    let mut collector = Collector::new(CHAT, true);
    let frame = format!("data: {}\n\n", delta(&json!({"content": "x".repeat(1000)})));
    (0..100).for_each(|_| collector.push(frame.as_bytes()).unwrap());
    assert!((100_000..110_000).contains(&collector.bytes()), "{}", collector.bytes());
}

proptest! {
    /// However the stream is cut, the answer is the same; and nothing panics on a stream that is damaged.
    #[test]
    fn cuts_change_nothing(cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..12), flip in any::<(prop::sample::Index, u8)>()) {
        let (_, _, stream) = pair!("llamacpp-logprobs");
        let bytes = stream.as_bytes();
        let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len())).collect();
        at.extend([0, bytes.len()]);
        at.sort_unstable();
        let mut collector = Collector::new(CHAT, true);
        for cut in at.windows(2) {
            collector.push(&bytes[cut[0]..cut[1]]).unwrap();
        }
        let got: Value = serde_json::from_slice(&collector.end().unwrap()).unwrap();
        prop_assert_eq!(got, collected(CHAT, stream).unwrap());
        let mut damaged = bytes.to_vec();
        damaged[flip.0.index(bytes.len())] = flip.1;
        for dialect in [CHAT, TEXT, Dialect::Anthropic, Dialect::OllamaChat, Dialect::OpenaiResponses] {
            let mut collector = Collector::new(dialect, false);
            if collector.push(&damaged).is_ok() && let Ok(body) = collector.end() && !body.is_empty() {
                prop_assert!(serde_json::from_slice::<serde::de::IgnoredAny>(&body).is_ok());
            }
        }
    }
}

/// A call that the client's own limit cut is what llama.cpp makes of it: a call with an empty input.
#[test]
fn a_call_that_its_limit_cut_is_no_failure() {
    let stream = |reason: &str| {
        [
            json!({"type": "message_start", "message": {"id": "m", "type": "message", "role": "assistant", "content": []}}),
            json!({"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "id": "t", "name": "f", "input": {}}}),
            json!({"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": "{\"a\": \"b"}}),
            json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 7}, "context_management": {"x": 1}}),
            json!({"type": "message_stop"}),
        ]
        .iter()
        .map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap()))
        .collect::<String>()
    };
    let got = collected(Dialect::Anthropic, &stream("max_tokens")).unwrap();
    assert_eq!((&got["content"][0]["input"], &got["context_management"]["x"]), (&json!({}), &json!(1)));
    assert_eq!(collected(Dialect::Anthropic, &stream("tool_use")).unwrap_err().cause, Cause::Truncated);
}

#[test]
fn signs_of_life_with_words_are_no_part_of_the_answer() {
    let ping = "event: ping\ndata: still here\n\n".to_owned();
    let stream = ping.clone() + &sse(&[delta(&json!({"content": "a"})), finish("stop")]);
    assert_eq!(message(&stream), json!({"role": "assistant", "content": "a"}));
}

#[test]
fn only_texts_come_in_parts() {
    let part = |text: &str| delta(&json!({"content": text, "provider": "X", "reasoning_content": text}));
    let said = message(&sse(&[part("a"), part("b"), finish("stop")]));
    assert_eq!(
        (&said["content"], &said["reasoning_content"], &said["provider"]),
        (&json!("ab"), &json!("ab"), &json!("X"))
    );
}

#[test]
fn what_is_said_anew_is_held_once() {
    let mut collector = Collector::new(Dialect::OllamaChat, true);
    let frame = json!({"model": "m".repeat(60), "created_at": "2026-12-01T00:00:00Z", "message": {"role": "assistant", "content": "abcde"}, "done": false});
    (0..1000).for_each(|_| collector.push(format!("{frame}\n").as_bytes()).unwrap());
    assert!((5000..6000).contains(&collector.bytes()), "{}", collector.bytes());
}

#[test]
fn a_whole_answer_in_a_streams_place_is_the_answer() {
    let (_, whole, _) = pair!("llamacpp-plain");
    for (dialect, body) in
        [(CHAT, whole), (Dialect::OllamaChat, r#"{"message":{"content":"a"},"done":true}"#)]
    {
        assert_eq!(collected(dialect, body).unwrap(), serde_json::from_str::<Value>(body).unwrap());
    }
    assert_eq!(collected(CHAT, &whole[..100]).unwrap_err().cause, Cause::Protocol, "half of it is no answer");
}
