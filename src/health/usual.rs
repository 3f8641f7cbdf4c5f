//! What is usual for a (target, model): learned from its own past, quick to follow what is better, slow to follow
//! what is worse.
//!
//! A prompt's time to first token grows with its length, so each octave of lengths has an expected time of its own,
//! and what lies between two is on the line between them: the base and the slope there. Nothing is assumed about
//! the curve's form. What is learned is a time that nearly all answers are within (the second slowest of 10 to 20),
//! not the middle: where a prefix cache makes most answers ten times faster than the rest, the rest is usual too; and
//! one cold load in twenty changes nothing.

use std::time::{Duration, Instant};

use crate::limits;

/// The expected time of one kind of sample.
#[derive(Clone, Debug, Default)]
pub struct Expected {
    /// Microseconds; 0: not known yet.
    micros: f32,
    /// The mean prompt of the first samples, in tokens.
    tokens: f32,
    /// The first samples, (microseconds, tokens).
    first: [(f32, f32); limits::USUAL_FIRST],
    /// Samples since the last move; of the first ones, until it is known.
    count: u8,
    /// The two largest ratios to what was expected since the last move.
    top: [f32; 2],
    moves: u8,
    /// When it was first known, and last moved.
    times: Option<(Instant, Instant)>,
    believed: bool,
}

impl Expected {
    /// What is expected, in microseconds, once it is believed.
    #[must_use]
    pub fn believed(&self) -> Option<f32> {
        self.believed.then_some(self.micros)
    }

    /// For a prompt of this many tokens, of which all may be work.
    fn stretched(&self, tokens: f32) -> f32 {
        self.micros * (tokens / self.tokens).max(1.0)
    }

    /// A sample from a target that is well.
    #[expect(clippy::cast_precision_loss, reason = "seven digits are enough")]
    pub fn learn(&mut self, tokens: u64, took: Duration, now: Instant) {
        let (took, tokens) = ((took.as_micros() as f32).max(1.0), (tokens as f32).max(1.0));
        let Some((known, moved)) = self.times else {
            self.begin(tokens, took, now);
            return;
        };
        let ratio = took / self.stretched(tokens);
        if ratio > self.top[0] {
            self.top = [ratio, self.top[0]];
        } else {
            self.top[1] = self.top[1].max(ratio);
        }
        self.count = self.count.saturating_add(1);
        let passed = now.saturating_duration_since(moved);
        let some = self.count >= limits::USUAL_SAMPLES_MIN && passed >= limits::LATENCY_SLICE;
        if self.count < limits::USUAL_SAMPLES && !some {
            return;
        }
        let minutes = (passed.as_secs_f32() / 60.0).min(limits::USUAL_MINUTES_MAX);
        let (least, most) = match self.believed {
            true => (1.0 - limits::USUAL_FASTER * minutes, 1.0 + limits::USUAL_SLOWER * minutes),
            false => (limits::USUAL_FASTER_YOUNG, f32::INFINITY),
        };
        // The second largest: one cold load is no measure.
        let factor = self.top[1].max(least).min(most);
        self.micros = (self.micros * factor).max(1.0);
        self.moves = self.moves.saturating_add(1);
        let age = now.saturating_duration_since(known);
        self.believed |= self.moves >= limits::USUAL_MOVES && age >= limits::USUAL_AGE;
        self.again(known, now);
    }

    /// The samples since the last move are forgotten: the target was not well.
    pub fn drop_samples(&mut self, now: Instant) {
        if let Some((known, _)) = self.times {
            self.again(known, now);
        }
    }

    fn again(&mut self, known: Instant, now: Instant) {
        self.times = Some((known, now));
        self.count = 0;
        self.top = [0.0; 2];
    }

    fn begin(&mut self, tokens: f32, took: f32, now: Instant) {
        if let Some(first) = self.first.get_mut(usize::from(self.count)) {
            *first = (took, tokens);
        }
        self.count += 1;
        if usize::from(self.count) < self.first.len() {
            return;
        }
        let below = |took: f32| self.first.iter().filter(|(other, _)| *other < took).count();
        let middle = self.first.len() / 2;
        // The middle one of few: as many are below it as may be. Equal ones lie beside each other.
        let median = self.first.iter().map(|(took, _)| *took).filter(|took| below(*took) <= middle);
        self.micros = median.fold(0.0, f32::max);
        self.tokens = self.first.iter().map(|(_, tokens)| tokens).sum::<f32>() / f32::from(self.count);
        self.again(now, now);
    }
}

/// The expected time to first token for each length of prompt.
#[derive(Clone, Debug, Default)]
pub struct Usual {
    classes: [Expected; limits::USUAL_CLASSES],
}

impl Usual {
    /// A first token from a target that is well.
    pub fn learn(&mut self, tokens: u64, took: Duration, now: Instant) {
        if let Some(class) = self.classes.get_mut(class(tokens)) {
            class.learn(tokens, took, now);
        }
    }

    /// See [`Expected::drop_samples`].
    pub fn drop_samples(&mut self, now: Instant) {
        self.classes.iter_mut().for_each(|class| class.drop_samples(now));
    }

    /// What is usual for a prompt of this many tokens, in microseconds, and whether it may be judged by: where
    /// some classes are believed the others have no say. `None`: nothing is known yet.
    ///
    /// Above the longest known prompts all of the time is taken to be work on the prompt, below the shortest none:
    /// both say rather too much than too little.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "seven digits are enough")]
    pub fn predict(&self, tokens: u64) -> Option<(f32, bool)> {
        let tokens = (tokens as f32).max(1.0);
        let believed = self.classes.iter().any(|class| class.believed);
        let known = || self.classes.iter().filter(|class| class.micros > 0.0 && class.believed == believed);
        let below = known().rev().find(|class| class.tokens <= tokens);
        let above = known().find(|class| class.tokens > tokens);
        let micros = match (below, above) {
            (Some(low), Some(high)) => {
                let part = (tokens - low.tokens) / (high.tokens - low.tokens);
                low.micros + (high.micros - low.micros) * part
            }
            (Some(low), None) => low.stretched(tokens),
            (None, Some(high)) => high.micros,
            (None, None) => return None,
        };
        Some((micros, believed))
    }
}

/// By octaves, from 256 tokens on.
fn class(tokens: u64) -> usize {
    let octave = tokens.max(128).ilog2() - 7;
    usize::try_from(octave).unwrap_or(usize::MAX).min(limits::USUAL_CLASSES - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// `minutes` of a request each 6 s that takes what `took` says.
    fn run(usual: &mut Usual, at: &mut Instant, minutes: u64, mut took: impl FnMut(u64) -> (u64, Duration)) {
        for n in 0..minutes * 10 {
            *at += Duration::from_secs(6);
            let (tokens, took) = took(n);
            usual.learn(tokens, took, *at);
        }
    }

    fn predicted(usual: &Usual, tokens: u64) -> f32 {
        usual.predict(tokens).expect("it is known").0 / 1000.0
    }

    #[test]
    fn base_and_slope_are_found() {
        let (mut usual, mut at) = (Usual::default(), crate::time::now());
        assert_eq!(usual.predict(10), None);
        run(&mut usual, &mut at, 60, |n| {
            let tokens = 100 + (n * 7919) % 12_000;
            (tokens, millis(200 + tokens / 4))
        });
        // Of the shorter ones there were too few: they are judged like those above them.
        let said = predicted(&usual, 50);
        assert!(said > 212.0 && said < 1000.0, "{said}");
        for tokens in [1000, 3000, 9000, 12_000] {
            let (is, said) = (200.0 + tokens as f32 / 4.0, predicted(&usual, tokens));
            assert!(said > is * 0.7 && said < is * 1.5, "{tokens}: {is} {said}");
        }
        assert!(usual.predict(100_000).is_some_and(|(_, judged)| judged), "generously");
        assert!(predicted(&usual, 100_000) > 20_000.0);
    }

    #[test]
    fn it_is_not_judged_by_before_minutes_have_passed() {
        let (mut usual, mut at) = (Usual::default(), crate::time::now());
        for _ in 0..200 {
            at += millis(100);
            usual.learn(100, millis(200), at);
        }
        assert_eq!(usual.predict(100).map(|(_, judged)| judged), Some(false));
        run(&mut usual, &mut at, 4, |_| (100, millis(200)));
        assert_eq!(usual.predict(100).map(|(_, judged)| judged), Some(true));
    }

    #[test]
    fn cold_loads_do_not_become_usual() {
        let (mut usual, mut at) = (Usual::default(), crate::time::now());
        // Two of the first three, and then one in thirty.
        let cold = |n| n < 2 || n % 30 == 0;
        run(&mut usual, &mut at, 60, |n| (100, millis(if cold(n) { 20_000 } else { 200 })));
        let said = predicted(&usual, 100);
        assert!(said > 150.0 && said < 400.0, "{said}");
    }

    #[test]
    fn what_a_cache_misses_is_usual_too() {
        let (mut usual, mut at) = (Usual::default(), crate::time::now());
        run(&mut usual, &mut at, 60, |n| (8000, millis(if n % 3 == 0 { 5000 } else { 100 })));
        let said = predicted(&usual, 8000);
        assert!(said > 4000.0, "{said}");
    }

    #[test]
    fn slowness_is_followed_by_a_fifth_an_hour_and_improvement_soon() {
        let (mut usual, mut at) = (Usual::default(), crate::time::now());
        run(&mut usual, &mut at, 30, |_| (100, millis(200)));
        run(&mut usual, &mut at, 60, |_| (100, millis(2000)));
        let said = predicted(&usual, 100);
        assert!(said > 200.0 && said < 250.0, "{said}");
        run(&mut usual, &mut at, 60, |_| (100, millis(50)));
        let said = predicted(&usual, 100);
        assert!(said < 60.0, "{said}");
    }
}
