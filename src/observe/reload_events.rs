//! The events of a configuration that changes: reloads and rollouts.

use std::fmt;
use std::io;
use std::path::Path;
use std::time::Duration;

use tracing::{error, info, warn};

use super::events::micros;
use crate::limits;

/// `reloaded`: a changed configuration is in use for new requests.
pub const RELOADED: &str = "2d1f6f0f6c5a4f6f8f0d6a6e3c1b7e55";
/// `reload_failed`: the configuration cannot be used; the one before it stays in use.
pub const RELOAD_FAILED: &str = "9b7c0a5c1be94d06a3f2f5a7d8e4c612";
/// `config_unwatched`: the configuration file cannot be watched; SIGHUP reloads it.
pub const CONFIG_UNWATCHED: &str = "5c1d90e2b7a84f36a4e8d1b06f92c7d5";
/// `rollout_started`: a changed routing takes a share of the requests.
pub const ROLLOUT_STARTED: &str = "a1f7d3c85e2b4960b8d40e9c7f13a652";
/// `rollout_promoted`: it takes all of them.
pub const ROLLOUT_PROMOTED: &str = "d85b02e94f7c4a1d96e3c0f8b1a7425e";
/// `rollout_rolled_back`: the routing before it takes all of them again.
pub const ROLLOUT_ROLLED_BACK: &str = "3e9ac6f1d07b48529d1f84b2e65c70a3";

/// What a reload did.
#[derive(Clone, Copy, Debug)]
pub struct Reloaded<'a> {
    /// How many targets there are.
    pub targets: usize,
    /// Keys that ask for something that only a restart brings.
    pub restart: &'a [&'a str],
    /// What is different, a line each.
    pub diff: &'a [String],
}

/// A changed configuration is in use for new requests; what it asks for in `restart` comes with a restart.
pub fn reloaded(what: &Reloaded<'_>) {
    let targets = what.targets;
    let restart = (!what.restart.is_empty()).then(|| what.restart.join(","));
    let diff = changes(what.diff);
    macro_rules! tell {
        ($level:ident, $($message:tt)+) => {
            $level!(
                message_id = RELOADED,
                edgeward_event = "reloaded",
                edgeward_targets = targets,
                edgeward_restart = restart,
                edgeward_diff = diff,
                $($message)+
            )
        };
    }
    match &restart {
        None => tell!(info, "Reloaded, for new requests: {diff}"),
        Some(keys) => tell!(warn, "Reloaded, but only a restart changes {keys}: {diff}"),
    }
}

/// The first [`limits::DIFF_LINES_MAX`] of these, on one line.
fn changes(diff: &[String]) -> String {
    if diff.is_empty() {
        return "nothing changed".to_owned();
    }
    let mut text =
        diff.iter().take(limits::DIFF_LINES_MAX).map(String::as_str).collect::<Vec<_>>().join("; ");
    let more = diff.len().saturating_sub(limits::DIFF_LINES_MAX);
    if more > 0 {
        text.push_str(&format!("; and {more} more"));
    }
    text
}

/// A configuration file that is not watched: only SIGHUP reloads it.
pub fn config_unwatched(path: &Path, error: &io::Error) {
    warn!(
        message_id = CONFIG_UNWATCHED,
        edgeward_event = "config_unwatched",
        edgeward_path = %path.display(),
        edgeward_detail = %error,
        "{} is not watched ({error}): after a change, systemctl reload edgeward or SIGHUP",
        path.display()
    );
}

/// One side of a rollout.
#[derive(Clone, Copy, Debug)]
pub struct Side {
    /// Requests that ended.
    pub requests: u32,
    /// Of which got an answer after a failed attempt.
    pub rescued: u32,
    /// Of which failed.
    pub failed: u32,
    /// What 95 of 100 keep to their first token.
    pub first_token_p95: Option<Duration>,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Side { requests, rescued, failed, first_token_p95 } = self;
        write!(f, "{requests} requests, {rescued} rescued, {failed} failed")?;
        match first_token_p95 {
            Some(p95) => write!(f, ", first token within {} ms", p95.as_millis()),
            None => Ok(()),
        }
    }
}

/// A changed routing takes `share` thousandths of the requests, for `hold`, and is judged from `min_samples` on.
pub fn rollout_started(share: u16, hold: Duration, min_samples: u32) {
    let share = format!("{}%", f64::from(share) / 10.0);
    info!(
        message_id = ROLLOUT_STARTED,
        edgeward_event = "rollout_started",
        edgeward_share = share,
        edgeward_hold_us = micros(hold),
        edgeward_min_samples = min_samples,
        "The new routing takes {share} of the requests for {} s",
        hold.as_secs()
    );
}

/// A changed routing takes all requests. `few`: fewer than `min_samples` had gone by it.
pub fn rollout_promoted(new: &Side, old: &Side, few: bool) {
    macro_rules! tell {
        ($level:ident, $words:literal) => {
            $level!(
                message_id = ROLLOUT_PROMOTED,
                edgeward_event = "rollout_promoted",
                edgeward_new = %new,
                edgeward_old = %old,
                edgeward_few = few,
                $words
            )
        };
    }
    if few {
        tell!(warn, "The new routing takes all requests, judged by few: {new}; the old one: {old}");
    } else {
        tell!(info, "The new routing takes all requests: {new}; the old one: {old}");
    }
}

/// A changed routing is not in use any more, because of `why`.
pub fn rollout_rolled_back(why: &str, new: &Side, old: &Side) {
    error!(
        message_id = ROLLOUT_ROLLED_BACK,
        edgeward_event = "rollout_rolled_back",
        edgeward_detail = why,
        edgeward_new = %new,
        edgeward_old = %old,
        "The new routing was rolled back: {why}. It had {new}; the old one: {old}"
    );
}

/// The configuration cannot be used: nothing has changed.
pub fn reload_failed(why: &str) {
    error!(
        message_id = RELOAD_FAILED,
        edgeward_event = "reload_failed",
        edgeward_detail = why,
        "Not reloaded, everything stays as it was: {why}"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_diff_is_told_in_part() {
        let line = |n| format!("line {n}");
        assert_eq!(changes(&[]), "nothing changed");
        assert_eq!(changes(&[line(1), line(2)]), "line 1; line 2");
        let many: Vec<String> = (0..limits::DIFF_LINES_MAX + 5).map(line).collect();
        assert!(changes(&many).ends_with("line 19; and 5 more"), "{}", changes(&many));
    }
}
