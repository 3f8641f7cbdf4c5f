//! What the store is told of local servers' processes and of the GPU under them.

use std::time::{Duration, Instant};

use super::jitter::mixed;
use super::server::Server;
use super::store::Store;
use crate::cause::Cause;

impl Store {
    /// The process behind `target` is this box's.
    pub fn watch(&mut self, target: usize) {
        let (health, seed) = (&self.health, mixed(self.seed, target as u64));
        if let Some(entry) = self.targets.get_mut(target) {
            entry.server.get_or_insert_with(|| Server::new(health, seed));
        }
    }

    /// The process behind `target` died by `cause`: it is left alone for a time, then its probe must succeed, where it is
    /// `probed`, and memory be steady, and one request may try it. Gives that time.
    pub fn died(&mut self, target: usize, cause: Cause, probed: bool, now: Instant) -> Duration {
        let health = &self.health;
        let server = self.targets.get_mut(target).and_then(|entry| entry.server.as_mut());
        server.map_or(Duration::ZERO, |server| server.died(health, cause, probed, now))
    }

    /// What it died of is known better now.
    pub fn died_of(&mut self, target: usize, cause: Cause) {
        if let Some(server) = self.server_mut(target) {
            server.died_of(cause);
        }
    }

    /// The GPU that `target` is on has failed, by this Xid where there is one. Returns whether that is news.
    pub fn latch(&mut self, target: usize, xid: Option<u16>) -> bool {
        self.server_mut(target).is_some_and(|server| server.set_latch(Some(xid)))
    }

    /// The GPU was reset. Returns whether that is news.
    pub fn unlatch(&mut self, target: usize) -> bool {
        self.server_mut(target).is_some_and(|server| server.set_latch(None))
    }

    fn server_mut(&mut self, target: usize) -> Option<&mut Server> {
        self.targets.get_mut(target)?.server.as_mut()
    }
}

#[cfg(test)]
#[path = "servers_tests.rs"]
mod tests;
