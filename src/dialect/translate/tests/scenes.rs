//! The same answers as each kind of server sends them.

use super::Dialect;

/// What a scene is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scene {
    Text,
    Thinking,
    Calls,
    Length,
    Midway,
    First,
    Empty,
}

pub(super) const SCENES: [Scene; 7] =
    [Scene::Text, Scene::Thinking, Scene::Calls, Scene::Length, Scene::Midway, Scene::First, Scene::Empty];

fn sse(events: Vec<&str>) -> String {
    events.into_iter().map(|event| format!("data: {event}\n\n")).collect()
}

fn typed(events: Vec<&str>) -> String {
    events
        .into_iter()
        .map(|event| {
            let json: serde_json::Value = serde_json::from_str(event).unwrap();
            format!("event: {}\ndata: {event}\n\n", json["type"].as_str().unwrap())
        })
        .collect()
}

fn lines(events: Vec<&str>) -> String {
    events.into_iter().map(|event| format!("{event}\n")).collect()
}

pub(super) fn stream(server: Dialect, scene: Scene) -> String {
    match server {
        Dialect::OpenaiChat => openai(scene),
        Dialect::OllamaChat => ollama(scene),
        Dialect::Anthropic => anthropic(scene),
        _ => gemini(scene),
    }
}

fn openai(scene: Scene) -> String {
    let role = r#"{"id":"c1","model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}"#;
    let stop = r#"{"id":"c1","model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;
    let usage = r#"{"id":"c1","model":"m","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":4,"total_tokens":13}}"#;
    let content =
        r#"{"id":"c1","model":"m","choices":[{"index":0,"delta":{"content":"Hel"},"finish_reason":null}]}"#;
    let more = r#"{"id":"c1","model":"m","choices":[{"index":0,"delta":{"content":"lo\n\"you\" 😀"},"finish_reason":null}]}"#;
    sse(match scene {
        Scene::Text => vec![role, content, more, stop, usage, "[DONE]"],
        Scene::Thinking => vec![
            role,
            r#"{"id":"c1","model":"m","choices":[{"index":0,"delta":{"reasoning_content":"Let me","content":null}}]}"#,
            r#"{"id":"c1","model":"m","choices":[{"index":0,"delta":{"reasoning_content":" see."}}]}"#,
            content,
            more,
            stop,
            usage,
            "[DONE]",
        ],
        Scene::Calls => vec![
            r#"{"id":"c1","model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"call_a","type":"function","function":{"name":"weather","arguments":""}}]}}]}"#,
            r#"{"id":"c1","model":"m","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"city\":\"Par"}}]}}]}"#,
            // The second call begins, and goes on, before the first one's arguments are whole.
            r#"{"id":"c1","model":"m","choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"id":"call_b","type":"function","function":{"name":"time","arguments":"{"}}]}}]}"#,
            r#"{"id":"c1","model":"m","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"is\"}"}},{"index":1,"function":{"arguments":"}"}}]}}]}"#,
            r#"{"id":"c1","model":"m","choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}"#,
            usage,
            "[DONE]",
        ],
        Scene::Length => vec![
            role,
            content,
            r#"{"id":"c1","model":"m","choices":[{"index":0,"delta":{},"finish_reason":"length"}]}"#,
            usage,
            "[DONE]",
        ],
        Scene::Midway => vec![
            role,
            content,
            r#"{"error":{"code":500,"message":"CUDA out of memory","type":"server_error"}}"#,
            "[DONE]",
        ],
        Scene::First => {
            vec![r#"{"error":{"code":500,"message":"CUDA out of memory","type":"server_error"}}"#, "[DONE]"]
        }
        Scene::Empty => vec![role, stop, usage, "[DONE]"],
    })
}

fn ollama(scene: Scene) -> String {
    let content =
        r#"{"model":"m","created_at":"x","message":{"role":"assistant","content":"Hel"},"done":false}"#;
    let more = r#"{"model":"m","created_at":"x","message":{"role":"assistant","content":"lo\n\"you\" \ud83d\ude00"},"done":false}"#;
    let stop = r#"{"model":"m","created_at":"x","message":{"role":"assistant","content":""},"done":true,"done_reason":"stop","prompt_eval_count":9,"eval_count":4}"#;
    lines(match scene {
        Scene::Text => vec![content, more, stop],
        Scene::Thinking => vec![
            r#"{"model":"m","message":{"role":"assistant","content":"","thinking":"Let me"},"done":false}"#,
            r#"{"model":"m","message":{"role":"assistant","content":"","thinking":" see."},"done":false}"#,
            content,
            more,
            stop,
        ],
        Scene::Calls => vec![
            r#"{"model":"m","message":{"role":"assistant","content":"","tool_calls":[{"id":"call_a","function":{"index":0,"name":"weather","arguments":{"city": "Paris"}}}]},"done":false}"#,
            r#"{"model":"m","message":{"role":"assistant","content":"","tool_calls":[{"id":"call_b","function":{"index":1,"name":"time","arguments":{}}}]},"done":false}"#,
            stop,
        ],
        Scene::Length => vec![
            content,
            r#"{"model":"m","message":{"role":"assistant","content":""},"done":true,"done_reason":"length","prompt_eval_count":9,"eval_count":4}"#,
        ],
        Scene::Midway => vec![content, r#"{"error":"CUDA out of memory"}"#],
        Scene::First => vec![r#"{"error":"CUDA out of memory"}"#],
        Scene::Empty => vec![stop],
    })
}

fn anthropic(scene: Scene) -> String {
    let start = r#"{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","content":[],"model":"m","stop_reason":null,"usage":{"input_tokens":9,"output_tokens":1}}}"#;
    let text = r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#;
    let content = r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hel"}}"#;
    let more =
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"lo\n\"you\" 😀"}}"#;
    let stop = r#"{"type":"content_block_stop","index":0}"#;
    let end = r#"{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":4}}"#;
    let done = r#"{"type":"message_stop"}"#;
    let error = r#"{"type":"error","error":{"type":"api_error","message":"CUDA out of memory"}}"#;
    typed(match scene {
        Scene::Text => vec![start, text, r#"{"type":"ping"}"#, content, more, stop, end, done],
        Scene::Thinking => vec![
            start,
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"Let me"}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":" see."}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"EqQB"}}"#,
            stop,
            text,
            content,
            more,
            stop,
            end,
            done,
        ],
        Scene::Calls => vec![
            start,
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"call_a","name":"weather","input":{}}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":""}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"city\": \"Par"}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"is\"}"}}"#,
            stop,
            r#"{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"call_b","name":"time","input":{}}}"#,
            r#"{"type":"content_block_stop","index":1}"#,
            r#"{"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":4}}"#,
            done,
        ],
        Scene::Length => vec![
            start,
            text,
            content,
            stop,
            r#"{"type":"message_delta","delta":{"stop_reason":"max_tokens","stop_sequence":null},"usage":{"output_tokens":4}}"#,
            done,
        ],
        Scene::Midway => vec![start, text, content, error],
        Scene::First => vec![error],
        Scene::Empty => vec![start, end, done],
    })
}

fn gemini(scene: Scene) -> String {
    let content = r#"{"candidates":[{"content":{"role":"model","parts":[{"text":"Hel"}]},"index":0}],"usageMetadata":{"promptTokenCount":9,"totalTokenCount":9},"modelVersion":"m","responseId":"r1"}"#;
    let stop = r#"{"candidates":[{"content":{"role":"model","parts":[{"text":"lo\n\"you\" 😀"}]},"finishReason":"STOP","index":0}],"usageMetadata":{"promptTokenCount":9,"candidatesTokenCount":4,"totalTokenCount":13},"modelVersion":"m"}"#;
    sse(match scene {
        Scene::Text => vec![content, stop],
        Scene::Thinking => vec![
            r#"{"candidates":[{"content":{"role":"model","parts":[{"text":"Let me","thought":true}]},"index":0}],"modelVersion":"m"}"#,
            r#"{"candidates":[{"content":{"role":"model","parts":[{"text":" see.","thought":true}]},"index":0}],"modelVersion":"m"}"#,
            content,
            stop,
        ],
        Scene::Calls => vec![
            r#"{"candidates":[{"content":{"role":"model","parts":[{"functionCall":{"id":"call_a","name":"weather","args":{"city":"Paris"}},"thoughtSignature":"QUFB"},{"functionCall":{"id":"call_b","name":"time"}}]},"finishReason":"STOP","index":0}],"usageMetadata":{"promptTokenCount":9,"candidatesTokenCount":3,"thoughtsTokenCount":1,"totalTokenCount":13},"modelVersion":"m"}"#,
        ],
        Scene::Length => vec![
            content,
            r#"{"candidates":[{"finishReason":"MAX_TOKENS","index":0}],"usageMetadata":{"promptTokenCount":9,"candidatesTokenCount":4,"totalTokenCount":13},"modelVersion":"m"}"#,
        ],
        Scene::Midway => {
            vec![content, r#"{"error":{"code":500,"message":"CUDA out of memory","status":"INTERNAL"}}"#]
        }
        Scene::First => vec![r#"{"error":{"code":500,"message":"CUDA out of memory","status":"INTERNAL"}}"#],
        Scene::Empty => vec![
            r#"{"candidates":[{"finishReason":"STOP","index":0}],"usageMetadata":{"promptTokenCount":9,"candidatesTokenCount":4,"totalTokenCount":13},"modelVersion":"m"}"#,
        ],
    })
}
