//! The one clock. Everything else is given `now`, or a deadline computed from it.

use std::time::{Instant, SystemTime};

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

/// The wall clock, for what people read; never for a deadline.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "the one place that reads the wall clock")]
pub fn wall() -> SystemTime {
    SystemTime::now()
}
