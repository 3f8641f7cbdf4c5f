//! Each server with each client, in each scene.

use super::readers::{Got, read};
use super::scenes::{SCENES, Scene, stream};
use super::*;

const TEXT: &str = "Hello\n\"you\" 😀";

/// What a client of this dialect has in the end, whatever server it came from.
fn expected(client: Dialect, scene: Scene) -> Got {
    let thinks = client != Dialect::OpenaiCompletions;
    let word = |anthropic: &str, openai: &str, ollama: &str, responses: &str| {
        match client {
            Dialect::Anthropic => anthropic,
            Dialect::OpenaiChat | Dialect::OpenaiCompletions => openai,
            Dialect::OpenaiResponses => responses,
            _ => ollama,
        }
        .to_owned()
    };
    let stop = word("end_turn", "stop", "stop", "completed");
    let good =
        Got { finish: stop, usage: Some((9, 4)), ended: true, model: "shown".to_owned(), ..Got::default() };
    let failed = Got {
        error: Some("the answer broke off: the GPU is out of memory (CUDA out of memory)".to_owned()),
        model: "shown".to_owned(),
        ..Got::default()
    };
    match scene {
        Scene::Text => Got { text: TEXT.to_owned(), ..good },
        Scene::Thinking => Got {
            text: TEXT.to_owned(),
            thinking: if thinks { "Let me see." } else { "" }.to_owned(),
            ..good
        },
        Scene::Calls => Got {
            calls: [("call_a", "weather", "{\"city\":\"Paris\"}"), ("call_b", "time", "{}")]
                .into_iter()
                .filter(|_| thinks)
                .map(|(id, name, arguments)| (id.to_owned(), name.to_owned(), arguments.to_owned()))
                .collect(),
            finish: if thinks {
                word("tool_use", "tool_calls", "stop", "completed")
            } else {
                "stop".to_owned()
            },
            ..good
        },
        Scene::Length => Got {
            text: "Hel".to_owned(),
            finish: word("max_tokens", "length", "length", "max_output_tokens"),
            ..good
        },
        Scene::Midway => Got { text: "Hel".to_owned(), ..failed },
        Scene::First => Got {
            model: if client == Dialect::OpenaiResponses { failed.model } else { String::new() },
            ..failed
        },
        Scene::Empty => good,
    }
}

fn without_blanks(mut got: Got) -> Got {
    for call in &mut got.calls {
        call.2.retain(|c| c != ' ');
    }
    got
}

#[test]
fn each_server_says_the_same_to_each_client() {
    for server in SERVERS {
        for scene in SCENES {
            let pieces = decoded(server, stream(server, scene).as_bytes());
            check_order(&pieces);
            for client in CLIENTS {
                let stream = encoded(client, terms(), &pieces);
                let mut got = without_blanks(read(client, &stream));
                let signed = std::mem::take(&mut got.signature);
                let wanted = expected(client, scene);
                assert_eq!(got, wanted, "{server:?} to {client:?}, {scene:?}:\n{stream}");
                let signs = server == Dialect::Anthropic && scene == Scene::Thinking;
                let shows =
                    matches!(client, Dialect::OpenaiChat | Dialect::OpenaiResponses | Dialect::Anthropic);
                assert_eq!(signed, if signs && shows { "EqQB" } else { "" }, "{server:?} to {client:?}");
            }
        }
    }
}

/// Whole answers say what streams do, in both directions.
#[test]
fn whole_answers_and_streams_say_the_same() {
    for server in SERVERS {
        for scene in SCENES {
            let (answer, failure) = collected(&decoded(server, stream(server, scene).as_bytes()));
            if let Some(failure) = failure {
                assert_eq!(failure.cause, Cause::CudaOom);
                assert!(answer.body(Dialect::OpenaiChat, terms()).is_err());
                continue;
            }
            for client in CLIENTS {
                let again: Vec<_> = answer.clone().pieces().collect();
                check_order(&again);
                let got = without_blanks(read(client, &encoded(client, terms(), &again)));
                assert_eq!(
                    Got { signature: String::new(), ..got },
                    expected(client, scene),
                    "{server:?} to {client:?}"
                );

                let body = answer.body(client, terms()).unwrap();
                let json: serde_json::Value = serde_json::from_slice(&body).unwrap();
                assert_eq!(json["model"], "shown");
                if matches!(client, Dialect::OpenaiChat | Dialect::OllamaChat | Dialect::Anthropic) {
                    let read = whole(client, &body).unwrap();
                    let read: Vec<_> = read.pieces().collect();
                    let got = without_blanks(readers::read(client, &encoded(client, terms(), &read)));
                    let wanted = expected(client, scene);
                    assert_eq!(Got { signature: String::new(), ..got }, wanted, "{server:?} to {client:?}");
                }
            }
        }
    }
}

#[test]
fn what_llama_cpp_really_sends_reads_well() {
    let chat = include_bytes!("../../../../tests/transcripts/llamacpp-chat.sse");
    let messages = include_bytes!("../../../../tests/transcripts/llamacpp-messages.sse");
    let completions = include_bytes!("../../../../tests/transcripts/llamacpp-completions.sse");
    for (server, stream) in [(Dialect::OpenaiChat, &chat[..]), (Dialect::Anthropic, messages)] {
        let (answer, failure) = collected(&decoded(server, stream));
        assert_eq!(failure, None);
        assert_eq!(answer.first()[0], Piece::Text("1. Red: This is the most".to_owned()));
        assert_eq!(answer.first().last(), Some(&Piece::Finish(Finish::Length)));
        assert_eq!((answer.usage().prompt, answer.usage().completion), (Some(34), Some(8)));
    }
    let (answer, _) = collected(&decoded(Dialect::OpenaiCompletions, completions));
    assert!(matches!(&answer.first()[0], Piece::Text(text) if text.starts_with(", the city of New Haven")));
    let whole =
        whole(Dialect::OpenaiChat, include_bytes!("../../../../tests/transcripts/llamacpp-chat.json"))
            .unwrap();
    assert_eq!(whole.first()[0], Piece::Text("1. Red: This is the most".to_owned()));
    for (server, stream) in [
        (Dialect::OpenaiChat, &include_bytes!("../../../../tests/transcripts/llamacpp-chat-error.sse")[..]),
        (Dialect::OpenaiChat, include_bytes!("../../../../tests/transcripts/llamacpp-chat-error-first.sse")),
        (Dialect::Anthropic, include_bytes!("../../../../tests/transcripts/llamacpp-messages-error.sse")),
    ] {
        let failure = collected(&decoded(server, stream)).1.unwrap();
        assert_eq!(failure.detail, "Context size has been exceeded.");
    }
    for name in ["empty", "ping", "progress"] {
        let stream: &[u8] = match name {
            "empty" => include_bytes!("../../../../tests/transcripts/llamacpp-chat-empty.sse"),
            "ping" => include_bytes!("../../../../tests/transcripts/llamacpp-chat-ping.sse"),
            _ => include_bytes!("../../../../tests/transcripts/llamacpp-chat-progress.sse"),
        };
        let pieces = decoded(Dialect::OpenaiChat, stream);
        check_order(&pieces);
        assert_eq!(pieces.last(), Some(&Piece::Done), "{name}");
    }
}
