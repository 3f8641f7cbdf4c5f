//! The plan of one request: who is asked in which order, and why everyone else is not.

mod home;

use std::time::{Duration, Instant};

use super::passed::{Capability, Passed, is_short};
use super::rules::{self, may_go};
use super::weights::{self, Turns};
use super::{Ask, Candidate, Plan, State, delivery, native, wire};
use crate::config::{Config, Egress, Images, Kind, Place, Route, Target};
use crate::dialect::Dialect;
use crate::health::store::Store;
use crate::health::{Standing, Why};
use crate::limits::{CANDIDATES_MAX, PROMPT_ESTIMATE_FACTOR};
use crate::memory::admit::{Admission, NoRoom};

/// Plans one request.
///
/// Groups come in the route's order, else the router's; inside a group the own region first, and then by weights. A
/// conversation's later turns stay where its earlier ones were. Who is busy or has to load a model is waited for, before
/// somebody farther away gets the request. Who answers only badly is asked after those, then who
/// would have to load a model first, or has no free slot, then who is misconfigured or waits for this box's clock, and
/// rather than nobody who rests after failures; last, once there is memory again, whose box is short of it.
#[must_use]
pub fn plan(config: &Config, store: &Store, state: &mut State, ask: &Ask<'_>, now: Instant) -> Plan {
    let chosen = config.routes.iter().position(|route| rules::applies(route, ask));
    let route = chosen.and_then(|chosen| config.routes.get(chosen));
    let egress = route.map_or(ask.egress, |route| route.local_only.max(ask.egress));
    let mut plan = Plan {
        candidates: Vec::new(),
        passed: Vec::new(),
        full: Vec::new(),
        commit_on: route.and_then(|r| r.commit_on).unwrap_or(config.commit_on),
        on_empty_stop: route.and_then(|r| r.on_empty_stop).unwrap_or(config.on_empty_stop),
        on_break: route.and_then(|r| r.on_break).unwrap_or(config.on_break),
        model_name: route.and_then(|r| r.model_name).unwrap_or(config.model_name),
        heartbeat: route.and_then(|r| r.heartbeat).or(config.heartbeat),
        conversation: state.conversation(ask),
        egress,
        route: chosen,
        first_choice: None,
        home: Vec::new(),
    };
    let judge = Judge { images: &config.images, store, ask, egress, now };
    let groups = route.and_then(|r| r.groups.as_ref()).unwrap_or(&config.router.groups);
    let (mut seats, mut full, mut by_rights) = (Vec::new(), Vec::new(), Vec::new());
    for (index, target) in config.targets.iter().enumerate() {
        let Some(group) = groups.iter().position(|group| *group == target.group) else {
            plan.passed.push((index, Passed::Group));
            continue;
        };
        let elsewhere = config.router.region.is_some() && target.region != config.router.region;
        let place = (group, elsewhere, index);
        match judge.eligible(target).and_then(|()| judge.there(index)) {
            Ok(()) => by_rights.push(place),
            Err(why) => {
                plan.passed.push((index, why));
                continue;
            }
        }
        match judge.seat(target, place) {
            Ok(seat) if (ask.full)(index) => full.push(seat),
            Ok(seat) => seats.push(seat),
            Err(why) => plan.passed.push((index, why)),
        }
    }
    if matches!(ask.call.dialect, Dialect::OpenaiEmbeddings | Dialect::OllamaEmbed)
        && let Some((_, _, first)) = by_rights.iter().min()
    {
        for kept in [&mut seats, &mut full] {
            keep_one_embedding_family(config, *first, kept, &mut plan.passed);
        }
    }
    plan.passed.extend(full.iter().map(|seat| (seat.target(), Passed::Full)));
    if let Some((group, elsewhere, _)) = by_rights.iter().min() {
        let at_home = by_rights.iter().filter(|place| (place.0, place.1) == (*group, *elsewhere));
        plan.home = at_home.map(|(_, _, index)| *index).collect();
    }
    let named = ask.later().then_some(plan.conversation).flatten();
    let stays = named.and_then(|key| home::stays(config, state, key, &seats, &plan.home, now));
    let hedge = route.and_then(|route| route.hedge).unwrap_or(config.hedge.enabled);
    let terms = Terms { config, route, ask };
    let seats = match state.turns(&ask.call.model) {
        Some(turns) => order(seats, turns, groups, stays),
        None => seats,
    };
    let stays = stays.map(|(target, _)| target);
    if let Some((seat, after)) = home::awaited(config, &seats, &full, stays) {
        plan.first_choice = terms.candidates(vec![seat], false).pop().map(|near| Candidate {
            patience: Some(after),
            hedge: hedge
                && seats.iter().any(|other| other.target() != seat.target() && other.rank == Rank::Fit),
            ..near
        });
    }
    plan.candidates = terms.candidates(seats, hedge);
    plan.full = terms.candidates(sorted(full, |seat| (seat.rank, seat.place)), false);
    plan
}

/// Decides about one target at a time.
struct Judge<'a> {
    images: &'a Images,
    store: &'a Store,
    ask: &'a Ask<'a>,
    egress: Egress,
    now: Instant,
}

/// A target that may be asked.
#[derive(Clone, Copy, Debug)]
struct Seat {
    /// Its group in the request's order, whether it is in another region, its position in the configuration.
    place: (usize, bool, usize),
    rank: Rank,
    /// By its health alone: what its memory says makes nobody well.
    standing: Rank,
    /// Configured.
    weight: u32,
    /// Of it, in thousandths.
    share: u16,
    first_token: Option<Duration>,
    back_since: Option<Instant>,
    trial: bool,
    /// A trial after failures, of which one at a time is let through.
    half_open: bool,
    memory: Admission,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// In its turn.
    Fit,
    /// Rather than nobody: it answers badly, or the prompt may be too long for it.
    Reluctant,
    /// Rather than those that most likely refuse: it would have to load a model first, or is busy.
    Cold,
    /// After all others: it most likely refuses.
    Last,
    /// Rather than an error: it rests.
    Resort,
    /// It is short of memory: it is waited for.
    Short,
}

impl Seat {
    const fn target(&self) -> usize {
        self.place.2
    }

    const fn tier(&self) -> (usize, bool) {
        (self.place.0, self.place.1)
    }
}

impl Judge<'_> {
    /// Whether the target can serve such a request at all.
    fn eligible(&self, target: &Target) -> Result<(), Passed> {
        let call = self.ask.call;
        if wire(target.kind, call.dialect).is_none() {
            return Err(Passed::Dialect);
        }
        if target.never_a_candidate().is_some() || target.models.resolve(&call.model).is_none() {
            return Err(Passed::Model);
        }
        if !may_go(self.egress, target.place) {
            return Err(Passed::LocalOnly(self.egress));
        }
        let can = &target.capabilities;
        for (needed, can, what) in [
            (call.needs.tools, can.tools, Capability::Tools),
            (call.needs.images, can.images, Capability::Images),
            (call.needs.json, can.json, Capability::Json),
        ] {
            if needed && can == Some(false) {
                return Err(Passed::Lacks(what));
            }
        }
        // What is no conversation goes as it is, or not at all.
        let converses = call.dialect.converses();
        if holds_urls_back(self.images, target, self.ask) && !(self.images.fetch && converses) {
            return Err(Passed::Urls);
        }
        if call.needs.files && !native(target.kind, call.dialect) && !(self.ask.files && converses) {
            return Err(Passed::Files);
        }
        match target.context {
            Some(window) if call.prompt_tokens / PROMPT_ESTIMATE_FACTOR > u64::from(window) => {
                Err(Passed::Context(window))
            }
            _ => Ok(()),
        }
    }

    /// Whether there is anything at all where the target should be.
    fn there(&self, index: usize) -> Result<(), Passed> {
        match self.store.get(index) {
            Some(health) if health.absent => Err(Passed::Health(Why::Absent)),
            _ => Ok(()),
        }
    }

    /// Where it is in the order, if it is asked at present.
    fn seat(&self, target: &Target, place: (usize, bool, usize)) -> Result<Seat, Passed> {
        let (call, index) = (self.ask.call, place.2);
        let summary = self.store.summary(index, &call.model, call.prompt_tokens, self.now);
        let rank = match summary.standing {
            Standing::Fit | Standing::Trial(_) => Rank::Fit,
            Standing::Out(why) if why.yields() => Rank::Reluctant,
            Standing::Last(_) => Rank::Last,
            Standing::Out(Why::PressureRed) => Rank::Short,
            Standing::Out(why) if why.is_rest() => Rank::Resort,
            Standing::Out(why) => return Err(Passed::Health(why)),
        };
        if let Some(why) = (self.ask.barred)(index) {
            return Err(why);
        }
        let tight = target.context.is_some_and(|window| call.prompt_tokens > u64::from(window));
        let memory = match rank {
            Rank::Short => Admission::Not(NoRoom::Red),
            _ => (self.ask.memory)(index),
        };
        let at_best = match memory {
            Admission::Not(why) if is_short(why) => Rank::Short,
            Admission::Not(_) | Admission::Loads(_) => Rank::Cold,
            Admission::Goes if tight => Rank::Reluctant,
            Admission::Goes => Rank::Fit,
        };
        Ok(Seat {
            place,
            rank: rank.max(at_best),
            standing: rank,
            memory,
            weight: target.weight,
            share: summary.share,
            first_token: summary.first_token,
            back_since: summary.back_since,
            trial: matches!(summary.standing, Standing::Trial(_)),
            half_open: matches!(summary.standing, Standing::Trial(Why::HalfOpen(_))),
        })
    }
}

/// Whether a target is not given the URLs that the request has, which it would fetch itself.
fn holds_urls_back(images: &Images, target: &Target, ask: &Ask<'_>) -> bool {
    ask.call.needs.urls && target.place != Place::Cloud && !images.local_urls
}

/// Vectors of different models do not mix: only `first` and its family stay. It is the one that would be asked
/// if all were well: a pause or a wrong key does not make another family's vectors right.
fn keep_one_embedding_family(
    config: &Config,
    first: usize,
    seats: &mut Vec<Seat>,
    passed: &mut Vec<(usize, Passed)>,
) {
    let family = |target: usize| config.targets.get(target).and_then(|t| t.embeddings.as_ref());
    let wanted = family(first);
    seats.retain(|seat| {
        let same = seat.target() == first || (wanted.is_some() && family(seat.target()) == wanted);
        if !same {
            passed.push((seat.target(), Passed::EmbeddingFamily));
        }
        same
    });
}

/// The order in which they are asked. `stays`: where the conversation is, and since when it was silent: that one comes
/// first if it is fit, unless it was away meanwhile and is on its way back: those from before would flood it.
fn order(
    seats: Vec<Seat>,
    turns: &mut Turns,
    groups: &[String],
    stays: Option<(usize, Instant)>,
) -> Vec<Seat> {
    let mut seats = sorted(seats, |seat| (seat.rank, seat.place));
    let fit = seats.partition_point(|seat| seat.rank == Rank::Fit);
    let others = seats.split_off(fit);
    let stays = stays.and_then(|(target, last)| {
        let keeps = |seat: &Seat| seat.back_since.is_none_or(|since| last >= since);
        seats.iter().position(|seat| seat.target() == target && keeps(seat))
    });
    let mut tiers: Vec<Vec<Seat>> = seats
        .chunk_by(|a, b| a.tier() == b.tier())
        .map(|tier| by_weight(tier, turns, stays.is_none()))
        .collect();
    match stays.and_then(|at| seats.get(at)).copied() {
        Some(stays) => {
            tiers.iter_mut().for_each(|tier| tier.retain(|seat| seat.target() != stays.target()));
            tiers.insert(0, vec![stays]);
        }
        None if tiers.len() > 1 => {
            let shares = tiers.iter().filter_map(|tier| {
                let first = tier.first()?;
                let (group, elsewhere) = first.tier();
                Some((groups.get(group)?.as_str(), elsewhere, share(tier)))
            });
            let first = turns.takes(shares);
            if first < tiers.len() {
                tiers[..=first].rotate_right(1);
            }
        }
        None => {}
    }
    tiers.into_iter().flatten().chain(others).collect()
}

/// What a tier may be given of its requests, in thousandths: as much as its best target. A trial is bounded by itself.
fn share(tier: &[Seat]) -> u32 {
    tier.iter().map(|seat| if seat.trial { 1000 } else { u32::from(seat.share) }).max().unwrap_or(1000)
}

/// One group's targets in one region: whose turn it is, then the others by what is left of their weights.
fn by_weight(tier: &[Seat], turns: &mut Turns, advance: bool) -> Vec<Seat> {
    let best = tier.iter().filter_map(|seat| seat.first_token).min();
    let weighed: Vec<(Seat, u64)> = tier
        .iter()
        .map(|seat| (*seat, weights::effective(seat.weight, seat.share, seat.first_token, best)))
        .collect();
    let each = weighed.iter().map(|(seat, weight)| (seat.target(), *weight));
    let wheel = &mut turns.wheel;
    let first = if advance { wheel.pick(each) } else { wheel.next(each) };
    let turn = |target: usize| wheel.turn(target);
    let weighed = sorted(weighed, |(seat, weight)| {
        (first != Some(seat.target()), std::cmp::Reverse((*weight, turn(seat.target()))))
    });
    weighed.into_iter().map(|(seat, _)| seat).collect()
}

/// Equal ones stay as they are. By insertion: targets are few, and a sort for many is some kB of program.
fn sorted<T, K: Ord>(all: Vec<T>, key: impl Fn(&T) -> K) -> Vec<T> {
    let mut sorted: Vec<T> = Vec::with_capacity(all.len());
    for one in all {
        let at = sorted.partition_point(|before| key(before) <= key(&one));
        sorted.insert(at, one);
    }
    sorted
}

/// What a request's candidates are made by.
struct Terms<'a> {
    config: &'a Config,
    route: Option<&'a Route>,
    ask: &'a Ask<'a>,
}

impl Terms<'_> {
    fn candidates(&self, seats: Vec<Seat>, hedge: bool) -> Vec<Candidate> {
        let mut candidates: Vec<Candidate> = Vec::new();
        for seat in seats.into_iter().take(CANDIDATES_MAX) {
            let Some(target) = self.config.targets.get(seat.target()) else { continue };
            let fit = seat.rank == Rank::Fit;
            if let Some(before) = candidates.last_mut() {
                // Who answers badly would be no help in time.
                before.hedge = hedge && fit;
            }
            let mut candidate = self.candidate(target, seat.target(), fit);
            candidate.memory = seat.memory;
            if seat.rank == Rank::Resort {
                // It is asked once a second at most: not again after a back-off.
                (candidate.last_resort, candidate.max_retries) = (true, 0);
            }
            candidates.push(candidate);
        }
        candidates
    }

    fn candidate(&self, target: &Target, index: usize, fit: bool) -> Candidate {
        let mut deadlines = self.config.deadlines;
        let group = self.config.groups.iter().find(|group| group.name == target.group);
        let own =
            [group.map(|group| &group.deadlines), Some(&target.deadlines), self.route.map(|r| &r.deadlines)];
        for over in own.into_iter().flatten() {
            deadlines = deadlines.overlaid(over);
        }
        let asked = &self.ask.call.model;
        let call = self.ask.call;
        let inlined = holds_urls_back(&self.config.images, target, self.ask)
            || (call.needs.files && !native(target.kind, call.dialect));
        let wire = wire(target.kind, call.dialect).unwrap_or(call.dialect);
        Candidate {
            target: index,
            model: target.models.resolve(asked).unwrap_or(asked).to_owned(),
            wire,
            delivery: delivery(target, wire, call),
            inlined,
            deadlines,
            context: target.context,
            loads: target.kind == Kind::Ollama,
            place: target.place,
            max_retries: target.max_retries,
            hedge: false,
            reluctant: !fit,
            last_resort: false,
            memory: Admission::Goes,
            patience: None,
            again: false,
        }
    }
}
