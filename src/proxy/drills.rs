//! Drills: who begins and ends them, and which requests take part.

use std::time::{Duration, Instant};

use http::{Method, Request, Response};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use serde::{Deserialize, Serialize};

use super::auth::Client;
use super::gateway::Gateway;
use super::outlet::ClientBody;
use super::server::json;
use super::{head, operator, standing};
use crate::cause::{Cause, Failure};
use crate::config::{Egress, Permille, Place};
use crate::dialect::Dialect;
use crate::dialect::reply::Problem;
use crate::limits;
use crate::observe::{Outcome, operator_events};
use crate::route;
use crate::route::drill::{Amount, Drilled, Report, Saw};
use crate::time::now;

/// What `POST /edgeward/drill` takes: nothing but `{}` fails one request at the first local target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    /// Whose attempts fail; without it the first local target's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The next so many requests; 1 unless `share_permille` is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<u32>,
    /// A share of the requests, in thousandths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_permille: Option<u16>,
    /// For this long; with `share_permille` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_ms: Option<u64>,
    /// Also where nobody else can answer, so that clients see errors.
    #[serde(default)]
    pub yes: bool,
}

/// One request's part in a drill: asked for at its first attempt at the drill's target, whatever comes of it then.
#[derive(Debug, Default)]
pub struct Part {
    settled: bool,
    drilled: Option<Drilled>,
}

impl Part {
    /// Whether the attempt at `target` fails on purpose, and then its failure.
    pub fn asked(
        &mut self,
        gateway: &Gateway,
        target: usize,
        model: &str,
        prompt_tokens: u64,
    ) -> Option<Failure> {
        let mut drills = gateway.process.drills.borrow_mut();
        if !drills.is_running() || self.settled || drills.target() != Some(gateway.name(target)) {
            return None;
        }
        let at = now();
        let usual = || gateway.store.borrow().summary(target, model, prompt_tokens, at).first_token;
        self.settled = true;
        self.drilled = drills.take(gateway.name(target), usual, at);
        self.drilled.is_some().then(|| Failure::new(Cause::Drill))
    }

    /// Whether an attempt of this request failed on purpose.
    #[must_use]
    pub const fn has_failed(&self) -> bool {
        self.drilled.is_some()
    }

    /// The request is over, by `cause` if it did not go well; `committed`: who answered, and when its first token came.
    pub fn over(
        &mut self,
        gateway: &Gateway,
        outcome: Outcome,
        cause: Option<Cause>,
        committed: Option<(usize, Duration)>,
    ) {
        let Some(drilled) = self.drilled.take() else { return };
        let cause = cause.unwrap_or(Cause::Drill);
        let saw = match (outcome, committed) {
            (Outcome::Answered, Some((target, _))) => Saw::Answered(gateway.name(target)),
            // An empty answer, passed on as it was.
            (Outcome::Answered, None) => Saw::Failed(Cause::Empty),
            (Outcome::Broken, _) | (Outcome::Drained, Some(_)) => Saw::Broken(cause),
            (Outcome::Failed | Outcome::Unavailable, _) | (Outcome::Drained, None) => Saw::Failed(cause),
            (Outcome::Refused, _) => Saw::Refused,
            (Outcome::ClientGone | Outcome::Cancelled, _) => Saw::Gone,
        };
        let first = committed.map(|(_, first)| first);
        let over = gateway.process.drills.borrow_mut().end(drilled, saw, first, now());
        over.iter().for_each(tell);
    }
}

/// Ends a drill whose time is over; about once a second.
pub fn tick(gateway: &Gateway, now: Instant) {
    let over = gateway.process.drills.borrow_mut().tick(now);
    over.iter().for_each(tell);
}

fn tell(over: &Report) {
    operator_events::drill_ended(&over.target, over.drilled, &over.in_words);
}

/// `/edgeward/drill`: `GET` tells what is known of the last one, `POST` begins one, `DELETE` ends it.
///
/// # Errors
/// 403 for who is no operator; 404 where there was none; 400 and 409 where it cannot begin.
pub async fn answer(
    gateway: &Gateway,
    client: &Client,
    request: Request<Incoming>,
) -> Result<Response<ClientBody>, Problem> {
    operator::may_change(client, request.headers())?;
    let report = match *request.method() {
        Method::POST => {
            head::json_type(request.headers())?;
            begin(gateway, &wanted(gateway, request.into_body()).await?)?
        }
        Method::DELETE => {
            let (report, over) = gateway.process.drills.borrow_mut().stop(now()).ok_or_else(none)?;
            if over {
                tell(&report);
            }
            report
        }
        _ => gateway.process.drills.borrow().report(now()).ok_or_else(none)?,
    };
    Ok(json(serde_json::to_vec(&report).unwrap_or_default()))
}

fn none() -> Problem {
    Problem::new(
        404,
        "no_drill",
        "there was no drill since edgeward was started; `edgeward drill` begins one",
    )
}

async fn wanted(gateway: &Gateway, body: Incoming) -> Result<Wanted, Problem> {
    let bad = |what: String| Problem::new(400, "invalid_drill", what);
    let read = Limited::new(body, limits::DRILL_BODY_BYTES).collect();
    let read = tokio::time::timeout(gateway.config.limits.body_time, read).await;
    let body = read.map_err(|_| bad("the body was not complete in time".to_owned()))?;
    let body = body.map_err(|error| bad(format!("the body could not be read: {error}")))?.to_bytes();
    // Flat, and far too short to nest deep: no depth to check.
    serde_json::from_slice(&body).map_err(|error| bad(format!("this is no drill: {error}")))
}

fn begin(gateway: &Gateway, wanted: &Wanted) -> Result<Report, Problem> {
    let bad = |what: String| Problem::new(400, "invalid_drill", what);
    let amount = match (wanted.requests, wanted.share_permille, wanted.for_ms) {
        (requests, None, None) => Amount::Requests(requests.unwrap_or(1)),
        (None, Some(share), Some(ms)) => Amount::Share(Permille(share), Duration::from_millis(ms)),
        _ => return Err(bad("a drill has a number of requests, or a share and a time".to_owned())),
    };
    amount.check().map_err(bad)?;
    let target = find(gateway, wanted.target.as_deref())?;
    let name = gateway.name(target);
    let confirm = "confirm with --yes (\"yes\": true)";
    let standing = standing::of(gateway, target, now());
    if !wanted.yes && !standing.candidate {
        let why = standing.reason;
        let what =
            format!("`{name}` is not asked at present, so that nothing can fail there: {why}; {confirm}");
        return Err(Problem::new(409, "not_asked", what));
    }
    let stranded = (!wanted.yes).then(|| stranded(gateway, target)).flatten();
    if let Some(whose) = stranded {
        let what = format!(
            "no target but `{name}` can answer {whose} at present: clients would see errors; configure a fallback, or \
             {confirm}"
        );
        return Err(Problem::new(409, "no_fallback", what));
    }
    let begun = gateway.process.drills.borrow_mut().start(gateway.name(target), amount, now());
    let report = begun.map_err(|why| Problem::new(409, "drill_running", why))?;
    operator_events::drill_started(&report.target, &report.amount);
    Ok(report)
}

fn find(gateway: &Gateway, name: Option<&str>) -> Result<usize, Problem> {
    let targets = &gateway.config.targets;
    let found = match name {
        Some(name) => targets.iter().position(|target| target.name == name),
        None => targets.iter().position(|target| target.place == Place::Local),
    };
    found.ok_or_else(|| {
        let names: Vec<&str> = targets.iter().map(|target| target.name.as_str()).collect();
        let what = name.map_or_else(
            || "no target is local; name one".to_owned(),
            |name| format!("there is no target {name:?}"),
        );
        Problem::new(400, "no_such_target", format!("{what}: there are {}", names.join(", ")))
    })
}

/// Whose requests nobody else can answer for `target`, in words; a client's key may keep them near.
fn stranded(gateway: &Gateway, target: usize) -> Option<String> {
    if !has_fallback(gateway, target, Egress::Anywhere) {
        return Some("requests".to_owned());
    }
    let keys = gateway.config.keys.iter();
    let key = keys.into_iter().find(|key| !has_fallback(gateway, target, key.local_only))?;
    Some(format!("requests of the key `{}` (local_only)", key.name))
}

/// Whether somebody else can answer for `target` in some API at present, within `egress`.
fn has_fallback(gateway: &Gateway, target: usize, egress: Egress) -> bool {
    let targets = &gateway.config.targets;
    let Some(kind) = targets.get(target).map(|target| target.kind) else { return false };
    let apis = [Dialect::OpenaiChat, Dialect::OllamaChat, Dialect::Anthropic];
    let at = now();
    targets.iter().enumerate().any(|(other, config)| {
        let both = |api: &Dialect| route::speaks(kind, *api) && route::speaks(config.kind, *api);
        let may = other != target && egress.allows(config.place) && apis.iter().any(both);
        may && standing::is_candidate(gateway, other, at)
    })
}
