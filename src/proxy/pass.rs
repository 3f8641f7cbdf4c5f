//! Ollama's other endpoints: passed to the first Ollama target that answers, and back as they come.

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};

use super::drive::Job;
use super::head;
use super::outlet::Head;
use super::refusal;
use super::upstream::{Reply, RequestBody};
use crate::cause::{Cause, Failure};
use crate::config::Target;
use crate::dialect;
use crate::dialect::request::Changes;
use crate::limits;
use crate::route::{self, Candidate};
use crate::time::now;

/// Runs one such request to its end. Nothing is gated: there is no token to wait for.
pub async fn pass(job: Job) {
    let plan = {
        let store = job.gateway.store.borrow();
        route::plan(&job.gateway.config, &store, &job.call, now())
    };
    let mut failures = Vec::new();
    let mut missing = None;
    for candidate in &plan.candidates {
        match attempt(&job, candidate).await {
            Ok(reply) if reply.status == StatusCode::NOT_FOUND => {
                failures.push((candidate.target, Failure::new(Cause::ModelMissing)));
                missing = Some((candidate.target, reply));
            }
            Ok(reply) if reply.status.is_server_error() => {
                failures.push((candidate.target, Failure::new(Cause::Http5xx)));
            }
            Ok(reply) => return relay(&job, candidate.target, reply).await,
            Err(failure) => {
                let _not_news =
                    job.gateway.store.borrow_mut().failed(candidate.target, failure.cause, None, now());
                failures.push((candidate.target, failure));
            }
        }
    }
    if let Some((target, reply)) = missing {
        return relay(&job, target, reply).await;
    }
    let problem = if plan.candidates.is_empty() {
        refusal::no_candidate(&job.gateway, &plan, &job.call)
    } else {
        refusal::all_failed(&job.gateway, &plan, &failures, Cause::Refused)
    };
    let mut headers = HeaderMap::new();
    refusal::headers(&problem, plan.retry_after(), &mut headers);
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

async fn relay(job: &Job, target: usize, mut reply: Reply) {
    let mut headers = head::to_client(&reply.headers);
    head::own(&mut headers, &job.id, Some(job.gateway.name(target)), "");
    job.outlet.head(Head { status: reply.status, headers, whole: None });
    loop {
        match tokio::time::timeout(limits::LOAD, reply.chunk()).await {
            Ok(Some(Ok(chunk))) => {
                job.outlet.bytes(chunk);
                job.outlet.taken().await;
            }
            Ok(None) => return job.outlet.end_clean(),
            Ok(Some(Err(_))) | Err(_) => return job.outlet.end_broken(),
        }
    }
}
