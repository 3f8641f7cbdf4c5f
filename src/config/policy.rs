//! Health, routing and reload policies: their types, and their defaults.

use std::path::PathBuf;
use std::time::Duration;

use crate::limits;

/// A share in thousandths: `"12.5%"` is 125. At most 1000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Permille(pub u16);

/// Money in millionths of the unit that the operator's prices are in (US dollars, for the defaults).
pub type Micros = u64;

/// What health is judged by, for each (target, model).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Health {
    /// `[breaker]`.
    pub breaker: Breaker,
    /// `[degrade]`.
    pub degrade: Degrade,
    /// `[latency]`.
    pub latency: Latency,
    /// `[probe]`.
    pub probe: Probe,
}

/// `[breaker]`: when a (target, model) is given a rest.
#[derive(Clone, Debug, PartialEq)]
pub struct Breaker {
    /// `enabled`: off, it never opens.
    pub enabled: bool,
    /// `window`: failures are counted over this, in [`limits::WINDOW_BUCKETS`] buckets.
    pub window: Duration,
    /// `min_samples`: nothing is decided by rate below this.
    pub min_samples: u32,
    /// `failure_rate`: opens from this share of failures on.
    pub failure_rate: Permille,
    /// `consecutive`: opens after this many failures in a row.
    pub consecutive: u32,
    /// `cooldown`: the first rest; each further one is twice as long.
    pub cooldown: Duration,
    /// `cooldown_max`: at most.
    pub cooldown_max: Duration,
    /// `trials`: requests let through at once while half open.
    pub trials: u32,
    /// `recovery`: after it closes the target's share returns in steps over this; 0 gives it back at once.
    pub recovery: Duration,
}

impl Default for Breaker {
    fn default() -> Self {
        Breaker {
            enabled: true,
            window: limits::BREAKER_WINDOW,
            min_samples: limits::BREAKER_MIN_SAMPLES,
            failure_rate: Permille(limits::BREAKER_FAILURE_RATE),
            consecutive: limits::BREAKER_CONSECUTIVE,
            cooldown: limits::BREAKER_COOLDOWN,
            cooldown_max: limits::BREAKER_COOLDOWN_MAX,
            trials: limits::BREAKER_TRIALS,
            recovery: limits::BREAKER_RECOVERY,
        }
    }
}

/// `[degrade]`: a target that fails now and then gets a smaller share.
#[derive(Clone, Debug, PartialEq)]
pub struct Degrade {
    /// `enabled`.
    pub enabled: bool,
    /// `above`: above this share of failures over a minute the share falls.
    pub above: Permille,
    /// `below`: below this it returns.
    pub below: Permille,
    /// `least`: it never falls below this part of its weight.
    pub least: Permille,
}

impl Default for Degrade {
    fn default() -> Self {
        Degrade {
            enabled: true,
            above: Permille(limits::DEGRADE_ABOVE),
            below: Permille(limits::DEGRADE_BELOW),
            least: Permille(limits::DEGRADE_LEAST),
        }
    }
}

/// `[latency]`: a target that answers, but far too slowly, is taken out.
#[derive(Clone, Debug, PartialEq)]
pub struct Latency {
    /// `enabled`.
    pub enabled: bool,
    /// `times`: out above this many times what is usual for it (p95 of time to first token against what the
    /// prompt's length predicts; p95 of gaps between tokens).
    pub times: u32,
    /// `first_token`: never out while the p95 is below this, however fast it used to be.
    pub first_token: Duration,
    /// `gap`: the same for the gaps between tokens.
    pub gap: Duration,
    /// `min_samples`: nothing is decided below this.
    pub min_samples: u32,
    /// `out_after`: above the threshold for this long.
    pub out_after: Duration,
    /// `back_after`: below it for this long.
    pub back_after: Duration,
    /// `trickle`: one request in this time is still tried while it is out.
    pub trickle: Duration,
}

impl Default for Latency {
    fn default() -> Self {
        Latency {
            enabled: true,
            times: limits::LATENCY_TIMES,
            first_token: limits::LATENCY_FIRST_TOKEN,
            gap: limits::LATENCY_GAP,
            min_samples: limits::LATENCY_MIN_SAMPLES,
            out_after: limits::LATENCY_OUT_AFTER,
            back_after: limits::LATENCY_BACK_AFTER,
            trickle: limits::LATENCY_TRICKLE,
        }
    }
}

/// `[probe]`: cheap requests of our own.
#[derive(Clone, Debug, PartialEq)]
pub struct Probe {
    /// `enabled`.
    pub enabled: bool,
    /// `every`: local and LAN targets; with a tenth of jitter.
    pub every: Duration,
    /// `every_cloud`: cloud targets.
    pub every_cloud: Duration,
    /// `timeout`: for the whole of it.
    pub timeout: Duration,
    /// `down_after`: this many failures in a row mark the target down.
    pub down_after: u32,
}

impl Default for Probe {
    fn default() -> Self {
        Probe {
            enabled: true,
            every: limits::PROBE_EVERY,
            every_cloud: limits::PROBE_EVERY_CLOUD,
            timeout: limits::PROBE_TIMEOUT,
            down_after: limits::PROBE_DOWN_AFTER,
        }
    }
}

/// `probe = …` of a target: false, or what is different for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetProbe {
    /// `probe = false`, or a metered target that does not say otherwise.
    pub off: bool,
    /// `probe = { every = "…" }`.
    pub every: Option<Duration>,
    /// `probe = { path = "/…" }`: asked with GET; any 2xx is good.
    pub path: Option<String>,
}

/// `process = { … }` of a target on this box: which process serves it, where its socket does not tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProcessHint {
    /// `unit = "ollama.service"`: its cgroup's name.
    Unit(String),
    /// `pid_file = "/…"`.
    PidFile(PathBuf),
}

/// `[retry]`: the same target again.
#[derive(Clone, Debug, PartialEq)]
pub struct Retry {
    /// `first`: whether the same target is tried again before the next one.
    pub first: RetryFirst,
    /// `backoff`: before the first retry; twice as long before the second.
    pub backoff: Duration,
    /// `jitter`: up to this is added.
    pub jitter: Duration,
    /// `budget`: retries at most, as a share of recent requests.
    pub budget: Permille,
}

/// Who is next after a failure that a retry may mend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryFirst {
    /// `"failover"`: the next target at once; retries when nobody else is left.
    Failover,
    /// `"retry"`: the same target again, then the next one.
    Retry,
}

impl Default for Retry {
    fn default() -> Self {
        Retry {
            first: RetryFirst::Failover,
            backoff: limits::RETRY_BACKOFF,
            jitter: limits::RETRY_JITTER,
            budget: Permille(limits::RETRY_BUDGET),
        }
    }
}

/// `[hedge]`: the next target too, when the first token is late.
#[derive(Clone, Debug, PartialEq)]
pub struct Hedge {
    /// `enabled`: off by default: a hedged request may cost two.
    pub enabled: bool,
    /// `share`: hedged requests at most, of recent ones.
    pub share: Permille,
}

impl Default for Hedge {
    fn default() -> Self {
        Hedge { enabled: false, share: Permille(limits::HEDGE_SHARE) }
    }
}

/// `[queue]`: requests that wait for a target with `max_concurrent`.
#[derive(Clone, Debug, PartialEq)]
pub struct Queue {
    /// `length`: requests that wait for one target at once; 0 sheds at once.
    pub length: usize,
    /// `time`: how long each may wait.
    pub time: Duration,
}

impl Default for Queue {
    fn default() -> Self {
        Queue { length: limits::QUEUE_LENGTH, time: limits::QUEUE_TIME }
    }
}

/// `[sticky]`: conversations stay where their KV cache is.
#[derive(Clone, Debug, PartialEq)]
pub struct Sticky {
    /// `enabled`.
    pub enabled: bool,
    /// `idle`: a conversation that is silent for this long has ended.
    pub idle: Duration,
    /// `away`: where its box failed, a conversation stays on the fallback for at most this long.
    pub away: Duration,
}

impl Default for Sticky {
    fn default() -> Self {
        Sticky { enabled: true, idle: limits::STICKY_IDLE, away: limits::STICKY_AWAY }
    }
}

/// `[translation]`: requests and answers in another dialect than the client's.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Translation {
    /// `strict`: what a target cannot be asked is a refusal; else it is left out, and logged.
    pub strict: bool,
}

/// `[memory]`: the watchdog that sees memory run out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memory {
    /// `enabled`: off, nothing is read and nothing is judged.
    pub enabled: bool,
    /// `board`: how this box's memory is judged; `None` is found out.
    pub board: Option<Board>,
    /// `gpu`: whether the GPU's memory is the processor's; `None`: by the board.
    pub gpu_shared: Option<bool>,
    /// `huge_pages`: those that are set aside are what the GPU gets; `None`: by the board.
    pub huge_pages: Option<bool>,
    /// `fill_per_second`: as fast as memory is filled, in bytes; `None`: by the board.
    pub fill_per_second: Option<usize>,
    /// `floor`: below this much that is available it is low, in bytes; `None`: by the board and by what is usual here.
    pub floor: Option<usize>,
    /// `reserve`: what is as good as nothing, in bytes; `None`: by the board and the floor.
    pub reserve: Option<usize>,
    /// `amber`: low, when at the present rate it is used up within this.
    pub amber: Duration,
    /// `red`: about to run out, when it is used up within this.
    pub red: Duration,
    /// `hold`: this long without a sign before it is well again.
    pub hold: Duration,
    /// `interval`: between two looks while memory is short.
    pub interval: Duration,
    /// `cgroup`: the folder of the memory cgroup that the model server lives in, where that has a limit.
    pub cgroup: Option<PathBuf>,
    /// `warm_up`: a local model that a request asks for is loaded while another target answers.
    pub warm_up: bool,
}

impl Default for Memory {
    fn default() -> Self {
        Memory {
            enabled: true,
            board: None,
            gpu_shared: None,
            huge_pages: None,
            fill_per_second: None,
            floor: None,
            reserve: None,
            amber: limits::MEMORY_AMBER,
            red: limits::MEMORY_RED,
            hold: limits::MEMORY_HOLD,
            interval: limits::MEMORY_INTERVAL,
            cgroup: None,
            warm_up: true,
        }
    }
}

/// A kind of box: each has its profile in `board/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Board {
    /// NVIDIA Jetson AGX Orin, Orin NX, Orin Nano.
    JetsonOrin,
    /// NVIDIA Jetson AGX Thor.
    JetsonThor,
    /// NVIDIA DGX Spark, and others with GB10.
    DgxSpark,
    /// A PC with NVIDIA cards.
    X86Rtx,
    /// AMD graphics.
    Amd,
    /// Whatever none of the others is.
    Generic,
}

impl Board {
    /// Every one, in the order of the enum, with its name in `board/`.
    pub const ALL: [(&'static str, Board); 6] = [
        ("jetson-orin", Board::JetsonOrin),
        ("jetson-thor", Board::JetsonThor),
        ("dgx-spark", Board::DgxSpark),
        ("x86-rtx", Board::X86Rtx),
        ("amd", Board::Amd),
        ("generic", Board::Generic),
    ];

    /// Its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        Board::ALL[self as usize].0
    }
}

/// `[rollout]`: a reloaded routing takes a share first. Without the table it takes everything at once.
#[derive(Clone, Debug, PartialEq)]
pub struct Rollout {
    /// `share` of new requests.
    pub share: Permille,
    /// `hold`: for this long, then it goes on to all.
    pub hold: Duration,
    /// `min_samples`: it is not judged below this many requests.
    pub min_samples: u32,
}

/// `[[group]]`: terms of the targets in a group.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// `name`.
    pub name: String,
    /// `deadlines`: over the defaults, under a target's own.
    pub deadlines: super::DeadlineOverrides,
    /// `max_retries`: for its targets that name none.
    pub max_retries: Option<u32>,
}

/// `budget = { … }` of a key or a target. `None`: no bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    /// `requests_per_minute`.
    pub requests_per_minute: Option<u32>,
    /// `tokens_per_minute`, prompt and completion.
    pub tokens_per_minute: Option<u64>,
    /// `money_per_day`, at clouds. A day is UTC's.
    pub money_per_day: Option<Micros>,
}

/// `price = { … }` of a target, for a million tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Price {
    /// `input`.
    pub input: Micros,
    /// `output`.
    pub output: Micros,
    /// Not in the file: [`limits::PRICE_INPUT`] and [`limits::PRICE_OUTPUT`], which are high rather than low.
    pub assumed: bool,
}

/// `capabilities = { … }` of a target: what it says that it can; `None` is not known, and counts as yes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// `tools`.
    pub tools: Option<bool>,
    /// `images`.
    pub images: Option<bool>,
    /// `json`: JSON mode and schemas.
    pub json: Option<bool>,
}

/// `priority` of a key: who is let in first when a target's queue is not empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// `"low"`.
    Low,
    /// `"normal"`.
    #[default]
    Normal,
    /// `"high"`.
    High,
}

/// `local_only`: how far a prompt may go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Egress {
    /// Anywhere.
    #[default]
    Anywhere,
    /// `local_only = "lan"`: this box and the LAN.
    Lan,
    /// `local_only = true`: this box only.
    Box,
}

/// `hours` of a route: from `from` until `to`, minutes after local midnight; may run over midnight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hours {
    /// 0 to 1439.
    pub from: u16,
    /// 0 to 1439; equal to `from`: the whole day.
    pub to: u16,
}
