//! `edgeward boards`: which board this is, what tells of its memory, and what is missing.

use std::io::{self, Write};
use std::path::Path;

use super::{EXIT_CONFIG, EXIT_GOOD};
use crate::config::{self, Board, Env};
use crate::memory::{Axis, State, board, step};
use crate::proxy::pressure::told;
use crate::time::now;
use crate::watch::sampler::Sampler;

/// Prints what is found with the configuration at `path`. Returns the exit code.
///
/// # Errors
/// Only when `out` or `err` cannot be written.
pub fn boards(
    path: Option<&Path>,
    env: &Env<'_>,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> io::Result<u8> {
    let config = match config::load_or_discover(path, env) {
        Ok(loaded) => loaded.config.memory,
        Err(problems) => {
            writeln!(err, "{problems}")?;
            return Ok(EXIT_CONFIG);
        }
    };
    let mut sampler = Sampler::new(&config);
    let (here, why) = sampler.board;
    for (name, board) in Board::ALL {
        let sign = if board == here { "*" } else { " " };
        let known = if board == here { format!("this one: {why}") } else { String::new() };
        writeln!(out, "{}", format!("{sign} {name:<12} {known}").trim_end())?;
    }
    let shared = board::of(here).shared;
    let start = now();
    let mut state = State::new(sampler.terms(&config), start);
    let sample = *sampler.read(start);
    let decision = step(&mut state, &sample, start);
    if config.enabled {
        writeln!(out, "memory: {}", told(&decision).in_words())?;
    } else {
        writeln!(out, "memory is not watched: `enabled = false` in [memory]")?;
    }
    writeln!(out, "sources:")?;
    for report in sampler.report() {
        let path = report.path.display();
        match report.state {
            Ok((age, cost)) => {
                let (age, cost) = (age.as_millis(), cost.as_micros());
                writeln!(out, "  + {path}: {age} ms old, {cost} µs each time")?;
            }
            Err((why, remedy)) => writeln!(out, "  - {path}: {why}; {remedy}")?,
        }
    }
    if sample.axis(Axis::Device, false).is_none() && !shared && here != Board::Generic {
        writeln!(
            out,
            "  - the card's own memory: this version does not read it yet; the host's is watched alone"
        )?;
    }
    if sample.axis(Axis::Group, false).is_none() {
        writeln!(
            out,
            "  - a cgroup's limit: none is met here; if the model server has one, name it: `cgroup` in [memory]"
        )?;
    }
    Ok(EXIT_GOOD)
}
