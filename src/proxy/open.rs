//! What one attempt has open while it runs: a ticket of the health store, a place, money set aside. All of it is given
//! back once, at the latest when it is dropped.

use std::rc::Rc;
use std::time::{Duration, Instant};

use super::deaths::{self, Bound, Fate};
use super::facts::room::{self, Held, Wants};
use super::gaps::Gaps;
use super::gateway::Gateway;
use super::places::Place;
use super::{lately, news};
use crate::cause::{Cause, Failure, Fault};
use crate::dialect::Dialect;
use crate::dialect::event::Usage;
use crate::dialect::request::Call;
use crate::health::store::Ticket;
use crate::health::{Ended, News};
use crate::memory::admit::Outcome;
use crate::route::Passed;
use crate::route::budget::{Account, Estimate, Hold, Used};
use crate::time::now;

/// What all attempts of one request have in common.
#[derive(Clone)]
pub struct Terms {
    gateway: Rc<Gateway>,
    /// Of the client's key.
    pub key: Option<Account>,
    estimate: Estimate,
    /// They are so small that they need no places.
    pub placeless: bool,
    /// They may have a model loaded anew.
    pub reloads: bool,
    /// What they want of a local server's memory.
    pub wants: Wants,
}

/// One attempt's.
pub struct Open {
    gateway: Rc<Gateway>,
    began: Instant,
    ticket: Option<Ticket>,
    hold: Option<Hold>,
    _place: Option<Place>,
    /// Its place among those that its server's death ends.
    bound: Option<Bound>,
    /// Of a local server's memory and slots.
    held: Option<Held>,
    estimate: Estimate,
    /// The request went to the target, which may have worked on it.
    pub sent: bool,
    /// Its first token was there.
    spoke: bool,
    /// Between the tokens of its answer.
    pub gaps: Gaps,
    /// What its answer used, once it is the client's answer; `None` inside: it has no tokens that anybody counts.
    pub answer: Option<Option<Usage>>,
}

impl Terms {
    /// For a request of the client with this key.
    #[must_use]
    pub fn new(gateway: &Rc<Gateway>, client: Option<&str>, call: &Call) -> Self {
        let embeds = matches!(call.dialect, Dialect::OpenaiEmbeddings | Dialect::OllamaEmbed);
        let output_max = if embeds { Some(0) } else { call.max_tokens };
        Terms {
            key: gateway.accounts.of_key(&gateway.config.keys, client),
            gateway: Rc::clone(gateway),
            estimate: Estimate { input: call.prompt_tokens, output_max },
            placeless: false,
            reloads: false,
            wants: Wants::of(call, output_max),
        }
    }

    /// Of the prompt, as estimated.
    #[must_use]
    pub const fn prompt_tokens(&self) -> u64 {
        self.estimate.input
    }

    /// An attempt at `target` begins, with the place that it waited for or with one that is free.
    ///
    /// # Errors
    /// It does not: the target must be left alone at present, or what was left of a budget is taken by now.
    pub fn begin(
        &self,
        target: usize,
        waited_for: Option<Place>,
        last_resort: bool,
    ) -> Result<Open, Failure> {
        let (gateway, at) = (&self.gateway, now());
        let (spending, when) = (&gateway.process.spending, gateway.when(at));
        let config = gateway.config.targets.get(target);
        let bars = |config| spending.bars_attempt(&gateway.accounts, target, config, self.key, when);
        if let Some(barred) = config.and_then(bars) {
            return Err(Failure::with(Cause::Suspended, &barred.in_words()));
        }
        let free = || gateway.process.places.take(*gateway.lanes.get(target)?, at);
        let place = if self.placeless { None } else { waited_for.or_else(free) };
        if place.is_none() && !self.placeless {
            return Err(Failure::with(Cause::Suspended, &Passed::Full.in_words()));
        }
        let held = if self.placeless { None } else { room::begin(gateway, &self.wants, target, at)? };
        let begun = gateway.store.borrow_mut().begin(target, &self.wants.model, last_resort, at);
        let mut ticket = begun.map_err(|why| Failure::with(Cause::Suspended, &why.in_words()))?;
        ticket.prompt_tokens = self.estimate.input;
        let price = config.and_then(|target| target.price);
        Ok(Open {
            hold: spending.begin(&gateway.accounts, target, price, self.key, self.estimate, when),
            gateway: Rc::clone(gateway),
            began: at,
            ticket: Some(ticket),
            _place: place,
            bound: deaths::begins(gateway, target, &self.wants.model, self.reloads, at),
            held,
            estimate: self.estimate,
            sent: false,
            spoke: false,
            gaps: Gaps::default(),
            answer: None,
        })
    }
}

impl Open {
    /// When it began.
    #[must_use]
    pub fn began(&self) -> Instant {
        self.began
    }

    /// By what it is told that its server has died.
    #[must_use]
    pub fn fate(&self) -> Option<Rc<Fate>> {
        self.bound.as_ref().map(Bound::fate)
    }

    /// Whether it found no free slot, and waits at its server.
    #[must_use]
    pub fn is_queued(&self) -> bool {
        self.held.as_ref().is_some_and(Held::is_queued)
    }

    /// The client's answer has begun; `after`: its first token, `None` where it is passed on as it comes.
    pub fn answered(&mut self, after: Option<Duration>, at: Instant) {
        self.spoke(after, at);
        if let Some(bound) = &self.bound {
            bound.answered();
        }
    }

    /// Its first token is there, whether the client gets it now or at the answer's end. The first call counts.
    pub fn spoke(&mut self, after: Option<Duration>, at: Instant) {
        if std::mem::replace(&mut self.spoke, true) {
            return;
        }
        if let Some(bound) = &self.bound {
            bound.spoke();
        }
        if let Some(ticket) = &self.ticket {
            self.gateway.store.borrow_mut().answered(ticket, self.estimate.input, after, at);
        }
        if let Some(held) = &mut self.held {
            held.answers(at);
        }
    }

    /// It is over. Returns what an operator should be told.
    pub fn end(mut self, ended: Ended) -> Vec<News> {
        self.close(ended)
    }

    fn close(&mut self, ended: Ended) -> Vec<News> {
        let at = now();
        let used = self.used(ended);
        if let Some(hold) = self.hold.take() {
            let cost = self.gateway.process.spending.end(hold, used, self.gateway.when(at));
            lately::spent(&self.gateway, cost, at);
        }
        if let Some(mut held) = self.held.take() {
            let usage = self.answer.flatten().unwrap_or_default();
            let whole = ended == Ended::Well && self.answer.is_some();
            let output = usage.completion.filter(|_| whole);
            let out_of_memory = matches!(ended, Ended::Failed(cause, _) if cause.is_oom());
            let outcome = Outcome { prompt: usage.prompt, output, grew: None, whole, out_of_memory };
            held.end(&outcome, ended, at);
        }
        let Some(ticket) = self.ticket.take() else { return Vec::new() };
        if self.sent {
            self.gateway.sent_to(ticket.target, self.estimate.input);
        }
        if matches!(ended, Ended::Failed(..)) {
            // It may pause now, which is no news.
            self.gateway.process.locals.changed();
        }
        let mut store = self.gateway.store.borrow_mut();
        if let Some(gaps) = self.gaps.seen() {
            store.gaps(&ticket, gaps, at);
        }
        store.end(ticket, ended, at)
    }

    /// What it has used, by what its answer said, else by the prompt.
    fn used(&self, ended: Ended) -> Used {
        if !self.sent {
            return Used::Nothing;
        }
        let prompt = Used::Tokens { input: self.estimate.input, output: 0 };
        match (self.answer, ended) {
            (Some(None), _) => Used::Nothing,
            (Some(Some(usage)), _) => {
                let input = usage.prompt.unwrap_or(self.estimate.input);
                let output = usage.completion.or(self.estimate.output_max.filter(|most| *most == 0));
                output.map_or(Used::Unknown, |output| Used::Tokens { input, output })
            }
            (None, Ended::Failed(cause, _)) if !worked(cause) => Used::Nothing,
            (None, Ended::Well | Ended::Neutral | Ended::Failed(..)) => prompt,
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let told = self.close(Ended::Neutral);
        news::say(&self.gateway, &told);
    }
}

/// Whether a target that failed so has worked on the prompt.
const fn worked(cause: Cause) -> bool {
    matches!(
        cause,
        Cause::TimeoutFirstToken
            | Cause::TimeoutBetweenTokens
            | Cause::TimeoutAnswer
            | Cause::TimeoutLoad
            | Cause::TimeoutTotal
            | Cause::Reset
            | Cause::Closed
            | Cause::Crashed
            | Cause::Oom
            | Cause::OomKill
            | Cause::CudaOom
            | Cause::Xid
            | Cause::Hang
            | Cause::ErrorInStream
            | Cause::Protocol
            | Cause::Empty
            | Cause::Truncated
            | Cause::Overflow
    )
}

/// What a failure says about its target: nothing, unless it is the target's fault.
#[must_use]
pub fn ended_by(cause: Cause, retry_after: Option<Duration>) -> Ended {
    match cause.fault() {
        Fault::Upstream => Ended::Failed(cause, retry_after),
        Fault::Downstream | Fault::Internal => Ended::Neutral,
    }
}
