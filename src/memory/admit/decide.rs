//! What becomes of a request: the rules, in the order in which they are asked.

use std::time::Instant;

use super::server::{Server, key};
use super::{Admission, Asked, NoRoom, Room, Runner};
use crate::config::Kind;
use crate::health::Pressure;
use crate::limits::{
    ADMIT_ALONE, ADMIT_BESIDE, ADMIT_CACHE, ADMIT_EXPLORE, ADMIT_GIVEN_BACK, ADMIT_SMALL_TOKENS, GIB_KIB,
    NEED_BATCH, NEED_RESERVE, OLLAMA_CONTEXT,
};
use crate::memory::facts::Resident;
use crate::memory::need::{self, Load, share};

/// Where a request's model is.
enum Place<'a> {
    /// In memory, or nothing is known that says otherwise.
    There,
    /// On the disk.
    Absent,
    /// In memory, with other options: it goes and comes back.
    Other(&'a Resident),
}

impl Server {
    /// What becomes of a request now. Changes nothing.
    #[must_use]
    pub fn ask(&self, asked: &Asked<'_>, room: &Room, now: Instant) -> Admission {
        if room.pressure == Pressure::Red {
            return Admission::Not(NoRoom::Red);
        }
        let refused = match self.place(asked, room, now) {
            Place::There => self.resident_refuses(asked, room, now),
            _ if room.pressure != Pressure::Green => Some(NoRoom::NotResident),
            Place::Absent => match self.load(asked, None, room, now) {
                // To load it again would show nothing else.
                Admission::Loads(_) if self.is_unlisted(asked) => self.resident_refuses(asked, room, now),
                admission => return admission,
            },
            Place::Other(other) => return self.load(asked, Some(other), room, now),
        };
        refused.map_or(Admission::Goes, Admission::Not)
    }

    fn place(&self, asked: &Asked<'_>, room: &Room, now: Instant) -> Place<'_> {
        if !self.loads() {
            return Place::There;
        }
        let key = key(self.kind, asked.model);
        if self.is_loading(key, now) {
            // Ollama lists it from the load's beginning on.
            return Place::Absent;
        }
        let (known, remembered) = (self.knows_resident(now), self.remembers_resident(now));
        let resident = self.resident.iter().find(|(other, _)| *other == key).map(|(_, resident)| resident);
        match resident.filter(|_| known || remembered) {
            Some(resident) if self.differs(resident, asked, room) => Place::Other(resident),
            Some(_) => Place::There,
            None if known => Place::Absent,
            // It answers us at this moment.
            None if self.model(key).is_some_and(|model| model.answering > 0) => Place::There,
            // Asking failed: what was not there before and is short of room would be a load; all else is let be, or a
            // list that times out would send everything away.
            None if room.pressure != Pressure::Green => Place::Absent,
            None if remembered && self.model(key).is_some_and(|model| model.shape.is_some()) => Place::Absent,
            None => Place::There,
        }
    }

    fn is_unlisted(&self, asked: &Asked<'_>) -> bool {
        self.model(key(self.kind, asked.model)).is_some_and(|model| model.unlisted)
    }

    /// Whether Ollama would load a resident model again for other options (`needsReload` in `server/sched.go`).
    fn differs(&self, resident: &Resident, asked: &Asked<'_>, room: &Room) -> bool {
        if self.kind != Kind::Ollama {
            return false;
        }
        let model = self.model(key(self.kind, asked.model));
        let last = model.and_then(|model| model.options);
        let Runner { num_ctx, num_batch, num_gpu } = asked.options;
        // -1, the default, is whatever it was loaded with.
        let gpu = num_gpu.filter(|gpu| *gpu >= 0);
        let batch = num_batch.map_or(NEED_BATCH, u64::from);
        let others = match last {
            Some(last) => {
                gpu.is_some_and(|_| last.num_gpu != gpu)
                    || last.num_batch.map_or(NEED_BATCH, u64::from) != batch
            }
            // Loaded by somebody else: by default, as most are.
            None => gpu.is_some() || batch != NEED_BATCH,
        };
        let context = match (num_ctx, last) {
            (None, Some(Runner { num_ctx: None, .. })) => false,
            (Some(new), Some(Runner { num_ctx: Some(old), .. })) if new == old => false,
            (None, None) => {
                // Only what is known for sure: the server's default by its memory is a guess.
                let own = model.and_then(|model| model.shape.as_ref()).and_then(|shape| shape.num_ctx);
                own.or(self.settings.context).is_some()
                    && resident.context.is_some_and(|context| context != self.context(asked, room))
            }
            _ => resident.context.is_some_and(|context| context != self.context(asked, room)),
        };
        others || context
    }

    /// Tokens of context that a request's model is loaded with: as asked, else the model's own, else the server's
    /// default; never more than it was trained for.
    fn context(&self, asked: &Asked<'_>, room: &Room) -> u32 {
        let shape = self.model(key(self.kind, asked.model)).and_then(|model| model.shape.as_ref());
        let trained = shape.map_or(0, |shape| shape.context);
        let [small, middle, large] = OLLAMA_CONTEXT;
        let by_memory = match room.total.unwrap_or(0) / GIB_KIB {
            0..24 => small,
            24..48 => middle,
            _ => large,
        };
        let own = shape.and_then(|shape| shape.num_ctx).or(self.settings.context);
        let context = asked.options.num_ctx.or(own).unwrap_or(by_memory);
        if trained > 0 { context.min(trained) } else { context }
    }

    /// Of a model that is not resident, before anything was learned, in KiB. Where nothing is known of it, the least
    /// that any takes.
    fn predicted(&self, asked: &Asked<'_>, room: &Room) -> u32 {
        let model = self.model(key(self.kind, asked.model));
        let shape = model.and_then(|model| model.shape.as_ref());
        let Some(shape) = shape.filter(|shape| shape.weights > 0) else {
            return model.map_or(0, |model| model.seen).saturating_add(NEED_RESERVE);
        };
        let parallel = self.known_slots(key(self.kind, asked.model)).unwrap_or(1);
        need::need(shape, &Load { context: self.context(asked, room), parallel, cache: self.settings.cache })
    }

    fn load(&self, asked: &Asked<'_>, other: Option<&Resident>, room: &Room, now: Instant) -> Admission {
        let key = key(self.kind, asked.model);
        if self.loading(now).is_some() {
            let same = self.is_loading(key, now);
            // Without anybody else it waits at the server for the same load.
            let waits = same && !room.elsewhere;
            return if waits { Admission::Goes } else { Admission::Not(NoRoom::Loading) };
        }
        let predicted = self.predicted(asked, room);
        let need = self.model(key).map_or(predicted, |model| model.corrected(predicted, now));
        let Some(free) = room.free else { return Admission::Loads(need) };
        let free = free.saturating_sub(room.floor).saturating_sub(room.promised);
        // What comes back once idle models are thrown out, and once those are that answer.
        let (mut idle, mut busy, mut beside) = (0_u32, 0_u32, 0_usize);
        let evicts = self.kind == Kind::Ollama;
        for (at, resident) in &self.resident {
            let own = *at == key;
            beside += usize::from(!own);
            let back = if evicts || own { share(resident.size, ADMIT_GIVEN_BACK) } else { 0 };
            let answers = self.model(*at).is_some_and(|model| model.in_flight > 0);
            let sum = if answers { &mut busy } else { &mut idle };
            *sum = sum.saturating_add(back);
        }
        // A model comes back to its own place only.
        let own = other.map_or(0, |own| share(own.size, ADMIT_GIVEN_BACK));
        let answers = other.is_some() && self.model(key).is_some_and(|model| model.in_flight > 0);
        let all_places = self.settings.models.is_some_and(|models| beside >= models as usize);
        let part = if beside > 0 { ADMIT_BESIDE } else { ADMIT_ALONE };
        let spill = room.spill.map_or(0, |spill| share(spill.saturating_sub(room.promised), part));
        let fits = |free: u32, part: u64| need <= share(free, part).saturating_add(spill);
        if !answers && !all_places && fits(free.saturating_add(own), part) {
            return Admission::Loads(need);
        }
        let without_idle = free.saturating_add(idle);
        let room_for_one = !all_places || idle > 0;
        let part = if busy > 0 { part } else { ADMIT_ALONE };
        if !answers && room_for_one && fits(without_idle, part) {
            return Admission::Loads(need);
        }
        if fits(without_idle.saturating_add(busy), part) {
            // Ollama waits until they have ended, and lets everybody wait behind it meanwhile.
            let waits = !room.elsewhere && evicts;
            return if waits { Admission::Loads(need) } else { Admission::Not(NoRoom::Evicts) };
        }
        Admission::Not(NoRoom::TooLarge { need, free: without_idle })
    }

    fn resident_refuses(&self, asked: &Asked<'_>, room: &Room, now: Instant) -> Option<NoRoom> {
        let key = key(self.kind, asked.model);
        let tokens = self.tokens(asked);
        if room.pressure != Pressure::Green && (tokens > ADMIT_SMALL_TOKENS || asked.image) {
            return Some(NoRoom::NotSmall(tokens));
        }
        self.grows(key, asked, room, now).or_else(|| {
            // All of these only cost time; without anybody else that is better spent at the server.
            if !room.elsewhere {
                return None;
            }
            self.waits(key, now).or_else(|| self.is_full(tokens, now))
        })
    }

    /// An image, or a prompt longer than any before.
    fn grows(&self, key: u64, asked: &Asked<'_>, room: &Room, now: Instant) -> Option<NoRoom> {
        if self.kind == Kind::Vllm {
            // It took all of its memory when it began.
            return None;
        }
        let need = self.model(key)?.spike(asked.image, asked.prompt, now);
        let free = room.free?.saturating_sub(room.floor).saturating_sub(room.promised);
        (need > free).then_some(NoRoom::TooLarge { need, free })
    }

    /// It would wait for a slot.
    fn waits(&self, key: u64, now: Instant) -> Option<NoRoom> {
        if self.kind == Kind::Vllm {
            let waiting = self.cache_is_short(ADMIT_CACHE, now)?;
            let wait = self.service(key).saturating_mul(waiting.max(1)) / self.there(key, now).max(1);
            return Some(NoRoom::Busy(wait));
        }
        let slots = self.known_slots(key)?;
        let beyond = self.there(key, now).checked_sub(slots)?;
        let tried = |at: Instant| now.saturating_duration_since(at) < ADMIT_EXPLORE;
        if beyond == 0 && !self.slots_are_told() && !self.explored.is_some_and(tried) {
            return None;
        }
        Some(NoRoom::Busy(self.slot_in(key, slots, 0, now)))
    }

    /// Its tokens find no place beside those that are there. Alone it goes: whether it is too long the server says.
    fn is_full(&self, tokens: u64, now: Instant) -> Option<NoRoom> {
        let all = self.cache_tokens?;
        let used = all.saturating_mul(self.cache_used(now).unwrap_or(0).into()) / 1000;
        let taken = self.reserved.max(used);
        let most = all.saturating_mul(ADMIT_CACHE) / 1000;
        (taken > 0 && taken.saturating_add(tokens) > most).then_some(NoRoom::Tokens)
    }
}
