//! Between an anchor and its server: a Unix stream on the server's stdin. Orders go down, messages up.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use tokio::io::AsyncReadExt;

/// Ends each message on its way up: it stands in no assignment.
pub(super) const END: u8 = 0;
/// The server's last message: its listeners are closed, a successor may bind them.
pub(super) const LET_GO: &str = "X_LET_GO=1";

/// What the anchor wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Let go of the listeners, finish what runs, end.
    Stop,
    /// Read the configuration again.
    Reload,
}

impl Order {
    pub(super) const fn byte(self) -> u8 {
        match self {
            Order::Stop => b'S',
            Order::Reload => b'R',
        }
    }
}

/// The server's end.
#[derive(Debug)]
pub struct Leash(UnixStream);

impl Leash {
    /// From stdin. `None` where that is no socket: whoever set the variable was no anchor.
    pub(super) fn take() -> Option<Leash> {
        let stream = UnixStream::from(io::stdin().as_fd().try_clone_to_owned().ok()?);
        stream.peer_addr().ok()?;
        stream.set_nonblocking(true).ok()?;
        Some(Leash(stream))
    }

    /// For messages upwards.
    pub(super) fn speaker(&self) -> Option<UnixStream> {
        self.0.try_clone().ok()
    }

    /// The anchor's orders. To be called within the event loop.
    ///
    /// # Errors
    /// The event loop takes no more descriptors.
    pub fn orders(self) -> io::Result<Orders> {
        Ok(Orders(tokio::net::UnixStream::from_std(self.0)?))
    }
}

/// Orders, as they come.
#[derive(Debug)]
pub struct Orders(tokio::net::UnixStream);

impl Orders {
    /// The next one. An anchor that is gone has left its server to itself: that is an order to stop, too.
    pub async fn next(&mut self) -> Order {
        loop {
            match self.0.read_u8().await {
                Ok(byte) if byte == Order::Reload.byte() => return Order::Reload,
                Ok(byte) if byte != Order::Stop.byte() => {}
                Ok(_) | Err(_) => return Order::Stop,
            }
        }
    }
}
