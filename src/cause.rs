//! Why an attempt failed: what happened, whose fault it is, and what may be done next.

use std::fmt;

/// What ended an attempt without a good answer. Decided where it happens, never parsed from a
/// string later; [`Cause::as_str`] is the name in `x-edgeward-attempts`, logs and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cause {
    /// Nobody listens: connection refused, or a missing socket file.
    Refused,
    /// The name did not resolve, or there is no route.
    Unreachable,
    /// The connection was reset.
    Reset,
    /// The connection was closed in the middle of a message, or before one.
    Closed,
    /// The TLS handshake failed, certificate included.
    Tls,
    /// The target's certificate is not valid yet by this box's clock, which is what a clock that was not set looks like.
    Clock,
    /// No connection within `deadlines.connect`.
    TimeoutConnect,
    /// No first token within `deadlines.first_token`.
    TimeoutFirstToken,
    /// No bytes for `deadlines.between_tokens` after the commit.
    TimeoutBetweenTokens,
    /// No whole answer within `deadlines.answer`.
    TimeoutAnswer,
    /// `deadlines.total` passed before the commit.
    TimeoutTotal,
    /// `deadlines.load` passed while a model was loading.
    TimeoutLoad,
    /// An HTTP 5xx that nothing more precise is known about.
    Http5xx,
    /// The model server ran out of memory; by whose doing is not known.
    Oom,
    /// The kernel killed the model server, or its runner, to free memory.
    OomKill,
    /// The GPU had no memory left for it.
    CudaOom,
    /// The GPU reported a hardware fault: an Xid, whose number the event and the detail name.
    Xid,
    /// It says that it is well, and no token comes.
    Hang,
    /// The GPU's driver refused memory for a model although there is some: that model cannot be loaded there.
    LoadRefused,
    /// The model, or the server, is still loading.
    Loading,
    /// Busy: queue full, no slot.
    Overloaded,
    /// HTTP 429.
    RateLimited,
    /// The target does not have this model.
    ModelMissing,
    /// The target refused our key or our right: 401, 403, 402.
    Unauthorized,
    /// The prompt, or the prompt and the answer's limit, does not fit this target's context window.
    ContextOverflow,
    /// The target cannot serve this kind of request: 404/405/501 on the path, input or tools that it does not take.
    Unsupported,
    /// What is asked for cannot be said in the target's dialect: nothing was sent.
    Untranslatable,
    /// 408, 409, 425 or another status that is the target's own trouble.
    HttpStatus,
    /// The model server's process or engine died under the request.
    Crashed,
    /// An error inside a 200 that the classifier knows nothing more precise about.
    ErrorInStream,
    /// Not HTTP, not the promised content type, not JSON, not the promised framing.
    Protocol,
    /// A well-formed end without a token.
    Empty,
    /// The stream ended without a terminal event or a finish reason.
    Truncated,
    /// The stream says the same again and again: a model's collapse.
    Repetition,
    /// The gate's buffer was full before a token was seen.
    Overflow,
    /// edgeward does not ask this target at present: since the plan was made its breaker has opened, its trials are
    /// under way, or its last place was taken.
    Suspended,
    /// All its slots, or places, were taken for longer than `[elsewhere] after`: nothing was sent, or it was given up in
    /// the server's own queue.
    Busy,
    /// Its model was not loaded within `[elsewhere] after`.
    NotLoaded,
    /// Its box is short of memory for this request: nothing was sent.
    LowMemory,
    /// An operator's drill fails this attempt before anything is sent.
    Drill,
    /// Of two attempts beside each other the other one was first.
    Hedged,
    /// The client's own mistake: the answer goes back unchanged, nobody else is tried.
    ClientFault,
    /// The client went away.
    ClientGone,
    /// Cancelled by `DELETE /edgeward/requests/{id}`.
    Cancelled,
    /// edgeward is stopping.
    Draining,
    /// A limit of edgeward itself: no gate buffer, no room for the answer.
    NoBuffer,
    /// This process, or this box, has no file descriptor or no memory left for another connection.
    Exhausted,
    /// A fault in edgeward.
    Internal,
}

/// Whose fault a [`Cause`] is; only `Upstream` counts against a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The target's.
    Upstream,
    /// The client's.
    Downstream,
    /// edgeward's own, or its configuration's.
    Internal,
}

impl Cause {
    /// Every cause, in the order of the enum; for metrics and exhaustive tests.
    pub const ALL: [Cause; 48] = [
        Cause::Refused,
        Cause::Unreachable,
        Cause::Reset,
        Cause::Closed,
        Cause::Tls,
        Cause::Clock,
        Cause::TimeoutConnect,
        Cause::TimeoutFirstToken,
        Cause::TimeoutBetweenTokens,
        Cause::TimeoutAnswer,
        Cause::TimeoutTotal,
        Cause::TimeoutLoad,
        Cause::Http5xx,
        Cause::Oom,
        Cause::OomKill,
        Cause::CudaOom,
        Cause::Xid,
        Cause::Hang,
        Cause::LoadRefused,
        Cause::Loading,
        Cause::Overloaded,
        Cause::RateLimited,
        Cause::ModelMissing,
        Cause::Unauthorized,
        Cause::ContextOverflow,
        Cause::Unsupported,
        Cause::Untranslatable,
        Cause::HttpStatus,
        Cause::Crashed,
        Cause::ErrorInStream,
        Cause::Protocol,
        Cause::Empty,
        Cause::Truncated,
        Cause::Repetition,
        Cause::Overflow,
        Cause::Suspended,
        Cause::Busy,
        Cause::NotLoaded,
        Cause::LowMemory,
        Cause::Drill,
        Cause::Hedged,
        Cause::ClientFault,
        Cause::ClientGone,
        Cause::Cancelled,
        Cause::Draining,
        Cause::NoBuffer,
        Cause::Exhausted,
        Cause::Internal,
    ];

    /// The stable name, for headers, logs and metric labels.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Cause::Refused => "refused",
            Cause::Unreachable => "unreachable",
            Cause::Reset => "reset",
            Cause::Closed => "closed",
            Cause::Tls => "tls",
            Cause::Clock => "clock",
            Cause::TimeoutConnect => "timeout_connect",
            Cause::TimeoutFirstToken => "timeout_first_token",
            Cause::TimeoutBetweenTokens => "timeout_between_tokens",
            Cause::TimeoutAnswer => "timeout_answer",
            Cause::TimeoutTotal => "timeout_total",
            Cause::TimeoutLoad => "timeout_load",
            Cause::Http5xx => "http_5xx",
            Cause::Oom => "oom",
            Cause::OomKill => "oom_kill",
            Cause::CudaOom => "cuda_oom",
            Cause::Xid => "xid",
            Cause::Hang => "hang",
            Cause::LoadRefused => "load_refused",
            Cause::Loading => "loading",
            Cause::Overloaded => "overloaded",
            Cause::RateLimited => "rate_limited",
            Cause::ModelMissing => "model_missing",
            Cause::Unauthorized => "unauthorized",
            Cause::ContextOverflow => "context_overflow",
            Cause::Unsupported => "unsupported",
            Cause::Untranslatable => "untranslatable",
            Cause::HttpStatus => "http_status",
            Cause::Crashed => "crashed",
            Cause::ErrorInStream => "error_in_stream",
            Cause::Protocol => "protocol",
            Cause::Empty => "empty",
            Cause::Truncated => "truncated",
            Cause::Repetition => "repetition",
            Cause::Overflow => "overflow",
            Cause::Suspended => "suspended",
            Cause::Busy => "busy",
            Cause::NotLoaded => "not_loaded",
            Cause::LowMemory => "low_memory",
            Cause::Drill => "drill",
            Cause::Hedged => "hedged",
            Cause::ClientFault => "client_fault",
            Cause::ClientGone => "client_gone",
            Cause::Cancelled => "cancelled",
            Cause::Draining => "draining",
            Cause::NoBuffer => "no_buffer",
            Cause::Exhausted => "exhausted",
            Cause::Internal => "internal",
        }
    }

    /// What happened, in words for a person; completes "`box`: …".
    #[must_use]
    pub const fn in_words(self) -> &'static str {
        match self {
            Cause::Refused => "connection refused, nothing listens there",
            Cause::Unreachable => "name not found or no route",
            Cause::Reset => "connection reset",
            Cause::Closed => "connection closed before the answer was whole",
            Cause::Tls => "TLS handshake failed",
            Cause::Clock => "waiting for this box's clock to be set",
            Cause::TimeoutConnect => "no connection in time",
            Cause::TimeoutFirstToken => "no first token in time",
            Cause::TimeoutBetweenTokens => "the stream stalled",
            Cause::TimeoutAnswer => "no whole answer in time",
            Cause::TimeoutTotal => "the request's total time passed",
            Cause::TimeoutLoad => "the model did not load in time",
            Cause::Http5xx => "server error",
            Cause::Oom => "out of memory",
            Cause::OomKill => "the kernel killed the model server for its memory",
            Cause::CudaOom => "the GPU is out of memory",
            Cause::Xid => "the GPU reported a fault",
            Cause::Hang => "the model server says that it is well, and no token comes",
            Cause::LoadRefused => "the GPU's driver refused memory for the model although there is some",
            Cause::Loading => "still loading",
            Cause::Overloaded => "overloaded",
            Cause::RateLimited => "rate limited",
            Cause::ModelMissing => "does not have this model",
            Cause::Unauthorized => "refused our key",
            Cause::ContextOverflow => "the request exceeds its context window",
            Cause::Unsupported => "does not support this request",
            Cause::Untranslatable => "this request cannot be put in its dialect",
            Cause::HttpStatus => "unexpected status",
            Cause::Crashed => "the model server died",
            Cause::ErrorInStream => "sent an error instead of an answer",
            Cause::Protocol => "did not speak the protocol",
            Cause::Empty => "answered with nothing",
            Cause::Truncated => "the stream ended without an end",
            Cause::Repetition => "says the same again and again",
            Cause::Overflow => "sent too much before its first token",
            Cause::Suspended => "edgeward does not ask it at present",
            Cause::Busy => "was busy for longer than `[elsewhere] after`",
            Cause::NotLoaded => "its model was not loaded within `[elsewhere] after`",
            Cause::LowMemory => "its box is short of memory for this",
            Cause::Drill => "failed on purpose by a drill",
            Cause::Hedged => "another attempt was first",
            Cause::ClientFault => "refused the request as invalid",
            Cause::ClientGone => "the client went away",
            Cause::Cancelled => "cancelled",
            Cause::Draining => "edgeward is stopping",
            Cause::NoBuffer => "edgeward had no room for its answer",
            Cause::Exhausted => "no file descriptor or memory was left on this box",
            Cause::Internal => "internal error in edgeward",
        }
    }

    /// Whether the target refused this request alone, and would serve another one well.
    #[must_use]
    pub const fn is_of_the_request(self) -> bool {
        matches!(self, Cause::ContextOverflow | Cause::Unsupported)
    }

    /// Whether memory ran out, the box's or the GPU's.
    #[must_use]
    pub const fn is_oom(self) -> bool {
        matches!(self, Cause::Oom | Cause::OomKill | Cause::CudaOom)
    }

    /// Whether the target is well and another one was asked instead, for now: no failure of anybody's.
    #[must_use]
    pub const fn passes_over(self) -> bool {
        matches!(self, Cause::Busy | Cause::NotLoaded | Cause::LowMemory)
    }

    /// Whose fault it is.
    #[must_use]
    pub const fn fault(self) -> Fault {
        match self {
            Cause::ClientFault | Cause::ClientGone | Cause::Cancelled => Fault::Downstream,
            Cause::Draining
            | Cause::Untranslatable
            | Cause::Suspended
            | Cause::Busy
            | Cause::NotLoaded
            | Cause::LowMemory
            | Cause::Drill
            | Cause::Hedged
            | Cause::NoBuffer
            | Cause::Exhausted
            | Cause::Clock
            | Cause::Internal
            | Cause::TimeoutTotal => Fault::Internal,
            Cause::Refused
            | Cause::Unreachable
            | Cause::Reset
            | Cause::Closed
            | Cause::Tls
            | Cause::TimeoutConnect
            | Cause::TimeoutFirstToken
            | Cause::TimeoutBetweenTokens
            | Cause::TimeoutAnswer
            | Cause::TimeoutLoad
            | Cause::Http5xx
            | Cause::Oom
            | Cause::OomKill
            | Cause::CudaOom
            | Cause::Xid
            | Cause::Hang
            | Cause::LoadRefused
            | Cause::Loading
            | Cause::Overloaded
            | Cause::RateLimited
            | Cause::ModelMissing
            | Cause::Unauthorized
            | Cause::ContextOverflow
            | Cause::Unsupported
            | Cause::HttpStatus
            | Cause::Crashed
            | Cause::ErrorInStream
            | Cause::Protocol
            | Cause::Empty
            | Cause::Truncated
            | Cause::Repetition
            | Cause::Overflow => Fault::Upstream,
        }
    }

    /// Whether the same request at the same target, a little later, may well succeed: connect errors, timeouts, 5xx,
    /// 429 and what is like them. Only before the commit.
    #[must_use]
    pub const fn retryable(self) -> bool {
        match self {
            Cause::Refused
            | Cause::Unreachable
            | Cause::Reset
            | Cause::Closed
            | Cause::TimeoutConnect
            | Cause::Http5xx
            | Cause::Loading
            | Cause::Overloaded
            | Cause::RateLimited
            // A gateway's 5xx within its 200.
            | Cause::ErrorInStream
            // A connection closed in time that was not framed so that it shows.
            | Cause::Truncated => true,
            // The same request may do it again, to everybody who uses that server.
            Cause::Oom | Cause::OomKill | Cause::CudaOom | Cause::Crashed => false,
            // Needs longer than a request waits.
            Cause::Xid | Cause::Hang | Cause::LoadRefused => false,
            // Waited for long enough: the same server would compute the same prompt a second time.
            Cause::TimeoutFirstToken
            | Cause::TimeoutBetweenTokens
            | Cause::TimeoutAnswer
            | Cause::TimeoutTotal
            | Cause::TimeoutLoad => false,
            // Will be the same in a second.
            Cause::Tls
            | Cause::Clock
            | Cause::ModelMissing
            | Cause::Unauthorized
            | Cause::ContextOverflow
            | Cause::Unsupported
            | Cause::HttpStatus
            | Cause::Protocol
            | Cause::Empty
            | Cause::Repetition
            | Cause::Overflow => false,
            // Not the target's doing.
            Cause::Untranslatable
            | Cause::Suspended
            | Cause::Busy
            | Cause::NotLoaded
            | Cause::LowMemory
            | Cause::Drill
            | Cause::Hedged
            | Cause::ClientFault
            | Cause::ClientGone
            | Cause::Cancelled
            | Cause::Draining
            | Cause::NoBuffer
            | Cause::Exhausted
            | Cause::Internal => false,
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A failed attempt: its cause and, where the target said something, a bounded excerpt of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What happened.
    pub cause: Cause,
    /// The target's own words or an I/O error's text, cut to [`crate::limits::ERROR_TEXT_BYTES`],
    /// control characters removed. May be empty. A target may repeat a part of the prompt there; the key that it was
    /// sent is taken out before anybody reads it.
    pub detail: String,
}

impl Failure {
    /// A failure with nothing more to say than its cause.
    #[must_use]
    pub const fn new(cause: Cause) -> Self {
        Failure { cause, detail: String::new() }
    }

    /// A failure with the target's words, bounded and made printable.
    #[must_use]
    pub fn with(cause: Cause, detail: &str) -> Self {
        let mut text = String::new();
        for c in detail.chars() {
            if text.len() + c.len_utf8() > crate::limits::ERROR_TEXT_BYTES {
                break;
            }
            text.push(if c.is_control() { ' ' } else { c });
        }
        Failure { cause, detail: text }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.cause.in_words())?;
        if self.detail.is_empty() { Ok(()) } else { write!(f, " ({})", self.detail) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_and_words_are_distinct() {
        let names: HashSet<_> = Cause::ALL.iter().map(|c| c.as_str()).collect();
        let words: HashSet<_> = Cause::ALL.iter().map(|c| c.in_words()).collect();
        assert_eq!(names.len(), Cause::ALL.len());
        assert_eq!(words.len(), Cause::ALL.len());
    }

    #[test]
    fn a_retry_is_for_what_passes() {
        let retryable: Vec<_> = Cause::ALL.iter().filter(|c| c.retryable()).map(|c| c.as_str()).collect();
        assert_eq!(
            retryable,
            [
                "refused",
                "unreachable",
                "reset",
                "closed",
                "timeout_connect",
                "http_5xx",
                "loading",
                "overloaded",
                "rate_limited",
                "error_in_stream",
                "truncated",
            ]
        );
        assert!(Cause::ALL.iter().all(|c| !c.retryable() || c.fault() == Fault::Upstream));
    }

    #[test]
    fn details_are_bounded_and_printable() {
        let failure = Failure::with(Cause::Oom, &"a\nb\u{1b}[31m".repeat(200));
        assert!(failure.detail.len() <= crate::limits::ERROR_TEXT_BYTES);
        assert!(!failure.detail.chars().any(char::is_control));
    }
}
