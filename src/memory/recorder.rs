//! A trace: a line of text for each sample with what was decided on it, for the terms, for each event. Written into the
//! caller's buffer, and read back.
//!
//! `edgeward-trace 1 …` has the terms, `s MS GOOD OLD VALUES… = DECISION…` a sample, `e MS KIND NUMBER` an event, `k PLACE
//! NUMBER` what was known when the trace began, by [`State::known`]. MS is the time since the watchdog began, GOOD and OLD
//! are bits by [`Field`], and only good fields have a value.

use std::fmt::{self, Write};
use std::time::{Duration, Instant};

use super::predict::{Decision, Event, State, step};
use super::reason::Reason;
use super::sample::{Axis, Field, Sample, digits};
use super::terms::Terms;
use crate::health::Pressure;

/// What a trace begins with; another version has another number.
pub const HEAD: &str = "edgeward-trace 1";

/// One line of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// By these is judged from here on.
    Terms(Terms),
    /// A sample, at so many milliseconds, and what was decided.
    Sample(u64, Sample, Decision),
    /// Something that edgeward knew.
    Event(u64, Event),
    /// A number that was known when the trace began, and its place.
    Known(u32, u64),
}

const PRESSURES: [Pressure; 3] = [Pressure::Green, Pressure::Amber, Pressure::Red];
const REASONS: [Reason; 11] = [
    Reason::Enough,
    Reason::Level,
    Reason::Trend,
    Reason::Stall,
    Reason::Killed,
    Reason::Overrun,
    Reason::LevelAndTrend,
    Reason::LevelAndStall,
    Reason::TrendAndStall,
    Reason::Held,
    Reason::Blind,
];

/// The caller's buffer, as far as it is written.
struct Out<'a> {
    buffer: &'a mut [u8],
    len: usize,
}

impl Write for Out<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.len + text.len();
        self.buffer.get_mut(self.len..end).ok_or(fmt::Error)?.copy_from_slice(text.as_bytes());
        self.len = end;
        Ok(())
    }
}

/// Writes `entry` as a line, with its end. Gives its length; `None`: `buffer` is too small
/// ([`crate::limits::MEMORY_LINE_BYTES`] do).
pub fn write(entry: &Entry, buffer: &mut [u8]) -> Option<usize> {
    let mut out = Out { buffer, len: 0 };
    line(entry, &mut out).ok()?;
    Some(out.len)
}

/// `None` is one more than the largest number.
fn numbers(out: &mut Out<'_>, numbers: &[u64]) -> fmt::Result {
    numbers.iter().try_for_each(|number| write!(out, " {number}"))
}

fn option(number: Option<u32>) -> u64 {
    number.map_or(NONE, u64::from)
}

/// Stands for `None`.
const NONE: u64 = 1 << 32;

fn line(entry: &Entry, out: &mut Out<'_>) -> fmt::Result {
    match entry {
        Entry::Terms(terms) => {
            let Terms {
                floor,
                reserve,
                floor_permille,
                reserve_permille,
                amber,
                red,
                hold,
                interval,
                fill,
                huge,
            } = *terms;
            out.write_str(HEAD)?;
            numbers(out, &[option(floor), option(reserve)])?;
            let rest = [floor_permille, reserve_permille, amber, red, hold, interval, fill, u32::from(huge)];
            numbers(out, &rest.map(u64::from))?;
        }
        Entry::Sample(ms, sample, decision) => {
            out.write_str("s")?;
            numbers(out, &[*ms, sample.good.into(), sample.old.into()])?;
            for field in Field::ALL {
                if let Some(value) = sample.get(field) {
                    numbers(out, &[value.into()])?;
                }
            }
            let Decision { pressure, reason, axis, available, total, floor, rate, exhausted_in, next } =
                *decision;
            out.write_str(" =")?;
            numbers(out, &[pressure as u64, reason as u64, axis as u64])?;
            numbers(out, &[available, total, floor, rate].map(u64::from))?;
            numbers(out, &[option(exhausted_in), next.into()])?;
        }
        Entry::Known(at, number) => {
            out.write_str("k")?;
            numbers(out, &[(*at).into(), *number])?;
        }
        Entry::Event(ms, event) => {
            let (kind, number) = match *event {
                Event::Loading(kib) => (0, kib.into()),
                Event::Loaded => (1, 0),
                Event::Unloaded => (2, 0),
                Event::Resident(key) => (3, key),
            };
            out.write_str("e")?;
            numbers(out, &[*ms, kind, number])?;
        }
    }
    out.write_str("\n")
}

/// Numbers of a line, from here on.
struct Numbers<'a>(&'a [u8]);

impl Numbers<'_> {
    fn next(&mut self) -> Option<u64> {
        let (number, rest) = digits(self.0);
        self.0 = rest;
        number
    }

    fn small(&mut self) -> Option<u32> {
        self.next()?.try_into().ok()
    }

    fn option(&mut self) -> Option<Option<u32>> {
        Some(u32::try_from(self.next()?).ok())
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> Option<T> {
        all.get(usize::try_from(self.next()?).ok()?).copied()
    }
}

/// Reads a line, without its end; `None`: it is none of a trace's.
#[must_use]
pub fn read(line: &[u8]) -> Option<Entry> {
    if let Some(rest) = line.strip_prefix(HEAD.as_bytes()) {
        let mut numbers = Numbers(rest);
        return Some(Entry::Terms(Terms {
            floor: numbers.option()?,
            reserve: numbers.option()?,
            floor_permille: numbers.small()?,
            reserve_permille: numbers.small()?,
            amber: numbers.small()?,
            red: numbers.small()?,
            hold: numbers.small()?,
            interval: numbers.small()?,
            fill: numbers.small()?,
            huge: numbers.small()? != 0,
        }));
    }
    let (kind, rest) = line.split_first()?;
    let mut numbers = Numbers(rest);
    match kind {
        b's' => {
            let ms = numbers.next()?;
            let (good, old) = (numbers.small()?, numbers.small()?);
            let mut sample = Sample { old, ..Sample::default() };
            for field in Field::ALL {
                if good & 1 << field as u32 != 0 {
                    sample.set(field, numbers.next()?);
                    sample.old = old;
                }
            }
            numbers.0 = numbers.0.trim_ascii_start().strip_prefix(b"=")?;
            let decision = Decision {
                pressure: numbers.of(&PRESSURES)?,
                reason: numbers.of(&REASONS)?,
                axis: numbers.of(&Axis::ALL)?,
                available: numbers.small()?,
                total: numbers.small()?,
                floor: numbers.small()?,
                rate: numbers.small()?,
                exhausted_in: numbers.option()?,
                next: numbers.small()?,
            };
            Some(Entry::Sample(ms, sample, decision))
        }
        b'k' => Some(Entry::Known(numbers.small()?, numbers.next()?)),
        b'e' => {
            let ms = numbers.next()?;
            let (kind, number) = (numbers.next()?, numbers.next()?);
            let event = match kind {
                0 => Event::Loading(u32::try_from(number).ok()?),
                1 => Event::Loaded,
                2 => Event::Unloaded,
                3 => Event::Resident(number),
                _ => return None,
            };
            Some(Entry::Event(ms, event))
        }
        _ => None,
    }
}

/// The same machine over a trace.
#[derive(Debug)]
pub struct Replay {
    start: Instant,
    state: Option<State>,
}

impl Replay {
    /// `start`: any time, which stands for the trace's beginning.
    #[must_use]
    pub fn new(start: Instant) -> Self {
        Replay { start, state: None }
    }

    /// Plays one line: for a sample, what is decided on it now.
    pub fn play(&mut self, entry: &Entry) -> Option<Decision> {
        let at = |ms: u64| self.start.checked_add(Duration::from_millis(ms)).unwrap_or(self.start);
        match entry {
            Entry::Terms(terms) => {
                match &mut self.state {
                    Some(state) => state.set_terms(*terms),
                    None => self.state = Some(State::new(*terms, self.start)),
                }
                None
            }
            Entry::Sample(ms, sample, _) => Some(step(self.state.as_mut()?, sample, at(*ms))),
            Entry::Known(at, number) => {
                self.state.as_mut()?.know(*at, *number);
                None
            }
            Entry::Event(ms, event) => {
                let at = at(*ms);
                self.state.as_mut()?.note(*event, at);
                None
            }
        }
    }
}
