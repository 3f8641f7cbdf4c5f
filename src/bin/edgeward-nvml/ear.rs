//! Listens: to the kernel's log, to peers' questions and their ends, and for new peers.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::linux::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use super::kernel::Notice;
use super::peers::{Peer, Peers};
use super::record::Record;
use super::sockets;

const KMSG: &str = "/dev/kmsg";
/// Names another file.
const KMSG_VARIABLE: &str = "EDGEWARD_NVML_KMSG";
/// The kernel's longest record is 8 KiB less a bit (`PRINTK_MESSAGE_MAX`, 2048, and its dictionary).
const LINE_BYTES: usize = 8192;
/// Without a peer this ends, in seconds: systemd starts it again for the next one. Soon enough to let a GPU sleep.
const ALONE_SECONDS: i64 = 2;

/// Everything that is listened to.
pub struct Ear {
    listener: Option<UnixListener>,
    kmsg: Option<OwnedFd>,
    peers: Arc<Peers>,
}

impl Ear {
    /// Opens the kernel's log, from its end on: what was said before is no news.
    pub fn new(listener: Option<UnixListener>, peers: Arc<Peers>) -> Self {
        let path = std::env::var(KMSG_VARIABLE).unwrap_or_else(|_| KMSG.to_owned());
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let kmsg = rustix::fs::open(path, flags, Mode::empty()).inspect_err(|errno| peers.deaf(*errno)).ok();
        kmsg.iter().for_each(to_its_end);
        // For opening it alone. Where that is not allowed, it is kept.
        let _kept = give_up(CapabilitySet::SYSLOG);
        Ear { listener, kmsg, peers }
    }

    /// Listens until nobody is there any more.
    ///
    /// # Errors
    /// No descriptor can be waited for, or the socket is broken.
    pub fn listen(&mut self) -> io::Result<()> {
        loop {
            let peers = self.peers.all();
            let alone = Timespec { tv_sec: ALONE_SECONDS, tv_nsec: 0 };
            let timeout = peers.is_empty().then_some(&alone);
            let (kmsg, newcomer, spoke) = {
                let mut fds = Vec::new();
                // A log that is never silent would keep it here for nobody.
                let kmsg = self.kmsg.as_ref().filter(|_| !peers.is_empty());
                fds.extend(kmsg.map(|kmsg| PollFd::new(kmsg, PollFlags::IN)));
                fds.extend(self.listener.iter().map(|listener| PollFd::new(listener, PollFlags::IN)));
                fds.extend(peers.iter().map(|peer| PollFd::new(&*peer.from, PollFlags::IN)));
                match poll(&mut fds, timeout) {
                    // Nobody came. One that comes now is in the socket's queue, and systemd starts this again.
                    Ok(0) if peers.is_empty() => return Ok(()),
                    Ok(_) => {}
                    Err(Errno::INTR) => continue,
                    Err(errno) => return Err(errno.into()),
                }
                let mut ready = fds.iter().map(|fd| !fd.revents().is_empty());
                let mut next = |there: bool| there && ready.next().unwrap_or(false);
                let own = (next(kmsg.is_some()), next(self.listener.is_some()));
                (own.0, own.1, ready.collect::<Vec<bool>>())
            };
            if kmsg {
                self.hear();
            }
            for (peer, _) in peers.iter().zip(spoke).filter(|(_, spoke)| *spoke) {
                if !answered(peer) {
                    self.peers.remove(&peer.from);
                }
            }
            if newcomer && let Some(listener) = &self.listener {
                if let Some(socket) = accept(listener)? {
                    if peers.is_empty() {
                        self.kmsg.iter().for_each(to_its_end);
                    }
                    self.peers.add(Peer::on(socket.into()));
                }
            } else if self.listener.is_none() && self.peers.all().is_empty() {
                // A child whose parent has gone.
                return Ok(());
            }
        }
    }

    /// Everything that the kernel has said since.
    fn hear(&mut self) {
        let mut line = [0; LINE_BYTES];
        while let Some(kmsg) = &self.kmsg {
            match rustix::io::read(kmsg, &mut line) {
                Ok(0) => self.kmsg = None,
                Ok(count) => {
                    // A record, and behind it lines that begin with a space: its dictionary.
                    let lines = line.get(..count).unwrap_or_default().split(|byte| *byte == b'\n');
                    for notice in lines.filter_map(Notice::parse) {
                        self.peers.tell(&Record::Kernel(notice));
                    }
                }
                // Some were overwritten before they were read: on from the oldest that there is.
                Err(Errno::PIPE | Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(errno) => {
                    self.peers.deaf(errno);
                    self.kmsg = None;
                }
            }
        }
    }
}

/// What was said until now is no news. What has no end, as a pipe in a test, has nothing old.
fn to_its_end(kmsg: &OwnedFd) {
    let _without_end = rustix::fs::seek(kmsg, SeekFrom::End(0));
}

/// Reads what a peer has said, and answers it. Whether it is still there.
fn answered(peer: &Peer) -> bool {
    // A question comes in one piece, as it was sent; a piece of one is not waited for.
    let mut question = [0; super::record::BYTES];
    match rustix::io::read(&peer.from, &mut question) {
        Ok(count) if count == question.len() => {
            if let Ok(Some(Record::Who(number, inode))) = Record::decode(&question) {
                peer.tell(&Record::Owner(number, sockets::owner(inode)).encode());
            }
            true
        }
        Err(Errno::AGAIN | Errno::INTR) => true,
        // It is gone, or does not speak as it should.
        _ => false,
    }
}

/// A peer that may ask: root, or the owner of the socket's file. Others are hung up on.
///
/// # Errors
/// No socket any more, or one without a file.
fn accept(listener: &UnixListener) -> io::Result<Option<UnixStream>> {
    let address = listener.local_addr()?;
    let path =
        address.as_pathname().ok_or_else(|| io::Error::other("the socket has no file, and so no owner"))?;
    let owner = fs::metadata(path)?.st_uid();
    let (stream, _) = listener.accept()?;
    let uid = socket_peercred(&stream)?.uid;
    Ok((uid.is_root() || uid.as_raw() == owner).then_some(stream))
}

/// This thread has these capabilities no more; nor have those that it starts.
///
/// # Errors
/// A filter of system calls does not let it.
pub fn give_up(these: CapabilitySet) -> io::Result<()> {
    let mut sets = capabilities(None)?;
    sets.effective -= these;
    sets.permitted -= these;
    sets.inheritable -= these;
    Ok(set_capabilities(None, sets)?)
}
