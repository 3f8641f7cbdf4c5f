//! Bounds of admission to local model servers, each with its unit.

use std::time::Duration;

use super::MIB;

/// One gibibyte, in KiB.
pub const GIB_KIB: u32 = 1024 * 1024;
/// What a server said of itself is believed for this long; after it, it is not known. Ollama is asked each 5 s.
pub const ADMIT_FACTS: Duration = Duration::from_secs(10);
/// Where asking fails, what a server said last may hold for this long: Ollama keeps an idle model 5 m by default.
pub const ADMIT_STALE: Duration = Duration::from_secs(300);
/// Under Amber a request is small up to this many tokens, prompt and expected answer together: an eighth of a GiB of
/// cache for an 8B model without grouped heads, nothing for one whose cache was allocated when it was loaded.
pub const ADMIT_SMALL_TOKENS: u64 = 2048;
/// A model that is loaded beside others may need this part of what is free, in thousandths: Ollama's own rule
/// (MEMORY.md 4.1).
pub const ADMIT_BESIDE: u64 = 800;
/// One that is loaded alone, likewise: what was free when it was measured is not all free when it is needed.
pub const ADMIT_ALONE: u64 = 950;
/// A server's cache for tokens is reserved up to this part, in thousandths (MEMORY.md 7.3).
pub const ADMIT_CACHE: u64 = 900;
/// What an idle model gives back when it is thrown out, as a part of its size, in thousandths: what it shares with
/// others, and what was counted from the load's log lines and never touched, does not come back.
pub const ADMIT_GIVEN_BACK: u64 = 875;
/// Models of one server of which something is remembered; their names are the clients' to choose.
pub const ADMIT_MODELS: usize = 16;
/// Models of one server that are resident at once, as far as that is looked at.
pub const ADMIT_RESIDENT: usize = 16;
/// What a model is made of is asked for again after this, where the server did not say.
pub const ADMIT_SHAPE_AGAIN: Duration = Duration::from_secs(60);
/// A load that says nothing more is over after this: `OLLAMA_LOAD_TIMEOUT` is 5 m by default.
pub const ADMIT_LOAD: Duration = Duration::from_secs(330);
/// A request takes about this long where nothing was learned of its model yet.
pub const ADMIT_SERVICE: Duration = Duration::from_secs(5);
/// Requests of ours at one server whose beginnings are remembered, for how long a slot is still held.
pub const ADMIT_RUNNING: usize = 32;
/// Requests beyond the slots that are reckoned with; so many wait for longer than anybody does.
pub const ADMIT_AHEAD: u32 = 64;
/// One that was sent to a server beyond the slots that are known is waited for this long at least: that there is another
/// slot would never show otherwise.
pub const ADMIT_EXPLORE_WAIT: Duration = Duration::from_secs(2);
/// A server that does not say how many slots it has gets one request more than it was ever seen to answer at once, once
/// in this long.
pub const ADMIT_EXPLORE: Duration = Duration::from_secs(60);
/// An answer is about this long where nothing was learned of its model yet, in tokens.
pub const ADMIT_OUTPUT: u64 = 512;
/// Answers of one model that are remembered, in a histogram; at twice this many all counts are halved.
pub const ADMIT_OUTPUTS: u16 = 128;
/// What an image takes beyond what was loaded, in KiB, where nothing was learned yet: encoding is done in buffers of
/// its own (ollama#18396 was killed over them).
pub const ADMIT_IMAGE_SPIKE: u32 = 256 * 1024;
/// Ollama's and llama.cpp's own reserve for what is in no formula, in KiB: 457 MiB (MEMORY.md 4.1, `PredictServerVRAM`).
pub const NEED_RESERVE: u32 = 457 * 1024;
/// Beside it for a model that takes images, in KiB: 1 GiB (likewise).
pub const NEED_IMAGE: u32 = 1024 * 1024;
/// Tokens that are computed at a time: `num_batch`, `n_ubatch`.
pub const NEED_BATCH: u64 = 512;
/// Layers of a model that are told from each other; the largest published have 126 (Llama 3.1 405B).
pub const NEED_LAYERS: usize = 256;
/// Words of a model that does not say: as many as Gemma 3 and 4 have, the most in common use.
pub const NEED_VOCABULARY: u32 = 262_144;
/// What was learned of a prediction is believed from a half up to four times it, in thousandths.
pub const NEED_RATIO_MIN: u16 = 500;
/// See [`NEED_RATIO_MIN`].
pub const NEED_RATIO_MAX: u16 = 4000;
/// After a load that ended for lack of memory the next is thought to need this much more, in thousandths.
pub const NEED_RATIO_OOM: u32 = 1250;
/// What was learned beyond a prediction is halved after each such time in which it was not learned again: who is sent away
/// for it can never show that it was chance, another program's memory.
pub const NEED_FADE: Duration = Duration::from_secs(3600);
/// A model that was loaded this long ago at most is in the server's list, or never will be.
pub const ADMIT_UNLISTED: Duration = Duration::from_secs(10);
/// Ollama's context by default on a box with less than 24 GiB of memory for models, in tokens; with less than 48 GiB;
/// with more (MEMORY.md 4.1).
pub const OLLAMA_CONTEXT: [u32; 3] = [4096, 32_768, 262_144];
/// A server's answer about itself, in bytes: `/api/show` has templates and a licence in it, `/metrics` of vLLM some
/// hundred histograms.
pub const FACTS_BYTES: usize = MIB;
/// The head of a GGUF file that is looked at, in bytes: the numbers of the architecture stand before the vocabulary.
pub const GGUF_HEAD_BYTES: usize = 64 * 1024;
