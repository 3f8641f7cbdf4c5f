//! Probes: cheap requests of our own, which ask whether a target answers at all. Never a user's request.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Instant;

use http::{HeaderMap, Method, Request, StatusCode};
use tokio::task::JoinSet;

use super::gateway::Gateway;
use super::upstream::{Link, Reply, RequestBody, SendError};
use super::{head, news};
use crate::cause::{Cause, Failure, Fault};
use crate::config::{Kind, Target};
use crate::health::probe::Schedule;
use crate::limits;
use crate::observe;
use crate::route;
use crate::task;
use crate::time::now;

/// Probes each target in its time, until edgeward stops. Dropping it ends those under way.
pub async fn keep_probing(gateway: Rc<Gateway>) {
    let targets = gateway.config.targets.iter();
    let mut schedule = Schedule::new(&gateway.config.health.probe, targets, gateway.random(), now());
    let mut probing = JoinSet::new();
    let done = Rc::new(RefCell::new(Vec::new()));
    while let Some(next) = schedule.next().or_else(|| (!probing.is_empty()).then(never)) {
        tokio::select! {
            Some(_) = probing.join_next() => {}
            () = tokio::time::sleep_until(next.into()) => {}
        }
        for target in done.take() {
            schedule.done(target, now());
        }
        if gateway.process.draining.get() {
            return;
        }
        while let Some(target) = schedule.due(now()) {
            let (gateway, done) = (Rc::clone(&gateway), Rc::clone(&done));
            task::start_in(&mut probing, async move {
                probe(&gateway, target).await;
                done.borrow_mut().push(target);
            });
        }
    }
}

/// All probes are under way: their ends come first.
fn never() -> Instant {
    now() + limits::PROBE_EVERY_CLOUD
}

/// One probe, told to the store and counted.
pub async fn probe(gateway: &Rc<Gateway>, target: usize) {
    let Some(config) = gateway.config.targets.get(target) else { return };
    let absent = gateway.store.borrow().get(target).is_some_and(|health| health.absent);
    if absent || config.never_a_candidate().is_some() {
        // Discovery looks for it; or nobody will ever ask it.
        return;
    }
    let asking = tokio::time::timeout(gateway.config.health.probe.timeout, ask(gateway, target, config));
    let result = asking.await.unwrap_or(Err(Failure::new(Cause::TimeoutConnect)));
    gateway.metrics.probe(target, result.is_ok());
    match &result {
        Ok(()) => gateway.store.borrow_mut().reached(target),
        Err(failure) if failure.cause == Cause::Clock => return gateway.waits_for_time(target, failure),
        // This box's trouble is not the target's.
        Err(failure) if failure.cause.fault() != Fault::Upstream => return,
        Err(failure) => observe::fine("probe failed", Some(&config.name), failure),
    }
    let told = gateway.store.borrow_mut().probed(target, result.map_err(|failure| failure.cause), now());
    news::say(gateway, &told);
}

async fn ask(gateway: &Gateway, target: usize, config: &Target) -> Result<(), Failure> {
    ask_at(gateway, target, config, path(config)).await?;
    if config.kind == Kind::Ollama && config.probe.path.is_none() {
        // Its version comes from a server whose scheduler hangs, too; what it has loaded does not.
        ask_at(gateway, target, config, route::joined_path(config, "/api/ps")).await?;
    }
    Ok(())
}

async fn ask_at(gateway: &Gateway, target: usize, config: &Target, path: String) -> Result<(), Failure> {
    let link = gateway.upstreams.connect_beside(target, false).await?;
    let reply = match link.send(request(config, &path)?).await {
        Ok(reply) => reply,
        Err(SendError::Stale(_)) => {
            let link: Link = gateway.upstreams.connect_beside(target, true).await?;
            link.send(request(config, &path)?).await.map_err(SendError::into_failure)?
        }
        Err(error) => return Err(error.into_failure()),
    };
    let verdict = judge(config, reply.status);
    read_to_end(reply).await;
    verdict
}

/// So that the server does not see its answer cut; what it says does not matter.
async fn read_to_end(mut reply: Reply) {
    let mut length = 0;
    while let Some(Ok(chunk)) = reply.chunk().await {
        length += chunk.len();
        if length > limits::CLIENT_FAULT_BODY_BYTES {
            return;
        }
    }
}

fn request(config: &Target, path: &str) -> Result<Request<RequestBody>, Failure> {
    let mut request = Request::builder().method(Method::GET).uri(path);
    if let Some(headers) = request.headers_mut() {
        head::to_upstream(headers, &HeaderMap::new(), config, &HeaderMap::new());
    }
    request.body(RequestBody::empty()).map_err(|error| Failure::with(Cause::Internal, &error.to_string()))
}

/// What costs the least to answer and still says that the server is up.
fn path(config: &Target) -> String {
    if let Some(path) = &config.probe.path {
        return path.clone();
    }
    let path = match config.kind {
        Kind::Ollama => "/api/version",
        Kind::Vllm | Kind::Llamacpp => "/health",
        Kind::Openai | Kind::Anthropic => "/v1/models",
        Kind::Gemini => "/v1beta/models",
    };
    route::joined_path(config, path)
}

/// A status that says that the target answers is good, whatever it thinks of the key or of so many requests; so is
/// one that only says that it lacks this endpoint, unless its operator named it.
fn judge(config: &Target, status: StatusCode) -> Result<(), Failure> {
    let named = config.probe.path.is_some();
    let cause = match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::TOO_MANY_REQUESTS => return Ok(()),
        status if status.is_success() => return Ok(()),
        // Python's http.server says 501 to a method that it lacks.
        status if !named && (status.is_client_error() || status == StatusCode::NOT_IMPLEMENTED) => {
            return Ok(());
        }
        StatusCode::SERVICE_UNAVAILABLE if config.kind == Kind::Llamacpp => Cause::Loading,
        status if status.is_server_error() => Cause::Http5xx,
        _ => Cause::HttpStatus,
    };
    Err(Failure::with(cause, status.as_str()))
}
