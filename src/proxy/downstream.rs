//! A client's connection as hyper sees it: one request at a time, framed beyond doubt; with bounds on how long
//! the client may take no bytes, take for a request's head, and send nothing; and a count of its flushes.
//!
//! The bytes of a next request stay here until the one before is answered. That keeps hyper reading, so that a
//! client which goes away is noticed even when it had sent more.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use super::outlet::{Broken, ClientBody, Flushes};
use super::socket::Socket;
use crate::limits::{LINGER, PIPELINED_BYTES};
use crate::wire::head::{Place, Scanner, Violation};

/// What a connection's socket and its requests' answers tell each other.
#[derive(Debug, Default)]
pub struct Requests {
    /// Requests that were read to their end.
    read: Cell<u64>,
    /// Requests whose answer is over.
    answered: Cell<u64>,
    bad_head: Cell<Option<Violation>>,
    stalled: Cell<bool>,
    dawdled: Cell<bool>,
    fields: Cell<u32>,
    begun: Cell<bool>,
    reader: RefCell<Option<Waker>>,
}

impl Requests {
    /// The framing fault of the request that was read last, if it has one. It is the connection's last.
    #[must_use]
    pub fn bad_head(&self) -> Option<Violation> {
        self.bad_head.get()
    }

    /// Whether the client took no bytes for too long.
    #[must_use]
    pub fn stalled(&self) -> bool {
        self.stalled.get()
    }

    /// Whether a request's head took too long.
    #[must_use]
    pub fn dawdled(&self) -> bool {
        self.dawdled.get()
    }

    /// Header fields of the head that was being read when reading stopped.
    #[must_use]
    pub fn fields(&self) -> u32 {
        self.fields.get()
    }

    /// Whether the client has sent anything yet.
    #[must_use]
    pub fn begun(&self) -> bool {
        self.begun.get()
    }

    /// Whether a request is whole and not answered yet; the reader is woken when it is.
    fn answering(&self, cx: &Context<'_>) -> bool {
        if self.read.get() <= self.answered.get() {
            return false;
        }
        *self.reader.borrow_mut() = Some(cx.waker().clone());
        true
    }
}

/// One request's answer, to be dropped with it.
#[derive(Debug)]
pub struct Turn(Rc<Requests>);

impl Turn {
    /// The answer to the next request of this connection.
    #[must_use]
    pub fn new(requests: Rc<Requests>) -> Self {
        Turn(requests)
    }

    /// That answer's body, which holds the turn to its end.
    #[must_use]
    pub fn of(self, body: ClientBody) -> TurnBody {
        TurnBody { body, _turn: self }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.answered.set(self.0.answered.get() + 1);
        if let Some(reader) = self.0.reader.borrow_mut().take() {
            reader.wake();
        }
    }
}

/// A response's body, and with its end the turn of the connection's next request.
pub struct TurnBody {
    body: ClientBody,
    _turn: Turn,
}

impl Body for TurnBody {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A socket, plain or TLS, with its bounds.
pub struct Downstream {
    socket: Socket,
    flushes: Rc<Flushes>,
    requests: Rc<Requests>,
    scanner: Scanner,
    bad_body: Option<Violation>,
    /// Bytes of requests whose turn has not come.
    ahead: Vec<u8>,
    times: Times,
    /// Set while a write waits for the client.
    stalled: Option<Pin<Box<Sleep>>>,
    /// Set while a request, or the rest of its head, is waited for.
    awaited: Option<(Awaited, Pin<Box<Sleep>>)>,
    closing: Closing,
}

/// How long a client may keep its connection waiting.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// With a head that it has begun: `limits.header_time`.
    pub head: Duration,
    /// Without a request: `limits.idle_time`.
    pub idle: Duration,
    /// With bytes that it does not take: `limits.write_time`.
    pub write: Duration,
}

/// What is read next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Awaited {
    Request,
    Head,
}

/// The end of a connection: what the client still sends is read and dropped for a while. A socket closed with
/// bytes unread is reset, and takes the answer with it that the client has not read yet.
enum Closing {
    Open,
    Lingering(Pin<Box<Sleep>>),
    Over,
}

impl Downstream {
    /// Wraps a socket. A write or a head that takes longer than `times` says fails; a connection that is idle for
    /// longer ends, as if the client had closed it.
    pub fn new(socket: Socket, flushes: Rc<Flushes>, requests: Rc<Requests>, times: Times) -> Self {
        Downstream {
            socket,
            flushes,
            requests,
            scanner: Scanner::default(),
            bad_body: None,
            ahead: Vec::new(),
            times,
            stalled: None,
            awaited: None,
            closing: Closing::Open,
        }
    }

    fn waited<T>(&mut self, polled: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.stalled = None;
            return polled;
        }
        self.flushes.blocked();
        let write_time = self.times.write;
        let sleep = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(write_time)));
        ready!(sleep.as_mut().poll(cx));
        self.requests.stalled.set(true);
        Poll::Ready(Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the client takes no bytes (limits.write_time)",
        )))
    }

    /// While a request is being answered: whether the client is still there. What it sends is kept, up to a
    /// bound; past that its end is seen when it is written to.
    fn look_ahead(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut piece = [0; 2048];
        while self.ahead.len() < PIPELINED_BYTES {
            let mut buf = ReadBuf::new(&mut piece);
            ready!(Pin::new(&mut self.socket).poll_read(cx, &mut buf))?;
            if buf.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            self.ahead.extend_from_slice(buf.filled());
        }
        Poll::Pending
    }

    /// Nothing to read at present: whether the client may go on like that. Ready, without an error, is the
    /// connection's end.
    fn wait(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let (awaited, time) = if self.scanner.between() {
            (Awaited::Request, self.times.idle)
        } else if self.scanner.in_head() {
            (Awaited::Head, self.times.head)
        } else {
            // A body has a time of its own.
            self.awaited = None;
            return Poll::Pending;
        };
        let anew = || (awaited, Box::pin(tokio::time::sleep(time)));
        if self.awaited.as_ref().is_none_or(|(before, _)| *before != awaited) {
            self.awaited = Some(anew());
        }
        let (_, sleep) = self.awaited.get_or_insert_with(anew);
        ready!(sleep.as_mut().poll(cx));
        if awaited == Awaited::Request {
            return Poll::Ready(Ok(()));
        }
        self.requests.dawdled.set(true);
        Poll::Ready(Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the head takes too long (limits.header_time)",
        )))
    }

    /// Follows what was read into `buf` from `start` on; keeps back what is not this request's.
    fn follow(&mut self, buf: &mut ReadBuf<'_>, start: usize) -> io::Result<()> {
        let read = buf.filled().get(start..).unwrap_or_default();
        self.requests.begun.set(true);
        let (taken, place) = self.scanner.push(read);
        if let Some(rest) = read.get(taken..).filter(|rest| !rest.is_empty()) {
            self.ahead.splice(..0, rest.iter().copied());
            buf.set_filled(start + taken);
        }
        self.requests.fields.set(self.scanner.fields());
        match place {
            Place::Inside => {}
            Place::End => {
                // The next one has all of its time.
                self.awaited = None;
                self.requests.read.set(self.requests.read.get() + 1);
            }
            Place::BadHead(why) => self.requests.bad_head.set(Some(why)),
            Place::BadBody(why) => self.bad_body = Some(why),
        }
        // Zero bytes would read as the connection's end.
        if taken == 0 { Err(bad_body(self.bad_body)) } else { Ok(()) }
    }

    fn linger(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut piece = [0; 4096];
        let Closing::Lingering(sleep) = &mut self.closing else { return Poll::Ready(Ok(())) };
        while sleep.as_mut().poll(cx).is_pending() {
            let mut buf = ReadBuf::new(&mut piece);
            let read = ready!(Pin::new(&mut self.socket).poll_read(cx, &mut buf));
            if read.is_err() || buf.filled().is_empty() {
                break;
            }
        }
        self.closing = Closing::Over;
        Poll::Ready(Ok(()))
    }
}

fn bad_body(why: Option<Violation>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.unwrap_or("the request is not framed as HTTP"))
}

impl AsyncRead for Downstream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.bad_body.is_some() {
            return Poll::Ready(Err(bad_body(this.bad_body)));
        }
        if this.requests.bad_head().is_some() {
            // Its 400 is on its way, and closes the connection.
            return Poll::Pending;
        }
        if this.requests.answering(cx) {
            return this.look_ahead(cx);
        }
        let start = buf.filled().len();
        if this.ahead.is_empty() {
            if Pin::new(&mut this.socket).poll_read(cx, buf)?.is_pending() {
                return this.wait(cx);
            }
            if buf.filled().len() == start {
                return Poll::Ready(Ok(()));
            }
        } else {
            let length = this.ahead.len().min(buf.remaining());
            buf.put_slice(this.ahead.get(..length).unwrap_or_default());
            this.ahead.drain(..length);
        }
        Poll::Ready(this.follow(buf, start))
    }
}

impl AsyncWrite for Downstream {
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
        if matches!(this.closing, Closing::Open) {
            let polled = Pin::new(&mut this.socket).poll_shutdown(cx);
            ready!(this.waited(polled, cx))?;
            this.closing = if this.scanner.between() && this.ahead.is_empty() {
                Closing::Over
            } else {
                Closing::Lingering(Box::pin(tokio::time::sleep(LINGER)))
            };
        }
        this.linger(cx)
    }
}
