//! Whose turn it is among one request's candidates: each in its order, and some of them again.
//!
//! Pure: failures and times in, a decision out. Failover is at once. A retry waits for its back-off, counted from the
//! candidate's own last failure, and for the time that the target named, if it named one.

use std::time::{Duration, Instant};

use crate::cause::Cause;
use crate::config::{Retry, RetryFirst};
use crate::route::Candidate;
use crate::route::retry::{backoff, wait_for};

/// What is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// This candidate, which was not asked yet.
    First(usize),
    /// This one again, then.
    Again(usize, Instant),
    /// Nobody is left.
    Nobody,
}

/// What has become of each candidate.
#[derive(Debug)]
pub struct Turns {
    policy: Retry,
    /// Decides every jitter.
    seed: u64,
    /// All before this one were asked, or passed over.
    fresh: usize,
    past: Vec<Past>,
    /// The budget has refused: nobody is asked again.
    denied: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Past {
    retries: u32,
    /// When it may be asked again, where that may help.
    ready: Option<Instant>,
    /// It named that time itself, or its cool-down is waited for.
    named: bool,
}

impl Turns {
    /// Nobody was asked yet, of `candidates`.
    #[must_use]
    pub fn new(policy: Retry, seed: u64, candidates: usize) -> Self {
        Turns { policy, seed, fresh: 0, past: vec![Past::default(); candidates], denied: false }
    }

    /// The same for another number of candidates, of whom nobody was asked yet.
    #[must_use]
    pub fn renewed(&self, candidates: usize) -> Self {
        Turns::new(self.policy.clone(), self.seed, candidates)
    }

    /// From this candidate on none was asked yet.
    #[must_use]
    pub fn fresh(&self) -> usize {
        self.fresh
    }

    /// The candidate is asked.
    pub fn asked(&mut self, n: usize) {
        if n >= self.fresh {
            self.fresh = n + 1;
        } else if let Some(past) = self.past.get_mut(n) {
            past.retries += 1;
            past.ready = None;
        }
    }

    /// It failed; `wait` is what it asked for itself.
    pub fn failed(&mut self, n: usize, most: u32, cause: Cause, wait: Option<Duration>, now: Instant) {
        let Some(past) = self.past.get_mut(n) else { return };
        past.named = wait.is_some() || cause == Cause::RateLimited;
        past.ready = None;
        if past.retries < most {
            let seed = self.seed ^ ((n as u64) << 32);
            let backoff = backoff(past.retries + 1, &self.policy, seed);
            past.ready = wait_for(cause, wait, backoff).and_then(|wait| now.checked_add(wait));
        }
    }

    /// The budget refused a retry.
    pub fn deny(&mut self) {
        self.denied = true;
    }

    /// Who is next after `last` failed, of those that fit; nobody after `total`.
    #[must_use]
    pub fn next(
        &self,
        last: Option<usize>,
        candidates: &[Candidate],
        fits: impl Fn(&Candidate) -> bool,
        total: Instant,
        now: Instant,
    ) -> Turn {
        let mut fresh = candidates.iter().enumerate().skip(self.fresh);
        let fresh = fresh.find(|(_, candidate)| fits(candidate)).map(|(n, _)| n);
        let again = |n: usize| {
            let past = self.past.get(n).filter(|_| !self.denied)?;
            let at = past.ready?.max(now);
            (at < total && candidates.get(n).is_some_and(&fits)).then_some((at, n, past.named))
        };
        let same = last.and_then(again).filter(|_| self.policy.first == RetryFirst::Retry);
        match (fresh, same) {
            // One that names a time is left for it while somebody else is there.
            (Some(n), None | Some((_, _, true))) => Turn::First(n),
            (_, Some((at, n, _))) => Turn::Again(n, at),
            (None, None) => match (0..candidates.len()).filter_map(again).min() {
                Some((at, n, _)) => Turn::Again(n, at),
                None => Turn::Nobody,
            },
        }
    }
}
