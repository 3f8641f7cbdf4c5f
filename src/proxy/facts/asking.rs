//! Asks local servers what they have: seldom while they are idle, often while requests come, at once after a change.
//!
//! Requests of edgeward's own: they count nowhere, and say nothing of a server's health.

use std::rc::Rc;
use std::time::Instant;

use http::{Method, StatusCode};
use tokio::task::JoinSet;

use super::Local;
use crate::cause::Cause;
use crate::config::Kind;
use crate::dialect;
use crate::dialect::request::{Call, quote};
use crate::health::Pressure;
use crate::limits;
use crate::memory::facts::{self, Facts};
use crate::memory::need::Shape;
use crate::proxy::beside;
use crate::proxy::current::Current;
use crate::proxy::gateway::Gateway;
use crate::task;
use crate::time::now;

/// Asks each local server in its time, for as long as edgeward runs.
pub async fn keep_asking(current: Rc<Current>) {
    let mut asking = JoinSet::new();
    loop {
        let gateway = current.get();
        let process = Rc::clone(&gateway.process);
        let candidate = current.candidate().map(|candidate| candidate.gateway);
        let mut next = now() + limits::LOCAL_EVERY_IDLE;
        for gateway in [Some(gateway), candidate].into_iter().flatten() {
            for (target, local) in gateway.locals.iter().enumerate() {
                let Some(local) = local.as_ref().filter(|local| says(local.kind) && !local.asking.get())
                else {
                    continue;
                };
                if local.due.get() > now() {
                    next = next.min(local.due.get());
                    continue;
                }
                local.asking.set(true);
                // Sooner where somebody asks for it meanwhile.
                local.due.set(now() + limits::LOCAL_EVERY_IDLE);
                let (gateway, local) = (Rc::clone(&gateway), Rc::clone(local));
                task::start_in(&mut asking, async move { ask(&gateway, target, &local).await });
            }
        }
        tokio::select! {
            Some(_) = asking.join_next() => {}
            () = tokio::time::sleep_until(next.into()) => {}
            () = process.locals.wake.notified() => {}
        }
    }
}

/// Whether servers of this kind can be asked what they have.
const fn says(kind: Kind) -> bool {
    matches!(kind, Kind::Ollama | Kind::Vllm | Kind::Llamacpp)
}

/// Asks anew where a plan for `call` would go by what may not be true any more, and waits for the answer, but not for
/// long. Most requests wait for nothing.
pub async fn look(gateway: &Gateway, call: &Call) {
    let (at, locals) = (now(), &gateway.process.locals);
    let wait_for: Vec<&Rc<Local>> = stale(gateway, call, at).collect();
    if wait_for.is_empty() {
        return;
    }
    wait_for.iter().filter(|local| !local.asking.get()).for_each(|local| local.ask_now(locals, at));
    let all = async {
        loop {
            let told = locals.changed.notified();
            let behind =
                |local: &&Rc<Local>| local.asking.get() || local.asked.get().is_none_or(|asked| asked < at);
            if !wait_for.iter().any(behind) {
                return;
            }
            told.await;
        }
    };
    // It goes by what was known before then.
    let _late = tokio::time::timeout(limits::LOCAL_LOOK_TIME, all).await;
}

/// Whom a plan for `call` may be wrong about: a model comes and goes by its server's own clock, or was never seen yet.
fn stale<'a>(gateway: &'a Gateway, call: &'a Call, at: Instant) -> impl Iterator<Item = &'a Rc<Local>> {
    let watched = gateway.process.room.get();
    let matters =
        watched.is_some_and(|room| gateway.config.targets.len() > 1 || room.pressure > Pressure::Green);
    let each = gateway.locals.iter().zip(&gateway.config.targets).enumerate();
    each.filter_map(move |(index, (local, target))| {
        let local = local.as_ref().filter(|local| local.kind == Kind::Ollama && matters)?;
        let model = target.models.resolve(&call.model).filter(|model| !model.is_empty())?;
        let said = local.said.borrow();
        if !said.answers && local.asked.get().is_some() || is_absent(gateway, index) {
            return None;
        }
        let old = said.at.is_none_or(|said| at.saturating_duration_since(said) > limits::LOCAL_EVERY_OLLAMA);
        let server = local.server.borrow();
        // What a context comes to depends on what the model was trained for.
        let there = server.resident(model, at) == Some(true) && call.options.num_ctx.is_none();
        let new = !there && !server.knows(model, at);
        if new {
            local.want(model);
        }
        (old || new).then_some(local)
    })
}

impl Local {
    fn want(&self, model: &str) {
        let mut wanted = self.wanted.borrow_mut();
        if wanted.len() < limits::LOCAL_WANTED_MAX && !wanted.iter().any(|known| known == model) {
            wanted.push(model.to_owned());
        }
    }
}

/// Whether nothing was found yet where it would be.
fn is_absent(gateway: &Gateway, target: usize) -> bool {
    gateway.store.borrow().get(target).is_some_and(|health| health.absent)
}

async fn ask(gateway: &Gateway, target: usize, local: &Local) {
    if is_absent(gateway, target) {
        local.due.set(now() + limits::DISCOVERY_INTERVAL);
    } else {
        let asking = Asking { gateway, target, local };
        let busy = local.server.borrow().in_flight() > 0;
        let patience = if busy { limits::LOCAL_ASK_BUSY_TIME } else { limits::LOCAL_ASK_TIME };
        let heard = tokio::time::timeout(patience, asking.facts()).await;
        let heard = heard.ok().flatten();
        let answers = heard.is_some();
        local.heard(&gateway.process, heard, now());
        let wanted = std::mem::take(&mut *local.wanted.borrow_mut());
        if answers {
            for model in wanted {
                let said = tokio::time::timeout(limits::LOCAL_ASK_TIME, asking.shape(&model)).await;
                let mut server = local.server.borrow_mut();
                match said.unwrap_or(Made::Unsaid) {
                    Made::Of(shape) => server.shape(&model, Some(&shape), now()),
                    Made::Unsaid => server.shape(&model, None, now()),
                    Made::Nothing => server.has_not(&model, now()),
                }
            }
        }
        let at = now();
        local.asked.set(Some(at));
        let due = if local.wanted.borrow().is_empty() { at + local.pause(at) } else { at };
        local.due.set(local.due.get().min(due));
    }
    local.asking.set(false);
    gateway.process.locals.changed();
}

/// What a model is made of.
enum Made {
    Of(Shape),
    Unsaid,
    /// There is no such model.
    Nothing,
}

/// One server, asked.
struct Asking<'a> {
    gateway: &'a Gateway,
    target: usize,
    local: &'a Local,
}

impl Asking<'_> {
    /// What it has. `None`: it does not say.
    async fn facts(&self) -> Option<Facts> {
        let mut facts = Facts::default();
        self.local.said.borrow_mut().there = false;
        let known = self.local.said.borrow().fixed;
        let fixed = known.is_none_or(|at| now().saturating_duration_since(at) >= limits::LOCAL_EVERY_IDLE);
        let said = match self.local.kind {
            Kind::Ollama => {
                facts.resident = facts::ollama_ps(&self.get("/api/ps").await?);
                facts.resident.is_some()
            }
            Kind::Llamacpp => {
                let props = fixed && self.read("/props", &mut facts, facts::llamacpp_props).await;
                let models = fixed && self.read("/v1/models", &mut facts, facts::openai_models).await;
                let slots = self.read("/slots", &mut facts, facts::llamacpp_slots).await;
                // One of the two may be switched off.
                let counts = !slots && self.read("/metrics", &mut facts, facts::metrics).await;
                props || models || slots || counts
            }
            Kind::Vllm => {
                let models = fixed && self.read("/v1/models", &mut facts, facts::openai_models).await;
                let counts = self.read("/metrics", &mut facts, facts::metrics).await;
                models || counts
            }
            Kind::Openai | Kind::Anthropic | Kind::Gemini => false,
        };
        if said && fixed {
            self.local.said.borrow_mut().fixed = Some(now());
        }
        said.then_some(facts)
    }

    /// What a model of Ollama's is made of.
    async fn shape(&self, model: &str) -> Made {
        let body = [b"{\"model\":", quote(model).as_slice(), b"}"].concat();
        let asked = beside::ask(self.gateway, self.target, Method::POST, "/api/show", body).await;
        let mut shape = match asked {
            Ok((StatusCode::NOT_FOUND, said)) => {
                // Not the endpoint that is missing.
                let cause = dialect::classify_status(StatusCode::NOT_FOUND.as_u16(), &said);
                return if cause == Cause::ModelMissing { Made::Nothing } else { Made::Unsaid };
            }
            Ok((StatusCode::OK, said)) => match facts::ollama_show(&said) {
                Some(shape) => shape,
                None => return Made::Unsaid,
            },
            Ok(_) | Err(_) => return Made::Unsaid,
        };
        if let Some(size) = facts::ollama_size(&self.get("/api/tags").await.unwrap_or_default(), model) {
            shape.weights = size;
        }
        Made::Of(shape)
    }

    async fn read(&self, path: &str, facts: &mut Facts, read: fn(&[u8], &mut Facts) -> bool) -> bool {
        match self.get(path).await {
            Some(body) => read(&body, facts),
            None => false,
        }
    }

    async fn get(&self, path: &str) -> Option<Vec<u8>> {
        let asked = beside::ask(self.gateway, self.target, Method::GET, path, Vec::new()).await;
        let (status, body) = asked.ok()?;
        // It is there, and may not have this.
        self.local.said.borrow_mut().there = true;
        (status == StatusCode::OK).then_some(body)
    }
}
