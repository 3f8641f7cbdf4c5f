//! Where another target goes on with an answer: what it says twice is cut.
//!
//! A target that was given the answer's beginning as its own goes on with the next word, and what looks like a repetition
//! is one only from some length on. One that was asked in words to go on often begins with the last word or sentence once
//! more. The continuation's beginning is held back only while it may still turn out to be one: mostly for a word or two.

use std::time::Duration;

use super::Piece;
use crate::cause::{Cause, Failure};
use crate::limits::{SEAM_ANEW_BYTES, SEAM_BYTES, SEAM_REPEAT_BYTES, SEAM_TIME};

/// What the beginning of a continuation turns out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Join {
    /// More of it must come first.
    Hold,
    /// So many bytes of it were said before.
    Cut(usize),
    /// The answer begins from its beginning again.
    Anew,
}

/// How `held`, the beginning of a continuation, joins to what was `said`. `prefilled`: the target was given that as its
/// own words. `last`: nothing more is waited for.
#[must_use]
pub fn join(said: &str, held: &str, prefilled: bool, last: bool) -> Join {
    let last = last || held.len() >= SEAM_BYTES;
    let end = tail(said);
    // What is longer than what is held is not known yet.
    let may_grow = !held.is_empty()
        && end
            .match_indices(held)
            .any(|(at, _)| at + held.len() < end.len() && counts(end, at, end.len() - at, prefilled));
    let anew = held.len() < said.len() && said.starts_with(held);
    if !last && (held.is_empty() || may_grow || anew) {
        return Join::Hold;
    }
    let most = held.len().min(end.len());
    let cut = (1..=most).rev().find(|length| {
        let overlaps = held.get(..*length).is_some_and(|begin| end.ends_with(begin));
        overlaps && counts(end, end.len() - length, *length, prefilled)
    });
    match cut {
        None if anew && held.len() >= SEAM_ANEW_BYTES => Join::Anew,
        cut => Join::Cut(cut.unwrap_or(0)),
    }
}

/// As much of the end as a repetition is looked for in.
fn tail(said: &str) -> &str {
    let mut from = said.len().saturating_sub(SEAM_BYTES);
    while !said.is_char_boundary(from) {
        from += 1;
    }
    said.get(from..).unwrap_or_default()
}

/// Whether the `length` bytes at `at`, the end of what was said, are the same words if they come again. Blanks always
/// are: a target is not given those at the end.
fn counts(said: &str, at: usize, length: usize, prefilled: bool) -> bool {
    let (before, repeated) = said.split_at_checked(at).unwrap_or((said, ""));
    if repeated.trim().is_empty() || length >= SEAM_REPEAT_BYTES {
        return true;
    }
    let word = |c: char| c.is_alphanumeric();
    let begins = !repeated.starts_with(word) || !before.ends_with(word);
    !prefilled && begins && repeated.contains(word)
}

/// One seam, from the continuation's first piece to the stream's end.
#[derive(Debug)]
pub struct Seam {
    said: String,
    prefilled: bool,
    held: String,
    /// When its first words came, on the stream's own clock.
    since: Option<Duration>,
    joined: bool,
}

impl Seam {
    /// After this was said.
    #[must_use]
    pub fn new(said: &str, prefilled: bool) -> Self {
        Seam { said: said.to_owned(), prefilled, held: String::new(), since: None, joined: false }
    }

    /// What the client gets of these pieces. It thinks no more: that belongs before the words that it has.
    pub(super) fn pass(&mut self, pieces: &mut Vec<Piece>, clock: Duration) {
        for piece in std::mem::take(pieces) {
            match piece {
                Piece::Thinking(_) | Piece::Signature(_) | Piece::Redacted(_) => {}
                Piece::Text(text) if !self.joined => {
                    self.held.push_str(&text);
                    let since = *self.since.get_or_insert(clock);
                    self.settle(clock.saturating_sub(since) >= SEAM_TIME, pieces);
                }
                Piece::Start { .. }
                | Piece::Choice(_)
                | Piece::Usage(_)
                | Piece::Logprobs(_)
                | Piece::Text(_) => {
                    pieces.push(piece);
                }
                Piece::Refusal(_)
                | Piece::ToolStart { .. }
                | Piece::ToolArguments { .. }
                | Piece::ToolEnd { .. }
                | Piece::Finish(_)
                | Piece::Done
                | Piece::Error(_) => {
                    self.settle(true, pieces);
                    pieces.push(piece);
                }
            }
        }
    }

    fn settle(&mut self, last: bool, pieces: &mut Vec<Piece>) {
        if self.joined {
            return;
        }
        match join(&self.said, &self.held, self.prefilled, last) {
            Join::Hold => return,
            Join::Cut(length) => {
                let rest = self.held.get(length..).unwrap_or_default();
                if !rest.is_empty() {
                    pieces.push(Piece::Text(rest.to_owned()));
                }
            }
            Join::Anew => pieces.push(Piece::Error(Failure::with(
                Cause::Protocol,
                "the target began the answer anew instead of going on with it",
            ))),
        }
        (self.joined, self.said, self.held) = (true, String::new(), String::new());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn joined(said: &str, pieces: &[&str], prefilled: bool) -> String {
        let mut seam = Seam::new(said, prefilled);
        let mut all = said.to_owned();
        let texts = pieces.iter().map(|text| Piece::Text((*text).to_owned()));
        for piece in texts.chain([Piece::Done]) {
            let mut out = vec![piece];
            seam.pass(&mut out, Duration::ZERO);
            out.iter().for_each(|piece| {
                if let Piece::Text(text) = piece {
                    all.push_str(text)
                }
            });
        }
        all
    }

    #[test]
    fn what_is_said_twice_is_cut() {
        for prefilled in [false, true] {
            for (said, more, wanted) in [
                (
                    "The fox runs over the hill and",
                    &[" into", " the woods."][..],
                    "The fox runs over the hill and into the woods.",
                ),
                ("The fox runs ", &[" over"], "The fox runs over"),
                ("The fox runs.\n\n", &["\n", "\nThen"], "The fox runs.\n\nThen"),
                (
                    "He sat down by the river",
                    &["down by", " the river", " and slept"],
                    "He sat down by the river and slept",
                ),
                ("a wor", &["ld of"], "a world of"),
                ("größer als der Fluß", &[" am", " Ende"], "größer als der Fluß am Ende"),
                ("it was", &[""], "it was"),
            ] {
                assert_eq!(joined(said, more, prefilled), wanted, "{prefilled}");
            }
        }
    }

    #[test]
    fn a_short_repetition_is_one_only_after_a_request_in_words() {
        for (said, more, in_words, prefilled) in [
            ("The quick bro", &["bro", "wn fox"][..], "The quick brown fox", "The quick brobrown fox"),
            ("it was very", &[" very", " cold"], "it was very cold", "it was very very cold"),
            ("a bo", &["ok"], "a book", "a book"),
        ] {
            assert_eq!(joined(said, more, false), in_words);
            assert_eq!(joined(said, more, true), prefilled);
        }
    }

    #[test]
    fn it_is_held_only_while_it_may_be_a_repetition() {
        let said = "We met in the old house by the sea, and the wind was";
        assert_eq!(join(said, " cold", true, false), Join::Cut(0));
        assert_eq!(join(said, " the sea, and the", false, false), Join::Hold);
        assert_eq!(join(said, " the sea, and the moon", false, false), Join::Cut(0));
        let mut seam = Seam::new(said, false);
        let mut out = vec![Piece::Text(" and the wind".to_owned())];
        seam.pass(&mut out, Duration::from_secs(7));
        assert_eq!(out, []);
        out.push(Piece::Text(" was".to_owned()));
        seam.pass(&mut out, Duration::from_secs(7) + SEAM_TIME);
        assert_eq!(out, [], "all of it was said");
        out.push(Piece::Text(" cold".to_owned()));
        seam.pass(&mut out, Duration::from_secs(10));
        assert_eq!(out, [Piece::Text(" cold".to_owned())]);
    }

    #[test]
    fn an_answer_that_begins_anew_is_no_continuation() {
        let said = "Once upon a time there was a small town at the edge of a large forest, and nobody in it had ever been \
                    to the other side. One day a girl went to see, with a lamp and a loaf of bread, and the whole town \
                    came to the gate to watch her go. She walked for a day and a night before";
        assert_eq!(join(said, &said[..60], true, false), Join::Hold);
        assert_eq!(join(said, &said[..SEAM_BYTES], true, false), Join::Anew);
        assert_eq!(join(said, "Once", true, true), Join::Cut(0), "short, and it ends there");
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_nothing_is_made_up(
            said in "[ab \n]{0,300}", more in "[ab \n]{1,500}", prefilled: bool, cuts in proptest::collection::vec(1usize..20, 1..40),
        ) {
            let mut parts = Vec::new();
            let mut rest = more.as_str();
            for cut in cuts.into_iter().cycle() {
                let (part, after) = rest.split_at(cut.min(rest.len()));
                parts.push(part);
                rest = after;
                if rest.is_empty() { break; }
            }
            let mut seam = Seam::new(&said, prefilled);
            let mut given = String::new();
            let mut anew = false;
            for piece in parts.iter().map(|text| Piece::Text((*text).to_owned())).chain([Piece::Done]) {
                let mut out = vec![piece];
                seam.pass(&mut out, Duration::ZERO);
                for piece in out {
                    match piece {
                        Piece::Text(text) => given.push_str(&text),
                        Piece::Error(_) => anew = true,
                        _ => {}
                    }
                }
            }
            prop_assert!(anew || more.ends_with(&given));
            let cut = more.len().saturating_sub(given.len());
            prop_assert!(anew || said.ends_with(&more[..cut]), "only what stands at the end is cut");
        }

        #[test]
        fn a_long_repetition_is_always_cut(before in "[a-z ]{0,80}", twice in "[a-z]{20,60}", after in "[A-Z]{5,30}", prefilled: bool) {
            let said = format!("{before}|{twice}");
            let whole = joined(&said, &[&twice, &after], prefilled);
            prop_assert_eq!(whole, format!("{said}{after}"));
        }
    }
}
