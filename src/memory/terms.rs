//! By what memory is judged: what the configuration says, and else the board's profile.

use super::board::Profile;
use crate::config::Memory;
use crate::limits::KIB;

/// By what is judged: the configuration's values over the board's. Memory in KiB, time in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// A floor that does not depend on what is usual.
    pub floor: Option<u32>,
    /// A reserve likewise.
    pub reserve: Option<u32>,
    /// The floor at most, in thousandths of all memory.
    pub floor_permille: u32,
    /// The reserve, likewise.
    pub reserve_permille: u32,
    /// Amber when used up within this.
    pub amber: u32,
    /// Red when used up within this.
    pub red: u32,
    /// This long without a sign.
    pub hold: u32,
    /// Between two looks, at least.
    pub interval: u32,
    /// As fast as memory can be filled, in KiB a millisecond: how far ahead the next look may be.
    pub fill: u32,
    /// Huge pages that are set aside are what the GPU gets.
    pub huge: bool,
}

impl Terms {
    /// The board's, with what the configuration says otherwise.
    #[must_use]
    pub fn new(config: &Memory, profile: &Profile) -> Self {
        let kib = |bytes: usize| u32::try_from(bytes / KIB).unwrap_or(u32::MAX);
        let ms = |time: std::time::Duration| u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
        let profile = profile.with(config);
        Terms {
            floor: config.floor.map(kib),
            reserve: config.reserve.map(kib),
            floor_permille: profile.floor_permille,
            reserve_permille: profile.reserve_permille,
            amber: ms(config.amber),
            red: ms(config.red),
            hold: ms(config.hold),
            interval: ms(config.interval),
            fill: profile.fill_mib_per_second.saturating_mul(1024) / 1000,
            huge: profile.huge_pages,
        }
    }
}
