//! `answer` under libFuzzer.
#![no_main]

#[path = "../bodies/answer.rs"]
mod answer;
#[path = "../bodies/stream.rs"]
mod stream;

libfuzzer_sys::fuzz_target!(|data: &[u8]| answer::run(data));
