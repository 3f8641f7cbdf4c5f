//! A response: its head, and its body as it comes.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use http::{HeaderMap, StatusCode, header, response};
use hyper::body::{Body, Frame, Incoming};

use super::fault;
use super::gunzip::Gunzip;
use super::http1::Http1;
use super::slot::{Slot, Stream};
use crate::cause::{Cause, Failure};

/// A response whose head has come. Dropped before its end, it closes its connection, or resets its stream.
pub struct Reply {
    /// The status; 1xx ones were skipped.
    pub status: StatusCode,
    /// The header fields. Where gzip is undone here, Content-Encoding and Content-Length are gone.
    pub headers: HeaderMap,
    /// The connection was not made for this request.
    pub reused: bool,
    slot: Rc<Slot>,
    body: Incoming,
    /// What the body comes on, until its end or its failure.
    carrier: Option<Carrier>,
    coding: Coding,
    failed: Option<Failure>,
}

/// What a response's body comes on.
pub(super) enum Carrier {
    /// True while the driver runs; a finished one must not be polled again.
    Http1(Box<Http1>, bool),
    /// Held for its count of streams.
    Http2 { _stream: Stream },
}

enum Coding {
    Identity,
    Gzip(Box<Gunzip>),
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply")
            .field("status", &self.status)
            .field("reused", &self.reused)
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}

impl Reply {
    pub(super) fn new(
        slot: Rc<Slot>,
        reused: bool,
        mut head: response::Parts,
        body: Incoming,
        carrier: Carrier,
    ) -> Self {
        let coding = coding(&head.headers);
        if let Ok(Coding::Gzip(_)) = coding {
            head.headers.remove(header::CONTENT_ENCODING);
            head.headers.remove(header::CONTENT_LENGTH);
        }
        let (coding, failed) = match coding {
            Ok(coding) => (coding, None),
            Err(failure) => (Coding::Identity, Some(failure)),
        };
        Reply {
            status: head.status,
            headers: head.headers,
            reused,
            slot,
            body,
            carrier: Some(carrier),
            coding,
            failed,
        }
    }

    /// The next bytes of the body, as they came, not gathered. `None` is its clean end: an HTTP/1
    /// connection is then kept for the next request if both sides allow it, so ask until the end.
    ///
    /// Cancel safe. An error comes again each time.
    pub async fn chunk(&mut self) -> Option<Result<Bytes, Failure>> {
        poll_fn(|cx| self.poll_chunk(cx)).await
    }

    /// Waits for bytes, then takes what else is there already, up to `bound` bytes: appended to `chunks`.
    /// `Some`: the body's end, or its failure, came after them.
    ///
    /// Cancel safe: what was taken is in `chunks`.
    pub async fn gather(&mut self, chunks: &mut Vec<Bytes>, bound: usize) -> Option<Result<(), Failure>> {
        let mut gathered = 0;
        poll_fn(|cx| {
            loop {
                match self.poll_chunk(cx) {
                    Poll::Ready(Some(Ok(chunk))) => {
                        gathered += chunk.len();
                        chunks.push(chunk);
                        if gathered >= bound {
                            return Poll::Ready(None);
                        }
                    }
                    Poll::Ready(Some(Err(failure))) => return Poll::Ready(Some(Err(failure))),
                    Poll::Ready(None) => return Poll::Ready(Some(Ok(()))),
                    Poll::Pending if chunks.is_empty() => return Poll::Pending,
                    Poll::Pending => return Poll::Ready(None),
                }
            }
        })
        .await
    }

    /// [`Reply::chunk`] as a poll. Errors: `Closed`, `Reset`, `Protocol` (framing, coding), `Tls`.
    pub fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Failure>>> {
        if let Some(failure) = &self.failed {
            self.carrier = None;
            return Poll::Ready(Some(Err(failure.clone())));
        }
        let next = ready!(self.poll_decoded(cx));
        if let Some(Err(failure)) = &next {
            self.failed = Some(failure.clone());
            self.carrier = None;
        }
        Poll::Ready(next)
    }

    fn poll_decoded(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Failure>>> {
        loop {
            if let Coding::Gzip(gunzip) = &mut self.coding {
                match gunzip.pull() {
                    Ok(Some(piece)) => return Poll::Ready(Some(Ok(piece))),
                    Ok(None) => {}
                    Err(error) => return Poll::Ready(Some(Err(not_gzip(&error)))),
                }
            }
            let next = ready!(self.poll_raw(cx));
            let Coding::Gzip(gunzip) = &mut self.coding else { return Poll::Ready(next) };
            match next {
                Some(Ok(chunk)) => gunzip.feed(chunk),
                Some(Err(failure)) => return Poll::Ready(Some(Err(failure))),
                None => {
                    let ended = gunzip.finish();
                    self.coding = Coding::Identity;
                    return Poll::Ready(ended.err().map(|error| Err(not_gzip(&error))));
                }
            }
        }
    }

    /// The body as it is on the wire.
    fn poll_raw(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Failure>>> {
        loop {
            let next = match &mut self.carrier {
                None => return Poll::Ready(None),
                Some(Carrier::Http2 { .. }) => ready!(Pin::new(&mut self.body).poll_frame(cx))
                    .map(|frame| frame.map_err(|error| fault::of_http2(&error).0)),
                Some(Carrier::Http1(connection, open)) => {
                    ready!(poll_http1(&mut self.body, connection, open, cx))
                }
            };
            match next {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) if !data.is_empty() => return Poll::Ready(Some(Ok(data))),
                    // An empty one, or trailers.
                    _ => {}
                },
                Some(Err(failure)) => return Poll::Ready(Some(Err(failure))),
                None => {
                    if let Some(Carrier::Http1(connection, true)) = self.carrier.take() {
                        self.slot.put_back(connection);
                    }
                    return Poll::Ready(None);
                }
            }
        }
    }
}

/// The body moves on only when the driver does, and the driver only when it is polled here.
fn poll_http1(
    body: &mut Incoming,
    connection: &mut Http1,
    open: &mut bool,
    cx: &mut Context<'_>,
) -> Poll<Option<Result<Frame<Bytes>, Failure>>> {
    let mut unwoken = Context::from_waker(Waker::noop());
    if let Poll::Ready(next) = Pin::new(&mut *body).poll_frame(&mut unwoken) {
        return Poll::Ready(next.map(|frame| frame.map_err(|error| fault::of_http1(&error))));
    }
    // What the driver says is nearer to the cause than what it told the body.
    let mut broken = None;
    if *open && let Poll::Ready(ended) = connection.drive(cx) {
        *open = false;
        broken = ended.err().map(|error| fault::of_http1(&error));
    }
    match Pin::new(body).poll_frame(&mut unwoken) {
        Poll::Ready(Some(Err(error))) => {
            Poll::Ready(Some(Err(broken.unwrap_or_else(|| fault::of_http1(&error)))))
        }
        Poll::Ready(next) => Poll::Ready(next.map(|frame| frame.map_err(|error| fault::of_http1(&error)))),
        Poll::Pending if *open => Poll::Pending,
        Poll::Pending => Poll::Ready(Some(Err(broken.unwrap_or(Failure::new(Cause::Closed))))),
    }
}

fn coding(headers: &HeaderMap) -> Result<Coding, Failure> {
    let mut names = headers
        .get_all(header::CONTENT_ENCODING)
        .iter()
        .flat_map(|value| value.as_bytes().split(|&byte| byte == b','))
        .map(<[u8]>::trim_ascii)
        .filter(|name| !name.is_empty() && !name.eq_ignore_ascii_case(b"identity"));
    match (names.next(), names.next()) {
        (None, _) => Ok(Coding::Identity),
        (Some(name), None) if name.eq_ignore_ascii_case(b"gzip") || name.eq_ignore_ascii_case(b"x-gzip") => {
            Ok(Coding::Gzip(Box::new(Gunzip::new())))
        }
        (Some(name), _) => {
            let name = String::from_utf8_lossy(name);
            Err(Failure::with(Cause::Protocol, &format!("content-encoding {name} was not asked for")))
        }
    }
}

fn not_gzip(error: &std::io::Error) -> Failure {
    let cause = match error.kind() {
        std::io::ErrorKind::UnexpectedEof => Cause::Closed,
        _ => Cause::Protocol,
    };
    Failure::with(cause, &format!("gzip: {error}"))
}
