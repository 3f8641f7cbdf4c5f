//! The health store: one entry a target, written by attempts, read by the plan and by `status`.

use std::time::{Duration, Instant};

use super::report::{Change, Ended, News, Pressure, Standing, Summary, Why};
use super::sketch::Sketch;
use crate::cause::{Cause, Fault};
use crate::config::Health;
use crate::limits;

/// All targets' health, by their position in the configuration.
#[derive(Debug)]
pub struct Store {
    health: Health,
    seed: u64,
    targets: Vec<TargetHealth>,
}

/// One attempt's place in the store, from its beginning to its end.
#[derive(Debug, PartialEq, Eq)]
pub struct Ticket {
    /// The target.
    pub target: usize,
    /// The model that the client asked for.
    pub model: String,
    /// It is one of a half-open breaker's trials.
    pub trial: bool,
}

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

impl Store {
    /// A store that judges by `health`, for targets of which `absent` says who was not found yet. `seed` decides
    /// every jitter.
    #[must_use]
    pub fn new(health: &Health, seed: u64, absent: impl IntoIterator<Item = bool>) -> Self {
        Store {
            health: health.clone(),
            seed,
            targets: absent
                .into_iter()
                .map(|absent| TargetHealth { absent, ..TargetHealth::default() })
                .collect(),
        }
    }

    /// The store of a changed configuration: for each target its place in this one, if it has one, and whether
    /// it is looked for. A key or a model may have been put right, so "misconfigured" is not kept; attempts
    /// under way end in the store that they began in.
    #[must_use]
    pub fn renewed(&self, health: &Health, targets: impl IntoIterator<Item = (Option<usize>, bool)>) -> Self {
        let renewed = |(old, discovered): (Option<usize>, bool)| match old.and_then(|old| self.get(old)) {
            Some(old) => TargetHealth {
                refused_key: None,
                missing: Vec::new(),
                in_flight: 0,
                absent: discovered && old.absent,
                ..old.clone()
            },
            None => TargetHealth { absent: discovered, ..TargetHealth::default() },
        };
        Store { health: health.clone(), seed: self.seed, targets: targets.into_iter().map(renewed).collect() }
    }

    /// One target's entry; an unknown index reads as healthy.
    #[must_use]
    pub fn target(&self, target: usize) -> TargetHealth {
        self.targets.get(target).cloned().unwrap_or_default()
    }

    /// Reads one target without copying it.
    #[must_use]
    pub fn get(&self, target: usize) -> Option<&TargetHealth> {
        self.targets.get(target)
    }

    /// Whether `target` lately refused our key, or to know `model`: it is tried last, until it may have been mended.
    #[must_use]
    pub fn misconfigured(&self, target: usize, model: &str, now: Instant) -> bool {
        let Some(health) = self.targets.get(target) else { return false };
        let missing = health.missing.iter().find(|(name, _)| name == model).map(|(_, at)| *at);
        let lately = |at: Instant| now < at + limits::MISCONFIGURED_PAUSE;
        health.refused_key.into_iter().chain(missing).any(lately)
    }

    /// Whether `target` is tried after all others for `model`: misconfigured, or its certificate is not valid until
    /// the clock is set.
    #[must_use]
    pub fn comes_last(&self, target: usize, model: &str, now: Instant) -> bool {
        let waiting = self.targets.get(target).and_then(|health| health.waiting_for_time);
        let waits = |since| now.saturating_duration_since(since) < limits::CLOCK_PATIENCE;
        self.misconfigured(target, model, now) || waiting.is_some_and(waits)
    }

    /// What routing goes by: whether `target` is asked for `model` with a prompt of this many tokens, and for how
    /// much of its weight.
    #[must_use]
    pub fn summary(&self, target: usize, model: &str, _prompt_tokens: u64, now: Instant) -> Summary {
        let fit = Summary { standing: Standing::Fit, share: 1000, first_token: None };
        let Some(health) = self.targets.get(target) else { return fit };
        let standing = if health.absent {
            Standing::Out(Why::Absent)
        } else if let Some(until) = health.cooldown_until.filter(|until| *until > now) {
            Standing::Out(Why::CoolingDown(until - now))
        } else if self.comes_last(target, model, now) {
            Standing::Last(Why::ModelMissing)
        } else {
            Standing::Fit
        };
        Summary { standing, ..fit }
    }

    /// An attempt at `target`, asked for `model`, begins.
    ///
    /// # Errors
    /// It must not: since the plan was made, its breaker has opened or its trials are under way.
    pub fn begin(&mut self, target: usize, model: &str, _now: Instant) -> Result<Ticket, Why> {
        if let Some(health) = self.targets.get_mut(target) {
            health.in_flight += 1;
        }
        Ok(Ticket { target, model: model.to_owned(), trial: false })
    }

    /// The attempt's answer has begun: its first token came `after` this time, for a prompt of this many tokens;
    /// `None` where an answer is passed on as it comes.
    pub fn answered(&mut self, ticket: &Ticket, _prompt_tokens: u64, _after: Option<Duration>, now: Instant) {
        if let Some(health) = self.targets.get_mut(ticket.target) {
            health.committed += 1;
            health.last_commit = Some(now);
            health.refused_key = None;
            health.missing.retain(|(name, _)| *name != ticket.model);
            health.cooldown_until = None;
            health.waiting_for_time = None;
        }
    }

    /// The attempt is over. Returns what an operator should be told.
    pub fn end(&mut self, ticket: Ticket, ended: Ended, now: Instant) -> Vec<News> {
        let Some(health) = self.targets.get_mut(ticket.target) else { return Vec::new() };
        health.in_flight = health.in_flight.saturating_sub(1);
        let Ended::Failed(cause, retry_after) = ended else { return Vec::new() };
        if self.failed(ticket.target, &ticket.model, cause, retry_after, now) {
            let what = Change::Misconfigured(cause);
            return vec![News { target: ticket.target, model: Some(ticket.model), what }];
        }
        Vec::new()
    }

    /// The gaps between the tokens of an attempt that is about to end.
    pub fn gaps(&mut self, _ticket: &Ticket, _gaps: &Sketch, _now: Instant) {}

    /// What time alone has changed; call it about once a second.
    pub fn tick(&mut self, _now: Instant) -> Vec<News> {
        Vec::new()
    }

    /// A probe of `target` has its result.
    pub fn probed(&mut self, _target: usize, _result: Result<(), Cause>, _now: Instant) -> Vec<News> {
        Vec::new()
    }

    /// The watchdog's word on a local target.
    pub fn set_pressure(&mut self, _target: usize, _pressure: Pressure) {}

    /// A connection to `target` was made, its certificate is valid.
    pub fn reached(&mut self, target: usize) {
        if let Some(health) = self.targets.get_mut(target) {
            health.waiting_for_time = None;
        }
    }

    /// The certificate of `target` is not valid yet by this box's clock. Returns true when this is news.
    pub fn waits_for_time(&mut self, target: usize, now: Instant) -> bool {
        self.targets.get_mut(target).is_some_and(|health| health.waiting_for_time.replace(now).is_none())
    }

    /// The clock was set: nobody waits for it any more. Returns who did.
    pub fn clock_was_set(&mut self) -> Vec<usize> {
        let waiting = self
            .targets
            .iter_mut()
            .enumerate()
            .filter_map(|(index, health)| health.waiting_for_time.take().map(|_| index));
        waiting.collect()
    }

    /// Returns true when this newly marks it misconfigured, so that it is said loudly once.
    fn failed(
        &mut self,
        target: usize,
        model: &str,
        cause: Cause,
        retry_after: Option<Duration>,
        now: Instant,
    ) -> bool {
        let Some(health) = self.targets.get_mut(target) else { return false };
        if cause.fault() != Fault::Upstream {
            return false;
        }
        health.failed += 1;
        health.last_failure = Some((now, cause));
        match cause {
            Cause::RateLimited => {
                let pause = retry_after.unwrap_or(limits::COOLDOWN_DEFAULT).min(limits::COOLDOWN_MAX);
                health.cooldown_until = Some(now + pause);
                false
            }
            Cause::Unauthorized => health.refused_key.replace(now).is_none(),
            Cause::ModelMissing => health.lacks(model, now),
            _ => false,
        }
    }

    /// Something answers, or nothing answers any more, on a discovered target's port. Returns whether that is news.
    pub fn set_absent(&mut self, target: usize, absent: bool) -> bool {
        match self.targets.get_mut(target) {
            Some(health) => std::mem::replace(&mut health.absent, absent) != absent,
            None => false,
        }
    }
}

impl TargetHealth {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn store<const N: usize>(absent: [bool; N]) -> Store {
        Store::new(&Health::default(), 1, absent)
    }

    fn commit(store: &mut Store, target: usize, model: &str, now: Instant) {
        let ticket = store.begin(target, model, now).expect("it is asked");
        store.answered(&ticket, 10, None, now);
        assert_eq!(store.end(ticket, Ended::Well, now), []);
    }

    #[test]
    fn a_429_cools_down_as_told_within_bounds() {
        let now = crate::time::now();
        let mut store = store([false, false, false]);
        store.failed(0, "m", Cause::RateLimited, Some(Duration::from_secs(7)), now);
        store.failed(1, "m", Cause::RateLimited, None, now);
        store.failed(2, "m", Cause::RateLimited, Some(Duration::from_secs(1_000_000)), now);
        let until = |t| store.target(t).cooldown_until.map(|at| at - now);
        assert_eq!(until(0), Some(Duration::from_secs(7)));
        assert_eq!(until(1), Some(limits::COOLDOWN_DEFAULT));
        assert_eq!(until(2), Some(limits::COOLDOWN_MAX));
    }

    #[test]
    fn misconfigured_is_news_once_and_ends_with_a_commit() {
        let now = crate::time::now();
        let mut store = store([false]);
        assert!(store.failed(0, "m", Cause::Unauthorized, None, now));
        assert!(!store.failed(0, "m", Cause::Unauthorized, None, now));
        assert!(store.misconfigured(0, "other", now));
        commit(&mut store, 0, "other", now);
        assert!(!store.misconfigured(0, "m", now));
    }

    #[test]
    fn a_missing_model_is_missing_alone_and_not_for_ever() {
        let now = crate::time::now();
        let mut store = store([false]);
        assert!(store.failed(0, "typo", Cause::ModelMissing, None, now));
        assert!(!store.failed(0, "typo", Cause::ModelMissing, None, now));
        assert!(store.misconfigured(0, "typo", now));
        assert!(!store.misconfigured(0, "m", now), "other models are served as before");
        commit(&mut store, 0, "m", now);
        assert!(store.misconfigured(0, "typo", now), "another model's answer says nothing of this one");
        assert!(
            !store.misconfigured(0, "typo", now + limits::MISCONFIGURED_PAUSE),
            "it may have been pulled"
        );
        commit(&mut store, 0, "typo", now);
        assert!(!store.misconfigured(0, "typo", now));
    }

    #[test]
    fn clients_cannot_fill_memory_with_names() {
        let now = crate::time::now();
        let mut store = store([false]);
        for n in 0..limits::MISSING_MODELS_MAX + 3 {
            store.failed(0, &n.to_string(), Cause::ModelMissing, None, now);
        }
        assert_eq!(store.target(0).missing.len(), limits::MISSING_MODELS_MAX);
        assert!(store.misconfigured(0, "18", now) && !store.misconfigured(0, "0", now));
    }

    #[test]
    fn waiting_for_time_is_no_failure_and_ends_with_the_clock_a_connection_or_patience() {
        let now = crate::time::now();
        let mut store = store([false, false, false]);
        for target in 0..3 {
            assert!(store.waits_for_time(target, now));
            assert!(!store.waits_for_time(target, now), "told once");
            store.failed(target, "m", Cause::Clock, None, now);
            assert_eq!(store.target(target).failed, 0);
            assert!(store.comes_last(target, "m", now));
            assert!(!store.comes_last(target, "m", now + limits::CLOCK_PATIENCE));
        }
        commit(&mut store, 0, "m", now);
        store.reached(1);
        assert!(!store.comes_last(0, "m", now) && !store.comes_last(1, "m", now));
        assert_eq!(store.clock_was_set(), [2]);
        assert!(!store.comes_last(2, "m", now));
        assert_eq!(store.clock_was_set(), [0; 0]);
    }

    #[test]
    fn the_clients_own_ends_count_against_nobody() {
        let now = crate::time::now();
        let mut store = store([false]);
        for cause in [Cause::ClientGone, Cause::ClientFault, Cause::Cancelled, Cause::Draining] {
            store.failed(0, "m", cause, None, now);
        }
        assert_eq!(store.target(0).failed, 0);
        assert!(store.target(0).last_failure.is_none());
    }
}
