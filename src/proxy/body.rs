//! A client's request body: read whole, bounded in size, time and total memory, kept for replay.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::Body as _;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::config::Limits;
use crate::dialect::reply::Problem;
use crate::limits::{KIB, MIB};
use crate::observe::Limit;

/// Memory that several requests share, in KiB; first come, first served, with a bounded wait.
///
/// A part of it is kept for small pieces, so that a few large ones, or clients that only announce them, leave room
/// for everybody's chats.
#[derive(Clone, Debug)]
pub struct Budget {
    any: Arc<Semaphore>,
    small: Arc<Semaphore>,
    total: usize,
}

/// What counts as small, in bytes: a long chat's whole history, without pictures.
const SMALL: usize = MIB;
/// The part of a budget that is kept for small pieces.
const SMALL_PART: usize = 16;

impl Budget {
    /// A budget of `bytes`, in which a piece of `largest` bytes always finds room once all others are gone.
    #[must_use]
    pub fn new(bytes: usize, largest: usize) -> Self {
        let total = bytes / KIB;
        let small = (total / SMALL_PART).min(total.saturating_sub(largest.div_ceil(KIB)));
        Budget { any: Arc::new(Semaphore::new(total - small)), small: Arc::new(Semaphore::new(small)), total }
    }

    /// Room for `bytes` of a piece that is, or has become, `whole` bytes long; waited for at most `wait`.
    pub async fn reserve(&self, bytes: usize, whole: usize, wait: Duration) -> Option<Reserved> {
        let kib = u32::try_from(bytes.div_ceil(KIB)).ok()?;
        if let Ok(permit) = Arc::clone(&self.any).try_acquire_many_owned(kib) {
            return Some(Reserved { any: Some(permit), small: None });
        }
        if whole <= SMALL
            && let Ok(permit) = Arc::clone(&self.small).try_acquire_many_owned(kib)
        {
            return Some(Reserved { any: None, small: Some(permit) });
        }
        let waiting = Arc::clone(&self.any).acquire_many_owned(kib);
        let permit = tokio::time::timeout(wait, waiting).await.ok()?.ok()?;
        Some(Reserved { any: Some(permit), small: None })
    }

    /// Bytes in use.
    #[must_use]
    pub fn in_use(&self) -> usize {
        (self.total - self.any.available_permits() - self.small.available_permits()) * KIB
    }
}

/// Reserved memory; given back on drop.
#[derive(Debug)]
pub struct Reserved {
    any: Option<OwnedSemaphorePermit>,
    small: Option<OwnedSemaphorePermit>,
}

impl Reserved {
    /// Both are one from here on.
    pub fn add(&mut self, more: Reserved) {
        for (has, more) in [(&mut self.any, more.any), (&mut self.small, more.small)] {
            match (has.as_mut(), more) {
                (Some(has), Some(more)) => has.merge(more),
                (None, more) => *has = more,
                (Some(_), None) => {}
            }
        }
    }
}

/// A whole request body and the memory that was reserved for it.
#[derive(Debug)]
pub struct HeldBody {
    /// All of it.
    pub bytes: Bytes,
    /// Given back when the body need not be replayed any more.
    pub reserved: Option<Reserved>,
}

/// Why a body was not taken.
#[derive(Debug)]
pub struct BodyFault {
    /// What the client is told.
    pub problem: Problem,
    /// The limit that it met.
    pub limit: Option<Limit>,
}

/// Reads a body whole.
///
/// # Errors
/// 413 over `max_body`, 408 over `body_time`, 503 when `body_memory` stays used up for `queue_time`,
/// 400 for a body that breaks off or is not framed as HTTP wants it.
pub async fn read(incoming: Incoming, limits: &Limits, memory: &Budget) -> Result<HeldBody, BodyFault> {
    match tokio::time::timeout(limits.body_time, read_all(incoming, limits, memory)).await {
        Ok(result) => result,
        Err(_) => Err(BodyFault {
            problem: Problem::new(
                408,
                "body_timeout",
                format!("the request body was not complete within {:?} (limits.body_time)", limits.body_time),
            ),
            limit: Some(Limit::BodyTime),
        }),
    }
}

/// How much more is reserved at a time for a body of unknown length, in bytes.
const STEP: usize = 64 * KIB;

async fn read_all(mut incoming: Incoming, limits: &Limits, memory: &Budget) -> Result<HeldBody, BodyFault> {
    let hint = incoming.size_hint();
    if hint.lower() > limits.max_body as u64 {
        return Err(too_large(limits));
    }
    let known = hint.exact().and_then(|bytes| usize::try_from(bytes).ok());
    let mut reserved: Option<Reserved> = None;
    let mut room = 0;
    let mut bytes = BytesMut::new();
    while let Some(frame) = incoming.frame().await {
        let frame = frame.map_err(|e| BodyFault {
            problem: Problem::new(400, "body_broken", format!("the request body could not be read: {e}")),
            limit: None,
        })?;
        let Ok(data) = frame.into_data() else { continue };
        let length = bytes.len() + data.len();
        if length > limits.max_body {
            return Err(too_large(limits));
        }
        // Nothing is reserved for a body that is only announced. Once it begins, room for the whole of it is:
        // several that grew step by step could wait for each other.
        while length > room {
            let step = known.filter(|known| *known > room).map_or(STEP, |known| known - room);
            let whole = known.unwrap_or(length);
            let more =
                memory.reserve(step, whole, limits.queue_time).await.ok_or_else(|| no_memory(limits))?;
            match &mut reserved {
                Some(reserved) => reserved.add(more),
                None => reserved = Some(more),
            }
            room += step;
            bytes.reserve(step);
        }
        bytes.extend_from_slice(&data);
    }
    Ok(HeldBody { bytes: bytes.freeze(), reserved })
}

fn too_large(limits: &Limits) -> BodyFault {
    let message = format!(
        "the request body is larger than {} bytes; send less, or raise limits.max_body",
        limits.max_body
    );
    BodyFault { problem: Problem::new(413, "body_too_large", message), limit: Some(Limit::MaxBody) }
}

fn no_memory(limits: &Limits) -> BodyFault {
    let message = format!(
        "edgeward holds {} bytes of other requests' bodies and has no room for this one; try again shortly, or \
         raise limits.body_memory",
        limits.body_memory
    );
    BodyFault { problem: Problem::new(503, "body_memory", message), limit: Some(Limit::BodyMemory) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::ZERO;

    #[tokio::test(start_paused = true)]
    async fn large_pieces_leave_room_for_small_ones() {
        let budget = Budget::new(64 * MIB, 16 * MIB);
        let mut large = Vec::new();
        while let Some(room) = budget.reserve(16 * MIB, 16 * MIB, NOW).await {
            large.push(room);
        }
        assert_eq!(large.len(), 3);
        let rest = budget.reserve(12 * MIB, 12 * MIB, NOW).await.unwrap();
        assert!(budget.reserve(2 * MIB, 2 * MIB, NOW).await.is_none(), "what is kept is not for large ones");
        let mut small = budget.reserve(64 * KIB, 64 * KIB, NOW).await.unwrap();
        small.add(budget.reserve(64 * KIB, 128 * KIB, NOW).await.unwrap());
        assert_eq!(budget.in_use(), 60 * MIB + 128 * KIB);
        drop((large, rest, small));
        assert_eq!(budget.in_use(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn the_largest_piece_always_fits_in_the_end() {
        let budget = Budget::new(16 * MIB, 16 * MIB);
        assert!(budget.reserve(16 * MIB, 16 * MIB, NOW).await.is_some());
        assert!(budget.reserve(17 * MIB, 17 * MIB, NOW).await.is_none());
    }
}
