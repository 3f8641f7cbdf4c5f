//! What single servers are known to do, and what single clients insist on.

use serde_json::{Value, json};

use super::readers::{frames, read};
use super::*;
use crate::dialect::conversation::ids;

fn openai(deltas: &[&str]) -> Vec<Piece> {
    let mut stream: String = deltas
        .iter()
        .map(|choice| format!("data: {{\"id\":\"c1\",\"model\":\"m\",\"choices\":[{choice}]}}\n\n"))
        .collect();
    stream += "data: [DONE]\n\n";
    let pieces = decoded(Dialect::OpenaiChat, stream.as_bytes());
    check_order(&pieces);
    pieces
}

fn calls(pieces: &[Piece]) -> Vec<(String, String, String)> {
    read(Dialect::OpenaiChat, &encoded(Dialect::OpenaiChat, terms(), pieces)).calls
}

fn call(id: &str, name: &str, arguments: &str) -> (String, String, String) {
    (id.to_owned(), name.to_owned(), arguments.to_owned())
}

fn error(pieces: &[Piece]) -> &Failure {
    match pieces.last() {
        Some(Piece::Error(failure)) => failure,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_stream_that_stops_is_no_whole_answer_for_anybody() {
    let half = [
        (
            Dialect::OpenaiChat,
            "data: {\"id\":\"c\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hi\"}}]}\n\n",
        ),
        (Dialect::OllamaChat, "{\"model\":\"m\",\"message\":{\"content\":\"Hi\"},\"done\":false}\n"),
        (
            Dialect::Anthropic,
            "data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"Hi\"}}\n\n",
        ),
        (
            Dialect::Gemini,
            "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"Hi\"}]}}],\"modelVersion\":\"m\"}\n\n",
        ),
    ];
    for (server, stream) in half {
        let pieces = decoded(server, stream.as_bytes());
        assert_eq!(error(&pieces).cause, Cause::Truncated, "{server:?}");
        for client in CLIENTS {
            let got = read(client, &encoded(client, terms(), &pieces));
            assert!(!got.ended && got.finish.is_empty(), "{server:?} to {client:?}");
            assert_eq!(got.text, "Hi");
            assert_eq!(got.error.as_deref(), Some("the answer broke off: the stream ended without an end"));
        }
        let (answer, _) = collected(&pieces);
        assert!(CLIENTS.iter().all(|client| answer.body(*client, terms()).is_err()));
    }
}

#[test]
fn nothing_comes_after_the_end_or_an_error() {
    for client in CLIENTS {
        for last in [Piece::Done, Piece::Error(Failure::new(Cause::Oom))] {
            let mut encoder = Encoder::new(client, terms()).unwrap();
            let mut out = Vec::new();
            encoder.piece(&Piece::Text("a".to_owned()), &mut out).unwrap();
            assert_eq!(encoder.outcome(), Outcome::Open);
            if let Err(failure) = encoder.piece(&last, &mut out) {
                encoder.fail(&problem(&failure), &mut out);
            }
            let outcome = encoder.outcome();
            assert_eq!(outcome, if last == Piece::Done { Outcome::Done } else { Outcome::Failed });
            let length = out.len();
            encoder.piece(&Piece::Text("b".to_owned()), &mut out).unwrap();
            encoder.piece(&Piece::Done, &mut out).unwrap();
            encoder.fail(&Problem::new(502, "x", "y"), &mut out);
            assert_eq!((out.len(), encoder.outcome()), (length, outcome), "{client:?}");
        }
    }
}

#[test]
fn a_finish_reason_and_a_clean_end_make_a_whole_answer() {
    let mut decoder = Decoder::new(Dialect::OpenaiChat).unwrap();
    let mut pieces = Vec::new();
    let chunk = |choice: &str| format!("data: {{\"id\":\"c\",\"model\":\"m\",\"choices\":[{choice}]}}\n\n");
    decoder.event(
        chunk(r#"{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}"#).as_bytes(),
        &mut pieces,
    );
    assert!(decoder.finished());
    // More of the same choice takes it back.
    decoder.event(chunk(r#"{"index":0,"delta":{"content":"b"}}"#).as_bytes(), &mut pieces);
    assert!(!decoder.finished());
    decoder.event(chunk(r#"{"index":0,"delta":{},"finish_reason":"length"}"#).as_bytes(), &mut pieces);
    decoder.end(&mut pieces);
    assert_eq!(
        pieces[1..],
        [
            Piece::Text("a".to_owned()),
            Piece::Text("b".to_owned()),
            Piece::Finish(Finish::Length),
            Piece::Done
        ]
    );
}

#[test]
fn calls_are_told_apart_however_a_server_numbers_them() {
    // All of them 0, as some do: the ids differ.
    let same = openai(&[
        r#"{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":1}"}}]}}"#,
        r#"{"index":0,"delta":{"tool_calls":[{"index":0,"id":"b","function":{"name":"f","arguments":"{}"}}]}}"#,
        r#"{"index":0,"delta":{},"finish_reason":"stop"}"#,
    ]);
    assert_eq!(calls(&same), [call("a", "f", "{\"x\":1}"), call("b", "f", "{}")]);
    // It called, whatever it says of the reason.
    assert!(same.contains(&Piece::Finish(Finish::Calls)));
    // No number, no id: made up, and different.
    let bare = openai(&[
        r#"{"index":0,"delta":{"tool_calls":[{"function":{"name":"f","arguments":"{}"}},{"function":{"name":"f","arguments":""}}]}}"#,
    ]);
    assert_eq!(calls(&bare), [call(&ids::fresh("t1", 0), "f", "{}"), call(&ids::fresh("t1", 1), "f", "{}")]);
    // The id and the name again in each delta.
    let again = openai(&[
        r#"{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{"}}]}}"#,
        r#"{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"}"}}]}}"#,
    ]);
    assert_eq!(calls(&again), [call("a", "f", "{}")]);
    // The name after the id; an object for arguments.
    let late = openai(&[
        r#"{"index":0,"delta":{"tool_calls":[{"index":3,"id":"a","function":{"arguments":"{\"x\""}}]}}"#,
        r#"{"index":0,"delta":{"tool_calls":[{"index":3,"function":{"name":"f","arguments":":2}"}}]}}"#,
        r#"{"index":0,"delta":{"tool_calls":[{"index":4,"id":"b","function":{"name":"g","arguments":{"y": [1.0]}}}]}}"#,
    ]);
    assert_eq!(calls(&late), [call("a", "f", "{\"x\":2}"), call("b", "g", "{\"y\":[1.0]}")]);
    // The form before `tool_calls`.
    let old = openai(&[
        r#"{"index":0,"delta":{"function_call":{"name":"f","arguments":""}}}"#,
        r#"{"index":0,"delta":{"function_call":{"arguments":"{}"}},"finish_reason":"function_call"}"#,
    ]);
    assert_eq!(calls(&old), [call(&ids::fresh("t1", 0), "f", "{}")]);
}

#[test]
fn three_mixed_calls_come_one_after_another_and_early_ones_live() {
    let pieces = openai(&[
        r#"{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":\"}"}}]}}"#,
        r#"{"index":0,"delta":{"tool_calls":[{"index":1,"id":"b","function":{"name":"g","arguments":"[1"}},{"index":2,"id":"c","function":{"name":"h","arguments":"{\"z\":"}}]}}"#,
        r#"{"index":0,"delta":{"tool_calls":[{"index":2,"function":{"arguments":"3}"}}]}}"#,
        r#"{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\"}"}}]}}"#,
        r#"{"index":0,"delta":{"tool_calls":[{"index":1,"function":{"arguments":"]"}}]}}"#,
        r#"{"index":0,"delta":{"content":"after"},"finish_reason":"tool_calls"}"#,
    ]);
    assert_eq!(
        calls(&pieces),
        [call("a", "f", "{\"x\":\"}\"}"), call("b", "g", "[1]"), call("c", "h", "{\"z\":3}")]
    );
    let first = pieces.iter().position(|piece| matches!(piece, Piece::ToolArguments { .. })).unwrap();
    assert_eq!(pieces[first], Piece::ToolArguments { index: 0, delta: "{\"x\":\"}".to_owned() });
}

#[test]
fn text_in_the_midst_of_arguments_waits_for_their_end() {
    let pieces = openai(&[
        r#"{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f"}}]}}"#,
        r#"{"index":0,"delta":{"content":"\n"}}"#,
        r#"{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{"}}]}}"#,
        r#"{"index":0,"delta":{"content":"b"}}"#,
        r#"{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"}"}}]}}"#,
        r#"{"index":0,"delta":{"content":"c"}}"#,
    ]);
    assert_eq!(calls(&pieces), [call("a", "f", "{}")]);
    let texts: Vec<_> = pieces.iter().filter(|piece| matches!(piece, Piece::Text(_))).cloned().collect();
    assert_eq!(texts, ["\n", "b", "c"].map(|text| Piece::Text(text.to_owned())));
    // But not without end.
    let long = format!(r#"{{"index":0,"delta":{{"content":"{}"}}}}"#, "x".repeat(200_000));
    let mut decoder = Decoder::new(Dialect::OpenaiChat).unwrap();
    let mut pieces = Vec::new();
    let call = r#"{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f"}}]}}"#;
    for delta in [call].into_iter().chain([long.as_str(); 7]) {
        let event = format!("data: {{\"id\":\"c1\",\"model\":\"m\",\"choices\":[{delta}]}}\n\n");
        decoder.event(event.as_bytes(), &mut pieces);
    }
    assert!(pieces.iter().any(|piece| matches!(piece, Piece::ToolEnd { .. })));
    assert_eq!(pieces.iter().filter(|piece| matches!(piece, Piece::Text(_))).count(), 7);
}

#[test]
fn an_answer_is_whole_when_all_the_choices_are_that_were_asked_for() {
    let chunk = |index: u32| {
        format!(
            "data: {{\"id\":\"c\",\"model\":\"m\",\"choices\":[{{\"index\":{index},\"delta\":{{\"content\":\"a\"}},\"finish_reason\":\"stop\"}}]}}\n\n"
        )
    };
    let new =
        || Translation::new(Dialect::OpenaiChat, Dialect::OpenaiCompletions, terms()).unwrap().expecting(2);
    let (mut whole, mut half, mut out) = (new(), new(), Vec::new());
    assert_eq!(half.push(chunk(0).as_bytes(), &mut out), State::Open);
    assert_eq!(half.end(&mut out), State::Failed);
    whole.push(chunk(0).as_bytes(), &mut out);
    assert_eq!(whole.push(chunk(1).as_bytes(), &mut out), State::Finished);
    assert_eq!(whole.end(&mut out), State::Done);
}

#[test]
fn arguments_that_belong_to_no_call_are_an_error() {
    let pieces = openai(&[
        r#"{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}]}}"#,
        r#"{"index":0,"delta":{"tool_calls":[{"index":1,"id":"b","function":{"name":"g","arguments":"{"}}]}}"#,
        r#"{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"}"}}]}}"#,
    ]);
    assert_eq!(error(&pieces).cause, Cause::Protocol);
    assert!(error(&pieces).detail.contains("ended"), "{}", error(&pieces));
    let outside = decoded(
        Dialect::Anthropic,
        b"data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{\"}}\n\n",
    );
    assert_eq!(error(&outside).cause, Cause::Protocol);
}

#[test]
fn what_waits_is_bounded() {
    let long = "x".repeat(100_000);
    let mut deltas = vec![
        r#"{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{"}}]}}"#.to_owned(),
        r#"{"index":0,"delta":{"tool_calls":[{"index":1,"id":"b","function":{"name":"g","arguments":"\""}}]}}"#.to_owned(),
    ];
    for _ in 0..12 {
        deltas.push(format!(
            r#"{{"index":0,"delta":{{"tool_calls":[{{"index":1,"function":{{"arguments":"{long}"}}}}]}}}}"#
        ));
    }
    let deltas: Vec<_> = deltas.iter().map(String::as_str).collect();
    assert!(error(&openai(&deltas)).detail.contains("1048576 bytes"));

    // Ollama's clients take a call whole, Responses' take everything again; the others take any length.
    let mut pieces = vec![
        Piece::Start { id: String::new(), model: String::new() },
        Piece::ToolStart { index: 0, id: "a".to_owned(), name: "f".to_owned(), signature: String::new() },
    ];
    let delta = "x".repeat(crate::limits::MIB / 2);
    pieces.extend((0..9).map(|_| Piece::ToolArguments { index: 0, delta: delta.clone() }));
    for client in CLIENTS {
        let mut encoder = Encoder::new(client, terms()).unwrap();
        let mut out = Vec::new();
        let failed = pieces.iter().find_map(|piece| {
            out.clear();
            encoder.piece(piece, &mut out).err()
        });
        let bounded =
            matches!(client, Dialect::OllamaChat | Dialect::OllamaGenerate | Dialect::OpenaiResponses);
        assert_eq!(failed.is_some_and(|failure| failure.detail.contains("bytes")), bounded, "{client:?}");
    }
    let mut calls: Vec<String> = (0..300)
        .map(|at| format!(r#"{{"index":0,"delta":{{"tool_calls":[{{"index":{at},"id":"{at}","function":{{"name":"f"}}}}]}}}}"#))
        .collect();
    calls.push(r#"{"index":0,"delta":{},"finish_reason":"stop"}"#.to_owned());
    let calls: Vec<_> = calls.iter().map(String::as_str).collect();
    assert!(error(&openai(&calls)).detail.contains("256 calls"));
}

#[test]
fn a_call_that_a_limit_cut_is_left_out_where_it_must_be_whole() {
    let cut = |reason: &str| {
        openai(&[
            r#"{"index":0,"delta":{"content":"a","tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":"}}]}}"#,
            &format!(r#"{{"index":0,"delta":{{}},"finish_reason":"{reason}"}}"#),
        ])
    };
    for client in [Dialect::OllamaChat, Dialect::Anthropic] {
        let (answer, _) = collected(&cut("length"));
        let body: Value = serde_json::from_slice(&answer.body(client, terms()).unwrap()).unwrap();
        assert!(!body.to_string().contains("\"f\""), "{body}");
        let (answer, _) = collected(&cut("stop"));
        assert!(answer.body(client, terms()).unwrap_err().detail.contains("`f`"));
    }
    assert!(read(Dialect::OllamaChat, &encoded(Dialect::OllamaChat, terms(), &cut("length"))).ended);
    let got = read(Dialect::OllamaChat, &encoded(Dialect::OllamaChat, terms(), &cut("stop")));
    assert!(!got.ended && got.error.unwrap().contains("`f`"));
    // Streams of the others show it as it came.
    let got = read(Dialect::Anthropic, &encoded(Dialect::Anthropic, terms(), &cut("length")));
    assert_eq!((got.calls.as_slice(), got.ended), (&[call("a", "f", "{\"x\":")][..], true));
}

#[test]
fn finish_reasons_have_their_counterparts() {
    let openai = |reason: &str| {
        openai(&[&format!(r#"{{"index":0,"delta":{{"content":"a"}},"finish_reason":"{reason}"}}"#)])
    };
    let anthropic = |reason: &str| {
        let start = "data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"a\"}}\n\n";
        let end = format!(
            "data: {{\"type\":\"message_delta\",\"delta\":{{\"stop_reason\":\"{reason}\",\"stop_sequence\":\"###\"}}}}\n\n"
        );
        decoded(
            Dialect::Anthropic,
            (start.to_owned() + &end + "data: {\"type\":\"message_stop\"}\n\n").as_bytes(),
        )
    };
    let gemini = |reason: &str| {
        let chunk = format!(
            "data: {{\"candidates\":[{{\"content\":{{\"parts\":[{{\"text\":\"a\"}}]}},\"finishReason\":\"{reason}\"}}]}}\n\n"
        );
        decoded(Dialect::Gemini, chunk.as_bytes())
    };
    // What each client reads: OpenAI chat, Responses, Ollama, Anthropic.
    let table: [(Vec<Piece>, [&str; 4]); 15] = [
        (openai("stop"), ["stop", "completed", "stop", "end_turn"]),
        (openai("length"), ["length", "max_output_tokens", "length", "max_tokens"]),
        (openai("content_filter"), ["content_filter", "content_filter", "content_filter", "refusal"]),
        (openai("eos_token"), ["stop", "completed", "stop", "end_turn"]),
        (anthropic("end_turn"), ["stop", "completed", "stop", "end_turn"]),
        (anthropic("max_tokens"), ["length", "max_output_tokens", "length", "max_tokens"]),
        (anthropic("model_context_window_exceeded"), ["length", "max_output_tokens", "length", "max_tokens"]),
        (anthropic("stop_sequence"), ["stop", "completed", "stop", "stop_sequence"]),
        (anthropic("refusal"), ["content_filter", "content_filter", "refusal", "refusal"]),
        (anthropic("pause_turn"), ["stop", "completed", "stop", "pause_turn"]),
        (gemini("STOP"), ["stop", "completed", "stop", "end_turn"]),
        (gemini("OTHER"), ["stop", "completed", "stop", "end_turn"]),
        (gemini("MAX_TOKENS"), ["length", "max_output_tokens", "length", "max_tokens"]),
        (gemini("SAFETY"), ["content_filter", "content_filter", "content_filter", "refusal"]),
        (gemini("RECITATION"), ["content_filter", "content_filter", "content_filter", "refusal"]),
    ];
    let clients = [Dialect::OpenaiChat, Dialect::OpenaiResponses, Dialect::OllamaChat, Dialect::Anthropic];
    for (pieces, words) in table {
        for (client, word) in clients.into_iter().zip(words) {
            let got = read(client, &encoded(client, terms(), &pieces));
            assert_eq!((got.finish.as_str(), got.ended), (word, true), "{client:?}: {pieces:?}");
        }
    }
    for reason in ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS"] {
        assert_eq!(error(&gemini(reason)).cause, Cause::ErrorInStream, "{reason}");
    }
    for reason in ["error", "abort"] {
        assert_eq!(error(&openai(reason)).cause, Cause::ErrorInStream, "{reason}");
    }
    let blocked = decoded(
        Dialect::Gemini,
        b"data: {\"promptFeedback\":{\"blockReason\":\"PROHIBITED_CONTENT\"},\"usageMetadata\":{\"promptTokenCount\":9}}\n\n",
    );
    assert!(blocked.contains(&Piece::Finish(Finish::Filtered)) && blocked.last() == Some(&Piece::Done));
    let sequence = anthropic("stop_sequence");
    let out = encoded(Dialect::Anthropic, terms(), &sequence);
    assert!(out.contains("\"stop_reason\":\"stop_sequence\",\"stop_sequence\":\"###\""), "{out}");
    // vLLM's and SGLang's ways to name it.
    for member in ["\"stop_reason\":\"###\"", "\"matched_stop\":\"###\"", "\"stop_reason\":128009"] {
        let choice =
            format!(r####"{{"index":0,"delta":{{"content":"a"}},"finish_reason":"stop",{member}}}"####);
        let named = details::openai(&[&choice]).contains(&Piece::Finish(Finish::Sequence("###".to_owned())));
        assert_eq!(named, member.contains('#'));
    }
}

#[test]
fn counts_add_up_the_way_each_dialect_counts() {
    let anthropic = decoded(
        Dialect::Anthropic,
        b"data: {\"type\":\"message_start\",\"message\":{\"id\":\"x\",\"model\":\"m\",\"usage\":{\"input_tokens\":5,\"cache_read_input_tokens\":20,\"cache_creation_input_tokens\":3,\"output_tokens\":1}}}\n\n\
          data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":7}}\n\n\
          data: {\"type\":\"message_stop\"}\n\n",
    );
    let (answer, _) = collected(&anthropic);
    let usage = Usage {
        prompt: Some(28),
        completion: Some(7),
        cached: Some(20),
        cache_written: Some(3),
        reasoning: None,
    };
    assert_eq!(answer.usage(), usage);
    let body = |client| -> Value { serde_json::from_slice(&answer.body(client, terms()).unwrap()).unwrap() };
    assert_eq!(
        body(Dialect::Anthropic)["usage"],
        json!({"input_tokens":5,"cache_creation_input_tokens":3,"cache_read_input_tokens":20,"output_tokens":7})
    );
    assert_eq!(
        body(Dialect::OpenaiChat)["usage"],
        json!({"prompt_tokens":28,"completion_tokens":7,"total_tokens":35,
               "prompt_tokens_details":{"cached_tokens":20},"completion_tokens_details":{"reasoning_tokens":0}})
    );
    let gemini = decoded(
        Dialect::Gemini,
        b"data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"a\"}]},\"finishReason\":\"STOP\"}],\"usageMetadata\":{\"promptTokenCount\":9,\"cachedContentTokenCount\":4,\"candidatesTokenCount\":3,\"thoughtsTokenCount\":2,\"totalTokenCount\":14}}\n\n",
    );
    let (answer, _) = collected(&gemini);
    assert_eq!(
        (answer.usage().completion, answer.usage().reasoning, answer.usage().cached),
        (Some(5), Some(2), Some(4))
    );
    let body: Value =
        serde_json::from_slice(&answer.body(Dialect::OpenaiResponses, terms()).unwrap()).unwrap();
    assert_eq!(
        body["usage"],
        json!({"input_tokens":9,"input_tokens_details":{"cached_tokens":4},"output_tokens":5,
               "output_tokens_details":{"reasoning_tokens":2},"total_tokens":14})
    );
    // The end may repeat the fresh ones alone.
    let again = decoded(
        Dialect::Anthropic,
        b"data: {\"type\":\"message_start\",\"message\":{\"id\":\"x\",\"model\":\"m\",\"usage\":{\"input_tokens\":5,\"cache_read_input_tokens\":20}}}\n\n\
          data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"input_tokens\":6,\"output_tokens\":7}}\n\n\
          data: {\"type\":\"message_stop\"}\n\n",
    );
    assert_eq!(collected(&again).0.usage().prompt, Some(26));
    // DeepSeek's.
    let deepseek = decoded(
        Dialect::OpenaiChat,
        b"data: {\"id\":\"c\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":5,\"prompt_cache_hit_tokens\":8,\"completion_tokens_details\":{\"reasoning_tokens\":4}}}\n\ndata: [DONE]\n\n",
    );
    let (answer, _) = collected(&deepseek);
    assert_eq!((answer.usage().cached, answer.usage().reasoning), (Some(8), Some(4)));
}

#[test]
fn a_usage_chunk_is_for_those_who_asked_and_last() {
    let pieces = openai(&[r#"{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}"#]);
    let mut pieces = pieces;
    pieces.insert(2, Piece::Usage(Usage { prompt: Some(3), completion: Some(1), ..Usage::default() }));
    for client in [Dialect::OpenaiChat, Dialect::OpenaiCompletions] {
        let asked = frames(client, &encoded(client, terms(), &pieces));
        let unasked = frames(client, &encoded(client, Terms { wants_usage: false, ..terms() }, &pieces));
        assert_eq!(asked.len(), unasked.len() + 1);
        let usage: Value = serde_json::from_str(&asked[asked.len() - 2].1).unwrap();
        assert_eq!(usage["choices"], json!([]));
        assert_eq!(usage["usage"]["total_tokens"], 4);
        assert!(unasked.iter().all(|(_, data)| !data.contains("usage")));
    }
}

#[test]
fn llama_cpp_may_leave_out_message_start() {
    let stream = b"event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n\
        event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"\xe6\xbc\xa2\"}}\n\n\
        event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n\
        event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":1}}\n\n\
        event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";
    let pieces = decoded(Dialect::Anthropic, stream);
    check_order(&pieces);
    // The reader insists on it.
    let got = read(Dialect::Anthropic, &encoded(Dialect::Anthropic, terms(), &pieces));
    assert_eq!((got.text.as_str(), got.ended), ("漢", true));
}

#[test]
fn thinking_has_many_names_and_is_said_once() {
    for delta in [
        r#"{"reasoning_content":"hm"}"#,
        r#"{"reasoning":"hm"}"#,
        r#"{"reasoning":"hm","reasoning_content":"hm"}"#,
        r#"{"reasoning":"hm","reasoning_details":[{"type":"reasoning.text","text":"hm"}]}"#,
        r#"{"reasoning_details":[{"type":"reasoning.text","text":"hm"}]}"#,
        r#"{"reasoning_details":[{"type":"reasoning.summary","summary":"hm"}]}"#,
        r#"{"content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]}]}"#,
    ] {
        let pieces =
            openai(&[&format!(r#"{{"index":0,"delta":{delta}}}"#), r#"{"index":0,"delta":{"content":"a"}}"#]);
        let got = read(Dialect::Anthropic, &encoded(Dialect::Anthropic, terms(), &pieces));
        assert_eq!((got.thinking.as_str(), got.text.as_str()), ("hm", "a"), "{delta}");
        for client in CLIENTS {
            let hidden = Terms { hides_thinking: true, ..terms() };
            let out = encoded(client, hidden.clone(), &pieces);
            assert!(!out.contains("hm"), "{out}");
            let body = collected(&pieces).0.body(client, hidden).unwrap();
            assert!(!String::from_utf8(body).unwrap().contains("hm"));
        }
    }
}

#[test]
fn a_signature_passes_for_anthropics_only_if_it_is() {
    for (format, kept) in [
        ("", true),
        (",\"format\":\"anthropic-claude-v1\"", true),
        (",\"format\":\"google-gemini-v1\"", false),
    ] {
        let detail = format!(r#"{{"type":"reasoning.text","text":"hm","signature":"s1"{format}}}"#);
        let secret = format!(r#"{{"type":"reasoning.encrypted","data":"d1"{format}}}"#);
        let choice = format!(r#"{{"index":0,"delta":{{"reasoning_details":[{detail},{secret}]}}}}"#);
        let out = encoded(Dialect::Anthropic, terms(), &openai(&[&choice]));
        assert_eq!((out.contains("s1"), out.contains("d1")), (kept, kept), "{out}");
    }
}

#[test]
fn what_a_server_says_twice_is_said_once() {
    for choice in [
        r#"{"index":0,"delta":{"content":"a"},"text":"a"}"#,
        r#"{"index":0,"delta":{"content":"a"},"message":{"content":"a"}}"#,
        r#"{"index":0,"message":{"content":"a"}}"#,
        r#"{"index":0,"text":"a"}"#,
    ] {
        let (answer, _) = collected(&openai(&[choice]));
        assert_eq!(answer.first()[0], Piece::Text("a".to_owned()), "{choice}");
    }
}

#[test]
fn geminis_signature_goes_with_its_call_where_it_can() {
    let pieces = decoded(
        Dialect::Gemini,
        b"data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"hm\",\"thought\":true,\"thoughtSignature\":\"QkJC\"},{\"functionCall\":{\"name\":\"f\",\"args\":{}},\"thoughtSignature\":\"QUFB\"}]},\"finishReason\":\"STOP\"}]}\n\n",
    );
    let out = encoded(Dialect::OpenaiChat, terms(), &pieces);
    assert!(out.contains("\"extra_content\":{\"google\":{\"thought_signature\":\"QUFB\"}}"), "{out}");
    assert!(!out.contains("QkJC"), "{out}");
    assert_eq!(
        decoded(Dialect::OpenaiChat, out.as_bytes())[2],
        Piece::ToolStart {
            index: 0,
            id: ids::fresh("t1", 0),
            name: "f".to_owned(),
            signature: "QUFB".to_owned()
        }
    );
    let out = encoded(Dialect::Anthropic, terms(), &pieces);
    assert!(!out.contains("QUFB") && out.contains(&ids::fresh("t1", 0)), "{out}");
}

#[test]
fn an_anthropic_server_may_give_the_input_at_once() {
    let pieces = decoded(
        Dialect::Anthropic,
        b"data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"tool_use\",\"id\":\"a\",\"name\":\"f\",\"input\":{\"x\": 1}}}\n\n\
          data: {\"type\":\"content_block_stop\",\"index\":0}\n\n\
          data: {\"type\":\"content_block_start\",\"index\":1,\"content_block\":{\"type\":\"server_tool_use\",\"id\":\"s\",\"name\":\"web_search\",\"input\":{}}}\n\n\
          data: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{}\"}}\n\n\
          data: {\"type\":\"content_block_stop\",\"index\":1}\n\n\
          data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"tool_use\"}}\n\ndata: {\"type\":\"message_stop\"}\n\n",
    );
    assert_eq!(calls(&pieces), [call("a", "f", "{\"x\":1}")]);
}

#[test]
fn log_probabilities_go_where_both_sides_have_them() {
    let list = r#"[{"token":"Hé","logprob":-0.1,"bytes":[72],"top_logprobs":[{"token":"Hé","logprob":-0.1,"bytes":[72]},{"token":"Ha","logprob":-2.5,"bytes":null}]}]"#;
    let pieces = openai(&[
        &format!(r#"{{"index":0,"delta":{{"content":"Hé"}},"logprobs":{{"content":{list}}}}}"#),
        &format!(
            r#"{{"index":0,"delta":{{"content":"llo"}},"logprobs":{{"content":{list}}},"finish_reason":"stop"}}"#
        ),
    ]);
    let wanted: Value = serde_json::from_str(list).unwrap();
    let out = frames(Dialect::OpenaiChat, &encoded(Dialect::OpenaiChat, terms(), &pieces));
    let chunk: Value = serde_json::from_str(&out[1].1).unwrap();
    assert_eq!(chunk["choices"][0]["logprobs"]["content"], wanted);
    let out = frames(Dialect::OllamaGenerate, &encoded(Dialect::OllamaGenerate, terms(), &pieces));
    assert_eq!(serde_json::from_str::<Value>(&out[0].1).unwrap()["logprobs"], wanted);
    let out = frames(Dialect::OpenaiCompletions, &encoded(Dialect::OpenaiCompletions, terms(), &pieces));
    let second: Value = serde_json::from_str(&out[1].1).unwrap();
    assert_eq!(
        second["choices"][0]["logprobs"],
        json!({"tokens":["Hé"],"token_logprobs":[-0.1],"top_logprobs":[{"Hé":-0.1,"Ha":-2.5}],"text_offset":[2]})
    );
    // The reader checks the deltas against the item.
    assert!(read(Dialect::OpenaiResponses, &encoded(Dialect::OpenaiResponses, terms(), &pieces)).ended);
    let body = collected(&pieces).0.body(Dialect::OpenaiChat, terms()).unwrap();
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(body["choices"][0]["logprobs"]["content"].as_array().unwrap().len(), 2);

    let gemini = decoded(
        Dialect::Gemini,
        b"data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"Hi\"}]},\"finishReason\":\"STOP\",\"logprobsResult\":{\"topCandidates\":[{\"candidates\":[{\"token\":\"Hi\",\"tokenId\":1,\"logProbability\":-0.5},{\"token\":\"Yo\",\"logProbability\":-1}]}],\"chosenCandidates\":[{\"token\":\"Hi\",\"tokenId\":1,\"logProbability\":-0.5}]}}]}\n\n",
    );
    let Some(Piece::Logprobs(list)) = gemini.iter().find(|piece| matches!(piece, Piece::Logprobs(_))) else {
        panic!()
    };
    assert_eq!(
        serde_json::from_str::<Value>(list).unwrap(),
        json!([{"token":"Hi","logprob":-0.5,"bytes":null,"top_logprobs":[
            {"token":"Hi","logprob":-0.5,"bytes":null},{"token":"Yo","logprob":-1,"bytes":null}]}])
    );
}

#[test]
fn choices_beside_each_other_stay_apart() {
    let pieces = openai(&[
        r#"{"index":0,"delta":{"content":"a"}},{"index":1,"delta":{"content":"b"}}"#,
        r#"{"index":1,"delta":{"content":"B","tool_calls":[{"index":0,"id":"t","function":{"name":"f","arguments":"{}"}}]},"finish_reason":"tool_calls"}"#,
        r#"{"index":0,"delta":{"content":"A"},"finish_reason":"length"}"#,
        r#"{"index":4000000000,"delta":{"content":"nobody's"}}"#,
    ]);
    let (answer, _) = collected(&pieces);
    let body: Value = serde_json::from_slice(&answer.body(Dialect::OpenaiChat, terms()).unwrap()).unwrap();
    let choices = body["choices"].as_array().unwrap();
    assert_eq!(choices.len(), 2);
    assert_eq!(
        (&choices[0]["message"]["content"], &choices[0]["finish_reason"]),
        (&json!("aA"), &json!("length"))
    );
    assert_eq!(
        (&choices[1]["message"]["content"], &choices[1]["finish_reason"]),
        (&json!("bB"), &json!("tool_calls"))
    );
    assert_eq!(choices[1]["message"]["tool_calls"][0]["id"], "t");
    // Streamed, each chunk names its choice.
    for stream in [
        encoded(Dialect::OpenaiChat, terms(), &pieces),
        encoded(Dialect::OpenaiChat, terms(), &answer.clone().pieces().collect::<Vec<_>>()),
    ] {
        let mut texts = [String::new(), String::new()];
        for (_, data) in frames(Dialect::OpenaiChat, &stream) {
            let Ok(chunk) = serde_json::from_str::<Value>(&data) else { continue };
            for choice in chunk["choices"].as_array().unwrap() {
                let text = choice["delta"]["content"].as_str().unwrap_or_default();
                texts[choice["index"].as_u64().unwrap() as usize] += text;
            }
        }
        assert_eq!(texts, ["aA", "bB"]);
    }
    // Others have room for one.
    let got = read(Dialect::Anthropic, &encoded(Dialect::Anthropic, terms(), &pieces));
    assert_eq!((got.text.as_str(), got.finish.as_str()), ("aA", "max_tokens"));
}

#[test]
fn the_shown_model_is_the_one_that_was_asked_for_or_else_the_servers() {
    let pieces = openai(&[r#"{"index":0,"delta":{"content":"a"}}"#]);
    for client in CLIENTS {
        assert_eq!(read(client, &encoded(client, terms(), &pieces)).model, "shown");
        let own = Terms { model: String::new(), ..terms() };
        assert_eq!(read(client, &encoded(client, own.clone(), &pieces)).model, "m");
        let body: Value = serde_json::from_slice(&collected(&pieces).0.body(client, own).unwrap()).unwrap();
        assert_eq!(body["model"], "m");
    }
}

#[test]
fn ollamas_empty_requests_and_swallowed_errors() {
    let loaded = decoded(
        Dialect::OllamaChat,
        b"{\"model\":\"m\",\"message\":{\"role\":\"assistant\",\"content\":\"\"},\"done\":true,\"done_reason\":\"load\"}\n",
    );
    assert_eq!(read(Dialect::OllamaChat, &encoded(Dialect::OllamaChat, terms(), &loaded)).finish, "load");
    let swallowed = decoded(
        Dialect::OpenaiChat,
        b"data: {\"id\":\"c\",\"model\":\"\",\"system_fingerprint\":\"fp_ollama\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}]}\n\n",
    );
    assert_eq!(error(&swallowed).cause, Cause::Crashed);
}

#[test]
fn ollamas_last_line_tells_the_time_it_took() {
    let pieces = openai(&[r#"{"index":0,"delta":{"content":"a"}}"#]);
    let took =
        Took { first: std::time::Duration::from_millis(200), total: std::time::Duration::from_secs(1) };
    let mut encoder = Encoder::new(Dialect::OllamaChat, terms()).unwrap();
    encoder.took(took);
    let mut out = Vec::new();
    for piece in &pieces {
        encoder.piece(piece, &mut out).unwrap();
    }
    let whole = collected(&pieces).0.body(Dialect::OllamaChat, Terms { took, ..terms() }).unwrap();
    for out in [String::from_utf8(out).unwrap(), String::from_utf8(whole).unwrap()] {
        assert!(out.contains("\"total_duration\":1000000000,"), "{out}");
        assert!(out.contains("\"prompt_eval_duration\":200000000,"), "{out}");
        assert!(out.contains("\"eval_duration\":800000000}"), "{out}");
    }
}

#[test]
fn whole_answers_that_are_none() {
    for (server, body, cause) in [
        (Dialect::OpenaiChat, r#"{"error":{"message":"out of memory"}}"#, Cause::Oom),
        (Dialect::OpenaiChat, "<html>", Cause::Protocol),
        (Dialect::OpenaiChat, "[]", Cause::Protocol),
        (Dialect::OpenaiChat, "{}", Cause::Protocol),
        (
            Dialect::Anthropic,
            r#"{"type":"error","error":{"type":"overloaded_error","message":"busy"}}"#,
            Cause::Overloaded,
        ),
        (Dialect::Anthropic, "{}", Cause::Protocol),
        (Dialect::Gemini, "{}", Cause::Protocol),
    ] {
        assert_eq!(whole(server, body.as_bytes()).map_err(|failure| failure.cause), Err(cause), "{body}");
    }
}

#[test]
fn a_translation_takes_bytes_as_they_come() {
    let good = scenes::stream(Dialect::OllamaChat, scenes::Scene::Calls);
    let mut translation = Translation::new(Dialect::OllamaChat, Dialect::Anthropic, terms()).unwrap();
    let mut out = Vec::new();
    for (at, byte) in good.bytes().enumerate() {
        let state = translation.push(&[byte], &mut out);
        assert_eq!(state, if at + 1 == good.len() { State::Done } else { State::Open });
    }
    assert!(translation.take_spoke() && !translation.take_spoke());
    assert!(translation.take_moved() && !translation.take_moved());
    assert_eq!(translation.usage().prompt, Some(9));
    let pieces = decoded(Dialect::OllamaChat, good.as_bytes());
    assert_eq!(String::from_utf8(out).unwrap(), encoded(Dialect::Anthropic, terms(), &pieces));

    // The last event may lack its end; a finish reason is enough at a clean end, and nothing is without one.
    let chunk = |reason: &str| {
        format!(
            "data: {{\"id\":\"c\",\"model\":\"m\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"a\"}},\"finish_reason\":{reason}}}]}}"
        )
    };
    for (stream, states, cause) in [
        (chunk("\"stop\"") + "\n\n", [State::Finished, State::Done], None),
        (chunk("\"stop\""), [State::Open, State::Done], None),
        (chunk("null"), [State::Open, State::Failed], Some(Cause::Truncated)),
        (chunk("null") + "\n\ndata: {\"id\":", [State::Open, State::Failed], Some(Cause::Protocol)),
    ] {
        let mut translation = Translation::new(Dialect::OpenaiChat, Dialect::OllamaChat, terms()).unwrap();
        let mut out = Vec::new();
        assert_eq!(translation.push(stream.as_bytes(), &mut out), states[0], "{stream}");
        assert_eq!(translation.end(&mut out), states[1], "{stream}");
        assert_eq!(translation.failure().map(|failure| failure.cause), cause);
        let mut told = out.clone();
        translation.fail(&Problem::new(502, "x", "the words"), &mut told);
        assert_eq!(told.ends_with(b"{\"error\":\"the words\"}\n"), cause.is_some());
        assert_eq!(read(Dialect::OllamaChat, &String::from_utf8(told).unwrap()).text, "a");
    }
    // Signs of life are none of progress.
    let mut translation = Translation::new(Dialect::OpenaiChat, Dialect::OllamaChat, terms()).unwrap();
    translation.push(b": ping\n\n", &mut Vec::new());
    assert!(!translation.take_moved());
    translation.push((chunk("null").replace("\"a\"", "\"\"") + "\n\n").as_bytes(), &mut Vec::new());
    assert!(translation.take_moved() && !translation.take_spoke());
    // An event without end is not kept without end.
    let mut translation = Translation::new(Dialect::OpenaiChat, Dialect::OllamaChat, terms()).unwrap();
    let mut sent = 0;
    while translation.push(&[b'x'; 100_000], &mut Vec::new()) == State::Open {
        sent += 100_000;
    }
    assert!(sent <= crate::limits::TRANSLATED_EVENT_BYTES);
    assert!(translation.failure().unwrap().detail.contains("bytes"));
}

#[test]
fn models_in_anthropics_shape() {
    let body: Value = serde_json::from_slice(&anthropic_models(&["a\"b", "c"], 0)).unwrap();
    let model = |name: &str| json!({"type":"model","id":name,"display_name":name,"created_at":"1970-01-01T00:00:00Z"});
    assert_eq!(
        body,
        json!({"data":[model("a\"b"), model("c")],"has_more":false,"first_id":"a\"b","last_id":"c"})
    );
    assert_eq!(serde_json::from_slice::<Value>(&anthropic_model("c", 0)).unwrap(), model("c"));
    let none: Value = serde_json::from_slice(&anthropic_models(&[], 0)).unwrap();
    assert_eq!(none, json!({"data":[],"has_more":false,"first_id":null,"last_id":null}));
}
