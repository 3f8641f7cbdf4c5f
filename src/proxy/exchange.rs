//! The life of one request as one pure machine: one event in, one action out, `deadline()` beside it.
//!
//! It owns the order of the candidates, every deadline, and the decision what happens next. The caller
//! ([`super::drive`]) owns sockets, bytes and the clock: it performs the action and reports what came of
//! it. A request's body is read and planned before the machine begins.
//!
//! `Planned → Attempting → Gating → Relaying → Done`, with `Collecting` before the commit where a whole answer is put
//! together from a stream; each failed attempt leads back to `Attempting`, at once to
//! another candidate, or by way of `Asking` and `Pausing` to one that is asked again. Beside an attempt whose first
//! token is late a second one may run, the hedge: the first of the two to commit is the answer.

use std::time::{Duration, Instant};

mod clock;
mod hedging;
mod said;

pub use said::{Action, Event, Tried};

use super::turns::{Turn, Turns};
use crate::cause::Cause;
use crate::config::Retry;
use crate::gate::{Emptiness, Verdict};
use crate::limits::{ATTEMPTS_MAX, DONE_GRACE, FINISH_GRACE};
use crate::route::{Candidate, Delivery};
use clock::TokenClock;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Planned,
    Attempting {
        n: usize,
        phase: Phase,
    },
    Gating {
        n: usize,
        clock: TokenClock,
    },
    /// A stream has its first token and is put together: it commits at its end. `end_at`: as in `Relaying`.
    Collecting {
        n: usize,
        stall_at: Instant,
        end_at: Option<Instant>,
    },
    /// Whether this candidate may be asked again then.
    Asking {
        n: usize,
        until: Instant,
    },
    Pausing {
        n: usize,
        until: Instant,
    },
    /// `end_at`: the stream says that it is finished; when to end it, whatever still comes.
    Relaying {
        n: usize,
        stall_at: Instant,
        end_at: Option<Instant>,
    },
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// It began as a hedge, and tells of nothing but its end.
    Adopted {
        until: Instant,
    },
    Connecting {
        until: Instant,
        fresh: bool,
    },
    AwaitingHead {
        clock: TokenClock,
        fresh: bool,
    },
}

/// The attempt beside the present one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hedge {
    /// It is begun then.
    Due(Instant),
    /// At this candidate, until then.
    Running(usize, Instant),
}

/// The machine of one request.
#[derive(Debug)]
pub struct Exchange {
    candidates: Vec<Candidate>,
    prompt_tokens: u64,
    state: State,
    total: Instant,
    /// How long `total` is, from a start on.
    before_commit: Duration,
    /// While others are left, the present attempt's server has no longer than this, however well it works: a client that
    /// waits for a stuck request must still get its answer.
    leave_by: Instant,
    beat: Option<(Duration, Instant)>,
    tried: heapless::Vec<Tried, ATTEMPTS_MAX>,
    turns: Turns,
    /// After a context overflow: only windows larger than this, and those that are not known.
    window_above: Option<u32>,
    /// Some target refused this request alone, as too long or as unsupported, in an answer that can be passed on;
    /// what is said inside a stream cannot.
    refused_the_request: bool,
    empties_with_tokens: u32,
    kept: Option<Emptiness>,
    /// After how long each candidate's first token is late; empty where hedging is off.
    late_after: Vec<Option<Duration>>,
    hedge: Option<Hedge>,
    /// When the present attempt is left, as [`Event::Leaves`] says.
    leaves: Option<(Option<Instant>, Cause)>,
}

impl Exchange {
    /// A machine for these candidates. `total` is when the time before the commit is used up. Nobody is asked again
    /// unless [`Exchange::retrying`] says so.
    #[must_use]
    pub fn new(
        candidates: Vec<Candidate>,
        prompt_tokens: u64,
        heartbeat: Option<Duration>,
        total: Instant,
        now: Instant,
    ) -> Self {
        Exchange {
            turns: Turns::new(Retry::default(), 0, candidates.len()),
            candidates,
            prompt_tokens,
            state: State::Planned,
            total,
            before_commit: total.saturating_duration_since(now),
            leave_by: total,
            beat: heartbeat.map(|every| (every, now + every)),
            tried: heapless::Vec::new(),
            window_above: None,
            refused_the_request: false,
            empties_with_tokens: 0,
            kept: None,
            late_after: Vec::new(),
            hedge: None,
            leaves: None,
        }
    }

    /// After how long each candidate's first token is late, so that the next one may be asked beside it.
    pub fn hedging(&mut self, late_after: Vec<Option<Duration>>) {
        self.late_after = late_after;
    }

    /// How candidates with `max_retries` are asked again. `seed` decides the jitter.
    #[must_use]
    pub fn retrying(self, policy: &Retry, seed: u64) -> Self {
        Exchange { turns: Turns::new(policy.clone(), seed, self.candidates.len()), ..self }
    }

    /// Other candidates, for a machine that has not begun.
    pub fn replan(&mut self, candidates: Vec<Candidate>) {
        if self.state == State::Planned {
            self.turns = self.turns.renewed(candidates.len());
            // The first of them comes before those that were known.
            self.late_after.clear();
            self.candidates = candidates;
        }
    }

    /// The failed attempts so far, in order.
    #[must_use]
    pub fn tried(&self) -> &[Tried] {
        &self.tried
    }

    /// The candidates.
    #[must_use]
    pub fn candidates(&self) -> &[Candidate] {
        &self.candidates
    }

    /// Whether some candidate was not asked yet.
    #[must_use]
    pub fn has_fresh(&self) -> bool {
        let mut fresh = self.candidates.iter().skip(self.turns.fresh());
        fresh.any(|candidate| !self.was_asked(candidate))
    }

    /// When the time before the commit is used up.
    #[must_use]
    pub fn total(&self) -> Instant {
        self.total
    }

    /// It stands in the list a second time, and was asked in its first place.
    fn was_asked(&self, candidate: &Candidate) -> bool {
        let it = |tried: &Tried| {
            self.candidates.get(tried.candidate).is_some_and(|it| it.target == candidate.target)
        };
        candidate.again && self.tried.iter().any(|tried| it(tried) && !tried.cause.passes_over())
    }

    /// Whether nothing more will happen.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Whether an empty answer of this kind must be kept: it may be what the client gets in the end.
    #[must_use]
    pub fn keeps(&self, emptiness: Emptiness) -> bool {
        match emptiness {
            Emptiness::Nothing => false,
            Emptiness::NoToken => self.kept != Some(Emptiness::StopWithTokens),
            Emptiness::StopWithTokens => true,
        }
    }

    /// When [`Event::Deadline`] is due, unless something else happens first.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let beat = self.beat.map(|(_, at)| at);
        let own = match self.state {
            State::Planned | State::Done => return None,
            State::Attempting {
                phase: Phase::Connecting { until, .. } | Phase::Adopted { until }, ..
            }
            | State::Asking { until, .. }
            | State::Pausing { until, .. } => until,
            State::Attempting { phase: Phase::AwaitingHead { clock, .. }, .. }
            | State::Gating { clock, .. } => clock.until,
            State::Collecting { stall_at, end_at, .. } => {
                return Some(end_at.map_or(stall_at, |at| at.min(stall_at)).min(self.total));
            }
            State::Relaying { stall_at, end_at, .. } => {
                return Some(end_at.map_or(stall_at, |at| at.min(stall_at)));
            }
        };
        let own = match self.hedge {
            Some(Hedge::Due(at) | Hedge::Running(_, at)) => own.min(at),
            None => own,
        };
        let own = own.min(self.total);
        Some(beat.map_or(own, |at| at.min(own)))
    }

    /// One event in, one action out. An event that does not fit the state is ignored: [`Action::Wait`].
    pub fn on(&mut self, event: Event<'_>, now: Instant) -> Action {
        if let Event::Stop(cause) = event {
            return self.stop(cause);
        }
        match (self.state, event) {
            (State::Planned, Event::Start) => self.turn(None, now),
            (State::Asking { n, until }, Event::MayRetry(may)) => self.asked(n, until, may, now),
            // Nobody answers for the budget.
            (State::Asking { n, until }, Event::Deadline) => self.asked(n, until, false, now),
            (State::Pausing { n, until }, Event::Deadline) => self.pause_deadline(n, until, now),
            // The driver's own trouble while nothing is under way.
            (State::Asking { .. } | State::Pausing { .. }, Event::Failed(cause)) => self.refuse(cause),
            (State::Attempting { n, phase: Phase::Connecting { fresh, .. } }, Event::Connected) => {
                self.connected(n, fresh, now)
            }
            (State::Attempting { n, phase: Phase::Connecting { fresh, .. } }, Event::Waits(wait)) => {
                let connect = self.candidates.get(n).map_or(Duration::ZERO, |n| n.deadlines.connect);
                let until = now + wait + connect;
                // What is waited for here does not make its first token late.
                if !matches!(self.hedge, Some(Hedge::Running(..))) {
                    self.hedge = self.late_at(n, now + wait);
                }
                self.state = State::Attempting { n, phase: Phase::Connecting { until, fresh } };
                Action::Wait
            }
            (State::Attempting { phase: Phase::Connecting { .. }, .. }, Event::Leaves(at, cause)) => {
                self.leaves = Some((at, cause));
                Action::Wait
            }
            (State::Attempting { n, phase }, Event::Stale) => self.stale(n, phase, now),
            (State::Attempting { n, phase: Phase::AwaitingHead { clock, .. } }, Event::Head) => {
                self.state = State::Gating { n, clock: clock.after_head(now) };
                Action::Read
            }
            (
                State::Attempting { n, .. } | State::Gating { n, .. } | State::Collecting { n, .. },
                Event::Failed(cause),
            ) => self.next(n, cause, None, now),
            (
                State::Attempting { n, phase: Phase::AwaitingHead { .. } }
                | State::Gating { n, .. }
                | State::Collecting { n, .. },
                Event::AsksWhole,
            ) => {
                if let Some(candidate) = self.candidates.get_mut(n) {
                    candidate.delivery = Delivery::Whole;
                }
                self.connected(n, true, now)
            }
            (State::Gating { n, .. }, Event::Answering) => {
                self.lose_hedge(Cause::Hedged);
                self.renew(now);
                self.collects(n, None, now)
            }
            (State::Collecting { n, end_at, .. }, Event::Moved { spoke, finished, done }) => {
                let end_at = ends(end_at.filter(|_| done || !spoke), finished, done, now);
                if spoke {
                    self.renew(now);
                }
                self.collects(n, end_at, now)
            }
            (State::Collecting { stall_at, end_at, .. }, Event::Deadline) => {
                let over = now >= self.total || (now >= stall_at && now >= self.bound());
                if over || end_at.is_some_and(|at| now >= at) {
                    return Action::Expire(Cause::TimeoutBetweenTokens);
                }
                if now >= stall_at { Action::AskWork } else { Action::Wait }
            }
            (State::Attempting { n, .. } | State::Gating { n, .. }, Event::Rejected(cause, wait)) => {
                self.rejected(n, cause, wait, now)
            }
            // The driver's own trouble: ignored, it would be asked to read for ever.
            (State::Planned, Event::Failed(cause)) => self.refuse(cause),
            (State::Relaying { .. }, Event::Failed(cause)) => self.over(false, cause),
            (State::Gating { n, clock }, Event::Progress) => {
                self.state = State::Gating { n, clock: clock.extended(self.bound(), now) };
                Action::Read
            }
            (State::Gating { n, .. } | State::Collecting { n, .. }, Event::Verdict(verdict)) => {
                self.verdict(n, verdict, now)
            }
            (State::Attempting { .. } | State::Gating { .. }, Event::Hedges(candidate)) => {
                self.hedges(candidate, now)
            }
            (State::Attempting { n, phase: Phase::Adopted { .. } }, Event::HedgeWon) => self.commit(n, now),
            (State::Attempting { n, phase: Phase::Adopted { .. } }, Event::HedgeFailed(cause, wait)) => {
                self.rejected(n, cause, wait, now)
            }
            (State::Attempting { n, .. } | State::Gating { n, .. }, Event::HedgeWon) => {
                self.hedge_won(n, now)
            }
            (State::Attempting { .. } | State::Gating { .. }, Event::HedgeFailed(cause, wait)) => {
                self.hedge_failed(cause, wait, now);
                Action::Wait
            }
            (State::Attempting { n, phase }, Event::Deadline) => self.attempt_deadline(n, phase, now),
            (State::Gating { n, clock }, Event::Deadline) => self.gate_deadline(n, clock, now),
            (State::Attempting { n, phase: Phase::AwaitingHead { clock, fresh } }, Event::Works(works)) => {
                if !works {
                    return self.next(n, clock.cause, None, now);
                }
                let clock = clock.works(self.between(n), self.bound(), now);
                self.state = State::Attempting { n, phase: Phase::AwaitingHead { clock, fresh } };
                self.hedge_deadline(now).unwrap_or_else(|| self.beat(now))
            }
            (State::Gating { n, clock }, Event::Works(works)) => {
                if !works {
                    return Action::Expire(clock.cause);
                }
                let clock = clock.works(self.between(n), self.bound(), now);
                self.state = State::Gating { n, clock };
                self.hedge_deadline(now).unwrap_or_else(|| self.beat(now))
            }
            (State::Collecting { n, end_at, .. }, Event::Works(works)) => {
                if !works {
                    return Action::Expire(Cause::TimeoutBetweenTokens);
                }
                self.state = State::Collecting { n, stall_at: now + self.between(n), end_at };
                Action::Wait
            }
            (State::Relaying { n, end_at, .. }, Event::Moved { spoke, finished, done }) => {
                self.moved(n, end_at.filter(|_| done || !spoke), finished, done, now)
            }
            (State::Relaying { end_at, .. }, Event::Ended { whole }) => {
                self.over(whole || end_at.is_some(), Cause::Truncated)
            }
            (State::Relaying { end_at, .. }, Event::Broke(cause)) => self.over(end_at.is_some(), cause),
            (State::Relaying { .. }, Event::ErrorEvent(cause)) => self.over(false, cause),
            (State::Relaying { stall_at, end_at, .. }, Event::Deadline) => {
                let due = end_at.is_some_and(|at| now >= at) || now >= stall_at;
                if due { self.over(end_at.is_some(), Cause::TimeoutBetweenTokens) } else { Action::Wait }
            }
            (
                State::Planned
                | State::Attempting { .. }
                | State::Gating { .. }
                | State::Collecting { .. }
                | State::Asking { .. }
                | State::Pausing { .. }
                | State::Relaying { .. }
                | State::Done,
                _,
            ) => Action::Wait,
        }
    }

    /// Whoever is next, after `last` failed.
    fn turn(&mut self, last: Option<usize>, now: Instant) -> Action {
        if now >= self.total {
            return self.refuse(Cause::TimeoutTotal);
        }
        match self.next_turn(last, now) {
            Turn::First(n) => self.attempt(n, now),
            Turn::Again(n, until) => {
                self.state = State::Asking { n, until };
                Action::AskRetry
            }
            Turn::Nobody => self.exhausted(),
        }
    }

    fn next_turn(&self, last: Option<usize>, now: Instant) -> Turn {
        let fits = |c: &Candidate| {
            self.window_above.is_none_or(|least| c.context.is_none_or(|has| has > least))
                && !self.was_asked(c)
        };
        self.turns.next(last, &self.candidates, fits, self.total, now)
    }

    fn attempt(&mut self, n: usize, now: Instant) -> Action {
        let Some(candidate) = self.candidates.get(n) else { return self.refuse(Cause::Internal) };
        let until = now + candidate.deadlines.connect;
        self.hedge = self.late_at(n, now);
        self.leaves = None;
        self.turns.asked(n);
        self.state = State::Attempting { n, phase: Phase::Connecting { until, fresh: false } };
        Action::Connect { candidate: n, fresh: false }
    }

    /// When its first token is late, if it begins then.
    fn late_at(&self, n: usize, begins: Instant) -> Option<Hedge> {
        let after = self.late_after.get(n).copied().flatten()?;
        begins.checked_add(after).map(Hedge::Due)
    }

    fn asked(&mut self, n: usize, until: Instant, may: bool, now: Instant) -> Action {
        if !may {
            self.turns.deny();
            return self.turn(None, now);
        }
        if until <= now {
            return self.attempt(n, now);
        }
        self.state = State::Pausing { n, until };
        Action::Pause
    }

    fn pause_deadline(&mut self, n: usize, until: Instant, now: Instant) -> Action {
        if now >= self.total {
            return self.refuse(Cause::TimeoutTotal);
        }
        if now >= until { self.attempt(n, now) } else { self.beat(now) }
    }

    fn connected(&mut self, n: usize, fresh: bool, now: Instant) -> Action {
        self.leave_by = self.share(now);
        let Some(candidate) = self.candidates.get(n) else { return self.refuse(Cause::Internal) };
        let (d, allowance) = (&candidate.deadlines, self.allowance(candidate));
        // Nobody is left to turn to: a silent start may be a model being loaded, which is worth waiting for.
        let loads = !self.has_fresh() && candidate.loads || matches!(self.leaves, Some((None, _)));
        let load = if loads { d.load } else { Duration::ZERO };
        let (wait, cause) = match candidate.delivery {
            // The first byte is the last one: only the whole answer's time is known.
            Delivery::Whole => {
                let wait = d.answer.unwrap_or(d.total).max(load);
                (wait.min(self.bound().saturating_duration_since(now)), Cause::TimeoutAnswer)
            }
            Delivery::Streamed | Delivery::Collected if load > allowance => (load, Cause::TimeoutLoad),
            Delivery::Streamed | Delivery::Collected => (allowance, Cause::TimeoutFirstToken),
        };
        let clock = match (self.leaves, candidate.delivery) {
            (Some((Some(at), cause)), Delivery::Streamed | Delivery::Collected) => {
                TokenClock { until: at, allowance, cause }
            }
            // Nothing tells whether an answer that comes whole has begun: it is not given up for a wait.
            _ => TokenClock { until: now + wait, allowance, cause },
        };
        self.state = State::Attempting { n, phase: Phase::AwaitingHead { clock, fresh } };
        Action::Send
    }

    /// How long its first token may take.
    fn allowance(&self, candidate: &Candidate) -> Duration {
        let d = &candidate.deadlines;
        let thousandths = u32::try_from(self.prompt_tokens).unwrap_or(u32::MAX);
        d.first_token.saturating_add(d.first_token_per_1k.saturating_mul(thousandths) / 1000)
    }

    /// A pooled connection that the server had closed meanwhile is no failure: once more, on a fresh one.
    fn stale(&mut self, n: usize, phase: Phase, now: Instant) -> Action {
        let (Phase::Connecting { fresh, .. } | Phase::AwaitingHead { fresh, .. }) = phase else {
            return Action::Wait;
        };
        if fresh {
            return self.next(n, Cause::Closed, None, now);
        }
        if now >= self.total {
            return self.out_of_time(n);
        }
        let Some(candidate) = self.candidates.get(n) else { return self.refuse(Cause::Internal) };
        let until = now + candidate.deadlines.connect;
        self.state = State::Attempting { n, phase: Phase::Connecting { until, fresh: true } };
        Action::Connect { candidate: n, fresh: true }
    }

    fn rejected(&mut self, n: usize, cause: Cause, wait: Option<Duration>, now: Instant) -> Action {
        if cause == Cause::ClientFault {
            self.note(n, cause);
            self.lose_hedge(Cause::Hedged);
            self.state = State::Done;
            return Action::PassRejection;
        }
        self.refused_the_request |= cause.is_of_the_request();
        self.next(n, cause, wait, now)
    }

    fn verdict(&mut self, n: usize, verdict: &Verdict, now: Instant) -> Action {
        match verdict {
            Verdict::Commit => self.commit(n, now),
            Verdict::Failed(failure) => self.next(n, failure.cause, None, now),
            Verdict::Overflow => self.next(n, Cause::Overflow, None, now),
            Verdict::Empty(emptiness) => {
                if self.keeps(*emptiness) {
                    self.kept = Some(*emptiness);
                }
                self.empties_with_tokens += u32::from(*emptiness == Emptiness::StopWithTokens);
                if self.empties_with_tokens >= 2 {
                    self.note(n, Cause::Empty);
                    self.lose_hedge(Cause::Hedged);
                    self.state = State::Done;
                    return Action::PassEmpty;
                }
                self.next(n, Cause::Empty, None, now)
            }
        }
    }

    fn commit(&mut self, n: usize, now: Instant) -> Action {
        let stall_at = now + self.between(n);
        self.beat = None;
        self.lose_hedge(Cause::Hedged);
        self.state = State::Relaying { n, stall_at, end_at: None };
        Action::Commit
    }

    fn attempt_deadline(&mut self, n: usize, phase: Phase, now: Instant) -> Action {
        if now >= self.total {
            return self.out_of_time(n);
        }
        match phase {
            Phase::Connecting { until, .. } if now >= until => self.next(n, Cause::TimeoutConnect, None, now),
            Phase::AwaitingHead { clock, .. } if now >= clock.until => self.late(n, clock, now),
            Phase::Adopted { until } if now >= until => self.next(n, Cause::TimeoutFirstToken, None, now),
            Phase::Connecting { .. } | Phase::AwaitingHead { .. } | Phase::Adopted { .. } => {
                self.hedge_deadline(now).unwrap_or_else(|| self.beat(now))
            }
        }
    }

    fn gate_deadline(&mut self, n: usize, clock: TokenClock, now: Instant) -> Action {
        if now >= self.total {
            return Action::Expire(Cause::TimeoutTotal);
        }
        if now >= clock.until {
            return self.late(n, clock, now);
        }
        self.hedge_deadline(now).unwrap_or_else(|| self.beat(now))
    }

    /// The first token is late. A server that is seen to work is slow, or has others before this request: it is not
    /// hung, and all that it has computed would be lost.
    fn late(&mut self, n: usize, clock: TokenClock, now: Instant) -> Action {
        match (self.state, clock.cause) {
            (_, Cause::TimeoutFirstToken) if now < self.bound() => Action::AskWork,
            (State::Gating { .. }, cause) => Action::Expire(cause),
            (_, cause) => self.next(n, cause, None, now),
        }
    }

    /// How long the candidate may be silent once it answers.
    fn between(&self, n: usize) -> Duration {
        self.candidates.get(n).map_or(Duration::ZERO, |candidate| candidate.deadlines.between_tokens)
    }

    fn beat(&mut self, now: Instant) -> Action {
        match self.beat {
            Some((every, at)) if now >= at => {
                self.beat = Some((every, now + every));
                Action::Beat
            }
            Some(_) | None => Action::Wait,
        }
    }

    fn collects(&mut self, n: usize, end_at: Option<Instant>, now: Instant) -> Action {
        self.state = State::Collecting { n, stall_at: now + self.between(n), end_at };
        Action::Read
    }

    /// The model is answering: what follows has the time before the commit for itself.
    fn renew(&mut self, now: Instant) {
        self.total = self.total.max(now + self.before_commit);
        self.leave_by = self.share(now);
    }

    /// Three quarters of the time that is left before the commit.
    fn share(&self, now: Instant) -> Instant {
        now + self.total.saturating_duration_since(now).saturating_mul(3) / 4
    }

    /// How long the present attempt may be waited for at most.
    fn bound(&self) -> Instant {
        if self.has_fresh() { self.leave_by } else { self.total }
    }

    /// `since`: a time to end that stands from before.
    fn moved(
        &mut self,
        n: usize,
        since: Option<Instant>,
        finished: bool,
        done: bool,
        now: Instant,
    ) -> Action {
        let end_at = ends(since, finished, done, now);
        self.state = State::Relaying { n, stall_at: now + self.between(n), end_at };
        Action::Read
    }

    fn over(&mut self, whole: bool, cause: Cause) -> Action {
        self.state = State::Done;
        if whole { Action::EndClean } else { Action::EndBroken(cause) }
    }

    /// This candidate failed, and may have asked for a pause: on to whoever is next.
    fn next(&mut self, n: usize, cause: Cause, wait: Option<Duration>, now: Instant) -> Action {
        if cause == Cause::TimeoutTotal {
            return self.out_of_time(n);
        }
        self.note(n, cause);
        if cause == Cause::ContextOverflow {
            let window = self.candidates.get(n).and_then(|c| c.context).unwrap_or(0);
            self.window_above = Some(self.window_above.map_or(window, |least| least.max(window)));
        }
        let most = self.candidates.get(n).map_or(0, |candidate| candidate.max_retries);
        self.turns.failed(n, most, cause, wait, now);
        match self.hedge.take() {
            Some(Hedge::Running(n, until)) => {
                self.state = State::Attempting { n, phase: Phase::Adopted { until } };
                Action::Adopt { candidate: n }
            }
            Some(Hedge::Due(_)) | None => self.turn(Some(n), now),
        }
    }

    fn exhausted(&mut self) -> Action {
        let last = self.tried.last().map(|tried| tried.cause);
        let mut asked = self.tried.iter().filter(|tried| !tried.cause.passes_over()).peekable();
        let all_empty = asked.peek().is_some() && asked.all(|tried| tried.cause == Cause::Empty);
        let action = match (last, self.kept) {
            (_, Some(Emptiness::StopWithTokens)) => Action::PassEmpty,
            (_, Some(_)) if all_empty => Action::PassEmpty,
            (Some(Cause::ContextOverflow), _) if self.refused_the_request => Action::PassRejection,
            (Some(Cause::Unsupported), _) if self.refused_the_request && self.is_refused_by_all() => {
                Action::PassRejection
            }
            (Some(cause), _) => Action::Refuse(cause),
            (None, _) => Action::Refuse(Cause::Refused),
        };
        self.state = State::Done;
        action
    }

    /// Nobody failed: each target was well, and did not take this request.
    fn is_refused_by_all(&self) -> bool {
        let refused = |cause: Cause| cause.is_of_the_request() || cause == Cause::Untranslatable;
        self.tried.iter().all(|tried| refused(tried.cause))
    }

    fn out_of_time(&mut self, n: usize) -> Action {
        self.note(n, Cause::TimeoutTotal);
        self.refuse(Cause::TimeoutTotal)
    }

    fn refuse(&mut self, cause: Cause) -> Action {
        self.lose_hedge(cause);
        self.state = State::Done;
        Action::Refuse(cause)
    }

    fn stop(&mut self, cause: Cause) -> Action {
        let before = std::mem::replace(&mut self.state, State::Done);
        let hedge = self.hedge.take();
        match before {
            State::Done => Action::Wait,
            State::Planned
            | State::Attempting { .. }
            | State::Gating { .. }
            | State::Collecting { .. }
            | State::Asking { .. }
            | State::Pausing { .. }
            | State::Relaying { .. }
                if cause == Cause::ClientGone =>
            {
                Action::Abandon
            }
            State::Relaying { .. } => Action::EndBroken(cause),
            State::Attempting { n, .. } | State::Gating { n, .. } | State::Collecting { n, .. } => {
                self.note(n, cause);
                self.hedge = hedge;
                self.lose_hedge(cause);
                Action::Refuse(cause)
            }
            State::Planned | State::Asking { .. } | State::Pausing { .. } => Action::Refuse(cause),
        }
    }

    fn note(&mut self, candidate: usize, cause: Cause) {
        // One entry an attempt, and there are at most ATTEMPTS_MAX: this cannot be full.
        let _full = self.tried.push(Tried { candidate, cause });
    }
}

/// When a stream that is finished ends, whatever still comes. `since`: a time that stands from before.
fn ends(since: Option<Instant>, finished: bool, done: bool, now: Instant) -> Option<Instant> {
    let grace = if done { Some(DONE_GRACE) } else { finished.then_some(FINISH_GRACE) };
    grace.map(|grace| since.map_or(now + grace, |at| at.min(now + grace)))
}

#[cfg(test)]
#[path = "exchange_tests.rs"]
mod tests;
