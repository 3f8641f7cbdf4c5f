//! `conversation` under libFuzzer.
#![no_main]

#[path = "../bodies/conversation.rs"]
mod conversation;

libfuzzer_sys::fuzz_target!(|data: &[u8]| conversation::run(data));
