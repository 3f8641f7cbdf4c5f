//! `[router]` and `[[route]]`: which groups there are, and which requests get other rules.

use toml::de::DeValue;

use super::target::{check_name, check_pattern, deadlines, label};
use super::value::{Fault, duration, nearest, shown};
use super::walk::{At, Section, Walk};
use super::{Hours, Route, Router, Target, checks, credential, figures, schema, schema_policy, terms};
use crate::limits::{CONDITION_BYTES, ROUTE_HEADERS_MAX};

/// `router.groups` as the file has it, checked; `None` where it is not there.
pub(super) fn groups(walk: &mut Walk<'_>, router: &Section<'_, '_>) -> Option<Vec<String>> {
    let listed = router.texts(walk, "groups", "[\"primary\", \"fallback\"]")?;
    let mut groups: Vec<String> = Vec::new();
    if listed.is_empty() {
        let spot = router.spot(walk, "groups");
        walk.missing(
            &spot,
            "is empty: no target would ever be tried",
            "name the groups in the order to try them",
        );
    }
    for At { value, spot } in listed {
        if let Err(fault) = check_name(&value) {
            walk.fault(&spot, fault);
        } else if groups.contains(&value) {
            walk.problem(&spot, format_args!("\"{value}\" stands here twice"), "name each group once");
        } else {
            groups.push(value);
        }
    }
    Some(groups)
}

/// Every group that some route names, unchecked: a target may be in one that only a route leads to.
pub(super) fn groups_named(top: &Section<'_, '_>) -> Vec<String> {
    let mut named = Vec::new();
    for route in top.raw_tables("route") {
        let Some(DeValue::Array(groups)) = route.get("groups").map(|groups| groups.get_ref()) else {
            continue;
        };
        named.extend(groups.iter().filter_map(|group| match group.get_ref() {
            DeValue::String(group) => Some(group.to_string()),
            _ => None,
        }));
    }
    named
}

/// `[[route]]`, in the file's order.
pub(super) fn all(
    walk: &mut Walk<'_>,
    top: &Section<'_, '_>,
    targets: &[Target],
    router: &Router,
) -> Vec<Route> {
    let Some(sections) = top.tables(walk, "route", &schema::ROUTE, |_| None) else { return Vec::new() };
    let known = terms::group_names(top, targets, router);
    let mut routes: Vec<(Route, Option<usize>)> = Vec::new();
    for section in &sections {
        let Some(route) = one(walk, top, section, &known) else { continue };
        checks::route(walk, section, &route, targets, router);
        let spot = if section.has("model") { section.spot(walk, "model") } else { section.spot.clone() };
        let before = |(earlier, _): &&(Route, Option<usize>)| covers_route(earlier, &route);
        if let Some((earlier, line)) = routes.iter().find(before) {
            let line = line.map(|line| format!(", line {line},")).unwrap_or_default();
            let what = format!("is never used: the route for \"{}\"{line} matches first", earlier.model);
            walk.warn(&spot, what, "put the narrower route before the wider one");
        }
        routes.push((route, spot.line));
    }
    routes.into_iter().map(|(route, _)| route).collect()
}

fn one(
    walk: &mut Walk<'_>,
    top: &Section<'_, '_>,
    section: &Section<'_, '_>,
    known: &[String],
) -> Option<Route> {
    if !["model", "headers", "keys", "hours"].iter().any(|condition| section.has(condition)) {
        walk.missing(
            &section.spot,
            "has no model: whom is it for?",
            "add model = \"name\", \"begin*\" or \"*\", or another condition: headers, keys, hours",
        );
        return None;
    }
    let model = section.value(walk, "model", |value| {
        let model = super::value::text(value)?;
        check_pattern(&model).map(|()| model)
    });
    let groups = groups(walk, section);
    for group in groups.iter().flatten() {
        terms::check_group(walk, section, "groups", group, known);
    }
    let local_only = terms::local_only(walk, section).map_or(super::Egress::Anywhere, |far| far.value);
    let route = Route {
        headers: headers(walk, section),
        keys: keys(walk, top, section),
        hours: hours(walk, section),
        local_only,
        hedge: section.flag(walk, "hedge"),
        groups,
        deadlines: deadlines(walk, section),
        heartbeat: section.value(walk, "heartbeat", |value| duration(value, false)),
        commit_on: section.word(walk, "commit_on", schema::COMMITS),
        on_empty_stop: section.word(walk, "on_empty_stop", schema::EMPTY_STOPS),
        on_break: section.word(walk, "on_break", schema::BREAKS),
        model_name: section.word(walk, "model_name", schema::MODEL_NAMES),
        model: "*".to_owned(),
    };
    match model {
        Some(model) => Some(Route { model, ..route }),
        None if section.has("model") => None,
        None => Some(route),
    }
}

/// `headers = { "x-team" = "vision*" }`: the names in lower case.
fn headers(walk: &mut Walk<'_>, section: &Section<'_, '_>) -> Vec<(String, String)> {
    let mut headers: Vec<(String, String)> = Vec::new();
    let Some(section) = section.table(walk, "headers", &schema_policy::HEADERS) else { return headers };
    let entries = section.entries(walk);
    if entries.is_empty() {
        walk.missing(
            &section.spot,
            "is empty",
            "write headers = { \"x-team\" = \"vision*\" }, or leave it out",
        );
    }
    for (n, (name, At { value, spot })) in entries.into_iter().enumerate() {
        let name = name.to_ascii_lowercase();
        if let Err(fault) = check_header(&name) {
            walk.fault(&spot, fault);
        } else if headers.iter().any(|(other, _)| *other == name) {
            walk.problem(&spot, format_args!("\"{name}\" stands here twice"), "name each header once");
        } else if n == ROUTE_HEADERS_MAX {
            walk.problem(
                &spot,
                "is one header too many",
                format_args!("a route looks at {ROUTE_HEADERS_MAX} headers at most"),
            );
        } else {
            match header_value(value.get_ref()) {
                Ok(value) => headers.push((name, value)),
                Err(fault) => walk.fault(&spot, fault),
            }
        }
    }
    headers
}

/// A header that a route may go by.
fn check_header(name: &str) -> Result<(), Fault> {
    const CREDENTIALS: [&str; 5] =
        ["authorization", "proxy-authorization", "x-api-key", "x-goog-api-key", "cookie"];
    // RFC 9110 section 5.6.2, token.
    let good = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    if CREDENTIALS.contains(&name) {
        return Err(Fault::new(
            "carries a client's credential, which is never written into this file",
            "write keys = [\"…\"], the names of [[key]]",
        ));
    }
    if name.is_empty() || name.len() > CONDITION_BYTES || !name.bytes().all(good) {
        return Err(Fault::new("is not the name of a header", "write it as clients send it: \"x-team\""));
    }
    Ok(())
}

fn header_value(value: &DeValue<'_>) -> Result<String, Fault> {
    let DeValue::String(text) = value else {
        return Err(Fault::mistyped(value, "a string", "\"vision*\""));
    };
    let exact = text.strip_suffix('*').unwrap_or(text);
    let visible = text.bytes().all(|b| b.is_ascii_graphic() || b == b' ') && text.trim() == &**text;
    if text.is_empty() || exact.contains('*') || !visible || text.len() > CONDITION_BYTES {
        return Err(Fault::new(
            format!("{} is not a header's value or a beginning and *", shown(text)),
            "write \"value\", \"begin*\", or \"*\" for any",
        ));
    }
    Ok(text.to_string())
}

/// `keys = ["laptop"]`: names of client keys.
fn keys(walk: &mut Walk<'_>, top: &Section<'_, '_>, section: &Section<'_, '_>) -> Vec<String> {
    // Names of keys with other mistakes count: those are shown where they stand.
    let known: Vec<String> = top.raw_tables("key").filter_map(label).collect();
    let mut keys: Vec<String> = Vec::new();
    let Some(listed) = section.texts(walk, "keys", "[\"laptop\"]") else { return keys };
    if listed.is_empty() {
        let spot = section.spot(walk, "keys");
        walk.missing(&spot, "is empty: the route is for nobody", "name a [[key]], or leave it out");
    }
    for At { value, spot } in listed {
        if keys.contains(&value) {
            walk.problem(&spot, format_args!("{} stands here twice", shown(&value)), "name each key once");
        } else if known.contains(&value) {
            keys.push(value);
        } else {
            let near = nearest(&value, known.iter().map(String::as_str));
            let hint = near.map(|near| format!("did you mean \"{near}\"?"));
            walk.problem(
                &spot,
                format_args!("no [[key]] has the name {}", credential::echo(&value)),
                hint.unwrap_or_else(|| "write the name of a [[key]], never the key itself".to_owned()),
            );
        }
    }
    keys
}

fn hours(walk: &mut Walk<'_>, section: &Section<'_, '_>) -> Option<Hours> {
    let At { value, spot } = section.read(walk, "hours", figures::hours)?;
    if value.is_whole_day() {
        walk.warn(&spot, "is the whole day", "leave it out, or write another end");
    }
    Some(value)
}

/// Whether every request that `narrow` is for is one that `wide` is for.
fn covers_route(wide: &Route, narrow: &Route) -> bool {
    let header = |(name, value): &(String, String)| {
        narrow.headers.iter().any(|(other, narrower)| other == name && covers(value, narrower))
    };
    covers(&wide.model, &narrow.model)
        && wide.headers.iter().all(header)
        && (wide.keys.is_empty()
            || (!narrow.keys.is_empty() && narrow.keys.iter().all(|key| wide.keys.contains(key))))
        && wide.hours.is_none_or(|hours| match narrow.hours {
            Some(narrow) => hours.cover(narrow),
            None => hours.is_whole_day(),
        })
}

/// Whether everything that the pattern `narrow` matches is matched by `wide`.
fn covers(wide: &str, narrow: &str) -> bool {
    match wide.strip_suffix('*') {
        Some(prefix) => narrow.strip_suffix('*').unwrap_or(narrow).starts_with(prefix),
        None => wide == narrow,
    }
}
