//! What was asked, how much of it a cloud answered and why, what died, what was lost and what was spent, by steps of five
//! minutes over two days.
//!
//! Pure, and by the monotonic clock alone: a wall clock that is set moves nothing. Steps in which nothing happened take
//! no room; the memory for all of them is set aside at the start, and used as they come.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::kinds::Shed;
use crate::cause::{Cause, Fault};
use crate::limits;

/// Why a cloud answered a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Away {
    /// The box had no slot or place free.
    Busy,
    /// The box had to load the model first.
    Loading,
    /// The box was short of memory.
    Red,
    /// The model or the prompt did not fit into the box's memory.
    NoRoom,
    /// The box's server had died, or hung, or was not there.
    Dead,
    /// The box failed otherwise.
    Failed,
    /// The box cannot serve such a request.
    Unfit,
    /// The configuration names the cloud first: by its groups, its weights, its models, a conversation that stays.
    Chosen,
    /// Something else, by its cause.
    Other,
}

impl Away {
    /// Every reason, in the order of the enum, with its stable name.
    pub const ALL: [(&'static str, Away); 9] = [
        ("busy", Away::Busy),
        ("loading", Away::Loading),
        ("red", Away::Red),
        ("no_room", Away::NoRoom),
        ("dead", Away::Dead),
        ("failed", Away::Failed),
        ("unfit", Away::Unfit),
        ("chosen", Away::Chosen),
        ("other", Away::Other),
    ];
}

/// By its memory or its slots the box did not get it.
impl From<Shed> for Away {
    fn from(shed: Shed) -> Self {
        match shed {
            Shed::Busy | Shed::Tokens => Away::Busy,
            Shed::Loading | Shed::Cold => Away::Loading,
            Shed::Red | Shed::NotResident | Shed::NotSmall => Away::Red,
            Shed::TooLarge | Shed::Evicts => Away::NoRoom,
        }
    }
}

/// Its attempt at the box failed by this.
impl From<Cause> for Away {
    fn from(cause: Cause) -> Self {
        match cause {
            Cause::Overloaded | Cause::Busy => Away::Busy,
            Cause::Loading | Cause::NotLoaded | Cause::TimeoutLoad => Away::Loading,
            Cause::LowMemory => Away::Red,
            Cause::Crashed
            | Cause::Oom
            | Cause::OomKill
            | Cause::CudaOom
            | Cause::Xid
            | Cause::Hang
            | Cause::LoadRefused
            | Cause::Refused
            | Cause::Unreachable => Away::Dead,
            Cause::ContextOverflow | Cause::Unsupported | Cause::Untranslatable => Away::Unfit,
            cause if cause.fault() == Fault::Upstream => Away::Failed,
            _ => Away::Other,
        }
    }
}

/// How one request ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// A cloud answered it: why, and the cause where there is one.
    pub cloud: Option<(Option<Away>, Option<Cause>)>,
    /// Its client has no whole answer, and that is not its own doing.
    pub lost: bool,
}

const CAUSES: usize = Cause::ALL.len();

/// What happened in one step.
#[derive(Clone, Debug)]
struct Step {
    number: u32,
    /// A morning line has told it: what comes belongs to another one.
    told: bool,
    requests: u32,
    lost: u32,
    spent: u64,
    away: [u16; Away::ALL.len()],
    causes: [u16; CAUSES],
    deaths: [u8; CAUSES],
}

impl Step {
    const fn new(number: u32) -> Self {
        Step {
            number,
            told: false,
            requests: 0,
            lost: 0,
            spent: 0,
            away: [0; Away::ALL.len()],
            causes: [0; CAUSES],
            deaths: [0; CAUSES],
        }
    }
}

/// Where what was asked for begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// Where it was to begin.
    #[default]
    Asked,
    /// Later, with the start of the process.
    Start,
    /// Later, where the record begins.
    Record,
}

/// What happened over a time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// It began so long ago.
    pub ago: Duration,
    /// What it begins with.
    pub reach: Reach,
    /// Requests for an answer that ended.
    pub requests: u64,
    /// Of these, those that got no whole answer without their clients' doing.
    pub lost: u64,
    /// Money, in millionths of the unit that prices are in.
    pub spent: u64,
    away: [u64; Away::ALL.len()],
    causes: Vec<u64>,
    deaths: Vec<u64>,
}

impl Sum {
    /// Requests that a cloud answered.
    #[must_use]
    pub fn cloud(&self) -> u64 {
        self.away.iter().sum()
    }

    /// Why it did: each reason's name, and how many.
    pub fn why(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Away::ALL.iter().map(|(name, _)| *name).zip(self.away).filter(|(_, count)| *count > 0)
    }

    /// By which causes, as far as there are any.
    pub fn causes(&self) -> impl Iterator<Item = (Cause, u64)> {
        some(&self.causes)
    }

    /// Deaths of servers of this box, by cause.
    pub fn deaths(&self) -> impl Iterator<Item = (Cause, u64)> {
        some(&self.deaths)
    }

    /// In words: `214 requests, 12 at the cloud (busy 10, dead 2: crashed 2), 1 death (oom_kill), none lost, 0.34 spent`.
    #[must_use]
    pub fn in_words(&self, spent: &str) -> String {
        let list = |items: Vec<String>| items.join(", ");
        let of = |away: Away| {
            let causes = self.causes().filter(|(cause, _)| Away::from(*cause) == away);
            list(causes.map(|(cause, count)| format!("{cause} {count}")).collect())
        };
        let why =
            Away::ALL.iter().zip(self.away).filter(|(_, count)| *count > 0).map(|((name, away), count)| {
                match of(*away) {
                    causes if causes.is_empty() => format!("{name} {count}"),
                    causes => format!("{name} {count}: {causes}"),
                }
            });
        let why: Vec<String> = why.collect();
        let why = if why.is_empty() { String::new() } else { format!(" ({})", why.join("; ")) };
        let died: u64 = self.deaths.iter().sum();
        let deaths = list(self.deaths().map(|(cause, count)| format!("{cause} {count}")).collect());
        let deaths = if died == 0 { String::new() } else { format!(" ({deaths})") };
        let s = |count: u64| if count == 1 { "" } else { "s" };
        format!(
            "{} request{}, {} at the cloud{why}, {died} death{}{deaths}, {} lost, {spent} spent",
            self.requests,
            s(self.requests),
            self.cloud(),
            s(died),
            self.lost
        )
    }
}

fn some(counts: &[u64]) -> impl Iterator<Item = (Cause, u64)> {
    Cause::ALL.into_iter().zip(counts.iter().copied()).filter(|(_, count)| *count > 0)
}

/// The record.
#[derive(Debug)]
pub struct History {
    began: Instant,
    /// So much of the first step had passed by then.
    phase: Duration,
    steps: VecDeque<Step>,
    /// When a morning line was last told.
    told: Option<Instant>,
}

/// A morning line makes two steps of the one that runs.
const STEPS: usize = limits::HISTORY_STEPS + 4;

impl History {
    /// An empty one. `second`: of the day, by the box's time zone, so that steps begin with its full minutes.
    #[must_use]
    pub fn new(now: Instant, second: u32) -> Self {
        let phase = u64::from(second) % limits::HISTORY_STEP.as_secs();
        let steps = VecDeque::with_capacity(STEPS);
        History { began: now, phase: Duration::from_secs(phase), steps, told: None }
    }

    /// A request for an answer ended.
    pub fn request(&mut self, ended: Ended, now: Instant) {
        let step = self.step(now);
        add(&mut step.requests);
        if ended.lost {
            add(&mut step.lost);
        }
        let Some((away, cause)) = ended.cloud else { return };
        let away = away.or(cause.map(Away::from)).unwrap_or(Away::Chosen);
        if let Some(count) = step.away.get_mut(away as usize) {
            *count = count.saturating_add(1);
        }
        if let Some(count) = cause.and_then(|cause| step.causes.get_mut(cause as usize)) {
            *count = count.saturating_add(1);
        }
    }

    /// A server of this box died, or a process that it had started for a model.
    pub fn died(&mut self, cause: Cause, now: Instant) {
        if let Some(count) = self.step(now).deaths.get_mut(cause as usize) {
            *count = count.saturating_add(1);
        }
    }

    /// An attempt cost so much.
    pub fn spent(&mut self, micros: u64, now: Instant) {
        if micros > 0 {
            let step = self.step(now);
            step.spent = step.spent.saturating_add(micros);
        }
    }

    /// What happened since `ago`, up to now.
    #[must_use]
    pub fn since(&self, ago: Duration, now: Instant) -> Sum {
        let asked = self.passed(now).checked_sub(ago);
        let from = asked.map_or(0, number);
        let before = asked.is_none_or(|asked| asked < self.phase);
        let wanted = |step: &Step| step.number >= from;
        self.sum(limits::HISTORY_STEP * from, if before { Reach::Start } else { Reach::Asked }, wanted, now)
    }

    /// What happened since this was last called, or since the start: for the morning line. Nothing is told twice.
    pub fn morning(&mut self, now: Instant) -> Sum {
        let (from, reach) = match self.told.replace(now) {
            Some(told) => (self.passed(told), Reach::Asked),
            None => (Duration::ZERO, Reach::Start),
        };
        let sum = self.sum(from, reach, |step| !step.told, now);
        self.steps.iter_mut().for_each(|step| step.told = true);
        sum
    }

    fn sum(&self, from: Duration, reach: Reach, wanted: impl Fn(&Step) -> bool, now: Instant) -> Sum {
        let oldest = self.oldest(now);
        let kept = limits::HISTORY_STEP * oldest;
        let mut sum = Sum {
            ago: self.passed(now).saturating_sub(from.max(kept).max(self.phase)),
            reach: if from < kept { Reach::Record } else { reach },
            causes: vec![0; CAUSES],
            deaths: vec![0; CAUSES],
            ..Sum::default()
        };
        for step in self.steps.iter().filter(|step| step.number >= oldest && wanted(step)) {
            sum.requests += u64::from(step.requests);
            sum.lost += u64::from(step.lost);
            sum.spent = sum.spent.saturating_add(step.spent);
            sum.away.iter_mut().zip(step.away).for_each(|(sum, count)| *sum += u64::from(count));
            sum.causes.iter_mut().zip(step.causes).for_each(|(sum, count)| *sum += u64::from(count));
            sum.deaths.iter_mut().zip(step.deaths).for_each(|(sum, count)| *sum += u64::from(count));
        }
        sum
    }

    /// The number of the oldest step that is kept.
    fn oldest(&self, now: Instant) -> u32 {
        let kept = u32::try_from(limits::HISTORY_STEPS).unwrap_or(u32::MAX);
        (number(self.passed(now)) + 1).saturating_sub(kept)
    }

    /// The step that runs.
    fn step(&mut self, now: Instant) -> &mut Step {
        let (now_is, oldest) = (number(self.passed(now)), self.oldest(now));
        while self.steps.front().is_some_and(|step| step.number < oldest) {
            self.steps.pop_front();
        }
        if self.steps.back().is_none_or(|last| last.number < now_is || last.told) {
            if self.steps.len() >= STEPS {
                self.steps.pop_front();
            }
            self.steps.push_back(Step::new(now_is));
        }
        let newest = self.steps.len() - 1;
        &mut self.steps[newest]
    }

    /// Since the beginning of the first step.
    fn passed(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.began) + self.phase
    }
}

fn number(passed: Duration) -> u32 {
    u32::try_from(passed.as_secs() / limits::HISTORY_STEP.as_secs()).unwrap_or(u32::MAX)
}

fn add(count: &mut u32) {
    *count = count.saturating_add(1);
}

/// When the morning line is due: once a day, at the first look at or after [`limits::MORNING`].
#[derive(Debug, Default)]
pub struct Mornings {
    /// The last day whose line was told, or had been due before anybody looked.
    told: Option<i64>,
}

impl Mornings {
    /// Whether it is due. `day`: by the box's time zone, counted from any; `minute`: after its midnight. For a clock that
    /// is known to be right: it is not asked before it is set.
    pub fn is_due(&mut self, day: i64, minute: u16) -> bool {
        let over = if minute >= limits::MORNING { day } else { day - 1 };
        match self.told {
            Some(told) if over > told => {
                self.told = Some(over);
                true
            }
            // The first look; or the clock was set back by a day or more: the next one is due by the new time.
            None => {
                self.told = Some(over);
                false
            }
            Some(told) if day < told => {
                self.told = Some(over);
                false
            }
            Some(_) => false,
        }
    }
}

#[cfg(test)]
#[path = "history_tests.rs"]
mod tests;
