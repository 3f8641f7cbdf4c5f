//! What memory the box usually lives with, kept in a file: a restart does not begin at nothing.

use std::cell::{Cell, RefCell};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Instant;

use super::gateway::Process;
use super::spending;
use crate::config::Board;
use crate::limits;
use crate::memory::State;
use crate::memory::kept::Kept;
use crate::observe::memory_events;
use crate::task;

/// Where it is kept, and what of it. One for the process.
#[derive(Debug, Default)]
pub struct Usual {
    file: RefCell<Option<PathBuf>>,
    /// As it is, and on which board.
    now: RefCell<Option<(Board, Kept)>>,
    /// As it is in the file.
    written: RefCell<Kept>,
    /// When it was last noted, and written.
    noted: Cell<Option<Instant>>,
    wrote: Cell<Option<Instant>>,
    writing: Cell<bool>,
    /// That it cannot be written was said.
    told: Cell<bool>,
}

impl Usual {
    /// It is kept in `folder` from here on.
    pub fn open(&self, folder: &Path) {
        *self.file.borrow_mut() = Some(folder.join("usual"));
    }

    /// What was usual before this process began; nothing where the file is damaged.
    pub fn read(&self, board: Board) -> Kept {
        let Some(path) = self.file.borrow().clone() else { return Kept::default() };
        let bounded = || {
            if std::fs::metadata(&path)?.len() > limits::MEMORY_USUAL_BYTES as u64 {
                return Err(io::Error::other("it is too long"));
            }
            let text = std::fs::read_to_string(&path)?;
            Kept::from_text(&text, board.as_str()).map_err(io::Error::other)
        };
        let kept = bounded().unwrap_or_else(|error| {
            if error.kind() != io::ErrorKind::NotFound {
                memory_events::source_missing(&path, &error, "what is usual is learned anew");
            }
            Kept::default()
        });
        self.written.borrow_mut().clone_from(&kept);
        kept
    }

    /// How it stands, after a look: written at times, on another thread.
    pub fn note(&self, process: &Rc<Process>, board: Board, state: &State, now: Instant) {
        let since = |then: &Cell<Option<Instant>>, time| match then.get() {
            Some(then) => now.saturating_duration_since(then) >= time,
            None => {
                then.set(Some(now));
                false
            }
        };
        if !since(&self.noted, limits::MEMORY_USUAL_LOOK) {
            return;
        }
        self.noted.set(Some(now));
        *self.now.borrow_mut() = Some((board, state.kept()));
        if !since(&self.wrote, limits::MEMORY_USUAL_INTERVAL) || self.writing.get() {
            return;
        }
        let Some((path, text, kept)) = self.due() else { return };
        self.wrote.set(Some(now));
        self.writing.set(true);
        let process = Rc::clone(process);
        task::start(async move {
            let at = path.clone();
            let written = tokio::task::spawn_blocking(move || spending::write(&at, &text)).await;
            process.usual.writing.set(false);
            if let Ok(written) = written {
                process.usual.tell(&path, written, kept);
            }
        });
    }

    /// Writes it here and now, at the end.
    pub fn keep_now(&self) {
        if let Some((path, text, kept)) = self.due().filter(|_| !self.writing.get()) {
            let written = spending::write(&path, &text);
            self.tell(&path, written, kept);
        }
    }

    fn due(&self) -> Option<(PathBuf, String, Kept)> {
        let (path, now) = (self.file.borrow(), self.now.borrow());
        let (path, (board, kept)) = (path.as_ref()?, now.as_ref()?);
        kept.differs(&self.written.borrow())
            .then(|| (path.clone(), kept.to_text(board.as_str()), kept.clone()))
    }

    fn tell(&self, path: &Path, written: io::Result<()>, kept: Kept) {
        match written {
            Ok(()) => {
                self.told.set(false);
                *self.written.borrow_mut() = kept;
            }
            Err(error) if !self.told.replace(true) => memory_events::usual_unwritable(path, &error),
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::{self, Memory};
    use crate::memory::{Field, Sample, Terms, board, step};
    use crate::proxy::gateway::Gateway;
    use crate::proxy::upstream::ProxyRules;
    use crate::time::now;

    const BOARD: Board = Board::JetsonOrin;

    fn lived(free: u64) -> State {
        let at = now();
        let mut state = State::new(Terms::new(&Memory::default(), board::of(BOARD)), at);
        let mut sample = Sample::default();
        sample.set(Field::Total, 8 << 20);
        sample.set(Field::Available, free);
        step(&mut state, &sample, at);
        state
    }

    fn process(folder: &Path) -> Rc<Process> {
        let config = config::discover(&|_: &str| None, &[]).config;
        Gateway::new(config, &ProxyRules::from_env(), Some(folder)).unwrap().process
    }

    #[test]
    fn it_is_written_rarely_and_read_again_and_a_damaged_file_is_as_good_as_none() {
        let folder = std::env::temp_dir().join(format!("edgeward-usual-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("usual");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let (one, start) = (process(&folder), now());
            assert_eq!(one.usual.read(BOARD), Kept::default());
            let note = |free, seconds| {
                one.usual.note(&one, BOARD, &lived(free), start + Duration::from_secs(seconds));
            };
            let done = async || {
                while one.usual.writing.get() {
                    tokio::task::yield_now().await;
                }
            };
            (0..10).for_each(|minute| note(1 << 20, minute * 60));
            assert!(!one.usual.writing.get() && !file.exists(), "not yet");
            // It is looked at each minute, and written ten minutes after the first look.
            note(1 << 20, 600);
            note(1 << 20, 660);
            done().await;
            let first = std::fs::read_to_string(&file).unwrap();
            assert!(first.contains("host 8388608 0 7340032\n"), "{first}");
            (12..40).for_each(|minute| note((1 << 20) + 1000, minute * 60));
            assert!(!one.usual.writing.get(), "nothing that counts has changed");
            note(2 << 20, 2400);
            done().await;
            let second = std::fs::read_to_string(&file).unwrap();
            assert_ne!(second, first);
            note(3 << 20, 2460);
            assert!(!one.usual.writing.get(), "not each minute");
            one.usual.keep_now();
            assert_ne!(std::fs::read_to_string(&file).unwrap(), second, "but at the end");

            let two = process(&folder);
            assert_eq!(two.usual.read(BOARD), lived(3 << 20).kept());
            assert_eq!(two.usual.read(Board::Generic), Kept::default());
            std::fs::write(&file, &first[..first.len() - 1]).unwrap();
            assert_eq!(two.usual.read(BOARD), Kept::default());
            std::fs::write(&file, "x".repeat(limits::MEMORY_USUAL_BYTES + 1)).unwrap();
            assert_eq!(two.usual.read(BOARD), Kept::default());
        });
        std::fs::remove_dir_all(folder).unwrap();
    }
}
