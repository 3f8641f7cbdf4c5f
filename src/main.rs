//! The edgeward program.

use std::io::{self, Write};
use std::process::ExitCode;

use edgeward::cli::{self, Command};

fn main() -> ExitCode {
    let code = match cli::parse(std::env::args_os().skip(1)) {
        Ok(command) => dispatch(&command),
        Err(usage) => {
            writeln!(io::stderr(), "{usage}\nedgeward --help shows what there is").map(|()| cli::EXIT_USAGE)
        }
    };
    // A terminal or pipe that is gone leaves nobody to tell; the code still says it.
    ExitCode::from(code.unwrap_or(cli::EXIT_FAILED))
}

fn dispatch(command: &Command) -> io::Result<u8> {
    let env = |name: &str| std::env::var(name).ok();
    // stderr is not held: another thread may log, or panic, while this one serves.
    let (mut out, mut err) = (io::stdout().lock(), io::stderr());
    match command {
        Command::Check { config } => cli::check(config.as_deref(), &env, &mut out, &mut err),
        Command::Help(command) => out.write_all(cli::help(*command).as_bytes()).map(|()| cli::EXIT_GOOD),
        Command::Version => out.write_all(cli::version().as_bytes()).map(|()| cli::EXIT_GOOD),
        Command::Run { config } => cli::run(config.as_deref(), &env, &mut err),
        Command::Status { config, since } => {
            cli::status(config.as_deref(), since.as_deref(), &env, &mut out, &mut err)
        }
        Command::Drill { config, wanted } => cli::drill(config.as_deref(), wanted, &env, &mut out, &mut err),
        Command::Support { config, output } => {
            cli::support(config.as_deref(), output.as_deref(), &env, &mut out, &mut err)
        }
        Command::Boards { config } => cli::boards(config.as_deref(), &env, &mut out, &mut err),
        Command::Record { config, time, every, file } => {
            cli::record(config.as_deref(), *time, *every, file, &env, &mut err)
        }
        Command::Replay { looks, file } => cli::replay(file, *looks, &mut out, &mut err),
        #[cfg(feature = "sim")]
        Command::Demo => cli::demo(&mut out, &mut err),
        // The command line refuses it in such a build.
        #[cfg(not(feature = "sim"))]
        Command::Demo => later("demo", &mut err),
        Command::Later(name) => later(name, &mut err),
    }
}

fn later(name: &str, err: &mut dyn Write) -> io::Result<u8> {
    writeln!(err, "edgeward: {name} is not in this build yet").map(|()| cli::EXIT_FAILED)
}
