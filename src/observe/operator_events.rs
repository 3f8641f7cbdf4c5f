//! What operators set going: events of drills, each with its fixed `MESSAGE_ID`.

use tracing::warn;

/// `drill_started`: attempts at a target fail on purpose from here on.
pub const DRILL_STARTED: &str = "5d7c21f0b38e4a9c8e16f4d20a97c3b1";
/// `drill_ended`: they do not any more; what clients saw.
pub const DRILL_ENDED: &str = "0e4f9a6d72c14b5fa3d8815be6c07f92";

/// `what`: how much of what goes to `target` fails, in words. A warning, since it is by far not usual.
pub fn drill_started(target: &str, what: &str) {
    warn!(
        message_id = DRILL_STARTED,
        edgeward_event = "drill_started",
        edgeward_target = target,
        edgeward_detail = what,
        "A drill fails {what} to {target}"
    );
}

/// `drilled` requests were failed at `target`; `what` became of them, in words.
pub fn drill_ended(target: &str, drilled: u32, what: &str) {
    warn!(
        message_id = DRILL_ENDED,
        edgeward_event = "drill_ended",
        edgeward_target = target,
        edgeward_drilled = drilled,
        edgeward_detail = what,
        "The drill at {target} is over: {what}"
    );
}
