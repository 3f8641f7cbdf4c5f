//! Drills: attempts at one target fail on purpose, for a few requests, and what their clients saw is kept.

use std::time::{Duration, Instant};

use serde::Serialize;

use crate::cause::Cause;
use crate::config::Permille;
use crate::limits;

mod words;

/// How much of what would go to the target fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// The next so many requests.
    Requests(u32),
    /// A share of all, for this long.
    Share(Permille, Duration),
}

impl Amount {
    /// Whether it is within bounds.
    ///
    /// # Errors
    /// Why not, in words.
    pub fn check(self) -> Result<(), String> {
        let most = limits::DRILL_REQUESTS_MAX;
        match self {
            Amount::Requests(n) if n == 0 || n > most => {
                Err(format!("a drill is for 1 to {most} requests, not {n}"))
            }
            Amount::Share(share, _) if share.0 == 0 || share.0 > 1000 => {
                Err("a drill's share is above 0% and at most 100%".to_owned())
            }
            Amount::Share(_, time) if time.is_zero() || time > limits::DRILL_TIME_MAX => Err(format!(
                "a drill lasts {} minutes at most, and not no time at all",
                limits::DRILL_TIME_MAX.as_secs() / 60
            )),
            Amount::Requests(_) | Amount::Share(..) => Ok(()),
        }
    }
}

/// One request's part in a drill, from [`Drills::take`] to [`Drills::end`].
#[derive(Debug)]
pub struct Drilled {
    number: u64,
    usual: Option<Duration>,
}

/// What the client of a drilled request saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saw<'a> {
    /// A whole answer by this target.
    Answered(&'a str),
    /// An answer that broke off.
    Broken(Cause),
    /// An error; why the last attempt failed.
    Failed(Cause),
    /// A refusal that is its own request's fault.
    Refused,
    /// Nothing any more: it went away or was cancelled.
    Gone,
}

/// How far a drill is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Attempts fail.
    Running,
    /// None fails any more; requests that had their part are not over yet.
    Finishing,
    /// All is known.
    Over,
}

/// The middle and the worst of some times, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Times {
    /// Half of them were below.
    pub median_ms: u64,
    /// None was above.
    pub worst_ms: u64,
}

/// How often something happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Count {
    /// A target, or a cause.
    pub name: String,
    /// How often.
    pub count: u32,
}

/// What is known of a drill.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Each drill of a process has its own.
    pub number: u64,
    /// Whose attempts fail.
    pub target: String,
    /// How far it is.
    pub stage: Stage,
    /// How much of what goes there fails, in words.
    pub amount: String,
    /// Seconds until it ends by itself.
    pub left_secs: u64,
    /// Requests that came to the target while it ran.
    pub met: u64,
    /// Requests that were failed there.
    pub drilled: u32,
    /// Of which are not over yet.
    pub under_way: u32,
    /// Of which were answered, by whom.
    pub answered: Vec<Count>,
    /// Of which were answered with an error, by cause.
    pub failed: Vec<Count>,
    /// Of which had an answer that broke off, by cause.
    pub broken: Vec<Count>,
    /// Of which were refused as their client's own fault.
    pub refused: u32,
    /// Of which went away or were cancelled.
    pub gone: u32,
    /// From a request's head to its first token, of those answered.
    pub first_token: Option<Times>,
    /// How much later than the target's usual first token for such prompts, where that was known.
    pub added: Option<Times>,
    /// What clients saw, in a few sentences.
    pub in_words: String,
}

/// The process's drills: one at a time, and the last one's report.
#[derive(Debug, Default)]
pub struct Drills {
    last: Option<Drill>,
    numbers: u64,
}

#[derive(Debug)]
struct Drill {
    number: u64,
    target: String,
    amount: Amount,
    until: Instant,
    /// No attempt fails any more.
    stopped: bool,
    /// Its end was told.
    told: bool,
    met: u64,
    /// Thousandths of a request that are due.
    due: u32,
    drilled: u32,
    under_way: u32,
    answered: Vec<Count>,
    failed: Vec<Count>,
    broken: Vec<Count>,
    refused: u32,
    gone: u32,
    /// In order, the least first.
    first: Vec<Duration>,
    /// The same.
    added: Vec<Duration>,
}

impl Drills {
    /// Fails attempts at `target` from here on.
    ///
    /// # Errors
    /// Another one runs; or `amount` is out of bounds. In words.
    pub fn start(&mut self, target: &str, amount: Amount, now: Instant) -> Result<Report, String> {
        amount.check()?;
        if let Some(running) = self.last.as_ref().filter(|last| !last.is_stopped(now)) {
            return Err(format!(
                "a drill of `{}` is running already ({}), for another {} s at most: wait for it, or end it",
                running.target,
                running.amount_in_words(),
                running.left(now).as_secs()
            ));
        }
        self.numbers += 1;
        let time = match amount {
            Amount::Requests(_) => limits::DRILL_TIME_MAX,
            Amount::Share(_, time) => time,
        };
        let drill = self.last.insert(Drill {
            number: self.numbers,
            target: target.to_owned(),
            amount,
            until: now + time,
            stopped: false,
            told: false,
            met: 0,
            // The first request that comes is failed, whatever the share.
            due: 999,
            drilled: 0,
            under_way: 0,
            answered: Vec::new(),
            failed: Vec::new(),
            broken: Vec::new(),
            refused: 0,
            gone: 0,
            first: Vec::new(),
            added: Vec::new(),
        });
        Ok(drill.report(now))
    }

    /// Whether attempts at some target fail at present: the cheap question, asked for each request.
    #[must_use]
    pub const fn is_running(&self) -> bool {
        match &self.last {
            Some(last) => !last.stopped,
            None => false,
        }
    }

    /// Whose attempts the last one fails.
    #[must_use]
    pub fn target(&self) -> Option<&str> {
        self.last.as_ref().map(|last| last.target.as_str())
    }

    /// A request is about to be sent to `target`: whether that fails on purpose. `usual` is the target's usual time
    /// to the first token of such a prompt.
    pub fn take(
        &mut self,
        target: &str,
        usual: impl FnOnce() -> Option<Duration>,
        now: Instant,
    ) -> Option<Drilled> {
        let drill = self.last.as_mut().filter(|last| !last.is_stopped(now) && last.target == target)?;
        drill.met += 1;
        drill.due += match drill.amount {
            Amount::Requests(_) => 1000,
            Amount::Share(share, _) => share.0.into(),
        };
        if drill.due < 1000 {
            return None;
        }
        drill.due -= 1000;
        drill.drilled += 1;
        drill.under_way += 1;
        let most = match drill.amount {
            Amount::Requests(n) => n,
            Amount::Share(..) => limits::DRILL_REQUESTS_MAX,
        };
        drill.stopped = drill.drilled >= most;
        Some(Drilled { number: drill.number, usual: usual() })
    }

    /// A drilled request is over: its client `saw` this, and its first token after `first`. Returns the report when the
    /// drill is over by that.
    pub fn end(
        &mut self,
        drilled: Drilled,
        saw: Saw<'_>,
        first: Option<Duration>,
        now: Instant,
    ) -> Option<Report> {
        let drill = self.last.as_mut().filter(|last| last.number == drilled.number)?;
        drill.under_way = drill.under_way.saturating_sub(1);
        match saw {
            Saw::Answered(by) => {
                count(&mut drill.answered, by);
                let added = first.zip(drilled.usual).map(|(first, usual)| first.saturating_sub(usual));
                for (all, time) in [(&mut drill.first, first), (&mut drill.added, added)] {
                    if let Some(time) = time {
                        all.insert(all.partition_point(|before| *before <= time), time);
                    }
                }
            }
            Saw::Broken(cause) => count(&mut drill.broken, cause.as_str()),
            Saw::Failed(cause) => count(&mut drill.failed, cause.as_str()),
            Saw::Refused => drill.refused += 1,
            Saw::Gone => drill.gone += 1,
        }
        drill.news(now)
    }

    /// Time passes. Returns the report when the drill is over by that.
    pub fn tick(&mut self, now: Instant) -> Option<Report> {
        self.last.as_mut()?.news(now)
    }

    /// Ends the drill: no attempt fails any more. Returns what is known, and whether that is its end, not told yet.
    pub fn stop(&mut self, now: Instant) -> Option<(Report, bool)> {
        let drill = self.last.as_mut()?;
        drill.stopped = true;
        let over = drill.news(now).is_some();
        Some((drill.report(now), over))
    }

    /// What is known of the last one.
    #[must_use]
    pub fn report(&self, now: Instant) -> Option<Report> {
        self.last.as_ref().map(|last| last.report(now))
    }
}

impl Drill {
    fn is_stopped(&self, now: Instant) -> bool {
        self.stopped || now >= self.until
    }

    fn left(&self, now: Instant) -> Duration {
        if self.stopped { Duration::ZERO } else { self.until.saturating_duration_since(now) }
    }

    /// Its report, once: when it is over.
    fn news(&mut self, now: Instant) -> Option<Report> {
        self.stopped = self.is_stopped(now);
        let over = self.stopped && self.under_way == 0;
        (over && !std::mem::replace(&mut self.told, true)).then(|| self.report(now))
    }

    fn amount_in_words(&self) -> String {
        match self.amount {
            Amount::Requests(1) => "the next request".to_owned(),
            Amount::Requests(n) => format!("the next {n} requests"),
            Amount::Share(share, time) => format!("{share} of the requests for {} s", time.as_secs_f64()),
        }
    }

    fn report(&self, now: Instant) -> Report {
        let stage = match (self.is_stopped(now), self.under_way) {
            (false, _) => Stage::Running,
            (true, 0) => Stage::Over,
            (true, _) => Stage::Finishing,
        };
        let mut report = Report {
            number: self.number,
            target: self.target.clone(),
            stage,
            amount: self.amount_in_words(),
            left_secs: self.left(now).as_secs(),
            met: self.met,
            drilled: self.drilled,
            under_way: self.under_way,
            answered: self.answered.clone(),
            failed: self.failed.clone(),
            broken: self.broken.clone(),
            refused: self.refused,
            gone: self.gone,
            first_token: times(&self.first),
            added: times(&self.added),
            in_words: String::new(),
        };
        report.in_words = report.words();
        report
    }
}

fn count(counts: &mut Vec<Count>, name: &str) {
    match counts.iter_mut().find(|count| count.name == name) {
        Some(count) => count.count += 1,
        None => counts.push(Count { name: name.to_owned(), count: 1 }),
    }
}

fn times(sorted: &[Duration]) -> Option<Times> {
    let ms = |time: &Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    Some(Times {
        median_ms: ms(sorted.get(sorted.len().saturating_sub(1) / 2)?),
        worst_ms: ms(sorted.last()?),
    })
}

#[cfg(test)]
mod tests;
