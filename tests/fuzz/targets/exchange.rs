//! `exchange` under libFuzzer.
#![no_main]

#[path = "../bodies/exchange.rs"]
mod exchange;

libfuzzer_sys::fuzz_target!(|data: &[u8]| exchange::run(data));
