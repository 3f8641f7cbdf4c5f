//! Events of the search for local servers, told by what the search finds.

use tracing::info;

/// `target_found`: a local server was found on a usual port.
pub const TARGET_FOUND: &str = "b52c9ab3d9fb4f44a1c9f4a3a1f3d0a7";
/// `stranger_found`: what answers on a usual port is no target.
pub const STRANGER_FOUND: &str = "d15c7a90be3f4d268a41f7c2e8b06359";

/// A server answers on a usual port, and has said what it is; it is a candidate from here on.
pub fn target_found(target: &str, server: &str, url: &str) {
    info!(
        message_id = TARGET_FOUND,
        edgeward_event = "target_found",
        edgeward_target = target,
        edgeward_server = server,
        edgeward_url = url,
        "Found {server} at {url}: target {target}"
    );
}

/// What answers on a usual port is no target: it is no model server that is known here, or wants a key (`locked`).
pub fn stranger_found(port: u16, what: &str, locked: bool) {
    let next = if locked { "; write a [[target]] with its key to use it" } else { "" };
    info!(
        message_id = STRANGER_FOUND,
        edgeward_event = "stranger_found",
        edgeward_port = port,
        edgeward_detail = what,
        "On port {port} there is {what}{next}"
    );
}
