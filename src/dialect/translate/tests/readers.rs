//! How each dialect's clients read a stream, written apart from our own decoders and strict about order.

use serde_json::Value;

use super::{Dialect, events};
use crate::wire::{Framing, sse};

/// What a client has at the end.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Got {
    pub(super) text: String,
    pub(super) thinking: String,
    /// Id, name, arguments as they came.
    pub(super) calls: Vec<(String, String, String)>,
    pub(super) finish: String,
    pub(super) usage: Option<(u64, u64)>,
    /// The dialect's end came.
    pub(super) ended: bool,
    pub(super) error: Option<String>,
    /// Of Anthropic's thinking.
    pub(super) signature: String,
    pub(super) model: String,
}

fn string(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Each frame's data and, for SSE, its event's name. Every frame is whole and every one is JSON but `[DONE]`.
pub(super) fn frames(client: Dialect, stream: &str) -> Vec<(String, String)> {
    let framing = client.framing();
    let ended = match framing {
        Framing::Sse => stream.is_empty() || stream.ends_with("\n\n"),
        Framing::Ndjson => stream.is_empty() || stream.ends_with('\n'),
    };
    assert!(ended, "a frame is cut: {stream}");
    events(client, &[stream.as_bytes()])
        .into_iter()
        .map(|event| match framing {
            Framing::Ndjson => {
                // As httpx splits lines.
                let text = String::from_utf8(event).unwrap();
                assert_eq!(
                    text.split(['\n', '\r', '\u{b}', '\u{c}', '\u{85}', '\u{2028}', '\u{2029}']).count(),
                    2
                );
                (String::new(), text)
            }
            Framing::Sse => {
                let mut join = vec![0; event.len()];
                let parsed = sse::parse(&event, &mut join).unwrap();
                assert_eq!(parsed.stray, None);
                let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
                (text(parsed.name), text(parsed.data.unwrap()))
            }
        })
        .collect()
}

pub(super) fn read(client: Dialect, stream: &str) -> Got {
    let frames = frames(client, stream);
    match client {
        Dialect::OpenaiChat => chat(&frames),
        Dialect::OpenaiCompletions => completions(&frames),
        Dialect::OpenaiResponses => responses(&frames),
        Dialect::Anthropic => anthropic(&frames),
        _ => ollama(&frames),
    }
}

fn json(data: &str) -> Value {
    serde_json::from_str(data).unwrap_or_else(|error| panic!("{error}: {data}"))
}

fn openai_usage(value: &Value) -> Option<(u64, u64)> {
    let usage = &value["usage"];
    usage
        .is_object()
        .then(|| (usage["prompt_tokens"].as_u64().unwrap(), usage["completion_tokens"].as_u64().unwrap()))
}

fn chat(frames: &[(String, String)]) -> Got {
    let mut got = Got::default();
    for (at, (_, data)) in frames.iter().enumerate() {
        assert!(!got.ended, "after the end: {data}");
        if data == "[DONE]" {
            got.ended = true;
            continue;
        }
        let chunk = json(data);
        if !chunk["error"].is_null() {
            got.error = Some(string(&chunk["error"]["message"]));
            continue;
        }
        assert_eq!(chunk["id"], "chatcmpl-t1");
        assert_eq!(chunk["object"], "chat.completion.chunk");
        got.model = string(&chunk["model"]);
        got.usage = openai_usage(&chunk).or(got.usage);
        let choices = chunk["choices"].as_array().unwrap();
        let Some(choice) = choices.first() else {
            assert!(chunk["usage"].is_object());
            continue;
        };
        let delta = &choice["delta"];
        assert_eq!(delta["role"] == "assistant", at == 0, "the first chunk, and no other, has the role");
        got.text += &string(&delta["content"]);
        got.text += &string(&delta["refusal"]);
        got.thinking += &string(&delta["reasoning_content"]);
        got.signature += &string(&delta["reasoning_details"][0]["signature"]);
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            let index = call["index"].as_u64().unwrap() as usize;
            if index == got.calls.len() {
                assert_eq!(call["type"], "function");
                got.calls.push((string(&call["id"]), string(&call["function"]["name"]), String::new()));
            }
            got.calls[index].2 += &string(&call["function"]["arguments"]);
        }
        got.finish += &string(&choice["finish_reason"]);
    }
    got
}

fn completions(frames: &[(String, String)]) -> Got {
    let mut got = Got::default();
    for (_, data) in frames {
        assert!(!got.ended, "after the end: {data}");
        if data == "[DONE]" {
            got.ended = true;
            continue;
        }
        let chunk = json(data);
        if !chunk["error"].is_null() {
            got.error = Some(string(&chunk["error"]["message"]));
            continue;
        }
        assert_eq!(
            (&chunk["id"], &chunk["object"]),
            (&Value::from("cmpl-t1"), &Value::from("text_completion"))
        );
        got.model = string(&chunk["model"]);
        got.usage = openai_usage(&chunk).or(got.usage);
        if let Some(choice) = chunk["choices"].as_array().unwrap().first() {
            got.text += choice["text"].as_str().unwrap();
            got.finish += &string(&choice["finish_reason"]);
        }
    }
    got
}

fn ollama(frames: &[(String, String)]) -> Got {
    let mut got = Got::default();
    for (_, data) in frames {
        assert!(!got.ended, "after the end: {data}");
        let line = json(data);
        if !line["error"].is_null() {
            got.error = Some(string(&line["error"]));
            continue;
        }
        assert_eq!(line["created_at"], "2023-11-14T22:13:20Z");
        got.model = string(&line["model"]);
        let said = if line["message"].is_object() { &line["message"] } else { &line };
        got.text += said["content"].as_str().or(said["response"].as_str()).unwrap();
        got.thinking += &string(&said["thinking"]);
        for call in said["tool_calls"].as_array().into_iter().flatten() {
            let function = &call["function"];
            assert_eq!(function["index"], got.calls.len());
            assert!(function["arguments"].is_object());
            got.calls.push((
                string(&call["id"]),
                string(&function["name"]),
                function["arguments"].to_string(),
            ));
        }
        if line["done"].as_bool().unwrap() {
            got.ended = true;
            got.finish = string(&line["done_reason"]);
            got.usage =
                Some((line["prompt_eval_count"].as_u64().unwrap(), line["eval_count"].as_u64().unwrap()));
        }
    }
    got
}

fn anthropic(frames: &[(String, String)]) -> Got {
    let mut got = Got::default();
    let mut blocks = 0;
    let mut open: Option<String> = None;
    for (at, (name, data)) in frames.iter().enumerate() {
        assert!(!got.ended, "after the end: {data}");
        let event = json(data);
        assert_eq!(event["type"], name.as_str());
        assert_eq!(name == "message_start", at == 0 && name != "error", "{frames:?}");
        match name.as_str() {
            "error" => got.error = Some(string(&event["error"]["message"])),
            "message_start" => {
                assert_eq!(event["message"]["id"], "msg_t1");
                got.model = string(&event["message"]["model"]);
            }
            "content_block_start" => {
                assert_eq!(open, None, "blocks do not mix");
                assert_eq!(event["index"], blocks);
                let block = &event["content_block"];
                let kind = string(&block["type"]);
                if kind == "tool_use" {
                    got.calls.push((string(&block["id"]), string(&block["name"]), String::new()));
                }
                open = Some(kind);
            }
            "content_block_delta" => {
                assert_eq!(event["index"], blocks);
                let delta = &event["delta"];
                let kind = match delta["type"].as_str().unwrap() {
                    "text_delta" => "text",
                    "thinking_delta" | "signature_delta" => "thinking",
                    "input_json_delta" => "tool_use",
                    other => panic!("{other}"),
                };
                assert_eq!(open.as_deref(), Some(kind));
                got.text += &string(&delta["text"]);
                got.thinking += &string(&delta["thinking"]);
                got.signature += &string(&delta["signature"]);
                if kind == "tool_use" {
                    got.calls.last_mut().unwrap().2 += delta["partial_json"].as_str().unwrap();
                }
            }
            "content_block_stop" => {
                assert!(open.take().is_some());
                assert_eq!(event["index"], blocks);
                blocks += 1;
            }
            "message_delta" => {
                assert_eq!(open, None);
                got.finish = string(&event["delta"]["stop_reason"]);
                let usage = &event["usage"];
                got.usage =
                    Some((usage["input_tokens"].as_u64().unwrap(), usage["output_tokens"].as_u64().unwrap()));
            }
            "message_stop" => got.ended = true,
            other => panic!("{other}"),
        }
    }
    got
}

/// Checks each event against those before it, as OpenAI's libraries build a response.
fn responses(frames: &[(String, String)]) -> Got {
    let mut got = Got::default();
    let mut items: Vec<Value> = Vec::new();
    let mut open = false;
    for (at, (name, data)) in frames.iter().enumerate() {
        assert!(!got.ended && got.error.is_none(), "after the end: {data}");
        let event = json(data);
        assert_eq!(event["type"], name.as_str());
        assert_eq!(event["sequence_number"], at);
        assert_eq!(name == "response.created", at == 0);
        if event["output_index"].is_u64() && name != "response.output_item.added" {
            assert!(open);
            assert_eq!(event["output_index"], items.len() - 1);
            let item = items.last().unwrap();
            assert!(event["item_id"].is_null() || event["item_id"] == item["id"]);
        }
        let response = &event["response"];
        match name.as_str() {
            "response.created" | "response.in_progress" => {
                assert_eq!(response["status"], "in_progress");
                assert_eq!(response["id"], "resp_t1");
                got.model = string(&response["model"]);
            }
            "response.output_item.added" => {
                assert!(!open);
                assert_eq!(event["output_index"], items.len());
                assert_eq!(event["item"]["status"], "in_progress");
                items.push(event["item"].clone());
                open = true;
            }
            "response.content_part.added" => push(items.last_mut().unwrap(), "content", &event["part"]),
            "response.reasoning_summary_part.added" => {
                push(items.last_mut().unwrap(), "summary", &event["part"]);
            }
            "response.output_text.delta" => {
                append(&mut items.last_mut().unwrap()["content"][0]["text"], &event["delta"]);
                let logprobs = &mut items.last_mut().unwrap()["content"][0]["logprobs"];
                logprobs.as_array_mut().unwrap().extend(event["logprobs"].as_array().unwrap().clone());
            }
            "response.refusal.delta" => {
                append(&mut items.last_mut().unwrap()["content"][0]["refusal"], &event["delta"]);
            }
            "response.reasoning_summary_text.delta" => {
                append(&mut items.last_mut().unwrap()["summary"][0]["text"], &event["delta"]);
            }
            "response.function_call_arguments.delta" => {
                append(&mut items.last_mut().unwrap()["arguments"], &event["delta"]);
            }
            "response.output_text.done" => {
                assert_eq!(items.last().unwrap()["content"][0]["text"], event["text"]);
                assert_eq!(items.last().unwrap()["content"][0]["logprobs"], event["logprobs"]);
            }
            "response.refusal.done" => {
                assert_eq!(items.last().unwrap()["content"][0]["refusal"], event["refusal"]);
            }
            "response.reasoning_summary_text.done" => {
                assert_eq!(items.last().unwrap()["summary"][0]["text"], event["text"]);
            }
            "response.function_call_arguments.done" => {
                assert_eq!(items.last().unwrap()["name"], event["name"]);
                assert_eq!(items.last().unwrap()["arguments"], event["arguments"]);
            }
            "response.content_part.done" => {
                assert_eq!(items.last().unwrap()["content"][0], event["part"]);
            }
            "response.reasoning_summary_part.done" => {
                assert_eq!(items.last().unwrap()["summary"][0], event["part"]);
            }
            "response.output_item.done" => {
                let item = items.last_mut().unwrap();
                item["status"] = "completed".into();
                if event["item"]["type"] == "reasoning" {
                    item["encrypted_content"] = event["item"]["encrypted_content"].clone();
                    got.signature = string(&item["encrypted_content"]);
                    let mut said = event["item"].clone();
                    said["encrypted_content"] = item["encrypted_content"].clone();
                    assert_eq!(*item, said);
                } else {
                    assert_eq!(*item, event["item"]);
                }
                open = false;
            }
            "response.completed" | "response.incomplete" => {
                got.ended = true;
                let built: Vec<Value> = items.iter().map(without_null).collect();
                assert_eq!(response["output"], Value::from(built));
                got.finish = match &response["incomplete_details"]["reason"] {
                    Value::Null => string(&response["status"]),
                    reason => string(reason),
                };
                let usage = &response["usage"];
                got.usage =
                    Some((usage["input_tokens"].as_u64().unwrap(), usage["output_tokens"].as_u64().unwrap()));
            }
            "response.failed" => got.error = Some(string(&response["error"]["message"])),
            other => panic!("{other}"),
        }
    }
    for item in &items {
        match item["type"].as_str().unwrap() {
            "message" => {
                let part = &item["content"][0];
                got.text += &(string(&part["text"]) + &string(&part["refusal"]));
            }
            "reasoning" => got.thinking += &string(&item["summary"][0]["text"]),
            _ => {
                got.calls.push((string(&item["call_id"]), string(&item["name"]), string(&item["arguments"])))
            }
        }
    }
    got
}

fn without_null(item: &Value) -> Value {
    let mut item = item.clone();
    if item["encrypted_content"].is_null() {
        item.as_object_mut().unwrap().remove("encrypted_content");
    }
    item
}

fn push(item: &mut Value, list: &str, part: &Value) {
    item[list].as_array_mut().unwrap().push(part.clone());
}

fn append(to: &mut Value, delta: &Value) {
    *to = Value::from(string(to) + delta.as_str().unwrap());
}
