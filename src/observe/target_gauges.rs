//! How each target is now, for Prometheus. Models are counted, not named: their names are the clients' to choose.

use std::fmt::{self, Write};
use std::time::Duration;

use super::metrics::{Label, head};

/// The states of a breaker.
pub const BREAKERS: [&str; 4] = ["closed", "recovering", "half_open", "open"];
/// The standings of a model at a target.
pub const STANDINGS: [&str; 4] = ["fit", "trial", "last", "out"];

/// One target.
#[derive(Clone, Debug, Default)]
pub struct TargetGauges<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its kind.
    pub kind: &'static str,
    /// Its place.
    pub place: &'static str,
    /// Its group.
    pub group: &'a str,
    /// Whether it is asked at all.
    pub candidate: bool,
    /// Attempts under way.
    pub in_flight: usize,
    /// Idle connections.
    pub idle: usize,
    /// Of its weight, in thousandths: the least of its models'.
    pub share: u16,
    /// Models by their breaker's state, as in [`BREAKERS`].
    pub breakers: [usize; 4],
    /// Models by their standing, as in [`STANDINGS`].
    pub standings: [usize; 4],
    /// The slowest model's p95 to the first token.
    pub first_token_p95: Option<Duration>,
    /// The slowest model's p95 between tokens.
    pub gap_p95: Option<Duration>,
    /// Requests that wait for a place there.
    pub waiting: usize,
    /// Models that it has loaded, by its own word.
    pub loaded: Option<usize>,
    /// Money spent there today and its cap, in millionths; `None` where it costs none, or has none.
    pub spent: Option<u64>,
    /// The cap.
    pub cap: Option<u64>,
}

type Value<'a> = fn(&TargetGauges<'a>) -> Option<f64>;

/// A gauge of each target that has it.
fn one<'a>(
    out: &mut String,
    all: &[TargetGauges<'a>],
    name: &str,
    help: &str,
    value: Value<'a>,
) -> fmt::Result {
    head(out, name, "gauge", help)?;
    for target in all {
        if let Some(value) = value(target) {
            writeln!(out, "{name}{{target=\"{}\"}} {value}", Label(target.name))?;
        }
    }
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "beyond 2^53 nobody counts")]
fn number(count: usize) -> Option<f64> {
    Some(count as f64)
}

#[expect(clippy::cast_precision_loss, reason = "beyond 2^53 millionths nobody pays")]
fn money(micros: Option<u64>) -> Option<f64> {
    micros.map(|micros| micros as f64 / 1e6)
}

/// All of them, in Prometheus' text format, to stand behind [`super::Metrics::render`]'s.
#[must_use]
pub fn render(all: &[TargetGauges<'_>]) -> String {
    let mut out = String::with_capacity(1024 + 2048 * all.len());
    // Writing to a String does not fail.
    let _infallible = write(&mut out, all);
    out
}

fn write(out: &mut String, all: &[TargetGauges<'_>]) -> fmt::Result {
    const INFO: &str = "edgeward_target_info";
    head(out, INFO, "gauge", "Always 1; the labels say what the target is.")?;
    for target in all {
        let TargetGauges { name, kind, place, group, .. } = target;
        let (name, group) = (Label(name), Label(group));
        writeln!(out, "{INFO}{{target=\"{name}\",kind=\"{kind}\",place=\"{place}\",group=\"{group}\"}} 1")?;
    }
    let gauges: [(&str, &str, Value<'_>); 12] = [
        ("edgeward_target_candidate", "Whether requests may go there: 1 or 0.", |t| {
            Some(f64::from(u8::from(t.candidate)))
        }),
        ("edgeward_target_attempts", "Attempts under way.", |t| number(t.in_flight)),
        ("edgeward_target_idle_connections", "Idle connections that are kept.", |t| number(t.idle)),
        (
            "edgeward_target_share_ratio",
            "Of its weight, what its health leaves: the least of its models'.",
            |t| Some(f64::from(t.share) / 1000.0),
        ),
        ("edgeward_target_queued_requests", "Requests that wait for a place there.", |t| number(t.waiting)),
        ("edgeward_target_loaded_models", "Models that it has loaded, by its own word.", |t| {
            t.loaded.and_then(number)
        }),
        (
            "edgeward_target_first_token_p95_seconds",
            "The p95 of the time to the first token: the slowest of its models'.",
            |t| t.first_token_p95.map(|time| time.as_secs_f64()),
        ),
        (
            "edgeward_target_token_gap_p95_seconds",
            "The p95 of the gaps between tokens: the slowest of its models'.",
            |t| t.gap_p95.map(|time| time.as_secs_f64()),
        ),
        ("edgeward_target_spent_today", "Money spent there today (UTC), in the prices' currency.", |t| {
            money(t.spent)
        }),
        ("edgeward_target_daily_cap", "What may be spent there a day, in the prices' currency.", |t| {
            money(t.cap)
        }),
        // The names of before, for one release: prices need not be in dollars.
        ("edgeward_target_spent_today_dollars", "Deprecated: edgeward_target_spent_today.", |t| {
            money(t.spent)
        }),
        ("edgeward_target_daily_cap_dollars", "Deprecated: edgeward_target_daily_cap.", |t| money(t.cap)),
    ];
    for (name, help, value) in gauges {
        one(out, all, name, help, value)?;
    }
    counted(out, all, "edgeward_target_breakers", "state", BREAKERS, |t| t.breakers)?;
    counted(out, all, "edgeward_target_standings", "standing", STANDINGS, |t| t.standings)
}

/// Models of each target by one of four words.
fn counted<'a>(
    out: &mut String,
    all: &[TargetGauges<'a>],
    name: &str,
    label: &str,
    words: [&str; 4],
    counts: fn(&TargetGauges<'a>) -> [usize; 4],
) -> fmt::Result {
    head(out, name, "gauge", &format!("Models that were lately asked for there, by their {label}."))?;
    for target in all {
        for (word, count) in words.iter().zip(counts(target)) {
            writeln!(out, "{name}{{target=\"{}\",{label}=\"{word}\"}} {count}", Label(target.name))?;
        }
    }
    Ok(())
}
