//! `edgeward drill`: fails a target on purpose for a few requests, waits, and says what clients saw.

use std::io::{self, Write};
use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use serde_json::Value;
use tokio::runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::ask::{Running, Said, ask, not_heard};
use super::{EXIT_CONFIG, EXIT_FAILED, EXIT_GOOD};
use crate::config::{Config, Env};
use crate::limits;
use crate::proxy::drills::Wanted;
use crate::task;

/// Where a running one is asked.
const PATH: &str = "/edgeward/drill";

/// Begins a drill at the one that runs with the configuration at `path`, and waits for its end; SIGINT and SIGTERM end
/// it. Returns the exit code: 1 where clients saw errors, or nothing was tried.
///
/// # Errors
/// Only when `out` or `err` cannot be written.
pub fn drill(
    path: Option<&Path>,
    wanted: &Wanted,
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
    running.tell(err)?;
    let config = running.config;
    let runtime = match runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&format!("cannot wait for a signal: {error}"), err),
    };
    let mut outcome = Err("the event loop ended early".to_owned());
    task::run(&runtime, pin!(async { outcome = begin_and_wait(&config, wanted, err).await }));
    match outcome {
        Ok(report) => {
            writeln!(out, "{}", report.text("in_words"))?;
            let good = report.number("drilled") > 0 && !report.was_noticed();
            Ok(if good { EXIT_GOOD } else { EXIT_FAILED })
        }
        Err(why) => failed(&why, err),
    }
}

fn failed(why: &str, err: &mut dyn Write) -> io::Result<u8> {
    writeln!(err, "edgeward: {why}").map(|()| EXIT_FAILED)
}

/// Asks until it is over, or a signal comes: then it is ended, and what is known told.
async fn begin_and_wait(config: &Config, wanted: &Wanted, err: &mut dyn Write) -> Result<Report, String> {
    // Before it begins, so that no signal leaves it running.
    let mut signals = Signals::new().map_err(|e| format!("cannot wait for a signal: {e}"))?;
    let begun = told(config, "POST", &serde_json::to_string(wanted).unwrap_or_default())?;
    // Nobody may read it; the drill goes on all the same.
    let _unread = writeln!(
        err,
        "edgeward: {} to `{}` will be failed on purpose; waiting (Ctrl-C ends it)",
        begun.text("amount"),
        begun.text("target")
    );
    loop {
        if signals.within(limits::DRILL_LOOK).await {
            return same(&begun, told(config, "DELETE", "")?);
        }
        let report = same(&begun, told(config, "GET", "")?)?;
        if report.text("stage") == "over" {
            return Ok(report);
        }
    }
}

fn same(begun: &Report, report: Report) -> Result<Report, String> {
    if report.number("number") == begun.number("number") {
        Ok(report)
    } else {
        Err("somebody has begun another drill meanwhile; the journal has the end of this one".to_owned())
    }
}

/// What the running one told of it, as [`crate::route::drill::Report`] is written.
struct Report(Value);

impl Report {
    fn text(&self, key: &str) -> &str {
        self.0.get(key).and_then(Value::as_str).unwrap_or_default()
    }

    fn number(&self, key: &str) -> u64 {
        self.0.get(key).and_then(Value::as_u64).unwrap_or_default()
    }

    /// Whether a client saw an error, or an answer that broke off.
    fn was_noticed(&self) -> bool {
        let some = |key| self.0.get(key).and_then(Value::as_array).is_some_and(|causes| !causes.is_empty());
        some("failed") || some("broken")
    }
}

/// SIGINT and SIGTERM, from here on.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Whether one came within `time`.
    async fn within(&mut self, time: Duration) -> bool {
        tokio::select! {
            _ = self.interrupt.recv() => true,
            _ = self.terminate.recv() => true,
            () = tokio::time::sleep(time) => false,
        }
    }
}

fn told(config: &Config, method: &str, body: &str) -> Result<Report, String> {
    let Said { status, body } = ask(config, method, PATH, "application/json", body)
        .map_err(|tried| format!("no running edgeward answers: {tried}"))?;
    let said: Value = serde_json::from_slice(&body).unwrap_or_default();
    let report = Report(said);
    if status == 200 {
        let good = !report.text("stage").is_empty();
        return if good { Ok(report) } else { Err("the answer is not an edgeward's".to_owned()) };
    }
    if status == 401 {
        return Err(not_heard(status));
    }
    let said = report.0.pointer("/error/message").and_then(Value::as_str);
    Err(said.map_or_else(|| format!("it answers {status}"), str::to_owned))
}
