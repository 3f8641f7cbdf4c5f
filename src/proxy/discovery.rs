//! Looks for local servers on their usual ports, at the start and from time to time, until they are there.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use http::{HeaderMap, Method, Request};
use tokio::task::JoinSet;

use super::gateway::Gateway;
use super::head;
use super::upstream::RequestBody;
use crate::config::{identify, probe_path};
use crate::limits;
use crate::observe::events;
use crate::task;

/// How long a port may take to say who it is.
const PATIENCE: Duration = Duration::from_millis(800);

/// Looks once at every discovered target that is not there yet. Returns how many are.
pub async fn look(gateway: &Rc<Gateway>) -> usize {
    let mut looking = JoinSet::new();
    let found = Rc::new(Cell::new(0));
    for (index, target) in gateway.config.targets.iter().enumerate() {
        if !target.discovered {
            continue;
        }
        if gateway.store.borrow().get(index).is_some_and(|health| !health.absent) {
            found.set(found.get() + 1);
            continue;
        }
        let (gateway, found) = (Rc::clone(gateway), Rc::clone(&found));
        task::start_in(&mut looking, async move {
            let there = tokio::time::timeout(PATIENCE, is_there(&gateway, index)).await;
            if !matches!(there, Ok(Some(true))) {
                return;
            }
            found.set(found.get() + 1);
            if gateway.store.borrow_mut().set_absent(index, false)
                && let Some(target) = gateway.config.targets.get(index)
            {
                events::target_found(&target.name, &target.url.to_string());
            }
        });
    }
    while looking.join_next().await.is_some() {}
    found.get()
}

/// Looks again and again while something is missing.
pub async fn keep_looking(gateway: Rc<Gateway>) {
    let wanted = gateway.config.targets.iter().filter(|target| target.discovered).count();
    while look(&gateway).await < wanted {
        tokio::time::sleep(limits::DISCOVERY_INTERVAL).await;
    }
}

async fn is_there(gateway: &Gateway, index: usize) -> Option<bool> {
    let target = gateway.config.targets.get(index)?;
    let path = probe_path(target.kind);
    let link = gateway.upstreams.connect(index, true).await.ok()?;
    let mut request = Request::builder().method(Method::GET).uri(path);
    head::to_upstream(request.headers_mut()?, &HeaderMap::new(), target, &HeaderMap::new());
    let mut reply = link.send(request.body(RequestBody::empty()).ok()?).await.ok()?;
    let mut body = Vec::new();
    while let Some(chunk) = reply.chunk().await {
        body.extend_from_slice(&chunk.ok()?);
        if body.len() > limits::CLIENT_FAULT_BODY_BYTES {
            return None;
        }
    }
    crate::wire::json::profile(&body).ok()?;
    Some(identify(target.kind, path, reply.status.as_u16(), &body))
}
