//! The relay: what a client gets of a committed stream, however its bytes were cut.

use proptest::prelude::*;

use super::*;

const CHAT: Dialect = Dialect::OpenaiChat;

fn edits() -> Edits {
    Edits {
        hide_usage: true,
        hide_progress: true,
        model: Some(Bytes::from_static(b"\"asked\"")),
        ..Edits::default()
    }
}

/// What comes out of these chunks, as slices.
fn pushed(relay: &mut Relay, chunks: &[&[u8]]) -> Vec<Bytes> {
    let mut out = Vec::new();
    for chunk in chunks {
        relay.push(Bytes::copy_from_slice(chunk), &mut out);
    }
    out
}

fn text(out: &[Bytes]) -> String {
    String::from_utf8(out.concat()).unwrap()
}

/// A whole stream through a relay of its own, its clean end included.
fn relayed(dialect: Dialect, edits: Edits, stream: &str) -> String {
    let mut relay = Relay::new(dialect, edits);
    let mut out = pushed(&mut relay, &[stream.as_bytes()]);
    relay.end(&mut out);
    text(&out)
}

fn data(json: &str) -> String {
    format!("data: {json}\n\n")
}

fn content(text: &str) -> String {
    data(&format!(r#"{{"id":"c","model":"m","choices":[{{"delta":{{"content":"{text}"}}}}]}}"#))
}

fn finish(index: u8) -> String {
    data(&format!(
        r#"{{"id":"c","model":"m","choices":[{{"index":{index},"delta":{{}},"finish_reason":"stop"}}]}}"#
    ))
}

const DONE: &str = "data: [DONE]\n\n";
const ERROR: &str = "data: {\"error\":{\"message\":\"CUDA out of memory\"}}\n\n";

#[test]
fn what_needs_no_change_is_the_same_bytes_in_the_same_place() {
    let chunk = Bytes::from(format!("{}: ping\n\n{}{}{DONE}", content("A"), content("B"), finish(0)));
    for edits in [Edits::default(), Edits { model: Some(Bytes::from_static(b"\"m\"")), ..edits() }] {
        let mut relay = Relay::new(CHAT, edits);
        let mut out = Vec::new();
        relay.push(chunk.clone(), &mut out);
        assert_eq!(out.len(), 1, "one slice for a chunk");
        assert_eq!((out[0].as_ptr(), out[0].len()), (chunk.as_ptr(), chunk.len()), "not a copy");
    }
}

#[test]
fn a_hidden_event_leaves_slices_of_the_same_chunk() {
    let usage = data(r#"{"id":"c","model":"m","choices":[],"usage":{"completion_tokens":3}}"#);
    let (before, after) = (content("A"), DONE);
    let chunk = Bytes::from(format!("{before}{usage}{after}"));
    let mut relay = Relay::new(CHAT, Edits { hide_usage: true, ..Edits::default() });
    let mut out = Vec::new();
    relay.push(chunk.clone(), &mut out);
    assert_eq!(text(&out), format!("{before}{after}"));
    assert_eq!(out[0].as_ptr(), chunk.as_ptr());
    assert_eq!(out[1].as_ptr(), chunk[before.len() + usage.len()..].as_ptr());
    assert_eq!(relay.said().usage.and_then(|usage| usage.completion), Some(3), "hidden, not lost");
}

/// As vLLM writes it: asked for usage, it names the fingerprint nowhere else.
#[test]
fn what_a_hidden_usage_event_says_beside_usage_goes_on() {
    let usage = data(
        r#"{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":3},"system_fingerprint":"fp_1"}"#,
    );
    let what_else = data(
        r#"{"id":"c","object":"chat.completion.chunk","created":1,"model":"asked","choices":[{"index":0,"delta":{"content":""},"finish_reason":"stop"}],"system_fingerprint":"fp_1"}"#,
    );
    let before = format!("{}{}", content("A"), finish(0)).replace("\"m\"", "\"asked\"");
    let stream = format!("{before}{usage}{DONE}");
    assert_eq!(relayed(CHAT, edits(), &stream), format!("{before}{what_else}{DONE}"));
    assert_eq!(
        relayed(Dialect::OpenaiCompletions, edits(), &usage),
        what_else.replace(
            r#""delta":{"content":""},"finish_reason":"stop""#,
            r#""text":"","logprobs":null,"finish_reason":null"#
        )
    );
    // Said before, as OpenAI says it in each event: nothing is lost with this one. Padding is nothing.
    let token = data(
        r#"{"id":"c","created":1,"model":"asked","system_fingerprint":"fp_1","choices":[{"index":0,"delta":{"content":"A"}}],"obfuscation":"x1"}"#,
    );
    let said = usage.replace("\"fp_1\"", "\"fp_1\",\"obfuscation\":\"y2\",\"service_tier\":null");
    assert_eq!(relayed(CHAT, edits(), &format!("{token}{said}{DONE}")), format!("{token}{DONE}"));
    // Another one than before.
    let other = said.replace("fp_1", "fp_2");
    assert!(relayed(CHAT, edits(), &format!("{token}{other}{DONE}")).contains("fp_2"));
    // A member twice: hidden, rather than spoilt.
    let twice = usage.replace("\"usage\"", "\"usage\":null,\"usage\"").replace("\"choices\":[],", "");
    let twice = twice.replace("{\"id\"", "{\"choices\":[],\"id\"");
    let out = relayed(CHAT, edits(), &twice);
    assert!(out.is_empty() || serde_json::from_str::<serde_json::Value>(&out[6..]).is_ok(), "{out}");
}

#[test]
fn only_what_must_change_changes() {
    for (came, goes) in [
        (
            r#"{ "id":"c", "model" : "m" ,"x":1,"choices":[{"delta":{"content":"model"}}]}"#,
            Some(r#"{ "id":"c", "model" : "asked" ,"x":1,"choices":[{"delta":{"content":"model"}}]}"#),
        ),
        (
            r#"{"id":"c","choices":[{"delta":{"content":"A"}}],"usage":null}"#,
            Some(r#"{"id":"c","choices":[{"delta":{"content":"A"}}]}"#),
        ),
        (
            r#"{"usage":null,"model":"m","choices":[{"delta":{"content":"A"}}]}"#,
            Some(r#"{"model":"asked","choices":[{"delta":{"content":"A"}}]}"#),
        ),
        (
            r#"{"choices":[{"delta":{"content":"A"}}],"model":"m","usage":null}"#,
            Some(r#"{"choices":[{"delta":{"content":"A"}}],"model":"asked"}"#),
        ),
        (r#"{"id":"c","model":"m","choices":[],"usage":{"prompt_tokens":1}}"#, None),
        (
            r#"{"id":"c","model":"m","choices":[{"delta":{}}],"usage":{"prompt_tokens":1}}"#,
            Some(r#"{"id":"c","model":"asked","choices":[{"delta":{}}],"usage":{"prompt_tokens":1}}"#),
        ),
        (
            r#"{"id":"c","model":"m","choices":[{"delta":{"content":null}}],"prompt_progress":{"total":9,"processed":1}}"#,
            None,
        ),
        (
            r#"{"id":"c","choices":[{"delta":{},"finish_reason":"stop"}],"prompt_progress":{"total":9,"processed":9}}"#,
            Some(
                r#"{"id":"c","choices":[{"delta":{},"finish_reason":"stop"}],"prompt_progress":{"total":9,"processed":9}}"#,
            ),
        ),
        ("[DONE]", Some("[DONE]")),
    ] {
        let goes = goes.map(data).unwrap_or_default();
        assert_eq!(relayed(CHAT, edits(), &data(came)), goes, "{came}");
        assert_eq!(relayed(CHAT, Edits::default(), &data(came)), data(came), "asked for nothing");
    }
    let line = "{\"model\":\"m\",\"message\":{\"content\":\"x\"},\"done\":false}\n";
    assert_eq!(relayed(Dialect::OllamaChat, edits(), line), line.replace("\"m\"", "\"asked\""));
    let start = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"model\":\"m\"}}\n\n";
    assert_eq!(relayed(Dialect::Anthropic, edits(), start), start.replace("\"m\"", "\"asked\""));
}

#[test]
fn comments_of_the_held_part_are_dropped_and_later_ones_pass() {
    let mut relay = Relay::new(CHAT, Edits::default());
    let mut out = Vec::new();
    let glued = format!(": a\n{}", content("A"));
    relay.held(Bytes::from(format!(": ping\n\n{glued}")), &mut out);
    assert_eq!(text(&out), content("A"));
    out.clear();
    relay.push(Bytes::from(format!(": ping\n\n{glued}")), &mut out);
    assert_eq!(text(&out), format!(": ping\n\n{glued}"));
}

#[test]
fn half_an_event_never_leaves() {
    let (first, second) = (content("A"), content("B"));
    for cut in 1..second.len() {
        let mut relay = Relay::new(CHAT, edits());
        let out = pushed(&mut relay, &[first.as_bytes(), &second.as_bytes()[..cut]]);
        assert_eq!(text(&out), first.replace("\"m\"", "\"asked\""), "{cut}");
        assert!(!relay.cut_inside_event());
    }
}

#[test]
fn the_end_gives_a_whole_last_event_and_drops_half_a_one() {
    let last = content("A");
    for cut in [1, 2] {
        assert_eq!(
            relayed(CHAT, Edits::default(), &last[..last.len() - cut]),
            format!("{}\n\n", &last[..last.len() - cut])
        );
    }
    for cut in 3..last.len() - 6 {
        assert_eq!(relayed(CHAT, Edits::default(), &last[..last.len() - cut]), "", "{cut}");
    }
    let line = r#"{"model":"m","message":{"content":"x"},"done":true}"#;
    assert_eq!(relayed(Dialect::OllamaChat, Edits::default(), line), format!("{line}\n"));
    assert_eq!(relayed(Dialect::OllamaChat, Edits::default(), &line[..20]), "");
    let mut relay = Relay::new(CHAT, Edits::default());
    let mut out = pushed(&mut relay, &["data: [DONE]".as_bytes()]);
    relay.end(&mut out);
    assert!(relay.said().done && text(&out) == DONE);
}

/// An event of `size` bytes and more, in chunks of 8 KiB.
fn long(event: &str) -> Vec<&[u8]> {
    assert!(event.len() > RELAY_EVENT_BYTES);
    event.as_bytes().chunks(8192).collect()
}

#[test]
fn a_long_event_passes_and_can_be_cut_in_the_middle() {
    let event = content(&"a".repeat(RELAY_EVENT_BYTES + 30_000));
    let chunks = long(&event);
    let mut relay = Relay::new(CHAT, edits());
    let mut out = pushed(&mut relay, &chunks[..chunks.len() - 1]);
    assert!(relay.cut_inside_event());
    let mut ended = pushed(&mut Relay::new(CHAT, edits()), &[]);
    relay.push(Bytes::copy_from_slice(chunks[chunks.len() - 1]), &mut out);
    assert!(!relay.cut_inside_event() && relay.take_spoke());
    assert_eq!(text(&out), event.replace("\"m\"", "\"asked\""));
    let mut cut = Relay::new(CHAT, edits());
    ended.extend(pushed(&mut cut, &chunks[..chunks.len() - 1]));
    cut.end(&mut ended);
    assert!(text(&ended).ends_with("a\n\n"), "what follows is an event of its own");
    assert!(!cut.said().finished);
}

#[test]
fn a_long_event_that_ends_the_stream_is_its_end_once_it_is_whole() {
    let filler = "1,".repeat(RELAY_EVENT_BYTES);
    let ollama = format!(
        "{{\"model\":\"m\",\"response\":\"\",\"done\":true,\"done_reason\":\"stop\",\"context\":[{filler}1]}}\n"
    );
    let responses = format!(
        "event: response.completed\ndata: {{\"type\":\"response.completed\",\"response\":{{\"status\":\"completed\",\"x\":[{filler}1]}}}}\n\n"
    );
    for (dialect, event) in [(Dialect::OllamaGenerate, ollama), (Dialect::OpenaiResponses, responses)] {
        let mut relay = Relay::new(dialect, Edits::default());
        let chunks = long(&event);
        let mut out = pushed(&mut relay, &chunks[..chunks.len() - 1]);
        assert!(!relay.said().finished && !relay.said().done, "{dialect:?}: not yet");
        relay.push(Bytes::copy_from_slice(chunks[chunks.len() - 1]), &mut out);
        assert!(relay.said().finished && relay.said().done, "{dialect:?}");
        assert_eq!(text(&out), event);
    }
}

#[test]
fn a_long_error_is_an_error() {
    let event = data(&format!(
        r#"{{"error":{{"message":"CUDA out of memory {}"}}}}"#,
        "x".repeat(RELAY_EVENT_BYTES + 30_000)
    ));
    let mut relay = Relay::new(CHAT, Edits::default());
    let out = pushed(&mut relay, &long(&event));
    assert_eq!(relay.said().error.as_ref().map(|error| error.cause), Some(Cause::CudaOom));
    assert_eq!((text(&out).len(), relay.said().error_shown, relay.cut_inside_event()), (0, false, false));
}

#[test]
fn an_error_event_ends_it_and_is_shown_only_in_the_clients_own_shape() {
    let llamacpp = r#"{"error":{"code":500,"message":"Compute error.","type":"server_error"}}"#;
    for (dialect, event, shown) in [
        (CHAT, ERROR.to_owned(), true),
        (CHAT, "data: {\"object\":\"error\",\"message\":\"no\"}\n\n".to_owned(), false),
        (CHAT, "event: error\ndata: no\n\n".to_owned(), false),
        (CHAT, "{\"error\":\"bare\"}\n\n".to_owned(), true),
        (CHAT, data(r#"{"choices":[{"delta":{},"finish_reason":"abort"}]}"#), false),
        (Dialect::OpenaiCompletions, data(llamacpp), true),
        (Dialect::Anthropic, data(llamacpp), false),
        (Dialect::Anthropic, "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"no\"}}\n\n".to_owned(), true),
        (Dialect::OpenaiResponses, data(llamacpp), false),
        (Dialect::OpenaiResponses, "event: error\ndata: {\"type\":\"error\",\"message\":\"no\"}\n\n".to_owned(), true),
        (Dialect::OpenaiResponses, "event: response.failed\ndata: {\"type\":\"response.failed\",\"response\":{\"error\":{\"message\":\"no\"}}}\n\n".to_owned(), true),
        (Dialect::OllamaChat, "{\"error\":\"no\"}\n".to_owned(), true),
        (Dialect::Gemini, data(r#"{"error":{"code":503,"message":"no"}}"#), true),
    ] {
        let mut relay = Relay::new(dialect, edits());
        let out = pushed(&mut relay, &[format!("{event}{event}").as_bytes(), event.as_bytes()]);
        assert!(relay.said().error.is_some(), "{dialect:?} {event}");
        assert_eq!(relay.said().error_shown, shown, "{dialect:?} {event}");
        assert_eq!(text(&out), if shown { event } else { String::new() }, "{dialect:?}: and nothing after it");
    }
}

#[test]
fn several_choices_are_finished_when_each_of_them_is() {
    let said = |index: u32, text: &str| {
        data(&format!(
            r#"{{"id":"c","model":"m","choices":[{{"index":{index},"delta":{{"content":"{text}"}},"finish_reason":null}}]}}"#
        ))
    };
    // The reason before the index, as llama.cpp has them.
    let ended = |index: u32| {
        data(&format!(
            r#"{{"id":"c","model":"m","choices":[{{"finish_reason":"stop","index":{index},"delta":{{}}}}]}}"#
        ))
    };
    let finished = |asked: u32, events: &[String]| {
        let mut relay = Relay::new(CHAT, Edits::default()).expecting(asked);
        pushed(&mut relay, &[events.concat().as_bytes()]);
        relay.said().finished
    };
    assert!(!finished(2, &[said(0, "a"), ended(0)]), "the second choice has not said a word yet");
    assert!(!finished(2, &[said(0, "a"), said(1, "b"), ended(0)]));
    assert!(!finished(2, &[said(0, "a"), said(1, "b"), ended(0), said(1, "c"), said(1, "d")]));
    assert!(finished(2, &[said(0, "a"), said(1, "b"), ended(0), said(1, "c"), ended(1)]));
    assert!(!finished(2, &[said(0, "a"), said(1, "b"), ended(0), ended(0)]), "twice the same one");
    // One choice for each of several prompts: nobody asked for them by number.
    assert!(!finished(1, &[said(0, "a"), said(1, "b"), ended(0)]));
    assert!(finished(1, &[said(0, "a"), said(1, "b"), ended(0), ended(1)]));
}

#[test]
fn it_is_finished_when_nothing_is_said_after_the_finish() {
    let mut relay = Relay::new(CHAT, edits());
    let mut say = |event: &str| {
        pushed(&mut relay, &[event.as_bytes()]);
        (relay.said().finished, relay.take_spoke(), relay.take_moved())
    };
    assert_eq!(say(&content("A")), (false, true, true));
    assert_eq!(say(&finish(0)), (true, false, true));
    assert_eq!(say(": ping\n\n"), (true, false, false), "a comment is no sign of progress");
    let other = content("B").replacen("\"delta\"", "\"index\":1,\"delta\"", 1);
    assert_eq!(say(&other), (false, true, true), "another choice goes on");
    assert_eq!(say(&finish(1)), (true, false, true));
    let usage = data(r#"{"id":"c","model":"m","choices":[],"usage":{"completion_tokens":3}}"#);
    assert_eq!(say(&usage), (true, false, true));
    assert!(!relay.said().done);
}

/// A frame of a stream, and what a client of these edits gets of it.
fn frames(dialect: Dialect) -> Vec<(String, String)> {
    let same = |text: &str| (text.to_owned(), text.to_owned());
    let named = |text: &str| (text.to_owned(), text.replacen("\"m\"", "\"asked\"", 1));
    let hidden = |text: String| (text, String::new());
    if dialect.framing() == Framing::Ndjson {
        return vec![
            named("{\"model\":\"m\",\"message\":{\"content\":\"x\"},\"done\":false}\n"),
            named("{\"message\":{\"content\":\"\u{e9}\u{1f600}\"},\"model\":\"m\",\"done\":false}\n"),
            same("\n"),
            named(
                "{\"model\":\"m\",\"message\":{\"content\":\"\"},\"done\":true,\"done_reason\":\"stop\"}\n",
            ),
        ];
    }
    let null = r#"{"id":"c","model":"m","choices":[{"delta":{"content":"x"}}],"usage":null}"#;
    vec![
        named(&content("x")),
        named(&content("\u{e9}\u{1f600}")),
        (data(null), data(&null.replace("\"m\"", "\"asked\"").replace(r#","usage":null"#, ""))),
        hidden(data(r#"{"id":"c","model":"m","choices":[],"usage":{"completion_tokens":3}}"#)),
        hidden(data(
            r#"{"model":"m","choices":[{"delta":{"content":null}}],"prompt_progress":{"total":9,"processed":1}}"#,
        )),
        same(": ping\n\n"),
        named(&format!(": glued\nid: 7\n{}", content("x"))),
        same(
            "data: {\"id\":\"c\",\"model\":\"m\",\ndata: \"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n",
        ),
        named(&finish(0)),
        same(DONE),
    ]
}

fn events(text: &str) -> Vec<String> {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let events = text.split("\n\n").map(|event| event.trim_matches('\n').to_owned());
    events.filter(|event| !event.is_empty()).collect()
}

fn without_comments(text: &str) -> String {
    text.split_inclusive("\n\n")
        .map(|event| event.split_inclusive('\n').filter(|line| !line.starts_with(':')).collect::<String>())
        .filter(|event| event != "\n")
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn any_cut_of_any_stream_gives_the_same_bytes(
        ndjson in any::<bool>(),
        crlf in any::<bool>(),
        picks in prop::collection::vec(any::<prop::sample::Index>(), 1..16),
        held in any::<prop::sample::Index>(),
        cuts in prop::collection::vec(1..120_usize, 1..12),
    ) {
        let dialect = if ndjson { Dialect::OllamaChat } else { CHAT };
        let all = frames(dialect);
        let picked: Vec<_> = picks.iter().map(|pick| pick.get(&all).clone()).collect();
        let line_end = |text: String| if crlf && !ndjson { text.replace('\n', "\r\n") } else { text };
        let held = held.index(picked.len());
        let came = |range: &[(String, String)]| line_end(range.iter().map(|(came, _)| came.as_str()).collect());
        let goes = |range: &[(String, String)]| range.iter().map(|(_, goes)| goes.as_str()).collect::<String>();
        let dropped = without_comments(&goes(&picked[..held]));
        let want = line_end(format!("{dropped}{}", goes(&picked[held..])));

        let mut relay = Relay::new(dialect, edits());
        let mut out = Vec::new();
        relay.held(Bytes::from(came(&picked[..held])), &mut out);
        let rest = came(&picked[held..]);
        let mut at = 0;
        for cut in cuts.iter().cycle() {
            let next = (at + cut).min(rest.len());
            relay.push(Bytes::copy_from_slice(&rest.as_bytes()[at..next]), &mut out);
            prop_assert!(!relay.cut_inside_event());
            at = next;
            if at == rest.len() {
                break;
            }
        }
        relay.end(&mut out);
        if ndjson {
            // Blank lines of the held part are dropped, too.
            let lines = |text: String| text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect::<Vec<_>>();
            prop_assert_eq!(lines(text(&out)), lines(want));
        } else if crlf {
            prop_assert_eq!(events(&text(&out)), events(&want));
        } else {
            prop_assert_eq!(text(&out), want);
        }
    }

    /// With nothing to edit, bytes are bytes: of any stream, protocol or not, that shows no error and no half event.
    #[test]
    fn without_edits_a_stream_is_the_same_bytes(
        ndjson in any::<bool>(),
        picks in prop::collection::vec(any::<prop::sample::Index>(), 1..16),
        cuts in prop::collection::vec(1..120_usize, 1..12),
        crlf in any::<bool>(),
    ) {
        let dialect = if ndjson { Dialect::OllamaChat } else { CHAT };
        let all = frames(dialect);
        let stream: String = picks.iter().map(|pick| pick.get(&all).0.as_str()).collect();
        let stream = if crlf { stream.replace('\n', "\r\n") } else { stream };
        let mut relay = Relay::new(dialect, Edits::default());
        let mut out = Vec::new();
        let mut rest = stream.as_bytes();
        for cut in cuts.iter().cycle() {
            let (chunk, after) = rest.split_at((*cut).min(rest.len()));
            relay.push(Bytes::copy_from_slice(chunk), &mut out);
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
        relay.end(&mut out);
        prop_assert_eq!(text(&out), stream);
    }

    #[test]
    fn arbitrary_bytes_never_panic(
        bytes in prop::collection::vec(prop_oneof![any::<u8>(), prop::sample::select(b"\r\n: {}[]\"\\data".to_vec())], 0..400),
        cut in 1..40_usize,
        ndjson in any::<bool>(),
    ) {
        let mut relay = Relay::new(if ndjson { Dialect::OllamaChat } else { CHAT }, edits());
        let mut out = Vec::new();
        bytes.chunks(cut).for_each(|chunk| relay.push(Bytes::copy_from_slice(chunk), &mut out));
        relay.end(&mut out);
        prop_assert!(out.concat().len() <= bytes.len() + 2);
    }
}
