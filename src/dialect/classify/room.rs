//! How long an answer may be, by a refusal's own numbers: what fits in the place of the limit that was asked for.

use memchr::memmem;

use super::body_text;
use crate::limits::{
    FITTED_SHARE, FITTED_TOKENS_MIN, PROMPT_GUESS_MARGIN, PROMPT_GUESS_PARTS, PROMPT_GUESS_WHOLE,
};

/// A part of a phrase, lower case: words, or a number and what it is.
#[derive(Clone, Copy)]
enum Part {
    Is(&'static str),
    /// Tokens of prompt and answer together.
    Window,
    /// Tokens of the prompt, or of a part of it.
    Prompt,
    /// Tokens of an answer.
    Most,
    /// It says nothing new.
    Any,
}
use Part::{Any, Is, Most, Prompt, Window};

/// Each begins with words. The first that is found counts: what says more comes first.
const SHAPES: &[&[Part]] = &[
    // vLLM: entrypoints/openai/engine/serving.py, to v0.14.
    &[
        Is("maximum context length is "),
        Window,
        Is(" tokens and your request has "),
        Prompt,
        Is(" input tokens"),
    ],
    // vLLM: renderers/params.py, from v0.15 on; the prompt's tokens, at least so many of them, or none.
    &[
        Is("you passed "),
        Prompt,
        Is(" input tokens and requested "),
        Any,
        Is(" output tokens. however, the model's context length is only "),
        Window,
    ],
    &[Is(" output tokens. however, the model's context length is only "), Window],
    &[
        Is("maximum context length is "),
        Window,
        Is(" tokens. however, you requested "),
        Any,
        Is(" output tokens and your prompt contains "),
        Prompt,
        Is(" input tokens"),
    ],
    &[
        Is("maximum context length is "),
        Window,
        Is(" tokens. however, you requested "),
        Any,
        Is(" output tokens and your prompt contains at least "),
        Prompt,
        Is(" input tokens"),
    ],
    &[
        Is("maximum context length is "),
        Window,
        Is(" tokens. however, you requested "),
        Any,
        Is(" output tokens and your prompt contains "),
        Any,
        Is(" characters"),
    ],
    &[Is("cannot be greater than max_model_len=max_total_tokens="), Window],
    &[Is("cannot be greater than max_model_len="), Window],
    // OpenAI, and vLLM to v0.8.
    &[
        Is("maximum context length is "),
        Window,
        Is(" tokens. however, you requested "),
        Any,
        Is(" tokens ("),
        Prompt,
        Is(" in the messages, "),
        Prompt,
        Is(" in the functions, and "),
    ],
    &[
        Is("maximum context length is "),
        Window,
        Is(" tokens. however, you requested "),
        Any,
        Is(" tokens ("),
        Prompt,
        Is(" in the messages, "),
        Any,
        Is(" in the completion)"),
    ],
    &[
        Is("maximum context length is "),
        Window,
        Is(" tokens, however you requested "),
        Any,
        Is(" tokens ("),
        Prompt,
        Is(" in your prompt; "),
    ],
    // SGLang: managers/tokenizer_manager.py.
    &[
        Is("maximum context length of "),
        Window,
        Is(" tokens. you requested a total of "),
        Any,
        Is(" tokens: "),
        Prompt,
        Is(" tokens from the input messages"),
    ],
    // TGI: router/src/validation.rs.
    &[Is("`inputs` tokens + `max_new_tokens` must be <= "), Window, Is(". given: "), Prompt, Is(" `inputs`")],
    // Anthropic.
    &[Is("`max_tokens` exceed context limit: "), Prompt, Is(" + "), Any, Is(" > "), Window],
    &[Is("max_tokens: "), Any, Is(" > "), Most, Is(", which is the maximum allowed number of output tokens")],
    // OpenAI.
    &[Is("this model supports at most "), Most, Is(" completion tokens, whereas you provided")],
    // SGLang: entrypoints/openai/serving_chat.py. The number is its window.
    &[Is("max_completion_tokens is too large: "), Any, Is(".this model supports at most "), Window],
    // DeepSeek, DashScope.
    &[Is("valid range of max_tokens is [1, "), Most, Is("]")],
    &[Is("range of max_tokens should be [1, "), Most, Is("]")],
];

/// What a refusal tells.
#[derive(Clone, Copy, Default)]
struct Told {
    window: Option<u64>,
    prompt: Option<u64>,
    most: Option<u64>,
}

/// The limit that fits where a target refused `wish` tokens of answer as too many, if its words say what fits, and if
/// that is worth asking for: at least [`FITTED_TOKENS_MIN`], and one [`FITTED_SHARE`]th of the wish.
///
/// `prompt`: the prompt's tokens by our own estimate, for words that name the window alone. It may be off; then the
/// target refuses once more.
#[must_use]
pub fn fitting(body: &[u8], wish: u64, prompt: u64) -> Option<u64> {
    let text = body_text(body);
    let text = text.bytes.get(..text.len).unwrap_or_default();
    let told = SHAPES.iter().find_map(|shape| read(text, shape))?;
    let left = match told.window {
        Some(window) => {
            // Who counts a prompt only until it is one too long tells no more than the least that it has.
            let exact = told.prompt.filter(|prompt| prompt.saturating_add(wish) > window.saturating_add(1));
            let guess = (prompt / PROMPT_GUESS_WHOLE).saturating_mul(PROMPT_GUESS_PARTS);
            let guess = guess.saturating_add(PROMPT_GUESS_MARGIN).max(told.prompt.unwrap_or(0));
            window.checked_sub(exact.unwrap_or(guess))?
        }
        None => u64::MAX,
    };
    let fit = left.min(told.most.unwrap_or(u64::MAX));
    let worth = fit >= FITTED_TOKENS_MIN && fit.saturating_mul(FITTED_SHARE) >= wish;
    (fit < wish && worth).then_some(fit)
}

fn read(text: &[u8], shape: &[Part]) -> Option<Told> {
    let Some((Is(first), rest)) = shape.split_first() else { return None };
    memmem::find_iter(text, first.as_bytes()).find_map(|at| {
        let mut left = text.get(at + first.len()..)?;
        let mut told = Told::default();
        for part in rest {
            if let Is(words) = part {
                left = left.strip_prefix(words.as_bytes())?;
                continue;
            }
            let digits = left.iter().take_while(|byte| byte.is_ascii_digit()).count();
            let (number, after) = left.split_at_checked(digits)?;
            let number: u64 = std::str::from_utf8(number).ok()?.parse().ok()?;
            left = after;
            match part {
                Window => told.window = Some(number),
                Prompt => told.prompt = Some(told.prompt.unwrap_or(0).saturating_add(number)),
                Most => told.most = Some(number),
                Any | Is(_) => {}
            }
        }
        Some(told)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fit(message: &str, wish: u64, prompt: u64) -> Option<u64> {
        let body =
            serde_json::json!({ "error": { "message": message, "type": "BadRequestError", "code": 400 } });
        fitting(body.to_string().as_bytes(), wish, prompt)
    }

    #[test]
    fn servers_words_say_what_fits() {
        for (message, wish, fits) in [
            (
                "'max_tokens' or 'max_completion_tokens' is too large: 4000. This model's maximum context length is 4096 tokens and your request has 1000 input tokens (4000 > 4096 - 1000).",
                4000,
                Some(3096),
            ),
            (
                "You passed 1000 input tokens and requested 4000 output tokens. However, the model's context length is only 4096 tokens, resulting in a maximum input length of 96 tokens. Please reduce the length of the input prompt.",
                4000,
                Some(3096),
            ),
            (
                "This model's maximum context length is 8192 tokens. However, you requested 8000 output tokens and your prompt contains 4000 input tokens, for a total of 12000 tokens. Please reduce the length of the input prompt or the number of requested output tokens. (parameter=input_tokens, value=4000)",
                8000,
                Some(4192),
            ),
            (
                "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens (5000 in the messages, 4000 in the completion). Please reduce the length of the messages or completion.",
                4000,
                Some(3192),
            ),
            (
                "This model's maximum context length is 8192 tokens. However, you requested 9100 tokens (5000 in the messages, 100 in the functions, and 4000 in the completion). Please reduce the length of the messages, functions, or completion.",
                4000,
                Some(3092),
            ),
            (
                "This model's maximum context length is 4097 tokens, however you requested 5000 tokens (1000 in your prompt; 4000 for the completion). Please reduce your prompt; or completion length.",
                4000,
                Some(3097),
            ),
            (
                "Requested token count exceeds the model's maximum context length of 4096 tokens. You requested a total of 6000 tokens: 1000 tokens from the input messages and 5000 tokens for the completion. Please reduce the number of tokens in the input messages or the completion to fit within the limit.",
                5000,
                Some(3096),
            ),
            (
                "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 2048. Given: 1000 `inputs` tokens and 2000 `max_new_tokens`",
                2000,
                Some(1048),
            ),
            (
                "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease input length or `max_tokens` and try again",
                20000,
                Some(10000),
            ),
            (
                "max_tokens: 9000 > 8192, which is the maximum allowed number of output tokens for claude-3-5-haiku",
                9000,
                Some(8192),
            ),
            (
                "max_tokens is too large: 32000. This model supports at most 16384 completion tokens, whereas you provided 32000.",
                32000,
                Some(16384),
            ),
            ("Invalid max_tokens value, the valid range of max_tokens is [1, 8192]", 9000, Some(8192)),
            ("Range of max_tokens should be [1, 8192]", 9000, Some(8192)),
            // Not worth it, or not what was asked.
            ("Invalid max_tokens value, the valid range of max_tokens is [1, 8192]", 99_999, None),
            ("Invalid max_tokens value, the valid range of max_tokens is [1, 255]", 500, None),
            ("Invalid max_tokens value, the valid range of max_tokens is [1, 8192]", 0, None),
            (
                "request (3010 tokens) exceeds the available context size (2048 tokens), try increasing it",
                500,
                None,
            ),
            (
                "This model's maximum context length is 4096 tokens. However, your request has 5000 input tokens. Please reduce the length of the input messages.",
                500,
                None,
            ),
            ("no numbers at all", 500, None),
        ] {
            assert_eq!(fit(message, wish, 7), fits, "{message}");
        }
    }

    #[test]
    fn where_the_window_alone_is_known_the_prompt_is_guessed() {
        let window_alone = [
            "max_tokens=8888 cannot be greater than max_model_len=4096. Please request fewer output tokens.",
            "max_completion_tokens=8888cannot be greater than max_model_len=max_total_tokens=4096. Please request fewer output tokens.",
            "max_completion_tokens is too large: 8888.This model supports at most 4096 completion tokens.",
            "You passed 99000 input characters and requested 8888 output tokens. However, the model's context length is only 4096 tokens, resulting in",
            "This model's maximum context length is 4096 tokens. However, you requested 8888 output tokens and your prompt contains 9999 characters (more than 0 characters, which is the upper bound for 0 input tokens).",
        ];
        for message in window_alone {
            assert_eq!(fit(message, 8888, 100), Some(4096 - (150 + PROMPT_GUESS_MARGIN)), "{message}");
        }
        // vLLM counts no further than to the first token too many.
        let counted = "This model's maximum context length is 8192 tokens. However, you requested 8000 output tokens and your prompt contains at least 193 input tokens, for a total of at least 8193 tokens.";
        assert_eq!(fit(counted, 8000, 1000), Some(8192 - (1500 + PROMPT_GUESS_MARGIN)));
        assert_eq!(fit(counted, 8000, 0), Some(8192 - 193), "it has as many at the least");
        let counted = "You passed 193 input tokens and requested 8000 output tokens. However, the model's context length is only 8192 tokens, resulting in a maximum input length of 192 tokens.";
        assert_eq!(fit(counted, 8000, 1000), Some(8192 - (1500 + PROMPT_GUESS_MARGIN)));
    }

    #[test]
    fn every_shape_begins_with_words_in_lower_case() {
        for shape in SHAPES {
            assert!(matches!(shape.first(), Some(Is(_))));
            for part in *shape {
                let Is(words) = part else { continue };
                assert_eq!(*words, words.to_lowercase());
            }
        }
    }

    proptest! {
        #[test]
        fn nothing_in_a_refusal_panics(
            shape in 0..SHAPES.len(),
            numbers in prop::collection::vec("[0-9]{0,22}", 6),
            cut in any::<usize>(),
            around in ".{0,40}",
            wish in any::<u64>(),
            prompt in any::<u64>(),
        ) {
            let mut numbers = numbers.into_iter();
            let text: String = SHAPES[shape].iter().map(|part| match part {
                Is(words) => (*words).to_owned(),
                Window | Prompt | Most | Any => numbers.next().unwrap_or_default(),
            }).collect();
            let text = [around.clone().into_bytes(), text.into_bytes(), around.into_bytes()].concat();
            let text = &text[..cut % (text.len() + 1)];
            if let Some(fit) = fitting(text, wish, prompt) {
                prop_assert!(fit < wish && fit >= FITTED_TOKENS_MIN && fit.saturating_mul(FITTED_SHARE) >= wish);
            }
        }

        #[test]
        fn what_fits_never_exceeds_the_window(
            window in 0_u64..300_000,
            prompt in 0_u64..300_000,
            wish in 0_u64..300_000,
            guess in 0_u64..300_000,
            least in any::<bool>(),
        ) {
            let least = if least { "at least " } else { "" };
            let message = format!(
                "This model's maximum context length is {window} tokens. However, you requested {wish} output tokens \
                 and your prompt contains {least}{prompt} input tokens, for a total of {}", prompt + wish
            );
            match fit(&message, wish, guess) {
                Some(fit) => {
                    prop_assert!(fit + prompt <= window && fit < wish);
                    prop_assert!(fit >= FITTED_TOKENS_MIN && fit * FITTED_SHARE >= wish);
                }
                None if prompt + wish > window + 1 => {
                    let left = window.saturating_sub(prompt);
                    prop_assert!(left < FITTED_TOKENS_MIN || left * FITTED_SHARE < wish);
                }
                None => {}
            }
        }
    }
}
