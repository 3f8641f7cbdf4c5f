//! The plan: which targets can answer this request, in which order, and on which terms.

pub mod budget;
pub mod drill;
pub mod hedge;
pub mod queue;
pub mod retry;
mod sliding;

use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::{Duration, Instant};

use http::HeaderMap;

use crate::config::{
    After, CommitOn, Config, Deadlines, Egress, Kind, ModelName, OnBreak, OnEmptyStop, Place, Sticky, Target,
};
use crate::dialect::Dialect;
use crate::dialect::collect::collects;
use crate::dialect::request::Call;
use crate::limits;
use crate::memory::admit::Admission;

mod passed;
mod plan;
mod rules;
mod sticky;
mod weights;

use weights::Turns;

pub use passed::{BudgetWhat, Capability, Passed, is_short};
pub use plan::plan;
pub use rules::{LOCAL_ONLY, SESSION, egress_asked, may_go};

/// How a target is asked for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// As a stream, which the client gets.
    Streamed,
    /// As a stream, which is put together here: the client gets the whole answer.
    Collected,
    /// For the whole answer, which comes at once.
    Whole,
}

/// A target that is eligible for this request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its position in the configuration.
    pub target: usize,
    /// Its own name for the model.
    pub model: String,
    /// The dialect that it is asked in: the client's where it speaks that, else its own, and the request and the answer
    /// are translated.
    pub wire: Dialect,
    /// How it is asked for the answer.
    pub delivery: Delivery,
    /// The bytes of pictures or files that the request names go along in their place.
    pub inlined: bool,
    /// Its deadlines: the route's over the target's over its group's over the default.
    pub deadlines: Deadlines,
    /// Its context window, in tokens, where it is known.
    pub context: Option<u32>,
    /// Whether a silent start may be a model being loaded: Ollama loads inside the request.
    pub loads: bool,
    /// Where it is: whether asking it sends the prompt off the box.
    pub place: Place,
    /// How often it may be asked again.
    pub max_retries: u32,
    /// Whether the candidate after it may be asked beside it when its first token is late.
    pub hedge: bool,
    /// It is asked rather than nobody: it answers only badly, or will most likely refuse.
    pub reluctant: bool,
    /// It rests: it is asked only since nobody else is left.
    pub last_resort: bool,
    /// Whether its memory has room for the request, as far as was known when the plan was made.
    pub memory: Admission,
    /// For so long it may keep the request waiting while it is busy or loads the model, before the next one gets it.
    pub patience: Option<After>,
    /// It stands before, too, where it is waited for: asked here only where it was left there without being asked.
    pub again: bool,
}

/// What routing knows of a request.
#[derive(Clone, Copy)]
pub struct Ask<'a> {
    /// What it asks for.
    pub call: &'a Call,
    /// The name of the client key that made it.
    pub client: Option<&'a str>,
    /// The client's header fields, for routes that go by them, and for [`SESSION`].
    pub headers: &'a HeaderMap,
    /// How far its prompt may go, by its key and its own header.
    pub egress: Egress,
    /// Minutes after local midnight; looked at where a route has hours.
    pub minute: u16,
    /// Why a target, by its position, is not asked although it could serve the request: a budget, a drill.
    pub barred: &'a dyn Fn(usize) -> Option<Passed>,
    /// The box holds the bytes of all files that the request names by their ids.
    pub files: bool,
    /// Whether a target, by its position, has no room now: it can be waited for.
    pub full: &'a dyn Fn(usize) -> bool,
    /// Whether its memory has.
    pub memory: &'a dyn Fn(usize) -> Admission,
}

impl<'a> Ask<'a> {
    /// One of which only the call is known.
    #[must_use]
    pub fn bare(call: &'a Call) -> Self {
        static NONE: std::sync::LazyLock<HeaderMap> = std::sync::LazyLock::new(HeaderMap::new);
        let (client, egress) = (None, Egress::Anywhere);
        Ask {
            call,
            client,
            headers: &NONE,
            egress,
            minute: 0,
            barred: &|_| None,
            files: false,
            full: &|_| false,
            memory: &|_| Admission::Goes,
        }
    }

    /// Whether it is a turn after a conversation's first.
    fn later(&self) -> bool {
        self.headers.contains_key(SESSION) || self.call.conversation.is_some_and(|named| named.later)
    }
}

impl fmt::Debug for Ask<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ask").field("call", self.call).field("client", &self.client).finish_non_exhaustive()
    }
}

/// What routing remembers from one request to the next.
#[derive(Debug)]
pub struct State {
    seed: u64,
    policy: Sticky,
    /// Of the targets, by their position.
    names: Vec<String>,
    /// By the model's name, [`limits::TURNS_ROWS`] of them: two models that are asked for in alternation would else
    /// each have a target of their own.
    turns: Vec<Turns>,
    conversations: sticky::Table,
    /// The conversation that is on its way home.
    homecoming: Option<Homecoming>,
}

/// A conversation's turn that was sent home.
#[derive(Clone, Copy, Debug)]
struct Homecoming {
    conversation: u64,
    since: Instant,
    /// It tries a server that failed: if that fails again it is not about the conversation.
    tries: bool,
}

/// What was before an answer that has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    /// Nothing.
    Nothing,
    /// Its home, which is well, was left: it was busy, loaded a model, or was short of memory.
    Left,
    /// Others failed.
    Failed,
}

impl State {
    /// Nothing remembered yet: everyone's turn comes in the file's order. `seed` makes conversations' keys this
    /// process's own, so that no client can aim at another's.
    #[must_use]
    pub fn new(config: &Config, seed: u64) -> Self {
        State {
            seed,
            policy: config.sticky.clone(),
            names: config.targets.iter().map(|target| target.name.clone()).collect(),
            turns: vec![Turns::new(config.targets.len()); limits::TURNS_ROWS],
            conversations: sticky::Table::default(),
            homecoming: None,
        }
    }

    /// What is remembered for a changed configuration: the turns of targets and groups whose names stay, and the
    /// conversations that they serve.
    #[must_use]
    pub fn renewed(&self, config: &Config) -> Self {
        let mut renewed = State::new(config, self.seed);
        let old = |name: &String| self.names.iter().position(|old| old == name);
        let row = |row: &Turns| row.renewed(renewed.names.iter().map(old));
        renewed.turns = self.turns.iter().map(row).collect();
        let new = |target: usize| renewed.names.iter().position(|name| self.names.get(target) == Some(name));
        renewed.conversations = self.conversations.renewed(new);
        renewed
    }

    /// The answer of `target` has begun. Its conversation stays there, unless its home is well and was only left for now.
    pub fn committed(&mut self, plan: &Plan, target: usize, before: Before, now: Instant) {
        let Some(key) = plan.conversation else { return };
        let came = self.homecoming.take_if(|coming| coming.conversation == key);
        let full = plan.full.iter().any(|full| !plan.is_away(full.target));
        let away = match before {
            Before::Left => return,
            Before::Nothing if full && plan.is_away(target) => return,
            Before::Nothing => plan.is_away(target),
            Before::Failed => true,
        };
        let again = away && came.is_some_and(|came| !came.tries);
        self.conversations.served(key, target, (away, again), &self.policy, now);
    }

    /// Whether this conversation may go home now: one at a time, since its whole prompt has to be read anew there.
    fn comes_home(&mut self, conversation: u64, tries: bool, now: Instant) -> bool {
        let busy = self.homecoming.is_some_and(|other| {
            let since = now.saturating_duration_since(other.since);
            other.conversation != conversation && since < limits::HOMECOMING
        });
        if !busy {
            self.homecoming = Some(Homecoming { conversation, since: now, tries });
        }
        !busy
    }

    /// Whose turn it is for this model.
    fn turns(&mut self, model: &str) -> Option<&mut Turns> {
        let mut hash = DefaultHasher::new();
        (self.seed, model).hash(&mut hash);
        let row = hash.finish() % limits::TURNS_ROWS as u64;
        self.turns.get_mut(usize::try_from(row).unwrap_or(0))
    }

    /// Which conversation this is, for this client and model.
    fn conversation(&self, ask: &Ask<'_>) -> Option<u64> {
        if !self.policy.enabled {
            return None;
        }
        let mut hash = DefaultHasher::new();
        match (ask.headers.get(SESSION), ask.call.conversation) {
            (Some(session), _) => session.as_bytes().hash(&mut hash),
            (None, Some(named)) => named.key.hash(&mut hash),
            (None, None) => return None,
        }
        (self.seed, ask.client, &ask.call.model).hash(&mut hash);
        Some(hash.finish())
    }

    /// Where it stays.
    fn sticky(&self, conversation: u64, now: Instant) -> Option<sticky::Stay> {
        self.conversations.stay(conversation, &self.policy, now)
    }
}

/// The candidates of one request, in order, and what else the request's route says.
#[derive(Clone, Debug)]
pub struct Plan {
    /// In the order in which they are tried.
    pub candidates: Vec<Candidate>,
    /// Everyone else, and why.
    pub passed: Vec<(usize, Passed)>,
    /// Of those, who could serve it if they had room, in order.
    pub full: Vec<Candidate>,
    /// What commits.
    pub commit_on: CommitOn,
    /// Policy for `stop` without content.
    pub on_empty_stop: OnEmptyStop,
    /// What becomes of a stream that breaks midway, unless its client asks for something else.
    pub on_break: OnBreak,
    /// Whose model name the client sees.
    pub model_name: ModelName,
    /// Early headers and signs of life.
    pub heartbeat: Option<Duration>,
    /// Which conversation it belongs to, if it is one that stays where it is.
    pub conversation: Option<u64>,
    /// How far its prompt may go: what the key, the client's header and the route say together.
    pub egress: Egress,
    /// The position of its route in the configuration, if it has one.
    pub route: Option<usize>,
    /// Who would be asked first if it were not busy, did not have to load the model, and had memory for it; not among
    /// `candidates` in that place.
    pub first_choice: Option<Candidate>,
    /// Targets of the group and region that it would be served in if all were well.
    home: Vec<usize>,
}

impl Plan {
    /// When the first of those who are out for a time may be back.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.passed.iter().filter_map(|(_, why)| why.left()).min()
    }

    /// Only those who speak `dialect` themselves: what is asked cannot be translated.
    #[must_use]
    pub fn speaking(mut self, dialect: Dialect) -> Plan {
        let passed = &mut self.passed;
        for candidates in [&mut self.candidates, &mut self.full] {
            candidates.retain(|candidate| {
                let why = if candidate.wire != dialect {
                    Passed::Dialect
                } else if candidate.inlined {
                    Passed::Urls
                } else {
                    return true;
                };
                passed.push((candidate.target, why));
                false
            });
        }
        self
    }

    /// Whether `target` is not where this request would be served if all were well.
    #[must_use]
    pub fn is_away(&self, target: usize) -> bool {
        !self.home.contains(&target)
    }

    /// Who is waited for stands first from here on, and once more behind those who are asked in its stead.
    pub fn home_first(&mut self) {
        let Some(near) = self.first_choice.take() else { return };
        match self.candidates.iter().position(|candidate| candidate.target == near.target) {
            // It was free when the plan was made.
            Some(0) => {
                if let Some(first) = self.candidates.first_mut() {
                    (first.again, first.hedge) = (true, false);
                }
                self.candidates.rotate_left(1);
            }
            Some(at) => {
                if let Some(later) = self.candidates.get_mut(at) {
                    later.again = true;
                }
            }
            None => {
                self.candidates.push(Candidate { patience: None, again: true, hedge: false, ..near.clone() })
            }
        }
        self.candidates.insert(0, near);
        self.candidates.truncate(limits::CANDIDATES_MAX);
    }

    /// The first of those at home that its memory sends this request away from, if anybody else gets it.
    #[must_use]
    pub fn shed(&self) -> Option<&Candidate> {
        let held = |candidate: &&Candidate| candidate.memory != Admission::Goes;
        let goes = self.candidates.iter().chain(&self.full).any(|candidate| !held(&candidate));
        let mut home = self.candidates.iter().filter(|candidate| !self.is_away(candidate.target));
        home.find(held).filter(|_| goes)
    }

    /// For whose room this request waits: nobody who is fit has any.
    #[must_use]
    pub fn waits_for(&self) -> Option<&Candidate> {
        if self.candidates.first().is_some_and(|first| first.patience.is_some()) {
            return None;
        }
        let better =
            |full: &&Candidate| self.candidates.first().is_none_or(|now| now.reluctant && !full.reluctant);
        self.full.first().filter(better)
    }
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

/// How `target` is asked for what `call` asks for, in the dialect `wire`.
#[must_use]
pub fn delivery(target: &Target, wire: Dialect, call: &Call) -> Delivery {
    // Without its counts a stream says less than the whole answer.
    let counts = target.include_usage || !matches!(wire, Dialect::OpenaiChat | Dialect::OpenaiCompletions);
    if call.stream {
        Delivery::Streamed
    } else if call.collectable && target.collect && collects(wire) && counts {
        Delivery::Collected
    } else {
        Delivery::Whole
    }
}

/// The dialect in which a target of this kind is asked for what a client asks for in `dialect`; `None`: it cannot be.
#[must_use]
pub const fn wire(kind: Kind, dialect: Dialect) -> Option<Dialect> {
    if speaks(kind, dialect) {
        return Some(dialect);
    }
    if !dialect.converses() {
        return None;
    }
    Some(match kind {
        Kind::Vllm | Kind::Llamacpp | Kind::Openai => Dialect::OpenaiChat,
        Kind::Ollama => Dialect::OllamaChat,
        Kind::Anthropic => Dialect::Anthropic,
        Kind::Gemini => Dialect::Gemini,
    })
}

/// The dialect in which all servers of this kind are asked, if that is another one: younger endpoints are not there at all
/// of them (Responses is OpenAI's own and a few others', Anthropic's only newer local servers').
#[must_use]
pub const fn fallback_wire(kind: Kind, dialect: Dialect) -> Option<Dialect> {
    match (kind, dialect) {
        (Kind::Vllm | Kind::Llamacpp | Kind::Openai, Dialect::OpenaiChat)
        | (Kind::Ollama, Dialect::OllamaChat)
        | (Kind::Anthropic | Kind::Gemini, _) => None,
        (Kind::Vllm | Kind::Llamacpp | Kind::Openai, _) if dialect.converses() => Some(Dialect::OpenaiChat),
        (Kind::Ollama, _) if dialect.converses() => Some(Dialect::OllamaChat),
        _ => None,
    }
}

/// Whether a target of this kind may be of the provider whose clients ask in this dialect, and so may know the ids of its
/// files.
#[must_use]
pub const fn native(kind: Kind, dialect: Dialect) -> bool {
    match kind {
        Kind::Openai => matches!(
            dialect,
            Dialect::OpenaiChat
                | Dialect::OpenaiCompletions
                | Dialect::OpenaiResponses
                | Dialect::OpenaiEmbeddings
        ),
        Kind::Anthropic => matches!(dialect, Dialect::Anthropic),
        Kind::Gemini => matches!(dialect, Dialect::Gemini),
        Kind::Ollama | Kind::Vllm | Kind::Llamacpp => false,
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
