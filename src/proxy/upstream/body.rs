//! A request body as a row of slices: what was edited stands between untouched pieces of the client's own bytes.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

/// The body of one upstream request. Its length is known, so it goes out with a Content-Length;
/// its slices are shared with the replay buffer, so that another attempt copies nothing.
#[derive(Clone, Debug, Default)]
pub struct RequestBody {
    /// Yet to be sent, the next one last; none is empty.
    rest: Vec<Bytes>,
    /// Bytes in `rest`.
    left: u64,
}

impl RequestBody {
    /// No body at all, as for a GET.
    #[must_use]
    pub fn empty() -> Self {
        RequestBody::default()
    }

    /// The slices, one after the other.
    #[must_use]
    pub fn new(mut slices: Vec<Bytes>) -> Self {
        slices.retain(|slice| !slice.is_empty());
        slices.reverse();
        let left = slices.iter().map(|slice| slice.len() as u64).sum();
        RequestBody { rest: slices, left }
    }

    /// Bytes yet to be sent.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.left
    }

    /// Whether nothing is left to send.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.left == 0
    }
}

impl From<Bytes> for RequestBody {
    fn from(whole: Bytes) -> Self {
        RequestBody::new(vec![whole])
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let slice = self.rest.pop();
        if let Some(slice) = &slice {
            self.left -= slice.len() as u64;
        }
        Poll::Ready(slice.map(|slice| Ok(Frame::data(slice))))
    }

    fn is_end_stream(&self) -> bool {
        self.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}
