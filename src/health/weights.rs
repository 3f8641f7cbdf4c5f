//! What each cause counts for against its target.

use crate::cause::Cause;

/// The weight of a failure, in thousandths of a whole one ([`crate::limits::FAILURE_WEIGHT`]). 0: it says nothing
/// about the target's health, or has a rule of its own.
#[must_use]
pub const fn weight(cause: Cause) -> u16 {
    match cause {
        // Nobody can be served while it is so.
        Cause::Refused | Cause::Unreachable | Cause::Tls | Cause::TimeoutConnect => 1000,
        // The server, its engine or what is between broke under the request.
        Cause::Reset
        | Cause::Closed
        | Cause::Crashed
        | Cause::Oom
        | Cause::OomKill
        | Cause::CudaOom
        | Cause::Xid
        | Cause::Hang
        | Cause::LoadRefused
        | Cause::Http5xx
        | Cause::ErrorInStream => 1000,
        // What it said is no answer.
        Cause::Protocol | Cause::Truncated => 1000,
        // It was given all the time that its operator thinks right.
        Cause::TimeoutFirstToken
        | Cause::TimeoutBetweenTokens
        | Cause::TimeoutAnswer
        | Cause::TimeoutLoad => 1000,
        // It works, and refuses what is too much for it: while some of it is served it gets less, and only one
        // that refuses everything gets a rest.
        Cause::Overloaded => 500,
        // It will be ready by itself; until then asking is of no use.
        Cause::Loading => 500,
        // 408, 409, 425: mostly one request's trouble.
        Cause::HttpStatus => 250,
        // Too much before the first token, a text that goes round in circles: mostly one prompt's.
        Cause::Overflow | Cause::Repetition => 250,
        // A well-formed end is mostly the prompt's doing: never a rest, but a model that does it all the time
        // is asked less.
        Cause::Empty => 100,
        // A cool-down by its Retry-After.
        Cause::RateLimited => 0,
        // "Misconfigured", tried last, until it answers.
        Cause::Unauthorized | Cause::ModelMissing => 0,
        // It waits for this box's clock.
        Cause::Clock => 0,
        // What this request needs and the target lacks: others it serves well.
        Cause::ContextOverflow | Cause::Unsupported => 0,
        // Nothing was sent.
        Cause::Untranslatable => 0,
        // The client's.
        Cause::ClientFault | Cause::ClientGone | Cause::Cancelled => 0,
        // edgeward's own; `deadlines.total` is the whole request's, waits of ours included.
        Cause::TimeoutTotal
        | Cause::Draining
        | Cause::NoBuffer
        | Cause::Exhausted
        | Cause::Suspended
        | Cause::Busy
        | Cause::NotLoaded
        | Cause::LowMemory
        | Cause::Drill
        | Cause::Hedged
        | Cause::Internal => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cause::Fault;
    use crate::limits;

    #[test]
    fn only_what_is_the_targets_counts_against_it() {
        for cause in Cause::ALL {
            let own_rule = matches!(
                cause,
                Cause::RateLimited
                    | Cause::Unauthorized
                    | Cause::ModelMissing
                    | Cause::ContextOverflow
                    | Cause::Unsupported
            );
            let counts = cause.fault() == Fault::Upstream && !own_rule;
            assert_eq!(weight(cause) > 0, counts, "{cause}");
            assert!(weight(cause) <= limits::FAILURE_WEIGHT, "{cause}");
        }
    }

    #[test]
    fn empty_answers_alone_never_reach_a_breakers_rate() {
        assert!(weight(Cause::Empty) < limits::BREAKER_FAILURE_RATE);
        assert!(weight(Cause::Empty) > limits::DEGRADE_ABOVE, "but they cost weight");
        assert!(
            weight(Cause::Overloaded) >= limits::BREAKER_FAILURE_RATE,
            "one that refuses everything rests"
        );
    }
}
