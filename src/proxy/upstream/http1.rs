//! An HTTP/1 connection without a task of its own: whoever holds it drives it.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;

use super::body::RequestBody;
use super::fault;
use super::meter::{Meter, Metered};
use crate::cause::Failure;
use crate::limits;
use crate::proxy::socket::Socket;

/// hyper's two halves of a connection.
pub(super) struct Http1 {
    pub(super) sender: http1::SendRequest<RequestBody>,
    pub(super) meter: Rc<Meter>,
    driver: http1::Connection<TokioIo<Metered>, RequestBody>,
    nudge: Arc<Nudge>,
    waker: Waker,
}

impl Http1 {
    pub(super) async fn open(socket: Socket) -> Result<Self, Failure> {
        let (io, meter) = Metered::new(socket);
        let (sender, driver) = http1::Builder::new()
            .max_headers(limits::UPSTREAM_HEADERS_MAX)
            .max_buf_size(limits::UPSTREAM_HEAD_BYTES)
            .handshake(TokioIo::new(io))
            .await
            .map_err(|error| fault::of_http1(&error))?;
        let nudge = Arc::new(Nudge::default());
        let waker = Waker::from(Arc::clone(&nudge));
        Ok(Http1 { sender, meter, driver, nudge, waker })
    }

    /// Moves request and response on, as far as the socket allows. Must not be called again once ready.
    ///
    /// hyper thinks that its driver and the response's reader are two tasks, and wakes one for what
    /// the other does. Here they are one, which looks at both each time: of those wakes only the one that
    /// the driver gives itself, to yield, is passed on. The socket has the task's own waker. Without this
    /// each token costs three polls of the whole request instead of two.
    pub(super) fn drive(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), hyper::Error>> {
        self.meter.wakes(Some(cx.waker()));
        self.nudge.take();
        let outcome = Pin::new(&mut self.driver).poll(&mut Context::from_waker(&self.waker));
        if self.nudge.take() && outcome.is_pending() {
            cx.waker().wake_by_ref();
        }
        outcome
    }

    /// Whether it is idle and open. Lets the driver look at the socket once: an end, or bytes that
    /// nobody asked for, show here.
    pub(super) fn is_ready(&mut self) -> bool {
        let open = self.drive(&mut Context::from_waker(Waker::noop())).is_pending();
        // The task that used it last need not hear of it any more.
        self.meter.wakes(None);
        open && self.sender.is_ready() && !self.meter.is_deaf()
    }
}

/// Remembers that it was woken.
#[derive(Default)]
struct Nudge(AtomicBool);

impl Nudge {
    fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

impl Wake for Nudge {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}
