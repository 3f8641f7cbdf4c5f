//! How requests end and which limits there are: the bounded sets that logs and metrics label with.

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The client has its whole answer.
    Answered,
    /// The answer broke after its commit; the client was told so.
    Broken,
    /// Every candidate failed.
    Failed,
    /// Nobody could be tried: no candidate, or no room.
    Unavailable,
    /// The client's own fault: refused here, or by the target.
    Refused,
    /// The client went away.
    ClientGone,
    /// Cancelled by its id.
    Cancelled,
    /// Ended because edgeward was stopping.
    Drained,
}

impl Outcome {
    /// Every outcome, in the order of the enum.
    pub const ALL: [Outcome; 8] = [
        Outcome::Answered,
        Outcome::Broken,
        Outcome::Failed,
        Outcome::Unavailable,
        Outcome::Refused,
        Outcome::ClientGone,
        Outcome::Cancelled,
        Outcome::Drained,
    ];

    /// The stable name, for logs and metric labels.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Outcome::Answered => "answered",
            Outcome::Broken => "broken",
            Outcome::Failed => "failed",
            Outcome::Unavailable => "unavailable",
            Outcome::Refused => "refused",
            Outcome::ClientGone => "client_gone",
            Outcome::Cancelled => "cancelled",
            Outcome::Drained => "drained",
        }
    }

    /// Whether an operator should look: everything but answers and what clients do themselves.
    #[must_use]
    pub const fn is_trouble(self) -> bool {
        match self {
            Outcome::Broken | Outcome::Failed | Outcome::Unavailable | Outcome::Drained => true,
            Outcome::Answered | Outcome::Refused | Outcome::ClientGone | Outcome::Cancelled => false,
        }
    }
}

/// Why a request does not go to a target that is well: mostly a local server's memory keeps it away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shed {
    /// About to run out.
    Red,
    /// Low, and its model is not loaded.
    NotResident,
    /// Low, and it is not small.
    NotSmall,
    /// Its model, or its prompt, does not fit.
    TooLarge,
    /// It would throw out a model that is answering.
    Evicts,
    /// A model is being loaded.
    Loading,
    /// No slot, or place, is free.
    Busy,
    /// The cache for tokens is full.
    Tokens,
    /// Its model is not loaded.
    Cold,
}

impl Shed {
    /// Every one, in the order of the enum, with its stable name for metric labels.
    pub const ALL: [(&'static str, Shed); 9] = [
        ("red", Shed::Red),
        ("not_resident", Shed::NotResident),
        ("not_small", Shed::NotSmall),
        ("too_large", Shed::TooLarge),
        ("evicts", Shed::Evicts),
        ("loading", Shed::Loading),
        ("busy", Shed::Busy),
        ("tokens", Shed::Tokens),
        ("cold", Shed::Cold),
    ];
}

/// A limit that can be hit at run time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Limit {
    /// A request body is too large.
    MaxBody,
    /// No room for another body.
    BodyMemory,
    /// No gate buffer was free.
    GatedStreams,
    /// A stream's first bytes did not fit its gate buffer.
    GateBuffer,
    /// A whole answer was too large to be judged whole.
    AnswerBuffer,
    /// No room for another whole answer.
    AnswerMemory,
    /// Too many connections.
    Connections,
    /// Too many header fields.
    MaxHeaders,
    /// A request's head is too large.
    HeaderBytes,
    /// A request's head took too long.
    HeaderTime,
    /// A request's body took too long.
    BodyTime,
    /// A request took too long to its commit.
    RequestTime,
    /// A client took no byte for too long.
    WriteTime,
    /// Streams did not end in the time they had after SIGTERM.
    Drain,
    /// JSON is nested too deep.
    JsonDepth,
    /// No place at a target in time: its queue was full, or its wait over.
    Queue,
    /// A client key's budget is used up.
    KeyBudget,
}

impl Limit {
    /// Every limit, in the order of the enum.
    pub const ALL: [Limit; 17] = [
        Limit::MaxBody,
        Limit::BodyMemory,
        Limit::GatedStreams,
        Limit::GateBuffer,
        Limit::AnswerBuffer,
        Limit::AnswerMemory,
        Limit::Connections,
        Limit::MaxHeaders,
        Limit::HeaderBytes,
        Limit::HeaderTime,
        Limit::BodyTime,
        Limit::RequestTime,
        Limit::WriteTime,
        Limit::Drain,
        Limit::JsonDepth,
        Limit::Queue,
        Limit::KeyBudget,
    ];

    /// Whether clients meet it by going silent, as those do that fell asleep or lost their network: nothing that an
    /// operator could mend.
    #[must_use]
    pub const fn is_the_clients(self) -> bool {
        matches!(self, Limit::HeaderTime | Limit::BodyTime | Limit::WriteTime)
    }

    /// Its key in `[limits]`, if it has one there.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Limit::MaxBody => "max_body",
            Limit::BodyMemory => "body_memory",
            Limit::GatedStreams => "gated_streams",
            Limit::GateBuffer => "gate_buffer",
            Limit::AnswerBuffer => "answer_buffer",
            Limit::AnswerMemory => "answer_memory",
            Limit::Connections => "connections",
            Limit::MaxHeaders => "max_headers",
            Limit::HeaderBytes => "header_bytes",
            Limit::HeaderTime => "header_time",
            Limit::BodyTime => "body_time",
            Limit::RequestTime => "request_time",
            Limit::WriteTime => "write_time",
            Limit::Drain => "drain",
            Limit::JsonDepth => "json_depth",
            Limit::Queue => "queue",
            Limit::KeyBudget => "key_budget",
        }
    }
}

/// What a target's health has become: the bounded set of its changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Turned {
    /// Its breaker opened.
    Opened,
    /// Its breaker closed.
    Closed,
    /// It refused our key, or to know the model.
    Misconfigured,
    /// It gets a part of its weight.
    Degraded,
    /// It gets all of it again.
    Restored,
    /// It is too slow, and out.
    Ejected,
    /// It is fast enough again.
    Readmitted,
    /// Its probe failed repeatedly.
    ProbeDown,
    /// Its probe succeeds again.
    ProbeUp,
    /// Its process died.
    Died,
    /// It answers its probe, and no request gets a token.
    Hangs,
    /// It is back after that.
    Back,
    /// A model ran it out of memory twice.
    Banned,
    /// Its GPU has failed.
    Latched,
}

impl Turned {
    /// Every one, in the order of the enum.
    pub const ALL: [Turned; 14] = [
        Turned::Opened,
        Turned::Closed,
        Turned::Misconfigured,
        Turned::Degraded,
        Turned::Restored,
        Turned::Ejected,
        Turned::Readmitted,
        Turned::ProbeDown,
        Turned::ProbeUp,
        Turned::Died,
        Turned::Hangs,
        Turned::Back,
        Turned::Banned,
        Turned::Latched,
    ];

    /// The stable name, for metric labels: that of its event in the journal, without its subject.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Turned::Opened => "opened",
            Turned::Closed => "closed",
            Turned::Misconfigured => "misconfigured",
            Turned::Degraded => "degraded",
            Turned::Restored => "restored",
            Turned::Ejected => "ejected",
            Turned::Readmitted => "readmitted",
            Turned::ProbeDown => "probe_down",
            Turned::ProbeUp => "probe_up",
            Turned::Died => "died",
            Turned::Hangs => "hangs",
            Turned::Back => "back",
            Turned::Banned => "banned",
            Turned::Latched => "latched",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::cause::Cause;

    #[test]
    fn names_are_distinct_and_the_lists_complete() {
        let outcomes: HashSet<_> = Outcome::ALL.iter().map(|outcome| outcome.as_str()).collect();
        assert_eq!(outcomes.len(), Outcome::ALL.len());
        let limits: HashSet<_> = Limit::ALL.iter().map(|limit| limit.as_str()).collect();
        assert_eq!(limits.len(), Limit::ALL.len());
        let turned: HashSet<_> = Turned::ALL.iter().map(|turned| turned.as_str()).collect();
        assert_eq!(turned.len(), Turned::ALL.len());
        for (n, turned) in Turned::ALL.into_iter().enumerate() {
            assert_eq!(turned as usize, n);
        }
        for (n, outcome) in Outcome::ALL.into_iter().enumerate() {
            assert_eq!(outcome as usize, n);
        }
        for (n, limit) in Limit::ALL.into_iter().enumerate() {
            assert_eq!(limit as usize, n);
        }
        for (n, cause) in Cause::ALL.into_iter().enumerate() {
            assert_eq!(cause as usize, n);
        }
    }
}
