//! The events of requests that a target is sent otherwise than their clients wrote them.

use tracing::info;

/// `parameters_dropped`: a target of another dialect was not sent all that its client asked for.
pub const PARAMETERS_DROPPED: &str = "6f0d3b9e72c8415fa1e95b47d38c02a6";

/// `limit_fitted`: a target was asked for a shorter answer than its client wished for.
pub const LIMIT_FITTED: &str = "b3d94e61f7a0482c9e5d17c260fa83be";

/// `target` refused `wish` tokens of answer as more than fit, and is asked again for `tokens`.
pub fn fitted(request: &str, target: &str, wish: u64, tokens: u64) {
    info!(
        message_id = LIMIT_FITTED,
        edgeward_event = "limit_fitted",
        edgeward_request = request,
        edgeward_target = target,
        edgeward_detail = format_args!("max_tokens={tokens} instead of {wish}"),
        "`{target}` refused max_tokens={wish} as more than fits, and is asked again with max_tokens={tokens}"
    );
}

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
