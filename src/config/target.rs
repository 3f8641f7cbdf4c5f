//! `[[target]]`: from its table to a resolved target.

use toml::de::{DeTable, DeValue};

use super::value::{Fault, choice, flag, shown};
use super::walk::{At, Section, Spot, Walk};
use super::{
    DeadlineOverrides, Kind, ModelMap, Place, Roots, Target, TargetUrl, credential, schema, terms, url,
};
use crate::limits::{CONCURRENT_MAX, MODEL_NAME_BYTES, NAME_BYTES, RETRIES, RETRIES_MAX, TARGETS_MAX};

/// `weight` at most; only the relation to other weights counts.
const WEIGHT_MAX: u64 = 10_000;
/// `weight` unless it is named.
pub(super) const WEIGHT: u32 = 100;
/// `context` at most, in tokens.
const CONTEXT_MAX: u64 = 100_000_000;

/// A target, and where its keys stand, for the checks that need all targets.
pub(super) struct Placed {
    pub target: Target,
    pub spot: Spot,
    pub url: Spot,
    pub group: Spot,
    pub probe: Spot,
    /// `budget.money_per_day`.
    pub money: Spot,
}

/// The name for messages: only a usable one.
pub(super) fn label(table: &DeTable<'_>) -> Option<String> {
    match table.get("name")?.get_ref() {
        DeValue::String(name) if check_name(name).is_ok() => Some(name.to_string()),
        _ => None,
    }
}

/// `[a-z0-9_-]+`: what can stand in a header, a metric's label and a log field without quoting.
pub(super) fn check_name(name: &str) -> Result<(), Fault> {
    let good = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_-".contains(&b);
    if name.is_empty() || !name.bytes().all(good) {
        let fixed: String = name
            .to_lowercase()
            .chars()
            .map(|c| if c.is_ascii() && good(c as u8) { c } else { '-' })
            .collect();
        return Err(Fault::new(
            format!("{} is not a name: a-z, 0-9, _ and - only", shown(name)),
            format!("write \"{fixed}\""),
        ));
    }
    if name.len() > NAME_BYTES {
        return Err(Fault::new(format!("is longer than {NAME_BYTES} bytes"), "choose a shorter name"));
    }
    Ok(())
}

pub(super) fn name(walk: &mut Walk<'_>, section: &Section<'_, '_>, key: &str) -> Option<At<String>> {
    let name = section.text(walk, key)?;
    match check_name(&name.value) {
        Ok(()) => Some(name),
        Err(fault) => {
            walk.fault(&name.spot, fault);
            None
        }
    }
}

/// Every target of the file that could be understood. Mistakes are in the walk.
pub(super) fn all(walk: &mut Walk<'_>, sections: &[Section<'_, '_>]) -> Vec<Placed> {
    if let Some(first_too_many) = sections.get(TARGETS_MAX) {
        let what =
            format!("is one target too many: {} are configured, {TARGETS_MAX} are possible", sections.len());
        walk.problem(&first_too_many.spot.clone(), what, "leave some out");
    }
    let mut names = Names::new();
    sections.iter().take(TARGETS_MAX).filter_map(|section| one(walk, section, &mut names)).collect()
}

/// The names so far, and the lines of their targets. Also of targets with other mistakes, so that a name that
/// stands twice shows at once.
type Names = Vec<(String, Option<usize>)>;

fn unique(walk: &mut Walk<'_>, section: &Section<'_, '_>, name: &At<String>, names: &mut Names) {
    let Some((_, other)) = names.iter().find(|(other, _)| *other == name.value) else {
        names.push((name.value.clone(), section.spot.line));
        return;
    };
    let line = other.map(|line| format!(" (the other: line {line})")).unwrap_or_default();
    walk.problem(
        &name.spot,
        format_args!("two targets have this name{line}"),
        format_args!("write another one, for example \"{}-2\"", name.value),
    );
}

fn one(walk: &mut Walk<'_>, section: &Section<'_, '_>, names: &mut Names) -> Option<Placed> {
    for (key, example) in [
        ("name", "name = \"box\""),
        ("kind", "kind = \"ollama\", or vllm, llamacpp, openai, anthropic, gemini"),
        ("url", "url = \"http://127.0.0.1:11434\""),
    ] {
        if !section.has(key) {
            let spot = section.spot(walk, key);
            walk.missing(&spot, "is missing: each target needs it", format_args!("add {example}"));
        }
    }
    let name = name(walk, section, "name");
    if let Some(name) = &name {
        unique(walk, section, name, names);
    }
    let kind = section.word(walk, "kind", schema::KINDS);
    let url = section.text(walk, "url").and_then(|text| match url::parse(&text.value, kind) {
        Ok(url) => Some(At { value: url, spot: text.spot }),
        Err(fault) => {
            walk.fault(&text.spot, fault);
            None
        }
    });
    let usual_place = url.as_ref().map(|url| url.value.usual_place());
    let place = section.read(walk, "place", |value| choice(value, schema::PLACES));
    if let (Some(At { value: Place::Local, spot }), Some(Place::Cloud)) = (&place, usual_place) {
        walk.warn(
            spot,
            "the url does not look like this box: what is sent there would be counted as staying here",
            "write place = \"cloud\", or \"lan\"",
        );
    }
    let place = place.map(|place| place.value).or(usual_place);
    let group =
        self::name(walk, section, "group").map(|group| group.value).unwrap_or_else(|| usual_group(place));
    let region = self::name(walk, section, "region").map(|region| region.value);
    let weight = section.count(walk, "weight", 1, WEIGHT_MAX).unwrap_or(WEIGHT);
    let max_retries = section.count(walk, "max_retries", 0, RETRIES_MAX.into()).unwrap_or(RETRIES);
    let key = key(walk, section);
    let forward_key = section.read(walk, "forward_key", flag);
    if let (Some(At { value: true, spot }), true) = (&forward_key, section.has("key")) {
        walk.problem(
            spot,
            "stands beside key: a target gets its own key or the client's",
            "leave one of the two out",
        );
    }
    let models = section.table(walk, "models", &schema::MODELS).map(|models| model_map(walk, &models));
    let embeddings = section.text(walk, "embeddings").map(|family| family.value);
    let context = section.count(walk, "context", 1, CONTEXT_MAX);
    let deadlines = deadlines(walk, section);
    let https = url.as_ref().is_some_and(|url| matches!(url.value, TargetUrl::Https { .. }));
    let roots = credential::roots(walk, section);
    if !https && url.is_some() {
        for key in ["ca_file", "roots"] {
            if section.has(key) {
                let spot = section.spot(walk, key);
                walk.problem(
                    &spot,
                    "is only for an https:// url",
                    "leave it out, or write url = \"https://…\"",
                );
            }
        }
    }
    let include_usage = section.flag(walk, "include_usage").unwrap_or(true);
    let collect = section.flag(walk, "collect");
    let spare = section.read(walk, "spare", flag);
    if let (Some(At { value: true, spot }), false) = (&spare, https) {
        walk.warn(spot, "a spare connection saves a TLS handshake, and this url has none", "leave it out");
    }
    let metered = section.flag(walk, "metered").unwrap_or(false);
    let max_concurrent = section.count(walk, "max_concurrent", 1, CONCURRENT_MAX);
    let capabilities = terms::capabilities(walk, section);
    let probe = terms::probe(walk, section, metered);
    let process = terms::process(walk, section, place);
    let price = terms::price(walk, section);
    let budget = terms::budget(walk, section);
    let (name, kind, url, place) = (name?, kind?, url?, place?);
    let target = Target {
        name: name.value,
        kind,
        url: url.value,
        place,
        group,
        region,
        weight,
        max_retries,
        key,
        forward_key: forward_key.is_some_and(|on| on.value),
        models: models.unwrap_or_default(),
        embeddings,
        context,
        deadlines,
        roots,
        include_usage,
        collect: collect.unwrap_or(place != Place::Cloud),
        // Decided for good once the first group is known.
        spare: spare.map_or(https && !metered, |on| on.value),
        max_concurrent,
        capabilities,
        probe,
        process,
        metered,
        price,
        budget,
        discovered: false,
    };
    Some(Placed {
        spot: section.spot.clone(),
        url: url.spot,
        group: section.spot(walk, "group"),
        probe: section.spot(walk, "probe"),
        money: section.spot_below(walk, "budget", "money_per_day"),
        target: target.capped(),
    })
}

/// `primary`, unless it is a cloud.
fn usual_group(place: Option<Place>) -> String {
    if place == Some(Place::Cloud) { "fallback".to_owned() } else { "primary".to_owned() }
}

fn key(walk: &mut Walk<'_>, section: &Section<'_, '_>) -> Option<super::Secret> {
    let At { value, spot } = section.get(walk, "key")?;
    if matches!(value.get_ref(), DeValue::String(_)) {
        walk.problem(
            &spot,
            "is a string: a key is never written into this file",
            "write key = { credential = \"…\" }, { file = \"…\" } or { env = \"…\" }",
        );
        return None;
    }
    let section = section.table(walk, "key", &schema::TARGET_KEY)?;
    let sources = schema::TARGET_KEY.names.iter().filter(|name| section.has(name)).count();
    match sources {
        1 => Some(credential::secret(walk, &section)?.value),
        0 => {
            walk.missing(
                &section.spot,
                "says nothing about where the key is",
                "write key = { credential = \"…\" }, { file = \"…\" } or { env = \"…\" }",
            );
            None
        }
        _ => {
            walk.problem(&section.spot, "names several sources", "keep one of credential, file and env");
            None
        }
    }
}

/// `models`: names may end with `*`; a value is a name, or `*` for the asked-for one.
fn model_map(walk: &mut Walk<'_>, models: &Section<'_, '_>) -> ModelMap {
    let mut entries = Vec::new();
    for (asked, At { value, spot }) in models.entries(walk) {
        if let Err(fault) = check_pattern(&asked) {
            walk.fault(&spot, fault);
            continue;
        }
        let DeValue::String(given) = value.get_ref() else {
            walk.problem(
                &spot,
                format_args!("must be the name of a model, not {}", super::value::type_name(value.get_ref())),
                "write { \"asked-for name\" = \"the target's name\" }; \"*\" keeps the asked-for name",
            );
            continue;
        };
        if given.is_empty() || given.len() > MODEL_NAME_BYTES || (given.contains('*') && given != "*") {
            walk.problem(
                &spot,
                format_args!("{} is not the name of a model", shown(given)),
                format_args!("write one of at most {MODEL_NAME_BYTES} bytes, or \"*\" alone, which keeps the asked-for name"),
            );
            continue;
        }
        entries.push((asked, given.to_string()));
    }
    ModelMap { entries }
}

/// A model's name, or the beginning of one and `*`.
pub(super) fn check_pattern(pattern: &str) -> Result<(), Fault> {
    let name = pattern.strip_suffix('*').unwrap_or(pattern);
    if pattern.is_empty() || name.contains('*') || pattern.len() > MODEL_NAME_BYTES {
        return Err(Fault::new(
            format!("{} is not a model's name or a beginning and *", shown(pattern)),
            format!("write \"name\", \"begin*\" or \"*\", at most {MODEL_NAME_BYTES} bytes"),
        ));
    }
    Ok(())
}

/// `deadlines = { … }` of a target or a route, or `[deadlines]` itself.
pub(super) fn deadlines(walk: &mut Walk<'_>, section: &Section<'_, '_>) -> DeadlineOverrides {
    let mut deadlines = DeadlineOverrides::default();
    if let Some(section) = section.table(walk, "deadlines", &schema::DEADLINES) {
        for (key, zero, field) in &schema::DEADLINE_FIELDS {
            *field(&mut deadlines) = section.value(walk, key, |value| super::value::duration(value, *zero));
        }
    }
    deadlines
}

impl Target {
    /// Why this target is no candidate whatever is asked; `None`: it may be one. Routing goes by this.
    #[must_use]
    pub fn never_a_candidate(&self) -> Option<&'static str> {
        if self.place == Place::Cloud && self.models.entries.is_empty() {
            return Some("a cloud needs models = { … }");
        }
        None
    }

    /// The prefix of every path at this target: the URL's base; `/v1` for an OpenAI server on a Unix socket.
    #[must_use]
    pub fn base_path(&self) -> &str {
        match (&self.url, self.kind) {
            (TargetUrl::Http { base, .. } | TargetUrl::Https { base, .. }, _) => base,
            (TargetUrl::Unix { .. }, Kind::Openai) => "/v1",
            (TargetUrl::Unix { .. }, _) => "",
        }
    }

    /// A target with every default, as discovery makes them.
    pub(super) fn plain(name: &str, kind: Kind, url: TargetUrl) -> Target {
        let place = url.usual_place();
        Target {
            name: name.to_owned(),
            kind,
            spare: matches!(url, TargetUrl::Https { .. }),
            url,
            place,
            group: usual_group(Some(place)),
            region: None,
            weight: WEIGHT,
            max_retries: RETRIES,
            key: None,
            forward_key: false,
            models: ModelMap::default(),
            embeddings: None,
            context: None,
            deadlines: DeadlineOverrides::default(),
            roots: Roots::Bundled,
            include_usage: true,
            collect: place != Place::Cloud,
            max_concurrent: None,
            capabilities: super::Capabilities::default(),
            probe: super::TargetProbe::default(),
            process: None,
            metered: false,
            price: None,
            budget: super::Budget::default(),
            discovered: false,
        }
        .capped()
    }
}
