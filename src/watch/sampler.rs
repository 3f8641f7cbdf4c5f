//! Reads samples of memory: files that stay open, read again into one buffer. What cannot be read is left out of the
//! sample, said once, and tried again a minute later.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::places;
use crate::config::{Board, Memory};
use crate::limits::{MEMORY_FILE_BYTES, MEMORY_RETRY};
use crate::memory::{Field, Sample, Terms, board};
use crate::observe::memory_events;
use crate::time::now;

/// What a file tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Meminfo,
    Vmstat,
    Pressure,
    Limit,
    High,
    Current,
    Stat,
    Events,
    CardTotal,
    CardUsed,
}

impl Kind {
    /// The figures that go with it.
    const fn fields(self) -> &'static [Field] {
        match self {
            Kind::Meminfo => &[
                Field::Total,
                Field::Available,
                Field::Free,
                Field::HugeTotal,
                Field::HugeFree,
                Field::SwapFree,
                Field::NvMap,
            ],
            Kind::Vmstat => &[Field::SwapIn, Field::Kills],
            Kind::Pressure => &[Field::PsiSome, Field::PsiFull],
            Kind::Limit => &[Field::GroupMax],
            // The limit is there without it.
            Kind::High => &[],
            Kind::Current => &[Field::GroupCurrent],
            Kind::Stat => &[Field::GroupFile],
            Kind::Events => &[Field::GroupKills],
            Kind::CardTotal => &[Field::DeviceTotal],
            Kind::CardUsed => &[Field::DeviceFree],
        }
    }

    /// What is missing without it, and what helps.
    const fn remedy(self) -> &'static str {
        match self {
            Kind::Meminfo => "without it nothing is watched: mount /proc, and in a unit ProcSubset=all",
            Kind::Vmstat => "without it swapping and kills are not seen: in a unit ProcSubset=all",
            Kind::Pressure => {
                "without it waiting programs are not seen: the kernel needs CONFIG_PSI, and psi=1 on its command line"
            }
            Kind::Limit | Kind::High | Kind::Current | Kind::Stat | Kind::Events => {
                "without it the model server's limit is not seen: does memory.cgroup name its cgroup, and does that \
                 run?"
            }
            Kind::CardTotal | Kind::CardUsed => "without it the card's memory is not seen: is amdgpu loaded?",
        }
    }

    fn take(self, sample: &mut Sample, text: &[u8]) -> bool {
        match self {
            Kind::Meminfo => sample.meminfo(text),
            Kind::Vmstat => sample.vmstat(text),
            Kind::Pressure => sample.pressure(text),
            Kind::Limit => sample.group_limit(text, true),
            Kind::High => sample.group_limit(text, false),
            Kind::Current => sample.group_current(text),
            Kind::Stat => sample.group_stat(text),
            Kind::Events => sample.group_events(text),
            Kind::CardTotal => sample.device(text, true),
            Kind::CardUsed => sample.device(text, false),
        }
    }
}

/// One file.
#[derive(Debug)]
struct Source {
    kind: Kind,
    path: PathBuf,
    file: Option<File>,
    /// Why it could not be read, when it was last tried.
    trouble: Option<(Instant, io::Error)>,
    /// When it was last read.
    read: Option<Instant>,
}

/// How a source is, for people.
#[derive(Debug)]
pub struct Report {
    /// The file.
    pub path: PathBuf,
    /// Since it was read, and what reading it takes; or why it cannot be, and what helps.
    pub state: Result<(Duration, Duration), (String, &'static str)>,
}

/// All sources of this box.
#[derive(Debug)]
pub struct Sampler {
    /// Which board this is, and by what that is known.
    pub board: (Board, &'static str),
    sources: Vec<Source>,
    sample: Sample,
    buffer: Vec<u8>,
}

impl Sampler {
    /// Looks what kind of box this is. Nothing is opened yet.
    #[must_use]
    pub fn new(config: &Memory) -> Self {
        Sampler::at(Path::new(places::ROOT), config)
    }

    /// The same of the box whose files are under `root`.
    #[must_use]
    pub fn at(root: &Path, config: &Memory) -> Self {
        const GROUP: [(Kind, &str); 5] = [
            (Kind::Limit, "memory.max"),
            (Kind::High, "memory.high"),
            (Kind::Current, "memory.current"),
            (Kind::Stat, "memory.stat"),
            (Kind::Events, "memory.events"),
        ];
        const GROUP_1: [(Kind, &str); 4] = [
            (Kind::Limit, "memory.limit_in_bytes"),
            (Kind::Current, "memory.usage_in_bytes"),
            (Kind::Stat, "memory.stat"),
            (Kind::Events, "memory.oom_control"),
        ];
        const CARD: [(Kind, &str); 2] =
            [(Kind::CardTotal, "mem_info_vram_total"), (Kind::CardUsed, "mem_info_vram_used")];
        const PROC: [(Kind, &str); 3] =
            [(Kind::Meminfo, "meminfo"), (Kind::Vmstat, "vmstat"), (Kind::Pressure, "pressure/memory")];
        let group = places::group(root, config);
        let old = group.as_ref().is_some_and(|group| group.join(GROUP_1[0].1).exists());
        let folders = [
            (Some(root.join("proc")), &PROC[..]),
            (group, if old { &GROUP_1 } else { &GROUP }),
            (places::card(root), &CARD),
        ];
        let mut sources = Vec::new();
        for (folder, files) in folders {
            let Some(folder) = folder else { continue };
            for (kind, name) in files {
                let path = folder.join(name);
                sources.push(Source { kind: *kind, path, file: None, trouble: None, read: None });
            }
        }
        Sampler {
            board: places::board(root, config),
            sources,
            sample: Sample::default(),
            buffer: vec![0; MEMORY_FILE_BYTES],
        }
    }

    /// By what its samples are judged.
    #[must_use]
    pub fn terms(&self, config: &Memory) -> Terms {
        Terms::new(config, board::of(self.board.0))
    }

    /// A GPU's own memory and what is free of it, in KiB, as its driver told; `None`: it tells nothing now. For the next
    /// [`Sampler::read`], whose own sources win.
    pub fn device(&mut self, memory: Option<(u64, u64)>) {
        match memory {
            Some((total, free)) => {
                self.sample.set(Field::DeviceTotal, total);
                self.sample.set(Field::DeviceFree, free);
            }
            None => self.sample.fade(&[Field::DeviceTotal, Field::DeviceFree]),
        }
    }

    /// Everything as it is now. Allocates nothing while all goes well.
    pub fn read(&mut self, at: Instant) -> &Sample {
        for source in &mut self.sources {
            source.read(&mut self.sample, &mut self.buffer, at);
        }
        &self.sample
    }

    /// How each source is. Reads each a few times more, to see what that takes.
    pub fn report(&mut self) -> Vec<Report> {
        const TIMES: u32 = 100;
        let one = |source: &mut Source| {
            let start = now();
            let age = source.read.map(|read| start.saturating_duration_since(read));
            for _ in 0..TIMES {
                source.read(&mut self.sample, &mut self.buffer, start);
            }
            let cost = now().saturating_duration_since(start) / TIMES;
            let state = match (&source.trouble, age) {
                (None, Some(age)) => Ok((age, cost)),
                (trouble, _) => {
                    let why = trouble.as_ref().map_or("not read yet".to_owned(), |(_, why)| why.to_string());
                    Err((why, source.kind.remedy()))
                }
            };
            Report { path: source.path.clone(), state }
        };
        self.sources.iter_mut().map(one).collect()
    }
}

impl Source {
    fn read(&mut self, sample: &mut Sample, buffer: &mut [u8], at: Instant) {
        if let Some((tried, _)) = &self.trouble
            && at.saturating_duration_since(*tried) < MEMORY_RETRY
        {
            sample.fade(self.kind.fields());
            return;
        }
        match self.text(buffer) {
            Ok(text) if self.kind.take(sample, text) => {
                (self.trouble, self.read) = (None, Some(at));
                return;
            }
            Ok(_) => self.failed(ErrorKind::InvalidData.into(), at),
            Err(error) => self.failed(error, at),
        }
        sample.fade(self.kind.fields());
    }

    fn failed(&mut self, error: io::Error, at: Instant) {
        // Opened anew: a cgroup that is made again is another file.
        self.file = None;
        if self.trouble.is_none() {
            memory_events::source_missing(&self.path, &error, self.kind.remedy());
        }
        self.trouble = Some((at, error));
    }

    fn text<'b>(&mut self, buffer: &'b mut [u8]) -> io::Result<&'b [u8]> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(File::open(&self.path)?),
        };
        let mut length = 0;
        while let Some(room) = buffer.get_mut(length..).filter(|room| !room.is_empty()) {
            match file.read_at(room, u64::try_from(length).unwrap_or(u64::MAX)) {
                Ok(0) => break,
                Ok(count) => length += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(buffer.get(..length).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Quality;

    #[test]
    fn this_box_is_read() {
        let mut sampler = Sampler::new(&Memory::default());
        let sample = sampler.read(now());
        let (available, total) = (sample.get(Field::Available).unwrap(), sample.get(Field::Total).unwrap());
        assert!(available > 0 && available <= total);
        assert!(sample.get(Field::Kills).is_some());
        let reports = sampler.report();
        assert!(reports[0].state.is_ok(), "{reports:?}");
    }

    #[test]
    fn a_cgroup_that_comes_later_is_read_then_and_one_that_goes_fades() {
        let folder = std::env::temp_dir().join(format!("edgeward-sampler-{}", std::process::id()));
        let config = Memory { cgroup: Some(folder.clone()), ..Memory::default() };
        let (mut sampler, mut at) = (Sampler::new(&config), now());
        assert_eq!(sampler.read(at).quality(Field::GroupMax), Quality::Missing);
        std::fs::create_dir_all(&folder).unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
        write("memory.max", "1073741824\n");
        write("memory.high", "max\n");
        write("memory.current", "536870912\n");
        write("memory.stat", "inactive_file 0\nactive_file 0\n");
        write("memory.events", "oom_kill 0\n");
        assert_eq!(sampler.read(at).get(Field::GroupMax), None, "not at each look");
        at += MEMORY_RETRY;
        let sample = sampler.read(at);
        assert_eq!(sample.axis(crate::memory::Axis::Group, false), Some((512 * 1024, 1024 * 1024)));
        assert!(sampler.report().iter().all(|report| report.state.is_ok()));
        // A file that has nothing any more is as good as gone.
        write("memory.current", "");
        at += Duration::from_millis(1);
        assert_eq!(sampler.read(at).quality(Field::GroupCurrent), Quality::Old);
        assert_eq!(sampler.read(at).quality(Field::GroupCurrent), Quality::Missing);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
