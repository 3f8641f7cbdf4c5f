//! The tables of health, routing and reload policies, from `[breaker]` to `[rollout]`.

use std::time::Duration;

use super::figures::{share, time};
use super::value::{bytes, choice, count, show_bytes, show_duration};
use super::walk::{Section, Walk};
use super::{
    Breaker, Degrade, Health, Hedge, Latency, Memory, Permille, Probe, Queue, Repetition, Resume, Retry,
    Rollout, Sticky, Translation, schema_policy,
};
use crate::limits::{
    CONFIG_DURATION_MAX, KIB, MEMORY_INTERVAL_MAX, MEMORY_INTERVAL_MIN, MIB, QUEUE_LENGTH_MAX,
    REPETITION_WINDOW_BYTES, RETRY_BACKOFF_MAX, RETRY_JITTER_MAX, ROLLOUT_HOLD, ROLLOUT_MIN_SAMPLES,
    ROLLOUT_SHARE,
};

/// A minimum of samples, or a number of failures in a row, at most: a busy box has this many requests in an hour.
const SAMPLES_MAX: u64 = 10_000;
/// `breaker.trials` at most: more would be a flood.
const TRIALS_MAX: u64 = 16;
/// `continue_max_tokens` at most: the longest context windows there are.
const CONTINUE_TOKENS_MAX: u64 = 10_000_000;
/// `latency.times` at most.
const TIMES_MAX: u64 = 1000;
/// The smallest share that means anything but "none".
const SOME: Permille = Permille(1);
/// `degrade.least` at its smallest: what gets nothing at all could never show that it is well.
const LEAST: Permille = Permille(10);
const WHOLE: Permille = Permille(1000);

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

/// What a key of such a table may be, and the field that it sets.
enum Slot<'f> {
    Flag(&'f mut bool),
    /// Both bounds allowed, as below.
    Share(Permille, Permille, &'f mut Permille),
    Count(u64, u64, &'f mut u32),
    Time(Duration, Duration, &'f mut Duration),
}

/// Sets each field whose key stands in `section`.
fn fill(walk: &mut Walk<'_>, section: &Section<'_, '_>, slots: &mut [(&'static str, Slot<'_>)]) {
    for (key, slot) in slots {
        match slot {
            Slot::Flag(field) => set(section.flag(walk, key), field),
            Slot::Share(min, max, field) => {
                set(section.value(walk, key, |value| share(value, *min, *max)), field)
            }
            Slot::Time(min, max, field) => {
                set(section.value(walk, key, |value| time(value, *min, *max)), field)
            }
            Slot::Count(min, max, field) => set(section.count(walk, key, *min, *max), field),
        }
    }
}

fn set<T>(found: Option<T>, field: &mut T) {
    if let Some(found) = found {
        *field = found;
    }
}

/// Reports that `less` is above `more`, at whichever stands in the file.
fn ordered<T: PartialOrd>(
    walk: &mut Walk<'_>,
    section: &Section<'_, '_>,
    less: (&str, T),
    more: (&str, T),
    show: impl Fn(&T) -> String,
) {
    if less.1 > more.1 {
        let spot = section.spot(walk, if section.has(less.0) { less.0 } else { more.0 });
        let (less, is, more, at_most) = (less.0, show(&less.1), more.0, show(&more.1));
        walk.problem(
            &spot,
            format_args!("{less} ({is}) is above {more} ({at_most})"),
            format_args!("write {more} = \"{is}\" or more, or a smaller {less}"),
        );
    }
}

/// `[breaker]`, `[degrade]`, `[latency]` and `[probe]`.
pub(super) fn health(walk: &mut Walk<'_>, top: &Section<'_, '_>) -> Health {
    Health {
        breaker: breaker(walk, top),
        degrade: degrade(walk, top),
        latency: latency(walk, top),
        probe: probe(walk, top),
    }
}

#[rustfmt::skip]
fn breaker(walk: &mut Walk<'_>, top: &Section<'_, '_>) -> Breaker {
    let mut breaker = Breaker::default();
    let Some(section) = top.table(walk, "breaker", &schema_policy::BREAKER) else { return breaker };
    let Breaker {
        enabled, window, min_samples, failure_rate, consecutive, cooldown, cooldown_max, trials, recovery,
    } = &mut breaker;
    fill(walk, &section, &mut [
        ("enabled",      Slot::Flag(enabled)),
        ("window",       Slot::Time(SECOND, HOUR, window)),
        ("min_samples",  Slot::Count(1, SAMPLES_MAX, min_samples)),
        ("failure_rate", Slot::Share(SOME, WHOLE, failure_rate)),
        ("consecutive",  Slot::Count(1, SAMPLES_MAX, consecutive)),
        ("cooldown",     Slot::Time(SECOND, HOUR, cooldown)),
        ("cooldown_max", Slot::Time(SECOND, CONFIG_DURATION_MAX, cooldown_max)),
        ("trials",       Slot::Count(1, TRIALS_MAX, trials)),
        ("recovery",     Slot::Time(Duration::ZERO, HOUR, recovery)),
    ]);
    let (first, longest) = (("cooldown", breaker.cooldown), ("cooldown_max", breaker.cooldown_max));
    ordered(walk, &section, first, longest, |time| show_duration(*time));
    breaker
}

#[rustfmt::skip]
fn degrade(walk: &mut Walk<'_>, top: &Section<'_, '_>) -> Degrade {
    let mut degrade = Degrade::default();
    let Some(section) = top.table(walk, "degrade", &schema_policy::DEGRADE) else { return degrade };
    let Degrade { enabled, above, below, least } = &mut degrade;
    fill(walk, &section, &mut [
        ("enabled", Slot::Flag(enabled)),
        ("above",   Slot::Share(SOME, WHOLE, above)),
        ("below",   Slot::Share(SOME, WHOLE, below)),
        ("least",   Slot::Share(LEAST, WHOLE, least)),
    ]);
    ordered(walk, &section, ("below", degrade.below), ("above", degrade.above), ToString::to_string);
    degrade
}

#[rustfmt::skip]
fn latency(walk: &mut Walk<'_>, top: &Section<'_, '_>) -> Latency {
    let mut latency = Latency::default();
    let Some(section) = top.table(walk, "latency", &schema_policy::LATENCY) else { return latency };
    let Latency { enabled, times, first_token, gap, min_samples, out_after, back_after, trickle } = &mut latency;
    fill(walk, &section, &mut [
        ("enabled",     Slot::Flag(enabled)),
        ("times",       Slot::Count(2, TIMES_MAX, times)),
        ("first_token", Slot::Time(Duration::ZERO, HOUR, first_token)),
        ("gap",         Slot::Time(Duration::ZERO, HOUR, gap)),
        ("min_samples", Slot::Count(1, SAMPLES_MAX, min_samples)),
        ("out_after",   Slot::Time(SECOND, HOUR, out_after)),
        ("back_after",  Slot::Time(SECOND, CONFIG_DURATION_MAX, back_after)),
        ("trickle",     Slot::Time(SECOND, HOUR, trickle)),
    ]);
    latency
}

#[rustfmt::skip]
fn probe(walk: &mut Walk<'_>, top: &Section<'_, '_>) -> Probe {
    let mut probe = Probe::default();
    let Some(section) = top.table(walk, "probe", &schema_policy::PROBE) else { return probe };
    let Probe { enabled, every, every_cloud, timeout, down_after } = &mut probe;
    fill(walk, &section, &mut [
        ("enabled",     Slot::Flag(enabled)),
        ("every",       Slot::Time(SECOND, CONFIG_DURATION_MAX, every)),
        ("every_cloud", Slot::Time(SECOND, CONFIG_DURATION_MAX, every_cloud)),
        ("timeout",     Slot::Time(Duration::from_millis(10), MINUTE, timeout)),
        ("down_after",  Slot::Count(1, SAMPLES_MAX, down_after)),
    ]);
    // A probe that is still out when the next is due would pile up.
    for every in [("every", probe.every), ("every_cloud", probe.every_cloud)] {
        ordered(walk, &section, ("timeout", probe.timeout), every, |time| show_duration(*time));
    }
    probe
}

/// `[retry]`.
#[rustfmt::skip]
pub(super) fn retry(walk: &mut Walk<'_>, top: &Section<'_, '_>) -> Retry {
    let mut retry = Retry::default();
    let Some(section) = top.table(walk, "retry", &schema_policy::RETRY) else { return retry };
    let Retry { first, backoff, jitter, budget } = &mut retry;
    set(section.word(walk, "first", schema_policy::FIRSTS), first);
    fill(walk, &section, &mut [
        ("backoff", Slot::Time(Duration::ZERO, RETRY_BACKOFF_MAX, backoff)),
        ("jitter",  Slot::Time(Duration::ZERO, RETRY_JITTER_MAX, jitter)),
        ("budget",  Slot::Share(Permille(0), WHOLE, budget)),
    ]);
    retry
}

/// `[hedge]`.
#[rustfmt::skip]
pub(super) fn hedge(walk: &mut Walk<'_>, top: &Section<'_, '_>) -> Hedge {
    let mut hedge = Hedge::default();
    let Some(section) = top.table(walk, "hedge", &schema_policy::HEDGE) else { return hedge };
    let Hedge { enabled, share } = &mut hedge;
    fill(walk, &section, &mut [
        ("enabled", Slot::Flag(enabled)),
        ("share",   Slot::Share(SOME, WHOLE, share)),
    ]);
    hedge
}

/// `[queue]`. `request_time` is what a request has for everything before its first token.
#[rustfmt::skip]
pub(super) fn queue(walk: &mut Walk<'_>, top: &Section<'_, '_>, request_time: Duration) -> Queue {
    let mut queue = Queue::default();
    let Some(section) = top.table(walk, "queue", &schema_policy::QUEUE) else { return queue };
    let Queue { length, time } = &mut queue;
    if let Some(found) = section.value(walk, "length", |value| count(value, 0, QUEUE_LENGTH_MAX)) {
        *length = usize::try_from(found).unwrap_or(usize::MAX);
    }
    fill(walk, &section, &mut [("time", Slot::Time(Duration::ZERO, HOUR, time))]);
    if queue.time > request_time {
        let spot = section.spot(walk, "time");
        let (time, most) = (show_duration(queue.time), show_duration(request_time));
        let what = format!("queue.time ({time}) can never pass: limits.request_time ({most}) comes first");
        walk.warn(&spot, what, "raise limits.request_time or lower queue.time");
    }
    queue
}

/// `[sticky]`.
#[rustfmt::skip]
pub(super) fn sticky(walk: &mut Walk<'_>, top: &Section<'_, '_>) -> Sticky {
    let mut sticky = Sticky::default();
    let Some(section) = top.table(walk, "sticky", &schema_policy::STICKY) else { return sticky };
    let Sticky { enabled, idle, away } = &mut sticky;
    fill(walk, &section, &mut [
        ("enabled", Slot::Flag(enabled)),
        ("idle",    Slot::Time(SECOND, CONFIG_DURATION_MAX, idle)),
        ("away",    Slot::Time(Duration::ZERO, CONFIG_DURATION_MAX, away)),
    ]);
    sticky
}

/// `[translation]`.
pub(super) fn translation(walk: &mut Walk<'_>, top: &Section<'_, '_>) -> Translation {
    let mut translation = Translation::default();
    let Some(section) = top.table(walk, "translation", &schema_policy::TRANSLATION) else {
        return translation;
    };
    let Translation { strict } = &mut translation;
    fill(walk, &section, &mut [("strict", Slot::Flag(strict))]);
    translation
}

/// `[resume]`.
pub(super) fn resume(walk: &mut Walk<'_>, top: &Section<'_, '_>) -> Resume {
    let mut resume = Resume::default();
    let Some(section) = top.table(walk, "resume", &schema_policy::RESUME) else { return resume };
    let Resume { by_header, continue_max_tokens } = &mut resume;
    let tokens = Slot::Count(1, CONTINUE_TOKENS_MAX, continue_max_tokens);
    fill(walk, &section, &mut [("by_header", Slot::Flag(by_header)), ("continue_max_tokens", tokens)]);
    resume
}

/// `[repetition]`.
#[rustfmt::skip]
pub(super) fn repetition(walk: &mut Walk<'_>, top: &Section<'_, '_>) -> Repetition {
    let mut repetition = Repetition::default();
    let Some(section) = top.table(walk, "repetition", &schema_policy::REPETITION) else { return repetition };
    let Repetition { enabled, times, bytes } = &mut repetition;
    fill(walk, &section, &mut [
        ("enabled", Slot::Flag(enabled)),
        ("times",   Slot::Count(2, REPETITION_WINDOW_BYTES as u64, times)),
        ("bytes",   Slot::Count(2, REPETITION_WINDOW_BYTES as u64, bytes)),
    ]);
    repetition
}

/// `[rollout]`; without it there is none.
#[rustfmt::skip]
pub(super) fn rollout(walk: &mut Walk<'_>, top: &Section<'_, '_>) -> Option<Rollout> {
    let section = top.table(walk, "rollout", &schema_policy::ROLLOUT)?;
    let mut rollout = Rollout {
        share: Permille(ROLLOUT_SHARE),
        hold: ROLLOUT_HOLD,
        min_samples: ROLLOUT_MIN_SAMPLES,
    };
    let Rollout { share, hold, min_samples } = &mut rollout;
    fill(walk, &section, &mut [
        ("share",       Slot::Share(SOME, WHOLE, share)),
        ("hold",        Slot::Time(SECOND, CONFIG_DURATION_MAX, hold)),
        ("min_samples", Slot::Count(1, SAMPLES_MAX, min_samples)),
    ]);
    Some(rollout)
}

/// `[memory]`.
#[rustfmt::skip]
pub(super) fn memory(walk: &mut Walk<'_>, top: &Section<'_, '_>) -> Memory {
    let mut memory = Memory::default();
    let Some(section) = top.table(walk, "memory", &schema_policy::MEMORY) else { return memory };
    let Memory {
        enabled, board, gpu_shared, huge_pages, fill_per_second, floor, reserve, amber, red, hold, interval, cgroup,
        warm_up,
    } = &mut memory;
    fill(walk, &section, &mut [
        ("enabled",  Slot::Flag(enabled)),
        ("warm_up",  Slot::Flag(warm_up)),
        ("amber",    Slot::Time(SECOND, HOUR, amber)),
        ("red",      Slot::Time(SECOND, HOUR, red)),
        ("hold",     Slot::Time(SECOND, HOUR, hold)),
        ("interval", Slot::Time(MEMORY_INTERVAL_MIN, MEMORY_INTERVAL_MAX, interval)),
    ]);
    let known = section.read(walk, "board", |value| choice(value, schema_policy::BOARDS));
    set(known.map(|at| at.value), board);
    set(section.value(walk, "gpu", |value| choice(value, schema_policy::GPUS)), gpu_shared);
    *huge_pages = section.flag(walk, "huge_pages");
    for (key, field) in [("floor", floor), ("reserve", reserve), ("fill_per_second", fill_per_second)] {
        let size = section.read(walk, key, |value| bytes(value, MIB, KIB * KIB * MIB));
        *field = size.map(|size| size.value);
    }
    if let Some(path) = section.text(walk, "cgroup") {
        if path.value.starts_with('/') {
            *cgroup = Some(path.value.into());
        } else {
            walk.problem(
                &path.spot,
                "must be the whole path of a cgroup's folder",
                "for example cgroup = \"/sys/fs/cgroup/system.slice/ollama.service\"",
            );
        }
    }
    ordered(walk, &section, ("red", memory.red), ("amber", memory.amber), |time| show_duration(*time));
    if let (Some(reserve), Some(floor)) = (memory.reserve, memory.floor) {
        ordered(walk, &section, ("reserve", reserve), ("floor", floor), |size| show_bytes(*size));
    }
    memory
}
