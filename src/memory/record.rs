//! What the helper and edgeward say to each other, behind the helper's first line: records of 64 bytes each way. One
//! file, compiled into both programs.
//!
//! Every record, numbers little-endian:
//! ```text
//!  0      1     2       3     4..8       8..64
//!  version kind  device  what  number     by kind
//! ```
//! | kind | device | what | number | from 8 on |
//! |---|---|---|---|---|
//! | 1 starting | | | | |
//! | 2 figures | index | state | PCI address | total, free: u64 in bytes; clock event reasons: u64 |
//! | 3 down | index | fault | PCI address | |
//! | 4 blind | | why | NVML's code | |
//! | 5 processes | index | 1: the list begins | how many | up to 7 times pid: u32, KiB: u32 |
//! | 6 Xid | index | | code | |
//! | 7 kernel | | 1 killed, 2 killed in a cgroup, 3 Xid, 4 NvMap | pid, 0: none | code: u32; name: 16 bytes |
//! | 8 deaf | | | errno | |
//! | 9 owner | | 1: known | question's | pid: u32, 4 bytes free, start: u64 |
//! | 32 who | | | question's | inode: u64 |
//!
//! A kind that is not known is skipped; another version is another release's.

use super::kernel::{Name, Notice};

/// Of every record, in bytes.
pub const BYTES: usize = 64;
/// The first byte of each. Raised when an older reader would take something for what it is not.
pub const VERSION: u8 = 1;
/// GPUs that are told of; one more is left out.
pub const DEVICES: usize = 16;
/// Processes of one [`Record::Processes`].
pub const PROCESSES: usize = 7;

/// How a GPU stands that is not down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// Its memory is as told.
    #[default]
    Told = 0,
    /// It sleeps, or is let fall asleep: it is not asked.
    Asleep = 1,
    /// It has no memory of its own to tell of, as on Orin, Thor and GB10.
    Shared = 2,
}

/// What is wrong with a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It has fallen off the bus.
    Lost = 1,
    /// It works again only after a reset.
    NeedsReset = 2,
    /// The driver asks for a reset or a reboot (`NVML_FI_DEV_GET_GPU_RECOVERY_ACTION`).
    Recovery = 3,
}

impl Fault {
    /// In words, behind "GPU 0".
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Fault::Lost => "has fallen off the bus",
            Fault::NeedsReset => "needs a reset",
            Fault::Recovery => "is to be reset, or the box rebooted, by what the driver says",
        }
    }
}

/// Why nothing is known of any GPU. That is no GPU's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// There is no libnvidia-ml.so.1.
    NoLibrary = 1,
    /// It finds no driver.
    NoDriver = 2,
    /// It is of another release than the driver in the kernel: upgraded, not rebooted.
    Mismatch = 3,
    /// It works and finds no GPU.
    NoDevice = 4,
    /// It may not: permissions, or a unit's `DeviceAllow=`.
    NotAllowed = 5,
    /// Something else, by NVML's code.
    Failed = 6,
}

impl Why {
    /// In words.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Why::NoLibrary => "there is no libnvidia-ml.so.1",
            Why::NoDriver => "the NVIDIA driver is not loaded",
            Why::Mismatch => "libnvidia-ml.so.1 and the driver in the kernel are of different releases",
            Why::NoDevice => "NVML finds no GPU",
            Why::NotAllowed => "NVML may not ask the driver",
            Why::Failed => "NVML failed",
        }
    }
}

/// A GPU as it is now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Whether the rest is known.
    pub state: State,
    /// Where it is on the PCI bus: domain, bus and device in 16, 8 and 8 bits; 0: not known.
    pub pci: u32,
    /// All its memory, in bytes.
    pub total: u64,
    /// What is free of it, in bytes.
    pub free: u64,
    /// Why its clocks are as they are, `nvmlClocksEventReason…`: 8, 0x40 and 0x80 are the hardware's slowdowns.
    pub clocks: u64,
}

/// What one process holds of a GPU's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The process.
    pub pid: u32,
    /// So much, in KiB; as large as can be where it is more.
    pub kib: u32,
}

/// Whose socket it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The process.
    pub pid: u32,
    /// When it was started, in the kernel's ticks after boot: with this its number is no other process's.
    pub start: u64,
}

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// NVML is being loaded, which may take seconds.
    Starting,
    /// A GPU's figures.
    Figures(u8, Figures),
    /// A GPU is down.
    Down(u8, Fault, u32),
    /// Nothing is known of any, by this code of NVML.
    Blind(Why, u32),
    /// Some of a GPU's processes; whether they are its first.
    Processes(u8, bool, heapless::Vec<Held, PROCESSES>),
    /// NVML tells of an Xid.
    Xid(u8, u32),
    /// The kernel has said it.
    Kernel(Notice),
    /// The kernel's log cannot be read, by this errno.
    Deaf(u32),
    /// Whose socket it is, if that is known: the answer to the question of this number.
    Owner(u32, Option<Owner>),
    /// Whose socket has this inode? A question and its number.
    Who(u32, u64),
}

/// The other program is of another release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OtherVersion(pub u8);

/// Fills a record; what has no room is left out.
struct Writer([u8; BYTES]);

impl Writer {
    fn put(&mut self, at: usize, bytes: &[u8]) {
        if let Some(room) = self.0.get_mut(at..at + bytes.len()) {
            room.copy_from_slice(bytes);
        }
    }

    fn u32(&mut self, at: usize, value: u32) {
        self.put(at, &value.to_le_bytes());
    }

    fn u64(&mut self, at: usize, value: u64) {
        self.put(at, &value.to_le_bytes());
    }
}

fn u32_at(bytes: &[u8; BYTES], at: usize) -> u32 {
    let found = bytes.get(at..).and_then(|rest| rest.first_chunk::<4>());
    found.map_or(0, |found| u32::from_le_bytes(*found))
}

fn u64_at(bytes: &[u8; BYTES], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

impl Record {
    /// As bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; BYTES] {
        let mut to = Writer([0; BYTES]);
        let (kind, device, what, number) = match self {
            Record::Starting => (1, 0, 0, 0),
            Record::Figures(device, figures) => {
                to.u64(8, figures.total);
                to.u64(16, figures.free);
                to.u64(24, figures.clocks);
                (2, *device, figures.state as u8, figures.pci)
            }
            Record::Down(device, fault, pci) => (3, *device, *fault as u8, *pci),
            Record::Blind(why, code) => (4, 0, *why as u8, *code),
            Record::Processes(device, first, list) => {
                for (n, held) in list.iter().enumerate() {
                    to.u32(8 + 8 * n, held.pid);
                    to.u32(12 + 8 * n, held.kib);
                }
                (5, *device, u8::from(*first), u32::try_from(list.len()).unwrap_or(0))
            }
            Record::Xid(device, code) => (6, *device, 0, *code),
            Record::Kernel(Notice::Killed { pid, name, group }) => {
                to.put(12, name.as_bytes());
                (7, 0, 1 + u8::from(*group), *pid)
            }
            Record::Kernel(Notice::Xid { code, pid }) => {
                to.u32(8, u32::from(*code));
                (7, 0, 3, pid.unwrap_or(0))
            }
            Record::Kernel(Notice::NvMap(code)) => {
                to.u32(8, u32::from(*code));
                (7, 0, 4, 0)
            }
            Record::Deaf(errno) => (8, 0, 0, *errno),
            Record::Owner(question, owner) => {
                if let Some(owner) = owner {
                    to.u32(8, owner.pid);
                    to.u64(16, owner.start);
                }
                (9, 0, u8::from(owner.is_some()), *question)
            }
            Record::Who(question, inode) => {
                to.u64(8, *inode);
                (32, 0, 0, *question)
            }
        };
        to.put(0, &[VERSION, kind, device, what]);
        to.u32(4, number);
        to.0
    }

    /// Of bytes; `None` for what this release does not know.
    ///
    /// # Errors
    /// The bytes are of another version.
    pub fn decode(bytes: &[u8; BYTES]) -> Result<Option<Self>, OtherVersion> {
        let [version, kind, device, what, ..] = *bytes;
        if version != VERSION {
            return Err(OtherVersion(version));
        }
        Ok(Record::of(bytes, kind, device, what))
    }

    fn of(bytes: &[u8; BYTES], kind: u8, device: u8, what: u8) -> Option<Self> {
        let number = u32_at(bytes, 4);
        Some(match kind {
            1 => Record::Starting,
            2 => {
                let state = match what {
                    0 => State::Told,
                    1 => State::Asleep,
                    2 => State::Shared,
                    _ => return None,
                };
                let (total, free) = (u64_at(bytes, 8), u64_at(bytes, 16));
                Record::Figures(
                    device,
                    Figures { state, pci: number, total, free, clocks: u64_at(bytes, 24) },
                )
            }
            3 => {
                let fault = match what {
                    1 => Fault::Lost,
                    2 => Fault::NeedsReset,
                    _ => Fault::Recovery,
                };
                Record::Down(device, fault, number)
            }
            4 => {
                let why = match what {
                    1 => Why::NoLibrary,
                    2 => Why::NoDriver,
                    3 => Why::Mismatch,
                    4 => Why::NoDevice,
                    5 => Why::NotAllowed,
                    _ => Why::Failed,
                };
                Record::Blind(why, number)
            }
            5 => {
                let count = usize::try_from(number).unwrap_or(usize::MAX).min(PROCESSES);
                let held = |n| Held { pid: u32_at(bytes, 8 + 8 * n), kib: u32_at(bytes, 12 + 8 * n) };
                Record::Processes(device, what == 1, (0..count).map(held).collect())
            }
            6 => Record::Xid(device, number),
            7 => Record::Kernel(notice(bytes, what, number)?),
            8 => Record::Deaf(number),
            9 => {
                let owner = Owner { pid: u32_at(bytes, 8), start: u64_at(bytes, 16) };
                Record::Owner(number, (what == 1 && owner.pid > 0).then_some(owner))
            }
            32 => Record::Who(number, u64_at(bytes, 8)),
            _ => return None,
        })
    }
}

fn notice(bytes: &[u8; BYTES], what: u8, number: u32) -> Option<Notice> {
    let code = u16::try_from(u32_at(bytes, 8)).ok();
    Some(match what {
        1 | 2 => {
            let name = bytes.get(12..28)?.split(|byte| *byte == 0).next()?;
            // Nothing that a log could not take.
            let plain =
                |byte: &u8| if byte.is_ascii_graphic() || *byte == b' ' { char::from(*byte) } else { '?' };
            let name: Name = name.iter().map(plain).collect();
            Notice::Killed { pid: number, name, group: what == 2 }
        }
        3 => Notice::Xid { code: code?, pid: (number > 0).then_some(number) },
        4 => Notice::NvMap(code?),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_record() -> impl Strategy<Value = Record> {
        let figures =
            (any::<u8>(), any::<(u64, u64, u64, u32)>(), 0..3usize).prop_map(|(device, told, state)| {
                let (total, free, clocks, pci) = told;
                let state = [State::Told, State::Asleep, State::Shared][state];
                Record::Figures(device, Figures { state, pci, total, free, clocks })
            });
        let fault = prop_oneof![Just(Fault::Lost), Just(Fault::NeedsReset), Just(Fault::Recovery)];
        let why = prop_oneof![
            Just(Why::NoLibrary),
            Just(Why::NoDriver),
            Just(Why::Mismatch),
            Just(Why::NoDevice),
            Just(Why::NotAllowed),
            Just(Why::Failed)
        ];
        let list = proptest::collection::vec(any::<(u32, u32)>(), 0..=PROCESSES);
        let processes = (any::<u8>(), any::<bool>(), list).prop_map(|(device, first, list)| {
            Record::Processes(device, first, list.into_iter().map(|(pid, kib)| Held { pid, kib }).collect())
        });
        let killed = (any::<u32>(), "[ -~]{0,15}", any::<bool>()).prop_map(|(pid, name, group)| {
            Notice::Killed { pid, name: name.as_str().try_into().unwrap(), group }
        });
        let owner = (1..u32::MAX, any::<u64>()).prop_map(|(pid, start)| Owner { pid, start });
        prop_oneof![
            Just(Record::Starting),
            figures,
            (any::<u8>(), fault, any::<u32>())
                .prop_map(|(device, fault, pci)| Record::Down(device, fault, pci)),
            (why, any::<u32>()).prop_map(|(why, code)| Record::Blind(why, code)),
            processes,
            any::<(u8, u32)>().prop_map(|(device, code)| Record::Xid(device, code)),
            killed.prop_map(Record::Kernel),
            (any::<u16>(), proptest::option::of(1..u32::MAX))
                .prop_map(|(code, pid)| Record::Kernel(Notice::Xid { code, pid })),
            any::<u16>().prop_map(|code| Record::Kernel(Notice::NvMap(code))),
            any::<u32>().prop_map(Record::Deaf),
            (any::<u32>(), proptest::option::of(owner)).prop_map(|(n, owner)| Record::Owner(n, owner)),
            any::<(u32, u64)>().prop_map(|(n, inode)| Record::Who(n, inode)),
        ]
    }

    proptest! {
        #[test]
        fn what_is_said_is_heard(record in any_record()) {
            prop_assert_eq!(Record::decode(&record.encode()), Ok(Some(record)));
        }

        #[test]
        fn no_bytes_make_it_panic(mut bytes in any::<[[u8; 32]; 2]>(), kind in 0u8..40) {
            bytes[0][0] = VERSION;
            bytes[0][1] = kind;
            let mut record = [0; BYTES];
            record.copy_from_slice(bytes.as_flattened());
            let _ = Record::decode(&record);
        }
    }

    #[test]
    fn another_version_is_told_and_another_kind_is_skipped() {
        let mut bytes = Record::Starting.encode();
        bytes[1] = 200;
        assert_eq!(Record::decode(&bytes), Ok(None));
        bytes[0] = VERSION + 1;
        assert_eq!(Record::decode(&bytes), Err(OtherVersion(VERSION + 1)));
    }

    /// The layout as it is told above: another release of the helper may be at the other end.
    #[test]
    fn the_layout_stays() {
        let figures = Figures { state: State::Shared, pci: 0x0000_0100, total: 1, free: 2, clocks: 3 };
        let bytes = Record::Figures(4, figures).encode();
        assert_eq!(bytes[..8], [1, 2, 4, 2, 0, 1, 0, 0]);
        assert_eq!((bytes[8], bytes[16], bytes[24], bytes[32]), (1, 2, 3, 0));
    }
}
