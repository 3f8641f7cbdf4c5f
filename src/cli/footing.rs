//! What the process takes from the system before it serves, so that it stands when the box starves: memory that
//! stays, file descriptors, and a look at the clock.
//!
//! Rust aborts where an allocation fails, so none may: what requests take is bounded ([`Limits::memory`], which
//! `check` shows), the unit's `MemoryMax=` stands above it, and no lock stands in the way of new memory.

use std::fs;

use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::config::{Config, Limits, LockMemory};
use crate::observe::events;
use crate::time;

/// Raises the limit of file descriptors as far as it goes, and lets in only as many connections as it allows, so
/// that those which are served never lack one. Says so.
pub(super) fn descriptors(limits: &mut Limits) {
    let have = raised(Resource::Nofile);
    let need = limits.descriptors();
    let Some(have) = have.filter(|have| *have < need) else { return };
    limits.connections = connections_within(have);
    events::descriptors_low(have, need, limits.connections);
}

/// What `check` says of it: the limit here, if it is too low for `limits`.
pub(super) fn descriptors_low(limits: &Limits) -> Option<u64> {
    getrlimit(Resource::Nofile).maximum.filter(|have| *have < limits.descriptors())
}

/// At least one: whoever starts this with almost nothing shall get an answer.
fn connections_within(descriptors: u64) -> usize {
    let left = descriptors.saturating_sub(crate::limits::DESCRIPTORS_RESERVED) / 2;
    usize::try_from(left).unwrap_or(usize::MAX).max(1)
}

/// Locks the process's memory, code included, once everything is made that is made once: it is faulted in here, the
/// gates' buffers too. Says whether.
pub(super) fn memory(config: &Config) {
    if config.lock_memory == LockMemory::Off {
        return;
    }
    match lock() {
        Ok(()) => events::memory_locked(locked().unwrap_or_default()),
        Err(why) => events::memory_not_locked(&why, config.lock_memory == LockMemory::On),
    }
}

/// All of what there is now, each page: an error path that lies on a starving disk is no help. Where no limit holds,
/// later memory as well, page by page as it is touched: a thread for name look-ups has a stack of 2 MiB and uses
/// 16 KiB of it. Measured, static release (x86_64): 3.4 MiB resident unlocked, 9.7 MiB so, of which 4.5 are the
/// whole binary and 4 the gates' buffers. Without ONFAULT 2 MiB more, and again for each such thread.
///
/// Under a limit, later memory is left alone: the limit counts addresses, not pages, and memory that cannot be
/// locked for it could not be had at all.
fn lock() -> Result<(), String> {
    let limit = raised(Resource::Memlock).filter(|_| !exempt());
    mlockall(MlockAllFlags::CURRENT).map_err(|error| match limit {
        Some(limit) => format!("{error}; LimitMEMLOCK= allows {} KiB", limit / 1024),
        None => error.to_string(),
    })?;
    if limit.is_none() {
        let later = MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
        mlockall(later).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// The limit after raising it to the most that this process may have; `None` is no limit.
fn raised(resource: Resource) -> Option<u64> {
    let limit = getrlimit(resource);
    if limit.current != limit.maximum {
        // Refused, it stays as it is.
        let _as_it_was = setrlimit(resource, Rlimit { current: limit.maximum, ..limit });
    }
    getrlimit(resource).current
}

/// Whether no limit of locked memory holds for this process: root's, outside a container with users of its own,
/// whose capabilities do not count here (mlock(2)).
fn exempt() -> bool {
    const CAP_IPC_LOCK: u32 = 14;
    let held = status("CapEff").and_then(|mask| u64::from_str_radix(&mask, 16).ok()).unwrap_or(0);
    let users = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    held & (1 << CAP_IPC_LOCK) != 0 && users.split_whitespace().eq(["0", "0", "4294967295"])
}

/// Bytes of this process that are locked.
fn locked() -> Option<u64> {
    status("VmLck")?.strip_suffix(" kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

/// What the kernel says of this process under `name`.
fn status(name: &str) -> Option<String> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let value = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    Some(value.trim().to_owned())
}

/// Says that the clock is wrong.
pub(super) fn clock() {
    let wall = time::wall();
    if time::is_wrong(wall) {
        events::clock_wrong(wall);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_descriptors_for_everything_else() {
        for descriptors in [0, 1, 49, 64, 256, 1024, 2096, 4096, 1 << 20] {
            let connections = connections_within(descriptors);
            let need = Limits { connections, ..Limits::default() }.descriptors();
            assert!(need <= descriptors || connections == 1, "{descriptors}: {connections} need {need}");
            let more = Limits { connections: connections + 1, ..Limits::default() }.descriptors();
            assert!(more > descriptors, "{descriptors}: more than {connections} would do");
        }
    }

    #[test]
    fn the_default_configuration_is_bounded_as_the_unit_says() {
        let memory = Limits::default().memory();
        assert!(memory < 320 << 20, "{memory}");
        assert!(memory > (96 + 32 + 4) << 20, "{memory}");
    }
}
