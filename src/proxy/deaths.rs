//! A model server's death: who is told of it, and what becomes of the attempts at it.

use std::time::Instant;

use super::gateway::Process;
use crate::memory::kernel::Notice;

/// The kernel has said something, by way of the helper or of its own log.
pub fn noticed(_process: &Process, _notice: &Notice, _now: Instant) {}
