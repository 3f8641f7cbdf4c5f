//! What the driver tells the exchange, and what it is told to do.

use std::time::{Duration, Instant};

use crate::cause::Cause;
use crate::gate::Verdict;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// The plan is made.
    Start,
    /// A place at the candidate is waited for first, this long at most.
    Waits(Duration),
    /// It may be that it has to wait there, in a queue or for a model: then it is left, with this cause, unless its first
    /// token is there; without a time it is waited for as long as a load may take.
    Leaves(Option<Instant>, Cause),
    /// The connection stands.
    Connected,
    /// A reused connection was closed before it gave a response byte: nothing is known about the target.
    Stale,
    /// The attempt failed before it gave anything to judge.
    Failed(Cause),
    /// A response head that may become an answer: the gate takes over.
    Head,
    /// The engine reported that it got further with the prompt.
    Progress,
    /// What is known, to [`Action::AskWork`], of the target's work: whether it was seen to compute tokens lately.
    Works(bool),
    /// The target takes no request for a stream: it is asked for the whole answer.
    AsksWhole,
    /// A stream that is put together has its first token.
    Answering,
    /// The hedge that [`Action::Hedge`] asked for runs now. Nothing is told where it does not.
    Hedges(usize),
    /// The hedge has its first token.
    HedgeWon,
    /// The hedge failed; its target may have named a pause.
    HedgeFailed(Cause, Option<Duration>),
    /// The gate's verdict.
    Verdict(&'a Verdict),
    /// The target refused, and may have named a pause; [`Cause::ClientFault`] means that its answer belongs to the
    /// client.
    Rejected(Cause, Option<Duration>),
    /// What the retry budget says to [`Action::AskRetry`].
    MayRetry(bool),
    /// After the commit: something that is not a sign of life only was relayed. Before it: such a thing was put to an
    /// answer in the making.
    Moved {
        /// Content or thinking was among it.
        spoke: bool,
        /// A finish reason was seen, and nothing said after it: of several choices, each has its own.
        finished: bool,
        /// The protocol's end marker was seen by now. After a token it is an end, also without a finish reason:
        /// servers that send none exist (WIRE-CASES B47 to B53), and an error before it is an error all the same.
        done: bool,
    },
    /// After the commit: the body's clean end. `whole`: the transport's end is the answer's end.
    Ended {
        /// True for a body without a protocol of its own.
        whole: bool,
    },
    /// After the commit: the connection broke, or the stream says that it failed.
    Broke(Cause),
    /// After the commit: the stream carried an error event.
    ErrorEvent(Cause),
    /// `deadline()` has passed.
    Deadline,
    /// Stop now: the client is gone, an operator cancels, edgeward stops.
    Stop(Cause),
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Drop what is left of the last attempt, then open or reuse a connection to this candidate.
    Connect {
        /// Position in the plan.
        candidate: usize,
        /// Not from the pool.
        fresh: bool,
    },
    /// Draw one retry from the budget, and tell by [`Event::MayRetry`]. It is drawn only if it will be made.
    AskRetry,
    /// Drop what is left of the last attempt, then wait for the deadline.
    Pause,
    /// A deadline has passed; tell by [`Event::Works`] whether the target is seen to work all the same. What is under
    /// way goes on meanwhile.
    AskWork,
    /// Send the request.
    Send,
    /// Read on, judge or relay what comes.
    Read,
    /// Go on with what is under way.
    Wait,
    /// Show the client a sign of life.
    Beat,
    /// Ask this candidate, too, if a hedge may be had; go on with what is under way meanwhile.
    Hedge {
        /// Position in the plan.
        candidate: usize,
    },
    /// The hedge is out of time: drop it, and go on.
    DropHedge,
    /// Drop what is left of the last attempt: the hedge is the attempt from here on, wait for what comes of it.
    Adopt {
        /// Position in the plan.
        candidate: usize,
    },
    /// Out of time while gating: ask the gate what it makes of it, with this cause.
    Expire(Cause),
    /// Release the held bytes, then relay.
    Commit,
    /// The client gets the answer that the last attempt was refused with, unchanged.
    PassRejection,
    /// The client gets the kept empty answer, as it came.
    PassEmpty,
    /// The client gets one error for all that failed.
    Refuse(Cause),
    /// The answer is whole.
    EndClean,
    /// The answer broke: an error in the client's dialect, then an unclean end.
    EndBroken(Cause),
    /// Nobody is left to answer to.
    Abandon,
}

/// One failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tried {
    /// Position in the plan.
    pub candidate: usize,
    /// Why it failed.
    pub cause: Cause,
}
