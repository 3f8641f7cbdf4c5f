//! Every server's answer read, every client's written: tables of scenes, what single frames say, and what holds for
//! any pieces and any bytes.

mod any;
mod cases;
mod details;
mod readers;
mod resume;
mod scenes;
mod text;

use super::*;
use crate::cause::Cause;
use crate::dialect::Dialect;
use crate::dialect::reply::Problem;
use crate::wire::Splitter;

const SERVERS: [Dialect; 4] = [Dialect::OpenaiChat, Dialect::OllamaChat, Dialect::Anthropic, Dialect::Gemini];

const CLIENTS: [Dialect; 6] = [
    Dialect::OpenaiChat,
    Dialect::OpenaiCompletions,
    Dialect::OpenaiResponses,
    Dialect::OllamaChat,
    Dialect::OllamaGenerate,
    Dialect::Anthropic,
];

fn terms() -> Terms {
    Terms {
        id: "t1".to_owned(),
        model: "shown".to_owned(),
        created: 1_700_000_000,
        wants_usage: true,
        ..Terms::default()
    }
}

/// The events of a stream, its unfinished last one included.
fn events(dialect: Dialect, chunks: &[&[u8]]) -> Vec<Vec<u8>> {
    let mut splitter = Splitter::new(dialect.framing());
    let (mut events, mut event) = (Vec::new(), Vec::new());
    for chunk in chunks {
        let mut rest = *chunk;
        while let Some(end) = splitter.push(rest) {
            event.extend_from_slice(&rest[..end]);
            events.push(std::mem::take(&mut event));
            rest = &rest[end..];
        }
        event.extend_from_slice(rest);
    }
    events.extend((!event.is_empty()).then_some(event));
    events
}

/// What a server's stream says, whose body ended cleanly.
fn decoded(server: Dialect, stream: &[u8]) -> Vec<Piece> {
    let mut decoder = Decoder::new(server).unwrap();
    let mut pieces = Vec::new();
    for event in events(server, &[stream]) {
        decoder.event(&event, &mut pieces);
    }
    decoder.end(&mut pieces);
    assert!(decoder.over());
    pieces
}

/// What a client gets of it.
fn encoded(client: Dialect, terms: Terms, pieces: &[Piece]) -> String {
    let mut encoder = Encoder::new(client, terms).unwrap();
    let mut out = Vec::new();
    for piece in pieces {
        if let Err(failure) = encoder.piece(piece, &mut out) {
            encoder.fail(&problem(&failure), &mut out);
        }
    }
    String::from_utf8(out).unwrap()
}

fn problem(failure: &Failure) -> Problem {
    Problem::new(502, failure.cause.as_str(), format!("the answer broke off: {failure}"))
}

/// Collected; an error is the last piece.
fn collected(pieces: &[Piece]) -> (Answer, Option<Failure>) {
    let mut answer = Answer::default();
    for piece in pieces {
        if let Err(failure) = answer.push(piece.clone(), usize::MAX) {
            return (answer, Some(failure));
        }
    }
    (answer, None)
}

/// Order holds: a start first, calls one after another, finishes and the end last.
fn check_order(pieces: &[Piece]) {
    let mut open = None;
    let mut choice = 0;
    let mut next = std::collections::HashMap::new();
    let mut finished = false;
    for (at, piece) in pieces.iter().enumerate() {
        let last = at + 1 == pieces.len();
        assert_eq!(
            matches!(piece, Piece::Start { .. }),
            at == 0 && !matches!(piece, Piece::Error(_)),
            "{pieces:?}"
        );
        assert_eq!(matches!(piece, Piece::Error(_) | Piece::Done), last, "{pieces:?}");
        match piece {
            Piece::Choice(to) => choice = *to,
            Piece::Text(text) | Piece::Thinking(text) | Piece::Refusal(text) => {
                assert!(!text.is_empty() && !finished && open != Some(choice), "{pieces:?}");
            }
            Piece::ToolStart { index, .. } => {
                assert!(open.is_none() || open != Some(choice), "{pieces:?}");
                let next = next.entry(choice).or_insert(0);
                assert_eq!(index, next, "{pieces:?}");
                *next += 1;
                open = Some(choice);
            }
            Piece::ToolArguments { delta, .. } => assert!(!delta.is_empty(), "{pieces:?}"),
            Piece::ToolEnd { index } => {
                assert_eq!(next.get(&choice), Some(&(index + 1)), "{pieces:?}");
                open = None;
            }
            Piece::Finish(_) => finished = true,
            _ => {}
        }
    }
}
