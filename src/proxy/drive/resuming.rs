//! A stream that broke after its first token and goes on at another target, by what [`crate::proxy::resume`] decides:
//! the same client's stream, a second exchange.

use std::rc::Rc;

use bytes::Bytes;

use super::{Driver, Stage};
use crate::cause::{Cause, Failure};
use crate::config::OnBreak;
use crate::dialect::translate::{Heard, Translation};
use crate::dialect::{Dialect, conversation};
use crate::gate::repetition;
use crate::limits;
use crate::observe::resume_events::{self, Came, Resumed};
use crate::observe::{Limit, Outcome};
use crate::proxy::exchange::{Action, Event, Exchange};
use crate::proxy::refusal;
use crate::proxy::relay::Relay;
use crate::proxy::resume::{self, Broken};
use crate::route::{Before, Candidate, Plan};
use crate::time::now;

/// What a stream goes by that may go on elsewhere.
pub(super) struct Resume {
    policy: OnBreak,
    /// All candidates, in order.
    all: Vec<Candidate>,
    count: usize,
    /// What went wrong first, and where.
    first: Option<(usize, Failure)>,
    /// From a break to the next commit.
    between: Option<Between>,
}

struct Between {
    how: Resumed,
    from: usize,
    cause: Cause,
    /// The client's stream.
    translation: Box<Translation>,
    /// What was said, for targets that are to go on with it.
    prefix: Option<Prefix>,
}

/// The beginning of an answer.
pub(super) struct Prefix {
    pub(super) said: String,
    /// Of it, estimated.
    pub(super) tokens: u64,
}

impl Resume {
    /// What its client or its route asks for; `None`: a break is the end.
    pub(super) fn new(job: &super::Job, plan: &mut Plan) -> Option<Box<Resume>> {
        let call = &job.call;
        let asked = job.on_break.filter(|_| job.gateway.config.resume.by_header);
        let policy = asked.unwrap_or(plan.on_break);
        if policy == OnBreak::Error || !call.stream || !call.dialect.converses() {
            return None;
        }
        if call.dialect == Dialect::OpenaiResponses {
            in_chat(plan, &job.body.bytes);
        }
        Some(Box::new(Resume { policy, all: plan.candidates.clone(), count: 0, first: None, between: None }))
    }
}

/// No server's stream of Responses can be gone on with under its own numbers: its servers are asked in their other
/// dialect, unless what is asked for is theirs alone.
fn in_chat(plan: &mut Plan, body: &[u8]) {
    let Ok(asked) = conversation::decode(Dialect::OpenaiResponses, body) else { return };
    let hosted = asked.tools.iter().any(|tool| tool.hosted.is_some());
    if asked.bound.is_some() || hosted || !asked.extras.is_empty() {
        return;
    }
    for candidate in plan.candidates.iter_mut().chain(&mut plan.full) {
        if candidate.wire == Dialect::OpenaiResponses {
            candidate.wire = Dialect::OpenaiChat;
        }
    }
}

impl Driver {
    /// Whether the body is needed after the commit.
    pub(super) const fn may_resume(&self) -> bool {
        self.resume.is_some()
    }

    /// A broken stream waits for another target.
    pub(super) fn is_between(&self) -> bool {
        self.resume.as_ref().is_some_and(|resume| resume.between.is_some())
    }

    /// What targets are given of the answer.
    pub(super) fn prefix(&self) -> Option<&Prefix> {
        self.resume.as_ref()?.between.as_ref()?.prefix.as_ref()
    }

    /// What failed first of this stream.
    pub(super) fn first_break(&self) -> Option<(usize, Failure)> {
        self.resume.as_ref()?.first.clone()
    }

    /// How a stream of `wire` is followed, where it may break or go round in circles; `None`: it is not.
    pub(super) fn followed(&mut self, wire: Dialect) -> Option<Box<Translation>> {
        let dialect = self.job.call.dialect;
        let terms = &self.job.gateway.config.repetition;
        let looks = terms.enabled;
        if wire == dialect && self.resume.is_none() && !looks {
            return None;
        }
        let translation = Translation::new(wire, dialect, self.terms())?.expecting(self.job.call.choices);
        let translation = if wire == dialect { translation.following() } else { translation };
        if looks {
            let terms = repetition::Terms { times: terms.times, bytes: terms.bytes };
            self.repetition = Some(Box::new(repetition::Repetition::new(terms)));
        }
        if self.resume.is_none() && !looks {
            return Some(Box::new(translation));
        }
        let keeps = self.resume.as_ref().is_some_and(|resume| resume.policy.continues());
        Some(Box::new(translation.hearing(Heard::new(keeps, looks))))
    }

    /// Whether what was said of late goes round in circles.
    pub(super) fn loops(&mut self) -> bool {
        let Some(repetition) = &mut self.repetition else { return false };
        let heard = self.attempt.translation.as_mut().and_then(|translation| translation.heard_mut());
        let Some(fresh) = heard.and_then(Heard::take_fresh) else { return false };
        let Some(found) = repetition.push(fresh.as_bytes()) else { return false };
        self.attempt.detail = format!("{} bytes, {} times in a row", found.period, found.times);
        true
    }

    /// A committed stream broke: what to do instead of telling the client. `None`: nothing.
    pub(super) async fn resumes(&mut self, cause: Cause) -> Option<Action> {
        let policy = self.resume.as_ref()?.policy;
        let how = self.how(cause);
        let kept = self.attempt.translation.as_ref().and_then(|translation| self.kept(translation, how));
        let from = self.target();
        let candidates = how.map(|how| self.left(how, &[from], 0)).unwrap_or_default();
        let Some((how, prefix)) = kept.filter(|_| !candidates.is_empty()) else {
            if cause.fault() == crate::cause::Fault::Upstream {
                let wanted = if policy.continues() { Resumed::Continue } else { Resumed::Restart };
                self.job.gateway.metrics.broke(wanted, Came::Barred);
            }
            return None;
        };
        let translation = self.attempt.translation.take()?;
        let failure = Failure { cause, detail: std::mem::take(&mut self.attempt.detail) };
        self.account.breaks(from, failure.clone());
        if let Some(resume) = &mut self.resume {
            resume.count += 1;
            resume.first.get_or_insert((from, failure));
            resume.between = Some(Between { how, from, cause, translation, prefix });
        }
        Some(self.second(candidates).await)
    }

    fn how(&self, cause: Cause) -> Option<Resumed> {
        let resume = self.resume.as_ref()?;
        let translation = self.attempt.translation.as_ref()?;
        let Stage::Relay(relay) = &self.attempt.stage else { return None };
        let shadows = self.attempt.shadow;
        // What goes out untouched is followed only as long as it is understood.
        let lost = shadows && translation.failure().is_some_and(|failure| failure.cause != cause);
        let cut = shadows && relay.cut_inside_event();
        let call = &self.job.call;
        let asked = conversation::decode(call.dialect, &self.job.body.bytes).ok();
        let broken = Broken {
            policy: resume.policy,
            cause,
            heard: translation.heard()?,
            asked: asked.as_ref(),
            prompt_tokens: call.prompt_tokens,
            most_tokens: self.job.gateway.config.resume.continue_max_tokens.into(),
            beyond_repair: lost || cut || relay.said().finished || !translation.may_resume(),
            before: resume.count,
        };
        match broken.how() {
            Ok(how) => Some(how),
            Err(why) => {
                crate::observe::fine("a broken stream does not go on", None, &why);
                None
            }
        }
    }

    fn kept(&self, translation: &Translation, how: Option<Resumed>) -> Option<(Resumed, Option<Prefix>)> {
        let (how, heard) = (how?, translation.heard()?);
        let prefix = (how == Resumed::Continue)
            .then(|| Prefix { said: heard.text().to_owned(), tokens: resume::said_tokens(heard) });
        Some((how, prefix))
    }

    /// Who may go on, without `more` and whoever has failed, but for those whose failure by the prefix is the `since`th
    /// one or later.
    fn left(&self, how: Resumed, more: &[usize], since: usize) -> Vec<Candidate> {
        let failures = self.account.failures().iter().enumerate();
        let by_prefix = |at: usize, cause| since > 0 && at >= since && resume::by_the_prefix(cause);
        let failed = failures.filter(|(at, (_, failure))| !by_prefix(*at, failure.cause));
        let failed = failed.filter(|(_, (_, failure))| !failure.cause.passes_over());
        let failed: Vec<usize> = failed.map(|(_, (target, _))| *target).chain(more.iter().copied()).collect();
        let config = &self.job.gateway.config;
        let kind = |target: usize| config.targets.get(target).map(|target| target.kind);
        self.resume.as_ref().map(|resume| resume::left(&resume.all, &failed, how, kind)).unwrap_or_default()
    }

    /// A second exchange over these candidates, within the same response.
    async fn second(&mut self, candidates: Vec<Candidate>) -> Action {
        self.next_attempt(0);
        (self.rejection, self.empty, self.pace.hedges) = (None, None, None);
        self.noted = self.account.failures().len();
        let gateway = Rc::clone(&self.job.gateway);
        let at = now();
        let total = candidates.first().map_or(limits::TOTAL, |first| first.deadlines.total);
        let total = at + total.min(gateway.config.limits.request_time);
        let tokens = self.job.call.prompt_tokens + self.prefix().map_or(0, |prefix| prefix.tokens);
        self.plan.candidates = candidates;
        self.pace.exchange =
            Exchange::new(self.plan.candidates.clone(), tokens, self.plan.heartbeat, total, at)
                .retrying(&gateway.config.retry, gateway.random());
        if self.room.is_none() {
            match self.pace.run(gateway.gate_room()).await {
                Ok(Some(room)) => {
                    let (buffer, permit) = room.split();
                    self.room = Some((Some(buffer), permit));
                }
                Ok(None) => {
                    self.limit_hit(Limit::GatedStreams);
                    return Action::Refuse(Cause::NoBuffer);
                }
                Err(action) => return action,
            }
        }
        self.pace.exchange.on(Event::Start, now())
    }

    /// Nobody goes on with what was said. Another whole answer may do, for clients that understand it. `None`: the stream
    /// is at its end.
    pub(super) async fn falls_back(&mut self, cause: Cause) -> Option<Action> {
        let resume = self.resume.as_ref()?;
        let continued = resume.between.as_ref().is_some_and(|between| between.how == Resumed::Continue);
        if !continued || !resume.policy.restarts() || is_stop(cause) {
            return None;
        }
        let candidates = self.left(Resumed::Restart, &[], self.noted);
        if candidates.is_empty() {
            return None;
        }
        let between = self.resume.as_mut()?.between.as_mut()?;
        (between.how, between.prefix) = (Resumed::Restart, None);
        self.job.gateway.metrics.broke(Resumed::Continue, Came::Failed);
        Some(self.second(candidates).await)
    }

    /// Another target has taken over: its bytes become the client's within the same stream.
    pub(super) async fn takes_over(&mut self) -> Action {
        self.settle();
        let between = self.resume.as_mut().and_then(|resume| resume.between.take());
        let Some(mut between) = between else { return self.failed(Failure::new(Cause::Internal)) };
        let Stage::Committed(gate, rest) = std::mem::take(&mut self.attempt.stage) else {
            self.attempt.translation = Some(between.translation);
            return self.failed(Failure::new(Cause::Internal));
        };
        let (at, to, wire) = (now(), self.target(), self.wire());
        self.account.committed(to, self.plan.is_away(to), true, at);
        self.job.gateway.routing.borrow_mut().committed(&self.plan, to, Before::Failed, at);
        let after = between.translation.heard().map_or(0, Heard::characters);
        let mut told = Vec::new();
        let ready = match between.how {
            Resumed::Continue => between.translation.goes_on(wire, self.attempt.edits.prefilled),
            Resumed::Restart => between.translation.restarts(wire, between.cause, &mut told),
        };
        self.attempt.translation = Some(between.translation);
        if !ready {
            return self.failed(Failure::new(Cause::Internal));
        }
        if let Some(repetition) = self.repetition.as_mut().filter(|_| between.how == Resumed::Restart) {
            let terms = &self.job.gateway.config.repetition;
            let terms = repetition::Terms { times: terms.times, bytes: terms.bytes };
            **repetition = repetition::Repetition::new(terms);
        }
        let gateway = &self.job.gateway;
        let (from, to) = (gateway.name(between.from), gateway.name(to));
        gateway.metrics.broke(between.how, Came::Resumed);
        resume_events::resumed(&self.job.id, from, to, between.how, after, between.cause);
        self.account.sent(told.len());
        self.pace.outlet.bytes(Bytes::from(told));
        let mut relay = Box::new(Relay::new(wire, self.edits()).expecting(self.job.call.choices));
        let held = Bytes::copy_from_slice(gate.held());
        drop((gate, self.room.take(), self.attempt.permit.take()));
        let mut out = Vec::new();
        relay.held(held, &mut out);
        relay.push(rest, &mut out);
        self.forward(relay, out).await
    }

    /// Nobody took over: the client is told what went wrong first, or that it was stopped.
    pub(super) async fn end_between(&mut self, cause: Cause) {
        let between = self.resume.as_mut().and_then(|resume| resume.between.take());
        let (Some(mut between), Some((target, first))) = (between, self.first_break()) else { return };
        self.next_attempt(0);
        self.room = None;
        let failure = if is_stop(cause) { Failure::new(cause) } else { first };
        let problem = refusal::broken(self.job.gateway.name(target), &failure);
        let mut event = Vec::new();
        between.translation.fail(&problem, &mut event);
        self.pace.outlet.bytes(Bytes::from(event));
        self.job.gateway.metrics.broke(between.how, Came::Failed);
        let outcome = match cause {
            Cause::Cancelled => Outcome::Cancelled,
            Cause::Draining => Outcome::Drained,
            _ => Outcome::Broken,
        };
        self.account.end(outcome, None);
        self.pace.flushed().await;
        self.pace.outlet.end_broken();
    }
}

const fn is_stop(cause: Cause) -> bool {
    matches!(cause, Cause::Cancelled | Cause::Draining)
}

/// Whole events that go out untouched, for whoever follows them.
pub(super) fn follow(translation: &mut Translation, events: &[Bytes]) {
    let mut unused = Vec::new();
    for event in events {
        translation.push(event, &mut unused);
        unused.clear();
    }
}

/// `x-edgeward-on-break`: what a client asks for, for its own request.
pub fn asked(headers: &http::HeaderMap) -> Result<Option<OnBreak>, String> {
    let Some(value) = headers.get(ON_BREAK) else { return Ok(None) };
    let known = OnBreak::ALL.into_iter().find(|on| on.as_str().as_bytes() == value.as_bytes().trim_ascii());
    known.map(Some).ok_or_else(|| {
        format!(
            "the header `{ON_BREAK}` must be `error`, `restart`, `continue` or `continue_or_restart`: what becomes of the \
             stream if its target breaks after the first token"
        )
    })
}

/// The header's name.
const ON_BREAK: &str = "x-edgeward-on-break";
