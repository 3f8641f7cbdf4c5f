//! What model servers say of themselves, read from their answers: what is resident, slots, queues, caches, shapes.
//!
//! Read by [`crate::wire::json::Cursor`], which is bounded in depth and keeps nothing; at most
//! [`crate::limits::FACTS_BYTES`] of an answer are looked at. What has another form than the server's is not said.

mod date;
mod gguf;
mod llamacpp;
mod metrics;
mod ollama;

use super::need::Layers;
use crate::limits::{ADMIT_RESIDENT, FACTS_BYTES, MODEL_NAME_BYTES};
use crate::wire::json::{Cursor, Stop, readable};

pub use gguf::gguf;
pub use llamacpp::{llamacpp_props, llamacpp_slots, openai_models};
pub use metrics::metrics;
pub(super) use ollama::bare;
pub use ollama::{ollama_cloud, ollama_ps, ollama_show, ollama_size};

/// What a server said in one look. `None`: it did not say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Which models are loaded: all of them, or the first [`ADMIT_RESIDENT`].
    pub resident: Option<Vec<Resident>>,
    /// It has models that are not loaded, and loads them when they are asked for. Ollama always does.
    pub router: bool,
    /// Answers at once: of the server, with Ollama of each model.
    pub slots: Option<u32>,
    /// Of those, how many are taken.
    pub busy: Option<u32>,
    /// Requests that wait for one.
    pub waiting: Option<u32>,
    /// Tokens that its cache holds, for all requests together.
    pub cache_tokens: Option<u64>,
    /// How full that is, in thousandths.
    pub cache_used: Option<u16>,
    /// Requests that it took back for lack of cache, ever.
    pub preemptions: Option<u64>,
    /// Tokens that it has computed, of prompts and of answers: of what runs, or ever. Only that it rises means something.
    pub work: Option<u64>,
}

/// A model that is loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resident {
    /// By the server's name, cut at [`MODEL_NAME_BYTES`].
    pub name: String,
    /// What it takes, in KiB; 0: not known.
    pub size: u32,
    /// Of that, in the GPU's memory.
    pub size_gpu: u32,
    /// Tokens of context a request has.
    pub context: Option<u32>,
    /// When it is unloaded if nobody asks for it, in seconds since 1970 by the server's clock.
    pub expires: Option<u64>,
}

/// As much of an answer as is looked at.
fn bounded(body: &[u8]) -> Cursor<'_> {
    Cursor::new(body.get(..body.len().min(FACTS_BYTES)).unwrap_or_default())
}

/// A name, decoded; `None` where there is another value.
fn name(at: &mut Cursor<'_>) -> Result<Option<String>, Stop> {
    Ok(at.string()?.map(|name| {
        let mut name = readable(name.raw.get(..name.raw.len().min(MODEL_NAME_BYTES)).unwrap_or_default());
        name.shrink_to_fit();
        name
    }))
}

/// A number that fits.
fn number(at: &mut Cursor<'_>) -> Result<Option<u32>, Stop> {
    Ok(at.number()?.map(|number| u32::try_from(number).unwrap_or(u32::MAX)))
}

/// Takes one more, if there is room.
fn push(list: &mut Vec<Resident>, resident: Resident) {
    if list.len() < ADMIT_RESIDENT && !resident.name.is_empty() {
        list.push(resident);
    }
}

/// One value of an architecture: a number, a truth, or an array of those.
fn layer_value(layers: &mut Layers, key: &str, at: &mut Cursor<'_>) -> Result<(), Stop> {
    if at.peek()? == b'[' {
        at.array(|at| {
            let value = scalar(at)?;
            layers.element(key, value);
            Ok(())
        })?;
    } else {
        let value = scalar(at)?;
        layers.number(key, value);
    }
    Ok(())
}

/// A number, or 1 for true; 0 for all else.
fn scalar(at: &mut Cursor<'_>) -> Result<u64, Stop> {
    match at.peek()? {
        b't' => at.is_true().map(u64::from),
        _ => at.number().map(|number| number.unwrap_or(0)),
    }
}

#[cfg(test)]
mod tests;
