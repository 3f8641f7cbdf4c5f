//! The fuzz targets' bodies over the committed seeds, and over some thousand mutations of them: the same in
//! every run. `tests/fuzz/Cargo.toml` says how to fuzz in earnest.

#![expect(clippy::expect_used, clippy::panic, reason = "a test's helpers fail as the tests do")]

use std::fs;
use std::path::{Path, PathBuf};

#[path = "fuzz/bodies/answer.rs"]
mod answer;
#[path = "fuzz/bodies/conversation.rs"]
mod conversation;
#[path = "fuzz/bodies/exchange.rs"]
mod exchange;
#[path = "fuzz/bodies/framing.rs"]
mod framing;
#[path = "fuzz/bodies/request.rs"]
mod request;
#[path = "fuzz/bodies/stream.rs"]
mod stream;

/// Mutated inputs a target.
const MUTATIONS: usize = 4000;

#[test]
fn framing_and_the_gate() {
    replay("streams", framing::run);
}

#[test]
fn answers() {
    replay("streams", answer::run);
}

#[test]
fn requests() {
    replay("requests", request::run);
}

#[test]
fn conversations() {
    replay("conversations", conversation::run);
}

#[test]
fn exchanges() {
    replay("exchanges", exchange::run);
}

fn replay(seeds: &str, run: fn(&[u8])) {
    let seeds = read(seeds);
    for (name, data) in &seeds {
        let _shown = Shown { name, data };
        run(data);
    }
    let words = words();
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    for round in 0..MUTATIONS {
        let (name, seed) = &seeds[round % seeds.len()];
        let mut data = seed.clone();
        for _ in 0..=random.below(5) {
            let other = &seeds[random.below(seeds.len())].1;
            mutate(&mut data, other, &words, &mut random);
        }
        let _shown = Shown { name, data: &data };
        run(&data);
    }
}

fn mutate(data: &mut Vec<u8>, other: &[u8], words: &[Vec<u8>], random: &mut Random) {
    let at = random.below(data.len() + 1);
    let end = (at + random.below(12)).min(data.len());
    match random.below(7) {
        0 => data.truncate(at),
        1 => drop(data.drain(at..end)),
        2 => data.extend_from_within(at..),
        3 => drop(data.splice(at..end, words[random.below(words.len())].iter().copied())),
        4 => {
            let from = random.below(other.len() + 1);
            data.truncate(at);
            data.extend_from_slice(&other[from..]);
        }
        5 => data.insert(at, random.below(256) as u8),
        _ => {
            if let Some(byte) = data.get_mut(at) {
                *byte ^= 1 << random.below(8);
            }
        }
    }
    data.truncate(16 * 1024);
}

/// Names the input that failed, as a seed could hold it.
struct Shown<'a> {
    name: &'a str,
    data: &'a [u8],
}

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("from seed {}: {}", self.name, self.data.escape_ascii());
        }
    }
}

/// xorshift64*: the same numbers on every machine.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % bound
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz")
}

/// Sorted by name, so that every run is the same.
fn read(seeds: &str) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(folder().join("seeds").join(seeds)).expect("the seeds");
    let mut found: Vec<_> = entries
        .map(|entry| {
            let entry = entry.expect("a seed");
            (entry.file_name().to_string_lossy().into_owned(), fs::read(entry.path()).expect("a seed"))
        })
        .collect();
    found.sort();
    assert!(!found.is_empty(), "no seeds in {seeds}");
    found
}

/// libFuzzer's dictionary: `"…"` with `\xNN` a line.
fn words() -> Vec<Vec<u8>> {
    let text = fs::read_to_string(folder().join("words.dict")).expect("the words");
    let quoted = text.lines().filter_map(|line| line.strip_prefix('"')?.strip_suffix('"'));
    quoted
        .map(|word| {
            let mut parts = word.split("\\x");
            let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
            for part in parts {
                let (hex, rest) = part.split_at(2);
                bytes.push(u8::from_str_radix(hex, 16).expect("two hexadecimal digits"));
                bytes.extend_from_slice(rest.as_bytes());
            }
            bytes
        })
        .collect()
}
