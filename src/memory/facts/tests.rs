//! What servers say of themselves: captured from a real llama.cpp (`captured/`, tests/real/server.py with two slots, one
//! of them busy), after their documents for the others.

use proptest::prelude::*;

use super::date::unix_seconds;
use super::*;

const PROPS: &[u8] = include_bytes!("captured/llamacpp-props.json");
const SLOTS: &[u8] = include_bytes!("captured/llamacpp-slots.json");
const MODELS: &[u8] = include_bytes!("captured/llamacpp-models.json");
const METRICS: &[u8] = include_bytes!("captured/llamacpp-metrics.txt");
const GGUF: &[u8] = include_bytes!("captured/smollm2.gguf.head");

/// Ollama's docs/api.md, and a second one with what newer versions add.
const PS: &[u8] = br#"{"models":[{"name":"mistral:latest","model":"mistral:latest","size":5137025024,
    "digest":"2ae6f6dd7a3dd734790bbbf58b8909a606e0e7e97e94b7604e0aa7ae4490e6d8",
    "details":{"parent_model":"","format":"gguf","family":"llama","families":["llama"],"parameter_size":"7.2B",
    "quantization_level":"Q4_0"},"expires_at":"2024-06-04T14:38:31.83753-07:00","size_vram":5137025024},
    {"name":"gemma3:4b","size":6591830464,"size_vram":0,"expires_at":"2318-11-14T11:00:00Z","context_length":4096}]}"#;

#[test]
fn ollama_says_what_is_loaded() {
    let list = ollama_ps(PS).unwrap();
    let want = Resident {
        name: "mistral:latest".to_owned(),
        size: 5_016_626,
        size_gpu: 5_016_626,
        context: None,
        expires: Some(1_717_537_111),
    };
    assert_eq!(list[0], want);
    assert_eq!((list[1].name.as_str(), list[1].size_gpu, list[1].context), ("gemma3:4b", 0, Some(4096)));
    assert_eq!(list.len(), 2);
    for none in [&b"{\"models\":[]}"[..], b"{\"models\":null}"] {
        assert_eq!(ollama_ps(none), Some(Vec::new()));
    }
    for bad in [&b""[..], b"[]", b"{}", b"404 page not found", b"{\"models\":[{\"name\":\"a\"}"] {
        assert_eq!(ollama_ps(bad), None, "{}", String::from_utf8_lossy(bad));
    }
}

#[test]
fn ollama_says_what_a_model_is_made_of() {
    let show = br#"{"modelfile":"FROM x","parameters":"stop    \"<|eot_id|>\"\nnum_ctx                        16384",
        "details":{"family":"llama","quantization_level":"Q4_0"},"model_info":{"general.architecture":"llama",
        "general.parameter_count":8030261248,"llama.attention.head_count":32,"llama.attention.head_count_kv":8,
        "llama.attention.layer_norm_rms_epsilon":0.00001,"llama.block_count":32,"llama.context_length":8192,
        "llama.embedding_length":4096,"llama.rope.dimension_count":128,"llama.vocab_size":128256,
        "tokenizer.ggml.tokens":[]},"capabilities":["completion","tools"]}"#;
    let shape = ollama_show(show).unwrap();
    assert_eq!((shape.kept, shape.context, shape.num_ctx), (32 * 8 * 256, 8192, Some(16_384)));
    assert_eq!((shape.vocabulary, shape.images), (128_256, false));
    let gemma = br#"{"model_info":{"gemma3.attention.head_count":8,"gemma3.attention.head_count_kv":[4,4,4,4,4,1],
        "gemma3.block_count":6,"gemma3.embedding_length":2560,"gemma3.attention.key_length":256,
        "gemma3.attention.value_length":256,"gemma3.attention.sliding_window":1024,"gemma3.vision.block_count":27,
        "general.architecture":"gemma3"},"capabilities":["completion","vision"]}"#;
    let shape = ollama_show(gemma).unwrap();
    assert_eq!((shape.kept, shape.kept_in_window, shape.images), (512, 5 * 4 * 512, true));
    assert!(
        ollama_show(br#"{"model_info":{"a.block_count":1,"a.embedding_length":1},"projector_info":{"x":1}}"#)
            .is_some_and(|shape| shape.images)
    );
    for bad in [&b""[..], b"{}", br#"{"model_info":{}}"#, br#"{"error":"model 'x' not found"}"#] {
        assert_eq!(ollama_show(bad), None);
    }
}

#[test]
fn ollama_says_how_large_a_model_is() {
    let tags =
        br#"{"models":[{"name":"codellama:13b","model":"codellama:13b","size":7365960935,"details":{}},
        {"name":"llama3:latest","size":3825819519}]}"#;
    assert_eq!(ollama_size(tags, "codellama:13b"), Some(7_193_322));
    for name in ["llama3", "Llama3:latest", "registry.ollama.ai/library/llama3:latest"] {
        assert_eq!(ollama_size(tags, name), Some(3_736_152), "{name}");
    }
    assert_eq!(ollama_size(tags, "codellama"), None);
    assert_eq!(ollama_size(b"{", "codellama"), None);
}

#[test]
fn llama_cpp_says_slots_models_and_queue() {
    let mut facts = Facts::default();
    assert!(llamacpp_props(PROPS, &mut facts));
    assert_eq!((facts.slots, facts.cache_tokens), (Some(2), Some(8192)));
    let mut facts = Facts::default();
    assert!(llamacpp_slots(SLOTS, &mut facts));
    assert_eq!((facts.slots, facts.busy, facts.cache_tokens), (Some(2), Some(1), Some(8192)));
    assert!(openai_models(MODELS, &mut facts));
    let [model] = facts.resident.as_deref().unwrap() else { panic!() };
    assert_eq!((model.name.as_str(), model.size, model.context), ("smollm2", 94_314, Some(4096)));
    assert!(!facts.router);
    facts.busy = None;
    assert!(metrics(METRICS, &mut facts));
    assert_eq!((facts.busy, facts.waiting, facts.slots), (Some(1), Some(0), Some(2)));
    // Four slots by itself share one context.
    let four = br#"[{"n_ctx":8192,"is_processing":true},{"n_ctx":8192,"is_processing":true},
        {"n_ctx":8192,"is_processing":false},{"n_ctx":8192,"is_processing":false}]"#;
    assert!(llamacpp_slots(four, &mut facts));
    assert_eq!((facts.busy, facts.cache_tokens), (Some(2), Some(8192)));
    // A router lists what it could load.
    let list = br#"{"data":[{"id":"a","status":{"value":"loaded","args":["llama-server"]}},
        {"id":"b","status":{"value":"unloaded"}},{"id":"c","status":{"value":"loading"}}],"object":"list"}"#;
    assert!(openai_models(list, &mut facts));
    let names: Vec<_> = facts.resident.iter().flatten().map(|model| model.name.as_str()).collect();
    assert_eq!((names, facts.router), (vec!["a"], true));
    let before = facts.clone();
    for bad in [&b""[..], b"{}", b"[]", b"{\"error\":{\"code\":501}}", b"{\"data\":3}"] {
        assert!(!llamacpp_props(bad, &mut facts) && !llamacpp_slots(bad, &mut facts));
        assert!(!openai_models(bad, &mut facts) && !metrics(bad, &mut facts));
    }
    assert_eq!(facts, before);
}

#[test]
fn vllm_says_what_runs_and_how_full_its_cache_is() {
    // Lines of vLLM 0.10 and later, in what they differ.
    let text = br#"# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="Qwen/Qwen2.5-7B-Instruct"} 3.0
vllm:num_requests_waiting{engine="0",model_name="a } brace"} 2.0
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 9.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.4375
vllm:num_preemptions_total{engine="0",model_name="m"} 1.2e+01 1717537111
vllm:num_preemptions_created{engine="0",model_name="m"} 1.7e+09
vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf",model_name="m"} 4.0
vllm:cache_config_info{block_size="16",cache_dtype="auto",engine="0",mamba_block_size="32",num_gpu_blocks="573",num_gpu_blocks_override="None"} 1.0
"#;
    let mut facts = Facts::default();
    assert!(metrics(text, &mut facts));
    let want = Facts {
        busy: Some(3),
        waiting: Some(2),
        cache_tokens: Some(573 * 16),
        cache_used: Some(437),
        preemptions: Some(12),
        ..Facts::default()
    };
    assert_eq!(facts, want);
    // Two engines, and the cache's size by its own name.
    let text = br#"vllm:num_requests_running{engine="0"} 3
vllm:num_requests_running{engine="1"} 4
vllm:kv_cache_usage_perc{engine="0"} 0.1
vllm:kv_cache_usage_perc{engine="1"} NaN
vllm:gpu_cache_usage_perc{engine="1"} 7
vllm:cache_config_info{mamba_block_size="9",block_size="16",kv_cache_size_tokens="1000",num_gpu_blocks="100"} 1
vllm:cache_config_info{engine="1",block_size="16",kv_cache_size_tokens="1000",num_gpu_blocks="100"} 1
vllm:num_requests_waiting{engine="0"} -1
vllm:num_preemptions_total
other:num_requests_running 7
"#;
    let mut facts = Facts::default();
    assert!(metrics(text, &mut facts));
    let want = Facts { busy: Some(7), cache_tokens: Some(2000), cache_used: Some(1000), ..Facts::default() };
    assert_eq!(facts, want);
    let list = br#"{"object":"list","data":[{"id":"Qwen/Qwen2.5-7B-Instruct","object":"model","created":1,
        "owned_by":"vllm","root":"Qwen/Qwen2.5-7B-Instruct","parent":null,"max_model_len":32768,"permission":[{}]}]}"#;
    assert!(openai_models(list, &mut facts));
    assert_eq!(facts.resident.unwrap()[0].context, Some(32_768));
}

#[test]
fn a_gguf_files_head_says_the_same() {
    // SmolLM2-135M: 30 layers, 576 wide, 9 heads, 3 of keys.
    let shape = gguf(GGUF).unwrap();
    assert_eq!((shape.kept, shape.context, shape.embedding), (30 * 3 * 128, 8192, 576));
    assert_eq!(shape.vocabulary, 49_152);
    assert_eq!(gguf(b"GGUF"), None);
    assert_eq!(gguf(b"GGML\x03\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"), None);
    // Arrays, of each kind, and a sign.
    let mut head = b"GGUF\x03\0\0\0".to_vec();
    head.extend([0_u64, 6].iter().flat_map(|number| number.to_le_bytes()));
    let key = |head: &mut Vec<u8>, key: &str, kind: u32| {
        head.extend((key.len() as u64).to_le_bytes());
        head.extend(key.as_bytes());
        head.extend(kind.to_le_bytes());
    };
    let array = |head: &mut Vec<u8>, kind: u32, len: u64| {
        head.extend(kind.to_le_bytes());
        head.extend(len.to_le_bytes());
    };
    key(&mut head, "g.block_count", 5);
    head.extend(2_i32.to_le_bytes());
    key(&mut head, "g.embedding_length", 10);
    head.extend(64_u64.to_le_bytes());
    key(&mut head, "g.attention.head_count", 9);
    array(&mut head, 4, 2);
    head.extend([4_u32, 8].iter().flat_map(|heads| heads.to_le_bytes()));
    key(&mut head, "g.attention.head_count_kv", 9);
    array(&mut head, 5, 2);
    head.extend([2_i32, -1].iter().flat_map(|heads| heads.to_le_bytes()));
    key(&mut head, "general.tags", 9);
    array(&mut head, 8, 1);
    head.extend([1, 0, 0, 0, 0, 0, 0, 0, b'x']);
    key(&mut head, "g.attention.scale", 6);
    head.extend(1.5_f32.to_le_bytes());
    let shape = gguf(&head).unwrap();
    // One layer of two heads, 8 wide; the other has none.
    assert_eq!((shape.kept, shape.embedding), (2 * 16, 64));
}

#[test]
fn times_are_read_as_go_writes_them() {
    for (text, want) in [
        ("1970-01-01T00:00:00Z", Some(0)),
        ("2000-02-29T23:59:59.999999999Z", Some(951_868_799)),
        ("2024-06-04T14:38:31.83753-07:00", Some(1_717_537_111)),
        ("2024-03-01T00:00:00+05:30", Some(1_709_231_400)),
        ("0001-01-01T00:00:00Z", None),
        ("2024-06-04", None),
        ("2024-06-04T14:38:31", None),
        ("2024-0x-04T14:38:31Z", None),
        ("", None),
    ] {
        assert_eq!(unix_seconds(text.as_bytes()), want, "{text}");
    }
}

proptest! {
    /// Whatever bytes come, nothing panics, and what is kept is bounded.
    #[test]
    fn damaged_answers_are_answers(
        which in 0_usize..6,
        cut in any::<prop::sample::Index>(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
    ) {
        let mut body = [PS, PROPS, SLOTS, MODELS, METRICS, GGUF][which].to_vec();
        for (at, byte) in flips {
            let at = at.index(body.len());
            body[at] = byte;
        }
        body.truncate(cut.index(body.len() + 1));
        let mut facts = Facts { resident: ollama_ps(&body), ..Facts::default() };
        let _shapes = (ollama_show(&body), ollama_size(&body, "mistral"), gguf(&body));
        let _read = [
            llamacpp_props(&body, &mut facts),
            llamacpp_slots(&body, &mut facts),
            openai_models(&body, &mut facts),
            metrics(&body, &mut facts),
        ];
        let list = facts.resident.unwrap_or_default();
        prop_assert!(list.len() <= ADMIT_RESIDENT);
        prop_assert!(list.iter().all(|one| one.name.len() <= 3 * MODEL_NAME_BYTES));
    }
}

#[test]
fn what_is_too_deep_or_too_long_is_not_read() {
    let deep = [b"{\"models\":".to_vec(), b"[".repeat(200_000)].concat();
    assert_eq!(ollama_ps(&deep), None);
    assert_eq!(ollama_show(&deep), None);
    let many = format!("{{\"models\":[{}]}}", vec!["{\"name\":\"a\",\"size\":1}"; 1000].join(","));
    assert_eq!(ollama_ps(many.as_bytes()).unwrap().len(), ADMIT_RESIDENT);
    let long = format!("{{\"models\":[{{\"name\":\"{}\"}}]}}", "n".repeat(10_000));
    assert_eq!(ollama_ps(long.as_bytes()).unwrap()[0].name.len(), MODEL_NAME_BYTES);
}

#[test]
fn a_model_of_ollamas_cloud_is_known_by_its_tag() {
    for (name, cloud) in [
        ("gpt-oss:120b-cloud", true),
        ("glm-4.6:cloud", true),
        ("me/glm:Cloud", true),
        ("gpt-oss:20b", false),
        ("my-cloud", false),
        ("cloud", false),
        ("host:5000/my-cloud", false),
        ("m:cloudy", false),
    ] {
        assert_eq!(ollama_cloud(name), cloud, "{name}");
    }
}
