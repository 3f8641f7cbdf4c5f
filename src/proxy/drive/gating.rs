//! The bytes before the commit: to the gate, or into a whole answer in the making.

use std::rc::Rc;

use bytes::Bytes;
use http::StatusCode;

use super::{Driver, Kept, Stage};
use crate::cause::{Cause, Failure};
use crate::dialect::translate::Translation;
use crate::gate::{Emptiness, Gate, Rules, Verdict, answer};
use crate::observe::Limit;
use crate::proxy::body::Reserved;
use crate::proxy::exchange::{Action, Event};
use crate::proxy::head;
use crate::proxy::refusal;
use crate::proxy::relay::Relay;
use crate::route::Delivery;
use crate::time::now;

impl Driver {
    /// The next bytes: to the gate, to the answer in the making, or to the client.
    pub(super) async fn read(&mut self) -> Action {
        if matches!(self.attempt.stage, Stage::Relay(_)) {
            return self.relay().await;
        }
        let Some(reply) = self.attempt.reply.as_mut() else {
            return self.failed(Failure::new(Cause::Internal));
        };
        let chunk = match self.pace.run(reply.chunk()).await {
            Err(action) => return action,
            Ok(chunk) => chunk,
        };
        match std::mem::take(&mut self.attempt.stage) {
            Stage::Gate(gate) => self.gate(gate, chunk),
            Stage::Collecting(collector, memory) => self.collect(collector, memory, chunk).await,
            Stage::Answer(body, reserved) => self.answer(body, reserved, chunk).await,
            Stage::Raw => self.raw(chunk).await,
            Stage::Nothing | Stage::Committed(..) | Stage::Whole(_) | Stage::Relay(_) => {
                self.failed(Failure::new(Cause::Internal))
            }
        }
    }

    pub(super) fn gate(&mut self, mut gate: Box<Gate>, chunk: Option<Result<Bytes, Failure>>) -> Action {
        let before = gate.progress().map(|progress| progress.processed);
        let (verdict, rest) = match chunk {
            Some(Ok(mut chunk)) => {
                let step = gate.push(&chunk);
                (step.verdict, chunk.split_off(step.consumed))
            }
            Some(Err(failure)) => (Some(gate.broken(failure)), Bytes::new()),
            None => (Some(gate.end()), Bytes::new()),
        };
        let Some(verdict) = verdict else {
            let grew = gate.progress().map(|progress| progress.processed) > before;
            self.attempt.stage = Stage::Gate(gate);
            return if grew { self.pace.exchange.on(Event::Progress, now()) } else { Action::Read };
        };
        self.judged(gate, rest, verdict)
    }

    pub(super) fn expire(&mut self, cause: Cause) -> Action {
        match std::mem::take(&mut self.attempt.stage) {
            Stage::Gate(mut gate) => {
                let verdict = gate.expire(cause);
                self.judged(gate, Bytes::new(), verdict)
            }
            Stage::Collecting(collector, _) if collector.is_whole() => self.collected(*collector),
            _ => self.failed(Failure::new(cause)),
        }
    }

    pub(super) fn judged(&mut self, gate: Box<Gate>, rest: Bytes, verdict: Verdict) -> Action {
        match &verdict {
            Verdict::Failed(failure) => {
                self.attempt.detail.clone_from(&failure.detail);
                if let Some(progress) = gate.progress() {
                    self.attempt.detail = format!(
                        "{}{}prompt {} of {} tokens",
                        self.attempt.detail,
                        if self.attempt.detail.is_empty() { "" } else { "; " },
                        progress.processed,
                        progress.total
                    );
                }
            }
            Verdict::Empty(emptiness) => {
                // As it came, but for what edgeward asked for itself.
                let mut relay = Relay::new(self.wire(), self.edits());
                let mut out = Vec::new();
                relay.held(Bytes::copy_from_slice(gate.held()), &mut out);
                relay.end(&mut out);
                self.keep_empty(*emptiness, Bytes::from(out.concat()));
            }
            Verdict::Overflow => self.limit_hit(Limit::GateBuffer),
            Verdict::Commit => {}
        }
        if verdict == Verdict::Commit {
            self.attempt.stage = Stage::Committed(gate, rest);
        } else if let Some((buffer, _)) = &mut self.room {
            *buffer = Some(gate.into_buffer());
        }
        self.pace.exchange.on(Event::Verdict(&verdict), now())
    }

    pub(super) fn keep_empty(&mut self, emptiness: Emptiness, body: Bytes) {
        if !self.pace.exchange.keeps(emptiness) {
            return;
        }
        let Some(reply) = &self.attempt.reply else { return };
        let (mut status, mut headers) = (reply.status, head::to_client(&reply.headers));
        let (target, wire, dialect) = (self.target(), self.wire(), self.job.call.dialect);
        let mut body = body;
        if wire != dialect {
            (status, body) = self.nothing_in_dialect(status, &body);
        }
        if wire != dialect || self.delivery() == Delivery::Collected {
            let framing = self.job.call.stream.then(|| dialect.framing());
            head::typed(&mut headers, framing);
        }
        self.empty = Some(Kept { status, headers, body, target, wire: dialect });
    }

    /// An empty answer of another dialect as the client's has it: as empty.
    fn nothing_in_dialect(&self, status: StatusCode, body: &[u8]) -> (StatusCode, Bytes) {
        let (wire, dialect) = (self.wire(), self.job.call.dialect);
        let said = if self.job.call.stream {
            Translation::new(wire, dialect, self.terms()).map(|mut translation| {
                let mut out = Vec::new();
                translation.push(body, &mut out);
                translation.end(&mut out);
                out
            })
        } else {
            self.in_dialect(wire, body).ok()
        };
        match said {
            Some(said) => (status, Bytes::from(said)),
            None => {
                let failure = Failure::new(Cause::Empty);
                let problem = refusal::broken(self.job.gateway.name(self.target()), &failure);
                (StatusCode::BAD_GATEWAY, Bytes::from(problem.body(dialect)))
            }
        }
    }

    pub(super) async fn answer(
        &mut self,
        mut body: Vec<u8>,
        mut reserved: Option<Reserved>,
        chunk: Option<Result<Bytes, Failure>>,
    ) -> Action {
        let gateway = Rc::clone(&self.job.gateway);
        let limits = &gateway.config.limits;
        match chunk {
            Some(Ok(chunk)) => {
                body.extend_from_slice(&chunk);
                if reserved.is_none() {
                    // For the whole of it at once: growing step by step, two answers could wait for each other.
                    let room = gateway.answers.reserve(
                        limits.answer_buffer,
                        limits.answer_buffer,
                        limits.queue_time,
                    );
                    reserved = match self.pace.run(room).await {
                        Ok(Some(room)) => Some(room),
                        Ok(None) => {
                            self.limit_hit(Limit::AnswerMemory);
                            return self.failed(Failure::new(Cause::NoBuffer));
                        }
                        Err(action) => return action,
                    };
                }
                if body.len() <= limits.answer_buffer {
                    self.attempt.stage = Stage::Answer(body, reserved);
                    return Action::Read;
                }
                self.limit_hit(Limit::AnswerBuffer);
                if self.wire() != self.job.call.dialect {
                    let words =
                        format!("an answer of over {} bytes cannot be translated", limits.answer_buffer);
                    return self.failed(Failure::with(Cause::Overflow, &words));
                }
                let verdict = answer::judge_beginning(self.rules(), &body);
                self.attempt.stage = Stage::Answer(body, reserved);
                self.judged_answer(&verdict)
            }
            Some(Err(failure)) => self.failed(failure),
            None => {
                drop(reserved);
                self.whole(body)
            }
        }
    }

    /// An answer is there whole, in its target's dialect.
    pub(super) fn whole(&mut self, mut body: Vec<u8>) -> Action {
        let wire = self.wire();
        let (verdict, facts) = answer::judge(self.rules(), &body);
        // Its stream says less than its whole answers: later ones are asked for whole.
        let counted = facts.usage.is_some_and(|usage| usage.completion.is_some());
        self.attempt.unstreamed |= self.delivery() == Delivery::Collected && !counted;
        if verdict == Verdict::Commit && wire != self.job.call.dialect {
            body = match self.in_dialect(wire, &body) {
                Ok(body) => body,
                Err(failure) => return self.failed(failure),
            };
        }
        self.attempt.stage = Stage::Whole(body);
        self.judged_answer(&verdict)
    }

    pub(super) fn judged_answer(&mut self, verdict: &Verdict) -> Action {
        if let Verdict::Failed(failure) = verdict {
            self.attempt.detail.clone_from(&failure.detail);
        }
        if let (Verdict::Empty(emptiness), Stage::Whole(body)) = (verdict, &mut self.attempt.stage) {
            let body = Bytes::from(std::mem::take(body));
            self.keep_empty(*emptiness, body);
        }
        self.pace.exchange.on(Event::Verdict(verdict), now())
    }

    pub(super) fn rules(&self) -> Rules {
        let config = &self.job.gateway.config;
        Rules {
            dialect: self.wire(),
            commit_on: self.plan.commit_on,
            on_empty_stop: self.plan.on_empty_stop,
            drop_anonymous_reasoning: config.drop_anonymous_reasoning,
            tiny: self.job.call.max_tokens.is_some_and(|limit| limit <= 1),
            drop_progress: self.attempt.edits.hide_progress,
        }
    }
}
