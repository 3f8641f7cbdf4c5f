//! The command line: what was asked for, and nothing of how it is done.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use lexopt::{Arg, Parser};

use crate::config::parse_share;
use crate::config::value::{nearest, parse_duration};
use crate::proxy::drills::Wanted;
use crate::proxy::since::Since;

mod ask;
mod boards;
mod changes;
mod check;
#[cfg(feature = "sim")]
mod demo;
mod drill;
mod fixed;
mod footing;
mod help;
mod listeners;
mod reload;
mod run;
mod serving;
mod status;
mod support;
mod trace;

pub use boards::boards;
pub use check::check;
#[cfg(feature = "sim")]
pub use demo::demo;
pub use drill::drill;
pub use help::help;
pub use run::run;
pub use status::status;
pub use support::support;
pub use trace::{record, replay};

/// It worked.
pub const EXIT_GOOD: u8 = 0;
/// It failed.
pub const EXIT_FAILED: u8 = 1;
/// The command line was wrong.
pub const EXIT_USAGE: u8 = 2;
/// The configuration was wrong: `EX_CONFIG` of sysexits.h.
pub const EXIT_CONFIG: u8 = 78;

/// What the command line asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// `run`: serve.
    Run {
        /// `--config`.
        config: Option<PathBuf>,
    },
    /// `check`: print every mistake of the configuration, or the plan.
    Check {
        /// `--config`.
        config: Option<PathBuf>,
    },
    /// `status`: show a running one's targets.
    Status {
        /// `--config`: tells where the running one's socket is.
        config: Option<PathBuf>,
        /// `--since`: what became of requests since then.
        since: Option<String>,
    },
    /// `drill`: fail a target on purpose for a few requests, and say what clients saw.
    Drill {
        /// `--config`: tells where the running one's socket is.
        config: Option<PathBuf>,
        /// The other options.
        wanted: Wanted,
    },
    /// `support`: write everything that a bug report needs into one file.
    Support {
        /// `--config`: what is described, and where the running one's socket is.
        config: Option<PathBuf>,
        /// `--output`: the file; `-` is standard output.
        output: Option<PathBuf>,
    },
    /// `demo`: simulated servers, the gateway before them, and what happens. Only with feature `sim`.
    Demo,
    /// `boards`: which board this is, and what tells of its memory.
    Boards {
        /// `--config`: what it says of the board and of memory.
        config: Option<PathBuf>,
    },
    /// `record`: write samples of memory, and what is decided on them, into a file.
    Record {
        /// `--config`.
        config: Option<PathBuf>,
        /// `--for`; without it until a signal.
        time: Option<Duration>,
        /// `--every`: between two samples; without it as the watchdog looks.
        every: Option<Duration>,
        /// The new file.
        file: PathBuf,
    },
    /// `replay`: judge a record again.
    Replay {
        /// `--looks`: only the samples at which the watchdog would have looked.
        looks: bool,
        /// The record.
        file: PathBuf,
    },
    /// A command that has its place and its name, and is not in this build: `ledger`.
    Later(&'static str),
    /// `--help`, or `--help` behind a command.
    Help(Option<&'static str>),
    /// `--version`.
    Version,
}

/// A command line that asks for nothing that exists. Exit with [`EXIT_USAGE`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage(String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "edgeward: {}", self.0)
    }
}

impl std::error::Error for Usage {}

/// A command, as `--help` tells it.
struct About {
    name: &'static str,
    /// What it takes, and what each is for.
    options: &'static [(&'static str, &'static str)],
    /// The same, as people write it.
    usage: &'static str,
    does: &'static str,
    example: &'static str,
}

impl About {
    fn takes(&self, option: &str) -> bool {
        self.options.iter().any(|(name, _)| *name == option)
    }
}

const CONFIG: (&str, &str) = ("--config", "the configuration");
/// Of those that ask a running one.
const ASKS: (&str, &str) = ("--config", "the running one's configuration: where it listens");

/// Each command.
const COMMANDS: [About; 10] = [
    About {
        name: "run",
        options: &[CONFIG],
        usage: " [--config FILE]",
        does: "serve, until SIGTERM",
        example: "edgeward run --config edgeward.toml",
    },
    About {
        name: "check",
        options: &[CONFIG],
        usage: " [--config FILE]",
        does: "show every mistake in the configuration, or what it does",
        example: "edgeward check --config edgeward.toml",
    },
    About {
        name: "status",
        options: &[
            ASKS,
            (
                "--since",
                "what became of requests since then: a time of day, how long ago, or a date and time",
            ),
        ],
        usage: " [--since TIME] [--config FILE]",
        does: "show a running edgeward's targets, and what became of requests since 22:00, or for 8h",
        example: "edgeward status --since 22:00",
    },
    About {
        name: "drill",
        options: &[
            ("--target", "which target fails; without it the local one that is asked first"),
            ("--requests", "how many requests fail there; without it the next one"),
            ("--share", "or such a share of the requests"),
            ("--for", "and for how long, ten minutes at most"),
            ("--yes", "also where clients would see errors"),
            ASKS,
        ],
        usage: " [--target NAME] [--requests N | --share P% --for TIME] [--yes] [--config FILE]",
        does: "fail a target on purpose for a few requests, and say what clients saw",
        example: "edgeward drill --target box --requests 3",
    },
    About {
        name: "support",
        options: &[
            ("--output", "the new file, or - for the terminal; without it one named by the date"),
            ASKS,
        ],
        usage: " [--output FILE] [--config FILE]",
        does: "write what a bug report needs into one file, without keys and prompts",
        example: "edgeward support --output report.txt",
    },
    About {
        name: "ledger",
        options: &[],
        usage: "",
        does: "what was asked, answered and paid (not in this build yet)",
        example: "edgeward ledger",
    },
    About {
        name: "boards",
        options: &[CONFIG],
        usage: " [--config FILE]",
        does: "show which board this is, what tells of its memory, and what is missing",
        example: "edgeward boards",
    },
    About {
        name: "record",
        options: &[
            ("--for", "how long; without it until Ctrl-C"),
            ("--every", "look so often oneself; without it what a running one sees is recorded"),
            ASKS,
        ],
        usage: " [--for TIME] [--every TIME] [--config FILE] FILE",
        does: "write each sample of memory, and what is decided on it, into a new file",
        example: "edgeward record --for 5m memory.trace",
    },
    About {
        name: "replay",
        options: &[("--looks", "only the samples at which the watchdog would have looked")],
        usage: " [--looks] FILE",
        does: "judge a record again, or what of it the watchdog would have looked at, and show its alarms",
        example: "edgeward replay memory.trace",
    },
    About {
        name: "demo",
        options: &[],
        usage: "",
        does: "two simulated servers, and the gateway before them",
        example: "edgeward demo",
    },
];

/// Each option, and what it needs behind it: in a word, a colon and an example.
const OPTIONS: [(&str, Option<&str>); 12] = [
    ("--config", Some("a file: --config /etc/edgeward/edgeward.toml")),
    ("--target", Some("a target's name: --target box")),
    ("--requests", Some("a number: --requests 3")),
    ("--share", Some("a percentage: --share 10%")),
    ("--for", Some("a time: --for 60s")),
    ("--every", Some("a time: --every 20ms")),
    ("--looks", None),
    ("--output", Some("a file: --output report.txt")),
    ("--since", Some("a time: --since 22:00")),
    ("--yes", None),
    ("--help", None),
    ("--version", None),
];

/// The options that stand there, each with what is behind it.
#[derive(Default)]
struct Given(Vec<(&'static str, OsString)>);

impl Given {
    fn put(&mut self, name: &'static str, value: OsString) -> Result<(), Usage> {
        if self.has(name) {
            return Err(Usage(format!("{name} stands twice; name one")));
        }
        self.0.push((name, value));
        Ok(())
    }

    fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(given, _)| *given == name)
    }

    fn take(&mut self, name: &str) -> Option<OsString> {
        let at = self.0.iter().position(|(given, _)| *given == name)?;
        Some(self.0.swap_remove(at).1)
    }

    fn path(&mut self, name: &str) -> Option<PathBuf> {
        self.take(name).map(PathBuf::from)
    }

    /// Read by `read`, or a mistake that says what is wanted.
    fn read<T>(&mut self, name: &str, read: impl Fn(&str) -> Option<T>) -> Result<Option<T>, Usage> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let value = value.to_string_lossy();
        match read(&value) {
            Some(value) => Ok(Some(value)),
            None => Err(needs(name, &format!(", not {value:?}"))),
        }
    }
}

fn needs(option: &str, but: &str) -> Usage {
    let what = OPTIONS.iter().find(|(name, _)| *name == option).and_then(|(_, needs)| *needs);
    Usage(format!("{option} needs {}{but}", what.unwrap_or("nothing")))
}

/// Reads the arguments that follow the program's name.
///
/// # Errors
/// What is wrong with them, with a hint.
pub fn parse<I>(args: I) -> Result<Command, Usage>
where
    I: IntoIterator,
    I::Item: Into<OsString>,
{
    let mut args = Parser::from_args(args);
    let (mut command, mut given, mut file) = (None, Given::default(), None);
    loop {
        // The argument borrows the parser; what is needed of it is taken out before the parser goes on.
        let option = match args.next().map_err(|error| Usage(error.to_string()))? {
            None => break,
            Some(Arg::Value(word)) if matches!(command, Some("record" | "replay")) && file.is_none() => {
                file = Some(PathBuf::from(word));
                continue;
            }
            Some(Arg::Value(word)) if word == HELP && command.is_none() => "--help".to_owned(),
            Some(Arg::Value(word)) => {
                command = Some(one_command(&word.to_string_lossy(), command)?);
                continue;
            }
            Some(Arg::Short('c')) => "--config".to_owned(),
            Some(Arg::Short('h')) => "--help".to_owned(),
            Some(Arg::Short('V')) => "--version".to_owned(),
            Some(Arg::Short(short)) => format!("-{short}"),
            Some(Arg::Long(long)) => format!("--{long}"),
        };
        let Some((name, takes)) = OPTIONS.iter().find(|(name, _)| *name == option) else {
            return Err(unknown("option", &option, OPTIONS.iter().map(|(name, _)| *name)));
        };
        let value = match takes {
            None => OsString::new(),
            Some(_) => args.value().map_err(|_| needs(name, ""))?,
        };
        if takes.is_some() && value.is_empty() {
            return Err(needs(name, ", not an empty word"));
        }
        // Asking twice for help is no mistake.
        if !matches!(*name, "--help" | "--version") || !given.has(name) {
            given.put(name, value)?;
        }
    }
    if given.has("--help") {
        return Ok(Command::Help(command));
    }
    if given.has("--version") {
        return Ok(Command::Version);
    }
    let Some(command) = command else {
        return Err(Usage(
            "what shall it do? edgeward run serves, edgeward check shows what it would do".to_owned(),
        ));
    };
    if let Some(about) = COMMANDS.iter().find(|about| about.name == command)
        && let Some((option, _)) = given.0.iter().find(|(option, _)| !about.takes(option))
    {
        return Err(Usage(format!("{command} takes no {option}: edgeward {command}{}", about.usage)));
    }
    let config = given.path("--config");
    match command {
        "run" => Ok(Command::Run { config }),
        "check" => Ok(Command::Check { config }),
        "status" => {
            let read = |text: &str| Since::read(text).map(|_| text.to_owned());
            Ok(Command::Status { config, since: given.read("--since", read)? })
        }
        "drill" => wanted(given).map(|wanted| Command::Drill { config, wanted }),
        "support" => Ok(Command::Support { config, output: given.path("--output") }),
        "boards" => Ok(Command::Boards { config }),
        "record" => {
            let time = given.read("--for", parse_duration)?;
            let every = given.read("--every", parse_duration)?;
            Ok(Command::Record { config, time, every, file: named(command, file)? })
        }
        "replay" => Ok(Command::Replay { looks: given.has("--looks"), file: named(command, file)? }),
        "demo" if cfg!(feature = "sim") => Ok(Command::Demo),
        "demo" => {
            Err(Usage("this build has no demo; cargo build --features sim makes one that has".to_owned()))
        }
        later => Ok(Command::Later(later)),
    }
}

fn named(command: &str, file: Option<PathBuf>) -> Result<PathBuf, Usage> {
    file.ok_or_else(|| Usage(format!("{command} needs a file: edgeward {command} memory.trace")))
}

/// What a drill is asked to be.
fn wanted(mut given: Given) -> Result<Wanted, Usage> {
    let wanted = Wanted {
        target: given.read("--target", |name| Some(name.to_owned()))?,
        requests: given.read("--requests", |number| number.parse().ok())?,
        share_permille: given.read("--share", |share| parse_share(share).map(|share| share.0))?,
        for_ms: given.read("--for", |time| u64::try_from(parse_duration(time)?.as_millis()).ok())?,
        yes: given.has("--yes"),
    };
    match (wanted.requests, wanted.share_permille, wanted.for_ms) {
        (Some(_), None, None) | (None, None, None) | (None, Some(_), Some(_)) => Ok(wanted),
        (Some(_), ..) => {
            Err(Usage("--requests says how many fail; it goes without --share and --for".to_owned()))
        }
        (None, ..) => Err(Usage("--share and --for go together: --share 10% --for 60s".to_owned())),
    }
}

/// A command that tells of the others; `--help` in a word.
const HELP: &str = "help";

fn one_command(word: &str, earlier: Option<&'static str>) -> Result<&'static str, Usage> {
    let names = || COMMANDS.iter().map(|about| about.name);
    let Some(name) = names().find(|name| *name == word) else {
        return Err(match earlier {
            Some(earlier) => Usage(format!("{earlier} takes nothing behind it, but {word:?} is there")),
            None => unknown("command", word, names().chain([HELP])),
        });
    };
    match earlier {
        Some(earlier) => Err(Usage(format!("{earlier} and {name}: one command at a time"))),
        None => Ok(name),
    }
}

fn unknown<'n>(what: &str, word: &str, names: impl Iterator<Item = &'n str> + Clone) -> Usage {
    let hint = match nearest(word, names.clone()) {
        Some(near) => format!("did you mean {near}?"),
        None => format!("there are {}", names.collect::<Vec<_>>().join(", ")),
    };
    Usage(format!("there is no {what} {word:?}; {hint}"))
}

/// The text of `--version`. Ends with a newline.
#[must_use]
pub fn version() -> String {
    format!("edgeward {}\n", env!("CARGO_PKG_VERSION"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Command, Usage> {
        parse(line.split_whitespace())
    }

    #[test]
    fn commands() {
        let config = Some(PathBuf::from("f"));
        for (line, wanted) in [
            ("run", Command::Run { config: None }),
            ("run --config f", Command::Run { config: config.clone() }),
            ("run --config=f", Command::Run { config: config.clone() }),
            ("-c f check", Command::Check { config: config.clone() }),
            ("status -cf", Command::Status { config: config.clone(), since: None }),
            ("status --since 22:00", Command::Status { config: None, since: Some("22:00".to_owned()) }),
            ("drill", Command::Drill { config: None, wanted: Wanted::default() }),
            (
                "drill --target box --requests 3 --yes -c f",
                Command::Drill {
                    config: config.clone(),
                    wanted: Wanted {
                        target: Some("box".to_owned()),
                        requests: Some(3),
                        yes: true,
                        ..Wanted::default()
                    },
                },
            ),
            (
                "drill --share 2.5% --for 2m",
                Command::Drill {
                    config: None,
                    wanted: Wanted { share_permille: Some(25), for_ms: Some(120_000), ..Wanted::default() },
                },
            ),
            ("support", Command::Support { config: None, output: None }),
            ("support --output f -c f", Command::Support { config: config.clone(), output: config.clone() }),
            ("ledger", Command::Later("ledger")),
            ("boards -c f", Command::Boards { config: config.clone() }),
            ("record f", Command::Record { config: None, time: None, every: None, file: "f".into() }),
            (
                "record --for 5m --every 20ms run",
                Command::Record {
                    config: None,
                    time: Some(Duration::from_secs(300)),
                    every: Some(Duration::from_millis(20)),
                    file: "run".into(),
                },
            ),
            ("replay f", Command::Replay { looks: false, file: "f".into() }),
            ("replay --looks f", Command::Replay { looks: true, file: "f".into() }),
            ("--help", Command::Help(None)),
            ("-h", Command::Help(None)),
            ("check --help", Command::Help(Some("check"))),
            ("--help demo", Command::Help(Some("demo"))),
            ("help", Command::Help(None)),
            ("help help", Command::Help(None)),
            ("help drill", Command::Help(Some("drill"))),
            ("record --help", Command::Help(Some("record"))),
            ("--version", Command::Version),
            ("run -V", Command::Version),
        ] {
            assert_eq!(parsed(line), Ok(wanted), "{line}");
        }
        assert_eq!(parsed("demo").is_ok(), cfg!(feature = "sim"));
    }

    #[test]
    fn mistakes_say_what_to_write() {
        for (line, wanted) in [
            ("", "what shall it do?"),
            ("chekc", "did you mean check?"),
            ("banana", "there are run, check"),
            ("run --confg f", "did you mean --config?"),
            ("run -x", "there is no option \"-x\""),
            ("run --config", "needs a file"),
            ("run --config=", "needs a file"),
            ("run -c a -c b", "twice"),
            ("run check", "one command at a time"),
            ("run fast", "takes nothing behind it"),
            ("demo --config f", "takes no --config"),
            ("run --yes", "run takes no --yes: edgeward run [--config FILE]"),
            ("help chekc", "did you mean check?"),
            ("hlep", "did you mean help?"),
            ("drill help", "drill takes nothing behind it, but \"help\" is there"),
            ("drill --target box --reqests 3", "did you mean --requests?"),
            ("drill --requests many", "--requests needs a number: --requests 3, not \"many\""),
            ("drill --requests 1 --share 10% --for 1s", "goes without"),
            ("drill --share 10%", "go together"),
            ("drill --for 10s", "go together"),
            ("drill --share 10", "a percentage"),
            ("drill --share 10% --for 10", "a time"),
            ("support --output=", "needs a file"),
            ("record", "record needs a file: edgeward record memory.trace"),
            ("replay a b", "takes nothing behind it"),
            ("boards --for 5s", "boards takes no --for"),
            ("status --since noon", "--since needs a time: --since 22:00"),
            ("check --help=yes", "help"),
        ] {
            let usage = parsed(line).expect_err(line).to_string();
            assert!(usage.contains(wanted), "{line}: {usage}");
        }
    }
}
