//! What edgeward itself says to a client, in the client's dialect: errors, signs of life, end markers.

use std::borrow::Cow;

use super::Dialect;
use super::request::quote;

/// An error of edgeward's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The HTTP status it has, or would have.
    pub status: u16,
    /// A short stable word for programs.
    pub code: &'static str,
    /// What happened, to what, and what to do next.
    pub message: String,
    /// The request field at fault.
    pub param: Option<Cow<'static, str>>,
}

impl Problem {
    /// A problem without a field at fault.
    #[must_use]
    pub fn new(status: u16, code: &'static str, message: impl Into<String>) -> Self {
        Problem { status, code, message: message.into(), param: None }
    }

    /// The error body in `dialect`, as JSON.
    #[must_use]
    pub fn body(&self, dialect: Dialect) -> Vec<u8> {
        match dialect {
            Dialect::OpenaiChat
            | Dialect::OpenaiCompletions
            | Dialect::OpenaiResponses
            | Dialect::OpenaiEmbeddings => self.openai(),
            Dialect::OllamaChat | Dialect::OllamaGenerate | Dialect::OllamaEmbed => self.ollama(),
            Dialect::Anthropic => self.anthropic(),
            Dialect::Gemini => self.gemini(),
        }
    }

    /// The error as an event of a stream that has begun. The caller ends the stream uncleanly after it.
    #[must_use]
    pub fn event(&self, dialect: Dialect) -> Vec<u8> {
        match dialect {
            Dialect::OpenaiChat | Dialect::OpenaiCompletions | Dialect::OpenaiEmbeddings => {
                [b"data: ", self.openai().as_slice(), b"\n\n"].concat()
            }
            Dialect::OpenaiResponses => [
                b"event: response.failed\ndata: {\"type\":\"response.failed\",\"sequence_number\":0,\"response\":{\
                  \"object\":\"response\",\"status\":\"failed\",\"output\":[],\"error\":{\"code\":"
                    .as_slice(),
                &quote(self.code),
                b",\"message\":",
                &quote(&self.message),
                b"}}}\n\n",
            ]
            .concat(),
            Dialect::Anthropic => [b"event: error\ndata: ", self.anthropic().as_slice(), b"\n\n"].concat(),
            Dialect::OllamaChat | Dialect::OllamaGenerate | Dialect::OllamaEmbed => {
                [self.ollama().as_slice(), b"\n"].concat()
            }
            Dialect::Gemini => [b"data: ", self.gemini().as_slice(), b"\n\n"].concat(),
        }
    }

    fn openai(&self) -> Vec<u8> {
        let kind = if self.status < 500 { "invalid_request_error" } else { "server_error" };
        let param = self.param.as_deref().map_or_else(|| b"null".to_vec(), quote);
        [
            b"{\"error\":{\"message\":".as_slice(),
            &quote(&self.message),
            b",\"type\":",
            &quote(kind),
            b",\"param\":",
            &param,
            b",\"code\":",
            &quote(self.code),
            b"}}",
        ]
        .concat()
    }

    fn ollama(&self) -> Vec<u8> {
        [b"{\"error\":".as_slice(), &quote(&self.message), b"}"].concat()
    }

    /// Types as Anthropic's API documents them under "Errors".
    fn anthropic(&self) -> Vec<u8> {
        let kind = match self.status {
            401 => "authentication_error",
            403 => "permission_error",
            404 => "not_found_error",
            413 => "request_too_large",
            429 => "rate_limit_error",
            503 => "overloaded_error",
            504 => "timeout_error",
            400..=499 => "invalid_request_error",
            _ => "api_error",
        };
        [
            b"{\"type\":\"error\",\"error\":{\"type\":".as_slice(),
            &quote(kind),
            b",\"message\":",
            &quote(&self.message),
            b"}}",
        ]
        .concat()
    }

    fn gemini(&self) -> Vec<u8> {
        let code = self.status.to_string();
        [
            b"{\"error\":{\"code\":".as_slice(),
            code.as_bytes(),
            b",\"message\":",
            &quote(&self.message),
            b",\"status\":",
            &quote(self.code),
            b"}}",
        ]
        .concat()
    }
}

/// The end marker that a whole answer still lacks when its target gave a finish reason and then fell silent.
/// Only ever sent after a finish reason.
#[must_use]
pub const fn end_marker(dialect: Dialect) -> &'static [u8] {
    match dialect {
        Dialect::OpenaiChat | Dialect::OpenaiCompletions => b"data: [DONE]\n\n",
        Dialect::Anthropic => b"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
        Dialect::OpenaiResponses
        | Dialect::OpenaiEmbeddings
        | Dialect::OllamaChat
        | Dialect::OllamaGenerate
        | Dialect::OllamaEmbed
        | Dialect::Gemini => b"",
    }
}

/// A sign of life before the first token that the dialect's clients are known to bear; empty: headers only.
/// Ollama's clients parse every line as JSON, blank ones too.
#[must_use]
pub const fn heartbeat(dialect: Dialect) -> &'static [u8] {
    match dialect {
        Dialect::OpenaiChat | Dialect::OpenaiCompletions | Dialect::OpenaiResponses | Dialect::Gemini => {
            b": waiting for the model\n\n"
        }
        Dialect::Anthropic => b"event: ping\ndata: {\"type\": \"ping\"}\n\n",
        Dialect::OpenaiEmbeddings | Dialect::OllamaChat | Dialect::OllamaGenerate | Dialect::OllamaEmbed => {
            b""
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Dialect; 9] = [
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

    #[test]
    fn errors_are_json_in_every_dialect_and_name_the_fault() {
        let problem =
            Problem { param: Some("model".into()), ..Problem::new(400, "bad", "a \"quoted\"\nfault") };
        for dialect in ALL {
            let body: serde_json::Value = serde_json::from_slice(&problem.body(dialect)).unwrap();
            assert!(body.to_string().contains("quoted"), "{dialect:?}");
            assert!(!body["error"].is_null(), "{dialect:?}");
        }
    }

    #[test]
    fn error_events_read_as_errors_by_our_own_inspection() {
        let problem = Problem::new(502, "upstream_failed", "box: out of memory");
        for dialect in ALL.into_iter().filter(|d| d.streams()) {
            let event = problem.event(dialect);
            let mut join = vec![0; event.len()];
            let facts = super::super::inspect_event(dialect, &event, &mut join);
            assert!(facts.error.is_some(), "{dialect:?}: {facts:?}");
            assert!(!facts.done || dialect == Dialect::OpenaiResponses, "{dialect:?}");
        }
    }

    #[test]
    fn end_markers_are_end_markers_and_heartbeats_are_nothing() {
        for dialect in ALL.into_iter().filter(|d| d.streams()) {
            let mut join = [0; 200];
            if !end_marker(dialect).is_empty() {
                assert!(super::super::inspect_event(dialect, end_marker(dialect), &mut join).done);
            }
            if !heartbeat(dialect).is_empty() {
                let facts = super::super::inspect_event(dialect, heartbeat(dialect), &mut join);
                assert!(!facts.content && !facts.thinking && !facts.done && facts.error.is_none());
            }
        }
    }
}
