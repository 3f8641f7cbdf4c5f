//! `edgeward status`: asks a running edgeward, on its operators' socket or its client listener.

use std::io::{self, Write};
use std::path::Path;

use super::ask::get;
use super::{EXIT_CONFIG, EXIT_FAILED, EXIT_GOOD};
use crate::config::{self, Config, Env};
use crate::proxy::operator::Status;

/// Prints a running one's targets. Returns the exit code: 1 where none answers.
///
/// # Errors
/// Only when `out` or `err` cannot be written.
pub fn status(
    path: Option<&Path>,
    env: &Env<'_>,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> io::Result<u8> {
    let config = match config::load_or_discover(path, env) {
        Ok(loaded) => loaded.config,
        Err(problems) => {
            writeln!(err, "{problems}")?;
            return Ok(EXIT_CONFIG);
        }
    };
    match ask(&config) {
        Ok(status) => {
            show(&status, out)?;
            Ok(EXIT_GOOD)
        }
        Err(tried) => {
            writeln!(err, "edgeward: no running edgeward answers: {tried}")?;
            writeln!(
                err,
                "start it with `edgeward run`, or name the file that it was started with: --config F"
            )?;
            Ok(EXIT_FAILED)
        }
    }
}

fn ask(config: &Config) -> Result<Status, String> {
    let body = get(config, "/edgeward/status")?;
    serde_json::from_slice(&body).map_err(|_| "the answer is not an edgeward's".to_owned())
}

fn show(status: &Status, out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "edgeward {}, up {} s, {} connections, {} requests running{}",
        status.version,
        status.uptime_secs,
        status.connections,
        status.requests,
        if status.draining { ", stopping" } else { "" }
    )?;
    if status.clock_wrong {
        writeln!(out, "  ! this box's clock is wrong: it shows a time before this program was built")?;
    }
    let width = status.targets.iter().map(|target| target.name.len()).max().unwrap_or(0);
    for target in &status.targets {
        writeln!(
            out,
            "  {} {:width$}  {:9} {:6} {}  answered {}, failed {}, running {}: {}",
            if target.candidate { "+" } else { "-" },
            target.name,
            target.kind,
            target.place,
            target.url,
            target.committed,
            target.failed,
            target.in_flight,
            target.reason
        )?;
    }
    if status.targets.is_empty() {
        writeln!(out, "  no targets")?;
    }
    Ok(())
}
