//! `edgeward status`: asks a running edgeward, on its operators' socket or its client listener.

use std::io::{self, Write};
use std::path::Path;

use super::ask::{self, Running, Said};
use super::{EXIT_CONFIG, EXIT_FAILED, EXIT_GOOD, EXIT_USAGE};
use crate::config::{Config, Env};
use crate::proxy::status_page::is_plain;

/// Prints a running one's targets, and what became of requests since `since`. Returns the exit code: 1 where none answers.
///
/// # Errors
/// Only when `out` or `err` cannot be written.
pub fn status(
    path: Option<&Path>,
    since: Option<&str>,
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
    match ask(&running.config, since) {
        Ok(Ok(status)) => {
            out.write_all(status.as_bytes())?;
            out.flush()?;
            running.tell(err)?;
            Ok(EXIT_GOOD)
        }
        Ok(Err(why)) => {
            writeln!(err, "edgeward: {why}")?;
            Ok(EXIT_USAGE)
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

/// The page, as the running one writes it, or why it tells nothing since then; whoever it was that answered moves no
/// cursor.
fn ask(config: &Config, since: Option<&str>) -> Result<Result<String, String>, String> {
    let query = since.map(|since| format!("?since={since}")).unwrap_or_default();
    let Said { status, body } =
        ask::ask(config, "GET", &format!("/edgeward/status{query}"), "text/plain", "")?;
    let page = String::from_utf8_lossy(&body);
    let plain = |text: &str| text.chars().map(|c| if c == '\n' || is_plain(c) { c } else { '?' }).collect();
    match status {
        200 if page.starts_with("edgeward ") => Ok(Ok(plain(&page))),
        200 => Err("the answer is not an edgeward's of this version".to_owned()),
        400 if since.is_some() => Ok(Err(plain(page.trim_end()))),
        status => Err(ask::refused(status)),
    }
}
