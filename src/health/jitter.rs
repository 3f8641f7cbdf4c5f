//! Jitter that a seed decides: the same seed, the same times.

use std::time::Duration;

/// Steele, Lea and Flood's SplitMix64: one step from `seed`, for each `turn` another.
pub(super) const fn mixed(seed: u64, turn: u64) -> u64 {
    let mut z = seed.wrapping_add(turn.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// From zero to `thousandths` of `time`, both included.
pub(super) fn jitter(seed: u64, turn: u64, time: Duration, thousandths: u16) -> Duration {
    // 0..=1024 parts of the most: fine enough, and no overflow below 584 years of microseconds.
    let part = u32::try_from(mixed(seed, turn) % 1025).unwrap_or(0);
    let most = time.saturating_mul(u32::from(thousandths)) / 1000;
    most.saturating_mul(part) / 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_stays_in_its_bounds_and_differs() {
        let time = Duration::from_secs(10);
        let all: Vec<_> = (0..200).map(|turn| jitter(7, turn, time, 100)).collect();
        assert!(all.iter().all(|jitter| *jitter <= Duration::from_secs(1)));
        assert!(all.iter().any(|jitter| *jitter < Duration::from_millis(100)));
        assert!(all.iter().any(|jitter| *jitter > Duration::from_millis(900)));
        assert_eq!(jitter(7, 3, time, 100), all[3]);
        assert_eq!(jitter(7, 3, Duration::ZERO, 100), Duration::ZERO);
    }
}
