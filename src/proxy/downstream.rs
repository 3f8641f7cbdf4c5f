//! A client's connection as hyper sees it: with a bound on how long it may take no bytes, a count of its
//! flushes, and a way to be cut.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use super::outlet::Flushes;

/// A socket, plain or TLS, with its bounds.
pub struct Downstream<S> {
    socket: S,
    flushes: Rc<Flushes>,
    write_time: Duration,
    /// Set while a write waits for the client.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S> Downstream<S> {
    /// Wraps a socket. A write that waits longer than `write_time` fails.
    pub fn new(socket: S, flushes: Rc<Flushes>, write_time: Duration) -> Self {
        Downstream { socket, flushes, write_time, stalled: None }
    }

    fn waited<T>(&mut self, polled: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.stalled = None;
            return polled;
        }
        let write_time = self.write_time;
        let sleep = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(write_time)));
        ready!(sleep.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the client takes no bytes (limits.write_time)",
        )))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Downstream<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Downstream<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.socket).poll_write(cx, buf);
        this.waited(polled, cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.socket).poll_write_vectored(cx, bufs);
        this.waited(polled, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.socket).poll_flush(cx);
        let polled = this.waited(polled, cx);
        if matches!(polled, Poll::Ready(Ok(()))) {
            // hyper flushes the socket once all it had is written.
            this.flushes.flushed();
        }
        polled
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.socket).poll_shutdown(cx);
        this.waited(polled, cx)
    }
}
