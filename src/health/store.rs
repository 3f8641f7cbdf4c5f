//! The health store: one entry a target, written by attempts, probes and the watchdog, read by the plan and by
//! `status`. Breaker, share, latency and probe meet here and nowhere else.

use std::cell::Cell;
use std::time::{Duration, Instant};

use super::breaker::{Gate, Verdict};
use super::jitter::mixed;
use super::model::{Model, Models};
use super::probe::Seen;
use super::report::{Change, Ended, News, Pressure, Standing, Summary, View, Why};
use super::server::Server;
use super::sketch::Sketch;
pub use super::target::TargetHealth;
use super::weights::weight;
use crate::cause::Cause;
use crate::config::Health;

/// All targets' health, by their position in the configuration.
#[derive(Debug)]
pub struct Store {
    pub(super) health: Health,
    pub(super) seed: u64,
    pub(super) targets: Vec<Entry>,
    /// What is to be told with the next [`Store::end`] or [`Store::tick`].
    news: Vec<News>,
}

/// One attempt's place in the store, from its beginning to its end.
#[derive(Debug, PartialEq, Eq)]
pub struct Ticket {
    /// The target.
    pub target: usize,
    /// The model that the client asked for.
    pub model: String,
    /// It shows whether the target has recovered: one of a half-open breaker's trials, or of the trickle that a
    /// slow target is given.
    pub trial: bool,
    /// Its place at the breaker; `None`: nothing is remembered of the model.
    pass: Option<super::breaker::Pass>,
    /// Its place as the trial of a server that died.
    server: Option<super::breaker::Pass>,
    trickle: bool,
    /// Its first token came.
    spoke: Cell<bool>,
    /// Its prompt, in tokens, as estimated.
    pub prompt_tokens: u64,
    began: Instant,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Entry {
    pub(super) seen: TargetHealth,
    models: Models,
    probe: Seen,
    pressure: Pressure,
    /// The process behind it, where that is this box's.
    pub(super) server: Option<Server>,
}

impl Entry {
    fn standing(&self, health: &Health, name: &str, prompt: u64, now: Instant) -> Standing {
        let model = self.models.get(name);
        if let Some(why) = self.shut(now) {
            return Standing::Out(why);
        }
        let server = self.server.as_ref().map_or(Gate::Fit, |server| server.gate(health, self.pressure, now));
        if let Gate::Shut(why) = server {
            return Standing::Out(why);
        }
        if let Some(why) = model.and_then(|model| model.strain.bars(prompt, now)) {
            return Standing::Out(why);
        }
        let gate = model.map_or(Gate::Fit, |model| model.breaker.gate(&health.breaker, now));
        if let Gate::Shut(why) = gate {
            return Standing::Out(why);
        }
        if let Some(cause) = self.probe.down() {
            return Standing::Out(Why::ProbeDown(cause));
        }
        let slow = model.and_then(|model| model.latency.out(&health.latency, now));
        let trial = |gate| if let Gate::Trial(cause) = gate { Some(cause) } else { None };
        match (slow, self.seen.last(name, now)) {
            (Some((why, false)), _) => Standing::Out(why),
            (_, Some(why)) => Standing::Last(why),
            (Some((why, true)), None) => Standing::Trial(why),
            // Where its server died, its models' failures came of that.
            (None, None) => match trial(server).or(trial(gate)) {
                Some(cause) => Standing::Trial(Why::HalfOpen(cause)),
                None => Standing::Fit,
            },
        }
    }

    /// Why it gets nothing at all, whatever the model.
    fn shut(&self, now: Instant) -> Option<Why> {
        let why = self.seen.shut(now);
        why.filter(|why| *why == Why::Absent)
            .or((self.pressure == Pressure::Red).then_some(Why::PressureRed))
            .or(why)
    }
}

impl Store {
    /// A store that judges by `health`, for targets of which `absent` says who was not found yet. `seed` decides
    /// every jitter.
    #[must_use]
    pub fn new(health: &Health, seed: u64, absent: impl IntoIterator<Item = bool>) -> Self {
        let entry =
            |absent| Entry { seen: TargetHealth { absent, ..TargetHealth::default() }, ..Entry::default() };
        Store {
            health: health.clone(),
            seed,
            targets: absent.into_iter().map(entry).collect(),
            news: Vec::new(),
        }
    }

    /// The store of a changed configuration: for each target its place in this one, if it has one, and whether
    /// it is looked for. A key or a model may have been put right, so "misconfigured" is not kept, nor is what a
    /// probe that may have changed has shown; attempts under way end in the store that they began in.
    #[must_use]
    pub fn renewed(&self, health: &Health, targets: impl IntoIterator<Item = (Option<usize>, bool)>) -> Self {
        let renewed =
            |(old, discovered): (Option<usize>, bool)| match old.and_then(|old| self.targets.get(old)) {
                Some(old) => Entry {
                    seen: TargetHealth {
                        refused_key: None,
                        missing: Vec::new(),
                        in_flight: 0,
                        absent: discovered && old.seen.absent,
                        ..old.seen.clone()
                    },
                    models: old.models.renewed(health),
                    probe: Seen::default(),
                    pressure: old.pressure,
                    server: old.server.as_ref().map(|server| server.renewed(health)),
                },
                None => Entry {
                    seen: TargetHealth { absent: discovered, ..TargetHealth::default() },
                    ..Entry::default()
                },
            };
        let targets = targets.into_iter().map(renewed).collect();
        Store { health: health.clone(), seed: self.seed, targets, news: Vec::new() }
    }

    /// One target's entry; an unknown index reads as healthy.
    #[must_use]
    pub fn target(&self, target: usize) -> TargetHealth {
        self.get(target).cloned().unwrap_or_default()
    }

    /// Reads one target without copying it.
    #[must_use]
    pub fn get(&self, target: usize) -> Option<&TargetHealth> {
        self.targets.get(target).map(|entry| &entry.seen)
    }

    /// Whether `target` lately refused our key, or to know `model`: it is tried last, until it may have been mended.
    #[must_use]
    pub fn misconfigured(&self, target: usize, model: &str, now: Instant) -> bool {
        let why = self.get(target).and_then(|seen| seen.last(model, now));
        matches!(why, Some(Why::RefusedKey | Why::ModelMissing))
    }

    /// Whether `target` is tried after all others for `model`: misconfigured, or its certificate is not valid until
    /// the clock is set.
    #[must_use]
    pub fn comes_last(&self, target: usize, model: &str, now: Instant) -> bool {
        self.get(target).is_some_and(|seen| seen.last(model, now).is_some())
    }

    /// What routing goes by: whether `target` is asked for `model` with a prompt of this many tokens, and for how
    /// much of its weight. Of several reasons the worst is told.
    #[must_use]
    pub fn summary(&self, target: usize, model: &str, prompt_tokens: u64, now: Instant) -> Summary {
        let Some(entry) = self.targets.get(target) else {
            return Summary { standing: Standing::Fit, share: 1000, first_token: None, back_since: None };
        };
        let known = entry.models.get(model);
        let (health, server) = (&self.health, entry.server.as_ref());
        let share = known.map_or(1000, |model| model.weight(health, now));
        let back_since = known.and_then(|model| model.breaker.back_since(&health.breaker, now));
        Summary {
            standing: entry.standing(health, model, prompt_tokens, now),
            share: server.map_or(share, |server| server.share(health, now).min(share)),
            first_token: known.and_then(|model| model.latency.usual(prompt_tokens)),
            back_since: back_since.max(server.and_then(|server| server.back_since(health, now))),
        }
    }

    /// The p95 of the time to first token for a prompt of this many tokens; `None` below `latency.min_samples`.
    /// What hedges wait for.
    #[must_use]
    pub fn first_token_p95(&self, target: usize, model: &str, prompt_tokens: u64) -> Option<Duration> {
        let model = self.targets.get(target)?.models.get(model)?;
        model.latency.first_token_p95_for(&self.health.latency, prompt_tokens)
    }

    /// The memory state of the box that `target` runs on.
    #[must_use]
    pub fn pressure(&self, target: usize) -> Pressure {
        self.targets.get(target).map(|entry| entry.pressure).unwrap_or_default()
    }

    /// Why probes have `target` down.
    #[must_use]
    pub fn probe_down(&self, target: usize) -> Option<Cause> {
        self.targets.get(target)?.probe.down()
    }

    /// Each model of `target` that something is remembered of, in figures, for `status` and metrics.
    #[must_use]
    pub fn view(&self, target: usize, now: Instant) -> Vec<View> {
        let health = &self.health;
        let view = |entry: &Entry, model: &Model| {
            let counts = model.share.counts(now);
            View {
                model: model.name.clone(),
                standing: entry.standing(health, &model.name, 0, now),
                breaker: model.breaker.state(&health.breaker, now),
                samples: counts.samples,
                failure_rate: counts.rate(),
                share: model.weight(health, now),
                in_flight: model.in_flight,
                first_tokens: model.latency.samples(),
                first_token_p95: model.latency.first_token_p95(),
                gap_p95: model.latency.gap_p95(),
                most_prompt: model.strain.limit(now),
            }
        };
        let entry = self.targets.get(target);
        entry.into_iter().flat_map(|entry| entry.models.iter().map(move |model| view(entry, model))).collect()
    }

    /// An attempt at `target`, asked for `model`, begins.
    ///
    /// A target whose [`Why::yields`] is let through: the plan asks it rather than nobody. So is one request at a
    /// time at one that rests, if it is the `last_resort`.
    ///
    /// # Errors
    /// It must not: since the plan was made, its breaker has opened or its trials are under way, it said 429, or
    /// the box is out of memory.
    pub fn begin(
        &mut self,
        target: usize,
        model: &str,
        last_resort: bool,
        now: Instant,
    ) -> Result<Ticket, Why> {
        let mut ticket = Ticket {
            target,
            model: model.to_owned(),
            trial: false,
            pass: None,
            server: None,
            trickle: false,
            spoke: Cell::default(),
            prompt_tokens: 0,
            began: now,
        };
        let Some(entry) = self.targets.get_mut(target) else { return Ok(ticket) };
        // Not by the box's memory: whoever asks has looked at it, and some requests take none.
        if let Some(why) = entry.seen.shut(now) {
            return Err(why);
        }
        let seed = mixed(self.seed, target as u64);
        let (health, pressure) = (&self.health, entry.pressure);
        if let Some(server) = &mut entry.server {
            ticket.server = server.begin(health, pressure, last_resort, now)?;
            ticket.trial = ticket.server.is_some();
        }
        if let Some(known) = entry.models.entry(&self.health, model, seed, now) {
            let breaker = &mut known.breaker;
            let pass = if last_resort {
                breaker.begin_last_resort(&self.health.breaker, now)
            } else {
                breaker.begin(&self.health.breaker, now)
            };
            if let (Err(_), Some(server)) = (pass, &mut entry.server) {
                server.end(&self.health, (ticket.server, false), Verdict::Neutral, (0, true), now);
            }
            let pass = pass?;
            ticket.trickle = known.latency.begin(&self.health.latency, now);
            ticket.trial |= pass.trial || ticket.trickle;
            ticket.pass = Some(pass);
            known.in_flight += 1;
        }
        entry.seen.in_flight += 1;
        Ok(ticket)
    }

    /// The attempt's answer has begun: its first token came `after` this time, for a prompt of this many tokens;
    /// `None` where an answer is passed on as it comes, or comes whole: the time of a whole answer is not that of a
    /// first token, and is not judged like one.
    pub fn answered(&mut self, ticket: &Ticket, prompt_tokens: u64, after: Option<Duration>, now: Instant) {
        let Some(entry) = self.targets.get_mut(ticket.target) else { return };
        entry.seen.answered(&ticket.model, now);
        if entry.probe.answered() {
            // Whatever is wrong with the probe: it serves.
            self.news.push(News { target: ticket.target, model: None, what: Change::ProbeUp });
        }
        if !ticket.spoke.replace(true)
            && let Some(server) = &mut entry.server
        {
            server.answered(ticket.server);
        }
        let Some(model) = remembered(entry, ticket) else { return };
        if let Some(pass) = ticket.pass {
            model.breaker.spoke(pass);
        }
        if let Some(after) = after {
            model.latency.first_token(&self.health.latency, prompt_tokens, after, now);
            if ticket.trickle {
                model.latency.trickle_answered();
            }
        }
    }

    /// The attempt's stream had these gaps between its tokens: once, before its end. Gaps in which the client took
    /// nothing are not the target's.
    pub fn gaps(&mut self, ticket: &Ticket, gaps: &Sketch, now: Instant) {
        let entry = self.targets.get_mut(ticket.target);
        if let Some(model) = entry.and_then(|entry| remembered(entry, ticket)) {
            model.latency.gaps(&self.health.latency, gaps, now);
        }
    }

    /// The attempt is over. Returns what an operator should be told.
    pub fn end(&mut self, ticket: Ticket, ended: Ended, now: Instant) -> Vec<News> {
        let mut news = std::mem::take(&mut self.news);
        let Some(entry) = self.targets.get_mut(ticket.target) else { return news };
        entry.seen.in_flight = entry.seen.in_flight.saturating_sub(1);
        let mut changes = Vec::new();
        let verdict = match ended {
            Ended::Well => Verdict::Well,
            Ended::Neutral => Verdict::Neutral,
            Ended::Failed(cause, retry_after) => {
                if entry.seen.failed(&ticket.model, cause, retry_after, now) {
                    changes.push(Change::Misconfigured(cause));
                }
                match weight(cause) {
                    0 => Verdict::Neutral,
                    weight => Verdict::Failed(cause, weight),
                }
            }
        };
        let (spoke, up) = (ticket.spoke.get(), entry.probe.down().is_none());
        let mut of_server = None;
        let mut verdict_of_model = verdict;
        if let Some(server) = &mut entry.server {
            let waited = now.saturating_duration_since(ticket.began) >= crate::limits::HANG_LEAST;
            let late = matches!(ended, Ended::Failed(Cause::TimeoutFirstToken, _)) && !spoke && waited;
            let model = entry.models.get_mut(&ticket.model).filter(|_| late);
            let late = model.map_or(0, |model| model.late(server.answers()));
            if server.is_ill() && matches!(verdict, Verdict::Failed(..)) {
                // The server's doing, which has its own rest.
                verdict_of_model = Verdict::Neutral;
            }
            of_server = server.end(&self.health, (ticket.server, spoke), verdict, (late, up), now);
        }
        let strains = entry.server.is_some() && matches!(ended, Ended::Failed(cause, _) if cause.is_oom());
        let verdict = verdict_of_model;
        let pass = ticket.pass.map(|pass| pass.having(spoke));
        if let Some((model, pass)) = remembered(entry, &ticket).zip(pass) {
            if strains {
                changes.extend(model.strain.oom(ticket.prompt_tokens, now).map(Change::Strained));
            }
            model.in_flight = model.in_flight.saturating_sub(1);
            if ticket.trickle {
                model.latency.end_trickle();
            }
            model.outcome(verdict, now);
            changes.extend(model.breaker.end(&self.health.breaker, pass, verdict, now));
            changes.extend(model.evaluate(&self.health, now));
        }
        let Ticket { target, model, .. } = ticket;
        news.extend(of_server.map(|what| News { target, model: None, what }));
        news.extend(changes.into_iter().map(|what| News { target, model: Some(model.clone()), what }));
        news
    }

    /// What time alone has changed; call it about once a second.
    pub fn tick(&mut self, now: Instant) -> Vec<News> {
        let mut news = std::mem::take(&mut self.news);
        for (target, entry) in self.targets.iter_mut().enumerate() {
            if let (Pressure::Red, Some(server)) = (entry.pressure, &mut entry.server) {
                server.red(now);
            }
            for model in entry.models.iter_mut() {
                let changes = model.evaluate(&self.health, now);
                news.extend(changes.map(|what| News { target, model: Some(model.name.clone()), what }));
            }
        }
        news
    }

    /// A probe of `target` has its result. Failures in a row mark it down; a success clears that, and then ends
    /// the rest of its open breakers, but closes none. What says nothing of its health (a refused key, a 429) does
    /// neither.
    pub fn probed(&mut self, target: usize, result: Result<(), Cause>, _now: Instant) -> Vec<News> {
        let Some(entry) = self.targets.get_mut(target).filter(|entry| !entry.seen.absent) else {
            return Vec::new();
        };
        if let (Ok(()), Some(server)) = (&result, &mut entry.server) {
            server.probed();
        }
        let what = match result {
            Err(cause) if weight(cause) > 0 => {
                entry.probe.failed(&self.health.probe, cause).then_some(Change::ProbeDown(cause))
            }
            Err(_) => None,
            Ok(()) => entry.probe.answered().then(|| {
                entry.models.iter_mut().for_each(|model| model.breaker.end_rest());
                Change::ProbeUp
            }),
        };
        what.map(|what| News { target, model: None, what }).into_iter().collect()
    }

    /// The watchdog's word on a local target.
    pub fn set_pressure(&mut self, target: usize, pressure: Pressure) {
        if let Some(entry) = self.targets.get_mut(target) {
            entry.pressure = pressure;
        }
    }

    /// Something answers, or nothing answers any more, on a discovered target's port. Returns whether that is news.
    pub fn set_absent(&mut self, target: usize, absent: bool) -> bool {
        match self.targets.get_mut(target) {
            Some(entry) => std::mem::replace(&mut entry.seen.absent, absent) != absent,
            None => false,
        }
    }
}

/// The entry of a ticket's model. It stays while attempts are under way.
fn remembered<'a>(entry: &'a mut Entry, ticket: &Ticket) -> Option<&'a mut Model> {
    ticket.pass?;
    entry.models.get_mut(&ticket.model)
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
