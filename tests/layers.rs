//! The rooms of `src/`: who may use whom, which of them stay pure, and what no file may do.

use std::path::Path;
use std::{fs, io};

/// A room (a folder or a file of `src/`) and the rooms that it may use; its own is always allowed.
/// `main.rs` and `lib.rs` only name the others.
const MAY_USE: &[(&str, &[&str])] = &[
    ("limits", &[]),
    ("time", &["limits"]),
    ("task", &[]),
    ("cause", &["limits"]),
    ("wire", &["limits"]),
    ("config", &["limits"]),
    ("dialect", &["cause", "limits", "wire"]),
    // Of `config` its plain types: what commits, what an empty stop is.
    ("gate", &["cause", "config", "dialect", "limits", "wire"]),
    // Of `config` its plain types: by what health is judged.
    ("health", &["cause", "config", "limits"]),
    // Of `config` the targets and routes, of `dialect` what a request asks for, of `cause` what a retry may mend, of
    // `memory` what admission says.
    ("route", &["cause", "config", "dialect", "health", "limits", "memory"]),
    // Of `config` its plain types: by what memory is judged, the boards; of `health` the pressure that it decides; of
    // `wire` the JSON in which model servers say what they have.
    ("memory", &["config", "health", "limits", "wire"]),
    ("observe", &["cause", "dialect", "limits", "time"]),
    ("systemd", &["limits", "task", "time"]),
    ("sim", &["cause", "dialect", "limits", "wire"]),
    // Of `config` what is watched.
    ("watch", &["config", "health", "limits", "memory", "observe", "time"]),
    (
        "proxy",
        // Of `watch` the sampler, whose samples become the store's pressure.
        &[
            "cause", "config", "dialect", "gate", "health", "limits", "memory", "observe", "route", "task",
            "time", "watch", "wire",
        ],
    ),
    (
        "cli",
        &[
            "cause", "config", "dialect", "gate", "health", "limits", "memory", "observe", "proxy", "route",
            "sim", "systemd", "task", "time", "watch", "wire",
        ],
    ),
    ("main", &["cli"]),
    // A program of its own, which has nothing of the gateway's.
    ("bin", &[]),
    ("lib", &[]),
];

/// Rooms and files that take bytes, events and a time, and decide: no runtime, no socket, no file, no clock.
const PURE: &[&str] = &[
    "wire/",
    "dialect/",
    "gate/",
    "route/",
    "health/",
    "memory/",
    "config/rollout.rs",
    "observe/history.rs",
    "proxy/exchange.rs",
    "proxy/exchange/",
    "proxy/media/cache.rs",
    "proxy/relay.rs",
    "proxy/resume.rs",
    "time/zone.rs",
    "time/zone/",
    "proxy/turns.rs",
    "cause.rs",
    "limits.rs",
    "limits/",
];

/// What a pure file may not say.
const IMPURE: &[&str] = &[
    "tokio",
    "hyper",
    "std::net",
    "std::fs",
    "std::env",
    "std::process",
    "std::thread",
    "crate::time",
    "Instant::now",
    "SystemTime::now",
    "async fn",
    ".await",
];

/// Who may read the wall clock, and what for. Deadlines come from the monotonic one.
const WALL: &[(&str, &str)] = &[
    ("time.rs", "reads it"),
    ("observe/sink.rs", "a line's time"),
    ("observe/line.rs", "shows a line's time"),
    ("observe/events.rs", "shows the clock that was wrong, or set"),
    ("proxy/head.rs", "Retry-After as a date becomes a duration"),
    ("proxy/upstream/tls.rs", "certificates' validity"),
    ("proxy/gateway.rs", "sees that it was set"),
    ("proxy/operator.rs", "says that it is wrong, and since when a file is refused"),
    ("cli/footing.rs", "says that it is wrong"),
    ("cli/support/mod.rs", "the bundle's date"),
];

/// How the wall clock is read, or what its time is.
const WALL_WORDS: &[&str] = &["SystemTime", "wall()", "UNIX_EPOCH", "CLOCK_REALTIME", "ClockId::Realtime"];

/// A file longer than this is looked at: it may hold two things. One thing is not cut for its length, as 450 lines once had
/// some cut.
const LINES_MAX: usize = 650;

/// Longer files, and why.
const LONGER: &[(&str, &str)] =
    &[("proxy/exchange.rs", "one machine: its states, its events and what they do")];

/// A source file, as these rules read it.
struct Source {
    /// Under `src/`.
    path: String,
    /// Lines as they stand.
    lines: Vec<String>,
    /// The same without comments, texts and `cfg(test)` parts: blank where those were.
    code: Vec<String>,
}

impl Source {
    fn room(&self) -> &str {
        let first = self.path.split('/').next().unwrap_or_default();
        first.strip_suffix(".rs").unwrap_or(first)
    }

    /// Only built for tests.
    fn is_test(&self) -> bool {
        self.path.split('/').any(|part| {
            let name = part.strip_suffix(".rs").unwrap_or(part);
            name == "tests" || name.ends_with("_tests")
        })
    }

    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        self.code.iter().enumerate().map(|(at, line)| (at + 1, line.as_str()))
    }
}

/// Comments and the insides of texts become spaces, so that only code is left. Line ends stay.
fn code_only(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let blank = |part: &str| part.chars().map(|c| if c == '\n' { '\n' } else { ' ' }).collect::<String>();
    while let Some(first) = rest.chars().next() {
        let before = out.chars().next_back().unwrap_or(' ');
        let raw = (!before.is_alphanumeric() && before != '_').then(|| raw_text(rest)).flatten();
        let len = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |at| at + 2)
        } else if let Some(len) = raw {
            len
        } else if first == '"' {
            quoted(rest)
        } else if first == '\'' {
            character(rest).unwrap_or(0)
        } else {
            0
        };
        if len == 0 {
            out.push(first);
            rest = &rest[first.len_utf8()..];
        } else {
            out.push_str(&blank(&rest[..len]));
            rest = &rest[len..];
        }
    }
    out
}

/// The length of a text that begins here.
fn quoted(rest: &str) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// The same for `r"…"`, `r#"…"#`, `br"…"`.
fn raw_text(rest: &str) -> Option<usize> {
    let after = rest.strip_prefix("br").or_else(|| rest.strip_prefix('r'))?;
    let hashes = after.len() - after.trim_start_matches('#').len();
    after.get(hashes..)?.strip_prefix('"')?;
    let close = format!("\"{}", "#".repeat(hashes));
    let begin = rest.len() - after.len() + hashes + 1;
    Some(rest[begin..].find(&close).map_or(rest.len(), |at| begin + at + close.len()))
}

/// The same for a character; `None` for a lifetime.
fn character(rest: &str) -> Option<usize> {
    let mut chars = rest.char_indices().skip(1);
    let (_, first) = chars.next()?;
    if first == '\\' {
        let (at, _) = chars.next()?;
        return rest[at + 1..].find('\'').map(|close| at + 1 + close + 1);
    }
    let (at, close) = chars.next()?;
    (close == '\'').then_some(at + 1)
}

/// Blanks each item under `#[cfg(test)]`, from its attribute to its closing brace or semicolon.
fn without_tests(code: &str) -> String {
    let mut out = code.to_owned();
    while let Some(start) = out.find("#[cfg(test)]") {
        let mut depth = 0_usize;
        let end = out[start + 12..].char_indices().find_map(|(at, c)| {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            let closed = depth == 0 && (c == '}' || c == ';');
            closed.then_some(start + 12 + at + 1)
        });
        let end = end.unwrap_or(out.len());
        let blank: String = out[start..end].chars().map(|c| if c == '\n' { '\n' } else { ' ' }).collect();
        out.replace_range(start..end, &blank);
    }
    out
}

fn source(path: String, text: &str) -> Source {
    let lines = |text: &str| text.lines().map(str::to_owned).collect();
    Source { path, lines: lines(text), code: lines(&without_tests(&code_only(text))) }
}

/// Every file of `src/`.
fn sources() -> io::Result<Vec<Source>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut folders = vec![root.clone()];
    let mut sources = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(&root).unwrap_or(&path).to_string_lossy().into_owned();
                sources.push(source(name, &fs::read_to_string(&path)?));
            }
        }
    }
    sources.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(sources.len() > 60, "src/ was read");
    Ok(sources)
}

/// The rooms that a line of code names: `crate::room`, `edgeward::room`, `crate::{room, …}`.
fn named(line: &str) -> Vec<String> {
    let word = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let mut rooms = Vec::new();
    for prefix in ["crate::", "edgeward::"] {
        for (at, _) in line.match_indices(prefix) {
            let rest = &line[at + prefix.len()..];
            match rest.strip_prefix('{') {
                Some(list) => rooms.extend(list.split(',').map(|part| word(part.trim()))),
                None => rooms.push(word(rest)),
            }
        }
    }
    rooms.retain(|room| !room.is_empty());
    rooms
}

/// What a source does against the rules, each as a sentence that names the line.
fn faults(source: &Source) -> Vec<String> {
    let mut faults = Vec::new();
    let path = &source.path;
    let mut say = |line: usize, what: String| faults.push(format!("src/{path}:{line} {what}"));
    if !source.lines.first().is_some_and(|line| line.starts_with("//! ") && line.len() > 4) {
        say(1, "does not open with a `//!` line that says what is in it.".to_owned());
    }
    for (at, line) in source.lines.iter().enumerate() {
        for word in [concat!("#[", "ignore"), concat!("todo", "!("), concat!("unimplemented", "!(")] {
            if line.contains(word) {
                say(at + 1, format!("says `{word}`: what is not done is left out, what is tested is run."));
            }
        }
    }
    if source.is_test() {
        return faults;
    }
    let Some((_, allowed)) = MAY_USE.iter().find(|(room, _)| *room == source.room()) else {
        say(1, format!("is in `{}`, a room that the table in tests/layers.rs does not know.", source.room()));
        return faults;
    };
    let pure = PURE.iter().any(|part| path.starts_with(part));
    for (at, line) in source.code() {
        for room in named(line) {
            if room != source.room() && !allowed.contains(&room.as_str()) {
                say(at, format!("uses `{room}`: `{}` may use {allowed:?} only.", source.room()));
            }
        }
        for word in IMPURE.iter().filter(|word| pure && line.contains(**word)) {
            say(at, format!("says `{word}`: a pure room is given bytes, events and a time."));
        }
        for word in WALL_WORDS.iter().filter(|word| line.contains(**word)) {
            if !WALL.iter().any(|(reader, _)| reader == path) {
                say(
                    at,
                    format!(
                        "says `{word}`: deadlines never come from the wall clock; who reads it stands in WALL."
                    ),
                );
            }
        }
        for word in [".unwrap()", ".expect("] {
            if line.contains(word) {
                say(at, format!("says `{word}`: outside tests an error is handled where it is made."));
            }
        }
    }
    let code = source.code.iter().rposition(|line| !line.trim().is_empty()).map_or(0, |at| at + 1);
    if code > LINES_MAX && !LONGER.iter().any(|(longer, _)| longer == path) {
        say(
            code,
            format!("is line {code} without its tests: a file over {LINES_MAX} lines may hold two things."),
        );
    }
    faults
}

#[test]
fn every_file_keeps_to_its_room() {
    let faults: Vec<String> = sources().unwrap().iter().flat_map(faults).collect();
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

#[test]
fn the_tables_name_what_is_there() {
    let sources = sources().unwrap();
    for (room, uses) in MAY_USE {
        assert!(sources.iter().any(|source| source.room() == *room), "no room `{room}` in src/");
        for used in *uses {
            assert!(
                MAY_USE.iter().any(|(room, _)| room == used),
                "`{room}` may use `{used}`, which is no room"
            );
        }
    }
    for part in PURE {
        assert!(sources.iter().any(|source| source.path.starts_with(part)), "no `{part}` in src/");
    }
    for (path, reason) in WALL {
        let source =
            sources.iter().find(|source| source.path == *path).unwrap_or_else(|| panic!("no `{path}`"));
        let reads = source.code().any(|(_, line)| WALL_WORDS.iter().any(|word| line.contains(word)));
        assert!(reads && !reason.is_empty(), "{path} does not read the wall clock: no exception");
    }
    for (path, reason) in LONGER {
        let source =
            sources.iter().find(|source| source.path == *path).unwrap_or_else(|| panic!("no `{path}`"));
        let code = source.code.iter().filter(|line| !line.trim().is_empty()).count();
        let lines = source.lines.len();
        assert!(
            lines > LINES_MAX && !reason.is_empty(),
            "{path} has {lines} lines ({code} of code): no exception"
        );
    }
}

/// No circle: whoever a room may use cannot use it back.
#[test]
fn rooms_stand_on_each_other() {
    let mut standing: Vec<&str> = Vec::new();
    while standing.len() < MAY_USE.len() {
        let next = MAY_USE
            .iter()
            .find(|(room, uses)| !standing.contains(room) && uses.iter().all(|used| standing.contains(used)));
        let Some((room, _)) = next else { panic!("a circle among those not in {standing:?}") };
        standing.push(room);
    }
}

#[test]
fn a_breach_is_told_with_its_line() {
    let told = |path: &str, text: &str| faults(&source(path.to_owned(), text)).join("\n");
    for (path, text, want) in [
        ("gate/x.rs", "//! x\nuse crate::proxy::drive;\n", "src/gate/x.rs:2 uses `proxy`"),
        ("wire/x.rs", "//! x\nuse crate::{limits, dialect};\n", "src/wire/x.rs:2 uses `dialect`"),
        ("dialect/x.rs", "//! x\n\nuse tokio::time;\n", "src/dialect/x.rs:3 says `tokio`"),
        ("health/x.rs", "//! x\nfn f() { Instant::now(); }\n", "src/health/x.rs:2 says `Instant::now`"),
        ("route/x.rs", "//! x\nasync fn f() {}\n", "says `async fn`"),
        ("proxy/x.rs", "//! x\nuse std::time::SystemTime;\n", "src/proxy/x.rs:2 says `SystemTime`"),
        ("proxy/exchange.rs", "//! x\nuse std::net::TcpStream;\n", "says `std::net`"),
        ("cli/x.rs", "//! x\nfn f() { g().unwrap() }\n", "src/cli/x.rs:2 says `.unwrap()`"),
        ("cli/x.rs", "fn f() {}\n", "src/cli/x.rs:1 does not open"),
        ("attic/x.rs", "//! x\n", "`attic`, a room"),
        ("cli/x.rs", &format!("//! x\n{}", "fn f() {}\n".repeat(LINES_MAX)), "src/cli/x.rs:651 is line 651"),
        ("cli/tests.rs", concat!("//! x\n#[", "ignore]\n"), "src/cli/tests.rs:2 says"),
    ] {
        assert!(told(path, text).contains(want), "{want}: {}", told(path, text));
    }
    for (path, text) in [
        ("proxy/x.rs", "//! x\nuse tokio::time;\nuse crate::gate;\n"),
        (
            "gate/x.rs",
            "//! x\n// tokio\nconst A: &str = \"tokio .unwrap()\"; /* std::net */ fn f<'a>(c: char) { c == '\"'; }\n",
        ),
        ("gate/x.rs", "//! x\nconst A: &[u8] = br#\"\"tokio\"\"#;\n"),
        (
            "gate/x.rs",
            "//! x\n#[cfg(test)]\nmod tests {\n    fn f() { a().unwrap(); crate::time::now(); }\n}\n",
        ),
        ("gate/tests.rs", "//! x\nuse crate::sim;\nfn f() { a().unwrap(); }\n"),
    ] {
        assert_eq!(told(path, text), "", "{text}");
    }
    let after = "//! x\n#[cfg(test)]\nmod tests;\nfn f() { a().unwrap(); }\n";
    assert!(told("gate/x.rs", after).contains("src/gate/x.rs:4"), "only the test's item is left out");
}
