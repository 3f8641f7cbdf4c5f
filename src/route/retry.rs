//! Retries: what may be tried again at the same target, after which wait, and how many at most.

use std::time::{Duration, Instant};

use super::sliding::Sliding;
use crate::cause::Cause;
use crate::config::{Permille, Retry};
use crate::limits;

/// Each count of [`RetryBudget`] is of this.
const SPAN: Duration = Duration::from_secs(1);
/// Counts in a window.
const SPANS: usize = 10;
const _: () = assert!(SPAN.as_secs() * SPANS as u64 == limits::RETRY_WINDOW.as_secs());

/// What keeps a storm from being amplified: of all requests of the last [`limits::RETRY_WINDOW`] only a share may be
/// tried again. One for the process.
///
/// In any such window there are no more retries than that share of its requests, or [`limits::RETRY_FLOOR`].
#[derive(Debug)]
pub struct RetryBudget {
    requests: Sliding<{ SPANS + 1 }>,
    retries: Sliding<{ SPANS + 1 }>,
}

impl Default for RetryBudget {
    fn default() -> Self {
        RetryBudget { requests: Sliding::new(SPAN), retries: Sliding::new(SPAN) }
    }
}

impl RetryBudget {
    /// A client's request came. Retries and failovers of it are not told.
    pub fn request(&mut self, now: Instant) {
        self.requests.add(1, now);
    }

    /// Takes one retry, if one is left; it counts from here on. A share of 0 allows none at all.
    #[must_use]
    pub fn take(&mut self, share: Permille, now: Instant) -> bool {
        let granted = share.0 > 0 && self.retries.all(now) < self.allowed(share, now);
        if granted {
            self.retries.add(1, now);
        }
        granted
    }

    fn allowed(&mut self, share: Permille, now: Instant) -> u64 {
        let requests = self.requests.newest(SPANS, now);
        (requests.saturating_mul(u64::from(share.0)) / 1000).max(limits::RETRY_FLOOR)
    }
}

/// The wait before the `nth` retry of a request, from 1: `retry.backoff`, twice that, and so on, and up to
/// `retry.jitter` more, which `seed` decides: any number that differs from request to request.
#[must_use]
pub fn backoff(nth: u32, retry: &Retry, seed: u64) -> Duration {
    let doubled = 1_u32.checked_shl(nth.saturating_sub(1)).unwrap_or(u32::MAX);
    let jitter = retry.jitter.as_nanos() + 1;
    let added = (u128::from(mixed(seed ^ u64::from(nth))) * jitter) >> 64;
    retry
        .backoff
        .saturating_mul(doubled)
        .saturating_add(Duration::from_nanos(u64::try_from(added).unwrap_or(u64::MAX)))
}

/// How long to wait before a retry after `cause`: the back-off, after what the target asked for in `Retry-After`, so that
/// those who were told the same time do not come back together. Of a 429 that names none its cool-down is waited for:
/// nobody is let through before. `None`: no retry: it would not help, or the target wants a longer pause than
/// [`limits::RETRY_WAIT_MAX`], which its client had better be told.
#[must_use]
pub fn wait_for(cause: Cause, retry_after: Option<Duration>, backoff: Duration) -> Option<Duration> {
    if !cause.retryable() {
        return None;
    }
    let unnamed = if matches!(cause, Cause::RateLimited) { limits::COOLDOWN_DEFAULT } else { Duration::ZERO };
    let asked = retry_after.unwrap_or(unnamed);
    (asked <= limits::RETRY_WAIT_MAX).then(|| asked.saturating_add(backoff))
}

/// Spreads any number over all 64 bits: the finalizer of SplitMix64, so that neighbours have nothing in common.
const fn mixed(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    proptest! {
        #[test]
        fn a_storm_is_not_amplified(
            share in 0..=1000_u16,
            steps in prop::collection::vec((prop_oneof![Just(0), 0..3000_u64], any::<bool>()), 1..400),
        ) {
            let mut now = crate::time::now();
            let mut budget = RetryBudget::default();
            let (mut requests, mut retries) = (Vec::new(), Vec::new());
            for (pause, request) in steps {
                now += MS(pause);
                if request {
                    budget.request(now);
                    requests.push(now);
                } else if budget.take(Permille(share), now) {
                    retries.push(now);
                    let lately = |all: &[Instant]| {
                        all.iter().filter(|at| now.duration_since(**at) < limits::RETRY_WINDOW).count() as u64
                    };
                    let bound = (lately(&requests) * u64::from(share) / 1000).max(limits::RETRY_FLOOR);
                    prop_assert!(lately(&retries) <= bound, "{} of {bound}", lately(&retries));
                    prop_assert!(share > 0);
                }
            }
        }

        #[test]
        fn the_wait_is_the_back_off_and_some_jitter(nth in 1..=2_u32, seed in any::<u64>()) {
            let wait = backoff(nth, &Retry::default(), seed);
            let least = MS(if nth == 1 { 200 } else { 400 });
            prop_assert!(wait >= least && wait <= least + MS(50), "{wait:?}");
            prop_assert_eq!(wait, backoff(nth, &Retry::default(), seed));
        }

        #[test]
        fn no_figures_overflow(nth in any::<u32>(), backoff_s in 0..86_400_u64, jitter_s in 0..86_400_u64, seed in any::<u64>()) {
            let secs = Duration::from_secs;
            let retry = Retry { backoff: secs(backoff_s), jitter: secs(jitter_s), ..Retry::default() };
            prop_assert!(backoff(nth, &retry, seed) >= retry.backoff);
        }
    }

    #[test]
    fn a_healthy_share_is_granted() {
        let now = crate::time::now();
        let mut budget = RetryBudget::default();
        let granted =
            |budget: &mut RetryBudget, now| (0..500).filter(|_| budget.take(Permille(200), now)).count();
        assert_eq!(granted(&mut budget, now), 2, "the floor, when nobody asked");
        (0..100).for_each(|_| budget.request(now));
        assert_eq!(granted(&mut budget, now), 18, "20 % of 100, with the two from before");
        assert_eq!(granted(&mut budget, now + MS(9500)), 0);
        assert_eq!(granted(&mut budget, now + MS(11_000)), 2, "all forgotten, but for the floor");
    }

    #[test]
    fn neighbouring_seeds_spread_over_the_jitter() {
        let waits: Vec<_> = (0..100).map(|seed| backoff(1, &Retry::default(), seed)).collect();
        let below = waits.iter().filter(|wait| **wait < MS(225)).count();
        assert!((30..70).contains(&below), "{below} of 100 in the lower half");
    }

    #[test]
    fn a_target_that_names_a_pause_gets_it() {
        let secs = Duration::from_secs;
        for (cause, asked, wait) in [
            (Cause::RateLimited, None, Some(MS(5200))),
            (Cause::RateLimited, Some(Duration::ZERO), Some(MS(200))),
            (Cause::RateLimited, Some(secs(2)), Some(MS(2200))),
            (Cause::RateLimited, Some(secs(60)), None),
            (Cause::Overloaded, Some(secs(1)), Some(MS(1200))),
            (Cause::Http5xx, None, Some(MS(200))),
            (Cause::Oom, None, None),
            (Cause::ClientFault, Some(secs(1)), None),
        ] {
            assert_eq!(wait_for(cause, asked, MS(200)), wait, "{cause} {asked:?}");
        }
    }
}
