//! A client's request body: read whole, bounded in size, time and total memory, kept for replay.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::Body as _;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::config::Limits;
use crate::dialect::reply::Problem;
use crate::limits::KIB;
use crate::observe::Limit;

/// Memory that several requests share, in KiB; first come, first served, with a bounded wait.
#[derive(Clone, Debug)]
pub struct Budget {
    kib: std::sync::Arc<Semaphore>,
    total: usize,
}

impl Budget {
    /// A budget of `bytes`.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        let total = bytes / KIB;
        Budget { kib: std::sync::Arc::new(Semaphore::new(total)), total }
    }

    /// Room for `bytes`, waited for at most `wait`.
    pub async fn reserve(&self, bytes: usize, wait: Duration) -> Option<Reserved> {
        let kib = u32::try_from(bytes.div_ceil(KIB)).ok()?;
        if kib as usize > self.total {
            return None;
        }
        if let Ok(permit) = std::sync::Arc::clone(&self.kib).try_acquire_many_owned(kib) {
            return Some(Reserved(permit));
        }
        let waiting = std::sync::Arc::clone(&self.kib).acquire_many_owned(kib);
        tokio::time::timeout(wait, waiting).await.ok()?.ok().map(Reserved)
    }

    /// Bytes in use.
    #[must_use]
    pub fn in_use(&self) -> usize {
        (self.total - self.kib.available_permits()) * KIB
    }
}

/// Reserved memory; given back on drop.
#[derive(Debug)]
pub struct Reserved(OwnedSemaphorePermit);

impl Reserved {
    fn add(&mut self, more: Reserved) {
        self.0.merge(more.0);
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
    let mut room = known.unwrap_or(STEP.min(limits.max_body));
    let mut reserved = memory.reserve(room, limits.queue_time).await.ok_or_else(|| no_memory(limits))?;
    let mut bytes = BytesMut::with_capacity(room.min(STEP));
    while let Some(frame) = incoming.frame().await {
        let frame = frame.map_err(|e| BodyFault {
            problem: Problem::new(400, "body_broken", format!("the request body could not be read: {e}")),
            limit: None,
        })?;
        let Ok(data) = frame.into_data() else { continue };
        if bytes.len() + data.len() > limits.max_body {
            return Err(too_large(limits));
        }
        while bytes.len() + data.len() > room {
            let more = memory.reserve(STEP, limits.queue_time).await.ok_or_else(|| no_memory(limits))?;
            reserved.add(more);
            room += STEP;
        }
        if let (true, Some(known)) = (bytes.is_empty(), known) {
            // The first bytes have come: the rest is worth its memory now.
            bytes.reserve(known);
        }
        bytes.extend_from_slice(&data);
    }
    Ok(HeldBody { bytes: bytes.freeze(), reserved: Some(reserved) })
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
