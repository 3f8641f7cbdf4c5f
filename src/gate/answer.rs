//! The gate for an answer that is not streamed: the whole of it is the subject.

use super::{Emptiness, Rules, Verdict};
use crate::cause::{Cause, Failure};
use crate::config::OnEmptyStop;
use crate::dialect;
use crate::dialect::event::{Facts, Finish};

/// Judges a whole 2xx answer.
#[must_use]
pub fn judge(rules: Rules, body: &[u8]) -> (Verdict, Facts) {
    let facts = dialect::inspect_answer(rules.dialect, body);
    (verdict(rules, &facts, body), facts)
}

/// Judges the beginning of an answer too long to hold: sound unless it shows an error or is not JSON.
#[must_use]
pub fn judge_beginning(rules: Rules, beginning: &[u8]) -> Verdict {
    let facts = dialect::inspect_answer_prefix(rules.dialect, beginning);
    if let Some(error) = &facts.error {
        return Verdict::Failed(error.failure(beginning));
    }
    if facts.alien { not_json(beginning) } else { Verdict::Commit }
}

fn verdict(rules: Rules, facts: &Facts, body: &[u8]) -> Verdict {
    if let Some(error) = &facts.error {
        return Verdict::Failed(error.failure(body));
    }
    if body.iter().all(u8::is_ascii_whitespace) {
        return Verdict::Empty(Emptiness::Nothing);
    }
    if facts.alien {
        return not_json(body);
    }
    if facts.content || facts.thinking || facts.anonymous_thinking {
        return Verdict::Commit;
    }
    let reported = facts.usage.and_then(|usage| usage.completion).unwrap_or(0) > 0;
    match facts.finish {
        Some(Finish::Filtered | Finish::Loaded) => Verdict::Commit,
        Some(Finish::Failed) => Verdict::Failed(Failure::new(Cause::ErrorInStream)),
        Some(_) if rules.tiny => Verdict::Commit,
        Some(Finish::Stop) if reported && rules.on_empty_stop == OnEmptyStop::Pass => Verdict::Commit,
        Some(Finish::Stop) if reported => Verdict::Empty(Emptiness::StopWithTokens),
        Some(_) | None => Verdict::Empty(Emptiness::NoToken),
    }
}

fn not_json(body: &[u8]) -> Verdict {
    let start = String::from_utf8_lossy(&body[..body.len().min(120)]);
    Verdict::Failed(Failure::with(Cause::Protocol, &start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::Dialect;
    use crate::gate::tests::rules;

    const CHAT: Dialect = Dialect::OpenaiChat;

    fn chat(message: &str, finish: &str, usage: u64) -> String {
        format!(
            r#"{{"id":"c","model":"m","choices":[{{"message":{{{message}}},"finish_reason":"{finish}"}}],"usage":{{"completion_tokens":{usage}}}}}"#
        )
    }

    fn judged(rules: Rules, body: &str) -> Verdict {
        judge(rules, body.as_bytes()).0
    }

    #[test]
    fn an_answer_with_something_in_it_is_one() {
        for (dialect, body) in [
            (CHAT, chat(r#""content":"x""#, "stop", 1)),
            (CHAT, chat(r#""content":null,"tool_calls":[{"function":{"name":"f"}}]"#, "tool_calls", 1)),
            (CHAT, chat(r#""content":"","reasoning_content":"hm""#, "length", 1)),
            (CHAT, chat(r#""content":"""#, "content_filter", 0)),
            (Dialect::OpenaiEmbeddings, r#"{"data":[{"embedding":[0.5]}],"model":"m"}"#.to_owned()),
            (Dialect::OllamaChat, r#"{"model":"m","message":{"content":"x"},"done":true}"#.to_owned()),
            (Dialect::OllamaGenerate, r#"{"model":"m","response":"","done":true,"done_reason":"load"}"#.to_owned()),
            (Dialect::OllamaEmbed, r#"{"embeddings":[[0.5]]}"#.to_owned()),
            (Dialect::Anthropic, r#"{"type":"message","content":[{"type":"text","text":"x"}],"stop_reason":"end_turn"}"#.to_owned()),
            (Dialect::OpenaiResponses, r#"{"status":"completed","output":[{"type":"message","content":[{"type":"output_text","text":"x"}]}]}"#.to_owned()),
            (Dialect::Gemini, r#"{"candidates":[{"content":{"parts":[{"text":"x"}]},"finishReason":"STOP"}]}"#.to_owned()),
        ] {
            assert_eq!(judged(rules(dialect), &body), Verdict::Commit, "{dialect:?} {body}");
        }
    }

    #[test]
    fn emptiness_is_told_apart() {
        let pass = Rules { on_empty_stop: OnEmptyStop::Pass, ..rules(CHAT) };
        let tiny = Rules { tiny: true, ..rules(CHAT) };
        let (none, hidden) = (chat(r#""content":"""#, "stop", 0), chat(r#""content":null"#, "stop", 3));
        for (rules, body, want) in [
            (rules(CHAT), "", Verdict::Empty(Emptiness::Nothing)),
            (rules(CHAT), " \n", Verdict::Empty(Emptiness::Nothing)),
            (rules(CHAT), "{}", Verdict::Empty(Emptiness::NoToken)),
            (rules(CHAT), &none, Verdict::Empty(Emptiness::NoToken)),
            (pass, &none, Verdict::Empty(Emptiness::NoToken)),
            (rules(CHAT), &hidden, Verdict::Empty(Emptiness::StopWithTokens)),
            (pass, &hidden, Verdict::Commit),
            (tiny, &none, Verdict::Commit),
            (rules(Dialect::OpenaiEmbeddings), r#"{"data":[]}"#, Verdict::Empty(Emptiness::NoToken)),
        ] {
            assert_eq!(judged(rules, body), want, "{body}");
        }
        let limit = chat(r#""content":"""#, "length", 9);
        assert_eq!(judged(pass, &limit), Verdict::Empty(Emptiness::NoToken));
    }

    #[test]
    fn trouble_in_a_200_is_a_failure_with_its_words() {
        for (body, cause, words) in [
            (r#"{"error":{"message":"CUDA out of memory"}}"#, Cause::CudaOom, "CUDA out of memory"),
            (r#"{"object":"error","message":"no such luck"}"#, Cause::ErrorInStream, "no such luck"),
            ("<html>nginx</html>", Cause::Protocol, "<html>nginx</html>"),
            (
                r#"{"choices":[{"message":{"content":"ab"#,
                Cause::Protocol,
                r#"{"choices":[{"message":{"content":"ab"#,
            ),
        ] {
            let Verdict::Failed(failure) = judged(rules(CHAT), body) else { panic!("{body}") };
            assert_eq!((failure.cause, failure.detail.as_str()), (cause, words));
        }
    }

    #[test]
    fn a_beginning_is_sound_unless_it_shows_trouble() {
        let begins = |text: &str| judge_beginning(rules(CHAT), text.as_bytes());
        assert_eq!(begins(r#"{"id":"c","choices":[{"message":{"content":"ab"#), Verdict::Commit);
        assert_eq!(begins(r#"{"data":[{"embedding":[0.5,0."#), Verdict::Commit);
        for (text, cause) in [
            ("<html><body>", Cause::Protocol),
            (r#"{"error":{"message":"CUDA out of memory"},"x":"#, Cause::CudaOom),
        ] {
            let Verdict::Failed(failure) = begins(text) else { panic!("{text}") };
            assert_eq!(failure.cause, cause);
        }
    }
}
