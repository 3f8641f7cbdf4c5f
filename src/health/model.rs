//! The health of one model at one target, and the bounded set of a target's models.

use std::time::Instant;

use super::breaker::{Breaker, Verdict};
use super::jitter::mixed;
use super::latency::Latency;
use super::report::Change;
use super::share::Share;
use super::strain::Strain;
use crate::config::Health;
use crate::limits;

/// What is known of one (target, model).
#[derive(Clone, Debug)]
pub(super) struct Model {
    /// As clients ask for it.
    pub name: String,
    /// When it was last asked for.
    pub used: Instant,
    /// Attempts under way.
    pub in_flight: usize,
    pub breaker: Breaker,
    pub share: Share,
    pub latency: Box<Latency>,
    /// Of a local server's memory.
    pub strain: Strain,
    /// First tokens that did not come in time, since so many answers of a local server.
    late: (u64, u32),
}

impl Model {
    fn new(health: &Health, name: &str, seed: u64, now: Instant) -> Self {
        let seed = name.bytes().fold(seed, |seed, byte| mixed(seed, u64::from(byte)));
        Model {
            name: name.to_owned(),
            used: now,
            in_flight: 0,
            breaker: Breaker::new(&health.breaker, seed),
            share: Share::default(),
            latency: Box::default(),
            strain: Strain::default(),
            late: (0, 0),
        }
    }

    /// Of its weight, in thousandths; never 0.
    pub fn weight(&self, health: &Health, now: Instant) -> u16 {
        let product = u32::from(self.breaker.share(&health.breaker, now))
            * u32::from(self.share.get(&health.degrade))
            / 1000;
        u16::try_from(product).unwrap_or(1000).clamp(1, 1000)
    }

    /// An outcome, for the share.
    pub fn outcome(&mut self, verdict: Verdict, now: Instant) {
        match verdict {
            Verdict::Well => self.share.add(0, now),
            Verdict::Failed(_, weight) => self.share.add(weight, now),
            Verdict::Neutral => {}
        }
    }

    /// One more first token did not come in time; its server has begun so many answers by now. How many did not since the
    /// last of them.
    pub fn late(&mut self, answers: u64) -> u32 {
        let before = if self.late.0 == answers { self.late.1 } else { 0 };
        self.late = (answers, before.saturating_add(1));
        self.late.1
    }

    /// What its samples and time alone have changed.
    pub fn evaluate(&mut self, health: &Health, now: Instant) -> impl Iterator<Item = Change> + use<> {
        let share = self.share.evaluate(&health.degrade, now);
        share.into_iter().chain(self.latency.evaluate(&health.latency, now))
    }

    /// Nothing that is worth remembering longer than a newcomer's health.
    fn may_go(&self, health: &Health, now: Instant) -> bool {
        let well = self.weight(health, now) == 1000
            && self.breaker.is_well(&health.breaker, now)
            && self.latency.is_well();
        let idle = now.saturating_duration_since(self.used) >= limits::HEALTH_MODEL_IDLE;
        self.in_flight == 0 && (well || idle) && !self.strain.counts(now)
    }
}

/// A target's models, at most [`limits::HEALTH_MODELS_MAX`]: their names are the clients' to choose.
#[derive(Clone, Debug, Default)]
pub(super) struct Models(Vec<Model>);

impl Models {
    pub fn get(&self, name: &str) -> Option<&Model> {
        self.0.iter().find(|model| model.name == name)
    }

    pub fn get_mut(&mut self, name: &str) -> Option<&mut Model> {
        self.0.iter_mut().find(|model| model.name == name)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Model> {
        self.0.iter()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Model> {
        self.0.iter_mut()
    }

    /// The model's entry, made if there is room: the least recently used that is well goes for it. `None`: all are
    /// unwell or in use, and nothing is remembered of this one.
    pub fn entry(&mut self, health: &Health, name: &str, seed: u64, now: Instant) -> Option<&mut Model> {
        let known = self.0.iter().position(|model| model.name == name);
        let at = match known {
            Some(at) => at,
            None => {
                if self.0.len() >= limits::HEALTH_MODELS_MAX {
                    let goes = self.0.iter().enumerate().filter(|(_, model)| model.may_go(health, now));
                    let (at, _) = goes.min_by_key(|(_, model)| model.used)?;
                    self.0.swap_remove(at);
                }
                self.0.push(Model::new(health, name, seed, now));
                self.0.len() - 1
            }
        };
        let model = self.0.get_mut(at)?;
        model.used = now;
        Some(model)
    }

    /// The same under a changed policy, without the attempts that are under way.
    pub fn renewed(&self, health: &Health) -> Self {
        let renewed = |model: &Model| Model {
            in_flight: 0,
            breaker: model.breaker.renewed(&health.breaker),
            latency: Box::new(model.latency.renewed()),
            ..model.clone()
        };
        Models(self.0.iter().map(renewed).collect())
    }
}
