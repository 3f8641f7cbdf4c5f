//! The operators' endpoints: status, metrics, recent events, cancel.

use std::rc::Rc;
use std::time::{Duration, Instant};

use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use serde::{Deserialize, Serialize};

use super::auth::Client;
use super::cancel::Cancelled;
use super::gateway::Gateway;
use super::outlet::ClientBody;
use super::server::{json, text};
use crate::cause::Cause;
use crate::dialect::reply::Problem;
use crate::limits;
use crate::observe;
use crate::time::now;

type Answer = Response<ClientBody>;

/// What `/edgeward/status` says and `edgeward status` shows.
#[derive(Debug, Serialize, Deserialize)]
pub struct Status {
    /// edgeward's version.
    pub version: String,
    /// Seconds since it began to serve.
    pub uptime_secs: u64,
    /// Whether it is stopping.
    pub draining: bool,
    /// This box's clock shows a time before this program was built.
    #[serde(default)]
    pub clock_wrong: bool,
    /// Client connections.
    pub connections: usize,
    /// Requests under way.
    pub requests: usize,
    /// The targets, in the configuration's order.
    pub targets: Vec<TargetStatus>,
}

/// One target, as an operator wants to see it.
#[derive(Debug, Serialize, Deserialize)]
pub struct TargetStatus {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: String,
    /// Its place.
    pub place: String,
    /// Its group.
    pub group: String,
    /// Where it is.
    pub url: String,
    /// Whether it is a candidate now.
    pub candidate: bool,
    /// Why, in words.
    pub reason: String,
    /// Attempts that committed.
    pub committed: u64,
    /// Attempts that failed by its fault.
    pub failed: u64,
    /// Attempts under way.
    pub in_flight: usize,
    /// Idle connections.
    pub idle_connections: usize,
}

/// Runs `answer` for operators.
///
/// # Errors
/// 403 for everyone else.
pub fn only(client: &Client, answer: impl FnOnce() -> Answer) -> Result<Answer, Problem> {
    if client.operator { Ok(answer()) } else { Err(forbidden()) }
}

/// The same for what changes something.
///
/// # Errors
/// 403 for everyone else, and from a browser's page: `DELETE` and a JSON body need a preflight from another origin; a
/// page of an allowed origin may not use them all the same.
pub(super) fn may_change(client: &Client, headers: &HeaderMap) -> Result<(), Problem> {
    if client.operator && !from_a_page(client, headers) { Ok(()) } else { Err(forbidden()) }
}

fn from_a_page(client: &Client, headers: &HeaderMap) -> bool {
    headers.contains_key(header::ORIGIN) && client.key.is_none()
}

fn forbidden() -> Problem {
    Problem::new(
        403,
        "operators_only",
        "this is for operators: ask from the box itself, on the admin socket, or with a key that has `operator = true`",
    )
}

/// The state of everything.
#[must_use]
pub fn status(gateway: &Gateway) -> Answer {
    let at = now();
    let targets =
        (0..gateway.config.targets.len()).map(|target| target_status(gateway, target, at)).collect();
    let status = Status {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        uptime_secs: gateway.process.started.elapsed().as_secs(),
        draining: gateway.process.draining.get(),
        clock_wrong: crate::time::is_wrong(crate::time::wall()),
        connections: gateway.process.connections.get(),
        requests: gateway.process.live.len(),
        targets,
    };
    json(serde_json::to_vec(&status).unwrap_or_default())
}

fn target_status(gateway: &Gateway, target: usize, at: Instant) -> TargetStatus {
    let health = gateway.store.borrow().target(target);
    let config = &gateway.config.targets[target];
    let (candidate, reason) = if health.absent {
        (false, "nothing answers there yet".to_owned())
    } else if let Some(until) = health.cooldown_until.filter(|until| *until > at) {
        (false, format!("rate limited for another {} s", (until - at).as_secs().max(1)))
    } else if let Some(why) = config.never_a_candidate() {
        (false, why.to_owned())
    } else if health.waiting_for_time.is_some() {
        (true, "waiting for this box's clock to be set: its certificate is not valid yet".to_owned())
    } else if health.refused_key.is_some() {
        (true, format!("misconfigured, tried last: {}", Cause::Unauthorized.in_words()))
    } else if let Some((model, _)) = health.missing.last() {
        let others = health.missing.len() - 1;
        let more = if others == 0 { String::new() } else { format!(" and {others} more") };
        let seen = last_seen(health.last_commit, health.last_failure, at);
        (true, format!("misconfigured for model `{model}`{more}, tried last for it; {seen}"))
    } else {
        (true, last_seen(health.last_commit, health.last_failure, at))
    };
    TargetStatus {
        name: config.name.clone(),
        kind: config.kind.as_str().to_owned(),
        place: config.place.as_str().to_owned(),
        group: config.group.clone(),
        url: config.url.to_string(),
        candidate,
        reason,
        committed: health.committed,
        failed: health.failed,
        in_flight: health.in_flight,
        idle_connections: gateway.upstreams.idle(target),
    }
}

/// Whether a target is asked at present.
pub(super) fn is_candidate(gateway: &Gateway, target: usize, at: Instant) -> bool {
    target_status(gateway, target, at).candidate
}

fn last_seen(commit: Option<Instant>, failure: Option<(Instant, Cause)>, at: Instant) -> String {
    let ago = |then: Instant| ago(at.saturating_duration_since(then));
    match (commit, failure) {
        (None, None) => "not used yet".to_owned(),
        (Some(commit), Some((failed, cause))) if failed > commit => {
            format!("last failed {} ago: {}; answered {} ago", ago(failed), cause.in_words(), ago(commit))
        }
        (None, Some((failed, cause))) => format!("last failed {} ago: {}", ago(failed), cause.in_words()),
        (Some(commit), _) => format!("answered {} ago", ago(commit)),
    }
}

fn ago(time: Duration) -> String {
    match time.as_secs() {
        secs @ 0..=119 => format!("{secs} s"),
        secs @ 120..=7199 => format!("{} min", secs / 60),
        secs => format!("{} h", secs / 3600),
    }
}

/// Prometheus metrics.
#[must_use]
pub fn metrics(gateway: &Gateway) -> Answer {
    let mut response = Response::new(ClientBody::whole(gateway.metrics.render(&gateway.gauges())));
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// The log's last lines, oldest first.
#[must_use]
pub fn events() -> Answer {
    let mut response = Response::new(ClientBody::whole(observe::recent_lines()));
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// Whether some target may answer: open to all, and says no more than that.
#[must_use]
pub fn ready(gateway: &Gateway) -> Answer {
    let at = now();
    let some = (0..gateway.config.targets.len()).any(|target| is_candidate(gateway, target, at));
    if some && !gateway.process.draining.get() {
        text(StatusCode::OK, "ready\n")
    } else {
        let mut response = text(StatusCode::SERVICE_UNAVAILABLE, "not ready\n");
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(limits::RETRY_AFTER_SECS));
        response
    }
}

/// `DELETE /edgeward/requests/{id}`.
///
/// # Errors
/// 403 from a browser's page, 404 when no such request runs or it is someone else's.
pub fn cancel(
    gateway: &Rc<Gateway>,
    client: &Client,
    headers: &HeaderMap,
    id: &str,
) -> Result<Answer, Problem> {
    if from_a_page(client, headers) {
        return Err(forbidden());
    }
    match gateway.process.live.cancel(id, client.key, client.operator) {
        Cancelled::Unknown => Err(Problem::new(
            404,
            "no_such_request",
            "no request with this id is running, or it is not yours",
        )),
        Cancelled::Yes => {
            cut_if_deaf(Rc::clone(gateway), id.to_owned());
            Ok(json(b"{\"cancelled\":true}".to_vec()))
        }
    }
}

/// A client that takes no bytes keeps its driver from running: its connection is cut, so that the target is
/// free. One that only does not take its last words has longer.
fn cut_if_deaf(gateway: Rc<Gateway>, id: String) {
    tokio::task::spawn_local(async move {
        tokio::time::sleep(limits::DEAF).await;
        gateway.process.live.cut_if_deaf(&id, Cause::Cancelled);
        tokio::time::sleep(limits::LAST_WORDS).await;
        gateway.process.live.stop_connections(Some(&id), Cause::Cancelled);
    });
}
