//! Any conversation: what every target is sent is well-formed, and there and back it means the same.

use super::*;
use proptest::prelude::*;

/// What a conversation means, apart from what dialects may change: texts of one speaker in a row are one, instructions
/// stand at the beginning, calls are numbered, errors are told in words.
fn meaning(talk: &Conversation) -> Vec<(Role, String)> {
    let mut numbers: Vec<&str> = Vec::new();
    let (mut system, mut said): (Vec<String>, Vec<(Role, String)>) = (Vec::new(), Vec::new());
    for turn in &talk.turns {
        for part in &turn.parts {
            let (role, text) = match part {
                Part::Text(text) if turn.role == Role::System => {
                    system.push(text.clone());
                    continue;
                }
                Part::Text(text) | Part::Refusal(text) => (turn.role, text.clone()),
                Part::Media(Media { source: Source::Data { media_type, base64 }, .. }) => {
                    (turn.role, format!("<{media_type} {base64}>"))
                }
                Part::Call(call) => {
                    numbers.push(&call.id);
                    (Role::Assistant, format!("<call {} {} {}>", numbers.len(), call.name, call.arguments))
                }
                Part::Result(outcome) => {
                    let number = numbers.iter().rposition(|id| *id == outcome.id).unwrap() + 1;
                    let words: Vec<_> = outcome
                        .parts
                        .iter()
                        .map(|part| match part {
                            Part::Text(text) => text.as_str(),
                            other => panic!("{other:?}"),
                        })
                        .collect();
                    let error = if outcome.error { "Error: " } else { "" };
                    (Role::Tool, format!("<result {number} {} {error}{}>", outcome.name, words.join("\n")))
                }
                Part::Media(_) | Part::Thought(_) => continue,
            };
            match said.last_mut() {
                Some((last, all)) if *last == role => {
                    all.push('\n');
                    all.push_str(&text);
                }
                _ => said.push((role, text)),
            }
        }
    }
    said.insert(0, (Role::System, system.join("\n")));
    said
}

fn words() -> impl Strategy<Value = String> {
    "[a-z\"\\\\{}é漢😀\u{7}]{1,6}( [a-z\n]{1,4})?[a-z]"
}

fn said() -> impl Strategy<Value = Vec<Part>> {
    prop::collection::vec(words().prop_map(Part::Text), 1..3)
}

fn users() -> impl Strategy<Value = Vec<Part>> {
    (said(), any::<bool>()).prop_map(|(mut parts, picture)| {
        if picture {
            parts.push(Part::Media(Media {
                kind: MediaKind::Image,
                source: Source::Data { media_type: "image/png".into(), base64: "iVBORw0KGgo=".into() },
                name: None,
                detail: None,
                id: None,
                at: String::new(),
            }));
        }
        parts
    })
}

/// A turn of the assistant, and the results of its calls in any order.
fn step() -> impl Strategy<Value = Vec<(Role, Vec<Part>)>> {
    let call = ("[a-zA-Z0-9:_é]{1,50}", "[a-z_]{1,8}", words(), words(), any::<bool>());
    let calls = prop::collection::vec(call, 0..4);
    let order = Just((0..4_usize).collect::<Vec<_>>()).prop_shuffle();
    (said(), calls, order, users()).prop_map(|(mut parts, calls, order, after)| {
        let results = order.iter().filter_map(|at| calls.get(*at)).map(|(id, name, _, words, error)| {
            let parts = vec![Part::Text(words.clone())];
            Part::Result(Outcome { id: id.clone(), name: name.clone(), parts, error: *error })
        });
        let results: Vec<Part> = results.collect();
        parts.extend(calls.iter().map(|(id, name, word, _, _)| {
            let arguments = json!({ word: 1, "b": [true] }).to_string();
            Part::Call(Call { id: id.clone(), name: name.clone(), arguments, object: true, signature: None })
        }));
        let mut turns = vec![(Role::Assistant, parts)];
        if !results.is_empty() {
            turns.push((Role::Tool, results));
        }
        turns.push((Role::User, after));
        turns
    })
}

fn talks() -> impl Strategy<Value = Conversation> {
    (
        prop::collection::vec(said(), 0..2),
        users(),
        prop::collection::vec((step(), prop::option::weighted(0.2, said())), 0..4),
        prop::option::of(1..5000_u64),
        prop::collection::vec("[a-z]{1,3}", 0..3),
        prop::option::of((words(), any::<bool>())),
    )
        .prop_map(|(system, first, steps, max_tokens, stop, tool)| {
            let mut talk = read(Dialect::OllamaChat, &json!({"messages":[]}));
            talk.turns.extend(system.into_iter().map(|parts| Turn { role: Role::System, parts }));
            talk.turns.push(Turn { role: Role::User, parts: first });
            let mut ids = std::collections::HashSet::new();
            for (step, later) in steps {
                // Ids are unique, as a decoder gives them.
                let unique = step.iter().flat_map(|(_, parts)| parts).all(|part| match part {
                    Part::Call(call) => ids.insert(call.id.clone()),
                    _ => true,
                });
                if !unique {
                    break;
                }
                talk.turns.extend(step.into_iter().map(|(role, parts)| Turn { role, parts }));
                talk.turns.extend(later.map(|parts| Turn { role: Role::System, parts }));
            }
            (talk.max_tokens, talk.stop) = (max_tokens, stop);
            if let Some((description, strict)) = tool {
                let parameters = parse(b"{\"type\":\"object\",\"properties\":{\"z\":{},\"a\":{}}}").ok();
                talk.tools.push(Tool {
                    name: "f".into(),
                    description: Some(description),
                    parameters,
                    strict: Some(strict),
                    hosted: None,
                });
            }
            talk
        })
}

use super::super::json::parse;

/// Every target's body is JSON and keeps the rules of its roles, where the target can be asked at all.
pub(super) fn every_target_takes(talk: &Conversation) {
    let held =
        |_: Reference<'_>| Some(Blob { media_type: "image/png".into(), bytes: Bytes::from_static(b"x") });
    for (to, model) in [
        (Dialect::OpenaiChat, "x"),
        (Dialect::OllamaChat, "x"),
        (Dialect::Anthropic, "claude-3-7-sonnet"),
        (Dialect::Anthropic, "claude-opus-5"),
        (Dialect::Gemini, GEMINI),
        (Dialect::Gemini, "gemini-3-pro"),
    ] {
        for flavor in [Flavor::Openai, Flavor::Vllm] {
            let terms = Terms { flavor, resolve: &held, ..terms(to, model) };
            let Ok(encoded) = encode(talk, &terms) else { continue };
            // A key twice would be refused here, too.
            assert!(parse(&encoded.body).is_ok(), "{}", String::from_utf8_lossy(&encoded.body));
            let body: Value = serde_json::from_slice(&encoded.body).unwrap();
            match to {
                Dialect::Anthropic => alternates(&body["messages"], "content", "assistant"),
                Dialect::Gemini => alternates(&body["contents"], "parts", "model"),
                _ => {}
            }
        }
    }
}

fn alternates(list: &Value, parts: &str, model: &str) {
    let list = list.as_array().unwrap();
    assert!(!list.is_empty());
    for (at, one) in list.iter().enumerate() {
        assert_eq!(one["role"], if at % 2 == 0 { "user" } else { model }, "{list:?}");
        assert!(!one[parts].as_array().unwrap().is_empty(), "{list:?}");
    }
}

proptest! {
    // Each is written and read a dozen times.
    #![proptest_config(ProptestConfig::with_cases(80))]

    #[test]
    fn every_target_is_sent_what_it_takes(talk in talks()) {
        every_target_takes(&talk);
    }

    #[test]
    fn there_and_back_it_means_the_same(talk in talks(), model in prop::sample::select(vec!["x", "claude-sonnet-4-5"])) {
        let wanted = meaning(&talk);
        let dialects = [Dialect::OpenaiChat, Dialect::OllamaChat, Dialect::Anthropic];
        for first in dialects {
            let (_, encoded) = write(&talk, &terms(first, model));
            let once = decode(first, &encoded.body).unwrap();
            prop_assert_eq!(&meaning(&once), &wanted, "{:?}", first);
            prop_assert_eq!(&once.stop, &talk.stop);
            prop_assert_eq!(once.max_tokens.filter(|_| talk.max_tokens.is_some()), talk.max_tokens);
            prop_assert_eq!(once.tools.len(), talk.tools.len());
            for (a, b) in once.tools.iter().zip(&talk.tools) {
                prop_assert_eq!((&a.name, &a.description, &a.parameters), (&b.name, &b.description, &b.parameters));
            }
            for second in dialects {
                let (_, encoded) = write(&once, &terms(second, model));
                let twice = decode(second, &encoded.body).unwrap();
                prop_assert_eq!(&meaning(&twice), &wanted, "{:?} {:?}", first, second);
            }
        }
    }
}
