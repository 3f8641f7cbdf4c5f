//! The attempt beside a late one: from its connection to its verdict, within one future. Dropping it is the cancel.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method};
use tokio::sync::OwnedSemaphorePermit;

use super::attempt::Source;
use super::refused::{refusal_body, refused};
use super::{Driver, Job, Kept, Stage};
use crate::cause::{Cause, Failure};
use crate::dialect::request::Call;
use crate::gate::pool::Buffer;
use crate::gate::{Gate, Rules, Verdict};
use crate::proxy::exchange::Action;
use crate::proxy::gateway::Gateway;
use crate::proxy::head::{self, HeadKind};
use crate::proxy::media::{self, Held};
use crate::proxy::open::{Open, Terms};
use crate::proxy::relay::Edits;
use crate::proxy::upstream::{Reply, SendError};
use crate::route::{Candidate, Plan};

/// What hedges of one request are made of. There is none where hedging is off.
pub(super) struct Hedges {
    gateway: Rc<Gateway>,
    id: String,
    call: Call,
    method: Method,
    path: String,
    headers: HeaderMap,
    credential: HeaderMap,
    body: Bytes,
    media: Rc<Held>,
    rules: Rules,
    terms: Terms,
    candidates: Vec<Candidate>,
}

/// A hedge under way.
pub(super) type Running = Pin<Box<dyn Future<Output = Box<Over>>>>;

/// What came of it, and at which candidate.
pub(super) struct Over {
    pub(super) candidate: usize,
    pub(super) open: Open,
    pub(super) end: Result<Won, Lost>,
}

/// Its first token is there.
pub(super) struct Won {
    pub(super) reply: Reply,
    pub(super) gate: Box<Gate>,
    pub(super) rest: Bytes,
    pub(super) edits: Edits,
    /// Must outlive the gate.
    pub(super) permit: OwnedSemaphorePermit,
}

/// It failed.
pub(super) struct Lost {
    pub(super) failure: Failure,
    pub(super) wait: Option<Duration>,
    pub(super) kept: Option<Kept>,
}

impl From<Failure> for Lost {
    fn from(failure: Failure) -> Self {
        Lost { failure, wait: None, kept: None }
    }
}

impl Hedges {
    pub(super) fn new(job: &Job, plan: &Plan, rules: Rules, terms: &Terms) -> Rc<Self> {
        Rc::new(Hedges {
            gateway: Rc::clone(&job.gateway),
            id: job.id.clone(),
            call: job.call.clone(),
            method: job.method.clone(),
            path: job.path.clone(),
            headers: job.headers.clone(),
            credential: job.credential.clone(),
            body: job.body.bytes.clone(),
            media: Rc::clone(&job.media),
            rules,
            terms: terms.clone(),
            candidates: plan.candidates.clone(),
        })
    }

    /// Begins one, if the share of hedges allows it, a gate buffer is free now, and its target may be asked.
    pub(super) fn begin(self: &Rc<Self>, candidate: usize) -> Option<Running> {
        let target = self.candidates.get(candidate)?.target;
        if !self.gateway.process.hedges.borrow_mut().take() {
            return None;
        }
        let begun = self.gateway.free_gate_room().zip(self.terms.begin(target, None, false).ok());
        let Some((room, open)) = begun else {
            self.gateway.process.hedges.borrow_mut().put_back();
            return None;
        };
        self.gateway.metrics.hedge(target);
        let (buffer, permit) = room.split();
        Some(Box::pin(Rc::clone(self).run(candidate, buffer, permit, open)))
    }

    async fn run(
        self: Rc<Self>,
        candidate: usize,
        buffer: Buffer,
        permit: OwnedSemaphorePermit,
        mut open: Open,
    ) -> Box<Over> {
        let fate = open.fate();
        let end = {
            let mut attempt = std::pin::pin!(self.attempt(candidate, buffer, permit, &mut open));
            poll_fn(|cx| match fate.as_ref().map(|fate| fate.poll(cx)) {
                Some(Poll::Ready(cause)) => Poll::Ready(Err(Failure::new(cause).into())),
                Some(Poll::Pending) | None => attempt.as_mut().poll(cx),
            })
            .await
        };
        Box::new(Over { candidate, open, end })
    }

    async fn attempt(
        &self,
        candidate: usize,
        buffer: Buffer,
        permit: OwnedSemaphorePermit,
        open: &mut Open,
    ) -> Result<Won, Lost> {
        let candidate = self.candidates.get(candidate).ok_or(Failure::new(Cause::Internal))?;
        let (mut reply, edits) = self.reply(candidate, open).await?;
        let rules = Rules { dialect: candidate.wire, drop_progress: edits.hide_progress, ..self.rules };
        match head::kind(candidate.wire, true, reply.status, &reply.headers) {
            HeadKind::Stream => {}
            HeadKind::Error => {
                let target = self.gateway.config.targets.get(candidate.target);
                let key = target.and_then(|target| head::key_sent(target, &self.credential));
                let body = refusal_body(&mut reply, key).await;
                let refused = refused(&reply, body, rules, candidate.target, self.call.dialect);
                return Err(Lost { failure: refused.failure, wait: refused.wait, kept: refused.kept });
            }
            HeadKind::Answer => return Err(Failure::with(Cause::Protocol, "no stream").into()),
            HeadKind::Alien(what) => return Err(Failure::with(Cause::Protocol, &what).into()),
        }
        let mut gate = Box::new(Gate::new(rules, buffer));
        loop {
            let (verdict, rest) = match reply.chunk().await {
                Some(Ok(mut chunk)) => {
                    let step = gate.push(&chunk);
                    (step.verdict, chunk.split_off(step.consumed))
                }
                Some(Err(failure)) => (Some(gate.broken(failure)), Bytes::new()),
                None => (Some(gate.end()), Bytes::new()),
            };
            let cause = match verdict {
                None => continue,
                Some(Verdict::Commit) => return Ok(Won { reply, gate, rest, edits, permit }),
                Some(Verdict::Failed(failure)) => return Err(failure.into()),
                Some(Verdict::Empty(_)) => Cause::Empty,
                Some(Verdict::Overflow) => Cause::Overflow,
            };
            return Err(Failure::new(cause).into());
        }
    }

    async fn reply(&self, candidate: &Candidate, open: &mut Open) -> Result<(Reply, Edits), Failure> {
        let source = Source {
            id: &self.id,
            gateway: &self.gateway,
            media: &self.media,
            call: &self.call,
            method: &self.method,
            path: &self.path,
            headers: &self.headers,
            credential: &self.credential,
            body: &self.body,
            prefix: None,
            fitted: None,
        };
        if media::wants_pictures(&self.gateway, &self.call, candidate) {
            self.media.fetch_all(&self.gateway, &self.call, &self.body).await;
        }
        let mut fresh = false;
        loop {
            let link = self.gateway.upstreams.connect(candidate.target, fresh).await?;
            let (request, edits) = source.request(candidate)?;
            open.sent = true;
            match link.send(request).await {
                Err(SendError::Stale(_)) if !fresh => fresh = true,
                Err(error) => return Err(error.into_failure()),
                Ok(reply) => return Ok((reply, edits)),
            }
        }
    }
}

impl Driver {
    /// Gets ready for hedges, where they are on and a first token can be late.
    pub(super) fn may_hedge(&mut self) {
        if !self.job.call.stream || !self.plan.candidates.iter().any(|candidate| candidate.hedge) {
            return;
        }
        let gateway = Rc::clone(&self.job.gateway);
        gateway.process.hedges.borrow_mut().request(gateway.config.hedge.share);
        let (call, store) = (&self.job.call, gateway.store.borrow());
        let late_after = |candidate: &Candidate| {
            candidate
                .hedge
                .then(|| store.first_token_p95(candidate.target, &call.model, call.prompt_tokens))?
        };
        let late_after: Vec<_> = self.plan.candidates.iter().map(late_after).collect();
        if late_after.iter().any(Option::is_some) {
            self.pace.exchange.hedging(late_after);
            self.pace.hedges = Some(Hedges::new(&self.job, &self.plan, self.rules(), self.account.terms()));
        }
    }

    /// The first attempt failed, the one beside it is the attempt now.
    pub(super) async fn adopt(&mut self, candidate: usize) -> Action {
        self.next_attempt(candidate);
        match self.pace.run(std::future::pending::<std::convert::Infallible>()).await {
            Err(action) => action,
            Ok(never) => match never {},
        }
    }

    /// Before a commit: of two attempts the other one may be the answer. Ends the one that is not.
    pub(super) fn settle(&mut self) {
        (self.pace.hedge, self.pace.fate) = (None, None);
        let Some(over) = self.pace.over.take() else { return };
        let Over { candidate, open, end: Ok(won) } = *over else { return };
        self.next_attempt(candidate);
        self.attempt.reply = Some(won.reply);
        self.attempt.stage = Stage::Committed(won.gate, won.rest);
        self.attempt.edits = won.edits;
        self.attempt.permit = Some(won.permit);
        self.account.continues_with(open);
    }
}
