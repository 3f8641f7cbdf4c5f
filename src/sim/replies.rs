//! A healthy server's answers, written as real ones write them, field order included.

use std::time::Duration;

use serde_json::Value;

use super::script::{Head, Op, Script};

/// A creation time for every answer, in Unix seconds: tests compare answers.
const CREATED: u64 = 1_767_225_600;
/// The same for Ollama.
const CREATED_AT: &str = "2026-01-01T00:00:00Z";

/// What is to be said, whatever the dialect.
pub(super) struct Answer {
    pub(super) model: String,
    pub(super) pieces: Vec<String>,
    /// The request's limit made it end early.
    pub(super) cut: bool,
    pub(super) prompt_tokens: usize,
    pub(super) stream: Option<bool>,
    pub(super) include_usage: bool,
    pub(super) first_token: Duration,
    pub(super) between: Duration,
}

impl Answer {
    fn text(&self) -> String {
        quoted(&self.pieces.concat())
    }

    fn model(&self) -> String {
        quoted(&self.model)
    }

    fn finish(&self) -> &'static str {
        if self.cut { "length" } else { "stop" }
    }

    /// How long generating all of it takes.
    fn duration(&self) -> Duration {
        let gaps = u32::try_from(self.pieces.len().saturating_sub(1)).unwrap_or(u32::MAX);
        self.first_token + self.between.saturating_mul(gaps)
    }

    fn usage(&self) -> String {
        let (prompt, completion) = (self.prompt_tokens, self.pieces.len());
        format!(
            r#"{{"prompt_tokens":{prompt},"completion_tokens":{completion},"total_tokens":{}}}"#,
            prompt + completion
        )
    }

    fn messages_usage(&self) -> String {
        format!(r#"{{"input_tokens":{},"output_tokens":{}}}"#, self.prompt_tokens, self.pieces.len())
    }

    /// The whole answer after the time that it takes.
    fn whole(&self, body: String) -> Script {
        let mut ops = waits(self.duration());
        ops.push(Op::Reply(Head::new(200, "application/json"), body.into_bytes()));
        ops.into()
    }

    /// Head, then `opening` with the first token, then the others, then `closing`.
    fn streamed(
        &self,
        content_type: &str,
        opening: Vec<String>,
        piece: impl Fn(&str) -> String,
        closing: Vec<String>,
    ) -> Script {
        let mut ops = waits(self.first_token);
        ops.push(Op::Head(Head::new(200, content_type)));
        ops.extend(opening.into_iter().map(|text| Op::Chunk(text.into_bytes())));
        for (index, text) in self.pieces.iter().enumerate() {
            if index > 0 {
                ops.extend(waits(self.between));
            }
            ops.push(Op::Chunk(piece(&quoted(text)).into_bytes()));
        }
        ops.extend(closing.into_iter().map(|text| Op::Chunk(text.into_bytes())));
        ops.push(Op::End);
        ops.into()
    }
}

fn waits(time: Duration) -> Vec<Op> {
    if time.is_zero() { Vec::new() } else { vec![Op::Wait(time)] }
}

/// A JSON string, quotes included.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

fn data(json: &str) -> String {
    format!("data: {json}\n\n")
}

/// An event whose name is its JSON's `type`.
fn event(name: &str, rest: &str) -> String {
    format!("event: {name}\ndata: {{\"type\":\"{name}\"{rest}}}\n\n")
}

/// As many inputs as an embedding request has.
fn inputs(body: &Value) -> usize {
    match body.get("input") {
        Some(Value::Array(inputs)) => inputs.len(),
        _ => 1,
    }
}

const VECTOR: &str = "[0.125,-0.25,0.5]";

/// OpenAI's API.
pub(super) mod openai {
    use super::{Answer, CREATED, Script, VECTOR, Value, data, event, inputs, quoted};

    pub(in crate::sim) fn error(status: u16, kind: &str, message: &str) -> Script {
        let message = quoted(message);
        let body = format!(r#"{{"error":{{"message":{message},"type":"{kind}","param":null,"code":null}}}}"#);
        Script::reply(status, "application/json", body)
    }

    pub(in crate::sim) fn models(models: &[String]) -> Script {
        let one = |model: &String| {
            format!(r#"{{"id":{},"object":"model","created":{CREATED},"owned_by":"sim"}}"#, quoted(model))
        };
        let list = models.iter().map(one).collect::<Vec<_>>().join(",");
        Script::reply(200, "application/json", format!(r#"{{"object":"list","data":[{list}]}}"#))
    }

    pub(in crate::sim) fn chat(answer: &Answer) -> Script {
        let model = answer.model();
        let finish = answer.finish();
        if answer.stream != Some(true) {
            let (text, usage) = (answer.text(), answer.usage());
            return answer.whole(format!(
                r#"{{"id":"chatcmpl-sim","object":"chat.completion","created":{CREATED},"model":{model},"choices":[{{"index":0,"message":{{"role":"assistant","content":{text}}},"finish_reason":"{finish}"}}],"usage":{usage}}}"#
            ));
        }
        let frame = |choices: &str, more: &str| {
            data(&format!(
                r#"{{"id":"chatcmpl-sim","object":"chat.completion.chunk","created":{CREATED},"model":{model},"choices":[{choices}]{more}}}"#
            ))
        };
        let choice = |delta: &str, finish: &str| {
            frame(&format!(r#"{{"index":0,"delta":{{{delta}}},"finish_reason":{finish}}}"#), "")
        };
        let mut closing = vec![choice("", &quoted(finish))];
        if answer.include_usage {
            closing.push(frame("", &format!(r#","usage":{}"#, answer.usage())));
        }
        closing.push(data("[DONE]"));
        let opening = vec![choice(r#""role":"assistant","content":"""#, "null")];
        let piece = |text: &str| choice(&format!(r#""content":{text}"#), "null");
        answer.streamed("text/event-stream", opening, piece, closing)
    }

    pub(in crate::sim) fn completions(answer: &Answer) -> Script {
        let model = answer.model();
        let finish = answer.finish();
        let frame = |choices: &str, more: &str| {
            format!(
                r#"{{"id":"cmpl-sim","object":"text_completion","created":{CREATED},"model":{model},"choices":[{choices}]{more}}}"#
            )
        };
        let choice =
            |text: &str, finish: &str| format!(r#"{{"text":{text},"index":0,"finish_reason":{finish}}}"#);
        let usage = format!(r#","usage":{}"#, answer.usage());
        if answer.stream != Some(true) {
            return answer.whole(frame(&choice(&answer.text(), &quoted(finish)), &usage));
        }
        let mut closing = vec![data(&frame(&choice(r#""""#, &quoted(finish)), ""))];
        if answer.include_usage {
            closing.push(data(&frame("", &usage)));
        }
        closing.push(data("[DONE]"));
        let piece = |text: &str| data(&frame(&choice(text, "null"), ""));
        answer.streamed("text/event-stream", Vec::new(), piece, closing)
    }

    pub(in crate::sim) fn embeddings(answer: &Answer, body: &Value) -> Script {
        let one = |index| format!(r#"{{"object":"embedding","index":{index},"embedding":{VECTOR}}}"#);
        let list = (0..inputs(body)).map(one).collect::<Vec<_>>().join(",");
        let (model, tokens) = (answer.model(), answer.prompt_tokens);
        answer.whole(format!(
            r#"{{"object":"list","data":[{list}],"model":{model},"usage":{{"prompt_tokens":{tokens},"total_tokens":{tokens}}}}}"#
        ))
    }

    pub(in crate::sim) fn responses(answer: &Answer) -> Script {
        let model = answer.model();
        let response = |status: &str, output: &str, usage: &str| {
            format!(
                r#"{{"id":"resp_sim","object":"response","created_at":{CREATED},"status":"{status}","model":{model},"output":[{output}],"usage":{usage}}}"#
            )
        };
        let item = |text: &str| {
            format!(
                r#"{{"id":"msg_sim","type":"message","status":"completed","role":"assistant","content":[{{"type":"output_text","text":{text},"annotations":[]}}]}}"#
            )
        };
        let whole = response("completed", &item(&answer.text()), &answer.messages_usage());
        if answer.stream != Some(true) {
            return answer.whole(whole);
        }
        let started = format!(r#","response":{}"#, response("in_progress", "", "null"));
        let opening = vec![
            event("response.created", &started),
            event("response.in_progress", &started),
            event(
                "response.output_item.added",
                r#","output_index":0,"item":{"id":"msg_sim","type":"message","status":"in_progress","role":"assistant","content":[]}"#,
            ),
            event(
                "response.content_part.added",
                r#","item_id":"msg_sim","output_index":0,"content_index":0,"part":{"type":"output_text","text":"","annotations":[]}"#,
            ),
        ];
        let place = r#","item_id":"msg_sim","output_index":0,"content_index":0"#;
        let piece = |text: &str| event("response.output_text.delta", &format!(r#"{place},"delta":{text}"#));
        let closing = vec![
            event("response.output_text.done", &format!(r#"{place},"text":{}"#, answer.text())),
            event(
                "response.output_item.done",
                &format!(r#","output_index":0,"item":{}"#, item(&answer.text())),
            ),
            event("response.completed", &format!(r#","response":{whole}"#)),
        ];
        answer.streamed("text/event-stream", opening, piece, closing)
    }
}

/// Anthropic's Messages API.
pub(super) mod anthropic {
    use super::{Answer, Script, event};

    fn stop_reason(answer: &Answer) -> &'static str {
        if answer.cut { "max_tokens" } else { "end_turn" }
    }

    pub(in crate::sim) fn messages(answer: &Answer) -> Script {
        let model = answer.model();
        let stop = stop_reason(answer);
        if answer.stream != Some(true) {
            let (text, usage) = (answer.text(), answer.messages_usage());
            return answer.whole(format!(
                r#"{{"id":"msg_sim","type":"message","role":"assistant","model":{model},"content":[{{"type":"text","text":{text}}}],"stop_reason":"{stop}","stop_sequence":null,"usage":{usage}}}"#
            ));
        }
        let tokens = answer.prompt_tokens;
        let opening = vec![
            event(
                "message_start",
                &format!(
                    r#","message":{{"id":"msg_sim","type":"message","role":"assistant","model":{model},"content":[],"stop_reason":null,"stop_sequence":null,"usage":{{"input_tokens":{tokens},"output_tokens":1}}}}"#
                ),
            ),
            event("content_block_start", r#","index":0,"content_block":{"type":"text","text":""}"#),
            event("ping", ""),
        ];
        let piece = |text: &str| {
            event(
                "content_block_delta",
                &format!(r#","index":0,"delta":{{"type":"text_delta","text":{text}}}"#),
            )
        };
        let closing = vec![
            event("content_block_stop", r#","index":0"#),
            event(
                "message_delta",
                &format!(
                    r#","delta":{{"stop_reason":"{stop}","stop_sequence":null}},"usage":{{"output_tokens":{}}}"#,
                    answer.pieces.len()
                ),
            ),
            event("message_stop", ""),
        ];
        answer.streamed("text/event-stream", opening, piece, closing)
    }

    pub(in crate::sim) fn count_tokens(answer: &Answer) -> Script {
        Script::reply(200, "application/json", format!(r#"{{"input_tokens":{}}}"#, answer.prompt_tokens))
    }
}

/// Ollama's own API.
pub(super) mod ollama {
    use super::{Answer, CREATED_AT, Script, VECTOR, Value, inputs, quoted};

    const DETAILS: &str = r#"{"parent_model":"","format":"gguf","family":"llama","families":["llama"],"parameter_size":"3.2B","quantization_level":"Q4_K_M"}"#;

    pub(in crate::sim) fn chat(answer: &Answer) -> Script {
        speak(answer, |text| format!(r#""message":{{"role":"assistant","content":{text}}}"#))
    }

    pub(in crate::sim) fn generate(answer: &Answer) -> Script {
        speak(answer, |text| format!(r#""response":{text}"#))
    }

    fn speak(answer: &Answer, said: impl Fn(&str) -> String) -> Script {
        let model = answer.model();
        let line = |text: &str, rest: &str| {
            let said = said(text);
            format!(r#"{{"model":{model},"created_at":"{CREATED_AT}",{said},"done":{rest}}}"#)
        };
        let finish = answer.finish();
        let end = format!(
            r#"true,"done_reason":"{finish}","total_duration":{},"load_duration":1000000,"prompt_eval_count":{},"prompt_eval_duration":1000000,"eval_count":{},"eval_duration":1000000"#,
            answer.duration().as_nanos(),
            answer.prompt_tokens,
            answer.pieces.len()
        );
        if answer.stream == Some(false) {
            return answer.whole(line(&answer.text(), &end));
        }
        let piece = |text: &str| line(text, "false") + "\n";
        answer.streamed("application/x-ndjson", Vec::new(), piece, vec![line(r#""""#, &end) + "\n"])
    }

    pub(in crate::sim) fn embed(answer: &Answer, body: &Value) -> Script {
        let (model, list) = (answer.model(), vec![VECTOR; inputs(body)].join(","));
        let tokens = answer.prompt_tokens;
        answer.whole(format!(
            r#"{{"model":{model},"embeddings":[{list}],"total_duration":1000000,"load_duration":1000000,"prompt_eval_count":{tokens}}}"#
        ))
    }

    pub(in crate::sim) fn embedding(answer: &Answer) -> Script {
        answer.whole(format!(r#"{{"embedding":{VECTOR}}}"#))
    }

    pub(in crate::sim) fn tags(models: &[String]) -> Script {
        listed(models, &format!(r#""modified_at":"{CREATED_AT}","#), "")
    }

    pub(in crate::sim) fn running(models: &[String]) -> Script {
        let until = format!(
            r#","expires_at":"2318-01-01T00:00:00Z","size_vram":{},"context_length":8192"#,
            2_019_393_189_u64
        );
        listed(models, "", &until)
    }

    fn listed(models: &[String], before: &str, after: &str) -> Script {
        let one = |model: &String| {
            let model = quoted(model);
            format!(
                r#"{{"name":{model},"model":{model},{before}"size":2019393189,"digest":"a80c4f17acd55265feec403c7aef86be0c25983ab279d83f3bcd3abbcb5b8b72","details":{DETAILS}{after}}}"#
            )
        };
        let list = models.iter().map(one).collect::<Vec<_>>().join(",");
        Script::reply(200, "application/json", format!(r#"{{"models":[{list}]}}"#))
    }

    pub(in crate::sim) fn version() -> Script {
        Script::reply(200, "application/json", r#"{"version":"0.30.0"}"#)
    }

    pub(in crate::sim) fn show() -> Script {
        Script::reply(
            200,
            "application/json",
            format!(
                r#"{{"modelfile":"","parameters":"","template":"","details":{DETAILS},"model_info":{{"general.architecture":"llama","llama.context_length":8192}},"capabilities":["completion"]}}"#
            ),
        )
    }
}
