//! What becomes of targets and of money: events, each with its fixed `MESSAGE_ID`.

use std::io;
use std::path::Path;
use std::time::Duration;

use tracing::{error, info, warn};

use super::events::micros;
use crate::cause::Cause;

/// `breaker_opened`: a target fails repeatedly and rests.
pub const BREAKER_OPENED: &str = "c4d2d7c26b9f4e54beca0031ac9dff7a";
/// `breaker_closed`: it answers again after its rest.
pub const BREAKER_CLOSED: &str = "780a3a5f4ef9491fb035972c3a1a6357";
/// `target_degraded`: a target fails now and then and gets less.
pub const TARGET_DEGRADED: &str = "90053b65d69045aeb5e6d5dee1c6104c";
/// `target_restored`: it gets all of its weight again.
pub const TARGET_RESTORED: &str = "b68a195ecc6c48f89c6147210ef7bb62";
/// `target_ejected`: a target answers, but far too slowly, and is passed over.
pub const TARGET_EJECTED: &str = "9601b7d582cb4ce1a27b20e92c54be21";
/// `target_readmitted`: it is fast enough again.
pub const TARGET_READMITTED: &str = "8e76e9cf62494dff99380495f67e1395";
/// `probe_down`: a target does not answer its probe.
pub const PROBE_DOWN: &str = "d70666c4cd2c456380e0dc03c2ac754a";
/// `probe_up`: it does again.
pub const PROBE_UP: &str = "1eb1dc8b38244ee2ab752d5545cedca4";
/// `spending_caps`: what targets that cost money may cost a day.
pub const SPENDING_CAPS: &str = "542fd158859b4c3f8725da0227b6d903";
/// `spent_unreadable`: what was spent today is not known.
pub const SPENT_UNREADABLE: &str = "4fa7fdd72d7d4e73b01dfe2944b0a0d1";
/// `spent_unwritable`: what is spent today cannot be kept over a restart.
pub const SPENT_UNWRITABLE: &str = "1263e7c781c6434f84d31e2c31ccb214";

/// `box`, or `box for llama3`.
fn of(target: &str, model: Option<&str>) -> String {
    model.map_or_else(|| target.to_owned(), |model| format!("{target} for {model}"))
}

/// It rests for `left` after failing repeatedly, last by `cause`.
pub fn breaker_opened(target: &str, model: Option<&str>, left: Duration, cause: Cause) {
    warn!(
        message_id = BREAKER_OPENED,
        edgeward_event = "breaker_opened",
        edgeward_target = target,
        edgeward_model = model,
        edgeward_cause = cause.as_str(),
        edgeward_left_us = micros(left),
        "{} rests for {} s after failing repeatedly: {}",
        of(target, model),
        left.as_secs(),
        cause.in_words()
    );
}

/// It answers again.
pub fn breaker_closed(target: &str, model: Option<&str>) {
    info!(
        message_id = BREAKER_CLOSED,
        edgeward_event = "breaker_closed",
        edgeward_target = target,
        edgeward_model = model,
        "{} answers again",
        of(target, model)
    );
}

/// It fails now and then: this much of its weight is left, in thousandths.
pub fn target_degraded(target: &str, model: Option<&str>, share: u16) {
    warn!(
        message_id = TARGET_DEGRADED,
        edgeward_event = "target_degraded",
        edgeward_target = target,
        edgeward_model = model,
        edgeward_share = share,
        "{} fails now and then: it gets {}.{} % of its weight",
        of(target, model),
        share / 10,
        share % 10
    );
}

/// All of its weight is back.
pub fn target_restored(target: &str, model: Option<&str>) {
    info!(
        message_id = TARGET_RESTORED,
        edgeward_event = "target_restored",
        edgeward_target = target,
        edgeward_model = model,
        "{} gets all of its weight again",
        of(target, model)
    );
}

/// It answers, but far too slowly: `why` in words.
pub fn target_ejected(target: &str, model: Option<&str>, why: &str) {
    warn!(
        message_id = TARGET_EJECTED,
        edgeward_event = "target_ejected",
        edgeward_target = target,
        edgeward_model = model,
        edgeward_detail = why,
        "{} is passed over: it {why}",
        of(target, model)
    );
}

/// It is fast enough again.
pub fn target_readmitted(target: &str, model: Option<&str>) {
    info!(
        message_id = TARGET_READMITTED,
        edgeward_event = "target_readmitted",
        edgeward_target = target,
        edgeward_model = model,
        "{} is fast enough again",
        of(target, model)
    );
}

/// Its probe failed repeatedly.
pub fn probe_down(target: &str, cause: Cause) {
    warn!(
        message_id = PROBE_DOWN,
        edgeward_event = "probe_down",
        edgeward_target = target,
        edgeward_cause = cause.as_str(),
        "{target} does not answer its probe: {}",
        cause.in_words()
    );
}

/// Its probe succeeds again.
pub fn probe_up(target: &str) {
    info!(
        message_id = PROBE_UP,
        edgeward_event = "probe_up",
        edgeward_target = target,
        "{target} answers its probe again"
    );
}

/// What each target that costs money may cost a day. Once, at the start.
pub fn spending_caps(caps: &[String]) {
    let caps = caps.join(", ");
    info!(
        message_id = SPENDING_CAPS,
        edgeward_event = "spending_caps",
        edgeward_detail = caps,
        "At most this much money a day: {caps}; `budget = {{ money_per_day = … }}` of a target changes it"
    );
}

/// The file with what was spent today cannot be read: nothing of it counts.
pub fn spent_unreadable(path: &Path, why: &str) {
    error!(
        message_id = SPENT_UNREADABLE,
        edgeward_event = "spent_unreadable",
        edgeward_path = %path.display(),
        edgeward_detail = why,
        "{}: {why}; what was spent today before this start is not counted",
        path.display()
    );
}

/// The file with what is spent today cannot be written.
pub fn spent_unwritable(path: &Path, error: &io::Error) {
    error!(
        message_id = SPENT_UNWRITABLE,
        edgeward_event = "spent_unwritable",
        edgeward_path = %path.display(),
        edgeward_detail = %error,
        "{}: {error}; after a restart what was spent today is not counted",
        path.display()
    );
}
