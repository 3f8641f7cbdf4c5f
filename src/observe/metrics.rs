//! Counters for one thread, and their text for Prometheus.
//!
//! Label sets are bounded: targets by the configuration, everything else by an enum.

use std::cell::Cell;
use std::fmt::{self, Write};
use std::rc::Rc;
use std::time::Duration;

use super::kinds::{Limit, Outcome, Shed, Turned};
use super::memory_events::Memory;
use super::resume_events::{Breaks, Came, Resumed};
use super::tally::{self, Egress, Tally};
use crate::cause::Cause;

/// The answer's content type: Prometheus' text format.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Upper bounds of the time-to-first-token histogram, in seconds; the last bucket is `+Inf`.
/// From a hit in the prompt cache to a model that is loaded first.
pub const TTFT_BUCKETS: [f64; 14] =
    [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 90.0, 300.0];

type Counter = Cell<u64>;

/// Everything that is counted. Plain cells: one thread counts and reads.
#[derive(Debug)]
pub struct Metrics {
    process: Rc<Process>,
    targets: Vec<Rc<Target>>,
}

/// What is counted for the process.
#[derive(Debug)]
struct Process {
    requests: [Counter; Outcome::ALL.len()],
    limits: [Counter; Limit::ALL.len()],
    shed: [Counter; Shed::ALL.len()],
    breaks: Breaks,
}

#[derive(Debug)]
struct Target {
    name: String,
    committed: Counter,
    failed: [Counter; Cause::ALL.len()],
    /// Each bucket's own count, `+Inf` last.
    ttft: [Counter; TTFT_BUCKETS.len() + 1],
    /// Nanoseconds.
    ttft_sum: Counter,
    /// Probes that succeeded, and that did not.
    probes: [Counter; 2],
    tally: Tally,
}

/// What is as it is now.
#[derive(Clone, Copy, Debug, Default)]
pub struct Gauges {
    /// Client connections.
    pub connections: usize,
    /// Gate buffers in use.
    pub gated_streams: usize,
    /// Bytes of request bodies held for replay.
    pub body_memory: usize,
    /// Bytes of whole answers being judged.
    pub answer_memory: usize,
    /// How memory stands where it is worst, and its pressure as a number; `None` while it is not watched.
    pub memory: Option<(Memory, u8)>,
    /// Since the start.
    pub uptime: Duration,
}

impl Target {
    fn new(name: String) -> Self {
        Target {
            name,
            committed: Counter::default(),
            failed: std::array::from_fn(|_| Counter::default()),
            ttft: std::array::from_fn(|_| Counter::default()),
            ttft_sum: Counter::default(),
            probes: Default::default(),
            tally: Tally::default(),
        }
    }
}

pub(super) fn add(counter: &Counter, count: u64) {
    counter.set(counter.get().saturating_add(count));
}

impl Metrics {
    /// All zero, for these targets; they are named by their place in this order.
    #[must_use]
    pub fn new<S: Into<String>>(targets: impl IntoIterator<Item = S>) -> Self {
        let process = Rc::new(Process {
            requests: std::array::from_fn(|_| Counter::default()),
            limits: std::array::from_fn(|_| Counter::default()),
            shed: std::array::from_fn(|_| Counter::default()),
            breaks: Breaks::default(),
        });
        let targets = targets.into_iter().map(|name| Rc::new(Target::new(name.into()))).collect();
        Metrics { process, targets }
    }

    /// For other targets: what was counted for the process, and for those whose names stay, is counted on, by both.
    #[must_use]
    pub fn renewed<S: Into<String>>(&self, targets: impl IntoIterator<Item = S>) -> Self {
        let kept = |name: String| match self.targets.iter().find(|target| target.name == name) {
            Some(target) => Rc::clone(target),
            None => Rc::new(Target::new(name)),
        };
        let targets = targets.into_iter().map(|name| kept(name.into())).collect();
        Metrics { process: Rc::clone(&self.process), targets }
    }

    /// A request ended.
    pub fn request(&self, outcome: Outcome) {
        add(&self.process.requests[outcome as usize], 1);
    }

    /// An attempt at the `target`th target committed (`None`) or failed. An unknown target counts nowhere.
    pub fn attempt(&self, target: usize, failed: Option<Cause>) {
        let Some(target) = self.targets.get(target) else { return };
        add(failed.map_or(&target.committed, |cause| &target.failed[cause as usize]), 1);
    }

    /// The `target`th target's first token came after this.
    pub fn ttft(&self, target: usize, took: Duration) {
        let Some(target) = self.targets.get(target) else { return };
        let seconds = took.as_secs_f64();
        let bucket = TTFT_BUCKETS.partition_point(|&bound| bound < seconds);
        add(&target.ttft[bucket], 1);
        add(&target.ttft_sum, u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }

    /// The `target`th target was probed.
    pub fn probe(&self, target: usize, good: bool) {
        let Some(target) = self.targets.get(target) else { return };
        add(&target.probes[usize::from(!good)], 1);
    }

    /// The `target`th target's health has changed.
    pub fn turned(&self, target: usize, what: Turned) {
        if let Some(target) = self.targets.get(target) {
            target.tally.turned(what);
        }
    }

    /// The `target`th target is asked again by a request that it has failed before.
    pub fn retry(&self, target: usize) {
        if let Some(target) = self.targets.get(target) {
            target.tally.retry();
        }
    }

    /// An attempt at the `target`th target begins beside a slow one.
    pub fn hedge(&self, target: usize) {
        if let Some(target) = self.targets.get(target) {
            target.tally.hedge();
        }
    }

    /// A prompt of so many tokens was sent off the box, to the `target`th target, on this day since 1970.
    pub fn left(&self, target: usize, prompt_tokens: u64, day: u64) {
        if let Some(target) = self.targets.get(target) {
            target.tally.left(prompt_tokens, day);
        }
    }

    /// What was sent there on this day.
    #[must_use]
    pub fn egress_on(&self, target: usize, day: u64) -> Egress {
        self.targets.get(target).map(|target| target.tally.egress_on(day)).unwrap_or_default()
    }

    /// A stream broke that was to go on elsewhere.
    pub fn broke(&self, how: Resumed, came: Came) {
        self.process.breaks.count(how, came);
    }

    /// A limit was hit.
    pub fn limit(&self, limit: Limit) {
        add(&self.process.limits[limit as usize], 1);
    }

    /// A local server's memory kept a request away.
    pub fn shed(&self, why: Shed) {
        add(&self.process.shed[why as usize], 1);
    }

    /// Everything in Prometheus' text format ([`CONTENT_TYPE`]).
    #[must_use]
    pub fn render(&self, gauges: &Gauges) -> String {
        let mut out = String::with_capacity(4096 + 2048 * self.targets.len());
        // Writing to a String does not fail.
        let _ = self.write(&mut out, gauges);
        out
    }

    fn write(&self, out: &mut String, gauges: &Gauges) -> fmt::Result {
        head(out, "edgeward_requests_total", "counter", "Requests by how they ended.")?;
        for outcome in Outcome::ALL {
            let count = self.process.requests[outcome as usize].get();
            writeln!(out, "edgeward_requests_total{{outcome=\"{}\"}} {count}", outcome.as_str())?;
        }
        head(
            out,
            "edgeward_attempts_total",
            "counter",
            "Attempts by target and result: committed, or the cause of the failure.",
        )?;
        for target in &self.targets {
            let name = Label(&target.name);
            let count = target.committed.get();
            writeln!(out, "edgeward_attempts_total{{target=\"{name}\",result=\"committed\"}} {count}")?;
            for cause in Cause::ALL {
                // Causes that never happened are left out: there are many, times the targets.
                let count = target.failed[cause as usize].get();
                if count > 0 {
                    writeln!(out, "edgeward_attempts_total{{target=\"{name}\",result=\"{cause}\"}} {count}")?;
                }
            }
        }
        head(
            out,
            "edgeward_time_to_first_token_seconds",
            "histogram",
            "From the attempt's start to its first token, by target.",
        )?;
        for target in &self.targets {
            target.write_ttft(out)?;
        }
        head(out, "edgeward_probes_total", "counter", "Probes by target and result.")?;
        for target in &self.targets {
            let name = Label(&target.name);
            for (result, count) in ["ok", "failed"].iter().zip(&target.probes) {
                let count = count.get();
                writeln!(out, "edgeward_probes_total{{target=\"{name}\",result=\"{result}\"}} {count}")?;
            }
        }
        tally::write(out, self.targets.iter().map(|target| (target.name.as_str(), &target.tally)))?;
        head(out, "edgeward_limit_hits_total", "counter", "Times that a limit was hit, by its name.")?;
        for limit in Limit::ALL {
            let count = self.process.limits[limit as usize].get();
            writeln!(out, "edgeward_limit_hits_total{{limit=\"{}\"}} {count}", limit.as_str())?;
        }
        let help = "Requests that a target's memory, slots or places kept away, by why.";
        head(out, "edgeward_shed_requests_total", "counter", help)?;
        for (name, why) in Shed::ALL {
            let count = self.process.shed[why as usize].get();
            writeln!(out, "edgeward_shed_requests_total{{reason=\"{name}\"}} {count}")?;
        }
        self.process.breaks.write(out)?;
        head(out, "edgeward_log_lines_lost_total", "counter", "Log lines that nobody took in time.")?;
        writeln!(out, "edgeward_log_lines_lost_total {}", super::lost_lines())?;
        gauges.write(out)?;
        head(out, "edgeward_build_info", "gauge", "Always 1; the label says what runs.")?;
        writeln!(out, "edgeward_build_info{{version=\"{}\"}} 1", env!("CARGO_PKG_VERSION"))
    }
}

impl Target {
    fn write_ttft(&self, out: &mut String) -> fmt::Result {
        const NAME: &str = "edgeward_time_to_first_token_seconds";
        let name = Label(&self.name);
        let mut count = 0;
        for (bound, own) in TTFT_BUCKETS.iter().zip(&self.ttft) {
            count += own.get();
            writeln!(out, "{NAME}_bucket{{target=\"{name}\",le=\"{bound}\"}} {count}")?;
        }
        count += self.ttft[TTFT_BUCKETS.len()].get();
        writeln!(out, "{NAME}_bucket{{target=\"{name}\",le=\"+Inf\"}} {count}")?;
        let sum = Duration::from_nanos(self.ttft_sum.get()).as_secs_f64();
        writeln!(out, "{NAME}_sum{{target=\"{name}\"}} {sum}")?;
        writeln!(out, "{NAME}_count{{target=\"{name}\"}} {count}")
    }
}

impl Gauges {
    fn write(&self, out: &mut String) -> fmt::Result {
        let counts = [
            ("edgeward_connections", "Open client connections.", self.connections),
            ("edgeward_gated_streams", "Gate buffers in use.", self.gated_streams),
            ("edgeward_body_memory_bytes", "Request bodies held for replay.", self.body_memory),
            ("edgeward_answer_memory_bytes", "Whole answers being judged.", self.answer_memory),
        ];
        for (name, help, value) in counts {
            head(out, name, "gauge", help)?;
            writeln!(out, "{name} {value}")?;
        }
        if let Some((memory, pressure)) = self.memory {
            const PRESSURE: &str = "edgeward_memory_pressure";
            head(out, PRESSURE, "gauge", "How this box's memory stands: 0 green, 1 amber, 2 red.")?;
            writeln!(out, "{PRESSURE} {pressure}")?;
            for (name, help, bytes) in [
                ("edgeward_memory_available_bytes", "Available, where memory is shortest.", memory.available),
                ("edgeward_memory_total_bytes", "All that there is of it.", memory.total),
                ("edgeward_memory_floor_bytes", "Low below this.", memory.floor),
            ] {
                head(out, name, "gauge", help)?;
                writeln!(out, "{name}{{axis=\"{}\"}} {bytes}", memory.axis)?;
            }
        }
        head(out, "edgeward_uptime_seconds", "gauge", "Since the start.")?;
        writeln!(out, "edgeward_uptime_seconds {:.3}", self.uptime.as_secs_f64())
    }
}

pub(super) fn head(out: &mut String, name: &str, kind: &str, help: &str) -> fmt::Result {
    writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}")
}

/// A label's value, escaped as the format wants.
pub(super) struct Label<'a>(pub &'a str);

impl fmt::Display for Label<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '\\' => f.write_str("\\\\")?,
                '"' => f.write_str("\\\"")?,
                '\n' => f.write_str("\\n")?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashSet};

    use super::*;
    use crate::observe::target_gauges::{TargetGauges, render};

    #[test]
    fn what_stays_is_counted_on() {
        let old = Metrics::new(["box", "gone"]);
        old.request(Outcome::Answered);
        old.attempt(0, None);
        let new = old.renewed(["fresh", "box"]);
        // A stream of the old one ends.
        old.attempt(0, None);
        old.request(Outcome::Answered);
        let text = new.render(&Gauges::default());
        for line in [
            "edgeward_requests_total{outcome=\"answered\"} 2",
            "edgeward_attempts_total{target=\"box\",result=\"committed\"} 2",
            "edgeward_attempts_total{target=\"fresh\",result=\"committed\"} 0",
        ] {
            assert!(text.lines().any(|have| have == line), "{line} in {text}");
        }
        assert!(!text.contains("target=\"gone\""));
    }

    type Series = BTreeMap<(String, Vec<(String, String)>), f64>;

    /// Reads the text as Prometheus does, panicking at what it would refuse or what its own checker
    /// (`promtool check metrics`) warns of; gives every series.
    fn check(text: &str) -> Series {
        assert!(text.ends_with('\n'));
        let mut series = Series::new();
        let mut kinds: BTreeMap<&str, &str> = BTreeMap::new();
        let mut helped = HashSet::new();
        let mut family = "";
        for line in text.lines() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                let (name, words) = help.split_once(' ').unwrap();
                assert!(helped.insert(name), "{name} is helped twice");
                assert!(!words.is_empty());
                family = name;
            } else if let Some(kind) = line.strip_prefix("# TYPE ") {
                let (name, kind) = kind.split_once(' ').unwrap();
                assert_eq!(name, family, "a TYPE follows its HELP");
                assert!(["counter", "gauge", "histogram"].contains(&kind));
                assert_eq!(kind == "counter", name.ends_with("_total"));
                assert!(kinds.insert(name, kind).is_none(), "{name} is typed twice");
            } else {
                let (name, labels, value) = sample(line);
                let base = match kinds[family] {
                    "histogram" => ["_bucket", "_sum", "_count"]
                        .iter()
                        .find_map(|end| name.strip_suffix(end))
                        .unwrap_or_else(|| panic!("{name} in a histogram")),
                    _ => &name,
                };
                assert_eq!(base, family, "series of one family stand together");
                assert!(series.insert((name.clone(), labels), value).is_none(), "{line} comes twice");
            }
        }
        series
    }

    fn is_name(name: &str) -> bool {
        !name.is_empty()
            && !name.starts_with(|c: char| c.is_ascii_digit())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    }

    fn sample(line: &str) -> (String, Vec<(String, String)>, f64) {
        let end = line.find(['{', ' ']).unwrap();
        let name = line[..end].to_owned();
        assert!(is_name(&name), "{line}");
        let mut labels = Vec::new();
        let mut rest = &line[end..];
        if let Some(inside) = rest.strip_prefix('{') {
            let mut inside = inside;
            loop {
                let (label, after) = inside.split_once("=\"").unwrap();
                assert!(is_name(label), "{line}");
                let mut value = String::new();
                let mut chars = after.char_indices();
                let end = loop {
                    match chars.next().unwrap() {
                        (_, '\\') => value.push(match chars.next().unwrap().1 {
                            'n' => '\n',
                            c @ ('\\' | '"') => c,
                            c => panic!("no such escape: {c}"),
                        }),
                        (at, '"') => break at,
                        (_, c) => value.push(c),
                    }
                };
                labels.push((label.to_owned(), value));
                inside = &after[end + 1..];
                match inside.strip_prefix(',') {
                    Some(next) => inside = next,
                    None => break,
                }
            }
            rest = inside.strip_prefix('}').unwrap();
        }
        let value = rest.strip_prefix(' ').unwrap().parse().unwrap();
        (name, labels, value)
    }

    fn of(series: &Series, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let labels = labels.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
        series.get(&(name.to_owned(), labels)).copied()
    }

    #[test]
    fn everything_counted_is_shown() {
        let metrics = Metrics::new(["box", "odd\"\\\nname"]);
        for outcome in Outcome::ALL {
            metrics.request(outcome);
        }
        metrics.request(Outcome::Broken);
        for limit in Limit::ALL {
            metrics.limit(limit);
        }
        for cause in Cause::ALL {
            metrics.attempt(1, Some(cause));
        }
        metrics.attempt(0, None);
        metrics.attempt(0, Some(Cause::Oom));
        metrics.attempt(7, None);
        metrics.ttft(7, Duration::ZERO);
        let memory = Memory {
            pressure: "amber",
            reason: "",
            axis: "host",
            available: 312 << 20,
            total: 8 << 30,
            floor: 800 << 20,
            rate: 0,
            exhausted_in: None,
        };
        let gauges = Gauges {
            memory: Some((memory, 1)),
            gated_streams: 3,
            uptime: Duration::from_millis(1500),
            ..Gauges::default()
        };
        let series = check(&metrics.render(&gauges));
        assert_eq!(of(&series, "edgeward_requests_total", &[("outcome", "broken")]), Some(2.0));
        for limit in Limit::ALL {
            assert_eq!(of(&series, "edgeward_limit_hits_total", &[("limit", limit.as_str())]), Some(1.0));
        }
        let attempts = |target, result| {
            of(&series, "edgeward_attempts_total", &[("target", target), ("result", result)])
        };
        assert_eq!(attempts("box", "committed"), Some(1.0));
        assert_eq!(attempts("box", "oom"), Some(1.0));
        assert_eq!(attempts("box", "reset"), None);
        for cause in Cause::ALL {
            assert_eq!(attempts("odd\"\\\nname", cause.as_str()), Some(1.0));
        }
        assert_eq!(of(&series, "edgeward_gated_streams", &[]), Some(3.0));
        assert_eq!(of(&series, "edgeward_uptime_seconds", &[]), Some(1.5));
        assert_eq!(of(&series, "edgeward_memory_pressure", &[]), Some(1.0));
        let available = of(&series, "edgeward_memory_available_bytes", &[("axis", "host")]);
        assert_eq!(available, Some(f64::from(312 << 20)));
    }

    #[test]
    fn each_targets_health_and_egress_are_shown() {
        let metrics = Metrics::new(["box", "cloud"]);
        for turned in Turned::ALL {
            metrics.turned(1, turned);
        }
        metrics.turned(0, Turned::Opened);
        metrics.retry(0);
        metrics.hedge(1);
        metrics.left(1, 120, 20_000);
        metrics.left(7, 1, 1);
        assert_eq!(metrics.egress_on(1, 20_000), Egress { requests: 1, prompt_tokens: 120 });
        let series = check(&metrics.render(&Gauges::default()));
        let changes = |target, change| {
            of(&series, "edgeward_health_changes_total", &[("target", target), ("change", change)])
        };
        assert_eq!((changes("box", "opened"), changes("box", "closed")), (Some(1.0), Some(0.0)));
        for turned in Turned::ALL {
            assert_eq!(changes("cloud", turned.as_str()), Some(1.0));
        }
        for (name, of_box, of_cloud) in [
            ("edgeward_retries_total", 1.0, 0.0),
            ("edgeward_hedges_total", 0.0, 1.0),
            ("edgeward_egress_requests_total", 0.0, 1.0),
            ("edgeward_egress_prompt_tokens_total", 0.0, 120.0),
        ] {
            let count = |target| of(&series, name, &[("target", target)]);
            assert_eq!((count("box"), count("cloud")), (Some(of_box), Some(of_cloud)), "{name}");
        }
    }

    #[test]
    fn how_targets_are_now_stands_behind_what_was_counted() {
        let metrics = Metrics::new(["box", "odd\"\\\nname"]);
        let now = [
            TargetGauges {
                name: "box",
                candidate: true,
                share: 500,
                breakers: [1, 0, 0, 2],
                standings: [1, 0, 0, 2],
                waiting: 3,
                first_token_p95: Some(Duration::from_millis(1500)),
                spent: Some(1_250_000),
                cap: Some(5_000_000),
                ..TargetGauges::default()
            },
            TargetGauges { name: "odd\"\\\nname", share: 1000, ..TargetGauges::default() },
        ];
        let text = metrics.render(&Gauges::default()) + &render(&now);
        let series = check(&text);
        for (name, value) in [
            ("edgeward_target_candidate", 1.0),
            ("edgeward_target_share_ratio", 0.5),
            ("edgeward_target_queued_requests", 3.0),
            ("edgeward_target_first_token_p95_seconds", 1.5),
            ("edgeward_target_spent_today", 1.25),
            ("edgeward_target_daily_cap", 5.0),
            ("edgeward_target_spent_today_dollars", 1.25),
            ("edgeward_target_daily_cap_dollars", 5.0),
        ] {
            assert_eq!(of(&series, name, &[("target", "box")]), Some(value), "{name}");
        }
        let open = [("target", "box"), ("state", "open")];
        assert_eq!(of(&series, "edgeward_target_breakers", &open), Some(2.0));
        let out = [("target", "box"), ("standing", "out")];
        assert_eq!(of(&series, "edgeward_target_standings", &out), Some(2.0));
        // What is not known is left out.
        let odd = [("target", "odd\"\\\nname")];
        assert_eq!(of(&series, "edgeward_target_spent_today", &odd), None);
        assert_eq!(of(&series, "edgeward_target_share_ratio", &odd), Some(1.0));
    }

    #[test]
    fn buckets_are_cumulative_and_inclusive() {
        let metrics = Metrics::new(["box"]);
        for millis in [0, 10, 11, 1000, 400_000] {
            metrics.ttft(0, Duration::from_millis(millis));
        }
        let series = check(&metrics.render(&Gauges::default()));
        let name = "edgeward_time_to_first_token_seconds";
        let bucket = |le| of(&series, &format!("{name}_bucket"), &[("target", "box"), ("le", le)]);
        assert_eq!(bucket("0.01"), Some(2.0));
        assert_eq!(bucket("0.025"), Some(3.0));
        assert_eq!(bucket("1"), Some(4.0));
        assert_eq!(bucket("300"), Some(4.0));
        assert_eq!(bucket("+Inf"), Some(5.0));
        assert_eq!(of(&series, &format!("{name}_count"), &[("target", "box")]), Some(5.0));
        let sum = of(&series, &format!("{name}_sum"), &[("target", "box")]).unwrap();
        assert!((sum - 401.021).abs() < 1e-9, "{sum}");
    }

    #[test]
    fn fresh_metrics_are_valid_too() {
        let series = check(&Metrics::new([""; 0]).render(&Gauges::default()));
        assert_eq!(of(&series, "edgeward_requests_total", &[("outcome", "answered")]), Some(0.0));
        let full = Metrics::new((0..crate::limits::TARGETS_MAX).map(|n| format!("t{n}")));
        check(&full.render(&Gauges::default()));
    }

    #[test]
    fn bucket_bounds_rise() {
        assert!(TTFT_BUCKETS.is_sorted_by(|a, b| a < b));
    }
}
