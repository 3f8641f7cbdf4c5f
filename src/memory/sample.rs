//! One sample of everything that is known of memory, of a fixed size, and the parsers that fill it.

use crate::limits::MEMORY_HUGE_PART;

/// One figure. Memory is in KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// `MemTotal`.
    Total,
    /// `MemAvailable`: the kernel's estimate of what can be had without swapping.
    Available,
    /// `MemFree`.
    Free,
    /// `HugePages_Total`, in KiB.
    HugeTotal,
    /// `HugePages_Free`, in KiB.
    HugeFree,
    /// `SwapFree`. Never headroom: GPU memory cannot be swapped.
    SwapFree,
    /// `NvMapMemUsed`: what a Jetson's GPU holds.
    NvMap,
    /// `pswpin`: pages that came back from swap, since boot; wraps.
    SwapIn,
    /// `oom_kill` of /proc/vmstat, since boot; wraps.
    Kills,
    /// `some avg10` of memory's PSI, in hundredths of a percent.
    PsiSome,
    /// `full avg10`.
    PsiFull,
    /// A GPU's own memory.
    DeviceTotal,
    /// What is free of it.
    DeviceFree,
    /// The limit of the model server's memory cgroup: `memory.max`, or `memory.high` where that is lower.
    GroupMax,
    /// `memory.current`.
    GroupCurrent,
    /// Of that what can be had back: file pages, the active ones by half, since mapped weights are among them.
    GroupFile,
    /// `oom_kill` of its `memory.events`; wraps.
    GroupKills,
}

impl Field {
    /// Every one, in the order of the enum; a trace has them in this order.
    pub const ALL: [Field; 17] = [
        Field::Total,
        Field::Available,
        Field::Free,
        Field::HugeTotal,
        Field::HugeFree,
        Field::SwapFree,
        Field::NvMap,
        Field::SwapIn,
        Field::Kills,
        Field::PsiSome,
        Field::PsiFull,
        Field::DeviceTotal,
        Field::DeviceFree,
        Field::GroupMax,
        Field::GroupCurrent,
        Field::GroupFile,
        Field::GroupKills,
    ];
}

/// How far a figure is to be believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quality {
    /// There is none.
    Missing,
    /// Of an earlier sample: its source cannot be read now.
    Old,
    /// Read for this sample.
    Good,
}

/// Where memory runs out: each has its own bottom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    /// The box's memory; where the GPU shares it, the GPU's too.
    Host,
    /// A GPU's own memory.
    Device,
    /// The limit of the model server's cgroup.
    Group,
}

impl Axis {
    /// Every one, in the order of the enum.
    pub const ALL: [Axis; 3] = [Axis::Host, Axis::Device, Axis::Group];

    /// The stable name, for traces and metric labels.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Axis::Host => "host",
            Axis::Device => "device",
            Axis::Group => "cgroup",
        }
    }
}

/// All figures at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    pub(super) values: [u32; Field::ALL.len()],
    /// Bits by field: read for this sample.
    pub(super) good: u32,
    /// Bits by field: kept from an earlier one.
    pub(super) old: u32,
}

impl Sample {
    /// The figure, read now; what does not fit is as large as can be.
    pub fn set(&mut self, field: Field, value: u64) {
        self.values[field as usize] = u32::try_from(value).unwrap_or(u32::MAX);
        self.good |= 1 << field as u32;
        self.old &= !(1 << field as u32);
    }

    /// The same for a count, of which only differences matter.
    fn count(&mut self, field: Field, value: u64) {
        self.set(field, value & u64::from(u32::MAX));
    }

    /// Its source could not be read: it is old now, and the next time missing.
    pub fn fade(&mut self, fields: &[Field]) {
        for field in fields {
            let bit = 1 << *field as u32;
            self.old = self.old & !bit | self.good & bit;
            self.good &= !bit;
        }
    }

    /// How far it is to be believed.
    #[must_use]
    pub fn quality(&self, field: Field) -> Quality {
        let bit = 1 << field as u32;
        match (self.good & bit != 0, self.old & bit != 0) {
            (true, _) => Quality::Good,
            (_, true) => Quality::Old,
            _ => Quality::Missing,
        }
    }

    /// The figure, if it was read for this sample.
    #[must_use]
    pub fn get(&self, field: Field) -> Option<u32> {
        (self.quality(field) == Quality::Good).then(|| self.values[field as usize])
    }

    /// What is available on `axis`, and all there is, in KiB. `huge`: where much is set aside as huge pages, they are
    /// what a GPU's memory comes from.
    #[must_use]
    pub fn axis(&self, axis: Axis, huge: bool) -> Option<(u32, u32)> {
        let (available, total) = match axis {
            Axis::Host => {
                let all = self.get(Field::Total)?;
                match self
                    .get(Field::HugeTotal)
                    .filter(|set| huge && *set > 0 && *set >= all / MEMORY_HUGE_PART)
                {
                    Some(set) => (self.get(Field::HugeFree)?, set),
                    None => (self.get(Field::Available)?, all),
                }
            }
            Axis::Device => (self.get(Field::DeviceFree)?, self.get(Field::DeviceTotal)?),
            Axis::Group => {
                let (max, file) = (self.get(Field::GroupMax)?, self.get(Field::GroupFile).unwrap_or(0));
                let held = self.get(Field::GroupCurrent)?.saturating_sub(file);
                (max.saturating_sub(held), max)
            }
        };
        (total > 0).then_some((available.min(total), total))
    }

    /// `/proc/meminfo`. Whether there was anything in it.
    pub fn meminfo(&mut self, text: &[u8]) -> bool {
        let (mut size, mut huge) = (0, [None; 2]);
        let mut some = false;
        pairs(text, |name, number| {
            let field = match name {
                b"MemTotal" => Field::Total,
                b"MemAvailable" => Field::Available,
                b"MemFree" => Field::Free,
                b"SwapFree" => Field::SwapFree,
                b"NvMapMemUsed" => Field::NvMap,
                b"HugePages_Total" => return huge[0] = Some(number),
                b"HugePages_Free" => return huge[1] = Some(number),
                b"Hugepagesize" => return size = number,
                _ => return,
            };
            some = true;
            self.set(field, number);
        });
        for (field, pages) in [Field::HugeTotal, Field::HugeFree].into_iter().zip(huge) {
            if let Some(pages) = pages {
                self.set(field, pages.saturating_mul(size));
            }
        }
        some
    }

    /// `/proc/vmstat`. Whether there was anything in it.
    pub fn vmstat(&mut self, text: &[u8]) -> bool {
        let mut some = false;
        pairs(text, |name, number| {
            let field = match name {
                b"pswpin" => Field::SwapIn,
                b"oom_kill" => Field::Kills,
                _ => return,
            };
            some = true;
            self.count(field, number);
        });
        some
    }

    /// `/proc/pressure/memory`. Whether there was anything in it.
    pub fn pressure(&mut self, text: &[u8]) -> bool {
        let mut some = false;
        for line in text.split(|byte| *byte == b'\n') {
            let (field, rest) = match line {
                [b's', b'o', b'm', b'e', rest @ ..] => (Field::PsiSome, rest),
                [b'f', b'u', b'l', b'l', rest @ ..] => (Field::PsiFull, rest),
                _ => continue,
            };
            let Some(rest) = rest.strip_prefix(b" avg10=") else { continue };
            let (whole, rest) = digits(rest);
            let part = rest.strip_prefix(b".").map_or((0, 0), |rest| {
                let tens = rest.first().filter(|byte| byte.is_ascii_digit()).map_or(0, |byte| byte - b'0');
                let ones = rest.get(1).filter(|byte| byte.is_ascii_digit()).map_or(0, |byte| byte - b'0');
                (tens, ones)
            });
            let hundredths = u64::from(part.0) * 10 + u64::from(part.1);
            self.set(field, whole.unwrap_or(0).saturating_mul(100).saturating_add(hundredths));
            some = true;
        }
        some
    }

    /// A cgroup's `memory.current` (version 1: `memory.usage_in_bytes`), in bytes.
    pub fn group_current(&mut self, text: &[u8]) -> bool {
        let Some(bytes) = digits(text).0 else { return false };
        self.set(Field::GroupCurrent, bytes / 1024);
        true
    }

    /// A cgroup's limits, in bytes: `memory.max` and `memory.high` (version 1: `memory.limit_in_bytes`), of which the
    /// lowest counts. One above all memory, or `max`, is none.
    pub fn group_limit(&mut self, text: &[u8], first: bool) -> bool {
        let max = digits(text).0.map_or(u64::MAX, |bytes| bytes / 1024);
        let before = if first { u64::MAX } else { self.get(Field::GroupMax).map_or(u64::MAX, u64::from) };
        let max = max.min(before);
        if max < self.get(Field::Total).map_or(u64::MAX, u64::from) {
            self.set(Field::GroupMax, max);
        } else {
            self.good &= !(1 << Field::GroupMax as u32);
        }
        !text.is_empty()
    }

    /// A cgroup's `memory.stat`, in bytes. Version 1 has sums over all below it, by names of their own.
    pub fn group_stat(&mut self, text: &[u8]) -> bool {
        let (mut own, mut sums) = ([None; 2], [None; 2]);
        pairs(text, |name, number| match name {
            b"inactive_file" => own[0] = Some(number),
            b"active_file" => own[1] = Some(number),
            b"total_inactive_file" => sums[0] = Some(number),
            b"total_active_file" => sums[1] = Some(number),
            _ => {}
        });
        let [Some(inactive), active] = (if sums[0].is_some() { sums } else { own }) else { return false };
        self.set(Field::GroupFile, inactive.saturating_add(active.unwrap_or(0) / 2) / 1024);
        true
    }

    /// amdgpu's `mem_info_vram_total`, in bytes, and then its `mem_info_vram_used`.
    pub fn device(&mut self, text: &[u8], total: bool) -> bool {
        let Some(bytes) = digits(text).0 else { return false };
        match (total, self.get(Field::DeviceTotal)) {
            (true, _) => self.set(Field::DeviceTotal, bytes / 1024),
            (false, Some(total)) => {
                self.set(Field::DeviceFree, u64::from(total).saturating_sub(bytes / 1024))
            }
            (false, None) => return false,
        }
        true
    }

    /// A cgroup's `memory.events` (version 1: `memory.oom_control`).
    pub fn group_events(&mut self, text: &[u8]) -> bool {
        let mut some = false;
        pairs(text, |name, number| {
            if name == b"oom_kill" {
                some = true;
                self.count(Field::GroupKills, number);
            }
        });
        some
    }
}

/// Each `NAME NUMBER` or `NAME: NUMBER` of a text, a line each.
fn pairs(text: &[u8], mut each: impl FnMut(&[u8], u64)) {
    for line in text.split(|byte| *byte == b'\n') {
        let end = line.iter().position(|byte| matches!(byte, b':' | b' ')).unwrap_or(line.len());
        let (name, rest) = line.split_at(end);
        if let Some(number) = digits(rest.trim_ascii_start().strip_prefix(b":").unwrap_or(rest)).0 {
            each(name, number);
        }
    }
}

/// The number that a text begins with, behind spaces, and what follows; as large as can be, where it is larger.
pub(super) fn digits(text: &[u8]) -> (Option<u64>, &[u8]) {
    let text = text.trim_ascii_start();
    let end = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let (number, rest) = text.split_at(end);
    let add = |sum: u64, byte: &u8| sum.saturating_mul(10).saturating_add(u64::from(byte - b'0'));
    ((end > 0).then(|| number.iter().fold(0, add)), rest)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MEMINFO: &[u8] =
        b"MemTotal:       24683364 kB\nMemFree:         2404352 kB\nMemAvailable:   23745536 kB\n\
        Buffers:           1 kB\nSwapFree:              0 kB\nNvMapMemUsed:     123456 kB\n\
        HugePages_Total:      16\nHugePages_Free:        4\nHugepagesize:       2048 kB\n";

    #[test]
    fn files_of_the_kernel_are_read() {
        let mut sample = Sample::default();
        assert!(sample.meminfo(MEMINFO));
        assert!(sample.vmstat(b"pgpgin 3\npswpin 77\npswpout 8\noom_kill 2\n"));
        assert!(sample.pressure(
            b"some avg10=12.34 avg60=0.32 avg300=0.33 total=2\nfull avg10=0.05 avg60=0.28 avg300=0.30 total=1\n"
        ));
        assert!(sample.group_current(b"1048576\n"));
        assert!(sample.group_limit(b"max\n", true));
        assert_eq!(sample.quality(Field::GroupMax), Quality::Missing);
        assert!(sample.group_limit(b"8388608\n", true));
        assert!(sample.group_limit(b"4194304\n", false), "memory.high is lower");
        assert!(sample.group_stat(b"anon 9\ninactive_file 102400\nactive_file 204800\n"));
        assert!(!sample.device(b"5", false) && sample.device(b"8589934592\n", true));
        assert!(sample.device(b"2147483648\n", false));
        assert!(sample.group_events(b"low 0\nhigh 4\nmax 1\noom 2\noom_kill 3\noom_group_kill 0\n"));
        for (field, want) in [
            (Field::Total, 24_683_364),
            (Field::Available, 23_745_536),
            (Field::Free, 2_404_352),
            (Field::HugeTotal, 32_768),
            (Field::HugeFree, 8192),
            (Field::SwapFree, 0),
            (Field::NvMap, 123_456),
            (Field::SwapIn, 77),
            (Field::Kills, 2),
            (Field::PsiSome, 1234),
            (Field::PsiFull, 5),
            (Field::GroupMax, 4096),
            (Field::GroupCurrent, 1024),
            (Field::GroupFile, 200),
            (Field::GroupKills, 3),
        ] {
            assert_eq!(sample.get(field), Some(want), "{field:?}");
        }
        assert_eq!(sample.axis(Axis::Host, false), Some((23_745_536, 24_683_364)));
        assert_eq!(sample.axis(Axis::Host, true), Some((23_745_536, 24_683_364)), "16 are not the GPU's");
        sample.set(Field::HugeTotal, 16 << 20);
        assert_eq!(sample.axis(Axis::Host, true), Some((8192, 16 << 20)), "huge pages are what a GPU gets");
        assert_eq!(sample.axis(Axis::Group, false), Some((4096 - (1024 - 200), 4096)));
        assert_eq!(sample.axis(Axis::Device, false), Some((6 << 20, 8 << 20)));
        for (n, field) in Field::ALL.into_iter().enumerate() {
            assert_eq!(field as usize, n);
        }
    }

    #[test]
    fn version_1_is_read_too() {
        let mut sample = Sample::default();
        sample.set(Field::Total, 1 << 20);
        assert!(sample.group_limit(b"9223372036854771712\n", true));
        assert_eq!(sample.get(Field::GroupMax), None, "as good as none");
        assert!(sample.group_stat(b"inactive_file 1\ntotal_inactive_file 10240\ntotal_active_file 0\n"));
        assert_eq!(sample.get(Field::GroupFile), Some(10));
        assert!(sample.group_events(b"oom_kill_disable 0\nunder_oom 0\noom_kill 1\n"));
        assert_eq!(sample.get(Field::GroupKills), Some(1));
    }

    #[test]
    fn what_cannot_be_read_gets_old_and_is_missing_then() {
        let mut sample = Sample::default();
        assert!(!sample.pressure(b"") && !sample.meminfo(b"\n") && !sample.vmstat(b"pswpin x\n"));
        sample.set(Field::Free, 7);
        for want in [Quality::Good, Quality::Old, Quality::Missing, Quality::Missing] {
            assert_eq!(sample.quality(Field::Free), want);
            sample.fade(&[Field::Free, Field::Total]);
        }
        sample.set(Field::Free, u64::MAX);
        assert_eq!(sample.get(Field::Free), Some(u32::MAX));
    }

    proptest! {
        #[test]
        fn no_text_makes_them_panic(
            text in "[a-zA-Z_]{0,12}|(some|full|MemTotal:|oom_kill|inactive_file|Hugepagesize:) {0,2}(avg10=)?[0-9.]{0,24}(\\PC{0,6}|\n)",
            times in 1usize..4,
            raw in proptest::collection::vec(any::<u8>(), 0..64),
        ) {
            let text = text.repeat(times);
            for text in [text.as_bytes(), &raw] {
                let mut sample = Sample::default();
                sample.meminfo(text);
                sample.vmstat(text);
                sample.pressure(text);
                sample.group_current(text);
                sample.group_limit(text, true);
                sample.group_limit(text, false);
                sample.group_stat(text);
                sample.group_events(text);
                for axis in Axis::ALL {
                    if let Some((available, total)) = sample.axis(axis, true) {
                        prop_assert!(available <= total);
                    }
                }
            }
        }
    }
}
