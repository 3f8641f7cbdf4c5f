//! Whose a socket is: looks through all processes' descriptors, which takes rights that edgeward has not.

use std::fs;
use std::path::Path;

use super::record::Owner;

/// Of a `stat` line behind the name's closing bracket, the start is the 20th word: field 22 of proc_pid_stat(5).
const START: usize = 19;

/// The process that has the socket with this inode; of several that share it, as a server's children do, the first.
pub fn owner(inode: u64) -> Option<Owner> {
    let wanted = format!("socket:[{inode}]");
    let mut pids: Vec<u32> = fs::read_dir("/proc")
        .ok()?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str().and_then(|name| name.parse().ok()))
        .collect();
    pids.sort_unstable();
    let owners = pids.into_iter().filter(|pid| has(*pid, &wanted)).filter_map(|pid| {
        let start = started(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?;
        Some(Owner { pid, start })
    });
    // Whoever was there first has made it. Numbers go around, so that is not the lowest.
    owners.min_by_key(|owner| owner.start)
}

fn has(pid: u32, wanted: &str) -> bool {
    // It may be gone, or be no one's to look at.
    let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    let is = |path: &Path| fs::read_link(path).is_ok_and(|link| link.as_os_str() == wanted);
    descriptors.flatten().any(|entry| is(&entry.path()))
}

fn started(stat: &str) -> Option<u64> {
    let (_, behind) = stat.rsplit_once(')')?;
    behind.split_ascii_whitespace().nth(START)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn ones_own_socket_is_found() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let inode = rustix::fs::fstat(socket.as_fd()).unwrap().st_ino;
        let found = owner(inode).unwrap();
        let stat = fs::read_to_string("/proc/self/stat").unwrap();
        assert_eq!((found.pid, Some(found.start)), (std::process::id(), started(&stat)));
        drop(socket);
        assert_eq!(owner(inode), None);
    }

    #[test]
    fn a_name_may_hold_anything() {
        let stat = "7 (a) b 1 2) S 1 7 7 0 -1 4 5 6 7 8 9 10 11 12 20 0 1 0 4242 9 9";
        assert_eq!(started(stat), Some(4242));
        assert_eq!(started("7 (x"), None);
    }
}
