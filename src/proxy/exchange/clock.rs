//! How long one attempt may take to its first token.

use std::time::{Duration, Instant};

use crate::cause::Cause;

/// The first-token deadline of one attempt. It is measured from the moment the request could be sent,
/// and only real progress moves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TokenClock {
    pub(super) until: Instant,
    pub(super) allowance: Duration,
    pub(super) cause: Cause,
}

impl TokenClock {
    /// Headers end the wait for a load, not the wait for a token.
    pub(super) fn after_head(self, now: Instant) -> TokenClock {
        if self.cause != Cause::TimeoutLoad {
            return self;
        }
        TokenClock { until: now + self.allowance, cause: Cause::TimeoutFirstToken, ..self }
    }

    /// The server got further with the prompt. No longer than `bound`.
    pub(super) fn extended(self, bound: Instant, now: Instant) -> TokenClock {
        // What waited for a slot, or for its model, has been begun.
        let cause = if self.cause.passes_over() { Cause::TimeoutFirstToken } else { self.cause };
        TokenClock { until: self.until.max((now + self.allowance).min(bound)), cause, ..self }
    }

    /// The server is seen to work: it has so much longer, up to `bound`.
    pub(super) fn works(self, between: Duration, bound: Instant, now: Instant) -> TokenClock {
        TokenClock { until: self.until.max((now + between).min(bound)), ..self }
    }
}
