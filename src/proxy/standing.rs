//! How each target stands, in words and figures: for `status`, for metrics, and for who asks whether it is ready.

use std::time::{Duration, Instant};

use serde::Serialize;

use super::deaths::{self, ProcessStatus};
use super::discovery;
use super::facts::LocalStatus;
use super::gateway::Gateway;
use crate::cause::Cause;
use crate::config::{Config, Egress, Place, Sight, Target};
use crate::health::report::View;
use crate::health::{Standing, Why};
use crate::observe::target_gauges::{BREAKERS, TargetGauges};

/// One target, as an operator wants to see it.
#[derive(Debug, Serialize)]
pub struct TargetStatus {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: String,
    /// Its place.
    pub place: String,
    /// Its group.
    pub group: String,
    /// Where it is.
    pub url: String,
    /// Whether it is a candidate now.
    pub candidate: bool,
    /// Why, in words.
    pub reason: String,
    /// Attempts that committed.
    pub committed: u64,
    /// Attempts that failed by its fault.
    pub failed: u64,
    /// Attempts under way.
    pub in_flight: usize,
    /// Idle connections.
    pub idle_connections: usize,
    /// Its configured weight.
    pub weight: u32,
    /// Of it, what its health leaves, in thousandths: the least of its models'.
    pub share_permille: u16,
    /// Requests that it is given at once; `None`: no bound.
    pub max_concurrent: Option<u32>,
    /// Requests that wait for a place there.
    pub waiting: usize,
    /// Money, where it costs some.
    pub money: Option<MoneyStatus>,
    /// What left the box to it today (UTC); `None` where it is on the box.
    pub sent_today: Option<SentStatus>,
    /// The process behind it, where it is this box's.
    pub process: Option<ProcessStatus>,
    /// What it has loaded and has room for, where it is on this box and memory is watched.
    pub local: Option<LocalStatus>,
    /// The models that were lately asked for there.
    pub models: Vec<ModelStatus>,
}

/// One model at one target.
#[derive(Debug, Serialize)]
pub struct ModelStatus {
    /// As clients ask for it.
    pub model: String,
    /// `fit`, `trial`, `last` or `out`.
    pub standing: String,
    /// Why, in words, where it is not fit; completes "`model` …".
    pub reason: Option<String>,
    /// Its breaker: `closed`, `recovering`, `half_open` or `open`.
    pub breaker: String,
    /// Of the target's weight, in thousandths.
    pub share_permille: u16,
    /// Attempts of the last minute.
    pub samples: u32,
    /// Of these the share of failures, in thousandths.
    pub failure_permille: u16,
    /// Attempts under way.
    pub in_flight: usize,
    /// The p95 of the time to the first token.
    pub first_token_p95_ms: Option<u64>,
    /// The p95 of the gaps between tokens.
    pub gap_p95_ms: Option<u64>,
    /// The longest prompt that it gets, in tokens, where memory ran out twice.
    pub most_prompt_tokens: Option<u64>,
}

/// A day's money at one target, in millionths of the unit that prices are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MoneyStatus {
    /// Spent today (UTC).
    pub spent_micros: u64,
    /// What requests under way may cost.
    pub held_micros: u64,
    /// What may be spent a day.
    pub cap_micros: Option<u64>,
    /// The configuration names no price.
    pub price_assumed: bool,
}

/// What left the box.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SentStatus {
    /// Requests.
    pub requests: u64,
    /// Their prompts' tokens, as estimated.
    pub prompt_tokens: u64,
}

/// Everything about `target`.
pub(super) fn of(gateway: &Gateway, target: usize, at: Instant) -> TargetStatus {
    let health = gateway.store.borrow().target(target);
    let config = &gateway.config.targets[target];
    let views = gateway.store.borrow().view(target, at);
    let (candidate, reason) = judged(gateway, target, &views, at);
    let off_the_box = config.place != Place::Local;
    TargetStatus {
        name: config.name.clone(),
        kind: config.kind.as_str().to_owned(),
        place: config.place.as_str().to_owned(),
        group: config.group.clone(),
        url: config.url.to_string(),
        candidate,
        reason,
        committed: health.committed,
        failed: health.failed,
        in_flight: health.in_flight,
        idle_connections: gateway.upstreams.idle(target),
        weight: config.weight,
        share_permille: least_share(&views),
        max_concurrent: config.max_concurrent,
        waiting: waiting(gateway, target),
        money: money(gateway, target, at),
        sent_today: off_the_box.then(|| {
            let sent = gateway.metrics.egress_on(target, gateway.day());
            SentStatus { requests: sent.requests, prompt_tokens: sent.prompt_tokens }
        }),
        process: deaths::status(gateway, target, at),
        local: gateway.locals.get(target).and_then(|local| Some(local.as_ref()?.status(at))),
        models: views.iter().map(model).collect(),
    }
}

/// Whether a target is asked at present.
pub(super) fn is_candidate(gateway: &Gateway, target: usize, at: Instant) -> bool {
    judged(gateway, target, &gateway.store.borrow().view(target, at), at).0
}

/// The same in figures, for metrics.
pub(super) fn gauges(gateway: &Gateway, at: Instant) -> Vec<TargetGauges<'_>> {
    let one = |(target, config): (usize, &'_ Target)| {
        let views = gateway.store.borrow().view(target, at);
        let mut gauges = TargetGauges {
            kind: config.kind.as_str(),
            place: config.place.as_str(),
            candidate: judged(gateway, target, &views, at).0,
            in_flight: gateway.store.borrow().get(target).map_or(0, |health| health.in_flight),
            idle: gateway.upstreams.idle(target),
            share: least_share(&views),
            first_token_p95: views.iter().filter_map(|view| view.first_token_p95).max(),
            gap_p95: views.iter().filter_map(|view| view.gap_p95).max(),
            waiting: waiting(gateway, target),
            loaded: gateway.locals.get(target).and_then(|local| local.as_ref()?.residents()),
            ..TargetGauges::default()
        };
        if let Some(money) = money(gateway, target, at) {
            (gauges.spent, gauges.cap) = (Some(money.spent_micros), money.cap_micros);
        }
        for view in &views {
            let state = BREAKERS.iter().position(|state| *state == view.breaker);
            if let Some(count) = state.and_then(|at| gauges.breakers.get_mut(at)) {
                *count += 1;
            }
            gauges.standings[standing(view.standing).0] += 1;
        }
        gauges
    };
    let all = gateway.config.targets.iter().enumerate();
    all.map(|(target, config)| TargetGauges {
        name: &config.name,
        group: &config.group,
        ..one((target, config))
    })
    .collect()
}

/// Client keys whose prompts stay near, and how near: `shop: box`.
pub(super) fn local_only(config: &Config) -> Vec<String> {
    let near = |egress: Egress| match egress {
        Egress::Anywhere => None,
        Egress::Lan => Some("this box and the LAN"),
        Egress::Box => Some("this box"),
    };
    let keys = config.keys.iter().filter_map(|key| Some(format!("{}: {}", key.name, near(key.local_only)?)));
    keys.collect()
}

/// What is known of the port of a discovered target that is not there.
pub(super) fn absent(gateway: &Gateway, target: usize) -> String {
    let port = gateway.config.targets.get(target).and_then(discovery::port);
    match port.and_then(|port| gateway.process.sights.on(port)) {
        Some(sight @ (Sight::Locked | Sight::Stranger)) => format!("{} answers there", sight.in_words()),
        Some(Sight::Silent) => "something accepts connections there and says nothing".to_owned(),
        Some(Sight::Server(_)) => "nothing answers there any more".to_owned(),
        None => "nothing answers there yet".to_owned(),
    }
}

fn judged(gateway: &Gateway, target: usize, views: &[View], at: Instant) -> (bool, String) {
    let store = gateway.store.borrow();
    let health = store.target(target);
    let seen = last_seen(health.last_commit, health.last_failure, at);
    if health.absent {
        return (false, absent(gateway, target));
    }
    if let Some(until) = health.cooldown_until.filter(|until| *until > at) {
        return (false, format!("rate limited for another {} s", (until - at).as_secs().max(1)));
    }
    if let Some(why) = gateway.config.targets.get(target).and_then(Target::never_a_candidate) {
        return (false, why.to_owned());
    }
    if health.waiting_for_time.is_some() {
        let reason = "waiting for this box's clock to be set: its certificate is not valid yet";
        return (true, reason.to_owned());
    }
    if health.refused_key.is_some() {
        return (true, format!("misconfigured, tried last: {}", Cause::Unauthorized.in_words()));
    }
    if let Some((model, _)) = health.missing.last() {
        let others = health.missing.len() - 1;
        let more = if others == 0 { String::new() } else { format!(" and {others} more") };
        let config = gateway.config.targets.get(target);
        // Else a client has named it, mistyped perhaps.
        let promised = config.is_some_and(|config| config.models.names(model));
        let why = if promised { "misconfigured for" } else { "does not have" };
        return (true, format!("{why} model `{model}`{more}, tried last for it; {seen}"));
    }
    let bars = |config: &Target| {
        let (spending, when) = (&gateway.process.spending, gateway.when(at));
        spending.bars(&gateway.accounts, target, config, None, when)
    };
    if let Some(passed) = gateway.config.targets.get(target).and_then(bars) {
        return (false, format!("{}; {seen}", passed.in_words()));
    }
    // A model that nobody has asked for: what holds for all of them.
    match store.summary(target, "", 0, at).standing {
        Standing::Out(why) | Standing::Last(why) if why.yields() => {
            return (true, format!("{}: asked after all others; {seen}", why.in_words()));
        }
        Standing::Out(why) => return (false, format!("{}; {seen}", why.in_words())),
        Standing::Fit | Standing::Trial(_) | Standing::Last(_) => {}
    }
    let unfit = |view: &&View| !matches!(view.standing, Standing::Fit);
    let Some(worst) = views.iter().filter(unfit).max_by_key(|view| standing(view.standing).0) else {
        return (true, seen);
    };
    let shut = |view: &View| matches!(view.standing, Standing::Out(why) if !why.yields());
    let count = views.iter().filter(unfit).count();
    let why = standing(worst.standing).1.map(Why::in_words).unwrap_or_default();
    let whose = match (count, views.len()) {
        (1, 1) => String::new(),
        (1, _) => format!(" (model `{}`)", worst.model),
        (count, _) => format!(" (model `{}`, and {} more are not fit)", worst.model, count - 1),
    };
    (!views.iter().all(shut), format!("{why}{whose}; {seen}"))
}

/// Its place in [`crate::observe::target_gauges::STANDINGS`], and why.
const fn standing(standing: Standing) -> (usize, Option<Why>) {
    match standing {
        Standing::Fit => (0, None),
        Standing::Trial(why) => (1, Some(why)),
        Standing::Last(why) => (2, Some(why)),
        Standing::Out(why) => (3, Some(why)),
    }
}

fn least_share(views: &[View]) -> u16 {
    views.iter().map(|view| view.share).min().unwrap_or(1000)
}

fn model(view: &View) -> ModelStatus {
    let (at, why) = standing(view.standing);
    let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    ModelStatus {
        model: view.model.clone(),
        standing: crate::observe::target_gauges::STANDINGS[at].to_owned(),
        reason: why.map(Why::in_words),
        breaker: view.breaker.to_owned(),
        share_permille: view.share,
        samples: view.samples,
        failure_permille: view.failure_rate,
        in_flight: view.in_flight,
        first_token_p95_ms: view.first_token_p95.map(ms),
        gap_p95_ms: view.gap_p95.map(ms),
        most_prompt_tokens: view.most_prompt,
    }
}

fn waiting(gateway: &Gateway, target: usize) -> usize {
    gateway.lanes.get(target).map_or(0, |lane| gateway.process.places.waiting(*lane))
}

fn money(gateway: &Gateway, target: usize, at: Instant) -> Option<MoneyStatus> {
    let config = gateway.config.targets.get(target)?;
    let price = config.price?;
    let usage = gateway.process.spending.usage(&gateway.accounts, target, gateway.when(at))?;
    Some(MoneyStatus {
        spent_micros: usage.spent,
        held_micros: usage.held,
        cap_micros: config.budget.money_per_day,
        price_assumed: price.assumed,
    })
}

fn last_seen(commit: Option<Instant>, failure: Option<(Instant, Cause)>, at: Instant) -> String {
    let ago = |then: Instant| ago(at.saturating_duration_since(then));
    match (commit, failure) {
        (None, None) => "not used yet".to_owned(),
        (Some(commit), Some((failed, cause))) if failed > commit => {
            format!("last failed {} ago: {}; answered {} ago", ago(failed), cause.in_words(), ago(commit))
        }
        (None, Some((failed, cause))) => format!("last failed {} ago: {}", ago(failed), cause.in_words()),
        (Some(commit), _) => format!("answered {} ago", ago(commit)),
    }
}

fn ago(time: Duration) -> String {
    match time.as_secs() {
        secs @ 0..=119 => format!("{secs} s"),
        secs @ 120..=7199 => format!("{} min", secs / 60),
        secs => format!("{} h", secs / 3600),
    }
}
