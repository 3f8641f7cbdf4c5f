//! What becomes of streams that break midway: an event, and what is counted.

use std::cell::Cell;
use std::fmt::{self, Write as _};

use tracing::warn;

use super::metrics::{add, head};
use crate::cause::Cause;

/// `stream_resumed`: a stream that broke after its first token goes on at another target.
pub const STREAM_RESUMED: &str = "b7a9c1d05e3f4826927d64e1f08a35bc";

/// How a broken stream goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resumed {
    /// With the whole answer of another target.
    Restart,
    /// With what another target says after what was said.
    Continue,
}

impl Resumed {
    /// Both, in the order of the enum.
    pub const ALL: [Resumed; 2] = [Resumed::Restart, Resumed::Continue];

    /// The stable name, for logs and metric labels.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Resumed::Restart => "restart",
            Resumed::Continue => "continue",
        }
    }
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Came {
    /// Another target has taken over.
    Resumed,
    /// No other target did.
    Failed,
    /// It could not be tried: by what was asked or said, or since nobody was left.
    Barred,
}

impl Came {
    const ALL: [(Came, &str); 3] =
        [(Came::Resumed, "resumed"), (Came::Failed, "failed"), (Came::Barred, "barred")];
}

/// How often streams that broke were to go on, and what came of it.
#[derive(Debug, Default)]
pub(super) struct Breaks([[Cell<u64>; Came::ALL.len()]; Resumed::ALL.len()]);

impl Breaks {
    pub(super) fn count(&self, how: Resumed, came: Came) {
        if let Some(counter) = self.0.get(how as usize).and_then(|row| row.get(came as usize)) {
            add(counter, 1);
        }
    }

    pub(super) fn write(&self, out: &mut String) -> fmt::Result {
        const NAME: &str = "edgeward_broken_streams_total";
        head(
            out,
            NAME,
            "counter",
            "Streams that broke and were to go on elsewhere, by how and by what came of it.",
        )?;
        for (row, how) in self.0.iter().zip(Resumed::ALL) {
            for (counter, (_, came)) in row.iter().zip(Came::ALL) {
                writeln!(out, "{NAME}{{policy=\"{}\",outcome=\"{came}\"}} {}", how.as_str(), counter.get())?;
            }
        }
        Ok(())
    }
}

/// The stream of `request` broke at `from`, by `cause`, after so many characters, and goes on at `to`.
pub fn resumed(request: &str, from: &str, to: &str, how: Resumed, after: u64, cause: Cause) {
    warn!(
        message_id = STREAM_RESUMED,
        edgeward_event = "stream_resumed",
        edgeward_request = request,
        edgeward_from = from,
        edgeward_target = to,
        edgeward_how = how.as_str(),
        edgeward_after = after,
        edgeward_cause = cause.as_str(),
        "the stream broke at `{from}` after {after} characters ({}) and goes on at `{to}`: {}",
        cause.in_words(),
        how.as_str()
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_are_in_order() {
        assert!(Resumed::ALL.into_iter().enumerate().all(|(n, how)| how as usize == n));
        assert!(Came::ALL.into_iter().enumerate().all(|(n, (came, _))| came as usize == n));
        let breaks = Breaks::default();
        breaks.count(Resumed::Continue, Came::Barred);
        let mut out = String::new();
        breaks.write(&mut out).unwrap();
        let line = "edgeward_broken_streams_total{policy=\"continue\",outcome=\"barred\"} 1\n";
        assert!(out.ends_with(line) && out.lines().count() == 8, "{out}");
    }
}
