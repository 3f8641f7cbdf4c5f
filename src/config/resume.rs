//! `on_break`, `[resume]` and `[repetition]`: what becomes of streams that break midway, or go round in circles.

use crate::limits;

/// What becomes of a stream whose target breaks after its first token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnBreak {
    /// The client gets an error in its dialect, and an unclean end.
    #[default]
    Error,
    /// It is told so within its stream, and gets the whole answer of the next target.
    Restart,
    /// The next target goes on with what was said; where that cannot be, an error.
    Continue,
    /// The same; where that cannot be, a restart.
    ContinueOrRestart,
}

impl OnBreak {
    /// Every one.
    pub const ALL: [OnBreak; 4] =
        [OnBreak::Error, OnBreak::Restart, OnBreak::Continue, OnBreak::ContinueOrRestart];

    /// As the file and the header write it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            OnBreak::Error => "error",
            OnBreak::Restart => "restart",
            OnBreak::Continue => "continue",
            OnBreak::ContinueOrRestart => "continue_or_restart",
        }
    }

    /// The next target may go on with what was said.
    #[must_use]
    pub const fn continues(self) -> bool {
        matches!(self, OnBreak::Continue | OnBreak::ContinueOrRestart)
    }

    /// The client understands that its answer begins anew.
    #[must_use]
    pub const fn restarts(self) -> bool {
        matches!(self, OnBreak::Restart | OnBreak::ContinueOrRestart)
    }
}

/// `[resume]`: bounds of what `on_break` does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resume {
    /// `by_header`: a client may ask for another `on_break`, for its own request.
    pub by_header: bool,
    /// `continue_max_tokens`: a prompt and what was said are together at most so long, in estimated tokens, where
    /// another target is to go on: it reads all of it once more.
    pub continue_max_tokens: u32,
}

impl Default for Resume {
    fn default() -> Self {
        Resume { by_header: true, continue_max_tokens: limits::CONTINUE_MAX_TOKENS }
    }
}

/// `[repetition]`: a stream that says the same again and again is ended as broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repetition {
    /// `enabled`.
    pub enabled: bool,
    /// `times`: the same piece so often in a row …
    pub times: u32,
    /// `bytes`: … and all of that so long.
    pub bytes: u32,
}

impl Default for Repetition {
    fn default() -> Self {
        Repetition { enabled: false, times: limits::REPETITION_TIMES, bytes: limits::REPETITION_BYTES }
    }
}
