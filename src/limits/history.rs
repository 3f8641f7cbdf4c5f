//! Bounds of the record of what was asked and what became of it, each with its unit.

use std::time::Duration;

/// Requests, deaths and money of so much time are counted together. Each offset of a time zone is a multiple of it.
pub const HISTORY_STEP: Duration = Duration::from_secs(300);
/// So many of these are kept: two days.
pub const HISTORY_STEPS: usize = 576;
/// How far back `status` looks unless it is asked for another time.
pub const HISTORY_SHOWN: Duration = Duration::from_secs(24 * 3600);
/// The morning line is written once a day at this time by the box's time zone, in minutes after midnight.
pub const MORNING: u16 = 7 * 60;

const _: () = assert!(HISTORY_SHOWN.as_secs() * 2 <= HISTORY_STEP.as_secs() * HISTORY_STEPS as u64);
const _: () = assert!((MORNING as u64 * 60).is_multiple_of(HISTORY_STEP.as_secs()));
