//! Admission: each rule once, then orders that nobody thought of.

use std::time::{Duration, Instant};

use super::*;
use crate::config::Kind;
use crate::limits;
use crate::memory::facts::{Facts, Resident};
use crate::memory::need::Shape;

mod loads;
mod orders;
mod rules;

const MIB: u32 = 1024;
const GIB: u32 = 1024 * MIB;

fn asked(model: &str) -> Asked<'_> {
    Asked { model, prompt: 100, output_max: Some(100), image: false, options: Runner::default() }
}

/// 16 GiB free of 32, with a cloud.
fn room() -> Room {
    Room {
        pressure: Pressure::Green,
        free: Some(16 * GIB),
        total: Some(20 * GIB),
        floor: GIB,
        spill: None,
        promised: 0,
        elsewhere: true,
    }
}

fn with(pressure: Pressure) -> Room {
    Room { pressure, ..room() }
}

fn free(kib: u32) -> Room {
    Room { free: Some(kib), ..room() }
}

fn alone() -> Room {
    Room { elsewhere: false, ..room() }
}

fn resident(name: &str, size: u32) -> Resident {
    Resident { name: name.to_owned(), size, size_gpu: size, context: Some(4096), expires: None }
}

fn has(list: &[Resident]) -> Facts {
    Facts { resident: Some(list.to_vec()), ..Facts::default() }
}

/// An Ollama that has `list`, and says that each of `models` takes 4 GiB of weights and has no cache to speak of.
fn ollama(list: &[Resident], models: &[&str], now: Instant) -> Server {
    let mut server = Server::new(Kind::Ollama);
    server.heard(&has(list), now);
    let shape = Shape { weights: 4 * GIB, context: 131_072, ..Shape::default() };
    models.iter().for_each(|model| server.shape(model, Some(&shape), now));
    server
}

fn later(now: Instant, seconds: u64) -> Instant {
    now + Duration::from_secs(seconds)
}
