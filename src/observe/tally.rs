//! What is counted for one target beside its attempts: turns of its health, retries, and what left the box to it.

use std::cell::Cell;
use std::fmt::{self, Write};

use super::kinds::Turned;
use super::metrics::{Label, add, head};

type Counter = Cell<u64>;

/// One target's.
#[derive(Debug, Default)]
pub(super) struct Tally {
    turned: [Counter; Turned::ALL.len()],
    retries: Counter,
    hedges: Counter,
    egress: Cell<Egress>,
    /// Of the day that it names, in days since 1970.
    today: Cell<(u64, Egress)>,
}

/// Prompts that left the box.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Egress {
    /// Requests that were sent, retries among them.
    pub requests: u64,
    /// Their prompts' tokens, as estimated.
    pub prompt_tokens: u64,
}

impl Egress {
    fn more(self, prompt_tokens: u64) -> Self {
        Egress {
            requests: self.requests.saturating_add(1),
            prompt_tokens: self.prompt_tokens.saturating_add(prompt_tokens),
        }
    }
}

impl Tally {
    pub fn turned(&self, what: Turned) {
        add(&self.turned[what as usize], 1);
    }

    pub fn retry(&self) {
        add(&self.retries, 1);
    }

    pub fn hedge(&self) {
        add(&self.hedges, 1);
    }

    pub fn left(&self, prompt_tokens: u64, day: u64) {
        self.egress.set(self.egress.get().more(prompt_tokens));
        self.today.set((day, self.egress_on(day).more(prompt_tokens)));
    }

    pub fn egress_on(&self, day: u64) -> Egress {
        let (of, egress) = self.today.get();
        if of == day { egress } else { Egress::default() }
    }
}

/// All targets' families.
pub(super) fn write<'a>(
    out: &mut String,
    all: impl Iterator<Item = (&'a str, &'a Tally)> + Clone,
) -> fmt::Result {
    const TURNS: &str = "edgeward_health_changes_total";
    head(out, TURNS, "counter", "Times that a target's health was judged anew, by what it became.")?;
    for (name, tally) in all.clone() {
        for what in Turned::ALL {
            let (name, change, count) = (Label(name), what.as_str(), tally.turned[what as usize].get());
            writeln!(out, "{TURNS}{{target=\"{name}\",change=\"{change}\"}} {count}")?;
        }
    }
    const RETRIES: &str = "edgeward_retries_total";
    head(out, RETRIES, "counter", "Attempts at a target that had failed on the same request before.")?;
    for (name, tally) in all.clone() {
        writeln!(out, "{RETRIES}{{target=\"{}\"}} {}", Label(name), tally.retries.get())?;
    }
    const HEDGES: &str = "edgeward_hedges_total";
    head(out, HEDGES, "counter", "Attempts at a target that began beside a slow one of the same request.")?;
    for (name, tally) in all.clone() {
        writeln!(out, "{HEDGES}{{target=\"{}\"}} {}", Label(name), tally.hedges.get())?;
    }
    const LEFT: &str = "edgeward_egress_requests_total";
    head(out, LEFT, "counter", "Requests that were sent off the box, by the target that they went to.")?;
    for (name, tally) in all.clone() {
        writeln!(out, "{LEFT}{{target=\"{}\"}} {}", Label(name), tally.egress.get().requests)?;
    }
    const TOKENS: &str = "edgeward_egress_prompt_tokens_total";
    head(out, TOKENS, "counter", "Tokens of their prompts, as estimated.")?;
    for (name, tally) in all {
        writeln!(out, "{TOKENS}{{target=\"{}\"}} {}", Label(name), tally.egress.get().prompt_tokens)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_forgets_the_one_before() {
        let tally = Tally::default();
        tally.left(100, 7);
        tally.left(20, 7);
        assert_eq!(tally.egress_on(7), Egress { requests: 2, prompt_tokens: 120 });
        assert_eq!(tally.egress_on(8), Egress::default());
        tally.left(3, 8);
        assert_eq!(tally.egress_on(8), Egress { requests: 1, prompt_tokens: 3 });
        assert_eq!(tally.egress.get(), Egress { requests: 3, prompt_tokens: 123 });
    }
}
