//! Who listens on a port of this box: by the kernel's socket diagnostics, which any user may ask, else by
//! `/proc/net/tcp`.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with, sockopt,
};

use crate::limits;

/// A listening TCP socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Where.
    pub address: IpAddr,
    /// Its number, as `/proc/PID/fd` shows it.
    pub inode: u64,
    /// Whose it is.
    pub uid: u32,
    /// The cgroup of who made it, as the number of its folder.
    pub cgroup: Option<u64>,
}

/// linux/inet_diag.h, linux/sock_diag.h, linux/netlink.h.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_DUMP: u16 = 0x300;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const TCP: u8 = 6;
const TCP_LISTEN: u32 = 10;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const INET_DIAG_CGROUP_ID: u16 = 21;
/// `struct nlmsghdr` and `struct inet_diag_msg`.
const HEADER: usize = 16;
const MESSAGE: usize = 72;

/// Who a connection to `address`:`port` reaches; of several the most precise: several with the same address share
/// their port.
///
/// # Errors
/// The kernel says nothing by either way.
pub fn listeners(address: IpAddr, port: u16) -> io::Result<Vec<Listener>> {
    let all = match diagnosed(port) {
        Ok(all) => all,
        Err(_) => [("/proc/net/tcp", false), ("/proc/net/tcp6", true)]
            .iter()
            .filter_map(|(path, v6)| read_table(File::open(path).ok()?, port, *v6).ok())
            .flatten()
            .collect(),
    };
    Ok(reached(all, address))
}

fn reached(all: Vec<Listener>, address: IpAddr) -> Vec<Listener> {
    let rank = |listener: &Listener| match listener.address.to_canonical() {
        own if own == address.to_canonical() => Some(0),
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) if address.to_canonical().is_ipv4() => Some(1),
        // One for both families, mostly.
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Some(2),
        _ => None,
    };
    let best = all.iter().filter_map(rank).min();
    all.into_iter().filter(|listener| best.is_some() && rank(listener) == best).collect()
}

fn diagnosed(port: u16) -> io::Result<Vec<Listener>> {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, Some(netlink::SOCK_DIAG))?;
    // A kernel that does not answer would hold the loop.
    let timeout = Some(std::time::Duration::from_millis(100));
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, timeout)?;
    let mut found = Vec::new();
    let mut buffer = vec![0; limits::DIAG_BYTES];
    for family in [AF_INET, AF_INET6] {
        sendto(&socket, &request(family, port), SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
        loop {
            let (length, _) = recv(&socket, buffer.as_mut_slice(), RecvFlags::empty())?;
            match messages(buffer.get(..length).unwrap_or_default(), &mut found) {
                Told::More => {}
                Told::All => break,
                Told::Error => return Err(io::ErrorKind::Unsupported.into()),
            }
        }
    }
    // Kernels before 4.3 do not filter by the port; the address tells nothing of it.
    Ok(found)
}

/// A dump of listening sockets on `port`: `struct nlmsghdr`, then `struct inet_diag_req_v2`.
fn request(family: u8, port: u16) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER + 56);
    bytes.extend_from_slice(&72_u32.to_ne_bytes());
    bytes.extend_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes.extend_from_slice(&(NLM_F_REQUEST | NLM_F_DUMP).to_ne_bytes());
    bytes.extend_from_slice(&[0; 8]);
    bytes.extend_from_slice(&[family, TCP, 0, 0]);
    bytes.extend_from_slice(&(1_u32 << TCP_LISTEN).to_ne_bytes());
    bytes.extend_from_slice(&port.to_be_bytes());
    // The other port, both addresses, the interface, a cookie: any.
    bytes.extend_from_slice(&[0; 46]);
    bytes
}

#[derive(Debug, PartialEq, Eq)]
enum Told {
    More,
    All,
    Error,
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2)?.try_into().ok().map(u16::from_ne_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes)
}

/// One datagram's messages.
fn messages(mut bytes: &[u8], found: &mut Vec<Listener>) -> Told {
    while let (Some(length), Some(kind)) = (u32_at(bytes, 0), u16_at(bytes, 4)) {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let Some(body) = bytes.get(HEADER..length) else { return Told::Error };
        match kind {
            NLMSG_DONE => return Told::All,
            NLMSG_ERROR => return Told::Error,
            _ => found.extend(listener(body)),
        }
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Told::More
}

/// `struct inet_diag_msg` and its attributes.
fn listener(body: &[u8]) -> Option<Listener> {
    let address = match *body.first()? {
        AF_INET => IpAddr::from(<[u8; 4]>::try_from(body.get(8..12)?).ok()?),
        AF_INET6 => IpAddr::from(<[u8; 16]>::try_from(body.get(8..24)?).ok()?),
        _ => return None,
    };
    let (uid, inode) = (u32_at(body, 64)?, u32_at(body, 68)?);
    let mut cgroup = None;
    let mut rest = body.get(MESSAGE..).unwrap_or_default();
    while let (Some(length), Some(kind)) = (u16_at(rest, 0), u16_at(rest, 2)) {
        let length = usize::from(length).max(4);
        if kind == INET_DIAG_CGROUP_ID {
            cgroup = rest.get(4..12).and_then(|id| id.try_into().ok()).map(u64::from_ne_bytes);
        }
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Some(Listener { address, inode: inode.into(), uid, cgroup })
}

/// `/proc/net/tcp` and `tcp6`: `sl local_address rem_address st … uid timeout inode`.
fn read_table(table: impl Read, port: u16, v6: bool) -> io::Result<Vec<Listener>> {
    let mut found = Vec::new();
    for line in BufReader::new(table).lines().skip(1) {
        let line = line?;
        found.extend(row(&line, port, v6));
    }
    Ok(found)
}

fn row(line: &str, port: u16, v6: bool) -> Option<Listener> {
    let mut words = line.split_ascii_whitespace();
    let (address, at) = words.nth(1)?.split_once(':')?;
    if u16::from_str_radix(at, 16).ok()? != port || words.nth(1)? != "0A" {
        return None;
    }
    let (uid, inode) = (words.nth(3)?.parse().ok()?, words.nth(1)?.parse().ok()?);
    // Each 32 bits of the address are a number in this machine's order.
    let mut parts = [0_u32; 4];
    let count = if v6 { 4 } else { 1 };
    for (n, part) in parts.iter_mut().take(count).enumerate() {
        *part = u32::from_str_radix(address.get(n * 8..n * 8 + 8)?, 16).ok()?;
    }
    let mut bytes = [0_u8; 16];
    for (to, part) in bytes.chunks_exact_mut(4).zip(parts) {
        to.copy_from_slice(&part.to_ne_bytes());
    }
    let [a, b, c, d, ..] = bytes;
    let address = if v6 { IpAddr::from(bytes) } else { IpAddr::from([a, b, c, d]) };
    Some(Listener { address, inode, uid, cgroup: None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn both_ways_know_a_socket_of_ours() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let table = File::open("/proc/net/tcp").unwrap();
        let read = reached(read_table(table, address.port(), false).unwrap(), address.ip());
        assert_eq!(read.len(), 1, "{read:?}");
        let found = listeners(address.ip(), address.port()).unwrap();
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].inode, found[0].uid), (read[0].inode, read[0].uid));
        drop((socket, other));
        assert_eq!(listeners(address.ip(), address.port()).unwrap(), [], "it is gone");
    }

    #[test]
    fn the_most_precise_address_is_the_one_that_answers() {
        let at = |address: &str, inode| Listener {
            address: address.parse().unwrap(),
            inode,
            uid: 0,
            cgroup: None,
        };
        let all = vec![at("::", 1), at("0.0.0.0", 2), at("127.0.0.1", 3), at("192.168.1.2", 4)];
        let who = |all: &[Listener], to: &str| {
            reached(all.to_vec(), to.parse().unwrap()).iter().map(|one| one.inode).collect::<Vec<_>>()
        };
        assert_eq!(who(&all, "127.0.0.1"), [3]);
        assert_eq!(who(&all[..2], "127.0.0.1"), [2]);
        assert_eq!(who(&all[..1], "127.0.0.1"), [1]);
        assert_eq!(who(&all, "::1"), [1]);
        assert_eq!(who(&all[3..], "127.0.0.1"), [0_u64; 0]);
        assert_eq!(who(&[at("::ffff:127.0.0.1", 9)], "127.0.0.1"), [9]);
    }

    #[test]
    fn a_row_of_the_table_is_read() {
        if cfg!(target_endian = "big") {
            return;
        }
        let line = "   0: 0100007F:2CAA 00000000:0000 0A 00000000:00000000 00:00000000 00000000   998        0 21764 1 0000 100";
        let found = row(line, 11434, false).unwrap();
        assert_eq!((found.address, found.uid, found.inode), ("127.0.0.1".parse().unwrap(), 998, 21764));
        assert_eq!(row(line, 11435, false), None);
        assert_eq!(row(&line.replace(" 0A ", " 01 "), 11434, false), None, "a connection");
    }

    proptest! {
        #[test]
        fn no_answer_of_any_kernel_ends_us(
            bytes in proptest::collection::vec(any::<u8>(), 0..400),
            text in "\\PC{0,120}",
        ) {
            let mut found = Vec::new();
            messages(&bytes, &mut found);
            prop_assert!(found.len() <= bytes.len() / HEADER + 1);
            let _none = (row(&text, 1, false), row(&text, 1, true));
        }
    }
}
