//! What local servers have: asked of them, kept for the process, and what follows for a request.
//!
//! `asking` asks, [`room`] decides about one request by what was said, [`home`] waits until that is yes, [`warm`] loads a
//! model beside the requests.

mod asking;
pub mod home;
pub mod room;
pub mod warm;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::sync::Notify;

pub use asking::{keep_asking, look};

use super::gateway::{Gateway, Process};
use crate::config::{Config, Kind, Place};
use crate::limits;
use crate::memory::Event;
use crate::memory::admit::{Asked, Server, Went};
use crate::memory::facts::{Facts, Resident};
use crate::observe::load_events;

/// All local servers. One for the process, so that a reload loses nothing of them.
#[derive(Debug, Default)]
pub struct Locals {
    all: RefCell<Vec<Rc<Local>>>,
    /// Somebody wants a server asked sooner than it was to be.
    wake: Notify,
    /// Told when a server has said something, a request has left one, or memory stands otherwise.
    changed: Notify,
}

/// One local server.
#[derive(Debug)]
pub struct Local {
    name: String,
    url: String,
    kind: Kind,
    server: RefCell<Server>,
    said: RefCell<Said>,
    /// It is being asked.
    asking: Cell<bool>,
    /// When it was asked last, and when it is asked next.
    asked: Cell<Option<Instant>>,
    due: Cell<Instant>,
    /// The last request.
    used: Cell<Option<Instant>>,
    /// Models of which it is to say what they are made of.
    wanted: RefCell<Vec<String>>,
    load: RefCell<Option<Load>>,
    /// Loads that have begun, ever.
    loads: Cell<u64>,
    /// No warm-up before then, and how long the pause after the next failure is.
    warm_again: Cell<Option<(Instant, Duration)>>,
    /// Requests that wait until it has memory for them.
    waiting: Cell<usize>,
}

/// What it said.
#[derive(Debug, Default)]
struct Said {
    /// When it last answered.
    at: Option<Instant>,
    /// Whether it said what it has when it was last asked.
    answers: bool,
    /// Whether it answered at all.
    there: bool,
    /// When it said what does not change while it runs.
    fixed: Option<Instant>,
    facts: Facts,
    /// Of the set of its residents.
    key: Option<u64>,
}

/// A load under way.
#[derive(Debug)]
struct Load {
    /// By this it is told from others: whoever began it may see its end late, when another one is under way.
    number: u64,
    model: String,
    since: Instant,
    /// In KiB: what was free then.
    free: Option<u32>,
}

/// One local server, for `status`.
#[derive(Debug, Serialize)]
pub struct LocalStatus {
    /// What it has loaded, in words; `None`: not known.
    pub resident: Option<Vec<String>>,
    /// Answers at once, where it said how many.
    pub slots: Option<u32>,
    /// Of these taken, by its own word.
    pub busy: Option<u32>,
    /// Requests of edgeward's that are there.
    pub in_flight: u32,
    /// Requests that wait until memory has room.
    pub waiting: usize,
    /// The model that is being loaded, and since how many seconds.
    pub loading: Option<(String, u64)>,
    /// Seconds since it last said what it has.
    pub heard_secs: Option<u64>,
}

impl Locals {
    /// Of a configuration's targets, in their order: the local ones, where memory is watched.
    pub fn of(&self, config: &Config, now: Instant) -> Vec<Option<Rc<Local>>> {
        let mut all = self.all.borrow_mut();
        // Those that no configuration in use has any more.
        all.retain(|local| Rc::strong_count(local) > 1);
        let targets = config.targets.iter().map(|target| {
            if !config.memory.enabled || target.place != Place::Local {
                return None;
            }
            let url = target.url.to_string();
            let same = |local: &&Rc<Local>| {
                (local.name.as_str(), local.url.as_str(), local.kind)
                    == (target.name.as_str(), url.as_str(), target.kind)
            };
            if let Some(known) = all.iter().find(same) {
                return Some(Rc::clone(known));
            }
            let local = Rc::new(Local::new(&target.name, url.clone(), target.kind, now));
            all.push(Rc::clone(&local));
            Some(local)
        });
        let targets = targets.collect();
        self.wake.notify_one();
        targets
    }

    /// Something has changed that those who wait for memory go by.
    pub fn changed(&self) {
        self.changed.notify_waiters();
    }

    /// A number for all that is resident on this box, whichever server has it: memory is one.
    fn resident_key(&self) -> u64 {
        let all = self.all.borrow();
        all.iter().filter_map(|local| local.said.borrow().key).fold(0, u64::wrapping_add)
    }

    /// What loads under way still take, in KiB.
    fn promised(&self, free: Option<u32>, now: Instant) -> u32 {
        let all = self.all.borrow();
        let each = all.iter().map(|local| local.server.borrow().promised(free, now));
        each.fold(0, u32::saturating_add)
    }
}

impl Local {
    fn new(name: &str, url: String, kind: Kind, now: Instant) -> Self {
        Local {
            name: name.to_owned(),
            url,
            kind,
            server: RefCell::new(Server::new(kind)),
            said: RefCell::default(),
            asking: Cell::default(),
            asked: Cell::default(),
            due: Cell::new(now),
            used: Cell::default(),
            wanted: RefCell::default(),
            load: RefCell::default(),
            loads: Cell::default(),
            warm_again: Cell::default(),
            waiting: Cell::default(),
        }
    }

    /// For an operator.
    #[must_use]
    pub fn status(&self, now: Instant) -> LocalStatus {
        let said = self.said.borrow();
        let secs = |since: Instant| now.saturating_duration_since(since).as_secs();
        let one = |model: &Resident| {
            let context = model.context.map(|tokens| format!(", {tokens} tokens")).unwrap_or_default();
            match model.size / 1024 {
                0 => format!("{}{context}", model.name),
                mib => format!("{} ({mib} MiB{context})", model.name),
            }
        };
        LocalStatus {
            resident: said.facts.resident.as_ref().map(|all| all.iter().map(one).collect()),
            slots: said.facts.slots,
            busy: said.facts.busy,
            in_flight: self.server.borrow().in_flight(),
            waiting: self.waiting.get(),
            loading: self.load.borrow().as_ref().map(|load| (load.model.clone(), secs(load.since))),
            heard_secs: said.at.map(secs),
        }
    }

    /// Whether it was seen to compute tokens within this time.
    #[must_use]
    pub fn worked(&self, within: Duration, now: Instant) -> bool {
        self.server.borrow().worked(within, now)
    }

    /// How many models it has loaded; `None`: not known.
    #[must_use]
    pub fn residents(&self) -> Option<usize> {
        self.said.borrow().facts.resident.as_ref().map(Vec::len)
    }

    /// How long it is let alone before it is asked again.
    fn pause(&self, now: Instant) -> Duration {
        let (answers, there) = (self.said.borrow().answers, self.said.borrow().there);
        let lately = |used: Instant| now.saturating_duration_since(used) < limits::LOCAL_BUSY;
        let busy = self.server.borrow().in_flight() > 0 || self.used.get().is_some_and(lately);
        match (answers, self.kind) {
            (true, Kind::Ollama) if busy => limits::LOCAL_EVERY_OLLAMA,
            (true, _) if busy => limits::LOCAL_EVERY_BUSY,
            // It was away, and requests go there again.
            (false, _) if busy && !there => limits::LOCAL_EVERY_OLLAMA,
            _ => limits::LOCAL_EVERY_IDLE,
        }
    }

    /// A request would go there: it is asked as often as that wants.
    fn used(&self, locals: &Locals, now: Instant) {
        self.used.set(Some(now));
        let due = self.asked.get().map_or(now, |asked| asked + self.pause(now));
        if due < self.due.get() {
            self.due.set(due);
            locals.wake.notify_one();
        }
    }

    /// It is asked as soon as may be.
    fn ask_now(&self, locals: &Locals, now: Instant) {
        self.due.set(now);
        locals.wake.notify_one();
    }

    /// It has said what it has; `None`: it did not, or cannot.
    fn heard(&self, process: &Process, facts: Option<Facts>, now: Instant) {
        let Some(facts) = facts else {
            let answered = std::mem::take(&mut self.said.borrow_mut().answers);
            if answered {
                self.said.borrow_mut().fixed = None;
                self.server.borrow_mut().silent();
                process.locals.changed();
            }
            return;
        };
        self.server.borrow_mut().heard(&facts, now);
        let gone = self.said.borrow_mut().take(facts, now);
        if gone {
            note(process, Event::Unloaded);
        }
        let key = self.server.borrow().resident_key(now);
        // What is not said now is as it was.
        if key.is_some() && self.said.borrow_mut().key.replace(key.unwrap_or(0)) != key {
            note(process, Event::Resident(process.locals.resident_key()));
        }
        process.locals.changed();
    }

    /// A load begins that is to take `need` KiB. Returns its number.
    fn load_begins(&self, process: &Process, asked: &Asked<'_>, need: u32, by: &str, now: Instant) -> u64 {
        let free = process.room.get().and_then(|room| room.free);
        self.server.borrow_mut().load_begins(asked, need, free, now);
        // To take more than a guess is no sign of anything.
        let at_most = if self.server.borrow().can_tell(asked.model) { need } else { u32::MAX };
        note(process, Event::Loading(at_most));
        load_events::model_loading(&self.name, asked.model, u64::from(need) * 1024, by);
        let number = self.loads.get().wrapping_add(1);
        self.loads.set(number);
        self.load.replace(Some(Load { number, model: asked.model.to_owned(), since: now, free }));
        number
    }

    /// The load of this number is over, or whichever is under way. Nothing happens where it is not. `Err`: it did not end well, for want of memory or not, and
    /// why, in words; empty: nobody waited for its end.
    fn load_over(
        &self,
        process: &Process,
        number: Option<u64>,
        result: &Result<(), (bool, String)>,
        now: Instant,
    ) {
        let is = |load: &mut Load| number.is_none_or(|number| load.number == number);
        let Some(load) = self.load.borrow_mut().take_if(is) else { return };
        let took = now.saturating_duration_since(load.since);
        let left = process.room.get().and_then(|room| room.free);
        let grew = load.free.zip(left).map(|(before, left)| before.saturating_sub(left));
        let went = match result {
            Ok(()) => Went::Loaded(grew.filter(|grew| *grew > 0)),
            Err((true, _)) => Went::OutOfMemory,
            Err((false, _)) => Went::Failed,
        };
        self.server.borrow_mut().load_ended(went, now);
        note(process, Event::Loaded);
        match result {
            Ok(()) => {
                let grew = grew.map(|kib| u64::from(kib) * 1024);
                load_events::model_loaded(&self.name, &load.model, took, grew);
            }
            Err((_, why)) if !why.is_empty() => {
                load_events::model_load_failed(&self.name, &load.model, took, why);
            }
            Err(_) => {}
        }
        process.locals.changed();
    }

    /// Whether one more may wait for its memory, and then its place, which it gives back when dropped.
    fn wait(self: &Rc<Self>, most: usize) -> Option<Waits> {
        let waiting = self.waiting.get();
        (waiting < most).then(|| {
            self.waiting.set(waiting + 1);
            Waits(Rc::clone(self))
        })
    }
}

impl Said {
    /// What is new over what it said before. Returns whether a model is gone.
    fn take(&mut self, new: Facts, now: Instant) -> bool {
        (self.at, self.answers) = (Some(now), true);
        let known = &mut self.facts;
        let has = |all: &[Resident], name: &str| all.iter().any(|one| one.name == name);
        let gone = match (&known.resident, &new.resident) {
            (Some(before), Some(now)) => before.iter().any(|one| !has(now, &one.name)),
            _ => false,
        };
        known.resident = new.resident.or(known.resident.take());
        known.slots = new.slots.or(known.slots);
        known.busy = new.busy.or(known.busy);
        gone
    }
}

/// The process of `target` is another one, or none, from here on: nothing is loaded there. `out_of_memory`: for want of
/// memory.
pub fn died(gateway: &Gateway, target: usize, out_of_memory: bool, at: Instant) {
    let process = &gateway.process;
    // Those who wait for a place there do so where nobody looks at memory, too.
    process.locals.changed();
    let Some(local) = gateway.locals.get(target).and_then(Option::as_ref) else { return };
    local.load_over(process, None, &Err((out_of_memory, "its process ended".to_owned())), at);
    local.server.borrow_mut().restarted(at);
    let mut said = local.said.borrow_mut();
    said.fixed = None;
    said.facts.resident = said.facts.resident.take().map(|_| Vec::new());
    note(process, Event::Unloaded);
    local.due.set(local.due.get().min(at + limits::LOCAL_EVERY_OLLAMA));
    process.locals.wake.notify_one();
}

/// `target` may have loaded something less than it had.
pub fn unloaded(gateway: &Gateway, target: usize, at: Instant) {
    if let Some(local) = gateway.locals.get(target).and_then(Option::as_ref) {
        local.ask_now(&gateway.process.locals, at);
    }
}

/// One that waits for memory.
struct Waits(Rc<Local>);

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.waiting.set(self.0.waiting.get().saturating_sub(1));
    }
}

/// For the predictor's next look; it misses what does not fit.
fn note(process: &Process, event: Event) {
    let _full = process.noted.borrow_mut().push(event);
}

#[cfg(test)]
mod tests;
