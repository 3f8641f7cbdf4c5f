//! What is known about each target; routing reads it and nothing else.

pub mod store;
