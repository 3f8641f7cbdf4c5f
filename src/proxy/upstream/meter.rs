//! A connection's bytes, and a meter that tells whether an answer had begun.

use std::cell::{Cell, RefCell};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::proxy::socket::Socket;

/// What was seen on a connection; shared with whoever speaks on it.
#[derive(Default)]
pub(super) struct Meter {
    /// Bytes read, after TLS.
    read: Cell<u64>,
    /// A write has failed: the peer takes nothing more.
    deaf: Cell<bool>,
    /// Woken by the socket instead of whoever polls it.
    task: RefCell<Option<Waker>>,
}

impl Meter {
    pub(super) fn bytes_read(&self) -> u64 {
        self.read.get()
    }

    /// The task that the socket wakes from now on; without one, whoever polls it.
    pub(super) fn wakes(&self, task: Option<&Waker>) {
        let mut kept = self.task.borrow_mut();
        match (kept.as_mut(), task) {
            (Some(kept), Some(task)) => kept.clone_from(task),
            _ => *kept = task.cloned(),
        }
    }

    pub(super) fn is_deaf(&self) -> bool {
        self.deaf.get()
    }
}

/// A socket with its meter. A failed write is kept from HTTP above it: a server that refuses a
/// request early answers and closes while the body still goes up, and the answer already lies in the
/// receive buffer. HTTP reads on, and finds either that answer or the error that ended the connection.
pub(super) struct Metered {
    socket: Socket,
    meter: Rc<Meter>,
}

impl Metered {
    pub(super) fn new(socket: Socket) -> (Self, Rc<Meter>) {
        let meter = Rc::new(Meter::default());
        (Metered { socket, meter: Rc::clone(&meter) }, meter)
    }

    /// Runs `act` on the socket with the waker that it shall wake.
    fn with<T>(
        &mut self,
        cx: &mut Context<'_>,
        act: impl FnOnce(&mut Socket, &mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        match &*self.meter.task.borrow() {
            Some(task) => act(&mut self.socket, &mut Context::from_waker(task)),
            None => act(&mut self.socket, cx),
        }
    }

    /// A failed write is a success of `len` bytes from then on.
    fn heard(&self, written: io::Result<usize>, len: usize) -> io::Result<usize> {
        written.or_else(|_| {
            self.meter.deaf.set(true);
            Ok(len)
        })
    }
}

impl AsyncRead for Metered {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let outcome = self.with(cx, |socket, cx| Pin::new(socket).poll_read(cx, buf));
        let got = buf.filled().len() - before;
        self.meter.read.set(self.meter.read.get() + got as u64);
        outcome
    }
}

impl AsyncWrite for Metered {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if self.meter.is_deaf() {
            return Poll::Ready(Ok(buf.len()));
        }
        let written = ready!(self.with(cx, |socket, cx| Pin::new(socket).poll_write(cx, buf)));
        Poll::Ready(self.heard(written, buf.len()))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let len = bufs.iter().map(|buf| buf.len()).sum();
        if self.meter.is_deaf() {
            return Poll::Ready(Ok(len));
        }
        let written = ready!(self.with(cx, |socket, cx| Pin::new(socket).poll_write_vectored(cx, bufs)));
        Poll::Ready(self.heard(written, len))
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.meter.is_deaf() {
            return Poll::Ready(Ok(()));
        }
        let flushed = ready!(self.with(cx, |socket, cx| Pin::new(socket).poll_flush(cx)));
        Poll::Ready(self.heard(flushed.map(|()| 0), 0).map(drop))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(cx, |socket, cx| Pin::new(socket).poll_shutdown(cx))
    }
}
