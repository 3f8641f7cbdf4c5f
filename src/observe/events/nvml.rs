//! The NVML helper's events.

use tracing::{info, warn};

use super::{
    GPU_BLIND, GPU_DOWN, GPU_SEEN, GPU_UP, HELPER_READY, HELPER_REPLACED, HELPER_RESTARTED, HELPER_STALE,
    HELPER_UNAVAILABLE,
};

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

/// There is no helper, and nvidia-smi stands in for it.
pub fn helper_replaced() {
    warn!(
        message_id = HELPER_REPLACED,
        edgeward_event = "helper_replaced",
        "No NVML helper: nvidia-smi tells of the GPU's memory in its place, and nothing else of it"
    );
}

/// It has ended: why, and after how many seconds it is started again.
pub fn helper_restarted(why: &str, pause: u64) {
    warn!(
        message_id = HELPER_RESTARTED,
        edgeward_event = "helper_restarted",
        edgeward_detail = why,
        edgeward_pause_secs = pause,
        "The NVML helper is gone: {why}; it is started again in {pause} s"
    );
}

/// It has said nothing for so many seconds.
pub fn helper_stale(seconds: u64) {
    warn!(
        message_id = HELPER_STALE,
        edgeward_event = "helper_stale",
        edgeward_silent_secs = seconds,
        "The NVML helper has said nothing for {seconds} s: a GPU's memory is not known; is the driver stuck?"
    );
}

/// Nothing is known of any GPU; that is none of the GPUs' fault.
pub fn gpu_blind(why: &str, code: u32, remedy: &str) {
    warn!(
        message_id = GPU_BLIND,
        edgeward_event = "gpu_blind",
        edgeward_detail = why,
        edgeward_nvml_code = code,
        edgeward_remedy = remedy,
        "The GPUs' memory is not known: {why} (NVML {code}); what runs on them runs on. {remedy}"
    );
}

/// The GPUs' figures are there.
pub fn gpu_seen() {
    info!(message_id = GPU_SEEN, edgeward_event = "gpu_seen", "The GPUs' figures are there");
}

/// A GPU is down, in words behind its name.
pub fn gpu_down(device: u8, fault: &str) {
    warn!(
        message_id = GPU_DOWN,
        edgeward_event = "gpu_down",
        edgeward_gpu = device,
        edgeward_detail = fault,
        "GPU {device} {fault}: what runs on it fails until it is reset"
    );
}

/// It is up again.
pub fn gpu_up(device: u8) {
    info!(message_id = GPU_UP, edgeward_event = "gpu_up", edgeward_gpu = device, "GPU {device} is up again");
}
