//! Bounds of the memory watchdog, each with its unit.

use std::time::Duration;

/// `memory.amber`.
pub const MEMORY_AMBER: Duration = Duration::from_secs(30);
/// `memory.red`.
pub const MEMORY_RED: Duration = Duration::from_secs(10);
/// `memory.hold`.
pub const MEMORY_HOLD: Duration = Duration::from_secs(15);
/// `memory.hold` doubles while pressure comes and goes, up to this.
pub const MEMORY_HOLD_MAX: Duration = Duration::from_secs(300);
/// Pressure that is back within this comes and goes; well for this long, and the hold is as configured again.
pub const MEMORY_FLAP: Duration = Duration::from_secs(600);
/// `memory.interval`: 10 looks a second cost 0.11 % of a core (x86-64, release; 1.1 ms a second).
pub const MEMORY_INTERVAL: Duration = Duration::from_millis(100);
/// `memory.interval` at its smallest.
pub const MEMORY_INTERVAL_MIN: Duration = Duration::from_millis(10);
/// Between two looks while nothing is short; `memory.interval` at its largest.
pub const MEMORY_INTERVAL_MAX: Duration = Duration::from_secs(1);
/// Where memory is calm, looks are so many times rarer: 3 a second at the most. Found on the rig's traces: at 8 a leak of
/// 100 MiB/s is seen half a second later.
pub const MEMORY_CALM: u32 = 3;
/// Samples of one axis that are kept.
pub const MEMORY_RING: usize = 64;
/// A recent slope is taken over at least this many samples.
pub const MEMORY_RECENT: usize = 8;
/// And over at least this time, in milliseconds: less is noise.
pub const MEMORY_RECENT_MS: u32 = 2000;
/// Without a sample for this long, in milliseconds, what was before it is forgotten: the box slept.
pub const MEMORY_GAP_MS: u32 = 10_000;
/// In a row, so that one odd sample is no sign.
pub const MEMORY_IN_A_ROW: u8 = 3;
/// The floor is this part of what is usually free, in thousandths.
pub const MEMORY_FLOOR_USUAL: u64 = 700;
/// The floor at least, in KiB; on a small box a sixty-fourth of all memory.
pub const MEMORY_FLOOR_LEAST: u32 = 128 * 1024;
/// The reserve at most, in KiB, where the board's share is less; and a quarter of the floor.
pub const MEMORY_RESERVE: u32 = 256 * 1024;
/// Differences below this part of all memory are noise: a 128th.
pub const MEMORY_NOISE_SHIFT: u32 = 7;
/// Noise at most, in KiB.
pub const MEMORY_NOISE_MAX: u32 = 256 * 1024;
/// `some avg10` of memory's PSI from which on it is a sign, in hundredths of a percent.
pub const MEMORY_PSI_SOME: u32 = 1000;
/// `full avg10` likewise.
pub const MEMORY_PSI_FULL: u32 = 1000;
/// Pages a second that come back from swap, from which on it is a sign: 8 MiB/s.
pub const MEMORY_SWAP_IN: u32 = 2000;
/// Over which time they are counted at least, in milliseconds.
pub const MEMORY_SWAP_MS: u32 = 1000;
/// A limit of memory that no model server lives in, in bytes: one below it that edgeward meets is its own. edgeward
/// itself does not come near to filling a larger one.
pub const MEMORY_GROUP_LEAST: u64 = 1024 * 1024 * 1024;
/// Huge pages are what a GPU gets where at least this part of all memory is set aside, as a divisor: fewer are some
/// other program's.
pub const MEMORY_HUGE_PART: u32 = 4;
/// An OOM kill is a sign for this long, in milliseconds.
pub const MEMORY_KILL_MS: u32 = 10_000;
/// After a known load or unload slopes say nothing for this long, in milliseconds: free memory lags, and what is seen of
/// it lately is the load.
pub const MEMORY_SETTLE_MS: u32 = 2000;
/// A load that was let in and says nothing more is over after this, in milliseconds.
pub const MEMORY_LOAD_MS: u32 = 300_000;
/// What is usual fades: this part of its excess, in ten-thousandths, each [`MEMORY_FADE_MS`]: 0.3 % an hour, 7 % a day,
/// so that yesterday's longest prompt is no alarm today.
pub const MEMORY_FADE: u32 = 1;
/// See [`MEMORY_FADE`], in milliseconds.
pub const MEMORY_FADE_MS: u32 = 120_000;
/// What lasts for this long without a rise is usual, in milliseconds.
pub const MEMORY_PLATEAU_MS: u32 = 60_000;
/// Sets of models whose usual level is remembered; the oldest makes room.
pub const MEMORY_MARKS: usize = 16;
/// With this much memory or less a box is a small one, whose model server should bound what it keeps, in KiB: 16 GiB.
pub const MEMORY_SMALL_KIB: u32 = 16 * 1024 * 1024;
/// A source that failed is tried again after this.
pub const MEMORY_RETRY: Duration = Duration::from_secs(60);
/// The largest file that a source has, in bytes: /proc/vmstat and a cgroup's memory.stat take 4 to 5 KiB.
pub const MEMORY_FILE_BYTES: usize = 8192;
/// A line of a trace, in bytes.
pub const MEMORY_LINE_BYTES: usize = 512;
/// A trace that is replayed, in bytes: a day at ten samples a second.
pub const MEMORY_TRACE_BYTES: u64 = 256 * 1024 * 1024;
/// A GPU with less memory of its own than this shares the processor's, in bytes: what it calls its own is a small part
/// set aside at boot.
pub const MEMORY_CARD_BYTES: u64 = 4 * 1024 * 1024 * 1024;
/// A local server is asked what it has each such time while it is idle, or does not say.
pub const LOCAL_EVERY_IDLE: Duration = Duration::from_secs(60);
/// Ollama, while requests come: what is loaded changes by a request, or by an idle time of minutes.
pub const LOCAL_EVERY_OLLAMA: Duration = Duration::from_secs(5);
/// vLLM and llama.cpp, while requests come: slots and caches change with each.
pub const LOCAL_EVERY_BUSY: Duration = Duration::from_millis(1500);
/// Requests come: the last one within this.
pub const LOCAL_BUSY: Duration = Duration::from_secs(10);
/// One question to a local server, its answer included.
pub const LOCAL_ASK_TIME: Duration = Duration::from_secs(2);
/// The same while it has requests: llama.cpp answers between two batches only, and a slow box takes many seconds for one
/// of 2048 tokens.
pub const LOCAL_ASK_BUSY_TIME: Duration = Duration::from_secs(20);
/// A request waits so long for such an answer before it is planned, where what is known may be wrong.
pub const LOCAL_LOOK_TIME: Duration = Duration::from_millis(250);
/// Models at a time that a server is asked about.
pub const LOCAL_WANTED_MAX: usize = 8;
/// After a warm-up that failed no other one for this long; it doubles with each.
pub const WARM_UP_PAUSE: Duration = Duration::from_secs(60);
/// See [`WARM_UP_PAUSE`]; at most this.
pub const WARM_UP_PAUSE_MAX: Duration = Duration::from_secs(600);
const _: () = assert!(LOCAL_LOOK_TIME.as_millis() < LOCAL_ASK_TIME.as_millis());
const _: () = assert!(WARM_UP_PAUSE.as_secs() < WARM_UP_PAUSE_MAX.as_secs());
/// The file that keeps what is usual, in bytes: a line of 60 for each mark of each axis.
pub const MEMORY_USUAL_BYTES: usize = 4096;
/// Between two writes of it: flash wears.
pub const MEMORY_USUAL_INTERVAL: Duration = Duration::from_secs(600);
/// Between two looks at what is to be written.
pub const MEMORY_USUAL_LOOK: Duration = Duration::from_secs(60);
/// As much memory as before: it differs by less than this part, a 64th.
pub const MEMORY_SAME_SHIFT: u32 = 6;
/// A trend counts once this part of what is usually free is gone, as a divisor: what takes less is a prompt. An eighth of
/// it is gone by the time that a fall which leaves 10 s is sure.
pub const MEMORY_BEYOND: u32 = 8;
/// A trend counts once it has lasted for this part of the time that it leaves, as a divisor: what falls faster than that
/// and stops is a prompt or a buffer, and there is time to wait. Found on the rig's traces and days: at 5 a leak of
/// 100 MiB/s is seen a second later, at 12 healthy days have half as many false alarms again.
pub const MEMORY_SURE: u32 = 8;
/// And for this long at the most, in milliseconds.
pub const MEMORY_SURE_MS: u32 = 3000;
/// What is recorded of a running one and not fetched yet, in bytes: half a minute of ten looks a second.
pub const MEMORY_TAP_BYTES: usize = 64 * 1024;
/// Nobody who records any more has asked for this long.
pub const MEMORY_TAP_TIME: Duration = Duration::from_secs(30);
/// Who records has asked within this time: another one does not begin. Longer than one question and the pause before it.
pub const MEMORY_TAP_HELD: Duration = Duration::from_secs(5);
/// Between two questions of who records.
pub const MEMORY_TAP_INTERVAL: Duration = Duration::from_secs(1);
