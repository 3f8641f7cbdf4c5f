//! What is known of one local server: what it said of itself, what of ours is there, what was learned.

use std::hash::{DefaultHasher, Hasher};
use std::time::{Duration, Instant};

use super::model::Model;
use super::{Asked, Outcome, Settings, Ticket, Went};
use crate::config::Kind;
use crate::limits::{
    ADMIT_FACTS, ADMIT_LOAD, ADMIT_MODELS, ADMIT_RESIDENT, ADMIT_RUNNING, ADMIT_STALE, ADMIT_UNLISTED,
};
use crate::memory::facts::{Facts, Resident, bare};

/// One local server. Of bounded size. What was learned outlives what is known of this moment.
#[derive(Debug)]
pub struct Server {
    pub(super) kind: Kind,
    pub(super) settings: Settings,
    /// At most [`ADMIT_RESIDENT`], as last heard.
    pub(super) resident: Vec<(u64, Resident)>,
    /// When that was; `None`: never.
    listed_at: Option<Instant>,
    /// Asking failed since.
    silent: bool,
    router: bool,
    slots: Option<u32>,
    /// Requests of others at the server, and when that was heard.
    others: Option<(u32, Instant)>,
    /// Requests that wait there, all of them, likewise.
    waiting: Option<(u32, Instant)>,
    pub(super) cache_tokens: Option<u64>,
    cache_used: Option<(u16, Instant)>,
    preemptions: Option<u64>,
    preempted: Option<Instant>,
    /// Tokens computed, as last heard, and when that number was last seen to rise.
    work: Option<u64>,
    worked: Option<Instant>,
    /// At most [`ADMIT_MODELS`].
    models: Vec<Model>,
    pub(super) load: Option<Loading>,
    /// What was loaded last and is not in a list yet, and when that was.
    loaded: Option<(u64, Instant)>,
    pub(super) in_flight: u32,
    /// Of these the models and the beginnings, as far as there is room for them.
    pub(super) running: heapless::Vec<(u64, Instant), ADMIT_RUNNING>,
    /// Tokens, of all that are there.
    pub(super) reserved: u64,
    /// When one was last sent beyond the slots that are known.
    pub(super) explored: Option<Instant>,
}

/// A load under way.
#[derive(Clone, Debug)]
pub(super) struct Loading {
    pub key: u64,
    name: String,
    need: u32,
    /// The same before anything was learned; `None`: it is a guess.
    predicted: Option<u32>,
    /// Free when it began.
    free: Option<u32>,
    /// Nothing else was there, so that nothing else can have gone meanwhile, and it found room: what is less free after
    /// it is what it took. Otherwise it took that at least.
    alone: bool,
    since: Instant,
}

/// A number for a model's name: with Ollama alike for all ways to write it.
pub(super) fn key(kind: Kind, model: &str) -> u64 {
    let mut hash = DefaultHasher::new();
    if kind == Kind::Ollama {
        bare(model).bytes().for_each(|byte| hash.write_u8(byte.to_ascii_lowercase()));
    } else {
        hash.write(model.as_bytes());
    }
    hash.finish()
}

fn fresh(at: Option<Instant>, now: Instant) -> bool {
    at.is_some_and(|at| now.saturating_duration_since(at) <= ADMIT_FACTS)
}

impl Server {
    /// Nothing is known yet.
    #[must_use]
    pub fn new(kind: Kind) -> Self {
        Server {
            kind,
            settings: Settings::default(),
            resident: Vec::new(),
            listed_at: None,
            silent: false,
            router: false,
            slots: None,
            others: None,
            waiting: None,
            cache_tokens: None,
            cache_used: None,
            preemptions: None,
            preempted: None,
            work: None,
            worked: None,
            models: Vec::new(),
            load: None,
            loaded: None,
            in_flight: 0,
            running: heapless::Vec::new(),
            reserved: 0,
            explored: None,
        }
    }

    /// What it was started with, where that is known.
    pub fn set(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// What the server said just now. What `facts` leaves open stays as it was, and ages.
    pub fn heard(&mut self, facts: &Facts, now: Instant) {
        self.router |= facts.router;
        if let Some(list) = &facts.resident {
            (self.listed_at, self.silent) = (Some(now), false);
            let before = std::mem::take(&mut self.resident);
            // What is being loaded by our leave has our options, whether it is listed yet or not.
            let loading = self.load.as_ref().map(|load| load.key);
            if let Some((key, at)) = self.loaded.take()
                && now.saturating_duration_since(at) <= ADMIT_UNLISTED
                && let Some(model) = self.models.iter_mut().find(|model| model.key == key)
            {
                model.unlisted = true;
            }
            for resident in list.iter().take(ADMIT_RESIDENT) {
                let key = key(self.kind, &resident.name);
                self.resident.push((key, resident.clone()));
                let Some(model) = self.models.iter_mut().find(|model| model.key == key) else { continue };
                (model.seen, model.unlisted, model.missing) = (resident.size, false, false);
                let same = |(other, was): &(u64, Resident)| {
                    *other == key && (was.context.is_none() || was.context == resident.context)
                };
                if !before.iter().any(same) && model.in_flight == 0 && loading != Some(key) {
                    // Loaded anew, and not by us.
                    model.options = None;
                }
            }
            for model in self.models.iter_mut().filter(|model| model.in_flight == 0) {
                let there = self.resident.iter().any(|(key, _)| *key == model.key);
                if !there && loading != Some(model.key) {
                    model.options = None;
                }
            }
        }
        self.slots = facts.slots.or(self.slots);
        if let Some(busy) = facts.busy {
            let all = busy.saturating_add(facts.waiting.unwrap_or(0));
            self.others = Some((all.saturating_sub(self.in_flight), now));
        }
        self.waiting = facts.waiting.map(|waiting| (waiting, now)).or(self.waiting);
        self.cache_tokens = facts.cache_tokens.or(self.cache_tokens);
        self.cache_used = facts.cache_used.map(|used| (used, now)).or(self.cache_used);
        if let Some(work) = facts.work {
            if self.work.is_some_and(|before| work > before) {
                self.worked = Some(now);
            }
            self.work = Some(work);
        }
        if let Some(preemptions) = facts.preemptions {
            if self.preemptions.is_some_and(|before| preemptions > before) {
                self.preempted = Some(now);
            }
            self.preemptions = Some(preemptions);
        }
    }

    /// It did not answer when it was asked what it has: that is not known any more.
    pub fn silent(&mut self) {
        self.silent = true;
    }

    /// Its process is new: nothing is loaded, nothing is being loaded. What of ours was there is ended by whoever holds
    /// its ticket.
    pub fn restarted(&mut self, now: Instant) {
        self.resident.clear();
        (self.listed_at, self.silent) = (Some(now), false);
        (self.load, self.loaded) = (None, None);
        (self.others, self.waiting, self.cache_used) = (None, None, None);
        (self.preemptions, self.preempted) = (None, None);
        (self.work, self.worked) = (None, None);
        for model in &mut self.models {
            (model.options, model.answered_at_once, model.unlisted) = (None, 0, false);
        }
    }

    /// Whether it was seen to compute tokens within this time: a sign of work, which a hung server does not give.
    #[must_use]
    pub fn worked(&self, within: Duration, now: Instant) -> bool {
        self.worked.is_some_and(|at| now.saturating_duration_since(at) <= within)
    }

    /// Whether the model is loaded; `None`: not known.
    #[must_use]
    pub fn resident(&self, model: &str, now: Instant) -> Option<bool> {
        if !self.loads() {
            return Some(true);
        }
        let key = key(self.kind, model);
        self.knows_resident(now).then(|| self.resident.iter().any(|(other, _)| *other == key))
    }

    /// A number for the set of resident models, for [`crate::memory::Event::Resident`]; `None`: not known.
    #[must_use]
    pub fn resident_key(&self, now: Instant) -> Option<u64> {
        let number = |(key, resident): &(u64, Resident)| {
            key.rotate_left(resident.context.unwrap_or(0) % 64)
                .wrapping_add(resident.context.unwrap_or(0).into())
        };
        // In whatever order they come.
        self.knows_resident(now)
            .then(|| self.resident.iter().map(number).fold(1, |sum: u64, one| sum.wrapping_add(one)))
    }

    /// A request is sent to it.
    pub fn begins(&mut self, asked: &Asked<'_>, now: Instant) -> Ticket {
        let key = key(self.kind, asked.model);
        let tokens = self.tokens(asked);
        let slots = self.known_slots(key);
        let queued = slots.is_some_and(|slots| self.there(key, now) >= slots);
        if queued {
            self.explored = Some(now);
        }
        // One that asks for the context which is there changes nothing, whoever asked for that.
        let there =
            self.resident.iter().find(|(other, _)| *other == key).and_then(|(_, there)| there.context);
        let same = there.is_some() && asked.options.num_ctx == there;
        let model = self.entry(key, now).map(|model| {
            model.touch(now);
            model.in_flight = model.in_flight.saturating_add(1);
            if !same {
                model.options = Some(asked.options);
            }
            key
        });
        self.in_flight = self.in_flight.saturating_add(1);
        // One that finds no room here counts as one of others', of which the beginning is not known.
        let _full = self.running.push((key, now));
        self.reserved = self.reserved.saturating_add(tokens);
        Ticket { model, tokens, image: asked.image, started: now, queued, answers: None }
    }

    /// Its first token is there: it has a slot.
    pub fn answers(&mut self, ticket: &mut Ticket, now: Instant) {
        if ticket.answers.is_some() {
            return;
        }
        ticket.answers = Some(now);
        if let Some(model) = self.of(ticket) {
            model.answering = model.answering.saturating_add(1);
            model.answered_at_once = model.answered_at_once.max(model.answering);
        }
    }

    /// It is over, whatever became of it.
    pub fn ends(&mut self, ticket: Ticket, outcome: &Outcome, now: Instant) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.reserved = self.reserved.saturating_sub(ticket.tokens);
        let began = |(key, began): &(u64, Instant)| {
            *began == ticket.started && ticket.model.is_none_or(|model| model == *key)
        };
        if let Some(at) = self.running.iter().position(began) {
            self.running.remove(at);
        }
        let Some(model) = self.of(&ticket) else { return };
        model.touch(now);
        model.in_flight = model.in_flight.saturating_sub(1);
        model.answering = model.answering.saturating_sub(u32::from(ticket.answers.is_some()));
        if outcome.whole {
            // Of one that had to wait only what is known to be no waiting.
            let since = if ticket.queued { ticket.answers } else { Some(ticket.started) };
            model.answered(outcome.output, since.map(|since| now.saturating_duration_since(since)));
            model.longest = model.longest.max(outcome.prompt.unwrap_or(0));
        }
        if outcome.out_of_memory {
            model.ran_out(Some(ticket.image), now);
        } else if let Some(kib) = outcome.grew {
            model.grew(ticket.image, kib, now);
        }
    }

    /// A load that [`Server::ask`] let in begins: `need` as it said, `free` as it stands now, in KiB.
    pub fn load_begins(&mut self, asked: &Asked<'_>, need: u32, free: Option<u32>, now: Instant) {
        let key = key(self.kind, asked.model);
        let ratio = self.entry(key, now).map_or(1000, |model| {
            model.touch(now);
            model.options = Some(asked.options);
            model.ratio(now)
        });
        let predicted = u64::from(need) * 1000 / u64::from(ratio.max(1));
        let predicted = u32::try_from(predicted).ok().filter(|_| self.can_tell(asked.model));
        let alone =
            self.knows_resident(now) && self.resident.is_empty() && free.is_none_or(|free| need <= free);
        let name = asked.model.to_owned();
        self.load = Some(Loading { key, name, need, predicted, free, alone, since: now });
    }

    /// It is over. Nothing happens where none is under way.
    pub fn load_ended(&mut self, went: Went, now: Instant) {
        let in_time = self.loading(now).is_some();
        let Some(load) = self.load.take() else { return };
        let spent = now.saturating_duration_since(load.since);
        let model = self.models.iter_mut().find(|model| model.key == load.key);
        match went {
            Went::Loaded(took) => {
                if let Some(model) = model {
                    model.loaded_in(spent);
                    if let (Some(took), Some(predicted), true) = (took, load.predicted, in_time) {
                        model.took(predicted, took, load.alone);
                    }
                }
                self.loaded = Some((load.key, now));
                // Until the server says it itself.
                let known = self.resident.iter().any(|(key, _)| *key == load.key);
                if !known && self.resident.len() < ADMIT_RESIDENT {
                    let size = took.unwrap_or(load.need);
                    let resident = Resident { name: load.name, size, ..Resident::default() };
                    self.resident.push((load.key, resident));
                }
            }
            Went::OutOfMemory => {
                if let Some(model) = model {
                    model.ran_out(None, now);
                }
                // What was there before it may be gone, too: Ollama throws out all.
                self.resident.clear();
                self.silent = true;
            }
            Went::Failed => {
                self.silent = true;
                if let Some(model) = model {
                    model.given_up_after(spent, now);
                }
            }
        }
    }

    /// For how long a load has been under way; `None`: none is.
    #[must_use]
    pub fn loading(&self, now: Instant) -> Option<Duration> {
        let load = self.load.as_ref()?;
        let since = now.saturating_duration_since(load.since);
        (since < ADMIT_LOAD).then_some(since)
    }

    /// What a load under way here still takes, in KiB, where `free` is left now.
    #[must_use]
    pub fn promised(&self, free: Option<u32>, now: Instant) -> u32 {
        let Some(load) = self.load.as_ref().filter(|_| self.loading(now).is_some()) else { return 0 };
        let taken = load.free.zip(free).map_or(0, |(before, now)| before.saturating_sub(now));
        load.need.saturating_sub(taken)
    }

    /// Requests of ours that are at the server.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Whether it loads models when they are asked for.
    pub(super) fn loads(&self) -> bool {
        self.kind == Kind::Ollama || self.router
    }

    pub(super) fn knows_resident(&self, now: Instant) -> bool {
        !self.silent && fresh(self.listed_at, now)
    }

    /// Whether what it said last may still hold: not much longer ago than Ollama keeps an idle model.
    pub(super) fn remembers_resident(&self, now: Instant) -> bool {
        self.listed_at.is_some_and(|at| now.saturating_duration_since(at) <= ADMIT_STALE)
    }

    pub(super) fn model(&self, key: u64) -> Option<&Model> {
        self.models.iter().find(|model| model.key == key)
    }

    /// How many requests it is known to answer at once; `None`: not that many are known to wait.
    pub(super) fn known_slots(&self, key: u64) -> Option<u32> {
        let said = self.settings.slots.or(self.slots);
        match self.kind {
            // Its own default is one.
            Kind::Ollama => {
                let seen = self.model(key).map_or(0, |model| model.answered_at_once);
                Some(said.unwrap_or(seen).max(1))
            }
            Kind::Llamacpp => said,
            _ => None,
        }
    }

    /// Whether those are all there are.
    pub(super) fn slots_are_told(&self) -> bool {
        self.settings.slots.or(self.slots).is_some()
    }

    /// Requests that share these slots with a request for this model: ours and, where the server tells, others'.
    pub(super) fn there(&self, key: u64, now: Instant) -> u32 {
        let ours = match self.kind {
            Kind::Ollama => self.model(key).map_or(0, |model| model.in_flight),
            _ => self.in_flight,
        };
        let others = self.others.filter(|(_, at)| fresh(Some(*at), now)).map_or(0, |(others, _)| others);
        ours.saturating_add(others)
    }

    /// Whether it lets requests wait because its cache for tokens is full, or has just taken some back; and how many
    /// wait.
    pub(super) fn cache_is_short(&self, full: u64, now: Instant) -> Option<u32> {
        let waiting = self.waiting.filter(|(_, at)| fresh(Some(*at), now)).map_or(0, |(waiting, _)| waiting);
        let filled = u64::from(self.cache_used(now).unwrap_or(0)) > full;
        (waiting > 0 && filled || fresh(self.preempted, now)).then_some(waiting)
    }

    /// How full the cache for tokens is, in thousandths.
    pub(super) fn cache_used(&self, now: Instant) -> Option<u16> {
        self.cache_used.filter(|(_, at)| fresh(Some(*at), now)).map(|(used, _)| used)
    }

    /// Prompt and expected answer.
    pub(super) fn tokens(&self, asked: &Asked<'_>) -> u64 {
        let output = match self.model(key(self.kind, asked.model)) {
            Some(model) => model.output(asked.output_max),
            None => Model::unknown_output(asked.output_max),
        };
        asked.prompt.saturating_add(output)
    }

    fn of(&mut self, ticket: &Ticket) -> Option<&mut Model> {
        let key = ticket.model?;
        self.models.iter_mut().find(|model| model.key == key)
    }

    /// The model's; `None`: so many are in use that there is no place for another.
    pub(super) fn entry(&mut self, key: u64, now: Instant) -> Option<&mut Model> {
        let known = self.models.iter().position(|model| model.key == key);
        let at = match known {
            Some(at) => at,
            None if self.models.len() < ADMIT_MODELS => {
                self.models.push(Model::new(key, now));
                self.models.len() - 1
            }
            None => {
                let loading = self.load.as_ref().map(|load| load.key);
                let idle = |model: &&mut Model| model.in_flight == 0 && Some(model.key) != loading;
                let oldest = self.models.iter_mut().filter(idle).min_by_key(|model| model.used)?;
                *oldest = Model::new(key, now);
                return Some(oldest);
            }
        };
        self.models.get_mut(at)
    }
}

#[cfg(test)]
impl Server {
    /// What all residents take together.
    pub(super) fn resident_sizes(&self) -> u64 {
        self.resident.iter().map(|(_, resident)| u64::from(resident.size)).sum()
    }

    /// How many models something is remembered of.
    pub(super) fn models(&self) -> usize {
        self.models.len()
    }

    /// How many of them have requests.
    pub(super) fn busy_models(&self) -> usize {
        self.models.iter().filter(|model| model.in_flight > 0 || model.answering > 0).count()
    }
}
