//! Bounds of answers that are translated from one protocol into another, each with its unit.

use super::{ANSWER_BUFFER, KIB, MIB};

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

const _: () = assert!(CALL_BYTES <= REPEATED_BYTES);
const _: () = assert!(CALL_BYTES < TRANSLATED_EVENT_BYTES);
