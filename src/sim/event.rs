//! What a simulated server tells of what happens to it.

use std::time::Duration;

/// One thing that happened at a server, for who asked to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SimEvent {
    /// A connection was accepted; they are numbered from 0.
    Accepted(u64),
    /// A request was received on this connection.
    Requested(u64),
    /// This much of its script is being written, in one write.
    Writing(Vec<u8>),
    /// Its script says nothing for this long.
    Pausing(Duration),
    /// Its script is over, and the connection is kept for the next request.
    Kept,
    /// Its script is over, and closes the connection.
    Closing,
    /// Its script is over, and resets the connection.
    Resetting,
    /// Its peer closed or reset the connection before the script's end. How many did so far is in [`Counts`](super::server::Counts).
    HungUp,
}
