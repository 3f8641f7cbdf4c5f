//! What operators see: a line a request, a line a failed attempt, counters.
//!
//! Lines go to journald with native fields when it is our stderr, else to stderr as text. Neither a
//! journald that hangs nor a full pipe may hold up the one thread: such lines are lost, and counted.

use std::fmt;
use std::os::linux::fs::MetadataExt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use tracing::level_filters::LevelFilter;

pub mod death_events;
pub mod discovery_events;
pub mod events;
pub mod gpu_gauges;
pub mod health_events;
pub mod history;
mod journal;
mod kinds;
mod limit;
mod line;
pub mod load_events;
pub mod memory_events;
pub mod metrics;
pub mod morning;
pub mod operator_events;
mod recent;
pub mod reload_events;
pub mod resume_events;
mod sink;
mod tally;
pub mod target_gauges;
pub mod translate_events;

pub use events::Record;
pub use kinds::{Limit, Outcome, Shed, Turned};
pub use line::utc;
pub use metrics::{Gauges, Metrics};
pub use tally::Egress;

use recent::Recent;
use sink::Sink;

/// The environment variable that sets the level: `off`, `error`, `warn`, `info`, `debug` or `trace`.
pub const LEVEL_VARIABLE: &str = "EDGEWARD_LOG";

/// The target of our own debug lines. A release has no `debug!` in it, because it has none of other crates.
const FINE: &str = "edgeward::fine";

/// The target of what is written at every level but `off`: once a day costs a card nothing, and it is what an operator of a
/// box that writes little has to read.
const ALWAYS: &str = "edgeward::always";

/// A debug line: `what` happened, to which target, and why.
pub fn fine(what: &str, target: Option<&str>, why: &dyn fmt::Display) {
    tracing::info!(target: FINE, edgeward_target = target, edgeward_detail = %why, "{what}");
}

/// The level that an event counts as.
fn level_of(metadata: &tracing::Metadata<'_>) -> tracing::Level {
    if metadata.target() == FINE { tracing::Level::DEBUG } else { *metadata.level() }
}

/// Lines that could not be written, since the start.
static LOST: AtomicU64 = AtomicU64::new(0);

/// The last lines, whoever took them. No request's body is among them.
static RECENT: Mutex<Recent> = Mutex::new(Recent::new());

/// Where lines go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// journald if it is our stderr, else text.
    #[default]
    Auto,
    /// journald's native protocol.
    Journal,
    /// Text on stderr.
    Text,
}

/// What is logged, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Log {
    /// Our own events up to this; other crates' up to `WARN` at most.
    pub level: LevelFilter,
    /// Where to.
    pub format: Format,
}

impl Default for Log {
    fn default() -> Self {
        Log { level: LevelFilter::INFO, format: Format::Auto }
    }
}

/// A value of [`LEVEL_VARIABLE`] that is no level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownLevel(String);

impl fmt::Display for UnknownLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{LEVEL_VARIABLE}={:?} is none of off, error, warn, info, debug, trace", self.0)
    }
}

impl std::error::Error for UnknownLevel {}

impl Log {
    /// The default, with the level that [`LEVEL_VARIABLE`] asks for.
    ///
    /// # Errors
    /// When it is set to something else than a level.
    pub fn from_env() -> Result<Self, UnknownLevel> {
        match std::env::var_os(LEVEL_VARIABLE) {
            Some(value) if !value.is_empty() => {
                Ok(Log { level: level(&value.to_string_lossy())?, ..Log::default() })
            }
            _ => Ok(Log::default()),
        }
    }
}

fn level(text: &str) -> Result<LevelFilter, UnknownLevel> {
    text.trim().parse().map_err(|_| UnknownLevel(text.to_owned()))
}

/// Sets up logging for the whole process. Where journald cannot be reached, text it is. A second call
/// changes nothing.
pub fn init(log: Log) {
    let journal = match log.format {
        Format::Auto => stderr_is_journal(),
        Format::Journal => true,
        Format::Text => false,
    };
    let journal = if journal { journal::Journal::open(journal::SOCKET) } else { None };
    let sink = match journal {
        Some(journal) => Sink::journal(log.level, journal),
        None => Sink::text(log.level, line::Stderr::new()),
    };
    if let Ok(mut recent) = RECENT.lock() {
        recent.reserve();
    }
    // Only fails when there is a subscriber already: the tests', or an earlier call's.
    drop(tracing::subscriber::set_global_default(sink));
}

/// Log lines lost so far because nobody took them in time.
#[must_use]
pub fn lost_lines() -> u64 {
    LOST.load(Ordering::Relaxed)
}

/// Tells how many lines of a kind were held back where no line of that kind has done so for [`crate::limits::LOG_HELD`]: to be
/// called that often. `all`: at the end, whatever is untold.
pub fn tell_held_back(all: bool) {
    let now = crate::time::now();
    // Not from within, where no line passes.
    let sink = |ask: &mut dyn FnMut(&Sink)| {
        tracing::dispatcher::get_default(|log| log.downcast_ref().map(&mut *ask));
    };
    loop {
        let mut held = None;
        sink(&mut |sink| held = sink.overdue(now, all));
        let Some(held) = held else { return };
        events::held_back(&held.name, held.id, held.count, held.loud);
        let mut taken = true;
        sink(&mut |sink| taken = sink.told_or_kept(&held, now));
        if !taken {
            return;
        }
    }
}

/// The log's last lines, oldest first, without those that show a request's body.
#[must_use]
pub fn recent_lines() -> Vec<u8> {
    RECENT.lock().map(|recent| recent.text()).unwrap_or_default()
}

/// systemd names the device and inode of the journal's stream in `JOURNAL_STREAM`; a stderr that was
/// redirected since is another one (systemd.exec(5)).
fn stderr_is_journal() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else { return false };
    let Ok(stderr) = std::fs::metadata("/proc/self/fd/2") else { return false };
    is_stream(&stream, stderr.st_dev(), stderr.st_ino())
}

fn is_stream(stream: &str, device: u64, inode: u64) -> bool {
    stream.split_once(':').is_some_and(|(dev, ino)| dev.parse() == Ok(device) && ino.parse() == Ok(inode))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_read_and_mistakes_named() {
        assert_eq!(level("debug"), Ok(LevelFilter::DEBUG));
        assert_eq!(level(" WARN "), Ok(LevelFilter::WARN));
        assert_eq!(level("off"), Ok(LevelFilter::OFF));
        let mistake = level("loud").unwrap_err().to_string();
        assert!(mistake.contains("EDGEWARD_LOG=\"loud\""), "{mistake}");
    }

    #[test]
    fn the_journal_is_known_by_device_and_inode() {
        assert!(is_stream("8:1234", 8, 1234));
        assert!(!is_stream("8:1234", 8, 1235));
        assert!(!is_stream("9:1234", 8, 1234));
        assert!(!is_stream("", 0, 0));
        assert!(!is_stream("8", 8, 8));
    }
}
