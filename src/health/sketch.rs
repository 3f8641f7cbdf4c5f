//! Quantiles of many durations in a few bytes: counts in buckets of a constant relative width.

use std::time::Duration;

/// Buckets in each octave: the widest is 1.2 times its beginning, so a quantile is off by a tenth at most.
const PER_OCTAVE: u64 = 5;
/// Values below this, a power of two, fall into the first bucket.
const LEAST: u64 = 128;
/// Octaves from [`LEAST`] on; with microseconds up to 134 s, all above is the last bucket's.
const OCTAVES: usize = 20;
const BUCKETS: usize = OCTAVES * PER_OCTAVE as usize;

/// How often which value was seen. 204 bytes; never allocates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sketch {
    counts: [u16; BUCKETS],
    total: u32,
}

impl Default for Sketch {
    fn default() -> Self {
        Sketch { counts: [0; BUCKETS], total: 0 }
    }
}

impl Sketch {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A duration, in microseconds.
    pub fn add_time(&mut self, time: Duration) {
        self.add(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    }

    /// A value of any unit: from 128 to 2^27 it is told from others.
    pub fn add(&mut self, value: u64) {
        let at = bucket(value);
        if self.counts.get(at) == Some(&u16::MAX) {
            self.total = 0;
            for count in &mut self.counts {
                *count /= 2;
                self.total += u32::from(*count);
            }
        }
        if let Some(count) = self.counts.get_mut(at) {
            *count += 1;
            self.total += 1;
        }
    }

    /// Everything that `other` has seen.
    pub fn merge(&mut self, other: &Sketch) {
        let sums = || self.counts.iter().zip(&other.counts).map(|(a, b)| u32::from(*a) + u32::from(*b));
        let halved = u32::from(sums().any(|sum| sum > u32::from(u16::MAX)));
        let mut merged = Sketch::default();
        for (count, sum) in merged.counts.iter_mut().zip(sums()) {
            *count = u16::try_from(sum >> halved).unwrap_or(u16::MAX);
            merged.total += u32::from(*count);
        }
        *self = merged;
    }

    /// How many values it has seen. Where one bucket has 65,535 all are halved: their shares stay as they are.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.total
    }

    /// Whether it has seen none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// The value that `thousandths` of all are not above, within a tenth; `None` if it has seen none.
    #[must_use]
    pub fn quantile(&self, thousandths: u16) -> Option<u64> {
        let rank = (u64::from(self.total) * u64::from(thousandths)).div_ceil(1000).max(1);
        let mut seen = 0;
        for (at, count) in self.counts.iter().enumerate() {
            seen += u64::from(*count);
            if seen >= rank {
                let (low, high) = (edge(at), edge(at + 1));
                // The harmonic mean: as far from one edge as from the other, relatively.
                return Some(2 * low * high / (low + high));
            }
        }
        None
    }
}

fn bucket(value: u64) -> usize {
    let value = value.max(LEAST);
    let octave = value.ilog2();
    // In u128: five times a value may not fit.
    let part = (u128::from(value - (1 << octave)) * u128::from(PER_OCTAVE)) >> octave;
    let at = u64::from(octave - LEAST.ilog2()) * PER_OCTAVE + u64::try_from(part).unwrap_or(0);
    usize::try_from(at).unwrap_or(BUCKETS).min(BUCKETS - 1)
}

/// Where a bucket begins.
fn edge(at: usize) -> u64 {
    let at = at as u64;
    let base = LEAST << (at / PER_OCTAVE);
    base + base * (at % PER_OCTAVE) / PER_OCTAVE
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn extremes_are_taken() {
        let mut sketch = Sketch::new();
        assert_eq!(sketch.quantile(950), None);
        sketch.add(0);
        sketch.add(u64::MAX);
        sketch.add_time(Duration::MAX);
        assert_eq!(sketch.len(), 3);
        assert!(sketch.quantile(0).is_some_and(|least| least < 160));
        assert!(sketch.quantile(1000).is_some_and(|most| most > 100_000_000));
    }

    #[test]
    fn a_full_bucket_halves_all() {
        let mut sketch = Sketch::new();
        for _ in 0..100_000 {
            sketch.add(1000);
            sketch.add(1_000_000);
        }
        let mut twice = sketch.clone();
        twice.merge(&sketch);
        for sketch in [sketch, twice] {
            assert!(sketch.quantile(400).is_some_and(|low| low.abs_diff(1000) < 100));
            assert!(sketch.quantile(600).is_some_and(|high| high.abs_diff(1_000_000) < 100_000));
        }
    }

    proptest! {
        #[test]
        fn quantiles_are_within_a_tenth(
            values in prop::collection::vec(200_u64..100_000_000, 1..400),
            thousandths in 1_u16..=1000,
            cut in any::<prop::sample::Index>(),
        ) {
            let (mut first, mut second) = (Sketch::new(), Sketch::new());
            let cut = cut.index(values.len());
            values[..cut].iter().for_each(|value| first.add(*value));
            values[cut..].iter().for_each(|value| second.add(*value));
            first.merge(&second);
            let mut sorted = values.clone();
            sorted.sort_unstable();
            let rank = (sorted.len() * usize::from(thousandths)).div_ceil(1000).max(1);
            let (is, said) = (sorted[rank - 1], first.quantile(thousandths).unwrap());
            prop_assert!(is.abs_diff(said) * 10 <= is + 20, "{is} {said}");
            prop_assert_eq!(first.len() as usize, values.len());
        }
    }
}
