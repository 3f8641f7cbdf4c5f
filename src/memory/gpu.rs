//! What is known of the GPUs and of their helper, by its records and their times. Pure: it says what is news.

use std::time::{Duration, Instant};

use super::kernel::Notice;
use super::record::{DEVICES, Fault, Figures, Held, Owner, Record, State, Why};
use crate::limits;

/// How the helper stands, and with it everything that only it knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sight {
    /// There is none.
    #[default]
    Absent,
    /// It is there and has told nothing of a GPU yet.
    Starting,
    /// It tells what there is.
    Sees,
    /// It is there and knows of no GPU: why, and NVML's code.
    Blind(Why, u32),
    /// It is there and says nothing.
    Stale,
}

impl Sight {
    /// The stable name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Sight::Absent => "absent",
            Sight::Starting => "starting",
            Sight::Sees => "sees",
            Sight::Blind(..) => "blind",
            Sight::Stale => "stale",
        }
    }
}

/// A GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// Its number with the driver.
    pub device: u8,
    /// As last told.
    pub figures: Figures,
    /// What is wrong with it.
    pub down: Option<Fault>,
}

/// What a record, or a silence, changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// It says nothing any more.
    Stale,
    /// It has been stale for too long: it is to be ended.
    Hopeless,
    /// It knows of no GPU.
    Blind(Why, u32),
    /// It tells of GPUs (again): how many so far.
    Sees,
    /// A GPU is down.
    Down(u8, Fault),
    /// It is up again.
    Up(u8),
    /// The kernel, or the driver, has said something.
    Heard(Notice),
    /// The answer to a question.
    Owner(u32, Option<Owner>),
    /// The kernel's log cannot be read, by this errno.
    Deaf(u32),
}

/// Everything that the helper has told.
#[derive(Debug, Default)]
pub struct Gpus {
    sight: Sight,
    /// Something of the GPUs was told: until when that counts as news from them.
    heard: Option<Instant>,
    gpus: heapless::Vec<Gpu, DEVICES>,
    held: heapless::Vec<(u8, Held), { limits::HELPER_PROCESSES }>,
    /// What was last said of being blind: a helper that ends, to load another library, is blind again.
    blind: Option<(Why, u32)>,
    /// The last Xid: both NVML and the kernel's log tell of each.
    xid: Option<(u16, Option<u32>, Instant)>,
}

impl Gpus {
    /// Its connection begins.
    pub fn began(&mut self, now: Instant) {
        self.ended();
        (self.sight, self.heard) = (Sight::Starting, Some(now));
    }

    /// Its connection is over. A GPU that was down counts as down until it is seen up.
    pub fn ended(&mut self) {
        self.sight = Sight::Absent;
        self.heard = None;
        self.held.clear();
        self.gpus.retain(|gpu| gpu.down.is_some());
    }

    /// How it stands.
    #[must_use]
    pub fn sight(&self) -> Sight {
        self.sight
    }

    /// Why no GPU was known of, as last told, and NVML's code: also of a helper that has ended since. `None` once one is
    /// told of.
    #[must_use]
    pub fn blind(&self) -> Option<(Why, u32)> {
        self.blind
    }

    /// The GPUs, as they were last told.
    #[must_use]
    pub fn gpus(&self) -> &[Gpu] {
        &self.gpus
    }

    /// What a process holds of all GPUs' memory, in KiB, if that is known.
    #[must_use]
    pub fn held(&self, pid: u32) -> Option<u32> {
        let of_it = self.held.iter().filter(|(_, held)| held.pid == pid).map(|(_, held)| held.kib);
        of_it.reduce(u32::saturating_add)
    }

    /// Every process and what it holds.
    pub fn processes(&self) -> impl Iterator<Item = Held> {
        self.held.iter().map(|(_, held)| *held)
    }

    /// All memory of a GPU and what is free of it, in KiB: of the one that has the least free, as a share. A model that
    /// is spread over several fails on the first that is full, and where one is idle beside the model server's, the idle
    /// one is not the shortest. `None` while nothing is told, or no GPU has memory of its own.
    #[must_use]
    pub fn memory(&self) -> Option<(u64, u64)> {
        if self.sight != Sight::Sees {
            return None;
        }
        let told =
            |gpu: &&Gpu| gpu.down.is_none() && gpu.figures.state == State::Told && gpu.figures.total > 0;
        let share = |gpu: &Gpu| u128::from(gpu.figures.free) * 1_000_000 / u128::from(gpu.figures.total);
        let shortest = self.gpus.iter().filter(told).min_by_key(|gpu| share(gpu))?;
        Some((shortest.figures.total / 1024, shortest.figures.free / 1024))
    }

    /// Takes a record.
    pub fn take(&mut self, record: Record, now: Instant) -> Option<News> {
        match record {
            // It says so once, and is then given more time.
            Record::Starting => {
                self.heard = Some(now + limits::HELPER_START);
                if self.sight == Sight::Stale {
                    self.sight = Sight::Starting;
                }
                None
            }
            Record::Blind(why, code) => {
                self.heard = Some(now);
                self.held.clear();
                self.gpus.retain(|gpu| gpu.down.is_some());
                self.sight = Sight::Blind(why, code);
                let again = self.blind.replace((why, code)) == Some((why, code));
                (!again).then_some(News::Blind(why, code))
            }
            Record::Figures(device, figures) => self.told(device, figures, None, now),
            Record::Down(device, fault, pci) => {
                self.told(device, Figures { pci, ..Figures::default() }, Some(fault), now)
            }
            Record::Processes(device, first, list) => {
                if first {
                    self.held.retain(|(of, _)| *of != device);
                }
                for held in list {
                    // The table is bounded; who has no room is not known.
                    let _full = self.held.push((device, held));
                }
                None
            }
            Record::Xid(_, code) => {
                u16::try_from(code).ok().and_then(|code| self.heard(Notice::Xid { code, pid: None }, now))
            }
            Record::Kernel(notice) => self.heard(notice, now),
            Record::Deaf(errno) => Some(News::Deaf(errno)),
            Record::Owner(question, owner) => Some(News::Owner(question, owner)),
            // A question is ours to ask.
            Record::Who(..) => None,
        }
    }

    fn told(&mut self, device: u8, figures: Figures, down: Option<Fault>, now: Instant) -> Option<News> {
        self.heard = Some(now);
        let before = match self.gpus.iter_mut().find(|gpu| gpu.device == device) {
            Some(gpu) => std::mem::replace(gpu, Gpu { device, figures, down }).down,
            None => {
                // One that has no room is not told of.
                self.gpus.push(Gpu { device, figures, down }).ok()?;
                None
            }
        };
        self.blind = None;
        let saw = std::mem::replace(&mut self.sight, Sight::Sees) == Sight::Sees;
        match (before, down) {
            (old, Some(fault)) if old != Some(fault) => Some(News::Down(device, fault)),
            (Some(_), None) => Some(News::Up(device)),
            _ => (!saw).then_some(News::Sees),
        }
    }

    fn heard(&mut self, notice: Notice, now: Instant) -> Option<News> {
        if let Notice::Xid { code, pid } = notice {
            let again = self.xid.is_some_and(|(last, of, at)| {
                last == code
                    && now.saturating_duration_since(at) < limits::HELPER_XID_TWICE
                    // What names the process says more than what does not.
                    && (of.is_some() || pid.is_none())
            });
            if again {
                return None;
            }
            self.xid = Some((code, pid, now));
        }
        Some(News::Heard(notice))
    }

    /// Looks whether it is silent.
    pub fn look(&mut self, now: Instant) -> Option<News> {
        let silent = now.saturating_duration_since(self.heard?);
        if self.sight == Sight::Stale {
            return (silent >= limits::HELPER_HOPELESS).then_some(News::Hopeless);
        }
        if silent < limits::HELPER_STALE {
            return None;
        }
        self.sight = Sight::Stale;
        self.held.clear();
        Some(News::Stale)
    }

    /// When to look again, if nothing is heard until then.
    #[must_use]
    pub fn next_look(&self, now: Instant) -> Duration {
        let after = if self.sight == Sight::Stale { limits::HELPER_HOPELESS } else { limits::HELPER_STALE };
        self.heard.map_or(after, |heard| (heard + after).saturating_duration_since(now))
    }
}

/// Waits between starts of what ends again and again: doubled each time, and short again after one that lasted.
#[derive(Clone, Copy, Debug)]
pub struct Backoff(Duration);

impl Default for Backoff {
    fn default() -> Self {
        Backoff(limits::HELPER_PAUSE)
    }
}

impl Backoff {
    /// How long to wait now, after one that lasted so long.
    pub fn after(&mut self, lasted: Duration) -> Duration {
        if lasted >= limits::HELPER_PAUSE_MAX {
            *self = Backoff::default();
        }
        let pause = self.0;
        self.0 = (pause * 2).min(limits::HELPER_PAUSE_MAX);
        pause
    }
}

/// A line of `nvidia-smi --query-gpu=index,memory.total,memory.free --format=csv,noheader,nounits`: figures in MiB, or
/// `[N/A]` where a GPU has no memory of its own.
#[must_use]
pub fn smi_line(line: &[u8]) -> Option<Record> {
    let line = std::str::from_utf8(line).ok()?;
    let mut words = line.split(',').map(str::trim);
    let device = words.next()?.parse().ok()?;
    let (total, free) = (words.next()?, words.next()?);
    if words.next().is_some() {
        return None;
    }
    let bytes = |mib: &str| mib.parse::<u64>().ok().and_then(|mib| mib.checked_mul(1 << 20));
    let figures = match (bytes(total), bytes(free)) {
        (Some(total), Some(free)) => Figures { total, free, ..Figures::default() },
        _ if total.starts_with('[') => Figures { state: State::Shared, ..Figures::default() },
        _ => return None,
    };
    Some(Record::Figures(device, figures))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn start() -> Instant {
        crate::time::now()
    }

    fn figures(total: u64, free: u64) -> Figures {
        Figures { total: total * MIB, free: free * MIB, ..Figures::default() }
    }

    #[test]
    fn the_shortest_gpu_counts_and_those_without_memory_do_not() {
        let (mut gpus, now) = (Gpus::default(), start());
        assert_eq!(gpus.memory(), None);
        gpus.began(now);
        assert_eq!(gpus.take(Record::Figures(0, figures(24_000, 6000)), now), Some(News::Sees));
        assert_eq!(gpus.memory(), Some((24_000 << 10, 6000 << 10)));
        assert_eq!(gpus.take(Record::Figures(1, figures(8000, 1900)), now), None);
        assert_eq!(gpus.memory(), Some((8000 << 10, 1900 << 10)), "less of its own than the other has");
        let asleep = Figures { state: State::Asleep, ..figures(8000, 0) };
        assert_eq!(gpus.take(Record::Figures(1, asleep), now), None);
        assert_eq!(gpus.memory(), Some((24_000 << 10, 6000 << 10)));
        let shared = Figures { state: State::Shared, ..Figures::default() };
        assert_eq!(gpus.take(Record::Figures(0, shared), now), None);
        assert_eq!(gpus.memory(), None);
    }

    #[test]
    fn silence_is_told_once_and_has_an_end() {
        let (mut gpus, now) = (Gpus::default(), start());
        assert_eq!(gpus.look(now), None);
        gpus.began(now);
        gpus.take(Record::Figures(0, figures(10, 5)), now);
        let late = now + limits::HELPER_STALE;
        assert_eq!(gpus.look(late - Duration::from_millis(1)), None);
        assert_eq!(gpus.next_look(now), limits::HELPER_STALE);
        // What the kernel says comes from another thread than what hangs.
        assert_eq!(gpus.take(Record::Deaf(1), late), Some(News::Deaf(1)));
        assert_eq!(gpus.look(late), Some(News::Stale));
        assert_eq!((gpus.memory(), gpus.sight()), (None, Sight::Stale));
        assert_eq!(gpus.look(late), None);
        assert_eq!(gpus.look(now + limits::HELPER_HOPELESS), Some(News::Hopeless));
        assert_eq!(gpus.take(Record::Figures(0, figures(10, 4)), late), Some(News::Sees));
        assert_eq!(gpus.memory(), Some((10 << 10, 4 << 10)));
    }

    #[test]
    fn loading_the_library_is_given_time() {
        let (mut gpus, now) = (Gpus::default(), start());
        gpus.began(now);
        gpus.take(Record::Starting, now);
        assert_eq!(gpus.look(now + limits::HELPER_START), None);
        assert_eq!(gpus.look(now + limits::HELPER_START + limits::HELPER_STALE), Some(News::Stale));
    }

    #[test]
    fn blind_is_not_down() {
        let (mut gpus, now) = (Gpus::default(), start());
        gpus.began(now);
        let blind = Record::Blind(Why::Mismatch, 18);
        assert_eq!(gpus.take(blind.clone(), now), Some(News::Blind(Why::Mismatch, 18)));
        assert_eq!(gpus.take(blind.clone(), now), None, "said once");
        gpus.ended();
        gpus.began(now);
        assert_eq!(gpus.take(blind, now), None, "and not by each that is started");
        assert_eq!(gpus.take(Record::Figures(0, figures(10, 5)), now), Some(News::Sees));
        let down = Record::Down(0, Fault::Lost, 0);
        assert_eq!(gpus.take(down.clone(), now), Some(News::Down(0, Fault::Lost)));
        assert_eq!((gpus.take(down, now), gpus.memory()), (None, None));
        // Its helper ends, another comes: the GPU is as it was.
        gpus.ended();
        assert_eq!((gpus.sight(), gpus.gpus().len()), (Sight::Absent, 1));
        assert_eq!(gpus.take(Record::Figures(0, figures(10, 5)), now), Some(News::Up(0)));
    }

    #[test]
    fn a_process_list_is_one_even_in_pieces_and_of_several_gpus() {
        let (mut gpus, now) = (Gpus::default(), start());
        gpus.began(now);
        let list = |range: std::ops::Range<u32>| range.map(|pid| Held { pid, kib: 10 }).collect();
        gpus.take(Record::Processes(0, true, list(1..8)), now);
        gpus.take(Record::Processes(0, false, list(8..10)), now);
        gpus.take(Record::Processes(1, true, list(9..10)), now);
        assert_eq!((gpus.held(1), gpus.held(9), gpus.held(10)), (Some(10), Some(20), None));
        gpus.take(Record::Processes(0, true, list(2..3)), now);
        assert_eq!((gpus.held(1), gpus.held(2), gpus.held(9)), (None, Some(10), Some(10)));
        assert_eq!(gpus.processes().count(), 2);
    }

    #[test]
    fn an_xid_that_both_tell_of_is_told_once() {
        let (mut gpus, now) = (Gpus::default(), start());
        let xid = |pid| Notice::Xid { code: 31, pid };
        assert_eq!(gpus.take(Record::Xid(0, 31), now), Some(News::Heard(xid(None))));
        assert_eq!(gpus.take(Record::Xid(0, 31), now), None);
        let named = Record::Kernel(xid(Some(7)));
        assert_eq!(gpus.take(named.clone(), now), Some(News::Heard(xid(Some(7)))), "now with its process");
        assert_eq!(gpus.take(named.clone(), now), None);
        assert_eq!(gpus.take(Record::Xid(0, 31), now), None);
        assert!(gpus.take(Record::Xid(0, 79), now).is_some());
        assert!(gpus.take(named, now + limits::HELPER_XID_TWICE).is_some());
    }

    #[test]
    fn pauses_double_and_are_short_again_after_one_that_lasted() {
        let mut backoff = Backoff::default();
        let pauses: Vec<u64> = (0..8).map(|_| backoff.after(Duration::ZERO).as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(backoff.after(limits::HELPER_PAUSE_MAX).as_secs(), 1);
    }

    #[test]
    fn lines_of_nvidia_smi_are_read() {
        assert_eq!(smi_line(b"0, 24564, 20000"), Some(Record::Figures(0, figures(24_564, 20_000))));
        let shared = Figures { state: State::Shared, ..Figures::default() };
        assert_eq!(smi_line(b"1, [N/A], [N/A]"), Some(Record::Figures(1, shared)));
        for line in ["", "0, 1", "0, 1, 2, 3", "NVIDIA-SMI has failed, a, b", "0, -1, 2", "0, x, y"] {
            assert_eq!(smi_line(line.as_bytes()), None, "{line}");
        }
    }

    proptest! {
        #[test]
        fn no_text_and_no_order_of_records_makes_it_panic(
            raw in proptest::collection::vec(any::<u8>(), 0..128),
            text in "[ 0-9A-Fa:,\\[]{0,80}",
            records in proptest::collection::vec((0u8..10, any::<[u8; 32]>(), 0u64..9000), 0..60),
        ) {
            for text in [&raw[..], text.as_bytes()] {
                let _ = smi_line(text);
            }
            let (mut gpus, mut now) = (Gpus::default(), start());
            for (kind, rest, ms) in records {
                let mut bytes = [0; super::super::record::BYTES];
                bytes[..32].copy_from_slice(&rest);
                (bytes[0], bytes[1]) = (super::super::record::VERSION, kind);
                now += Duration::from_millis(ms);
                if let Ok(Some(record)) = Record::decode(&bytes) {
                    let _ = gpus.take(record, now);
                }
                let _ = (gpus.look(now), gpus.next_look(now));
                if let Some((total, _)) = gpus.memory() {
                    prop_assert!(total > 0 || gpus.gpus().iter().any(|gpu| gpu.figures.total < 1024));
                }
            }
        }
    }
}
