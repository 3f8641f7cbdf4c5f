//! The resolved configuration in a few lines: what `check` and `run` print.

use std::fmt::Write;

use super::{Config, ModelMap, Place, Problem, Target, discover};

/// What this configuration does: listeners, who may come in, targets in the order in which they are
/// tried, who is no candidate and why, and what is missing. Ends with a newline; shows no key.
#[must_use]
pub fn plan_text(config: &Config, warnings: &[Problem]) -> String {
    let mut lines = Lines(String::new());
    match &config.source {
        Some(file) => lines.add("config", &file.display().to_string()),
        None => {
            lines.add("config", "no file: usual local ports, and clouds by their usual environment variables")
        }
    }
    let tls = if config.tls.is_some() { "TLS" } else { "no TLS" };
    let listen = config.listen.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    lines.add("listen", &format!("{listen} ({tls})"));
    lines.add("clients", &clients(config));
    if let Some(socket) = &config.admin_listen {
        lines.add("operators", &socket.display().to_string());
    }
    let discovered: Vec<_> = config.targets.iter().filter(|target| target.discovered).map(found).collect();
    if !discovered.is_empty() {
        lines.add("looks for", &format!("{}, each a target once it answers", discovered.join(", ")));
    }
    let mut place_in_order = 0;
    for target in in_order(config) {
        let number = if target.never_a_candidate().is_none() {
            place_in_order += 1;
            place_in_order.to_string()
        } else {
            "-".to_owned()
        };
        lines.add("target", &format!("{number}. {}", describe(target)));
        if !target.models.entries.is_empty() {
            lines.add("", &format!("   models: {}", models(&target.models)));
        }
        if let Some(why) = target.never_a_candidate() {
            lines.add("", &format!("   not a candidate: {why}"));
        }
    }
    for route in &config.routes {
        let groups = route.groups.as_ref().map(|groups| format!(", groups {}", groups.join(", then ")));
        lines.add("route", &format!("{}{}", route.model, groups.unwrap_or_default()));
    }
    for missing in missing(config) {
        lines.add("missing", &missing);
    }
    for warning in warnings {
        lines.add("warning", &warning.to_string());
    }
    lines.0
}

/// One fact a line, its word in front.
struct Lines(String);

impl Lines {
    fn add(&mut self, word: &str, fact: &str) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.0, "{word:<10}{fact}");
    }
}

fn clients(config: &Config) -> String {
    let home = config.listen.iter().all(|address| address.ip().is_loopback());
    let from = if home { "from this box" } else { "from the network" };
    let keys = match config.keys.len() {
        1 => "the 1 key".to_owned(),
        many => format!("one of the {many} keys"),
    };
    match (config.allow_anonymous, config.keys.is_empty()) {
        (true, true) => format!("anyone {from}, no key needed"),
        (true, false) => format!("anyone {from}; {keys} may be used, none is needed"),
        (false, _) => format!("{from}, with {keys} configured"),
    }
}

/// Configured targets in the order in which their groups are tried; those that only a route leads to come last.
fn in_order(config: &Config) -> Vec<&Target> {
    let mut targets: Vec<_> = config.targets.iter().filter(|target| !target.discovered).collect();
    let rank = |target: &&Target| {
        config.router.groups.iter().position(|group| *group == target.group).unwrap_or(usize::MAX)
    };
    targets.sort_by_key(rank);
    targets
}

fn describe(target: &Target) -> String {
    let mut text = format!(
        "{}: {} at {}, {}, group {}",
        target.name,
        target.kind.as_str(),
        target.url,
        target.place.as_str(),
        target.group
    );
    if target.key.is_some() {
        text.push_str(", with a key");
    }
    if target.forward_key {
        text.push_str(", with the client's key");
    }
    text
}

fn found(target: &Target) -> String {
    format!("{} at {}", target.name, target.url)
}

fn models(map: &ModelMap) -> String {
    let one = |(asked, given): &(String, String)| match given.as_str() {
        "*" => format!("{asked} kept"),
        _ => format!("{asked} -> {given}"),
    };
    map.entries.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn missing(config: &Config) -> Vec<String> {
    let mut missing = Vec::new();
    let candidates = || config.targets.iter().filter(|target| target.never_a_candidate().is_none());
    if candidates().next().is_none() {
        missing
            .push("no target can be a candidate: every request would be refused; add [[target]]".to_owned());
    }
    if !candidates().any(|target| target.place == Place::Cloud) {
        let others = discover::cloud_variables().collect::<Vec<_>>().join(", ");
        let how = if config.targets.iter().any(|target| !target.discovered) {
            "add [[target]] with a url, a key and models = { \"*\" = \"…\" }".to_owned()
        } else {
            format!("set one of {others}, or add [[target]]")
        };
        missing.push(format!("no cloud target: when the box fails there is nowhere to go; {how}"));
    }
    if candidates().all(|target| target.place == Place::Cloud) && candidates().next().is_some() {
        missing.push(
            "no local target: every request goes to a cloud; add [[target]] for the box's own server"
                .to_owned(),
        );
    }
    missing
}
