//! Latency of one (target, model): who answers, but far too slowly, is out, and shows its recovery by a trickle.
//!
//! Samples lie in five slices of a minute each. Where requests are few a slice is kept for longer, up to twenty
//! minutes, until four of them have `min_samples`: so one request in five minutes is enough to be judged by. While
//! it is out only the newest slices count, as many as have `min_samples`: with the trickle of one in ten seconds
//! that is after 100 seconds, and `back_after` begins.
//!
//! Each sample is held against what was usual when it came, so "p95 above the threshold" is "more than one in twenty
//! was above it", which counting tells exactly; the sketches say by how much.

use std::time::{Duration, Instant};

use super::report::{Change, Why};
use super::sketch::Sketch;
use super::usual::{Expected, Usual};
use crate::config::Latency as Policy;
use crate::limits;

/// What is known of its speed. 4 KiB: keep it in a box.
#[derive(Clone, Debug, Default)]
pub struct Latency {
    slices: [Slice; limits::LATENCY_SLICES],
    newest: usize,
    usual: Usual,
    /// The p95 of the gaps of a stream.
    usual_gap: Expected,
    /// Since when it is too slow, while it is still asked.
    slow_since: Option<Instant>,
    out: Option<Out>,
}

#[derive(Clone, Debug, Default)]
struct Slice {
    began: Option<Instant>,
    answers: Tally,
    streams: Tally,
    /// Times to first token, in thousandths of what was usual.
    ratios: Sketch,
    first_tokens: Sketch,
    gaps: Sketch,
}

#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    samples: u32,
    slow: u32,
}

/// It is out.
#[derive(Clone, Copy, Debug)]
struct Out {
    why: Why,
    since: Instant,
    /// Since when it is fast again.
    fast_since: Option<Instant>,
    /// When the last of the trickle began.
    trickled: Option<Instant>,
    under_way: bool,
}

/// Judged by the slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pace {
    Unknown,
    Fast,
    Slow,
}

impl Latency {
    /// The first token came `after` this time.
    pub fn first_token(&mut self, policy: &Policy, tokens: u64, after: Duration, now: Instant) {
        let predicted = self.usual.predict(tokens);
        let micros = micros(after);
        let slow = predicted.is_some_and(|(usual, judged)| {
            judged && after > policy.first_token && micros > threshold(usual, policy.times)
        });
        if let Some(slice) = self.slice(policy, now) {
            slice.answers.add(slow);
            slice.first_tokens.add_time(after);
            if let Some((usual, _)) = predicted {
                slice.ratios.add(thousandths(micros, usual));
            }
        }
        if self.learns() {
            self.usual.learn(tokens, after, now);
        }
    }

    /// A stream has ended that had these gaps.
    pub fn gaps(&mut self, policy: &Policy, gaps: &Sketch, now: Instant) {
        let Some(p95) = gaps.quantile(950).filter(|_| gaps.len() >= limits::STREAM_GAPS_MIN) else { return };
        let slow = self.gap_limit(policy).is_some_and(|limit| p95 > limit);
        if let Some(slice) = self.slice(policy, now) {
            slice.streams.add(slow);
            slice.gaps.merge(gaps);
        }
        if self.learns() {
            self.usual_gap.learn(1, Duration::from_micros(p95), now);
        }
    }

    /// Whether it is out, and why; and whether the next request may be one of the trickle.
    #[must_use]
    pub fn out(&self, policy: &Policy, now: Instant) -> Option<(Why, bool)> {
        let out = self.out.as_ref().filter(|_| policy.enabled)?;
        let due = out
            .trickled
            .is_none_or(|last| last > now || now.saturating_duration_since(last) >= policy.trickle);
        Some((out.why, due && !out.under_way))
    }

    /// An attempt begins. Returns whether it is the trickle's.
    pub fn begin(&mut self, policy: &Policy, now: Instant) -> bool {
        let trickle = self.out(policy, now).is_some_and(|(_, due)| due);
        if let Some(out) = self.out.as_mut().filter(|_| trickle) {
            out.trickled = Some(now);
            out.under_way = true;
        }
        trickle
    }

    /// An attempt of the trickle has its first token: the next one need not wait for its end, if that is all that
    /// is asked of it.
    pub fn trickle_answered(&mut self) {
        if let Some(Out { why: Why::SlowFirstToken(_), under_way, .. }) = &mut self.out {
            *under_way = false;
        }
    }

    /// An attempt of the trickle has ended.
    pub fn end_trickle(&mut self) {
        if let Some(out) = &mut self.out {
            out.under_way = false;
        }
    }

    /// The same for a changed configuration, without the attempts that are under way.
    #[must_use]
    pub fn renewed(&self) -> Self {
        let mut renewed = self.clone();
        renewed.end_trickle();
        renewed
    }

    /// What time and the samples have changed; about once a second.
    pub fn evaluate(&mut self, policy: &Policy, now: Instant) -> Option<Change> {
        if !policy.enabled {
            self.slow_since = None;
            return self.out.take().map(|_| Change::Readmitted);
        }
        let (first, gap) = (self.pace_of_first_tokens(policy), self.pace_of_gaps(policy));
        match self.out {
            None if first == Pace::Slow || gap == Pace::Slow => {
                // A clock that went back begins anew; here and below.
                let since = *self.slow_since.insert(self.slow_since.map_or(now, |since| since.min(now)));
                self.forget_samples(now);
                let long = now.saturating_duration_since(since) >= policy.out_after;
                long.then(|| self.eject(policy, first == Pace::Slow, now))
            }
            None => {
                self.slow_since = None;
                None
            }
            Some(mut out) => {
                let (asked, other) = match out.why {
                    Why::SlowTokens(_) => (gap, first),
                    _ => (first, gap),
                };
                let fast = asked == Pace::Fast && other != Pace::Slow;
                out.fast_since = fast.then(|| out.fast_since.map_or(now, |since| since.min(now)));
                let back = |since: Instant| now.saturating_duration_since(since) >= policy.back_after;
                let accepted = now.saturating_duration_since(out.since) >= limits::LATENCY_FORGET;
                if accepted {
                    *self = Latency::default();
                    return Some(Change::Readmitted);
                }
                self.out = Some(out);
                if out.fast_since.is_some_and(back) {
                    self.out = None;
                    self.slow_since = None;
                    return Some(Change::Readmitted);
                }
                None
            }
        }
    }

    /// Its usual time to first token for a prompt of this many tokens, once something is known.
    #[must_use]
    pub fn usual(&self, tokens: u64) -> Option<Duration> {
        self.usual.predict(tokens).map(|(micros, _)| Duration::from_micros(whole(micros)))
    }

    /// The p95 of its times to first token, for a prompt of this many tokens; `None` below `min_samples`.
    #[must_use]
    pub fn first_token_p95_for(&self, policy: &Policy, tokens: u64) -> Option<Duration> {
        let ratios = self.merged(|slice| &slice.ratios);
        let ratio = ratios.quantile(950).filter(|_| ratios.len() >= policy.min_samples)?;
        let micros = u64::try_from(self.usual(tokens)?.as_micros()).ok()?;
        Some(Duration::from_micros(micros.saturating_mul(ratio) / 1000))
    }

    /// The p95 of its times to first token, as they were.
    #[must_use]
    pub fn first_token_p95(&self) -> Option<Duration> {
        self.merged(|slice| &slice.first_tokens).quantile(950).map(Duration::from_micros)
    }

    /// The p95 of its gaps between tokens.
    #[must_use]
    pub fn gap_p95(&self) -> Option<Duration> {
        self.merged(|slice| &slice.gaps).quantile(950).map(Duration::from_micros)
    }

    /// First tokens in the slices.
    #[must_use]
    pub fn samples(&self) -> u32 {
        self.slices.iter().map(|slice| slice.answers.samples).sum()
    }

    /// Whether it is in.
    #[must_use]
    pub fn is_well(&self) -> bool {
        self.out.is_none()
    }

    /// What is usual is not learned from a target that is not well.
    fn learns(&self) -> bool {
        self.out.is_none() && self.slow_since.is_none()
    }

    fn eject(&mut self, policy: &Policy, first: bool, now: Instant) -> Change {
        // It is at least the threshold; the sketch is a tenth off at most.
        let least = policy.times.saturating_mul(10);
        let tenths = |value: Option<u64>| u32::try_from(value.unwrap_or(0)).unwrap_or(u32::MAX).max(least);
        let why = if first {
            let ratio = self.merged(|slice| &slice.ratios).quantile(950);
            Why::SlowFirstToken(tenths(ratio.map(|ratio| ratio / 100)))
        } else {
            let gap = self.merged(|slice| &slice.gaps).quantile(950);
            let usual = self.usual_gap.believed().unwrap_or(1.0);
            Why::SlowTokens(tenths(gap.map(|gap| thousandths(gap, usual) / 100)))
        };
        self.out = Some(Out { why, since: now, fast_since: None, trickled: None, under_way: false });
        // From here on it is judged by what the trickle shows.
        self.slices = Default::default();
        Change::Ejected(why)
    }

    fn forget_samples(&mut self, now: Instant) {
        self.usual.drop_samples(now);
        self.usual_gap.drop_samples(now);
    }

    /// Gaps above this are too long, in microseconds; `None`: nothing is known yet.
    fn gap_limit(&self, policy: &Policy) -> Option<u64> {
        let usual = self.usual_gap.believed()?;
        Some(threshold(usual, policy.times).max(micros(policy.gap)))
    }

    fn pace_of_first_tokens(&self, policy: &Policy) -> Pace {
        self.pace(policy, |slice| slice.answers, |sum| sum.slow.saturating_mul(20) > sum.samples)
    }

    fn pace_of_gaps(&self, policy: &Policy) -> Pace {
        // Who is out by it comes back by its newest streams, each by itself.
        let over = |sum: Tally| match (self.out, self.gap_limit(policy)) {
            (Some(_), _) => sum.slow.saturating_mul(20) > sum.samples,
            (None, limit) => limit < self.merged(|slice| &slice.gaps).quantile(950) && limit.is_some(),
        };
        self.pace(policy, |slice| slice.streams, over)
    }

    /// Who is in must have been slow in two slices and still be: that is no single cold load, and nothing that
    /// is over already. Who is out is fast again when its last `min_samples` are not `over`; one slow answer doesn't
    /// count.
    fn pace(&self, policy: &Policy, of: fn(&Slice) -> Tally, over: impl Fn(Tally) -> bool) -> Pace {
        let (mut sum, mut slow_slices, mut still) = (Tally::default(), 0, None);
        let enough = policy.min_samples.max(1);
        for tally in self.newest_first().map(of).filter(|tally| tally.samples > 0) {
            if self.out.is_some() && sum.samples >= enough {
                break;
            }
            sum.samples = sum.samples.saturating_add(tally.samples);
            sum.slow = sum.slow.saturating_add(tally.slow);
            slow_slices += u32::from(tally.slow > 0);
            still = still.or(Some(tally.slow > 0));
        }
        if sum.samples < enough {
            return Pace::Unknown;
        }
        let slow = match self.out {
            Some(_) => sum.slow > 1,
            None => sum.slow >= limits::LATENCY_SLOW_MIN && slow_slices > 1 && still == Some(true),
        };
        if slow && over(sum) { Pace::Slow } else { Pace::Fast }
    }

    fn newest_first(&self) -> impl Iterator<Item = &Slice> {
        let (newer, older) = self.slices.split_at((self.newest + 1).min(self.slices.len()));
        newer.iter().rev().chain(older.iter().rev())
    }

    fn merged(&self, of: fn(&Slice) -> &Sketch) -> Sketch {
        self.slices.iter().fold(Sketch::new(), |mut all, slice| {
            all.merge(of(slice));
            all
        })
    }

    /// The slice of now.
    fn slice(&mut self, policy: &Policy, now: Instant) -> Option<&mut Slice> {
        let slices = u32::try_from(limits::LATENCY_SLICES).unwrap_or(1);
        let age = |slice: &Slice| slice.began.map(|began| now.saturating_duration_since(began));
        for slice in &mut self.slices {
            if age(slice).is_some_and(|age| age > limits::LATENCY_SLICE_MAX * slices) {
                *slice = Slice::default();
            }
        }
        let newest = self.slices.get(self.newest)?;
        // The newest one has only begun.
        let enough = policy.min_samples.div_ceil(slices.saturating_sub(1).max(1));
        let has_enough = newest.answers.samples >= enough || newest.streams.samples >= enough;
        let over = age(newest).is_some_and(|age| {
            age >= limits::LATENCY_SLICE_MAX || (age >= limits::LATENCY_SLICE && has_enough)
        });
        if over {
            self.newest = (self.newest + 1) % limits::LATENCY_SLICES;
            *self.slices.get_mut(self.newest)? = Slice::default();
        }
        let slice = self.slices.get_mut(self.newest)?;
        // A clock that went back begins it anew.
        slice.began = Some(slice.began.map_or(now, |began| began.min(now)));
        Some(slice)
    }
}

impl Tally {
    fn add(&mut self, slow: bool) {
        self.samples = self.samples.saturating_add(1);
        self.slow = self.slow.saturating_add(u32::from(slow));
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// `as` saturates, and makes nothing of what is no number.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
fn whole(micros: f32) -> u64 {
    micros as u64
}

fn threshold(usual: f32, times: u32) -> u64 {
    whole(usual).saturating_mul(u64::from(times))
}

fn thousandths(micros: u64, usual: f32) -> u64 {
    micros.saturating_mul(1000) / whole(usual).max(1)
}

#[cfg(test)]
#[path = "latency_tests.rs"]
mod tests;
