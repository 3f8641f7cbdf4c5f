//! The day's money as a file keeps it, and budgets in words.

use std::time::Duration;

use super::{Books, DAY_SECS, Entry, Exhausted, Subject, What};
use crate::config::Micros;
use crate::limits;

/// The first line; the number is the format's.
const HEAD: &str = "edgeward-books 1";
/// The last line, without which the file was cut off.
const END: &str = "end";

impl Books {
    /// The day's money, for a file: its day, and one line for each who spent something.
    #[must_use]
    pub fn to_text(&self) -> String {
        let day = self.day.map_or_else(|| "-".to_owned(), |day| day.to_string());
        let mut text = format!("{HEAD}\nday {day}\n");
        for entry in self.entries.iter().filter(|entry| entry.spent > 0) {
            let kind = if entry.is_key { "key" } else { "target" };
            text.push_str(&format!("{kind} {} {}\n", entry.spent, entry.name));
        }
        text + END + "\n"
    }

    /// The books as [`Books::to_text`] wrote them, on the day of `utc`: on another day nothing is spent yet. Where the
    /// day is not known, the file's is taken until it is.
    ///
    /// # Errors
    /// What is wrong with the text, and in which line: nothing of it can be trusted, and [`Books::default`] is what to
    /// go on with.
    pub fn from_text(text: &str, utc: Option<u64>) -> Result<Books, String> {
        if text.len() > limits::BOOKS_BYTES_MAX {
            return Err(format!("is longer than {} bytes", limits::BOOKS_BYTES_MAX));
        }
        let Some(whole) = text.strip_suffix("\nend\n") else {
            return Err(format!("does not end with a line `{END}`: it was cut off"));
        };
        let mut lines = (1..).zip(whole.split('\n'));
        if lines.next().is_none_or(|(_, line)| line != HEAD) {
            return Err(format!("does not begin with `{HEAD}`"));
        }
        let wrong = |at: usize| format!("has a line {at} that edgeward did not write");
        let (_, line) = lines.next().ok_or_else(|| wrong(2))?;
        let day = match line.strip_prefix("day ").ok_or_else(|| wrong(2))? {
            "-" => None,
            day => Some(number(day).ok_or_else(|| wrong(2))?),
        };
        let mut books = Books { day, ..Books::default() };
        for (at, line) in lines {
            let mut words = line.splitn(3, ' ');
            let (Some(kind), Some(spent), Some(name)) =
                (words.next(), words.next().and_then(number), words.next())
            else {
                return Err(wrong(at));
            };
            let subject = match kind {
                "key" => Subject::Key(name),
                "target" => Subject::Target(name),
                _ => return Err(wrong(at)),
            };
            if name.is_empty() || name.len() > limits::NAME_BYTES {
                return Err(wrong(at));
            }
            books.entries.push(Entry { spent, ..Entry::new(subject) });
        }
        // Two of the same name cannot both be right, and only one would be found.
        let mut names: Vec<(bool, &str)> = Vec::with_capacity(books.entries.len());
        for name in books.entries.iter().map(|entry| (entry.is_key, entry.name.as_str())) {
            match names.binary_search(&name) {
                Ok(_) => return Err("names somebody twice".to_owned()),
                Err(at) => names.insert(at, name),
            }
        }
        if utc.is_some_and(|utc| day.is_some_and(|day| day != utc / DAY_SECS)) {
            books.entries.clear();
        }
        books.turn_to(utc);
        books.changed = false;
        Ok(books)
    }
}

/// Digits only: no sign, no space.
fn number(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

impl Exhausted {
    /// In words; completes "`cloud` …" or "key `laptop` …".
    #[must_use]
    pub fn in_words(self) -> String {
        let limit = self.limit;
        let budget = match self.what {
            What::Requests => format!("{limit} requests a minute"),
            What::Tokens => format!("{limit} tokens a minute"),
            What::Money => format!("{} a day", in_money(limit)),
        };
        match (self.what, self.again) {
            _ if limit == 0 => format!("has a budget of {budget}"),
            _ if self.held => {
                format!("has set all that is left of its {budget} aside for requests under way")
            }
            (What::Money, Some(_)) => format!("has used its {budget}; until midnight UTC"),
            (What::Money, None) => format!("has used its {budget}; until this box's clock is set"),
            (_, Some(again)) => format!("has used its {budget}; again in {} s", whole_seconds(again)),
            (_, None) => format!("has used its {budget}"),
        }
    }
}

/// Rounded up, for a `Retry-After`: a second too early is refused again.
fn whole_seconds(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}

/// An amount as people write it: two decimals, and as many more as it has.
#[must_use]
pub fn in_money(amount: Micros) -> String {
    let (whole, rest) = (amount / 1_000_000, format!("{:06}", amount % 1_000_000));
    let (cents, finer) = rest.split_at(2);
    format!("{whole}.{cents}{}", finer.trim_end_matches('0'))
}
