//! One client's stream from two servers: its ids, its numbers, its blocks.

use super::*;

fn chat(deltas: &[&str]) -> Vec<u8> {
    let event = |delta: &&str| {
        format!(
            "data: {{\"id\":\"theirs\",\"model\":\"big\",\"choices\":[{{\"index\":0,\"delta\":{{{delta}}}}}]}}\n\n"
        )
    };
    deltas.iter().map(event).collect::<String>().into_bytes()
}

const END: &[u8] =
    b"data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
const CALL: &str = "\"tool_calls\":[{\"index\":0,\"id\":\"c1\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":\"}}]";

fn stream(client: Dialect, deltas: &[&str], out: &mut Vec<u8>) -> Translation {
    let mut stream = Translation::new(Dialect::OpenaiChat, client, terms()).unwrap();
    stream = stream.hearing(Heard::new(true, false));
    stream.push(&chat(deltas), out);
    stream
}

#[test]
fn a_stream_that_goes_on_is_byte_for_byte_what_one_server_would_have_been_told_as() {
    for client in CLIENTS {
        let (mut once, mut twice) = (Vec::new(), Vec::new());
        let mut one = stream(client, &["\"content\":\"The fox\"", "\"content\":\" runs\""], &mut once);
        // Ollama's last line always has counts.
        one.push(
            b"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":0,\"completion_tokens\":0}}\n\n",
            &mut once,
        );
        one.push(END, &mut once);
        let mut two = stream(client, &["\"content\":\"The fox\""], &mut twice);
        assert!(two.may_resume() && two.goes_on(Dialect::OllamaChat, true));
        let line = "{\"model\":\"other\",\"message\":{\"role\":\"assistant\",\"content\":\" runs\"},\"done\":false}\n";
        let last = "{\"model\":\"other\",\"message\":{\"role\":\"assistant\",\"content\":\"\"},\"done\":true,\"done_reason\":\"stop\"}\n";
        two.push(b"{\"model\":\"other\",\"message\":{\"role\":\"assistant\",\"content\":\"\",\"thinking\":\"hm\"},\"done\":false}\n", &mut twice);
        two.push(line.as_bytes(), &mut twice);
        two.push(last.as_bytes(), &mut twice);
        assert_eq!(String::from_utf8(once), String::from_utf8(twice), "{client:?}");
        assert!(!two.may_resume(), "it is over");
    }
}

#[test]
fn the_servers_own_id_stays_where_its_events_went_out_untouched() {
    let mut stream = Translation::new(Dialect::OpenaiChat, Dialect::OpenaiChat, terms()).unwrap().following();
    stream = stream.hearing(Heard::new(true, false));
    stream.push(&chat(&["\"content\":\"The fox\""]), &mut Vec::new());
    stream.goes_on(Dialect::OpenaiChat, true);
    let mut out = Vec::new();
    stream.push(&chat(&["\"content\":\" runs\""]), &mut out);
    let said = String::from_utf8(out).unwrap();
    assert!(said.contains("\"id\":\"theirs\"") && said.contains(" runs") && !said.contains("role"), "{said}");
}

#[test]
fn a_restart_is_told_in_each_dialect_and_nobody_is_to_act_on_half_a_call() {
    for client in CLIENTS {
        for cut in [
            &["\"content\":\"The fox\""][..],
            &["\"reasoning_content\":\"hm\""],
            &["\"content\":\"So\"", CALL],
        ] {
            let mut out = Vec::new();
            let mut stream = stream(client, cut, &mut out);
            let before = out.len();
            assert!(stream.restarts(Dialect::OpenaiChat, Cause::Oom, &mut out), "{client:?}");
            let told = String::from_utf8(out[before..].to_vec()).unwrap();
            let after = stream.heard().map(Heard::characters);
            assert_eq!(after, Some(0), "what follows counts anew");
            assert!(told.contains("\"edgeward\":{\"restart\":{\"after\":"), "{client:?} {told}");
            assert!(told.contains("\"cause\":\"oom\"}}"), "{client:?} {told}");
            assert!(
                !told.contains("function_call_arguments.done") && !told.contains("\"completed\""),
                "{client:?} {told}"
            );
            let calls = cut.len() == 2;
            if client == Dialect::Anthropic {
                assert_eq!(told.contains("content_block_stop"), !calls, "{told}");
            }
            if client == Dialect::OpenaiResponses {
                assert!(told.contains("\"incomplete\""), "{told}");
            }
            stream.push(&chat(&["\"content\":\"A hen\""]), &mut out);
            stream.push(END, &mut out);
            let whole = String::from_utf8(out).unwrap();
            assert!(whole.contains("A hen"), "{client:?} {whole}");
            if client == Dialect::OpenaiResponses {
                let last = whole.rsplit("event: response.completed").next().unwrap();
                assert!(
                    last.contains("A hen") && !last.contains("The fox") && !last.contains("function_call"),
                    "{last}"
                );
            }
        }
    }
}

#[test]
fn counts_of_both_are_added() {
    let usage = |prompt, completion| {
        format!(
            "data: {{\"choices\":[],\"usage\":{{\"prompt_tokens\":{prompt},\"completion_tokens\":{completion},\"prompt_tokens_details\":{{\"cached_tokens\":1}}}}}}\n\n"
        )
    };
    let mut out = Vec::new();
    let mut stream = stream(Dialect::OpenaiChat, &["\"content\":\"The fox\""], &mut out);
    stream.push(usage(7, 1).as_bytes(), &mut out);
    stream.push(usage(7, 2).as_bytes(), &mut out);
    stream.goes_on(Dialect::OpenaiChat, true);
    stream.push(&chat(&["\"content\":\" runs\""]), &mut out);
    stream.push(usage(9, 4).as_bytes(), &mut out);
    stream.push(END, &mut out);
    let said = String::from_utf8(out).unwrap();
    assert!(said.contains("\"prompt_tokens\":16,\"completion_tokens\":6,\"total_tokens\":22"), "{said}");
    assert!(said.contains("\"cached_tokens\":2"), "{said}");
}

#[test]
fn no_more_text_is_kept_than_the_limit_and_what_is_not_kept_is_not_continued() {
    let long = format!("\"content\":\"{}\"", "word ".repeat(3000));
    let mut stream = stream(Dialect::OpenaiChat, &[], &mut Vec::new());
    for _ in 0..10 {
        stream.push(&chat(&[&long]), &mut Vec::new());
        assert!(stream.heard().unwrap().text().len() <= crate::limits::SAID_BYTES);
    }
    let heard = stream.heard().unwrap();
    assert_eq!((heard.characters(), heard.cannot_go_on()), (150_000, Some("it has said too much")));
}

#[test]
fn behind_blocks_that_only_its_provider_knows_the_numbers_are_right() {
    let start = |index: u32, block: &str| {
        format!(
            "event: content_block_start\ndata: {{\"type\":\"content_block_start\",\"index\":{index},\"content_block\":{{{block}}}}}\n\n"
        )
    };
    let stop = |index: u32| {
        format!("event: content_block_stop\ndata: {{\"type\":\"content_block_stop\",\"index\":{index}}}\n\n")
    };
    let text = "\"type\":\"text\",\"text\":\"One\"";
    let foreign = "\"type\":\"server_tool_use\",\"id\":\"s\",\"name\":\"web_search\",\"input\":{}";
    for (events, index, opens) in [
        ([start(0, text), stop(0), start(1, foreign), stop(1), start(2, text)].concat(), 2, false),
        ([start(0, text), stop(0), start(1, text), stop(1)].concat(), 2, true),
    ] {
        let new = || Translation::new(Dialect::Anthropic, Dialect::Anthropic, terms()).unwrap().following();
        let mut stream = new().hearing(Heard::new(true, false));
        stream.push(events.as_bytes(), &mut Vec::new());
        assert!(stream.goes_on(Dialect::OpenaiChat, true));
        let mut out = Vec::new();
        stream.push(&chat(&["\"content\":\" two\""]), &mut out);
        let said = String::from_utf8(out).unwrap();
        assert!(said.contains(&format!("\"type\":\"content_block_delta\",\"index\":{index},")), "{said}");
        assert_eq!(said.contains("content_block_start"), opens, "{said}");
        assert!(!said.contains("message_start"), "{said}");
    }
}
