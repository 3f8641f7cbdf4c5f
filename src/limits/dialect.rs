//! Bounds of the translation between dialects.

/// JSON values in a body that is translated. A tree takes up to 48 bytes for each, whatever it is (`[0,0,…]` has one
/// in two bytes); a long agent's history has some ten thousand.
pub const CONVERSATION_VALUES_MAX: usize = 500_000;
/// Anthropic requires a limit of the answer's length, in tokens; this one, where the client gave none, is what every
/// model allows (Claude 3's limit; later ones allow more).
pub const ANTHROPIC_MAX_TOKENS: u64 = 4096;
/// A limit of the answer's length that a target refused as too large is asked again with what fits, if that is at least
/// so many tokens: with less, most answers would break off.
pub const FITTED_TOKENS_MIN: u64 = 256;
/// And if it is at least one such part of what the client wished for.
pub const FITTED_SHARE: u64 = 4;
/// The estimate of a prompt is good to a factor of two; where a limit of the answer is fitted by it, it counts for so
/// many parts …
pub const PROMPT_GUESS_PARTS: u64 = 3;
/// … of so many: half as much again, so that the target seldom refuses a second time.
pub const PROMPT_GUESS_WHOLE: u64 = 2;
/// And so many tokens more, for what a chat template adds.
pub const PROMPT_GUESS_MARGIN: u64 = 64;
/// Anthropic's `budget_tokens` at its least, in tokens (Anthropic's documentation of extended thinking).
pub const ANTHROPIC_BUDGET_MIN: u64 = 1024;
/// `stopSequences` that Gemini takes (its reference of `GenerationConfig`).
pub const GEMINI_STOPS_MAX: usize = 5;
/// `stop` sequences that OpenAI takes (its reference of chat completions).
pub const OPENAI_STOPS_MAX: usize = 4;
/// A tool call's id at OpenAI, in bytes: it refuses longer ones (`string too long. Expected … maximum length 40`).
pub const OPENAI_CALL_ID_BYTES: usize = 40;
/// A tool call's id elsewhere, in bytes, before it is replaced by its digest.
pub const CALL_ID_BYTES: usize = 64;
/// Answers beside each other that a request may ask for, as OpenAI allows (its reference of `n`).
pub const CHOICES_MAX: u32 = 128;
/// Parameters that a target was not sent, as listed for one attempt.
pub const DROPPED_MAX: usize = 32;
/// Calls of tools beside each other in one message; the model chooses, and a handful is much.
pub const CALLS_MAX: usize = 1024;
