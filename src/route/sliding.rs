//! Counts over the last so many spans of time.

use std::time::{Duration, Instant};

/// `N` counts, each of one span of time; the newest is still being added to.
///
/// All `N` together reach back `N - 1` whole spans at least, the newest `N - 1` of them `N - 1` spans at most: a bound
/// on what happened in any `N - 1` spans adds up the former, a claim on what happened lately the latter.
#[derive(Clone, Debug)]
pub(super) struct Sliding<const N: usize> {
    span: Duration,
    /// When the newest began.
    began: Option<Instant>,
    /// The newest first.
    counts: [u64; N],
}

impl<const N: usize> Sliding<N> {
    /// Nothing counted. `span` is not zero.
    pub(super) const fn new(span: Duration) -> Self {
        Sliding { span, began: None, counts: [0; N] }
    }

    /// Counts `more`.
    pub(super) fn add(&mut self, more: u64, now: Instant) {
        self.move_on(now);
        if let Some(newest) = self.counts.first_mut() {
            *newest = newest.saturating_add(more);
        }
    }

    /// What all of them hold.
    pub(super) fn all(&mut self, now: Instant) -> u64 {
        self.newest(N, now)
    }

    /// What the newest `n` hold.
    pub(super) fn newest(&mut self, n: usize, now: Instant) -> u64 {
        self.move_on(now);
        self.counts.iter().take(n).fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// How long until they hold less than `bound` together, if nothing more comes; `None`: never.
    pub(super) fn below_in(&mut self, bound: u64, now: Instant) -> Option<Duration> {
        let mut left = self.all(now);
        if left < bound {
            return Some(Duration::ZERO);
        }
        let began = self.began?;
        for (spans, count) in (1_u32..).zip(self.counts.iter().rev()) {
            left = left.saturating_sub(*count);
            if left < bound {
                return Some((began + self.span * spans).saturating_duration_since(now));
            }
        }
        None
    }

    fn move_on(&mut self, now: Instant) {
        let Some(began) = self.began else {
            self.began = Some(now);
            return;
        };
        let passed = now.saturating_duration_since(began).as_nanos() / self.span.as_nanos();
        match u32::try_from(passed) {
            Ok(spans) if (spans as usize) < N => {
                self.counts.rotate_right(spans as usize);
                self.counts.iter_mut().take(spans as usize).for_each(|count| *count = 0);
                self.began = Some(began + self.span * spans);
            }
            _ => {
                self.counts = [0; N];
                self.began = Some(now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SPAN: Duration = Duration::from_secs(10);

    proptest! {
        #[test]
        fn it_holds_what_it_says(steps in prop::collection::vec((0..30_000_u64, 0..5_u64), 1..60)) {
            let mut now = crate::time::now();
            let mut sliding = Sliding::<7>::new(SPAN);
            let mut log = Vec::new();
            for (pause, more) in steps {
                now += Duration::from_millis(pause);
                sliding.add(more, now);
                log.push((now, more));
                let within = |minute: Duration| -> u64 {
                    log.iter().filter(|(at, _)| now.duration_since(*at) < minute).map(|(_, more)| more).sum()
                };
                prop_assert!(sliding.all(now) >= within(SPAN * 6));
                prop_assert!(sliding.all(now) <= within(SPAN * 7));
                prop_assert!(sliding.newest(6, now) <= within(SPAN * 6));
                prop_assert!(sliding.newest(6, now) >= within(SPAN * 5));
            }
            // What it promises comes true, and not before.
            for bound in 1..12 {
                let wait = sliding.below_in(bound, now).unwrap();
                prop_assert!(sliding.clone().all(now + wait) < bound);
                if !wait.is_zero() {
                    prop_assert!(sliding.clone().all(now + wait - Duration::from_nanos(1)) >= bound);
                }
            }
            prop_assert!(sliding.below_in(0, now).is_none());
        }
    }

    #[test]
    fn a_clock_that_goes_back_does_no_harm() {
        let now = crate::time::now() + SPAN * 100;
        let mut sliding = Sliding::<7>::new(SPAN);
        sliding.add(3, now);
        sliding.add(4, now - SPAN * 50);
        assert_eq!(sliding.all(now), 7);
        assert_eq!(sliding.all(now + SPAN * 10_000_000), 0);
    }
}
