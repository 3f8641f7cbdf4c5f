//! What holds for any pieces, any cuts and any bytes.

use proptest::prelude::*;

use super::readers::frames;
use super::scenes::{SCENES, stream};
use super::*;

/// One thing that a model says.
fn said() -> impl Strategy<Value = Vec<Piece>> {
    let text = "[a-c \"\\\\\n\u{2028}漢😀]{1,8}";
    let arguments = prop::collection::btree_map("[a-z\"]{0,3}", "[a-z\\\\\n漢\"{}]{0,6}", 0..3)
        .prop_map(|map| serde_json::to_string(&map).unwrap());
    let call = ("[a-z]{1,4}", "[a-zA-Z0-9_]{1,6}", arguments, 1..5_usize, "(|sig[a-z]{1,3})").prop_map(
        |(name, id, arguments, cut, signature)| {
            let mut pieces = vec![Piece::ToolStart { index: 0, id, name, signature }];
            let chars: Vec<char> = arguments.chars().collect();
            pieces.extend(
                chars.chunks(cut).map(|part| Piece::ToolArguments { index: 0, delta: part.iter().collect() }),
            );
            pieces.push(Piece::ToolEnd { index: 0 });
            pieces
        },
    );
    prop_oneof![
        text.prop_map(|text| vec![Piece::Text(text)]),
        text.prop_map(|text| vec![Piece::Thinking(text)]),
        (text, "[a-z]{1,5}")
            .prop_map(|(text, signature)| vec![Piece::Thinking(text), Piece::Signature(signature)]),
        "[a-z]{1,5}".prop_map(|signature| vec![Piece::Signature(signature)]),
        "[a-z]{1,5}".prop_map(|data| vec![Piece::Redacted(data)]),
        call,
    ]
}

/// A whole stream of one choice.
fn answers() -> impl Strategy<Value = Vec<Piece>> {
    let finish = prop_oneof![
        Just(Finish::Stop),
        Just(Finish::Length),
        "[a-z#]{1,3}".prop_map(Finish::Sequence),
        Just(Finish::Filtered),
    ];
    let count = || prop::option::of(0..1000_u64);
    let usage =
        (count(), count()).prop_map(|(prompt, completion)| Usage { prompt, completion, ..Usage::default() });
    (prop::collection::vec(said(), 0..6), finish, usage).prop_map(|(said, finish, usage)| {
        let mut pieces = vec![Piece::Start { id: "c1".to_owned(), model: "m".to_owned() }];
        let (mut calls, mut ids) = (0, std::collections::HashSet::new());
        for mut piece in said.into_iter().flatten() {
            if let Piece::ToolStart { index, .. }
            | Piece::ToolArguments { index, .. }
            | Piece::ToolEnd { index } = &mut piece
            {
                *index = calls;
            }
            if let Piece::ToolStart { id, .. } = &mut piece {
                while !ids.insert(id.clone()) {
                    id.push('x');
                }
            }
            calls += u32::from(matches!(piece, Piece::ToolEnd { .. }));
            pieces.push(piece);
        }
        if usage != Usage::default() {
            pieces.push(Piece::Usage(usage));
        }
        let called = calls > 0 && finish == Finish::Stop;
        pieces.push(Piece::Finish(if called { Finish::Calls } else { finish }));
        pieces.push(Piece::Done);
        pieces
    })
}

/// What of an answer a dialect can say, in the order in which its own decoder would.
fn sayable(dialect: Dialect, pieces: &[Piece]) -> Vec<Piece> {
    let (answer, _) = collected(pieces);
    let mut said = Vec::new();
    for piece in answer.first() {
        said.push(match (dialect, piece) {
            (Dialect::OllamaChat, Piece::Signature(_) | Piece::Redacted(_)) => continue,
            (Dialect::OllamaChat, Piece::Finish(Finish::Sequence(_))) => Piece::Finish(Finish::Stop),
            (Dialect::OllamaChat | Dialect::Anthropic, Piece::ToolStart { index, id, name, .. }) => {
                Piece::ToolStart {
                    index: *index,
                    id: id.clone(),
                    name: name.clone(),
                    signature: String::new(),
                }
            }
            (Dialect::Anthropic, Piece::Finish(Finish::Filtered)) => Piece::Finish(Finish::Refused),
            (_, piece) => piece.clone(),
        });
    }
    let called = said.iter().any(|piece| matches!(piece, Piece::ToolStart { .. }));
    for piece in &mut said {
        if called && *piece == Piece::Finish(Finish::Stop) {
            *piece = Piece::Finish(Finish::Calls);
        }
    }
    // Without what stood between, texts become one.
    let mut joined = Answer::default();
    for piece in said {
        joined.push(piece, usize::MAX).unwrap();
    }
    joined.first().to_vec()
}

proptest! {
    #[test]
    fn what_we_write_our_own_reader_understands(pieces in answers()) {
        check_order(&pieces);
        for dialect in [Dialect::OpenaiChat, Dialect::OllamaChat, Dialect::Anthropic] {
            let out = encoded(dialect, Terms { model: String::new(), ..terms() }, &pieces);
            let back = decoded(dialect, out.as_bytes());
            check_order(&back);
            let (answer, failure) = collected(&back);
            prop_assert_eq!(failure, None);
            prop_assert_eq!(sayable(dialect, &pieces), answer.first().to_vec(), "{:?}: {}", dialect, out);
            let usage = collected(&pieces).0.usage();
            prop_assert_eq!(answer.usage().prompt.unwrap_or(0), usage.prompt.unwrap_or(0));
            prop_assert_eq!(answer.usage().completion.unwrap_or(0), usage.completion.unwrap_or(0));

            // The whole body as well; it has its thinking before its text, and its calls last, whatever came first.
            let body = collected(&pieces).0.body(dialect, terms()).unwrap();
            let whole = whole(dialect, &body).unwrap();
            let words = |pieces: &[Piece]| -> String {
                pieces.iter().filter_map(|piece| match piece { Piece::Text(text) => Some(text.as_str()), _ => None }).collect()
            };
            prop_assert_eq!(words(whole.first()), words(answer.first()));
            prop_assert_eq!(whole.first().last(), answer.first().last());
        }
    }

    #[test]
    fn every_client_gets_good_frames(pieces in answers()) {
        for client in CLIENTS {
            let got = readers::read(client, &encoded(client, terms(), &pieces));
            prop_assert!(got.ended && got.error.is_none());
        }
    }

    #[test]
    fn how_a_stream_was_cut_does_not_matter(cuts in prop::collection::vec(1..40_usize, 1..200)) {
        for server in SERVERS {
            for scene in SCENES {
                let text = stream(server, scene);
                let mut rest = text.as_bytes();
                let mut chunks = Vec::new();
                for cut in cuts.iter().cycle() {
                    if rest.is_empty() {
                        break;
                    }
                    let (chunk, after) = rest.split_at((*cut).min(rest.len()));
                    chunks.push(chunk);
                    rest = after;
                }
                let mut decoder = Decoder::new(server).unwrap();
                let mut pieces = Vec::new();
                for event in events(server, &chunks) {
                    decoder.event(&event, &mut pieces);
                }
                decoder.end(&mut pieces);
                prop_assert_eq!(pieces, decoded(server, text.as_bytes()));
            }
        }
    }

    #[test]
    fn no_bytes_make_anything_but_pieces_in_order(
        which in 0..4_usize,
        scene in 0..SCENES.len(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..3_u8), 0..6),
    ) {
        let server = SERVERS[which];
        let mut bytes = stream(server, SCENES[scene]).into_bytes();
        for (at, byte, how) in edits {
            let at = at.index(bytes.len());
            match how {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                _ => drop(bytes.drain(at..(at + usize::from(byte)).min(bytes.len() - 1))),
            }
        }
        let pieces = decoded(server, &bytes);
        check_order(&pieces);
        for client in CLIENTS {
            let stream = encoded(client, terms(), &pieces);
            for (_, data) in frames(client, &stream) {
                prop_assert!(data == "[DONE]" || serde_json::from_str::<serde_json::Value>(&data).is_ok(), "{data}");
            }
        }
        let _ = whole(server, &bytes);
    }
}
