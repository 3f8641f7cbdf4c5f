//! Everything that the watchdog's state knows, as numbers: a trace begins with it.

use super::{State, Track};
use crate::memory::numbers::{Each, maybe, small, together};

impl State {
    /// What it knows, as numbers by their place; those that a new one has are left out. For a trace.
    #[must_use]
    pub fn known(&self) -> Vec<(u32, u64)> {
        let all = |mut state: State| {
            let mut numbers = Vec::new();
            state.numbers(&mut |number| {
                numbers.push(number);
                number
            });
            numbers
        };
        let new = all(State::new(self.terms, self.start));
        let places = (0..).zip(all(self.clone()).into_iter().zip(new));
        places.filter(|(_, (number, new))| number != new).map(|(at, (number, _))| (at, number)).collect()
    }

    /// One number of those.
    pub fn know(&mut self, at: u32, number: u64) {
        let mut place = 0;
        self.numbers(&mut |before| {
            place += 1;
            if place - 1 == at { number } else { before }
        });
    }

    /// All but the terms and the beginning.
    fn numbers(&mut self, each: &mut Each<'_>) {
        let State { terms: _, start: _, tracks, machine, swapped, kills, settling, load, used } = self;
        for Track { total, ring, usual, rows, since } in tracks {
            small(total, each);
            ring.numbers(each);
            usual.numbers(each);
            rows.iter_mut().for_each(|row| *row = u8::try_from(each((*row).into())).unwrap_or(u8::MAX));
            since.iter_mut().for_each(|since| small(since, each));
        }
        machine.numbers(each);
        let word = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let before = swapped.map(|(pages, then, rate)| [pages.into(), then.into(), rate]);
        *swapped = together(before, each).map(|[pages, then, rate]| (word(pages), word(then), rate));
        for (count, rose) in kills {
            maybe(count, each);
            maybe(rose, each);
        }
        maybe(settling, each);
        let before = load.map(|(since, from, kib)| [since, from, kib].map(u64::from));
        *load = together(before, each).map(|[since, from, kib]| (word(since), word(from), word(kib)));
        small(used, each);
    }
}
