//! The NVML helper's events.

use tracing::{info, warn};

use super::{HELPER_READY, HELPER_UNAVAILABLE};

/// The helper is there, of this version. One of another release than edgeward's is a warning.
pub fn helper_ready(version: &str) {
    let own = env!("CARGO_PKG_VERSION");
    macro_rules! tell {
        ($level:ident, $($message:tt)+) => {
            $level!(
                message_id = HELPER_READY,
                edgeward_event = "helper_ready",
                edgeward_version = own,
                edgeward_helper = version,
                $($message)+
            )
        };
    }
    if version == own {
        tell!(info, "The NVML helper is there, version {version}");
    } else {
        tell!(
            warn,
            "The NVML helper is there, but of version {version} where edgeward is {own}: install both from one release"
        );
    }
}

/// There is no helper: why, and what helps.
pub fn helper_unavailable(why: &str, remedy: &str) {
    warn!(
        message_id = HELPER_UNAVAILABLE,
        edgeward_event = "helper_unavailable",
        edgeward_detail = why,
        edgeward_remedy = remedy,
        "No NVML helper: {why}; clients are served without the GPU driver's figures. {remedy}"
    );
}
