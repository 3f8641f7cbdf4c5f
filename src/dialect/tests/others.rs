//! Responses, Anthropic, Ollama's own, Gemini.

use super::*;
use Dialect::{Anthropic, Gemini, OllamaChat, OllamaEmbed, OllamaGenerate, OpenaiResponses};

#[test]
fn responses() {
    frames(
        OpenaiResponses,
        &[
            (
                r#"{"type":"response.created","response":{"id":"r","status":"in_progress","error":null,"model":"m","output":[],"usage":null}}"#,
                "",
            ),
            (r#"{"type":"response.queued","response":{"id":"r","status":"queued"}}"#, ""),
            (r#"{"type":"response.in_progress","response":{"id":"r"}}"#, ""),
            (r#"{"type":"response.output_item.added","item":{"type":"message","content":[]}}"#, ""),
            (r#"{"type":"response.output_item.added","item":{"type":"reasoning","summary":[]}}"#, ""),
            (
                r#"{"type":"response.output_item.added","item":{"type":"function_call","name":"f"}}"#,
                "content",
            ),
            (r#"{"type":"response.output_item.added","item":{"type":"web_search_call"}}"#, "content"),
            (r#"{"type":"response.content_part.added","part":{"type":"output_text","text":""}}"#, ""),
            (r#"{"type":"response.output_text.delta","delta":"A","logprobs":[]}"#, "content"),
            (r#"{"delta":"A","type":"response.output_text.delta"}"#, "content"),
            (r#"{"type":"response.output_text.delta","delta":""}"#, ""),
            (r#"{"type":"response.refusal.delta","delta":"No"}"#, "content"),
            (r#"{"type":"response.function_call_arguments.delta","delta":"{"}"#, "content"),
            (r#"{"type":"response.audio.delta","delta":"AAAA"}"#, "content"),
            (r#"{"type":"response.reasoning_text.delta","delta":"hm"}"#, "thinking"),
            (r#"{"type":"response.reasoning_summary_text.delta","delta":"hm"}"#, "thinking"),
            (
                r#"{"type":"response.completed","response":{"status":"completed","output":[{"type":"message","content":[{"type":"output_text","text":"A"}]}],"usage":{"input_tokens":3,"output_tokens":4}}}"#,
                "done stop 3/4",
            ),
            (
                r#"{"type":"response.incomplete","response":{"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"}}}"#,
                "done length",
            ),
            (
                r#"{"type":"response.incomplete","response":{"incomplete_details":{"reason":"content_filter"}}}"#,
                "done filtered",
            ),
            (
                r#"{"type":"response.failed","response":{"status":"failed","error":{"code":"server_error","message":"boom"}}}"#,
                "done failed error=error_in_stream",
            ),
            (
                r#"{"type":"response.failed","response":{"status":"failed","error":null}}"#,
                "done failed error=error_in_stream",
            ),
            (
                r#"{"type":"error","code":"rate_limit_exceeded","message":"x","param":null}"#,
                "error=rate_limited",
            ),
            (
                r#"{"type":"error","error":{"type":"service_unavailable_error","code":"server_is_overloaded","message":"busy"}}"#,
                "error=overloaded",
            ),
            (r#"{"error":{"code":500,"message":"Compute error.","type":"server_error"}}"#, "error=crashed"),
            ("[DONE]", ""),
        ],
    );
    events(
        OpenaiResponses,
        &[
            ("event: response.output_text.delta\ndata: {\"delta\":\"A\"}\n\n", "content"),
            ("event: error\ndata: {\"code\":500}\n\n", "error=error_in_stream"),
        ],
    );
    answers(
        OpenaiResponses,
        &[
            (
                r#"{"id":"r","object":"response","status":"completed","error":null,"model":"m","output":[{"type":"reasoning","summary":[]},{"type":"message","content":[{"type":"output_text","text":"Hi"}]}],"usage":{"input_tokens":1,"output_tokens":2}}"#,
                "content done stop 1/2",
            ),
            (
                r#"{"object":"response","status":"completed","output":[{"type":"function_call","name":"f"}]}"#,
                "content done stop",
            ),
            (
                r#"{"object":"response","status":"completed","output":[{"type":"reasoning","summary":[{"type":"summary_text","text":"s"}]}]}"#,
                "thinking done stop",
            ),
            (r#"{"object":"response","status":"completed","output":[]}"#, "done stop"),
            (
                r#"{"object":"response","status":"failed","error":{"code":"server_error","message":"x"},"output":[]}"#,
                "done failed error=error_in_stream",
            ),
        ],
    );
}

#[test]
fn anthropic() {
    frames(
        Anthropic,
        &[
            (
                r#"{"type":"message_start","message":{"id":"m","type":"message","role":"assistant","content":[],"model":"c","usage":{"input_tokens":9,"output_tokens":1}}}"#,
                "9/-",
            ),
            (r#"{"type":"ping"}"#, ""),
            (r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#, ""),
            (
                r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"A"}}"#,
                "content",
            ),
            (
                r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}"#,
                "",
            ),
            (
                r#"{"type":"content_block_start","index":0,"content_block":{"type":"redacted_thinking","data":"x"}}"#,
                "thinking",
            ),
            (
                r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t","name":"f","input":{}}}"#,
                "content",
            ),
            (
                r#"{"type":"content_block_start","index":0,"content_block":{"type":"server_tool_use","id":"t"}}"#,
                "content",
            ),
            (
                r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"A"}}"#,
                "content",
            ),
            (r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":""}}"#, ""),
            (
                r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"h"}}"#,
                "thinking",
            ),
            (
                r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{"}}"#,
                "content",
            ),
            (
                r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":""}}"#,
                "",
            ),
            (
                r#"{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"s"}}"#,
                "",
            ),
            (
                r#"{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":1}}"#,
                "stop -/1",
            ),
            (
                r#"{"type":"message_delta","delta":{"stop_reason":"max_tokens"},"usage":{"input_tokens":2,"output_tokens":1}}"#,
                "length 2/1",
            ),
            (r#"{"type":"message_delta","delta":{"stop_reason":"refusal"}}"#, "filtered"),
            (r#"{"type":"message_stop"}"#, "done"),
            (
                r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
                "error=overloaded",
            ),
            ("[DONE]", ""),
        ],
    );
    events(
        Anthropic,
        &[
            (
                "event: error\ndata: {\"code\":500,\"message\":\"Compute error.\",\"type\":\"server_error\"}\n\n",
                "error=crashed",
            ),
            ("event: error\ndata: gone\n\n", "alien error=error_in_stream"),
            ("event: error\n\n", "error=error_in_stream"),
            ("event: ping\ndata: ping\n\n", ""),
        ],
    );
    answers(
        Anthropic,
        &[
            (
                r#"{"id":"m","type":"message","role":"assistant","model":"c","content":[{"type":"text","text":"Hi"}],"stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":2}}"#,
                "content done stop 1/2",
            ),
            (
                r#"{"type":"message","content":[{"type":"thinking","thinking":"h","signature":"s"}],"stop_reason":"max_tokens"}"#,
                "thinking done length",
            ),
            (
                r#"{"type":"message","content":[{"type":"tool_use","id":"t","name":"f","input":{}}],"stop_reason":"tool_use"}"#,
                "content done stop",
            ),
            (r#"{"type":"message","content":[],"stop_reason":"refusal"}"#, "done filtered"),
            (
                r#"{"type":"error","error":{"type":"api_error","message":"x"},"request_id":"r"}"#,
                "done error=error_in_stream",
            ),
        ],
    );
}

#[test]
fn ollama() {
    frames(
        OllamaChat,
        &[
            (
                r#"{"model":"m","created_at":"t","message":{"role":"assistant","content":"","thinking":"Let"},"done":false}"#,
                "thinking",
            ),
            (
                r#"{"model":"m","created_at":"t","message":{"role":"assistant","content":"Hi"},"done":false}"#,
                "content",
            ),
            (r#"{"model":"m","message":{"role":"assistant","content":""},"done":false}"#, ""),
            (
                r#"{"model":"m","message":{"role":"assistant","content":"","tool_calls":[{"function":{"name":"f","arguments":{}}}]},"done":false}"#,
                "content",
            ),
            (r#"{"model":"m","message":{"content":"","tool_calls":[]},"done":false}"#, ""),
            (
                r#"{"model":"m","message":{"role":"assistant","content":""},"done":true,"done_reason":"stop","total_duration":1,"prompt_eval_count":11,"eval_count":2}"#,
                "done stop 11/2",
            ),
            (
                r#"{"model":"m","message":{"content":"!"},"done":true,"done_reason":"length","eval_count":2}"#,
                "content done length 0/2",
            ),
            (r#"{"model":"m","message":{"content":""},"done":true,"done_reason":"stop"}"#, "done stop 0/0"),
            (r#"{"model":"m","message":{"content":""},"done":true,"done_reason":"load"}"#, "done loaded 0/0"),
            (
                r#"{"model":"m","message":{"content":""},"done":true,"done_reason":"unload"}"#,
                "done loaded 0/0",
            ),
            (r#"{"error":"POST predict: Post \"http://127.0.0.1:1/completion\": EOF"}"#, "error=crashed"),
            (r#"{"error":"{\"error\":{\"code\":500,\"message\":\"Compute error.\"}}"}"#, "error=crashed"),
            ("", ""),
            ("data: {}", "alien"),
        ],
    );
    frames(
        OllamaGenerate,
        &[
            (r#"{"model":"m","response":"Hi","done":false}"#, "content"),
            (r#"{"model":"m","response":"","thinking":"L","done":false}"#, "thinking"),
            (
                r#"{"model":"m","response":"","done":true,"done_reason":"stop","context":[1,2]}"#,
                "done stop 0/0",
            ),
            (r#"{"model":"m","image":"iVBO","done":false}"#, "content"),
        ],
    );
    answers(
        OllamaEmbed,
        &[
            (r#"{"model":"e","embeddings":[[0.1,0.2]],"prompt_eval_count":3}"#, "content done"),
            (r#"{"embedding":[0.1]}"#, "content done"),
            (r#"{"model":"e","embeddings":[]}"#, "done"),
            (r#"{"error":"model 'e' not found"}"#, "done error=model_missing"),
        ],
    );
    let raw = b"\xEF\xBB\xBF {\"model\":\"m\",\"done\":false}\r\n";
    assert_eq!(&raw[facts(OllamaChat, raw).model.unwrap()], b"\"m\"");
}

#[test]
fn gemini() {
    let table = [
        (
            r#"{"candidates":[{"content":{"role":"model","parts":[{"text":"plan","thought":true}]},"index":0}],"usageMetadata":{"promptTokenCount":9,"thoughtsTokenCount":1}}"#,
            "thinking 9/1",
        ),
        (
            r#"{"candidates":[{"content":{"parts":[{"text":"ok"}]}}],"usageMetadata":{"promptTokenCount":9,"candidatesTokenCount":1,"thoughtsTokenCount":2}}"#,
            "content 9/3",
        ),
        (
            r#"{"candidates":[{"content":{"parts":[{"text":"","thoughtSignature":"A"}]},"finishReason":"STOP"}]}"#,
            "stop",
        ),
        (r#"{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","args":{}}}]}}]}"#, "content"),
        (
            r#"{"candidates":[{"content":{"parts":[{"inlineData":{"mimeType":"image/png","data":"A"}}]}}]}"#,
            "content",
        ),
        (r#"{"candidates":[{"finishReason":"STOP","index":0}],"modelVersion":"g"}"#, "stop"),
        (r#"{"candidates":[{"finishReason":"MAX_TOKENS"}]}"#, "length"),
        (r#"{"candidates":[{"finishReason":"SAFETY"}]}"#, "filtered"),
        (r#"{"candidates":[{"finishReason":"FINISH_REASON_UNSPECIFIED"}]}"#, ""),
        (r#"{"promptFeedback":{"safetyRatings":[]},"candidates":[]}"#, ""),
        (r#"{"usageMetadata":{"promptTokenCount":9}}"#, "9/-"),
    ];
    frames(Gemini, &table);
    frames(
        Gemini,
        &[(
            r#"{"promptFeedback":{"blockReason":"PROHIBITED_CONTENT"},"usageMetadata":{"promptTokenCount":9}}"#,
            "done filtered 9/-",
        )],
    );
    frames(
        Gemini,
        &[
            (
                r#"{"error":{"code":503,"message":"The model is overloaded.","status":"UNAVAILABLE"}}"#,
                "error=overloaded",
            ),
            (r#"{"error":{"code":429,"message":"x","status":"RESOURCE_EXHAUSTED"}}"#, "error=rate_limited"),
        ],
    );
    for (json, says) in table {
        let whole = inspect_answer(Gemini, json.as_bytes());
        assert_eq!(words(&Facts { done: false, ..whole }), says, "{json}");
    }
}
