//! One request on one connection, up to the response's head.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use http::{HeaderMap, Request, Response, Uri, Version, header, uri};
use hyper::body::Incoming;

use super::body::RequestBody;
use super::fault;
use super::http1::Http1;
use super::reply::{Carrier, Reply};
use super::slot::{Slot, Stream, Via};
use crate::cause::{Cause, Failure};
use crate::limits;

/// A connection that is ready for one request. Dropped unused, it closes.
pub struct Link {
    /// It has carried a request before, or waited as a spare: its server may have closed it meanwhile.
    pub reused: bool,
    slot: Rc<Slot>,
    via: Via,
}

/// Why no response head came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SendError {
    /// The target did not look at the request, or closed a reused connection without a byte of an
    /// answer: it may be sent once more, on a fresh connection. If that was one, it is the failure.
    Stale(Failure),
    /// The attempt failed.
    Failed(Failure),
}

impl SendError {
    /// What happened.
    #[must_use]
    pub fn into_failure(self) -> Failure {
        match self {
            SendError::Stale(failure) | SendError::Failed(failure) => failure,
        }
    }
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SendError::Stale(failure) => write!(f, "{failure}; not looked at"),
            SendError::Failed(failure) => failure.fmt(f),
        }
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = if self.is_http2() { "HTTP/2" } else { "HTTP/1.1" };
        f.debug_struct("Link")
            .field("reused", &self.reused)
            .field("version", &version)
            .finish_non_exhaustive()
    }
}

impl Link {
    pub(super) fn new(slot: Rc<Slot>, via: Via, reused: bool) -> Self {
        Link { reused, slot, via }
    }

    /// Whether this is a stream of an HTTP/2 connection.
    #[must_use]
    pub fn is_http2(&self) -> bool {
        matches!(self.via, Via::Http2(_))
    }

    /// Sends `request` and waits for the response's head; the body may still be going up then.
    ///
    /// Of `request`'s URI only path and query count, with the target's base already before them. Host,
    /// Content-Length and everything else about framing is set here.
    ///
    /// # Errors
    ///
    /// See [`SendError`]; causes `Reset`, `Closed`, `Protocol`, `Tls`.
    pub async fn send(self, request: Request<RequestBody>) -> Result<Reply, SendError> {
        let (mut parts, body) = request.into_parts();
        for framing in [header::HOST, header::CONTENT_LENGTH, header::TRANSFER_ENCODING, header::CONNECTION] {
            parts.headers.remove(framing);
        }
        let path = parts.uri.into_parts().path_and_query;
        let mut target = uri::Parts::default();
        target.path_and_query = Some(path.unwrap_or_else(|| uri::PathAndQuery::from_static("/")));
        if self.is_http2() {
            parts.version = Version::HTTP_2;
            target.scheme = Some(uri::Scheme::HTTPS);
            target.authority = uri::Authority::try_from(self.slot.host.as_bytes()).ok();
        } else {
            parts.version = Version::HTTP_11;
            parts.headers.insert(header::HOST, self.slot.host.clone());
        }
        parts.uri = Uri::from_parts(target)
            .map_err(|error| SendError::Failed(Failure::with(Cause::Internal, &error.to_string())))?;
        let request = Request::from_parts(parts, body);

        let (response, carrier) = match self.via {
            Via::Http1(connection) => over_http1(connection, request, self.reused).await?,
            Via::Http2(stream) => over_http2(stream, request, self.reused).await?,
        };
        let (head, body) = response.into_parts();
        check_head(&head.headers).map_err(SendError::Failed)?;
        Ok(Reply::new(self.slot, self.reused, head, body, carrier))
    }
}

/// hyper counts an HTTP/1 response's fields while it parses them, and HTTP/2's not at all.
fn check_head(headers: &HeaderMap) -> Result<(), Failure> {
    if headers.len() > limits::UPSTREAM_HEADERS_MAX {
        return Err(Failure::with(Cause::Protocol, "too many header fields"));
    }
    Ok(())
}

async fn over_http1(
    mut connection: Box<Http1>,
    request: Request<RequestBody>,
    reused: bool,
) -> Result<(Response<Incoming>, Carrier), SendError> {
    let before = connection.meter.bytes_read();
    let mut response = pin!(connection.sender.send_request(request));
    let outcome = poll_fn(|cx| {
        let driver = connection.drive(cx);
        // Only the driver moves this one on, right here, so that nobody needs to be woken by it.
        let mut unwoken = Context::from_waker(Waker::noop());
        match (response.as_mut().poll(&mut unwoken), driver) {
            (Poll::Ready(outcome), Poll::Pending) => Poll::Ready(Some((outcome, true))),
            (Poll::Ready(outcome), Poll::Ready(_)) => Poll::Ready(Some((outcome, false))),
            (Poll::Pending, Poll::Ready(_)) => Poll::Ready(None),
            (Poll::Pending, Poll::Pending) => Poll::Pending,
        }
    })
    .await;
    let failure = match outcome {
        Some((Ok(response), open)) => return Ok((response, Carrier::Http1(connection, open))),
        Some((Err(error), _)) => fault::of_http1(&error),
        None => Failure::new(Cause::Closed),
    };
    Err(if reused && connection.meter.bytes_read() == before {
        SendError::Stale(failure)
    } else {
        SendError::Failed(failure)
    })
}

async fn over_http2(
    stream: Stream,
    request: Request<RequestBody>,
    reused: bool,
) -> Result<(Response<Incoming>, Carrier), SendError> {
    let before = stream.0.meter.bytes_read();
    let error = match stream.0.sender().send_request(request).await {
        Ok(response) => return Ok((response, Carrier::Http2 { _stream: stream })),
        Err(error) => error,
    };
    let (failure, unseen) = fault::of_http2(&error);
    if unseen || (reused && stream.0.meter.bytes_read() == before) {
        // Other streams may go on; this connection takes no new one.
        stream.0.retired.set(true);
        return Err(SendError::Stale(failure));
    }
    Err(SendError::Failed(failure))
}
