//! One stream on its way: a server's bytes in, a client's whole frames out.

use super::{Decoder, Encoder, Heard, Outcome, Piece, Seam, Terms, Took, Usage};
use crate::cause::{Cause, Failure};
use crate::dialect::Dialect;
use crate::dialect::reply::Problem;
use crate::limits::TRANSLATED_EVENT_BYTES;
use crate::wire::Splitter;

/// How far a translation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// More may come.
    Open,
    /// Every choice has ended; only the server's own end marker is missing, which need not be waited for long.
    Finished,
    /// The client has its end.
    Done,
    /// [`Translation::failure`] says why; the client has yet to be told ([`Translation::fail`]), or was.
    Failed,
}

/// The translation of one stream. What it keeps is bounded: an event in the making, mixed calls
/// ([`crate::limits::CALL_BYTES`]), what the client's protocol repeats ([`crate::limits::REPEATED_BYTES`]).
#[derive(Debug)]
pub struct Translation {
    pub(super) splitter: Splitter,
    /// An event in the making.
    pub(super) event: Vec<u8>,
    pub(super) decoder: Decoder,
    pub(super) encoder: Encoder,
    pub(super) pieces: Vec<Piece>,
    usage: Usage,
    pub(super) failure: Option<Failure>,
    moved: bool,
    spoke: bool,
    /// Its output is thrown away.
    pub(super) follows: bool,
    /// What was said, where that may be needed.
    pub(super) heard: Option<Box<Heard>>,
    /// To what another server has said.
    pub(super) seam: Option<Seam>,
}

impl Translation {
    /// From a server's protocol to a client's; `None` where there is no way ([`Decoder::new`], [`Encoder::new`]).
    #[must_use]
    pub fn new(server: Dialect, client: Dialect, terms: Terms) -> Option<Self> {
        Some(Translation {
            splitter: Splitter::new(server.framing()),
            event: Vec::new(),
            decoder: Decoder::new(server)?,
            encoder: Encoder::new(client, terms)?,
            pieces: Vec::new(),
            usage: Usage::default(),
            failure: None,
            moved: false,
            spoke: false,
            follows: false,
            heard: None,
            seam: None,
        })
    }

    /// The client asked for this many choices: the answer is whole when all are.
    #[must_use]
    pub fn expecting(self, choices: u32) -> Self {
        Translation { decoder: self.decoder.expecting(choices), ..self }
    }

    /// The next bytes from the server, cut anywhere.
    pub fn push(&mut self, chunk: &[u8], out: &mut Vec<u8>) -> State {
        let mut rest = chunk;
        while !rest.is_empty() && self.open() {
            let end = self.splitter.push(rest);
            let (piece, after) = rest.split_at_checked(end.unwrap_or(rest.len())).unwrap_or((rest, b""));
            rest = after;
            if end.is_some() && self.event.is_empty() {
                self.moved |= self.decoder.event(piece, &mut self.pieces);
            } else {
                self.event.extend_from_slice(piece);
                if self.event.len() > TRANSLATED_EVENT_BYTES {
                    let words = format!("an event of over {TRANSLATED_EVENT_BYTES} bytes");
                    self.pieces.push(Piece::Error(Failure::with(Cause::NoBuffer, &words)));
                } else if end.is_some() {
                    self.moved |= self.decoder.event(&self.event, &mut self.pieces);
                    self.event.clear();
                }
            }
            self.pass_on(out);
        }
        self.state()
    }

    /// The body ended cleanly, or a finished stream was waited for long enough. An answer that is not whole fails.
    pub fn end(&mut self, out: &mut Vec<u8>) -> State {
        if self.open() {
            // The last event may lack its empty line. Half an event is no JSON, and an error.
            let event = std::mem::take(&mut self.event);
            if !event.is_empty() {
                self.decoder.event(&event, &mut self.pieces);
            }
            self.decoder.end(&mut self.pieces);
            self.pass_on(out);
        }
        self.state()
    }

    /// Tells the client that its answer broke, in its dialect. The connection is to end uncleanly.
    pub fn fail(&mut self, problem: &Problem, out: &mut Vec<u8>) {
        self.encoder.fail(problem, out);
    }

    /// How far it is.
    #[must_use]
    pub fn state(&self) -> State {
        match self.encoder.outcome() {
            Outcome::Done => State::Done,
            Outcome::Failed => State::Failed,
            Outcome::Open if self.failure.is_some() => State::Failed,
            Outcome::Open if self.decoder.finished() => State::Finished,
            Outcome::Open => State::Open,
        }
    }

    /// What went wrong at the server, or with what it sent.
    #[must_use]
    pub const fn failure(&self) -> Option<&Failure> {
        self.failure.as_ref()
    }

    /// Tokens, as far as the server reported them.
    #[must_use]
    pub const fn usage(&self) -> Usage {
        self.usage
    }

    /// How long it took so far: what is said last counts.
    pub const fn took(&mut self, took: Took) {
        self.encoder.took(took);
    }

    /// Whether anything but signs of life came since the last call.
    pub const fn take_moved(&mut self) -> bool {
        std::mem::replace(&mut self.moved, false)
    }

    /// Whether the model said anything since the last call.
    pub const fn take_spoke(&mut self) -> bool {
        std::mem::replace(&mut self.spoke, false)
    }

    fn open(&self) -> bool {
        matches!(self.state(), State::Open | State::Finished)
    }

    fn pass_on(&mut self, out: &mut Vec<u8>) {
        if let Some(seam) = &mut self.seam {
            seam.pass(&mut self.pieces, self.encoder.common.terms.took.total);
        }
        for piece in self.pieces.drain(..) {
            match &piece {
                Piece::Usage(usage) => self.usage = self.usage.then(*usage),
                Piece::Text(_)
                | Piece::Thinking(_)
                | Piece::Refusal(_)
                | Piece::ToolStart { .. }
                | Piece::ToolArguments { .. } => self.spoke = true,
                _ => {}
            }
            if let Err(failure) = self.encoder.piece(&piece, out) {
                self.failure = Some(failure);
                break;
            }
            if let Some(heard) = &mut self.heard {
                heard.note(&piece);
            }
        }
    }
}
