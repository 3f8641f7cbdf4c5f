//! How long a request would wait at one server, by what is known of the answers and the loads under way there.

use std::time::{Duration, Instant};

use super::model::Model;
use super::server::{Server, key};
use super::{Admission, Asked, NoRoom};
use crate::config::Kind;
use crate::limits::{ADMIT_AHEAD, ADMIT_RUNNING, ADMIT_SERVICE};

impl Server {
    /// In which time a request would have its slot and its model, to which `admission` was said: at most `most` are sent
    /// at once, and `ahead` wait for it already. `None`: nothing is known of that.
    #[must_use]
    pub fn ready_in(
        &self,
        asked: &Asked<'_>,
        admission: Admission,
        (most, ahead): (Option<u32>, u32),
        now: Instant,
    ) -> Option<Duration> {
        let key = key(self.kind, asked.model);
        let load = || self.model(key)?.load_time(now);
        match admission {
            Admission::Loads(_) => load(),
            Admission::Not(NoRoom::Loading) => {
                let others = self.load_left(now);
                if self.is_loading(key, now) { others } else { sum(others, load()) }
            }
            Admission::Not(NoRoom::Evicts) => sum(self.first_ends(now), load()),
            Admission::Not(NoRoom::Busy(wait)) if self.kind == Kind::Vllm => Some(wait),
            Admission::Not(NoRoom::Tokens) => self.first_ends(now),
            Admission::Goes | Admission::Not(NoRoom::Busy(_)) => {
                // A guess sends nobody away.
                self.model(key)?.service()?;
                let slots = self.known_slots(key).or(most)?.min(most.unwrap_or(u32::MAX));
                Some(self.slot_in(key, slots, ahead, now))
            }
            Admission::Not(_) => None,
        }
    }

    /// For how long the load under way here has to go on, by how long that model's took before; `None`: none is under
    /// way, or that is not known.
    pub(super) fn load_left(&self, now: Instant) -> Option<Duration> {
        let (load, since) = self.load.as_ref().zip(self.loading(now))?;
        Some(self.model(load.key)?.load_time(now)?.saturating_sub(since))
    }

    /// Whether the load under way is of this model.
    pub(super) fn is_loading(&self, key: u64, now: Instant) -> bool {
        self.loading(now).is_some() && self.load.as_ref().is_some_and(|load| load.key == key)
    }

    /// In which time one of `slots` is free, after `ahead` others had it. An answer that has taken longer than usual is
    /// thought to end at once: whoever takes a healthy server for a busy one sends its work away.
    pub(super) fn slot_in(&self, key: u64, slots: u32, ahead: u32, now: Instant) -> Duration {
        let service = self.service(key);
        let shared = |other: u64| self.kind != Kind::Ollama || other == key;
        let mut running: heapless::Vec<(u64, Instant), ADMIT_RUNNING> = heapless::Vec::new();
        for one in self.running.iter().filter(|(other, _)| shared(*other)) {
            let _room_for_all = running.push(*one);
        }
        running.sort_unstable_by_key(|(_, began)| *began);
        let slots = usize::try_from(slots).unwrap_or(usize::MAX).clamp(1, ADMIT_RUNNING);
        let mut ends: heapless::Vec<Duration, ADMIT_RUNNING> = heapless::Vec::new();
        for (other, began) in running.iter().take(slots) {
            let _bounded = ends.push(self.left(*other, *began, now));
        }
        // Others' requests hold slots, too: on average they have half of their time before them.
        let there = usize::try_from(self.there(key, now)).unwrap_or(usize::MAX);
        while ends.len() < slots.min(there) {
            let _bounded = ends.push(service / 2);
        }
        if ends.len() < slots && ahead == 0 {
            return Duration::ZERO;
        }
        while ends.len() < slots {
            let _bounded = ends.push(Duration::ZERO);
        }
        let queued = u32::try_from(there.saturating_sub(slots)).unwrap_or(u32::MAX);
        for _ in 0..queued.saturating_add(ahead).min(ADMIT_AHEAD) {
            if let Some(first) = ends.iter_mut().min() {
                *first = first.saturating_add(service);
            }
        }
        ends.iter().min().copied().unwrap_or_default()
    }

    /// How long a request of this model holds a slot.
    pub(super) fn service(&self, key: u64) -> Duration {
        self.model(key).and_then(Model::service).unwrap_or(ADMIT_SERVICE)
    }

    /// In which time the first of those that are there ends.
    fn first_ends(&self, now: Instant) -> Option<Duration> {
        self.running.iter().map(|(model, began)| self.left(*model, *began, now)).min()
    }

    /// How long one that began then still holds its slot.
    fn left(&self, key: u64, began: Instant, now: Instant) -> Duration {
        self.service(key).saturating_sub(now.saturating_duration_since(began))
    }
}

/// As far as either is known.
fn sum(a: Option<Duration>, b: Option<Duration>) -> Option<Duration> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.saturating_add(b)),
        (a, b) => a.or(b),
    }
}
