//! A committed stream in another dialect than the client's: the target's events in, the client's frames out.

use bytes::Bytes;

use crate::cause::{Cause, Failure};
use crate::dialect::Dialect;
use crate::dialect::translate::{Decoder, Encoder, Outcome, Piece, Terms, Took};
use crate::limits::TRANSLATED_EVENT_BYTES;
use crate::wire::Splitter;

/// The translation of one stream.
#[derive(Debug)]
pub struct Translation {
    splitter: Splitter,
    decoder: Decoder,
    encoder: Encoder,
    /// Of an event that is not whole yet.
    carry: Vec<u8>,
    pieces: Vec<Piece>,
    failure: Option<Failure>,
}

impl Translation {
    /// From the dialect `wire` to the dialect `client`; `None` where no answer is streamed in one of them.
    #[must_use]
    pub fn new(wire: Dialect, client: Dialect, terms: Terms) -> Option<Self> {
        Some(Translation {
            splitter: Splitter::new(wire.framing()),
            decoder: Decoder::new(wire)?,
            encoder: Encoder::new(client, terms)?,
            carry: Vec::new(),
            pieces: Vec::new(),
            failure: None,
        })
    }

    /// Why the client was told that the stream failed.
    #[must_use]
    pub const fn failure(&self) -> Option<&Failure> {
        self.failure.as_ref()
    }

    /// How long the answer took so far.
    pub const fn took(&mut self, took: Took) {
        self.encoder.took(took);
    }

    /// What comes next of the target's stream. Appends whole frames for the client.
    pub fn push(&mut self, chunk: &[u8], out: &mut Vec<u8>) {
        let mut rest = chunk;
        while let Some(length) = self.splitter.push(rest) {
            let (last, more) = rest.split_at(length.min(rest.len()));
            rest = more;
            if self.carry.is_empty() {
                self.decoder.event(last, &mut self.pieces);
            } else {
                self.carry.extend_from_slice(last);
                self.decoder.event(&self.carry, &mut self.pieces);
                self.carry.clear();
            }
        }
        self.carry.extend_from_slice(rest);
        if self.carry.len() > TRANSLATED_EVENT_BYTES {
            let words = format!("an event of over {TRANSLATED_EVENT_BYTES} bytes");
            self.pieces.push(Piece::Error(Failure::with(Cause::Overflow, &words)));
            self.carry = Vec::new();
        }
        self.write(out);
    }

    /// The stream is whole, with or without its protocol's end marker: the client's own end.
    pub fn end(&mut self, out: &mut Vec<u8>) {
        if !self.carry.is_empty() {
            self.decoder.event(&self.carry, &mut self.pieces);
            self.carry.clear();
        }
        self.decoder.end(&mut self.pieces);
        self.write(out);
    }

    fn write(&mut self, out: &mut Vec<u8>) {
        for piece in self.pieces.drain(..) {
            let outcome = self.encoder.piece(&piece, out);
            if outcome == Outcome::Failed && self.failure.is_none() {
                self.failure = Some(match piece {
                    Piece::Error(failure) => failure,
                    _ => Failure::with(Cause::Protocol, "an answer that the client's dialect cannot say"),
                });
            }
        }
    }
}

/// Whole events of a relay, as the client gets them.
pub fn translated(translation: &mut Translation, events: &mut Vec<Bytes>) {
    let mut out = Vec::new();
    for event in events.drain(..) {
        translation.push(&event, &mut out);
    }
    if !out.is_empty() {
        events.push(Bytes::from(out));
    }
}
