//! The last samples of one axis, and how fast they fall: by medians, which one odd sample does not move.

use super::numbers::{Each, small};
use crate::limits::{MEMORY_RECENT, MEMORY_RECENT_MS, MEMORY_RING};

/// (milliseconds, KiB) pairs, the newest [`MEMORY_RING`] of them. Milliseconds wrap; only differences are used.
#[derive(Clone, Debug)]
pub(super) struct Ring {
    points: [(u32, u32); MEMORY_RING],
    next: usize,
    len: usize,
}

impl Ring {
    pub const fn new() -> Self {
        Ring { points: [(0, 0); MEMORY_RING], next: 0, len: 0 }
    }

    pub fn push(&mut self, ms: u32, kib: u32) {
        self.points[self.next] = (ms, kib);
        self.next = (self.next + 1) % MEMORY_RING;
        self.len = (self.len + 1).min(MEMORY_RING);
    }

    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Each number that it holds.
    pub fn numbers(&mut self, each: &mut Each<'_>) {
        for (ms, kib) in &mut self.points {
            small(ms, each);
            small(kib, each);
        }
        self.next = usize::try_from(each(self.next as u64)).unwrap_or(0) % MEMORY_RING;
        self.len = usize::try_from(each(self.len as u64)).unwrap_or(0).min(MEMORY_RING);
    }

    /// The `back`th newest, from 0.
    pub fn newest(&self, back: usize) -> Option<(u32, u32)> {
        (back < self.len).then(|| self.points[(self.next + 2 * MEMORY_RING - 1 - back) % MEMORY_RING])
    }

    /// All that is kept differs by less than `noise`, and there is enough of it.
    pub fn calm(&self, noise: u32) -> bool {
        let kept = self.points.iter().take(self.len).map(|(_, kib)| *kib);
        let (least, most) = kept.fold((u32::MAX, 0), |(least, most), kib| (least.min(kib), most.max(kib)));
        self.len >= MEMORY_RECENT && most.saturating_sub(least) < noise
    }

    /// How many of the newest reach over [`MEMORY_RECENT_MS`], and [`MEMORY_RECENT`] at least.
    fn recent(&self) -> usize {
        let Some((now, _)) = self.newest(0) else { return 0 };
        let within = |back: &usize| {
            *back < MEMORY_RECENT
                || self.newest(*back).is_some_and(|(ms, _)| now.wrapping_sub(ms) <= MEMORY_RECENT_MS)
        };
        (0..self.len).take_while(within).count()
    }

    /// How fast it falls by the `count` newest, in KiB a second; negative where it rises. The median of all differences
    /// over half of them.
    fn falls(&self, count: usize) -> Option<i32> {
        let lag = count / 2;
        if count < MEMORY_RECENT || count > self.len {
            return None;
        }
        let mut rates = [0_i32; MEMORY_RING / 2];
        let mut used = 0;
        for back in 0..lag {
            let ((new_ms, new), (old_ms, old)) = (self.newest(back)?, self.newest(back + lag)?);
            let took = i64::from(new_ms.wrapping_sub(old_ms)).max(1);
            let rate = (i64::from(old) - i64::from(new)) * 1000 / took;
            let rate = i32::try_from(rate).unwrap_or(if rate < 0 { i32::MIN } else { i32::MAX });
            // By insertion: there are few.
            let place = rates.get(..used)?.iter().position(|other| *other > rate).unwrap_or(used);
            rates.get_mut(place..=used)?.rotate_right(1);
            rates[place] = rate;
            used += 1;
        }
        rates.get(used / 2).copied()
    }

    /// The faster of its fall lately, and over the whole window; in KiB a second. 0 where it does not fall, or is not
    /// falling any more.
    pub fn rate(&self) -> u32 {
        let still = match (self.newest(0), self.newest(MEMORY_RECENT / 2 - 1)) {
            (Some((_, new)), Some((_, old))) => new < old,
            _ => false,
        };
        let fastest = self.falls(self.recent()).max(self.falls(self.len / 2 * 2));
        fastest.filter(|_| still).and_then(|rate| u32::try_from(rate).ok()).unwrap_or(0)
    }
}

/// Until nothing above `reserve` is left, in milliseconds; `None`: it does not fall.
pub(super) fn exhausted_in(available: u32, reserve: u32, rate: u32) -> Option<u32> {
    let left = u64::from(available.saturating_sub(reserve)) * 1000;
    left.checked_div(u64::from(rate)).map(|ms| u32::try_from(ms).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ring(points: impl IntoIterator<Item = (u32, u32)>) -> Ring {
        let mut ring = Ring::new();
        points.into_iter().for_each(|(ms, kib)| ring.push(ms, kib));
        ring
    }

    #[test]
    fn a_line_has_its_slope_and_one_odd_sample_changes_nothing() {
        let line = |n: u32| (n * 1000, 1_000_000 - n * 1024);
        assert_eq!(ring((0..100).map(line)).rate(), 1024);
        let odd = ring((0..100).map(|n| if n == 97 { (n * 1000, 5) } else { line(n) }));
        assert!(odd.rate().abs_diff(1024) < 400, "{}", odd.rate());
        assert_eq!(ring((0..7).map(line)).rate(), 0, "too few");
        assert_eq!(ring((0..100).map(|n| (n * 1000, 1_000_000 + n))).rate(), 0, "it rises");
        let wrapped =
            ring((0..64_u32).map(|n| (n.wrapping_mul(1000).wrapping_sub(30_000), 100_000 - n * 10)));
        assert_eq!(wrapped.rate(), 10, "over the end of the milliseconds");
    }

    #[test]
    fn a_fall_that_is_over_is_none() {
        let steps = (0..64).map(|n| (n * 1000, if n < 50 { 1_000_000 - n * 10_000 } else { 500_000 }));
        assert_eq!(ring(steps).rate(), 0);
    }

    #[test]
    fn calm_is_what_moves_by_less_than_noise() {
        let (few, some) = ([(0, 1000); 7], [(0, 1000); 8]);
        assert!(!ring(few).calm(10) && ring(some).calm(10));
        assert!(ring((0..200).map(|n| (n * 100, 1000 + n % 10))).calm(10));
        assert!(!ring((0..200).map(|n| (n * 100, 1000 + n % 11))).calm(10));
        let (mut cleared, last) = (ring(some), (100, 1));
        cleared.push(last.0, last.1);
        assert!(!cleared.calm(10));
        cleared.clear();
        some.iter().for_each(|(ms, kib)| cleared.push(*ms, *kib));
        assert!(cleared.calm(10), "what was before counts no more");
    }

    #[test]
    fn when_it_is_used_up() {
        assert_eq!(exhausted_in(3000, 1000, 100), Some(20_000));
        assert_eq!(exhausted_in(500, 1000, 100), Some(0));
        assert_eq!(exhausted_in(500, 0, 0), None);
        assert_eq!(exhausted_in(u32::MAX, 0, 1), Some(u32::MAX));
    }

    proptest! {
        #[test]
        fn a_lower_newest_point_never_falls_more_slowly(
            points in proptest::collection::vec((1u32..1500, 0u32..1_000_000), 1..100),
            less in 0u32..1_000_000,
        ) {
            let mut ms = 0_u32;
            let mut one = Ring::new();
            for (step, kib) in &points {
                ms += step;
                one.push(ms, *kib);
            }
            let mut other = one.clone();
            let last = points.last().map_or(0, |(_, kib)| *kib);
            one.push(ms + 100, last);
            other.push(ms + 100, last.saturating_sub(less));
            prop_assert!(other.rate() >= one.rate());
        }
    }
}
