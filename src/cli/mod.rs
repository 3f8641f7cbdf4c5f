//! The command line: what was asked for, and nothing of how it is done.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

use lexopt::{Arg, Parser, ValueExt};

use crate::config::value::nearest;

mod changes;
mod check;
#[cfg(feature = "sim")]
mod demo;
mod footing;
mod listeners;
mod reload;
mod run;
mod serving;
mod status;

pub use check::check;
#[cfg(feature = "sim")]
pub use demo::demo;
pub use run::run;
pub use status::status;

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
    },
    /// `demo`: simulated servers, the gateway before them, and what happens. Only with feature `sim`.
    Demo,
    /// A command that has its place and its name, and is not in this build: `ledger`, `boards`, `record`, `replay`.
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

/// Each command: its name, whether it takes `--config`, what it does.
const COMMANDS: [(&str, bool, &str); 8] = [
    ("run", true, "serve, until SIGTERM"),
    ("check", true, "show every mistake in the configuration, or what it does"),
    ("status", true, "show a running edgeward's targets"),
    ("ledger", false, "what was asked, answered and paid (not in this build yet)"),
    ("boards", false, "the boards that are known (not in this build yet)"),
    ("record", false, "record memory samples (not in this build yet)"),
    ("replay", false, "replay a record (not in this build yet)"),
    ("demo", false, "two simulated servers, and the gateway before them"),
];

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
    let (mut command, mut config, mut help, mut version) = (None, None, false, false);
    loop {
        // The argument borrows the parser; what is needed of it is taken out before the parser goes on.
        let option = match args.next().map_err(|error| Usage(error.to_string()))? {
            None => break,
            Some(Arg::Value(word)) => {
                command = Some(one_command(&word.to_string_lossy(), command)?);
                continue;
            }
            Some(Arg::Short(short)) => format!("-{short}"),
            Some(Arg::Long(long)) => format!("--{long}"),
        };
        match option.as_str() {
            "-h" | "--help" => help = true,
            "-V" | "--version" => version = true,
            "-c" | "--config" => {
                let path: PathBuf = args.value().and_then(|path| path.parse()).map_err(|_| {
                    Usage("--config needs a file: --config /etc/edgeward/edgeward.toml".to_owned())
                })?;
                if path.as_os_str().is_empty() {
                    return Err(Usage("--config needs a file, not an empty word".to_owned()));
                }
                if config.replace(path).is_some() {
                    return Err(Usage("--config stands twice; name one file".to_owned()));
                }
            }
            _ => return Err(unknown("option", &option, ["--config", "--help", "--version"].into_iter())),
        }
    }
    if help {
        return Ok(Command::Help(command));
    }
    if version {
        return Ok(Command::Version);
    }
    let Some(command) = command else {
        return Err(Usage(
            "what shall it do? edgeward run serves, edgeward check shows what it would do".to_owned(),
        ));
    };
    let takes_config = COMMANDS.iter().any(|(name, takes, _)| *name == command && *takes);
    if config.is_some() && !takes_config {
        return Err(Usage(format!("{command} takes no --config")));
    }
    match command {
        "run" => Ok(Command::Run { config }),
        "check" => Ok(Command::Check { config }),
        "status" => Ok(Command::Status { config }),
        "demo" if cfg!(feature = "sim") => Ok(Command::Demo),
        "demo" => {
            Err(Usage("this build has no demo; cargo build --features sim makes one that has".to_owned()))
        }
        later => Ok(Command::Later(later)),
    }
}

fn one_command(word: &str, earlier: Option<&'static str>) -> Result<&'static str, Usage> {
    let names = || COMMANDS.iter().map(|(name, ..)| *name);
    let Some(name) = names().find(|name| *name == word) else {
        return Err(match earlier {
            Some(earlier) => Usage(format!("{earlier} takes nothing behind it, but {word:?} is there")),
            None => unknown("command", word, names()),
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

/// The text of `--help`, for all or for one command. Ends with a newline.
#[must_use]
pub fn help(command: Option<&str>) -> String {
    let mut text = String::new();
    match COMMANDS.iter().find(|(name, ..)| Some(*name) == command) {
        Some((name, takes_config, does)) => {
            let config = if *takes_config { " [--config FILE]" } else { "" };
            text.push_str(&format!("edgeward {name}{config}: {does}\n"));
        }
        None => {
            text.push_str(
                "edgeward: one endpoint before a local model server, and a stream that outlives it\n\n",
            );
            text.push_str("usage: edgeward COMMAND [--config FILE]\n\n");
            for (name, _, does) in COMMANDS {
                if name != "demo" || cfg!(feature = "sim") {
                    text.push_str(&format!("  {name:<8} {does}\n"));
                }
            }
        }
    }
    text.push_str(&format!(
        "\n  -c, --config FILE  the configuration; without it {} if there is one,\n\
         \x20                    else local servers on their usual ports and clouds by their usual variables\n\
         \x20 -h, --help         this\n  -V, --version      the version\n\n\
         exit codes: {EXIT_GOOD} good, {EXIT_FAILED} failed, {EXIT_USAGE} wrong command line, {EXIT_CONFIG} wrong configuration\n",
        crate::config::DEFAULT_PATH,
    ));
    text
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
            ("status -cf", Command::Status { config }),
            ("ledger", Command::Later("ledger")),
            ("boards", Command::Later("boards")),
            ("record", Command::Later("record")),
            ("replay", Command::Later("replay")),
            ("--help", Command::Help(None)),
            ("-h", Command::Help(None)),
            ("check --help", Command::Help(Some("check"))),
            ("--help demo", Command::Help(Some("demo"))),
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
            ("check --help=yes", "help"),
        ] {
            let usage = parsed(line).expect_err(line).to_string();
            assert!(usage.contains(wanted), "{line}: {usage}");
        }
    }

    #[test]
    fn help_names_every_command_and_code() {
        let all = help(None);
        for word in ["run", "check", "status", "ledger", "--config", "--version", "78"] {
            assert!(all.contains(word), "{word}");
        }
        assert!(help(Some("check")).starts_with("edgeward check [--config FILE]: "));
        assert!(help(Some("demo")).starts_with("edgeward demo: "));
    }
}
