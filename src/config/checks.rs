//! Checks between keys that stand far apart: whether what one asks for is there at all.

use super::target::Placed;
use super::value::show_duration;
use super::walk::{At, Section, Spot, Walk};
use super::{Config, Egress, Place, Probe, Route, Router, Target, TargetUrl};

/// What is known of every target only once all of it is read: keys on the wire, what it lacks.
pub(super) fn targets(walk: &mut Walk<'_>, targets: &[Placed], probe: &Probe) {
    for placed in targets {
        one_target(walk, placed);
        probe_of(walk, placed, probe);
    }
}

fn probe_of(walk: &mut Walk<'_>, placed: &Placed, probe: &Probe) {
    let own = &placed.target.probe;
    if !probe.enabled && (own.every.is_some() || own.path.is_some()) {
        let what = "is never made: [probe] has enabled = false";
        walk.warn(&placed.probe, what, "leave it out there, and write probe = false in the other targets");
    }
    if let Some(every) = own.every.filter(|every| *every < probe.timeout) {
        let (every, timeout) = (show_duration(every), show_duration(probe.timeout));
        walk.problem(
            &placed.probe,
            format_args!("every ({every}) is below [probe] timeout ({timeout}): probes would pile up"),
            format_args!("write every = \"{timeout}\" or more, or a smaller timeout"),
        );
    }
}

fn one_target(walk: &mut Walk<'_>, placed: &Placed) {
    let target = &placed.target;
    let clear = matches!(target.url, TargetUrl::Http { .. });
    let away = !target.url.is_on_this_box();
    if clear && away && target.forward_key {
        walk.problem(
            &placed.url,
            "the clients' own keys (forward_key) would leave this box in clear",
            "write https://, or give the target a key of its own",
        );
    } else if clear && away && target.key.is_some() {
        walk.warn(
            &placed.url,
            "this target's key crosses the network in clear",
            "write https:// if the server has TLS",
        );
    }
    if target.budget.money_per_day.is_some() && target.price.is_none() {
        walk.warn(
            &placed.money,
            "costs nothing by its price, so that this is never reached",
            "add price = { input = …, output = … }, for a million tokens each, or leave it out",
        );
    }
    if target.place != Place::Cloud {
        return;
    }
    if target.models.entries.is_empty() {
        walk.warn(
            &placed.spot,
            "not a candidate until it has a model map: a cloud does not know the box's model names",
            "add models = { \"*\" = \"the cloud's model\" }",
        );
    }
    if target.key.is_none() && !target.forward_key {
        walk.warn(
            &placed.spot,
            "has no key, and most clouds answer 401 without one",
            "add key = { credential = \"…\" }, { file = \"…\" } or { env = \"…\" }",
        );
    }
}

/// What keys and tables ask of the targets.
pub(super) fn whole(
    walk: &mut Walk<'_>,
    top: &Section<'_, '_>,
    config: &Config,
    confined: &[At<Egress>],
    paying: &[Spot],
) {
    let candidates = || config.targets.iter().filter(|target| target.never_a_candidate().is_none());
    for At { value, spot } in confined {
        somewhere(walk, spot, *value, candidates());
    }
    if !candidates().any(Target::costs) {
        for spot in paying {
            walk.warn(
                spot,
                "no target has a price, so that this is never reached",
                "add price = { input = …, output = … } to a target, or leave it out",
            );
        }
    }
    if config.hedge.enabled && candidates().count() < 2 {
        let spot = top.spot_below(walk, "hedge", "enabled");
        walk.warn(&spot, ALONE, "add a [[target]], or leave it out");
    }
}

const ALONE: &str = "there is one target only: a hedge has nowhere to go";

/// What one route asks of the targets that it leads to.
pub(super) fn route(
    walk: &mut Walk<'_>,
    section: &Section<'_, '_>,
    route: &Route,
    targets: &[Target],
    router: &Router,
) {
    let groups = route.groups.as_ref().unwrap_or(&router.groups);
    let candidates = || {
        let reached = targets.iter().filter(|target| groups.contains(&target.group));
        reached.filter(|target| target.never_a_candidate().is_none())
    };
    let spot = section.spot(walk, "local_only");
    somewhere(walk, &spot, route.local_only, candidates());
    if route.hedge == Some(true) && candidates().count() < 2 {
        let spot = section.spot(walk, "hedge");
        walk.warn(&spot, ALONE, "name more groups, or leave it out");
    }
}

/// Warns when nobody is left whom a prompt may go to.
fn somewhere<'t>(
    walk: &mut Walk<'_>,
    spot: &Spot,
    far: Egress,
    mut candidates: impl Iterator<Item = &'t Target>,
) {
    if far == Egress::Anywhere || candidates.any(|target| far.allows(target.place)) {
        return;
    }
    walk.warn(
        spot,
        format_args!("no target is {}: every such request would be refused", far.as_str()),
        "add a [[target]] there, or leave it out",
    );
}
