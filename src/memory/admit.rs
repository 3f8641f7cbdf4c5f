//! Whether a request may go to a local model server: what it would load, what it needs beside what is there.
//!
//! Most of the watchdog's work: a model that is loaded takes memory faster than any trend can tell, so that the
//! request that asks for it has to be looked at before it is sent.

mod decide;
mod made;
mod model;
mod server;
mod waits;

use std::time::{Duration, Instant};

use super::need::Cache;
use crate::health::Pressure;

pub use server::Server;

/// What a request asks of a model server, as far as its memory goes.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The model, by the server's own name.
    pub model: &'a str,
    /// Its prompt, in tokens, as estimated.
    pub prompt: u64,
    /// Its own limit of the answer, in tokens.
    pub output_max: Option<u64>,
    /// Whether it brings an image.
    pub image: bool,
    /// Options that an Ollama runner is started with; others than the resident one's load it again.
    pub options: Runner,
}

/// Ollama's options that a model is loaded by; `None`: the server's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Runner {
    /// `num_ctx`, in tokens.
    pub num_ctx: Option<u32>,
    /// `num_batch`.
    pub num_batch: Option<u32>,
    /// `num_gpu`, in layers.
    pub num_gpu: Option<i32>,
}

/// How the box stands at this moment.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// By the predictor.
    pub pressure: Pressure,
    /// Free where a model goes, in KiB: the GPU's own memory, else the box's.
    pub free: Option<u32>,
    /// All of it, in KiB.
    pub total: Option<u32>,
    /// To be left free there, in KiB.
    pub floor: u32,
    /// Free beside it and above that floor, in KiB: the box's memory, where a card is too small for all of a model and
    /// the server lets the processor have the rest. `None` where there is one memory only.
    pub spill: Option<u32>,
    /// What loads under way still take, at all servers of this box, in KiB: the sum of their [`Server::promised`].
    pub promised: u32,
    /// Somebody off this box would get the request: what only costs time here is told, rather than left to the server.
    pub elsewhere: bool,
}

/// What becomes of a request at one local server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It may go.
    Goes,
    /// Its model has to be loaded first, which needs this much, in KiB, and fits.
    Loads(u32),
    /// Not now.
    Not(NoRoom),
}

/// Why a request does not go to a local server now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRoom {
    /// Red: nothing new.
    Red,
    /// Amber, and its model is not loaded.
    NotResident,
    /// Amber, and it is not small: this many tokens.
    NotSmall(u64),
    /// Its model, or what its prompt takes beyond it, needs this much and there is that much, in KiB.
    TooLarge {
        /// To be loaded.
        need: u32,
        /// Free for it.
        free: u32,
    },
    /// To load it would throw out a model that is answering.
    Evicts,
    /// Its model, or another one, is being loaded.
    Loading,
    /// All slots are taken: one is free in about this long, by what is known of the answers under way.
    Busy(Duration),
    /// The server's cache for tokens is full.
    Tokens,
}

/// A request that is at the server. To be given back by [`Server::ends`], whatever became of it.
#[derive(Debug)]
#[must_use]
pub struct Ticket {
    /// By its number; `None`: so many are in use that nothing is kept of it.
    model: Option<u64>,
    /// Reserved for it.
    tokens: u64,
    image: bool,
    started: Instant,
    /// It found no free slot.
    queued: bool,
    /// Since when it has its first token.
    answers: Option<Instant>,
}

impl Ticket {
    /// Whether it found no free slot: it waits at the server.
    #[must_use]
    pub const fn is_queued(&self) -> bool {
        self.queued
    }
}

/// How a request that was at the server went.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// The prompt's tokens, by its own usage.
    pub prompt: Option<u64>,
    /// The answer's tokens, likewise.
    pub output: Option<u64>,
    /// How much more memory was in use at its height than before it, in KiB, where it was alone and that was seen. Nobody
    /// fills it in yet: samples are up to a second apart, and what an image takes may have come and gone between two.
    pub grew: Option<u32>,
    /// It was answered to its end: how long that took, and how long it was, tells of others.
    pub whole: bool,
    /// It ended for lack of memory: by the error's text, or by a kill.
    pub out_of_memory: bool,
}

/// How a load went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Went {
    /// It is resident, and took this much, in KiB, where that was seen: the fall of what is free, at its height, with
    /// all of the model in that memory.
    Loaded(Option<u32>),
    /// For lack of memory it is not: by the error's text, or by a kill.
    OutOfMemory,
    /// It is not, for another reason, or nobody knows.
    Failed,
}

/// What a server was started with, as far as that is known. It does not say so itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// `OLLAMA_NUM_PARALLEL`: slots of each model.
    pub slots: Option<u32>,
    /// `OLLAMA_CONTEXT_LENGTH`, in tokens.
    pub context: Option<u32>,
    /// `OLLAMA_MAX_LOADED_MODELS`, `--models-max`.
    pub models: Option<u32>,
    /// `OLLAMA_KV_CACHE_TYPE`.
    pub cache: Cache,
}

#[cfg(test)]
mod tests;
