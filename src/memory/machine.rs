//! From signs to pressure: up at once, down only after a time without a sign, more slowly each time that it comes back.

use crate::health::Pressure;
use crate::limits::{MEMORY_FLAP, MEMORY_HOLD_MAX};

/// Milliseconds wrap; only differences are used.
#[derive(Clone, Debug, Default)]
pub(super) struct Machine {
    level: Pressure,
    /// When Amber's and Red's signs were last seen.
    amber: u32,
    red: u32,
    /// For how long pressure stays without a sign.
    hold: u32,
    /// When it last fell, if it has not risen since.
    fell: Option<u32>,
}

impl Machine {
    /// `wanted`: by the signs of now; `near`: not so far above the floor that Amber may end.
    pub fn step(&mut self, wanted: Pressure, near: bool, hold: u32, ms: u32) -> Pressure {
        if wanted >= Pressure::Amber || near {
            self.amber = ms;
        }
        if wanted == Pressure::Red {
            self.red = ms;
        }
        let within = |since: u32| ms.wrapping_sub(since) < self.hold;
        let held = match self.level {
            Pressure::Red if within(self.red) => Pressure::Red,
            Pressure::Red | Pressure::Amber if within(self.amber) => Pressure::Amber,
            _ => Pressure::Green,
        };
        let level = wanted.max(held);
        if level > self.level {
            let flap = u32::try_from(MEMORY_FLAP.as_millis()).unwrap_or(u32::MAX);
            let most = u32::try_from(MEMORY_HOLD_MAX.as_millis()).unwrap_or(u32::MAX);
            match self.fell.take() {
                Some(fell) if ms.wrapping_sub(fell) < flap => {
                    self.hold = self.hold.saturating_mul(2).min(most).max(hold);
                }
                Some(_) => self.hold = hold,
                // From Amber to Red: still the same episode.
                None => self.hold = self.hold.max(hold),
            }
        } else if level < self.level {
            self.fell = Some(ms);
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
        assert_eq!(step(Green, true, 0), Green, "near the floor is no sign");
        assert_eq!(step(Amber, false, 1000), Amber);
        assert_eq!(step(Red, false, 2000), Red);
        assert_eq!(step(Amber, false, 16_999), Red);
        assert_eq!(step(Amber, false, 17_000), Amber);
        assert_eq!(step(Green, true, 20_000), Amber);
        assert_eq!(step(Green, false, 34_999), Amber);
        assert_eq!(step(Green, false, 35_000), Green);
        assert_eq!(step(Amber, false, 40_000), Amber);
        assert_eq!(step(Green, false, 69_999), Amber, "it came back: twice the hold");
        assert_eq!(step(Green, false, 70_000), Green);
        assert_eq!(step(Amber, false, 700_000), Amber);
        assert_eq!(step(Green, false, 715_000), Green, "well for ten minutes: as before");
    }

    proptest! {
        #[test]
        fn it_does_not_flap(wanted in proptest::collection::vec(0u8..3, 3600)) {
            let (mut machine, mut rises) = (Machine::default(), 0);
            for (second, wanted) in (0_u32..).zip(wanted) {
                let before = machine.level;
                let level = machine.step([Green, Amber, Red][usize::from(wanted)], false, 15_000, second * 1000);
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
                    let level = machine.step(if second == 0 { Red } else { Green }, false, 15_000, ms);
                    rises += u32::from(level > before);
                }
            }
            prop_assert!(rises <= 6 + ms / 300_000, "{} in {} s", rises, ms / 1000);
        }
    }
}
