//! How many loads that would run out of memory are seen before: real models' numbers, synthetic boxes.
//!
//! `cargo test --lib loads_that_would_run_out -- --nocapture` prints the figures.

use super::*;
use crate::memory::need::{self, Layers, Load};

/// Name, size in bytes, architecture, layers, width, heads, heads of keys, width of a head (0: by the others), window,
/// context, words: as `ollama show` and `ollama list` have them.
type Row = (&'static str, u64, &'static str, [u64; 8]);
const MODELS: [Row; 9] = [
    ("llama3.2:3b", 2_019_393_189, "llama", [28, 3072, 24, 8, 128, 0, 131_072, 128_256]),
    ("llama3.1:8b", 4_920_753_328, "llama", [32, 4096, 32, 8, 0, 0, 131_072, 128_256]),
    ("qwen2.5:14b", 8_988_124_069, "qwen2", [48, 5120, 40, 8, 0, 0, 32_768, 152_064]),
    ("qwen2.5:32b", 19_851_349_856, "qwen2", [64, 5120, 40, 8, 0, 0, 32_768, 152_064]),
    ("llama3.3:70b", 42_520_413_916, "llama", [80, 8192, 64, 8, 0, 0, 131_072, 128_256]),
    ("gemma3:4b", 3_338_801_804, "gemma3", [34, 2560, 8, 4, 256, 1024, 131_072, 262_144]),
    ("gemma3:12b", 8_149_190_253, "gemma3", [48, 3840, 16, 8, 256, 1024, 131_072, 262_144]),
    ("gemma3:27b", 17_396_936_941, "gemma3", [62, 5376, 32, 16, 128, 1024, 131_072, 262_144]),
    ("gpt-oss:20b", 13_793_441_244, "gptoss", [24, 2880, 64, 8, 64, 128, 131_072, 201_088]),
];

fn shape(row: &Row) -> Shape {
    let (name, size, arch, [layers, width, heads, kv, head, window, context, words]) = *row;
    let mut all = Layers::new();
    all.arch.push_str(arch).unwrap();
    for (key, value) in [
        ("block_count", layers),
        ("embedding_length", width),
        ("attention.head_count", heads),
        ("attention.head_count_kv", kv),
        ("attention.key_length", head),
        ("attention.value_length", head),
        ("attention.sliding_window", window),
        ("context_length", context),
        ("vocab_size", words),
    ] {
        all.number(key, value);
    }
    let images = name.starts_with("gemma3");
    Shape { weights: need::kib(size), images, ..all.shape().unwrap() }
}

/// xorshift64*: the same boxes at each run.
struct Dice(u64);

impl Dice {
    /// From `low` up to `high`, in thousandths.
    fn permille(&mut self, low: u64, high: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        low + (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % (high - low + 1)
    }
}

#[derive(Default, Debug)]
struct Tally {
    /// Of loads that would have run out of memory: refused, let in.
    caught: u32,
    missed: u32,
    /// Of loads that would have fitted.
    fitted: u32,
    refused: u32,
}

/// Loads on 200 boxes, 12 a model on each. A model takes what is predicted times a factor of its own on that box (`bias`,
/// unknown until it was loaded) and of each load (`noise`); `free` is what is free, as a part of what is predicted. All
/// in thousandths.
fn tally(bias: (u64, u64), noise: u64, free: (u64, u64), seed: u64) -> Tally {
    let (mut tally, mut dice, start) = (Tally::default(), Dice(seed), crate::time::now());
    for _ in 0..200 {
        let mut server = Server::new(Kind::Ollama);
        let mut now = start;
        for row in &MODELS {
            let (shape, name) = (shape(row), row.0);
            let bias = dice.permille(bias.0, bias.1);
            for _ in 0..12 {
                now = later(now, 600);
                server.heard(&has(&[]), now);
                server.shape(name, Some(&shape), now);
                let context = 2048 << (dice.permille(0, 4));
                let load = Load { context, parallel: 1, cache: Cache::F16 };
                let predicted = need::need(&shape, &load);
                let of = |factor: u64| share(predicted, factor);
                let takes = share(of(bias), dice.permille(1000 - noise, 1000 + noise));
                let left = of(dice.permille(free.0, free.1));
                // Nothing is kept free beside it: what is caught is caught by the prediction.
                let room = Room { free: Some(left), total: Some(left.saturating_mul(2)), floor: 0, ..room() };
                let options = Runner { num_ctx: Some(context), ..Runner::default() };
                let asked = Asked { options, ..asked(name) };
                let runs_out = takes > left;
                match server.ask(&asked, &room, now) {
                    Admission::Loads(need) => {
                        server.load_begins(&asked, need, Some(left), now);
                        let went = if runs_out { Went::OutOfMemory } else { Went::Loaded(Some(takes)) };
                        server.load_ended(went, now);
                        *(if runs_out { &mut tally.missed } else { &mut tally.fitted }) += 1;
                    }
                    Admission::Not(NoRoom::TooLarge { .. }) => {
                        *(if runs_out { &mut tally.caught } else { &mut tally.refused }) += 1;
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
    }
    tally
}

use crate::memory::need::share;

#[test]
fn loads_that_would_run_out_are_caught_before() {
    // What is free: anything from a third to twice what is predicted; then close to it, where it is hardest.
    for (what, bias, noise, free, least) in [
        ("factor 0.8 to 1.2, noise 5 %, anything free", (800, 1200), 50, (300, 2000), 980),
        ("factor 0.7 to 1.4, noise 10 %, anything free", (700, 1400), 100, (300, 2000), 950),
        ("factor 0.8 to 1.2, noise 5 %, as much free as predicted", (800, 1200), 50, (800, 1300), 900),
    ] {
        let Tally { caught, missed, fitted, refused } = tally(bias, noise, free, 0x5EED);
        let of = |part: u32, rest: u32| f64::from(part) / f64::from(part + rest);
        let (recall, shed) = (of(caught, missed), of(refused, fitted));
        println!(
            "{what}: {} loads would run out, {recall:.4} caught; of {} that fit {shed:.4} sent away",
            caught + missed,
            fitted + refused
        );
        assert!(recall * 1000.0 >= f64::from(least), "{what}: {recall}");
        assert!(shed < 0.5, "{what}: {shed}");
    }
}
