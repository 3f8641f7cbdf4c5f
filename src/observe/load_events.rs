//! Models that are loaded because of requests: events, each with its fixed `MESSAGE_ID`.

use std::time::Duration;

use tracing::{info, warn};

/// `model_loading`: a local server begins to load a model.
pub const MODEL_LOADING: &str = "519a93226f544dd0817705655615483e";
/// `model_loaded`: it is loaded.
pub const MODEL_LOADED: &str = "c60e07145c3986a33702b22ce2d12c2f";
/// `model_load_failed`: it could not be loaded.
pub const MODEL_LOAD_FAILED: &str = "5258e5ec46a449adfc36f348ac8d4c12";

/// `need`: what it is to take, in bytes. `by`: who loads it, in words.
pub fn model_loading(target: &str, model: &str, need: u64, by: &str) {
    info!(
        message_id = MODEL_LOADING,
        edgeward_event = "model_loading",
        edgeward_target = target,
        edgeward_model = model,
        edgeward_bytes = need,
        edgeward_detail = by,
        "{target} loads {model}, which is to take {} MiB: asked for by {by}",
        need >> 20
    );
}

/// After so long; `grew`: so much less memory is free than before, in bytes, where that is known.
pub fn model_loaded(target: &str, model: &str, took: Duration, grew: Option<u64>) {
    let words = grew.map(|bytes| format!(", {} MiB less are free", bytes >> 20)).unwrap_or_default();
    info!(
        message_id = MODEL_LOADED,
        edgeward_event = "model_loaded",
        edgeward_target = target,
        edgeward_model = model,
        edgeward_took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
        edgeward_bytes = grew,
        "{target} has loaded {model} after {:.1} s{words}",
        took.as_secs_f32()
    );
}

/// After so long.
pub fn model_load_failed(target: &str, model: &str, took: Duration, why: &str) {
    warn!(
        message_id = MODEL_LOAD_FAILED,
        edgeward_event = "model_load_failed",
        edgeward_target = target,
        edgeward_model = model,
        edgeward_took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
        edgeward_detail = why,
        "{target} could not load {model}: {why}"
    );
}
