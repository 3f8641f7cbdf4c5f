//! `[elsewhere]`: when a request leaves a box that is well, and only busy or loading a model.

use std::time::Duration;

use toml::de::DeValue;

use super::figures::time;
use super::schema_policy;
use super::value::{Fault, show_duration};
use super::walk::{Section, Walk};
use crate::limits::{self, CONFIG_DURATION_MAX};

/// `[elsewhere]`: when a request leaves a box that is busy, or loads its model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elsewhere {
    /// `after`, before a target on the LAN gets it.
    pub lan: After,
    /// `after`, before a cloud gets it.
    pub cloud: After,
}

/// How long a request waits for the box, from its arrival on, before another target gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// For this long.
    Time(Duration),
    /// `"never"`: until the request's own time is up.
    Never,
}

impl Default for Elsewhere {
    fn default() -> Self {
        Elsewhere { lan: After::Time(limits::ELSEWHERE_LAN), cloud: After::Time(limits::ELSEWHERE_CLOUD) }
    }
}

/// `[elsewhere]`. `total` is what a request has for everything before its first token.
pub(super) fn elsewhere(walk: &mut Walk<'_>, top: &Section<'_, '_>, total: Duration) -> Elsewhere {
    let mut elsewhere = Elsewhere::default();
    let Some(section) = top.table(walk, "elsewhere", &schema_policy::ELSEWHERE) else { return elsewhere };
    let Some(found) = section.get(walk, "after") else { return elsewhere };
    let Elsewhere { lan, cloud } = &mut elsewhere;
    if matches!(found.value.get_ref(), DeValue::Table(_)) {
        let Some(places) = section.table(walk, "after", &schema_policy::AFTER) else { return elsewhere };
        *lan = places.value(walk, "lan", after).unwrap_or(*lan);
        *cloud = places.value(walk, "cloud", after).unwrap_or(*cloud);
    } else if let Some(one) = section.value(walk, "after", after) {
        (*lan, *cloud) = (one, one);
    }
    let late = |after: &After| matches!(after, After::Time(time) if *time > total);
    if late(lan) || late(cloud) {
        let most = show_duration(total);
        let what =
            format!("is more than deadlines.total ({most}), which comes first: such a request gets an error");
        walk.warn(&found.spot, what, "write \"never\" if that is meant, or less");
    }
    elsewhere
}

fn after(value: &DeValue<'_>) -> Result<After, Fault> {
    match value {
        DeValue::String(word) if word == "never" => Ok(After::Never),
        DeValue::String(_) => Ok(After::Time(time(value, Duration::ZERO, CONFIG_DURATION_MAX)?)),
        _ => Err(Fault::mistyped(
            value,
            "a duration, \"never\", or one for each place",
            "\"10s\" or { lan = \"2s\", cloud = \"10s\" }",
        )),
    }
}
