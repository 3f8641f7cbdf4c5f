//! What commits and what does not, protocol by protocol: the rows of WIRE.md 10.1 and 10.2 item 3.

use super::*;

/// What one frame is to the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Is {
    /// A sign of life that is not held.
    Comment,
    /// Held, and says nothing about the answer.
    Noise,
    Token,
    /// `stop` and its like.
    Stop,
    /// A token limit, without a token.
    Length,
    /// An answer without a token.
    Whole,
    /// Reported tokens.
    Tokens,
    /// The protocol's end marker, without a finish reason of its own.
    Done,
    /// The marker and `stop` in one.
    StopDone,
    Error,
    /// Not this protocol.
    Alien,
}

use Is::{Alien, Comment, Done, Error, Length, Noise, Stop, StopDone, Token, Tokens, Whole};

pub(super) const STREAMING: [Dialect; 7] = [
    Dialect::OpenaiChat,
    Dialect::OpenaiCompletions,
    Dialect::OpenaiResponses,
    Dialect::OllamaChat,
    Dialect::OllamaGenerate,
    Dialect::Anthropic,
    Dialect::Gemini,
];

const CHAT: &[(Is, &str)] = &[
    (
        Noise,
        r#"{"id":"c","model":"m","choices":[{"delta":{"role":"assistant","content":""},"finish_reason":null}],"usage":null}"#,
    ),
    (Noise, r#"{"id":"c","model":"m","choices":[{"delta":{"role":"assistant","content":null}}]}"#),
    (Noise, r#"{"id":"c","model":"m","choices":[{"delta":{"content":null,"tool_calls":[]}}]}"#),
    (
        Noise,
        r#"{"id":"c","model":"m","choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":""}}]}}]}"#,
    ),
    (Noise, r#"{"id":"c","model":"m","choices":[{"delta":{"reasoning":"","reasoning_details":[]}}]}"#),
    (Noise, r#"{"id":"","model":"","choices":[],"prompt_filter_results":[{"prompt_index":0}]}"#),
    (Noise, r#"{"id":"c","model":"m","choices":[{"index":0,"finish_reason":null}]}"#),
    (Noise, r#"{"choices":[{"delta":{"reasoning_content":"loading"}}]}"#),
    (Token, r#"{"id":"c","model":"m","choices":[{"delta":{"content":"x"}}]}"#),
    (Token, r#"{"id":"c","model":"m","choices":[{"delta":{"content":"\u00e9"}}]}"#),
    (Token, r#"{"id":"c","model":"m","choices":[{"delta":{"content":" "},"finish_reason":"stop"}]}"#),
    (Token, r#"{"id":"c","model":"m","choices":[{"delta":{"reasoning_content":"hm","content":null}}]}"#),
    (Token, r#"{"id":"c","model":"m","choices":[{"delta":{"reasoning":"hm"}}]}"#),
    (Token, r#"{"id":"c","model":"m","choices":[{"delta":{"reasoning_details":[{"text":"c"}]}}]}"#),
    (Token, r#"{"id":"c","model":"m","choices":[{"delta":{"refusal":"no"}}]}"#),
    (Token, r#"{"id":"c","model":"m","choices":[{"delta":{"audio":{"data":"AAAA"}}}]}"#),
    (Token, r#"{"id":"c","model":"m","choices":[{"delta":{"function_call":{"name":"f"}}}]}"#),
    (
        Token,
        r#"{"id":"c","model":"m","choices":[{"delta":{"tool_calls":[{"function":{"name":"f","arguments":""}}]}}]}"#,
    ),
    (
        Token,
        r#"{"id":"c","model":"m","choices":[{"delta":{"tool_calls":[{"function":{"arguments":"{"}}]}}]}"#,
    ),
    (Stop, r#"{"id":"c","model":"m","choices":[{"delta":{},"finish_reason":"stop"}]}"#),
    (Stop, r#"{"id":"c","model":"m","choices":[{"delta":{},"finish_reason":"tool_calls"}]}"#),
    (Length, r#"{"id":"c","model":"m","choices":[{"delta":{},"finish_reason":"length"}]}"#),
    (Whole, r#"{"id":"c","model":"m","choices":[{"delta":{},"finish_reason":"content_filter"}]}"#),
    (Tokens, r#"{"id":"c","model":"m","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":4}}"#),
    (Done, "[DONE]"),
    (Error, r#"{"error":{"message":"Compute error.","type":"server_error","code":500}}"#),
    (Error, r#"{"error":"upstream exploded"}"#),
    (Error, r#"{"object":"error","message":"no","code":400}"#),
    (Error, r#"{"error_type":"overloaded","error_message":"queue full"}"#),
    (Error, r#"{"code":50505,"message":"Model service overloaded","data":null}"#),
    (Error, r#"{"type":"error","message":"no"}"#),
    (Error, r#"{"id":"c","model":"m","error":{"message":"no"},"choices":[{"delta":{"content":"x"}}]}"#),
    (Error, r#"{"id":"c","model":"m","choices":[{"delta":{},"finish_reason":"abort"}]}"#),
    (Alien, r#"{"id":"c","choices":[{"del"#),
    (Alien, "Internal Server Error"),
];

const COMPLETIONS: &[(Is, &str)] = &[
    (Noise, r#"{"id":"c","model":"m","choices":[{"text":"","index":0,"finish_reason":null}]}"#),
    (Noise, r#"{"content":"","stop":false}"#),
    (Token, r#"{"id":"c","model":"m","choices":[{"text":"x","index":0,"finish_reason":null}]}"#),
    (Token, r#"{"content":"x","stop":false}"#),
    (StopDone, r#"{"content":"","stop":true}"#),
    (Stop, r#"{"id":"c","model":"m","choices":[{"text":"","finish_reason":"stop"}]}"#),
    (Length, r#"{"id":"c","model":"m","choices":[{"text":"","finish_reason":"length"}]}"#),
    (Tokens, r#"{"id":"c","model":"m","choices":[],"usage":{"completion_tokens":4}}"#),
    (Done, "[DONE]"),
    (Error, r#"{"error":{"message":"Compute error."}}"#),
    (Alien, "<html>"),
];

const RESPONSES: &[(Is, &str)] = &[
    (Noise, r#"{"type":"response.created","response":{"status":"in_progress","output":[],"error":null}}"#),
    (Noise, r#"{"type":"response.queued","response":{"status":"queued"}}"#),
    (Noise, r#"{"type":"response.in_progress","response":{"status":"in_progress"}}"#),
    (Noise, r#"{"type":"response.output_item.added","item":{"type":"message","content":[]}}"#),
    (Noise, r#"{"type":"response.output_item.added","item":{"type":"reasoning","summary":[]}}"#),
    (Noise, r#"{"type":"response.content_part.added","part":{"type":"output_text","text":""}}"#),
    (Noise, r#"{"type":"response.output_text.delta","delta":""}"#),
    (Token, r#"{"type":"response.output_text.delta","delta":"x"}"#),
    (Token, r#"{"type":"response.refusal.delta","delta":"no"}"#),
    (Token, r#"{"type":"response.reasoning_text.delta","delta":"hm"}"#),
    (Token, r#"{"type":"response.reasoning_summary_text.delta","delta":"hm"}"#),
    (Token, r#"{"type":"response.function_call_arguments.delta","delta":"{"}"#),
    (Token, r#"{"type":"response.output_item.added","item":{"type":"function_call","name":"f"}}"#),
    (Token, r#"{"type":"response.output_item.added","item":{"type":"web_search_call"}}"#),
    (StopDone, r#"{"type":"response.completed","response":{"status":"completed","output":[]}}"#),
    (
        Whole,
        r#"{"type":"response.incomplete","response":{"incomplete_details":{"reason":"content_filter"}}}"#,
    ),
    (
        Error,
        r#"{"type":"response.failed","response":{"status":"failed","error":{"code":"server_error","message":"no"}}}"#,
    ),
    (Error, r#"{"type":"error","error":{"code":"server_is_overloaded","message":"busy"}}"#),
    (Alien, "no"),
];

const OLLAMA: &[(Is, &str)] = &[
    (Noise, r#"{"model":"m","message":{"role":"assistant","content":""},"done":false}"#),
    (Noise, r#"{"model":"m","message":{"role":"assistant","content":"","tool_calls":[]},"done":false}"#),
    (Noise, r#"{"model":"m","response":"","done":false}"#),
    (Token, r#"{"model":"m","message":{"role":"assistant","content":"x"},"done":false}"#),
    (Token, r#"{"model":"m","message":{"role":"assistant","content":"x"},"done":true,"done_reason":"stop"}"#),
    (Token, r#"{"model":"m","message":{"role":"assistant","content":"","thinking":"hm"},"done":false}"#),
    (
        Token,
        r#"{"model":"m","message":{"content":"","tool_calls":[{"function":{"name":"f"}}]},"done":false}"#,
    ),
    (Token, r#"{"model":"m","response":"x","done":false}"#),
    (Token, r#"{"model":"m","response":"","thinking":"hm","done":false}"#),
    (Token, r#"{"model":"m","image":"AAAA","done":false}"#),
    (
        StopDone,
        r#"{"model":"m","message":{"role":"assistant","content":""},"done":true,"done_reason":"stop"}"#,
    ),
    (StopDone, r#"{"model":"m","response":"","done":true}"#),
    (Whole, r#"{"model":"m","response":"","done":true,"done_reason":"load"}"#),
    (Whole, r#"{"model":"m","message":{"content":""},"done":true,"done_reason":"unload"}"#),
    (Error, r#"{"error":"POST predict: Post \"http://127.0.0.1:41233/completion\": EOF"}"#),
    (Error, r#"{"error":{"message":"no"}}"#),
    (Alien, "<html></html>"),
    (Alien, r#"{"model":"m","mess"#),
];

const ANTHROPIC: &[(Is, &str)] = &[
    (Noise, r#"{"type":"message_start","message":{"model":"m","content":[],"usage":{"input_tokens":9}}}"#),
    (Noise, r#"{"type":"ping"}"#),
    (Noise, r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#),
    (Noise, r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":""}}"#),
    (Noise, r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":""}}"#),
    (
        Noise,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"AAAA"}}"#,
    ),
    (Noise, r#"{"type":"content_block_stop","index":0}"#),
    (Token, r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"x"}}"#),
    (Token, r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}}"#),
    (
        Token,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{"}}"#,
    ),
    (
        Token,
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t","name":"f","input":{}}}"#,
    ),
    (
        Token,
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"server_tool_use","name":"f"}}"#,
    ),
    (
        Token,
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"redacted_thinking","data":"A"}}"#,
    ),
    (Token, r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"x"}}"#),
    (Stop, r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":0}}"#),
    (Length, r#"{"type":"message_delta","delta":{"stop_reason":"max_tokens"},"usage":{"output_tokens":0}}"#),
    (Whole, r#"{"type":"message_delta","delta":{"stop_reason":"refusal"}}"#),
    (Done, r#"{"type":"message_stop"}"#),
    (Error, r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#),
    (Error, r#"{"error":{"code":500,"message":"Compute error.","type":"server_error"}}"#),
    (Alien, "no"),
];

const GEMINI: &[(Is, &str)] = &[
    (Noise, r#"{"candidates":[{"content":{"role":"model","parts":[{"text":""}]},"index":0}]}"#),
    (Noise, r#"{"candidates":[{"content":{"parts":[{"text":"","thoughtSignature":"AAAA"}]}}]}"#),
    (Noise, r#"{"candidates":[{"index":0}]}"#),
    (Noise, r#"{"usageMetadata":{"promptTokenCount":9,"totalTokenCount":9}}"#),
    (Token, r#"{"candidates":[{"content":{"parts":[{"text":"x"}]}}]}"#),
    (Token, r#"{"candidates":[{"content":{"parts":[{"text":"hm","thought":true}]}}]}"#),
    (Token, r#"{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f"}}]}}]}"#),
    (Token, r#"{"candidates":[{"content":{"parts":[{"inlineData":{"data":"AAAA"}}]}}]}"#),
    (Token, r#"{"candidates":[{"content":{"parts":[{"executableCode":{"code":"1"}}]}}]}"#),
    (Stop, r#"{"candidates":[{"finishReason":"STOP","index":0}]}"#),
    (Length, r#"{"candidates":[{"finishReason":"MAX_TOKENS"}]}"#),
    (Whole, r#"{"candidates":[{"finishReason":"SAFETY"}]}"#),
    (Whole, r#"{"promptFeedback":{"blockReason":"OTHER"}}"#),
    (Tokens, r#"{"usageMetadata":{"promptTokenCount":9,"thoughtsTokenCount":4}}"#),
    (Error, r#"{"error":{"code":503,"message":"The model is overloaded.","status":"UNAVAILABLE"}}"#),
    (Error, r#"[{"error":{"code":503,"message":"The model is overloaded.","status":"UNAVAILABLE"}}]"#),
    (Alien, "no"),
];

const SSE_COMMENTS: [&str; 6] =
    [":\n\n", ": ping\n\n", ": a\n: b\n\n", "\n", "\n\n", ": OPENROUTER PROCESSING\n\n"];

/// Every frame of a dialect as it stands in a stream, its end included.
pub(super) fn of(dialect: Dialect) -> Vec<(Is, String)> {
    let table = match dialect {
        Dialect::OpenaiChat => CHAT,
        Dialect::OpenaiCompletions => COMPLETIONS,
        Dialect::OpenaiResponses => RESPONSES,
        Dialect::OllamaChat | Dialect::OllamaGenerate => OLLAMA,
        Dialect::Anthropic => ANTHROPIC,
        Dialect::Gemini => GEMINI,
        Dialect::OpenaiEmbeddings | Dialect::OllamaEmbed => &[],
    };
    let mut frames: Vec<_> = table.iter().map(|(is, json)| (*is, framed(dialect, json))).collect();
    match dialect.framing() {
        Framing::Ndjson => frames.extend(["\n", "  \n"].map(|blank| (Comment, blank.to_owned()))),
        Framing::Sse => {
            frames.extend(SSE_COMMENTS.map(|comment| (Comment, comment.to_owned())));
            frames.push((Noise, "retry: 1000\n\n".to_owned()));
            frames.push((Error, "event: error\ndata: anything\n\n".to_owned()));
            frames.push((Error, "{\"error\":{\"message\":\"bare JSON\"}}\n\n".to_owned()));
            frames.push((Error, "proxy error: connection refused\n\n".to_owned()));
            frames.push((Alien, "<html><body>hello</body></html>\n\n".to_owned()));
            // The same token with a comment glued to it, and its data on two lines.
            for (is, json) in table.iter().filter(|(is, _)| *is == Token) {
                frames.push((*is, format!("id: 7\ndata:{json}\n\n")));
                if let Some((head, tail)) = json.split_once(',') {
                    frames.push((*is, format!("data: {head},\ndata: {tail}\n\n")));
                }
            }
        }
    }
    frames
}

fn framed(dialect: Dialect, json: &str) -> String {
    let name = json.strip_prefix(r#"{"type":""#).and_then(|rest| rest.split('"').next());
    match (dialect.framing(), name) {
        (Framing::Ndjson, _) => format!("{json}\n"),
        (Framing::Sse, Some(name)) if dialect != Dialect::OpenaiChat => {
            format!("event: {name}\ndata: {json}\n\n")
        }
        (Framing::Sse, _) => format!("data: {json}\n\n"),
    }
}

#[test]
fn each_frame_alone_is_what_the_table_says() {
    for dialect in STREAMING {
        for (is, frame) in of(dialect) {
            let mut gate = gate(rules(dialect), SIZE);
            let step = gate.push(frame.as_bytes());
            let what = format!("{dialect:?} {is:?} {frame} {step:?}");
            match is {
                Comment => assert!(step.verdict.is_none() && gate.held().is_empty(), "{what}"),
                Noise | Stop | Length | Tokens => {
                    assert!(step.verdict.is_none() && gate.held() == frame.as_bytes(), "{what}");
                }
                Token | Whole => assert_eq!(step.verdict, Some(Verdict::Commit), "{what}"),
                Done | StopDone => assert_eq!(step.verdict, Some(Verdict::Empty(NoToken)), "{what}"),
                Error => {
                    let failed = cause(&step.verdict.unwrap());
                    assert_ne!(failed, Cause::Protocol, "{what}");
                    assert_eq!(failed.fault(), crate::cause::Fault::Upstream, "{what}");
                }
                Alien => assert_eq!(cause(&step.verdict.unwrap()), Cause::Protocol, "{what}"),
            }
        }
    }
}
