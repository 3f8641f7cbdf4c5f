//! Each kind of event that operators can search for, with its fixed `MESSAGE_ID`.
//!
//! Fields are `EDGEWARD_…` in the journal and bare names in text. None holds a prompt, an answer or a key.

use std::cell::Cell;
use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tracing::{error, info, warn};

mod nvml;

pub use nvml::{
    gpu_blind, gpu_down, gpu_seen, gpu_up, helper_ready, helper_replaced, helper_restarted, helper_stale,
    helper_unavailable,
};

use super::kinds::{Limit, Outcome};
use crate::cause::{Cause, Failure};
use crate::dialect::event::Usage;
use crate::limits;

/// `request_done`: one for each request, at its end. `journalctl MESSAGE_ID=…` finds them all.
pub const REQUEST_DONE: &str = "826f06e80a8e410e81e0863c17c5a26f";
/// `attempt_failed`: one for each attempt that gave no good answer.
pub const ATTEMPT_FAILED: &str = "1dd89b0dfdf34f24b0c3f06c3843e0b6";
/// `target_misconfigured`: a target refused our key or lacks the model; only its configuration can help.
pub const TARGET_MISCONFIGURED: &str = "4025d402f62c45359b2411d0bb684643";
/// `started`: ready for clients.
pub const STARTED: &str = "6e039ddda92e4cec86fded8aaf51688e";
/// `stopping`: no new connections; running streams are let finish.
pub const STOPPING: &str = "07440927ceb9446f93f33ba4aa7c3c09";
/// `accept_failed`: a connection could not be accepted.
pub const ACCEPT_FAILED: &str = "e1d6c0f86a6f4cd7b4d25ea6a6a0f2c3";
/// `request_body`: what a client sent; only with `log_prompts`.
pub const REQUEST_BODY: &str = "5f0f6f3b6c1f4c1d9d2f0c8a4be7d3e1";
/// `limit_hit`: a request or a connection met a configured limit.
pub const LIMIT_HIT: &str = "8fc42e80dcd646089c16b7157a26ff18";
/// `held_back`: lines of one kind that were not written, since there were too many of them.
pub const HELD_BACK: &str = "2e5d25571137c6fabc0634566698562c";
/// `memory_locked`: nothing of edgeward is paged out; or why that is not so.
pub const MEMORY_LOCKED: &str = "9a5c1f6f7c0b4d0d8a3a6a9c1f0e2b47";
/// `descriptors_low`: the limit of file descriptors is too low for `limits.connections`.
pub const DESCRIPTORS_LOW: &str = "c3d8a6f25e3b4f5f9d0e5b7c64a1e8d2";
/// `admin_unavailable`: the operators' socket could not be made; clients are served without it.
pub const ADMIN_UNAVAILABLE: &str = "2f7be0c4d1a84c6e9b53f08d7a6e19c5";
/// `clock_wrong`: this box's clock shows a time before this program was built.
pub const CLOCK_WRONG: &str = "b6e2d94f0c7a4e1c8f35a1d7e90b62c8";
/// `clock_set`: this box's clock was set.
pub const CLOCK_SET: &str = "7d40c8b3e5f94a2b96d1f3c07e8a5b14";
/// `target_waiting`: a target's certificate is not valid yet by this box's clock.
pub const TARGET_WAITING: &str = "e09f3b71a6d24c58b7c4d2e61f8a903d";
/// `passed_sockets`: systemd's sockets are not what the configuration says; they win.
pub const PASSED_SOCKETS: &str = "c3a8d9e04f5b4c7db9126e07f8a1d3b4";
/// `helper_ready`: the NVML helper has said its version.
pub const HELPER_READY: &str = "3bb7661f6e974fe3b96e6969eb20f7b5";
/// `helper_unavailable`: there is an NVIDIA driver, and no helper to ask it.
pub const HELPER_UNAVAILABLE: &str = "84589072f3664285bf126cc074f2e87d";
/// `helper_replaced`: there is no NVML helper; nvidia-smi stands in for it.
pub const HELPER_REPLACED: &str = "80014c4f874d4f8395f2fad61c367c84";
/// `helper_restarted`: the NVML helper has ended, and is started again.
pub const HELPER_RESTARTED: &str = "06048b49906c40eba78596d0ce8f77e8";
/// `helper_stale`: the NVML helper says nothing any more.
pub const HELPER_STALE: &str = "10d810ae2f394086a8839139baa1e61e";
/// `gpu_blind`: nothing is known of any GPU; no GPU's fault.
pub const GPU_BLIND: &str = "aa200c323983441782bbd9d8744db151";
/// `gpu_seen`: the GPUs' figures are there.
pub const GPU_SEEN: &str = "159c23ef47e14da7a869ad69e508f3ee";
/// `gpu_down`: a GPU is lost, or needs a reset.
pub const GPU_DOWN: &str = "3ae710366a6b481497f021da5c2bf5e7";
/// `gpu_up`: it is up again.
pub const GPU_UP: &str = "41a2d339a4ea493e91bc0751a7bc7622";

/// A finished request, as its one line tells it.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Its id.
    pub request: &'a str,
    /// The name of the client's key.
    pub client: Option<&'a str>,
    /// The client's protocol, or the endpoint's path for what is no dialect.
    pub dialect: &'static str,
    /// The model that was asked for; empty when unknown.
    pub model: &'a str,
    /// Who answered.
    pub target: Option<&'a str>,
    /// Where that is: `local`, `lan` or `cloud`. What is not local has left the box.
    pub place: Option<&'static str>,
    /// `box:oom,cloud:committed`, as in `x-edgeward-attempts`.
    pub attempts: &'a str,
    /// The HTTP status that the client got; `None` when it got none.
    pub status: Option<u16>,
    /// How it ended.
    pub outcome: Outcome,
    /// Why, where it did not end well.
    pub cause: Option<Cause>,
    /// From the request's head to its first token's way out.
    pub ttft: Option<Duration>,
    /// From the request's head to its end.
    pub took: Duration,
    /// Body bytes sent to the client.
    pub bytes: u64,
    /// As far as the server reported them.
    pub usage: Usage,
}

pub(super) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// One line a request.
pub fn request_done(record: &Record<'_>) {
    // A level is part of a callsite, so each has its own.
    macro_rules! tell {
        ($level:ident) => {
            $level!(
                message_id = REQUEST_DONE,
                edgeward_event = "request_done",
                edgeward_request = record.request,
                edgeward_client = record.client,
                edgeward_dialect = record.dialect,
                edgeward_model = record.model,
                edgeward_target = record.target,
                edgeward_place = record.place,
                edgeward_attempts = record.attempts,
                edgeward_status = record.status,
                edgeward_outcome = record.outcome.as_str(),
                edgeward_cause = record.cause.map(Cause::as_str),
                edgeward_ttft_us = record.ttft.map(micros),
                edgeward_took_us = micros(record.took),
                edgeward_bytes = record.bytes,
                edgeward_prompt_tokens = record.usage.prompt,
                edgeward_completion_tokens = record.usage.completion,
                "Request {}: {} ({})",
                record.request,
                record.outcome.as_str(),
                record.attempts
            )
        };
    }
    if record.outcome.is_trouble() {
        tell!(warn);
    } else {
        tell!(info);
    }
}

/// One line a failed attempt. What is the client's doing, or was not even sent, is no warning; nor is a model that
/// nobody but the client has named, which `mistyped` says.
pub fn attempt_failed(request: &str, target: &str, failure: &Failure, took: Duration, mistyped: bool) {
    macro_rules! tell {
        ($level:ident) => {
            $level!(
                message_id = ATTEMPT_FAILED,
                edgeward_event = "attempt_failed",
                edgeward_request = request,
                edgeward_target = target,
                edgeward_cause = failure.cause.as_str(),
                edgeward_detail = said(failure),
                edgeward_took_us = micros(took),
                "{target}: {failure}"
            )
        };
    }
    let asked_too_much =
        matches!(failure.cause, Cause::ContextOverflow | Cause::Unsupported | Cause::Untranslatable);
    if failure.cause.fault() == crate::cause::Fault::Downstream
        || matches!(failure.cause, Cause::Suspended | Cause::Drill | Cause::Hedged)
        || asked_too_much
        || mistyped
    {
        tell!(info);
    } else {
        tell!(warn);
    }
}

fn said(failure: &Failure) -> Option<&str> {
    (!failure.detail.is_empty()).then_some(failure.detail.as_str())
}

/// A target that only its configuration can help. An error, since requests for it go elsewhere until then.
pub fn target_misconfigured(target: &str, failure: &Failure) {
    error!(
        message_id = TARGET_MISCONFIGURED,
        edgeward_event = "target_misconfigured",
        edgeward_target = target,
        edgeward_cause = failure.cause.as_str(),
        edgeward_detail = said(failure),
        "Target {target} is misconfigured: {failure}"
    );
}

/// Ready for clients at these addresses, with this many targets.
pub fn started(listen: &[SocketAddr], targets: usize) {
    let listen: Vec<String> = listen.iter().map(SocketAddr::to_string).collect();
    let listen = listen.join(",");
    info!(
        message_id = STARTED,
        edgeward_event = "started",
        edgeward_version = env!("CARGO_PKG_VERSION"),
        edgeward_listen = listen,
        edgeward_targets = targets,
        "Listening on {listen}"
    );
}

/// What systemd passed is used, and is not what was expected.
pub fn passed_sockets(what: &str) {
    warn!(
        message_id = PASSED_SOCKETS,
        edgeward_event = "passed_sockets",
        edgeward_detail = what,
        "Sockets from systemd: {what}"
    );
}

/// Memory is locked, this much of it.
pub fn memory_locked(bytes: u64) {
    info!(
        message_id = MEMORY_LOCKED,
        edgeward_event = "memory_locked",
        edgeward_bytes = bytes,
        "Memory is locked: edgeward stays answering while the box pages"
    );
}

/// Memory is not locked. An error where the configuration asks for it.
pub fn memory_not_locked(why: &str, asked: bool) {
    macro_rules! tell {
        ($level:ident) => {
            $level!(
                message_id = MEMORY_LOCKED,
                edgeward_event = "memory_not_locked",
                edgeward_detail = why,
                "Memory is not locked: {why}"
            )
        };
    }
    if asked {
        tell!(error);
    } else {
        tell!(info);
    }
}

/// The process may open `have` file descriptors and the configuration needs `need`; `connections` is what is left
/// of `limits.connections`.
pub fn descriptors_low(have: u64, need: u64, connections: usize) {
    warn!(
        message_id = DESCRIPTORS_LOW,
        edgeward_event = "descriptors_low",
        edgeward_have = have,
        edgeward_need = need,
        edgeward_connections = connections,
        "{have} file descriptors do not do for limits.connections, which needs {need}: {connections} connections \
         are let in; raise LimitNOFILE="
    );
}

/// The operators' socket could not be made.
pub fn admin_unavailable(path: &std::path::Path, error: &std::io::Error) {
    error!(
        message_id = ADMIN_UNAVAILABLE,
        edgeward_event = "admin_unavailable",
        edgeward_path = %path.display(),
        edgeward_detail = %error,
        "No operators' socket at {} ({error}): clients are served, operators ask on the client listener",
        path.display()
    );
}

/// The wall clock shows a time before this program was built.
pub fn clock_wrong(wall: SystemTime) {
    warn!(
        message_id = CLOCK_WRONG,
        edgeward_event = "clock_wrong",
        edgeward_clock = unix(wall),
        "This box's clock is wrong, it shows a time before this program was built: targets whose certificates \
         are not valid yet wait until it is set"
    );
}

/// The wall clock was set; `waiting` targets are tried again for it.
pub fn clock_set(wall: SystemTime, waiting: usize) {
    info!(
        message_id = CLOCK_SET,
        edgeward_event = "clock_set",
        edgeward_clock = unix(wall),
        edgeward_targets = waiting,
        "The clock was set; {waiting} targets that waited for it are tried again"
    );
}

/// A target's certificate is not valid yet by this box's clock.
pub fn target_waiting(target: &str, failure: &Failure) {
    warn!(
        message_id = TARGET_WAITING,
        edgeward_event = "target_waiting",
        edgeward_target = target,
        edgeward_cause = failure.cause.as_str(),
        edgeward_detail = said(failure),
        "Target {target} is {}; it is tried again then",
        failure.cause.in_words()
    );
}

/// Seconds since 1970.
fn unix(wall: SystemTime) -> u64 {
    wall.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// A connection could not be accepted: no file descriptors, no memory. At most one line in
/// [`limits::ACCEPT_LOG_INTERVAL`]: it may go on for days.
pub fn accept_failed(error: &std::io::Error) {
    thread_local! {
        static TOLD: Cell<Option<Instant>> = const { Cell::new(None) };
    }
    let now = crate::time::now();
    let quiet =
        TOLD.get().is_some_and(|told| now.saturating_duration_since(told) < limits::ACCEPT_LOG_INTERVAL);
    if quiet {
        return;
    }
    TOLD.set(Some(now));
    error!(
        message_id = ACCEPT_FAILED,
        edgeward_event = "accept_failed",
        edgeward_detail = lacking(error),
        "Cannot accept connections: {}; running streams go on, new ones wait until some have ended",
        lacking(error)
    );
}

/// What an error says is lacking, in words that are there already: the system's own would have to be allocated.
fn lacking(error: &std::io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(23) => "the box has no file descriptor left (ENFILE)",
        Some(24) => "this process has no file descriptor left (EMFILE)",
        Some(12) => "the box has no memory left (ENOMEM)",
        Some(105) => "the network has no memory left (ENOBUFS)",
        _ => "the system refuses it",
    }
}

/// The beginning of a request's body. Only with `log_prompts`.
pub fn request_body(request: &str, body: &[u8]) {
    let beginning = body.get(..limits::LOG_VALUE_BYTES).unwrap_or(body);
    info!(
        message_id = REQUEST_BODY,
        edgeward_event = "request_body",
        edgeward_request = request,
        edgeward_bytes = body.len(),
        edgeward_body = String::from_utf8_lossy(beginning).as_ref(),
        "Request body, because of log_prompts"
    );
}

/// No new connections; `streams` running ones have `drain` to finish.
pub fn stopping(streams: usize, drain: Duration) {
    info!(
        message_id = STOPPING,
        edgeward_event = "stopping",
        edgeward_streams = streams,
        edgeward_drain_us = micros(drain),
        "Stopping, with {streams} streams running"
    );
}

/// A limit was hit. One line a limit and [`limits::LIMIT_LOG_INTERVAL`], with the hits since the last
/// one: clients can cause these at will. The metric counts each.
pub fn limit_hit(limit: Limit, request: Option<&str>) {
    thread_local! {
        static HITS: [Cell<(Option<Instant>, u64)>; Limit::ALL.len()] =
            const { [const { Cell::new((None, 0)) }; Limit::ALL.len()] };
    }
    let now = crate::time::now();
    let count = HITS.with(|hits| {
        let cell = &hits[limit as usize];
        let (told, count) = cell.get();
        let quiet = told.is_some_and(|told| now.saturating_duration_since(told) < limits::LIMIT_LOG_INTERVAL);
        cell.set(if quiet { (told, count + 1) } else { (Some(now), 0) });
        (!quiet).then_some(count + 1)
    });
    let Some(count) = count else { return };
    macro_rules! tell {
        ($level:ident) => {
            $level!(
                message_id = LIMIT_HIT,
                edgeward_event = "limit_hit",
                edgeward_limit = limit.as_str(),
                edgeward_request = request,
                edgeward_count = count,
                "Limit {} hit",
                limit.as_str()
            )
        };
    }
    if limit.is_the_clients() {
        tell!(info);
    } else {
        tell!(warn);
    }
}

/// `count` lines of the kind `name`, whose `MESSAGE_ID` is `id`, were held back, and no line of theirs has told so.
/// `loud`: there was a warning among them.
pub(super) fn held_back(name: &str, id: u128, count: u32, loud: bool) {
    macro_rules! tell {
        ($level:ident) => {
            $level!(
                message_id = HELD_BACK,
                edgeward_event = "held_back",
                edgeward_kind = name,
                edgeward_kind_id = format_args!("{id:032x}"),
                edgeward_held_back = count,
                "{count} more lines of the kind {name} were held back"
            )
        };
    }
    if loud {
        tell!(warn);
    } else {
        tell!(info);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::HashSet;

    use super::super::line::tests::lines;
    use super::*;

    /// A usual one.
    pub const RECORD: Record<'static> = Record {
        request: "r-1",
        client: None,
        dialect: "openai_chat",
        model: "llama3.2:3b",
        target: Some("cloud"),
        place: Some("cloud"),
        attempts: "box:oom,cloud:committed",
        status: Some(200),
        outcome: Outcome::Answered,
        cause: None,
        ttft: Some(Duration::from_micros(1234)),
        took: Duration::from_millis(20),
        bytes: 4096,
        usage: Usage { prompt: None, completion: Some(20) },
    };

    fn after_time(line: &str) -> &str {
        line.split_once(' ').unwrap().1
    }

    #[test]
    fn a_request_is_one_line() {
        let shown = lines(|| {
            request_done(&RECORD);
            request_done(&Record {
                outcome: Outcome::Broken,
                cause: Some(Cause::Reset),
                ttft: None,
                ..RECORD
            });
        });
        assert_eq!(
            after_time(&shown[0]),
            "INFO  request_done request=r-1 dialect=openai_chat model=llama3.2:3b target=cloud place=cloud \
             attempts=box:oom,cloud:committed status=200 outcome=answered ttft_us=1234 took_us=20000 \
             bytes=4096 completion_tokens=20\n"
        );
        assert!(after_time(&shown[1]).starts_with("WARN  request_done"), "{}", shown[1]);
        assert!(shown[1].contains("outcome=broken cause=reset took_us"), "{}", shown[1]);
    }

    #[test]
    fn a_failed_attempt_is_one_line() {
        let shown = lines(|| {
            attempt_failed(
                "r-1",
                "box",
                &Failure::with(Cause::Oom, "CUDA oom"),
                Duration::from_micros(7),
                false,
            );
            attempt_failed("r-2", "box", &Failure::new(Cause::ClientGone), Duration::ZERO, false);
            for (cause, mistyped) in [(Cause::ModelMissing, true), (Cause::ContextOverflow, false)] {
                attempt_failed("r-3", "box", &Failure::new(cause), Duration::ZERO, mistyped);
            }
            attempt_failed("r-3", "box", &Failure::new(Cause::ModelMissing), Duration::ZERO, false);
            target_misconfigured("cloud", &Failure::new(Cause::Unauthorized));
        });
        assert_eq!(
            after_time(&shown[0]),
            "WARN  attempt_failed request=r-1 target=box cause=oom detail=\"CUDA oom\" took_us=7\n"
        );
        assert_eq!(
            after_time(&shown[1]),
            "INFO  attempt_failed request=r-2 target=box cause=client_gone took_us=0\n"
        );
        let levels: Vec<_> =
            shown[2..5].iter().map(|line| after_time(line).split_once(' ').unwrap().0).collect();
        assert_eq!(levels, ["INFO", "INFO", "WARN"]);
        assert_eq!(after_time(&shown[5]), "ERROR target_misconfigured target=cloud cause=unauthorized\n");
    }

    #[tokio::test(start_paused = true)]
    async fn a_limit_is_told_once_in_a_while_with_its_count() {
        // A thread of its own has counts of its own, and this is one.
        let (log, kept) = super::super::line::tests::kept();
        let _guard = tracing::subscriber::set_default(log);
        for _ in 0..1000 {
            limit_hit(Limit::MaxBody, Some("r-1"));
        }
        limit_hit(Limit::Connections, None);
        limit_hit(Limit::WriteTime, Some("r-2"));
        tokio::time::advance(limits::LIMIT_LOG_INTERVAL).await;
        limit_hit(Limit::MaxBody, None);
        let shown: Vec<String> =
            kept.lock().unwrap().iter().map(|line| after_time(line).to_owned()).collect();
        assert_eq!(
            shown,
            [
                "WARN  limit_hit limit=max_body request=r-1 count=1\n",
                "WARN  limit_hit limit=connections count=1\n",
                "INFO  limit_hit limit=write_time request=r-2 count=1\n",
                "WARN  limit_hit limit=max_body count=1000\n",
            ]
        );
    }

    /// Every id of all events, with its name: the catalog is tested against this.
    pub fn all() -> Vec<String> {
        let quoted = |line: &str| line.split('"').nth(1).map(str::to_owned);
        let files = [
            include_str!("death_events.rs"),
            include_str!("discovery_events.rs"),
            include_str!("events.rs"),
            include_str!("health_events.rs"),
            include_str!("load_events.rs"),
            include_str!("memory_events.rs"),
            include_str!("morning.rs"),
            include_str!("operator_events.rs"),
            include_str!("reload_events.rs"),
            include_str!("resume_events.rs"),
            include_str!("translate_events.rs"),
        ];
        let ids: Vec<String> = files
            .iter()
            .flat_map(|file| file.lines())
            .filter(|line| line.starts_with("pub const ") && line.contains(": &str = \""))
            .filter_map(quoted)
            .collect();
        assert!(ids.len() >= 12, "{ids:?}");
        ids
    }

    #[test]
    fn journalctl_explains_each_event() {
        let catalog = include_str!("../../systemd/edgeward.catalog");
        let entries: Vec<&str> = catalog.split("\n-- ").skip(1).collect();
        let ids = all();
        for id in &ids {
            let entry = entries.iter().find(|entry| entry.starts_with(id.as_str()));
            let entry = entry.unwrap_or_else(|| panic!("no entry for {id} in systemd/edgeward.catalog"));
            for part in ["Subject: ", "What happened: ", "What edgeward did: ", "What to look at: "] {
                assert!(entry.contains(part), "{id}: no {part:?}");
            }
            assert!(entry.contains("Defined-By: edgeward"), "{id}");
        }
        for entry in &entries {
            assert!(ids.iter().any(|id| entry.starts_with(id.as_str())), "nothing logs {:.40}", entry);
        }
    }

    #[test]
    fn ids_are_distinct() {
        let ids = all();
        assert_eq!(ids.iter().collect::<HashSet<_>>().len(), ids.len());
        for id in ids {
            assert!(id.len() == 32 && id.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)));
        }
    }
}
