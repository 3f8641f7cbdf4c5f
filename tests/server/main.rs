//! The clients' and operators' side of the built program, over real sockets.
#![cfg(feature = "sim")]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test's helpers may fail the test"
)]

use std::time::Duration;

mod admission;
mod answers;
mod beats;
mod budgets;
mod cancel;
mod collected;
mod deaths;
mod dying;
mod elsewhere;
mod endpoints;
mod health;
mod hedges;
mod images;
mod keys;
mod limits;
mod operating;
mod places;
mod probes;
mod program;
mod refusals;
mod reload;
mod resume;
mod retries;
mod routing;
#[path = "../support/said.rs"]
mod said;
mod strict;
mod translated;
mod watchdog;

/// For one test.
const LIMIT: Duration = Duration::from_secs(30);
