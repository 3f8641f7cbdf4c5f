//! Budgets: requests and tokens a minute, money a day, for each key and each target.

mod text;

use std::time::{Duration, Instant};

use super::sliding::Sliding;
use crate::config::{Budget, Micros, Price};
use crate::limits;

pub use text::in_money;

/// A minute is counted in six spans and the one that is being added to, so that no minute, wherever it begins, holds
/// more than its budget.
const SPAN: Duration = Duration::from_secs(10);
const SPANS: usize = 7;
const DAY_SECS: u64 = 24 * 3600;

/// Both clocks, read together.
#[derive(Clone, Copy, Debug)]
pub struct When {
    /// The monotonic one.
    pub now: Instant,
    /// Seconds since 1970, UTC; `None` while the wall clock is known to be wrong.
    pub utc: Option<u64>,
}

/// Whose budget it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject<'a> {
    /// A client key, by name.
    Key(&'a str),
    /// A target, by name.
    Target(&'a str),
}

/// A subject's place in the books. It means the same one in every configuration, so that a reload forgives nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Account(usize);

/// What is known of an attempt's cost before it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// Tokens of the prompt.
    pub input: u64,
    /// `max_tokens`, if the request has it; else what the target's answers usually have is taken.
    pub output_max: Option<u64>,
}

/// What an attempt has used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Used {
    /// It was never worked on: no connection, refused.
    Nothing,
    /// As the target said, or as it was counted.
    Tokens {
        /// Of the prompt.
        input: u64,
        /// Of the answer.
        output: u64,
    },
    /// Nobody knows: the estimate stands.
    Unknown,
}

/// An attempt under way: what is set aside for it, until [`Books::end`].
#[derive(Debug)]
#[must_use = "what is held is given back by `Books::end` only"]
pub struct Hold {
    key: Option<Account>,
    target: Account,
    input: u64,
    output: u64,
    price: Option<Price>,
}

impl Hold {
    const fn tokens(&self) -> u64 {
        self.input.saturating_add(self.output)
    }

    fn money(&self) -> Micros {
        self.price.map_or(0, |price| cost(price, self.input, self.output))
    }
}

/// What is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// `requests_per_minute`.
    Requests,
    /// `tokens_per_minute`.
    Tokens,
    /// `money_per_day`.
    Money,
}

/// A budget is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exhausted {
    /// Which.
    pub what: What,
    /// How much it is: requests, tokens or [`Micros`].
    pub limit: u64,
    /// There is some left, but requests under way may need it.
    pub held: bool,
    /// When there is some again, where that is known.
    pub again: Option<Duration>,
}

/// What an account shows in `status`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Requests in the last minute.
    pub requests: u64,
    /// Tokens in the last minute.
    pub tokens: u64,
    /// Tokens that requests under way may use.
    pub held_tokens: u64,
    /// Money spent today.
    pub spent: Micros,
    /// Money that requests under way may cost.
    pub held: Micros,
}

/// All accounts. One for the process.
#[derive(Debug, Default)]
pub struct Books {
    entries: Vec<Entry>,
    /// Days since 1970, UTC: the last one known.
    day: Option<u64>,
    /// Somebody's `undated` is not zero.
    undated: bool,
    /// The day's money is not what it was at the last [`Books::take_changed`].
    changed: bool,
}

#[derive(Debug)]
struct Entry {
    is_key: bool,
    name: String,
    /// Whether the present configuration has it.
    named: bool,
    budget: Budget,
    requests: Sliding<SPANS>,
    tokens: Sliding<SPANS>,
    held_tokens: u64,
    held: Micros,
    /// Today, or on the last day known.
    spent: Micros,
    /// Of it, what was spent since nobody knows the day.
    undated: Micros,
    /// What a target's answers usually have, times eight, in tokens.
    usual: u64,
}

impl Entry {
    fn new(subject: Subject<'_>) -> Self {
        let (is_key, name) = match subject {
            Subject::Key(name) => (true, name),
            Subject::Target(name) => (false, name),
        };
        Entry {
            is_key,
            name: name.to_owned(),
            named: false,
            budget: Budget::default(),
            requests: Sliding::new(SPAN),
            tokens: Sliding::new(SPAN),
            held_tokens: 0,
            held: 0,
            spent: 0,
            undated: 0,
            usual: limits::ANSWER_TOKENS * 8,
        }
    }

    fn subject(&self) -> Subject<'_> {
        if self.is_key { Subject::Key(&self.name) } else { Subject::Target(&self.name) }
    }

    fn money_left(&self, utc: Option<u64>) -> Result<(), Exhausted> {
        let Some(limit) = self.budget.money_per_day else { return Ok(()) };
        if self.spent.saturating_add(self.held) < limit {
            return Ok(());
        }
        let held = self.spent < limit;
        let midnight = utc.map(|utc| Duration::from_secs(DAY_SECS - utc % DAY_SECS));
        Err(Exhausted { what: What::Money, limit, held, again: midnight.filter(|_| !held && limit > 0) })
    }

    fn requests_left(&mut self, now: Instant) -> Result<(), Exhausted> {
        let Some(limit) = self.budget.requests_per_minute.map(u64::from) else { return Ok(()) };
        match self.requests.below_in(limit, now) {
            Some(Duration::ZERO) => Ok(()),
            again => Err(Exhausted { what: What::Requests, limit, held: false, again }),
        }
    }

    fn tokens_left(&mut self, now: Instant) -> Result<(), Exhausted> {
        let Some(limit) = self.budget.tokens_per_minute else { return Ok(()) };
        let used = self.tokens.all(now);
        if used.saturating_add(self.held_tokens) < limit {
            return Ok(());
        }
        // What is set aside may end up unused: the soonest is told.
        let again = self.tokens.below_in(limit, now).filter(|wait| !wait.is_zero());
        Err(Exhausted { what: What::Tokens, limit, held: used < limit, again })
    }
}

impl Books {
    /// Their accounts, in the same order. One that is known keeps its budget; another one has this.
    pub fn accounts<'a>(
        &mut self,
        subjects: impl IntoIterator<Item = (Subject<'a>, Budget)>,
    ) -> Vec<Account> {
        subjects.into_iter().map(|(subject, budget)| self.account(subject, budget)).collect()
    }

    /// Takes up a configuration: everybody's budget. Returns their accounts in the same order.
    pub fn configure<'a>(
        &mut self,
        subjects: impl IntoIterator<Item = (Subject<'a>, Budget)>,
    ) -> Vec<Account> {
        self.entries.iter_mut().for_each(|entry| entry.named = false);
        subjects
            .into_iter()
            .map(|(subject, budget)| {
                let account = self.account(subject, budget);
                if let Some(entry) = self.entries.get_mut(account.0) {
                    (entry.named, entry.budget) = (true, budget);
                }
                account
            })
            .collect()
    }

    fn account(&mut self, subject: Subject<'_>, budget: Budget) -> Account {
        if let Some(at) = self.entries.iter().position(|entry| entry.subject() == subject) {
            return Account(at);
        }
        let full = self.entries.len() >= limits::BOOKS_ACCOUNTS;
        let unused = |entry: &Entry| full && !entry.named && entry.held_tokens == 0 && entry.held == 0;
        let unused = self.entries.iter_mut().enumerate().filter(|(_, entry)| unused(entry));
        match unused.min_by_key(|(_, entry)| entry.spent) {
            Some((at, entry)) => {
                *entry = Entry { named: true, budget, ..Entry::new(subject) };
                Account(at)
            }
            None => {
                self.entries.push(Entry { named: true, budget, ..Entry::new(subject) });
                Account(self.entries.len() - 1)
            }
        }
    }

    /// Whether `account` has something left of everything. Money counts only where it is spent: `priced`.
    ///
    /// # Errors
    /// What is used up; of several, what takes the longest.
    pub fn allows(&mut self, account: Account, priced: bool, when: When) -> Result<(), Exhausted> {
        self.turn_to(when.utc);
        let Some(entry) = self.entries.get_mut(account.0) else { return Ok(()) };
        let money = if priced { entry.money_left(when.utc) } else { Ok(()) };
        let all = [money, entry.requests_left(when.now), entry.tokens_left(when.now)];
        let worst = all
            .into_iter()
            .filter_map(Result::err)
            .max_by_key(|exhausted| (!exhausted.held, exhausted.again.unwrap_or(Duration::MAX)));
        worst.map_or(Ok(()), Err)
    }

    /// Whether `account` has money left.
    ///
    /// # Errors
    /// It is used up, or set aside for requests under way.
    pub fn allows_money(&mut self, account: Account, when: When) -> Result<(), Exhausted> {
        self.turn_to(when.utc);
        self.entries.get(account.0).map_or(Ok(()), |entry| entry.money_left(when.utc))
    }

    /// A client's request came, and is not refused: it counts once for its key, whatever attempts it takes.
    pub fn request(&mut self, key: Account, when: When) {
        if let Some(entry) = self.entries.get_mut(key.0) {
            entry.requests.add(1, when.now);
        }
    }

    /// An attempt begins at `target`, for a request of `key`: it counts as a request to the target, and what it may
    /// use is set aside, so that many at once do not spend the same money. `price`: as configured, or assumed.
    pub fn begin(
        &mut self,
        key: Option<Account>,
        target: Account,
        estimate: Estimate,
        price: Option<Price>,
        when: When,
    ) -> Hold {
        let usual = self.entries.get(target.0).map_or(limits::ANSWER_TOKENS, |entry| entry.usual / 8);
        let output = estimate.output_max.unwrap_or(usual);
        let hold = Hold { key, target, input: estimate.input, output, price };
        if let Some(entry) = self.entries.get_mut(target.0) {
            entry.requests.add(1, when.now);
        }
        self.each(&hold, |entry| {
            entry.held_tokens = entry.held_tokens.saturating_add(hold.tokens());
            entry.held = entry.held.saturating_add(hold.money());
        });
        hold
    }

    /// An attempt is over: what it used is booked, what was set aside is free again. Returns what it cost.
    pub fn end(&mut self, hold: Hold, used: Used, when: When) -> Micros {
        self.turn_to(when.utc);
        let (input, output) = match used {
            Used::Nothing => (0, 0),
            Used::Tokens { input, output } => (input, output),
            Used::Unknown => (hold.input, hold.output),
        };
        let money = hold.price.map_or(0, |price| cost(price, input, output));
        let undated = when.utc.is_none() && money > 0;
        self.each(&hold, |entry| {
            entry.held_tokens = entry.held_tokens.saturating_sub(hold.tokens());
            entry.held = entry.held.saturating_sub(hold.money());
            entry.tokens.add(input.saturating_add(output), when.now);
            entry.spent = entry.spent.saturating_add(money);
            if undated {
                entry.undated = entry.undated.saturating_add(money);
            }
        });
        self.undated |= undated;
        self.changed |= money > 0;
        if let (Used::Tokens { output: 1.., .. }, Some(entry)) = (used, self.entries.get_mut(hold.target.0)) {
            entry.usual = entry.usual - entry.usual / 8 + output.min(limits::ANSWER_TOKENS_MAX);
        }
        money
    }

    /// What `account` shows.
    pub fn usage(&mut self, account: Account, when: When) -> Usage {
        self.turn_to(when.utc);
        let Some(entry) = self.entries.get_mut(account.0) else { return Usage::default() };
        Usage {
            requests: entry.requests.newest(SPANS - 1, when.now),
            tokens: entry.tokens.newest(SPANS - 1, when.now),
            held_tokens: entry.held_tokens,
            spent: entry.spent,
            held: entry.held,
        }
    }

    /// Whether the day's money has changed since the last call, so that [`Books::to_text`] is worth writing.
    pub const fn take_changed(&mut self) -> bool {
        std::mem::replace(&mut self.changed, false)
    }

    fn each(&mut self, hold: &Hold, mut on: impl FnMut(&mut Entry)) {
        for account in hold.key.into_iter().chain([hold.target]) {
            if let Some(entry) = self.entries.get_mut(account.0) {
                on(entry);
            }
        }
    }

    /// A later day is a new one: nothing is spent yet, but what was while nobody knew the day, which may well be this
    /// one. An earlier one means that the clock was wrong: nothing is forgiven, and the day after it is a new one.
    fn turn_to(&mut self, utc: Option<u64>) {
        let Some(day) = utc.map(|utc| utc / DAY_SECS) else { return };
        if self.day == Some(day) && !self.undated {
            return;
        }
        let new = self.day.is_some_and(|last| day > last);
        for entry in &mut self.entries {
            let undated = std::mem::take(&mut entry.undated);
            if new {
                entry.spent = undated;
            }
        }
        self.changed |= self.day != Some(day);
        (self.day, self.undated) = (Some(day), false);
    }
}

/// What so many tokens cost: exact, then rounded up to a whole millionth.
#[must_use]
pub fn cost(price: Price, input: u64, output: u64) -> Micros {
    let of = |tokens: u64, price: Micros| u128::from(tokens) * u128::from(price);
    let million_fold = of(input, price.input).saturating_add(of(output, price.output));
    u64::try_from(million_fold.div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
