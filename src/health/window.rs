//! A sliding window of outcomes: buckets of time, the oldest of which is forgotten.

use std::time::{Duration, Instant};

use crate::limits::WINDOW_BUCKETS;

/// Outcomes over the last while, weighted. Any order of times is taken: one before the newest counts as the newest.
#[derive(Clone, Debug)]
pub struct Window {
    width: Duration,
    buckets: [Counts; WINDOW_BUCKETS],
    newest: usize,
    /// When the newest bucket began.
    began: Option<Instant>,
}

/// Outcomes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// All of them, whatever their weight.
    pub samples: u32,
    /// Failures, in thousandths of a whole one.
    pub weight: u32,
}

impl Counts {
    /// The share of failures, in thousandths; 0 without samples.
    #[must_use]
    pub fn rate(self) -> u16 {
        let rate = self.weight.checked_div(self.samples).unwrap_or(0);
        u16::try_from(rate).unwrap_or(u16::MAX)
    }
}

impl Window {
    /// An empty one over `span`.
    #[must_use]
    pub fn new(span: Duration) -> Self {
        let buckets = u32::try_from(WINDOW_BUCKETS).unwrap_or(1);
        Window {
            width: (span / buckets).max(Duration::from_millis(1)),
            buckets: [Counts::default(); WINDOW_BUCKETS],
            newest: 0,
            began: None,
        }
    }

    /// Whether it is one over `span`.
    #[must_use]
    pub fn spans(&self, span: Duration) -> bool {
        self.width == Window::new(span).width
    }

    /// An outcome; its weight is 0 for a success.
    pub fn add(&mut self, weight: u16, now: Instant) {
        self.advance(now);
        if let Some(bucket) = self.buckets.get_mut(self.newest) {
            bucket.samples = bucket.samples.saturating_add(1);
            bucket.weight = bucket.weight.saturating_add(u32::from(weight));
        }
    }

    /// What happened within the window that ends with `now`.
    #[must_use]
    pub fn counts(&self, now: Instant) -> Counts {
        let gone = self.passed(now);
        let mut counts = Counts::default();
        for age in 0..WINDOW_BUCKETS.saturating_sub(gone) {
            let at = (self.newest + WINDOW_BUCKETS - age) % WINDOW_BUCKETS;
            if let Some(bucket) = self.buckets.get(at) {
                counts.samples = counts.samples.saturating_add(bucket.samples);
                counts.weight = counts.weight.saturating_add(bucket.weight);
            }
        }
        counts
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.buckets = [Counts::default(); WINDOW_BUCKETS];
        self.began = None;
    }

    /// How many buckets have passed since the newest began; more than there are is all of them.
    fn passed(&self, now: Instant) -> usize {
        let Some(began) = self.began else { return 0 };
        let passed = now.saturating_duration_since(began).as_nanos() / self.width.as_nanos();
        usize::try_from(passed).unwrap_or(usize::MAX).min(WINDOW_BUCKETS)
    }

    fn advance(&mut self, now: Instant) {
        let Some(began) = self.began else {
            self.began = Some(now);
            return;
        };
        if now < began {
            // The clock went back. What was counted stays, and ages from here on.
            self.began = Some(now);
            return;
        }
        let passed = self.passed(now);
        for _ in 0..passed {
            self.newest = (self.newest + 1) % WINDOW_BUCKETS;
            if let Some(bucket) = self.buckets.get_mut(self.newest) {
                *bucket = Counts::default();
            }
        }
        if passed == WINDOW_BUCKETS {
            self.began = Some(now);
        } else if let Ok(passed) = u32::try_from(passed) {
            self.began = began.checked_add(self.width * passed).or(Some(now));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn outcomes_leave_bucket_by_bucket() {
        let start = crate::time::now();
        let mut window = Window::new(secs(60));
        window.add(1000, start);
        window.add(0, start + secs(25));
        window.add(500, start + secs(59));
        let at = |after| window.counts(start + secs(after));
        assert_eq!(at(59), Counts { samples: 3, weight: 1500 });
        assert_eq!(at(59).rate(), 500);
        assert_eq!(at(60), Counts { samples: 2, weight: 500 });
        assert_eq!(at(79), Counts { samples: 2, weight: 500 });
        assert_eq!(at(80), Counts { samples: 1, weight: 500 });
        assert_eq!(at(110), Counts::default());
        assert_eq!(at(1_000_000), Counts::default());
        assert_eq!(Counts::default().rate(), 0);
    }

    proptest! {
        // Against a list of everything: nothing that is younger than the window less a bucket is forgotten, nothing
        // older than the window is kept.
        #[test]
        fn it_counts_what_is_in_it(steps in prop::collection::vec((0_u64..30_000, 0_u16..=1000), 1..80)) {
            let (start, mut at) = (crate::time::now(), 0);
            let mut window = Window::new(secs(60));
            let mut all = Vec::new();
            for (step, weight) in steps {
                at += step;
                window.add(weight, start + Duration::from_millis(at));
                all.push((at, u32::from(weight)));
                let sum = |within: u64| {
                    all.iter().filter(|(then, _)| at - then < within).map(|(_, weight)| weight).sum::<u32>()
                };
                let counts = window.counts(start + Duration::from_millis(at));
                prop_assert!(counts.weight >= sum(50_000), "{counts:?}");
                prop_assert!(counts.weight <= sum(60_000), "{counts:?}");
            }
        }

        #[test]
        fn any_clock_is_taken(times in prop::collection::vec(0_u64..10_000_000, 1..60)) {
            let start = crate::time::now();
            let mut window = Window::new(secs(60));
            for (added, at) in times.iter().enumerate() {
                let now = start + Duration::from_millis(*at);
                window.add(1000, now);
                let counts = window.counts(now);
                prop_assert!(counts.samples >= 1 && counts.samples as usize <= added + 1);
                prop_assert_eq!(counts.rate(), 1000);
            }
        }
    }
}
