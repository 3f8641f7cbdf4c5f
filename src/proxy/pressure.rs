//! Memory is watched: one task samples it, and tells the stores of the routing in use, and of the one that is tried,
//! how it stands.

use std::rc::Rc;
use std::time::Duration;

use super::current::Current;
use super::gateway::{Gateway, Process};
use crate::config::{Memory, Place};
use crate::health::Pressure;
use crate::limits;
use crate::memory::admit::Room;
use crate::memory::{Axis, Decision, Event, Sample, State, Terms, step};
use crate::observe::memory_events;
use crate::time::now;
use crate::watch::alarm::Alarm;
use crate::watch::sampler::Sampler;
use crate::watch::stalls::Stalls;

/// What is watched, and all that is known of it.
struct Watched {
    config: Memory,
    sampler: Sampler,
    stalls: Stalls,
    state: State,
    pressure: Pressure,
}

impl Watched {
    fn new(config: &Memory, before: Option<Watched>, process: &Process) -> Self {
        let mut sampler = Sampler::new(config);
        let terms = sampler.terms(config);
        let (mut state, pressure) = match before {
            Some(Watched { state, pressure, .. }) => (state, pressure),
            None => {
                let mut state = State::new(terms, now());
                let kept = process.usual.read(sampler.board.0);
                state.remember(&kept, sampler.read(now()));
                (state, Pressure::Green)
            }
        };
        state.set_terms(terms);
        process.tap.borrow_mut().terms(&state);
        Watched { config: config.clone(), sampler, stalls: Stalls::new(config), state, pressure }
    }

    fn look(
        &mut self,
        noted: &[Event],
        device: Option<(u64, u64)>,
        process: &Rc<Process>,
    ) -> (Decision, Room) {
        let at = now();
        process.tap.borrow_mut().before(&self.state, noted, at);
        noted.iter().for_each(|event| self.state.note(*event, at));
        self.sampler.device(device);
        let sample = self.sampler.read(at);
        let decision = step(&mut self.state, sample, at);
        let room = room(&decision, sample, self.state.terms());
        process.tap.borrow_mut().after(&self.state, sample, &decision, at);
        process.usual.note(process, self.sampler.board.0, &self.state, at);
        if std::mem::replace(&mut self.pressure, decision.pressure) != decision.pressure {
            memory_events::pressure(&told(&decision));
        }
        (decision, room)
    }
}

/// What is free for models: on a card of its own, else in the box or in the cgroup of the model server, where less is.
fn room(decision: &Decision, sample: &Sample, terms: &Terms) -> Room {
    let floor = |axis: Axis, total: u32| {
        let share = u64::from(total) * u64::from(terms.floor_permille) / 1000;
        let most = terms.floor.unwrap_or_else(|| u32::try_from(share).unwrap_or(u32::MAX));
        if decision.axis == axis { decision.floor } else { most.min(total) }
    };
    let of = |axis: Axis| {
        let (free, total) = sample.axis(axis, terms.huge)?;
        Some((free, total, floor(axis, total)))
    };
    let above = |(free, _, floor): &(u32, u32, u32)| free.saturating_sub(*floor);
    let own = [of(Axis::Host), of(Axis::Group)].into_iter().flatten().min_by_key(above);
    let device = of(Axis::Device);
    let (free, total, floor) =
        device.or(own).map_or((None, None, 0), |(f, t, floor)| (Some(f), Some(t), floor));
    let spill = device.and(own.as_ref().map(above));
    Room { pressure: decision.pressure, free, total, floor, spill, promised: 0, elsewhere: false }
}

/// Watches for as long as edgeward runs; a changed `[memory]` counts at the next look.
pub async fn keep_watching(current: Rc<Current>) {
    let alarm = Alarm::new();
    let mut watched: Option<Watched> = None;
    loop {
        let gateway = current.get();
        let config = &gateway.config.memory;
        if !config.enabled {
            watched = None;
        } else if watched.as_ref().is_none_or(|watched| watched.config != *config) {
            watched = Some(Watched::new(config, watched.take(), &gateway.process));
        }
        let noted = std::mem::take(&mut *gateway.process.noted.borrow_mut());
        let device = gateway.process.helper.memory();
        let looked = watched.as_mut().map(|watched| watched.look(&noted, device, &gateway.process));
        let (decision, room) = looked.unzip();
        gateway.process.memory.set(decision);
        let before = gateway.process.room.replace(room);
        let pressure = decision.map_or(Pressure::Green, |decision| decision.pressure);
        tell(&gateway, pressure);
        if let Some(candidate) = current.candidate() {
            tell(&candidate.gateway, pressure);
        }
        if before.map(|room| room.pressure) != room.map(|room| room.pressure) {
            gateway.process.locals.changed();
        }
        drop(gateway);
        let next = decision.map_or(limits::MEMORY_INTERVAL_MAX, |d| Duration::from_millis(u64::from(d.next)));
        match &mut watched {
            Some(watched) => tokio::select! {
                () = alarm.after(next) => {}
                () = watched.stalls.begin() => {}
            },
            None => alarm.after(next).await,
        }
    }
}

fn tell(gateway: &Gateway, pressure: Pressure) {
    let mut store = gateway.store.borrow_mut();
    for (index, target) in gateway.config.targets.iter().enumerate() {
        if target.place == Place::Local {
            store.set_pressure(index, pressure);
        }
    }
}

/// The same in words, and in bytes.
#[must_use]
pub fn told(decision: &Decision) -> memory_events::Memory {
    let bytes = |kib: u32| u64::from(kib) * 1024;
    memory_events::Memory {
        pressure: decision.pressure.as_str(),
        reason: decision.reason.in_words(),
        axis: decision.axis.as_str(),
        available: bytes(decision.available),
        total: bytes(decision.total),
        floor: bytes(decision.floor),
        rate: bytes(decision.rate),
        exhausted_in: decision.exhausted_in.map(u64::from),
    }
}
