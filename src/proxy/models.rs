//! `/v1/models`: the union of what the targets offer, under the names that clients may ask for.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use http::{HeaderMap, Method, Request, Response};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use super::gateway::Gateway;
use super::head;
use super::outlet::ClientBody;
use super::server::json;
use super::upstream::{Reply, RequestBody, SendError};
use crate::config::{Kind, Target};
use crate::dialect::reply::Problem;
use crate::dialect::translate::{anthropic_model, anthropic_models};
use crate::limits;
use crate::route;
use crate::task;

/// How long a target may take to list its models before the list goes without it.
const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Serialize)]
struct List {
    object: &'static str,
    data: Vec<Model>,
}

/// One entry, as OpenAI's API has it.
#[derive(Clone, Serialize)]
struct Model {
    id: String,
    object: &'static str,
    created: u64,
    /// The target that offers it first.
    owned_by: String,
}

/// The list; in Anthropic's shape for its clients, who say so by their API's version.
pub async fn list(gateway: &Rc<Gateway>, headers: &HeaderMap) -> Response<ClientBody> {
    let data = union(gateway).await;
    if headers.contains_key("anthropic-version") {
        let names: Vec<_> = data.iter().map(|model| model.id.as_str()).collect();
        return json(anthropic_models(&names, 0));
    }
    json(serde_json::to_vec(&List { object: "list", data }).unwrap_or_default())
}

/// One entry of it, in the same shape.
///
/// # Errors
/// 404 when no target offers it.
pub async fn one(
    gateway: &Rc<Gateway>,
    headers: &HeaderMap,
    id: &str,
) -> Result<Response<ClientBody>, Problem> {
    match union(gateway).await.iter().find(|model| model.id == id) {
        Some(model) if headers.contains_key("anthropic-version") => Ok(json(anthropic_model(&model.id, 0))),
        Some(model) => Ok(json(serde_json::to_vec(model).unwrap_or_default())),
        None => Err(Problem::new(404, "model_not_found", format!("no target offers the model `{id}`"))),
    }
}

/// By id, each once.
async fn union(gateway: &Rc<Gateway>) -> Vec<Model> {
    let mut asking = JoinSet::new();
    // By target: the first that offers a model is named with it.
    let offers = Rc::new(RefCell::new(vec![Vec::new(); gateway.config.targets.len()]));
    for (index, target) in gateway.config.targets.iter().enumerate() {
        if gateway.store.borrow().get(index).is_some_and(|health| health.absent) {
            continue;
        }
        let offer = move |names: Vec<String>, offers: &RefCell<Vec<Vec<String>>>| {
            if let Some(offered) = offers.borrow_mut().get_mut(index) {
                offered.extend(names);
            }
        };
        offer(mapped(target), &offers);
        if asks_itself(target) {
            let (gateway, offers) = (Rc::clone(gateway), Rc::clone(&offers));
            task::start_in(&mut asking, async move {
                let names = tokio::time::timeout(PATIENCE, own_list(&gateway, index)).await.ok().flatten();
                offer(names.unwrap_or_default(), &offers);
            });
        }
    }
    while asking.join_next().await.is_some() {}
    let mut models: Vec<Model> = Vec::new();
    for (index, names) in offers.take().into_iter().enumerate() {
        for id in names {
            if let Err(at) = models.binary_search_by(|model| model.id.cmp(&id)) {
                let owned_by = gateway.name(index).to_owned();
                models.insert(at, Model { id, object: "model", created: 0, owned_by });
            }
        }
    }
    models
}

/// A target that keeps names as they are is asked for them; a cloud's hundreds stay where they are.
fn asks_itself(target: &Target) -> bool {
    let keeps = target.models.entries.is_empty() || target.models.entries.iter().any(|(_, name)| name == "*");
    keeps && target.place != crate::config::Place::Cloud && target.kind != Kind::Gemini
}

/// The names in its map, and what its wildcards lead to: asked for by that name, they lead there too.
fn mapped(target: &Target) -> Vec<String> {
    let names = target.models.entries.iter().filter_map(|(asked, name)| {
        if !asked.ends_with('*') {
            return Some(asked.clone());
        }
        (name != "*" && target.models.resolve(name) == Some(name)).then(|| name.clone())
    });
    names.collect()
}

#[derive(Deserialize)]
struct Listed {
    #[serde(default)]
    data: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    id: String,
}

async fn own_list(gateway: &Gateway, index: usize) -> Option<Vec<String>> {
    let target = gateway.config.targets.get(index)?;
    let mut reply = match ask(gateway, index, target, false).await? {
        Ok(reply) => reply,
        // A pooled connection that the server had closed meanwhile says nothing about it.
        Err(SendError::Stale(_)) => ask(gateway, index, target, true).await?.ok()?,
        Err(SendError::Failed(_)) => return None,
    };
    if !reply.status.is_success() {
        return None;
    }
    let mut body = Vec::new();
    while let Some(chunk) = reply.chunk().await {
        body.extend_from_slice(&chunk.ok()?);
        if body.len() > limits::CLIENT_FAULT_BODY_BYTES {
            return None;
        }
    }
    crate::wire::json::profile(&body).ok()?;
    let listed: Listed = serde_json::from_slice(&body).ok()?;
    let offered = |id: &String| target.models.resolve(id) == Some(id.as_str());
    Some(listed.data.into_iter().map(|entry| entry.id).filter(offered).collect())
}

async fn ask(
    gateway: &Gateway,
    index: usize,
    target: &Target,
    fresh: bool,
) -> Option<Result<Reply, SendError>> {
    let link = gateway.upstreams.connect(index, fresh).await.ok()?;
    let mut request = Request::builder().method(Method::GET).uri(route::joined_path(target, "/v1/models"));
    head::to_upstream(request.headers_mut()?, &HeaderMap::new(), target, &HeaderMap::new());
    Some(link.send(request.body(RequestBody::empty()).ok()?).await)
}
