//! Whether a text has begun to repeat itself, as a small model's does when it collapses: fixed memory, byte by byte.

use crate::limits::{REPETITION_STEP_BYTES, REPETITION_WINDOW_BYTES};

/// From when on a text repeats itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The same piece stands at least so often in a row.
    pub times: u32,
    /// And all of that is at least so long, in bytes: a line of dashes is no collapse. At most
    /// [`REPETITION_WINDOW_BYTES`].
    pub bytes: u32,
}

/// What repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loop {
    /// The piece's length, in bytes.
    pub period: usize,
    /// How often it stands at the text's end, as far as the window shows.
    pub times: usize,
}

/// The end of one text, and where in it each period's repetition begins.
pub struct Repetition {
    terms: Terms,
    window: Box<[u8; REPETITION_WINDOW_BYTES]>,
    /// Bytes so far; the newest is before `window[len % WINDOW]`.
    len: u64,
    /// Not looked at yet.
    fresh: usize,
    /// Room for a look.
    last: Box<[u8; REPETITION_WINDOW_BYTES]>,
    same: Box<[u16; REPETITION_WINDOW_BYTES]>,
}

impl std::fmt::Debug for Repetition {
    /// Without the text.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Repetition")
            .field("terms", &self.terms)
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

impl Repetition {
    /// For one text.
    #[must_use]
    pub fn new(terms: Terms) -> Self {
        Repetition {
            terms,
            window: Box::new([0; REPETITION_WINDOW_BYTES]),
            len: 0,
            fresh: 0,
            last: Box::new([0; REPETITION_WINDOW_BYTES]),
            same: Box::new([0; REPETITION_WINDOW_BYTES]),
        }
    }

    /// More of the text. Looked at each [`REPETITION_STEP_BYTES`], in time that grows with the window alone.
    pub fn push(&mut self, text: &[u8]) -> Option<Loop> {
        for piece in text.chunks(REPETITION_STEP_BYTES) {
            for byte in piece {
                let at = usize::try_from(self.len % REPETITION_WINDOW_BYTES as u64).unwrap_or(0);
                if let Some(place) = self.window.get_mut(at) {
                    *place = *byte;
                }
                self.len += 1;
            }
            self.fresh += piece.len();
            if self.fresh >= REPETITION_STEP_BYTES {
                self.fresh = 0;
                if let Some(found) = self.look() {
                    return Some(found);
                }
            }
        }
        None
    }

    /// The shortest piece that repeats to the end often and long enough. Backwards from its end the text is compared
    /// with itself: the Z-function (Gusfield 1997, 1.3), linear in the window.
    fn look(&mut self) -> Option<Loop> {
        let full = self.len >= REPETITION_WINDOW_BYTES as u64;
        let n = if full { REPETITION_WINDOW_BYTES } else { usize::try_from(self.len).unwrap_or(0) };
        let newest = usize::try_from(self.len % REPETITION_WINDOW_BYTES as u64).unwrap_or(0);
        let last = self.last.get_mut(..n)?;
        for (back, place) in last.iter_mut().enumerate() {
            let at = (newest + REPETITION_WINDOW_BYTES - 1 - back) % REPETITION_WINDOW_BYTES;
            *place = *self.window.get(at)?;
        }
        let same = self.same.get_mut(..n)?;
        // `last[from..to]` is known to equal `last[..to - from]`.
        let (mut from, mut to) = (0, 0);
        for at in 1..n {
            let known = if at < to { usize::from(*same.get(at - from)?).min(to - at) } else { 0 };
            let more = last.get(at + known..)?.iter().zip(last.get(known..)?).take_while(|(a, b)| a == b);
            let length = known + more.count();
            *same.get_mut(at)? = u16::try_from(length).unwrap_or(u16::MAX);
            if at + length > to {
                (from, to) = (at, at + length);
            }
            let (whole, times) = (at + length, (at + length) / at);
            if times >= self.terms.times.max(2) as usize && whole >= self.terms.bytes as usize {
                return Some(Loop { period: at, times });
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TERMS: Terms = Terms { times: 8, bytes: 400 };

    fn found(text: &str) -> Option<Loop> {
        Repetition::new(TERMS).push(text.as_bytes())
    }

    const PROSE: &str = "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age \
        of foolishness, it was the epoch of belief, it was the epoch of incredulity, it was the season of Light, it was \
        the season of Darkness, it was the spring of hope, it was the winter of despair, we had everything before us, we \
        had nothing before us, we were all going direct to Heaven, we were all going direct the other way.";

    #[test]
    fn a_collapse_is_seen_and_prose_is_none() {
        assert_eq!(found(&PROSE.repeat(3)), None, "three times is no loop");
        let looped = found(&format!("{PROSE}{}", " and then".repeat(80))).unwrap();
        assert_eq!(looped.period, 9);
        assert!(found(&PROSE.repeat(9)).is_some_and(|found| found.period == PROSE.len()));
        assert_eq!(found(&"-".repeat(300)), None, "a line of dashes");
        assert!(found(&"\u{fffd}".repeat(300)).is_some());
        let table: String = (0..300).map(|n| format!("| {n} | {} |\n", n * 7)).collect();
        assert_eq!(found(&table), None);
    }

    proptest! {
        #[test]
        fn however_it_is_cut(piece in "[a-z ]{1,60}", before in "[a-z]{0,900}", cuts in proptest::collection::vec(1usize..90, 1..60)) {
            let text = format!("{before}|{}", piece.repeat(700 / piece.len() + 9));
            let (mut whole, mut cut) = (Repetition::new(TERMS), Repetition::new(TERMS));
            let mut rest = text.as_bytes();
            let mut seen = None;
            for length in cuts.into_iter().cycle() {
                let (now, later) = rest.split_at(length.min(rest.len()));
                seen = seen.or(cut.push(now));
                rest = later;
                if rest.is_empty() {
                    break;
                }
            }
            let at_once = whole.push(text.as_bytes());
            prop_assert!(at_once.is_some() && seen.is_some());
            prop_assert!(piece.len() % at_once.unwrap().period == 0);
        }

        #[test]
        fn what_is_found_is_there(text in "[ab]{0,3000}", times in 2u32..12, bytes in 1u32..600) {
            let mut seen = Repetition::new(Terms { times, bytes });
            for end in 1..=text.len() {
                if let Some(found) = seen.push(&text.as_bytes()[end - 1..end]) {
                    let tail = &text.as_bytes()[end - (found.period * found.times)..end];
                    prop_assert!(found.times >= times as usize);
                    prop_assert!(tail.chunks(found.period).all(|piece| piece == &tail[..found.period]));
                    break;
                }
            }
        }
    }
}
