//! `edgeward check`: every mistake of the configuration at once, or the plan.

use std::io::{self, Write};
use std::path::Path;

use super::{EXIT_CONFIG, EXIT_GOOD, footing};
use crate::config::{self, Env, Reader};

/// Checks the configuration that `run` would start with, and gives the exit code. A key that only the service may read
/// is a warning: this may be an operator's shell.
/// Mistakes go to `err`, one a line and a count; the plan of a good one goes to `out`.
///
/// # Errors
/// Only that `out` or `err` could not be written.
pub fn check(
    config: Option<&Path>,
    env: &Env<'_>,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> io::Result<u8> {
    match config::see(config, env, Reader::Operator).loaded() {
        Ok(loaded) => {
            out.write_all(config::plan_text(&loaded.config, &loaded.warnings).as_bytes())?;
            let limits = &loaded.config.limits;
            writeln!(
                out,
                "memory    at most {} MiB, if every limit is reached at once; MemoryMax= belongs above it",
                limits.memory().div_ceil(1 << 20)
            )?;
            if let Some(have) = footing::descriptors_low(limits) {
                let need = limits.descriptors();
                writeln!(
                    out,
                    "warning   limits.connections ({}) needs {need} file descriptors and {have} are allowed here: \
                     run lets in fewer; raise LimitNOFILE= in the unit, or `ulimit -Hn` in a shell",
                    limits.connections
                )?;
            }
            out.flush()?;
            Ok(EXIT_GOOD)
        }
        Err(problems) => {
            let count = problems.0.len();
            let mistakes = if count == 1 { "mistake" } else { "mistakes" };
            writeln!(err, "{problems}\nedgeward: {count} {mistakes} in the configuration")?;
            Ok(EXIT_CONFIG)
        }
    }
}
