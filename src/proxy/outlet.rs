//! Between a request's driver and its client's connection: the driver puts a head and bytes in, hyper takes
//! them out as it finds room. Both run in the connection's task, so a plain cell does.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use hyper::body::{Body, Frame, SizeHint};

/// A response's head, and its body where that is known whole.
#[derive(Debug)]
pub struct Head {
    /// The status.
    pub status: StatusCode,
    /// The header fields.
    pub headers: HeaderMap,
    /// The whole body; `None` when it is a stream.
    pub whole: Option<Bytes>,
}

/// How a stream ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Clean,
    Broken,
}

#[derive(Debug, Default)]
struct Inner {
    head: RefCell<Option<Head>>,
    queue: RefCell<VecDeque<Bytes>>,
    end: Cell<Option<End>>,
    /// The connection's flushes when hyper last took bytes.
    taken_at: Cell<u64>,
}

/// The driver's side.
#[derive(Clone, Debug)]
pub struct Outlet {
    inner: Rc<Inner>,
    flushes: Rc<Flushes>,
}

/// Counts the flushes of the client's connection: all that hyper had was written to the socket by then.
#[derive(Debug, Default)]
pub struct Flushes {
    count: Cell<u64>,
    waker: RefCell<Option<Waker>>,
    blocked: Cell<bool>,
}

impl Flushes {
    /// A write waits for the client.
    pub fn blocked(&self) {
        self.blocked.set(true);
    }

    /// One more flush is done.
    pub fn flushed(&self) {
        self.count.set(self.count.get().wrapping_add(1));
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }
}

impl Outlet {
    /// An outlet to a connection that counts its flushes in `flushes`.
    #[must_use]
    pub fn new(flushes: Rc<Flushes>) -> Self {
        Outlet { inner: Rc::new(Inner::default()), flushes }
    }

    /// Sends the head. Everything after it is the body.
    pub fn head(&self, head: Head) {
        *self.inner.head.borrow_mut() = Some(head);
    }

    /// What the connection takes next.
    #[must_use]
    pub fn take_head(&self) -> Option<Head> {
        self.inner.head.borrow_mut().take()
    }

    /// Queues body bytes. [`Outlet::taken`] waits until hyper has them.
    pub fn bytes(&self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.inner.queue.borrow_mut().push_back(bytes);
        }
    }

    /// Resolves when hyper has taken all queued bytes and asks for more: the backpressure.
    pub fn taken(&self) -> impl Future<Output = ()> + use<'_> {
        // hyper polls the driver again exactly when it wants more; no waker is needed.
        std::future::poll_fn(|_| {
            if self.inner.queue.borrow().is_empty() { Poll::Ready(()) } else { Poll::Pending }
        })
    }

    /// Whether a write has waited for the client since the last call.
    #[must_use]
    pub fn take_blocked(&self) -> bool {
        self.flushes.blocked.take()
    }

    /// Resolves when everything queued is written to the socket.
    pub async fn written(&self) {
        self.taken().await;
        // Not from now on: hyper may have flushed between taking the bytes and asking for more.
        std::future::poll_fn(|cx| {
            if self.flushes.count.get() != self.inner.taken_at.get() {
                return Poll::Ready(());
            }
            *self.flushes.waker.borrow_mut() = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// The stream ends as HTTP wants it.
    pub fn end_clean(&self) {
        self.inner.end.set(Some(End::Clean));
    }

    /// The stream ends visibly broken: no last chunk, the connection closes.
    pub fn end_broken(&self) {
        self.inner.end.set(Some(End::Broken));
    }
}

/// The stream broke; the client saw an error in its own dialect before.
#[derive(Clone, Copy, Debug)]
pub struct Broken;

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the stream broke")
    }
}

impl std::error::Error for Broken {}

/// A request's driver.
pub type Drive = Pin<Box<dyn Future<Output = ()>>>;

/// The body of a response to a client.
pub enum ClientBody {
    /// Known whole.
    Whole(Option<Bytes>),
    /// Comes from a driver, which lives here: dropping the body drops the attempt.
    Driven {
        /// The request's driver; `None` once it has ended.
        drive: Option<Drive>,
        /// Its outlet.
        outlet: Outlet,
    },
}

impl ClientBody {
    /// A body known whole.
    #[must_use]
    pub fn whole(bytes: impl Into<Bytes>) -> Self {
        ClientBody::Whole(Some(bytes.into()))
    }
}

impl Body for ClientBody {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        match self.get_mut() {
            ClientBody::Whole(bytes) => Poll::Ready(
                bytes.take().filter(|bytes| !bytes.is_empty()).map(|bytes| Ok(Frame::data(bytes))),
            ),
            ClientBody::Driven { drive, outlet } => poll_driven(drive, outlet, cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, ClientBody::Whole(bytes) if bytes.as_ref().is_none_or(Bytes::is_empty))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            ClientBody::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |b| b.len() as u64)),
            ClientBody::Driven { .. } => SizeHint::default(),
        }
    }
}

fn poll_driven(
    drive: &mut Option<Drive>,
    outlet: &Outlet,
    cx: &mut Context<'_>,
) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
    let queued = || {
        let bytes = outlet.inner.queue.borrow_mut().pop_front()?;
        outlet.inner.taken_at.set(outlet.flushes.count.get());
        Some(bytes)
    };
    if let Some(bytes) = queued() {
        return Poll::Ready(Some(Ok(Frame::data(bytes))));
    }
    if let Some(running) = drive
        && poll_caught(running, cx).is_ready()
    {
        *drive = None;
    }
    if let Some(bytes) = queued() {
        return Poll::Ready(Some(Ok(Frame::data(bytes))));
    }
    if drive.is_some() {
        return Poll::Pending;
    }
    match outlet.inner.end.get() {
        Some(End::Clean) => Poll::Ready(None),
        // A driver that ended without saying how has failed: never a clean end by accident.
        Some(End::Broken) | None => Poll::Ready(Some(Err(Broken))),
    }
}

/// Polls a driver; a panic in it ends this request only.
pub fn poll_caught(drive: &mut Drive, cx: &mut Context<'_>) -> Poll<()> {
    let polled = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drive.as_mut().poll(cx)));
    polled.unwrap_or(Poll::Ready(()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(body: &mut ClientBody) -> Poll<Option<Result<Bytes, ()>>> {
        let cx = &mut Context::from_waker(Waker::noop());
        Pin::new(body)
            .poll_frame(cx)
            .map(|frame| frame.map(|frame| frame.map(|f| f.into_data().unwrap_or_default()).map_err(|_| ())))
    }

    #[test]
    fn a_driver_that_panics_ends_its_stream_as_a_broken_one() {
        let outlet = Outlet::new(Rc::default());
        let inside = outlet.clone();
        let drive: Drive = Box::pin(async move {
            inside.bytes(Bytes::from_static(b"a"));
            inside.taken().await;
            panic!("a bug");
        });
        let mut body = ClientBody::Driven { drive: Some(drive), outlet };
        assert_eq!(frame(&mut body), Poll::Ready(Some(Ok(Bytes::from_static(b"a")))));
        assert_eq!(frame(&mut body), Poll::Ready(Some(Err(()))));
        assert!(matches!(body, ClientBody::Driven { drive: None, .. }), "what it held is let go");
    }

    #[test]
    fn bytes_are_written_once_a_flush_followed_their_taking() {
        for flush_before_asking in [true, false] {
            let flushes = Rc::new(Flushes::default());
            let outlet = Outlet::new(Rc::clone(&flushes));
            let inside = outlet.clone();
            let drive: Drive = Box::pin(async move {
                inside.bytes(Bytes::from_static(b"a"));
                inside.written().await;
                inside.end_clean();
            });
            let mut body = ClientBody::Driven { drive: Some(drive), outlet };
            assert_eq!(frame(&mut body), Poll::Ready(Some(Ok(Bytes::from_static(b"a")))));
            if flush_before_asking {
                flushes.flushed();
            } else {
                assert_eq!(frame(&mut body), Poll::Pending);
                flushes.flushed();
            }
            assert_eq!(frame(&mut body), Poll::Ready(None), "{flush_before_asking}");
        }
    }

    #[test]
    fn only_a_said_end_is_a_clean_one() {
        for (said, wanted) in [(Some(true), None), (Some(false), Some(Err(()))), (None, Some(Err(())))] {
            let outlet = Outlet::new(Rc::default());
            match said {
                Some(true) => outlet.end_clean(),
                Some(false) => outlet.end_broken(),
                None => {}
            }
            let mut body = ClientBody::Driven { drive: None, outlet };
            assert_eq!(frame(&mut body), Poll::Ready(wanted));
        }
    }
}
