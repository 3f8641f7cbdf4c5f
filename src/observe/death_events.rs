//! The events of local servers' processes, each with its fixed `MESSAGE_ID`.

use std::time::Duration;

use tracing::{error, info, warn};

use super::events::micros;
use crate::cause::Cause;

/// `server_found`: the process behind a local target is known.
pub const SERVER_FOUND: &str = "2f6c1d0c9a7b4e55b1d4a83c6e20f917";
/// `server_died`: it died.
pub const SERVER_DIED: &str = "a90e5b7764c84d1f8b6e2d31f0c7a852";
/// `runner_exited`: a process that a local server had started for a model ended.
pub const RUNNER_EXITED: &str = "5d83b2e1f7094c6aa2c95e7b10d46f38";
/// `server_back`: a local server answers again after its death or its hang.
pub const SERVER_BACK: &str = "e1740c9d58b34f26975ad0c3b8e61f2a";
/// `server_hangs`: a local server answers its probe, and no request gets a token.
pub const SERVER_HANGS: &str = "38cf90d2a6e14b7b8d05c7e94a1b62f3";
/// `model_banned`: a model ran a local server out of memory twice.
pub const MODEL_BANNED: &str = "c7b25e08d19f4a63b43f81e6a05d97c2";
/// `latched`: the GPU has failed, and works again only after a reset.
pub const LATCHED: &str = "94ad7e3b0f5642c1856e9bd20c31f7a8";
/// `unlatched`: it was reset.
pub const UNLATCHED: &str = "6b08f4c5e2d94713a1c7503de98b24f6";

/// A death, as it is told.
#[derive(Clone, Copy, Debug)]
pub struct Death<'a> {
    /// The target.
    pub target: &'a str,
    /// Its process.
    pub pid: u32,
    /// By what.
    pub cause: Cause,
    /// The Xid, where that is the cause.
    pub xid: Option<u16>,
    /// How it ended, where that can be seen: `signal 9`.
    pub exit: &'a str,
    /// How long it was watched.
    pub after: Duration,
    /// Attempts that went on to another target at once.
    pub failed_over: usize,
    /// How long it is left alone.
    pub rest: Duration,
    /// What helps.
    pub advice: &'a str,
}

/// `oom_kill`, or `xid_79`.
fn word(cause: Cause, xid: Option<u16>) -> String {
    match (cause, xid) {
        (Cause::Xid, Some(code)) => format!("xid_{code}"),
        _ => cause.as_str().to_owned(),
    }
}

/// The process behind a target is known: by `how` in words.
pub fn server_found(target: &str, pid: Option<u32>, processes: usize, how: &str) {
    info!(
        message_id = SERVER_FOUND,
        edgeward_event = "server_found",
        edgeward_target = target,
        edgeward_pid = pid,
        edgeward_count = processes,
        edgeward_detail = how,
        "{target} is served by {}, found by {how}",
        pid.map_or_else(|| format!("one of {processes} processes"), |pid| format!("process {pid}"))
    );
}

/// It died.
pub fn server_died(death: &Death<'_>) {
    let Death { target, pid, cause, xid, exit, after, failed_over, rest, advice } = *death;
    warn!(
        message_id = SERVER_DIED,
        edgeward_event = "server_died",
        edgeward_target = target,
        edgeward_cause = word(cause, xid),
        edgeward_pid = pid,
        edgeward_exit = (!exit.is_empty()).then_some(exit),
        edgeward_after_us = micros(after),
        edgeward_failed_over = failed_over,
        edgeward_left_us = micros(rest),
        edgeward_remedy = advice,
        "{target} died (process {pid}, after {} s): {}{}{exit}; {failed_over} requests go on elsewhere; it is left alone \
         for {} s; {advice}",
        after.as_secs(),
        cause.in_words(),
        if exit.is_empty() { "" } else { ", " },
        rest.as_secs()
    );
}

/// A process that it had started for a model ended; `failed_over`: attempts that went on to another target at once.
pub fn runner_exited(
    target: &str,
    pid: u32,
    model: Option<&str>,
    cause: Option<Cause>,
    failed_over: usize,
    advice: &str,
) {
    macro_rules! tell {
        ($level:ident, $($words:tt)+) => {
            $level!(
                message_id = RUNNER_EXITED,
                edgeward_event = "runner_exited",
                edgeward_target = target,
                edgeward_model = model,
                edgeward_cause = cause.map(Cause::as_str),
                edgeward_pid = pid,
                edgeward_failed_over = failed_over,
                edgeward_remedy = (!advice.is_empty()).then_some(advice),
                $($words)+
            )
        };
    }
    let whose = model.map_or_else(String::new, |model| format!(" of {model}"));
    match cause {
        None => tell!(info, "{target}: runner {pid}{whose} ended with no request under way there"),
        Some(cause) => tell!(
            warn,
            "{target}: runner {pid}{whose} died: {}; {failed_over} requests go on elsewhere; {advice}",
            cause.in_words()
        ),
    }
}

/// It answers again.
pub fn server_back(target: &str) {
    info!(
        message_id = SERVER_BACK,
        edgeward_event = "server_back",
        edgeward_target = target,
        "{target} is back: its probe succeeds, memory is steady, and it has answered a request"
    );
}

/// It answers its probe, and no request gets a token.
pub fn server_hangs(target: &str, advice: &str) {
    warn!(
        message_id = SERVER_HANGS,
        edgeward_event = "server_hangs",
        edgeward_target = target,
        edgeward_cause = Cause::Hang.as_str(),
        edgeward_remedy = advice,
        "{target} hangs: it answers its probe, and requests get no token in time; it is left alone for now; {advice}"
    );
}

/// A model ran it out of memory twice: it gets no prompts of more than `most` tokens, or nothing of it at all.
pub fn model_banned(target: &str, model: Option<&str>, most: Option<u64>, left: Duration, advice: &str) {
    let model = model.unwrap_or_default();
    let gets =
        most.map_or_else(|| "none of it".to_owned(), |most| format!("prompts of {most} tokens at most"));
    warn!(
        message_id = MODEL_BANNED,
        edgeward_event = "model_banned",
        edgeward_target = target,
        edgeward_model = model,
        edgeward_tokens = most,
        edgeward_left_us = micros(left),
        edgeward_remedy = advice,
        "{target} ran out of memory twice with {model}: it gets {gets} for {} min; {advice}",
        left.as_secs() / 60
    );
}

/// The GPU has failed: by this Xid, or by what its driver says.
pub fn latched(target: &str, xid: Option<u16>, advice: &str) {
    error!(
        message_id = LATCHED,
        edgeward_event = "latched",
        edgeward_target = target,
        edgeward_cause = word(Cause::Xid, xid),
        edgeward_remedy = advice,
        "{target} gets no more requests: its GPU has failed ({}); {advice}",
        xid.map_or_else(|| "its driver says so".to_owned(), |code| format!("Xid {code}"))
    );
}

/// It was reset.
pub fn unlatched(target: &str) {
    info!(
        message_id = UNLATCHED,
        edgeward_event = "unlatched",
        edgeward_target = target,
        "{target} gets requests again: its GPU answers"
    );
}

#[cfg(test)]
mod tests {
    use super::super::line::tests::lines;
    use super::*;

    #[test]
    fn a_death_is_one_line_with_its_cause_and_what_helps() {
        let death = Death {
            target: "box",
            pid: 71,
            cause: Cause::Xid,
            xid: Some(79),
            exit: "signal 9",
            after: Duration::from_secs(60),
            failed_over: 3,
            rest: Duration::from_secs(10),
            advice: "reboot",
        };
        let shown = lines(|| {
            server_died(&death);
            server_died(&Death { cause: Cause::OomKill, exit: "", ..death });
            runner_exited("box", 72, Some("m"), None, 0, "");
        });
        assert!(
            shown[0].contains(
                "WARN  server_died target=box cause=xid_79 pid=71 exit=\"signal 9\" after_us=60000000 failed_over=3 \
                 left_us=10000000 remedy=reboot"
            ),
            "{}",
            shown[0]
        );
        assert!(shown[1].contains("cause=oom_kill pid=71 after_us"), "{}", shown[1]);
        assert!(
            shown[2].contains("INFO  runner_exited target=box model=m pid=72 failed_over=0"),
            "{}",
            shown[2]
        );
    }
}
