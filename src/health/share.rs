//! Degradation: a target that fails now and then gets a smaller share, and gets it back.

use std::time::Instant;

use super::report::Change;
use super::window::{Counts, Window};
use crate::config::Degrade;
use crate::limits;

/// How much of its weight one (target, model) has left.
#[derive(Clone, Debug)]
pub struct Share {
    window: Window,
    /// In thousandths.
    share: u16,
    /// When it was last moved, or could have been.
    moved: Option<Instant>,
}

impl Default for Share {
    fn default() -> Self {
        Share { window: Window::new(limits::DEGRADE_WINDOW), share: 1000, moved: None }
    }
}

impl Share {
    /// In thousandths of its weight; never 0.
    #[must_use]
    pub fn get(&self, policy: &Degrade) -> u16 {
        if policy.enabled { self.share.max(1) } else { 1000 }
    }

    /// The outcomes of the last minute.
    #[must_use]
    pub fn counts(&self, now: Instant) -> Counts {
        self.window.counts(now)
    }

    /// An outcome; its weight is 0 for a success.
    pub fn add(&mut self, weight: u16, now: Instant) {
        self.window.add(weight, now);
    }

    /// Moves the share by one step, at most once in [`limits::DEGRADE_EVERY`]: down above `above`, up below `below`,
    /// not at all between. Too few samples don't take it down; but where none of them failed it comes back, since one
    /// with a small share may never see enough.
    pub fn evaluate(&mut self, policy: &Degrade, now: Instant) -> Option<Change> {
        let moved = *self.moved.get_or_insert(now);
        if !policy.enabled {
            self.share = 1000;
            return None;
        }
        if now < moved {
            self.moved = Some(now);
        }
        if now.saturating_duration_since(moved) < limits::DEGRADE_EVERY {
            return None;
        }
        self.moved = Some(now);
        let counts = self.window.counts(now);
        let enough = counts.samples >= limits::DEGRADE_MIN_SAMPLES;
        let least = policy.least.0.clamp(1, 1000);
        let before = self.share;
        if enough && counts.rate() > policy.above.0 {
            self.share = (before / 2).max(least);
        } else if counts.weight == 0 || (enough && counts.rate() < policy.below.0) {
            self.share = before.saturating_mul(2).min(1000);
        }
        match self.share {
            after if after < before => Some(Change::Degraded(after)),
            1000 if before < 1000 => Some(Change::Restored),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    /// A request each 500 ms for `secs`, of which each `nth` fails (0: none), and a look each second.
    fn run(share: &mut Share, at: &mut Instant, secs: u64, nth: u64) -> Vec<Change> {
        let mut changes = Vec::new();
        for n in 1..=secs * 2 {
            *at += Duration::from_millis(500);
            share.add(if nth > 0 && n % nth == 0 { 1000 } else { 0 }, *at);
            changes.extend(share.evaluate(&Degrade::default(), *at));
        }
        changes
    }

    #[test]
    fn it_falls_above_five_percent_and_returns_below_two() {
        let (mut share, mut at) = (Share::default(), crate::time::now());
        assert_eq!(run(&mut share, &mut at, 120, 0), []);
        // 10 %: down to the least, and no further.
        let down = run(&mut share, &mut at, 180, 10);
        assert_eq!(down, [500, 250, 125, 100].map(Change::Degraded));
        // 3.3 %: between the two, neither.
        run(&mut share, &mut at, 60, 30);
        let between = share.get(&Degrade::default());
        assert_eq!(run(&mut share, &mut at, 180, 30), []);
        assert_eq!(share.get(&Degrade::default()), between);
        // 1 %: back, in steps, and told once.
        assert_eq!(run(&mut share, &mut at, 200, 100), [Change::Restored]);
        assert_eq!(share.get(&Degrade::default()), 1000);
    }

    #[test]
    fn one_failure_among_a_few_costs_nothing_and_silence_restores() {
        let (mut share, start) = (Share::default(), crate::time::now());
        for n in 0..600_u64 {
            let at = start + Duration::from_secs(n);
            if n % 10 == 0 {
                share.add(if n == 60 { 1000 } else { 0 }, at);
            }
            assert_eq!(share.evaluate(&Degrade::default(), at), None);
        }
        let mut at = start + Duration::from_secs(600);
        run(&mut share, &mut at, 90, 3);
        assert!(share.get(&Degrade::default()) < 500);
        let quiet = (0..300).filter_map(|n| share.evaluate(&Degrade::default(), at + Duration::from_secs(n)));
        assert_eq!(quiet.collect::<Vec<_>>(), [Change::Restored]);
    }

    proptest! {
        // Whatever happens: never 0, never below the least, and each step is one that the window allows.
        #[test]
        fn each_step_has_its_reason(
            steps in prop::collection::vec((0_u64..20_000, prop_oneof![3 => Just(0_u16), 1 => 1_u16..=1000]), 1..300),
        ) {
            let (mut share, mut at) = (Share::default(), crate::time::now());
            let policy = Degrade::default();
            for (step, weight) in steps {
                at += Duration::from_millis(step);
                share.add(weight, at);
                let (before, counts) = (share.get(&policy), share.counts(at));
                share.evaluate(&policy, at);
                let after = share.get(&policy);
                prop_assert!(after >= policy.least.0 && after <= 1000);
                if after < before {
                    prop_assert!(counts.rate() > policy.above.0 && counts.samples >= limits::DEGRADE_MIN_SAMPLES);
                    prop_assert!(after >= before / 2);
                }
                if after > before {
                    prop_assert!(counts.rate() < policy.below.0);
                    prop_assert!(after <= before * 2);
                }
            }
        }
    }
}
