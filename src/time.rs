//! The one clock. Everything else is given `now`, or a deadline computed from it.

use std::sync::LazyLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::limits;

mod zone;

use zone::Zone;
pub use zone::local::{Local, day_number};

/// Seconds since 1970 before which this program was not built: a wall clock that shows less is wrong.
pub const BUILT: u64 = later(limits::BUILT_AFTER, option_env!("SOURCE_DATE_EPOCH"));

/// The monotonic clock. Inside a tokio runtime it is tokio's, so that a paused test clock rules here too.
#[must_use]
pub fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// The kernel's `CLOCK_MONOTONIC` in microseconds: what systemd compares a reload's beginning with.
#[must_use]
pub fn monotonic_micros() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0) / 1000
}

/// The wall clock, for what people read and for certificates; never for a deadline.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "the one place that reads the wall clock")]
pub fn wall() -> SystemTime {
    SystemTime::now()
}

/// The box's time zone: that of `TZ`, else of `/etc/localtime`, else UTC. It is read once: another one needs a restart, as
/// for every service.
static ZONE: LazyLock<Zone> = LazyLock::new(|| {
    let read = |path: &str| std::fs::read(path).ok();
    zone::of_this_box(std::env::var("TZ").ok().as_deref(), read)
});

/// Minutes after midnight by the box's time zone.
#[must_use]
pub fn local_minute() -> u16 {
    local(wall()).minute()
}

/// This moment by the box's time zone; `None` while the wall clock is wrong.
#[must_use]
pub fn local_now() -> Option<Local<'static>> {
    let wall = wall();
    (!is_wrong(wall)).then(|| local(wall))
}

fn local(wall: SystemTime) -> Local<'static> {
    let since = wall.duration_since(UNIX_EPOCH).unwrap_or_default();
    Local::new(&ZONE, i64::try_from(since.as_secs()).unwrap_or(0))
}

/// Whether `wall` is no right time: it is before this program was built. A board without a battery starts so.
#[must_use]
pub fn is_wrong(wall: SystemTime) -> bool {
    wall < UNIX_EPOCH + Duration::from_secs(BUILT)
}

/// Sees that somebody set the wall clock: it moved otherwise than the monotonic one since the last look.
#[derive(Debug)]
pub struct Steps {
    last: (Instant, SystemTime),
}

impl Steps {
    /// From these two on, read together.
    #[must_use]
    pub fn new(now: Instant, wall: SystemTime) -> Self {
        Steps { last: (now, wall) }
    }

    /// Whether it was set since the last look, by more than [`limits::CLOCK_STEP`] either way.
    pub fn look(&mut self, now: Instant, wall: SystemTime) -> bool {
        let (then, wall_then) = std::mem::replace(&mut self.last, (now, wall));
        let passed = now.saturating_duration_since(then);
        match wall.duration_since(wall_then) {
            Ok(forward) => forward.abs_diff(passed) > limits::CLOCK_STEP,
            Err(back) => back.duration() + passed > limits::CLOCK_STEP,
        }
    }
}

/// The later of two times; a text that is no number does not count.
const fn later(least: u64, text: Option<&str>) -> u64 {
    let Some(text) = text else { return least };
    let (bytes, mut at, mut seconds) = (text.as_bytes(), 0, 0_u64);
    while at < bytes.len() {
        // More digits than any date has.
        if !bytes[at].is_ascii_digit() || at > 12 {
            return least;
        }
        seconds = seconds * 10 + (bytes[at] - b'0') as u64;
        at += 1;
    }
    if seconds > least { seconds } else { least }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_before_the_build_is_wrong() {
        assert!(is_wrong(UNIX_EPOCH));
        assert!(is_wrong(UNIX_EPOCH + Duration::from_secs(BUILT - 1)));
        assert!(!is_wrong(UNIX_EPOCH + Duration::from_secs(BUILT)));
        assert!(!is_wrong(wall()), "this machine's clock, or BUILT_AFTER, is wrong");
        assert_eq!(later(5, None), 5);
        assert_eq!(later(5, Some("7")), 7);
        for none in ["", "4", "x7", "7x", "-7", "99999999999999999999"] {
            assert_eq!(later(5, Some(none)), 5, "{none}");
        }
    }

    #[test]
    fn setting_the_clock_is_seen_and_its_passing_is_not() {
        let (start, wall) = (now(), UNIX_EPOCH + Duration::from_secs(1000));
        let mut steps = Steps::new(start, wall);
        let secs = Duration::from_secs;
        // (seconds since the start: monotonic, wall) and whether that is a step.
        for (passed, shown, step) in [
            (1, 1, false),
            (100, 100, false),
            (101, 102, false),
            (102, 500, true),
            (103, 501, false),
            (104, 3, true),
            (105, 4, false),
            (106, 4, false),
        ] {
            assert_eq!(steps.look(start + secs(passed), wall + secs(shown)), step, "{passed} {shown}");
        }
        assert!(steps.look(start + secs(107), UNIX_EPOCH), "back to 1970");
    }
}
