//! OpenAI chat, completions and embeddings, in the dress of each server.

use super::*;
use Dialect::{OpenaiChat, OpenaiCompletions, OpenaiEmbeddings};

/// A chunk of a named stream with this `delta`.
fn delta(delta: &str) -> String {
    let json = format!(
        r#"{{"id":"c1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{{"index":0,"delta":{delta},"logprobs":null,"finish_reason":null}}]}}"#
    );
    frame(OpenaiChat, &json)
}

#[test]
fn a_token_is_content_thinking_or_a_call() {
    for (json, says) in [
        (r#"{"content":"A"}"#, "content"),
        (r#"{"role":"assistant","content":"Hi"}"#, "content"),
        (r#"{"content":"\n"}"#, "content"),
        (r#"{"content":"\u00e9"}"#, "content"),
        (r#"{"content":[{"type":"text","text":"A"}]}"#, "content"),
        (r#"{"refusal":"No."}"#, "content"),
        (r#"{"reasoning_content":"hm"}"#, "thinking"),
        (r#"{"reasoning_content":"b","content":null}"#, "thinking"),
        (r#"{"reasoning":"hm"}"#, "thinking"),
        (r#"{"role":"assistant","content":"","reasoning":"Let"}"#, "thinking"),
        (r#"{"reasoning_details":[{"type":"reasoning.text","text":"c"}]}"#, "thinking"),
        (
            r#"{"tool_calls":[{"index":0,"id":"c","type":"function","function":{"name":"f","arguments":""}}]}"#,
            "content",
        ),
        (r#"{"tool_calls":[{"index":0,"function":{"arguments":"{}"}}]}"#, "content"),
        (r#"{"tool_calls":[{"index":0,"type":"custom","custom":{"name":"f","input":""}}]}"#, "content"),
        (r#"{"function_call":{"name":"f","arguments":""}}"#, "content"),
        (r#"{"audio":{"id":"a","data":"UklGRg=="}}"#, "content"),
    ] {
        assert_eq!(delta(json), says, "{json}");
    }
}

#[test]
fn these_are_no_tokens() {
    for json in [
        r#"{"role":"assistant","content":""}"#,
        r#"{"role":"assistant","content":null}"#,
        r#"{"role":"assistant","content":"","refusal":null}"#,
        r#"{"role":"assistant"}"#,
        r#"{"content":[]}"#,
        r#"{"reasoning_content":null,"reasoning":"","reasoning_details":[]}"#,
        r#"{"tool_calls":[]}"#,
        r#"{"tool_calls":null}"#,
        r#"{"tool_calls":[{"index":0,"id":"c","type":"function","function":{"name":"","arguments":""}}]}"#,
        r#"{"tool_calls":[{"index":0,"id":"c","function":{"name":null,"arguments":null}}]}"#,
        r#"{"audio":{"id":"a"}}"#,
        r#"{}"#,
        r#"null"#,
        r#"[]"#,
        r#""text""#,
    ] {
        assert_eq!(delta(json), "", "{json}");
    }
}

#[test]
fn frames_say_how_far_and_how_it_ended() {
    frames(
        OpenaiChat,
        &[
            (r#"{"id":"c1","model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#, "stop"),
            (
                r#"{"id":"c1","model":"m","choices":[{"delta":{"content":"x"},"finish_reason":"length"}]}"#,
                "content length",
            ),
            (r#"{"id":"c1","model":"m","choices":[{"delta":{},"finish_reason":"tool_calls"}]}"#, "stop"),
            (
                r#"{"id":"c1","model":"m","choices":[{"delta":{},"finish_reason":"content_filter"}]}"#,
                "filtered",
            ),
            (r#"{"id":"c1","model":"m","choices":[{"delta":{},"finish_reason":""}]}"#, ""),
            (
                r#"{"id":"c1","model":"m","choices":[{"delta":{},"finish_reason":"abort"}]}"#,
                "failed error=error_in_stream",
            ),
            (
                r#"{"id":"c1","model":"m","choices":[{"delta":{},"finish_reason":"insufficient_system_resource"}]}"#,
                "failed error=overloaded",
            ),
            (
                r#"{"id":"c1","model":"m","error":{"code":"server_error","message":"Provider disconnected"},"choices":[{"delta":{"content":""},"finish_reason":"error"}]}"#,
                "failed error=error_in_stream",
            ),
            (
                r#"{"id":"c1","model":"m","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":1,"total_tokens":10}}"#,
                "usage_only 9/1",
            ),
            (
                r#"{"id":"c1","model":"m","choices":[{"delta":{"content":"x"}}],"usage":{"prompt_tokens":9,"completion_tokens":1}}"#,
                "content 9/1",
            ),
            (r#"{"id":"c1","model":"m","choices":[],"usage":{"prompt_tokens":"many"}}"#, "usage_only -/-"),
            (
                r#"{"id":"","model":"","choices":[],"prompt_filter_results":[{"content_filter_results":{}}]}"#,
                "",
            ),
            (
                r#"{"id":"","model":"","choices":[{"finish_reason":null,"content_filter_offsets":{"a":[1]}}]}"#,
                "",
            ),
            ("[DONE]", "done"),
            (" [DONE] ", "done"),
            ("", ""),
        ],
    );
}

#[test]
fn a_swappers_banner_is_anonymous() {
    frames(
        OpenaiChat,
        &[
            (r#"{"choices":[{"delta":{"reasoning_content":"━━━━━"}}]}"#, "anonymous"),
            (r#"{"id":"","model":"","choices":[{"delta":{"reasoning_content":"━"}}]}"#, "anonymous"),
            (r#"{"choices":[{"delta":{"reasoning_content":"hm"}}],"id":"c1"}"#, "thinking"),
            (r#"{"choices":[{"delta":{"reasoning_content":"hm"}}],"model":"m"}"#, "thinking"),
            (r#"{"choices":[{"delta":{"content":"A"}}]}"#, "content"),
        ],
    );
}

#[test]
fn llama_cpp_reports_progress() {
    frames(
        OpenaiChat,
        &[(
            r#"{"choices":[{"finish_reason":null,"index":0,"delta":{"role":"assistant","content":null}}],"created":1,"id":"x","model":"m","object":"chat.completion.chunk","prompt_progress":{"total":8000,"cache":0,"processed":2048,"time_ms":900}}"#,
            "progress=2048/8000",
        )],
    );
}

#[test]
fn ollamas_swallowed_error_has_no_name() {
    frames(
        OpenaiChat,
        &[
            (
                r#"{"id":"chatcmpl-7","object":"chat.completion.chunk","created":1,"model":"","system_fingerprint":"fp_ollama","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}"#,
                "nameless",
            ),
            (r#"{"id":"c","model":"m","system_fingerprint":"fp_ollama","choices":[]}"#, ""),
            (r#"{"id":"","model":"","choices":[]}"#, ""),
        ],
    );
}

#[test]
fn every_shape_of_an_error_is_one() {
    frames(
        OpenaiChat,
        &[
            (r#"{"error":"out of memory"}"#, "error=oom"),
            (r#"{"error":{"message":"upstream exploded","code":"500"}}"#, "error=error_in_stream"),
            (r#"{"error":{"code":500,"message":"Compute error.","type":"server_error"}}"#, "error=crashed"),
            (r#"{"error":{"message":"slow down","code":"429"}}"#, "error=rate_limited"),
            (r#"{"error":true}"#, "error=error_in_stream"),
            (
                r#"{"error":{"object":"error","message":"The request queue is full.","code":503}}"#,
                "error=overloaded",
            ),
            (r#"{"error":{"message":"Model is overloaded","http_status_code":422}}"#, "error=overloaded"),
            (
                r#"{"error":{"message":"Input validation error: x","http_status_code":422}}"#,
                "error=client_fault",
            ),
            (r#"{"error":"Request failed during generation: y","error_type":"generation"}"#, "error=crashed"),
            (r#"{"type":"error","message":"boom"}"#, "error=error_in_stream"),
            (r#"{"error_message":"CUDA out of memory"}"#, "error=cuda_oom"),
            (r#"{"error_type":"overloaded"}"#, "error=overloaded"),
            (
                r#"{"object":"error","message":"boom","type":"InternalServerError","param":null,"code":500}"#,
                "error=error_in_stream",
            ),
            (
                r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
                "error=overloaded",
            ),
            (
                r#"{"code":20012,"message":"Model does not exist. Please check it carefully.","data":null}"#,
                "error=model_missing",
            ),
            (r#"{"code":"Throttling","message":"Too many requests","request_id":"x"}"#, "error=rate_limited"),
            (r#"[{"error":{"code":503,"message":"no","status":"UNAVAILABLE"}}]"#, "error=overloaded"),
            // With `choices` beside it, an error is still one.
            (
                r#"{"id":"c","model":"m","choices":[{"delta":{"content":"x"}}],"error":{"message":"m"}}"#,
                "content error=error_in_stream",
            ),
        ],
    );
    frames(
        OpenaiChat,
        &[
            (r#"{"id":"c","model":"m","error":null,"choices":[{"delta":{"content":"x"}}]}"#, "content"),
            (r#"{"id":"c","model":"m","error":{},"choices":[]}"#, ""),
            (r#"{"code":0,"message":"ok","choices":[]}"#, ""),
            (r#"{"code":0,"message":"ok"}"#, ""),
            (
                r#"{"code":7,"message":"note","id":"c","model":"m","choices":[{"delta":{"content":"x"}}]}"#,
                "content",
            ),
        ],
    );
}

#[test]
fn what_is_no_json_is_alien() {
    frames(
        OpenaiChat,
        &[
            ("{\"id\":\"c1\",\"choi", "alien"),
            ("hello", "alien"),
            ("\"error\"", "alien"),
            ("7", "alien"),
            ("{} {}", "alien"),
            ("{'a': 1}", "alien"),
        ],
    );
    let bomb = "[".repeat(10_000);
    assert_eq!(frame(OpenaiChat, &bomb), "alien");
    assert_eq!(frame(OpenaiChat, &format!(r#"{{"choices":[{{"x":{bomb}}}]}}"#)), "alien");
}

#[test]
fn completions_and_llama_cpps_own() {
    frames(
        OpenaiCompletions,
        &[
            (r#"{"id":"c","model":"m","choices":[{"text":"A","index":0,"finish_reason":null}]}"#, "content"),
            (r#"{"id":"c","model":"m","choices":[{"text":"","index":0,"finish_reason":"stop"}]}"#, "stop"),
            (r#"{"content":"A","stop":false}"#, "content"),
            (r#"{"content":"","stop":true,"stop_type":"limit","timings":{"prompt_n":1}}"#, "done length 1/-"),
            (r#"{"content":"","stop":true,"stop_type":"eos"}"#, "done stop"),
            (r#"{"content":"","stop":false,"prompt_progress":{"total":10,"processed":5}}"#, "progress=5/10"),
        ],
    );
}

#[test]
fn whole_answers() {
    answers(
        OpenaiChat,
        &[
            (
                r#"{"id":"c","object":"chat.completion","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"Hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":2,"completion_tokens_details":{"reasoning_tokens":0}}}"#,
                "content done stop 1/2",
            ),
            (
                r#"{"id":"c","model":"m","choices":[{"message":{"role":"assistant","content":null,"tool_calls":[{"id":"x","type":"function","function":{"name":"f","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}"#,
                "content done stop",
            ),
            (
                r#"{"choices":[{"message":{"content":"","reasoning_content":"so many"},"finish_reason":"length"}]}"#,
                "thinking done length",
            ),
            (
                r#"{"id":"c","model":"m","choices":[{"message":{"content":""},"finish_reason":"stop"}]}"#,
                "done stop",
            ),
            (r#"{"id":"c","model":"m","choices":[]}"#, "done"),
            ("\n\n{\"id\":\"c\",\"model\":\"m\",\"choices\":[]}\n", "done"),
            (
                r#"{"error":{"message":"Loading model","type":"unavailable_error","code":503}}"#,
                "done error=loading",
            ),
            (r#"{"id":"c","model":"m","choices":[{"message":{"con"#, "alien"),
            ("", "alien"),
            ("<html>", "alien"),
        ],
    );
    answers(
        OpenaiCompletions,
        &[(
            r#"{"id":"c","model":"m","choices":[{"text":"A","finish_reason":"length"}]}"#,
            "content done length",
        )],
    );
    answers(
        OpenaiEmbeddings,
        &[
            (
                r#"{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.1,-2e-3]}],"model":"e","usage":{"prompt_tokens":5,"total_tokens":5}}"#,
                "content done 5/-",
            ),
            (r#"{"object":"list","data":[{"embedding":"AAAA"}],"model":"e"}"#, "content done"),
            (r#"{"object":"list","data":[],"model":"e"}"#, "done"),
            (r#"{"object":"list","data":[{"embedding":[]}],"model":"e"}"#, "done"),
        ],
    );
}

#[test]
fn ranges_stand_where_they_are() {
    let raw = b": c\r\nevent: message\r\ndata:  {\"id\":\"c\",\"model\":\"a\\\"b\",\"choices\":[],\"usage\":null}\r\n\r\n";
    let found = facts(OpenaiChat, raw);
    assert_eq!(&raw[found.model.unwrap()], br#""a\"b""#);
    assert_eq!(&raw[found.usage_null.unwrap()], b"null");

    let raw = b"data: {\"error\":{\"message\":\"GPU \\\"0\\\" is gone\",\"code\":500}}\n\n";
    let found = facts(OpenaiChat, raw);
    assert_eq!(&raw[found.error.unwrap().text], br#"GPU \"0\" is gone"#);

    let raw = b"data: {\"id\":\"c\",\ndata: \"model\":\"m\",\"usage\":null,\ndata: \"error\":\"x\"}\n\n";
    let found = facts(OpenaiChat, raw);
    assert_eq!((found.model, found.usage_null), (None, None), "joined data has no place in the event");
    assert_eq!(found.error.unwrap().text, 0..raw.len());
}
