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

/// What servers say to a request that they cannot serve, and another target can: their own texts, with their statuses.
#[test]
fn refusals_that_another_target_can_serve() {
    for (status, text, cause) in [
        // vLLM.
        (
            400,
            r#"\"auto\" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set"#,
            Unsupported,
        ),
        (400, r#"tool_choice=\"required\" requires --tool-call-parser to be set"#, Unsupported),
        (400, r#"tool_choice=function \"weather\" requires --tool-call-parser to be set"#, Unsupported),
        (400, "At most 0 image(s) may be provided in one prompt.", Unsupported),
        (
            400,
            "At most 1 image(s) may be provided in one prompt. Set `--limit-mm-per-prompt` to increase this limit.",
            Unsupported,
        ),
        (400, "Qwen/Qwen3-8B is not a multimodal model", Unsupported),
        (
            400,
            "As of transformers v4.44, default chat template is no longer allowed, so you must provide a chat template if the tokenizer does not define one.",
            Unsupported,
        ),
        (400, "The provided JSON schema contains features not supported by xgrammar.", Unsupported),
        (400, "Requested sample logprobs of 21, which is greater than max allowed: 20", Unsupported),
        (400, "This model does not support generation", Unsupported),
        (400, "This model does not support pooling", Unsupported),
        (400, "The model does not support Chat Completions API", Unsupported),
        (501, "The model does not support Embeddings API", Unsupported),
        (
            400,
            "max_tokens=8888 cannot be greater than max_model_len=4096. Please request fewer output tokens.",
            ContextOverflow,
        ),
        (
            400,
            "max_tokens=8888cannot be greater than max_model_len=max_total_tokens=3072. Please request fewer output tokens.",
            ContextOverflow,
        ),
        (
            400,
            "'max_tokens' or 'max_completion_tokens' is too large: 4000. This model's maximum context length is 4096 tokens and your request has 1000 input tokens (4000 > 4096 - 1000).",
            ContextOverflow,
        ),
        (
            400,
            "This model's maximum context length is 4096 tokens. However, your request has 5000 input tokens. Please reduce the length of the input messages.",
            ContextOverflow,
        ),
        (
            400,
            "You passed 5000 input tokens and requested 0 output tokens. However, the model's context length is only 4096 tokens, resulting in a maximum input length of 4096 tokens. Please reduce the length of the input prompt.",
            ContextOverflow,
        ),
        (
            400,
            "This model's maximum context length is 8192 tokens. However, you requested 64 output tokens and your prompt contains at least 8129 input tokens, for a total of at least 8193 tokens. Please reduce the length of the input prompt or the number of requested output tokens.",
            ContextOverflow,
        ),
        (400, "Input length (5000) exceeds model's maximum context length (4096).", ContextOverflow),
        (
            400,
            "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
            ContextOverflow,
        ),
        // Chat templates.
        (400, "System role not supported", Unsupported),
        (400, "Conversation roles must alternate user/assistant/user/assistant/...", Unsupported),
        (400, "This model only supports single tool-calls at once!", Unsupported),
        // llama.cpp, recorded: most of these are 500.
        (500, "tools param requires --jinja flag", Unsupported),
        (500, "tool_choice param requires --jinja flag", Unsupported),
        (
            500,
            "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj",
            Unsupported,
        ),
        (
            500,
            "audio input is not supported - hint: if this is unexpected, you may need to provide the mmproj",
            Unsupported,
        ),
        (500, "Failed to download image", Unsupported),
        (501, "This server does not support embeddings. Start it with `--embeddings`", Unsupported),
        (501, "This server does not support reranking. Start it with `--reranking`", Unsupported),
        (
            501,
            "This server does not support completions. Start it without `--embeddings` or `--reranking`",
            Unsupported,
        ),
        (400, "Field 'n': Value must be between 1 <= value <= 1, but got 3", Unsupported),
        (400, "Only one completion choice is allowed", Unsupported),
        (400, "logprobs is not supported with tools + stream", Unsupported),
        (400, "'input_file' is not supported by llamacpp at this moment", Unsupported),
        (400, "llama.cpp does not support 'previous_response_id'.", Unsupported),
        (
            400,
            "request (3010 tokens) exceeds the available context size (2048 tokens), try increasing it",
            ContextOverflow,
        ),
        (
            500,
            "input (600 tokens) is too large to process. increase the physical batch size (current batch size: 512)",
            ContextOverflow,
        ),
        // Ollama.
        (400, r#"\"gemma\" does not support chat"#, Unsupported),
        (400, "registry.ollama.ai/library/gemma:latest does not support tools", Unsupported),
        (400, "registry.ollama.ai/library/gemma:latest does not support vision\\nthinking", Unsupported),
        (400, "this model only supports one image while more than one image requested", Unsupported),
        (400, "the input length exceeds the context length", ContextOverflow),
        // SGLang.
        (
            400,
            "The input (5000 tokens) is longer than the model's context length (4096 tokens).",
            ContextOverflow,
        ),
        (
            400,
            "Requested token count exceeds the model's maximum context length of 4096 tokens. You requested a total of 6000 tokens: 1000 tokens from the input messages and 5000 tokens for the completion.",
            ContextOverflow,
        ),
        (
            400,
            "max_completion_tokens is too large: 8888.This model supports at most 4096 completion tokens.",
            ContextOverflow,
        ),
        (
            400,
            "This model does not appear to be an embedding model by default. Please add `--is-embedding` when launching the server or try another model.",
            Unsupported,
        ),
        (400, "Image count 3 exceeds limit 1 per request.", Unsupported),
        // TGI.
        (422, "Input validation error: grammar is not supported", Unsupported),
        (422, "Input validation error: image modality is not supported", Unsupported),
        (422, "Template error: template not found", Unsupported),
        (
            422,
            "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 2048. Given: 1000 `inputs` tokens and 2000 `max_new_tokens`",
            ContextOverflow,
        ),
        // LM Studio.
        (
            400,
            "Trying to keep the first 5000 tokens when context the overflows. However, the model is loaded with context length of only 4096 tokens, which is not enough.",
            ContextOverflow,
        ),
        (400, "'response_format.type' must be 'json_schema' or 'text'", Unsupported),
        (400, "Model does not support images. Please use a model that does.", Unsupported),
        // Clouds.
        (
            400,
            "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease input length or `max_tokens` and try again",
            ContextOverflow,
        ),
        (
            400,
            "max_tokens: 99999 > 8192, which is the maximum allowed number of output tokens for claude-3-5-haiku",
            Unsupported,
        ),
        (
            400,
            "max_tokens is too large: 99999. This model supports at most 16384 completion tokens, whereas you provided 99999.",
            Unsupported,
        ),
    ] {
        let body = format!(r#"{{"error":{{"message":"{text}","type":"BadRequestError","code":{status}}}}}"#);
        assert_eq!(classify_status(status, body.as_bytes()), cause, "{status} {text}");
    }
}

/// What is wrong wherever it is asked: it belongs to the client, and counts for no target.
#[test]
fn a_clients_own_mistake_goes_nowhere_else() {
    for (status, text) in [
        // vLLM.
        (
            400,
            "[{'type': 'int_parsing', 'loc': ('body', 'max_tokens'), 'msg': 'Input should be a valid integer', 'input': 'many'}]",
        ),
        (400, "When using `tool_choice`, `tools` must be set."),
        (
            400,
            r#"Invalid value for `tool_choice`: blue! Only named tools, \"none\", \"auto\" or \"required\" are supported."#,
        ),
        (400, "The tool specified in `tool_choice` does not match any of the specified `tools`"),
        (
            400,
            "`tools` must not be an empty array. Either provide at least one tool or omit the field entirely.",
        ),
        (400, "Stream options can only be defined when `stream=True`."),
        (
            400,
            "You can only use one kind of constraints for structured outputs ('json', 'regex' or 'choice').",
        ),
        (400, "`top_logprobs` must be a positive value or -1."),
        (400, "max_tokens must be at least 1, got 0."),
        (400, "temperature must be non-negative, got -1.0."),
        // llama.cpp.
        (400, "Expected 'messages' to be an array"),
        (400, "All non-assistant messages must contain 'content'"),
        (400, "unsupported content[].type"),
        (400, "Invalid tool_choice: blue"),
        (400, "Failed to initialize samplers: failed to parse grammar"),
        (400, r#"response_format type must be one of \"text\" or \"json_object\", but got: blue"#),
        (500, "Invalid url value"),
        (500, "Invalid url format: data:text/plain"),
        (500, "url must be base64 encoded"),
        (500, "Cannot use both json_schema and grammar"),
        // SGLang, TGI, Ollama.
        (
            400,
            "Tool 0 function has invalid 'parameters' schema: 'blue' is not valid under any of the given schemas",
        ),
        (400, "Tools cannot be empty if tool choice is set to required."),
        (422, "Input validation error: `top_p` must be > 0.0 and < 1.0"),
        (422, "Input validation error: grammar is not valid: 'blue'"),
        (400, "top_logprobs must be between 0 and 20"),
        (400, "raw mode does not support template, system, or context"),
        // Clouds.
        (400, "Invalid 'messages[0].role': unknown role 'blue'"),
        (400, "Invalid max_tokens value, the valid range of max_tokens is [1, 8192]"),
        (400, "Range of max_tokens should be [1, 8192]"),
    ] {
        let body = format!(r#"{{"error":{{"message":"{text}","type":"BadRequestError","code":{status}}}}}"#);
        assert_eq!(classify_status(status, body.as_bytes()), ClientFault, "{status} {text}");
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

/// Recorded: `tests/transcripts/whole/README.md` says of which vLLM.
#[test]
fn a_real_vllms_refusals() {
    for line in include_str!("../../../tests/transcripts/vllm-refusals.txt").lines() {
        let mut parts = line.splitn(3, ' ');
        let (Some(cause), Some(status), Some(body)) = (parts.next(), parts.next(), parts.next()) else {
            panic!("{line}")
        };
        assert_eq!(
            format!("{:?}", classify_status(status.parse().unwrap(), body.as_bytes())),
            cause,
            "{body}"
        );
    }
}

#[test]
fn a_stream_is_named_by_its_own_word() {
    for (status, text, names) in [
        (400, "Streaming is not supported for this model", true),
        (422, "body.stream_options: Extra inputs are not permitted", true),
        (400, "`stream` must be false", true),
        (400, "temporarily rate-limited upstream", false),
        (429, "too many streams", false),
    ] {
        let body = format!("{{\"error\":{{\"message\":\"{text}\"}}}}");
        assert_eq!(refuses_streams(status, body.as_bytes()), names, "{text}");
    }
}

#[test]
fn a_prompt_that_a_refusal_repeats_says_nothing() {
    let body =
        r#"{"error":{"message":"Missing 'role' in message: {\"content\":\"it does not support tools\"}"}}"#;
    assert_eq!(classify_status(400, body.as_bytes()), ClientFault);
    let body = r#"{"error":{"message":"Missing 'role' in message: {\"content\":\"CUDA out of memory\"}"}}"#;
    assert_ne!(classify_status(500, body.as_bytes()), CudaOom);
}
