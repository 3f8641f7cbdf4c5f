//! Racing a piece of I/O against the exchange's deadline and a request to stop.

use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use std::time::Instant;

use tokio::time::Sleep;

use super::cancel::Cancel;
use crate::cause::Cause;

/// What came first.
#[derive(Debug, PartialEq, Eq)]
pub enum First<T> {
    /// The I/O.
    Done(T),
    /// The deadline.
    Deadline,
    /// A stop.
    Stop(Cause),
}

/// One request's timer and stop handle.
pub struct Clock {
    /// Made with the first deadline, so that none is ever registered that means nothing.
    sleep: Option<Pin<Box<Sleep>>>,
    /// When `sleep` fires. Only ever earlier than the deadline that is wanted: a later one is noticed
    /// when it fires, which saves re-arming it for each token.
    armed: Instant,
    cancel: Rc<Cancel>,
}

impl Clock {
    /// A clock without a deadline yet.
    #[must_use]
    pub fn new(cancel: Rc<Cancel>, now: Instant) -> Self {
        Clock { sleep: None, armed: now, cancel }
    }

    /// Polls `io` until it is done, the deadline passes, or a stop is asked for. Cancel safe if `io` is.
    pub async fn race<T>(&mut self, deadline: Option<Instant>, io: impl Future<Output = T>) -> First<T> {
        let mut io = pin!(io);
        self.race_pinned(deadline, io.as_mut()).await
    }

    /// [`Clock::race`] over something that goes on afterwards.
    pub async fn race_pinned<T>(
        &mut self,
        deadline: Option<Instant>,
        mut io: Pin<&mut impl Future<Output = T>>,
    ) -> First<T> {
        if let Some(deadline) = deadline
            && (self.sleep.is_none() || deadline < self.armed)
        {
            self.arm(deadline);
        }
        std::future::poll_fn(|cx| {
            if let Some(cause) = self.cancel.poll(cx) {
                return Poll::Ready(First::Stop(cause));
            }
            if let Poll::Ready(done) = io.as_mut().poll(cx) {
                return Poll::Ready(First::Done(done));
            }
            let Some(deadline) = deadline else { return Poll::Pending };
            while self.sleep.as_mut().is_some_and(|sleep| sleep.as_mut().poll(cx).is_ready()) {
                if crate::time::now() >= deadline {
                    return Poll::Ready(First::Deadline);
                }
                self.arm(deadline);
            }
            Poll::Pending
        })
        .await
    }

    fn arm(&mut self, at: Instant) {
        self.armed = at;
        match &mut self.sleep {
            Some(sleep) => sleep.as_mut().reset(at.into()),
            None => self.sleep = Some(Box::pin(tokio::time::sleep_until(at.into()))),
        }
    }
}
