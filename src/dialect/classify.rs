//! What an error means: the one place that reads error texts. WIRE.md 2.4, 3.2, 4 to 9.

use std::ops::Range;

use memchr::memmem;

use super::trouble::Trouble;
use crate::cause::Cause;
use crate::limits::{MODEL_NAME_BYTES, NEEDLE_TEXT_BYTES};
use crate::wire::json::{Cursor, Str};

mod room;

pub use room::fitting;

/// A phrase, lower case; with a second one, both must stand in this order, a model's name between.
enum Needle {
    One(&'static str),
    Two(&'static str, &'static str),
}
use Needle::{One, Two};

/// Room for a model's name and its quotes between two parts of a phrase.
const GAP: usize = MODEL_NAME_BYTES + 44;

/// Searched in this order: what is more precise, or explains more, comes first.
const TABLE: &[(Cause, &[Needle])] = &[
    (
        Cause::ContextOverflow,
        &[
            One("exceeds the available context size"),
            One("exceed_context_size"),
            One("context_length_exceeded"),
            One("context length exceeded"),
            One("maximum context length"),
            One("longer than the context length"),
            // SGLang: managers/tokenizer_manager.py.
            One("longer than the model's context length"),
            // LM Studio.
            One("greater than the context length"),
            One("model is loaded with context length of only"),
            // Ollama: server/routes.go, embeddings.
            One("input length exceeds the context length"),
            // vLLM: renderers/params.py, multimodal and encoder prompts.
            One("cannot be greater than max_model_len"),
            One("the model's context length is only"),
            One("longer than the maximum model length"),
            // SGLang: entrypoints/openai/serving_chat.py. The number is its window.
            Two("max_completion_tokens is too large: ", ".this model supports at most"),
            // Anthropic: prompt and `max_tokens` together.
            One("exceed context limit"),
            One("exceeds the context window"),
            One("context overflow"),
            One("prompt is too long"),
            One("is too large to process"),
            One("exceeds the maximum number of tokens allowed"),
            One("`inputs` tokens + `max_new_tokens` must be"),
            One("`inputs` must have less than"),
            One("range of input length should be"),
        ],
    ),
    // Go's word for SIGKILL: of what ends a runner so, the kernel's OOM killer alone is no operator.
    (Cause::OomKill, &[One("signal: killed")]),
    (
        // Ollama's own list (llm/status.go), and what kernels and other engines say; first what names the GPU.
        Cause::CudaOom,
        &[
            One("cuda out of memory"),
            One("hip out of memory"),
            One("cuda error: out of memory"),
            One("outofmemoryerror: cuda"),
            One("out of device memory"),
            One("outofdevicememory"),
            One("out_of_device_memory"),
            One("cudamalloc failed"),
            One("hipmalloc failed"),
            One("cublas_status_alloc_failed"),
        ],
    ),
    (
        Cause::Oom,
        &[
            One("out of memory"),
            One("out_of_memory"),
            One("outofmemory"),
            One("out-of-memory"),
            One("failed to allocate"),
            One("allocation failed"),
            One("alloc_failed"),
            One("bad_alloc"),
            One("not enough memory"),
            One("insufficient memory"),
            One("requires more system memory"),
            One("no available memory for the cache"),
            Two("but only", "are available (after"),
        ],
    ),
    (Cause::Crashed, &[One("error loading model"), One("failed to load model"), One("unable to load model")]),
    (
        Cause::Loading,
        &[
            One("loading model"),
            One("model is loading"),
            One("currently loading"),
            One("still loading"),
            One("model is being loaded"),
            One("timed out waiting for llama"),
        ],
    ),
    (
        Cause::Overloaded,
        &[
            One("server busy"),
            // vLLM 0.32 with `--max-num-queued-reqs`, recorded.
            One("engine is currently busy"),
            One("maximum pending requests"),
            One("overloaded"),
            One("queue is full"),
            One("queue full"),
            One("too busy"),
            One("no slots available"),
            One("no slot available"),
            // llama.cpp, in the middle of a stream: other requests have used up the KV cache that all slots
            // share. A prompt that is too long by itself is refused with other words before anything is sent.
            One("context size has been exceeded"),
            One("at capacity"),
            One("high demand"),
            One("service_unavailable"),
        ],
    ),
    (
        Cause::RateLimited,
        &[
            One("rate limit"),
            One("rate_limit"),
            One("rate-limit"),
            One("too many requests"),
            One("resource_exhausted"),
            One("insufficient_quota"),
            One("quota exceeded"),
            One("exceeded your current quota"),
        ],
    ),
    (
        Cause::Unauthorized,
        &[
            One("invalid api key"),
            One("invalid_api_key"),
            One("incorrect api key"),
            One("api key not valid"),
            One("api_key_invalid"),
            One("invalid x-api-key"),
            One("authentication_error"),
            One("no auth credentials"),
            One("insufficient balance"),
            One("insufficient credits"),
            One("credit balance is too low"),
        ],
    ),
    (
        Cause::Unsupported,
        &[
            // "x" or "this model" does not support, of Ollama (server/images.go), vLLM (the routers, v1/engine) and others.
            One("does not support chat"),
            One("does not support generat"),
            One("does not support completion"),
            One("does not support insert"),
            One("does not support thinking"),
            One("does not support tool"),
            One("does not support function"),
            One("does not support image"),
            One("does not support vision"),
            One("does not support audio"),
            One("does not support multimodal"),
            One("does not support embed"),
            One("does not support pooling"),
            One("does not support rerank"),
            One("does not support score api"),
            One("does not support responses api"),
            One("does not support messages api"),
            One("does not support transcription"),
            One("does not support matryoshka"),
            // Ollama: server/routes.go.
            One("image urls are not currently supported"),
            One("image generation models are not currently supported"),
            One("this model only supports one image"),
            // vLLM: renderers/online_renderer.py, engine/arg_utils.py, multimodal, transformers' own words.
            One("tool choice requires --"),
            One("requires --tool-call-parser"),
            One("is not a multimodal model"),
            Two("at most ", "may be provided in one prompt"),
            One("exceeds the pre-allocated encoder cache size"),
            One("you must provide a chat template"),
            One("tokenizer.chat_template is not set"),
            One("not supported by xgrammar"),
            Two("logprobs of ", "which is greater than max allowed"),
            // llama.cpp: tools/server/server-common.cpp, -schema.cpp, -context.cpp, -chat.cpp.
            One("requires --jinja"),
            One("image input is not supported"),
            One("audio input is not supported"),
            One("failed to download image"),
            One("this server does not support"),
            One("logprobs is not supported"),
            One("field 'n': value must be between"),
            One("only one completion choice is allowed"),
            One("cannot be greater than the number of slots"),
            One("is not supported by llamacpp"),
            One("llama.cpp does not support"),
            // Chat templates, by `raise_exception`: rules of one model's alone.
            One("system role not supported"),
            One("conversation roles must alternate"),
            One("only supports single tool-calls"),
            // SGLang: managers/tokenizer_manager.py.
            One("does not appear to be an embedding model"),
            One("multimodal inputs are not supported"),
            Two("image count ", "exceeds limit"),
            // TGI: router/src/validation.rs, infer/mod.rs.
            One("grammar is not supported"),
            One("modality is not supported"),
            One("template error: template not found"),
            // LM Studio.
            One("'response_format.type' must be 'json_schema' or 'text'"),
            One("invalid tool_choice type: 'object'"),
            // Clouds; a model's own limit of an answer's length among them.
            One("only support stream mode"),
            One("no endpoints found that support"),
            Two("this model supports at most ", "completion tokens, whereas you provided"),
            One("which is the maximum allowed number of output tokens"),
        ],
    ),
    (
        Cause::ModelMissing,
        &[
            One("model_not_found"),
            One("model not found"),
            One("model does not exist"),
            One("model not exist"),
            One("is not a valid model"),
            One("no endpoints found for"),
            One("is not found for api version"),
            One("no models loaded"),
            One("try pulling it"),
            Two("model '", "' not found"),
            Two("model \\\"", "\\\" not found"),
            Two("the model `", "` does not exist"),
            Two("the model '", "' does not exist"),
        ],
    ),
    (
        Cause::Crashed,
        &[
            One("runner has unexpectedly stopped"),
            One("process has terminated"),
            One("runner failed"),
            One("predict: post"),
            One("error reading llm response"),
            One("error was encountered while running the model"),
            One("unexpected server status"),
            One("unexpected eof"),
            One("connection refused"),
            One("proxy error"),
            One("compute error"),
            One("decode() failed"),
            One("cuda error"),
            One("devicelost"),
            One("device_lost"),
            One("enginecore"),
            One("enginedead"),
            One("model has crashed"),
            One("model is unloaded"),
            One("model unloaded"),
            One("incomplete generation"),
            One("request failed during generation"),
        ],
    ),
    // TGI says every client mistake inside a 200, under the same code as an overload.
    (Cause::ClientFault, &[One("input validation error")]),
];

/// Mistakes of a request that llama.cpp calls a 500 (server-common.cpp: what is no `invalid_argument`). As failures they
/// would count against a server that is well.
const MISTAKES: &[&str] = &[
    "invalid url value",
    "invalid url format: ",
    "url must be base64 encoded",
    "cannot use both json_schema and grammar",
    "'messages' is required",
];

/// What an error text means. `status` is a status that the error itself names, if it does.
///
/// Of `text` the first [`NEEDLE_TEXT_BYTES`] are looked at, and nothing from an echo of the
/// request on (FastAPI's `'input': …`): a prompt about memory is no want of memory.
#[must_use]
pub fn classify(status: Option<u16>, text: &[u8]) -> Cause {
    let mut haystack = Text::new();
    haystack.push(text);
    classify_text(status, &haystack)
}

/// What an answer with an error status (400 and up) means: whether to go on to the next target,
/// and as what; [`Cause::ClientFault`] where the client itself must be told, unchanged.
#[must_use]
pub fn classify_status(status: u16, body: &[u8]) -> Cause {
    let found = |allowed: &[Cause]| body_text(body).find(|cause| allowed.contains(&cause));
    match status {
        // OpenRouter: the input was flagged. A refusal is an answer, and hops to nobody.
        403 if body_text(body).has("moderation") || body_text(body).has("flagged") => Cause::ClientFault,
        401..=403 => Cause::Unauthorized,
        404 | 410 => found(&[Cause::ModelMissing, Cause::Unsupported]).unwrap_or_else(|| {
            if body_text(body).has("not_found_error") && body_text(body).has("model:") {
                Cause::ModelMissing
            } else {
                Cause::Unsupported
            }
        }),
        405 => Cause::Unsupported,
        // How large a body may be is each server's own rule; ours was kept.
        413 => found(&[Cause::ContextOverflow]).unwrap_or(Cause::Unsupported),
        429 => Cause::RateLimited,
        408 | 409 | 421 | 424 | 425 | 499 | 500.. => {
            let unknown = match status {
                501 => Cause::Unsupported,
                529 => Cause::Overloaded,
                500.. => Cause::Http5xx,
                _ => Cause::HttpStatus,
            };
            let text = body_text(body);
            let mistake = status == 500 && MISTAKES.iter().any(|words| text.has(words));
            let unknown = if mistake { Cause::ClientFault } else { unknown };
            text.find(|cause| cause != Cause::ClientFault).unwrap_or(unknown)
        }
        400..=499 => {
            found(&[Cause::ContextOverflow, Cause::Unsupported, Cause::ModelMissing, Cause::Unauthorized])
                .unwrap_or(Cause::ClientFault)
        }
        // Redirects are not followed.
        _ => Cause::HttpStatus,
    }
}

/// Whether a refusal of the request names the stream that was asked for: "Streaming is not supported", `stream must be
/// false`, Mistral's `extra_forbidden` for `stream_options`. Not an "upstream" of its own.
#[must_use]
pub fn refuses_streams(status: u16, body: &[u8]) -> bool {
    let text = body_text(body);
    let text = text.bytes.get(..text.len).unwrap_or_default();
    let whole =
        |at: usize| at.checked_sub(1).and_then(|at| text.get(at)).is_none_or(|c| !c.is_ascii_alphabetic());
    matches!(status, 400 | 422) && memmem::find_iter(text, b"stream").any(whole)
}

/// Whether a refusal is about what was said, not about how it was asked: an answer, which hops to nobody.
#[must_use]
pub fn is_moderation(body: &[u8]) -> bool {
    let text = body_text(body);
    [
        "moderation",
        "flagged",
        "content_filter",
        "content filter",
        "content_policy",
        "content management policy",
        "safety",
    ]
    .iter()
    .any(|word| text.has(word))
}

/// Where in an error body the text for a person is: a JSON string's inside (escapes kept), or all of it.
#[must_use]
pub fn error_text(body: &[u8]) -> Range<usize> {
    parts(body).0.unwrap_or(0..body.len())
}

pub(super) fn classify_text(status: Option<u16>, text: &Text) -> Cause {
    text.find(|_| true).unwrap_or(match status {
        Some(429) => Cause::RateLimited,
        Some(401..=403) => Cause::Unauthorized,
        Some(503 | 529) => Cause::Overloaded,
        _ => Cause::ErrorInStream,
    })
}

fn body_text(body: &[u8]) -> Text {
    let (message, labels) = parts(body);
    let mut text = Text::new();
    for label in labels.iter().flatten() {
        text.push(label.raw);
    }
    text.push(body.get(message.unwrap_or(0..body.len())).unwrap_or_default());
    text
}

/// The message and the labels of a JSON error body, as far as it can be read.
fn parts(body: &[u8]) -> (Option<Range<usize>>, [Option<Str<'_>>; 3]) {
    let mut trouble = Trouble::default();
    let mut c = Cursor::new(body);
    // A body cut at its bound, or no JSON at all, has told what it has told.
    let _ = match c.peek() {
        Ok(b'[') => c.array(|c| c.object(|key, c| trouble.member(key, c)).map(|_| ())),
        Ok(b'{') => c.object(|key, c| trouble.member(key, c)),
        _ => Ok(false),
    };
    trouble.into_parts()
}

/// A bounded, lower-case copy of an error's texts.
pub(super) struct Text {
    bytes: [u8; NEEDLE_TEXT_BYTES],
    len: usize,
}

impl Text {
    pub(super) const fn new() -> Self {
        Text { bytes: [0; NEEDLE_TEXT_BYTES], len: 0 }
    }

    /// Adds a text, without what it echoes of the request.
    pub(super) fn push(&mut self, text: &[u8]) {
        let free = self.bytes.get_mut(self.len..).unwrap_or_default();
        let text = text.get(..free.len()).unwrap_or(text);
        let echo = ["'input':", "\"input\":", "\\\"input\\\":", "in message: {", "messages = ", ", got {"]
            .iter()
            .filter_map(|echo| memmem::find(text, echo.as_bytes()))
            .min();
        let text = text.get(..echo.unwrap_or(text.len())).unwrap_or(text);
        for (to, from) in free.iter_mut().zip(text) {
            *to = from.to_ascii_lowercase();
        }
        // A line end, so that no phrase spans two texts.
        self.len = (self.len + text.len() + 1).min(NEEDLE_TEXT_BYTES);
    }

    fn has(&self, phrase: &str) -> bool {
        memmem::find(self.bytes.get(..self.len).unwrap_or_default(), phrase.as_bytes()).is_some()
    }

    /// The first cause of the table that is `allowed` and has a phrase here.
    fn find(&self, allowed: impl Fn(Cause) -> bool) -> Option<Cause> {
        let text = self.bytes.get(..self.len).unwrap_or_default();
        TABLE
            .iter()
            .find(|(cause, needles)| allowed(*cause) && needles.iter().any(|needle| needle.is_in(text)))
            .map(|(cause, _)| *cause)
    }
}

impl Needle {
    fn is_in(&self, text: &[u8]) -> bool {
        match self {
            One(phrase) => memmem::find(text, phrase.as_bytes()).is_some(),
            Two(first, second) => memmem::find(text, first.as_bytes()).is_some_and(|at| {
                let rest = text.get(at + first.len()..).unwrap_or_default();
                let rest = rest.get(..GAP).unwrap_or(rest);
                memmem::find(rest, second.as_bytes()).is_some()
            }),
        }
    }
}

#[cfg(test)]
mod tests;
