//! Models at targets that are asked for whole answers: a request for a stream was refused there, or not heeded.

use std::time::Instant;

use crate::limits::{UNSTREAMED_MAX, UNSTREAMED_TIME};

/// Some of them, the latest. One for the process.
#[derive(Debug, Default)]
pub struct Unstreamed(heapless::Deque<One, UNSTREAMED_MAX>);

#[derive(Debug)]
struct One {
    target: String,
    model: String,
    since: Instant,
}

impl Unstreamed {
    /// `model`, by the target's own name for it, is one. The oldest makes room.
    pub fn add(&mut self, target: &str, model: &str, now: Instant) {
        if self.has(target, model, now) {
            return;
        }
        if self.0.is_full() {
            self.0.pop_front();
        }
        let one = One { target: target.to_owned(), model: model.to_owned(), since: now };
        let _full = self.0.push_back(one);
    }

    /// Whether it is one. After [`UNSTREAMED_TIME`] it is tried again.
    #[must_use]
    pub fn has(&self, target: &str, model: &str, now: Instant) -> bool {
        let fresh = |one: &&One| now.saturating_duration_since(one.since) < UNSTREAMED_TIME;
        self.0.iter().filter(fresh).any(|one| one.target == target && one.model == model)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_are_known_for_a_time() {
        let (mut unstreamed, now) = (Unstreamed::default(), crate::time::now());
        for n in 0..=UNSTREAMED_MAX {
            unstreamed.add("box", &n.to_string(), now);
            unstreamed.add("box", &n.to_string(), now);
        }
        assert!(unstreamed.has("box", "1", now) && unstreamed.has("box", &UNSTREAMED_MAX.to_string(), now));
        assert!(!unstreamed.has("box", "0", now) && !unstreamed.has("other", "1", now));
        assert!(!unstreamed.has("box", "1", now + UNSTREAMED_TIME));
    }
}
