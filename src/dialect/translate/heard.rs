//! What a stream has said so far: what another target may have to go on with, and whether it can.

use super::Piece;
use crate::limits::SAID_BYTES;

/// What was last said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Last {
    #[default]
    Nothing,
    Text,
    Thinking,
}

/// What one stream has said, as far as its client was told.
#[derive(Debug, Default)]
pub struct Heard {
    /// Of choice 0, where it is kept.
    text: String,
    keeps: bool,
    /// It had more than is kept.
    too_long: bool,
    characters: u64,
    last: Last,
    others: bool,
    calls: bool,
    refusal: bool,
    finished: bool,
    choice: u32,
    /// Text and thinking that nobody has looked at yet.
    fresh: Option<String>,
}

impl Heard {
    /// `keeps`: its text may be needed. `looks`: somebody looks at what it says ([`Heard::take_fresh`]).
    #[must_use]
    pub fn new(keeps: bool, looks: bool) -> Self {
        Heard { keeps, fresh: looks.then(String::new), ..Heard::default() }
    }

    /// The client was given this piece.
    pub(super) fn note(&mut self, piece: &Piece) {
        match piece {
            Piece::Choice(choice) => {
                self.choice = *choice;
                self.others |= *choice > 0;
            }
            Piece::Text(_) | Piece::Thinking(_) if self.choice > 0 => {}
            Piece::Text(text) => {
                self.characters += text.chars().count() as u64;
                self.last = Last::Text;
                self.look(text);
                if self.keeps && self.text.len() + text.len() > SAID_BYTES {
                    (self.keeps, self.too_long, self.text) = (false, true, String::new());
                } else if self.keeps {
                    self.text.push_str(text);
                }
            }
            Piece::Thinking(text) => {
                self.last = Last::Thinking;
                self.look(text);
            }
            Piece::Signature(_) | Piece::Redacted(_) => self.last = Last::Thinking,
            Piece::ToolStart { .. } => self.calls = true,
            Piece::Refusal(_) => self.refusal = true,
            Piece::Finish(_) | Piece::Done => self.finished = true,
            Piece::Start { .. }
            | Piece::ToolArguments { .. }
            | Piece::ToolEnd { .. }
            | Piece::Logprobs(_)
            | Piece::Usage(_)
            | Piece::Error(_) => {}
        }
    }

    fn look(&mut self, text: &str) {
        if let Some(fresh) = &mut self.fresh {
            fresh.push_str(text);
        }
    }

    /// What was said since the last call.
    pub fn take_fresh(&mut self) -> Option<String> {
        self.fresh.as_mut().map(std::mem::take).filter(|fresh| !fresh.is_empty())
    }

    /// The text; empty where it is not kept.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Characters of text that the client has.
    #[must_use]
    pub const fn characters(&self) -> u64 {
        self.characters
    }

    /// It said why it ended.
    #[must_use]
    pub const fn finished(&self) -> bool {
        self.finished
    }

    /// Why nobody else can go on from here; `None`: somebody can.
    #[must_use]
    pub fn cannot_go_on(&self) -> Option<&'static str> {
        if self.finished {
            Some("it had ended")
        } else if self.calls {
            Some("it has called a tool")
        } else if self.refusal {
            Some("it has refused")
        } else if self.others {
            Some("it has several choices")
        } else if self.too_long {
            Some("it has said too much")
        } else if self.last == Last::Thinking {
            Some("it was thinking")
        } else if self.text.trim().is_empty() {
            Some("it has said nothing yet")
        } else {
            None
        }
    }

    /// The answer begins anew.
    pub(super) fn forget(&mut self) {
        *self = Heard::new(self.keeps || self.too_long, self.fresh.is_some());
    }
}
