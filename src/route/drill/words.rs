//! A drill's report in words, for its operator.

use std::fmt::Write as _;

use super::{Count, Report, Stage, Times};
use crate::cause::Cause;

impl Report {
    /// What clients saw, in a few sentences.
    pub(super) fn words(&self) -> String {
        let mut text = String::new();
        if self.drilled == 0 {
            text.push_str(match self.stage {
                Stage::Running => "No request has come to be drilled yet.",
                Stage::Finishing | Stage::Over => {
                    "No request was to go there, so nothing was tried; `edgeward status` shows whether it is asked."
                }
            });
            return text;
        }
        for by in &self.answered {
            self.sentence(&mut text, by.count, &format!("answered by `{}`", by.name));
        }
        if let Some(Times { median_ms, worst_ms }) = self.first_token {
            let first = format!("First token after {} (median), {} (worst)", show(median_ms), show(worst_ms));
            text.push_str(&first);
            if let Some(Times { median_ms, worst_ms }) = self.added {
                let later = (show(median_ms), show(worst_ms));
                // Writing to a String does not fail.
                let _infallible =
                    write!(text, "; {} and {} later than is usual from `{}`", later.0, later.1, self.target);
            }
            text.push_str(". ");
        }
        for cause in &self.failed {
            self.sentence(&mut text, cause.count, &format!("answered with an error: {}", in_words(cause)));
        }
        for cause in &self.broken {
            self.sentence(&mut text, cause.count, &format!("cut short: {}", in_words(cause)));
        }
        if self.refused > 0 {
            self.sentence(&mut text, self.refused, "refused as its client's own fault");
        }
        if self.gone > 0 {
            self.sentence(&mut text, self.gone, "given up by its client");
        }
        if self.under_way > 0 {
            self.sentence(&mut text, self.under_way, "not over yet");
        }
        if self.failed.is_empty()
            && self.broken.is_empty()
            && self.under_way == 0
            && !self.answered.is_empty()
        {
            text.push_str("Clients noticed nothing.");
        }
        text.trim_end().to_owned()
    }

    fn sentence(&self, text: &mut String, count: u32, what: &str) {
        let (all, were) = (self.drilled, if count == 1 { "was" } else { "were" });
        let requests = if all == 1 { "request" } else { "requests" };
        let _infallible = write!(text, "{count} of {all} {requests} {were} {what}. ");
    }
}

/// A cause's words behind its name.
fn in_words(cause: &Count) -> String {
    let known = Cause::ALL.into_iter().find(|known| known.as_str() == cause.name);
    match known {
        Some(Cause::Drill) => "nobody else could answer".to_owned(),
        Some(known) => known.in_words().to_owned(),
        None => cause.name.clone(),
    }
}

/// `12 ms`, `0.41 s`, `12.3 s`.
fn show(ms: u64) -> String {
    match ms {
        0..100 => format!("{ms} ms"),
        100..10_000 => format!("{}.{:02} s", ms / 1000, ms % 1000 / 10),
        _ => format!("{}.{} s", ms / 1000, ms % 1000 / 100),
    }
}
