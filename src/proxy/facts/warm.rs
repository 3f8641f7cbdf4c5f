//! Loads a model that requests wait for: one at a time at a server, by a request of edgeward's own, which goes on when they
//! go elsewhere: Ollama gives a load up whose client leaves.

use std::rc::Rc;
use std::time::Duration;

use http::{Method, StatusCode};

use super::Local;
use super::room::{self, Wants};
use crate::cause::{Cause, Failure};
use crate::config::Kind;
use crate::dialect::request::quote;
use crate::dialect::{self, Dialect};
use crate::limits;
use crate::memory::admit::Asked;
use crate::proxy::beside;
use crate::proxy::gateway::Gateway;
use crate::task;
use crate::time::now;

/// What becomes of a model that a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// It is being loaded, whatever becomes of the request.
    Begun,
    /// The request itself has to load it.
    ByTheRequest,
    /// It is not loaded now, and why, in words that complete "its model …".
    Not(&'static str),
}

/// Loads the model of a request at `target`, which its memory has room for and which takes `need` there, in KiB, unless
/// that is no time for it. It is given up after `within`.
pub fn start(
    gateway: &Rc<Gateway>,
    wants: &Wants,
    dialect: Dialect,
    target: usize,
    (need, within): (u32, Duration),
) -> Load {
    let (at, process) = (now(), &gateway.process);
    let Some(local) = room::local(gateway, target) else { return Load::ByTheRequest };
    let drills = process.drills.borrow();
    let asked = wants.asked(&gateway.config, target);
    if local.load.borrow().is_some() {
        return Load::Begun;
    }
    if local.server.borrow().lacks(asked.model, at) {
        return Load::Not("is not there");
    }
    if drills.is_running() && drills.target() == Some(gateway.name(target)) {
        return Load::Not("is not loaded during a drill");
    }
    if local.warm_again.get().is_some_and(|(again, _)| at < again) {
        return Load::Not("could not be loaded, which is tried again later");
    }
    if !gateway.config.memory.warm_up || local.kind != Kind::Ollama {
        return Load::ByTheRequest;
    }
    if process.draining.get() {
        return Load::Not("is not loaded while edgeward stops");
    }
    let (path, body) = empty_request(dialect, &asked);
    let number = local.load_begins(process, &asked, need, "edgeward, for the requests that wait for it", at);
    local.ask_now(&process.locals, at);
    let (gateway, local) = (Rc::clone(gateway), Rc::clone(local));
    task::start(async move {
        let said = ask(&gateway, target, path, body, within).await;
        ended(&gateway, target, &local, number, said);
    });
    Load::Begun
}

async fn ask(
    gateway: &Gateway,
    target: usize,
    path: &str,
    body: Vec<u8>,
    within: Duration,
) -> Result<(), Failure> {
    let asked = beside::ask(gateway, target, Method::POST, path, body);
    let late = |_| Err(Failure::new(Cause::TimeoutLoad));
    match tokio::time::timeout(within, asked).await.unwrap_or_else(late) {
        Ok((StatusCode::OK, _)) => Ok(()),
        Ok((status, said)) => {
            let cause = dialect::classify_status(status.as_u16(), &said);
            let text = crate::wire::json::readable(said.get(dialect::error_text(&said)).unwrap_or_default());
            Err(Failure::with(cause, &text))
        }
        Err(failure) => Err(failure),
    }
}

fn ended(gateway: &Gateway, target: usize, local: &Local, number: u64, result: Result<(), Failure>) {
    let at = now();
    let result = result.map_err(|mut failure| {
        if let Some(key) = gateway.config.targets.get(target).and_then(|target| target.key.as_ref()) {
            key.hide_in(&mut failure.detail);
        }
        (failure.cause.is_oom(), failure.to_string())
    });
    match &result {
        Ok(()) => local.warm_again.set(None),
        Err(_) => {
            let pause = local.warm_again.get().map_or(limits::WARM_UP_PAUSE, |(_, next)| next);
            let next = pause.saturating_mul(2).min(limits::WARM_UP_PAUSE_MAX);
            local.warm_again.set(Some((at + pause, next)));
        }
    }
    local.load_over(&gateway.process, Some(number), &result, at);
    local.ask_now(&gateway.process.locals, at);
}

/// What loads a model with Ollama and does nothing else: a prompt that is empty. With other options than those of the
/// requests to come it would be loaded again; how long it stays is the server's own choice.
fn empty_request(dialect: Dialect, asked: &Asked<'_>) -> (&'static str, Vec<u8>) {
    let mut body = [b"{\"model\":", quote(asked.model).as_slice()].concat();
    let options = asked.options;
    let numbers = [
        ("num_ctx", options.num_ctx.map(i64::from)),
        ("num_batch", options.num_batch.map(i64::from)),
        ("num_gpu", options.num_gpu.map(i64::from)),
    ];
    let numbers: Vec<String> =
        numbers.iter().filter_map(|(name, value)| Some(format!("\"{name}\":{}", (*value)?))).collect();
    if !numbers.is_empty() {
        body.extend_from_slice(format!(",\"options\":{{{}}}", numbers.join(",")).as_bytes());
    }
    let (path, prompt): (_, &[u8]) = match dialect {
        // A model that only embeds refuses to generate.
        Dialect::OpenaiEmbeddings | Dialect::OllamaEmbed => ("/api/embed", b",\"input\":\"\"}"),
        _ => ("/api/generate", b",\"prompt\":\"\",\"stream\":false}"),
    };
    body.extend_from_slice(prompt);
    (path, body)
}
