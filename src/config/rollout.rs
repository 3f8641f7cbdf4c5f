//! A staged rollout: which request goes by the new routing, and what becomes of it. Pure: counts and a time come in.

use std::time::{Duration, Instant};

use super::{Config, Rollout};
use crate::limits::{ROLLOUT_EXTENDED, ROLLOUT_MARGIN, ROLLOUT_RATIO, ROLLOUT_SLOWER, ROLLOUT_SLOWER_TIMES};

/// Buckets of a time-to-first-token histogram: four to each doubling, from 1 ms to a quarter of an hour.
const BUCKETS: usize = 80;

/// By which routing a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pick {
    /// The one before.
    Old,
    /// The candidate.
    New,
}

/// How a request ended, as far as routing had a part in it. What is the client's doing is none of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sample {
    /// The first target asked gave the answer.
    Well,
    /// The client has its answer, after an attempt that failed.
    Rescued,
    /// The client has none, or a broken one.
    Failed,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Go on as it is.
    Hold,
    /// To all. `few`: it was judged by fewer than `min_samples` requests.
    Promote {
        /// Fewer than were asked for.
        few: bool,
    },
    /// Back to the old one, for this.
    RollBack(Reason),
}

/// Why the new routing is worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Each of its first requests failed.
    AllFailed,
    /// More requests fail.
    Fails,
    /// More requests need another target than the first one asked.
    NeedsRescue,
    /// More requests take far longer than the old one's slowest 5 % to their first token.
    Slower,
    /// The configuration has the old routing again.
    Withdrawn,
    /// The configuration has another one.
    Replaced,
}

impl Reason {
    /// In words; completes "the new routing was rolled back: …".
    #[must_use]
    pub const fn in_words(self) -> &'static str {
        match self {
            Reason::AllFailed => "each of its first requests failed",
            Reason::Fails => "more of its requests fail than of the old one's",
            Reason::NeedsRescue => {
                "more of its requests need a second target than of the old one's: the first one fails"
            }
            Reason::Slower => {
                "more of its requests wait far too long for their first token than of the old one's"
            }
            Reason::Withdrawn => "the configuration has the old routing again",
            Reason::Replaced => "the configuration has yet another routing",
        }
    }
}

/// What was seen of one side.
#[derive(Clone, Copy, Debug)]
pub struct Side {
    /// Requests that ended, whatever way.
    pub requests: u32,
    /// Of which got an answer after a failed attempt.
    pub rescued: u32,
    /// Of which failed.
    pub failed: u32,
    /// Requests that had a first token, by its time.
    first_token: [u32; BUCKETS],
}

impl Side {
    const EMPTY: Side = Side { requests: 0, rescued: 0, failed: 0, first_token: [0; BUCKETS] };

    fn record(&mut self, sample: Sample, first_token: Option<Duration>) {
        self.requests = self.requests.saturating_add(1);
        match sample {
            Sample::Well => {}
            Sample::Rescued => self.rescued = self.rescued.saturating_add(1),
            Sample::Failed => self.failed = self.failed.saturating_add(1),
        }
        if let Some(count) = first_token.and_then(|took| self.first_token.get_mut(bucket(took))) {
            *count = count.saturating_add(1);
        }
    }

    fn timed(&self) -> u32 {
        self.first_token.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// The time to first token that 95 of 100 requests keep, rounded up by at most a fifth; `None` before the first.
    #[must_use]
    pub fn first_token_p95(&self) -> Option<Duration> {
        let rank = (u64::from(self.timed()) * 95).div_ceil(100);
        let mut seen = 0_u64;
        let at = self.first_token.iter().position(|count| {
            seen += u64::from(*count);
            seen >= rank
        });
        at.filter(|_| rank > 0).map(upper)
    }

    /// Requests whose first token took longer than `limit`, its bucket not counted.
    fn slower_than(&self, limit: Duration) -> u32 {
        let above = self.first_token.get(bucket(limit) + 1..).unwrap_or_default();
        above.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }
}

fn bucket(took: Duration) -> usize {
    let millis = u64::try_from(took.as_millis()).unwrap_or(u64::MAX).max(1);
    let doublings = millis.ilog2();
    // The two bits below the leading one.
    let quarter = if doublings >= 2 { millis >> (doublings - 2) } else { millis << (2 - doublings) } & 3;
    (doublings as usize * 4 + quarter as usize).min(BUCKETS - 1)
}

/// The least time that is above bucket `at`.
fn upper(at: usize) -> Duration {
    let quarters = 4 + at % 4 + 1;
    Duration::from_micros(((quarters as u64 * 1000) << (at / 4)) / 4)
}

/// Splits requests, sees how they end, and judges.
#[derive(Clone, Debug)]
pub struct Judge {
    terms: Rollout,
    began: Instant,
    /// Thousandths of a request that the new side is owed: of answers, and of everything else.
    owed: [u16; 2],
    old: Side,
    new: Side,
    all_failed: bool,
}

impl Judge {
    /// A rollout on these terms begins.
    #[must_use]
    pub fn new(terms: Rollout, now: Instant) -> Self {
        Judge { terms, began: now, owed: [0; 2], old: Side::EMPTY, new: Side::EMPTY, all_failed: false }
    }

    /// Its terms.
    #[must_use]
    pub fn terms(&self) -> &Rollout {
        &self.terms
    }

    /// When it began.
    #[must_use]
    pub fn began(&self) -> Instant {
        self.began
    }

    /// What was seen of one side.
    #[must_use]
    pub fn side(&self, side: Pick) -> &Side {
        match side {
            Pick::Old => &self.old,
            Pick::New => &self.new,
        }
    }

    /// For the next request. Of any `n` the new side gets `n` times the share, rounded down. Whether a model is to
    /// `answer`, or a list was asked for, is counted apart: a client that asks for both in turn would have each always
    /// on the same side.
    pub fn pick(&mut self, answer: bool) -> Pick {
        let owed = &mut self.owed[usize::from(answer)];
        *owed += self.terms.share.0.min(1000);
        if *owed < 1000 {
            return Pick::Old;
        }
        *owed -= 1000;
        Pick::New
    }

    /// A request of `side` ended, its first token after this.
    pub fn record(&mut self, side: Pick, sample: Sample, first_token: Option<Duration>) {
        match side {
            Pick::Old => self.old.record(sample, first_token),
            Pick::New => self.new.record(sample, first_token),
        }
        // Said once its first are there, and not taken back by what comes after: the verdict is acted upon.
        self.all_failed |= self.new.requests >= self.least() && self.new.failed == self.new.requests;
    }

    fn least(&self) -> u32 {
        self.terms.min_samples.max(1)
    }

    /// The latest time at which it goes on to all, however few requests came.
    fn last(&self) -> Instant {
        self.began + self.terms.hold.saturating_mul(ROLLOUT_EXTENDED)
    }

    /// When to judge again although no request ended.
    #[must_use]
    pub fn due(&self, now: Instant) -> Instant {
        let held = self.began + self.terms.hold;
        if now < held { held } else { self.last() }
    }

    /// What is to be done now.
    ///
    /// It is rolled back where the new side is worse in one of three shares of its requests: those that failed, those
    /// that failed or needed rescue, and those slower than twice what 95 of 100 of the old side's requests keep, and
    /// half a second slower. Worse is: by more than 5 points, and by more than chance explains: a log-likelihood ratio
    /// (G-test) of 16, four standard deviations squared. It is asked after each request, which lets chance try often:
    /// that is why not two. With these, an equal side is rolled back in fewer than one of 100 rollouts.
    #[must_use]
    pub fn verdict(&self, now: Instant) -> Verdict {
        // Where the old routing fails as well it is no reason: the new one is perhaps meant to mend it.
        if self.all_failed && self.old.failed.saturating_mul(2) <= self.old.requests {
            return Verdict::RollBack(Reason::AllFailed);
        }
        let enough = self.new.requests >= self.least();
        if let Some(reason) = self.worse().filter(|_| enough && self.old.requests >= self.least()) {
            return Verdict::RollBack(reason);
        }
        let held = now >= self.began + self.terms.hold;
        if held && (enough || now >= self.last()) {
            return Verdict::Promote { few: !enough };
        }
        Verdict::Hold
    }

    fn worse(&self) -> Option<Reason> {
        let (new, old) = (&self.new, &self.old);
        if above((new.failed, new.requests), (old.failed, old.requests)) {
            return Some(Reason::Fails);
        }
        let troubled = |side: &Side| (side.failed.saturating_add(side.rescued), side.requests);
        if above(troubled(new), troubled(old)) {
            return Some(Reason::NeedsRescue);
        }
        let usual = old.first_token_p95().filter(|_| old.timed() >= self.least())?;
        let limit = (usual * ROLLOUT_SLOWER_TIMES).max(usual + ROLLOUT_SLOWER);
        let slow = |side: &Side| (side.slower_than(limit), side.timed());
        (new.timed() >= self.least() && above(slow(new), slow(old))).then_some(Reason::Slower)
    }
}

/// Whether the first share, `(of these, requests)`, is above the second by more than the margin and by more than chance.
fn above(new: (u32, u32), old: (u32, u32)) -> bool {
    let ((a, n), (b, m)) = (new, old);
    if n == 0 || m == 0 {
        return false;
    }
    let [a, n, b, m] = [a, n, b, m].map(f64::from);
    let both = (a + b) / (n + m);
    let part = |seen: f64, expected: f64| if seen > 0.0 { seen * (seen / expected).ln() } else { 0.0 };
    let ratio = 2.0
        * (part(a, n * both)
            + part(n - a, n * (1.0 - both))
            + part(b, m * both)
            + part(m - b, m * (1.0 - both)));
    a / n - b / m > f64::from(ROLLOUT_MARGIN) / 1000.0 && ratio > ROLLOUT_RATIO
}

impl Config {
    /// Whether requests are routed and judged alike by both.
    #[must_use]
    pub fn routes_like(&self, other: &Config) -> bool {
        self.with_routing_of(other) == *self
    }

    /// This one, but for how requests are routed and judged, which is as in `other`.
    #[must_use]
    pub fn with_routing_of(&self, other: &Config) -> Config {
        let Config {
            model_name,
            on_empty_stop,
            commit_on,
            heartbeat,
            drop_anonymous_reasoning,
            deadlines,
            targets,
            router,
            routes,
            groups,
            health,
            retry,
            hedge,
            queue,
            elsewhere,
            sticky,
            translation,
            images,
            on_break,
            resume,
            repetition,
            ..
        } = other.clone();
        Config {
            model_name,
            on_empty_stop,
            commit_on,
            heartbeat,
            drop_anonymous_reasoning,
            deadlines,
            targets,
            router,
            routes,
            groups,
            health,
            retry,
            hedge,
            queue,
            elsewhere,
            sticky,
            translation,
            images,
            on_break,
            resume,
            repetition,
            ..self.clone()
        }
    }
}

#[cfg(test)]
#[path = "rollout_tests.rs"]
mod tests;
