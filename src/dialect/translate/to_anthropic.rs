//! For Anthropic's clients: typed events, and the whole message.

use super::answer::Answer;
use super::encoder::{Common, object, unreadable};
use super::from_anthropic::{Blocks, Is};
use super::text::{Fill, fill, quote};
use super::{Finish, Piece};
use crate::cause::Failure;

/// A stream.
#[derive(Debug, Default)]
pub(super) struct Stream {
    begun: bool,
    open: Option<Kind>,
    /// Blocks that are closed, so the open one's index.
    closed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Thinking,
    Call,
}

impl Stream {
    pub(super) fn piece(&mut self, common: &Common, piece: &Piece, out: &mut Vec<u8>) {
        match piece {
            Piece::Text(text) | Piece::Refusal(text) => {
                self.turn_to(Kind::Text, common, out);
                self.delta("\"type\":\"text_delta\",\"text\":$", text, out);
            }
            Piece::Thinking(text) => {
                self.turn_to(Kind::Thinking, common, out);
                self.delta("\"type\":\"thinking_delta\",\"thinking\":$", text, out);
            }
            Piece::Signature(signature) => {
                // Without words before it: of thinking that its provider does not show.
                self.turn_to(Kind::Thinking, common, out);
                self.delta("\"type\":\"signature_delta\",\"signature\":$", signature, out);
                self.close(out);
            }
            Piece::Redacted(data) => {
                self.begin(common, out);
                self.close(out);
                self.open("{\"type\":\"redacted_thinking\",\"data\":$}", &[Fill::Text(data)], out);
                self.close_anyway(out);
            }
            Piece::ToolStart { index, id, name, .. } => {
                self.begin(common, out);
                self.close(out);
                let id = common.call_id(*index, id);
                let values = [Fill::Text(&id), Fill::Text(name)];
                self.open("{\"type\":\"tool_use\",\"id\":$,\"name\":$,\"input\":{}}", &values, out);
                self.open = Some(Kind::Call);
            }
            Piece::ToolArguments { delta, .. } => {
                self.delta("\"type\":\"input_json_delta\",\"partial_json\":$", delta, out);
            }
            Piece::ToolEnd { .. } | Piece::Finish(_) => self.close(out),
            Piece::Done => {
                self.begin(common, out);
                self.close(out);
                end(common, out);
            }
            Piece::Start { .. }
            | Piece::Choice(_)
            | Piece::Usage(_)
            // Anthropic has none.
            | Piece::Logprobs(_)
            | Piece::Error(_) => {}
        }
    }

    /// The server's own blocks went out untouched: what follows stands behind them.
    pub(super) fn stands_at(&mut self, blocks: Blocks) {
        (self.begun, self.open, self.closed) = match blocks.open {
            Some((number, Is::Text)) => (true, Some(Kind::Text), number),
            Some((number, Is::Thinking)) => (true, Some(Kind::Thinking), number),
            Some((number, Is::Other)) => (true, Some(Kind::Call), number),
            None => (true, None, blocks.next),
        };
    }

    /// The whole answer comes anew, in further blocks. `message_delta` is the event that clients' libraries hand on with
    /// members that they don't know, and that may come several times. Words end as a block; a call that was cut off does
    /// not: nobody is to act on it.
    pub(super) fn restart(&mut self, common: &Common, told: &str, out: &mut Vec<u8>) {
        self.begin(common, out);
        if self.open == Some(Kind::Call) {
            self.open = None;
            self.closed += 1;
        }
        self.close(out);
        fill(
            out,
            "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":null,\
             \"stop_sequence\":null},\"usage\":$,\"edgeward\":$}\n\n",
            &[Fill::Json(&usage(common)), Fill::Json(told)],
        );
    }

    fn begin(&mut self, common: &Common, out: &mut Vec<u8>) {
        if std::mem::replace(&mut self.begun, true) {
            return;
        }
        // What is not known yet comes with `message_delta`.
        start(&common.id(), &common.terms.model, &usage(common), out);
    }

    fn turn_to(&mut self, kind: Kind, common: &Common, out: &mut Vec<u8>) {
        self.begin(common, out);
        if self.open == Some(kind) {
            return;
        }
        self.close(out);
        let block = match kind {
            Kind::Thinking => "{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}",
            Kind::Text | Kind::Call => "{\"type\":\"text\",\"text\":\"\"}",
        };
        self.open(block, &[], out);
        self.open = Some(kind);
    }

    fn open(&mut self, block: &str, values: &[Fill<'_>], out: &mut Vec<u8>) {
        fill(
            out,
            "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":$,\"content_block\":",
            &[Fill::Number(self.closed)],
        );
        fill(out, block, values);
        out.extend_from_slice(b"}\n\n");
    }

    fn delta(&self, delta: &str, text: &str, out: &mut Vec<u8>) {
        fill(
            out,
            "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":$,\"delta\":{",
            &[Fill::Number(self.closed)],
        );
        fill(out, delta, &[Fill::Text(text)]);
        out.extend_from_slice(b"}}\n\n");
    }

    fn close(&mut self, out: &mut Vec<u8>) {
        if self.open.take().is_some() {
            self.close_anyway(out);
        }
    }

    fn close_anyway(&mut self, out: &mut Vec<u8>) {
        fill(
            out,
            "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":$}\n\n",
            &[Fill::Number(self.closed)],
        );
        self.closed += 1;
    }
}

fn end(common: &Common, out: &mut Vec<u8>) {
    let (reason, sequence) = stop(common);
    fill(
        out,
        "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":$,\"stop_sequence\":$},\
         \"usage\":$}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
        &[Fill::Text(reason), Fill::Json(&sequence), Fill::Json(&usage(common))],
    );
}

fn stop(common: &Common) -> (&'static str, String) {
    let finish = common.finish.as_ref().unwrap_or(&Finish::Stop);
    let sequence = match finish {
        Finish::Sequence(sequence) => {
            let mut quoted = Vec::new();
            quote(&mut quoted, sequence);
            String::from_utf8(quoted).unwrap_or_default()
        }
        _ => "null".to_owned(),
    };
    (common.reason(finish), sequence)
}

/// What a cache gave, and got, is not in `input_tokens`.
/// The event that every stream begins with. `usage` is JSON.
pub(super) fn start(id: &str, model: &str, usage: &str, out: &mut Vec<u8>) {
    fill(
        out,
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":$,\"type\":\"message\",\
         \"role\":\"assistant\",\"model\":$,\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,\
         \"usage\":$}}\n\n",
        &[Fill::Text(id), Fill::Text(model), Fill::Json(usage)],
    );
}

fn usage(common: &Common) -> String {
    let usage = &common.usage;
    let (cached, written) = (usage.cached.unwrap_or(0), usage.cache_written.unwrap_or(0));
    let mut out = Vec::new();
    fill(
        &mut out,
        "{\"input_tokens\":$,\"cache_creation_input_tokens\":$,\"cache_read_input_tokens\":$,\"output_tokens\":$}",
        &[
            Fill::Number(usage.prompt.unwrap_or(0).saturating_sub(cached.saturating_add(written))),
            Fill::Number(written),
            Fill::Number(cached),
            Fill::Number(usage.completion.unwrap_or(0)),
        ],
    );
    String::from_utf8(out).unwrap_or_default()
}

/// A whole answer.
pub(super) fn answer(common: &Common, answer: &Answer, out: &mut Vec<u8>) -> Result<(), Failure> {
    let mut blocks = Vec::new();
    let mut pieces = answer.first().iter().filter(|piece| !matches!(piece, Piece::Logprobs(_))).peekable();
    let (mut current, mut arguments) = (None, "");
    let mut signed = false;
    while let Some(piece) = pieces.next() {
        let mut block = Vec::new();
        let thinking = "{\"type\":\"thinking\",\"thinking\":$,\"signature\":$}";
        match piece {
            Piece::Text(text) | Piece::Refusal(text) => {
                fill(&mut block, "{\"type\":\"text\",\"text\":$}", &[Fill::Text(text)]);
            }
            Piece::Thinking(text) => {
                let signature = match pieces.peek() {
                    Some(Piece::Signature(signature)) => Some(signature.as_str()),
                    _ => None,
                };
                signed = signature.is_some();
                let values = [Fill::Text(text), Fill::Text(signature.unwrap_or_default())];
                fill(&mut block, thinking, &values);
            }
            Piece::Signature(_) if std::mem::take(&mut signed) => {}
            Piece::Signature(signature) => {
                fill(&mut block, thinking, &[Fill::Text(""), Fill::Text(signature)]);
            }
            Piece::Redacted(data) => {
                fill(&mut block, "{\"type\":\"redacted_thinking\",\"data\":$}", &[Fill::Text(data)]);
            }
            Piece::ToolStart { index, id, name, .. } => {
                (current, arguments) = (Some((common.call_id(*index, id), name)), "");
            }
            Piece::ToolArguments { delta, .. } => arguments = delta,
            Piece::ToolEnd { .. } => {
                let Some((id, name)) = current.take() else { continue };
                match object(arguments) {
                    Some(input) => fill(
                        &mut block,
                        "{\"type\":\"tool_use\",\"id\":$,\"name\":$,\"input\":$}",
                        &[Fill::Text(&id), Fill::Text(name), Fill::Json(&input)],
                    ),
                    None if common.finish == Some(Finish::Length) => {}
                    None => return Err(unreadable(name)),
                }
            }
            _ => {}
        }
        if !blocks.is_empty() && !block.is_empty() {
            blocks.push(b',');
        }
        blocks.append(&mut block);
    }
    let (reason, sequence) = stop(common);
    fill(
        out,
        "{\"id\":$,\"type\":\"message\",\"role\":\"assistant\",\"model\":$,\"content\":[$],\"stop_reason\":$,\
         \"stop_sequence\":$,\"usage\":$}",
        &[
            Fill::Text(&common.id()),
            Fill::Text(&common.terms.model),
            Fill::Json(std::str::from_utf8(&blocks).unwrap_or_default()),
            Fill::Text(reason),
            Fill::Json(&sequence),
            Fill::Json(&usage(common)),
        ],
    );
    Ok(())
}
