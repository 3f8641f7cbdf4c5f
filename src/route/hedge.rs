//! Hedging: how many requests may be sent to a second target when their first token is late.

use crate::config::Permille;
use crate::limits;

/// Thousandths of one hedge.
const WHOLE: u32 = 1000;

/// A bucket of tokens: each request puts its share in, each hedge takes a whole one out. It starts empty, so hedges are
/// never more than the share of all requests so far; and of any run of requests never more than its share and
/// [`limits::HEDGE_SAVED_MAX`].
#[derive(Debug, Default)]
pub struct HedgeShare {
    /// In thousandths of a hedge.
    saved: u32,
}

impl HedgeShare {
    /// A client's request came.
    pub fn request(&mut self, share: Permille) {
        self.saved = (self.saved + u32::from(share.0)).min(limits::HEDGE_SAVED_MAX * WHOLE);
    }

    /// Takes one hedge, if one is left.
    #[must_use]
    pub fn take(&mut self) -> bool {
        let left = self.saved.checked_sub(WHOLE);
        self.saved = left.unwrap_or(self.saved);
        left.is_some()
    }

    /// A hedge that was taken, and then not begun.
    pub fn put_back(&mut self) {
        self.request(Permille(1000));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_share_holds_from_any_point_on(
            share in 0..=1000_u16,
            steps in prop::collection::vec(any::<bool>(), 0..600),
            from in 0..600_usize,
        ) {
            let mut hedges = HedgeShare::default();
            // Of (requests, hedges): all, and those since `from`.
            let (mut all, mut since) = ((0_u32, 0_u32), (0_u32, 0_u32));
            for (at, request) in steps.into_iter().enumerate() {
                let counts: &mut [&mut (u32, u32)] =
                    if at >= from { &mut [&mut all, &mut since] } else { &mut [&mut all] };
                if request {
                    hedges.request(Permille(share));
                    counts.iter_mut().for_each(|count| count.0 += 1);
                } else if hedges.take() {
                    counts.iter_mut().for_each(|count| count.1 += 1);
                }
                let share = u32::from(share);
                prop_assert!(all.1 * WHOLE <= all.0 * share);
                prop_assert!(since.1 * WHOLE <= since.0 * share + limits::HEDGE_SAVED_MAX * WHOLE);
            }
        }
    }

    #[test]
    fn one_in_twenty_of_a_thousand() {
        let mut hedges = HedgeShare::default();
        assert!(!hedges.take(), "nothing saved at the start");
        let mut taken = 0;
        for _ in 0..1000 {
            hedges.request(Permille(limits::HEDGE_SHARE));
            taken += u32::from(hedges.take());
        }
        assert_eq!(taken, 50);
        hedges.put_back();
        assert!(hedges.take());
    }
}
