//! How many lines of one kind the log takes: a token bucket for each `MESSAGE_ID`, and a count of what it held back. Its
//! warnings and errors have a bucket of their own: a model's unloads hold no kill of its runner back.
//!
//! Pure, and of a fixed size. A count is never lost: the next line of the kind tells it, or one of its own does.

use std::time::Instant;

use crate::limits;

/// An event's name, as far as it fits.
pub type Name = heapless::String<32>;

/// Kinds of one line a request or an attempt, or with a limit and a count of their own: these are not limited here.
pub const FREE: [&str; 6] = [
    super::events::REQUEST_DONE,
    super::events::ATTEMPT_FAILED,
    super::events::REQUEST_BODY,
    super::events::LIMIT_HIT,
    super::events::ACCEPT_FAILED,
    super::events::HELD_BACK,
];

/// What becomes of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is written, and tells of this many before it that were not.
    Passes(u32),
    /// It is counted only.
    Held,
}

/// Lines of one kind that were held back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The kind's `MESSAGE_ID`.
    pub id: u128,
    /// Its name.
    pub name: Name,
    /// How many.
    pub count: u32,
    /// Whether they are warnings or errors.
    pub loud: bool,
}

/// One kind.
#[derive(Debug)]
struct Kind {
    /// Lines that it may write now.
    left: u32,
    /// Since when the next one is being earned.
    earning: Instant,
    /// Held back since the last line that told of it, the first of them at `since`.
    held: Held,
    since: Instant,
}

/// All kinds that were met.
#[derive(Debug, Default)]
pub struct Limits {
    kinds: heapless::Vec<Kind, { limits::LOG_KINDS }>,
}

impl Limits {
    /// None yet.
    pub const fn new() -> Self {
        Limits { kinds: heapless::Vec::new() }
    }

    /// A line of the kind `id`, by the name `name`; `loud` if it is a warning or an error. What has no number of 32
    /// digits, and what finds no place, passes.
    pub fn line(&mut self, id: &str, name: &str, loud: bool, now: Instant) -> Verdict {
        if FREE.contains(&id) {
            return Verdict::Passes(0);
        }
        let Some(kind) = u128::from_str_radix(id, 16).ok().and_then(|id| self.kind(id, loud, now)) else {
            return Verdict::Passes(0);
        };
        kind.earn(now);
        if let Some(left) = kind.left.checked_sub(1) {
            kind.left = left;
            return Verdict::Passes(std::mem::take(&mut kind.held.count));
        }
        kind.hold(1, name, now);
        Verdict::Held
    }

    /// The line that was to tell of `count` lines of this kind was lost: the next one does.
    pub fn untold(&mut self, id: &str, name: &str, count: u32, loud: bool, now: Instant) {
        if count > 0
            && let Some(kind) = u128::from_str_radix(id, 16).ok().and_then(|id| self.kind(id, loud, now))
        {
            kind.hold(count, name, now);
        }
    }

    /// Takes a count that no line has told for [`limits::LOG_HELD`]; at the end, `all`, any.
    pub fn overdue(&mut self, now: Instant, all: bool) -> Option<Held> {
        let late = |kind: &&mut Kind| {
            kind.held.count > 0 && (all || now.saturating_duration_since(kind.since) >= limits::LOG_HELD)
        };
        let kind = self.kinds.iter_mut().find(late)?;
        let held = kind.held.clone();
        kind.held.count = 0;
        Some(held)
    }

    fn kind(&mut self, id: u128, loud: bool, now: Instant) -> Option<&mut Kind> {
        let known = self.kinds.iter().position(|kind| (kind.held.id, kind.held.loud) == (id, loud));
        let at = known.unwrap_or(self.kinds.len());
        if known.is_none() {
            let held = Held { id, name: Name::new(), count: 0, loud };
            let new = Kind { left: limits::LOG_BURST, earning: now, held, since: now };
            // Full: there are more kinds than the constant says, and the test of it fails.
            self.kinds.push(new).ok()?;
        }
        self.kinds.get_mut(at)
    }
}

impl Kind {
    /// One more line for each [`limits::LOG_REFILL`], up to the burst.
    fn earn(&mut self, now: Instant) {
        let each = limits::LOG_REFILL;
        let since = now.saturating_duration_since(self.earning);
        let earned = since.as_nanos() / each.as_nanos();
        match u32::try_from(earned) {
            Ok(0) => {}
            Ok(earned) if self.left.saturating_add(earned) < limits::LOG_BURST => {
                self.left += earned;
                self.earning += each * earned;
            }
            _ => (self.left, self.earning) = (limits::LOG_BURST, now),
        }
    }

    fn hold(&mut self, count: u32, name: &str, now: Instant) {
        if self.held.count == 0 {
            self.since = now;
            let mut end = name.len().min(self.held.name.capacity());
            end = name.floor_char_boundary(end);
            self.held.name.clear();
            // It was cut so that it fits.
            let _fits = self.held.name.push_str(name.get(..end).unwrap_or_default());
        }
        self.held.count = self.held.count.saturating_add(count);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::limits::{LOG_BURST, LOG_HELD, LOG_KINDS, LOG_REFILL};
    use crate::observe::memory_events::{PRESSURE, REQUEST_SHED};

    fn shed(limits: &mut Limits, now: Instant) -> Verdict {
        limits.line(REQUEST_SHED, "request_shed", false, now)
    }

    #[test]
    fn a_burst_passes_then_one_now_and_then_with_the_count_of_the_others() {
        let (mut limits, start) = (Limits::new(), crate::time::now());
        for _ in 0..LOG_BURST {
            assert_eq!(shed(&mut limits, start), Verdict::Passes(0));
        }
        for _ in 0..1000 {
            assert_eq!(shed(&mut limits, start), Verdict::Held);
        }
        assert_eq!(limits.line(PRESSURE, "pressure", true, start), Verdict::Passes(0), "another kind");
        let mut now = start + LOG_REFILL - Duration::from_millis(1);
        assert_eq!(shed(&mut limits, now), Verdict::Held);
        now = start + LOG_REFILL;
        assert_eq!(shed(&mut limits, now), Verdict::Passes(1001));
        assert_eq!(shed(&mut limits, now), Verdict::Held);
        // After a rest the burst is whole again, and no more than that.
        now += LOG_REFILL * (LOG_BURST + 100);
        assert_eq!(shed(&mut limits, now), Verdict::Passes(1));
        for _ in 1..LOG_BURST {
            assert_eq!(shed(&mut limits, now), Verdict::Passes(0));
        }
        assert_eq!(shed(&mut limits, now), Verdict::Held);
    }

    #[test]
    fn what_nobody_told_is_overdue_once() {
        let (mut limits, start) = (Limits::new(), crate::time::now());
        for _ in 0..LOG_BURST + 3 {
            shed(&mut limits, start);
        }
        for n in 0..=LOG_BURST {
            let loud = limits.line(REQUEST_SHED, "request_shed", true, start + Duration::from_secs(1));
            assert_eq!(loud == Verdict::Held, n == LOG_BURST, "what is only told holds no warning back");
        }
        assert_eq!(limits.overdue(start + LOG_HELD - Duration::from_millis(1), false), None);
        let held = limits.overdue(start + LOG_HELD, false).unwrap();
        assert_eq!((held.name.as_str(), held.count, held.loud), ("request_shed", 3, false));
        assert_eq!(format!("{:032x}", held.id), REQUEST_SHED);
        let loud = limits.overdue(start + LOG_HELD, true).map(|held| (held.count, held.loud));
        assert_eq!(loud, Some((1, true)));
        assert_eq!(limits.overdue(start + LOG_HELD, true), None);
        // A lost line gives its count back.
        limits.untold(REQUEST_SHED, "request_shed", 4, true, start);
        limits.untold(REQUEST_SHED, "request_shed", 0, true, start);
        assert_eq!(limits.overdue(start, false), None);
        assert_eq!(limits.overdue(start, true).map(|held| held.count), Some(4));
    }

    #[test]
    fn lines_a_request_and_lines_of_no_kind_are_not_limited() {
        let (mut limits, now) = (Limits::new(), crate::time::now());
        for id in FREE.into_iter().chain(["", "no number"]) {
            for _ in 0..LOG_BURST * 2 {
                assert_eq!(limits.line(id, "x", true, now), Verdict::Passes(0), "{id}");
            }
        }
    }

    #[test]
    fn more_kinds_than_there_is_room_for_pass_and_a_long_name_is_cut() {
        let (mut limits, now) = (Limits::new(), crate::time::now());
        for id in 0..=LOG_KINDS {
            for _ in 0..=LOG_BURST {
                limits.line(&format!("{id:032x}"), &"ü".repeat(40), false, now);
            }
        }
        let mut held = 0;
        while let Some(kind) = limits.overdue(now, true) {
            assert_eq!(kind.name.as_str(), "ü".repeat(16));
            held += kind.count;
        }
        assert_eq!(usize::try_from(held), Ok(LOG_KINDS));
        assert!(crate::observe::events::tests::all().len() * 4 / 3 <= LOG_KINDS, "each kind has its place");
    }

    proptest! {
        /// Whatever comes and when: lines written and lines told of are all lines, and no more are written than the
        /// bucket has.
        #[test]
        fn no_line_is_lost_and_no_bucket_leaks(
            steps in proptest::collection::vec((0..30_000_u64, 1..60_usize, any::<bool>()), 1..60),
        ) {
            let (mut limits, start) = (Limits::new(), crate::time::now());
            let (mut now, mut all, mut written, mut told) = (start, 0_u32, 0_u32, 0_u32);
            for (ms, lines, look) in steps {
                now += Duration::from_millis(ms);
                for _ in 0..lines {
                    all += 1;
                    if let Verdict::Passes(count) = shed(&mut limits, now) {
                        written += 1;
                        told += count;
                    }
                }
                if look && let Some(held) = limits.overdue(now, false) {
                    told += held.count;
                }
            }
            told += limits.overdue(now, true).map_or(0, |held| held.count);
            prop_assert_eq!(written + told, all);
            let most = (now - start).as_millis() / LOG_REFILL.as_millis() + u128::from(LOG_BURST);
            prop_assert!(u128::from(written) <= most);
        }
    }
}
