//! Which process serves a target of this box, what it has started, and that it has ended.

use std::fs::{self, File};
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, geteuid, pidfd_open};
use tokio::io::unix::AsyncFd;

use super::sockets::listeners;
use crate::config::ProcessHint;
use crate::limits;

/// Where a server is looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Of its listening socket.
    pub ip: IpAddr,
    /// Likewise.
    pub port: u16,
    /// What its operator says.
    pub hint: Option<ProcessHint>,
}

/// A server's processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// In words; completes "found by …".
    pub how: &'static str,
    /// Its listening socket, by whose end its own is known where it is one of several.
    pub socket: Option<u64>,
    /// The server itself, where that is certain.
    pub main: Option<u32>,
    /// What it has started; where the server itself is not known, all that it may be.
    pub others: Vec<u32>,
    /// Its cgroup's folder.
    pub group: Option<PathBuf>,
}

/// Why none is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotFound {
    /// Nobody listens there.
    Nobody,
    /// Sockets of several processes listen there beside each other.
    Several,
    /// systemd holds the socket, too.
    Activated,
    /// Somebody listens, on the socket of this number, whose processes this user may not see.
    Hidden(Option<u64>),
    /// No cgroup has the unit's name.
    NoUnit,
    /// The file cannot be read, or has no number in it.
    NoPidFile,
    /// It ended in the same moment, or the system does not let its end be watched.
    Unheld,
}

impl NotFound {
    /// In words, and what helps.
    #[must_use]
    pub const fn in_words(self) -> (&'static str, &'static str) {
        const NAME: &str = "write process = { unit = \"…\" } or { pid_file = \"…\" } in its target";
        match self {
            NotFound::Nobody => ("nobody listens there", "start it"),
            NotFound::Several => ("several sockets listen there beside each other", NAME),
            NotFound::Activated => ("systemd holds its socket", NAME),
            NotFound::Hidden(_) => (
                "it is another user's, and neither its cgroup nor the helper shows it",
                "install edgeward-nvml, or write process = { unit = \"…\" } or { pid_file = \"…\" } in its target",
            ),
            NotFound::NoUnit => {
                ("there is no cgroup of its unit's name", "start it, or put process.unit right")
            }
            NotFound::Unheld => (
                "its end cannot be watched",
                "let edgeward's unit use pidfd_open(2) (Linux 5.3), and have file descriptors left",
            ),
            NotFound::NoPidFile => (
                "its pid_file cannot be read or has no number in it",
                "put process.pid_file right, or let edgeward read it",
            ),
        }
    }
}

/// Looks for it. `before`: what was found last, of which what still holds is not looked for again. `owner`: who has a
/// socket of this number, where somebody with more rights has said so.
///
/// # Errors
/// Why it is not known.
pub fn find(
    address: &Address,
    before: Option<&Found>,
    owner: &dyn Fn(u64) -> Option<u32>,
) -> Result<Found, NotFound> {
    match &address.hint {
        Some(ProcessHint::PidFile(path)) => by_pid_file(path),
        Some(ProcessHint::Unit(name)) => {
            let socket = listeners(address.ip, address.port).ok().and_then(|all| Some(all.first()?.inode));
            let known = before.and_then(|before| before.group.clone()).filter(|group| group.is_dir());
            let group = known.or_else(|| group(&|folder| folder.path().ends_with(name)));
            let group = group.ok_or(NotFound::NoUnit)?;
            by_group(group, socket, owner, "its unit").ok_or(NotFound::NoUnit)
        }
        None => by_socket(address, before, owner),
    }
}

fn by_pid_file(path: &Path) -> Result<Found, NotFound> {
    let pid = fs::read_to_string(path).ok().and_then(|text| text.trim().parse::<u32>().ok());
    let pid = pid.filter(|pid| *pid > 1).ok_or(NotFound::NoPidFile)?;
    Ok(Found {
        how: "its pid_file",
        socket: None,
        main: Some(pid),
        others: started_by(pid).unwrap_or_default(),
        group: None,
    })
}

fn by_socket(
    address: &Address,
    before: Option<&Found>,
    owner: &dyn Fn(u64) -> Option<u32>,
) -> Result<Found, NotFound> {
    let all = listeners(address.ip, address.port).map_err(|_| NotFound::Hidden(None))?;
    let listener = match all.as_slice() {
        [] => return Err(NotFound::Nobody),
        [one] => *one,
        _ => return Err(NotFound::Several),
    };
    let socket = Some(listener.inode);
    let same = before.filter(|before| before.socket == socket);
    if let Some(before) = same
        && let Some(main) = before.main
    {
        return Ok(Found { others: beside(main, before.group.as_deref()), ..before.clone() });
    }
    let known = same.and_then(|before| before.group.clone());
    let by_number = |id: u64| group(&|folder| folder.metadata().is_ok_and(|folder| folder.ino() == id));
    let group = known.or_else(|| listener.cgroup.and_then(by_number));
    // Its own user's, or root's: whose sockets are whose can be seen.
    let mine = listener.uid == geteuid().as_raw() || geteuid().is_root();
    if let Some(found) = mine.then(|| held(listener.inode, group.clone())).flatten() {
        return found;
    }
    if let Some(main) = owner(listener.inode) {
        let others = beside(main, group.as_deref());
        return Ok(Found { how: "its socket, by the helper", socket, main: Some(main), others, group });
    }
    let group = group.filter(|group| is_a_servers(group)).ok_or(NotFound::Hidden(socket))?;
    by_group(group, socket, owner, "its socket's cgroup").ok_or(NotFound::Hidden(socket))
}

/// What a process has started, where that can be seen; else who is in its cgroup with it.
fn beside(main: u32, group: Option<&Path>) -> Vec<u32> {
    let own = |group: &&Path| is_a_servers(group);
    let mut others = started_by(main).unwrap_or_else(|| members(group.filter(own)));
    others.retain(|pid| *pid != main);
    others
}

/// By who has the socket open; of several, as of workers that share it, the one that has started the others.
fn held(inode: u64, group: Option<PathBuf>) -> Option<Result<Found, NotFound>> {
    let within = members(group.as_deref());
    let mut holders: Vec<u32> = within.into_iter().filter(|pid| holds(*pid, inode)).collect();
    if holders.is_empty() {
        holders = all_processes().filter(|pid| holds(*pid, inode)).take(limits::DEATH_PROCESSES).collect();
    }
    if holders.contains(&1) {
        return Some(Err(NotFound::Activated));
    }
    let first: Vec<u32> =
        holders.iter().copied().filter(|pid| parent(*pid).is_none_or(|of| !holders.contains(&of))).collect();
    let found = |main, others| {
        Ok(Found { how: "its socket", socket: Some(inode), main, others, group: group.clone() })
    };
    match first.as_slice() {
        [] => None,
        [main] => Some(found(Some(*main), started_by(*main).unwrap_or_default())),
        _ => Some(found(None, holders)),
    }
}

/// By a cgroup: the server itself is known where it is alone, or somebody says which.
fn by_group(
    group: PathBuf,
    socket: Option<u64>,
    owner: &dyn Fn(u64) -> Option<u32>,
    how: &'static str,
) -> Option<Found> {
    let mut others = members(Some(&group));
    let main = match others.as_slice() {
        [] => return None,
        [one] => Some(*one),
        _ => socket
            .and_then(|inode| owner(inode).or_else(|| others.iter().copied().find(|pid| holds(*pid, inode)))),
    };
    others.retain(|pid| Some(*pid) != main);
    Some(Found { how, socket, main, others, group: Some(group) })
}

/// Whether a cgroup is one server's: not edgeward's own, nor one that everybody is in.
fn is_a_servers(group: &Path) -> bool {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let is_own = group_in(&own).is_some_and(|own| own == group);
    !is_own
        && group.parent().is_some_and(|parent| parent.starts_with(root()))
        && members(Some(group)).len() <= limits::DEATH_PROCESSES
}

/// Where cgroups of version 2 are.
fn root() -> &'static Path {
    let whole = Path::new("/sys/fs/cgroup");
    let beside = Path::new("/sys/fs/cgroup/unified");
    if whole.join("cgroup.controllers").exists() { whole } else { beside }
}

/// Of `/proc/PID/cgroup`: the folder of version 2.
fn group_in(cgroup: &str) -> Option<PathBuf> {
    let path = cgroup.lines().find_map(|line| line.strip_prefix("0::/"))?;
    Some(root().join(path))
}

/// The first folder of a cgroup that `is` the one, those nearer to the root first.
fn group(is: &dyn Fn(&fs::DirEntry) -> bool) -> Option<PathBuf> {
    let mut folders = vec![root().to_path_buf()];
    let mut next = 0;
    while let Some(folder) = folders.get(next) {
        next += 1;
        let entries = fs::read_dir(folder).ok();
        for entry in entries.into_iter().flatten().flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            if is(&entry) {
                return Some(entry.path());
            }
            if folders.len() < limits::DEATH_GROUPS {
                folders.push(entry.path());
            }
        }
    }
    None
}

/// The processes of a cgroup: one more than may be watched at most.
fn members(group: Option<&Path>) -> Vec<u32> {
    let procs =
        group.and_then(|group| fs::read_to_string(group.join("cgroup.procs")).ok()).unwrap_or_default();
    let pids = procs.lines().filter_map(|line| line.parse().ok()).filter(|pid| *pid > 1);
    pids.take(limits::DEATH_PROCESSES + 1).collect()
}

fn all_processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").ok().into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).take(limits::DEATH_LOOKED_AT)
}

/// Whether a process has a socket open; not, where this user may not see it.
fn holds(pid: u32, inode: u64) -> bool {
    let name = format!("socket:[{inode}]");
    let open = fs::read_dir(format!("/proc/{pid}/fd")).ok().into_iter().flatten().flatten();
    open.take(limits::DEATH_DESCRIPTORS)
        .any(|entry| fs::read_link(entry.path()).is_ok_and(|link| link.as_os_str() == name.as_str()))
}

/// The words of `/proc/PID/stat` behind the command's name.
fn stat(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ").map(|(_, rest)| rest.to_owned())
}

fn parent(pid: u32) -> Option<u32> {
    stat(pid)?.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// What a process has started and what that has; `None` where that cannot be seen.
fn started_by(pid: u32) -> Option<Vec<u32>> {
    let mut all = children(pid)?;
    let mut next = 0;
    while let Some(pid) = all.get(next).copied().filter(|_| all.len() < limits::DEATH_PROCESSES) {
        next += 1;
        all.extend(children(pid).unwrap_or_default());
    }
    all.truncate(limits::DEATH_PROCESSES);
    Some(all)
}

fn children(pid: u32) -> Option<Vec<u32>> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let mut all = Vec::new();
    for thread in threads.flatten().take(limits::DEATH_DESCRIPTORS) {
        // A kernel without it has it for no thread.
        let children = fs::read_to_string(thread.path().join("children")).ok()?;
        all.extend(children.split_ascii_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
    }
    Some(all)
}

/// How a process ended, while nobody has waited for it and this user may see it: `exit status 1`, `signal 9`. A pidfd
/// tells nothing of it to who is not its parent.
#[must_use]
pub fn exit(pid: u32) -> Option<String> {
    let stat = stat(pid)?;
    let mut words = stat.split_ascii_whitespace();
    // Its state, and behind 48 more what it ended with: 0 where it is not to be seen, or all was well.
    if !matches!(words.next()?, "Z" | "X") {
        return None;
    }
    let code: u32 = words.nth(48)?.parse().ok()?;
    match (code & 0x7f, code >> 8) {
        (0, 0) => None,
        (0, status) => Some(format!("exit status {status}")),
        (signal, _) => Some(format!("signal {signal}")),
    }
}

/// Whether a process is on its way out: it has let go of its sockets, or is about to, and its end may be told only after
/// its memory was given back.
#[must_use]
pub fn is_exiting(pid: u32) -> bool {
    /// `PF_EXITING` of the kernel's include/linux/sched.h.
    const EXITING: u32 = 0x4;
    // Its state, and behind five more its flags (proc_pid_stat(5)).
    let flags = stat(pid).and_then(|stat| stat.split_ascii_whitespace().nth(6)?.parse().ok());
    flags.is_some_and(|flags: u32| flags & EXITING != 0)
}

/// A process whose end is told: what its number means later does not matter.
#[derive(Debug)]
pub struct Held(AsyncFd<OwnedFd>);

impl Held {
    /// To be made within the runtime.
    ///
    /// # Errors
    /// It has ended by now, or no descriptor is left.
    #[expect(deprecated, reason = "its successor is unsafe, for types that are less careful than OwnedFd")]
    pub fn new(pid: u32) -> io::Result<Self> {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::NotFound)?;
        let held = pidfd_open(pid, PidfdFlags::NONBLOCK).or_else(|_| pidfd_open(pid, PidfdFlags::empty()))?;
        Ok(Held(AsyncFd::new(held)?))
    }

    /// Whether it has.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        let mut ready = [PollFd::new(self.0.get_ref(), PollFlags::IN)];
        poll(&mut ready, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    /// Resolves when it ends: before its parent knows.
    pub async fn ended(&self) {
        // An error is one of the runtime, which ends.
        let _ready = self.0.readable().await;
    }
}

/// Counters of the OOM killer: of a server's cgroup, and of the box.
#[derive(Debug)]
pub struct Kills {
    group: Option<(File, u64)>,
    all: Option<(File, u64)>,
}

impl Kills {
    /// For a process, or at least its cgroup. Counts from here on.
    #[must_use]
    pub fn new(pid: Option<u32>, group: Option<&Path>) -> Self {
        let cgroup = pid.and_then(|pid| fs::read_to_string(format!("/proc/{pid}/cgroup")).ok());
        let seen = cgroup.as_deref().map(|cgroup| {
            let old = cgroup.lines().find_map(|line| line.split_once(":memory:/"));
            let old =
                old.map(|(_, path)| Path::new("/sys/fs/cgroup/memory").join(path).join("memory.oom_control"));
            let new = group_in(cgroup).map(|group| group.join("memory.events"));
            [new, old]
        });
        let known = group.map(|group| group.join("memory.events"));
        let files = seen.into_iter().flatten().flatten().chain(known);
        let group = files.filter_map(|path| counted(File::open(path).ok()?)).next();
        Kills { group, all: File::open("/proc/vmstat").ok().and_then(counted) }
    }

    /// Whether those of the cgroup can be counted.
    #[must_use]
    pub const fn counts_group(&self) -> bool {
        self.group.is_some()
    }

    /// How many there were since the last look: of the cgroup, where that can be read, and of the box.
    pub fn look(&mut self) -> (Option<u64>, u64) {
        let group = self.group.as_mut().and_then(more);
        if group.is_none() {
            // It went with the last of its processes: the box's count speaks from here on.
            self.group = None;
        }
        (group, self.all.as_mut().and_then(more).unwrap_or_default())
    }
}

fn counted(file: File) -> Option<(File, u64)> {
    let count = count(&file)?;
    Some((file, count))
}

fn more((file, before): &mut (File, u64)) -> Option<u64> {
    let now = count(file)?;
    Some(now.saturating_sub(std::mem::replace(before, now)))
}

fn count(file: &File) -> Option<u64> {
    let mut text = [0; limits::MEMORY_FILE_BYTES];
    let length = file.read_at(&mut text, 0).ok()?;
    let text = std::str::from_utf8(text.get(..length)?).ok()?;
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;

    fn child(script: &str) -> Child {
        Command::new("sh").args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
    }

    #[test]
    fn a_cgroup_that_is_gone_is_not_one_without_kills() {
        let path = std::env::temp_dir().join(format!("edgeward-kills-{}", std::process::id()));
        fs::write(&path, "oom 1\noom_kill 3\n").unwrap();
        let mut kills = Kills { group: counted(File::open(&path).unwrap()), all: None };
        assert_eq!((kills.look(), kills.counts_group()), ((Some(0), 0), true));
        fs::write(&path, "oom 1\noom_kill 5\n").unwrap();
        assert_eq!(kills.look(), (Some(2), 0));
        // As a read of what was removed: without a count.
        fs::write(&path, "").unwrap();
        assert_eq!((kills.look(), kills.counts_group()), ((None, 0), false));
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_server_is_found_by_its_socket_with_what_it_has_started() {
        // This process listens, and has started another.
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let local = socket.local_addr().unwrap();
        let mut started = child("read line");
        let address = Address { ip: local.ip(), port: local.port(), hint: None };
        let found = find(&address, None, &|_| None).unwrap();
        assert_eq!((found.main, found.how), (Some(std::process::id()), "its socket"));
        assert!(found.others.contains(&started.id()), "{found:?}");
        assert_eq!(find(&address, Some(&found), &|_| None).unwrap().main, found.main);
        drop(socket);
        assert_eq!(find(&address, Some(&found), &|_| None), Err(NotFound::Nobody));
        drop(started.stdin.take());
        started.wait().unwrap();
    }

    #[test]
    fn a_pid_file_is_believed_and_one_without_a_number_is_said() {
        let path = std::env::temp_dir().join(format!("edgeward-pid-{}", std::process::id()));
        let address =
            Address { ip: [127, 0, 0, 1].into(), port: 1, hint: Some(ProcessHint::PidFile(path.clone())) };
        assert_eq!(find(&address, None, &|_| None), Err(NotFound::NoPidFile));
        for (text, pid) in [("71\n", Some(71)), ("1", None), ("x", None)] {
            fs::write(&path, text).unwrap();
            assert_eq!(find(&address, None, &|_| None).ok().and_then(|found| found.main), pid, "{text}");
        }
        fs::remove_file(path).unwrap();
        let hint = Some(ProcessHint::Unit("edgeward-no-such.service".to_owned()));
        assert_eq!(find(&Address { hint, ..address }, None, &|_| None), Err(NotFound::NoUnit));
    }

    #[test]
    fn an_end_is_told_with_how() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut process = child("read line; exit 3");
            let held = Held::new(process.id()).unwrap();
            assert_eq!((exit(process.id()), is_exiting(process.id())), (None, false), "it lives");
            drop(process.stdin.take());
            assert!(!held.has_ended());
            held.ended().await;
            assert!(held.has_ended() && is_exiting(process.id()));
            assert_eq!(exit(process.id()).as_deref(), Some("exit status 3"));
            process.wait().unwrap();
            assert!(Held::new(process.id()).is_err(), "nobody has this number now");
            let mut process = child("read line");
            let held = Held::new(process.id()).unwrap();
            process.kill().unwrap();
            held.ended().await;
            assert_eq!(exit(process.id()).as_deref(), Some("signal 9"));
            process.wait().unwrap();
        });
    }

    #[test]
    fn kills_are_counted_from_the_first_look_on() {
        let folder = std::env::temp_dir().join(format!("edgeward-kills-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let events = folder.join("memory.events");
        fs::write(&events, "oom 1\noom_kill 4\n").unwrap();
        let mut kills = Kills::new(None, Some(&folder));
        assert_eq!(kills.look().0, Some(0));
        fs::write(&events, "oom 2\noom_kill 6\n").unwrap();
        assert_eq!(kills.look().0, Some(2));
        assert_eq!(kills.look().0, Some(0));
        assert_eq!(Kills::new(None, None).look().0, None);
        fs::remove_dir_all(folder).unwrap();
    }
}
