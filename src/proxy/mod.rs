//! The shell around the pure rooms: sockets, timers, tasks.

pub mod upstream;
