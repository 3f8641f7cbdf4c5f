//! One record a request, whatever happens to it; one a failed attempt. It writes to the health store, the
//! counters and the log, and never fails.

use std::rc::Rc;
use std::time::{Duration, Instant};

use super::gaps::Gaps;
use super::gateway::Gateway;
use super::places::Place;
use super::{drills, news};
use crate::cause::{Cause, Failure, Fault};
use crate::dialect::Dialect;
use crate::dialect::event::Usage;
use crate::dialect::request::Call;
use crate::health::store::Ticket;
use crate::health::{Change, Ended, News};
use crate::observe::Outcome;
use crate::observe::events::{self, Record};
use crate::route::Passed;
use crate::route::budget::{self, Estimate, Hold, Used};
use crate::time::now;

/// The account of one request.
pub struct Account {
    gateway: Rc<Gateway>,
    id: String,
    client: Option<String>,
    dialect: &'static str,
    model: String,
    prompt_tokens: u64,
    began: Instant,
    attempt_began: Instant,
    ticket: Option<Ticket>,
    gaps: Gaps,
    /// Of the client's key.
    key: Option<budget::Account>,
    hold: Option<Hold>,
    place: Option<Place>,
    /// The request went to the target, which may have worked on it.
    request_sent: bool,
    /// Its attempts take no places.
    placeless: bool,
    /// The answer has no tokens that anybody counts.
    uncounted: bool,
    estimate: Estimate,
    failures: Vec<(usize, Failure)>,
    committed: Option<(usize, Duration)>,
    usage: Usage,
    bytes: u64,
    status: Option<u16>,
    ended: bool,
    drill: drills::Part,
}

impl Account {
    /// Opens the account.
    #[must_use]
    pub fn new(gateway: Rc<Gateway>, id: &str, client: Option<String>, call: &Call, began: Instant) -> Self {
        let key = gateway.accounts.of_key(&gateway.config.keys, client.as_deref());
        let embeds = matches!(call.dialect, Dialect::OpenaiEmbeddings | Dialect::OllamaEmbed);
        let output_max = if embeds { Some(0) } else { call.max_tokens };
        Account {
            key,
            hold: None,
            place: None,
            request_sent: false,
            placeless: false,
            uncounted: false,
            estimate: Estimate { input: call.prompt_tokens, output_max },
            gateway,
            id: id.to_owned(),
            client,
            dialect: call.dialect.as_str(),
            model: call.model.clone(),
            prompt_tokens: call.prompt_tokens,
            began,
            attempt_began: began,
            ticket: None,
            gaps: Gaps::default(),
            failures: Vec::new(),
            committed: None,
            usage: Usage::default(),
            bytes: 0,
            status: None,
            ended: false,
            drill: drills::Part::default(),
        }
    }

    /// Whether an operator's drill fails the attempt at `target` that is about to begin: this is its failure then.
    pub fn drilled(&mut self, target: usize) -> Option<Failure> {
        let failure = self.drill.asked(&self.gateway, target, &self.model, self.prompt_tokens)?;
        // One that was waited for is that target's.
        self.place = None;
        Some(failure)
    }

    /// Whether it did so.
    #[must_use]
    pub const fn was_drilled(&self) -> bool {
        self.drill.has_failed()
    }

    /// The account of the client's key.
    #[must_use]
    pub fn key(&self) -> Option<budget::Account> {
        self.key
    }

    /// Its attempts are so small that they need no places.
    #[must_use]
    pub fn without_places(mut self) -> Self {
        self.placeless = true;
        self
    }

    /// The next attempt has this place, which it waited for.
    pub fn has_place(&mut self, place: Place) {
        self.place = Some(place);
    }

    /// An attempt at `target` begins.
    ///
    /// # Errors
    /// It does not: the target must be left alone at present. The attempt has failed by that, at nobody's cost.
    pub fn attempt_begins(&mut self, target: usize) -> Result<(), Failure> {
        let waited_for = self.place.take_if(|_| self.ticket.is_none());
        self.attempt_over(Ended::Neutral);
        let at = now();
        self.attempt_began = at;
        let gateway = Rc::clone(&self.gateway);
        let free = || gateway.process.places.take(*gateway.lanes.get(target)?, at);
        let place = if self.placeless { None } else { waited_for.or_else(free) };
        if place.is_none() && !self.placeless {
            return Err(Failure::with(Cause::Suspended, &Passed::Full.in_words()));
        }
        let begun = gateway.store.borrow_mut().begin(target, &self.model, at);
        self.ticket = Some(begun.map_err(|why| Failure::with(Cause::Suspended, &why.in_words()))?);
        self.place = place;
        let price = gateway.config.targets.get(target).and_then(|target| target.price);
        let (accounts, when) = (&gateway.accounts, gateway.when(at));
        self.hold = gateway.process.spending.begin(accounts, target, price, self.key, self.estimate, when);
        if self.failures.iter().any(|(before, _)| *before == target) {
            gateway.metrics.retry(target);
        }
        Ok(())
    }

    /// The request goes to the target.
    pub fn sends(&mut self) {
        self.request_sent = true;
        if let Some(ticket) = &self.ticket {
            self.gateway.sent_to(ticket.target, self.prompt_tokens);
        }
    }

    /// The attempt at `target` failed before its commit.
    pub fn attempt_failed(&mut self, target: usize, failure: Failure, retry_after: Option<Duration>) {
        let at = now();
        let news = self.attempt_over(ended_by(failure.cause, retry_after));
        let name = self.gateway.name(target);
        self.gateway.metrics.attempt(target, Some(failure.cause));
        if failure.cause.fault() != Fault::Downstream {
            events::attempt_failed(&self.id, name, &failure, at - self.attempt_began);
        }
        let (misconfigured, others): (Vec<_>, Vec<_>) =
            news.into_iter().partition(|news| matches!(news.what, Change::Misconfigured(_)));
        // In the target's own words.
        misconfigured.iter().for_each(|news| {
            self.gateway.metrics.turned(target, news::turned(news.what));
            events::target_misconfigured(name, &failure);
        });
        news::say(&self.gateway, &others);
        if failure.cause == Cause::Clock {
            self.gateway.waits_for_time(target, &failure);
        }
        self.failures.push((target, failure));
    }

    /// The attempt at `target` owns the stream from here on.
    pub fn committed(&mut self, target: usize, at: Instant) {
        let ttft = at - self.began;
        self.committed = Some((target, ttft));
        self.gateway.metrics.ttft(target, at - self.attempt_began);
        self.answered(Some(at - self.attempt_began), at);
    }

    /// The attempt at `target` has an answer that is passed on as it comes: no first token is measured. A refusal,
    /// which is the client's doing, says nothing about the target.
    pub fn passed(&mut self, target: usize, good: bool) {
        let at = now();
        self.committed = Some((target, at - self.began));
        self.uncounted = true;
        if good {
            self.answered(None, at);
        } else {
            self.attempt_over(Ended::Neutral);
        }
    }

    /// Whose answer the client is getting.
    #[must_use]
    pub fn committed_to(&self) -> Option<usize> {
        self.committed.map(|(target, _)| target)
    }

    /// Whether an attempt committed.
    #[must_use]
    pub fn has_committed(&self) -> bool {
        self.committed.is_some()
    }

    /// The client's response has this status.
    pub fn status(&mut self, status: u16) {
        self.status.get_or_insert(status);
    }

    /// Body bytes went to the client.
    pub fn sent(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }

    /// A token went on to the client, which may have kept it waiting.
    pub fn token(&mut self, held_up: bool, at: Instant) {
        self.gaps.token(held_up, at);
    }

    /// The answer reported its tokens.
    pub fn usage(&mut self, usage: Option<Usage>) {
        if let Some(usage) = usage {
            self.usage.prompt = usage.prompt.or(self.usage.prompt);
            self.usage.completion = usage.completion.or(self.usage.completion);
        }
    }

    /// The failed attempts, in order, by target.
    #[must_use]
    pub fn failures(&self) -> &[(usize, Failure)] {
        &self.failures
    }

    /// `box:oom,cloud:committed`.
    #[must_use]
    pub fn attempts(&self, committed: Option<&str>) -> String {
        let failed = self
            .failures
            .iter()
            .map(|(target, failure)| (self.gateway.name(*target), failure.cause.as_str()));
        failed.chain(committed.map(|name| (name, "committed"))).fold(
            String::new(),
            |mut text, (name, cause)| {
                if !text.is_empty() {
                    text.push(',');
                }
                text.push_str(name);
                text.push(':');
                text.push_str(cause);
                text
            },
        )
    }

    /// Closes the account. `broke`: what broke a committed stream.
    pub fn end(&mut self, outcome: Outcome, broke: Option<(usize, Failure)>) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        let ended = match &broke {
            Some((_, failure)) => ended_by(failure.cause, None),
            None if self.committed.is_some() => Ended::Well,
            None => Ended::Neutral,
        };
        let news = self.attempt_over(ended);
        news::say(&self.gateway, &news);
        self.gateway.metrics.request(outcome);
        if let Some((target, failure)) = &broke {
            self.gateway.metrics.attempt(*target, Some(failure.cause));
        } else if let Some((target, _)) = self.committed {
            self.gateway.metrics.attempt(target, None);
        }
        let last_cause = self.failures.last().map(|(_, failure)| failure.cause);
        let cause = broke.as_ref().map(|(_, failure)| failure.cause).or(last_cause);
        self.drill.over(&self.gateway, outcome, cause, self.committed);
        let target = self.committed.map(|(target, _)| self.gateway.name(target));
        let last = self.failures.last().map(|(_, failure)| failure.cause);
        events::request_done(&Record {
            request: &self.id,
            client: self.client.as_deref(),
            dialect: self.dialect,
            model: &self.model,
            target,
            place: self.committed.and_then(|(target, _)| self.gateway.place(target)),
            attempts: &self.attempts(target),
            status: self.status,
            outcome,
            cause: broke.as_ref().map(|(_, failure)| failure.cause).or(last.filter(|_| target.is_none())),
            ttft: self.committed.map(|(_, ttft)| ttft),
            took: now() - self.began,
            bytes: self.bytes,
            usage: self.usage,
        });
    }

    /// What the attempt that is about to end has used, by what its answer said, else by the prompt.
    fn used(&self, ended: Ended) -> Used {
        let prompt = Used::Tokens { input: self.usage.prompt.unwrap_or(self.estimate.input), output: 0 };
        if self.uncounted || !self.request_sent {
            return Used::Nothing;
        }
        match (self.committed, ended) {
            (Some(_), _) => match (self.usage.completion, self.estimate.output_max) {
                (Some(output), _) => {
                    Used::Tokens { input: self.usage.prompt.unwrap_or(self.estimate.input), output }
                }
                (None, Some(0)) => prompt,
                (None, _) => Used::Unknown,
            },
            (None, Ended::Failed(cause, _)) if !worked(cause) => Used::Nothing,
            (None, Ended::Well | Ended::Neutral | Ended::Failed(..)) => prompt,
        }
    }

    fn answered(&self, after: Option<Duration>, at: Instant) {
        if let Some(ticket) = &self.ticket {
            self.gateway.store.borrow_mut().answered(ticket, self.prompt_tokens, after, at);
        }
    }

    fn attempt_over(&mut self, ended: Ended) -> Vec<News> {
        let used = self.used(ended);
        self.request_sent = false;
        let Some(ticket) = self.ticket.take() else { return Vec::new() };
        if let Some(hold) = self.hold.take() {
            self.gateway.process.spending.end(hold, used, self.gateway.when(now()));
        }
        // Whoever waits for it is let in.
        self.place = None;
        let (at, mut store) = (now(), self.gateway.store.borrow_mut());
        if let Some(gaps) = self.gaps.seen() {
            store.gaps(&ticket, gaps, at);
        }
        store.end(ticket, ended, at)
    }
}

/// Whether a target that failed so has worked on the prompt.
const fn worked(cause: Cause) -> bool {
    matches!(
        cause,
        Cause::TimeoutFirstToken
            | Cause::TimeoutLoad
            | Cause::TimeoutTotal
            | Cause::Reset
            | Cause::Closed
            | Cause::Crashed
            | Cause::Oom
            | Cause::ErrorInStream
            | Cause::Protocol
            | Cause::Empty
            | Cause::Truncated
            | Cause::Overflow
    )
}

/// What a failure says about its target: nothing, unless it is the target's fault.
fn ended_by(cause: Cause, retry_after: Option<Duration>) -> Ended {
    match cause.fault() {
        Fault::Upstream => Ended::Failed(cause, retry_after),
        Fault::Downstream | Fault::Internal => Ended::Neutral,
    }
}

impl Drop for Account {
    /// Whoever drops an open account is the client's connection: it went away.
    fn drop(&mut self) {
        let gone = Failure::new(Cause::ClientGone);
        let broke = self.committed.map(|(target, _)| (target, gone));
        self.end(Outcome::ClientGone, broke);
    }
}
