//! The events of translation between dialects.

use tracing::info;

/// `parameters_dropped`: a target of another dialect was not sent all that its client asked for.
pub const PARAMETERS_DROPPED: &str = "6f0d3b9e72c8415fa1e95b47d38c02a6";

/// `target` is asked in the dialect `wire`, without `dropped`: what, and why, one after the other.
pub fn dropped(request: &str, target: &str, wire: &str, dropped: &str) {
    info!(
        message_id = PARAMETERS_DROPPED,
        edgeward_event = "parameters_dropped",
        edgeward_request = request,
        edgeward_target = target,
        edgeward_dialect = wire,
        edgeward_detail = dropped,
        "`{target}` is asked in its own dialect ({wire}), without {dropped}"
    );
}
