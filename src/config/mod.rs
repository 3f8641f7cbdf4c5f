//! The configuration, resolved: no option left open that has a default, valid by construction.
//!
//! `load` reads a file and gives either this or every mistake in it; `discover` makes
//! one from the machine and the environment where there is no file.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::limits;

mod checks;
mod client;
mod credential;
mod describe;
mod discover;
mod elsewhere;
mod figures;
mod flat;
mod flat_targets;
mod identify;
mod images;
mod load;
mod plan;
mod policies;
mod policy;
mod problem;
mod resume;
pub mod rollout;
mod route;
mod schema;
mod schema_policy;
mod secret;
mod target;
mod terms;
mod url;
pub(crate) mod value;
mod walk;

pub use describe::{Setting, describe, diff, in_lines};
pub use discover::{LOCAL_SERVERS, LocalServer, discover, local_name};
pub use elsewhere::{After, Elsewhere};
pub(crate) use figures::parse_share;
pub use figures::show_money;
pub use identify::{Known, Look, Next, Sight};
pub use images::Images;
pub use load::{load, load_or_discover, parse, see};
pub use plan::plan_text;
pub use policy::{
    Board, Breaker, Budget, Capabilities, Degrade, Egress, Group, Health, Hedge, Hours, Latency, Memory,
    Micros, Permille, Price, Priority, Probe, ProcessHint, Queue, Retry, RetryFirst, Rollout, Sticky,
    TargetProbe, Translation,
};
pub use problem::{Loaded, Problem, Problems, Reader, Seen};
pub use resume::{OnBreak, Repetition, Resume};
pub use secret::{Secret, hidden};
pub use value::show_bytes;
pub use walk::Env;

/// Where the configuration is looked for when none is named.
pub const DEFAULT_PATH: &str = "/etc/edgeward/edgeward.toml";
/// The port of the listener where none is configured.
pub const DEFAULT_PORT: u16 = 8484;

/// Everything that `edgeward run` needs to know.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The file that this came from; `None` when it was discovered.
    pub source: Option<PathBuf>,
    /// `listen`: where clients connect.
    pub listen: Vec<SocketAddr>,
    /// `admin_listen`: the operators' Unix socket.
    pub admin_listen: Option<PathBuf>,
    /// `allow_anonymous`: requests need no key. Always true when no key is configured and every listener is loopback.
    pub allow_anonymous: bool,
    /// `hosts`: names, besides IP literals and `localhost`, that a Host header may have. Lower case, no port.
    pub hosts: Vec<String>,
    /// `model_name`: which model name the client sees in an answer.
    pub model_name: ModelName,
    /// `on_empty_stop`: what a `stop` with reported tokens and no content is.
    pub on_empty_stop: OnEmptyStop,
    /// `commit_on`: what commits a stream.
    pub commit_on: CommitOn,
    /// `heartbeat`: send the client's 200 and signs of life when nothing came for this long.
    pub heartbeat: Option<Duration>,
    /// `ollama_writes`: whether `/api/pull`, `create`, `delete`, `copy`, `push` are passed on.
    pub ollama_writes: bool,
    /// `drop_anonymous_reasoning`: a reasoning delta without `id` and `model` is a model swapper's banner.
    pub drop_anonymous_reasoning: bool,
    /// `log_prompts`: a debug switch; nothing logs prompts without it. Request bodies, their beginnings.
    pub log_prompts: bool,
    /// `lock_memory`: whether this process's memory is kept from being paged out.
    pub lock_memory: LockMemory,
    /// `[tls]`: TLS for the LAN's side.
    pub tls: Option<ServerTls>,
    /// `[cors]`: browser origins that may call; empty allows none, `*` any.
    pub cors_origins: Vec<String>,
    /// `[[key]]`: clients' keys.
    pub keys: Vec<ClientKey>,
    /// `[limits]`.
    pub limits: Limits,
    /// `[deadlines]`, the default for each target and route.
    pub deadlines: Deadlines,
    /// `[[target]]`, in the file's order.
    pub targets: Vec<Target>,
    /// `[router]`.
    pub router: Router,
    /// `[[route]]`, first match wins.
    pub routes: Vec<Route>,
    /// `[[group]]`.
    pub groups: Vec<Group>,
    /// `[breaker]`, `[degrade]`, `[latency]`, `[probe]`.
    pub health: Health,
    /// `[retry]`.
    pub retry: Retry,
    /// `[hedge]`.
    pub hedge: Hedge,
    /// `[queue]`.
    pub queue: Queue,
    /// `[elsewhere]`.
    pub elsewhere: Elsewhere,
    /// `[sticky]`.
    pub sticky: Sticky,
    /// `[translation]`.
    pub translation: Translation,
    /// `[images]`.
    pub images: Images,
    /// `on_break`: what becomes of a stream that breaks midway.
    pub on_break: OnBreak,
    /// `[resume]`.
    pub resume: Resume,
    /// `[repetition]`.
    pub repetition: Repetition,
    /// `[rollout]`.
    pub rollout: Option<Rollout>,
    /// `[memory]`.
    pub memory: Memory,
}

/// Which model name the client sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelName {
    /// The name that it asked for, whoever answers.
    Asked,
    /// The name that the target gives.
    Real,
}

/// Policy for an answer that ends with `stop`, reports tokens and shows none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnEmptyStop {
    /// Try the next target, once.
    FailoverOnce,
    /// It is an answer.
    Pass,
}

/// Whether memory is locked at start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockMemory {
    /// Where the system allows it.
    Auto,
    /// Yes; that it is not allowed is an error in the log, and no reason not to serve.
    On,
    /// No.
    Off,
}

/// What commits a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitOn {
    /// Content, thinking or a tool call.
    Any,
    /// Content or a tool call; thinking alone does not.
    Content,
}

/// `[tls]`: PEM files for the LAN's side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerTls {
    /// The certificate chain.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// `[[key]]`: one client's key, kept as its SHA-256.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientKey {
    /// For logs and metrics.
    pub name: String,
    /// SHA-256 of the key's bytes.
    pub sha256: [u8; 32],
    /// `operator = true`: may also use `/edgeward/*`.
    pub operator: bool,
    /// `local_only`: how far its prompts may go.
    pub local_only: Egress,
    /// `priority`.
    pub priority: Priority,
    /// `budget`.
    pub budget: Budget,
}

impl std::fmt::Debug for ClientKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientKey")
            .field("name", &self.name)
            .field("operator", &self.operator)
            .finish_non_exhaustive()
    }
}

/// `[limits]`; units and defaults in [`crate::limits`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one request body.
    pub max_body: usize,
    /// Bytes of all request bodies held for replay.
    pub body_memory: usize,
    /// Bytes of one gate buffer.
    pub gate_buffer: usize,
    /// Gate buffers in the pool.
    pub gated_streams: usize,
    /// Bytes of one non-streamed answer judged whole.
    pub answer_buffer: usize,
    /// Bytes of all such answers.
    pub answer_memory: usize,
    /// Client connections.
    pub connections: usize,
    /// Header fields of a request.
    pub max_headers: usize,
    /// Bytes of a request's head.
    pub header_bytes: usize,
    /// A request's head must be whole in this time.
    pub header_time: Duration,
    /// A connection without a request is closed after this.
    pub idle_time: Duration,
    /// A request's body must be whole in this time.
    pub body_time: Duration,
    /// From the head to the commit.
    pub request_time: Duration,
    /// A client that takes no byte for this long is gone.
    pub write_time: Duration,
    /// Wait for a gate buffer or body memory.
    pub queue_time: Duration,
    /// Running streams may go on for this long after SIGTERM.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            max_body: limits::MAX_BODY,
            body_memory: limits::BODY_MEMORY,
            gate_buffer: limits::GATE_BUFFER,
            gated_streams: limits::GATED_STREAMS,
            answer_buffer: limits::ANSWER_BUFFER,
            answer_memory: limits::ANSWER_MEMORY,
            connections: limits::CONNECTIONS,
            max_headers: limits::MAX_HEADERS,
            header_bytes: limits::HEADER_BYTES,
            header_time: limits::HEADER_TIME,
            idle_time: limits::IDLE_TIME,
            body_time: limits::BODY_TIME,
            request_time: limits::REQUEST_TIME,
            write_time: limits::WRITE_TIME,
            queue_time: limits::QUEUE_TIME,
            drain: limits::DRAIN,
        }
    }
}

/// `[deadlines]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlines {
    /// For a connection, TLS included.
    pub connect: Duration,
    /// For the first token, from the connection on.
    pub first_token: Duration,
    /// Added for each thousand estimated prompt tokens.
    pub first_token_per_1k: Duration,
    /// Between two signs of progress after the commit.
    pub between_tokens: Duration,
    /// For a model that must be loaded first.
    pub load: Duration,
    /// For an answer that comes whole: of a target that is not asked for a stream, and embeddings. As long as `total`
    /// where it is not set.
    pub answer: Option<Duration>,
    /// For everything before the commit.
    pub total: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Deadlines {
            connect: limits::CONNECT,
            first_token: limits::FIRST_TOKEN,
            first_token_per_1k: limits::FIRST_TOKEN_PER_1K,
            between_tokens: limits::BETWEEN_TOKENS,
            load: limits::LOAD,
            answer: None,
            total: limits::TOTAL,
        }
    }
}

impl Limits {
    /// What the process may take at most, in bytes: itself at rest, replayed bodies, judged answers, gate buffers,
    /// [`limits::CONNECTION_BYTES`] a connection, and what clouds may send before slow clients take it.
    /// `MemoryMax=` belongs above it.
    #[must_use]
    pub fn memory(&self) -> u64 {
        let gates = self.gate_buffer.saturating_mul(self.gated_streams);
        let connections =
            self.connections.saturating_mul(self.header_bytes.saturating_add(limits::CONNECTION_BYTES));
        let windows =
            self.connections.div_ceil(limits::H2_STREAMS_MAX) * limits::H2_CONNECTION_WINDOW as usize;
        [self.body_memory, self.answer_memory, gates, connections, windows]
            .into_iter()
            .fold(limits::MEMORY_AT_REST as u64, |sum, part| sum.saturating_add(part as u64))
    }

    /// File descriptors that `connections` client connections need, each with one to a target, and everything else.
    #[must_use]
    pub fn descriptors(&self) -> u64 {
        (self.connections as u64).saturating_mul(2).saturating_add(limits::DESCRIPTORS_RESERVED)
    }
}

impl Deadlines {
    /// These, with each field that `over` sets replaced.
    #[must_use]
    pub fn overlaid(self, over: &DeadlineOverrides) -> Deadlines {
        Deadlines {
            connect: over.connect.unwrap_or(self.connect),
            first_token: over.first_token.unwrap_or(self.first_token),
            first_token_per_1k: over.first_token_per_1k.unwrap_or(self.first_token_per_1k),
            between_tokens: over.between_tokens.unwrap_or(self.between_tokens),
            load: over.load.unwrap_or(self.load),
            answer: over.answer.or(self.answer),
            total: over.total.unwrap_or(self.total),
        }
    }
}

/// `deadlines = { … }` of a target or a route: what it sets differently.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeadlineOverrides {
    /// See [`Deadlines::connect`].
    pub connect: Option<Duration>,
    /// See [`Deadlines::first_token`].
    pub first_token: Option<Duration>,
    /// See [`Deadlines::first_token_per_1k`].
    pub first_token_per_1k: Option<Duration>,
    /// See [`Deadlines::between_tokens`].
    pub between_tokens: Option<Duration>,
    /// See [`Deadlines::load`].
    pub load: Option<Duration>,
    /// See [`Deadlines::answer`].
    pub answer: Option<Duration>,
    /// See [`Deadlines::total`].
    pub total: Option<Duration>,
}

/// What a target speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Ollama: its own API, and OpenAI's, Responses and Anthropic's beside it.
    Ollama,
    /// vLLM.
    Vllm,
    /// llama.cpp's llama-server.
    Llamacpp,
    /// Anything that speaks OpenAI's API: OpenAI itself, SGLang, LM Studio, DeepSeek, OpenRouter, …
    Openai,
    /// Anthropic's Messages API.
    Anthropic,
    /// Google's Gemini API.
    Gemini,
}

/// Where a target is, the nearest first: decides egress, admission and what the watchdog may say about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// On this box.
    Local,
    /// On the LAN.
    Lan,
    /// Anywhere else.
    Cloud,
}

/// `[[target]]`: one upstream that can answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// `name`: unique, `[a-z0-9_-]+`.
    pub name: String,
    /// `kind`.
    pub kind: Kind,
    /// `url`.
    pub url: TargetUrl,
    /// `place`.
    pub place: Place,
    /// `group`.
    pub group: String,
    /// `region`.
    pub region: Option<String>,
    /// `weight`, 1 and up.
    pub weight: u32,
    /// `max_retries`: the same target again; 0 to 2.
    pub max_retries: u32,
    /// `key`: what it is given as its credential.
    pub key: Option<Secret>,
    /// `forward_key`: it is given the client's own credential.
    pub forward_key: bool,
    /// `models`.
    pub models: ModelMap,
    /// `embeddings`: the embedding family; embeddings fail over only within one.
    pub embeddings: Option<String>,
    /// `context`: its context window, in tokens.
    pub context: Option<u32>,
    /// `deadlines`.
    pub deadlines: DeadlineOverrides,
    /// `ca_file` / `roots`: what its certificate is checked against.
    pub roots: Roots,
    /// `include_usage`: whether OpenAI streams are asked for usage. On unless the server refuses it.
    pub include_usage: bool,
    /// `collect`: whether it is asked for a stream where a client wants a whole answer, which is then put together here.
    /// On, but for clouds.
    pub collect: bool,
    /// `spare`: keep one warm connection. On for https targets, all but the first group's.
    pub spare: bool,
    /// `max_concurrent`: requests that it is given at once; `None`: no bound.
    pub max_concurrent: Option<u32>,
    /// `capabilities`.
    pub capabilities: Capabilities,
    /// `probe`.
    pub probe: TargetProbe,
    /// `process`: which process of this box serves it.
    pub process: Option<ProcessHint>,
    /// `metered`: its uplink costs money or may be absent: no spare connection and no probe unless asked for.
    pub metered: bool,
    /// `price`; clouds without one have an assumed one.
    pub price: Option<Price>,
    /// `budget`; clouds without `money_per_day` have [`limits::CLOUD_MONEY_PER_DAY`].
    pub budget: Budget,
    /// Found on a usual port rather than configured; not a candidate until something answers there.
    pub discovered: bool,
}

/// Where a target listens. Paths have no trailing slash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetUrl {
    /// `http://host[:port][/base]`.
    Http {
        /// A name or an IP literal, without brackets.
        host: String,
        /// 80 unless named.
        port: u16,
        /// Prefix for every path; empty or `/…`.
        base: String,
    },
    /// `https://host[:port][/base]`.
    Https {
        /// A name or an IP literal, without brackets.
        host: String,
        /// 443 unless named.
        port: u16,
        /// Prefix for every path; empty or `/…`.
        base: String,
    },
    /// `unix:/path/to.sock`.
    Unix {
        /// The socket's path.
        path: PathBuf,
    },
}

/// Which certificate authorities a target is trusted by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Roots {
    /// Mozilla's, built in.
    Bundled,
    /// The operating system's store.
    System,
    /// `ca_file`: exactly those in this PEM file.
    File(PathBuf),
}

/// `models`: from the name a client asks for to the name the target knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelMap {
    /// In the file's order. The name may be exact, or end with `*`; the value `*` keeps the asked-for name.
    pub entries: Vec<(String, String)>,
}

impl ModelMap {
    /// Whether the configuration itself says what `asked` is here, so that its operator is wrong where the target does
    /// not have it; else only the client has named it.
    #[must_use]
    pub fn names(&self, asked: &str) -> bool {
        let exact = self.entries.iter().any(|(name, _)| name == asked);
        exact || self.resolve(asked).is_some_and(|given| given != asked)
    }

    /// The target's name for `asked`: an exact entry, else the longest matching `prefix*`.
    /// `None`: not in the map. An empty map keeps every name.
    #[must_use]
    pub fn resolve<'a>(&'a self, asked: &'a str) -> Option<&'a str> {
        if self.entries.is_empty() {
            return Some(asked);
        }
        let keep = |value: &'a str| if value == "*" { asked } else { value };
        if let Some((_, value)) = self.entries.iter().find(|(name, _)| name == asked) {
            return Some(keep(value));
        }
        self.entries
            .iter()
            .filter(|(name, _)| name.strip_suffix('*').is_some_and(|prefix| asked.starts_with(prefix)))
            .max_by_key(|(name, _)| name.len())
            .map(|(_, value)| keep(value))
    }
}

/// `[router]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Router {
    /// Groups in the order in which they are tried.
    pub groups: Vec<String>,
    /// This box's region.
    pub region: Option<String>,
}

/// `[[route]]`: requests whose model matches get other rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// `model`: exact, or ending with `*`; `*` where it is left out and another condition stands.
    pub model: String,
    /// `headers`: each must be there, in lower case; its value exact, or ending with `*`.
    pub headers: Vec<(String, String)>,
    /// `keys`: names of client keys, one of which made the request; empty: any.
    pub keys: Vec<String>,
    /// `hours`: only at this time of the day, by the box's time zone.
    pub hours: Option<Hours>,
    /// `local_only`: how far these prompts may go.
    pub local_only: Egress,
    /// `hedge`: over `[hedge]`.
    pub hedge: Option<bool>,
    /// `groups`: other groups, in order.
    pub groups: Option<Vec<String>>,
    /// `deadlines`: over the target's.
    pub deadlines: DeadlineOverrides,
    /// `heartbeat`.
    pub heartbeat: Option<Duration>,
    /// `commit_on`.
    pub commit_on: Option<CommitOn>,
    /// `on_empty_stop`.
    pub on_empty_stop: Option<OnEmptyStop>,
    /// `on_break`.
    pub on_break: Option<OnBreak>,
    /// `model_name`.
    pub model_name: Option<ModelName>,
}

impl Route {
    /// Whether this route is for `model`.
    #[must_use]
    pub fn matches(&self, model: &str) -> bool {
        match self.model.strip_suffix('*') {
            Some(prefix) => model.starts_with(prefix),
            None => self.model == model,
        }
    }
}

impl Kind {
    /// As the config writes it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Kind::Ollama => "ollama",
            Kind::Vllm => "vllm",
            Kind::Llamacpp => "llamacpp",
            Kind::Openai => "openai",
            Kind::Anthropic => "anthropic",
            Kind::Gemini => "gemini",
        }
    }
}

impl Place {
    /// As the config writes it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Place::Local => "local",
            Place::Lan => "lan",
            Place::Cloud => "cloud",
        }
    }
}
