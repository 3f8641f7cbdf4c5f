//! When which target is probed; and what probes have shown of one.

use std::time::{Duration, Instant};

use super::jitter::{jitter, mixed};
use crate::cause::Cause;
use crate::config::{Place, Probe as Policy, Target};
use crate::limits;

/// The timers of all probed targets. Pure: whoever runs the probes asks who is due.
#[derive(Debug)]
pub struct Schedule {
    timeout: Duration,
    seed: u64,
    timers: Vec<Timer>,
}

#[derive(Debug)]
struct Timer {
    target: usize,
    every: Duration,
    due: Instant,
    /// Since when its probe is under way.
    under_way: Option<Instant>,
    turn: u64,
}

impl Schedule {
    /// Timers for `targets`, by their positions: none for those without a probe. The first probes come within a
    /// tenth of their interval.
    #[must_use]
    pub fn new<'a>(
        policy: &Policy,
        targets: impl IntoIterator<Item = &'a Target>,
        seed: u64,
        now: Instant,
    ) -> Self {
        let every = |(target, config): (usize, &Target)| Some((target, interval(policy, config)?));
        let timer = |(target, every): (usize, Duration)| Timer {
            target,
            every,
            due: now + jitter(seed, mixed(0, target as u64), every, limits::PROBE_JITTER),
            under_way: None,
            turn: 0,
        };
        let timers = targets.into_iter().enumerate().filter_map(every).map(timer).collect();
        Schedule { timeout: policy.timeout, seed, timers }
    }

    /// When somebody is due next; `None`: nobody ever, or all probes are under way.
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        self.timers.iter().filter_map(|timer| self.at(timer)).min()
    }

    /// A target that is due; its probe counts as under way from here on. Ask until there is none.
    pub fn due(&mut self, now: Instant) -> Option<usize> {
        let at = self.timers.iter().position(|timer| self.at(timer).is_some_and(|at| at <= now))?;
        let timer = self.timers.get_mut(at)?;
        timer.under_way = Some(now);
        Some(timer.target)
    }

    /// The probe of `target` is over, however it ended. The next one comes after its interval, a tenth more or less.
    pub fn done(&mut self, target: usize, now: Instant) {
        if let Some(timer) = self.timers.iter_mut().find(|timer| timer.target == target) {
            timer.under_way = None;
            timer.turn += 1;
            let tenth = timer.every * u32::from(limits::PROBE_JITTER) / 1000;
            let salt = mixed(timer.turn, target as u64);
            let late = jitter(self.seed, salt, timer.every, 2 * limits::PROBE_JITTER);
            timer.due = now.checked_add(timer.every - tenth + late).unwrap_or(now);
        }
    }

    fn at(&self, timer: &Timer) -> Option<Instant> {
        match timer.under_way {
            None => Some(timer.due),
            // Whoever ran it was dropped.
            Some(since) => since.checked_add(self.timeout.saturating_mul(limits::PROBE_LOST)),
        }
    }
}

/// How often a target is probed; `None`: not at all. A metered one is only if its configuration says how.
#[must_use]
pub fn interval(policy: &Policy, target: &Target) -> Option<Duration> {
    let says_how = target.probe.every.is_some() || target.probe.path.is_some();
    if !policy.enabled || target.probe.off || (target.metered && !says_how) {
        return None;
    }
    let usual = if target.place == Place::Cloud { policy.every_cloud } else { policy.every };
    Some(target.probe.every.unwrap_or(usual).max(policy.timeout))
}

/// What probes have shown of one target.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    failures: u32,
    down: Option<Cause>,
}

impl Seen {
    /// Why it counts as down.
    #[must_use]
    pub fn down(&self) -> Option<Cause> {
        self.down
    }

    /// A probe failed. Returns whether it is down from here on.
    pub fn failed(&mut self, policy: &Policy, cause: Cause) -> bool {
        self.failures = self.failures.saturating_add(1);
        let was_down = self.down.is_some();
        if was_down || self.failures >= policy.down_after.max(1) {
            self.down = Some(cause);
        }
        self.down.is_some() && !was_down
    }

    /// It answered. Returns whether it was down until now.
    pub fn answered(&mut self) -> bool {
        self.failures = 0;
        self.down.take().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{TargetProbe, parse};

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    fn targets() -> Vec<Target> {
        let text = r#"
            [[target]]
            name = "box"
            kind = "ollama"
            url = "http://127.0.0.1:11434"
            [[target]]
            name = "cloud"
            kind = "openai"
            url = "https://api.example.com/v1"
            models = { "*" = "m" }
            [[target]]
            name = "off"
            kind = "vllm"
            url = "http://127.0.0.1:8000"
            [[target]]
            name = "modem"
            kind = "vllm"
            url = "http://10.0.0.1:8000"
        "#;
        let parsed = parse(text, std::path::Path::new("test.toml"), &|_| None);
        let mut targets = parsed.unwrap_or_else(|problems| panic!("{problems}")).config.targets;
        targets[2].probe.off = true;
        targets[3].metered = true;
        targets
    }

    #[test]
    fn each_has_its_own_time_and_jitter_and_pauses_while_one_is_under_way() {
        let (targets, policy, start) = (targets(), Policy::default(), crate::time::now());
        let mut schedule = Schedule::new(&policy, &targets, 7, start);
        assert!(schedule.due(start - Duration::from_nanos(1)).is_none());
        let mut times = vec![Vec::new(); targets.len()];
        for second in 0..3600 {
            let now = start + secs(second);
            while let Some(target) = schedule.due(now) {
                assert!(schedule.due(now) != Some(target), "one at once");
                times[target].push(second);
                schedule.done(target, now);
            }
        }
        assert!((300..=420).contains(&times[0].len()), "{}", times[0].len());
        assert!((10..=14).contains(&times[1].len()), "{:?}", times[1]);
        assert!(times[0][0] <= 1 && times[1][0] <= 30);
        for pair in times[0].windows(2) {
            assert!((9..=12).contains(&(pair[1] - pair[0])), "{pair:?}");
        }
        assert!(times[2].is_empty() && times[3].is_empty(), "off, and metered");
        let other = Schedule::new(&policy, &targets, 8, start);
        assert_ne!(schedule.timers[0].due, other.timers[0].due);
    }

    #[test]
    fn a_lost_probe_does_not_end_probing() {
        let (targets, policy, start) = (targets(), Policy::default(), crate::time::now());
        let mut schedule = Schedule::new(&policy, &targets[..1], 7, start);
        let now = start + secs(2);
        assert_eq!(schedule.due(now), Some(0));
        assert_eq!(schedule.due(now + policy.timeout), None);
        assert_eq!(schedule.next(), Some(now + policy.timeout * limits::PROBE_LOST));
        assert_eq!(schedule.due(now + policy.timeout * limits::PROBE_LOST), Some(0));
    }

    #[test]
    fn a_target_has_its_own_interval_and_a_metered_one_only_that() {
        let (mut targets, policy) = (targets(), Policy::default());
        assert_eq!(interval(&policy, &targets[0]), Some(secs(10)));
        assert_eq!(interval(&policy, &targets[1]), Some(secs(300)));
        targets[3].probe = TargetProbe { every: Some(secs(900)), ..TargetProbe::default() };
        assert_eq!(interval(&policy, &targets[3]), Some(secs(900)));
        targets[3].probe.off = true;
        assert_eq!(interval(&policy, &targets[3]), None);
        assert_eq!(interval(&Policy { enabled: false, ..policy }, &targets[0]), None);
    }

    #[test]
    fn two_failures_in_a_row_are_down_and_one_answer_is_up() {
        let (policy, mut seen) = (Policy::default(), Seen::default());
        assert!(!seen.failed(&policy, Cause::Refused));
        assert!(!seen.answered());
        assert!(!seen.failed(&policy, Cause::Refused));
        assert!(seen.failed(&policy, Cause::TimeoutConnect));
        assert!(!seen.failed(&policy, Cause::Refused), "told once");
        assert_eq!(seen.down(), Some(Cause::Refused));
        assert!(seen.answered());
        assert_eq!(seen.down(), None);
    }
}
