//! Ollama's other endpoints: passed to the first Ollama target that answers, and back as they come.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};

use super::account::Account;
use super::clock::{Clock, First};
use super::drive::Job;
use super::head;
use super::outlet::Head;
use super::refusal;
use super::upstream::{Reply, RequestBody};
use crate::cause::{Cause, Failure};
use crate::config::Target;
use crate::dialect;
use crate::dialect::reply::Problem;
use crate::dialect::request::Changes;
use crate::limits;
use crate::observe::Outcome;
use crate::route::{self, Candidate, Plan};
use crate::time::now;

/// Runs one such request to its end. Nothing is gated: there is no token to wait for.
pub async fn pass(job: Job) {
    let at = now();
    let mut account =
        Account::new(Rc::clone(&job.gateway), &job.id, job.client.clone(), &job.call, job.began)
            .without_places();
    let plan = job.plan(None, at).speaking(job.call.dialect);
    let mut clock = Clock::new(Rc::clone(&job.cancel), at);
    let stop = match clock.race(None, answer(&job, &plan, &mut account)).await {
        First::Stop(cause) => cause,
        First::Done(()) | First::Deadline => return,
    };
    // Its target's connection is closed: the future that held it is gone.
    let outcome = if stop == Cause::Draining { Outcome::Drained } else { Outcome::Cancelled };
    let problem = refusal::all_failed(&job.gateway, &plan, account.failures(), stop);
    let broke = account.committed_to().map(|target| (target, Failure::new(stop)));
    if broke.is_some() {
        account.end(outcome, broke);
        job.outlet.bytes(Bytes::from(problem.event(job.call.dialect)));
        let _late = tokio::time::timeout(limits::LAST_WORDS, job.outlet.written()).await;
        job.outlet.end_broken();
    } else {
        account.status(problem.status);
        account.end(outcome, None);
        refuse(&job, &problem, None);
    }
}

async fn answer(job: &Job, plan: &Plan, account: &mut Account) {
    let mut missing = None;
    // Who is busy has time for these.
    for candidate in plan.candidates.iter().chain(&plan.full) {
        let tried = match account.attempt_begins(candidate.target, candidate.last_resort) {
            Ok(()) => attempt(job, candidate).await,
            Err(failure) => Err(failure),
        };
        let (failure, wait) = match tried {
            Ok(reply) => match cause_of(reply.status) {
                None => return relay(job, candidate.target, reply, account).await,
                Some(cause) => {
                    let wait = head::retry_after(&reply.headers);
                    if cause == Cause::ModelMissing {
                        missing = Some((candidate.target, reply));
                    }
                    (Failure::new(cause), wait)
                }
            },
            Err(failure) => (failure, None),
        };
        account.attempt_failed(candidate.target, failure, wait);
    }
    if let Some((target, reply)) = missing {
        return relay(job, target, reply, account).await;
    }
    let (problem, outcome) = if account.failures().is_empty() {
        let problem = refusal::no_candidate(&job.gateway, plan, &job.call);
        let outcome = refusal::outcome(&problem);
        (problem, outcome)
    } else {
        let problem = refusal::all_failed(&job.gateway, plan, account.failures(), Cause::Refused);
        (problem, Outcome::Failed)
    };
    account.status(problem.status);
    account.end(outcome, None);
    let pause = refusal::retry_after(&job.gateway, plan, &job.call.model, account.failures());
    refuse(job, &problem, pause);
}

/// What a status says against its target; `None`: the answer is the client's.
fn cause_of(status: StatusCode) -> Option<Cause> {
    match status {
        StatusCode::NOT_FOUND => Some(Cause::ModelMissing),
        // It was given our key, not the client's.
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Some(Cause::Unauthorized),
        StatusCode::TOO_MANY_REQUESTS => Some(Cause::RateLimited),
        status if status.is_server_error() => Some(Cause::Http5xx),
        _ => None,
    }
}

fn refuse(job: &Job, problem: &Problem, pause: Option<Duration>) {
    let mut headers = HeaderMap::new();
    refusal::headers(problem, pause, &mut headers);
    let body = Bytes::from(problem.body(job.call.dialect));
    let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::BAD_GATEWAY);
    job.outlet.head(Head { status, headers, whole: Some(body) });
}

async fn attempt(job: &Job, candidate: &Candidate) -> Result<Reply, Failure> {
    let targets = &job.gateway.config.targets;
    let target = targets.get(candidate.target).ok_or(Failure::new(Cause::Internal))?;
    let connecting = async {
        let mut fresh = false;
        loop {
            let link = job.gateway.upstreams.connect(candidate.target, fresh).await?;
            match link.send(request(job, target, candidate)?).await {
                Err(super::upstream::SendError::Stale(_)) if !fresh => fresh = true,
                Err(error) => return Err(error.into_failure()),
                Ok(reply) => return Ok(reply),
            }
        }
    };
    let allowed = candidate.deadlines.connect + candidate.deadlines.first_token;
    tokio::time::timeout(allowed, connecting)
        .await
        .unwrap_or_else(|_| Err(Failure::new(Cause::TimeoutFirstToken)))
}

fn request(job: &Job, target: &Target, candidate: &Candidate) -> Result<Request<RequestBody>, Failure> {
    let changes = Changes {
        model: (!job.call.model.is_empty() && candidate.model != job.call.model).then_some(&candidate.model),
        ..Changes::default()
    };
    let path = route::joined_path(target, &job.path);
    let mut request = Request::builder().method(job.method.clone()).uri(path);
    if let Some(headers) = request.headers_mut() {
        head::to_upstream(headers, &job.headers, target, &job.credential);
    }
    let slices = dialect::request::apply(&job.body.bytes, job.call.edits(&changes));
    request.body(RequestBody::new(slices)).map_err(|e| Failure::with(Cause::Internal, &e.to_string()))
}

async fn relay(job: &Job, target: usize, mut reply: Reply, account: &mut Account) {
    let mut headers = head::to_client(&reply.headers);
    head::own(&mut headers, &job.id, Some(job.gateway.name(target)), "");
    account.passed(target, reply.status.is_success());
    account.status(reply.status.as_u16());
    job.outlet.head(Head { status: reply.status, headers, whole: None });
    loop {
        match tokio::time::timeout(limits::LOAD, reply.chunk()).await {
            Ok(Some(Ok(chunk))) => {
                account.sent(chunk.len());
                job.outlet.bytes(chunk);
                job.outlet.taken().await;
            }
            Ok(None) => {
                account.end(Outcome::Answered, None);
                return job.outlet.end_clean();
            }
            Ok(Some(Err(failure))) => {
                account.end(Outcome::Broken, Some((target, failure)));
                return job.outlet.end_broken();
            }
            Err(_) => {
                account.end(Outcome::Broken, Some((target, Failure::new(Cause::TimeoutBetweenTokens))));
                return job.outlet.end_broken();
            }
        }
    }
}
