//! `[router]` and `[[route]]`: which groups there are, and which requests get other rules.

use toml::de::DeValue;

use super::target::{check_name, check_pattern, deadlines};
use super::value::{Fault, choice, duration, nearest};
use super::walk::{At, Section, Walk};
use super::{Route, Router, Target, schema};

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
            walk.problem(&spot, format!("\"{value}\" stands here twice"), "name each group once");
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
    let mut routes: Vec<(Route, Option<usize>)> = Vec::new();
    for section in &sections {
        if !section.has("model") {
            walk.missing(
                &section.spot,
                "has no model: whom is it for?",
                "add model = \"name\", \"begin*\" or \"*\"",
            );
        }
        let model = section.read(walk, "model", |value| {
            let model = super::value::text(value)?;
            check_pattern(&model).map(|()| model)
        });
        let groups = groups(walk, section);
        for group in groups.iter().flatten() {
            check_group(walk, section, group, targets, router);
        }
        let route = Route {
            groups,
            deadlines: deadlines(walk, section),
            heartbeat: section.read(walk, "heartbeat", |value| duration(value, false)).map(|at| at.value),
            commit_on: section
                .read(walk, "commit_on", |value| choice(value, schema::COMMITS))
                .map(|at| at.value),
            on_empty_stop: section
                .read(walk, "on_empty_stop", |value| choice(value, schema::EMPTY_STOPS))
                .map(|at| at.value),
            model_name: section
                .read(walk, "model_name", |value| choice(value, schema::MODEL_NAMES))
                .map(|at| at.value),
            model: String::new(),
            headers: Vec::new(),
            keys: Vec::new(),
            hours: None,
            local_only: super::Egress::Anywhere,
            hedge: None,
        };
        let Some(At { value: model, spot }) = model else { continue };
        if let Some((earlier, line)) = routes.iter().find(|(earlier, _)| covers(&earlier.model, &model)) {
            let line = line.map(|line| format!(", line {line},")).unwrap_or_default();
            let what = format!("is never used: the route for \"{}\"{line} matches first", earlier.model);
            walk.warn(&spot, what, "put the narrower route before the wider one");
        }
        routes.push((Route { model, ..route }, spot.line));
    }
    routes.into_iter().map(|(route, _)| route).collect()
}

fn check_group(
    walk: &mut Walk<'_>,
    section: &Section<'_, '_>,
    group: &str,
    targets: &[Target],
    router: &Router,
) {
    if router.groups.iter().any(|known| known == group) || targets.iter().any(|target| target.group == group)
    {
        return;
    }
    let names = router.groups.iter().chain(targets.iter().map(|target| &target.group)).map(String::as_str);
    let spot = section.spot(walk, "groups");
    let hint = nearest(group, names).map(|near| format!("did you mean \"{near}\"?"));
    let hint = hint.unwrap_or_else(|| format!("give a target group = \"{group}\", or write another one"));
    walk.fault(&spot, Fault::new(format!("no target is in the group \"{group}\""), hint));
}

/// Whether every model that `narrow` matches is matched by `wide`.
fn covers(wide: &str, narrow: &str) -> bool {
    match wide.strip_suffix('*') {
        Some(prefix) => narrow.strip_suffix('*').unwrap_or(narrow).starts_with(prefix),
        None => wide == narrow,
    }
}
