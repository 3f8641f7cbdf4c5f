//! A wall clock that a test sets, for one process: a library that is loaded before its C library.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, UNIX_EPOCH};

use crate::program::Folder;

/// Its source; see there.
const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/starve/preload.rs");
/// Names the file with the clock's offset, in seconds.
const VARIABLE: &str = "EDGEWARD_TEST_CLOCK";

/// 1980-01-01: what a board without a battery may start with.
pub const LONG_AGO: Duration = Duration::from_secs(315_532_800);

/// The library, compiled once by the compiler that made this test.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("clock-{}.so", std::process::id()));
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let made = Command::new(rustc)
            .args(["--edition=2024", "--crate-type=cdylib", "-Copt-level=1", "-o"])
            .arg(&path)
            .arg(SOURCE)
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        path
    })
}

/// The wall clock of the processes that were started with its environment.
pub struct WallClock(PathBuf);

impl WallClock {
    /// Right until it is set.
    pub fn new(folder: &Folder) -> WallClock {
        WallClock(folder.write("clock", "0"))
    }

    pub fn env(&self) -> [(&'static str, &str); 2] {
        [("LD_PRELOAD", library().to_str().unwrap()), (VARIABLE, self.0.to_str().unwrap())]
    }

    /// Shows `time` after 1970 from now on.
    pub fn set(&self, time: Duration) {
        let right = edgeward::time::wall().duration_since(UNIX_EPOCH).unwrap();
        self.offset(time.as_secs() as i64 - right.as_secs() as i64);
    }

    /// Shows the right time and `seconds` more.
    pub fn offset(&self, seconds: i64) {
        // At once, so that no reader finds half of it.
        let new = self.0.with_extension("new");
        fs::write(&new, seconds.to_string()).unwrap();
        fs::rename(new, &self.0).unwrap();
    }
}
