//! Moves one process's wall clock by what a file says, and leaves its monotonic one alone. Compiled by `wall.rs`.

use std::ffi::{c_int, c_long};

/// CLOCK_REALTIME, time.h.
const REALTIME: c_int = 0;
/// The system call's number: clock_gettime(2).
#[cfg(target_arch = "x86_64")]
const CLOCK_GETTIME: c_long = 228;
#[cfg(target_arch = "aarch64")]
const CLOCK_GETTIME: c_long = 113;

#[repr(C)]
pub struct Timespec {
    seconds: i64,
    nanos: c_long,
}

unsafe extern "C" {
    fn syscall(number: c_long, ...) -> c_long;
}

fn offset() -> i64 {
    let file = std::env::var_os("EDGEWARD_TEST_CLOCK");
    let text = file.and_then(|file| std::fs::read_to_string(file).ok());
    text.and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

/// Instead of the C library's.
///
/// # Safety
/// As clock_gettime(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: c_int, time: *mut Timespec) -> c_int {
    // SAFETY: the caller's pointer, as the kernel wants it.
    let got = unsafe { syscall(CLOCK_GETTIME, clock as c_long, time) } as c_int;
    if got == 0 && clock == REALTIME {
        // SAFETY: the kernel has just written there.
        unsafe { (*time).seconds += offset() };
    }
    got
}
