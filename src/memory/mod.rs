//! Whether memory is about to run out: samples, what is usual, what follows. Pure: neither files nor a clock.
//!
//! `watch::sampler` reads, `step` judges, `proxy::pressure` acts on it. A recorded trace replays to the same decisions,
//! since all that `step` knows is its state, one sample and the time.

pub mod admit;
pub mod advice;
pub mod board;
pub mod facts;
pub mod gpu;
pub mod kept;
pub mod kernel;
mod machine;
pub mod need;
mod numbers;
mod predict;
mod reason;
pub mod record;
pub mod recorder;
mod ring;
pub mod sample;
mod terms;
mod usual;

pub use predict::{Decision, Event, State, step};
pub use reason::Reason;
pub use sample::{Axis, Field, Quality, Sample};
pub use terms::Terms;

#[cfg(test)]
mod tests;
