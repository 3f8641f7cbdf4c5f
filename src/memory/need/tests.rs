//! Needs of real models, against what their servers are known to take.

use super::*;

const MIB: u32 = 1024;
const GIB: u32 = 1024 * MIB;

fn layers(arch: &str, numbers: &[(&str, u64)]) -> Layers {
    let mut layers = Layers::new();
    layers.arch.push_str(arch).unwrap();
    for (key, value) in numbers {
        layers.number(key, *value);
    }
    layers
}

fn llama_8b() -> Layers {
    layers(
        "llama",
        &[
            ("block_count", 32),
            ("embedding_length", 4096),
            ("context_length", 131_072),
            ("vocab_size", 128_256),
            ("attention.head_count", 32),
            ("attention.head_count_kv", 8),
        ],
    )
}

fn load(context: u32, parallel: u32) -> Load {
    Load { context, parallel, cache: Cache::F16 }
}

#[test]
fn a_uniform_cache_is_two_times_layers_heads_and_width() {
    let shape = llama_8b().shape().unwrap();
    // MEMORY.md 4.5: 128 KiB a token, so that 8k tokens take 1 GiB.
    assert_eq!(cache(&shape, &load(1, 1)), 128);
    assert_eq!(cache(&shape, &load(8192, 1)), GIB);
    assert_eq!(cache(&shape, &load(2048, 4)), GIB);
    let q8 = Load { cache: Cache::named("q8_0"), ..load(8192, 1) };
    assert_eq!(cache(&shape, &q8), GIB / 64 * 34);
    let q4 = Load { cache: Cache::named("q4_0"), ..load(8192, 1) };
    assert_eq!(cache(&shape, &q4), GIB / 64 * 18);
    // 512 tokens' logits and states.
    assert_eq!(graph(&shape, &load(4096, 1)), 512 * 4 * (4096 + 128_256) / 1024);
}

#[test]
fn the_need_is_the_sum_of_its_parts() {
    let mut shape = Shape { weights: 4_800_000, ..llama_8b().shape().unwrap() };
    let plain = need(&shape, &load(8192, 1));
    assert_eq!(plain, 4_800_000 + GIB + graph(&shape, &load(8192, 1)) + NEED_RESERVE);
    (shape.images, shape.projector) = (true, 100);
    assert_eq!(need(&shape, &load(8192, 1)), plain + NEED_IMAGE + 100);
    shape.weights = u32::MAX;
    assert_eq!(need(&shape, &load(u32::MAX, u32::MAX)), u32::MAX, "saturates");
}

#[test]
fn windowed_layers_keep_a_window() {
    // Gemma 3 12B: 48 layers, each sixth looks at all of it; 8 heads of 256.
    let numbers = [
        ("block_count", 48),
        ("embedding_length", 3840),
        ("attention.head_count", 16),
        ("attention.head_count_kv", 8),
        ("attention.key_length", 256),
        ("attention.value_length", 256),
        ("attention.sliding_window", 1024),
    ];
    let gemma = layers("gemma3", &numbers).shape().unwrap();
    assert_eq!((gemma.kept, gemma.kept_in_window), (8 * 8 * 512, 40 * 8 * 512));
    let full = 32_768 * 8 * 8 * 512 * 2 / 1024;
    let window = (1024 + 512) * 40 * 8 * 512 * 2 / 1024;
    assert_eq!(cache(&gemma, &load(32_768, 1)), full + window);
    // Not more than the context.
    assert_eq!(cache(&gemma, &load(512, 1)), 512 * 48 * 8 * 512 * 2 / 1024);
    // An architecture whose pattern is not known keeps all.
    let other = layers("other", &numbers).shape().unwrap();
    assert_eq!((other.kept, other.kept_in_window), (48 * 8 * 512, 0));
    // A pattern in the file goes before.
    let mut named = layers("gemma3", &numbers);
    (0..48).for_each(|layer| named.element("attention.sliding_window_pattern", u64::from(layer > 0)));
    assert_eq!(named.shape().unwrap().kept, 8 * 512);
}

#[test]
fn heads_may_differ_from_layer_to_layer_and_be_none() {
    let mut mixed = layers(
        "nemotron_h",
        &[
            ("block_count", 4),
            ("embedding_length", 1024),
            ("attention.head_count", 8),
            ("attention.key_length", 128),
            ("attention.value_length", 128),
            ("ssm.conv_kernel", 4),
            ("ssm.inner_size", 2048),
            ("ssm.state_size", 128),
            ("ssm.group_count", 8),
        ],
    );
    [0, 2, 0, 1].into_iter().for_each(|heads| mixed.element("attention.head_count_kv", heads));
    let shape = mixed.shape().unwrap();
    assert_eq!(shape.kept, 3 * 256);
    assert_eq!(shape.state, 2 * (3 * (2048 + 2 * 8 * 128) + 128 * 2048));
    assert_eq!(cache(&shape, &load(0, 2)), 2 * shape.state * 4 / 1024);
    // Each fourth layer has a cache.
    let mut every = llama_8b();
    every.number("full_attention_interval", 4);
    assert_eq!(every.shape().unwrap().kept, 8 * 8 * 256);
}

#[test]
fn a_latent_cache_keeps_the_latent_state() {
    // DeepSeek-V2-Lite, converted since llama.cpp keeps the latent state only.
    let numbers = [
        ("block_count", 27),
        ("embedding_length", 2048),
        ("attention.head_count", 16),
        ("attention.head_count_kv", 1),
        ("attention.key_length", 576),
        ("attention.value_length", 512),
        ("attention.kv_lora_rank", 512),
        ("rope.dimension_count", 64),
    ];
    let mut lite = layers("deepseek2", &numbers);
    assert_eq!(lite.shape().unwrap().kept, 27 * (576 + 512));
    lite.number("attention.key_length_mla", 192);
    assert_eq!(lite.shape().unwrap().kept, 27 * 576);
}

#[test]
fn no_model_no_shape() {
    assert_eq!(Layers::new().shape(), None);
    assert_eq!(layers("clip", &[("vision.block_count", 24)]).shape(), None);
    // No heads, no division by them.
    let numbers = [("block_count", u64::MAX), ("embedding_length", u64::MAX)];
    assert!(layers("mamba", &numbers).shape().is_some());
}
