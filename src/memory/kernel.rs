//! What the kernel's log tells of memory and of the GPU: one line in, one notice out.

/// A command's name as the kernel shows it: 15 bytes at most.
pub type Name = heapless::String<16>;

/// One thing that the kernel said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The OOM killer took this process.
    Killed {
        /// Its number, in the first PID namespace.
        pid: u32,
        /// Its name.
        name: Name,
        /// Whether a cgroup's limit, not the box, was full.
        group: bool,
    },
    /// The NVIDIA driver reports a fault of the GPU.
    Xid {
        /// Its number.
        code: u16,
        /// The process that it names, if it does.
        pid: Option<u32>,
    },
    /// `NvMap` refused memory to the GPU on a Jetson, with this errno.
    NvMap(u16),
}

impl Notice {
    /// Of one line of `/dev/kmsg`, its prefix included or not.
    #[must_use]
    pub fn parse(_line: &[u8]) -> Option<Self> {
        None
    }
}
