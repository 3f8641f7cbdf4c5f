//! The events of the memory watchdog, each with its fixed `MESSAGE_ID`.

use std::io;
use std::path::Path;

use tracing::{info, warn};

/// `pressure`: the box's memory stands otherwise than before.
pub const PRESSURE: &str = "c41f0b7a95de4e3c8a627f13d0958b6e";
/// `memory_source_missing`: a file that tells of memory cannot be read.
pub const MEMORY_SOURCE_MISSING: &str = "7be2d9601c3f4a58b94c0e5f8271a6d3";
/// `memory_usual_unwritable`: the file of what is usual cannot be written.
pub const MEMORY_USUAL_UNWRITABLE: &str = "c5b8e0d94f6a47128e3d7a905b1c62f4";

/// `request_shed`: a local target was passed over because of the box's memory.
pub const REQUEST_SHED: &str = "1540973b0f1a2506c15b5fd183b5764e";

/// How memory stands, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// `green`, `amber` or `red`.
    pub pressure: &'static str,
    /// Why, in words.
    pub reason: &'static str,
    /// Where: `host`, `device` or `cgroup`.
    pub axis: &'static str,
    /// Available there.
    pub available: u64,
    /// All there is.
    pub total: u64,
    /// Low below this.
    pub floor: u64,
    /// How fast it falls, a second.
    pub rate: u64,
    /// Until it is used up, in milliseconds.
    pub exhausted_in: Option<u64>,
}

impl Memory {
    /// `312 MiB of 7620 MiB (host), low below 762 MiB, 98 MiB less each second, used up in 3 s`.
    #[must_use]
    pub fn in_words(&self) -> String {
        let mib = |bytes: u64| bytes >> 20;
        let (available, total, floor) = (mib(self.available), mib(self.total), mib(self.floor));
        let mut words = format!("{available} MiB of {total} MiB ({}), low below {floor} MiB", self.axis);
        if let Some(ms) = self.exhausted_in {
            let rate = mib(self.rate);
            words.push_str(&format!(", {rate} MiB less each second, used up in {} s", ms / 1000));
        }
        words
    }
}

/// It has changed.
pub fn pressure(memory: &Memory) {
    let words = memory.in_words();
    macro_rules! tell {
        ($level:ident, $then:literal) => {
            $level!(
                message_id = PRESSURE,
                edgeward_event = "pressure",
                edgeward_pressure = memory.pressure,
                edgeward_axis = memory.axis,
                edgeward_available = memory.available,
                edgeward_floor = memory.floor,
                edgeward_slope = memory.rate,
                edgeward_exhausted_in_ms = memory.exhausted_in,
                edgeward_detail = memory.reason,
                "Memory is {}: {}: {words}; {}",
                memory.pressure,
                memory.reason,
                $then
            )
        };
    }
    match memory.pressure {
        "red" => tell!(warn, "local targets get no new requests"),
        "amber" => tell!(warn, "local targets get only small requests for models that they have loaded"),
        _ => tell!(info, "local targets get requests as usual"),
    }
}

/// A source cannot be read: said once, until it could be.
pub fn source_missing(path: &Path, error: &io::Error, remedy: &str) {
    info!(
        message_id = MEMORY_SOURCE_MISSING,
        edgeward_event = "memory_source_missing",
        edgeward_path = %path.display(),
        edgeward_detail = %error,
        edgeward_remedy = remedy,
        "{} cannot be read ({error}); {remedy}",
        path.display()
    );
}

/// A request did not go to a local target: `why` in words, and memory's `pressure` at that time.
pub fn request_shed(request: &str, target: &str, why: &str, pressure: &str) {
    info!(
        message_id = REQUEST_SHED,
        edgeward_event = "request_shed",
        edgeward_request = request,
        edgeward_target = target,
        edgeward_pressure = pressure,
        edgeward_detail = why,
        "Request {request} does not go to {target}: {why}"
    );
}

/// What is usual is not kept: said once, until it was.
pub fn usual_unwritable(path: &Path, error: &io::Error) {
    info!(
        message_id = MEMORY_USUAL_UNWRITABLE,
        edgeward_event = "memory_usual_unwritable",
        edgeward_path = %path.display(),
        edgeward_detail = %error,
        "{}: {error}; after a restart edgeward learns anew what memory this box usually lives with",
        path.display()
    );
}
