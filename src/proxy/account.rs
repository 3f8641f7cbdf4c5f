//! One record a request, whatever happens to it; one a failed attempt. It writes to the health store, the
//! counters and the log, and never fails.

use std::rc::Rc;
use std::time::{Duration, Instant};

use super::deaths::{self, Fate};
use super::discovery;
use super::gateway::Gateway;
use super::lately::Leaves;
use super::open::{Open, Terms, ended_by};
use super::places::Place;
use super::{drills, news, rollout};
use crate::cause::{Cause, Failure, Fault};
use crate::dialect::event::Usage;
use crate::dialect::request::Call;
use crate::health::{Change, Ended};
use crate::observe::events::{self, Record};
use crate::observe::{Outcome, Shed};
use crate::route::{Plan, budget};
use crate::time::now;

/// The account of one request.
pub struct Account {
    gateway: Rc<Gateway>,
    id: String,
    client: Option<String>,
    dialect: &'static str,
    model: String,
    began: Instant,
    terms: Terms,
    /// What the present attempt has open.
    open: Option<Open>,
    /// For the next attempt.
    place: Option<Place>,
    /// The answer comes from where it would not if all were well.
    away: bool,
    failures: Vec<(usize, Failure)>,
    /// When each of them failed.
    failed_at: Vec<Instant>,
    leaves: Leaves,
    committed: Option<(usize, Duration)>,
    /// When the present attempt's first token was there, of an answer that is put together.
    spoke: Option<Duration>,
    /// The first break of a committed stream that was to go on elsewhere, and when its client had its first token.
    broke: Option<(Cause, Option<Duration>)>,
    usage: Usage,
    /// Of attempts before the present one.
    before: Usage,
    bytes: u64,
    status: Option<u16>,
    ended: bool,
    drill: drills::Part,
}

impl Account {
    /// Opens the account.
    #[must_use]
    pub fn new(gateway: Rc<Gateway>, id: &str, client: Option<String>, call: &Call, began: Instant) -> Self {
        Account {
            terms: Terms::new(&gateway, client.as_deref(), call),
            open: None,
            place: None,
            away: false,
            gateway,
            id: id.to_owned(),
            client,
            dialect: call.dialect.as_str(),
            model: call.model.clone(),
            began,
            failures: Vec::new(),
            failed_at: Vec::new(),
            leaves: Leaves::default(),
            committed: None,
            spoke: None,
            broke: None,
            usage: Usage::default(),
            before: Usage::default(),
            bytes: 0,
            status: None,
            ended: false,
            drill: drills::Part::default(),
        }
    }

    /// Whether an operator's drill fails the attempt at `target` that is about to begin: this is its failure then.
    pub fn drilled(&mut self, target: usize) -> Option<Failure> {
        let failure = self.drill.asked(&self.gateway, target, &self.model, self.terms.prompt_tokens())?;
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
        self.terms.key
    }

    /// Its attempts are so small that they need no places.
    #[must_use]
    pub fn without_places(mut self) -> Self {
        self.terms.placeless = true;
        self
    }

    /// They may have a model loaded anew, with other options.
    #[must_use]
    pub fn reloading(mut self, reloads: bool) -> Self {
        self.terms.reloads = reloads;
        self
    }

    /// By what the present attempt is told that its server has died.
    #[must_use]
    pub fn fate(&self) -> Option<Rc<Fate>> {
        self.open.as_ref().and_then(Open::fate)
    }

    /// Whether an attempt has begun that is not over.
    #[must_use]
    pub fn is_under_way(&self) -> bool {
        self.open.is_some()
    }

    /// Whether the present attempt found no free slot, and waits at its server.
    #[must_use]
    pub fn is_queued(&self) -> bool {
        self.open.as_ref().is_some_and(Open::is_queued)
    }

    /// What all its attempts have in common.
    #[must_use]
    pub fn terms(&self) -> &Terms {
        &self.terms
    }

    /// The next attempt has this place, which it waited for.
    pub fn has_place(&mut self, place: Place) {
        self.place = Some(place);
    }

    /// The first token of an answer of `target` that is put together here.
    pub fn spoke(&mut self, target: usize, at: Instant) {
        self.spoke = Some(at - self.began);
        if let Some(open) = &mut self.open {
            let after = at - open.began();
            self.gateway.metrics.ttft(target, after);
            open.spoke(Some(after), at);
        }
    }

    /// An attempt at `target` begins. `last_resort`: it may rest, nobody else is left to ask.
    ///
    /// # Errors
    /// It does not: the target must be left alone at present. The attempt has failed by that, at nobody's cost.
    pub fn attempt_begins(&mut self, target: usize, last_resort: bool) -> Result<(), Failure> {
        (self.open, self.spoke) = (None, None);
        self.open = Some(self.terms.begin(target, self.place.take(), last_resort)?);
        if self.failures.iter().any(|(before, failure)| *before == target && !failure.cause.passes_over()) {
            self.gateway.metrics.retry(target);
        }
        Ok(())
    }

    /// The present attempt is given up for one that ran beside it.
    pub fn continues_with(&mut self, open: Open) {
        self.open = Some(open);
    }

    /// The request goes to the target.
    pub fn sends(&mut self) {
        if let Some(open) = &mut self.open {
            open.sent = true;
        }
    }

    /// The attempt at `target` failed before its commit.
    pub fn attempt_failed(&mut self, target: usize, failure: Failure, retry_after: Option<Duration>) {
        let open = self.open.take();
        self.failed(open, target, failure, retry_after);
    }

    /// So did one that ran beside the present attempt; without `open` where that was given back already.
    pub fn other_failed(
        &mut self,
        open: Option<Open>,
        target: usize,
        failure: Failure,
        wait: Option<Duration>,
    ) {
        self.failed(open, target, failure, wait);
    }

    fn failed(&mut self, open: Option<Open>, target: usize, mut failure: Failure, wait: Option<Duration>) {
        // A target may repeat it, in the midst of a stream too.
        if let Some(key) = self.gateway.config.targets.get(target).and_then(|target| target.key.as_ref()) {
            key.hide_in(&mut failure.detail);
        }
        let (first, at) = (!self.failures.iter().any(|(before, _)| *before == target), now());
        discovery::failed(&self.gateway, target, failure.cause);
        let counts = deaths::goes_on(&self.gateway, target, &mut failure, first, at);
        let took = open.as_ref().map_or(Duration::ZERO, |open| now() - open.began());
        let news = open.map(|open| open.end(ended_by(counts, wait))).unwrap_or_default();
        let name = self.gateway.name(target);
        let mistyped = failure.cause == Cause::ModelMissing && self.is_clients_name(target);
        // Who was only passed over did not fail: the request's line names it, and why it was is told by whoever knows.
        if !failure.cause.passes_over() {
            self.gateway.metrics.attempt(target, Some(failure.cause));
            if failure.cause.fault() != Fault::Downstream {
                events::attempt_failed(&self.id, name, &failure, took, mistyped);
            }
        }
        let (misconfigured, others): (Vec<_>, Vec<_>) =
            news.into_iter().partition(|news| matches!(news.what, Change::Misconfigured(_)));
        // In the target's own words.
        misconfigured.iter().filter(|_| !mistyped).for_each(|news| {
            self.gateway.metrics.turned(target, news::turned(news.what));
            events::target_misconfigured(name, &failure);
        });
        news::say(&self.gateway, &others);
        if failure.cause == Cause::Clock {
            self.gateway.waits_for_time(target, &failure);
        }
        self.failures.push((target, failure));
        self.failed_at.push(at);
    }

    /// The request is taken on, and is served by `plan`.
    pub fn planned(&mut self, plan: &Plan) {
        self.leaves.planned(&self.gateway, plan, &self.terms.wants.model, self.terms.prompt_tokens(), now());
    }

    /// Its memory or its slots keep the request from the box.
    pub fn shed(&mut self, shed: Shed) {
        self.leaves.shed(shed);
    }

    /// Calls each failure what it is called by now: its server's death may have shown since.
    pub fn settle(&mut self) {
        for ((target, failure), at) in self.failures.iter_mut().zip(&self.failed_at) {
            failure.cause = deaths::called(&self.gateway, *target, failure.cause, *at);
        }
    }

    /// Whether the client alone has named the model that it asks `target` for.
    fn is_clients_name(&self, target: usize) -> bool {
        let config = self.gateway.config.targets.get(target);
        !self.model.is_empty() && config.is_some_and(|config| !config.models.names(&self.model))
    }

    /// The attempt at `target` owns the stream from here on. `away`: it is not who would if all were well: its health,
    /// or another's budget, has sent the request there. `streams`: it is a stream, so that this is its first token.
    pub fn committed(&mut self, target: usize, away: bool, streams: bool, at: Instant) {
        self.away = away;
        let ttft = self.first_token().or(self.spoke).unwrap_or(at - self.began);
        self.committed = Some((target, ttft));
        if let Some(open) = &mut self.open {
            let after = at - open.began();
            if streams {
                self.gateway.metrics.ttft(target, after);
            }
            open.answered(streams.then_some(after), at);
            open.answer = Some(Some(Usage::default()));
        }
    }

    /// The committed stream of `target` broke, and another one is to take over.
    pub fn breaks(&mut self, target: usize, failure: Failure) {
        let first = self.first_token();
        self.broke.get_or_insert((failure.cause, first));
        self.attempt_failed(target, failure, None);
        self.committed = None;
        let usage = std::mem::take(&mut self.usage);
        self.before.prompt = sum(self.before.prompt, usage.prompt);
        self.before.completion = sum(self.before.completion, usage.completion);
    }

    /// The attempt at `target` has an answer that is passed on as it comes: no first token is measured. A refusal,
    /// which is the client's doing, says nothing about the target.
    pub fn passed(&mut self, target: usize, good: bool) {
        let at = now();
        self.committed = Some((target, at - self.began));
        match &mut self.open {
            Some(open) if good => {
                open.answered(None, at);
                open.answer = Some(None);
            }
            // Nothing is known of its target by that.
            _ => self.open = None,
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
        if let Some(open) = &mut self.open {
            open.gaps.token(held_up, at);
        }
    }

    /// The answer reported its tokens.
    pub fn usage(&mut self, usage: Option<Usage>) {
        if let Some(usage) = usage {
            self.usage.prompt = usage.prompt.or(self.usage.prompt);
            self.usage.completion = usage.completion.or(self.usage.completion);
            if let Some(open) = self.open.as_mut().filter(|open| open.answer.is_some()) {
                open.answer = Some(Some(self.usage));
            }
        }
    }

    /// How long the committed answer's first token took.
    #[must_use]
    pub fn first_token(&self) -> Option<Duration> {
        let before = self.broke.and_then(|(_, first)| first);
        self.committed.map(|(_, after)| after).or(before)
    }

    /// The failed attempts, in order, by target.
    #[must_use]
    pub fn failures(&self) -> &[(usize, Failure)] {
        &self.failures
    }

    /// `box:oom,cloud:committed`.
    #[must_use]
    pub fn attempts(&self, committed: Option<&str>) -> String {
        let failed = self.failures.iter().zip(&self.failed_at).map(|((target, failure), at)| {
            let cause = deaths::called(&self.gateway, *target, failure.cause, *at);
            (self.gateway.name(*target), cause.as_str())
        });
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
    pub fn end(&mut self, outcome: Outcome, mut broke: Option<(usize, Failure)>) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        self.settle();
        if let Some((target, failure)) = &mut broke {
            discovery::failed(&self.gateway, *target, failure.cause);
            deaths::explain(&self.gateway, *target, failure, now());
        }
        let ended = match &broke {
            Some((_, failure)) => ended_by(failure.cause, None),
            None if self.committed.is_some() => Ended::Well,
            None => Ended::Neutral,
        };
        let news = self.open.take().map(|open| open.end(ended)).unwrap_or_default();
        news::say(&self.gateway, &news);
        self.gateway.metrics.request(outcome);
        self.tell_rollout(outcome);
        if !self.terms.placeless {
            let committed = self.committed.map(|(target, _)| target);
            self.leaves.ended(&self.gateway, committed, &self.failures, outcome);
        }
        if let Some((target, failure)) = &broke {
            self.gateway.metrics.attempt(*target, Some(failure.cause));
        } else if let Some((target, _)) = self.committed {
            self.gateway.metrics.attempt(target, None);
        }
        let last_cause = self.failures.last().map(|(_, failure)| failure.cause);
        let cause = broke.as_ref().map(|(_, failure)| failure.cause).or(last_cause);
        self.drill.over(&self.gateway, outcome, cause, self.committed);
        let target = self.committed.map(|(target, _)| self.gateway.name(target));
        let broken = self.broke.map(|(cause, _)| cause);
        let last = self.failures.last().map(|(_, failure)| failure.cause);
        events::request_done(&Record {
            request: &self.id,
            client: self.client.as_deref(),
            dialect: self.dialect,
            model: &self.model,
            target,
            place: self.committed.and_then(|(target, _)| self.gateway.place(target, &self.model)),
            attempts: &self.attempts(target),
            status: self.status,
            outcome,
            cause: broke
                .as_ref()
                .map(|(_, failure)| failure.cause)
                .or(broken.or(last).filter(|_| target.is_none())),
            ttft: self.first_token(),
            took: now() - self.began,
            bytes: self.bytes,
            usage: Usage {
                prompt: sum(self.before.prompt, self.usage.prompt),
                completion: sum(self.before.completion, self.usage.completion),
            },
        });
    }

    fn tell_rollout(&self, outcome: Outcome) {
        // What fails on purpose says nothing about a routing.
        if self.drill.has_failed() {
            return;
        }
        // That nobody serves it is the client's mistake, or this routing's.
        let unserved = self.committed.is_none() && matches!(self.status, Some(404 | 501));
        let outcome = if unserved && outcome == Outcome::Refused { Outcome::Unavailable } else { outcome };
        let by_targets = self.failures.iter().filter(|(_, failure)| {
            failure.cause.fault() == Fault::Upstream && !failure.cause.is_of_the_request()
        });
        self.gateway.part.ended(&rollout::Ended {
            model: &self.model,
            began: self.began,
            outcome,
            rescued: self.away || by_targets.count() > 0,
            first_token: self.committed.map(|(_, ttft)| ttft),
        });
    }
}

/// As far as either is known.
fn sum(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    a.zip(b).map(|(a, b)| a.saturating_add(b)).or(a).or(b)
}

impl Drop for Account {
    /// Whoever drops an open account is the client's connection, which went away; or a panic of ours.
    fn drop(&mut self) {
        let (cause, outcome) = match (std::thread::panicking(), self.committed) {
            (false, _) => (Cause::ClientGone, Outcome::ClientGone),
            (true, None) => (Cause::Internal, Outcome::Failed),
            (true, Some(_)) => (Cause::Internal, Outcome::Broken),
        };
        let broke = self.committed.map(|(target, _)| (target, Failure::new(cause)));
        self.end(outcome, broke);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::task::{Context, Waker};

    use super::*;
    use crate::config;
    use crate::dialect::Dialect;
    use crate::proxy::outlet::{Drive, poll_caught};
    use crate::proxy::upstream::ProxyRules;

    #[test]
    fn a_panic_of_ours_is_not_told_as_the_clients_doing() {
        let config = config::parse(
            "[[target]]\nname = \"a\"\nkind = \"vllm\"\nurl = \"http://127.0.0.1:1\"\n",
            Path::new("t"),
            &|_| None,
        );
        let gateway = Gateway::new(config.unwrap().config, &ProxyRules::from_env(), None).unwrap();
        let gateway = Rc::new(gateway);
        let call = Call::bare(Dialect::OpenaiChat, "m");
        let account = Account::new(Rc::clone(&gateway), "id", None, &call, now());
        let mut drive: Drive = Box::pin(async move {
            let _open = account;
            panic!("a bug");
        });
        assert!(poll_caught(&mut drive, &mut Context::from_waker(Waker::noop())).is_ready());
        let page = gateway.metrics.render(&gateway.gauges());
        assert!(
            page.contains("{outcome=\"failed\"} 1") && page.contains("{outcome=\"client_gone\"} 0"),
            "{page}"
        );
    }
}
