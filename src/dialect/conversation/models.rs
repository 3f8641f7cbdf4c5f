//! What the name of a cloud's model says about what it takes.

/// A model's generation: `(4, 7)` for Claude Opus 4.7.
pub(super) type Generation = (u32, u32);

/// Of an alias that names no generation (`gemini-flash-latest`): newer than any that has a rule here.
const LATEST: Generation = (99, 0);

/// Claude's generation; nothing for another model behind Anthropic's protocol, a local server's for instance.
pub(super) fn claude(model: &str) -> Option<Generation> {
    generation(model, "claude")
}

/// Gemini's generation; nothing for another model behind Google's protocol.
pub(super) fn gemini(model: &str) -> Option<Generation> {
    generation(model, "gemini")
}

/// OpenAI's models that always think, and take no knobs: o1, o3, o4, GPT-5 and later ones.
pub(super) fn openai_thinks(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or(model);
    let number = |prefix| name.strip_prefix(prefix)?.split(['-', '.']).next()?.parse::<u32>().ok();
    number("gpt-").is_some_and(|generation| generation >= 5) || number("o").is_some()
}

/// GPT's generation; nothing for another model behind OpenAI's protocol, its o-series included.
pub(super) fn gpt(model: &str) -> Option<Generation> {
    generation(model, "gpt")
}

/// The first one or two short numbers after the family's name; a longer one is a date.
fn generation(model: &str, family: &str) -> Option<Generation> {
    let model = model.to_ascii_lowercase();
    let (_, rest) = model.split_once(family)?;
    let mut words = rest.split(|c: char| !c.is_ascii_alphanumeric());
    let number = |word: &str| word.parse::<u32>().ok().filter(|_| word.len() <= 2);
    let Some(major) = words.find_map(number) else { return Some(LATEST) };
    Some((major, words.next().and_then(number).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generations_are_read_off_names() {
        for (model, wanted) in [
            ("claude-3-5-sonnet-20241022", Some((3, 5))),
            ("claude-3-haiku-20240307", Some((3, 0))),
            ("claude-sonnet-4-20250514", Some((4, 0))),
            ("claude-opus-4-7", Some((4, 7))),
            ("anthropic/claude-4.7-opus", Some((4, 7))),
            ("us.anthropic.claude-haiku-4-5-20251001-v1:0", Some((4, 5))),
            ("claude-sonnet-5", Some((5, 0))),
            ("claude-latest", Some(LATEST)),
            ("llama3.2:3b", None),
        ] {
            assert_eq!(claude(model), wanted, "{model}");
        }
        assert_eq!(gemini("models/gemini-2.5-pro"), Some((2, 5)));
        assert_eq!(gemini("gemini-3-flash-preview"), Some((3, 0)));
        assert_eq!(gemini("gemini-flash-latest"), Some(LATEST));
        assert_eq!(gemini("gemma-3-27b-it"), None);
        for (model, thinks) in [
            ("o3-mini", true),
            ("gpt-5.1", true),
            ("gpt-4o", false),
            ("gpt-4.1", false),
            ("openai/o1", true),
            ("olmo", false),
        ] {
            assert_eq!(openai_thinks(model), thinks, "{model}");
        }
    }
}
