//! What was learned of one model at one server: how long its answers are, how long they take, what it really needs.

use std::time::{Duration, Instant};

use super::Runner;
use crate::limits::{
    ADMIT_IMAGE_SPIKE, ADMIT_OUTPUT, ADMIT_OUTPUTS, ADMIT_SHAPE_AGAIN, NEED_FADE, NEED_RATIO_MAX,
    NEED_RATIO_MIN, NEED_RATIO_OOM,
};
use crate::memory::need::{Shape, share};

/// Of one model. Of a fixed size.
#[derive(Debug)]
pub(super) struct Model {
    /// By [`super::server::key`].
    pub key: u64,
    /// When it was last asked for.
    pub used: Instant,
    /// Requests of ours that are there.
    pub in_flight: u32,
    /// Of those, how many have their first token.
    pub answering: u32,
    /// The most of those at once.
    pub answered_at_once: u32,
    /// What it is made of, and when that was asked for.
    pub shape: Option<Shape>,
    /// See [`Model::shape`].
    pub shape_asked: Option<Instant>,
    /// The server does not have it at all, as it said then.
    pub missing: bool,
    /// It was loaded, and the server does not list it: it goes by another name there, runs elsewhere, or is let go at
    /// once.
    pub unlisted: bool,
    /// What it took when it was last seen resident, in KiB; 0: never seen.
    pub seen: u32,
    /// Options of the last request that it was resident for; `None`: somebody else's.
    pub options: Option<Runner>,
    /// What it took ÷ what was predicted, in thousandths: near the most of what was seen. See [`Model::ratio`].
    ratio: u16,
    /// The longest prompt that it survived, in tokens.
    pub longest: u64,
    outputs: Outputs,
    /// Milliseconds that a request holds its slot, near the shortest of late: who is sent away because of it would have
    /// waited for longer. 0: not known.
    service: u32,
    /// How long it took to load last; of a load that was given up, for how long it had been under way, and when that was.
    load: Option<(Duration, Option<Instant>)>,
    /// What requests took beyond what was loaded, in KiB: any request's, and one's with an image.
    grew: [Option<(u32, Instant)>; 2],
}

impl Model {
    pub fn new(key: u64, now: Instant) -> Self {
        Model {
            key,
            used: now,
            in_flight: 0,
            answering: 0,
            answered_at_once: 0,
            shape: None,
            shape_asked: None,
            missing: false,
            unlisted: false,
            seen: 0,
            options: None,
            ratio: 1000,
            longest: 0,
            outputs: Outputs::default(),
            service: 0,
            load: None,
            grew: [None; 2],
        }
    }

    /// Whether the server was asked what it is made of not long ago.
    pub fn was_asked(&self, now: Instant) -> bool {
        self.shape_asked.is_some_and(|at| now.saturating_duration_since(at) < ADMIT_SHAPE_AGAIN)
    }

    /// [`Model::output`] of a model of which nothing is known.
    pub fn unknown_output(most: Option<u64>) -> u64 {
        most.map_or(ADMIT_OUTPUT, |most| ADMIT_OUTPUT.min(most))
    }

    /// Tokens of an answer that nine of ten stay below, and none goes beyond `most`.
    pub fn output(&self, most: Option<u64>) -> u64 {
        let usual = self.outputs.nine_of_ten();
        usual.map_or(Self::unknown_output(most), |usual| usual.min(most.unwrap_or(u64::MAX)))
    }

    /// How long a request holds its slot at least, as far as that is known.
    pub fn service(&self) -> Option<Duration> {
        (self.service > 0).then(|| Duration::from_millis(self.service.into()))
    }

    /// It is asked for. What was learned too long ago to hold is forgotten.
    pub fn touch(&mut self, now: Instant) {
        (self.ratio, self.used) = (self.ratio(now), now);
    }

    /// What it takes ÷ what is predicted, in thousandths. What is above the prediction fades while the model is not asked
    /// for here: who is never let in shows nothing better.
    pub fn ratio(&self, now: Instant) -> u16 {
        let above = self.ratio.saturating_sub(1000);
        self.ratio - above + above.checked_shr(fades(self.used, now)).unwrap_or(0)
    }

    /// What a request may take beyond what is loaded: nothing, where its like was seen and took nothing. What is above
    /// the first guess fades, likewise.
    pub fn spike(&self, image: bool, prompt: u64, now: Instant) -> u32 {
        let [any, with_image] = self.grew.map(|grew| {
            grew.map(|(kib, at)| {
                let faded = kib.checked_shr(fades(at, now)).unwrap_or(0);
                faded.max(kib.min(ADMIT_IMAGE_SPIKE))
            })
        });
        if image {
            with_image.unwrap_or(ADMIT_IMAGE_SPIKE)
        } else if prompt > self.longest {
            any.unwrap_or(0)
        } else {
            0
        }
    }

    /// A request's answer was whole, and held a slot for this long, where it did not wait for one.
    pub fn answered(&mut self, tokens: Option<u64>, held: Option<Duration>) {
        if let Some(tokens) = tokens {
            self.outputs.add(tokens);
        }
        if let Some(held) = held {
            let ms = u32::try_from(held.as_millis()).unwrap_or(u32::MAX).max(1);
            self.service = match self.service {
                0 => ms,
                before if ms < before => before - (before - ms) / 2,
                before => before + (ms - before) / 16,
            }
            .max(1);
        }
    }

    /// It was loaded in this time.
    pub fn loaded_in(&mut self, took: Duration) {
        self.load = Some((took, None));
    }

    /// A load of it ended without it after this time: it takes longer, or cannot be told. Forgotten after a while: who is
    /// sent away for it can never show that it was chance.
    pub fn given_up_after(&mut self, spent: Duration, now: Instant) {
        let known = self.load_time(now);
        if known.is_none_or(|known| spent > known) {
            self.load = Some((spent, Some(now)));
        }
    }

    /// How long it takes to load, or longer than that; `None`: not known.
    pub fn load_time(&self, now: Instant) -> Option<Duration> {
        let (took, given_up) = self.load?;
        let holds = given_up.is_none_or(|at| now.saturating_duration_since(at) < NEED_FADE);
        holds.then_some(took)
    }

    /// A request made memory grow by this much.
    pub fn grew(&mut self, image: bool, kib: u32, now: Instant) {
        for grew in self.grew.iter_mut().skip(usize::from(image)).take(1) {
            // The most counts, and fades.
            *grew = Some((grew.map_or(kib, |(before, _)| (before - before / 16).max(kib)), now));
        }
    }

    /// A load was to take `predicted`, before anything learned, and took `took`; or that at least, unless `whole`.
    pub fn took(&mut self, predicted: u32, took: u32, whole: bool) {
        let seen = u64::from(took) * 1000 / u64::from(predicted.max(1));
        let seen = u16::try_from(seen).unwrap_or(NEED_RATIO_MAX);
        // One that took more is believed at once, one that took less by and by: what is wanted is what 19 of 20 stay
        // below.
        let ratio = match seen.checked_sub(self.ratio) {
            Some(_) => seen,
            None if whole => self.ratio - (self.ratio - seen) / 16,
            None => self.ratio,
        };
        self.ratio = ratio.clamp(NEED_RATIO_MIN, NEED_RATIO_MAX);
    }

    /// It ended for lack of memory; with an image, or over a long prompt, where that was while it answered.
    pub fn ran_out(&mut self, while_answering: Option<bool>, now: Instant) {
        let more = u32::from(self.ratio) * NEED_RATIO_OOM / 1000;
        self.ratio = u16::try_from(more).unwrap_or(NEED_RATIO_MAX).clamp(NEED_RATIO_MIN, NEED_RATIO_MAX);
        if let Some(image) = while_answering {
            let before = self.spike(image, u64::MAX, now).max(ADMIT_IMAGE_SPIKE / 2);
            self.grew(image, before.saturating_mul(2), now);
        }
    }

    /// What a prediction comes to, in KiB; never less than the weights, which a load that is mapped from a file seems
    /// not to take, and does.
    pub fn corrected(&self, predicted: u32, now: Instant) -> u32 {
        let least = self.shape.as_ref().map_or(0, |shape| shape.weights.saturating_add(shape.projector));
        share(predicted, self.ratio(now).into()).max(least)
    }
}

/// How often what was learned then has been halved since.
fn fades(then: Instant, now: Instant) -> u32 {
    let times = now.saturating_duration_since(then).as_secs() / NEED_FADE.as_secs();
    u32::try_from(times).unwrap_or(u32::MAX)
}

/// How often answers were how long, in halves of octaves. Old ones fade.
#[derive(Clone, Debug, Default)]
struct Outputs {
    counts: [u8; Outputs::BUCKETS],
    total: u16,
}

impl Outputs {
    /// Up to 2^16 tokens in all but the last.
    const BUCKETS: usize = 32;

    /// Where a bucket ends, its last token in it.
    fn end(at: usize) -> u64 {
        let octave = 1_u64 << (at / 2);
        if at.is_multiple_of(2) { octave + octave / 2 } else { octave * 2 }
    }

    fn add(&mut self, tokens: u64) {
        let at = (0..Self::BUCKETS).find(|at| tokens <= Self::end(*at)).unwrap_or(Self::BUCKETS - 1);
        if self.total >= 2 * ADMIT_OUTPUTS || self.counts.get(at) == Some(&u8::MAX) {
            self.counts.iter_mut().for_each(|count| *count /= 2);
            self.total = self.counts.iter().map(|count| u16::from(*count)).sum();
        }
        if let Some(count) = self.counts.get_mut(at) {
            *count += 1;
            self.total += 1;
        }
    }

    fn nine_of_ten(&self) -> Option<u64> {
        let rank = (u32::from(self.total) * 9).div_ceil(10).max(1);
        let mut seen = 0;
        self.counts.iter().enumerate().find_map(|(at, count)| {
            seen += u32::from(*count);
            (seen >= rank).then(|| Self::end(at))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nine_of_ten_answers_are_no_longer_and_old_ones_fade() {
        let mut outputs = Outputs::default();
        assert_eq!(outputs.nine_of_ten(), None);
        for tokens in 1..=100 {
            outputs.add(tokens * 10);
        }
        let usual = outputs.nine_of_ten().unwrap();
        assert!((900..=1024).contains(&usual), "{usual}");
        for _ in 0..2000 {
            outputs.add(20);
        }
        assert_eq!(outputs.nine_of_ten(), Some(24));
        outputs.add(0);
        outputs.add(u64::MAX);
    }

    #[test]
    fn a_ratio_rises_at_once_falls_slowly_and_stays_in_bounds() {
        let now = crate::time::now();
        let mut model = Model::new(1, now);
        model.took(1000, 1300, false);
        assert_eq!((model.ratio, model.corrected(1000, now)), (1300, 1300));
        model.took(1000, 980, false);
        assert_eq!(model.ratio, 1300, "something else may have gone meanwhile");
        model.took(1000, 980, true);
        assert_eq!(model.ratio, 1280);
        model.ran_out(None, now);
        assert_eq!(model.ratio, 1600);
        (0..20).for_each(|_| model.ran_out(None, now));
        assert_eq!(model.ratio, NEED_RATIO_MAX);
        (0..2000).for_each(|_| model.took(1000, 0, true));
        assert!(model.ratio < 520 && model.ratio >= NEED_RATIO_MIN, "{}", model.ratio);
        model.took(0, u32::MAX, true);
        assert_eq!(model.ratio, NEED_RATIO_MAX);
        assert_eq!(model.corrected(u32::MAX, now), u32::MAX);
    }

    #[test]
    fn what_grew_before_is_kept_free() {
        let now = crate::time::now();
        let mut model = Model::new(1, now);
        assert_eq!(model.spike(false, 100_000, now), 0);
        assert_eq!(model.spike(true, 10, now), ADMIT_IMAGE_SPIKE);
        model.grew(true, 1600, now);
        model.grew(true, 0, now);
        assert_eq!(model.spike(true, 10, now), 1500);
        model.longest = 1000;
        model.grew(false, 800, now);
        assert_eq!((model.spike(false, 1000, now), model.spike(false, 1001, now)), (0, 800));
        model.ran_out(Some(false), now);
        assert!(model.spike(false, 1001, now) >= ADMIT_IMAGE_SPIKE);
    }

    #[test]
    fn what_was_learned_of_one_that_is_never_let_in_fades() {
        let now = crate::time::now();
        let later = |hours: u64| now + NEED_FADE * u32::try_from(hours).unwrap();
        let mut model = Model::new(1, now);
        model.took(1000, 3000, true);
        (0..3).for_each(|_| model.ran_out(Some(true), now));
        assert_eq!((model.ratio(now), model.spike(true, 1, now)), (4000, 8 * ADMIT_IMAGE_SPIKE));
        assert_eq!((model.ratio(later(1)), model.spike(true, 1, later(1))), (2500, 4 * ADMIT_IMAGE_SPIKE));
        assert_eq!((model.ratio(later(99)), model.spike(true, 1, later(99))), (1000, ADMIT_IMAGE_SPIKE));
        model.touch(later(1));
        assert_eq!(model.ratio(later(1)), 2500, "asked for, it does not come back");
        // One that takes less stays so.
        model.took(1000, 100, true);
        (0..99).for_each(|_| model.took(1000, 500, true));
        let low = model.ratio(later(1));
        assert!(low < 600 && model.ratio(later(50)) == low, "{low}");
    }
}
