//! Which keys the tables of health, routing and reload policies have, and what people write instead.

use super::schema::Keys;
use super::{Board, Priority, RetryFirst};

/// A table whose keys are all known, and none of which is secret.
const fn table(
    title: &'static str,
    names: &'static [&'static str],
    slips: &'static [(&'static str, &'static str)],
) -> Keys {
    Keys { title, names, free: false, secret: false, slips }
}

pub(super) static BREAKER: Keys = table(
    "[breaker]",
    &[
        "enabled",
        "window",
        "min_samples",
        "failure_rate",
        "consecutive",
        "cooldown",
        "cooldown_max",
        "trials",
        "recovery",
    ],
    &[
        ("threshold", "write failure_rate = \"50%\", or consecutive = 3"),
        ("failures", "write consecutive = 3"),
        ("timeout", "write cooldown = \"10s\""),
        ("half_open", "write trials = 1"),
    ],
);

pub(super) static DEGRADE: Keys = table("[degrade]", &["enabled", "above", "below", "least"], &[]);

pub(super) static LATENCY: Keys = table(
    "[latency]",
    &["enabled", "times", "first_token", "gap", "min_samples", "out_after", "back_after", "trickle"],
    &[
        ("threshold", "write times = 4, first_token = \"1500ms\" and gap = \"500ms\""),
        ("between_tokens", "write gap = \"500ms\""),
    ],
);

pub(super) static PROBE: Keys = table(
    "[probe]",
    &["enabled", "every", "every_cloud", "timeout", "down_after"],
    &[
        ("interval", "write every = \"10s\", and every_cloud = \"300s\" for clouds"),
        ("path", "write it in its target: probe = { path = \"/…\" }"),
        ("failures", "write down_after = 2"),
    ],
);

const RETRIES: &str = "write max_retries = 1 in [[target]] or [[group]]";
pub(super) static RETRY: Keys = table(
    "[retry]",
    &["first", "backoff", "jitter", "budget"],
    &[
        ("max_retries", RETRIES),
        ("max", RETRIES),
        ("attempts", RETRIES),
        ("delay", "write backoff = \"200ms\""),
    ],
);

const LEARNED: &str =
    "leave it out: a hedge starts when a target's first token is later than 95 % of its earlier ones";
pub(super) static HEDGE: Keys =
    table("[hedge]", &["enabled", "share"], &[("after", LEARNED), ("delay", LEARNED)]);

pub(super) static QUEUE: Keys = table(
    "[queue]",
    &["length", "time"],
    &[
        ("size", "write length = 32"),
        ("max", "write length = 32"),
        ("timeout", "write time = \"5s\""),
        ("max_concurrent", "write it in its [[target]]"),
    ],
);

pub(super) static ELSEWHERE: Keys = table(
    "[elsewhere]",
    &["after"],
    &[
        ("time", "write after = \"10s\""),
        ("timeout", "write after = \"10s\""),
        ("wait", "write after = \"10s\""),
        ("lan", "write after = { lan = \"2s\", cloud = \"10s\" }"),
        ("cloud", "write after = { lan = \"2s\", cloud = \"10s\" }"),
    ],
);

pub(super) static AFTER: Keys = table(
    "after",
    &["lan", "cloud"],
    &[("local", "leave it out: another server of this box answers at once")],
);

pub(super) static STICKY: Keys =
    table("[sticky]", &["enabled", "idle", "away"], &[("ttl", "write idle = \"600s\"")]);

pub(super) static TRANSLATION: Keys = table("[translation]", &["strict"], &[]);

pub(super) static IMAGES: Keys = table(
    "[images]",
    &["fetch", "hosts", "private_hosts", "max_bytes", "timeout", "local_urls", "cache", "cache_time"],
    &[
        ("enabled", "write fetch = true"),
        ("allow", "write hosts = [\"images.example.com\"]"),
        ("max_size", "write max_bytes = \"10MiB\""),
        ("ttl", "write cache_time = \"15m\""),
    ],
);

pub(super) static RESUME: Keys = table(
    "[resume]",
    &["by_header", "continue_max_tokens"],
    &[("policy", "write on_break = \"continue\" at the top of the file, or in [[route]]")],
);

pub(super) static REPETITION: Keys =
    table("[repetition]", &["enabled", "times", "bytes"], &[("repeats", "write times = 8")]);

pub(super) static ROLLOUT: Keys = table(
    "[rollout]",
    &["share", "hold", "min_samples"],
    &[
        ("percent", "write share = \"10%\""),
        ("weight", "write share = \"10%\""),
        ("time", "write hold = \"60s\""),
    ],
);

pub(super) static MEMORY: Keys = table(
    "[memory]",
    &[
        "enabled",
        "board",
        "gpu",
        "huge_pages",
        "fill_per_second",
        "floor",
        "reserve",
        "amber",
        "red",
        "hold",
        "interval",
        "cgroup",
        "warm_up",
    ],
    &[
        ("preload", "write warm_up = true"),
        ("warmup", "write warm_up = true"),
        ("threshold", "write floor = \"1GiB\""),
        ("min_free", "write floor = \"1GiB\""),
        ("floor_permille", "write floor = \"1GiB\""),
        ("reserve_permille", "write reserve = \"256MiB\""),
        ("fill_mib_per_second", "write fill_per_second = \"6000MiB\""),
        ("every", "write interval = \"100ms\""),
    ],
);

pub(super) static GROUP: Keys = table(
    "[[group]]",
    &["name", "deadlines", "max_retries"],
    &[
        ("targets", "write group = \"…\" in each [[target]]"),
        ("retries", "write max_retries = 1"),
        ("timeout", "write deadlines = { total = \"600s\", … }"),
    ],
);

pub(super) static CAPABILITIES: Keys = table(
    "capabilities",
    &["tools", "images", "json"],
    &[
        ("vision", "write images = true"),
        ("functions", "write tools = true"),
        ("json_mode", "write json = true"),
        ("context", "write context = 8192 in [[target]] itself"),
    ],
);

pub(super) static TARGET_PROBE: Keys = table(
    "probe",
    &["every", "path"],
    &[("enabled", "write probe = false, or leave it out"), ("interval", "write every = \"10s\"")],
);

pub(super) static PROCESS: Keys = table(
    "process",
    &["unit", "pid_file"],
    &[
        ("service", "write unit = \"ollama.service\""),
        ("pid", "write pid_file = \"/run/….pid\": a number changes with each start"),
        ("pidfile", "write pid_file = \"/run/….pid\""),
    ],
);

pub(super) static PRICE: Keys = table(
    "price",
    &["input", "output"],
    &[
        ("prompt", "write input = 0.15, for a million tokens"),
        ("completion", "write output = 0.60, for a million tokens"),
    ],
);

pub(super) static BUDGET: Keys = table(
    "budget",
    &["requests_per_minute", "tokens_per_minute", "money_per_day"],
    &[
        ("rpm", "write requests_per_minute = 60"),
        ("tpm", "write tokens_per_minute = 100000"),
        ("cost", "write money_per_day = 5.00"),
        ("money", "write money_per_day = 5.00"),
        ("max_budget", "write money_per_day = 5.00"),
    ],
);

/// `headers` of a route: the names are the user's own.
pub(super) static HEADERS: Keys =
    Keys { title: "headers", names: &[], free: true, secret: false, slips: &[] };

pub(super) const FIRSTS: &[(&str, RetryFirst)] =
    &[("failover", RetryFirst::Failover), ("retry", RetryFirst::Retry)];
/// `None` is found out.
pub(super) const BOARDS: &[(&str, Option<Board>)] = &[
    ("auto", None),
    (Board::ALL[0].0, Some(Board::ALL[0].1)),
    (Board::ALL[1].0, Some(Board::ALL[1].1)),
    (Board::ALL[2].0, Some(Board::ALL[2].1)),
    (Board::ALL[3].0, Some(Board::ALL[3].1)),
    (Board::ALL[4].0, Some(Board::ALL[4].1)),
    (Board::ALL[5].0, Some(Board::ALL[5].1)),
];
/// Whether a GPU's memory is the processor's; `None`: the board says.
pub(super) const GPUS: &[(&str, Option<bool>)] =
    &[("auto", None), ("shared", Some(true)), ("own", Some(false))];
pub(super) const PRIORITIES: &[(&str, Priority)] =
    &[("low", Priority::Low), ("normal", Priority::Normal), ("high", Priority::High)];

/// Every table here, for the look where a misplaced key belongs, and for the tests.
pub(super) static ALL: [&Keys; 22] = [
    &BREAKER,
    &DEGRADE,
    &LATENCY,
    &PROBE,
    &RETRY,
    &HEDGE,
    &QUEUE,
    &ELSEWHERE,
    &AFTER,
    &STICKY,
    &TRANSLATION,
    &IMAGES,
    &RESUME,
    &REPETITION,
    &ROLLOUT,
    &MEMORY,
    &GROUP,
    &CAPABILITIES,
    &TARGET_PROBE,
    &PROCESS,
    &PRICE,
    &BUDGET,
];
