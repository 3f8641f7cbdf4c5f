//! `edgeward status`: asks a running edgeward, on its operators' socket or its client listener.

use std::io::{self, Write};
use std::path::Path;

use super::ask::{Running, get};
use super::{EXIT_CONFIG, EXIT_FAILED, EXIT_GOOD};
use crate::config::{Config, Env};
use crate::proxy::status_page::is_plain;

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
    let running = match Running::new(path, env) {
        Ok(running) => running,
        Err(problems) => {
            writeln!(err, "{problems}")?;
            return Ok(EXIT_CONFIG);
        }
    };
    match ask(&running.config) {
        Ok(status) => {
            out.write_all(status.as_bytes())?;
            out.flush()?;
            running.tell(err)?;
            Ok(EXIT_GOOD)
        }
        Err(tried) => {
            writeln!(err, "edgeward: no status: {tried}")?;
            // None starts with such a file.
            if !running.problems.0.is_empty() {
                writeln!(err, "{}", running.problems)?;
                return Ok(EXIT_CONFIG);
            }
            writeln!(
                err,
                "if none runs, start it with `edgeward run`; if it was started with another file, name that: --config F"
            )?;
            Ok(EXIT_FAILED)
        }
    }
}

/// The page, as the running one writes it; whoever it was that answered moves no cursor.
fn ask(config: &Config) -> Result<String, String> {
    let body = get(config, "/edgeward/status", "text/plain")?;
    let page = String::from_utf8_lossy(&body);
    if !page.starts_with("edgeward ") {
        return Err("the answer is not an edgeward's of this version".to_owned());
    }
    Ok(page.chars().map(|c| if c == '\n' || is_plain(c) { c } else { '?' }).collect())
}
