//! Simulated model servers: faults that real ones do not show on demand, and healthy ones beside them.
//!
//! A [`script`] says byte for byte what a server does; [`play`] turns it into steps; [`server`]
//! performs them on a socket and counts what its peer did; [`model`] writes the scripts of a
//! healthy server; [`cases`] holds the reported faults and the program's own; [`demo`] holds the
//! scenes that `edgeward demo` plays.
//! Only in builds with the feature `sim`: the demo and the tests.

pub mod cases;
pub mod demo;
pub mod model;
pub mod play;
pub mod request;
pub mod script;
pub mod server;

mod event;
mod replies;
