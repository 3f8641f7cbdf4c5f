//! A server's answer in another protocol: decoder, encoder, whole answers, and there and back.

use edgeward::dialect::Dialect;
use edgeward::dialect::reply::Problem;
use edgeward::dialect::translate::{Answer, Decoder, Piece, State, Terms, Translation, whole};
use edgeward::wire::{Framing, sse};
use serde_json::Value;
use serde_json::value::RawValue;

use super::stream::{Input, pieces};

const CLIENTS: [Dialect; 6] = [
    Dialect::OpenaiChat,
    Dialect::OpenaiCompletions,
    Dialect::OpenaiResponses,
    Dialect::OllamaChat,
    Dialect::OllamaGenerate,
    Dialect::Anthropic,
];

pub fn run(data: &[u8]) {
    let Some(input) = Input::read(data) else { return };
    if Decoder::new(input.dialect).is_none() {
        return;
    }
    let said = decode(input.dialect, &[input.stream]);
    assert_eq!(said, decode(input.dialect, &input.chunks()), "it matters how the stream was cut");
    let mut answer = Answer::default();
    let sound = said.into_iter().all(|piece| answer.push(piece, usize::MAX).is_ok());
    for client in CLIENTS {
        let out = translate(&input, client);
        check_frames(client, &out);
        if sound && let Ok(body) = answer.body(client, terms()) {
            assert!(is_json(&body), "no JSON: {}", String::from_utf8_lossy(&body));
            assert!(serde_json::from_slice::<Value>(&body).is_ok());
        }
        // What came whole reads back as what it was.
        if sound && answer.ended() && client == Dialect::OpenaiChat {
            let mut back = Answer::default();
            for piece in decode(client, &[&out]) {
                assert!(back.push(piece, usize::MAX).is_ok(), "an error of our own making");
            }
            assert_eq!(words(answer.clone()), words(back));
        }
    }
    if let Ok(answer) = whole(input.dialect, input.stream) {
        for client in CLIENTS {
            let _ = answer.body(client, terms()).map(|body| assert!(is_json(&body)));
        }
    }
}

fn terms() -> Terms {
    Terms { id: "f".to_owned(), model: "shown".to_owned(), wants_usage: true, ..Terms::default() }
}

fn decode(server: Dialect, chunks: &[&[u8]]) -> Vec<Piece> {
    let mut decoder = Decoder::new(server).expect("a server's protocol");
    let mut said = Vec::new();
    for piece in pieces(server.framing(), chunks).0 {
        decoder.event(&piece, &mut said);
    }
    decoder.end(&mut said);
    let end = said.iter().position(|piece| matches!(piece, Piece::Done | Piece::Error(_)));
    assert_eq!(end, said.len().checked_sub(1), "the end is the last piece, and there is one");
    said
}

fn translate(input: &Input<'_>, client: Dialect) -> Vec<u8> {
    let mut terms = terms();
    terms.hides_thinking = input.option(6) && client != Dialect::OpenaiChat;
    let mut translation = Translation::new(input.dialect, client, terms).expect("a way");
    let mut out = Vec::new();
    for chunk in input.chunks() {
        translation.push(chunk, &mut out);
    }
    if translation.end(&mut out) == State::Failed {
        let end = out.len();
        translation.fail(&Problem::new(502, "x", "y"), &mut out);
        assert!(out.len() > end, "the client is told");
    } else {
        assert_eq!(translation.state(), State::Done);
    }
    out
}

/// Whole events, each of them good JSON, an end only at the end.
fn check_frames(client: Dialect, out: &[u8]) {
    let (events, between) = pieces(client.framing(), &[out]);
    assert!(between, "half an event");
    for event in events {
        let mut join = vec![0; event.len()];
        let data = match client.framing() {
            Framing::Ndjson => event.trim_ascii(),
            Framing::Sse => {
                let Ok(event) = sse::parse(&event, &mut join) else {
                    panic!("a join as long as the event is too small")
                };
                assert!(event.stray.is_none(), "no event");
                event.data.unwrap_or_default()
            }
        };
        assert!(data == b"[DONE]" || is_json(data), "no JSON: {}", String::from_utf8_lossy(data));
    }
}

/// The texts of all choices, and the calls with what they were given.
fn words(answer: Answer) -> Vec<String> {
    let mut words = Vec::new();
    for piece in answer.pieces() {
        match piece {
            Piece::Choice(choice) => words.push(format!("choice {choice}")),
            Piece::Text(text) | Piece::Refusal(text) => words.push(text),
            Piece::ToolStart { name, .. } => words.push(name),
            Piece::ToolArguments { delta, .. } => words.push(delta),
            _ => {}
        }
    }
    words
}

fn is_json(bytes: &[u8]) -> bool {
    serde_json::from_slice::<&RawValue>(bytes).is_ok()
}
