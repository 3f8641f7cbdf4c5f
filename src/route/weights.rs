//! Who is first among equals: smooth weighted round-robin, and what health and speed leave of a weight.

use std::time::Duration;

use crate::limits::{WEIGHT_LATENCY_FLOOR, WEIGHT_LATENCY_LEAST};

/// Thousandths.
const WHOLE: u64 = 1000;

/// What is left of a configured weight, in millionths of its unit: after its share of health, and after its time to
/// first token against the `best` of its group, neither of which takes all of it.
#[must_use]
pub(super) fn effective(
    weight: u32,
    share: u16,
    first_token: Option<Duration>,
    best: Option<Duration>,
) -> u64 {
    let speed = match (first_token, best) {
        (Some(own), Some(best)) => {
            let micros = |time: Duration| (time + WEIGHT_LATENCY_FLOOR).as_micros();
            let part = micros(best) * u128::from(WHOLE) / micros(own).max(1);
            u64::try_from(part).unwrap_or(WHOLE).clamp(WEIGHT_LATENCY_LEAST, WHOLE)
        }
        _ => WHOLE,
    };
    u64::from(weight.max(1)) * u64::from(share.max(1)) * speed
}

/// The turns of all targets, each in its own group and region: nginx's algorithm (`ngx_http_upstream_round_robin.c`).
/// Each pick adds everyone's weight to their turn, and takes the sum from the one whose turn is furthest on. Over as
/// many picks as the weights' sum each is picked as often as its weight says, and evenly spread.
#[derive(Clone, Debug)]
pub(super) struct Wheel {
    /// By the target's position in the configuration.
    turns: Vec<i64>,
}

impl Wheel {
    pub(super) fn new(targets: usize) -> Self {
        Wheel { turns: vec![0; targets] }
    }

    /// That of a changed configuration: for each of its targets the place in this one, if it has one.
    pub(super) fn renewed(&self, targets: impl IntoIterator<Item = Option<usize>>) -> Self {
        Wheel { turns: targets.into_iter().map(|old| old.map_or(0, |old| self.turn(old))).collect() }
    }

    pub(super) fn turn(&self, target: usize) -> i64 {
        self.turns.get(target).copied().unwrap_or(0)
    }

    /// Which of these (target, weight), never none, is next; among equals the first.
    pub(super) fn next(&self, seats: impl IntoIterator<Item = (usize, u64)>) -> Option<usize> {
        let mut best: Option<(usize, i64)> = None;
        for (target, weight) in seats {
            let turn = self.turn(target).saturating_add(signed(weight));
            if best.is_none_or(|(_, most)| turn > most) {
                best = Some((target, turn));
            }
        }
        best.map(|(target, _)| target)
    }

    /// The same, and it has had its turn.
    pub(super) fn pick(&mut self, seats: impl IntoIterator<Item = (usize, u64)> + Clone) -> Option<usize> {
        let picked = self.next(seats.clone())?;
        let mut sum = 0_i64;
        for (target, weight) in seats {
            sum = sum.saturating_add(signed(weight));
            if let Some(turn) = self.turns.get_mut(target) {
                *turn = turn.saturating_add(signed(weight));
            }
        }
        if let Some(turn) = self.turns.get_mut(picked) {
            *turn = turn.saturating_sub(sum);
        }
        Some(picked)
    }
}

/// At most 2³² × 1000 × 1000: far from the end of its type.
fn signed(weight: u64) -> i64 {
    i64::try_from(weight).unwrap_or(i64::MAX)
}

/// What one group in one region is owed of its requests while its best target has a part of its weight only.
#[derive(Clone, Debug)]
struct Share {
    group: String,
    elsewhere: bool,
    /// In thousandths of a request.
    owed: u32,
}

/// Whose turn it is: among targets, and among groups.
#[derive(Clone, Debug)]
pub(super) struct Turns {
    pub(super) wheel: Wheel,
    shares: Vec<Share>,
}

impl Turns {
    /// Nothing had its turn yet.
    pub(super) fn new(targets: usize) -> Self {
        Turns { wheel: Wheel::new(targets), shares: Vec::new() }
    }

    /// As [`Wheel::renewed`].
    pub(super) fn renewed(&self, targets: impl IntoIterator<Item = Option<usize>>) -> Self {
        Turns { wheel: self.wheel.renewed(targets), shares: self.shares.clone() }
    }

    /// Which of a plan's tiers (group, elsewhere, share in thousandths) comes first: the first that is owed a request.
    /// One with its whole share always is; of one that recovers the rest goes to the next.
    pub(super) fn takes<'g>(&mut self, tiers: impl Iterator<Item = (&'g str, bool, u32)>) -> usize {
        for (at, (group, elsewhere, share)) in tiers.enumerate() {
            let known =
                self.shares.iter().position(|tier| tier.group == group && tier.elsewhere == elsewhere);
            if share >= 1000 {
                if let Some(known) = known {
                    self.shares.swap_remove(known);
                }
                return at;
            }
            let known = known.unwrap_or_else(|| {
                self.shares.push(Share { group: group.to_owned(), elsewhere, owed: 0 });
                self.shares.len() - 1
            });
            if let Some(tier) = self.shares.get_mut(known) {
                tier.owed += share;
                if tier.owed >= 1000 {
                    tier.owed -= 1000;
                    return at;
                }
            }
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nginxs_own_example() {
        let (mut wheel, seats) = (Wheel::new(3), [(0, 5), (1, 1), (2, 1)]);
        let picks: Vec<_> = (0..7).filter_map(|_| wheel.pick(seats)).collect();
        assert_eq!(picks, [0, 0, 1, 0, 2, 0, 0], "its commit message has {{ a, a, b, a, c, a, a }}");
    }

    #[test]
    fn health_and_speed_take_from_a_weight_but_never_all() {
        let ms = |ms| Some(Duration::from_millis(ms));
        let whole = effective(100, 1000, None, None);
        for (share, own, best, thousandths) in [
            (1000, None, None, 1000),
            (1000, ms(200), ms(200), 1000),
            (1000, None, ms(200), 1000),
            (500, None, None, 500),
            (1000, ms(20), ms(10), 916),
            (1000, ms(500), ms(200), 500),
            (500, ms(500), ms(200), 250),
            (1000, ms(60_000), ms(200), 250),
            (0, ms(60_000), ms(200), 0),
        ] {
            let left = effective(100, share, own, best);
            assert_eq!(left * 1000 / whole, thousandths, "{share} {own:?} {best:?}");
            assert!(left > 0);
        }
    }

    proptest! {
        #[test]
        fn everyone_gets_exactly_their_weight(
            weights in prop::collection::vec(1_u32..40, 1..8),
            before in 0_usize..50,
        ) {
            let seats: Vec<(usize, u64)> =
                weights.iter().map(|weight| effective(*weight, 1000, None, None)).enumerate().collect();
            let mut wheel = Wheel::new(seats.len());
            let sum: u32 = weights.iter().sum();
            // From wherever it stands: any so many picks in a row.
            for _ in 0..before {
                wheel.pick(seats.iter().copied());
            }
            let mut had = vec![0_u32; weights.len()];
            for _ in 0..sum {
                had[wheel.pick(seats.iter().copied()).unwrap()] += 1;
            }
            prop_assert_eq!(&had, &weights);
            prop_assert_eq!(wheel.turns.iter().sum::<i64>(), 0);
        }

        #[test]
        fn whoever_comes_and_goes_no_turn_runs_away(
            rounds in prop::collection::vec((0_u8..8, 0_u64..1000), 1..300),
        ) {
            let mut wheel = Wheel::new(3);
            for (who, more) in rounds {
                let seats = [(0, 1000), (1, 1 + more), (2, 500)];
                wheel.pick(seats.into_iter().filter(|(target, _)| who & (1 << target) != 0));
                prop_assert!(wheel.turns.iter().all(|turn| turn.abs() <= 3 * 2500), "{:?}", wheel.turns);
            }
        }
    }
}
