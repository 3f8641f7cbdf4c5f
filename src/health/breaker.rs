//! The breaker of one (target, model): closed, open, half open, and its share on the way back.

use std::time::{Duration, Instant};

use super::jitter::jitter;
use super::report::{Change, Why};
use super::window::{Counts, Window};
use crate::cause::Cause;
use crate::config::Breaker as Policy;
use crate::limits;

/// Passive: it knows what attempts tell it, and never asks anybody itself.
#[derive(Clone, Debug)]
pub struct Breaker {
    phase: Phase,
    window: Window,
    /// The weights of the failures before a first token, since the last first token. A stream that began before them
    /// and ends well in their midst says nothing of now.
    run: u32,
    /// The weights of the failures after a first token, since a stream last ended well.
    broken: u32,
    /// The last rest without its jitter; `None`: none, or forgotten.
    rest: Option<Duration>,
    /// Counts up with each opening and closing: who began before says nothing about what came after.
    generation: u32,
    /// When a request was last let through in its rest, since nobody else was left to ask, and whether its first token is
    /// waited for.
    last_resort: Option<(Instant, bool)>,
    /// What it last opened for.
    cause: Cause,
    seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Asked. `recovering`: it was open before.
    Closed { since: Option<Instant>, recovering: bool },
    /// At rest until then, and for this long in all.
    Open { until: Instant, rest: Duration },
    /// Its rest is over; this many trials are under way.
    HalfOpen { trials: u32 },
}

/// What a breaker says to one more request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// Yes.
    Fit,
    /// Yes, as a trial, after what it last opened for.
    Trial(Cause),
    /// No.
    Shut(Why),
}

/// An attempt's place at its breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pass {
    generation: u32,
    /// It is a half-open breaker's trial.
    pub trial: bool,
    /// It is let through in the target's rest, or beside its trials, since nobody else was left to ask.
    pub last_resort: bool,
    /// Its first token came.
    pub spoke: bool,
}

impl Pass {
    /// The same, having spoken or not.
    #[must_use]
    pub const fn having(self, spoke: bool) -> Self {
        Pass { spoke, ..self }
    }
}

/// How an attempt ended, for its breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The stream ended well.
    Well,
    /// It failed: the cause, and its weight above 0.
    Failed(Cause, u16),
    /// It says nothing of the target.
    Neutral,
}

impl Breaker {
    /// A closed one. `seed` decides its jitter.
    #[must_use]
    pub fn new(policy: &Policy, seed: u64) -> Self {
        Breaker {
            phase: Phase::Closed { since: None, recovering: false },
            window: Window::new(policy.window),
            run: 0,
            broken: 0,
            rest: None,
            generation: 0,
            last_resort: None,
            cause: Cause::Internal,
            seed,
        }
    }

    /// The same under a changed policy, without the attempts that are under way.
    #[must_use]
    pub fn renewed(&self, policy: &Policy) -> Self {
        let mut renewed = self.clone();
        if !renewed.window.spans(policy.window) {
            renewed.window = Window::new(policy.window);
        }
        renewed.end_last_resort();
        if let Phase::HalfOpen { trials } = &mut renewed.phase {
            *trials = 0;
        }
        renewed
    }

    /// What it says to one more request.
    #[must_use]
    pub fn gate(&self, policy: &Policy, now: Instant) -> Gate {
        match self.phase {
            _ if !policy.enabled => Gate::Fit,
            Phase::Closed { .. } => Gate::Fit,
            Phase::Open { until, rest } => match until.saturating_duration_since(now).min(rest) {
                Duration::ZERO => Gate::Trial(self.cause),
                left => Gate::Shut(Why::Open(left, self.cause)),
            },
            Phase::HalfOpen { trials } if trials < policy.trials.max(1) => Gate::Trial(self.cause),
            Phase::HalfOpen { .. } => Gate::Shut(Why::HalfOpen(self.cause)),
        }
    }

    /// An attempt begins.
    ///
    /// # Errors
    /// It must not: the rest is not over, or as many trials as there may be are under way.
    pub fn begin(&mut self, policy: &Policy, now: Instant) -> Result<Pass, Why> {
        self.look(now);
        let trial = match self.gate(policy, now) {
            Gate::Fit => false,
            Gate::Trial(_) => true,
            Gate::Shut(why) => return Err(why),
        };
        if trial {
            self.phase = match self.phase {
                Phase::HalfOpen { trials } => Phase::HalfOpen { trials: trials + 1 },
                Phase::Closed { .. } | Phase::Open { .. } => Phase::HalfOpen { trials: 1 },
            };
        }
        Ok(Pass { generation: self.generation, trial, last_resort: false, spoke: false })
    }

    /// An attempt begins although the target rests or its trials are under way, which may be long streams: nobody else
    /// is left to ask, and one request that fails costs its client nothing more. One at a time until its first token,
    /// and one in [`limits::LAST_RESORT_PAUSE`]; it is a trial if it succeeds, and changes nothing if it does not.
    ///
    /// # Errors
    /// Another one is under way or was a moment ago.
    pub fn begin_last_resort(&mut self, policy: &Policy, now: Instant) -> Result<Pass, Why> {
        match self.begin(policy, now) {
            Err(Why::Open(..) | Why::HalfOpen(_)) if self.may_last_resort(now) => {}
            decided => return decided,
        }
        self.last_resort = Some((now, true));
        Ok(Pass { generation: self.generation, trial: false, last_resort: true, spoke: false })
    }

    fn end_last_resort(&mut self) {
        self.last_resort = self.last_resort.map(|(at, _)| (at, false));
    }

    /// A `now` before the last one is as good as none.
    fn may_last_resort(&self, now: Instant) -> bool {
        self.last_resort.is_none_or(|(at, under_way)| {
            !under_way && (now < at || now.saturating_duration_since(at) >= limits::LAST_RESORT_PAUSE)
        })
    }

    /// The attempt's first token came: the target is alive, whatever becomes of the stream.
    pub fn spoke(&mut self, pass: Pass) {
        if pass.generation == self.generation {
            self.run = 0;
            if pass.last_resort {
                self.end_last_resort();
            }
        }
    }

    /// An attempt has ended. Returns what became of the breaker.
    pub fn end(&mut self, policy: &Policy, pass: Pass, verdict: Verdict, now: Instant) -> Option<Change> {
        if pass.generation != self.generation {
            return None;
        }
        // One that spoke was told of, and the next one may be under way by now.
        if pass.last_resort && !pass.spoke {
            self.end_last_resort();
        }
        match (self.phase, verdict) {
            (Phase::HalfOpen { trials }, Verdict::Neutral) if pass.trial => {
                self.phase = Phase::HalfOpen { trials: trials.saturating_sub(1) };
                None
            }
            (Phase::HalfOpen { .. }, Verdict::Well) if pass.trial => self.close(now),
            (Phase::Open { .. } | Phase::HalfOpen { .. }, Verdict::Well) if pass.last_resort => {
                self.close(now)
            }
            (Phase::HalfOpen { .. }, Verdict::Failed(cause, weight)) if pass.trial => {
                Some(self.open(policy, cause, weight, now))
            }
            (Phase::Closed { .. }, Verdict::Well) => {
                self.window.add(0, now);
                self.broken = 0;
                if !pass.spoke {
                    self.run = 0;
                }
                None
            }
            (Phase::Closed { .. }, Verdict::Failed(cause, weight)) if policy.enabled => {
                self.window.add(weight, now);
                if weight >= limits::BREAKER_RUN_WEIGHT {
                    let run = if pass.spoke { &mut self.broken } else { &mut self.run };
                    *run = run.saturating_add(u32::from(weight));
                }
                self.has_reason(policy, now).then(|| self.open(policy, cause, weight, now))
            }
            (Phase::Closed { .. } | Phase::Open { .. } | Phase::HalfOpen { .. }, _) => None,
        }
    }

    /// It has failed for all to see, whatever its window says: it opens, or rests anew.
    pub fn fail(&mut self, policy: &Policy, cause: Cause, now: Instant) -> Change {
        self.open(policy, cause, limits::FAILURE_WEIGHT, now)
    }

    /// Something says that the target is up again: a rest is over now, and the next request is a trial.
    pub fn end_rest(&mut self) {
        if let Phase::Open { .. } = self.phase {
            self.phase = Phase::HalfOpen { trials: 0 };
        }
    }

    /// In thousandths of its weight: less than all of it for a while after it has closed. Never 0.
    #[must_use]
    pub fn share(&self, policy: &Policy, now: Instant) -> u16 {
        let whole = limits::FAILURE_WEIGHT;
        match self.phase {
            Phase::Closed { since: Some(since), recovering: true } if policy.enabled => {
                let step = policy.recovery / u32::try_from(limits::RECOVERY_STEPS.len()).unwrap_or(1);
                let passed = now.saturating_duration_since(since).as_nanos().checked_div(step.as_nanos());
                let passed =
                    passed.map_or(usize::MAX, |passed| usize::try_from(passed).unwrap_or(usize::MAX));
                limits::RECOVERY_STEPS.get(passed).copied().unwrap_or(whole)
            }
            Phase::Closed { .. } | Phase::Open { .. } | Phase::HalfOpen { .. } => whole,
        }
    }

    /// While its share returns: since when.
    #[must_use]
    pub fn back_since(&self, policy: &Policy, now: Instant) -> Option<Instant> {
        match self.phase {
            Phase::Closed { since, .. } if self.share(policy, now) < limits::FAILURE_WEIGHT => since,
            Phase::Closed { .. } | Phase::Open { .. } | Phase::HalfOpen { .. } => None,
        }
    }

    /// What it counted over its window.
    #[must_use]
    pub fn counts(&self, now: Instant) -> Counts {
        self.window.counts(now)
    }

    /// Its state in a word, for `status` and metrics.
    #[must_use]
    pub fn state(&self, policy: &Policy, now: Instant) -> &'static str {
        match (self.phase, self.gate(policy, now)) {
            (Phase::Open { .. }, Gate::Shut(_)) => "open",
            (Phase::Open { .. } | Phase::HalfOpen { .. }, _) if policy.enabled => "half_open",
            (Phase::Closed { .. }, _) if self.share(policy, now) < limits::FAILURE_WEIGHT => "recovering",
            _ => "closed",
        }
    }

    /// Whether it is closed with all of its share.
    #[must_use]
    pub fn is_well(&self, policy: &Policy, now: Instant) -> bool {
        self.state(policy, now) == "closed"
    }

    fn has_reason(&self, policy: &Policy, now: Instant) -> bool {
        let whole = u32::from(limits::FAILURE_WEIGHT);
        // One that comes back is forgiven less. Not nothing: one that fails now and then would never be back.
        let recovering = self.share(policy, now) < limits::FAILURE_WEIGHT;
        let most = if recovering { limits::BREAKER_RECOVERING_RUN } else { u32::MAX };
        let consecutive = policy.consecutive.clamp(1, most);
        let counts = self.window.counts(now);
        self.run.max(self.broken) >= consecutive.saturating_mul(whole)
            || (counts.samples >= policy.min_samples.max(1) && counts.rate() >= policy.failure_rate.0.max(1))
    }

    fn close(&mut self, now: Instant) -> Option<Change> {
        self.phase = Phase::Closed { since: Some(now), recovering: true };
        self.fresh();
        self.window.add(0, now);
        Some(Change::Closed)
    }

    /// Twice as long as the last time; as long, after what is no whole failure: a server that is full or loading
    /// comes back soon.
    fn open(&mut self, policy: &Policy, cause: Cause, weight: u16, now: Instant) -> Change {
        if let Phase::Closed { since: Some(since), .. } = self.phase {
            let long = self.rest.map_or(limits::BREAKER_FORGET, |rest| rest.max(limits::BREAKER_FORGET));
            if now.saturating_duration_since(since) >= long {
                self.rest = None;
            }
        }
        let rest = match self.rest {
            None => policy.cooldown,
            Some(rest) if weight >= limits::FAILURE_WEIGHT => rest.saturating_mul(2),
            Some(rest) => rest,
        };
        let rest = rest.min(policy.cooldown_max);
        self.rest = Some(rest);
        self.fresh();
        let rest = rest + jitter(self.seed, u64::from(self.generation), rest, limits::BREAKER_JITTER);
        self.cause = cause;
        // Beyond the clock's end is not a time: at once then.
        self.phase = Phase::Open { until: now.checked_add(rest).unwrap_or(now), rest };
        Change::Opened(rest, cause)
    }

    fn fresh(&mut self) {
        self.generation = self.generation.wrapping_add(1);
        self.last_resort = None;
        self.run = 0;
        self.broken = 0;
        self.window.clear();
    }

    /// A clock that went back makes no rest and no recovery longer than it is.
    fn look(&mut self, now: Instant) {
        match &mut self.phase {
            Phase::Open { until, rest } if until.saturating_duration_since(now) > *rest => {
                *until = now.checked_add(*rest).unwrap_or(now);
            }
            Phase::Closed { since: Some(since), .. } => *since = now.min(*since),
            Phase::Closed { .. } | Phase::Open { .. } | Phase::HalfOpen { .. } => {}
        }
    }
}

#[cfg(test)]
#[path = "breaker_tests.rs"]
mod tests;
