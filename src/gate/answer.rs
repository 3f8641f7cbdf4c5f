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
        return super::told(error, beginning);
    }
    if facts.alien { not_json(beginning) } else { Verdict::Commit }
}

fn verdict(rules: Rules, facts: &Facts, body: &[u8]) -> Verdict {
    if let Some(error) = &facts.error {
        return super::told(error, body);
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
