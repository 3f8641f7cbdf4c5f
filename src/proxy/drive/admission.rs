//! Before an attempt: whether the client's budget has something left, a place where all are taken, and how long a box that
//! is well is waited for.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::Driver;
use crate::cause::{Cause, Failure};
use crate::config::{After, Queue};
use crate::limits::{self, CANDIDATES_MAX};
use crate::memory::admit::Admission;
use crate::observe::{Limit, Outcome, Shed, memory_events};
use crate::proxy::exchange::{Action, Event};
use crate::proxy::facts::home::{BY_ITSELF, Home, Ready};
use crate::proxy::facts::room;
use crate::proxy::gateway::Gateway;
use crate::proxy::{refusal, spending};
use crate::route::budget::Exhausted;
use crate::route::{self, Before, Passed};
use crate::time::now;

impl Driver {
    /// Whether the request is taken on; else it was answered.
    pub(super) async fn admitted(&mut self) -> bool {
        if let Some(exhausted) = self.key_exhausted() {
            self.over_budget(&exhausted);
            return false;
        }
        if let Some(key) = self.account.key() {
            let gateway = &self.job.gateway;
            gateway.process.spending.request(key, gateway.when(now()));
        }
        self.sent_away();
        let admitted = self.plan.waits_for().is_none() || self.waited().await;
        if admitted {
            self.may_hedge();
        }
        admitted
    }

    /// The key's requests and tokens; its money only where nobody is left who costs none.
    fn key_exhausted(&self) -> Option<Exhausted> {
        let gateway = &self.job.gateway;
        let (key, when) = (self.account.key()?, gateway.when(now()));
        let nobody = self.plan.candidates.is_empty() && self.plan.full.is_empty();
        let by_budget = nobody && self.plan.passed.iter().any(|(_, why)| why.is_budget());
        gateway.process.spending.key_allows(key, by_budget, when).err()
    }

    /// Waits for a place at the first of those who could serve it if they had room.
    async fn waited(&mut self) -> bool {
        let Some(first) = self.plan.waits_for().cloned() else { return true };
        let gateway = Rc::clone(&self.job.gateway);
        let Some(lane) = gateway.lanes.get(first.target).copied() else { return true };
        let (client, priority, at) = (self.client(), self.job.priority, now());
        // Who rests is no other target to speak of.
        let alone = self.plan.candidates.first().is_none_or(|other| other.last_resort);
        let time = if alone { self.time_alone(at) } else { gateway.config.queue.time };
        let queue = Queue { time, ..gateway.config.queue };
        let place = gateway.process.places.wait(lane, client, priority, &queue, at);
        match self.pace.run(place).await {
            Ok(Some(place)) => {
                self.account.has_place(place);
                self.plan.candidates.insert(0, first);
                self.plan.candidates.truncate(CANDIDATES_MAX);
                self.pace.exchange.replan(self.plan.candidates.clone());
                true
            }
            Ok(None) => {
                self.limit_hit(Limit::Queue);
                // Who answers only badly does so now.
                if !self.plan.candidates.is_empty() {
                    return true;
                }
                self.account.status(503);
                self.account.end(Outcome::Unavailable, None);
                self.own_problem(&refusal::no_place(&gateway, first.target, time));
                false
            }
            Err(Action::Refuse(cause)) => {
                self.refuse(cause).await;
                false
            }
            // Nobody is left to answer to.
            Err(_) => false,
        }
    }

    /// How long a place is waited for where no other target may answer: no shorter than by who may leave.
    fn time_alone(&self, at: Instant) -> Duration {
        let (config, total) = (&self.job.gateway.config, self.pace.exchange.total());
        let until = match config.elsewhere.cloud {
            _ if config.queue.time.is_zero() => at,
            After::Time(time) => (at + config.queue.time).max(self.job.began + time).min(total),
            After::Never => total,
        };
        until.saturating_duration_since(at)
    }

    /// Others have failed, `target` has no room, and nobody is left but it: a place there is waited for, as it would have
    /// been before the first attempt. `Some`: what to do instead.
    pub(super) async fn place_after_failures(&mut self, target: usize) -> Option<Action> {
        let gateway = Rc::clone(&self.job.gateway);
        let lane = gateway.lanes.get(target).copied()?;
        let first = self.account.failures().is_empty();
        if first
            || gateway.process.places.is_free(lane)
            || self.pace.exchange.has_fresh()
            || self.is_last_resort()
        {
            return None;
        }
        let (client, priority, at) = (self.client(), self.job.priority, now());
        // One that was waited for already, and left for others that are no better, is all that is left.
        let again = self.plan.candidates.get(self.attempt.candidate).is_some_and(|it| it.again);
        let most = self.pace.exchange.total().saturating_duration_since(at);
        let time = if again && !gateway.config.queue.time.is_zero() { most } else { self.time_alone(at) };
        self.pace.exchange.on(Event::Waits(time), at);
        let queue = Queue { time, ..gateway.config.queue };
        let home = self.home(&gateway, target, at + time)?;
        let place = async {
            let place = gateway.process.places.wait(lane, client, priority, &queue, at);
            tokio::select! {
                biased;
                // The attempt says why.
                _ = home.unwell(), if again => Err(()),
                place = place => Ok(place),
            }
        };
        match self.pace.run(place).await {
            Ok(Ok(Some(place))) => self.account.has_place(place),
            Ok(Ok(None)) => self.limit_hit(Limit::Queue),
            Ok(Err(())) => {}
            Err(action) => return Some(action),
        }
        None
    }

    /// The target is busy, or has to load the model, and somebody else may answer: it is waited for, so long as
    /// `[elsewhere] after` says. `Some`: what to do instead of asking it.
    pub(super) async fn home_ready(&mut self, target: usize) -> Option<Action> {
        let after = self.patience()?;
        let gateway = Rc::clone(&self.job.gateway);
        let (at, total) = (now(), self.pace.exchange.total());
        let until = match after {
            After::Time(time) => total.min(self.job.began + time),
            After::Never => total,
        };
        let home = self.home(&gateway, target, until)?;
        self.pace.exchange.on(Event::Waits(until.saturating_duration_since(at)), at);
        let (place, itself) = match self.pace.run(home.ready(at)).await {
            Ok(Ready::Now(place)) => (place, false),
            Ok(Ready::ToLoad(place)) => (place, true),
            Ok(Ready::Left(left)) => {
                if let Some((reason, why)) = &left.told {
                    self.tell_shed(target, *reason, why);
                }
                return Some(self.failed(left.failure));
            }
            Err(action) => return Some(action),
        };
        self.account.has_place(place);
        let at = now();
        self.pace.exchange.on(Event::Waits(Duration::ZERO), at);
        if itself {
            let leaves = (after != After::Never).then_some(until);
            self.pace.exchange.on(Event::Leaves(leaves, Cause::NotLoaded), at);
        }
        None
    }

    fn home<'a>(&self, gateway: &'a Rc<Gateway>, target: usize, until: Instant) -> Option<Home<'a>> {
        Some(Home {
            gateway,
            wants: self.account.terms().wants.clone(),
            target,
            lane: *gateway.lanes.get(target)?,
            dialect: self.job.call.dialect,
            client: self.client(),
            priority: self.job.priority,
            load: self.plan.candidates.get(self.attempt.candidate)?.deadlines.load,
            until,
        })
    }

    /// The attempt that has begun waits at its server for a slot: others found more than are known there. It shows soon, or
    /// another target gets the request; where there is none it waits as long as it may: behind others no first token is late.
    pub(super) fn queued_there(&mut self) {
        if !self.account.is_queued() {
            return;
        }
        let (at, total) = (now(), self.pace.exchange.total());
        let until = match self.patience() {
            Some(After::Time(after)) => {
                (self.job.began + after).max(at + limits::ADMIT_EXPLORE_WAIT).min(total)
            }
            Some(After::Never) => total,
            None if self.pace.exchange.has_fresh() => return,
            None => total,
        };
        self.pace.exchange.on(Event::Leaves(Some(until), Cause::Busy), at);
    }

    fn patience(&self) -> Option<After> {
        self.plan.candidates.get(self.attempt.candidate)?.patience
    }

    /// An attempt has been left that waited at its server: tells why.
    pub(super) fn tell_left(&mut self, target: usize, failure: &Failure) {
        let reason = match failure.cause {
            Cause::Busy => Shed::Busy,
            Cause::NotLoaded => Shed::Cold,
            _ => return,
        };
        let by_itself = !self.job.gateway.config.memory.warm_up && reason == Shed::Cold;
        let alone = if by_itself { BY_ITSELF } else { "" };
        self.tell_shed(target, reason, &format!("{}{alone}", failure.cause.in_words()));
    }

    /// What was before the answer that begins now.
    pub(super) fn before(&self) -> Before {
        let others = self
            .account
            .failures()
            .iter()
            .filter(|(failed, failure)| *failed != self.target() && failure.cause != Cause::Hedged);
        let (mut left, mut failed) = (false, false);
        others.for_each(|(_, failure)| {
            left |= failure.cause.passes_over();
            failed |= !failure.cause.passes_over();
        });
        match (failed, left) {
            (true, _) => Before::Failed,
            (false, true) => Before::Left,
            (false, false) => Before::Nothing,
        }
    }

    /// Tells who was passed over for the want of memory, where nobody waits for it.
    fn sent_away(&mut self) {
        if self.patience().is_none()
            && let Some(shed) = self.plan.shed()
            && let Some((reason, why)) = room::why(shed.memory)
        {
            self.tell_shed(shed.target, reason, &why);
        }
    }

    fn tell_shed(&mut self, target: usize, reason: Shed, why: &str) {
        self.account.shed(reason);
        let gateway = &self.job.gateway;
        gateway.metrics.shed(reason);
        memory_events::request_shed(&self.job.id, gateway.name(target), why, room::pressure(gateway));
    }

    /// Whether the memory of `target` has room for the attempt that is to begin there. Where memory is short, and nobody
    /// else is left, it is waited for. `Some`: what to do instead.
    pub(super) async fn memory_room(&mut self, target: usize) -> Option<Action> {
        let gateway = Rc::clone(&self.job.gateway);
        let wants = &self.account.terms().wants;
        let memory = room::admission(&gateway, wants, target, false, now());
        let Admission::Not(why) = memory else { return None };
        let others = self.pace.exchange.has_fresh();
        if !route::is_short(why) {
            // As it was planned; or nobody else is left, and the server may see to it.
            let planned = self.plan.candidates.get(self.attempt.candidate);
            let as_planned = planned.is_none_or(|planned| planned.memory != Admission::Goes);
            if as_planned || !others {
                return None;
            }
        } else if !others {
            let wants = wants.clone();
            self.pace.exchange.on(Event::Waits(gateway.config.queue.time), now());
            match self.pace.run(room::wait(&gateway, &wants, target)).await {
                Ok(Some(())) => return None,
                Ok(None) => self.limit_hit(Limit::Queue),
                Err(action) => return Some(action),
            }
        }
        let told = self
            .account
            .failures()
            .iter()
            .any(|(left, failure)| *left == target && failure.cause.passes_over());
        if !told
            && self.plan.shed().is_none_or(|shed| shed.target != target)
            && let Some((reason, words)) = room::why(memory)
        {
            self.tell_shed(target, reason, &words);
        }
        Some(self.failed(Failure::with(Cause::Suspended, &Passed::Memory(why).in_words())))
    }

    /// The same number for all requests of one client key.
    fn client(&self) -> u64 {
        let mut hash = DefaultHasher::new();
        self.job.client.hash(&mut hash);
        hash.finish()
    }

    fn over_budget(&mut self, exhausted: &Exhausted) {
        self.limit_hit(Limit::KeyBudget);
        let problem = refusal::over_budget(self.job.client.as_deref(), exhausted);
        self.account.status(problem.status);
        self.account.end(Outcome::Refused, None);
        self.own_problem_after(&problem, Some(spending::again(exhausted)));
    }
}
