//! The health store: one entry a target, written by attempts, read by the plan and by `status`.

use std::time::{Duration, Instant};

use crate::cause::{Cause, Fault};
use crate::limits;

/// All targets' health, by their position in the configuration.
#[derive(Debug)]
pub struct Store {
    targets: Vec<TargetHealth>,
}

/// What is known about one target.
#[derive(Clone, Debug, Default)]
pub struct TargetHealth {
    /// It said 429: not a candidate before this.
    pub cooldown_until: Option<Instant>,
    /// It refused our key or does not know the model: its configuration is wrong until it answers again.
    pub misconfigured: Option<Cause>,
    /// Discovered on a usual port, and nothing answers there yet.
    pub absent: bool,
    /// Attempts that committed.
    pub committed: u64,
    /// Attempts that failed by the target's fault.
    pub failed: u64,
    /// When it last committed.
    pub last_commit: Option<Instant>,
    /// Its last failure.
    pub last_failure: Option<(Instant, Cause)>,
    /// Attempts under way.
    pub in_flight: usize,
}

impl Store {
    /// A store for targets of which `absent` says who was not found yet.
    #[must_use]
    pub fn new(absent: impl IntoIterator<Item = bool>) -> Self {
        Store {
            targets: absent
                .into_iter()
                .map(|absent| TargetHealth { absent, ..TargetHealth::default() })
                .collect(),
        }
    }

    /// The store of a changed configuration: for each target its place in this one, if it has one, and whether
    /// it is looked for. A key or a model may have been put right, so "misconfigured" is not kept; attempts
    /// under way end in the store that they began in.
    #[must_use]
    pub fn renewed(&self, targets: impl IntoIterator<Item = (Option<usize>, bool)>) -> Self {
        let renewed = |(old, discovered): (Option<usize>, bool)| match old.and_then(|old| self.get(old)) {
            Some(old) => TargetHealth {
                misconfigured: None,
                in_flight: 0,
                absent: discovered && old.absent,
                ..old.clone()
            },
            None => TargetHealth { absent: discovered, ..TargetHealth::default() },
        };
        Store { targets: targets.into_iter().map(renewed).collect() }
    }

    /// One target's entry; an unknown index reads as healthy.
    #[must_use]
    pub fn target(&self, target: usize) -> TargetHealth {
        self.targets.get(target).cloned().unwrap_or_default()
    }

    /// Reads one target without copying it.
    #[must_use]
    pub fn get(&self, target: usize) -> Option<&TargetHealth> {
        self.targets.get(target)
    }

    /// An attempt at `target` committed.
    pub fn committed(&mut self, target: usize, now: Instant) {
        if let Some(health) = self.targets.get_mut(target) {
            health.committed += 1;
            health.last_commit = Some(now);
            health.misconfigured = None;
            health.cooldown_until = None;
        }
    }

    /// An attempt at `target` failed. Returns true when this newly marks it misconfigured, so that
    /// it is said loudly once.
    pub fn failed(
        &mut self,
        target: usize,
        cause: Cause,
        retry_after: Option<Duration>,
        now: Instant,
    ) -> bool {
        let Some(health) = self.targets.get_mut(target) else { return false };
        if cause.fault() != Fault::Upstream {
            return false;
        }
        health.failed += 1;
        health.last_failure = Some((now, cause));
        match cause {
            Cause::RateLimited => {
                let pause = retry_after.unwrap_or(limits::COOLDOWN_DEFAULT).min(limits::COOLDOWN_MAX);
                health.cooldown_until = Some(now + pause);
                false
            }
            Cause::Unauthorized | Cause::ModelMissing => health.misconfigured.replace(cause) != Some(cause),
            _ => false,
        }
    }

    /// An attempt begins (`true`) or has ended (`false`).
    pub fn in_flight(&mut self, target: usize, begins: bool) {
        if let Some(health) = self.targets.get_mut(target) {
            health.in_flight = if begins { health.in_flight + 1 } else { health.in_flight.saturating_sub(1) };
        }
    }

    /// Something answers, or nothing answers any more, on a discovered target's port. Returns whether that is news.
    pub fn set_absent(&mut self, target: usize, absent: bool) -> bool {
        match self.targets.get_mut(target) {
            Some(health) => std::mem::replace(&mut health.absent, absent) != absent,
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_429_cools_down_as_told_within_bounds() {
        let now = crate::time::now();
        let mut store = Store::new([false, false, false]);
        store.failed(0, Cause::RateLimited, Some(Duration::from_secs(7)), now);
        store.failed(1, Cause::RateLimited, None, now);
        store.failed(2, Cause::RateLimited, Some(Duration::from_secs(1_000_000)), now);
        let until = |t| store.target(t).cooldown_until.map(|at| at - now);
        assert_eq!(until(0), Some(Duration::from_secs(7)));
        assert_eq!(until(1), Some(limits::COOLDOWN_DEFAULT));
        assert_eq!(until(2), Some(limits::COOLDOWN_MAX));
    }

    #[test]
    fn misconfigured_is_news_once_and_ends_with_a_commit() {
        let now = crate::time::now();
        let mut store = Store::new([false]);
        assert!(store.failed(0, Cause::Unauthorized, None, now));
        assert!(!store.failed(0, Cause::Unauthorized, None, now));
        store.committed(0, now);
        assert_eq!(store.target(0).misconfigured, None);
    }

    #[test]
    fn the_clients_own_ends_count_against_nobody() {
        let now = crate::time::now();
        let mut store = Store::new([false]);
        for cause in [Cause::ClientGone, Cause::ClientFault, Cause::Cancelled, Cause::Draining] {
            store.failed(0, cause, None, now);
        }
        assert_eq!(store.target(0).failed, 0);
        assert!(store.target(0).last_failure.is_none());
    }
}
