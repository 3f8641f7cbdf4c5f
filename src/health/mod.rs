//! What is known about each target; routing reads it and nothing else.

pub mod breaker;
mod clocks;
pub mod death;
mod jitter;
pub mod latency;
mod model;
pub mod probe;
pub mod report;
mod server;
mod servers;
pub mod share;
pub mod sketch;
pub mod store;
mod strain;
mod target;
pub mod usual;
pub mod weights;
pub mod window;

pub use report::{Change, Ended, News, Pressure, Standing, Summary, View, Why};
pub use sketch::Sketch;
pub use strain::Restricted;
