//! The kernel's own alarm that programs wait for memory: a PSI trigger. Where it gives none, nothing is missing: the
//! sampler looks by its timer all the same.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::places;
use crate::config::Memory;

/// Some program waited for 150 ms within 2 s. Who is not privileged may only have windows of so many times 2 s.
const TRIGGER: &[u8] = b"some 150000 2000000\0";

/// For one task.
#[derive(Debug)]
pub struct Stalls(Option<AsyncFd<File>>);

impl Stalls {
    /// To be made within the runtime. Of the model server's cgroup where it has one and that may be asked, else of the
    /// box.
    #[must_use]
    pub fn new(config: &Memory) -> Self {
        let group = places::group(Path::new(places::ROOT), config).map(|group| group.join("memory.pressure"));
        let mut files = group.into_iter().chain([PathBuf::from("/proc/pressure/memory")]);
        Stalls(files.find_map(|file| armed(&file).ok()))
    }

    /// Resolves when programs begin to wait for memory, at most once in 2 s; never where the kernel has no alarm.
    pub async fn begin(&mut self) {
        if let Some(alarm) = &self.0 {
            match alarm.ready(Interest::PRIORITY | Interest::ERROR).await {
                Ok(mut ready) if !ready.ready().is_error() => return ready.clear_ready(),
                // Its cgroup is gone.
                _ => self.0 = None,
            }
        }
        std::future::pending().await
    }
}

#[expect(deprecated, reason = "its successor is unsafe, for types that are less careful than File")]
fn armed(path: &Path) -> io::Result<AsyncFd<File>> {
    let nonblocking = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
    let mut file = OpenOptions::new().read(true).write(true).custom_flags(nonblocking).open(path)?;
    file.write_all(TRIGGER)?;
    AsyncFd::with_interest(file, Interest::PRIORITY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_there_is_none_it_never_rings() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            assert!(armed(Path::new("/proc/self/no-pressure")).is_err());
            let mut none = Stalls(None);
            let waited = tokio::time::timeout(std::time::Duration::from_millis(1), none.begin());
            assert!(waited.await.is_err());
        });
    }
}
