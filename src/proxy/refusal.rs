//! edgeward's own answers when no target gave one: status, words, and what to do next.

use std::fmt::Write as _;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, header};

use super::gateway::Gateway;
use super::standing;
use crate::cause::{Cause, Failure};
use crate::dialect::reply::Problem;
use crate::dialect::request::Call;
use crate::health::{Standing, Why};
use crate::limits;
use crate::observe::Outcome;
use crate::route::budget::Exhausted;
use crate::route::{Passed, Plan};
use crate::time::now;

/// All candidates failed, or the request was stopped: one error that names each target and cause.
#[must_use]
pub fn all_failed(gateway: &Gateway, plan: &Plan, failures: &[(usize, Failure)], cause: Cause) -> Problem {
    match cause {
        Cause::Cancelled => return Problem::new(499, "cancelled", "the request was cancelled"),
        Cause::Draining => return stopped(),
        _ => {}
    }
    let causes = || failures.iter().map(|(_, failure)| failure.cause);
    let timeout = |cause| {
        matches!(
            cause,
            Cause::TimeoutConnect
                | Cause::TimeoutFirstToken
                | Cause::TimeoutBetweenTokens
                | Cause::TimeoutAnswer
                | Cause::TimeoutLoad
                | Cause::TimeoutTotal
        )
    };
    let busy = |cause: Cause| {
        let passes =
            matches!(cause, Cause::Loading | Cause::Overloaded | Cause::RateLimited | Cause::Suspended);
        passes || cause.passes_over()
    };
    let short = |cause| matches!(cause, Cause::Exhausted | Cause::NoBuffer);
    let (status, code) = if cause == Cause::TimeoutTotal || causes().all(timeout) {
        (504, "deadline")
    } else if causes().all(|cause| cause == Cause::ModelMissing) {
        (404, "model_not_found")
    } else if causes().all(|cause| cause == Cause::Untranslatable) {
        (400, "untranslatable")
    } else if causes().all(|cause| cause.is_of_the_request() || cause == Cause::Untranslatable) {
        // Not 5xx, which clients try again: the same request would be refused again.
        (400, "unsupported")
    } else if causes().all(busy) {
        (503, "all_busy")
    } else if causes().all(|cause| cause == Cause::Clock) {
        (503, "waiting_for_time")
    } else if causes().all(short) {
        (503, "exhausted")
    } else {
        (502, "all_targets_failed")
    };
    let mut message = String::from("no target could answer:");
    for (at, (target, failure)) in failures.iter().enumerate() {
        let _infallible =
            write!(message, "{} {}: {failure}", if at == 0 { "" } else { ";" }, gateway.name(*target));
    }
    for (target, why) in &plan.passed {
        if why.is_told() {
            let _infallible =
                write!(message, "; {} {}", gateway.name(*target), passed(gateway, *target, *why));
        }
    }
    Problem::new(status, code, message)
}

/// Why `target` was passed over; completes its name.
fn passed(gateway: &Gateway, target: usize, why: Passed) -> String {
    match why {
        Passed::Health(Why::Absent) => {
            format!("was not found on its port: {}", standing::absent(gateway, target))
        }
        why => why.in_words(),
    }
}

/// Nobody was there to try.
#[must_use]
pub fn no_candidate(gateway: &Gateway, plan: &Plan, call: &Call) -> Problem {
    let waiting = plan.passed.iter().any(|(_, why)| why.passes());
    let model = plan.passed.iter().any(|(_, why)| *why == Passed::Model);
    let (status, code) = match (waiting, model) {
        (true, _) => (503, "none_available"),
        (false, true) => (404, "model_not_found"),
        (false, false) if gateway.config.targets.is_empty() => (503, "no_targets"),
        (false, false) => (501, "not_supported"),
    };
    let mut message = if call.model.is_empty() {
        "no target can serve this API:".to_owned()
    } else {
        format!("no target can serve model `{}` through this API:", call.model)
    };
    if plan.passed.is_empty() {
        message.push_str(" none is configured; add a [[target]], or start a local model server");
    }
    for (at, (target, why)) in plan.passed.iter().enumerate() {
        let separator = if at == 0 { "" } else { ";" };
        let _infallible =
            write!(message, "{separator} {} {}", gateway.name(*target), passed(gateway, *target, *why));
    }
    Problem::new(status, code, message)
}

/// How a request ended that came to no attempt: what may pass is this box's doing, all else the client's.
#[must_use]
pub const fn outcome(problem: &Problem) -> Outcome {
    if problem.status == 503 { Outcome::Unavailable } else { Outcome::Refused }
}

/// When to try again, where rate limits and rests alone are in the way: as soon as the first of them ends.
#[must_use]
pub fn retry_after(
    gateway: &Gateway,
    plan: &Plan,
    model: &str,
    failures: &[(usize, Failure)],
) -> Option<Duration> {
    let passes = |cause: Cause| matches!(cause, Cause::RateLimited | Cause::Suspended) || cause.passes_over();
    if failures.iter().any(|(_, failure)| !passes(failure.cause)) {
        return None;
    }
    let at = now();
    let store = gateway.store.borrow();
    let met = failures.iter().filter_map(|(target, _)| match store.summary(*target, model, 0, at).standing {
        Standing::Out(why) => why.left(),
        _ => None,
    });
    met.chain(plan.retry_after()).min()
}

/// The client's key has used up a budget.
#[must_use]
pub fn over_budget(client: Option<&str>, exhausted: &Exhausted) -> Problem {
    let message = format!("key `{}` {}", client.unwrap_or("?"), exhausted.in_words());
    Problem::new(429, "budget_exhausted", message)
}

/// Nobody else can serve it, and it got no place there in `time`.
#[must_use]
pub fn no_place(gateway: &Gateway, target: usize, time: Duration) -> Problem {
    let (name, queue) = (gateway.name(target), &gateway.config.queue);
    Problem::new(
        503,
        "queue_full",
        format!(
            "{name} {}, and no place was free within {} s for one of {} that may wait; try again shortly, or raise \
             max_concurrent or [queue]",
            Passed::Full.in_words(),
            (time.as_secs_f32() * 10.0).round() / 10.0,
            queue.length
        ),
    )
}

/// A committed stream broke.
#[must_use]
pub fn broken(target: &str, failure: &Failure) -> Problem {
    let status = match failure.cause {
        Cause::Draining => 503,
        Cause::Cancelled => 499,
        Cause::TimeoutBetweenTokens => 504,
        _ => 502,
    };
    Problem::new(status, failure.cause.as_str(), format!("the answer broke off: {target}: {failure}"))
}

/// edgeward is stopping.
#[must_use]
pub fn stopped() -> Problem {
    Problem::new(503, "stopping", "edgeward is stopping; try again shortly")
}

/// All gate buffers are in use.
#[must_use]
pub fn no_gate_buffer(gateway: &Gateway) -> Problem {
    Problem::new(
        503,
        "gated_streams",
        format!(
            "{} streams are waiting for their first token already; try again shortly, or raise limits.gated_streams",
            gateway.config.limits.gated_streams
        ),
    )
}

/// The header fields of a problem: JSON, and Retry-After where trying again makes sense.
pub fn headers(problem: &Problem, cool_down: Option<Duration>, headers: &mut HeaderMap) {
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if problem.status == 401 {
        // RFC 9110 15.5.2: a 401 names its challenge.
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"edgeward\""));
    }
    if matches!(problem.status, 429 | 503) {
        let seconds = cool_down.map_or(limits::RETRY_AFTER_SECS, |left| {
            (left.as_secs() + u64::from(left.subsec_nanos() > 0)).max(1)
        });
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
}
