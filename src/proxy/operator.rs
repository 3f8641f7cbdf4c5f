//! The operators' endpoints: status, metrics, recent events, cancel.

use std::rc::Rc;
use std::time::Instant;

use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use serde::Serialize;

use super::auth::Client;
use super::cancel::Cancelled;
use super::gateway::Gateway;
use super::gpus::{self, GpuStatus};
use super::lately::{self, LatelyStatus};
use super::outlet::ClientBody;
use super::pressure;
use super::refused::Refused;
use super::server::{json, text};
use super::since::Since;
use super::standing::{self, TargetStatus};
use super::status_page;
use crate::cause::Cause;
use crate::config;
use crate::config::rollout::{Judge, Pick};
use crate::dialect::reply::Problem;
use crate::limits;
use crate::observe::{self, gpu_gauges, metrics, target_gauges};
use crate::route::drill::{Report, Stage};
use crate::task;
use crate::time::now;

type Answer = Response<ClientBody>;

/// What `/edgeward/status` says and `edgeward status` shows.
#[derive(Debug, Serialize)]
pub struct Status {
    /// edgeward's version.
    pub version: String,
    /// Seconds since it began to serve.
    pub uptime_secs: u64,
    /// Whether it is stopping.
    pub draining: bool,
    /// This box's clock shows a time before this program was built.
    pub clock_wrong: bool,
    /// Client connections.
    pub connections: usize,
    /// Requests under way.
    pub requests: usize,
    /// The file on disk, where it cannot be used; what was in use before still is.
    pub config_refused: Option<RefusedStatus>,
    /// A new routing that is being tried.
    pub rollout: Option<RolloutStatus>,
    /// A drill that is not over.
    pub drill: Option<Report>,
    /// Client keys whose prompts stay near, and how near.
    pub local_only: Vec<String>,
    /// What was asked lately and what became of it.
    pub lately: LatelyStatus,
    /// How memory stands; `None` while it is not watched.
    pub memory: Option<MemoryStatus>,
    /// What the helper sees of the GPUs; `None` where there is nothing to ask.
    pub gpu: Option<GpuStatus>,
    /// The targets, in the configuration's order.
    pub targets: Vec<TargetStatus>,
}

/// Since when the configuration on disk is refused, and why.
#[derive(Debug, Serialize)]
pub struct RefusedStatus {
    /// When the first reload was refused, by the wall clock in UTC.
    pub since: String,
    /// Seconds since then.
    pub since_secs: u64,
    /// The file.
    pub file: Option<String>,
    /// The line of the first mistake.
    pub line: Option<usize>,
    /// The first mistake.
    pub mistake: String,
    /// How many there are besides.
    pub more: usize,
}

/// How memory stands where it is worst.
#[derive(Debug, Serialize)]
pub struct MemoryStatus {
    /// `green`, `amber` or `red`.
    pub pressure: String,
    /// Why, in words.
    pub reason: String,
    /// The figures, in words.
    pub figures: String,
    /// Available, in bytes.
    pub available_bytes: u64,
}

/// A rollout in progress.
#[derive(Debug, Serialize)]
pub struct RolloutStatus {
    /// The new routing's share of the requests, in thousandths.
    pub share_permille: u16,
    /// Seconds since it began.
    pub since_secs: u64,
    /// Seconds after which it goes on to all.
    pub hold_secs: u64,
    /// Requests of the new routing below which it is not judged.
    pub min_samples: u32,
    /// The routing before.
    pub old: SideStatus,
    /// The new routing.
    pub new: SideStatus,
}

/// One side of a rollout.
#[derive(Debug, Serialize)]
pub struct SideStatus {
    /// Requests that ended.
    pub requests: u32,
    /// Of which got an answer after a failed attempt.
    pub rescued: u32,
    /// Of which failed.
    pub failed: u32,
    /// What 95 of 100 keep to their first token, in milliseconds.
    pub first_token_p95_ms: Option<u64>,
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

/// The state of everything: as JSON, or in words for who accepts plain text first. `?since=22:00`: what became of
/// requests since then.
#[must_use]
pub fn status<B>(gateway: &Gateway, request: &Request<B>) -> Answer {
    let at = now();
    let lately = match since_asked(request.uri().query()).and_then(|since| lately::status(gateway, since, at))
    {
        Ok(lately) => lately,
        Err(why) => return text(StatusCode::BAD_REQUEST, format!("since: {why}\n")),
    };
    let targets = (0..gateway.config.targets.len()).map(|target| standing::of(gateway, target, at)).collect();
    let drill = gateway.process.drills.borrow().report(at).filter(|drill| drill.stage != Stage::Over);
    let status = Status {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        uptime_secs: gateway.process.started.elapsed().as_secs(),
        draining: gateway.process.draining.get(),
        clock_wrong: crate::time::is_wrong(crate::time::wall()),
        connections: gateway.process.connections.get(),
        requests: gateway.process.live.len(),
        config_refused: gateway.process.refused.borrow().as_ref().map(|refused| refused_status(refused, at)),
        rollout: gateway.part.trial().map(|trial| rollout_status(&trial.judge(), at)),
        drill,
        local_only: standing::local_only(&gateway.config),
        lately,
        memory: gateway.process.memory.get().map(|decision| {
            let told = pressure::told(&decision);
            MemoryStatus {
                pressure: told.pressure.to_owned(),
                reason: told.reason.to_owned(),
                figures: told.in_words(),
                available_bytes: told.available,
            }
        }),
        gpu: gpus::status(&gateway.process),
        targets,
    };
    let accept = request.headers().get(header::ACCEPT).map(HeaderValue::as_bytes).unwrap_or_default();
    if accept.starts_with(b"text/plain") {
        return text(StatusCode::OK, status_page::render(&status));
    }
    json(serde_json::to_vec(&status).unwrap_or_default())
}

fn refused_status(refused: &Refused, at: Instant) -> RefusedStatus {
    let Refused { since, first, more } = refused;
    let ago = at.saturating_duration_since(*since);
    RefusedStatus {
        since: crate::time::wall().checked_sub(ago).map(observe::utc).unwrap_or_default(),
        since_secs: ago.as_secs(),
        file: first.file.as_ref().map(|file| file.display().to_string()),
        line: first.line,
        mistake: first.in_words(),
        more: *more,
    }
}

/// What `?since=…` says, if it is there.
fn since_asked(query: Option<&str>) -> Result<Option<Since>, String> {
    let members = || query.unwrap_or_default().split('&');
    let Some(text) = members().find_map(|member| member.strip_prefix("since=")) else { return Ok(None) };
    // What some clients write in a query's place.
    let text = text.replace("%3A", ":").replace("%3a", ":");
    Since::read(&text).map(Some).ok_or_else(|| "write 22:00, 8h or 2026-12-01T22:00".to_owned())
}

fn rollout_status(judge: &Judge, at: Instant) -> RolloutStatus {
    let side = |pick| {
        let side = judge.side(pick);
        SideStatus {
            requests: side.requests,
            rescued: side.rescued,
            failed: side.failed,
            first_token_p95_ms: side
                .first_token_p95()
                .map(|p95| u64::try_from(p95.as_millis()).unwrap_or(u64::MAX)),
        }
    };
    RolloutStatus {
        share_permille: judge.terms().share.0,
        since_secs: at.saturating_duration_since(judge.began()).as_secs(),
        hold_secs: judge.terms().hold.as_secs(),
        min_samples: judge.terms().min_samples,
        old: side(Pick::Old),
        new: side(Pick::New),
    }
}

/// Prometheus metrics.
#[must_use]
pub fn metrics(gateway: &Gateway) -> Answer {
    let page = gateway.metrics.render(&gateway.gauges())
        + &gpu_gauges::render(gpus::gauges(&gateway.process).as_ref())
        + &target_gauges::render(&standing::gauges(gateway, now()));
    let mut response = Response::new(ClientBody::whole(page));
    let kind = HeaderValue::from_static(metrics::CONTENT_TYPE);
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// The log's last lines, oldest first.
#[must_use]
pub fn events() -> Answer {
    text(StatusCode::OK, observe::recent_lines())
}

/// Every setting that is in use, a line each.
#[must_use]
pub fn config(gateway: &Gateway) -> Answer {
    text(StatusCode::OK, config::in_lines(&gateway.config))
}

/// Whether some target may answer: open to all, and says no more than that.
#[must_use]
pub fn ready(gateway: &Gateway) -> Answer {
    if can_answer(gateway) {
        text(StatusCode::OK, "ready\n")
    } else {
        not_now(text(StatusCode::OK, "not ready\n"))
    }
}

/// The same as model servers say it: llama.cpp in JSON, vLLM and SGLang by the status alone.
#[must_use]
pub fn server_health(gateway: &Gateway) -> Answer {
    if can_answer(gateway) {
        json(br#"{"status":"ok"}"#.to_vec())
    } else {
        not_now(json(br#"{"status":"unavailable"}"#.to_vec()))
    }
}

fn can_answer(gateway: &Gateway) -> bool {
    let at = now();
    let some = (0..gateway.config.targets.len()).any(|target| standing::is_candidate(gateway, target, at));
    some && !gateway.process.draining.get()
}

fn not_now(mut response: Answer) -> Answer {
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(limits::RETRY_AFTER_SECS));
    response
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
    task::start(async move {
        tokio::time::sleep(limits::DEAF).await;
        gateway.process.live.cut_if_deaf(&id, Cause::Cancelled);
        tokio::time::sleep(limits::LAST_WORDS).await;
        gateway.process.live.stop_connections(Some(&id), Cause::Cancelled);
    });
}
