//! Limits, knobs, thinking, forms of the answer, and what a target is not sent.

use super::*;

fn with(more: Value) -> Value {
    let mut body = chat(json!([{"role":"user","content":"Hi"}]));
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

fn flavored(flavor: Flavor, model: &str) -> Terms<'_> {
    Terms { flavor, ..terms(Dialect::OpenaiChat, model) }
}

#[test]
fn knobs_have_each_targets_names() {
    let body = with(json!({"temperature":0.5,"top_p":0.9,"top_k":40,"min_p":0.1,"frequency_penalty":0.2,
        "presence_penalty":0.3,"repetition_penalty":1.1,"seed":7,"max_tokens":100,"stop":"END"}));
    let talk = read(Dialect::OpenaiChat, &body);
    let (vllm, encoded) = write(&talk, &flavored(Flavor::Vllm, "x"));
    for key in ["temperature", "top_p", "top_k", "min_p", "repetition_penalty", "seed", "max_tokens"] {
        assert_eq!(vllm[key], body[key], "{key}");
    }
    assert_eq!((&vllm["stop"], encoded.dropped.len()), (&json!(["END"]), 0));
    assert_eq!(write(&talk, &flavored(Flavor::Llamacpp, "x")).0["repeat_penalty"], 1.1);
    let (ollama, _) = write(&talk, &terms(Dialect::OllamaChat, "x"));
    assert_eq!(
        ollama["options"],
        json!({"temperature":0.5,"top_p":0.9,"top_k":40,"min_p":0.1,"frequency_penalty":0.2,"presence_penalty":0.3,
            "repeat_penalty":1.1,"seed":7,"num_predict":100,"stop":["END"]})
    );
    let (gemini, encoded) = write(&talk, &terms(Dialect::Gemini, GEMINI));
    assert_eq!(
        gemini["generationConfig"],
        json!({"temperature":0.5,"topP":0.9,"topK":40,"frequencyPenalty":0.2,"presencePenalty":0.3,"seed":7,
            "maxOutputTokens":100,"stopSequences":["END"]})
    );
    let names = |encoded: &Encoded| encoded.dropped.iter().map(|it| it.field.clone()).collect::<Vec<_>>();
    assert_eq!(names(&encoded), ["min_p", "repeat_penalty"]);
    let (anthropic, encoded) = write(&talk, &terms(Dialect::Anthropic, "claude-3-5-haiku-20241022"));
    assert_eq!(
        (&anthropic["temperature"], &anthropic["top_p"], &anthropic["top_k"]),
        (&json!(0.5), &json!(0.9), &json!(40))
    );
    assert_eq!((&anthropic["max_tokens"], &anthropic["stop_sequences"]), (&json!(100), &json!(["END"])));
    let without = ["min_p", "frequency_penalty", "presence_penalty", "repeat_penalty", "seed"];
    assert_eq!(names(&encoded), without);
    let (anthropic, encoded) = write(&talk, &terms(Dialect::Anthropic, CLAUDE));
    assert!(anthropic.get("top_p").is_none() && names(&encoded).contains(&"top_p".into()));
    let (anthropic, encoded) = write(&talk, &terms(Dialect::Anthropic, "claude-opus-4-7"));
    assert!(anthropic.get("temperature").is_none() && names(&encoded).contains(&"temperature".into()));
    let (openai, _) = write(&talk, &flavored(Flavor::Openai, "gpt-4o"));
    assert_eq!((&openai["max_completion_tokens"], openai.get("max_tokens")), (&json!(100), None));
    let (openai, encoded) = write(&talk, &flavored(Flavor::Openai, "gpt-5.1"));
    assert!(openai.get("temperature").is_none() && names(&encoded).contains(&"stop".into()));
    for (to, model) in [(Dialect::Gemini, GEMINI), (Dialect::Anthropic, CLAUDE)] {
        let strict = Terms { strict: true, ..terms(to, model) };
        let cannot = encode(&talk, &strict).unwrap_err();
        assert!(cannot.words("box").contains("`box` is strict"), "{cannot:?}");
    }
}

#[test]
fn limits_have_their_synonyms_and_defaults() {
    let limit = |client, body: Value| read(client, &body).max_tokens;
    assert_eq!(limit(Dialect::OpenaiChat, with(json!({"max_tokens":1,"max_completion_tokens":2}))), Some(2));
    assert_eq!(limit(Dialect::OpenaiResponses, json!({"input":"a","max_output_tokens":3})), Some(3));
    assert_eq!(limit(Dialect::OllamaGenerate, json!({"prompt":"a","options":{"num_predict":4}})), Some(4));
    assert_eq!(limit(Dialect::OllamaGenerate, json!({"prompt":"a","options":{"num_predict":-1}})), None);
    let anthropic = go(Dialect::OpenaiChat, &with(json!({})), Dialect::Anthropic, CLAUDE);
    assert_eq!(anthropic["max_tokens"], limits::ANTHROPIC_MAX_TOKENS);
    let hot = go(Dialect::OpenaiChat, &with(json!({"temperature":1.7})), Dialect::Anthropic, CLAUDE);
    assert_eq!(hot["temperature"], 1);
    let stops = with(json!({"stop":["a","b","c","d","e","f"," "]}));
    let gemini = go(Dialect::OpenaiChat, &stops, Dialect::Gemini, GEMINI);
    assert_eq!(gemini["generationConfig"]["stopSequences"], json!(["a", "b", "c", "d", "e"]));
    let anthropic = go(Dialect::OpenaiChat, &stops, Dialect::Anthropic, CLAUDE);
    assert_eq!(anthropic["stop_sequences"], json!(["a", "b", "c", "d", "e", "f"]));
    let (openai, _) = write(&read(Dialect::OpenaiChat, &stops), &flavored(Flavor::Openai, "gpt-4o"));
    assert_eq!(openai["stop"], json!(["a", "b", "c", "d"]));
    let seed = with(json!({"seed":5_000_000_000_i64}));
    assert_eq!(left_out(Dialect::OpenaiChat, &seed, &terms(Dialect::Gemini, GEMINI)), ["seed"]);
}

#[test]
fn several_answers_are_no_parameter_to_leave_out() {
    let talk = read(Dialect::OpenaiChat, &with(json!({"n":2})));
    for (to, model) in [(Dialect::Anthropic, CLAUDE), (Dialect::OllamaChat, "x")] {
        assert_eq!(encode(&talk, &terms(to, model)), Err(Cannot::Choices(2)));
    }
    assert_eq!(write(&talk, &terms(Dialect::OpenaiChat, "x")).0["n"], 2);
    assert_eq!(write(&talk, &terms(Dialect::Gemini, GEMINI)).0["generationConfig"]["candidateCount"], 2);
}

#[test]
fn streams_are_asked_for_in_each_way() {
    let talk =
        read(Dialect::OpenaiChat, &with(json!({"stream":true,"stream_options":{"include_usage":true}})));
    assert!(talk.stream && talk.wants_usage);
    let (openai, _) = write(&talk, &terms(Dialect::OpenaiChat, "x"));
    assert_eq!(
        (&openai["stream"], &openai["stream_options"]),
        (&json!(true), &json!({"include_usage":true}))
    );
    let silent = read(Dialect::OpenaiChat, &with(json!({"stream":true})));
    assert!(write(&silent, &terms(Dialect::OpenaiChat, "x")).0.get("stream_options").is_none());
    let ask = Terms { ask_usage: true, ..terms(Dialect::OpenaiChat, "x") };
    assert_eq!(write(&silent, &ask).0["stream_options"]["include_usage"], true);
    let path = |model| write(&talk, &terms(Dialect::Gemini, model)).1.path;
    assert_eq!(path("models/gemini-2.5-pro"), "/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse");
    assert_eq!(path("../../x?y"), "/v1beta/models/..%2F..%2Fx%3Fy:streamGenerateContent?alt=sse");
    assert!(read(Dialect::OllamaChat, &json!({"messages":[]})).stream, "Ollama streams unless told not to");
}

#[test]
fn thinking_is_asked_for_in_each_way() {
    let effort = |word: &str| with(json!({"reasoning_effort":word,"max_tokens":30_000}));
    let claude = |word, model| go(Dialect::OpenaiChat, &effort(word), Dialect::Anthropic, model);
    assert_eq!(claude("low", CLAUDE)["thinking"], json!({"type":"enabled","budget_tokens":1024}));
    assert_eq!(claude("high", CLAUDE)["thinking"], json!({"type":"enabled","budget_tokens":24_576}));
    assert_eq!(claude("none", CLAUDE).get("thinking"), None, "which is its default");
    let adaptive = claude("high", "claude-opus-4-6");
    assert_eq!(
        (&adaptive["thinking"], &adaptive["output_config"]),
        (&json!({"type":"adaptive"}), &json!({"effort":"high"}))
    );
    let newest = claude("xhigh", "claude-opus-4-8");
    assert_eq!(newest["thinking"], json!({"type":"adaptive","display":"summarized"}));
    assert_eq!(newest["output_config"], json!({"effort":"xhigh"}));
    assert!(claude("low", "claude-3-haiku-20240307").get("thinking").is_none());
    // Opus 5 thinks unless told not to, from 5.5 on it always does, and then no tool can be forced.
    assert_eq!(claude("none", "claude-opus-5")["thinking"], json!({"type":"disabled"}));
    let always = claude("none", "claude-opus-5-5");
    assert_eq!((always.get("thinking"), &always["output_config"]), (None, &json!({"effort":"low"})));
    let tool = json!({"tool_choice":"required","tools":[{"type":"function","function":{"name":"f"}}]});
    let forced = |model| go(Dialect::OpenaiChat, &with(tool.clone()), Dialect::Anthropic, model);
    assert_eq!(forced("claude-opus-5")["tool_choice"], json!({"type":"any"}));
    assert_eq!(forced("claude-opus-5")["thinking"], json!({"type":"disabled"}));
    assert_eq!(forced("claude-fable-5")["tool_choice"], json!({"type":"auto"}));
    assert!(claude("low", "claude-haiku-4-5").get("output_config").is_none());
    let small = with(json!({"reasoning_effort":"low","max_tokens":500}));
    assert_eq!(left_out(Dialect::OpenaiChat, &small, &terms(Dialect::Anthropic, CLAUDE)), ["thinking"]);
    let unlimited =
        go(Dialect::OpenaiChat, &with(json!({"reasoning_effort":"medium"})), Dialect::Anthropic, CLAUDE);
    assert_eq!(unlimited["max_tokens"], 8192 + limits::ANTHROPIC_MAX_TOKENS);
    let forced = with(json!({"reasoning_effort":"low","tool_choice":"required",
        "tools":[{"type":"function","function":{"name":"f"}}]}));
    assert_eq!(left_out(Dialect::OpenaiChat, &forced, &terms(Dialect::Anthropic, CLAUDE)), ["thinking"]);

    let gemini = |word, model| {
        go(Dialect::OpenaiChat, &effort(word), Dialect::Gemini, model)["generationConfig"]["thinkingConfig"]
            .clone()
    };
    assert_eq!(gemini("medium", GEMINI), json!({"thinkingBudget":8192,"includeThoughts":true}));
    assert_eq!(gemini("none", GEMINI), json!({"thinkingBudget":0}));
    assert_eq!(gemini("none", "gemini-2.5-pro"), json!({"thinkingBudget":128}));
    assert_eq!(gemini("low", "gemini-3-pro-preview"), json!({"thinkingLevel":"low","includeThoughts":true}));
    assert_eq!(gemini("none", "gemini-3-flash-preview"), json!({"thinkingLevel":"minimal"}));
    assert_eq!(gemini("low", "gemini-2.0-flash"), json!(null));

    let ollama =
        |body: &Value, model| go(Dialect::OpenaiChat, body, Dialect::OllamaChat, model)["think"].clone();
    assert_eq!(ollama(&effort("low"), "gpt-oss:20b"), "low");
    assert_eq!(ollama(&effort("low"), "qwen3"), true);
    assert_eq!(ollama(&effort("none"), "qwen3"), false);
    assert_eq!(ollama(&with(json!({})), "qwen3"), json!(null));

    let budget = json!({"max_tokens":9000,"thinking":{"type":"enabled","budget_tokens":5000},
        "messages":[{"role":"user","content":"Hi"}]});
    let talk = read(Dialect::Anthropic, &budget);
    assert_eq!(write(&talk, &flavored(Flavor::Openai, "gpt-5.1")).0["reasoning_effort"], "medium");
    assert!(write(&talk, &flavored(Flavor::Openai, "gpt-4o")).0.get("reasoning_effort").is_none());
    let openai = |word: &str, model| {
        write(&read(Dialect::OpenaiChat, &effort(word)), &flavored(Flavor::Openai, model)).0["reasoning_effort"].clone()
    };
    assert_eq!(openai("none", "gpt-5-mini"), "minimal");
    assert_eq!(openai("none", "gpt-5.1"), "none");
    assert_eq!(openai("none", "o3-mini"), "low");
    assert_eq!(openai("max", "gpt-5.2"), "xhigh");
    assert_eq!(openai("max", "gpt-5.1"), "high");
    let (vllm, _) = write(&talk, &flavored(Flavor::Vllm, "qwen3"));
    assert_eq!(vllm["chat_template_kwargs"], json!({"enable_thinking":true}));
    let off = read(Dialect::OllamaChat, &json!({"think":false,"messages":[{"role":"user","content":"Hi"}]}));
    let (vllm, _) = write(&off, &flavored(Flavor::Vllm, "qwen3"));
    assert_eq!(vllm["chat_template_kwargs"], json!({"enable_thinking":false}));
}

#[test]
fn json_is_asked_for_in_each_way() {
    let schema = json!({"type":"object","properties":{"a":{"type":"integer","minimum":1},
        "b":{"type":"array","items":{"type":"object","properties":{"c":{"$ref":"#/$defs/d"}}}}},
        "$defs":{"d":{"type":"string","enum":["minimum"]}}});
    let body = with(
        json!({"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":schema,"strict":true}}}),
    );
    let responses = json!({"input":"Hi","text":{"format":{"type":"json_schema","name":"n","schema":schema,"strict":true}}});
    let ollama = json!({"messages":[{"role":"user","content":"Hi"}],"format":schema});
    for (client, body) in
        [(Dialect::OpenaiChat, &body), (Dialect::OpenaiResponses, &responses), (Dialect::OllamaChat, &ollama)]
    {
        let to = go(client, body, Dialect::OpenaiChat, "x");
        assert_eq!(to["response_format"]["json_schema"]["schema"], schema, "{client:?}");
        assert!(to["response_format"]["json_schema"]["name"].is_string());
        assert_eq!(go(client, body, Dialect::OllamaChat, "x")["format"], schema);
        let config = go(client, body, Dialect::Gemini, GEMINI)["generationConfig"].clone();
        assert_eq!(config, json!({"responseMimeType":"application/json","responseJsonSchema":schema}));
        let to = go(client, body, Dialect::Anthropic, CLAUDE);
        assert_eq!(
            to["output_config"]["format"],
            json!({"type":"json_schema","schema":{"type":"object","additionalProperties":false,"properties":{
                "a":{"type":"integer"},
                "b":{"type":"array","items":{"type":"object","additionalProperties":false,"properties":{"c":{"$ref":"#/$defs/d"}}}}},
                "$defs":{"d":{"type":"string","enum":["minimum"]}}}})
        );
        let old = go(client, body, Dialect::Anthropic, "claude-3-5-haiku-20241022");
        assert!(
            old.get("output_config").is_none() && old["system"].as_str().unwrap().contains("\"minimum\":1")
        );
    }
    let any = with(json!({"response_format":{"type":"json_object"}}));
    assert_eq!(go(Dialect::OpenaiChat, &any, Dialect::OllamaChat, "x")["format"], "json");
    let to = terms(Dialect::Anthropic, CLAUDE);
    assert_eq!(left_out(Dialect::OpenaiChat, &any, &to), ["response_format"]);
    assert!(encode(&read(Dialect::OpenaiChat, &any), &Terms { strict: true, ..to }).is_err());
    // A map's keys are not known: to close it would change what it means.
    let map = json!({"type":"object","properties":{"m":{"type":"object","additionalProperties":{"type":"string"}}}});
    let body = json!({"messages":[{"role":"user","content":"Hi"}],"format":map});
    assert_eq!(left_out(Dialect::OllamaChat, &body, &to), ["response_format"]);
    let anthropic = json!({"max_tokens":9,"messages":[{"role":"user","content":"Hi"}],
        "output_config":{"effort":"low","format":{"type":"json_schema","schema":{"type":"object","properties":{}}}}});
    let talk = read(Dialect::Anthropic, &anthropic);
    assert!(matches!(talk.format, Format::Schema { .. }));
    assert_eq!(talk.thinking, Thinking { on: None, effort: Some(Effort::Low), budget: None });
    let tools = with(
        json!({"response_format":{"type":"json_object"},"tools":[{"type":"function","function":{"name":"f"}}]}),
    );
    assert_eq!(left_out(Dialect::OpenaiChat, &tools, &terms(Dialect::Gemini, GEMINI)), ["response_format"]);
    assert!(left_out(Dialect::OpenaiChat, &tools, &terms(Dialect::Gemini, "gemini-3-pro")).is_empty());
}

#[test]
fn labels_logprobs_and_biases() {
    let body =
        with(json!({"user":"u","metadata":{"a":"b"},"logprobs":true,"top_logprobs":3,"logit_bias":{"1":5}}));
    let talk = read(Dialect::OpenaiChat, &body);
    let (openai, _) = write(&talk, &terms(Dialect::OpenaiChat, "m"));
    assert_eq!(
        (&openai["user"], &openai["top_logprobs"], &openai["logit_bias"]),
        (&json!("u"), &json!(3), &json!({"1":5}))
    );
    assert!(write(&talk, &terms(Dialect::OpenaiChat, "other")).0.get("logit_bias").is_none(), "other tokens");
    let (anthropic, _) = write(&talk, &terms(Dialect::Anthropic, CLAUDE));
    assert_eq!(anthropic["metadata"], json!({"user_id":"u"}));
    let left = left_out(Dialect::OpenaiChat, &body, &terms(Dialect::Anthropic, CLAUDE));
    assert_eq!(left, ["logprobs", "logit_bias", "metadata"]);
    let (gemini, _) = write(&talk, &terms(Dialect::Gemini, GEMINI));
    assert_eq!(gemini["generationConfig"], json!({"responseLogprobs":true,"logprobs":3}));
    let (ollama, _) = write(&talk, &terms(Dialect::OllamaChat, "x"));
    assert_eq!((&ollama["logprobs"], &ollama["top_logprobs"]), (&json!(true), &json!(3)));
    let user = json!({"max_tokens":9,"metadata":{"user_id":"u"},"messages":[{"role":"user","content":"Hi"}]});
    assert_eq!(go(Dialect::Anthropic, &user, Dialect::OpenaiChat, "x")["user"], "u");
}

#[test]
fn what_one_server_alone_knows_goes_to_its_like_and_is_listed_elsewhere() {
    let body = with(json!({"guided_regex":"a+","return_progress":true,"service_tier":"flex","store":true,
        "chat_template_kwargs":{"enable_thinking":false,"x":1}}));
    let talk = read(Dialect::OpenaiChat, &body);
    let (vllm, encoded) = write(&talk, &flavored(Flavor::Vllm, "x"));
    assert_eq!(vllm["guided_regex"], "a+");
    assert_eq!(vllm["chat_template_kwargs"], json!({"enable_thinking":false,"x":1}));
    assert!(encoded.dropped.is_empty());
    let left = left_out(Dialect::OpenaiChat, &body, &terms(Dialect::Gemini, GEMINI));
    assert_eq!(left, ["chat_template_kwargs", "guided_regex"]);

    let own = json!({"messages":[{"role":"user","content":"Hi"}],"keep_alive":-1,"truncate":true,
        "options":{"num_ctx":8192,"mirostat":1,"temperature":0.1}});
    let talk = read(Dialect::OllamaChat, &own);
    let (ollama, encoded) = write(&talk, &terms(Dialect::OllamaChat, "x"));
    assert_eq!(ollama["options"], json!({"mirostat":1,"temperature":0.1}));
    assert_eq!((&ollama["truncate"], ollama.get("keep_alive")), (&json!(true), None));
    assert_eq!(encoded.dropped.len(), 2);
    let (ollama, _) = write(&talk, &Terms { loading: true, ..terms(Dialect::OllamaChat, "x") });
    assert_eq!((&ollama["options"]["num_ctx"], &ollama["keep_alive"]), (&json!(8192), &json!(-1)));
    let strict = Terms { strict: true, ..terms(Dialect::OpenaiChat, "x") };
    let cannot = encode(&talk, &strict).unwrap_err();
    assert!(matches!(&cannot, Cannot::Parameter(it) if it.field == "options.mirostat"), "{cannot:?}");
    let many: serde_json::Map<String, Value> = (0..100).map(|at| (format!("k{at}"), json!(1))).collect();
    let left = left_out(Dialect::OpenaiChat, &with(Value::Object(many)), &terms(Dialect::Gemini, GEMINI));
    assert_eq!(left.len(), limits::DROPPED_MAX);
}
