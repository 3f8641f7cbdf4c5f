//! A timer that wakes this thread once each time. The runtime's own wakes it twice for what is more than 64 ms away, and
//! the sampler has ten looks a second.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::unix::AsyncFd;

/// For one task.
#[derive(Debug)]
pub struct Alarm(Option<AsyncFd<OwnedFd>>);

impl Alarm {
    /// To be made within the runtime. Where the system gives no timer, the runtime's is used.
    #[must_use]
    #[expect(deprecated, reason = "its successor is unsafe, for types that are less careful than OwnedFd")]
    pub fn new() -> Self {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags).map_err(io::Error::from);
        Alarm(timer.and_then(AsyncFd::new).ok())
    }

    /// Resolves after `time`; at least a nanosecond, since 0 disarms it.
    pub async fn after(&self, time: Duration) {
        if self.0.is_none() || self.rings(time.max(Duration::from_nanos(1))).await.is_err() {
            tokio::time::sleep(time).await;
        }
    }

    async fn rings(&self, time: Duration) -> io::Result<()> {
        let Some(timer) = &self.0 else { return Ok(()) };
        let once = Itimerspec {
            it_interval: Timespec::default(),
            it_value: Timespec::try_from(time).map_err(|_| io::ErrorKind::InvalidInput)?,
        };
        timerfd_settime(timer.get_ref(), TimerfdTimerFlags::empty(), &once)?;
        loop {
            let mut ready = timer.readable().await?;
            // How often it rang: once.
            let mut count = [0; 8];
            match ready.try_io(|timer| Ok(rustix::io::read(timer.get_ref(), &mut count)?)) {
                Ok(read) => return read.map(|_| ()),
                Err(_not_yet) => {}
            }
        }
    }
}

impl Default for Alarm {
    fn default() -> Self {
        Alarm::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::now;

    #[test]
    fn it_rings_each_time_and_not_before() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let alarm = Alarm::new();
            assert!(alarm.0.is_some());
            for ms in [0, 20, 1, 70] {
                let (start, time) = (now(), Duration::from_millis(ms));
                alarm.after(time).await;
                assert!(start.elapsed() >= time);
            }
            Alarm(None).after(Duration::from_millis(1)).await;
        });
    }
}
