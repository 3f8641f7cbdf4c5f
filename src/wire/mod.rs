//! Framing: where an event ends in a stream of bytes, whatever way the bytes were cut.

pub mod head;
pub mod json;
mod split;
pub mod sse;

pub use split::Splitter;

/// How a stream is framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// Server-sent events: fields by line, an event ends with an empty line.
    Sse,
    /// One JSON value a line.
    Ndjson,
}
