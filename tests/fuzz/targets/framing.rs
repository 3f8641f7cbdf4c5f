//! `framing` under libFuzzer.
#![no_main]

#[path = "../bodies/framing.rs"]
mod framing;
#[path = "../bodies/stream.rs"]
mod stream;

libfuzzer_sys::fuzz_target!(|data: &[u8]| framing::run(data));
