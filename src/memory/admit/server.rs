//! What is known of one local server, and what follows for a request: residents, slots, tokens, one load at a time.

use std::time::{Duration, Instant};

use super::{Admission, Asked, NoRoom, Room};
use crate::config::Kind;
use crate::health::Pressure;
use crate::memory::facts::Facts;
use crate::memory::need::Shape;

/// One local server. Of bounded size; learned things outlive what is known of this moment.
#[derive(Debug)]
pub struct Server {
    kind: Kind,
}

/// A request that is at the server. To be given back by [`Server::ends`], whatever became of it.
#[derive(Debug)]
#[must_use]
pub struct Ticket {
    started: Instant,
}

/// How a request that was at the server went.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// The prompt's tokens, by its own usage.
    pub prompt: Option<u64>,
    /// The answer's tokens, likewise, where it was answered to the end.
    pub output: Option<u64>,
    /// How much more memory was in use at its height than before it, in KiB, where it was alone and that was seen.
    pub grew: Option<u32>,
    /// It was answered to its end: how long it took tells of others.
    pub whole: bool,
}

/// How a load went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Went {
    /// It is resident, and took this much, in KiB, where that was seen.
    Loaded(Option<u32>),
    /// For lack of memory it is not: by the error's text, or by a kill.
    OutOfMemory,
    /// It is not, for another reason, or nobody knows.
    Failed,
}

impl Server {
    /// Nothing is known yet.
    #[must_use]
    pub fn new(kind: Kind) -> Self {
        Server { kind }
    }

    /// What the server said just now. What `facts` leaves open stays as it was, and ages.
    pub fn heard(&mut self, facts: &Facts, now: Instant) {
        let _ = (facts, now, self.kind);
    }

    /// It did not answer when it was asked what it has: that is not known any more.
    pub fn silent(&mut self) {}

    /// Its process is new: nothing is loaded, nothing is being loaded.
    pub fn restarted(&mut self, now: Instant) {
        let _ = now;
    }

    /// What a model is made of, by `/api/show` and its like; `None`: the server did not say. Asked for where
    /// [`Server::knows`] says no.
    pub fn shape(&mut self, model: &str, shape: Option<&Shape>, now: Instant) {
        let _ = (model, shape, now);
    }

    /// Whether it is known what the model needs, or was asked for not long ago. Where it is not, and the model is not
    /// resident, whoever admits should ask the server first: what it needs is a guess otherwise.
    #[must_use]
    pub fn knows(&self, model: &str, now: Instant) -> bool {
        let _ = (model, now);
        true
    }

    /// Whether the model is loaded; `None`: not known.
    #[must_use]
    pub fn resident(&self, model: &str, now: Instant) -> Option<bool> {
        let _ = (model, now);
        None
    }

    /// What a number for the set of resident models is, for `memory::Event::Resident`; `None`: not known.
    #[must_use]
    pub fn resident_key(&self, now: Instant) -> Option<u64> {
        let _ = now;
        None
    }

    /// What becomes of a request now. Changes nothing.
    #[must_use]
    pub fn ask(&self, asked: &Asked<'_>, room: &Room, now: Instant) -> Admission {
        let _ = (asked, now);
        match room.pressure {
            Pressure::Red => Admission::Not(NoRoom::Red),
            _ => Admission::Goes,
        }
    }

    /// A request is sent to it.
    pub fn begins(&mut self, asked: &Asked<'_>, now: Instant) -> Ticket {
        let _ = asked;
        Ticket { started: now }
    }

    /// Its first token is there: it has a slot.
    pub fn answers(&mut self, ticket: &mut Ticket, now: Instant) {
        let _ = (ticket, now);
    }

    /// It is over.
    pub fn ends(&mut self, ticket: Ticket, outcome: &Outcome, now: Instant) {
        let _ = (ticket.started, outcome, now);
    }

    /// A load that [`Server::ask`] let in begins. `need` is as it said, `free` as it stands now.
    pub fn load_begins(&mut self, asked: &Asked<'_>, need: u32, free: Option<u32>, now: Instant) {
        let _ = (asked, need, free, now);
    }

    /// It is over. Nothing happens where none is under way.
    pub fn load_ended(&mut self, went: Went, now: Instant) {
        let _ = (went, now);
    }

    /// Since when which load is under way.
    #[must_use]
    pub fn loading(&self, now: Instant) -> Option<Duration> {
        let _ = now;
        None
    }

    /// What a load under way here still takes, in KiB, where `free` is left now.
    #[must_use]
    pub fn promised(&self, free: Option<u32>, now: Instant) -> u32 {
        let _ = (free, now);
        0
    }

    /// Requests of ours that are at the server.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        0
    }
}
