//! What edgeward watches beside its requests. I/O only: what follows from it is decided elsewhere.

pub mod alarm;
pub mod helper;
pub mod places;
pub mod process;
pub mod reach;
pub mod sampler;
pub mod sockets;
pub mod stalls;
