//! The resolved configuration in a few lines: what `check` and `run` print.

use std::fmt::Write;
use std::time::Duration;

use super::value::show_duration;
use super::{
    After, Budget, ClientKey, Config, DeadlineOverrides, Egress, Group, Known, ModelMap, Place, Price,
    Priority, Problem, Route, Target, TargetUrl, discover, schema, show_money,
};

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
    for key in &config.keys {
        let terms = key_terms(key);
        if !terms.is_empty() {
            lines.add("key", &format!("{}: {}", key.name, terms.join(", ")));
        }
    }
    if let Some(socket) = &config.admin_listen {
        lines.add("operators", &socket.display().to_string());
    }
    let discovered: Vec<_> = config.targets.iter().filter(|target| target.discovered).map(place).collect();
    if !discovered.is_empty() {
        let known = Known::ALL.map(Known::in_words).join(", ").replace(", another", " or another");
        lines.add("looks at", &format!("127.0.0.1, ports {}", discovered.join(", ")));
        lines.add("", &format!("for {known}; each is known by what it says and a target once it answers"));
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
        lines.add("", &format!("   {}", target_terms(target).join(", ")));
        if let Some(price) = &target.price {
            lines.add("", &format!("   {}", costs(price, &target.budget)));
        }
        if let Some(why) = target.never_a_candidate() {
            lines.add("", &format!("   not a candidate: {why}"));
        }
    }
    for group in &config.groups {
        lines.add("group", &format!("{}: {}", group.name, group_terms(group).join(", ")));
    }
    for route in &config.routes {
        lines.add("route", &self::route(route));
    }
    for waits in elsewhere(config) {
        lines.add("waits", &waits);
    }
    if config.hedge.enabled {
        lines.add("hedge", &format!("at most {} of requests", config.hedge.share));
    }
    if let Some(rollout) = &config.rollout {
        let hold = show_duration(rollout.hold);
        lines.add("rollout", &format!("a changed file gets {} of requests for {hold} first", rollout.share));
    }
    for missing in missing(config) {
        lines.add("missing", &missing);
    }
    if config.source.is_none() {
        first_steps(config, &mut lines);
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
    let targets: Vec<_> = config.targets.iter().filter(|target| !target.discovered).collect();
    super::walk::sorted(targets, |target| {
        config.router.groups.iter().position(|group| *group == target.group).unwrap_or(usize::MAX)
    })
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

fn target_terms(target: &Target) -> Vec<String> {
    let mut terms = vec![format!("weight {}", target.weight), retries(target.max_retries)];
    if let Some(many) = target.max_concurrent {
        terms.push(format!("at most {many} at once"));
    }
    let can = &target.capabilities;
    for (what, can) in [("tools", can.tools), ("images", can.images), ("JSON mode", can.json)] {
        if can == Some(false) {
            terms.push(format!("no {what}"));
        }
    }
    if target.metered {
        terms.push("metered".to_owned());
    }
    if target.probe.off {
        terms.push("not probed".to_owned());
    }
    terms.extend(rates(&target.budget));
    terms
}

fn retries(many: u32) -> String {
    match many {
        0 => "no retry".to_owned(),
        1 => "1 retry".to_owned(),
        _ => format!("{many} retries"),
    }
}

fn rates(budget: &Budget) -> Vec<String> {
    let requests = budget.requests_per_minute.map(|many| format!("at most {many} requests a minute"));
    let tokens = budget.tokens_per_minute.map(|many| format!("at most {many} tokens a minute"));
    requests.into_iter().chain(tokens).collect()
}

/// The most that a day may cost, and by which price.
fn costs(price: &Price, budget: &Budget) -> String {
    let most = budget.money_per_day.map(|most| format!("at most {} a day; ", show_money(most)));
    let assumed = if price.assumed { " assumed" } else { "" };
    let (input, output) = (show_money(price.input), show_money(price.output));
    let most = most.unwrap_or_default();
    format!("{most}price{assumed}: {input} in, {output} out per million tokens")
}

fn key_terms(key: &ClientKey) -> Vec<String> {
    let mut terms = Vec::new();
    if key.local_only != Egress::Anywhere {
        terms.push(format!("prompts stay {}", key.local_only.as_str()));
    }
    match key.priority {
        Priority::Low => terms.push("priority low".to_owned()),
        Priority::Normal => {}
        Priority::High => terms.push("priority high".to_owned()),
    }
    terms.extend(rates(&key.budget));
    terms.extend(key.budget.money_per_day.map(|most| format!("at most {} a day", show_money(most))));
    terms
}

fn group_terms(group: &Group) -> Vec<String> {
    let mut deadlines: DeadlineOverrides = group.deadlines;
    let mut terms: Vec<String> = group.max_retries.map(retries).into_iter().collect();
    for (name, _, field) in &schema::DEADLINE_FIELDS {
        terms.extend(field(&mut deadlines).map(|time| format!("{name} {}", show_duration(time))));
    }
    if terms.is_empty() {
        terms.push("no terms of its own".to_owned());
    }
    terms
}

/// Which requests it is for: the model, and every other condition.
pub(super) fn conditions(route: &Route) -> String {
    let mut text = route.model.clone();
    for (name, value) in &route.headers {
        let _ = write!(text, ", {name}: {value}");
    }
    if !route.keys.is_empty() {
        let _ = write!(text, ", keys {}", route.keys.join(", "));
    }
    if let Some(hours) = &route.hours {
        let _ = write!(text, ", {hours}");
    }
    text
}

fn route(route: &Route) -> String {
    let mut text = conditions(route);
    if let Some(groups) = &route.groups {
        let _ = write!(text, ", groups {}", groups.join(", then "));
    }
    if route.local_only != Egress::Anywhere {
        let _ = write!(text, ", prompts stay {}", route.local_only.as_str());
    }
    match route.hedge {
        Some(true) => text.push_str(", hedged"),
        Some(false) => text.push_str(", not hedged"),
        None => {}
    }
    text
}

fn place(target: &Target) -> String {
    match &target.url {
        TargetUrl::Http { port, .. } => port.to_string(),
        url => url.to_string(),
    }
}

/// For a first start: what clients are told, and what comes after it.
fn first_steps(config: &Config, lines: &mut Lines) {
    let Some(address) = config.listen.first() else { return };
    let at = format!("http://BOX:{}", address.port());
    lines
        .add("set", &format!("in clients of OpenAI's API: base_url=\"{at}/v1\", or OPENAI_BASE_URL={at}/v1"));
    lines.add("", &format!("of Anthropic's: ANTHROPIC_BASE_URL={at}; of Ollama's: OLLAMA_HOST={at}"));
    lines.add("", "BOX is 127.0.0.1 on this box; where an SDK insists on a key, any will do");
    lines.add(
        "",
        "with HTTP_PROXY, HTTPS_PROXY or ALL_PROXY in a client's environment, NO_PROXY needs BOX too",
    );
    let file = format!("in {}", super::DEFAULT_PATH);
    lines.add(
        "next",
        &format!("clients on the LAN: listen = [\"0.0.0.0:{}\"] and a [[key]] {file}", address.port()),
    );
    lines.add("", "a [[target]] there says which servers and clouds are asked, instead of these");
    lines.add("", "`edgeward check` shows what such a file means, `edgeward status` what answers now");
}

/// How long requests wait for a box that is busy or loads a model, where another target could answer.
fn elsewhere(config: &Config) -> Vec<String> {
    let candidates = || config.targets.iter().filter(|target| target.never_a_candidate().is_none());
    let nearest = candidates().map(|target| target.place).min();
    let places = [
        (Place::Lan, config.elsewhere.lan, "a LAN target"),
        (Place::Cloud, config.elsewhere.cloud, "a cloud"),
    ];
    let there = |place: Place| {
        nearest.is_some_and(|near| near < place) && candidates().any(|target| target.place == place)
    };
    let mut lines: Vec<String> = Vec::new();
    for (_, after, who) in places.into_iter().filter(|(place, ..)| there(*place)) {
        lines.push(match after {
            After::Time(Duration::ZERO) => format!("{who} gets what a busy or loading box cannot answer at once"),
            After::Time(time) => format!(
                "{who} gets what a busy or loading box has not begun within {}; at once what would take longer",
                show_duration(time)
            ),
            After::Never => format!(
                "{who} never gets a request because the box is busy or loading: it waits for deadlines.total, then 504"
            ),
        });
    }
    if !lines.is_empty() && !config.memory.warm_up {
        lines.push(
            "a model is loaded by its request alone: one that goes elsewhere loads nothing (memory.warm_up)"
                .to_owned(),
        );
    }
    lines
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
