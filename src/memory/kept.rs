//! What outlives the process of what is usual: the marks of each axis, as a file keeps them.
//!
//! `edgeward-usual 1`, `board NAME`, a line `AXIS TOTAL KEY USED` for each mark, memory in KiB, and `end`, without which
//! the file was cut off. A box that changed (another board, more or less memory) lives at other levels: its old marks
//! are forgotten.

use super::predict::noise;
use super::sample::Axis;
use crate::limits::{MEMORY_MARKS, MEMORY_USUAL_BYTES};

/// The first line; the number is the format's.
const HEAD: &str = "edgeward-usual 1";

/// The most that was usual on an axis with a set of models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Where.
    pub axis: Axis,
    /// All memory there, in KiB.
    pub total: u32,
    /// Which models, as [`super::Event::Resident`] names them; 0: not known which.
    pub key: u64,
    /// The most that was usual, in KiB.
    pub used: u32,
}

/// All marks of a box.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept(pub(super) heapless::Vec<Mark, { MEMORY_MARKS * Axis::ALL.len() }>);

impl Kept {
    /// Each mark.
    pub fn marks(&self) -> impl Iterator<Item = &Mark> {
        self.0.iter()
    }

    /// Whether it is worth a write: others are there than in `written`, or one moved by more than noise.
    #[must_use]
    pub fn differs(&self, written: &Kept) -> bool {
        self.0.len() != written.0.len()
            || self.0.iter().any(|mark| {
                let same = |other: &&Mark| (other.axis, other.key) == (mark.axis, mark.key);
                let before = written.0.iter().find(same);
                before.is_none_or(|before| {
                    before.total != mark.total || before.used.abs_diff(mark.used) > noise(mark.total)
                })
            })
    }

    /// For a file. `board`: by its name.
    #[must_use]
    pub fn to_text(&self, board: &str) -> String {
        let mut text = format!("{HEAD}\nboard {board}\n");
        for Mark { axis, total, key, used } in &self.0 {
            text.push_str(&format!("{} {total} {key} {used}\n", axis.as_str()));
        }
        text + "end\n"
    }

    /// What [`Kept::to_text`] wrote; nothing of it on another board.
    ///
    /// # Errors
    /// What is wrong with it: nothing of it can be trusted.
    pub fn from_text(text: &str, board: &str) -> Result<Kept, &'static str> {
        if text.len() > MEMORY_USUAL_BYTES {
            return Err("it is too long");
        }
        let whole = text.strip_suffix("\nend\n").ok_or("it was cut off")?;
        let mut lines = whole.split('\n');
        if lines.next() != Some(HEAD) {
            return Err("it is not of this version");
        }
        let other = lines.next().and_then(|line| line.strip_prefix("board ")).ok_or("it names no board")?;
        let mut kept = Kept::default();
        for line in lines {
            let mark = read(line).ok_or("it has a line that edgeward did not write")?;
            kept.0.push(mark).map_err(|_| "it has more lines than edgeward writes")?;
        }
        Ok(if other == board { kept } else { Kept::default() })
    }
}

fn read(line: &str) -> Option<Mark> {
    let mut words = line.split(' ');
    let name = words.next()?;
    let axis = Axis::ALL.into_iter().find(|axis| axis.as_str() == name)?;
    let (total, key) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let used = words.next()?.parse().ok().filter(|used| (1..=total).contains(used))?;
    words.next().is_none().then_some(Mark { axis, total, key, used })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn mark(axis: Axis, total: u32, key: u64, used: u32) -> Mark {
        Mark { axis, total, key, used }
    }

    fn kept(marks: &[Mark]) -> Kept {
        Kept(marks.iter().copied().collect())
    }

    #[test]
    fn it_is_read_as_it_was_written_and_not_on_another_board() {
        let all = kept(&[
            mark(Axis::Host, 8_000_000, 0, 6_000_000),
            mark(Axis::Host, 8_000_000, u64::MAX, 7_000_000),
            mark(Axis::Group, 4_000_000, 0, 4_000_000),
        ]);
        let text = all.to_text("jetson-orin");
        assert!(text.contains("\nhost 8000000 18446744073709551615 7000000\n"), "{text}");
        assert_eq!(Kept::from_text(&text, "jetson-orin"), Ok(all));
        assert_eq!(Kept::from_text(&text, "generic"), Ok(Kept::default()));
        let full = kept(&[mark(Axis::Device, u32::MAX, u64::MAX, u32::MAX); MEMORY_MARKS * 3]);
        assert!(full.to_text("jetson-orin").len() <= MEMORY_USUAL_BYTES);
    }

    #[test]
    fn what_is_damaged_is_refused() {
        let good = kept(&[mark(Axis::Host, 8, 0, 6)]).to_text("b");
        assert!(Kept::from_text(&good, "b").is_ok());
        let bad = [
            String::new(),
            good.trim_end().to_owned(),
            good.replace(" 1\n", " 2\n"),
            good.replace("board b", "bored"),
            good.replace("host", "hose"),
            good.replace(" 6\n", " 9\n"),
            good.replace(" 6\n", " 0\n"),
            good.replace(" 6\n", " 6 6\n"),
            good.replace("host 8 0 6\n", &"host 8 0 6\n".repeat(MEMORY_MARKS * 3 + 1)),
            good.replace("host", &" ".repeat(MEMORY_USUAL_BYTES)),
        ];
        for bad in bad {
            assert!(Kept::from_text(&bad, "b").is_err(), "{bad:.200}");
        }
        for end in 0..good.len() {
            assert!(Kept::from_text(good.get(..end).unwrap(), "b").is_err(), "cut at {end}");
        }
    }

    #[test]
    fn only_what_moved_is_worth_a_write() {
        let before = kept(&[mark(Axis::Host, 8_000_000, 7, 6_000_000)]);
        let noise = noise(8_000_000);
        assert!(!before.differs(&before));
        assert!(!kept(&[mark(Axis::Host, 8_000_000, 7, 6_000_000 - noise)]).differs(&before));
        assert!(kept(&[mark(Axis::Host, 8_000_000, 7, 6_000_001 + noise)]).differs(&before));
        assert!(kept(&[mark(Axis::Host, 8_000_000, 8, 6_000_000)]).differs(&before));
        assert!(kept(&[mark(Axis::Host, 8_000_001, 7, 6_000_000)]).differs(&before));
        assert!(Kept::default().differs(&before));
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "(edgeward-usual 1\n)?(board b\n)?((host|cgroup|device)( [0-9]{0,22}){0,5}\n|\\PC{0,9}\n){0,4}(end\n)?") {
            let _read = Kept::from_text(&text, "b");
        }
    }
}
