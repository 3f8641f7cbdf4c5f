//! Drives one request from its plan to its end: performs what [`super::exchange`] decides.
//!
//! Cancel safety: everything an attempt holds (connection, gate buffer, memory) is owned by the driver's
//! future. Dropping it, which hyper does when the client goes away, closes the upstream connection and is
//! accounted as `client_gone`.

use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use tokio::sync::OwnedSemaphorePermit;

use super::account::Account;
use super::body::{HeldBody, Reserved};
use super::cancel::{Cancel, Registered};
use super::clock::{Clock, First};
use super::exchange::{Action, Event, Exchange};
use super::gateway::Gateway;
use super::head::{self, HeadKind};
use super::outlet::{Head, Outlet};
use super::refusal;
use super::relay::{Edits, Relay};
use super::upstream::{Link, Reply, RequestBody, SendError};
use crate::cause::{Cause, Failure};
use crate::config::{Kind, ModelName};
use crate::dialect::request::{Call, Changes, quote};
use crate::dialect::{self, Dialect, reply};
use crate::gate::pool::Buffer;
use crate::gate::{Emptiness, Gate, Rules, Verdict, answer};
use crate::limits;
use crate::observe::events;
use crate::observe::{Limit, Outcome};
use crate::route::{self, Plan};
use crate::time::now;
use crate::wire::json;

/// One request, read and decoded.
pub struct Job {
    /// What all requests share.
    pub gateway: Rc<Gateway>,
    /// Its id.
    pub id: String,
    /// The name of the client key that made it.
    pub client: Option<String>,
    /// Its method.
    pub method: Method,
    /// The endpoint's path.
    pub path: String,
    /// What it asks for.
    pub call: Call,
    /// Its body.
    pub body: HeldBody,
    /// The client's header fields that may go upstream.
    pub headers: HeaderMap,
    /// The client's own credential, for targets with `forward_key`.
    pub credential: HeaderMap,
    /// The way to the client.
    pub outlet: Outlet,
    /// The way to stop it.
    pub cancel: Rc<Cancel>,
    /// Its place among the requests under way.
    pub registered: Registered,
    /// When its head had come.
    pub began: Instant,
}

/// Runs a request to its end.
pub async fn drive(job: Job) {
    let at = now();
    let plan = route::plan(&job.gateway.config, &job.gateway.store.borrow(), &job.call, at);
    let total = plan.candidates.first().map_or(limits::TOTAL, |first| first.deadlines.total);
    let total = (at + total).min(job.began + job.gateway.config.limits.request_time);
    let heartbeat = if job.call.stream { plan.heartbeat } else { None };
    let exchange = Exchange::new(plan.candidates.clone(), job.call.prompt_tokens, heartbeat, total, at);
    let account = Account::new(Rc::clone(&job.gateway), &job.id, job.client.clone(), &job.call, job.began);
    let pace = Pace {
        clock: Clock::new(Rc::clone(&job.cancel), at),
        exchange,
        outlet: job.outlet.clone(),
        dialect: job.call.dialect,
        id: job.id.clone(),
        head_sent: false,
    };
    Driver {
        job,
        plan,
        pace,
        account,
        attempt: Attempt::default(),
        room: None,
        rejection: None,
        empty: None,
        chunks: Vec::new(),
        out: Vec::new(),
    }
    .run()
    .await;
}

struct Driver {
    job: Job,
    plan: Plan,
    pace: Pace,
    account: Account,
    attempt: Attempt,
    /// The gate's buffer between attempts, and the permit for it.
    room: Option<(Option<Buffer>, OwnedSemaphorePermit)>,
    rejection: Option<Kept>,
    empty: Option<Kept>,
    /// Room for what the relay takes in and gives out, used again for each read.
    chunks: Vec<Bytes>,
    out: Vec<Bytes>,
}

/// What one attempt holds. Dropping it is the cancel.
#[derive(Default)]
struct Attempt {
    candidate: usize,
    link: Option<Link>,
    reply: Option<Reply>,
    stage: Stage,
    edits: Edits,
    /// What the target said, for the log and for the client when all fail.
    detail: String,
    retry_after: Option<Duration>,
}

#[derive(Default)]
enum Stage {
    #[default]
    Nothing,
    /// A stream behind the gate.
    Gate(Box<Gate>),
    /// A committed gate's leftovers: bytes of the last chunk that it did not take.
    Committed(Box<Gate>, Bytes),
    /// A whole answer in the making.
    Answer(Vec<u8>, Option<Reserved>),
    /// An answer that is there whole.
    Whole(Vec<u8>),
    /// A committed stream.
    Relay(Box<Relay>),
    /// A committed answer too long to judge whole: bytes as they come.
    Raw,
}

/// A target's answer that may still become the client's.
struct Kept {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
    target: usize,
}

impl Driver {
    async fn run(&mut self) {
        if self.plan.candidates.is_empty() {
            return self.no_candidate();
        }
        if self.job.call.stream && !self.take_room().await {
            return;
        }
        let mut action = self.pace.exchange.on(Event::Start, now());
        loop {
            self.note_failures();
            action = match action {
                Action::Connect { candidate, fresh } => self.connect(candidate, fresh).await,
                Action::Send => self.send().await,
                Action::Read | Action::Wait | Action::Beat => self.read().await,
                Action::Expire(cause) => self.expire(cause),
                Action::Commit => self.commit().await,
                Action::PassRejection => return self.pass(Outcome::Refused).await,
                Action::PassEmpty => return self.pass(Outcome::Answered).await,
                Action::Refuse(cause) => return self.refuse(cause).await,
                Action::EndClean => return self.end_clean(),
                Action::EndBroken(cause) => return self.end_broken(cause).await,
                Action::Abandon => return,
            };
        }
    }

    async fn connect(&mut self, candidate: usize, fresh: bool) -> Action {
        self.next_attempt(candidate);
        let target = self.target();
        self.account.attempt_begins(target);
        let gateway = Rc::clone(&self.job.gateway);
        match self.pace.run(gateway.upstreams.connect(target, fresh)).await {
            Err(action) => action,
            Ok(Ok(link)) => {
                self.attempt.link = Some(link);
                self.pace.exchange.on(Event::Connected, now())
            }
            Ok(Err(failure)) => self.failed(failure),
        }
    }

    async fn send(&mut self) -> Action {
        let request = match self.request() {
            Ok(request) => request,
            Err(failure) => return self.failed(failure),
        };
        let Some(link) = self.attempt.link.take() else { return self.failed(Failure::new(Cause::Internal)) };
        match self.pace.run(link.send(request)).await {
            Err(action) => action,
            Ok(Ok(reply)) => self.head(reply).await,
            Ok(Err(SendError::Stale(failure))) => {
                self.attempt.detail = failure.detail;
                self.pace.exchange.on(Event::Stale, now())
            }
            Ok(Err(SendError::Failed(failure))) => self.failed(failure),
        }
    }

    async fn head(&mut self, reply: Reply) -> Action {
        let kind = head::kind(self.job.call.dialect, self.job.call.stream, reply.status, &reply.headers);
        self.attempt.stage = match kind {
            HeadKind::Stream => match self.take_buffer() {
                Some(buffer) => Stage::Gate(Box::new(Gate::new(self.rules(), buffer))),
                None => return self.failed(Failure::new(Cause::NoBuffer)),
            },
            HeadKind::Answer => Stage::Answer(Vec::new(), None),
            HeadKind::Error => return self.rejected(reply).await,
            HeadKind::Alien(what) => return self.failed(Failure::with(Cause::Protocol, &what)),
        };
        self.attempt.reply = Some(reply);
        self.pace.exchange.on(Event::Head, now())
    }

    /// The target refused, or sent JSON where a stream was due: its text says why.
    async fn rejected(&mut self, mut reply: Reply) -> Action {
        let status = reply.status;
        let bound =
            if status.is_client_error() { limits::CLIENT_FAULT_BODY_BYTES } else { limits::ERROR_BODY_BYTES };
        let mut body = Vec::new();
        let reading = async {
            while body.len() < bound
                && let Some(Ok(chunk)) = reply.chunk().await
            {
                body.extend_from_slice(&chunk[..chunk.len().min(bound - body.len())]);
            }
        };
        // The status is known; a body that dawdles adds nothing worth waiting for.
        if let Err(action) = self.pace.run(tokio::time::timeout(limits::ERROR_BODY_TIME, reading)).await {
            return action;
        }
        if status.is_success() {
            let (verdict, _) = answer::judge(self.rules(), &body);
            return self.failed(match verdict {
                Verdict::Failed(failure) => failure,
                Verdict::Commit | Verdict::Empty(_) | Verdict::Overflow => {
                    Failure::with(Cause::Protocol, "a JSON answer where a stream was asked for")
                }
            });
        }
        let cause = dialect::classify_status(status.as_u16(), &body);
        self.attempt.detail = Failure::with(cause, &text_of(&body)).detail;
        self.attempt.retry_after = head::retry_after(&reply.headers);
        if matches!(cause, Cause::ClientFault | Cause::ContextOverflow) {
            self.rejection = Some(Kept {
                status,
                headers: head::to_client(&reply.headers),
                body: Bytes::from(body),
                target: self.target(),
            });
        }
        self.pace.exchange.on(Event::Rejected(cause), now())
    }

    /// The next bytes: to the gate, to the answer in the making, or to the client.
    async fn read(&mut self) -> Action {
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
            Stage::Answer(body, reserved) => self.answer(body, reserved, chunk).await,
            Stage::Raw => self.raw(chunk).await,
            Stage::Nothing | Stage::Committed(..) | Stage::Whole(_) | Stage::Relay(_) => {
                self.failed(Failure::new(Cause::Internal))
            }
        }
    }

    fn gate(&mut self, mut gate: Box<Gate>, chunk: Option<Result<Bytes, Failure>>) -> Action {
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

    fn expire(&mut self, cause: Cause) -> Action {
        match std::mem::take(&mut self.attempt.stage) {
            Stage::Gate(mut gate) => {
                let verdict = gate.expire(cause);
                self.judged(gate, Bytes::new(), verdict)
            }
            _ => self.failed(Failure::new(cause)),
        }
    }

    fn judged(&mut self, gate: Box<Gate>, rest: Bytes, verdict: Verdict) -> Action {
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
            Verdict::Empty(emptiness) => self.keep_empty(*emptiness, Bytes::copy_from_slice(gate.held())),
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

    fn keep_empty(&mut self, emptiness: Emptiness, body: Bytes) {
        if !self.pace.exchange.keeps(emptiness) {
            return;
        }
        if let Some(reply) = &self.attempt.reply {
            let headers = head::to_client(&reply.headers);
            self.empty = Some(Kept { status: reply.status, headers, body, target: self.target() });
        }
    }

    async fn answer(
        &mut self,
        mut body: Vec<u8>,
        mut reserved: Option<Reserved>,
        chunk: Option<Result<Bytes, Failure>>,
    ) -> Action {
        let gateway = Rc::clone(&self.job.gateway);
        let limits = &gateway.config.limits;
        let verdict = match chunk {
            Some(Ok(chunk)) => {
                body.extend_from_slice(&chunk);
                if reserved.is_none() {
                    // For the whole of it at once: growing step by step, two answers could wait for each other.
                    let room = gateway.answers.reserve(limits.answer_buffer, limits.queue_time);
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
                let verdict = answer::judge_beginning(self.rules(), &body);
                self.attempt.stage = Stage::Answer(body, reserved);
                return self.judged_answer(&verdict);
            }
            Some(Err(failure)) => return self.failed(failure),
            None => answer::judge(self.rules(), &body).0,
        };
        drop(reserved);
        self.attempt.stage = Stage::Whole(body);
        self.judged_answer(&verdict)
    }

    fn judged_answer(&mut self, verdict: &Verdict) -> Action {
        if let Verdict::Failed(failure) = verdict {
            self.attempt.detail.clone_from(&failure.detail);
        }
        if let (Verdict::Empty(emptiness), Stage::Whole(body)) = (verdict, &mut self.attempt.stage) {
            let body = Bytes::from(std::mem::take(body));
            self.keep_empty(*emptiness, body);
        }
        self.pace.exchange.on(Event::Verdict(verdict), now())
    }

    /// The point of no return.
    async fn commit(&mut self) -> Action {
        let Some(reply) = self.attempt.reply.as_ref() else {
            return self.failed(Failure::new(Cause::Internal));
        };
        let (status, mut headers) = (reply.status, head::to_client(&reply.headers));
        self.account.committed(self.target(), now());
        self.account.status(status.as_u16());
        self.job.body = HeldBody { bytes: Bytes::new(), reserved: None };
        self.own_headers(&mut headers, Some(self.target()));
        match std::mem::take(&mut self.attempt.stage) {
            Stage::Committed(gate, rest) => {
                let mut relay = Box::new(Relay::new(self.job.call.dialect, self.edits()));
                let held = Bytes::copy_from_slice(gate.held());
                drop((gate, self.room.take()));
                let mut out = Vec::new();
                relay.held(held, &mut out);
                relay.push(rest, &mut out);
                head::for_stream(&mut headers, self.job.call.dialect.framing());
                self.pace.head(Head { status, headers, whole: None });
                self.forward(relay, out).await
            }
            Stage::Whole(body) => {
                let body = self.renamed(body);
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
            Stage::Nothing | Stage::Gate(_) | Stage::Relay(_) | Stage::Raw => {
                self.failed(Failure::new(Cause::Internal))
            }
        }
    }

    /// What has come goes on together: tokens that came at once cost one write.
    async fn relay(&mut self) -> Action {
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

    async fn forward(&mut self, mut relay: Box<Relay>, out: Vec<Bytes>) -> Action {
        let (moved, spoke) = (relay.take_moved(), relay.take_spoke());
        let said = relay.said();
        let (finished, done) = (said.finished, said.done);
        let error = said.error.clone();
        self.account.usage(said.usage);
        self.attempt.stage = Stage::Relay(relay);
        if let Some(action) = self.send_on(out).await {
            return action;
        }
        match error {
            Some(failure) => {
                self.attempt.detail = failure.detail;
                self.pace.exchange.on(Event::ErrorEvent(failure.cause), now())
            }
            None if moved => self.pace.exchange.on(Event::Moved { spoke, finished, done }, now()),
            None => Action::Read,
        }
    }

    async fn raw(&mut self, chunk: Option<Result<Bytes, Failure>>) -> Action {
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
    async fn send_on(&mut self, mut out: Vec<Bytes>) -> Option<Action> {
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

    fn end_clean(&mut self) {
        if let Stage::Relay(relay) = &self.attempt.stage
            && relay.said().finished
            && !relay.said().done
        {
            self.pace.outlet.bytes(Bytes::from_static(reply::end_marker(self.job.call.dialect)));
        }
        self.pace.outlet.end_clean();
        self.account.end(Outcome::Answered, None);
    }

    /// An error that the client can read, then an end that it cannot mistake for a whole answer.
    async fn end_broken(&mut self, cause: Cause) {
        let mut told = false;
        if let Stage::Relay(relay) = &self.attempt.stage {
            told = relay.said().error_shown;
            if relay.cut_inside_event() {
                self.pace.outlet.bytes(Bytes::from_static(b"\n\n"));
            }
        }
        let failure = Failure { cause, detail: std::mem::take(&mut self.attempt.detail) };
        // The upstream's part is over: it must not wait for the client to read its error.
        let target = self.target();
        let streams = matches!(self.attempt.stage, Stage::Relay(_));
        self.next_attempt(self.attempt.candidate);
        if streams && !told {
            let problem = refusal::broken(self.job.gateway.name(target), &failure);
            self.pace.outlet.bytes(Bytes::from(problem.event(self.job.call.dialect)));
        }
        let outcome = match cause {
            Cause::Cancelled => Outcome::Cancelled,
            Cause::Draining => Outcome::Drained,
            _ => Outcome::Broken,
        };
        self.account.end(outcome, Some((target, failure)));
        self.pace.flushed().await;
        self.pace.outlet.end_broken();
    }

    /// A target's own answer, unchanged: a refusal that is the client's fault, or an empty answer.
    async fn pass(&mut self, outcome: Outcome) {
        let kept = if outcome == Outcome::Answered { self.empty.take() } else { self.rejection.take() };
        let Some(kept) = kept else { return self.refuse(Cause::Internal).await };
        self.next_attempt(0);
        if self.pace.head_sent {
            let dialect = self.job.call.dialect;
            if outcome == Outcome::Answered {
                self.pace.outlet.bytes(kept.body);
                self.pace.outlet.end_clean();
                self.account.end(outcome, None);
                return;
            }
            let text = text_of(&kept.body);
            let problem = reply::Problem::new(kept.status.as_u16(), "invalid_request", text);
            self.pace.outlet.bytes(Bytes::from(problem.event(dialect)));
            self.account.end(outcome, None);
            self.pace.flushed().await;
            self.pace.outlet.end_broken();
            return;
        }
        let mut headers = kept.headers;
        self.own_headers(&mut headers, Some(kept.target));
        self.account.status(kept.status.as_u16());
        self.account.end(outcome, None);
        self.pace.head(Head { status: kept.status, headers, whole: Some(kept.body) });
    }

    /// Every candidate failed, or the request was stopped before it had an answer.
    async fn refuse(&mut self, cause: Cause) {
        self.next_attempt(0);
        let request_time = self.job.gateway.config.limits.request_time;
        if cause == Cause::TimeoutTotal && now() >= self.job.began + request_time {
            self.limit_hit(Limit::RequestTime);
        }
        let problem = refusal::all_failed(&self.job.gateway, &self.plan, self.account.failures(), cause);
        let outcome = match cause {
            Cause::Cancelled => Outcome::Cancelled,
            Cause::Draining => Outcome::Drained,
            _ => Outcome::Failed,
        };
        self.account.status(if self.pace.head_sent { 200 } else { problem.status });
        self.account.end(outcome, None);
        if self.pace.head_sent {
            self.pace.outlet.bytes(Bytes::from(problem.event(self.job.call.dialect)));
            self.pace.flushed().await;
            self.pace.outlet.end_broken();
            return;
        }
        self.own_problem(&problem);
    }

    fn no_candidate(&mut self) {
        let problem = refusal::no_candidate(&self.job.gateway, &self.plan, &self.job.call);
        self.account.status(problem.status);
        self.account.end(Outcome::Unavailable, None);
        self.own_problem(&problem);
    }

    fn own_problem(&mut self, problem: &reply::Problem) {
        let mut headers = HeaderMap::new();
        let pause = refusal::retry_after(&self.job.gateway, &self.plan, self.account.failures());
        refusal::headers(problem, pause, &mut headers);
        self.own_headers(&mut headers, None);
        let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::BAD_GATEWAY);
        let body = Bytes::from(problem.body(self.job.call.dialect));
        self.pace.head(Head { status, headers, whole: Some(body) });
    }

    async fn take_room(&mut self) -> bool {
        let gateway = Rc::clone(&self.job.gateway);
        match self.pace.run(gateway.gate_room()).await {
            Ok(Some(room)) => {
                let (buffer, permit) = room.split();
                self.room = Some((Some(buffer), permit));
                true
            }
            Ok(None) => {
                self.limit_hit(Limit::GatedStreams);
                self.account.status(503);
                self.account.end(Outcome::Unavailable, None);
                self.own_problem(&refusal::no_gate_buffer(&self.job.gateway));
                false
            }
            Err(_) => {
                self.account.end(Outcome::Cancelled, None);
                self.own_problem(&refusal::stopped());
                false
            }
        }
    }

    fn limit_hit(&self, limit: Limit) {
        self.job.gateway.metrics.limit(limit);
        events::limit_hit(limit, Some(&self.job.id));
    }

    fn take_buffer(&mut self) -> Option<Buffer> {
        self.room.as_mut().and_then(|(buffer, _)| buffer.take())
    }

    /// Lets go of whatever the last attempt holds: this is the cancel.
    fn next_attempt(&mut self, candidate: usize) {
        let before = std::mem::take(&mut self.attempt);
        if let (Stage::Gate(gate) | Stage::Committed(gate, _), Some((buffer, _))) =
            (before.stage, &mut self.room)
        {
            *buffer = Some(gate.into_buffer());
        }
        self.attempt.candidate = candidate;
    }

    fn failed(&mut self, failure: Failure) -> Action {
        self.attempt.detail = failure.detail;
        self.pace.exchange.on(Event::Failed(failure.cause), now())
    }

    /// Tells the account of attempts that the exchange has given up since the last look.
    fn note_failures(&mut self) {
        let known = self.account.failures().len();
        for tried in self.pace.exchange.tried().iter().skip(known) {
            let target = self.plan.candidates.get(tried.candidate).map_or(0, |candidate| candidate.target);
            let failure = Failure { cause: tried.cause, detail: std::mem::take(&mut self.attempt.detail) };
            self.account.attempt_failed(target, failure, self.attempt.retry_after);
        }
    }

    fn target(&self) -> usize {
        self.plan.candidates.get(self.attempt.candidate).map_or(0, |candidate| candidate.target)
    }

    fn rules(&self) -> Rules {
        let config = &self.job.gateway.config;
        Rules {
            dialect: self.job.call.dialect,
            commit_on: self.plan.commit_on,
            on_empty_stop: self.plan.on_empty_stop,
            drop_anonymous_reasoning: config.drop_anonymous_reasoning,
            tiny: self.job.call.max_tokens.is_some_and(|limit| limit <= 1),
            drop_progress: self.attempt.edits.hide_progress,
        }
    }

    fn edits(&self) -> Edits {
        Edits { model: self.shown_model(), ..self.attempt.edits.clone() }
    }

    /// The name that the client sees, quoted, if edgeward has a say in it.
    fn shown_model(&self) -> Option<Bytes> {
        let call = &self.job.call;
        let asked = self.plan.model_name == ModelName::Asked && !call.model.is_empty();
        asked.then(|| Bytes::from(quote(&call.model)))
    }

    fn renamed(&self, body: Vec<u8>) -> Bytes {
        let facts = dialect::inspect_answer(self.job.call.dialect, &body);
        match (self.shown_model(), facts.model) {
            (Some(name), Some(range)) if body.get(range.clone()) != Some(&name) => {
                Bytes::from([&body[..range.start], &name, &body[range.end..]].concat())
            }
            _ => Bytes::from(body),
        }
    }

    fn own_headers(&self, headers: &mut HeaderMap, target: Option<usize>) {
        let name = target.map(|target| self.job.gateway.name(target));
        let attempts = self.account.attempts(name.filter(|_| self.account.has_committed()));
        head::own(headers, &self.job.id, name, &attempts);
    }

    fn request(&mut self) -> Result<Request<RequestBody>, Failure> {
        let candidate =
            self.plan.candidates.get(self.attempt.candidate).ok_or(Failure::new(Cause::Internal))?;
        let target =
            self.job.gateway.config.targets.get(candidate.target).ok_or(Failure::new(Cause::Internal))?;
        let call = &self.job.call;
        let counts = matches!(call.dialect, Dialect::OpenaiChat | Dialect::OpenaiCompletions);
        let changes = Changes {
            model: (candidate.model != call.model).then_some(candidate.model.as_str()),
            // llama.cpp reports its counts unasked, and moves its `timings` when asked for usage (into a chunk
            // that would then be hidden).
            ask_usage: counts && target.include_usage && target.kind != Kind::Llamacpp,
            ask_progress: call.dialect == Dialect::OpenaiChat && target.kind == Kind::Llamacpp,
        };
        self.attempt.edits = Edits {
            hide_usage: changes.ask_usage && call.stream && !call.wants_usage,
            hide_progress: changes.ask_progress && call.stream && !call.wants_progress,
            model: None,
        };
        let path = route::joined_path(target, &self.job.path);
        let mut request = Request::builder().method(self.job.method.clone()).uri(path);
        if let Some(headers) = request.headers_mut() {
            head::to_upstream(headers, &self.job.headers, target, &self.job.credential);
        }
        let slices = dialect::request::apply(&self.job.body.bytes, call.edits(&changes));
        request.body(RequestBody::new(slices)).map_err(|e| Failure::with(Cause::Internal, &e.to_string()))
    }
}

/// The exchange with its clock, and what it shows the client before a commit.
struct Pace {
    exchange: Exchange,
    clock: Clock,
    outlet: Outlet,
    dialect: Dialect,
    id: String,
    head_sent: bool,
}

impl Pace {
    /// Performs `io` within the exchange's deadline. `Err`: what to do instead; `io` is dropped then.
    async fn run<T>(&mut self, io: impl Future<Output = T>) -> Result<T, Action> {
        let mut io = std::pin::pin!(io);
        loop {
            let first = self.clock.race_pinned(self.exchange.deadline(), io.as_mut()).await;
            let action = match first {
                First::Done(done) => return Ok(done),
                First::Deadline => self.exchange.on(Event::Deadline, now()),
                First::Stop(cause) => self.exchange.on(Event::Stop(cause), now()),
            };
            match action {
                Action::Wait => {}
                Action::Beat => self.beat(),
                other => return Err(other),
            }
        }
    }

    /// A sign of life: the head, then what this dialect's clients bear.
    fn beat(&mut self) {
        if !self.head_sent {
            self.head(Head {
                status: StatusCode::OK,
                headers: early_head(&self.id, self.dialect),
                whole: None,
            });
        }
        self.outlet.bytes(Bytes::from_static(reply::heartbeat(self.dialect)));
    }

    fn head(&mut self, mut head: Head) {
        if self.head_sent {
            if let Some(body) = head.whole.take() {
                self.outlet.bytes(body);
            }
            return;
        }
        self.head_sent = true;
        self.outlet.head(head);
    }

    /// The client's pace. `Some`: it must stop.
    async fn taken(&mut self) -> Option<Action> {
        match self.clock.race(None, self.outlet.taken()).await {
            First::Stop(cause) => Some(self.exchange.on(Event::Stop(cause), now())),
            First::Done(()) | First::Deadline => None,
        }
    }

    /// Until the client's connection has written everything, or too much time has passed.
    async fn flushed(&mut self) {
        // A stop was seen already; only the time bounds this.
        let _late = tokio::time::timeout(limits::LAST_WORDS, self.outlet.written()).await;
    }
}

/// What an error body says, for a person.
fn text_of(body: &[u8]) -> String {
    json::readable(body.get(dialect::error_text(body)).unwrap_or_default())
}

fn early_head(id: &str, dialect: Dialect) -> HeaderMap {
    let mut headers = HeaderMap::new();
    head::own(&mut headers, id, None, "");
    head::for_stream(&mut headers, dialect.framing());
    headers
}
