//! Who listens: edgeward, and for a while the one before it.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use rustix::net::SendFlags;

use super::HELLO;
use super::record::Record;

/// At once. One more is hung up on.
const MOST: usize = 4;

/// One of them.
#[derive(Clone)]
pub struct Peer {
    /// What it says.
    pub from: Arc<OwnedFd>,
    /// What it is told on; the same, for a socket.
    to: Arc<OwnedFd>,
}

impl Peer {
    /// On two descriptors.
    pub fn new(from: OwnedFd, to: OwnedFd) -> Self {
        Peer { from: Arc::new(from), to: Arc::new(to) }
    }

    /// On a socket.
    pub fn on(socket: OwnedFd) -> Self {
        let socket = Arc::new(socket);
        Peer { from: Arc::clone(&socket), to: socket }
    }

    /// Says it whole or, to who does not read, not at all: a socket takes so little in one piece. Whether it is still
    /// there is seen where it is listened to.
    pub fn tell(&self, bytes: &[u8]) {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        if rustix::net::send(&self.to, bytes, flags) == Err(Errno::NOTSOCK) {
            let _gone = rustix::io::write(&self.to, bytes);
        }
    }
}

/// All of them.
#[derive(Default)]
pub struct Peers(Mutex<Told>);

#[derive(Default)]
struct Told {
    peers: Vec<Peer>,
    /// What whoever comes later must know: that NVML is being loaded, that the kernel's log cannot be read.
    standing: [Option<Record>; 2],
}

impl Peers {
    /// One more, which is greeted.
    pub fn add(&self, peer: Peer) {
        let mut told = self.told();
        if told.peers.len() >= MOST {
            return;
        }
        peer.tell(HELLO.as_bytes());
        told.standing.iter().flatten().for_each(|record| peer.tell(&record.encode()));
        told.peers.push(peer);
    }

    /// Whoever has `from` is gone.
    pub fn remove(&self, from: &Arc<OwnedFd>) {
        self.told().peers.retain(|peer| !Arc::ptr_eq(&peer.from, from));
    }

    /// Those that there are.
    pub fn all(&self) -> Vec<Peer> {
        self.told().peers.clone()
    }

    /// Tells all of them.
    pub fn tell(&self, record: &Record) {
        let bytes = record.encode();
        self.told().peers.iter().for_each(|peer| peer.tell(&bytes));
    }

    /// The same, and whoever comes later as long as `phase` lasts.
    pub fn phase(&self, loading: bool) {
        self.told().standing[0] = loading.then_some(Record::Starting);
        if loading {
            self.tell(&Record::Starting);
        }
    }

    /// The kernel's log cannot be read.
    pub fn deaf(&self, errno: Errno) {
        let record = Record::Deaf(u32::try_from(errno.raw_os_error()).unwrap_or(0));
        self.tell(&record);
        self.told().standing[1] = Some(record);
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
