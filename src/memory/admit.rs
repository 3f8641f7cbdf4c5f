//! Whether a request may go to a local model server: what it would load, what it needs beside what is there.
//!
//! Most of the watchdog's work: a model that is loaded takes memory faster than any trend can tell, so that the
//! request that asks for it has to be looked at before it is sent.

mod server;

use std::time::Duration;

use crate::health::Pressure;

pub use server::{Outcome, Server, Ticket, Went};

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
    /// How long a cloud that is there for this request usually takes to its first token; `None` without one.
    pub cloud: Option<Duration>,
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
    /// It would wait for a slot for about this long.
    Busy(Duration),
    /// The server's cache for tokens is full.
    Tokens,
}
