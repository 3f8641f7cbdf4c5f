//! What is known about each target; routing reads it and nothing else.

pub mod report;
pub mod store;

pub use report::{Change, Ended, News, Pressure, Standing, Summary, Why};
