//! Bounds of what the NVML helper is asked and says, each with its unit.

use std::time::Duration;

/// The NVML helper says its first line within this of its start. systemd may have to start it, on a box that pages.
pub const HELPER_ANSWER: Duration = Duration::from_secs(5);
/// That line at most, its end included, in bytes. Today's has 20.
pub const HELPER_LINE_BYTES: usize = 256;
/// Silent for this long, it is stale: it speaks twice a second.
pub const HELPER_STALE: Duration = Duration::from_secs(2);
/// More than that while NVML is loaded: 1.5 s for one GPU without persistence (pop-os/system76-power#492), and there may
/// be several.
pub const HELPER_START: Duration = Duration::from_secs(15);
/// Silent for this long, it is ended and started anew.
pub const HELPER_HOPELESS: Duration = Duration::from_secs(10);
/// The first pause before it is started anew; each is twice the one before.
pub const HELPER_PAUSE: Duration = Duration::from_secs(1);
/// The longest such pause. One that has lasted as long is started soon again.
pub const HELPER_PAUSE_MAX: Duration = Duration::from_secs(60);
/// A child that was killed has this long to be gone; another is not started beside it.
pub const HELPER_END: Duration = Duration::from_secs(1);
/// What it says is read in pieces of this, in bytes: a look's records of two GPUs.
pub const HELPER_INBOX_BYTES: usize = 1024;
/// An Xid that is told of twice within this is one: by NVML, and in the kernel's log.
pub const HELPER_XID_TWICE: Duration = Duration::from_secs(2);
/// Processes whose GPU memory is known.
pub const HELPER_PROCESSES: usize = 64;
/// Questions to it at once.
pub const HELPER_QUESTIONS: usize = 8;
/// An answer comes within this; it walks through all of /proc.
pub const HELPER_QUESTION: Duration = Duration::from_secs(2);
/// `edgeward boards` listens to it for this long at most: where it has to be started, NVML takes most of it.
pub const HELPER_LOOK: Duration = Duration::from_secs(3);
/// Between two looks at what it has told meanwhile; more than it takes to tell of all GPUs, once it tells of one.
pub const HELPER_LOOK_STEP: Duration = Duration::from_millis(50);

const _: () = assert!(HELPER_STALE.as_millis() < HELPER_HOPELESS.as_millis());
const _: () = assert!(HELPER_INBOX_BYTES >= 2 * HELPER_LINE_BYTES);
const _: () = assert!(HELPER_PAUSE.as_millis() < HELPER_PAUSE_MAX.as_millis());
/// What the helper could not say the main program asks it again after this; then after twice as long each time.
pub const HELPER_ASKED_EVERY: Duration = Duration::from_secs(1);
