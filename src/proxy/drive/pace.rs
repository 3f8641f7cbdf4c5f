//! The exchange with its clock, and what the client sees before a commit.

use bytes::Bytes;
use http::{HeaderMap, StatusCode};

use crate::dialect::{Dialect, reply};
use crate::limits;
use crate::proxy::clock::{Clock, First};
use crate::proxy::exchange::{Action, Event, Exchange};
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
}

impl Pace {
    /// Performs `io` within the exchange's deadline. `Err`: what to do instead; `io` is dropped then.
    pub(super) async fn run<T>(&mut self, io: impl Future<Output = T>) -> Result<T, Action> {
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
