//! `translate` under libFuzzer.
#![no_main]

#[path = "../bodies/translate.rs"]
mod translate;
#[path = "../bodies/stream.rs"]
mod stream;

libfuzzer_sys::fuzz_target!(|data: &[u8]| translate::run(data));
