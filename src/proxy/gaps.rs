//! The time between one token and the next, as they come from a target.

use std::time::Instant;

use crate::health::sketch::Sketch;

/// Of one stream. Tokens that come together count as one.
#[derive(Debug, Default)]
pub struct Gaps {
    sketch: Sketch,
    last: Option<Instant>,
}

impl Gaps {
    /// A token was passed on. `held_up`: its client kept it, or the one before, waiting: that gap says nothing of
    /// the target.
    pub fn token(&mut self, held_up: bool, now: Instant) {
        let last = self.last.replace(now);
        if let Some(last) = last.filter(|_| !held_up) {
            self.sketch.add_time(now.saturating_duration_since(last));
        }
    }

    /// What was seen, if anything was.
    #[must_use]
    pub fn seen(&self) -> Option<&Sketch> {
        (!self.sketch.is_empty()).then_some(&self.sketch)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_clients_slowness_is_not_its_targets() {
        let (mut gaps, start) = (Gaps::default(), crate::time::now());
        let at = |millis| start + Duration::from_millis(millis);
        gaps.token(false, at(0));
        assert_eq!(gaps.seen(), None, "one token has no gap");
        gaps.token(false, at(20));
        gaps.token(true, at(9000));
        gaps.token(false, at(9020));
        let seen = gaps.seen().unwrap();
        assert_eq!(seen.len(), 2);
        let longest = seen.quantile(1000).unwrap();
        assert!((18_000..=23_000).contains(&longest), "{longest} µs");
    }
}
