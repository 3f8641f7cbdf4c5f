//! What a client of each dialect reads out of an answer: written apart from the program's own readers.

use edgeward::dialect::Dialect;
use serde_json::Value;

/// What an answer says to a client.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// Content and thinking, in order.
    pub text: String,
    /// Tool calls' names, in order.
    pub tools: Vec<String>,
    /// Every model name given.
    pub models: Vec<String>,
    /// Errors, in any shape that the dialect has.
    pub errors: Vec<String>,
    /// The dialect's own mark of a good end was there.
    pub ended: bool,
    /// What could not be read as an event.
    pub junk: Vec<String>,
}

/// Reads `body` as a client of `dialect` does, as a stream or as a whole answer.
pub fn said(dialect: Dialect, stream: bool, body: &[u8]) -> Said {
    let text = String::from_utf8_lossy(body).into_owned();
    let mut said = Said::default();
    let events = match dialect {
        _ if !stream => vec![(String::new(), text)],
        Dialect::OllamaChat | Dialect::OllamaGenerate => text
            .lines()
            .filter(|line| !line.is_empty())
            .map(|line| (String::new(), line.to_owned()))
            .collect(),
        _ => sse(&text, &mut said.junk),
    };
    for (name, data) in events {
        if data == "[DONE]" {
            said.ended = true;
            continue;
        }
        match serde_json::from_str(&data) {
            Ok(value) => said.take(dialect, &name, &value),
            Err(_) => said.junk.push(data),
        }
    }
    said
}

/// Name and data of each event, by the rules for event streams: any line end, data joined by newlines.
fn sse(text: &str, junk: &mut Vec<String>) -> Vec<(String, String)> {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let mut events = Vec::new();
    let (mut name, mut data) = (String::new(), Vec::<String>::new());
    // A last event without its empty line is delivered too, as real clients do.
    for line in text.split('\n').chain([""]) {
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value).to_owned();
        match field {
            "" if line.is_empty() => {
                if !data.is_empty() {
                    events.push((std::mem::take(&mut name), data.join("\n")));
                }
                name.clear();
                data.clear();
            }
            // A comment.
            "" => {}
            "data" => data.push(value),
            "event" => name = value,
            "id" | "retry" => {}
            _ => junk.push(line.to_owned()),
        }
    }
    events
}

impl Said {
    fn take(&mut self, dialect: Dialect, name: &str, value: &Value) {
        let error = value.get("error").filter(|error| !error.is_null());
        let failed = name == "error" || value["type"] == "error" || value["type"] == "response.failed";
        if error.is_some() || failed {
            self.errors.push(error.unwrap_or(value).to_string());
            return;
        }
        for pointer in ["/model", "/message/model", "/response/model"] {
            self.models.extend(value.pointer(pointer).and_then(Value::as_str).map(str::to_owned));
        }
        match dialect {
            Dialect::OpenaiChat | Dialect::OpenaiCompletions => self.take_openai(value),
            Dialect::OllamaChat | Dialect::OllamaGenerate => {
                let message = value.get("message").unwrap_or(value);
                self.texts(message, &["thinking", "content", "response"]);
                self.tools_of(message);
                self.ended |= value["done"] == true;
            }
            Dialect::Anthropic => {
                self.texts(&value["delta"], &["thinking", "text"]);
                for block in value["content"].as_array().into_iter().flatten() {
                    self.texts(block, &["thinking", "text"]);
                }
                self.ended |= value["type"] == "message_stop" || value["type"] == "message";
            }
            Dialect::OpenaiResponses => {
                if value["type"].as_str().is_some_and(|kind| kind.ends_with(".delta")) {
                    self.texts(value, &["delta"]);
                }
                self.ended |= value["type"] == "response.completed" || value["status"] == "completed";
            }
            Dialect::Gemini => {
                for part in value
                    .pointer("/candidates/0/content/parts")
                    .and_then(Value::as_array)
                    .into_iter()
                    .flatten()
                {
                    self.texts(part, &["text"]);
                }
                self.ended |= value.pointer("/candidates/0/finishReason").is_some();
            }
            Dialect::OpenaiEmbeddings | Dialect::OllamaEmbed => {}
        }
    }

    fn take_openai(&mut self, value: &Value) {
        for choice in value["choices"].as_array().into_iter().flatten() {
            let delta = choice.get("delta").or(choice.get("message")).unwrap_or(choice);
            self.texts(delta, &["reasoning_content", "reasoning"]);
            for detail in delta["reasoning_details"].as_array().into_iter().flatten() {
                self.texts(detail, &["text"]);
            }
            self.texts(delta, &["content", "text"]);
            self.tools_of(delta);
            // A whole answer has no other mark.
            self.ended |= choice.get("message").is_some();
        }
    }

    fn texts(&mut self, value: &Value, keys: &[&str]) {
        let found = keys.iter().filter_map(|key| value.get(key)?.as_str());
        self.text.extend(found);
    }

    fn tools_of(&mut self, message: &Value) {
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            self.tools.extend(call.pointer("/function/name").and_then(Value::as_str).map(str::to_owned));
        }
    }
}
