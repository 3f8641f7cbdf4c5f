//! Checks between keys that stand far apart: whether what one asks for is there at all.

use super::walk::{At, Section, Spot, Walk};
use super::{Config, Egress, Route, Router, Target};

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
    if !config.health.probe.enabled {
        for target in &config.targets {
            if target.probe.every.is_some() || target.probe.path.is_some() {
                let spot = top.spot_below(walk, "probe", "enabled");
                let what = format!("target \"{}\" has a probe of its own that is never made", target.name);
                walk.warn(&spot, what, "leave it out, and write probe = false in the other targets");
            }
        }
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
        format!("no target is {}: every such request would be refused", far.as_str()),
        "add a [[target]] there, or leave it out",
    );
}
