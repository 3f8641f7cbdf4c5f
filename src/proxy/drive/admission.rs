//! Before the first attempt: whether the client's budget has something left, and a place where all are taken.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::rc::Rc;

use super::Driver;
use crate::cause::{Cause, Failure};
use crate::limits::CANDIDATES_MAX;
use crate::memory::admit::Admission;
use crate::observe::{Limit, Outcome, memory_events};
use crate::proxy::exchange::{Action, Event};
use crate::proxy::facts::{room, warm};
use crate::proxy::{refusal, spending};
use crate::route::budget::Exhausted;
use crate::route::{self, Passed};
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
        let (client, priority, queue) = (self.client(), self.job.priority, &gateway.config.queue);
        let place = gateway.process.places.wait(lane, client, priority, queue, now());
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
                self.own_problem(&refusal::no_place(&gateway, first.target));
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
        let (client, priority, queue) = (self.client(), self.job.priority, &gateway.config.queue);
        self.pace.exchange.on(Event::Waits(queue.time), now());
        let place = gateway.process.places.wait(lane, client, priority, queue, now());
        match self.pace.run(place).await {
            Ok(Some(place)) => self.account.has_place(place),
            Ok(None) => self.limit_hit(Limit::Queue),
            Err(action) => return Some(action),
        }
        None
    }

    /// Tells who was passed over for the want of memory, and has its model loaded meanwhile where there is room for it.
    fn sent_away(&mut self) {
        if let Some((target, memory)) = self.plan.shed().map(|shed| (shed.target, shed.memory)) {
            self.tell_shed(target, memory);
        }
        let gateway = &self.job.gateway;
        if let Some(cold) = self.plan.warms.and_then(|cold| self.plan.candidates.get(cold)) {
            let (wants, dialect) = (&self.account.terms().wants, self.job.call.dialect);
            warm::start(gateway, wants, dialect, cold);
        }
    }

    fn tell_shed(&mut self, target: usize, memory: Admission) {
        let gateway = &self.job.gateway;
        if let Some((reason, why)) = room::why(memory) {
            self.account.shed(reason);
            gateway.metrics.shed(reason);
            let pressure = room::pressure(gateway);
            memory_events::request_shed(&self.job.id, gateway.name(target), &why, pressure);
        }
    }

    /// Whether the memory of `target` has room for the attempt that is to begin there. Where memory is short, and nobody
    /// else is left, it is waited for. `Some`: what to do instead.
    pub(super) async fn memory_room(&mut self, target: usize) -> Option<Action> {
        let gateway = Rc::clone(&self.job.gateway);
        let wants = &self.account.terms().wants;
        let memory = room::admission(&gateway, wants, target, None, now());
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
        if self.plan.shed().is_none_or(|shed| shed.target != target) {
            self.tell_shed(target, memory);
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
