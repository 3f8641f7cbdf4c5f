//! What is known about one target whatever the model: rate limits, what only its operator can mend, counters.

use std::time::{Duration, Instant};

use super::report::Why;
use crate::cause::{Cause, Fault};
use crate::limits;

/// What is known about one target.
#[derive(Clone, Debug, Default)]
pub struct TargetHealth {
    /// It said 429: not a candidate before this.
    pub cooldown_until: Option<Instant>,
    /// When it last refused our key: its configuration is wrong until it answers again.
    pub refused_key: Option<Instant>,
    /// Models, by the names that clients asked for, that it said it does not have, and when it last did; the newest
    /// last, at most [`limits::MISSING_MODELS_MAX`].
    pub missing: Vec<(String, Instant)>,
    /// Its certificate was not valid yet by this box's clock: since when it waits for the clock to be set.
    pub waiting_for_time: Option<Instant>,
    /// Discovered on a usual port, and nothing answers there yet.
    pub absent: bool,
    /// Attempts that committed.
    pub committed: u64,
    /// Attempts that failed by the target's fault.
    pub failed: u64,
    /// When it last committed.
    pub last_commit: Option<Instant>,
    /// Its last failure.
    pub last_failure: Option<(Instant, Cause)>,
    /// Attempts under way.
    pub in_flight: usize,
}

impl TargetHealth {
    /// Why it is not asked at all, whatever the model.
    #[must_use]
    pub fn shut(&self, now: Instant) -> Option<Why> {
        if self.absent {
            return Some(Why::Absent);
        }
        let until = self.cooldown_until.filter(|until| *until > now)?;
        Some(Why::CoolingDown(until - now))
    }

    /// Why it is tried after all others for `model`: it lately refused our key, or to know the model, and may not
    /// have been mended yet; or its certificate is not valid until the clock is set.
    #[must_use]
    pub fn last(&self, model: &str, now: Instant) -> Option<Why> {
        let within = |since: Instant, pause| now.saturating_duration_since(since) < pause;
        let missing = self.missing.iter().find(|(name, _)| name == model).map(|(_, at)| *at);
        if self.refused_key.is_some_and(|at| within(at, limits::MISCONFIGURED_PAUSE)) {
            Some(Why::RefusedKey)
        } else if missing.is_some_and(|at| within(at, limits::MISCONFIGURED_PAUSE)) {
            Some(Why::ModelMissing)
        } else if self.waiting_for_time.is_some_and(|since| within(since, limits::CLOCK_PATIENCE)) {
            Some(Why::WaitingForTime)
        } else {
            None
        }
    }

    pub(super) fn answered(&mut self, model: &str, now: Instant) {
        self.committed += 1;
        self.last_commit = Some(now);
        self.refused_key = None;
        self.missing.retain(|(name, _)| name != model);
        // Not the cool-down: nobody is asked in it, so this attempt began before the 429.
        self.waiting_for_time = None;
    }

    /// Returns true when this newly marks it misconfigured, so that it is said loudly once.
    pub(super) fn failed(
        &mut self,
        model: &str,
        cause: Cause,
        retry_after: Option<Duration>,
        now: Instant,
    ) -> bool {
        if cause.fault() != Fault::Upstream || cause.is_of_the_request() {
            return false;
        }
        self.failed += 1;
        self.last_failure = Some((now, cause));
        match cause {
            Cause::RateLimited => {
                let pause = retry_after.unwrap_or(limits::COOLDOWN_DEFAULT).min(limits::COOLDOWN_MAX);
                self.cooldown_until = now.checked_add(pause);
                false
            }
            Cause::Unauthorized => self.refused_key.replace(now).is_none(),
            Cause::ModelMissing => self.lacks(model, now),
            _ => false,
        }
    }

    /// Returns whether that is news.
    fn lacks(&mut self, model: &str, now: Instant) -> bool {
        let known = self.missing.len();
        self.missing.retain(|(name, _)| name != model);
        let news = self.missing.len() == known;
        if self.missing.len() >= limits::MISSING_MODELS_MAX {
            self.missing.remove(0);
        }
        self.missing.push((model.to_owned(), now));
        news
    }
}
