//! From signs to pressure: up at once, down only after a time without a sign, more slowly each time that it comes back.

use super::numbers::{Each, maybe, small};
use crate::health::Pressure;
use crate::limits::{MEMORY_FLAP, MEMORY_HOLD_MAX};

/// One level's signs. Milliseconds wrap; only differences are used.
#[derive(Clone, Debug, Default)]
struct Signs {
    /// When the last was seen.
    last: u32,
    /// For how long the level stays without one.
    hold: u32,
    /// When the level last ended, if it has not come back since.
    ended: Option<u32>,
}

impl Signs {
    fn numbers(&mut self, each: &mut Each<'_>) {
        small(&mut self.last, each);
        small(&mut self.hold, each);
        maybe(&mut self.ended, each);
    }

    fn within(&self, ms: u32) -> bool {
        ms.wrapping_sub(self.last) < self.hold
    }

    /// The level begins: for longer, if it ended a short while ago.
    fn begins(&mut self, hold: u32, ms: u32) {
        let flap = u32::try_from(MEMORY_FLAP.as_millis()).unwrap_or(u32::MAX);
        let most = u32::try_from(MEMORY_HOLD_MAX.as_millis()).unwrap_or(u32::MAX);
        let again = self.ended.take().is_some_and(|ended| ms.wrapping_sub(ended) < flap);
        self.hold = if again { self.hold.saturating_mul(2).min(most).max(hold) } else { hold };
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Machine {
    level: Pressure,
    amber: Signs,
    /// For itself: that Amber, which refuses nothing, came and went is no reason to refuse for longer.
    red: Signs,
}

impl Machine {
    /// Each number that it holds.
    pub fn numbers(&mut self, each: &mut Each<'_>) {
        self.level = match each(self.level as u64) {
            0 => Pressure::Green,
            1 => Pressure::Amber,
            _ => Pressure::Red,
        };
        self.amber.numbers(each);
        self.red.numbers(each);
    }

    /// `wanted`: by the signs of now; `near`: the level at which pressure may not end yet: Amber not far above the floor, Red
    /// not far below it, though nothing falls any more. Requests let in there took the rest at once.
    pub fn step(&mut self, wanted: Pressure, near: Pressure, hold: u32, ms: u32) -> Pressure {
        if wanted.max(near) >= Pressure::Amber {
            self.amber.last = ms;
        }
        if wanted.max(near) == Pressure::Red {
            self.red.last = ms;
        }
        let held = match self.level {
            Pressure::Red if self.red.within(ms) => Pressure::Red,
            Pressure::Red | Pressure::Amber if self.amber.within(ms) => Pressure::Amber,
            _ => Pressure::Green,
        };
        let level = wanted.max(held);
        for (at, signs) in [(Pressure::Amber, &mut self.amber), (Pressure::Red, &mut self.red)] {
            match (self.level >= at, level >= at) {
                (false, true) => signs.begins(hold, ms),
                (true, false) => signs.ended = Some(ms),
                _ => {}
            }
        }
        self.level = level;
        level
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use Pressure::{Amber, Green, Red};

    #[test]
    fn it_rises_at_once_and_falls_after_the_hold() {
        let mut machine = Machine::default();
        let mut step = |wanted, near, ms| machine.step(wanted, near, 15_000, ms);
        assert_eq!(step(Green, Amber, 0), Green, "near the floor is no sign");
        assert_eq!(step(Amber, Green, 1000), Amber);
        assert_eq!(step(Red, Green, 2000), Red);
        assert_eq!(step(Amber, Green, 16_999), Red);
        assert_eq!(step(Amber, Green, 17_000), Amber);
        assert_eq!(step(Green, Amber, 20_000), Amber);
        assert_eq!(step(Green, Green, 34_999), Amber);
        assert_eq!(step(Green, Green, 35_000), Green);
        assert_eq!(step(Amber, Green, 40_000), Amber);
        assert_eq!(step(Green, Green, 69_999), Amber, "it came back: twice the hold");
        assert_eq!(step(Green, Green, 70_000), Green);
        assert_eq!(step(Amber, Green, 700_000), Amber);
        assert_eq!(step(Green, Green, 715_000), Green, "well for ten minutes: as before");
        assert_eq!(step(Green, Red, 720_000), Green, "that hardly anything is left alone is no sign");
        assert_eq!(step(Red, Red, 1_400_000), Red);
        assert_eq!(step(Green, Red, 1_410_000), Red);
        assert_eq!(step(Green, Red, 1_424_000), Red, "but keeps it red");
        assert_eq!(step(Green, Amber, 1_439_000), Amber);
    }

    #[test]
    fn amber_that_comes_and_goes_makes_red_no_longer() {
        let (mut machine, mut ms) = (Machine::default(), 0);
        let mut last = |machine: &mut Machine, wanted| {
            let (level, start) = (machine.step(wanted, Green, 15_000, ms), ms);
            while machine.step(Green, Green, 15_000, ms) == level {
                ms += 1000;
            }
            ms - start
        };
        let ambers: Vec<_> = (0..5).map(|_| last(&mut machine, Amber)).collect();
        assert_eq!(ambers, [15_000, 30_000, 60_000, 120_000, 240_000]);
        assert_eq!(last(&mut machine, Red), 15_000);
        assert_eq!(last(&mut machine, Red), 30_000, "but Red that comes back does");
    }

    proptest! {
        #[test]
        fn it_does_not_flap(wanted in proptest::collection::vec(0u8..3, 3600)) {
            let (mut machine, mut rises) = (Machine::default(), 0);
            for (second, wanted) in (0_u32..).zip(wanted) {
                let before = machine.level;
                let level = machine.step([Green, Amber, Red][usize::from(wanted)], Green, 15_000, second * 1000);
                rises += u32::from(level > before);
            }
            // 15, 30, 60, 120, 240 and then 300 s each, in an hour.
            prop_assert!(rises <= 18, "{}", rises);
        }

        #[test]
        fn rare_signs_do_not_flap_either(gaps in proptest::collection::vec(1u32..120, 100)) {
            let (mut machine, mut ms, mut rises) = (Machine::default(), 0_u32, 0_u32);
            for gap in gaps {
                for second in 0..gap {
                    ms += 1000;
                    let before = machine.level;
                    let level = machine.step(if second == 0 { Red } else { Green }, Green, 15_000, ms);
                    rises += u32::from(level > before);
                }
            }
            prop_assert!(rises <= 6 + ms / 300_000, "{} in {} s", rises, ms / 1000);
        }
    }
}
