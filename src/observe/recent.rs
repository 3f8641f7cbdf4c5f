//! The log's last lines, in a buffer that is taken at the start: for `edgeward support`, where nobody may read the
//! journal.

use std::collections::VecDeque;

use crate::limits;

/// Whole lines, the oldest first; at most [`limits::RECENT_LINES`] and [`limits::RECENT_BYTES`].
#[derive(Debug, Default)]
pub struct Recent {
    bytes: VecDeque<u8>,
    lines: usize,
}

impl Recent {
    /// None yet, and nothing allocated.
    pub const fn new() -> Self {
        Recent { bytes: VecDeque::new(), lines: 0 }
    }

    /// Takes all of its memory.
    pub fn reserve(&mut self) {
        self.bytes.reserve_exact(limits::RECENT_BYTES);
    }

    /// Keeps `line`, which ends with a newline; the oldest ones make room.
    pub fn push(&mut self, line: &[u8]) {
        if line.len() > limits::RECENT_BYTES {
            return;
        }
        while self.lines >= limits::RECENT_LINES || self.bytes.len() + line.len() > limits::RECENT_BYTES {
            let end = self.bytes.iter().position(|byte| *byte == b'\n');
            self.bytes.drain(..end.map_or(self.bytes.len(), |end| end + 1));
            self.lines = self.lines.saturating_sub(1);
        }
        self.bytes.extend(line);
        self.lines += 1;
    }

    /// All of them.
    pub fn text(&self) -> Vec<u8> {
        self.bytes.iter().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_kept_within_their_bounds() {
        let mut recent = Recent::new();
        recent.reserve();
        let room = recent.bytes.capacity();
        for n in 0..1000 {
            recent.push(format!("line {n}\n").as_bytes());
        }
        let text = String::from_utf8(recent.text()).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((lines.len(), lines[0], lines[255]), (256, "line 744", "line 999"));
        // Long ones: fewer.
        let long = format!("{}\n", "x".repeat(limits::LOG_LINE_BYTES - 1));
        for _ in 0..100 {
            recent.push(long.as_bytes());
        }
        let text = recent.text();
        assert_eq!(text.len(), limits::RECENT_BYTES);
        assert!(text.split(|byte| *byte == b'\n').all(|line| line.is_empty() || line.len() == 4095));
        assert_eq!(recent.bytes.capacity(), room, "it never grows");
        recent.push(&vec![b'x'; limits::RECENT_BYTES + 1]);
        assert_eq!(recent.text(), text, "one that cannot fit is left out");
    }
}
