//! The watchdog's judgement: `step` takes one sample and says how memory stands, why, and when to look again.
//!
//! Red needs two signs that do not follow from each other (MemFree floors have killed healthy boxes, and so have floors
//! that do not know what a box lives at): the level, the trend, the kernel's own trouble, a kill. Nothing here
//! allocates.

use std::time::Instant;

use super::kept::{Kept, Mark};
use super::machine::Machine;
use super::reason::Reason;
use super::ring::{Ring, exhausted_in};
use super::sample::{Axis, Field, Sample};
use super::terms::Terms;
use super::usual::Usual;
use crate::health::Pressure;
use crate::limits::{
    MEMORY_BEYOND, MEMORY_CALM, MEMORY_FLOOR_LEAST, MEMORY_FLOOR_USUAL, MEMORY_GAP_MS, MEMORY_IN_A_ROW,
    MEMORY_INTERVAL_MAX, MEMORY_KILL_MS, MEMORY_LOAD_MS, MEMORY_NOISE_MAX, MEMORY_NOISE_SHIFT,
    MEMORY_PSI_FULL, MEMORY_PSI_SOME, MEMORY_RESERVE, MEMORY_SAME_SHIFT, MEMORY_SETTLE_MS, MEMORY_SURE,
    MEMORY_SURE_MS, MEMORY_SWAP_IN, MEMORY_SWAP_MS,
};

mod known;

/// What edgeward itself knows of memory to come and go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A model is about to be loaded, by our leave, and is to take this much, in KiB; `u32::MAX`: nobody knows how much.
    Loading(u32),
    /// It is loaded.
    Loaded,
    /// A model was unloaded on purpose.
    Unloaded,
    /// Which models are resident: any number that tells one set from another.
    Resident(u64),
}

/// What follows from a sample. Memory in KiB, time in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The box's state.
    pub pressure: Pressure,
    /// Why.
    pub reason: Reason,
    /// Where it is worst.
    pub axis: Axis,
    /// Available there.
    pub available: u32,
    /// All there is.
    pub total: u32,
    /// Low below this.
    pub floor: u32,
    /// How fast it falls, a second; 0 where it does not.
    pub rate: u32,
    /// Until it is used up.
    pub exhausted_in: Option<u32>,
    /// Until the next look.
    pub next: u32,
}

/// One axis, as it was so far.
#[derive(Clone, Debug)]
struct Track {
    /// All there was at the last sample.
    total: u32,
    ring: Ring,
    usual: Usual,
    /// Signs in a row: below the floor, below half of it, used up soon, used up very soon.
    rows: [u8; 4],
    /// When the last two began.
    since: [u32; 2],
}

/// What holds for all axes at one sample.
#[derive(Clone, Copy)]
struct Around {
    ms: u32,
    /// Programs wait for memory: some of them, all of them.
    waits: (bool, bool),
    /// On the box, and in the cgroup.
    killed: [bool; 2],
    /// Slopes say nothing now.
    still: bool,
}

impl Around {
    /// Whether something was killed a moment ago, on the host or in the cgroup.
    const fn killed(&self, axis: Axis) -> bool {
        match axis {
            Axis::Host => self.killed[0],
            Axis::Device => false,
            Axis::Group => self.killed[1],
        }
    }
}

/// Everything that is known from earlier samples. Of a fixed size.
#[derive(Clone, Debug)]
pub struct State {
    terms: Terms,
    start: Instant,
    tracks: [Track; Axis::ALL.len()],
    machine: Machine,
    /// `pswpin`, when it was read, and pages a second before that.
    swapped: Option<(u32, u32, u64)>,
    /// The kill counters of the box and of the cgroup, and when each last rose.
    kills: [(Option<u32>, Option<u32>); 2],
    /// When a model was last loaded or unloaded.
    settling: Option<u32>,
    /// Since when, from how much used on, and how much it is to take.
    load: Option<(u32, u32, u32)>,
    /// What the host had in use at the last sample.
    used: u32,
}

impl State {
    /// Nothing is known yet.
    #[must_use]
    pub fn new(terms: Terms, start: Instant) -> Self {
        let track =
            || Track { total: 0, ring: Ring::new(), usual: Usual::new(), rows: [0; 4], since: [0; 2] };
        State {
            terms,
            start,
            tracks: [track(), track(), track()],
            machine: Machine::default(),
            swapped: None,
            kills: [(None, None); 2],
            settling: None,
            load: None,
            used: 0,
        }
    }

    /// Judges by other terms from here on.
    pub fn set_terms(&mut self, terms: Terms) {
        self.terms = terms;
    }

    /// The terms.
    #[must_use]
    pub fn terms(&self) -> &Terms {
        &self.terms
    }

    /// What is usual, for a file.
    #[must_use]
    pub fn kept(&self) -> Kept {
        let mut kept = Kept::default();
        for (axis, track) in Axis::ALL.into_iter().zip(&self.tracks) {
            // There is room for all.
            kept.0.extend(track.usual.marks().map(|(key, used)| Mark {
                axis,
                total: track.total,
                key,
                used,
            }));
        }
        kept
    }

    /// What was usual before this process began, as far as there is as much memory as then. For before the first
    /// [`step`]; `sample` tells what there is.
    pub fn remember(&mut self, kept: &Kept, sample: &Sample) {
        for Mark { axis, total, key, used } in &kept.0 {
            let now = sample.axis(*axis, self.terms.huge).map_or(0, |(_, total)| total);
            // What the kernel keeps for itself differs from one to the next.
            if now.abs_diff(*total) <= now >> MEMORY_SAME_SHIFT && now > 0 {
                self.tracks[*axis as usize].usual.remember(*key, (*used).min(now));
            }
        }
    }

    /// Milliseconds since the beginning.
    #[must_use]
    pub fn elapsed(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.start).as_millis()).unwrap_or(u64::MAX)
    }

    /// Wraps after 49 days; only differences are used.
    fn ms(&self, now: Instant) -> u32 {
        u32::try_from(self.elapsed(now) & u64::from(u32::MAX)).unwrap_or(0)
    }

    /// Takes note of what edgeward knows.
    pub fn note(&mut self, event: Event, now: Instant) {
        let ms = self.ms(now);
        match event {
            Event::Loading(kib) => self.load = Some((ms, self.used, kib)),
            Event::Loaded => (self.load, self.settling) = (None, Some(ms)),
            Event::Unloaded => self.settling = Some(ms),
            Event::Resident(key) => self.tracks.iter_mut().for_each(|track| track.usual.resident(key, ms)),
        }
    }

    fn around(&mut self, sample: &Sample, ms: u32) -> Around {
        let since = |then: Option<u32>, span: u32| then.is_some_and(|then| ms.wrapping_sub(then) < span);
        let swap_in = sample.get(Field::SwapIn).map(|pages| {
            let (before, then, rate) = self.swapped.unwrap_or((pages, ms, 0));
            let took = ms.wrapping_sub(then);
            // Over a second at least: a tenth of one with 200 pages is a program that wakes up.
            let over = took >= MEMORY_SWAP_MS;
            let rate =
                if over { u64::from(pages.wrapping_sub(before)) * 1000 / u64::from(took) } else { rate };
            self.swapped = Some(if over { (pages, ms, rate) } else { (before, then, rate) });
            rate
        });
        let counters = [(Field::Kills, Axis::Host), (Field::GroupKills, Axis::Group)];
        for ((count, rose), (field, axis)) in self.kills.iter_mut().zip(counters) {
            let Some(now) = sample.get(field) else { continue };
            if count.replace(now).is_some_and(|before| before != now) {
                *rose = Some(ms);
                self.tracks[axis as usize].usual.forget_top();
            }
        }
        self.load = self.load.filter(|(since, ..)| ms.wrapping_sub(*since) < MEMORY_LOAD_MS);
        let over = |field, least| sample.get(field).is_some_and(|hundredths| hundredths >= least);
        let swaps = swap_in.is_some_and(|pages| pages >= u64::from(MEMORY_SWAP_IN));
        Around {
            ms,
            waits: (
                over(Field::PsiSome, MEMORY_PSI_SOME) || swaps,
                over(Field::PsiFull, MEMORY_PSI_FULL) || swaps,
            ),
            killed: self.kills.map(|(_, rose)| since(rose, MEMORY_KILL_MS)),
            still: self.load.is_some() || since(self.settling, MEMORY_SETTLE_MS),
        }
    }

    /// Of the host: whether the load under way takes a tenth more than it was to take.
    fn overrun(&self) -> bool {
        self.load.is_some_and(|(_, before, kib)| {
            u64::from(self.used.saturating_sub(before)) * 10 > u64::from(kib) * 11
        })
    }
}

/// Takes one sample: the pressure, why, and when to look again.
pub fn step(state: &mut State, sample: &Sample, now: Instant) -> Decision {
    let ms = state.ms(now);
    let around = state.around(sample, ms);
    let mut worst: Option<Seen> = None;
    let mut next = u32::try_from(MEMORY_INTERVAL_MAX.as_millis()).unwrap_or(1000);
    for (axis, track) in Axis::ALL.into_iter().zip(&mut state.tracks) {
        let Some((available, total)) = sample.axis(axis, state.terms.huge) else { continue };
        if axis == Axis::Host {
            state.used = total - available;
        }
        // A card, or huge pages, that are all taken harm nobody who lives with it: nothing else needs them.
        let taken_whole =
            axis == Axis::Device || axis == Axis::Host && sample.get(Field::Total) != Some(total);
        let least = if taken_whole { 0 } else { MEMORY_FLOOR_LEAST.min(total / 64) };
        let seen = track.judge(&state.terms, around, axis, (available, total), least);
        next = next.min(track.ahead(&state.terms, available, seen.floor));
        if worst.as_ref().is_none_or(|worst| seen.is_worse_than(worst)) {
            worst = Some(seen);
        }
    }
    let mut seen = worst.unwrap_or(Seen::BLIND);
    if seen.wanted == Pressure::Green && state.overrun() {
        (seen.wanted, seen.reason) = (Pressure::Amber, Reason::Overrun);
    }
    let pressure = state.machine.step(seen.wanted, seen.near, state.terms.hold, ms);
    if pressure > Pressure::Green {
        next = state.terms.interval;
    }
    for (axis, track) in Axis::ALL.into_iter().zip(&mut state.tracks) {
        let Some((available, total)) = sample.axis(axis, state.terms.huge) else { continue };
        let trouble = axis != Axis::Device && (around.waits.1 || around.killed(axis));
        track.usual.learn(total - available, noise(total), ms, (pressure == Pressure::Red, trouble));
    }
    Decision {
        pressure,
        reason: if pressure > seen.wanted { Reason::Held } else { seen.reason },
        axis: seen.axis,
        available: seen.available,
        total: seen.total,
        floor: seen.floor,
        rate: seen.rate,
        exhausted_in: seen.exhausted_in,
        next,
    }
}

/// One axis, judged.
struct Seen {
    wanted: Pressure,
    /// Not yet a quarter above the floor.
    near: Pressure,
    reason: Reason,
    axis: Axis,
    available: u32,
    total: u32,
    floor: u32,
    rate: u32,
    exhausted_in: Option<u32>,
}

impl Seen {
    const BLIND: Seen = Seen {
        wanted: Pressure::Green,
        near: Pressure::Green,
        reason: Reason::Blind,
        axis: Axis::Host,
        available: 0,
        total: 0,
        floor: 0,
        rate: 0,
        exhausted_in: None,
    };

    fn is_worse_than(&self, other: &Seen) -> bool {
        // Nearer to its own floor.
        let nearer = u64::from(self.available) * u64::from(other.floor.max(1))
            < u64::from(other.available) * u64::from(self.floor.max(1));
        (self.wanted, self.near, nearer) > (other.wanted, other.near, false)
    }
}

/// What is no difference, in KiB.
pub(super) fn noise(total: u32) -> u32 {
    (total >> MEMORY_NOISE_SHIFT).min(MEMORY_NOISE_MAX)
}

/// `part` thousandths of `whole`.
fn share(whole: u32, part: u64) -> u32 {
    u32::try_from(u64::from(whole) * part / 1000).unwrap_or(u32::MAX)
}

impl Track {
    /// Until the next look, in milliseconds: before it can be at the floor, as fast as memory can be filled. Where
    /// nothing has moved for a while more slowly: a fall that can be seen in time at all is seen by then, too, and the
    /// kernel's own alarm wakes us.
    fn ahead(&self, terms: &Terms, available: u32, floor: u32) -> u32 {
        let fill = terms.fill.max(1);
        let busy = (available.saturating_sub(floor) / fill).max(terms.interval);
        if !self.ring.calm(noise(self.total).saturating_mul(2)) {
            return busy;
        }
        let calm = available / (fill / MEMORY_CALM).max(1);
        busy.max(calm).max(terms.interval.saturating_mul(MEMORY_CALM))
    }

    /// `least`: the floor at least, whatever is usual.
    fn judge(
        &mut self,
        terms: &Terms,
        around: Around,
        axis: Axis,
        (available, total): (u32, u32),
        least: u32,
    ) -> Seen {
        let ms = around.ms;
        if self.ring.newest(0).is_some_and(|(before, _)| ms.wrapping_sub(before) > MEMORY_GAP_MS) {
            self.ring.clear();
        }
        self.ring.push(ms, available);
        self.total = total;
        let used = total - available;
        let usual = if self.usual.used() == 0 { used } else { self.usual.used() };
        let learned = share(total.saturating_sub(usual), MEMORY_FLOOR_USUAL).max(least);
        let floor = terms.floor.unwrap_or(learned.min(share(total, terms.floor_permille.into()))).min(total);
        let most = share(total, terms.reserve_permille.into()).max(MEMORY_RESERVE);
        let reserve = terms.reserve.unwrap_or(most).min(floor / 4);
        let rate = self.ring.rate();
        let exhausted_in = exhausted_in(available, reserve, rate);
        // What is usual has been survived: a load after an idle hour falls as fast as a leak. A leak that was too slow
        // to be told from rest has made itself usual, and ends all the same. A trend goes a good part of the way, too.
        let low = available < floor / 2;
        let beyond = used > usual.saturating_add(noise(total)) || low;
        let far = used > usual.saturating_add((total - usual.min(total)) / MEMORY_BEYOND) || low;
        let unusual = beyond && far && !around.still;
        let soon = |within: u32| unusual && exhausted_in.is_some_and(|ms| ms < within);
        let now = [available < floor, available < floor / 2, soon(terms.amber), soon(terms.red)];
        for (row, now) in self.rows.iter_mut().zip(now) {
            *row = if now { row.saturating_add(1) } else { 0 };
        }
        let [low, lowest, soon, at_once] = self.rows.map(|row| row >= MEMORY_IN_A_ROW);
        // A fall is to last for a part of the time that it leaves.
        let sure = exhausted_in.map_or(0, |left| left / MEMORY_SURE).min(MEMORY_SURE_MS);
        for (since, row) in self.since.iter_mut().zip(self.rows.into_iter().skip(2)) {
            if row <= 1 {
                *since = ms;
            }
        }
        let lasted = self.since.map(|since| ms.wrapping_sub(since) >= sure);
        let (soon, at_once) = (soon && lasted[0], at_once && lasted[1]);
        // The kernel's trouble is about the host's memory, or the cgroup's.
        let host = axis != Axis::Device;
        let killed = around.killed(axis);
        let trouble = host && (around.waits.1 || killed);
        // At what the box lives at, waiting is usual too: a small one is always below twice its floor.
        let waits = host && around.waits.0 && beyond && available < floor.saturating_mul(2);
        // By Red the time to act must be left: what falls so fast is red from twice the floor on, what stands still not
        // even below half of it. Not where much is left: a first load falls as fast, has programs wait for their pages,
        // and may follow a kill.
        let at_once = at_once && available < floor.saturating_mul(2);
        let (wanted, reason) = match (lowest, at_once, trouble) {
            (true, _, true) => (Pressure::Red, Reason::LevelAndStall),
            (_, true, true) => (Pressure::Red, Reason::TrendAndStall),
            (_, true, _) => (Pressure::Red, Reason::LevelAndTrend),
            _ if soon => (Pressure::Amber, Reason::Trend),
            _ if low => (Pressure::Amber, Reason::Level),
            _ if waits => (Pressure::Amber, Reason::Stall),
            // On the host alone it is no sign: it may have been anything.
            _ if axis == Axis::Group && killed => (Pressure::Amber, Reason::Killed),
            _ => (Pressure::Green, Reason::Enough),
        };
        Seen {
            wanted,
            near: match (lowest, available < floor.saturating_add(floor / 4)) {
                (true, _) => Pressure::Red,
                (false, true) => Pressure::Amber,
                (false, false) => Pressure::Green,
            },
            reason,
            axis,
            available,
            total,
            floor,
            rate,
            exhausted_in,
        }
    }
}
