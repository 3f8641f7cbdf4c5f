//! The plan: which targets can answer this request, in which order, and on which terms.

pub mod budget;
pub mod drill;
pub mod hedge;
pub mod queue;
pub mod retry;
mod sliding;

use std::time::{Duration, Instant};

use http::HeaderMap;

use crate::config::{CommitOn, Config, Deadlines, Egress, Kind, ModelName, OnEmptyStop, Route, Target};
use crate::dialect::Dialect;
use crate::dialect::request::Call;
use crate::health::store::Store;
use crate::limits::CANDIDATES_MAX;

/// A target that is eligible for this request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its position in the configuration.
    pub target: usize,
    /// Its own name for the model.
    pub model: String,
    /// Its deadlines: the route's over the target's over the default.
    pub deadlines: Deadlines,
    /// Its context window, in tokens, where it is known.
    pub context: Option<u32>,
    /// Whether a silent start may be a model being loaded: Ollama loads inside the request.
    pub loads: bool,
    /// How often it may be asked again.
    pub max_retries: u32,
}

/// What routing knows of a request.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// What it asks for.
    pub call: &'a Call,
    /// The name of the client key that made it.
    pub client: Option<&'a str>,
    /// The client's header fields, for routes that go by them.
    pub headers: &'a HeaderMap,
    /// How far its prompt may go, by its key and its own header.
    pub egress: Egress,
    /// Minutes after local midnight.
    pub minute: u16,
}

impl<'a> Ask<'a> {
    /// One of which only the call is known.
    #[must_use]
    pub fn bare(call: &'a Call) -> Self {
        static NONE: std::sync::LazyLock<HeaderMap> = std::sync::LazyLock::new(HeaderMap::new);
        Ask { call, client: None, headers: &NONE, egress: Egress::Anywhere, minute: 0 }
    }
}

/// What routing remembers from one request to the next.
#[derive(Debug)]
pub struct State {
    seed: u64,
}

impl State {
    /// Nothing remembered yet. `seed` decides every choice that is not decided by weights.
    #[must_use]
    pub fn new(_config: &Config, seed: u64) -> Self {
        State { seed }
    }
}

/// Why a target is not a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passed {
    /// Its kind has no such endpoint, and nothing translates yet.
    Dialect,
    /// Its group is in none of the request's groups.
    Group,
    /// Its `models` do not name the model; or it is a cloud without any.
    Model,
    /// Embeddings of another family, or of none that the configuration names.
    EmbeddingFamily,
    /// Nothing answers on its port yet.
    Absent,
    /// It said 429 and named a time, which has not come.
    CoolingDown(Duration),
}

impl Passed {
    /// In words, for the client's error and for `status`.
    #[must_use]
    pub fn in_words(self) -> String {
        match self {
            Passed::Dialect => "does not speak this API".to_owned(),
            Passed::Group => "is in another group".to_owned(),
            Passed::Model => "has no entry for this model in `models`".to_owned(),
            Passed::EmbeddingFamily => "is not of the same `embeddings` family".to_owned(),
            Passed::Absent => "was not found on its port yet".to_owned(),
            Passed::CoolingDown(left) => format!("is rate limited for another {} s", left.as_secs().max(1)),
        }
    }
}

/// The candidates of one request, in order, and what else the request's route says.
#[derive(Clone, Debug)]
pub struct Plan {
    /// In the order in which they are tried.
    pub candidates: Vec<Candidate>,
    /// Everyone else, and why.
    pub passed: Vec<(usize, Passed)>,
    /// What commits.
    pub commit_on: CommitOn,
    /// Policy for `stop` without content.
    pub on_empty_stop: OnEmptyStop,
    /// Whose model name the client sees.
    pub model_name: ModelName,
    /// Early headers and signs of life.
    pub heartbeat: Option<Duration>,
}

impl Plan {
    /// When the first cool-down ends, if that is all that is in the way.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.passed
            .iter()
            .filter_map(|(_, why)| match why {
                Passed::CoolingDown(left) => Some(*left),
                _ => None,
            })
            .min()
    }
}

/// Plans one request.
///
/// Groups come in the route's order, else the router's; inside a group the own region first, then the
/// file's order. A misconfigured target is still tried, but last: for one model, where that is what it lacks.
/// So is one whose certificate waits for the clock to be set.
#[must_use]
pub fn plan(config: &Config, store: &Store, _state: &mut State, ask: &Ask<'_>, now: Instant) -> Plan {
    let call = ask.call;
    let route = config.routes.iter().find(|route| route.matches(&call.model));
    let groups = route.and_then(|r| r.groups.as_ref()).unwrap_or(&config.router.groups);
    let mut plan = Plan {
        candidates: Vec::new(),
        passed: Vec::new(),
        commit_on: route.and_then(|r| r.commit_on).unwrap_or(config.commit_on),
        on_empty_stop: route.and_then(|r| r.on_empty_stop).unwrap_or(config.on_empty_stop),
        model_name: route.and_then(|r| r.model_name).unwrap_or(config.model_name),
        heartbeat: route.and_then(|r| r.heartbeat).or(config.heartbeat),
    };
    let mut order: Vec<(bool, usize, bool, usize)> = Vec::new();
    let mut by_rights: Option<(usize, bool, usize)> = None;
    for (index, target) in config.targets.iter().enumerate() {
        let Some(group) = groups.iter().position(|group| *group == target.group) else {
            plan.passed.push((index, Passed::Group));
            continue;
        };
        let elsewhere = config.router.region.is_some() && target.region != config.router.region;
        let verdict = eligible(target, index, store, call, now);
        if matches!(verdict, Ok(()) | Err(Passed::CoolingDown(_))) {
            let place = (group, elsewhere, index);
            by_rights = Some(by_rights.map_or(place, |first| first.min(place)));
        }
        match verdict {
            Ok(()) => {
                let last = store.comes_last(index, &call.model, now);
                order.push((last, group, elsewhere, index));
            }
            Err(why) => plan.passed.push((index, why)),
        }
    }
    order.sort_unstable();
    for (_, _, _, index) in order.into_iter().take(CANDIDATES_MAX) {
        if let Some(target) = config.targets.get(index) {
            plan.candidates.push(candidate(config, route, target, index, call));
        }
    }
    if let (Some((_, _, first)), Dialect::OpenaiEmbeddings | Dialect::OllamaEmbed) = (by_rights, call.dialect)
    {
        keep_one_embedding_family(config, first, &mut plan);
    }
    plan
}

fn eligible(target: &Target, index: usize, store: &Store, call: &Call, now: Instant) -> Result<(), Passed> {
    if !speaks(target.kind, call.dialect) {
        return Err(Passed::Dialect);
    }
    if target.never_a_candidate().is_some() || target.models.resolve(&call.model).is_none() {
        return Err(Passed::Model);
    }
    let Some(health) = store.get(index) else { return Ok(()) };
    if health.absent {
        return Err(Passed::Absent);
    }
    match health.cooldown_until {
        Some(until) if until > now => Err(Passed::CoolingDown(until - now)),
        Some(_) | None => Ok(()),
    }
}

fn candidate(
    config: &Config,
    route: Option<&Route>,
    target: &Target,
    index: usize,
    call: &Call,
) -> Candidate {
    let deadlines = config.deadlines.overlaid(&target.deadlines);
    Candidate {
        target: index,
        model: target.models.resolve(&call.model).unwrap_or(&call.model).to_owned(),
        deadlines: route.map_or(deadlines, |route| deadlines.overlaid(&route.deadlines)),
        context: target.context,
        loads: target.kind == Kind::Ollama,
        max_retries: target.max_retries,
    }
}

/// Vectors of different models do not mix: only `first` and its family stay. It is the one that would be asked
/// if all were well: a pause or a wrong key does not make another family's vectors right.
fn keep_one_embedding_family(config: &Config, first: usize, plan: &mut Plan) {
    let family = |target: usize| config.targets.get(target).and_then(|t| t.embeddings.as_ref());
    let wanted = family(first);
    let (same, other): (Vec<_>, Vec<_>) = std::mem::take(&mut plan.candidates)
        .into_iter()
        .partition(|c| c.target == first || (wanted.is_some() && family(c.target) == wanted));
    plan.candidates = same;
    plan.passed.extend(other.into_iter().map(|c| (c.target, Passed::EmbeddingFamily)));
}

/// Whether a target of this kind has the dialect's endpoint itself.
#[must_use]
pub const fn speaks(kind: Kind, dialect: Dialect) -> bool {
    match dialect {
        Dialect::OpenaiChat
        | Dialect::OpenaiCompletions
        | Dialect::OpenaiEmbeddings
        | Dialect::OpenaiResponses => {
            matches!(kind, Kind::Ollama | Kind::Vllm | Kind::Llamacpp | Kind::Openai)
        }
        Dialect::OllamaChat | Dialect::OllamaGenerate | Dialect::OllamaEmbed => matches!(kind, Kind::Ollama),
        Dialect::Anthropic => matches!(kind, Kind::Ollama | Kind::Vllm | Kind::Llamacpp | Kind::Anthropic),
        Dialect::Gemini => matches!(kind, Kind::Gemini),
    }
}

/// The path that a request to `target` has for the endpoint `path`. A base of the openai kind ends with its
/// version (`…/v1`) already, as its users write it; the others' do not.
#[must_use]
pub fn joined_path(target: &Target, path: &str) -> String {
    let rest = match target.kind {
        Kind::Openai => path.strip_prefix("/v1").unwrap_or(path),
        Kind::Ollama | Kind::Vllm | Kind::Llamacpp | Kind::Anthropic | Kind::Gemini => path,
    };
    format!("{}{rest}", target.base_path())
}

#[cfg(test)]
mod tests;
