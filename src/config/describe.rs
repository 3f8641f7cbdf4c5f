//! A configuration as a flat list of settings, and the difference between two in words; secrets only as `***`.

use std::cell::Cell;
use std::fmt;
use std::time::Duration;

use ring::digest::{SHA256, digest};

use super::value::{show_bytes, show_duration};
use super::{Config, Micros, Permille, show_money};

/// One setting, as it counts: written in the file, or by default.
#[derive(Clone, PartialEq, Eq)]
pub struct Setting {
    /// Whose it is: `target "box"`, `key "shop"`, `route "big-*"`; empty for the rest.
    pub owner: String,
    /// Below its owner: `weight`, `limits.max_body`.
    pub key: String,
    /// As the file would write it, without quotes; `***` for a secret.
    pub value: String,
    /// Tells one secret from another; never shown.
    print: Option<[u8; 32]>,
}

impl Setting {
    /// As messages name it: `target "box".weight`, `limits.max_body`.
    #[must_use]
    pub fn path(&self) -> String {
        if self.owner.is_empty() { self.key.clone() } else { format!("{}.{}", self.owner, self.key) }
    }
}

impl fmt::Debug for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}", self.path(), self.value)
    }
}

/// Every setting of `config`, defaults included, in the order of the file; what is not set is left out.
#[must_use]
pub fn describe(config: &Config) -> Vec<Setting> {
    let mut flat = Flat { owner: String::new(), settings: Vec::new() };
    flat.config(config);
    flat.settings
}

/// The same as text, a line each. Keys are `***`.
#[must_use]
pub fn in_lines(config: &Config) -> String {
    describe(config).iter().map(|setting| format!("{} = {}\n", setting.path(), setting.value)).collect()
}

/// What is different in `new`, a line each, in words: `target "cloud".weight: 100 → 50`, `key "shop": removed`.
#[must_use]
pub fn diff(old: &Config, new: &Config) -> Vec<String> {
    let (old, new) = (describe(old), describe(new));
    let (before, after) = (Finder::new(&old), Finder::new(&new));
    let (owners_before, owners_after) = (owners(&old), owners(&new));
    let mut lines = Vec::new();
    for owner in owners_before.iter().filter(|owner| !owners_after.contains(owner)) {
        lines.push(format!("{owner}: removed"));
    }
    for setting in &new {
        if !owners_before.contains(&&*setting.owner) {
            let line = format!("{}: added", setting.owner);
            if lines.last() != Some(&line) {
                lines.push(line);
            }
            continue;
        }
        match before.find(setting) {
            None => lines.push(format!("{}: not set → {}", setting.path(), setting.value)),
            Some(old) if old.value != setting.value => {
                lines.push(format!("{}: {} → {}", setting.path(), old.value, setting.value));
            }
            Some(old) if old.print != setting.print => lines.push(format!("{}: changed", setting.path())),
            Some(_) => {}
        }
    }
    for setting in &old {
        let there = after.find(setting).is_some();
        if !there && owners_after.contains(&&*setting.owner) {
            lines.push(format!("{}: {} → not set", setting.path(), setting.value));
        }
    }
    for kind in ["target ", "route "] {
        let common = |owners: &[&str], others: &[&str]| {
            let both = owners.iter().filter(|owner| owner.starts_with(kind) && others.contains(owner));
            both.map(|owner| owner.trim_start_matches(kind).to_owned()).collect::<Vec<_>>().join(", ")
        };
        let was = common(&owners_before, &owners_after);
        let is = common(&owners_after, &owners_before);
        if was != is {
            lines.push(format!("order of {}s: {was} → {is}", kind.trim_end()));
        }
    }
    lines
}

/// Finds settings of one configuration in those of another. Both have about the same order: each is looked for from
/// where the last one was.
struct Finder<'a> {
    settings: &'a [Setting],
    next: Cell<usize>,
}

impl<'a> Finder<'a> {
    fn new(settings: &'a [Setting]) -> Self {
        Finder { settings, next: Cell::new(0) }
    }

    /// The one of the same owner and key.
    fn find(&self, like: &Setting) -> Option<&'a Setting> {
        let (before, behind) = self.settings.split_at_checked(self.next.get())?;
        let mut all = behind.iter().chain(before);
        let at = all.position(|setting| setting.key == like.key && setting.owner == like.owner)?;
        let at = (self.next.get() + at) % self.settings.len();
        self.next.set(at + 1);
        self.settings.get(at)
    }
}

/// Each owner once, in order.
fn owners(settings: &[Setting]) -> Vec<&str> {
    let mut owners: Vec<&str> = settings.iter().map(|setting| &*setting.owner).collect();
    // The settings of one owner stand together.
    owners.dedup();
    owners
}

/// What a setting is, for the one place that writes them.
#[derive(Clone, Copy)]
pub(super) enum Is<'a> {
    Unset,
    Flag(bool),
    Number(u64),
    Bytes(usize),
    Time(Duration),
    Share(Permille),
    Money(Micros),
    Text(&'a str),
    Shown(&'a dyn fmt::Display),
    List(&'a [String]),
    Secret(&'a [u8]),
}

/// The word of the file for `value`.
pub(super) fn word<T: PartialEq>(choices: &[(&'static str, T)], value: &T) -> Is<'static> {
    choices.iter().find(|(_, choice)| choice == value).map_or(Is::Unset, |(name, _)| Is::Text(name))
}

/// What a user's own text may hold and a line may not: it is escaped.
fn one_line(text: &str) -> String {
    if text.chars().any(char::is_control) { format!("{text:?}") } else { text.to_owned() }
}

/// The list as it grows.
pub(super) struct Flat {
    owner: String,
    settings: Vec<Setting>,
}

impl Flat {
    pub(super) fn put(&mut self, table: &str, key: &str, is: Is<'_>) {
        let mut print = None;
        let value = match is {
            Is::Unset => return,
            Is::Flag(on) => on.to_string(),
            Is::Number(number) => number.to_string(),
            Is::Bytes(size) => show_bytes(size),
            Is::Time(time) => show_duration(time),
            Is::Share(share) => share.to_string(),
            Is::Money(money) => show_money(money),
            Is::Text(text) => one_line(text),
            Is::Shown(shown) => one_line(&shown.to_string()),
            Is::List(list) => one_line(&list.join(", ")),
            Is::Secret(secret) => {
                print = digest(&SHA256, secret).as_ref().try_into().ok();
                "***".to_owned()
            }
        };
        let key = if table.is_empty() { key.to_owned() } else { format!("{table}.{key}") };
        self.settings.push(Setting { owner: self.owner.clone(), key, value, print });
    }

    pub(super) fn all(&mut self, table: &str, settings: &[(&str, Is<'_>)]) {
        for (key, is) in settings {
            self.put(table, key, *is);
        }
    }

    /// From here on, what is put belongs to it. Routes may have the same conditions, and are told apart.
    pub(super) fn owned(&mut self, kind: &str, name: &str) {
        let mut owner = format!("{kind} \"{}\"", one_line(name));
        let taken = |owner: &str| self.settings.iter().any(|setting| setting.owner == owner);
        let mut n = 2;
        while taken(&owner) {
            owner = format!("{kind} \"{}\" ({n})", one_line(name));
            n += 1;
        }
        self.owner = owner;
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const TARGETS: &str = "[[target]]\nname = \"box\"\nkind = \"ollama\"\nurl = \"http://127.0.0.1:1\"\n\
                           [[target]]\nname = \"cloud\"\nkind = \"openai\"\nurl = \"https://api.example.com\"\n\
                           key = { env = \"CLOUD\" }\nmodels = { \"*\" = \"m\" }\n";

    fn config(text: &str, key: &str) -> Config {
        let env = |name: &str| (name == "CLOUD").then(|| key.to_owned());
        crate::config::parse(text, Path::new("/f.toml"), &env)
            .unwrap_or_else(|problems| panic!("{problems}"))
            .config
    }

    /// From `TARGETS` and `old` to `TARGETS` and `new`.
    fn lines(old: &str, new: &str) -> Vec<String> {
        let whole = |more: &str| config(&format!("{more}\n{TARGETS}"), "sk-never-shown-1");
        diff(&whole(old), &whole(new))
    }

    #[test]
    fn nothing_is_different_from_itself() {
        assert_eq!(lines("heartbeat = \"5s\"", "heartbeat = \"5000ms\""), [""; 0]);
        assert_eq!(lines("", "[breaker]\nconsecutive = 3"), [""; 0], "a default written out changes nothing");
    }

    #[test]
    fn changes_are_said_in_words() {
        assert_eq!(lines("", "heartbeat = \"5s\""), ["heartbeat: not set → 5s"]);
        assert_eq!(lines("heartbeat = \"5s\"", ""), ["heartbeat: 5s → not set"]);
        assert_eq!(lines("", "[degrade]\nabove = \"7.5%\""), ["degrade.above: 5% → 7.5%"]);
        assert_eq!(lines("", "[limits]\nmax_body = \"8MiB\""), ["limits.max_body: 32MiB → 8MiB"]);
        let route = "[[route]]\nmodel = \"big*\"\nhours = \"22:00-06:00\"\n";
        assert_eq!(lines("", route), ["route \"big*, 22:00-06:00\": added"]);
        let hedged = format!("{route}hedge = true");
        assert_eq!(lines(route, &hedged), ["route \"big*, 22:00-06:00\".hedge: not set → true"]);
        assert_eq!(lines(&format!("[[route]]\nmodel = \"a\"\n{route}"), route), ["route \"a\": removed"]);
        let key = "[[key]]\nname = \"shop\"\nsha256 = \"5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8\"\n";
        assert_eq!(
            lines(key, ""),
            ["key \"shop\": removed", "allow_anonymous: false → true"],
            "what follows from it is said too"
        );
        let other = key.replace("5e88", "5e89");
        assert_eq!(lines(key, &other), ["key \"shop\".key: changed"]);
    }

    #[test]
    fn a_target_s_changes_name_it() {
        let one =
            |from: &str, to: &str| diff(&config(TARGETS, "k"), &config(&TARGETS.replace(from, to), "k"));
        let cloud = "models = { \"*\" = \"m\" }";
        assert_eq!(one(cloud, &format!("{cloud}\nweight = 50")), ["target \"cloud\".weight: 100 → 50"]);
        assert_eq!(
            one(cloud, "models = { \"*\" = \"n\", \"a\\nb\" = \"c\" }"),
            ["target \"cloud\".models.\"*\": m → n", "target \"cloud\".models.\"a\\nb\": not set → c",]
        );
        assert_eq!(
            one(cloud, &format!("{cloud}\nprice = {{ input = 0.15, output = 25 }}")),
            ["target \"cloud\".price.input: 5.00 → 0.15", "target \"cloud\".price.assumed: true → false"]
        );
        assert_eq!(one("\"box\"", "\"shelf\""), ["target \"box\": removed", "target \"shelf\": added"]);
        let (here, away) = TARGETS.split_at(TARGETS.rfind("[[target]]").expect("a second"));
        let turned = config(&format!("{away}{here}"), "k");
        assert_eq!(
            diff(&config(TARGETS, "k"), &turned),
            ["order of targets: \"box\", \"cloud\" → \"cloud\", \"box\""]
        );
    }

    #[test]
    fn a_secret_s_change_shows_and_the_secret_does_not() {
        let (old, new) = (config(TARGETS, "sk-never-shown-1"), config(TARGETS, "sk-never-shown-2"));
        assert_eq!(diff(&old, &new), ["target \"cloud\".key: changed"]);
        let none = config(&TARGETS.replace("key = { env = \"CLOUD\" }", ""), "");
        assert_eq!(diff(&none, &old), ["target \"cloud\".key: not set → ***"]);
        let said = format!("{:?}", describe(&old));
        assert!(!said.contains("never-shown") && said.contains("target \"cloud\".key = ***"), "{said}");
    }

    #[test]
    fn every_key_of_the_policies_shows_when_it_is_taken_out() {
        let text = include_str!("../../tests/config/valid/policies.toml")
            .replace("file = \"good.key\"", &format!("sha256 = \"{}\"", "a1".repeat(32)))
            .replace("file = \"open.key\"", &format!("sha256 = \"{}\"", "b2".repeat(32)));
        let env = |_: &str| Some("k".to_owned());
        let parse = |text: &str| crate::config::parse(text, Path::new("/f.toml"), &env);
        let whole = parse(&text).unwrap_or_else(|problems| panic!("{problems}")).config;
        let mut shown = 0;
        for (n, line) in text.lines().enumerate() {
            if line.starts_with('#') || !line.contains('=') {
                continue;
            }
            let without: String = text
                .lines()
                .enumerate()
                .filter(|(m, _)| *m != n)
                .map(|(_, line)| format!("{line}\n"))
                .collect();
            let Ok(loaded) = parse(&without) else { continue };
            assert_ne!(diff(&whole, &loaded.config), [""; 0], "nothing is said without {line}");
            shown += 1;
        }
        assert!(shown > 60, "{shown}");
    }
}
