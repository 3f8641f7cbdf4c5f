//! Configuration files as users write them: the good ones load, each mistake is shown where it stands.
//!
//! Files under `tests/config/` have comments that the tests read: `# env: NAME=value` sets a variable;
//! `# expect: LINE | KEY | PART` is a mistake, `# warn: LINE | KEY | PART` a warning, whose text has PART in it.
//! Every one must be there, and no other.

#![expect(clippy::expect_used, clippy::panic, reason = "a test's helpers fail as the tests do")]

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use edgeward::config::{self, Loaded, Place, Problem, Problems};

/// What stands in every key file of these tests; no message may ever show it.
const SECRET: &str = "sk-never-shown-0123456789abcdef";

/// A folder with the files that the configurations name; gone at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("edgeward-config-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(path.join("credentials")).expect("folder");
        let folder = Folder(path);
        folder.write("credentials/openai", SECRET, 0o600);
        folder.write("credentials/empty", "\n", 0o600);
        folder.write("good.key", format!("{SECRET}\n"), 0o600);
        folder.write("same.key", SECRET, 0o600);
        folder.write("short.key", "hunter2", 0o600);
        folder.write("open.key", format!("{SECRET}-2"), 0o644);
        folder.write("torn.key", format!("{SECRET}\n{SECRET}"), 0o600);
        folder.write("accent.key", "sk-schlüssel", 0o600);
        folder.write("binary.key", [0xff, 0xfe, 0x00], 0o600);
        folder.write("huge.key", "x".repeat(17_000), 0o600);
        folder.write("empty.pem", "", 0o600);
        folder.write("text.pem", "this is not PEM", 0o600);
        folder.write(
            "broken.pem",
            "-----BEGIN CERTIFICATE-----\nno base64 !\n-----END CERTIFICATE-----\n",
            0o600,
        );
        let key = rcgen::KeyPair::generate().expect("key");
        let params = rcgen::CertificateParams::new(vec!["box.lan".to_owned()]).expect("names");
        let cert = params.self_signed(&key).expect("certificate");
        folder.write("cert.pem", cert.pem(), 0o644);
        folder.write("key.pem", key.serialize_pem(), 0o600);
        let other = rcgen::KeyPair::generate().expect("key");
        folder.write("other-key.pem", other.serialize_pem(), 0o600);
        folder
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>, mode: u32) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, content).expect("file");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("mode");
        path
    }

    fn parse(&self, text: &str, vars: &HashMap<String, String>) -> Result<Loaded, Problems> {
        let credentials = self.0.join("credentials").display().to_string();
        let env = |name: &str| match vars.get(name) {
            Some(value) => Some(value.clone()),
            None if name == "CREDENTIALS_DIRECTORY" => Some(credentials.clone()),
            None => None,
        };
        config::parse(text, &self.0.join("edgeward.toml"), &env)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What a file's first comments say.
struct Script {
    vars: HashMap<String, String>,
    expect: Vec<String>,
    warn: Vec<String>,
}

fn script(text: &str) -> Script {
    let said = |word: &str| {
        let marker = format!("# {word}: ");
        text.lines().filter_map(move |line| line.strip_prefix(&marker).map(str::to_owned)).collect::<Vec<_>>()
    };
    let pair = |line: String| line.split_once('=').map(|(k, v)| (k.to_owned(), v.to_owned()));
    Script {
        vars: said("env").into_iter().filter_map(pair).collect(),
        expect: said("expect"),
        warn: said("warn"),
    }
}

/// Each wanted line is met by a problem of its own, and no problem is left.
fn compare(file: &Path, wanted: &[String], got: &[Problem]) {
    let shown = || got.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    let mut left: Vec<&Problem> = got.iter().collect();
    for want in wanted {
        let parts: Vec<&str> = want.splitn(3, " | ").collect();
        let &[line, key, part] = &parts[..] else {
            panic!("{}: write LINE | KEY | PART: {want}", file.display())
        };
        let line = (line != "-").then(|| line.parse::<usize>().expect("a line"));
        let key = if key == "-" { "" } else { key };
        let met = left.iter().position(|problem| {
            problem.line == line && problem.key == key && problem.to_string().contains(part)
        });
        match met {
            Some(at) => drop(left.remove(at)),
            None => panic!("{}: nothing says\n  {want}\nbut:\n{}", file.display(), shown()),
        }
    }
    assert!(left.is_empty(), "{}: not wanted: {}\namong:\n{}", file.display(), left[0], shown());
    for problem in got {
        assert!(problem.hint.as_ref().is_some_and(|hint| !hint.is_empty()), "no hint: {problem}");
        assert!(!format!("{problem:?}").contains("never-shown"), "shows a secret: {problem}");
    }
}

fn files(folder: &str) -> Vec<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/config").join(folder);
    let mut files: Vec<_> =
        fs::read_dir(path).expect("folder").map(|entry| entry.expect("entry").path()).collect();
    files.sort();
    assert!(!files.is_empty());
    files
}

#[test]
fn good_files_load() {
    let folder = Folder::new("valid");
    for file in files("valid") {
        let text = fs::read_to_string(&file).expect("file");
        let script = script(&text);
        match folder.parse(&text, &script.vars) {
            Ok(loaded) => {
                compare(&file, &script.warn, &loaded.warnings);
                let plan = config::plan_text(&loaded.config, &loaded.warnings);
                assert!(
                    !format!("{loaded:?}{plan}").contains("never-shown"),
                    "{}: shows a secret",
                    file.display()
                );
            }
            Err(problems) => panic!("{}:\n{problems}", file.display()),
        }
    }
}

#[test]
fn each_mistake_is_shown_where_it_stands() {
    let folder = Folder::new("invalid");
    for file in files("invalid") {
        let text = fs::read_to_string(&file).expect("file");
        let script = script(&text);
        assert!(!script.expect.is_empty(), "{}: expects nothing", file.display());
        match folder.parse(&text, &script.vars) {
            Ok(loaded) => {
                panic!("{} loads:\n{}", file.display(), config::plan_text(&loaded.config, &loaded.warnings))
            }
            Err(problems) => {
                compare(&file, &script.expect, &problems.0);
                let lines: Vec<_> = problems.0.iter().map(|problem| problem.line).collect();
                assert!(lines.is_sorted(), "{}: not in the file's order", file.display());
            }
        }
    }
}

#[test]
fn the_shipped_file_is_good_as_it_is_and_with_everything_in_it() {
    let folder = Folder::new("shipped");
    let text = include_str!("../systemd/edgeward.toml");
    let loaded = folder.parse(text, &HashMap::new()).unwrap_or_else(|problems| panic!("{problems}"));
    assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
    let plain = config::discover(&|_| None, &config::LOCAL_SERVERS).config;
    let as_shipped = config::Config { source: None, ..loaded.config };
    assert_eq!(
        format!("{as_shipped:?}"),
        format!("{plain:?}"),
        "what it ships with is what there is without it"
    );

    folder.write("admin.key", format!("{SECRET}-3"), 0o600);
    folder.write("lan-ca.pem", fs::read(folder.0.join("cert.pem")).expect("certificate"), 0o644);
    let all: String = text
        .replace("/etc/edgeward/", "")
        .lines()
        .map(|line| match line.strip_prefix('#') {
            Some(option) if !option.starts_with(' ') => format!("{option}\n"),
            _ => format!("{line}\n"),
        })
        // [limits] and [deadlines] stand open in the file; the tables after them come as they are.
        .collect();
    let loaded = folder.parse(&all, &HashMap::new()).unwrap_or_else(|problems| panic!("{problems}"));
    assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
    assert_eq!(loaded.config.targets.len(), 3);
    assert_eq!(loaded.config.keys.len(), 2);
    assert_eq!(format!("{:?}", loaded.config.limits), format!("{:?}", config::Limits::default()));
    let defaults = config::Deadlines::default();
    assert_eq!(
        loaded.config.deadlines,
        // Where it is not set, it is as long as `total`.
        config::Deadlines { answer: Some(defaults.total), ..defaults },
        "the defaults that it shows are the defaults"
    );
    assert_eq!(loaded.config.health, config::Health::default());
    assert_eq!(loaded.config.retry, config::Retry::default());
    assert_eq!(loaded.config.hedge, config::Hedge::default());
    assert_eq!(loaded.config.queue, config::Queue::default());
    assert_eq!(loaded.config.sticky, config::Sticky::default());
    assert!(loaded.config.rollout.is_some());
}

#[test]
fn the_design_s_example_is_understood() {
    let folder = Folder::new("design");
    let text = fs::read_to_string("tests/config/valid/design.toml").expect("file");
    let config = folder.parse(&text, &HashMap::new()).expect("good").config;
    let [one, cloud] = &config.targets[..] else { panic!("two targets") };
    assert_eq!(
        (&*one.name, one.kind, one.place, one.weight, one.max_retries),
        ("box", config::Kind::Ollama, Place::Local, 100, 1)
    );
    assert_eq!(one.url.to_string(), "http://127.0.0.1:11434");
    assert_eq!(cloud.key.as_ref().map(config::Secret::expose), Some(SECRET));
    assert_eq!(cloud.url.to_string(), "https://api.openai.com/v1");
    assert_eq!(
        cloud.models.entries,
        [("*".into(), "gpt-4o-mini".into()), ("llama3.2:3b".into(), "gpt-4o-mini".into())]
    );
    assert!(cloud.spare && !one.spare);
    assert_eq!(config.router.groups, ["primary", "fallback"]);
    assert_eq!(config.router.region.as_deref(), Some("edge"));
    assert_eq!(config.deadlines, config::Deadlines::default());
    assert!(config.allow_anonymous);
}

#[test]
fn every_setting_of_pictures_is_read() {
    let text = fs::read_to_string("tests/config/valid/images.toml").expect("file");
    let config = Folder::new("images").parse(&text, &HashMap::new()).expect("good").config;
    let secs = std::time::Duration::from_secs;
    let images = config::Images {
        fetch: true,
        hosts: vec!["images.example.com".to_owned()],
        private_hosts: vec!["nas.lan".to_owned(), "192.168.1.9".to_owned()],
        max_bytes: 2 << 20,
        timeout: secs(3),
        local_urls: true,
        cache: 0,
        cache_time: secs(3600),
    };
    assert_eq!(config.images, images);
    assert!(!config::Images::default().fetch && !config::Images::default().local_urls);
}

#[test]
fn every_policy_is_read() {
    use config::{Budget, Egress, Hours, Permille, Price, Priority, RetryFirst};
    let secs = std::time::Duration::from_secs;
    let folder = Folder::new("policies");
    let text = fs::read_to_string("tests/config/valid/policies.toml").expect("file");
    let vars = HashMap::from([("CLOUD_KEY".to_owned(), SECRET.to_owned())]);
    let config = folder.parse(&text, &vars).expect("good").config;
    let breaker = config::Breaker {
        enabled: false,
        window: secs(120),
        min_samples: 20,
        failure_rate: Permille(333),
        consecutive: 5,
        cooldown: secs(5),
        cooldown_max: secs(3600),
        trials: 2,
        recovery: secs(0),
    };
    let (above, below, least) = (Permille(100), Permille(100), Permille(250));
    let degrade = config::Degrade { enabled: false, above, below, least };
    let latency = config::Latency {
        enabled: false,
        times: 8,
        first_token: secs(3),
        gap: secs(1),
        min_samples: 50,
        out_after: secs(120),
        back_after: secs(600),
        trickle: secs(30),
    };
    let probe = config::Probe {
        enabled: true,
        every: secs(30),
        every_cloud: secs(3600),
        timeout: secs(1),
        down_after: 3,
    };
    assert_eq!(config.health, config::Health { breaker, degrade, latency, probe });
    let backoff = std::time::Duration::from_millis(100);
    let (first, jitter) = (RetryFirst::Retry, secs(0));
    assert_eq!(config.retry, config::Retry { first, backoff, jitter, budget: Permille(0) });
    assert_eq!(config.hedge, config::Hedge { enabled: true, share: Permille(25) });
    assert_eq!(config.queue, config::Queue { length: 0, time: secs(0) });
    let elsewhere = config::Elsewhere { lan: config::After::Time(secs(0)), cloud: config::After::Never };
    assert_eq!(config.elsewhere, elsewhere);
    assert_eq!(config.sticky, config::Sticky { enabled: false, idle: secs(60), away: secs(0) });
    let rollout = config::Rollout { share: Permille(5), hold: secs(300), min_samples: 7 };
    assert_eq!(config.rollout, Some(rollout));

    let [shop, batch] = &config.keys[..] else { panic!("two keys") };
    assert_eq!((shop.local_only, shop.priority), (Egress::Lan, Priority::High));
    assert_eq!((batch.local_only, batch.priority), (Egress::Box, Priority::Low));
    let (requests_per_minute, tokens_per_minute) = (Some(60), Some(100_000));
    let budget = Budget { requests_per_minute, tokens_per_minute, money_per_day: Some(1_000_000) };
    assert_eq!((shop.budget, batch.budget), (budget, Budget::default()));

    let [here, shelf, modem, probed, cloud] = &config.targets[..] else { panic!("five targets") };
    assert_eq!(here.max_concurrent, Some(4));
    let can = here.capabilities;
    assert_eq!((can.tools, can.images, can.json), (Some(true), Some(false), None));
    assert_eq!(
        (here.probe.off, here.probe.every, &here.probe.path),
        (false, Some(secs(5)), &Some("/api/version".into()))
    );
    assert_eq!(here.price, Some(Price { input: 0, output: 0, assumed: false }));
    assert_eq!((here.budget, here.max_retries), (Budget::default(), 1));
    assert!(shelf.probe.off && shelf.price.is_none());
    let of = |target: &config::Target| (target.max_retries, target.deadlines.connect, target.deadlines.total);
    assert_eq!(of(shelf), (0, Some(secs(3)), Some(secs(50))), "its own before its group's");
    assert_eq!(of(cloud), (2, Some(secs(3)), Some(secs(70))), "its group's");
    assert!(modem.metered && !modem.spare && modem.probe.off);
    assert_eq!(modem.price, Some(Price { input: 150_000, output: 600_000, assumed: false }));
    assert_eq!(modem.budget.money_per_day, Some(2_500_000));
    assert!(probed.metered && probed.spare && !probed.probe.off);
    let assumed = Price { input: 5_000_000, output: 25_000_000, assumed: true };
    assert_eq!((cloud.price, cloud.budget.money_per_day), (Some(assumed), Some(5_000_000)));

    assert_eq!(config.groups.len(), 2);
    let [night, day, big] = &config.routes[..] else { panic!("three routes") };
    assert_eq!(night.model, "*");
    assert_eq!(night.headers, [("x-team".into(), "vision*".into()), ("x-b".into(), "*".into())]);
    assert_eq!(night.keys, ["shop", "batch"]);
    assert_eq!(night.hours, Some(Hours { from: 1320, to: 360 }));
    assert_eq!((night.local_only, night.hedge), (Egress::Lan, Some(false)));
    assert_eq!((day.hours, day.hedge), (Some(Hours { from: 480, to: 0 }), Some(true)));
    assert_eq!((&*big.model, big.hours, big.hedge), ("big*", None, None));

    let plan = config::plan_text(&config, &[]);
    for line in [
        "key       shop: prompts stay on this box and the LAN, priority high, at most 60 requests a minute, at most 100000 tokens a minute, at most 1.00 a day",
        "key       batch: prompts stay on this box, priority low",
        "             weight 100, 1 retry, at most 4 at once, no images",
        "             weight 100, no retry, not probed",
        "             weight 100, 1 retry, metered, not probed, at most 30 requests a minute, at most 5000 tokens a minute",
        "             at most 2.50 a day; price: 0.15 in, 0.60 out per million tokens",
        "             at most 5.00 a day; price assumed: 5.00 in, 25.00 out per million tokens",
        "group     spare: 2 retries, connect 3s, total 70s",
        "group     fallback: no terms of its own",
        "route     *, x-team: vision*, x-b: *, keys shop, batch, 22:00-06:00, prompts stay on this box and the LAN, not hedged",
        "route     *, 08:00-24:00, groups spare, hedged",
        "hedge     at most 2.5% of requests",
        "rollout   a changed file gets 0.5% of requests for 300s first",
    ] {
        assert!(plan.lines().any(|other| other == line), "{line}\nin\n{plan}");
    }
}

#[test]
fn defaults_follow_from_the_rest() {
    let folder = Folder::new("defaults");
    let vars = HashMap::from([("RUNTIME_DIRECTORY".to_owned(), "/run/edgeward:/run/other".to_owned())]);
    let text = r#"
        listen = ["127.0.0.1:0", "[::1]:0"]
        hosts = ["BOX.lan"]
        [[key]]
        name = "a"
        file = "good.key"
        [[target]]
        name = "here"
        kind = "openai"
        url = "unix:/run/llm.sock"
        [[target]]
        name = "there"
        kind = "vllm"
        url = "https://gpu.local:8000/v1"
        [[target]]
        name = "away"
        kind = "openai"
        url = "https://api.example.com"
        forward_key = true
        models = { "z" = "1", "a" = "2", "m*" = "*" }
        group = "paid"
    "#;
    let config = folder.parse(text, &vars).expect("good").config;
    assert_eq!(config.admin_listen.as_deref(), Some(Path::new("/run/edgeward/admin.sock")));
    assert!(!config.allow_anonymous, "a key is configured");
    assert_eq!(config.hosts, ["box.lan"]);
    assert_eq!(config.router.groups, ["primary", "fallback", "paid"]);
    let [here, there, away] = &config.targets[..] else { panic!("three targets") };
    assert_eq!((here.place, &*here.group, here.base_path()), (Place::Local, "primary", "/v1"));
    assert_eq!((there.place, &*there.group, there.base_path()), (Place::Lan, "primary", ""));
    assert_eq!((away.place, &*away.group, away.base_path()), (Place::Cloud, "paid", "/v1"));
    assert!(!there.spare, "the first group's connections are warm by use");
    assert!(away.spare);
    let order: Vec<_> = away.models.entries.iter().map(|(asked, _)| &**asked).collect();
    assert_eq!(order, ["z", "a", "m*"], "the file's order");
    // printf %s sk-never-shown-0123456789abcdef | sha256sum
    let digest = config.keys[0].sha256.map(|byte| format!("{byte:02x}")).concat();
    assert_eq!(digest, "1e051e469688f8bb351bc5c9e42314fdfd47c18205284bce53db8ba035e25b07");
}

#[test]
fn a_file_without_targets_looks_around_as_none_does() {
    let folder = Folder::new("around");
    let vars = HashMap::from([("DEEPSEEK_API_KEY".to_owned(), SECRET.to_owned())]);
    let config = folder.parse("heartbeat = \"20s\"\n", &vars).expect("good").config;
    let names: Vec<_> = config.targets.iter().map(|target| &*target.name).collect();
    assert_eq!(names, ["ollama", "vllm", "llamacpp", "sglang", "lmstudio", "deepseek"]);
    assert!(config.targets[0].discovered && !config.targets[5].discovered);
    assert!(config.targets.iter().all(|target| target.max_retries == 1));
    assert_eq!((config.targets[0].price, config.targets[0].budget), (None, config::Budget::default()));
    assert!(config.targets[5].price.is_some_and(|price| price.assumed));
    assert_eq!(
        config.targets[5].budget.money_per_day,
        Some(5_000_000),
        "a cloud has a cap from the first run"
    );
}

#[test]
fn many_targets_are_one_mistake() {
    let folder = Folder::new("many");
    let one = |n: usize| {
        format!("[[target]]\nname = \"t{n}\"\nkind = \"ollama\"\nurl = \"http://10.0.0.1:{}\"\n", n + 1)
    };
    let text: String = (0..65).map(one).collect();
    let problems = folder.parse(&text, &HashMap::new()).expect_err("too many").0;
    assert_eq!(problems.len(), 1);
    assert!(problems[0].what.contains("65 are configured, 64 are possible"));
    assert_eq!(problems[0].line, Some(64 * 4 + 1));
    let text: String = (0..64).map(one).collect();
    assert!(folder.parse(&text, &HashMap::new()).is_ok());
}

#[test]
fn no_text_makes_it_panic() {
    let folder = Folder::new("any");
    // The second is longer, and its values are read by the same few readers.
    for (file, step) in [("everything", 1), ("policies", 7)] {
        let example = fs::read_to_string(format!("tests/config/valid/{file}.toml")).expect("file");
        no_part_makes_it_panic(&folder, &example, step);
    }
}

fn no_part_makes_it_panic(folder: &Folder, example: &str, step: usize) {
    for (at, _) in example.char_indices().step_by(step) {
        let _ = folder.parse(&example[..at], &HashMap::new());
    }
    for (n, line) in example.lines().enumerate() {
        let without: String =
            example.lines().enumerate().filter(|(m, _)| *m != n).map(|(_, l)| format!("{l}\n")).collect();
        if let Err(problems) = folder.parse(&without, &HashMap::new()) {
            assert!(!problems.to_string().contains("never-shown"), "without {line}");
        }
    }
}

/// The built program with a file, and an environment that has nothing in it.
fn edgeward(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_edgeward")).args(args).env_clear().output().expect("the program starts")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

#[test]
fn the_program_checks_and_tells_by_its_exit_code() {
    let folder = Folder::new("program");
    let good = folder.write(
        "good.toml",
        "[[target]]\nname = \"box\"\nkind = \"ollama\"\nurl = \"http://127.0.0.1:11434\"\n\
         [[target]]\nname = \"cloud\"\nkind = \"openai\"\nurl = \"https://api.openai.com\"\n\
         key = { file = \"good.key\" }\nmodels = { \"*\" = \"gpt-6-luna\" }\n",
        0o644,
    );
    let output = edgeward(&["check", "--config", good.to_str().expect("path")]);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
    for part in [
        "127.0.0.1:8484",
        "1. box: ollama at http://127.0.0.1:11434, local, group primary",
        "2. cloud: openai at https://api.openai.com/v1, cloud, group fallback, with a key",
        "models: * -> gpt-6-luna",
        "waits     a cloud gets what a busy or loading box has not begun within 10s",
    ] {
        assert!(text(&output.stdout).contains(part), "{part}: {}", text(&output.stdout));
    }
    assert!(!text(&output.stdout).contains("missing"));

    let bad = folder.write("bad.toml", "lisen = []\nheartbeat = 20\n[[target]]\nname = \"a b\"\n", 0o644);
    let output = edgeward(&["check", "-c", bad.to_str().expect("path")]);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(78), ""));
    let file = bad.display();
    for part in [
        format!("{file}:1: lisen: is not a key that exists here; hint: did you mean \"listen\"?"),
        format!(
            "{file}:2: heartbeat: must be a duration with its unit, not a number; hint: for example \"20s\""
        ),
        format!("{file}:4: target[1].name: \"a b\" is not a name"),
        format!("{file}:3: target[1].url: is missing"),
        "5 mistakes".to_owned(),
    ] {
        assert!(text(&output.stderr).contains(&part), "{part}: {}", text(&output.stderr));
    }

    let output = edgeward(&["check", "-c", "/nowhere/edgeward.toml"]);
    assert_eq!(output.status.code(), Some(78));
    assert!(text(&output.stderr).starts_with("/nowhere/edgeward.toml: there is no such file"));

    let latin = folder.write("latin.toml", b"hosts = [\"b\xf6x\"]\n", 0o644);
    let output = edgeward(&["check", "-c", latin.to_str().expect("path")]);
    assert_eq!(output.status.code(), Some(78));
    assert!(text(&output.stderr).contains("is not UTF-8 from byte 11 on"));
}

/// An operator's shell has neither the unit's credentials nor its environment.
#[test]
fn a_key_for_the_service_alone_is_a_warning_to_check_and_a_mistake_to_run() {
    let folder = Folder::new("operator");
    let file = "[[key]]\nname = \"one\"\nenv = \"KEY_ONE\"\n[[key]]\nname = \"two\"\ncredential = \"two\"\n\
                [[target]]\nname = \"cloud\"\nkind = \"openai\"\nurl = \"https://api.openai.com\"\n\
                models = { \"*\" = \"m\" }\nkey = { credential = \"openai\" }\n";
    let good = folder.write("operator.toml", file, 0o644);
    let output = edgeward(&["check", "-c", good.to_str().expect("path")]);
    let said = text_of(&output);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""), "{said}");
    for part in
        [":3: key \"one\".env: ", ":6: key \"two\".credential: ", ":12: target \"cloud\".key.credential: "]
    {
        let line = said.lines().find(|line| line.contains(part)).unwrap_or_else(|| panic!("{part}: {said}"));
        assert!(line.contains("that is for the service to read, and was not checked"), "{line}");
    }
    assert!(said.contains("cloud, group fallback, with a key") && !said.contains("has no key"), "{said}");
    let strict = config::load(&good, &|_: &str| None).expect_err("the service needs them");
    assert_eq!(strict.0.len(), 3, "{strict}");

    // What no environment has, and what is there and wrong, is a mistake here too.
    for wrong in
        ["key = { env = \"sk-proj-0123456789abcdef0123\" }", "key = { file = \"empty.pem\" }", "context = 0"]
    {
        let path =
            folder.write("wrong.toml", file.replace("key = { credential = \"openai\" }", wrong), 0o644);
        let output = edgeward(&["check", "-c", path.to_str().expect("path")]);
        assert_eq!(output.status.code(), Some(78), "{wrong}: {}", text_of(&output));
    }
}

fn text_of(output: &Output) -> String {
    format!("{}{}", text(&output.stdout), text(&output.stderr))
}

#[test]
fn the_program_knows_its_commands() {
    for (args, code, part) in [
        (&["--version"][..], 0, env!("CARGO_PKG_VERSION")),
        (&["--help"], 0, "usage: edgeward COMMAND"),
        (&["help"], 0, "usage: edgeward COMMAND"),
        (&["help", "drill"], 0, "example: edgeward drill --target box --requests 3"),
        (&["status", "--help"], 0, "example: edgeward status"),
        (&["help", "drlil"], 2, "did you mean drill?"),
        (&["check", "--help"], 0, "edgeward check"),
        (&[], 2, "edgeward check"),
        (&["chekc"], 2, "did you mean check?"),
        (&["check", "--confg"], 2, "did you mean --config?"),
        (&["ledger"], 1, "not in this build yet"),
        (&["record"], 2, "record needs a file"),
        (&["replay", "no-such-trace"], 1, "cannot read no-such-trace"),
        (&["replay", "Cargo.toml"], 1, "is no trace of this version"),
    ] {
        let output = edgeward(args);
        assert_eq!(output.status.code(), Some(code), "{args:?}");
        let said = if code == 0 { &output.stdout } else { &output.stderr };
        assert!(text(said).contains(part), "{args:?}: {}", text(said));
    }
}
