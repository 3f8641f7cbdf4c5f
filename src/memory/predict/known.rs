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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::{Event, step};
    use super::*;
    use crate::config::{Board, Memory};
    use crate::memory::{Field, Sample, Terms, board};
    use crate::time::now;

    /// To the last number: what is left out of [`State::numbers`] makes a replay differ some time later.
    #[test]
    fn what_is_known_makes_a_new_state_the_same() {
        let (terms, start) = (Terms::new(&Memory::default(), board::of(Board::JetsonOrin)), now());
        let (mut state, mut sample) = (State::new(terms, start), Sample::default());
        assert_eq!(state.known(), []);
        sample.set(Field::Total, 8 << 20);
        for second in 0..300_u64 {
            let at = start + Duration::from_secs(second);
            match second {
                100 => state.note(Event::Resident(7), at),
                150 => state.note(Event::Loading(1 << 20), at),
                160 => state.note(Event::Loaded, at),
                290 => state.note(Event::Loading(2 << 20), at),
                _ => {}
            }
            // It breathes, falls to the floor, has something killed, and begins to fall again.
            let fall = second % 250 * 32_000;
            sample.set(Field::Available, (7_u64 << 20).saturating_sub(second % 7 * 30_000 + fall));
            sample.set(Field::SwapIn, second * second);
            sample.set(Field::Kills, second / 240);
            step(&mut state, &sample, at);
        }
        let mut same = State::new(terms, start);
        state.known().into_iter().for_each(|(at, number)| same.know(at, number));
        assert_eq!(format!("{same:?}"), format!("{state:?}"));
    }

    /// A file may hold anything.
    #[test]
    fn no_number_makes_it_panic() {
        let (terms, start) = (Terms::new(&Memory::default(), board::of(Board::Generic)), now());
        let mut sample = Sample::default();
        sample.set(Field::Total, 8 << 20);
        sample.set(Field::Available, 4 << 20);
        let mut count = 0;
        State::new(terms, start).numbers(&mut |number| {
            count += 1;
            number
        });
        for number in [1, u64::from(u32::MAX), u64::MAX] {
            let mut state = State::new(terms, start);
            (0..=count).for_each(|at| state.know(at, number));
            for second in 0..3 {
                step(&mut state, &sample, start + Duration::from_secs(second));
            }
        }
    }
}
