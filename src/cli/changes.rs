//! Sees that the configuration file is another one: inotify on whatever decides what is read by its name.
//!
//! The folder is watched, not the file: editors put a new file in the old one's place, configuration managers turn a
//! symbolic link, and a file that was removed comes back. At rest nothing wakes.

use std::ffi::{OsStr, OsString};
use std::future::pending;
use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::time::Instant;

use ring::digest::{SHA256, digest};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use tokio::io::unix::AsyncFd;

use crate::limits::{CONFIG_BYTES_MAX, CONFIG_LINKS_MAX, CONFIG_SETTLE, CONFIG_SETTLE_MAX};
use crate::observe::reload_events as events;
use crate::time::now;

/// What may put something else in the place of an entry, or lets it be read.
const ENTRY: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::ONLYDIR);
/// The folder itself is gone or elsewhere, or events were lost.
const FOLDER: ReadFlags = ReadFlags::DELETE_SELF
    .union(ReadFlags::MOVE_SELF)
    .union(ReadFlags::UNMOUNT)
    .union(ReadFlags::QUEUE_OVERFLOW);

/// A file's content, by its SHA-256; `None` where nothing can be read.
type Content = Option<[u8; 32]>;

/// One file, and what it held at the last look.
pub(super) struct Changes {
    path: PathBuf,
    seen: Content,
    watch: Option<Watch>,
    /// When it was touched first and last, and not looked at since.
    touched: Option<(Instant, Instant)>,
    /// That it cannot be watched was said.
    told: bool,
}

impl Changes {
    /// Takes its first look. Before the file is loaded, so that no change falls between.
    pub fn new(path: &Path) -> Self {
        Changes { path: path.to_owned(), seen: content(path), watch: None, touched: None, told: false }
    }

    /// Begins to watch, in a runtime. What cannot be watched is said, and SIGHUP is there.
    pub fn watch(&mut self) {
        // Standard input, or a pipe: it cannot be read twice.
        if self.path.metadata().is_ok_and(|found| !found.is_file()) {
            return;
        }
        match Watch::new() {
            Ok(watch) => self.watch = Some(watch),
            Err(error) => self.unwatched(&error),
        }
        self.place();
        // It may have changed since the first look.
        if self.watch.is_some() && content(&self.path) != self.seen {
            self.touched = Some((now(), now()));
        }
    }

    /// Takes a look. Returns whether it holds something else than at the last one.
    pub fn look(&mut self) -> bool {
        let found = content(&self.path);
        self.touched = None;
        std::mem::replace(&mut self.seen, found) != found
    }

    /// Waits until the file holds something else, and was left alone for [`CONFIG_SETTLE`]. May be dropped and
    /// called again.
    pub async fn next(&mut self) {
        loop {
            let Some(watch) = &self.watch else { return pending().await };
            let due = self.touched.map(|(first, last)| (last + CONFIG_SETTLE).min(first + CONFIG_SETTLE_MAX));
            let settled = async {
                match due {
                    Some(due) => tokio::time::sleep(due.saturating_duration_since(now())).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                touched = watch.touched() => match touched {
                    Ok(()) => {
                        let at = now();
                        self.touched = Some((self.touched.map_or(at, |(first, _)| first), at));
                    }
                    Err(error) => self.unwatched(&error),
                },
                () = settled => {
                    // First, so that nothing that comes after the look is missed.
                    self.place();
                    if self.look() {
                        return;
                    }
                }
            }
        }
    }

    /// Watches where the name leads now.
    fn place(&mut self) {
        let Some(watch) = &mut self.watch else { return };
        if let Err(error) = watch.place(&places(&self.path))
            && !std::mem::replace(&mut self.told, true)
        {
            events::config_unwatched(&self.path, &error);
        }
    }

    fn unwatched(&mut self, error: &io::Error) {
        self.watch = None;
        if !std::mem::replace(&mut self.told, true) {
            events::config_unwatched(&self.path, error);
        }
    }
}

fn content(path: &Path) -> Content {
    // Opening a pipe would wait for its writer, and take what the configuration is read from.
    if !path.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    std::fs::File::open(path).ok()?.take(CONFIG_BYTES_MAX + 1).read_to_end(&mut bytes).ok()?;
    digest(&SHA256, &bytes).as_ref().try_into().ok()
}

/// The entries that decide what is read as `path`, each with its folder: every symbolic link on the way, and at its end
/// the file, or what is missing.
fn places(path: &Path) -> Vec<(PathBuf, OsString)> {
    let parts = |path: &Path| {
        path.components().rev().map(|part| part.as_os_str().to_owned()).collect::<Vec<OsString>>()
    };
    let mut found = Vec::new();
    let mut rest = parts(&std::path::absolute(path).unwrap_or_else(|_| path.to_owned()));
    let mut at = PathBuf::new();
    while let Some(part) = rest.pop() {
        match Path::new(&part).components().next() {
            Some(Component::ParentDir) => {
                at.pop();
            }
            Some(Component::Normal(_)) => {
                let here = at.join(&part);
                if let Ok(to) = here.read_link() {
                    found.push((at.clone(), part));
                    if found.len() > CONFIG_LINKS_MAX {
                        break;
                    }
                    rest.extend(parts(&to));
                } else if rest.is_empty() || here.symlink_metadata().is_err() {
                    found.push((at, part));
                    break;
                } else {
                    at = here;
                }
            }
            Some(Component::RootDir) => at = PathBuf::from("/"),
            Some(Component::CurDir | Component::Prefix(_)) | None => {}
        }
    }
    found
}

/// Folders, and the names in them that matter.
struct Watch {
    fd: AsyncFd<OwnedFd>,
    names: Vec<(i32, OsString)>,
}

impl Watch {
    #[expect(deprecated, reason = "its successor is unsafe, for types that are less careful than OwnedFd")]
    fn new() -> io::Result<Self> {
        let fd = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        Ok(Watch { fd: AsyncFd::new(fd)?, names: Vec::new() })
    }

    /// Watches these and no others. What can be watched is, also where something cannot.
    fn place(&mut self, places: &[(PathBuf, OsString)]) -> io::Result<()> {
        let mut result = Ok(());
        let mut names = Vec::with_capacity(places.len());
        for (folder, name) in places {
            // The same folder has the same number.
            match inotify::add_watch(self.fd.get_ref(), folder, ENTRY) {
                Ok(number) => names.push((number, name.clone())),
                Err(error) => result = Err(error.into()),
            }
        }
        for (old, _) in std::mem::replace(&mut self.names, names) {
            if self.names.iter().all(|(number, _)| *number != old) {
                // A folder that is gone has taken its watch with it.
                let _gone = inotify::remove_watch(self.fd.get_ref(), old);
            }
        }
        result
    }

    /// Waits until something was done to an entry that matters.
    async fn touched(&self) -> io::Result<()> {
        loop {
            let mut ready = self.fd.readable().await?;
            match ready.try_io(|fd| self.read(fd.get_ref())) {
                Ok(Ok(true)) => return Ok(()),
                Ok(Err(error)) => return Err(error),
                Ok(Ok(false)) | Err(_) => {}
            }
        }
    }

    /// Reads what there is. "Would block" is passed on only where there was nothing.
    fn read(&self, fd: &OwnedFd) -> io::Result<bool> {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = Reader::new(fd, &mut buffer);
        let (mut any, mut matters) = (false, false);
        loop {
            match reader.next() {
                Ok(event) => {
                    any = true;
                    let name = event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()));
                    matters |= event.events().intersects(FOLDER)
                        || self
                            .names
                            .iter()
                            .any(|(number, entry)| *number == event.wd() && name == Some(entry));
                }
                Err(rustix::io::Errno::AGAIN) if any => return Ok(matters),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new() -> Self {
            static NEXT: AtomicU32 = AtomicU32::new(0);
            let name =
                format!("edgeward-changes-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
            let path = std::env::temp_dir().join(name);
            fs::create_dir_all(&path).unwrap();
            Folder(path.canonicalize().unwrap())
        }

        fn at(&self, name: &str) -> PathBuf {
            self.0.join(name)
        }

        fn write(&self, name: &str, text: &str) {
            fs::write(self.at(name), text).unwrap();
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            drop(fs::remove_dir_all(&self.0));
        }
    }

    fn run(test: impl AsyncFnOnce()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(test());
    }

    /// Watches `path`; `change` is seen, and the file then has what it holds now.
    async fn sees(changes: &mut Changes, what: &str, change: impl FnOnce()) {
        change();
        let seen = tokio::time::timeout(CONFIG_SETTLE_MAX * 2, changes.next()).await;
        assert!(seen.is_ok(), "{what} was not seen");
        assert_eq!(changes.seen, content(&changes.path), "{what}");
    }

    fn watched(path: &Path) -> Changes {
        let mut changes = Changes::new(path);
        changes.watch();
        assert!(changes.watch.is_some() && !changes.told);
        changes
    }

    #[test]
    fn each_way_of_changing_a_file_is_seen() {
        run(async || {
            let folder = Folder::new();
            let make = |name: &str| fs::create_dir(folder.at(name)).unwrap();
            make("d");
            folder.write("d/f", "1");
            let mut changes = watched(&folder.at("d/f"));
            sees(&mut changes, "a write", || folder.write("d/f", "2")).await;
            sees(&mut changes, "a rename over it", || {
                folder.write("d/f.new", "3");
                fs::rename(folder.at("d/f.new"), folder.at("d/f")).unwrap();
            })
            .await;
            sees(&mut changes, "its removal", || fs::remove_file(folder.at("d/f")).unwrap()).await;
            sees(&mut changes, "its return", || folder.write("d/f", "4")).await;
            let away = || fs::rename(folder.at("d"), folder.at("away")).unwrap();
            sees(&mut changes, "its folder's way elsewhere", away).await;
            sees(&mut changes, "another folder in its place", || {
                make("d");
                folder.write("d/f", "5");
            })
            .await;
            sees(&mut changes, "and a write after that", || folder.write("d/f", "6")).await;
        });
    }

    /// As Kubernetes mounts a ConfigMap: f → ..data/f, ..data → a folder with a date.
    #[test]
    fn a_link_on_the_way_that_is_turned_is_seen() {
        run(async || {
            let folder = Folder::new();
            for day in ["1", "2"] {
                fs::create_dir(folder.at(day)).unwrap();
                folder.write(&format!("{day}/f"), day);
            }
            symlink("1", folder.at("..data")).unwrap();
            symlink("..data/f", folder.at("f")).unwrap();
            let mut changes = watched(&folder.at("f"));
            sees(&mut changes, "the swap", || {
                symlink("2", folder.at("..new")).unwrap();
                fs::rename(folder.at("..new"), folder.at("..data")).unwrap();
            })
            .await;
            sees(&mut changes, "a write where it leads now", || folder.write("2/f", "3")).await;
        });
    }

    #[test]
    fn the_same_content_is_no_change() {
        let folder = Folder::new();
        folder.write("f", "1");
        let mut changes = Changes::new(&folder.at("f"));
        folder.write("f", "2");
        folder.write("f", "1");
        assert!(!changes.look());
        folder.write("f", "2");
        assert!(changes.look() && !changes.look());
    }

    #[test]
    fn a_pipe_is_neither_read_nor_watched() {
        let folder = Folder::new();
        let made = std::process::Command::new("mkfifo").arg(folder.at("f")).status().unwrap();
        assert!(made.success());
        run(async || {
            let mut changes = Changes::new(&folder.at("f"));
            changes.watch();
            assert!(changes.watch.is_none() && !changes.told && changes.seen.is_none());
        });
    }

    #[test]
    fn a_name_leads_through_links_to_a_file_or_to_what_is_missing() {
        let folder = Folder::new();
        let place = |name: &str| (folder.0.clone(), OsString::from(name));
        assert_eq!(places(&folder.at("a/b/f")), [place("a")]);
        symlink("b", folder.at("a")).unwrap();
        assert_eq!(places(&folder.at("a/f")), [place("a"), place("b")]);
        symlink("a", folder.at("b")).unwrap();
        assert_eq!(places(&folder.at("a")).len(), CONFIG_LINKS_MAX + 1, "a circle has an end");
        assert_eq!(places(&folder.at("./c/../f")), [place("c")]);
        fs::create_dir(folder.at("c")).unwrap();
        assert_eq!(places(&folder.at("./c/../f")), [place("f")]);
    }
}
