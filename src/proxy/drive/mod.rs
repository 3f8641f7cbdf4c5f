//! Drives one request from its plan to its end: performs what [`super::exchange`] decides.
//!
//! Cancel safety: everything an attempt holds (connection, gate buffer, memory) is owned by the driver's
//! future. Dropping it, which hyper does when the client goes away, closes the upstream connection and is
//! accounted as `client_gone`.

mod admission;
mod attempt;
mod collecting;
mod ending;
mod fitting;
mod gating;
mod hedge;
mod pace;
mod refused;
mod relaying;
mod resuming;

use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use tokio::sync::OwnedSemaphorePermit;

use super::account::Account;
use super::body::{HeldBody, Reserved};
use super::cancel::{Cancel, Registered};
use super::clock::Clock;
use super::exchange::{Action, Event, Exchange};
use super::facts;
use super::facts::room::{self, Wants};
use super::gateway::Gateway;
use super::media::Held;
use super::outlet::Outlet;
use super::relay::{Edits, Relay};
use super::upstream::{Link, Reply};
use crate::cause::{Cause, Failure};
use crate::config::{Egress, OnBreak, Priority};
use crate::dialect::Dialect;
use crate::dialect::collect::Collector;
use crate::dialect::request::Call;
use crate::dialect::translate::Translation;
use crate::gate::Gate;
use crate::gate::pool::Buffer;
use crate::gate::repetition::Repetition;
use crate::limits;
use crate::memory::admit::Admission;
use crate::observe::Outcome;
use crate::route::{self, Ask, Delivery, Plan};
use crate::time::now;
use collecting::Memory;
use pace::Pace;
use resuming::Resume;
pub use resuming::asked as on_break_asked;

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
    /// What its references to pictures and files led to.
    pub media: Rc<Held>,
    /// The box has the bytes of all files that it names by their ids.
    pub files: bool,
    /// The client's header fields that may go upstream.
    pub headers: HeaderMap,
    /// The client's own credential, for targets with `forward_key`.
    pub credential: HeaderMap,
    /// The client's header fields that routing goes by.
    pub routing: HeaderMap,
    /// How far its prompt may go, by its key and its own header.
    pub egress: Egress,
    /// Its key's priority.
    pub priority: Priority,
    /// What its client asks for, should its stream break midway.
    pub on_break: Option<OnBreak>,
    /// The way to the client.
    pub outlet: Outlet,
    /// The way to stop it.
    pub cancel: Rc<Cancel>,
    /// Its place among the requests under way.
    pub registered: Registered,
    /// When its head had come.
    pub began: Instant,
}

impl Job {
    /// Who is asked, by what is known now. Without `wants` it takes no memory to speak of.
    pub(super) fn plan(&self, wants: Option<&Wants>, at: Instant) -> Plan {
        let gateway = &self.gateway;
        let key = gateway.accounts.of_key(&gateway.config.keys, self.client.as_deref());
        let when = gateway.when(at);
        let barred = |target: usize| {
            let config = gateway.config.targets.get(target)?;
            gateway.process.spending.bars(&gateway.accounts, target, config, key, when)
        };
        // Not by what is under way there: some of it needs no place, and a place may be given to one who waits.
        let full = |target: usize| {
            gateway.lanes.get(target).is_some_and(|lane| !gateway.process.places.is_free(*lane))
        };
        let elsewhere = std::cell::OnceCell::new();
        let memory = |target: usize| {
            let watched = gateway.locals.get(target).is_some_and(Option::is_some);
            let Some(wants) = wants.filter(|_| watched) else { return Admission::Goes };
            let others = elsewhere.get_or_init(|| room::elsewhere(gateway, &self.call, self.egress, at));
            room::admission(gateway, wants, target, *others, at)
        };
        let by_the_clock = gateway.config.routes.iter().any(|route| route.hours.is_some());
        let ask = Ask {
            client: self.client.as_deref(),
            headers: &self.routing,
            egress: self.egress,
            minute: if by_the_clock { crate::time::local_minute() } else { 0 },
            barred: &barred,
            full: &full,
            memory: &memory,
            files: self.files,
            ..Ask::bare(&self.call)
        };
        let store = gateway.store.borrow();
        let mut plan = route::plan(&gateway.config, &store, &mut gateway.routing.borrow_mut(), &ask, at);
        let unstreamed = gateway.process.unstreamed.borrow();
        for candidate in plan.candidates.iter_mut().chain(&mut plan.full) {
            if candidate.delivery == Delivery::Collected
                && unstreamed.has(gateway.name(candidate.target), &candidate.model, at)
            {
                candidate.delivery = Delivery::Whole;
            }
        }
        plan
    }
}

/// Runs a request to its end.
pub async fn drive(job: Job) {
    let mut account =
        Account::new(Rc::clone(&job.gateway), &job.id, job.client.clone(), &job.call, job.began)
            .reloading(may_reload(job.call.dialect, &job.body.bytes));
    facts::look(&job.gateway, &job.call).await;
    let at = now();
    job.gateway.process.retries.borrow_mut().request(at);
    let mut plan = job.plan(Some(&account.terms().wants), at);
    plan.home_first();
    account.planned(&plan);
    let resume = Resume::new(&job, &mut plan);
    let first = plan.waits_for().or(plan.candidates.first());
    let total = first.map_or(limits::TOTAL, |first| first.deadlines.total);
    let total = (at + total).min(job.began + job.gateway.config.limits.request_time);
    let heartbeat = if job.call.stream { plan.heartbeat } else { None };
    let exchange = Exchange::new(plan.candidates.clone(), job.call.prompt_tokens, heartbeat, total, at)
        .retrying(&job.gateway.config.retry, job.gateway.random());
    let pace = Pace {
        clock: Clock::new(Rc::clone(&job.cancel), at),
        exchange,
        outlet: job.outlet.clone(),
        dialect: job.call.dialect,
        id: job.id.clone(),
        head_sent: false,
        fate: None,
        works: None,
        hedges: None,
        hedge: None,
        over: None,
    };
    Driver {
        job,
        plan,
        pace,
        account,
        attempt: Attempt::default(),
        resume,
        repetition: None,
        noted: 0,
        room: None,
        rejection: None,
        empty: None,
        chunks: Vec::new(),
        out: Vec::new(),
    }
    .run()
    .await;
}

/// Whether Ollama may end a model's runner because of this request: it asks for other options than the runner has, or for
/// its end. A prompt that speaks of these does no harm.
fn may_reload(dialect: Dialect, body: &[u8]) -> bool {
    let ollama = matches!(dialect, Dialect::OllamaChat | Dialect::OllamaGenerate);
    let words = [b"\"num_".as_slice(), b"keep_alive", b"use_mmap", b"main_gpu"];
    ollama && words.iter().any(|word| memchr::memmem::find(body, word).is_some())
}

struct Driver {
    job: Job,
    plan: Plan,
    pace: Pace,
    account: Account,
    attempt: Attempt,
    /// For a stream that may go on at another target.
    resume: Option<Box<Resume>>,
    /// For a stream that may go round in circles.
    repetition: Option<Box<Repetition>>,
    /// Failures that are not the present exchange's.
    noted: usize,
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
    fitted: Option<fitting::Fitted>,
    /// The stream is committed, and its target speaks another dialect than the client, or is followed.
    translation: Option<Box<Translation>>,
    /// The target's bytes go out as they come: `translation` only follows them.
    shadow: bool,
    /// It gave no stream although it was asked for one.
    unstreamed: bool,
    /// For the gate's buffer, where it is not the request's own.
    permit: Option<OwnedSemaphorePermit>,
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
    /// A stream of which the whole answer is put together.
    Collecting(Box<Collector>, Memory),
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
    /// What `body` is in.
    wire: Dialect,
}

impl Driver {
    async fn run(&mut self) {
        if !self.admitted().await {
            return;
        }
        if self.plan.candidates.is_empty() {
            return self.no_candidate();
        }
        if !self.first_pictures().await {
            return;
        }
        if self.job.call.stream && !self.take_room().await {
            return;
        }
        let mut action = self.pace.exchange.on(Event::Start, now());
        loop {
            self.note_failures();
            let goes_on = matches!(
                action,
                Action::Connect { fresh: true, .. }
                    | Action::Adopt { .. }
                    | Action::Commit
                    | Action::Send
                    | Action::Read
                    | Action::Wait
                    | Action::Beat
                    | Action::Expire(_)
            );
            if !goes_on {
                self.pace.hedge = None;
            }
            action = match action {
                Action::Connect { candidate, fresh } => self.connect(candidate, fresh).await,
                Action::Adopt { candidate } => self.adopt(candidate).await,
                Action::Hedge { .. } | Action::DropHedge => self.read().await,
                // The pace has asked: nothing comes of it here.
                Action::AskWork => self.pace.exchange.on(Event::Works(false), now()),
                Action::AskRetry => self.ask_retry(),
                Action::Pause => self.pause().await,
                Action::Send => self.send().await,
                Action::Read | Action::Wait | Action::Beat => self.read().await,
                Action::Expire(cause) => self.expire(cause),
                Action::Commit => self.commit().await,
                Action::Refuse(cause) if self.is_between() => match self.falls_back(cause).await {
                    Some(action) => action,
                    None => return self.end_between(cause).await,
                },
                Action::PassRejection | Action::PassEmpty if self.is_between() => {
                    match self.falls_back(Cause::ClientFault).await {
                        Some(action) => action,
                        None => return self.end_between(Cause::ClientFault).await,
                    }
                }
                Action::PassRejection => return self.pass(Outcome::Refused).await,
                Action::PassEmpty => return self.pass(Outcome::Answered).await,
                Action::Refuse(cause) => return self.refuse(cause).await,
                Action::EndClean => match self.end_clean() {
                    Some(cause) => return self.end_broken(cause).await,
                    None => return,
                },
                Action::EndBroken(cause) => match self.resumes(cause).await {
                    Some(action) => action,
                    None => return self.end_broken(cause).await,
                },
                Action::Abandon => return,
            };
        }
    }

    /// Lets go of whatever the last attempt holds: this is the cancel.
    fn next_attempt(&mut self, candidate: usize) {
        self.pace.fate = None;
        let before = std::mem::take(&mut self.attempt);
        if let (Stage::Gate(gate) | Stage::Committed(gate, _), Some((buffer, _))) =
            (before.stage, &mut self.room)
        {
            *buffer = Some(gate.into_buffer());
        }
        self.attempt.candidate = candidate;
    }

    fn ask_retry(&mut self) -> Action {
        let at = now();
        let may = self.job.gateway.may_retry(at);
        self.pace.exchange.on(Event::MayRetry(may), at)
    }

    /// Nothing is under way: only time, a sign of life for the client, or a stop goes on from here.
    async fn pause(&mut self) -> Action {
        self.next_attempt(self.attempt.candidate);
        match self.pace.run(std::future::pending::<std::convert::Infallible>()).await {
            Err(action) => action,
            Ok(never) => match never {},
        }
    }

    fn failed(&mut self, failure: Failure) -> Action {
        self.attempt.detail = failure.detail;
        self.pace.exchange.on(Event::Failed(failure.cause), now())
    }

    /// Tells the account of attempts that the exchange has given up since the last look.
    fn note_failures(&mut self) {
        let known = self.account.failures().len().saturating_sub(self.noted);
        for at in known..self.pace.exchange.tried().len() {
            let Some(&tried) = self.pace.exchange.tried().get(at) else { return };
            let target = self.plan.candidates.get(tried.candidate).map_or(0, |candidate| candidate.target);
            if let Some(over) = self.pace.over.take_if(|over| over.candidate == tried.candidate)
                && let hedge::Over { open, end: Err(lost), .. } = *over
            {
                self.rejection = lost.kept.or(self.rejection.take());
                self.account.other_failed(Some(open), target, lost.failure, lost.wait);
                continue;
            }
            if tried.candidate != self.attempt.candidate {
                self.account.other_failed(None, target, Failure::new(tried.cause), None);
                continue;
            }
            let failure = Failure { cause: tried.cause, detail: std::mem::take(&mut self.attempt.detail) };
            if self.account.is_under_way() {
                self.tell_left(target, &failure);
            }
            self.account.attempt_failed(target, failure, self.attempt.retry_after);
        }
    }

    /// Nobody else is left to ask.
    fn is_last_resort(&self) -> bool {
        self.plan.candidates.get(self.attempt.candidate).is_some_and(|candidate| candidate.last_resort)
    }

    /// The dialect in which the present attempt's target is asked.
    fn wire(&self) -> Dialect {
        self.plan
            .candidates
            .get(self.attempt.candidate)
            .map_or(self.job.call.dialect, |candidate| candidate.wire)
    }

    /// How it is asked for the answer.
    fn delivery(&self) -> Delivery {
        self.plan
            .candidates
            .get(self.attempt.candidate)
            .map_or(Delivery::Streamed, |candidate| candidate.delivery)
    }

    fn target(&self) -> usize {
        self.plan.candidates.get(self.attempt.candidate).map_or(0, |candidate| candidate.target)
    }
}
