//! Whole answers that edgeward puts together from a real server's stream, held against the same server's own.

use serde_json::{Value, json};

use crate::http;
use crate::world::{Edgeward, MODEL, Model};

const CHAT: &str = "/v1/chat/completions";

/// Without what differs between any two answers: ids, times, fingerprints. Beside calls no text is no text, whether it is
/// written as `null` or as `""`.
fn comparable(mut value: Value) -> Value {
    fn strip(value: &mut Value) {
        match value {
            Value::Object(members) => {
                for key in ["id", "created", "created_at", "completed_at", "system_fingerprint", "timings"] {
                    // A token's id is no answer's.
                    if !(key == "id" && members.contains_key("logprob")) {
                        members.remove(key);
                    }
                }
                if members.contains_key("tool_calls") && members.get("content") == Some(&json!("")) {
                    members.insert("content".to_owned(), Value::Null);
                }
                members.values_mut().for_each(strip);
            }
            Value::Array(elements) => elements.iter_mut().for_each(strip),
            _ => {}
        }
    }
    strip(&mut value);
    value
}

/// A conversation after whose example even a small model calls a function.
fn calls() -> Value {
    let mut messages = Vec::new();
    for place in ["Oslo", "Paris", "Bonn"] {
        let arguments = json!({ "place": place }).to_string();
        let call = json!({ "id": place, "type": "function", "function": { "name": "weather", "arguments": arguments } });
        messages.extend([
            json!({ "role": "user", "content": format!("Weather in {place}?") }),
            json!({ "role": "assistant", "content": "", "tool_calls": [call] }),
            json!({ "role": "tool", "tool_call_id": place, "content": "fine" }),
            json!({ "role": "assistant", "content": "Fine." }),
        ]);
    }
    messages.push(json!({ "role": "user", "content": "Weather in Rome?" }));
    let parameters =
        json!({ "type": "object", "properties": { "place": { "type": "string" } }, "required": ["place"] });
    let tool = json!({ "type": "function", "function": { "name": "weather", "parameters": parameters } });
    json!({ "messages": messages, "tools": [tool], "max_tokens": 40 })
}

/// Every kind of request, and whether it is put together.
fn cases() -> Vec<(&'static str, Value, bool)> {
    let asked = json!([{ "role": "user", "content": "Name two colours." }]);
    let schema =
        json!({ "type": "object", "properties": { "c": { "enum": ["red", "blue"] } }, "required": ["c"] });
    let format = json!({ "type": "json_schema", "json_schema": { "name": "c", "schema": schema } });
    let tool = json!({ "name": "weather", "input_schema": { "type": "object" } });
    vec![
        (CHAT, json!({ "messages": asked }), true),
        (CHAT, json!({ "messages": asked, "stream": false, "logprobs": true, "top_logprobs": 2 }), true),
        (CHAT, json!({ "messages": asked, "response_format": format, "max_tokens": 60 }), true),
        (CHAT, json!({ "messages": asked, "stop": [" no", "Red"] }), true),
        (CHAT, calls(), true),
        (CHAT, json!({ "messages": asked, "n": 2 }), false),
        (CHAT, json!({ "messages": asked, "n_probs": 1 }), false),
        ("/v1/completions", json!({ "prompt": "The sea is", "logprobs": 2 }), true),
        ("/v1/completions", json!({ "prompt": ["The sea is", "A cat"] }), false),
        ("/v1/messages", json!({ "messages": asked, "max_tokens": 12, "tools": [tool] }), true),
        ("/v1/responses", json!({ "input": "Name two colours.", "max_output_tokens": 12 }), true),
    ]
}

#[test]
fn a_whole_answer_equals_the_servers_own() {
    let model = Model::start("llama.cpp with tools", 0, &["--tools"]);
    let config = format!(
        "[[target]]\nname = \"box\"\nkind = \"llamacpp\"\nurl = \"http://127.0.0.1:{}\"\n\
         deadlines = {{ first_token = \"60s\" }}\n",
        model.port
    );
    let edgeward = Edgeward::configured(&config);
    for (path, mut body, collected) in cases() {
        body["model"] = json!(MODEL);
        body["temperature"] = json!(0);
        if path != "/v1/responses" && body["max_tokens"].is_null() {
            body["max_tokens"] = json!(12);
        }
        let direct = http::post(model.port, path, &body).unwrap();
        assert_eq!(direct.status, 200, "{direct:?}");
        let through = http::post(edgeward.port, path, &body).unwrap();
        assert_eq!((through.status, through.header("x-edgeward-target")), (200, "box"), "{through:?}");
        assert_eq!(through.header("content-type").split(';').next(), Some("application/json"));
        assert_eq!(comparable(through.json()), comparable(direct.json()), "{path} {body}");
        assert_eq!(model.last_streamed(), collected, "{path} {body}");
    }
}
