//! The exchange with its clock, and what the client sees before a commit.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, StatusCode};

use super::hedge::{Hedges, Over, Running};
use crate::cause::Cause;
use crate::dialect::{Dialect, reply};
use crate::limits;
use crate::proxy::clock::{Clock, First};
use crate::proxy::deaths::Fate;
use crate::proxy::exchange::{Action, Event, Exchange};
use crate::proxy::facts::Local;
use crate::proxy::head;
use crate::proxy::outlet::{Head, Outlet};
use crate::time::now;

/// The exchange with its clock, and what it shows the client before a commit.
pub(super) struct Pace {
    pub(super) exchange: Exchange,
    pub(super) clock: Clock,
    pub(super) outlet: Outlet,
    pub(super) dialect: Dialect,
    pub(super) id: String,
    pub(super) head_sent: bool,
    /// By what the present attempt is told that its server has died.
    pub(super) fate: Option<Rc<Fate>>,
    /// By what the present attempt's server can be seen to work, where it can.
    pub(super) works: Option<Works>,
    /// What hedges are made of, where they are on.
    pub(super) hedges: Option<Rc<Hedges>>,
    pub(super) hedge: Option<Running>,
    /// What came of one: who won, or who failed, until the driver has taken it up.
    pub(super) over: Option<Box<Over>>,
}

/// A local server that says what it computes.
pub(super) struct Works {
    pub(super) local: Rc<Local>,
    /// How long ago it may have been seen to.
    pub(super) within: Duration,
}

impl Works {
    fn at(&self, at: Instant) -> bool {
        self.local.worked(self.within, at)
    }
}

/// What goes on first: the driver's I/O, or the hedge beside it.
enum Either<T> {
    Io(T),
    Hedge(Box<Over>),
    /// The process that the attempt waits for has died.
    Died(Cause),
}

impl Pace {
    /// Performs `io` within the exchange's deadline. `Err`: what to do instead; `io` is dropped then.
    pub(super) async fn run<T>(&mut self, io: impl Future<Output = T>) -> Result<T, Action> {
        let mut io = std::pin::pin!(io);
        loop {
            let (hedge, fate) = (&mut self.hedge, &self.fate);
            let mut either = std::pin::pin!(poll_fn(|cx| {
                // Before what it has left on the socket: a stream that commits now would break.
                if let Some(Poll::Ready(cause)) = fate.as_ref().map(|fate| fate.poll(cx)) {
                    return Poll::Ready(Either::Died(cause));
                }
                if let Poll::Ready(done) = io.as_mut().poll(cx) {
                    return Poll::Ready(Either::Io(done));
                }
                match hedge {
                    Some(hedge) => hedge.as_mut().poll(cx).map(Either::Hedge),
                    None => Poll::Pending,
                }
            }));
            let first = self.clock.race_pinned(self.exchange.deadline(), either.as_mut()).await;
            let mut action = match first {
                First::Done(Either::Io(done)) => return Ok(done),
                First::Done(Either::Hedge(over)) => self.hedge_over(over),
                First::Done(Either::Died(cause)) => {
                    self.fate = None;
                    self.exchange.on(Event::Failed(cause), now())
                }
                First::Deadline => self.exchange.on(Event::Deadline, now()),
                First::Stop(cause) => self.exchange.on(Event::Stop(cause), now()),
            };
            if action == Action::AskWork {
                let at = now();
                action =
                    self.exchange.on(Event::Works(self.works.as_ref().is_some_and(|works| works.at(at))), at);
            }
            match action {
                Action::Wait => {}
                Action::Beat => self.beat(),
                Action::Hedge { candidate } => self.begin_hedge(candidate),
                Action::DropHedge => self.hedge = None,
                other => return Err(other),
            }
        }
    }

    fn begin_hedge(&mut self, candidate: usize) {
        self.hedge = self.hedges.as_ref().and_then(|hedges| hedges.begin(candidate));
        if self.hedge.is_some() {
            self.exchange.on(Event::Hedges(candidate), now());
        }
    }

    fn hedge_over(&mut self, over: Box<Over>) -> Action {
        self.hedge = None;
        let event = match &over.end {
            Ok(_) => Event::HedgeWon,
            Err(lost) => Event::HedgeFailed(lost.failure.cause, lost.wait),
        };
        self.over = Some(over);
        self.exchange.on(event, now())
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

    pub(super) fn head(&mut self, mut head: Head) {
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
    pub(super) async fn taken(&mut self) -> Option<Action> {
        match self.clock.race(None, self.outlet.taken()).await {
            First::Stop(cause) => Some(self.exchange.on(Event::Stop(cause), now())),
            First::Done(()) | First::Deadline => None,
        }
    }

    /// Until the client's connection has written everything, or too much time has passed.
    pub(super) async fn flushed(&mut self) {
        // A stop was seen already; only the time bounds this.
        let _late = tokio::time::timeout(limits::LAST_WORDS, self.outlet.written()).await;
    }
}

fn early_head(id: &str, dialect: Dialect) -> HeaderMap {
    let mut headers = HeaderMap::new();
    head::own(&mut headers, id, None, "");
    head::for_stream(&mut headers, dialect.framing());
    headers
}
