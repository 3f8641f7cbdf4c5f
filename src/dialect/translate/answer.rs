//! A whole answer: read from a server's body, or collected from a stream, and written for any client.

use super::encoder::{Common, Terms};
use super::{Piece, Usage, decoder, to_anthropic, to_ollama, to_openai, to_responses};
use crate::cause::{Cause, Failure};
use crate::dialect::Dialect;
use crate::limits::ANSWER_CHOICES;

/// What a server answered, as the pieces of a stream that says each thing at once: a text, a call's arguments and the
/// like are one piece as far as nothing else stands between.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    id: String,
    model: String,
    choices: Vec<Vec<Piece>>,
    current: usize,
    usage: Usage,
    /// What was collected, in bytes.
    bytes: usize,
    ended: bool,
}

/// A server's whole answer, as its body says.
///
/// # Errors
/// What the server says went wrong, or that the body is no answer.
pub fn whole(server: Dialect, body: &[u8]) -> Result<Answer, Failure> {
    let mut pieces = Vec::new();
    decoder::read_whole(server, body, &mut pieces);
    let mut answer = Answer::default();
    for piece in pieces {
        // The body was bounded by who read it.
        answer.push(piece, usize::MAX)?;
    }
    Ok(answer)
}

impl Answer {
    /// Takes the next piece of a stream, up to `most` bytes in all.
    ///
    /// # Errors
    /// The piece's own, where it is one; or that there is no room for more.
    pub fn push(&mut self, piece: Piece, most: usize) -> Result<(), Failure> {
        self.bytes = self.bytes.saturating_add(size(&piece));
        if self.bytes > most {
            return Err(Failure::with(Cause::NoBuffer, &format!("an answer of over {most} bytes")));
        }
        match piece {
            Piece::Error(failure) => return Err(failure),
            Piece::Done => self.ended = true,
            Piece::Start { id, model } => (self.id, self.model) = (id, model),
            Piece::Choice(choice) => self.current = choice.min(ANSWER_CHOICES - 1) as usize,
            Piece::Usage(usage) => self.usage = self.usage.then(usage),
            piece => {
                if self.current >= self.choices.len() {
                    self.choices.resize_with(self.current + 1, Vec::new);
                }
                if let Some(pieces) = self.choices.get_mut(self.current) {
                    join(pieces, piece);
                }
            }
        }
        Ok(())
    }

    /// Whether its end came.
    #[must_use]
    pub const fn ended(&self) -> bool {
        self.ended
    }

    /// Tokens, as far as the server reported them.
    #[must_use]
    pub const fn usage(&self) -> Usage {
        self.usage
    }

    /// As the pieces of a stream, for a client that asked for one.
    pub fn pieces(self) -> impl Iterator<Item = Piece> {
        let Answer { id, model, choices, usage, ended, .. } = self;
        let (mut said, mut finishes) = (vec![Piece::Start { id, model }], Vec::new());
        for (at, pieces) in choices.into_iter().enumerate().filter(|(_, pieces)| !pieces.is_empty()) {
            // Below ANSWER_CHOICES.
            let choice = Piece::Choice(at as u32);
            let finished = pieces.len() - usize::from(matches!(pieces.last(), Some(Piece::Finish(_))));
            if at > 0 {
                said.push(choice.clone());
            }
            for (number, piece) in pieces.into_iter().enumerate() {
                if number < finished {
                    said.push(piece);
                } else {
                    finishes.extend([choice.clone(), piece]);
                }
            }
        }
        said.extend((usage != Usage::default()).then_some(Piece::Usage(usage)));
        said.extend(finishes);
        said.extend(ended.then_some(Piece::Done));
        said.into_iter()
    }

    /// The body for a client that asked for no stream.
    ///
    /// # Errors
    /// When the dialect cannot say it: a call's arguments that are no object, for Ollama's and Anthropic's clients; an
    /// answer whose end never came, for all.
    pub fn body(&self, client: Dialect, mut terms: Terms) -> Result<Vec<u8>, Failure> {
        if !self.ended {
            return Err(Failure::new(Cause::Truncated));
        }
        if terms.model.is_empty() {
            terms.model.clone_from(&self.model);
        }
        if terms.hides_thinking {
            let mut shown = self.clone();
            for pieces in &mut shown.choices {
                pieces.retain(|piece| {
                    !matches!(piece, Piece::Thinking(_) | Piece::Signature(_) | Piece::Redacted(_))
                });
            }
            return shown.body(client, Terms { hides_thinking: false, ..terms });
        }
        let mut common = Common::new(client, terms);
        common.usage = self.usage;
        common.finish = self.first().iter().find_map(|piece| match piece {
            Piece::Finish(finish) => Some(finish.clone()),
            _ => None,
        });
        let mut out = Vec::new();
        match client {
            Dialect::OllamaChat | Dialect::OllamaGenerate => to_ollama::answer(&common, self, &mut out)?,
            Dialect::Anthropic => to_anthropic::answer(&common, self, &mut out)?,
            Dialect::OpenaiResponses => to_responses::answer(&mut common, self, &mut out)?,
            _ => to_openai::answer(&mut common, self, &mut out),
        }
        Ok(out)
    }

    /// Choice 0, the only one that most dialects have.
    pub(super) fn first(&self) -> &[Piece] {
        self.choices.first().map_or(&[], Vec::as_slice)
    }

    /// Each choice that was there, with its number.
    pub(super) fn choices(&self) -> impl Iterator<Item = (u32, &[Piece])> {
        // Below ANSWER_CHOICES.
        let numbered = self.choices.iter().enumerate().map(|(at, pieces)| (at as u32, pieces.as_slice()));
        numbered.filter(|(_, pieces)| !pieces.is_empty())
    }
}

fn size(piece: &Piece) -> usize {
    // So that pieces without text count, too.
    const PIECE: usize = size_of::<Piece>();
    match piece {
        Piece::Text(text)
        | Piece::Thinking(text)
        | Piece::Signature(text)
        | Piece::Redacted(text)
        | Piece::Refusal(text)
        | Piece::ToolArguments { delta: text, .. }
        | Piece::Logprobs(text) => text.len(),
        Piece::ToolStart { id, name, signature, .. } => PIECE + id.len() + name.len() + signature.len(),
        Piece::Start { id, model } => PIECE + id.len() + model.len(),
        _ => PIECE,
    }
}

/// Adds a piece to those of its choice, or to the last of them that it goes on with.
fn join(pieces: &mut Vec<Piece>, piece: Piece) {
    if let Piece::Logprobs(more) = &piece {
        // One list, wherever its parts stood.
        let list = pieces.iter_mut().find_map(|piece| match piece {
            Piece::Logprobs(list) => Some(list),
            _ => None,
        });
        if let (Some(list), Some(more)) = (list, more.strip_prefix('[')) {
            list.pop();
            list.push(',');
            list.push_str(more);
        } else {
            pieces.push(piece);
        }
        return;
    }
    match (pieces.last_mut(), &piece) {
        (Some(Piece::Text(text)), Piece::Text(more))
        | (Some(Piece::Thinking(text)), Piece::Thinking(more))
        | (Some(Piece::Refusal(text)), Piece::Refusal(more))
        | (Some(Piece::ToolArguments { delta: text, .. }), Piece::ToolArguments { delta: more, .. }) => {
            text.push_str(more);
        }
        _ => pieces.push(piece),
    }
}
