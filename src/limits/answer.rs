//! Bounds of answers that are translated from one protocol into another, each with its unit.

use std::time::Duration;

use super::{ANSWER_BUFFER, KIB, MIB, REPETITION_WINDOW_BYTES};

/// Choices of one answer that are told apart: OpenAI's `n` is 128 at most.
pub const ANSWER_CHOICES: u32 = 128;
/// Calls in one choice; OpenAI takes at most 128 tools.
pub const ANSWER_CALLS: u32 = 256;
/// What is held of calls whose turn has not come, or that a client must have whole (Ollama), in bytes.
pub const CALL_BYTES: usize = MIB;
/// One event of a stream that is translated, in bytes. It must be whole to be read, and Ollama and Gemini send a call in
/// one: room for [`CALL_BYTES`] of which many are escaped.
pub const TRANSLATED_EVENT_BYTES: usize = 2 * MIB;
/// What a client's protocol repeats at the end of a stream (OpenAI Responses), and so is kept of it, in bytes.
pub const REPEATED_BYTES: usize = ANSWER_BUFFER;
/// A signature, or thinking that only its provider can read, in bytes. Gemini's have up to some tens of KiB.
pub const SIGNATURE_BYTES: usize = 256 * KIB;

/// Of a stream's text that another target may have to go on with, so much is kept, in bytes: [`CONTINUE_MAX_TOKENS`] of
/// English. A longer one is not continued.
pub const SAID_BYTES: usize = 64 * KIB;
/// The beginning of a continuation is held back while it may be a repetition of what was said, up to so much, in bytes.
pub const SEAM_BYTES: usize = 240;
/// And for so long, from its first words on.
pub const SEAM_TIME: Duration = Duration::from_secs(2);
/// From this length on, in bytes, words that stand at the end of what was said and at the beginning of a continuation are
/// the same words: some three of them.
pub const SEAM_REPEAT_BYTES: usize = 16;
/// From this length on, in bytes, an answer that begins as the broken one did begins anew.
pub const SEAM_ANEW_BYTES: usize = 96;
/// How often one stream goes on at another target.
pub const RESUMES_MAX: usize = 2;
/// A prompt and what was said, in tokens, where another target is to go on: half of a usual window.
pub const CONTINUE_MAX_TOKENS: u32 = 16_384;
/// How often in a row the same piece of a text is a collapse, where that is looked for.
pub const REPETITION_TIMES: u32 = 12;
/// And how long all of it is, in bytes: some 150 tokens.
pub const REPETITION_BYTES: u32 = 600;

const _: () = assert!(CALL_BYTES <= REPEATED_BYTES);
const _: () = assert!(CALL_BYTES < TRANSLATED_EVENT_BYTES);
const _: () =
    assert!(SEAM_REPEAT_BYTES < SEAM_ANEW_BYTES && SEAM_ANEW_BYTES < SEAM_BYTES && SEAM_BYTES < SAID_BYTES);
const _: () = assert!(REPETITION_BYTES as usize <= REPETITION_WINDOW_BYTES);
