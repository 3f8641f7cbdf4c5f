//! From a file, or a text, to the resolved configuration or every mistake in it.

use std::io::Read;
use std::net::SocketAddr;
use std::path::Path;

use toml::de::{DeTable, DeValue};

use super::client::{self, Door};
use super::discover::{LOCAL_SERVERS, cloud_targets, local_targets};
use super::problem::{Loaded, Problem, Problems, Reader, Seen};
use super::schema::{self, LIMIT_FIELDS, Limit};
use super::target::{self, Placed};
use super::value::{Fault, bytes, count, duration, show_bytes, show_duration, shown};
use super::walk::{Env, Section, Spot, Walk, sorted};
use super::{
    CommitOn, Config, DEFAULT_PATH, DeadlineOverrides, Deadlines, Limits, LockMemory, ModelName, OnEmptyStop,
    Place, Router, TargetUrl, checks, discover, elsewhere, images, policies, route, terms,
};
use crate::limits::{CONFIG_BYTES_MAX, GATE_POOL_MAX};

/// The configuration that `edgeward` starts with: `path` where one is named, else [`DEFAULT_PATH`]
/// where it exists, else what [`discover()`] finds.
///
/// # Errors
/// Every mistake in the file, with its line; or that it cannot be read.
pub fn load_or_discover(path: Option<&Path>, env: &Env<'_>) -> Result<Loaded, Problems> {
    see(path, env, Reader::Service).loaded()
}

/// The same as far as it can be understood, for `reader`.
#[must_use]
pub fn see(path: Option<&Path>, env: &Env<'_>, reader: Reader) -> Seen {
    let default = Path::new(DEFAULT_PATH);
    match path {
        Some(path) => see_file(path, env, reader),
        // A file that exists and cannot be read must not be passed over in silence.
        None if default.symlink_metadata().is_ok() => see_file(default, env, reader),
        None => {
            let Loaded { config, warnings } = discover(env, &LOCAL_SERVERS);
            Seen { config: Some(config), warnings, problems: Problems(Vec::new()) }
        }
    }
}

/// Reads and resolves `path`; `env` gives environment variables.
///
/// # Errors
/// Every mistake in the file, with its line; or that it cannot be read.
pub fn load(path: &Path, env: &Env<'_>) -> Result<Loaded, Problems> {
    see_file(path, env, Reader::Service).loaded()
}

fn see_file(path: &Path, env: &Env<'_>, reader: Reader) -> Seen {
    match read(path) {
        Ok(text) => understand(&text, path, env, reader),
        Err((what, hint)) => {
            let (file, hint) = (Some(path.to_owned()), Some(hint.to_owned()));
            let problem = Problem { file, line: None, key: String::new(), what, hint };
            Seen { config: None, warnings: Vec::new(), problems: Problems(vec![problem]) }
        }
    }
}

fn read(path: &Path) -> Result<String, (String, &'static str)> {
    let failed = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound => ("there is no such file".to_owned(), "name one with --config"),
        std::io::ErrorKind::PermissionDenied => {
            ("this user may not read it".to_owned(), "give edgeward's group the right to read it")
        }
        _ => (format!("cannot be read: {error}"), "name a readable file with --config"),
    };
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(failed)?;
    file.take(CONFIG_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > CONFIG_BYTES_MAX {
        return Err(("is larger than 1MiB".to_owned(), "this is not edgeward's configuration"));
    }
    String::from_utf8(bytes).map_err(|error| {
        (format!("is not UTF-8 from byte {} on", error.utf8_error().valid_up_to()), "save it as UTF-8")
    })
}

/// Resolves `text`; `file` is the name for messages, and relative paths are meant from its folder.
///
/// # Errors
/// Every mistake, with its line.
pub fn parse(text: &str, file: &Path, env: &Env<'_>) -> Result<Loaded, Problems> {
    understand(text, file, env, Reader::Service).loaded()
}

fn understand(text: &str, file: &Path, env: &Env<'_>, reader: Reader) -> Seen {
    let mut walk = Walk::new(text, Some(file), env);
    walk.reader = reader;
    let (tree, errors) = DeTable::parse_recoverable(text);
    for error in &errors {
        let line = walk.line(error.span().map_or(text.len(), |span| span.start));
        let message = error.message();
        let in_a_row = message.starts_with("missing comma") && walk.is_broken(line - 1);
        // One slip often draws several complaints. The first on a line is about the slip, and an open bracket
        // makes a missing comma of every line below it.
        if !walk.is_broken(line) && !in_a_row {
            let spot = Spot { key: String::new(), line: Some(line) };
            walk.problem(&spot, format_args!("is not TOML: {message}"), syntax_hint(message));
        }
        walk.is_broken_from_now_on(line);
        if ["unclosed table", "array elements", "inline table"].iter().any(|what| message.contains(what)) {
            walk.lost_from = walk.lost_from.min(line);
        }
    }
    let config = root(&mut walk, tree.get_ref(), file);
    let Walk { problems, warnings, .. } = walk;
    let (warnings, problems) = (in_order(warnings), Problems(in_order(problems)));
    Seen { config: Some(config), warnings, problems }
}

/// Of the file; those without a line come first.
fn in_order(problems: Vec<Problem>) -> Vec<Problem> {
    sorted(problems, |problem| problem.line.unwrap_or(0))
}

fn syntax_hint(message: &str) -> &'static str {
    if message.contains("duplicate key") {
        "each key stands once in its table, each [table] once in the file; keep one of the two"
    } else if message.contains("missing comma") || message.contains("inline table") {
        "put a comma between the two, or close the [ or { above"
    } else if message.contains("unclosed table") {
        "close it: [name] or [[name]]"
    } else if message.contains("string") {
        "texts, sizes and durations stand in double quotes"
    } else {
        "write key = value, one a line; texts in double quotes, lists in [ ]"
    }
}

/// Never stops at a mistake: what cannot be understood gets its default, and the walk holds the problem.
fn root(walk: &mut Walk<'_>, tree: &DeTable<'_>, file: &Path) -> Config {
    let top = Section::open(walk, tree, Spot { key: String::new(), line: None }, &schema::TOP);
    let limits = limits(walk, &top);
    let overrides = target::deadlines(walk, &top);
    let deadlines = deadlines(walk, &top, &overrides, &limits);
    let Door { listen, allow_anonymous, tls, keys, confined, paying } = client::door(walk, &top);
    let health = policies::health(walk, &top);
    let (targets, router, groups) = targets(walk, &top, &listen, &health.probe);
    let config = Config {
        source: Some(file.to_owned()),
        admin_listen: client::admin_listen(walk, &top),
        hosts: client::hosts(walk, &top),
        model_name: top.word(walk, "model_name", schema::MODEL_NAMES).unwrap_or(ModelName::Asked),
        on_empty_stop: top
            .word(walk, "on_empty_stop", schema::EMPTY_STOPS)
            .unwrap_or(OnEmptyStop::FailoverOnce),
        commit_on: top.word(walk, "commit_on", schema::COMMITS).unwrap_or(CommitOn::Any),
        heartbeat: top.value(walk, "heartbeat", |value| duration(value, false)),
        ollama_writes: top.flag(walk, "ollama_writes").unwrap_or(false),
        drop_anonymous_reasoning: top.flag(walk, "drop_anonymous_reasoning").unwrap_or(true),
        log_prompts: top.flag(walk, "log_prompts").unwrap_or(false),
        lock_memory: top.value(walk, "lock_memory", lock).unwrap_or(LockMemory::Auto),
        cors_origins: client::cors_origins(walk, &top),
        routes: route::all(walk, &top, &targets, &router),
        groups,
        health,
        retry: policies::retry(walk, &top),
        hedge: policies::hedge(walk, &top),
        queue: policies::queue(walk, &top, limits.request_time),
        elsewhere: elsewhere::elsewhere(walk, &top, deadlines.total),
        sticky: policies::sticky(walk, &top),
        translation: policies::translation(walk, &top),
        images: images::images(walk, &top),
        on_break: top.word(walk, "on_break", schema::BREAKS).unwrap_or_default(),
        resume: policies::resume(walk, &top),
        repetition: policies::repetition(walk, &top),
        rollout: policies::rollout(walk, &top),
        memory: policies::memory(walk, &top),
        listen,
        allow_anonymous,
        tls,
        keys,
        limits,
        deadlines,
        targets,
        router,
    };
    checks::whole(walk, &top, &config, &confined, &paying);
    if config.log_prompts {
        let spot = top.spot(walk, "log_prompts");
        walk.warn(
            &spot,
            "the beginnings of request bodies, prompts included, go into the log",
            "leave it out once you have seen what you wanted",
        );
    }
    let open = config.allow_anonymous && !config.listen.iter().all(|address| address.ip().is_loopback());
    if config.ollama_writes && open {
        let spot = top.spot(walk, "ollama_writes");
        walk.warn(
            &spot,
            "anybody who reaches this box may pull and delete models",
            "give each client a [[key]], and leave allow_anonymous out",
        );
    }
    config
}

fn lock(value: &DeValue<'_>) -> Result<LockMemory, Fault> {
    match value {
        DeValue::Boolean(true) => Ok(LockMemory::On),
        DeValue::Boolean(false) => Ok(LockMemory::Off),
        DeValue::String(word) if word == "auto" => Ok(LockMemory::Auto),
        DeValue::String(word) => Err(Fault::new(
            format!("{} is not a word that it knows", shown(word)),
            "write true, false or \"auto\"",
        )),
        _ => Err(Fault::mistyped(value, "true, false or \"auto\"", "\"auto\"")),
    }
}

fn limits(walk: &mut Walk<'_>, top: &Section<'_, '_>) -> Limits {
    let mut limits = Limits::default();
    let Some(section) = top.table(walk, "limits", &schema::LIMITS) else { return limits };
    for (key, limit) in &LIMIT_FIELDS {
        match limit {
            Limit::Bytes { min, max, field } => {
                if let Some(size) = section.value(walk, key, |value| bytes(value, *min, *max)) {
                    *field(&mut limits) = size;
                }
            }
            Limit::Count { min, max, field } => {
                if let Some(number) = section.value(walk, key, |value| count(value, *min, *max)) {
                    *field(&mut limits) = usize::try_from(number).unwrap_or(usize::MAX);
                }
            }
            Limit::Time { zero, field } => {
                if let Some(time) = section.value(walk, key, |value| duration(value, *zero)) {
                    *field(&mut limits) = time;
                }
            }
        }
    }
    for (whole, part, all, one) in [
        ("body_memory", "max_body", limits.body_memory, limits.max_body),
        ("answer_memory", "answer_buffer", limits.answer_memory, limits.answer_buffer),
    ] {
        if all < one {
            let key = if section.has(whole) { whole } else { part };
            let spot = section.spot(walk, key);
            walk.problem(
                &spot,
                format_args!(
                    "{whole} ({}) does not hold even one {part} ({})",
                    show_bytes(all),
                    show_bytes(one)
                ),
                format_args!("write {whole} = \"{}\" or more, or a smaller {part}", show_bytes(one)),
            );
        }
    }
    let pool = limits.gate_buffer.saturating_mul(limits.gated_streams);
    if pool > GATE_POOL_MAX {
        let key = if section.has("gated_streams") { "gated_streams" } else { "gate_buffer" };
        let spot = section.spot(walk, key);
        walk.problem(
            &spot,
            format_args!(
                "{} buffers of {} are {}, allocated at start",
                limits.gated_streams,
                show_bytes(limits.gate_buffer),
                show_bytes(pool)
            ),
            format_args!("keep gate_buffer times gated_streams below {}", show_bytes(GATE_POOL_MAX)),
        );
    }
    limits
}

fn deadlines(
    walk: &mut Walk<'_>,
    top: &Section<'_, '_>,
    over: &DeadlineOverrides,
    limits: &Limits,
) -> Deadlines {
    let deadlines = Deadlines::default().overlaid(over);
    if !top.has("deadlines") && !top.has("limits") {
        return deadlines;
    }
    let mut never =
        |key: (&str, &str), first: (&str, std::time::Duration), second: (&str, std::time::Duration)| {
            if first.1 > second.1 {
                let spot = top.spot_below(walk, key.0, key.1);
                walk.warn(
                    &spot,
                    format_args!(
                        "{} ({}) can never pass: {} ({}) comes first",
                        first.0,
                        show_duration(first.1),
                        second.0,
                        show_duration(second.1)
                    ),
                    format_args!("raise {} or lower {}", second.0, first.0),
                );
            }
        };
    let total = ("deadlines.total", deadlines.total);
    never(("deadlines", "connect"), ("deadlines.connect", deadlines.connect), total);
    never(("deadlines", "first_token"), ("deadlines.first_token", deadlines.first_token), total);
    if let Some(answer) = deadlines.answer {
        never(("deadlines", "answer"), ("deadlines.answer", answer), total);
    }
    never(("deadlines", "load"), ("deadlines.load", deadlines.load), total);
    never(("limits", "request_time"), total, ("limits.request_time", limits.request_time));
    deadlines
}

fn targets(
    walk: &mut Walk<'_>,
    top: &Section<'_, '_>,
    listen: &[SocketAddr],
    probe: &super::Probe,
) -> (Vec<super::Target>, Router, Vec<super::Group>) {
    let router = top.table(walk, "router", &schema::ROUTER);
    let named = router.as_ref().and_then(|router| route::groups(walk, router));
    let region =
        router.as_ref().and_then(|router| target::name(walk, router, "region")).map(|region| region.value);
    let from_file = top.tables(walk, "target", &schema::TARGET, target::label);
    let placed = match &from_file {
        Some(sections) => target::all(walk, sections),
        None if top.has("target") => Vec::new(),
        None => {
            let targets = local_targets(&LOCAL_SERVERS).into_iter().chain(cloud_targets(walk, listen));
            targets.map(Placed::without_line).collect()
        }
    };
    checks::targets(walk, &placed, probe);
    for placed in &placed {
        if points_here(&placed.target.url, listen) {
            walk.problem(
                &placed.url,
                "is edgeward's own address: requests would go in circles",
                "name the model server's port",
            );
        }
    }
    let by_routes = route::groups_named(top);
    let mut groups = named.clone().unwrap_or_else(|| vec!["primary".to_owned(), "fallback".to_owned()]);
    for placed in &placed {
        let group = &placed.target.group;
        if groups.contains(group) || by_routes.contains(group) {
            continue;
        }
        if named.as_ref().is_some_and(|named| !named.is_empty()) {
            let near = super::value::nearest(group, groups.iter().map(String::as_str));
            let hint = match near {
                Some(near) => format!("did you mean \"{near}\"?"),
                None => format!("add \"{group}\" to router.groups, or write one of {}", groups.join(", ")),
            };
            walk.problem(
                &placed.group,
                format_args!("router.groups does not have the group \"{group}\""),
                hint,
            );
        } else if named.is_none() {
            groups.push(group.clone());
        }
    }
    let mut targets: Vec<_> = placed.into_iter().map(|placed| placed.target).collect();
    let sections = from_file.as_deref().unwrap_or_default();
    settle_spares(&mut targets, &groups, sections);
    let router = Router { groups, region };
    let groups = terms::groups(walk, top, &mut targets, &router, sections);
    (targets, router, groups)
}

/// A spare connection is for the targets that take over; those of the first group are in use anyway.
fn settle_spares(targets: &mut [super::Target], groups: &[String], sections: &[Section<'_, '_>]) {
    for (n, target) in targets.iter_mut().enumerate() {
        let asked = sections.get(n).is_some_and(|section| section.has("spare"));
        if !asked && groups.first() == Some(&target.group) {
            target.spare = false;
        }
    }
}

/// Whether `url` is one of our own listeners.
pub(super) fn points_here(url: &TargetUrl, listen: &[SocketAddr]) -> bool {
    let (TargetUrl::Http { host, .. } | TargetUrl::Https { host, .. }) = url else { return false };
    listen.iter().any(|own| {
        Some(own.port()) == url.port()
            && (host.parse() == Ok(own.ip()) || (url.usual_place() == Place::Local && reaches(host, own)))
    })
}

/// Whether the loopback name or address `host` is answered by a listener at `own`.
fn reaches(host: &str, own: &SocketAddr) -> bool {
    match host.parse::<std::net::IpAddr>() {
        Ok(ip) => own.ip().is_unspecified() && ip.is_ipv4() == own.is_ipv4(),
        Err(_) => own.ip().is_unspecified() || own.ip().is_loopback(),
    }
}

impl Placed {
    /// One that discovery adds to a file without targets: there is no line to point at.
    pub(super) fn without_line(target: super::Target) -> Placed {
        let spot = |key: &str| Spot { key: format!("target \"{}\"{key}", target.name), line: None };
        Placed {
            spot: spot(""),
            url: spot(".url"),
            group: spot(".group"),
            probe: spot(".probe"),
            money: spot(".budget"),
            target,
        }
    }
}
