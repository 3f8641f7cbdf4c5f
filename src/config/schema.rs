//! Which keys exist, where, and within which bounds: the tables that the walk goes by.

use std::time::Duration;

use super::{
    CommitOn, DeadlineOverrides, Kind, Limits, ModelName, OnBreak, OnEmptyStop, Place, schema_policy,
};
use crate::limits::{GATE_BUFFER_MIN, HEADER_BYTES_MIN, KIB, MIB};

/// The keys of one table.
pub(super) struct Keys {
    /// As a sentence names it.
    pub title: &'static str,
    pub names: &'static [&'static str],
    /// Any key is allowed: they are the user's own names.
    pub free: bool,
    /// People may have put a key itself in here: unknown long names are not repeated.
    pub secret: bool,
    /// Keys that people write although they don't exist, and what to write instead.
    pub slips: &'static [(&'static str, &'static str)],
}

pub(super) static TOP: Keys = Keys {
    title: "the top of the file",
    names: &[
        "listen",
        "admin_listen",
        "allow_anonymous",
        "hosts",
        "model_name",
        "on_empty_stop",
        "commit_on",
        "heartbeat",
        "ollama_writes",
        "drop_anonymous_reasoning",
        "log_prompts",
        "lock_memory",
        "tls",
        "cors",
        "key",
        "limits",
        "deadlines",
        "target",
        "router",
        "route",
        "group",
        "breaker",
        "degrade",
        "latency",
        "probe",
        "retry",
        "hedge",
        "queue",
        "elsewhere",
        "sticky",
        "translation",
        "images",
        "on_break",
        "resume",
        "repetition",
        "rollout",
        "memory",
    ],
    free: false,
    secret: false,
    slips: &[
        ("groups", "write [router] with groups = [\"primary\", \"fallback\"]; [[group]] has a group's terms"),
        ("circuit_breaker", "write [breaker]"),
        ("outlier_detection", "write [breaker], [degrade] or [latency]"),
        ("health", "write [probe], [breaker], [degrade] or [latency]"),
        ("health_check", "write [probe]"),
        ("retries", "write [retry], and max_retries in [[target]] or [[group]]"),
        ("max_retries", "write it in [[target]] or [[group]]"),
        ("affinity", "write [sticky]"),
        ("session", "write [sticky]"),
        ("canary", "write [rollout]"),
        ("watchdog", "write [memory]"),
        ("board", "write it in [memory]"),
        ("rate_limit", "write budget = { requests_per_minute = 60 } in [[key]] or [[target]]"),
        ("port", "write listen = [\"127.0.0.1:8484\"]"),
        ("targets", "write [[target]], once for each"),
        ("keys", "write [[key]], once for each"),
        ("routes", "write [[route]], once for each"),
        ("timeouts", "write [deadlines]"),
        ("timeout", "write [deadlines] with total, first_token and the others below"),
    ],
};

pub(super) static TLS: Keys =
    Keys { title: "[tls]", names: &["cert", "key"], free: false, secret: false, slips: &[] };
pub(super) static CORS: Keys =
    Keys { title: "[cors]", names: &["origins"], free: false, secret: false, slips: &[] };

const KEY_IN_CLEAR: &str = "a key is never written into this file: use sha256 = \"…\" (printf %s KEY | sha256sum), \
                            credential = \"…\", file = \"…\" or env = \"…\"";
const RPM: &str = "write budget = { requests_per_minute = 60 }";
const TPM: &str = "write budget = { tokens_per_minute = 100000 }";
const MONEY: &str = "write budget = { money_per_day = 5.00 }";
pub(super) static KEY: Keys = Keys {
    title: "[[key]]",
    names: &["name", "sha256", "credential", "env", "file", "operator", "local_only", "priority", "budget"],
    free: false,
    secret: true,
    slips: &[
        ("key", KEY_IN_CLEAR),
        ("value", KEY_IN_CLEAR),
        ("token", KEY_IN_CLEAR),
        ("secret", KEY_IN_CLEAR),
        ("rpm", RPM),
        ("tpm", TPM),
        ("max_budget", MONEY),
    ],
};

pub(super) static LIMITS: Keys = Keys {
    title: "[limits]",
    names: &[
        "max_body",
        "body_memory",
        "gate_buffer",
        "gated_streams",
        "answer_buffer",
        "answer_memory",
        "connections",
        "max_headers",
        "header_bytes",
        "header_time",
        "idle_time",
        "body_time",
        "request_time",
        "write_time",
        "queue_time",
        "drain",
    ],
    free: false,
    secret: false,
    slips: &[],
};

pub(super) static DEADLINES: Keys = Keys {
    title: "[deadlines]",
    names: &["connect", "first_token", "first_token_per_1k", "between_tokens", "load", "answer", "total"],
    free: false,
    secret: false,
    slips: &[],
};

pub(super) static TARGET: Keys = Keys {
    title: "[[target]]",
    names: &[
        "name",
        "kind",
        "url",
        "place",
        "group",
        "region",
        "weight",
        "max_retries",
        "key",
        "forward_key",
        "models",
        "embeddings",
        "context",
        "deadlines",
        "ca_file",
        "roots",
        "include_usage",
        "collect",
        "spare",
        "max_concurrent",
        "capabilities",
        "probe",
        "process",
        "metered",
        "price",
        "budget",
    ],
    free: false,
    secret: false,
    slips: &[
        ("api_key", "write key = { env = \"…\" }, { credential = \"…\" } or { file = \"…\" }"),
        ("token", "write key = { env = \"…\" }, { credential = \"…\" } or { file = \"…\" }"),
        ("base_url", "write url = \"…\""),
        ("type", "write kind = \"…\""),
        ("model", "write models = { \"*\" = \"…\" }"),
        ("retries", "write max_retries = 1"),
        ("timeout", "write deadlines = { total = \"600s\", … }"),
        ("circuit_breaker", "write [breaker]: one is for all targets"),
        ("breaker", "write [breaker]: one is for all targets"),
        ("health_check", "write probe = { path = \"/health\" }"),
        ("unit", "write process = { unit = \"…\" }"),
        ("pid_file", "write process = { pid_file = \"…\" }"),
        ("pid", "write process = { unit = \"…\" } or { pid_file = \"…\" }"),
        ("cost", "write price = { input = 0.15, output = 0.60 }, for a million tokens each"),
        ("rpm", RPM),
        ("tpm", TPM),
        ("max_budget", MONEY),
        ("concurrency", "write max_concurrent = 4"),
        ("parallel", "write max_concurrent = 4"),
        ("tools", "write capabilities = { tools = true }"),
        ("vision", "write capabilities = { images = true }"),
        ("local_only", "write it in [[key]] or [[route]]; place says where this target is"),
    ],
};

pub(super) static TARGET_KEY: Keys =
    Keys { title: "key", names: &["credential", "env", "file"], free: false, secret: true, slips: &[] };
pub(super) static MODELS: Keys = Keys { title: "models", names: &[], free: true, secret: false, slips: &[] };
pub(super) static ROUTER: Keys =
    Keys { title: "[router]", names: &["groups", "region"], free: false, secret: false, slips: &[] };
pub(super) static ROUTE: Keys = Keys {
    title: "[[route]]",
    names: &[
        "model",
        "headers",
        "keys",
        "hours",
        "groups",
        "local_only",
        "hedge",
        "deadlines",
        "heartbeat",
        "commit_on",
        "on_empty_stop",
        "on_break",
        "model_name",
    ],
    free: false,
    secret: false,
    slips: &[
        ("timeout", "write deadlines = { total = \"600s\", … }"),
        ("targets", "write groups = [\"…\"], and give the targets that group"),
        ("target", "write groups = [\"…\"], and give the target that group"),
        ("key", "write keys = [\"…\"], the names of [[key]]"),
        ("header", "write headers = { \"x-team\" = \"vision*\" }"),
        ("time", "write hours = \"22:00-06:00\""),
    ],
};

/// Where a key that stands in the wrong place belongs. A key after a `[section]` belongs to that
/// section in TOML, however far above it was meant.
pub(super) fn home(name: &str) -> Option<String> {
    let a_table = ["tls", "cors", "key", "limits", "deadlines", "group"].contains(&name);
    let a_policy = schema_policy::ALL.iter().any(|keys| keys.title.trim_matches(['[', ']']) == name);
    if TOP.names.contains(&name) && !a_table && !a_policy {
        return Some("at the top of the file, before the first [section]".to_owned());
    }
    [&LIMITS, &DEADLINES, &ROUTER, &CORS, &TARGET, &KEY, &ROUTE]
        .into_iter()
        .chain(schema_policy::ALL)
        // In several of them: the first one would be a guess.
        .filter(|_| name != "enabled")
        .find(|keys| keys.names.contains(&name))
        .map(|keys| format!("in {}", keys.title))
        .or_else(|| a_policy.then(|| format!("in a table of its own, [{name}]")))
}

/// One key of `[limits]`: its bounds, and the field that it sets.
pub(super) enum Limit {
    Bytes { min: usize, max: usize, field: fn(&mut Limits) -> &mut usize },
    Count { min: u64, max: u64, field: fn(&mut Limits) -> &mut usize },
    Time { zero: bool, field: fn(&mut Limits) -> &mut Duration },
}

const GIB: usize = 1024 * MIB;

#[rustfmt::skip]
pub(super) static LIMIT_FIELDS: [(&str, Limit); 16] = [
    ("max_body",      Limit::Bytes { min: KIB, max: GIB, field: |l| &mut l.max_body }),
    ("body_memory",   Limit::Bytes { min: KIB, max: 1024 * GIB, field: |l| &mut l.body_memory }),
    ("gate_buffer",   Limit::Bytes { min: GATE_BUFFER_MIN, max: 16 * MIB, field: |l| &mut l.gate_buffer }),
    ("gated_streams", Limit::Count { min: 1, max: 65_536, field: |l| &mut l.gated_streams }),
    ("answer_buffer", Limit::Bytes { min: KIB, max: GIB, field: |l| &mut l.answer_buffer }),
    ("answer_memory", Limit::Bytes { min: KIB, max: 1024 * GIB, field: |l| &mut l.answer_memory }),
    ("connections",   Limit::Count { min: 1, max: 65_536, field: |l| &mut l.connections }),
    ("max_headers",   Limit::Count { min: 16, max: 1024, field: |l| &mut l.max_headers }),
    ("header_bytes",  Limit::Bytes { min: HEADER_BYTES_MIN, max: MIB, field: |l| &mut l.header_bytes }),
    ("header_time",   Limit::Time { zero: false, field: |l| &mut l.header_time }),
    ("idle_time",     Limit::Time { zero: false, field: |l| &mut l.idle_time }),
    ("body_time",     Limit::Time { zero: false, field: |l| &mut l.body_time }),
    ("request_time",  Limit::Time { zero: false, field: |l| &mut l.request_time }),
    ("write_time",    Limit::Time { zero: false, field: |l| &mut l.write_time }),
    ("queue_time",    Limit::Time { zero: true, field: |l| &mut l.queue_time }),
    ("drain",         Limit::Time { zero: true, field: |l| &mut l.drain }),
];

/// One key of `[deadlines]`: whether it may be zero, and the field that it sets.
pub(super) type Deadline = (&'static str, bool, fn(&mut DeadlineOverrides) -> &mut Option<Duration>);

#[rustfmt::skip]
pub(super) static DEADLINE_FIELDS: [Deadline; 7] = [
    ("connect",            false, |d| &mut d.connect),
    ("first_token",        false, |d| &mut d.first_token),
    ("first_token_per_1k", true,  |d| &mut d.first_token_per_1k),
    ("between_tokens",     false, |d| &mut d.between_tokens),
    ("load",               false, |d| &mut d.load),
    ("answer",             false, |d| &mut d.answer),
    ("total",              false, |d| &mut d.total),
];

pub(super) const MODEL_NAMES: &[(&str, ModelName)] =
    &[("asked", ModelName::Asked), ("real", ModelName::Real)];
pub(super) const EMPTY_STOPS: &[(&str, OnEmptyStop)] =
    &[("failover_once", OnEmptyStop::FailoverOnce), ("pass", OnEmptyStop::Pass)];
pub(super) const BREAKS: &[(&str, OnBreak)] = &[
    (OnBreak::ALL[0].as_str(), OnBreak::ALL[0]),
    (OnBreak::ALL[1].as_str(), OnBreak::ALL[1]),
    (OnBreak::ALL[2].as_str(), OnBreak::ALL[2]),
    (OnBreak::ALL[3].as_str(), OnBreak::ALL[3]),
];
pub(super) const COMMITS: &[(&str, CommitOn)] = &[("any", CommitOn::Any), ("content", CommitOn::Content)];
pub(super) const KINDS: &[(&str, Kind)] = &[
    ("ollama", Kind::Ollama),
    ("vllm", Kind::Vllm),
    ("llamacpp", Kind::Llamacpp),
    ("openai", Kind::Openai),
    ("anthropic", Kind::Anthropic),
    ("gemini", Kind::Gemini),
];
pub(super) const PLACES: &[(&str, Place)] =
    &[("local", Place::Local), ("lan", Place::Lan), ("cloud", Place::Cloud)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_has_its_field() {
        assert!(LIMITS.names.iter().eq(LIMIT_FIELDS.iter().map(|(name, _)| name)));
        assert!(DEADLINES.names.iter().eq(DEADLINE_FIELDS.iter().map(|(name, ..)| name)));
        for (name, kind) in KINDS {
            assert_eq!(*name, kind.as_str());
        }
        for (name, place) in PLACES {
            assert_eq!(*name, place.as_str());
        }
    }

    #[test]
    fn fields_are_all_different() {
        let mut limits = Limits::default();
        for (n, (_, limit)) in LIMIT_FIELDS.iter().enumerate() {
            match limit {
                Limit::Bytes { field, .. } | Limit::Count { field, .. } => *field(&mut limits) = n,
                Limit::Time { field, .. } => *field(&mut limits) = Duration::from_secs(n as u64),
            }
        }
        for (n, (name, limit)) in LIMIT_FIELDS.iter().enumerate() {
            match limit {
                Limit::Bytes { field, .. } | Limit::Count { field, .. } => {
                    assert_eq!(*field(&mut limits), n, "{name}")
                }
                Limit::Time { field, .. } => assert_eq!(field(&mut limits).as_secs(), n as u64, "{name}"),
            }
        }
    }

    #[test]
    fn example_shows_every_key() {
        let example = include_str!("../../systemd/edgeward.toml");
        let tables = [&TOP, &TLS, &CORS, &KEY, &LIMITS, &DEADLINES, &TARGET, &TARGET_KEY, &ROUTER, &ROUTE];
        for keys in tables.into_iter().chain(schema_policy::ALL) {
            for name in keys.names {
                let there = example.lines().any(|line| {
                    let line = line.trim_start_matches('#');
                    line.starts_with(&format!("{name} ="))
                        || line.contains(&format!("[{name}]"))
                        || line.contains(&format!("{{ {name} ="))
                        || line.contains(&format!(", {name} ="))
                });
                assert!(there, "systemd/edgeward.toml does not show {name} of {}", keys.title);
            }
        }
    }
}
