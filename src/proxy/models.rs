//! `/v1/models`: the union of what the targets offer, under the names that clients may ask for.

use std::cell::RefCell;
use std::fmt;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use http::{HeaderMap, Method, Request, Response};
use serde::de::{Error as _, MapAccess, Visitor};
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use tokio::task::JoinSet;

use super::gateway::Gateway;
use super::head;
use super::outlet::ClientBody;
use super::server::{json, own};
use super::upstream::{Reply, RequestBody, SendError};
use crate::config::{Kind, Target};
use crate::dialect::Dialect;
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
#[derive(Clone)]
struct Model {
    /// The name that clients ask for.
    id: String,
    /// The target that offers it first.
    target: String,
    /// What its server says of it: agents read `max_model_len`, or `n_ctx_train` in `meta`.
    said: Said,
}

impl Serialize for Model {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("id", &self.id)?;
        let said = |key: &str| self.said.0.iter().any(|(name, _)| name == key);
        for (name, value) in &self.said.0 {
            map.serialize_entry(name, value)?;
        }
        // What clients' types insist on.
        if !said("object") {
            map.serialize_entry("object", "model")?;
        }
        if !said("created") {
            map.serialize_entry("created", &0)?;
        }
        if !said("owned_by") {
            map.serialize_entry("owned_by", &self.target)?;
        }
        map.end()
    }
}

/// The list; in Anthropic's shape for its clients, who say so by their API's version.
pub async fn list(gateway: &Rc<Gateway>, headers: &HeaderMap) -> Response<ClientBody> {
    let data = union(gateway).await;
    if is_anthropic(headers) {
        let names: Vec<_> = data.iter().map(|model| model.id.as_str()).collect();
        return json(anthropic_models(&names, 0));
    }
    json(serde_json::to_vec(&List { object: "list", data }).unwrap_or_default())
}

fn is_anthropic(headers: &HeaderMap) -> bool {
    headers.contains_key("anthropic-version")
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
        Some(model) if is_anthropic(headers) => Ok(json(anthropic_model(&model.id, 0))),
        Some(model) => Ok(json(serde_json::to_vec(model).unwrap_or_default())),
        None => {
            let problem = Problem::new(404, "model_not_found", format!("no target offers the model `{id}`"));
            if is_anthropic(headers) { Ok(own(&problem, Dialect::Anthropic)) } else { Err(problem) }
        }
    }
}

/// By id, each once.
async fn union(gateway: &Rc<Gateway>) -> Vec<Model> {
    let mut asking = JoinSet::new();
    // By target: the first that offers a model is named with it.
    let offers = Rc::new(RefCell::new(vec![Vec::<Offer>::new(); gateway.config.targets.len()]));
    for (index, target) in gateway.config.targets.iter().enumerate() {
        if gateway.store.borrow().get(index).is_some_and(|health| health.absent) {
            continue;
        }
        if let Some(offered) = offers.borrow_mut().get_mut(index) {
            offered.extend(mapped(target).into_iter().map(|id| (id, Said::default())));
        }
        if asks_itself(target) {
            let (gateway, offers) = (Rc::clone(gateway), Rc::clone(&offers));
            task::start_in(&mut asking, async move {
                let listed = tokio::time::timeout(PATIENCE, own_list(&gateway, index)).await.ok().flatten();
                if let (Some(offered), Some(target)) =
                    (offers.borrow_mut().get_mut(index), gateway.config.targets.get(index))
                {
                    told(target, offered, listed.unwrap_or_default());
                }
            });
        }
    }
    while asking.join_next().await.is_some() {}
    let mut models: Vec<Model> = Vec::new();
    for (index, offered) in offers.take().into_iter().enumerate() {
        for (id, said) in offered {
            if let Err(at) = models.binary_search_by(|model| model.id.cmp(&id)) {
                models.insert(at, Model { id, target: gateway.name(index).to_owned(), said });
            }
        }
    }
    models
}

/// A name that clients may ask for, and what its server says of that model.
type Offer = (String, Said);

/// What a server lists is offered under the names that lead there: its own where they are kept, and those of the map.
fn told(target: &Target, offered: &mut Vec<Offer>, listed: Vec<Offer>) {
    for (asked, said) in offered.iter_mut() {
        let given = target.models.resolve(asked);
        if let Some((_, own)) = listed.iter().find(|(id, _)| Some(id.as_str()) == given) {
            said.clone_from(own);
        }
    }
    offered.extend(listed.into_iter().filter(|(id, _)| target.models.resolve(id) == Some(id)));
}

/// A box's server is asked what it has; a cloud's hundreds stay where they are.
fn asks_itself(target: &Target) -> bool {
    target.place != crate::config::Place::Cloud && target.kind != Kind::Gemini
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

/// All of an entry but its id, each value as it came; without what tells of the server's inside.
#[derive(Clone, Debug, Default)]
struct Said(Vec<(String, Box<RawValue>)>);

impl Said {
    /// Without paths on the server's disk, and how llama.cpp's router starts its processes (`args`, and the same as `preset`).
    fn outside(mut self) -> Self {
        self.0.retain(|(name, value)| match name.as_str() {
            "path" => false,
            // A model's name stays: vLLM has what it was started with there.
            "root" => !serde_json::from_str::<PathBuf>(value.get()).is_ok_and(|root| root.is_absolute()),
            _ => true,
        });
        for (_, value) in self.0.iter_mut().filter(|(name, _)| name == "status") {
            let Ok(mut status) = serde_json::from_str::<Said>(value.get()) else { continue };
            status.0.retain(|(name, _)| !matches!(name.as_str(), "args" | "preset"));
            if let Ok(left) = serde_json::value::to_raw_value(&status) {
                *value = left;
            }
        }
        self
    }
}

impl Serialize for Said {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

impl<'de> Deserialize<'de> for Said {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;

        impl<'de> Visitor<'de> for Fields {
            type Value = Said;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Said, A::Error> {
                let mut said = Said::default();
                while let Some(field) = map.next_entry()? {
                    said.0.push(field);
                }
                Ok(said)
            }
        }

        deserializer.deserialize_map(Fields)
    }
}

struct Entry {
    id: String,
    said: Said,
}

impl<'de> Deserialize<'de> for Entry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut said = Said::deserialize(deserializer)?;
        let at = said.0.iter().position(|(name, _)| name == "id");
        let (_, id) = said.0.remove(at.ok_or_else(|| D::Error::missing_field("id"))?);
        // One that stands there twice would be told twice.
        said.0.retain(|(name, _)| name != "id");
        let id = serde_json::from_str(id.get()).map_err(D::Error::custom)?;
        Ok(Entry { id, said: said.outside() })
    }
}

async fn own_list(gateway: &Gateway, index: usize) -> Option<Vec<Offer>> {
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
    Some(listed.data.into_iter().map(|entry| (entry.id, entry.said)).collect())
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
