//! From the commit on: the target's bytes become the client's.

use std::rc::Rc;

use bytes::Bytes;

use super::resuming::follow;
use super::{Driver, Stage};
use crate::cause::{Cause, Failure};
use crate::config::{Kind, ModelName};
use crate::dialect::event::Usage;
use crate::dialect::request::quote;
use crate::dialect::translate::{self, Took, Translation};
use crate::dialect::{self, Dialect};
use crate::limits;
use crate::proxy::body::HeldBody;
use crate::proxy::exchange::{Action, Event};
use crate::proxy::head;
use crate::proxy::outlet::Head;
use crate::proxy::relay::{Edits, Relay};
use crate::route::Delivery;
use crate::time::now;

const ANTHROPIC: Dialect = Dialect::Anthropic;

impl Driver {
    /// The point of no return.
    pub(super) async fn commit(&mut self) -> Action {
        if self.is_between() {
            return self.takes_over().await;
        }
        self.settle();
        let Some(reply) = self.attempt.reply.as_ref() else {
            return self.failed(Failure::new(Cause::Internal));
        };
        let (status, mut headers) = (reply.status, head::to_client(&reply.headers));
        let at = now();
        // A drill says nothing about routing, and no conversation stays where it was sent by one.
        let drilled = self.account.was_drilled();
        let away = !drilled && self.plan.is_away(self.target());
        let streams = matches!(self.attempt.stage, Stage::Committed(..));
        self.account.committed(self.target(), away, streams, at);
        if !drilled {
            let (before, routing) = (self.before(), &self.job.gateway.routing);
            routing.borrow_mut().committed(&self.plan, self.target(), before, at);
        }
        if let Some(candidate) =
            self.plan.candidates.get(self.attempt.candidate).filter(|_| self.attempt.unstreamed)
        {
            let (gateway, target) = (&self.job.gateway, candidate.target);
            gateway.process.unstreamed.borrow_mut().add(gateway.name(target), &candidate.model, at);
        }
        self.account.status(status.as_u16());
        if !self.may_resume() {
            self.job.body = HeldBody { bytes: Bytes::new(), reserved: None };
            self.job.media = Rc::default();
        }
        self.own_headers(&mut headers, Some(self.target()));
        match std::mem::take(&mut self.attempt.stage) {
            Stage::Committed(gate, rest) => {
                let (wire, dialect) = (self.wire(), self.job.call.dialect);
                let mut relay = Box::new(Relay::new(wire, self.edits()).expecting(self.job.call.choices));
                self.attempt.translation = self.followed(wire);
                self.attempt.shadow = wire == dialect;
                if wire != dialect {
                    head::typed(&mut headers, Some(dialect.framing()));
                }
                let held = Bytes::copy_from_slice(gate.held());
                drop((gate, self.room.take(), self.attempt.permit.take()));
                let mut out = Vec::new();
                out.extend(self.begun(wire, &held));
                relay.held(held, &mut out);
                relay.push(rest, &mut out);
                head::for_stream(&mut headers, self.job.call.dialect.framing());
                self.pace.head(Head { status, headers, whole: None });
                self.forward(relay, out).await
            }
            Stage::Whole(body) => {
                if self.wire() != self.job.call.dialect || self.delivery() == Delivery::Collected {
                    head::typed(&mut headers, None);
                }
                let (body, usage) = self.renamed(body);
                self.account.usage(usage);
                self.account.sent(body.len());
                self.pace.head(Head { status, headers, whole: Some(body) });
                self.pace.exchange.on(Event::Ended { whole: true }, now())
            }
            Stage::Answer(body, reserved) => {
                self.pace.head(Head { status, headers, whole: None });
                self.attempt.stage = Stage::Raw;
                drop(reserved);
                self.send_on(vec![Bytes::from(body)]).await.unwrap_or(Action::Read)
            }
            Stage::Nothing | Stage::Gate(_) | Stage::Collecting(..) | Stage::Relay(_) | Stage::Raw => {
                self.failed(Failure::new(Cause::Internal))
            }
        }
    }

    /// What has come goes on together: tokens that came at once cost one write.
    pub(super) async fn relay(&mut self) -> Action {
        let Some(reply) = self.attempt.reply.as_mut() else {
            return self.failed(Failure::new(Cause::Internal));
        };
        let mut chunks = std::mem::take(&mut self.chunks);
        let end = match self.pace.run(reply.gather(&mut chunks, limits::RELAY_GATHER_BYTES)).await {
            Err(action) => return action,
            Ok(end) => end,
        };
        let Stage::Relay(mut relay) = std::mem::take(&mut self.attempt.stage) else {
            return self.failed(Failure::new(Cause::Internal));
        };
        let mut out = std::mem::take(&mut self.out);
        chunks.drain(..).for_each(|chunk| relay.push(chunk, &mut out));
        self.chunks = chunks;
        if matches!(end, Some(Ok(()))) {
            relay.end(&mut out);
        }
        let action = self.forward(relay, out).await;
        match end {
            Some(Ok(())) if action == Action::Read => {
                self.pace.exchange.on(Event::Ended { whole: false }, now())
            }
            Some(Err(failure)) if action == Action::Read => {
                self.attempt.detail = failure.detail;
                self.pace.exchange.on(Event::Broke(failure.cause), now())
            }
            Some(_) | None => action,
        }
    }

    pub(super) async fn forward(&mut self, mut relay: Box<Relay>, mut out: Vec<Bytes>) -> Action {
        let (moved, spoke) = (relay.take_moved(), relay.take_spoke());
        let said = relay.said();
        let (finished, done) = (said.finished, said.done);
        let mut error = said.error.clone();
        self.account.usage(said.usage);
        self.attempt.stage = Stage::Relay(relay);
        let took = self.took();
        if let Some(translation) = &mut self.attempt.translation {
            translation.took(took);
            if self.attempt.shadow {
                follow(translation, &out);
            } else {
                translated(translation, &mut out);
                error = error.or_else(|| translation.failure().cloned());
            }
        }
        let loops = self.loops();
        if let Some(action) = self.send_on(out).await {
            return action;
        }
        match error {
            Some(failure) => {
                self.attempt.detail = failure.detail;
                self.pace.exchange.on(Event::ErrorEvent(failure.cause), now())
            }
            // Of an answer that is whole there is nothing to end.
            None if loops && !finished => self.pace.exchange.on(Event::Broke(Cause::Repetition), now()),
            None if moved => {
                let at = now();
                if spoke {
                    self.account.token(self.pace.outlet.take_blocked(), at);
                }
                self.pace.exchange.on(Event::Moved { spoke, finished, done }, at)
            }
            None => Action::Read,
        }
    }

    pub(super) async fn raw(&mut self, chunk: Option<Result<Bytes, Failure>>) -> Action {
        self.attempt.stage = Stage::Raw;
        match chunk {
            Some(Ok(chunk)) => match self.send_on(vec![chunk]).await {
                Some(action) => action,
                None => {
                    self.pace.exchange.on(Event::Moved { spoke: true, finished: false, done: false }, now())
                }
            },
            None => self.pace.exchange.on(Event::Ended { whole: true }, now()),
            Some(Err(failure)) => self.pace.exchange.on(Event::Broke(failure.cause), now()),
        }
    }

    /// To the client, at its pace. `Some`: it must stop.
    pub(super) async fn send_on(&mut self, mut out: Vec<Bytes>) -> Option<Action> {
        let length: usize = out.iter().map(Bytes::len).sum();
        self.account.sent(length);
        if out.len() > 1 && length <= limits::RELAY_GATHER_BYTES {
            // Each piece is an HTTP chunk to hyper: small ones are cheaper copied together.
            self.pace.outlet.bytes(Bytes::from(out.concat()));
            out.clear();
        } else {
            out.drain(..).for_each(|bytes| self.pace.outlet.bytes(bytes));
        }
        self.out = out;
        if length == 0 { None } else { self.pace.taken().await }
    }

    pub(super) fn edits(&self) -> Edits {
        // A translated answer gets its name with its new form.
        let model = if self.wire() == self.job.call.dialect { self.shown_model() } else { None };
        Edits { model, hide_error: self.may_resume(), ..self.attempt.edits.clone() }
    }

    /// What an answer in the client's dialect is called, where the target's is another.
    pub(super) fn terms(&self) -> translate::Terms {
        let call = &self.job.call;
        let asked = self.plan.model_name == ModelName::Asked;
        translate::Terms {
            id: self.job.id.clone(),
            model: if asked { call.model.clone() } else { String::new() },
            created: self.job.gateway.seconds(),
            wants_usage: call.wants_usage,
            hides_thinking: self.attempt.edits.hide_thinking,
            took: self.took(),
        }
    }

    /// What a stream that goes on as it comes lacks at its beginning.
    fn begun(&self, wire: Dialect, held: &[u8]) -> Option<Bytes> {
        let call = &self.job.call;
        let target = self.job.gateway.config.targets.get(self.target())?;
        let lacks = target.kind == Kind::Llamacpp && (wire, call.dialect) == (ANTHROPIC, ANTHROPIC);
        let start = lacks.then(|| translate::anthropic_begun(held, &self.job.id, &call.model));
        start?.map(Bytes::from)
    }

    /// How long the answer took so far.
    pub(super) fn took(&self) -> Took {
        let total = now() - self.job.began;
        Took { first: self.account.first_token().unwrap_or(total), total }
    }

    /// A whole answer as the client's dialect has it.
    pub(super) fn in_dialect(&self, wire: Dialect, body: &[u8]) -> Result<Vec<u8>, Failure> {
        translate::whole(wire, body)?.body(self.job.call.dialect, self.terms())
    }

    /// The name that the client sees, quoted, if edgeward has a say in it.
    pub(super) fn shown_model(&self) -> Option<Bytes> {
        let call = &self.job.call;
        let asked = self.plan.model_name == ModelName::Asked && !call.model.is_empty();
        asked.then(|| Bytes::from(quote(&call.model)))
    }

    /// A whole answer as the client gets it, and the tokens that it reports.
    pub(super) fn renamed(&self, body: Vec<u8>) -> (Bytes, Option<Usage>) {
        let facts = dialect::inspect_answer(self.job.call.dialect, &body);
        let body = match (self.shown_model(), facts.model) {
            (Some(name), Some(range)) if body.get(range.clone()) != Some(&name) => {
                Bytes::from([&body[..range.start], &name, &body[range.end..]].concat())
            }
            _ => Bytes::from(body),
        };
        (body, facts.usage)
    }
}

/// Whole events of a relay, as the client gets them.
fn translated(translation: &mut Translation, events: &mut Vec<Bytes>) {
    let mut out = Vec::new();
    for event in events.drain(..) {
        translation.push(&event, &mut out);
    }
    if !out.is_empty() {
        events.push(Bytes::from(out));
    }
}
