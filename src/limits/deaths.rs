//! Bounds of what is watched of local servers' processes, each with its unit.

use std::time::Duration;

/// How long a server that died is left alone at least; twice as long each time it dies again.
pub const DEATH_REST: Duration = Duration::from_secs(10);
/// At most.
pub const DEATH_REST_MAX: Duration = Duration::from_secs(600);
/// Before it is asked again, memory must not have been red for this long.
pub const DEATH_CALM: Duration = Duration::from_secs(10);
/// First tokens that did not come in time, in a row, from which on a server that answers its probe counts as hanging.
pub const HANG_AFTER: u32 = 2;
/// A first token that did not come within less than this says nothing: a route may be hasty.
pub const HANG_LEAST: Duration = Duration::from_secs(5);
/// Two times out of memory with one model within this cost it its long prompts, or all.
pub const STRAIN_WINDOW: Duration = Duration::from_secs(3600);
/// For this long.
pub const STRAIN_BAN: Duration = Duration::from_secs(3600);
/// What runs out of memory within this is one and the same.
pub const STRAIN_SAME: Duration = Duration::from_secs(10);
/// A model whose prompts would be kept below this is banned instead, in tokens.
pub const STRAIN_LEAST: u64 = 512;
/// What the kernel or a server said this long before a death may be its cause.
pub const DEATH_EVIDENCE: Duration = Duration::from_secs(10);
/// Evidence that comes this late is waited for before the death is told in the journal; nobody else waits.
pub const DEATH_LATE: Duration = Duration::from_millis(200);
/// A failed attempt at a server that died this long ago failed by that; so did one that TCP ended this long before the
/// death was known: a process closes its sockets first.
pub const DEATH_EXPLAINS: Duration = Duration::from_secs(2);
/// Attempts at one server that TCP ended before its death was known, and that count among those that went on by it.
pub const DEATH_EARLY: usize = 64;
/// Between two looks at a server's processes while requests are under way there.
pub const DEATH_LOOK: Duration = Duration::from_secs(1);
/// While none is.
pub const DEATH_LOOK_IDLE: Duration = Duration::from_secs(10);
/// Processes of one server that are watched.
pub const DEATH_PROCESSES: usize = 32;
/// Folders below /sys/fs/cgroup that are looked at for a server's.
pub const DEATH_GROUPS: usize = 4096;
/// Processes that are looked at for who has a socket.
pub const DEATH_LOOKED_AT: usize = 16_384;
/// File descriptors of one process that are looked at.
pub const DEATH_DESCRIPTORS: usize = 4096;
/// Notices of the kernel that are kept.
pub const DEATH_NOTICES: usize = 16;
/// A message of the kernel's socket diagnostics, in bytes.
pub const DIAG_BYTES: usize = 16 * 1024;
/// `process.unit` and `process.pid_file`, in bytes.
pub const PROCESS_NAME_BYTES: usize = 256;

const _: () = assert!(DEATH_LOOK.as_millis() < DEATH_LOOK_IDLE.as_millis());
const _: () = assert!(DEATH_REST.as_millis() < DEATH_REST_MAX.as_millis());
