//! What the store is told of this box's clock, which some certificates wait for.

use std::time::Instant;

use super::store::Store;

impl Store {
    /// A connection to `target` was made, its certificate is valid.
    pub fn reached(&mut self, target: usize) {
        if let Some(entry) = self.targets.get_mut(target) {
            entry.seen.waiting_for_time = None;
        }
    }

    /// The certificate of `target` is not valid yet by this box's clock. Returns true when this is news.
    pub fn waits_for_time(&mut self, target: usize, now: Instant) -> bool {
        let entry = self.targets.get_mut(target);
        entry.is_some_and(|entry| entry.seen.waiting_for_time.replace(now).is_none())
    }

    /// The clock was set: nobody waits for it any more. Returns who did.
    pub fn clock_was_set(&mut self) -> Vec<usize> {
        let waiting = self
            .targets
            .iter_mut()
            .enumerate()
            .filter_map(|(index, entry)| entry.seen.waiting_for_time.take().map(|_| index));
        waiting.collect()
    }
}
