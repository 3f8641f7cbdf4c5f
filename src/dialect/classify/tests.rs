//! Error texts that servers are known to send, and what they mean.

use super::*;
use Cause::*;

#[test]
fn known_texts() {
    for (text, cause) in [
        (
            "model runner has unexpectedly stopped, this may be due to resource limitations or an internal error, check ollama server logs for details",
            Crashed,
        ),
        ("model runner has unexpectedly stopped, this may be due to …: CUDA error: out of memory", CudaOom),
        ("POST predict: Post \"http://127.0.0.1:1/completion\": EOF", Crashed),
        ("an error was encountered while running the model: unexpected EOF", Crashed),
        ("error reading llm response: read tcp 127.0.0.1:1->127.0.0.1:2: wsarecv: …", Crashed),
        ("llama runner process has terminated: exit status 2", Crashed),
        (
            "llama runner process has terminated: cudaMalloc failed: out of memory\\nggml_gallocr_reserve_n: failed to allocate CUDA0 buffer of size 5637144576",
            CudaOom,
        ),
        ("llama-server process has terminated: signal: killed", OomKill),
        ("llama-server reported out-of-memory during startup: x", Oom),
        ("timed out waiting for llama-server to start - x", Loading),
        ("timed out waiting for llama runner to start - x", Loading),
        ("model requires more system memory (5.6 GiB) than is available (3.1 GiB)", Oom),
        ("model requires 9 GiB but only 5 GiB are available (after 1 GiB overhead)", Oom),
        ("unexpected server status: 3", Crashed),
        ("no slots available after 10 retries", Overloaded),
        ("mlx runner failed: x", Crashed),
        ("server busy, please try again.  maximum pending requests exceeded", Overloaded),
        ("model 'llama9' not found", ModelMissing),
        ("model \"llama9\" not found, try pulling it first", ModelMissing),
        ("\"gemma\" does not support tools", Unsupported),
        ("the prompt is longer than the context length currently available to the model; x", ContextOverflow),
        ("image URLs are not currently supported", Unsupported),
        ("{\\\"error\\\":{\\\"code\\\":500,\\\"message\\\":\\\"Compute error.\\\"}}", Crashed),
        ("Loading model", Loading),
        ("error loading model: unable to allocate", Crashed),
        (
            "request (9000 tokens) exceeds the available context size (4096 tokens), try increasing it",
            ContextOverflow,
        ),
        ("Context size has been exceeded.", Overloaded),
        ("input (9000 tokens) is too large to process. increase the physical batch size", ContextOverflow),
        ("decode() failed: x", Crashed),
        ("no slot available", Overloaded),
        ("vk::Queue::submit: ErrorDeviceLost", Crashed),
        ("vk::Device::allocateMemory: ErrorOutOfDeviceMemory", CudaOom),
        ("proxy error: Could not establish connection", Crashed),
        ("EngineCore encountered an issue. See stack trace (above) for the root cause.", Crashed),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB.", CudaOom),
        ("This model's maximum context length is 4096 tokens.", ContextOverflow),
        ("The model `x/y` does not exist.", ModelMissing),
        ("The request queue is full.", Overloaded),
        ("The input (9 tokens) is longer than the model's context length (8 tokens).", ContextOverflow),
        ("Model is overloaded", Overloaded),
        ("Input validation error: `inputs` must have less than 1024 tokens. Given: 2000", ContextOverflow),
        ("Input validation error: `temperature` must be strictly positive", ClientFault),
        ("Incomplete generation stream", Crashed),
        ("The model has crashed without additional information. (Exit code: null)", Crashed),
        ("Model is unloaded.", Crashed),
        ("The model is overloaded.", Overloaded),
        ("Rate limit reached for gpt-4o", RateLimited),
        ("You exceeded your current quota, please check your plan and billing details.", RateLimited),
        ("prompt is too long: 210000 tokens > 200000 maximum", ContextOverflow),
        ("This request failed for reasons unknown", ErrorInStream),
        ("", ErrorInStream),
    ] {
        assert_eq!(classify(None, text.as_bytes()), cause, "{text}");
    }
    assert_eq!(classify(Some(429), b"slow down"), RateLimited);
    assert_eq!(classify(Some(503), b"busy"), Overloaded);
    assert_eq!(classify(Some(401), b"who?"), Unauthorized);
    assert_eq!(classify(Some(500), b"boom"), ErrorInStream);
}

#[test]
fn statuses_that_go_on_to_the_next_target_and_those_that_do_not() {
    for (status, body, cause) in [
        (500, "Internal Server Error", Http5xx),
        (500, r#"{"error":"llama-server process has terminated: signal: killed"}"#, OomKill),
        (500, r#"{"error":{"code":500,"message":"Compute error.","type":"server_error"}}"#, Crashed),
        (502, "<html><title>502 Bad Gateway</title></html>", Http5xx),
        (503, r#"{"error":{"message":"Loading model","type":"unavailable_error","code":503}}"#, Loading),
        (503, r#"{"error":"server busy, please try again.  maximum pending requests exceeded"}"#, Overloaded),
        (503, "<html></html>", Http5xx),
        (504, "<html><head><title>504 Gateway Time-out</title></head></html>", Http5xx),
        (501, "", Unsupported),
        (529, r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#, Overloaded),
        (408, "", HttpStatus),
        (409, "", HttpStatus),
        (425, "", HttpStatus),
        (
            424,
            r#"{"error":"Request failed during generation: CUDA out of memory","error_type":"generation"}"#,
            CudaOom,
        ),
        (429, r#"{"error":"Model is overloaded","error_type":"overloaded"}"#, RateLimited),
        (401, "", Unauthorized),
        (402, r#"{"error":{"message":"Insufficient Balance"}}"#, Unauthorized),
        (403, "", Unauthorized),
        (
            403,
            r#"{"error":{"code":403,"message":"m requires moderation and your input was flagged"}}"#,
            ClientFault,
        ),
        (404, r#"{"error":"model 'x' not found"}"#, ModelMissing),
        (
            404,
            r#"{"error":{"message":"The model `x` does not exist or you do not have access to it.","code":"model_not_found"}}"#,
            ModelMissing,
        ),
        (
            404,
            r#"{"type":"error","error":{"type":"not_found_error","message":"model: claude-9"}}"#,
            ModelMissing,
        ),
        (404, r#"{"error":{"message":"No endpoints found that support tool use.","code":404}}"#, Unsupported),
        (404, "404 page not found", Unsupported),
        (405, "", Unsupported),
        (413, "Request Entity Too Large", Unsupported),
        (413, r#"{"error":{"message":"This model's maximum context length is 8"}}"#, ContextOverflow),
        (
            400,
            r#"{"error":{"code":400,"message":"request (9 tokens) exceeds the available context size (8 tokens)","type":"exceed_context_size_error"}}"#,
            ContextOverflow,
        ),
        (400, r#"{"error":"image URLs are not currently supported"}"#, Unsupported),
        (400, r#"{"error":"\"x\" does not support tools"}"#, Unsupported),
        (
            400,
            r#"{"code":20012,"message":"Model does not exist. Please check it carefully.","data":null}"#,
            ModelMissing,
        ),
        (
            400,
            r#"[{"error":{"code":400,"message":"API key not valid. Please pass a valid API key.","status":"INVALID_ARGUMENT"}}]"#,
            Unauthorized,
        ),
        (
            400,
            r#"{"error":{"message":"Invalid type for 'messages'.","type":"invalid_request_error"}}"#,
            ClientFault,
        ),
        (
            400,
            r#"{"error":{"message":"Unsupported value: 'temperature' does not support 0.2 with this model."}}"#,
            ClientFault,
        ),
        (
            422,
            r#"{"error":"Input validation error: `top_p` must be > 0","error_type":"validation"}"#,
            ClientFault,
        ),
        (
            422,
            r#"{"detail":[{"type":"missing","msg":"Field required","input":{"messages":[{"content":"maximum context length"}]}}]}"#,
            ClientFault,
        ),
        (415, "", ClientFault),
        (451, "", ClientFault),
        (302, "", HttpStatus),
    ] {
        assert_eq!(classify_status(status, body.as_bytes()), cause, "{status} {body}");
    }
}

#[test]
fn a_prompt_that_an_error_echoes_means_nothing() {
    let fastapi = r#"{"error":{"message":"[{'type': 'missing', 'loc': ('body',), 'msg': 'Field required', 'input': {'messages': 'out of memory, maximum context length, model_not_found'}}]","type":"Bad Request","param":null,"code":400}}"#;
    assert_eq!(classify_status(400, fastapi.as_bytes()), ClientFault);
    assert_eq!(classify(None, fastapi.as_bytes()), ErrorInStream);
    // What stands outside the message is not looked at.
    let beside = r#"{"error":{"message":"bad request"},"request":{"prompt":"maximum context length"}}"#;
    assert_eq!(classify_status(400, beside.as_bytes()), ClientFault);
    // Beyond the bound, neither.
    let far = format!("{}out of memory", "x".repeat(NEEDLE_TEXT_BYTES));
    assert_eq!(classify(None, far.as_bytes()), ErrorInStream);
}

#[test]
fn the_text_for_a_person_is_found() {
    for (body, text) in [
        (r#"{"error":"gone"}"#, "gone"),
        (r#"{"error":{"type":"t","message":"gone \"x\""}}"#, r#"gone \"x\""#),
        (r#"{"object":"error","message":"gone"}"#, "gone"),
        (r#"{"detail":"gone"}"#, "gone"),
        (r#"{"detail":[{"msg":"gone"}]}"#, r#"[{"msg":"gone"}]"#),
        ("<html>", "<html>"),
        (r#"{"error":{"message":"cut in the mid"#, "cut in the mid"),
    ] {
        assert_eq!(&body[error_text(body.as_bytes())], text, "{body}");
    }
}

#[test]
fn phrases_are_lower_case_and_found_only_once() {
    let mut seen = std::collections::HashSet::new();
    for (_, needles) in TABLE {
        for needle in *needles {
            let phrase = match needle {
                One(phrase) => (*phrase).to_owned(),
                Two(first, second) => format!("{first}…{second}"),
            };
            assert_eq!(phrase, phrase.to_lowercase());
            assert!(seen.insert(phrase));
        }
    }
}
