//! Models at targets that are asked for whole answers: a request for a stream was refused there, or not heeded.

use crate::limits::UNSTREAMED_MAX;

/// Some of them, the latest. One for the process.
#[derive(Debug, Default)]
pub struct Unstreamed(heapless::Deque<(String, String), UNSTREAMED_MAX>);

impl Unstreamed {
    /// `model`, by the target's own name for it, is one. The oldest makes room.
    pub fn add(&mut self, target: &str, model: &str) {
        if self.has(target, model) {
            return;
        }
        if self.0.is_full() {
            self.0.pop_front();
        }
        let _full = self.0.push_back((target.to_owned(), model.to_owned()));
    }

    /// Whether it is one.
    #[must_use]
    pub fn has(&self, target: &str, model: &str) -> bool {
        self.0.iter().any(|(of, named)| of == target && named == model)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_are_known() {
        let mut unstreamed = Unstreamed::default();
        for n in 0..=UNSTREAMED_MAX {
            unstreamed.add("box", &n.to_string());
            unstreamed.add("box", &n.to_string());
        }
        assert!(unstreamed.has("box", "1") && unstreamed.has("box", &UNSTREAMED_MAX.to_string()));
        assert!(!unstreamed.has("box", "0") && !unstreamed.has("other", "1"));
    }
}
