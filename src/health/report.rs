//! What routing reads of the store, and what the store has to tell: in types, and in words.

use std::time::{Duration, Instant};

use super::strain::Restricted;
use crate::cause::Cause;

/// Everything that routing knows of one (target, model).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Whether it is asked.
    pub standing: Standing,
    /// Of its configured weight, in thousandths: 1000 is all of it, never 0.
    pub share: u16,
    /// Its usual time to first token for a prompt of this length, once it is known; weights go by it.
    pub first_token: Option<Duration>,
    /// While its share returns after an outage, since when: what it had in memory before is most likely gone.
    pub back_since: Option<Instant>,
}

/// Whether a target is asked at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// In its turn.
    Fit,
    /// It may show with this one request that it has recovered: in its turn, and the next ones pass it over until
    /// that request has ended.
    Trial(Why),
    /// After all others.
    Last(Why),
    /// Not at all; but rather than nobody, where [`Why::yields`].
    Out(Why),
}

/// Why a target is not simply fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Nothing answers on its usual port yet.
    Absent,
    /// It said 429: for this much longer.
    CoolingDown(Duration),
    /// Its breaker is open for this much longer; the last cause.
    Open(Duration, Cause),
    /// Its breaker is half open, and its trials are under way; what it opened for.
    HalfOpen(Cause),
    /// Its probe failed repeatedly; the last cause.
    ProbeDown(Cause),
    /// Its time to first token is this many tenths of what is usual for it.
    SlowFirstToken(u32),
    /// Its gaps between tokens are this many tenths of what is usual for it.
    SlowTokens(u32),
    /// It refused our key.
    RefusedKey,
    /// It said that it does not have the model.
    ModelMissing,
    /// Its certificate is not valid until this box's clock is set.
    WaitingForTime,
    /// Its process died, or hangs, by this: it is left alone for this much longer.
    Down(Duration, Cause),
    /// It did so, and has not shown yet that it is well again.
    Returning(Cause),
    /// The GPU has failed, by this Xid where it is known: until it is reset.
    Latched(Option<u16>),
    /// This model has run it out of memory twice: not for this much longer.
    Banned(Duration),
    /// Likewise: no prompts of more tokens than this, for this much longer.
    PromptTooLong(u64, Duration),
    /// The box's memory: nothing new.
    PressureRed,
    /// The box's memory: only what is resident and small.
    PressureAmber,
}

impl Why {
    /// Whether such a target is asked rather than nobody, one request at a time: it failed a moment ago, or shows with a
    /// stream that may be a long one that it has recovered; a client that would get an error anyhow loses nothing by it.
    #[must_use]
    pub const fn is_rest(self) -> bool {
        matches!(self, Why::Open(..) | Why::HalfOpen(_) | Why::Down(..) | Why::Returning(_))
    }

    /// Whether such a target is asked rather than nobody: it answers, only badly; or it has lost a GPU, which may not be
    /// the one that it computes on.
    #[must_use]
    pub const fn yields(self) -> bool {
        matches!(self, Why::SlowFirstToken(_) | Why::SlowTokens(_) | Why::ProbeDown(_) | Why::Latched(_))
    }

    /// When it may be over, where that is known.
    #[must_use]
    pub const fn left(self) -> Option<Duration> {
        match self {
            Why::CoolingDown(left)
            | Why::Open(left, _)
            | Why::Down(left, _)
            | Why::Banned(left)
            | Why::PromptTooLong(_, left) => Some(left),
            _ => None,
        }
    }

    /// In words; completes "`box` …".
    #[must_use]
    pub fn in_words(self) -> String {
        let seconds = |left: Duration| left.as_secs().max(1);
        let times = |tenths: u32| format!("{}.{}", tenths / 10, tenths % 10);
        match self {
            Why::Absent => "was not found on its port".to_owned(),
            Why::CoolingDown(left) => format!("is rate limited for another {} s", seconds(left)),
            Why::Open(left, cause) => {
                format!(
                    "rests for another {} s after failing repeatedly: {}",
                    seconds(left),
                    cause.in_words()
                )
            }
            Why::HalfOpen(_) => "is being tried with another request after its rest".to_owned(),
            Why::ProbeDown(cause) => format!("does not answer its probe: {}", cause.in_words()),
            Why::SlowFirstToken(tenths) => {
                format!("takes {} times as long as usual to its first token", times(tenths))
            }
            Why::SlowTokens(tenths) => format!("takes {} times as long as usual for a token", times(tenths)),
            Why::RefusedKey => "refused our key".to_owned(),
            Why::ModelMissing => "does not have this model".to_owned(),
            Why::WaitingForTime => "waits for this box's clock to be set".to_owned(),
            Why::Down(left, cause) => {
                format!("is left alone for another {} s: {}", seconds(left), cause.in_words())
            }
            Why::Returning(cause) => format!(
                "is not back yet ({}): its probe must succeed, and memory be steady",
                cause.in_words()
            ),
            Why::Latched(fault) => {
                let by = fault.map_or_else(String::new, |code| format!(" (Xid {code})"));
                format!(
                    "is on a GPU that has failed{by} and needs a reset: reboot this box, or `systemctl reload edgeward` \
                     once it is well"
                )
            }
            Why::Banned(left) => {
                format!(
                    "ran out of memory twice with this model, and gets none of it for another {} s",
                    seconds(left)
                )
            }
            Why::PromptTooLong(most, left) => format!(
                "ran out of memory twice with this model, and gets prompts of {most} tokens at most for another {} s",
                seconds(left)
            ),
            Why::PressureRed => "gets nothing new: the box is about to run out of memory".to_owned(),
            Why::PressureAmber => "gets only small requests: the box is low on memory".to_owned(),
        }
    }
}

/// One (target, model) in figures, for `status` and metrics.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    /// As clients ask for it.
    pub model: String,
    /// As [`Summary::standing`].
    pub standing: Standing,
    /// Its breaker: `closed`, `recovering`, `half_open` or `open`.
    pub breaker: &'static str,
    /// Attempts of the last minute that said something of its health.
    pub samples: u32,
    /// Of these the share of failures, weighted, in thousandths.
    pub failure_rate: u16,
    /// As [`Summary::share`].
    pub share: u16,
    /// Attempts under way.
    pub in_flight: usize,
    /// First tokens of the last five minutes, or of longer where requests are few.
    pub first_tokens: u32,
    /// Of these the p95 of their time.
    pub first_token_p95: Option<Duration>,
    /// The p95 of the gaps between tokens, over the same time.
    pub gap_p95: Option<Duration>,
    /// The longest prompt that it gets, in tokens, where memory ran out twice.
    pub most_prompt: Option<u64>,
}

/// How an attempt ended, for the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The stream ended well.
    Well,
    /// It failed. Whose fault it is decides whether it counts.
    Failed(Cause, Option<Duration>),
    /// Nothing is known of the target: the client went away, a hedge was lost, edgeward stopped it.
    Neutral,
}

/// Something that an operator wants to be told once.
#[derive(Clone, Debug, PartialEq)]
pub struct News {
    /// Which target.
    pub target: usize,
    /// For which model; `None`: for all.
    pub model: Option<String>,
    /// What.
    pub what: Change,
}

/// What became of a target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Change {
    /// Its breaker opened, for this long, after this cause.
    Opened(Duration, Cause),
    /// Its breaker closed: it answers again.
    Closed,
    /// It refused our key, or to know the model: only its configuration can help.
    Misconfigured(Cause),
    /// It fails now and then: this much of its weight is left, in thousandths.
    Degraded(u16),
    /// All of its weight is back.
    Restored,
    /// It answers, but far too slowly: out.
    Ejected(Why),
    /// It is fast enough again.
    Readmitted,
    /// Its probe failed repeatedly.
    ProbeDown(Cause),
    /// Its probe succeeds again.
    ProbeUp,
    /// It answers its probe, and no request gets a token.
    Hangs,
    /// Its server is back after a death or a hang.
    Back,
    /// A model ran it out of memory twice: what it gets of it.
    Strained(Restricted),
}

/// The memory state of the box, as the watchdog sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pressure {
    /// Enough is free.
    #[default]
    Green,
    /// Low: only what is resident and small.
    Amber,
    /// About to run out: nothing new.
    Red,
}

impl Pressure {
    /// In a word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Pressure::Green => "green",
            Pressure::Amber => "amber",
            Pressure::Red => "red",
        }
    }
}
