//! The process behind a local target: dead, hanging, or on a GPU that has failed, and how it comes back.
//!
//! Its rest, its trial and its back-off are a [`Breaker`]'s, which nothing but a death or a hang opens; beside them its
//! probe must have succeeded since, and memory be steady.

use std::time::{Duration, Instant};

use super::breaker::{Breaker, Gate, Pass, Verdict};
use super::report::{Change, Pressure, Why};
use crate::cause::Cause;
use crate::config::{Breaker as Policy, Health};
use crate::limits;

/// What is known of one.
#[derive(Clone, Debug)]
pub(super) struct Server {
    breaker: Breaker,
    /// Why it is not asked as usual, until it is back.
    ill: Option<Cause>,
    /// Its probe need not be waited for.
    probed: bool,
    /// Nothing says that it did not end as it was to, and it is the first time: its probe ends its rest.
    restarts: bool,
    /// The GPU has failed: by which Xid, or by what the driver says.
    latch: Option<Option<u16>>,
    /// Answers that have begun: what happened between two of them happened in a row.
    answers: u64,
    /// Answers under way.
    streams: usize,
    /// When memory was last red.
    red_at: Option<Instant>,
}

impl Server {
    pub fn new(health: &Health, seed: u64) -> Self {
        Server {
            breaker: Breaker::new(&policy(health), seed),
            ill: None,
            probed: true,
            restarts: false,
            latch: None,
            answers: 0,
            streams: 0,
            red_at: None,
        }
    }

    /// The same under a changed policy, without what is under way. A reload is an operator's word that the GPU is well.
    pub fn renewed(&self, health: &Health) -> Self {
        let breaker = self.breaker.renewed(&policy(health));
        Server { breaker, latch: None, streams: 0, ..self.clone() }
    }

    /// What it says to one more request.
    pub fn gate(&self, health: &Health, pressure: Pressure, now: Instant) -> Gate {
        if let Some(fault) = self.latch {
            return Gate::Shut(Why::Latched(fault));
        }
        match self.breaker.gate(&policy(health), now) {
            Gate::Shut(Why::Open(left, cause)) => Gate::Shut(Why::Down(left, self.ill.unwrap_or(cause))),
            Gate::Trial(cause) if !self.may_try(pressure, now) => {
                Gate::Shut(Why::Returning(self.ill.unwrap_or(cause)))
            }
            // What it died of may be known better by now than when it began to rest.
            Gate::Trial(cause) => Gate::Trial(self.ill.unwrap_or(cause)),
            Gate::Shut(Why::HalfOpen(cause)) => Gate::Shut(Why::HalfOpen(self.ill.unwrap_or(cause))),
            gate => gate,
        }
    }

    fn may_try(&self, pressure: Pressure, now: Instant) -> bool {
        let calm = |at| now.saturating_duration_since(at) >= limits::DEATH_CALM;
        self.probed && pressure != Pressure::Red && self.red_at.is_none_or(calm)
    }

    /// An attempt begins. Its place, if it is a trial.
    ///
    /// # Errors
    /// It must not.
    pub fn begin(
        &mut self,
        health: &Health,
        pressure: Pressure,
        last_resort: bool,
        now: Instant,
    ) -> Result<Option<Pass>, Why> {
        let policy = policy(health);
        let pass = match self.gate(health, pressure, now) {
            // Nobody else was left.
            Gate::Fit | Gate::Shut(Why::Latched(_)) => return Ok(None),
            Gate::Trial(_) => self.breaker.begin(&policy, now)?,
            Gate::Shut(why) if last_resort && why.is_rest() => {
                self.breaker.begin_last_resort(&policy, now)?
            }
            Gate::Shut(why) => return Err(why),
        };
        Ok(Some(pass))
    }

    /// An answer has begun: it has a first token, or is there.
    pub fn answered(&mut self, pass: Option<Pass>) {
        self.answers = self.answers.wrapping_add(1);
        self.streams = self.streams.saturating_add(1);
        if let Some(pass) = pass {
            self.breaker.spoke(pass);
        }
    }

    /// Answers so far.
    pub const fn answers(&self) -> u64 {
        self.answers
    }

    /// An attempt has ended, having answered or not. `late`: of its model, first tokens that did not come in time since the
    /// last answer of any. `up`: its probe does not say otherwise.
    pub fn end(
        &mut self,
        health: &Health,
        (pass, spoke): (Option<Pass>, bool),
        verdict: Verdict,
        (late, up): (u32, bool),
        now: Instant,
    ) -> Option<Change> {
        if spoke {
            self.streams = self.streams.saturating_sub(1);
        }
        if let Some(pass) = pass {
            return match self.breaker.end(&policy(health), pass.having(spoke), verdict, now)? {
                Change::Closed => {
                    self.ill = None;
                    Some(Change::Back)
                }
                change => Some(change),
            };
        }
        // Who is busy with others' answers makes progress.
        let hangs = late >= limits::HANG_AFTER && up && self.streams == 0;
        if !hangs || self.is_ill() || !health.breaker.enabled {
            return None;
        }
        self.breaker.fail(&policy(health), Cause::Hang, now);
        self.restarts = false;
        (self.ill, self.probed) = (Some(Cause::Hang), true);
        Some(Change::Hangs)
    }

    /// It died. `probed`: somebody will tell when it answers again. Gives how long it is left alone.
    pub fn died(&mut self, health: &Health, cause: Cause, probed: bool, now: Instant) -> Duration {
        (self.ill, self.probed) = (Some(cause), !probed);
        let rest = match self.breaker.fail(&policy(health), cause, now) {
            Change::Opened(rest, _) => rest,
            _ => Duration::ZERO,
        };
        self.restarts = cause == Cause::Crashed && probed && rest < limits::DEATH_REST * 2;
        rest
    }

    /// What it died of is known better now.
    pub fn died_of(&mut self, cause: Cause) {
        self.ill = self.ill.map(|_| cause);
        self.restarts = false;
    }

    /// Its probe succeeded. A server that somebody has restarted is not left alone for longer: one request may try it, and
    /// if that brings it down again, it rests as others do.
    pub fn probed(&mut self) {
        self.probed = true;
        if std::mem::take(&mut self.restarts) {
            self.breaker.end_rest();
        }
    }

    /// Whether it has died, and is not back.
    pub const fn is_ill(&self) -> bool {
        self.ill.is_some()
    }

    /// Memory is red.
    pub fn red(&mut self, now: Instant) {
        self.red_at = Some(now);
    }

    /// The GPU has failed, or answers again. Returns whether that is news.
    pub fn set_latch(&mut self, latch: Option<Option<u16>>) -> bool {
        let news = self.latch.is_some() != latch.is_some();
        if news {
            self.latch = latch;
        }
        news
    }

    /// Of its weight, in thousandths.
    pub fn share(&self, health: &Health, now: Instant) -> u16 {
        self.breaker.share(&policy(health), now)
    }

    /// While its share returns: since when.
    pub fn back_since(&self, health: &Health, now: Instant) -> Option<Instant> {
        self.breaker.back_since(&policy(health), now)
    }
}

/// A process's rest is not a model's.
fn policy(health: &Health) -> Policy {
    Policy {
        cooldown: limits::DEATH_REST,
        cooldown_max: limits::DEATH_REST_MAX,
        trials: 1,
        ..health.breaker.clone()
    }
}
