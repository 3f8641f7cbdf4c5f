//! On which terms targets, groups and keys are used: caps, prices, budgets, probes, how far a prompt may go.

use toml::de::DeValue;

use super::figures::{money, time};
use super::target::{deadlines, name};
use super::value::{Fault, count, nearest, shown, text};
use super::walk::{At, Section, Walk};
use super::{
    Budget, Capabilities, DeadlineOverrides, Egress, Group, Place, Price, ProcessHint, Router, Target,
    TargetProbe, schema_policy,
};
use crate::limits::{
    CLOUD_MONEY_PER_DAY, CONDITION_BYTES, CONFIG_DURATION_MAX, MONEY_PER_DAY_MAX, PRICE_INPUT, PRICE_MAX,
    PRICE_OUTPUT, PROCESS_NAME_BYTES, REQUESTS_PER_MINUTE_MAX, RETRIES_MAX, TOKENS_PER_MINUTE_MAX,
};

/// `capabilities = { … }`.
pub(super) fn capabilities(walk: &mut Walk<'_>, section: &Section<'_, '_>) -> Capabilities {
    let mut capabilities = Capabilities::default();
    if let Some(section) = section.table(walk, "capabilities", &schema_policy::CAPABILITIES) {
        let Capabilities { tools, images, json } = &mut capabilities;
        for (key, field) in [("tools", tools), ("images", images), ("json", json)] {
            *field = section.flag(walk, key);
        }
    }
    capabilities
}

/// `probe = false`, `true` or `{ … }`; a metered target is asked only where this is there.
pub(super) fn probe(walk: &mut Walk<'_>, section: &Section<'_, '_>, metered: bool) -> TargetProbe {
    let mut probe = TargetProbe { off: metered, ..TargetProbe::default() };
    let Some(At { value, spot }) = section.get(walk, "probe") else { return probe };
    match value.get_ref() {
        DeValue::Boolean(on) => probe.off = !on,
        DeValue::Table(_) => {
            probe.off = false;
            let Some(section) = section.table(walk, "probe", &schema_policy::TARGET_PROBE) else {
                return probe;
            };
            let second = std::time::Duration::from_secs(1);
            probe.every = section.value(walk, "every", |value| time(value, second, CONFIG_DURATION_MAX));
            probe.path = section.value(walk, "path", path);
        }
        other => {
            walk.fault(&spot, Fault::mistyped(other, "true, false or a table", "{ path = \"/health\" }"))
        }
    }
    probe
}

fn path(value: &DeValue<'_>) -> Result<String, Fault> {
    let path = text(value)?;
    let good = |b: u8| b.is_ascii_graphic() && !b"?#%\\\"".contains(&b);
    if path.starts_with('/') && path.bytes().all(good) && path.len() <= CONDITION_BYTES {
        return Ok(path);
    }
    Err(Fault::new(
        format!("{} is not a path", shown(path.split(['?', '#']).next().unwrap_or_default())),
        "write it from its / on, without the server and without a query: \"/health\"",
    ))
}

/// `process = { unit = "…" }` or `{ pid_file = "/…" }`, of a target on this box.
pub(super) fn process(
    walk: &mut Walk<'_>,
    section: &Section<'_, '_>,
    place: Option<Place>,
) -> Option<ProcessHint> {
    let process = section.table(walk, "process", &schema_policy::PROCESS)?;
    let unit = process.value(walk, "unit", unit);
    let pid_file = process.value(walk, "pid_file", |value| {
        path(value)
            .map_err(|_| Fault::new("is not a file's path", "write it from its / on: \"/run/llama.pid\""))
    });
    if place.is_some_and(|place| place != Place::Local) {
        let what = "is only for a target on this box: no process of another one can be watched";
        walk.problem(&process.spot, what, "leave it out");
        return None;
    }
    match (process.has("unit"), process.has("pid_file")) {
        (true, true) => {
            walk.problem(&process.spot, "names both a unit and a pid_file", "keep one of the two");
            None
        }
        (false, false) => {
            let hint = "write process = { unit = \"ollama.service\" } or { pid_file = \"/run/….pid\" }";
            walk.missing(&process.spot, "says nothing about where the process is", hint);
            None
        }
        _ => unit.map(ProcessHint::Unit).or(pid_file.map(|path| ProcessHint::PidFile(path.into()))),
    }
}

/// A unit, or any cgroup's own name.
fn unit(value: &DeValue<'_>) -> Result<String, Fault> {
    let name = text(value)?;
    let good = |b: u8| b.is_ascii_graphic() && !b"/\"".contains(&b);
    if !name.is_empty() && name.bytes().all(good) && name.len() <= PROCESS_NAME_BYTES {
        return Ok(if name.contains('.') { name } else { format!("{name}.service") });
    }
    Err(Fault::new(
        format!("{} is not the name of a unit", shown(&name)),
        "write it as `systemctl status` shows it: \"ollama.service\"",
    ))
}

/// `price = { input = …, output = … }`, for a million tokens.
pub(super) fn price(walk: &mut Walk<'_>, section: &Section<'_, '_>) -> Option<Price> {
    let section = section.table(walk, "price", &schema_policy::PRICE)?;
    let mut one = |key| {
        if !section.has(key) {
            let spot = section.spot(walk, key);
            let hint = "write price = { input = 0.15, output = 0.60 }, for a million tokens each";
            walk.missing(&spot, "is missing: a price has two sides", hint);
        }
        section.value(walk, key, |value| money(value, 0, PRICE_MAX))
    };
    let (input, output) = (one("input"), one("output"));
    Some(Price { input: input?, output: output?, assumed: false })
}

/// `budget = { … }`.
pub(super) fn budget(walk: &mut Walk<'_>, section: &Section<'_, '_>) -> Budget {
    let Some(section) = section.table(walk, "budget", &schema_policy::BUDGET) else {
        return Budget::default();
    };
    Budget {
        requests_per_minute: section.count(walk, "requests_per_minute", 1, REQUESTS_PER_MINUTE_MAX),
        tokens_per_minute: section
            .value(walk, "tokens_per_minute", |value| count(value, 1, TOKENS_PER_MINUTE_MAX)),
        money_per_day: section.value(walk, "money_per_day", |value| money(value, 1, MONEY_PER_DAY_MAX)),
    }
}

/// `local_only`: false, true or `"lan"`.
pub(super) fn local_only(walk: &mut Walk<'_>, section: &Section<'_, '_>) -> Option<At<Egress>> {
    section.read(walk, "local_only", |value| match value {
        DeValue::Boolean(true) => Ok(Egress::Box),
        DeValue::Boolean(false) => Ok(Egress::Anywhere),
        DeValue::String(word) if word == "lan" => Ok(Egress::Lan),
        DeValue::String(word) => Err(Fault::new(
            format!("{} is not a word that it knows", shown(word)),
            "write true for this box alone, or \"lan\" for the LAN too",
        )),
        _ => Err(Fault::mistyped(value, "true, false or \"lan\"", "true")),
    })
}

impl Target {
    /// Clouds cost money: one that says nothing has an assumed price and a cap.
    pub(super) fn capped(mut self) -> Target {
        if self.place == Place::Cloud {
            self.price.get_or_insert(Price { input: PRICE_INPUT, output: PRICE_OUTPUT, assumed: true });
            self.budget.money_per_day.get_or_insert(CLOUD_MONEY_PER_DAY);
        }
        self
    }

    /// What this target costs, or may cost, is known.
    pub(super) fn costs(&self) -> bool {
        self.price.is_some_and(|price| price.input > 0 || price.output > 0)
    }
}

impl Egress {
    /// Whether a prompt may go to a target at `place`.
    #[must_use]
    pub const fn allows(self, place: Place) -> bool {
        match (self, place) {
            (Egress::Anywhere, _) | (_, Place::Local) | (Egress::Lan, Place::Lan) => true,
            (Egress::Lan | Egress::Box, _) => false,
        }
    }

    /// As messages name it, after "prompts stay".
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Egress::Anywhere => "anywhere",
            Egress::Lan => "on this box and the LAN",
            Egress::Box => "on this box",
        }
    }
}

/// Every group that some target or `router.groups` names; targets with mistakes count.
pub(super) fn group_names(top: &Section<'_, '_>, targets: &[Target], router: &Router) -> Vec<String> {
    let mut names = router.groups.clone();
    names.extend(targets.iter().map(|target| target.group.clone()));
    names.extend(top.raw_tables("target").filter_map(|table| match table.get("group")?.get_ref() {
        DeValue::String(group) => Some(group.to_string()),
        _ => None,
    }));
    names
}

/// That `group` exists. A mistake is shown at `key` of `section`.
pub(super) fn check_group(
    walk: &mut Walk<'_>,
    section: &Section<'_, '_>,
    key: &str,
    group: &str,
    known: &[String],
) {
    if known.iter().any(|known| known == group) {
        return;
    }
    let spot = section.spot(walk, key);
    let hint =
        nearest(group, known.iter().map(String::as_str)).map(|near| format!("did you mean \"{near}\"?"));
    let hint = hint.unwrap_or_else(|| format!("give a target group = \"{group}\", or write another one"));
    walk.fault(&spot, Fault::new(format!("no target is in the group \"{group}\""), hint));
}

/// `[[group]]`: checked, and its terms given to those of its `targets` that name none themselves. `sections` are the
/// targets' own, in their order; none where discovery made them.
pub(super) fn groups(
    walk: &mut Walk<'_>,
    top: &Section<'_, '_>,
    targets: &mut [Target],
    router: &Router,
    sections: &[Section<'_, '_>],
) -> Vec<Group> {
    let tables = top.tables(walk, "group", &schema_policy::GROUP, super::target::label).unwrap_or_default();
    let known = group_names(top, targets, router);
    let mut groups: Vec<Group> = Vec::new();
    for section in &tables {
        if !section.has("name") {
            walk.missing(&section.spot, "has no name: which group is it?", "add name = \"fallback\"");
        }
        let named = name(walk, section, "name");
        let deadlines = deadlines(walk, section);
        let max_retries = section.count(walk, "max_retries", 0, RETRIES_MAX.into());
        let Some(At { value: name, spot }) = named else { continue };
        if groups.iter().any(|group| group.name == name) {
            walk.problem(&spot, "two tables are for this group", "put what they say into one");
            continue;
        }
        check_group(walk, section, "name", &name, &known);
        groups.push(Group { name, deadlines, max_retries });
    }
    for (n, target) in targets.iter_mut().enumerate() {
        let Some(group) = groups.iter().find(|group| group.name == target.group) else { continue };
        target.deadlines = under(group.deadlines, target.deadlines);
        if let (Some(retries), false) =
            (group.max_retries, sections.get(n).is_some_and(|section| section.has("max_retries")))
        {
            target.max_retries = retries;
        }
    }
    groups
}

/// `own`, and where it says nothing what the group says.
fn under(group: DeadlineOverrides, own: DeadlineOverrides) -> DeadlineOverrides {
    let DeadlineOverrides { connect, first_token, first_token_per_1k, between_tokens, load, answer, total } =
        own;
    DeadlineOverrides {
        connect: connect.or(group.connect),
        first_token: first_token.or(group.first_token),
        first_token_per_1k: first_token_per_1k.or(group.first_token_per_1k),
        between_tokens: between_tokens.or(group.between_tokens),
        load: load.or(group.load),
        answer: answer.or(group.answer),
        total: total.or(group.total),
    }
}
