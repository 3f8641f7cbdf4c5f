//! Waiting for a box that is well: for a place, for a slot, for its model, until another target gets the request.

use std::rc::Rc;
use std::time::{Duration, Instant};

use super::room::{self, Wants};
use super::warm::{self, Load};
use crate::cause::{Cause, Failure};
use crate::config::{Priority, Queue};
use crate::dialect::Dialect;
use crate::health::{Pressure, Standing, Why};
use crate::memory::admit::{Admission, NoRoom};
use crate::observe::Shed;
use crate::proxy::gateway::Gateway;
use crate::proxy::places::Place;
use crate::route::queue::Lane;
use crate::route::{self, Passed};
use crate::time::now;

/// What is said of a model that nothing loads once its request has left.
pub const BY_ITSELF: &str =
    "; with `memory.warm_up = false` its request alone would have loaded it, so that nothing does";

/// A request that waits for one target.
pub struct Home<'a> {
    /// What all requests share.
    pub gateway: &'a Rc<Gateway>,
    /// What it wants of memory.
    pub wants: Wants,
    /// Which target.
    pub target: usize,
    /// Where its places are taken.
    pub lane: Lane,
    /// In which dialect the client asks.
    pub dialect: Dialect,
    /// The same number for all requests of one client key.
    pub client: u64,
    /// The key's.
    pub priority: Priority,
    /// How long a load may take.
    pub load: Duration,
    /// Then another target gets the request.
    pub until: Instant,
}

/// What the wait has come to.
pub enum Ready {
    /// It may go there.
    Now(Place),
    /// It may go there, and loads its model itself.
    ToLoad(Place),
    /// Another target gets it.
    Left(Left),
}

/// Why another target gets it.
pub struct Left {
    /// For the request's account.
    pub failure: Failure,
    /// For the journal and for metrics, where the target is well.
    pub told: Option<(Shed, String)>,
}

impl Home<'_> {
    /// Waits until the target is ready for the request. What is known to take longer is not waited for.
    pub async fn ready(&self, at: Instant) -> Ready {
        let (places, admission) = (&self.gateway.process.places, self.admission(at));
        if is_short(admission) {
            return self.left(admission);
        }
        let free = places.is_free(self.lane);
        let goes = free && admission == Admission::Goes;
        if goes && let Some(place) = places.take(self.lane, at) {
            return Ready::Now(place);
        }
        let takes = room::ready_in(self.gateway, &self.wants, self.target, admission, at).unwrap_or_default();
        if at + takes > self.until || at >= self.until {
            // So that it is there for others.
            if let Admission::Loads(need) = admission {
                self.loads(need);
            }
            return self.left(admission);
        }
        let length = self.gateway.config.queue.length;
        let queue = Queue { length, time: self.until - at };
        let place = places.wait(self.lane, self.client, self.priority, &queue, at);
        let place = tokio::select! {
            biased;
            left = self.unwell() => return left,
            place = place => place,
        };
        let Some(place) = place else { return self.left(Admission::Goes) };
        self.room(place).await
    }

    /// Until it fails others, or memory gets short there: nobody waits for a place at such a box.
    pub async fn unwell(&self) -> Ready {
        loop {
            let changed = self.gateway.process.locals.changed.notified();
            if let Some(left) = self.ill() {
                return Ready::Left(left);
            }
            let admission = self.admission(now());
            if is_short(admission) {
                return self.left(admission);
            }
            changed.await;
        }
    }

    /// Waits for a slot and for the model, with its place.
    async fn room(&self, place: Place) -> Ready {
        let mut last = self.admission(now());
        let waits =
            room::local(self.gateway, self.target).map(|local| local.wait(self.gateway.config.queue.length));
        if last != Admission::Goes && matches!(waits, Some(None)) {
            return self.left(last);
        }
        let room = async {
            loop {
                let changed = self.gateway.process.locals.changed.notified();
                if let Some(left) = self.ill() {
                    return Some(Err(left));
                }
                last = self.admission(now());
                match last {
                    Admission::Goes => return Some(Ok(false)),
                    Admission::Loads(need) => match self.loads(need) {
                        Load::Begun => changed.await,
                        Load::ByTheRequest => return Some(Ok(true)),
                        Load::Not(why) => return Some(Err(not_loaded(why))),
                    },
                    Admission::Not(_) if is_short(last) => return None,
                    Admission::Not(_) => changed.await,
                }
            }
        };
        match tokio::time::timeout_at(self.until.into(), room).await {
            Ok(Some(Ok(true))) => Ready::ToLoad(place),
            Ok(Some(Ok(false))) => Ready::Now(place),
            Ok(Some(Err(left))) => Ready::Left(left),
            Ok(None) | Err(_) => self.left(last),
        }
    }

    fn admission(&self, at: Instant) -> Admission {
        // As the plan judges it, whoever looks at memory.
        if self.gateway.store.borrow().pressure(self.target) == Pressure::Red {
            return Admission::Not(NoRoom::Red);
        }
        room::admission(self.gateway, &self.wants, self.target, true, at)
    }

    fn loads(&self, need: u32) -> Load {
        warm::start(self.gateway, &self.wants, self.dialect, self.target, (need, self.load))
    }

    /// It has failed others or its probe meanwhile, or has died. One that is slow answers.
    fn ill(&self) -> Option<Left> {
        let store = self.gateway.store.borrow();
        match store.summary(self.target, &self.wants.model, 0, now()).standing {
            // What memory is short for is told as such.
            Standing::Out(Why::SlowFirstToken(_) | Why::SlowTokens(_) | Why::PressureRed) => None,
            Standing::Out(why) => {
                let failure = Failure::with(Cause::Suspended, &why.in_words());
                Some(Left { failure, told: None })
            }
            Standing::Fit | Standing::Trial(_) | Standing::Last(_) => None,
        }
    }

    /// It is left, to which `admission` was said; where it would go, for the want of a place.
    fn left(&self, admission: Admission) -> Ready {
        let cause = match admission {
            Admission::Loads(_) | Admission::Not(NoRoom::Loading) => Cause::NotLoaded,
            _ if is_short(admission) => Cause::LowMemory,
            Admission::Goes | Admission::Not(_) => Cause::Busy,
        };
        let full = || (Shed::Busy, format!("it {}", Passed::Full.in_words()));
        let (shed, mut why) = room::why(admission).unwrap_or_else(full);
        if matches!(admission, Admission::Loads(_)) && !self.gateway.config.memory.warm_up {
            why.push_str(BY_ITSELF);
        }
        Ready::Left(Left { failure: Failure::with(cause, &why), told: Some((shed, why)) })
    }
}

fn not_loaded(why: &str) -> Left {
    let words = format!("its model {why}");
    Left { failure: Failure::with(Cause::NotLoaded, &words), told: Some((Shed::Cold, words)) }
}

/// Whether it is of no use to wait: memory is short, or too small.
fn is_short(admission: Admission) -> bool {
    match admission {
        Admission::Not(why) => route::is_short(why) || matches!(why, NoRoom::TooLarge { .. }),
        Admission::Goes | Admission::Loads(_) => false,
    }
}
