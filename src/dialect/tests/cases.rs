//! Reported failures, as the streams that were reported (their numbers are those of the issue threads' list).

use super::*;
use crate::wire::Splitter;
use Dialect::{Anthropic, Gemini, OllamaChat, OpenaiChat, OpenaiResponses};

/// What a stream says, event by event; events that say nothing are left out, so are blank pieces.
fn stream(dialect: Dialect, chunks: &[&str]) -> Vec<String> {
    let mut splitter = Splitter::new(dialect.framing());
    let mut said = Vec::new();
    let mut piece = Vec::new();
    let mut judge = |piece: &mut Vec<u8>| {
        let says = words(&facts(dialect, piece));
        if !says.is_empty() {
            said.push(says);
        }
        piece.clear();
    };
    for chunk in chunks {
        let mut rest = chunk.as_bytes();
        while let Some(len) = splitter.push(rest) {
            piece.extend_from_slice(&rest[..len]);
            judge(&mut piece);
            rest = &rest[len..];
        }
        piece.extend_from_slice(rest);
    }
    judge(&mut piece);
    said
}

const ROLE: &str = "data: {\"id\":\"c1\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}]}\n\n";

#[test]
fn b03_b09_b32b_b33_ollama_lines() {
    let line = "{\"error\":\"POST predict: Post \\\"http://127.0.0.1:41233/completion\\\": EOF\"}\n";
    assert_eq!(stream(OllamaChat, &[line]), ["error=crashed"]);
    let token = "{\"model\":\"m\",\"message\":{\"role\":\"assistant\",\"content\":\"Hel\"},\"done\":false}\n";
    let reset = "{\"error\":\"error reading llm response: read tcp 127.0.0.1:50110->127.0.0.1:50090: wsarecv: An existing connection was forcibly closed by the remote host.\"}\n";
    assert_eq!(stream(OllamaChat, &[token, reset]), ["content", "error=crashed"]);
    let empty = "{\"model\":\"m\",\"message\":{\"role\":\"assistant\",\"content\":\"\"},\"done\":true,\"done_reason\":\"stop\",\"total_duration\":1000000}\n";
    assert_eq!(stream(OllamaChat, &[empty]), ["done stop 0/0"]);
    let thinking = "{\"model\":\"m\",\"message\":{\"role\":\"assistant\",\"content\":\"\",\"thinking\":\"so many\"},\"done\":false}\n";
    let length = "{\"model\":\"m\",\"message\":{\"content\":\"\"},\"done\":true,\"done_reason\":\"length\",\"eval_count\":2}\n";
    assert_eq!(stream(OllamaChat, &[thinking, length]), ["thinking", "done length 0/2"]);
}

#[test]
fn b17_an_engine_dies_and_done_follows() {
    let error = "data: {\"error\":{\"message\":\"EngineCore encountered an issue. See stack trace (above) for the root cause.\",\"type\":\"InternalServerError\",\"param\":null,\"code\":500}}\n\ndata: [DONE]\n\n";
    assert_eq!(stream(OpenaiChat, &[ROLE, error]), ["error=crashed", "done"]);
}

#[test]
fn b19_lm_studio_names_its_error_event() {
    let event = "event: error\ndata: {\"error\":{\"message\":\"The model has crashed without additional information. (Exit code: null)\"},\"message\":\"The model has crashed without additional information. (Exit code: null)\"}\n\n";
    assert_eq!(stream(OpenaiChat, &[event]), ["error=crashed"]);
}

#[test]
fn b31_b45_responses_that_fail() {
    let created = "event: response.created\ndata: {\"type\":\"response.created\",\"sequence_number\":0,\"response\":{\"id\":\"resp_1\",\"status\":\"in_progress\"}}\n\n";
    assert!(stream(OpenaiResponses, &[created]).is_empty());
    let busy = "event: error\ndata: {\"type\":\"error\",\"sequence_number\":2,\"error\":{\"type\":\"service_unavailable_error\",\"code\":\"server_is_overloaded\",\"message\":\"busy\",\"param\":null}}\n\n";
    assert_eq!(stream(OpenaiResponses, &[created, busy]), ["error=overloaded"]);
}

#[test]
fn b35_b36_b67_b77_gemini() {
    let bare = "data: {\"candidates\":[{\"finishReason\":\"STOP\",\"index\":0}],\"usageMetadata\":{\"promptTokenCount\":9,\"totalTokenCount\":9},\"modelVersion\":\"g\"}\n\n";
    let blocked = "data: {\"promptFeedback\":{\"blockReason\":\"PROHIBITED_CONTENT\"},\"usageMetadata\":{\"promptTokenCount\":9,\"totalTokenCount\":9}}\n\n";
    let empty = "data: {\"candidates\":[{\"content\":{\"role\":\"model\",\"parts\":[]},\"finishReason\":\"STOP\",\"index\":0}],\"usageMetadata\":{\"promptTokenCount\":9}}\r\n\r\n";
    assert_eq!(stream(Gemini, &[bare, blocked, empty]), ["stop 9/-", "done filtered 9/-", "stop 9/-"]);
}

#[test]
fn b37_b41_openai() {
    let stop = "data: {\"id\":\"c1\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":\"stop\"}]}\n\n";
    let usage = "data: {\"id\":\"c1\",\"model\":\"m\",\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":1,\"total_tokens\":10}}\n\n";
    assert_eq!(stream(OpenaiChat, &[stop, usage, "data: [DONE]\n\n"]), ["stop", "usage_only 9/1", "done"]);
    let error = "data: {\"error\":{\"message\":\"upstream exploded\",\"code\":\"500\"}}\n\n";
    assert_eq!(stream(OpenaiChat, &[error]), ["error=error_in_stream"]);
}

#[test]
fn b39_b79_anthropic() {
    let chunks = [
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",\"type\":\"message\",\"role\":\"assistant\",\"content\":[],\"model\":\"m\",\"usage\":{\"input_tokens\":9,\"output_tokens\":1}}}\n\n",
        "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n",
        "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"ok\"}}\n\n",
        "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":1}}\n\n",
        "event: ping\ndata: {\"type\":\"ping\"}\n\n",
        "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
    ];
    assert_eq!(stream(Anthropic, &chunks), ["9/-", "content", "stop -/1", "done"]);
}

#[test]
fn b43_bare_json_in_a_body_of_events() {
    let bare = "{\n  \"error\": {\n    \"code\": 503,\n    \"message\": \"The model is overloaded.\",\n    \"status\": \"UNAVAILABLE\"\n  }\n}\n";
    let found = facts(Gemini, bare.as_bytes());
    assert_eq!(words(&found), "alien error=overloaded");
    assert_eq!(&bare[found.error.unwrap().text], "The model is overloaded.");
    assert_eq!(stream(OpenaiChat, &[ROLE, bare]), ["alien error=overloaded"]);
    for (text, says) in [
        ("proxy error: Could not establish connection\n", "alien error=crashed"),
        ("<html><body><h1>504 Gateway Time-out</h1></body></html>\n", "alien"),
        ("{\"id\":\"c1\",\"model\":\"m\",\"choices\":[{\"delta\":{\"content\":\"A\"}}]}\n", "alien"),
        ("Internal Server Error", "alien"),
        ("{\"error\":\"cut in the mid", "alien error=error_in_stream"),
    ] {
        assert_eq!(stream(OpenaiChat, &[text]), [says], "{text}");
    }
    // An unknown field beside good data is no harm; a proxy's words are.
    let token = "data: {\"id\":\"c1\",\"model\":\"m\",\"choices\":[{\"delta\":{\"content\":\"A\"}}]}\n";
    assert_eq!(stream(OpenaiChat, &[token, "trace: 7\n\n"]), ["content"]);
    assert_eq!(stream(OpenaiChat, &[token, "proxy error: gone\n\n"]), ["content alien error=crashed"]);
}

#[test]
fn b47_b49_b51_framing() {
    let chunks = [
        "dat",
        "a: {\"id\":\"c1\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"con",
        "tent\":\"A\"}}]}\n",
        "\ndata: {\"id\":\"c1\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"B\"}}]}\n\ndata: [DO",
        "NE]\n\n",
    ];
    assert_eq!(stream(OpenaiChat, &chunks), ["content", "content", "done"]);
    let chunks = [
        "data: {\"id\":\"c1\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"A\"}}]}\r",
        "\n\r\ndata: {\"id\":\"c1\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"B\"}}]}\n\r\n",
        "data: {\"id\":\"c1\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"C\"}}]}\r\rdata: [DONE]\r\n\r\n",
    ];
    assert_eq!(stream(OpenaiChat, &chunks), ["content", "content", "content", "done"]);
    let chunks = [
        "data: {\"id\":\"c1\",\"model\":\"m\",\ndata: \"choices\":[{\"index\":0,\"delta\":{\"content\":\"A\"}}]}\n\n",
        "data:{\"id\":\"c1\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"B\"}}]}\n\n",
        "event: message\nid: 7\nretry: 1000\ndata: {\"id\":\"c1\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"C\"}}]}\n\n",
        "data:[DONE]\n\n",
    ];
    assert_eq!(stream(OpenaiChat, &chunks), ["content", "content", "content", "done"]);
}

#[test]
fn b53_comments_say_nothing() {
    let chunks = [
        ":\n\n",
        ": ping - 2026-01-01 00:00:00\r\n\r\n",
        ": OPENROUTER PROCESSING\n\n",
        "\n",
        ": keep-alive\ndata: {\"id\":\"c1\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"A\"}}]}\n\n",
        ":\n\n",
        "data: [DONE]\n\n",
    ];
    assert_eq!(stream(OpenaiChat, &chunks), ["content", "done"]);
}

#[test]
fn b65_progress_then_death() {
    let progress = "data: {\"choices\":[{\"finish_reason\":null,\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":null}}],\"created\":1,\"id\":\"chatcmpl-x\",\"model\":\"m\",\"object\":\"chat.completion.chunk\",\"prompt_progress\":{\"total\":8000,\"cache\":0,\"processed\":4096,\"time_ms\":1900}}\n\n";
    let error =
        "data: {\"error\":{\"code\":500,\"message\":\"Compute error.\",\"type\":\"server_error\"}}\n\n";
    assert_eq!(stream(OpenaiChat, &[progress, error]), ["progress=4096/8000", "error=crashed"]);
}

#[test]
fn b13c_half_a_line_is_no_event() {
    assert_eq!(stream(OpenaiChat, &["data: {\"id\":\"c1\",\"choi"]), ["alien"]);
}
