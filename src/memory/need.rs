//! What a model needs once it is loaded: weights, cache for tokens, graph, by the model's own numbers.
//!
//! Layer by layer, as llama.cpp allocates it (`llama-kv-cache.cpp`, `llama-hparams.cpp`) and Ollama predicts it
//! (`fs/ggml/ggml.go`, `GraphSize`); MEMORY.md 4.5 has the formulas. Memory in KiB, never more than 4 TiB.
//!
//! Measured with llama.cpp on a CPU, SmolLM2-135M with 2k to 32k tokens in 1 to 4 slots: the cache as predicted to 0.3 %,
//! weights, cache and graph together 6 to 17 % less at their height, 457 MiB of reserve left out.

use crate::limits::{NEED_BATCH, NEED_IMAGE, NEED_LAYERS, NEED_RESERVE, NEED_VOCABULARY};

/// What a model is made of, as far as its memory goes. Unknown numbers are 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// Weights, in KiB: the files' size.
    pub weights: u32,
    /// The image projector's, in KiB, where it is no part of those.
    pub projector: u32,
    /// Whether it takes images.
    pub images: bool,
    /// Context that it was trained for, in tokens.
    pub context: u32,
    /// `num_ctx` of its own parameters (Ollama's Modelfile), in tokens.
    pub num_ctx: Option<u32>,
    /// Width of a token's state.
    pub embedding: u32,
    /// Words; where that is not known, as many as any.
    pub vocabulary: u32,
    /// Numbers that the cache keeps of each token, in all layers that look at the whole context.
    pub kept: u32,
    /// The same in the layers that look back only [`Shape::window`] tokens.
    pub kept_in_window: u32,
    /// How far those look back, in tokens.
    pub window: u32,
    /// State of the layers that have no cache, for each slot, in numbers of four bytes.
    pub state: u32,
}

/// In what the cache keeps a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cache {
    /// Two bytes: the default.
    #[default]
    F16,
    /// `q8_0`: 34 bytes for 32 numbers.
    Q8,
    /// `q4_0`: 18 bytes for 32 numbers.
    Q4,
}

impl Cache {
    /// By its name in `OLLAMA_KV_CACHE_TYPE` and `--cache-type-k`; anything else as if it were the default, which is
    /// the largest in use.
    #[must_use]
    pub fn named(name: &str) -> Self {
        match name {
            "q8_0" => Cache::Q8,
            "q4_0" => Cache::Q4,
            _ => Cache::F16,
        }
    }

    /// Bytes for 32 numbers.
    const fn bytes(self) -> u64 {
        match self {
            Cache::F16 => 64,
            Cache::Q8 => 34,
            Cache::Q4 => 18,
        }
    }
}

/// How it is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Tokens of context a slot has.
    pub context: u32,
    /// Slots.
    pub parallel: u32,
    /// In what the cache is kept.
    pub cache: Cache,
}

/// What `shape` needs, before anything was learned of it.
#[must_use]
pub fn need(shape: &Shape, load: &Load) -> u32 {
    let fixed = if shape.images { NEED_RESERVE + NEED_IMAGE } else { NEED_RESERVE };
    [shape.weights, shape.projector, cache(shape, load), graph(shape, load), fixed]
        .into_iter()
        .fold(0, u32::saturating_add)
}

/// The cache for tokens, and what layers without one remember.
#[must_use]
pub fn cache(shape: &Shape, load: &Load) -> u32 {
    let slots = u64::from(load.parallel.max(1));
    let tokens = u64::from(load.context) * slots;
    // `llama_kv_cache_iswa`: a window a slot, and what is computed at a time.
    let in_window = tokens.min(u64::from(shape.window) * slots + NEED_BATCH);
    let numbers = tokens
        .saturating_mul(shape.kept.into())
        .saturating_add(in_window.saturating_mul(shape.kept_in_window.into()));
    let state = u64::from(shape.state).saturating_mul(4 * slots);
    kib((numbers / 32).saturating_mul(load.cache.bytes()).saturating_add(state))
}

/// The graph's buffers, with flash attention (llama.cpp's and Ollama's default): without it, what attention takes grows
/// with the context times the heads, and [`super::admit::Server`] learns of it by its first load.
#[must_use]
pub fn graph(shape: &Shape, load: &Load) -> u32 {
    let tokens = u64::from(load.context) * u64::from(load.parallel.max(1));
    let (width, words) = (u64::from(shape.embedding), u64::from(shape.vocabulary));
    let most = (1 + 4 * width).saturating_add(tokens).max(width + words);
    kib(most.saturating_mul(4 * NEED_BATCH))
}

/// What a share of `need` is, in thousandths.
#[must_use]
pub fn share(whole: u32, thousandths: u64) -> u32 {
    u32::try_from(u64::from(whole) * thousandths / 1000).unwrap_or(u32::MAX)
}

/// Bytes in KiB.
pub(super) fn kib(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX)
}

/// The numbers of one architecture, as a GGUF file has them, until all are read.
#[derive(Debug)]
pub(super) struct Layers {
    /// `general.architecture`.
    pub arch: heapless::String<32>,
    /// `block_count`, `attention.head_count`, …: by [`KEYS`].
    values: [u32; KEYS.len()],
    /// `attention.head_count_kv`, where it differs from layer to layer.
    kv_heads: heapless::Vec<u16, NEED_LAYERS>,
    /// `attention.sliding_window_pattern`, where it names each layer.
    windowed: heapless::Vec<bool, NEED_LAYERS>,
}

/// Keys behind the architecture's name whose value is one number.
const KEYS: [&str; 20] = [
    "block_count",
    "embedding_length",
    "context_length",
    "vocab_size",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
    "attention.key_length_swa",
    "attention.value_length_swa",
    "attention.sliding_window",
    "attention.sliding_window_pattern",
    "attention.kv_lora_rank",
    "attention.key_length_mla",
    "rope.dimension_count",
    "full_attention_interval",
    "ssm.conv_kernel",
    "ssm.inner_size",
    "ssm.state_size",
    "ssm.group_count",
];

/// Every so many layers one looks at the whole context, where the file does not say (`llama-model.cpp`,
/// `set_swa_pattern`).
const WINDOWED: [(&str, u32); 8] = [
    ("gemma2", 2),
    ("gemma3", 6),
    ("gemma3n", 5),
    ("gpt-oss", 2),
    ("gptoss", 2),
    ("cohere2", 4),
    ("olmo2", 4),
    ("exaone4", 4),
];

impl Layers {
    pub const fn new() -> Self {
        Layers {
            arch: heapless::String::new(),
            values: [0; KEYS.len()],
            kv_heads: heapless::Vec::new(),
            windowed: heapless::Vec::new(),
        }
    }

    /// The key behind the architecture's name, which may not be known yet: the first part of the key, but for `general`
    /// and `tokenizer`. A vision part's own (`clip.vision.…`, `gemma3.vision.…`) has another name behind.
    pub fn key(key: &str) -> Option<&str> {
        let (first, rest) = key.split_once('.')?;
        (!matches!(first, "general" | "tokenizer")).then_some(rest)
    }

    /// A number.
    pub fn number(&mut self, key: &str, value: u64) {
        if let Some(slot) = KEYS.iter().position(|name| *name == key).and_then(|at| self.values.get_mut(at)) {
            *slot = u32::try_from(value).unwrap_or(u32::MAX);
        }
    }

    /// One of an array of numbers, a layer each.
    pub fn element(&mut self, key: &str, value: u64) {
        // A file with more layers than any is taken for one with the first of them only.
        let _more = match key {
            "attention.head_count_kv" => {
                self.kv_heads.push(u16::try_from(value).unwrap_or(u16::MAX)).is_err()
            }
            "attention.sliding_window_pattern" => self.windowed.push(value != 0).is_err(),
            // Of heads that differ from layer to layer the most say how wide one is at least.
            "attention.head_count" => {
                let most = u64::from(self.get(key)).max(value);
                self.number(key, most);
                false
            }
            _ => false,
        };
    }

    fn get(&self, key: &str) -> u32 {
        let at = KEYS.iter().position(|name| *name == key);
        at.and_then(|at| self.values.get(at)).copied().unwrap_or(0)
    }

    /// Whether the layer looks back a window only.
    fn windowed(&self, layer: usize) -> bool {
        if self.get("attention.sliding_window") == 0 {
            return false;
        }
        if let Some(windowed) = self.windowed.get(layer) {
            return *windowed;
        }
        let known = WINDOWED.iter().find(|(arch, _)| self.arch == *arch).map_or(0, |(_, every)| *every);
        let every = match self.get("attention.sliding_window_pattern") {
            0 => known,
            every => every,
        };
        // What is not known is as if it looked at all.
        every > 0 && layer as u64 % u64::from(every) != u64::from(every) - 1
    }

    /// The layer's heads of keys and values; none, where it has a state instead.
    fn heads(&self, layer: usize) -> u32 {
        let interval = u64::from(self.get("full_attention_interval"));
        if interval > 0 && layer as u64 % interval != interval - 1 {
            return 0;
        }
        let all = match self.get("attention.head_count_kv") {
            0 => self.get("attention.head_count"),
            heads => heads,
        };
        self.kv_heads.get(layer).map_or(all, |heads| (*heads).into())
    }

    /// What it comes to, without the weights' size. `None`: these are no language model's numbers.
    pub fn shape(&self) -> Option<Shape> {
        let layers = usize::try_from(self.get("block_count")).ok()?.min(NEED_LAYERS);
        let (width, heads) = (self.get("embedding_length"), self.get("attention.head_count"));
        if layers == 0 || width == 0 {
            return None;
        }
        let or = |key: &str, other: u32| match self.get(key) {
            0 => other,
            value => value,
        };
        let head = width / heads.max(1);
        let (key, value) = (or("attention.key_length", head), or("attention.value_length", head));
        let in_window =
            or("attention.key_length_swa", key).saturating_add(or("attention.value_length_swa", value));
        let latent = self.get("attention.kv_lora_rank");
        // Without that key the file is of the time before llama.cpp kept the latent state only.
        let latent = if self.get("attention.key_length_mla") > 0 { latent } else { 0 };
        let channels = self.get("ssm.inner_size").saturating_add(
            self.get("ssm.group_count").saturating_mul(2).saturating_mul(self.get("ssm.state_size")),
        );
        let state = self
            .get("ssm.conv_kernel")
            .saturating_sub(1)
            .saturating_mul(channels)
            .saturating_add(self.get("ssm.state_size").saturating_mul(self.get("ssm.inner_size")));
        let mut shape = Shape {
            context: self.get("context_length"),
            embedding: width,
            vocabulary: or("vocab_size", NEED_VOCABULARY),
            window: self.get("attention.sliding_window"),
            ..Shape::default()
        };
        for layer in 0..layers {
            let heads = self.heads(layer);
            if latent > 0 {
                let rope = self.get("rope.dimension_count");
                shape.kept = shape.kept.saturating_add(latent.saturating_add(rope));
            } else if heads == 0 {
                shape.state = shape.state.saturating_add(state);
            } else if self.windowed(layer) {
                shape.kept_in_window = shape.kept_in_window.saturating_add(heads.saturating_mul(in_window));
            } else {
                shape.kept = shape.kept.saturating_add(heads.saturating_mul(key.saturating_add(value)));
            }
        }
        Some(shape)
    }
}

#[cfg(test)]
mod tests;
