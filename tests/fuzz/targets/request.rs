//! `request` under libFuzzer.
#![no_main]

#[path = "../bodies/request.rs"]
mod request;

libfuzzer_sys::fuzz_target!(|data: &[u8]| request::run(data));
