//! Members of requests that change what an answer says, and not which members it has: those that edgeward knows.
//!
//! A request with another one is never answered by a stream that was put together: the whole answer may have more than
//! the stream says (vLLM's `prompt_logprobs`, llama.cpp's `n_probs`, `best_of`).

use super::Dialect;

/// Sampling and vendor switches that all servers of OpenAI's and Anthropic's APIs take, or ignore.
const SAMPLING: [&str; 39] = [
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "typical_p",
    "seed",
    "stop",
    "presence_penalty",
    "frequency_penalty",
    "repeat_penalty",
    "repetition_penalty",
    "logit_bias",
    "user",
    "metadata",
    "service_tier",
    "chat_template_kwargs",
    "cache_prompt",
    "cache_salt",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "structured_outputs",
    "grammar",
    "json_schema",
    "ignore_eos",
    "stop_token_ids",
    "min_tokens",
    "n_predict",
    "skip_special_tokens",
    "include_stop_str_in_output",
    "bad_words",
    "length_penalty",
    "mirostat",
    "mirostat_tau",
    "mirostat_eta",
    "samplers",
    "id_slot",
    "priority",
];

const CHAT: [&str; 20] = [
    "messages",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "functions",
    "function_call",
    "response_format",
    "logprobs",
    "top_logprobs",
    "reasoning",
    "reasoning_effort",
    "reasoning_format",
    "thinking",
    "think",
    "enable_thinking",
    "verbosity",
    "store",
    "safety_identifier",
    "prompt_cache_key",
    "modalities",
];

const COMPLETIONS: [&str; 2] = ["suffix", "logprobs"];

const RESPONSES: [&str; 16] = [
    "input",
    "instructions",
    "include",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "text",
    "reasoning",
    "truncation",
    "store",
    "previous_response_id",
    "conversation",
    "max_tool_calls",
    "safety_identifier",
    "prompt_cache_key",
    "top_logprobs",
];

const ANTHROPIC: [&str; 9] = [
    "messages",
    "system",
    "tools",
    "tool_choice",
    "thinking",
    "stop_sequences",
    "output_config",
    "output_format",
    "context_management",
];

const OLLAMA: [&str; 14] = [
    "messages",
    "tools",
    "format",
    "keep_alive",
    "think",
    "logprobs",
    "top_logprobs",
    "suffix",
    "images",
    "system",
    "template",
    "raw",
    "context",
    "truncate",
];

/// Whether a request's member is one of these. Those that the request's reader takes itself are not asked for.
pub(super) fn is_known(dialect: Dialect, key: &str) -> bool {
    let own: &[&str] = match dialect {
        Dialect::OpenaiChat => &CHAT,
        Dialect::OpenaiCompletions => &COMPLETIONS,
        Dialect::OpenaiResponses => &RESPONSES,
        Dialect::Anthropic => &ANTHROPIC,
        Dialect::OllamaChat | Dialect::OllamaGenerate => return OLLAMA.contains(&key),
        Dialect::OpenaiEmbeddings | Dialect::OllamaEmbed | Dialect::Gemini => return false,
    };
    own.contains(&key) || SAMPLING.contains(&key)
}
