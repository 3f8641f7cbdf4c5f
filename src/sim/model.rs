//! A healthy simulated model server: it answers every endpoint that a client here may use.

use std::time::Duration;

use serde_json::Value;

use super::replies::{Answer, anthropic, ollama, openai};
use super::script::Script;
use super::server::{Behaviour, SimRequest};

/// What the tokens after the first, which is the server's name, are made of.
const WORDS: [&str; 12] =
    ["the", "gate", "holds", "a", "stream", "until", "its", "first", "real", "token", "is", "here"];
/// Tokens of an answer unless said otherwise.
const TOKENS: usize = 8;

/// A healthy model server. Its answers begin with its name, so that a test or a reader sees who spoke.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    /// Its name, and its answers' first token.
    pub name: String,
    /// The models that it lists. It answers for any.
    pub models: Vec<String>,
    /// Tokens of an answer; a smaller limit in the request is kept.
    pub tokens: usize,
    /// From the request to the response's head and first token.
    pub first_token: Duration,
    /// Between two tokens.
    pub between: Duration,
}

/// A healthy server that answers at once; see [`Model`].
#[must_use]
pub fn healthy(name: &str) -> Model {
    Model {
        name: name.to_owned(),
        models: vec!["m".to_owned()],
        tokens: TOKENS,
        first_token: Duration::ZERO,
        between: Duration::ZERO,
    }
}

impl From<Model> for Behaviour {
    fn from(model: Model) -> Self {
        Behaviour::by(move |request| model.answer(request))
    }
}

impl Model {
    /// With other models listed.
    #[must_use]
    pub fn models(mut self, models: &[&str]) -> Self {
        self.models = models.iter().map(|&model| model.to_owned()).collect();
        self
    }

    /// With other timing and length: `tokens` tokens, the first after `first_token`, the others `between` apart.
    #[must_use]
    pub fn paced(mut self, tokens: usize, first_token: Duration, between: Duration) -> Self {
        (self.tokens, self.first_token, self.between) = (tokens, first_token, between);
        self
    }

    /// The whole text of an answer that no limit cuts short.
    #[must_use]
    pub fn text(&self) -> String {
        self.pieces(self.tokens).concat()
    }

    fn pieces(&self, tokens: usize) -> Vec<String> {
        let words = WORDS.iter().cycle().map(|word| format!(" {word}"));
        std::iter::once(format!("[{}]", self.name)).chain(words).take(tokens).collect()
    }

    /// What is done with `request`.
    #[must_use]
    pub fn answer(&self, request: &SimRequest) -> Script {
        let path = request.path.split('?').next().unwrap_or_default();
        // OpenAI-compatible servers are configured with and without `/v1` in their URL.
        let path = path.strip_prefix("/v1").unwrap_or(path);
        let get = matches!(request.method.as_str(), "GET" | "HEAD");
        let body = request.json();
        match (get, path) {
            (true, "/") => return Script::reply(200, "text/plain; charset=utf-8", "Ollama is running"),
            (true, "/health") => return Script::reply(200, "application/json", r#"{"status":"ok"}"#),
            (true, "/models") => return openai::models(&self.models),
            (true, "/api/tags") => return ollama::tags(&self.models),
            (true, "/api/ps") => return ollama::running(&self.models),
            (true, "/api/version") => return ollama::version(),
            (false, "/api/show") => return ollama::show(),
            (false, _) if body.is_object() => {}
            (false, _) => {
                return openai::error(400, "invalid_request_error", "the body is not a JSON object");
            }
            (true, _) => return openai::error(404, "not_found_error", "no such path"),
        }
        let answer = self.prepare(&body);
        match path {
            "/chat/completions" => openai::chat(&answer),
            "/completions" => openai::completions(&answer),
            "/embeddings" => openai::embeddings(&answer, &body),
            "/responses" => openai::responses(&answer),
            "/messages" => anthropic::messages(&answer),
            "/messages/count_tokens" => anthropic::count_tokens(&answer),
            "/api/chat" => ollama::chat(&answer),
            "/api/generate" => ollama::generate(&answer),
            "/api/embed" => ollama::embed(&answer, &body),
            "/api/embeddings" => ollama::embedding(&answer),
            _ => openai::error(404, "not_found_error", "no such path"),
        }
    }

    fn prepare(&self, body: &Value) -> Answer {
        let limit = ["max_tokens", "max_completion_tokens", "max_output_tokens"]
            .iter()
            .find_map(|&key| body.get(key).or(body.pointer("/options/num_predict")).and_then(Value::as_u64));
        let limit = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
        Answer {
            model: body.get("model").and_then(Value::as_str).unwrap_or("m").to_owned(),
            pieces: self.pieces(self.tokens.min(limit)),
            cut: limit < self.tokens,
            prompt_tokens: body.to_string().len() / 4,
            stream: body.get("stream").and_then(Value::as_bool),
            include_usage: body.pointer("/stream_options/include_usage").and_then(Value::as_bool)
                == Some(true),
            first_token: self.first_token,
            between: self.between,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(path: &str, body: &str) -> Vec<String> {
        let request = SimRequest {
            method: if body.is_empty() { "GET" } else { "POST" }.to_owned(),
            path: path.to_owned(),
            body: body.as_bytes().to_vec(),
            ..SimRequest::default()
        };
        let script = healthy("box").models(&["a", "b"]).answer(&request);
        script.payload().into_iter().map(|piece| String::from_utf8(piece).unwrap()).collect()
    }

    fn json(text: &str) -> Value {
        serde_json::from_str(text).expect(text)
    }

    /// Every event's JSON; `[DONE]` is `Null`.
    fn events(pieces: &[String]) -> Vec<Value> {
        let data =
            |piece: &String| piece.lines().find_map(|line| line.strip_prefix("data: ").map(str::to_owned));
        let value = |data: String| if data == "[DONE]" { Value::Null } else { json(&data) };
        pieces.iter().map(|piece| value(data(piece).unwrap())).collect()
    }

    fn joined(values: &[Value], pointer: &str) -> String {
        values.iter().filter_map(|value| value.pointer(pointer)?.as_str()).collect()
    }

    #[test]
    fn streams_say_the_same_text_in_each_dialect() {
        let text = healthy("box").text();
        assert!(text.starts_with("[box] the gate"), "{text}");
        let chat = events(&ask("/v1/chat/completions", r#"{"model":"x","stream":true}"#));
        assert_eq!(joined(&chat, "/choices/0/delta/content"), text);
        assert_eq!(joined(&chat, "/choices/0/finish_reason"), "stop");
        assert_eq!(chat.last(), Some(&Value::Null));
        assert!(chat.iter().all(|event| event.get("usage").is_none()));
        assert!(chat.iter().filter(|event| !event.is_null()).all(|event| event["model"] == "x"));
        let completions = events(&ask("/completions", r#"{"stream":true}"#));
        assert_eq!(joined(&completions, "/choices/0/text"), text);
        let messages = events(&ask("/v1/messages", r#"{"stream":true}"#));
        assert_eq!(joined(&messages, "/delta/text"), text);
        assert_eq!(messages.last().unwrap()["type"], "message_stop");
        let responses = events(&ask("/v1/responses", r#"{"stream":true}"#));
        let deltas: Vec<Value> =
            responses.iter().filter(|event| event["type"] == "response.output_text.delta").cloned().collect();
        assert_eq!(joined(&deltas, "/delta"), text);
        assert_eq!(responses.last().unwrap()["type"], "response.completed");
        // Ollama streams unless told not to.
        for (path, pointer) in [("/api/chat", "/message/content"), ("/api/generate", "/response")] {
            let lines: Vec<Value> = ask(path, r#"{"model":"x"}"#).iter().map(|line| json(line)).collect();
            assert_eq!(joined(&lines, pointer), text);
            assert_eq!(lines.last().unwrap()["done"], true);
            assert_eq!(lines.last().unwrap()["eval_count"], 8);
        }
    }

    #[test]
    fn whole_answers_say_it_too() {
        let text = healthy("box").text();
        for (path, body, pointer) in [
            ("/chat/completions", "{}", "/choices/0/message/content"),
            ("/completions", "{}", "/choices/0/text"),
            ("/responses", "{}", "/output/0/content/0/text"),
            ("/messages", "{}", "/content/0/text"),
            ("/api/chat", r#"{"stream":false}"#, "/message/content"),
            ("/api/generate", r#"{"stream":false}"#, "/response"),
        ] {
            let pieces = ask(path, body);
            assert_eq!(pieces.len(), 1, "{path}");
            assert_eq!(
                json(&pieces[0]).pointer(pointer).and_then(Value::as_str),
                Some(text.as_str()),
                "{path}"
            );
        }
    }

    #[test]
    fn usage_is_sent_to_who_asked_and_limits_are_kept() {
        let body = r#"{"stream":true,"stream_options":{"include_usage":true},"max_tokens":2}"#;
        let chat = events(&ask("/chat/completions", body));
        assert_eq!(joined(&chat, "/choices/0/delta/content"), "[box] the");
        assert_eq!(joined(&chat, "/choices/0/finish_reason"), "length");
        let usage = &chat[chat.len() - 2];
        assert_eq!(usage["choices"], serde_json::json!([]));
        assert_eq!(usage["usage"]["completion_tokens"], 2);
    }

    #[test]
    fn lists_and_mistakes() {
        assert_eq!(json(&ask("/v1/models", "")[0])["data"][1]["id"], "b");
        assert_eq!(json(&ask("/api/tags", "")[0])["models"][0]["name"], "a");
        assert_eq!(json(&ask("/api/ps", "")[0])["models"][0]["name"], "a");
        assert!(json(&ask("/api/version", "")[0])["version"].is_string());
        assert_eq!(
            json(&ask("/v1/embeddings", r#"{"input":["a","b"]}"#)[0])["data"].as_array().unwrap().len(),
            2
        );
        assert_eq!(
            json(&ask("/api/embed", r#"{"input":"a"}"#)[0])["embeddings"].as_array().unwrap().len(),
            1
        );
        assert!(json(&ask("/nowhere", "{}")[0])["error"].is_object());
        assert!(json(&ask("/v1/chat/completions", "[1]")[0])["error"].is_object());
    }
}
