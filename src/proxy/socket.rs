//! A connection's bytes, whatever carries them. One type for all of them: HTTP above it is compiled once a side.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsStream;

/// What carries the bytes.
pub enum Socket {
    /// A network's, in the clear.
    Tcp(TcpStream),
    /// This box's.
    Unix(UnixStream),
    /// A network's, under TLS.
    Tls(Box<TlsStream<TcpStream>>),
}

impl Socket {
    /// TLS of either side.
    pub fn tls(stream: impl Into<TlsStream<TcpStream>>) -> Self {
        Socket::Tls(Box::new(stream.into()))
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Tcp(tcp) => Pin::new(tcp).poll_read(cx, buf),
            Socket::Unix(unix) => Pin::new(unix).poll_read(cx, buf),
            Socket::Tls(tls) => Pin::new(tls).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Socket::Tcp(tcp) => Pin::new(tcp).poll_write(cx, buf),
            Socket::Unix(unix) => Pin::new(unix).poll_write(cx, buf),
            Socket::Tls(tls) => Pin::new(tls).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Socket::Tcp(tcp) => Pin::new(tcp).poll_write_vectored(cx, bufs),
            Socket::Unix(unix) => Pin::new(unix).poll_write_vectored(cx, bufs),
            Socket::Tls(tls) => Pin::new(tls).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Socket::Tcp(tcp) => tcp.is_write_vectored(),
            Socket::Unix(unix) => unix.is_write_vectored(),
            Socket::Tls(tls) => tls.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            // Written is sent.
            Socket::Tcp(_) | Socket::Unix(_) => Poll::Ready(Ok(())),
            Socket::Tls(tls) => Pin::new(tls).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Tcp(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Socket::Unix(unix) => Pin::new(unix).poll_shutdown(cx),
            Socket::Tls(tls) => Pin::new(tls).poll_shutdown(cx),
        }
    }
}
