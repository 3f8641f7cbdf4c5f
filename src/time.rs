//! The one clock. Everything else is given `now`, or a deadline computed from it.

use std::time::{Instant, SystemTime};

/// The monotonic clock. Inside a tokio runtime it is tokio's, so that a paused test clock rules here too.
#[must_use]
pub fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// The wall clock, for what people read; never for a deadline.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "the one place that reads the wall clock")]
pub fn wall() -> SystemTime {
    SystemTime::now()
}
