//! What the box lives at: the most that was used and given back, or lasted, for each set of resident models.
//!
//! It must not follow a leak, or the floor would fall as fast as the memory does. So a height counts only once memory
//! has turned (a part of it came back) or has not risen for a minute; never one that ended in a kill. One that was
//! reached under Red counts where the server survived it, or a box that dips as low at each prompt would stay Red. A leak
//! that is too slow to be told from rest is left to the least floor, which it takes minutes to pass. What is not reached
//! again fades by 0.3 % an hour.

use super::numbers::{Each, small};
use crate::limits::{MEMORY_FADE, MEMORY_FADE_MS, MEMORY_MARKS, MEMORY_PLATEAU_MS};

/// One set of models, 0: not known which. Unused where `used` is 0.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    key: u64,
    /// The most that was usual, in KiB.
    used: u32,
    /// When it was last current, in wrapping milliseconds.
    at: u32,
}

/// One axis's.
#[derive(Clone, Debug)]
pub(super) struct Usual {
    marks: [Mark; MEMORY_MARKS],
    current: usize,
    /// The most used since memory last turned.
    top: u32,
    faded: u32,
    /// Since when it does not rise, and what was used then, and the most since then.
    flat: (u32, u32, u32),
}

impl Usual {
    pub const fn new() -> Self {
        Usual {
            marks: [Mark { key: 0, used: 0, at: 0 }; MEMORY_MARKS],
            current: 0,
            top: 0,
            faded: 0,
            flat: (0, 0, 0),
        }
    }

    /// The most that is usual now, in KiB; 0: nothing is known.
    pub fn used(&self) -> u32 {
        self.marks[self.current].used
    }

    /// Each set's key and the most that is usual with it.
    pub fn marks(&self) -> impl Iterator<Item = (u64, u32)> {
        self.marks.iter().filter(|mark| mark.used > 0).map(|mark| (mark.key, mark.used))
    }

    /// Each number that it holds.
    pub fn numbers(&mut self, each: &mut Each<'_>) {
        for Mark { key, used, at } in &mut self.marks {
            *key = each(*key);
            small(used, each);
            small(at, each);
        }
        self.current = usize::try_from(each(self.current as u64)).unwrap_or(0).min(MEMORY_MARKS - 1);
        let (since, first, high) = &mut self.flat;
        for number in [&mut self.top, &mut self.faded, since, first, high] {
            small(number, each);
        }
    }

    /// What an earlier process found usual. For before the first sample.
    pub fn remember(&mut self, key: u64, used: u32) {
        let same = self.marks.iter().position(|mark| mark.key == key && (key == 0 || mark.used > 0));
        let free = || (0..MEMORY_MARKS).find(|at| *at != self.current && self.marks[*at].used == 0);
        if let Some(at) = same.or_else(free) {
            self.marks[at] = Mark { key, used, at: 0 };
        }
    }

    /// Other models are resident from here on. A set that is new begins with what is usual now.
    pub fn resident(&mut self, key: u64, ms: u32) {
        let used = self.used();
        self.marks[self.current].at = ms;
        let known = self.marks.iter().position(|mark| mark.used > 0 && mark.key == key);
        self.current = known.unwrap_or_else(|| {
            let age = |mark: &Mark| if mark.used == 0 { u32::MAX } else { ms.wrapping_sub(mark.at) };
            let oldest = (0..MEMORY_MARKS).max_by_key(|at| age(&self.marks[*at])).unwrap_or(0);
            self.marks[oldest] = Mark { key, used, at: ms };
            oldest
        });
        self.top = 0;
    }

    /// What is not to be learned from: it ended in a kill.
    pub fn forget_top(&mut self) {
        (self.top, self.flat) = (0, (0, 0, 0));
    }

    /// A sample, after it was judged; `noise` and more is a difference. `red`: it was about to run out; `trouble`: the
    /// kernel could hardly find any, so what lasts is no rest.
    pub fn learn(&mut self, used: u32, noise: u32, ms: u32, (red, trouble): (bool, bool)) {
        let mark = &mut self.marks[self.current].used;
        if *mark == 0 {
            // Where it was found is the best guess.
            (*mark, self.top, self.faded, self.flat) = (used.max(1), used, ms, (ms, used, used));
            return;
        }
        self.top = self.top.max(used);
        if self.top - used > noise.saturating_mul(2) {
            // A server that died gives back more than came on top of what is usual.
            if !red || used.saturating_add(noise) >= *mark {
                *mark = (*mark).max(self.top);
            }
            self.top = used;
        }
        let (since, first, high) = self.flat;
        let high = high.max(used);
        let ended =
            trouble || used > first.saturating_add(noise / 2) || high - used > noise.saturating_mul(2);
        self.flat = if ended { (ms, used, used) } else { (since, first, high) };
        if ms.wrapping_sub(self.flat.0) >= MEMORY_PLATEAU_MS {
            *mark = (*mark).max(self.flat.2);
        }
        if ms.wrapping_sub(self.faded) >= MEMORY_FADE_MS {
            self.faded = ms;
            let excess = u64::from(mark.saturating_sub(used)) * u64::from(MEMORY_FADE) / 10_000;
            *mark -= u32::try_from(excess).unwrap_or(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOTAL: u32 = 8_000_000;
    const NOISE: u32 = TOTAL / 128;

    /// A sample a second, from `ms` on.
    fn live(usual: &mut Usual, ms: &mut u32, used: impl IntoIterator<Item = u32>) {
        for used in used {
            *ms += 1000;
            usual.learn(used, NOISE, *ms, (false, false));
        }
    }

    #[test]
    fn what_came_back_or_lasted_is_usual_and_a_leak_is_not() {
        let (mut usual, mut ms) = (Usual::new(), 0);
        live(&mut usual, &mut ms, [1_000_000; 10]);
        assert_eq!(usual.used(), 1_000_000, "where it was found");
        live(&mut usual, &mut ms, (0..100).map(|n| 1_000_000 + n * 10_000));
        assert_eq!(usual.used(), 1_000_000, "it only grew");
        live(&mut usual, &mut ms, [1_500_000]);
        assert_eq!(usual.used(), 1_990_000, "it turned");
        live(&mut usual, &mut ms, [5_000_000; 58]);
        assert_eq!(usual.used(), 1_990_000);
        live(&mut usual, &mut ms, [5_000_000; 5]);
        assert_eq!(usual.used(), 5_000_000, "it lasted");
        live(&mut usual, &mut ms, (0..5).map(|n| 5_000_000 + n * 100_000));
        usual.forget_top();
        live(&mut usual, &mut ms, [1_000_000]);
        assert!(usual.used() <= 5_000_000, "it ended in a kill: {}", usual.used());
        live(&mut usual, &mut ms, [1_000_000; 3600]);
        assert!((4_986_000..4_990_000).contains(&usual.used()), "0.3 % of 4 GB an hour: {}", usual.used());
    }

    #[test]
    fn what_a_server_survived_under_red_is_usual_and_what_it_died_of_is_not() {
        for (after, want) in [(6_000_000, 7_000_000), (5_990_000, 7_000_000), (1_000_000, 6_000_000)] {
            let mut usual = Usual::new();
            usual.learn(6_000_000, NOISE, 0, (false, false));
            usual.learn(7_000_000, NOISE, 1000, (true, false));
            usual.learn(after, NOISE, 2000, (true, false));
            assert_eq!(usual.used(), want, "{after}");
        }
        // It breathes, by more than noise and less than what counts as a turn.
        for trouble in [false, true] {
            let mut usual = Usual::new();
            usual.learn(6_000_000, NOISE, 0, (false, false));
            (1..100).for_each(|n| usual.learn(6_500_000 - n % 5 * 20_000, NOISE, n * 1000, (true, trouble)));
            assert_eq!(usual.used() > 6_000_000, !trouble);
        }
    }

    #[test]
    fn each_set_of_models_has_its_own_and_the_oldest_makes_room() {
        let mut usual = Usual::new();
        usual.learn(100, 10, 0, (false, false));
        for key in 1..100_u32 {
            usual.resident(key.into(), key);
            usual.marks[usual.current].used = 1000 + key;
        }
        usual.resident(99, 200);
        assert_eq!(usual.used(), 1099);
        usual.resident(90, 201);
        assert_eq!(usual.used(), 1090);
        usual.resident(1, 202);
        assert_eq!(usual.used(), 1090, "forgotten: it begins with what is usual now");
    }
}
