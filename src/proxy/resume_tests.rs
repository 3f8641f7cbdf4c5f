//! When a broken stream goes on, how, and where.

use super::*;
use crate::config::{Deadlines, Place};
use crate::dialect::conversation;
use crate::dialect::translate::{Terms, Translation};

const CHAT: Dialect = Dialect::OpenaiChat;

fn asked(more: &str) -> Conversation {
    let body = format!(
        "{{\"model\":\"m\",\"messages\":[{{\"role\":\"user\",\"content\":\"hi\"}}],\"stream\":true{more}}}"
    );
    conversation::decode(CHAT, body.as_bytes()).unwrap()
}

/// A stream of these deltas.
fn said(deltas: &[&str]) -> Translation {
    let mut stream = Translation::new(CHAT, CHAT, Terms::default()).unwrap().hearing(Heard::new(true, false));
    for delta in deltas {
        let event = format!(
            "data: {{\"id\":\"c\",\"model\":\"m\",\"choices\":[{{\"index\":0,\"delta\":{{{delta}}}}}]}}\n\n"
        );
        stream.push(event.as_bytes(), &mut Vec::new());
    }
    stream
}

const TEXT: &str = "\"content\":\"Hello wor\"";
const THINKING: &str = "\"reasoning_content\":\"hm\"";
const CALL: &str = "\"tool_calls\":[{\"index\":0,\"id\":\"c1\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":\"}}]";

fn how(policy: OnBreak, deltas: &[&str], more: &str) -> Result<Resumed, &'static str> {
    let (stream, asked) = (said(deltas), asked(more));
    broken(policy, &stream, Some(&asked)).how()
}

fn broken<'a>(policy: OnBreak, stream: &'a Translation, asked: Option<&'a Conversation>) -> Broken<'a> {
    Broken {
        policy,
        cause: Cause::Reset,
        heard: stream.heard().unwrap(),
        asked,
        prompt_tokens: 10,
        most_tokens: 1000,
        beyond_repair: false,
        before: 0,
    }
}

#[test]
fn plain_text_is_continued_and_nothing_else_is() {
    for (deltas, more) in [
        (&[CALL][..], ""),
        (&[TEXT, CALL], ""),
        (&[THINKING], ""),
        (&[TEXT, THINKING], ""),
        (&["\"content\":\" \""], ""),
        (&["\"refusal\":\"no\""], ""),
        (&[TEXT], ",\"response_format\":{\"type\":\"json_object\"}"),
        (&[TEXT], ",\"n\":2"),
        (&[TEXT], ",\"logprobs\":true"),
    ] {
        assert!(how(OnBreak::Continue, deltas, more).is_err(), "{deltas:?} {more}");
        assert_eq!(how(OnBreak::ContinueOrRestart, deltas, more), Ok(Resumed::Restart), "{deltas:?} {more}");
        assert_eq!(how(OnBreak::Restart, deltas, more), Ok(Resumed::Restart));
    }
    assert_eq!(how(OnBreak::Continue, &[THINKING, TEXT], ""), Ok(Resumed::Continue));
    assert_eq!(how(OnBreak::Restart, &[TEXT], ""), Ok(Resumed::Restart));
    assert!(how(OnBreak::Error, &[TEXT], "").is_err());
}

#[test]
fn what_stops_it_whatever_the_policy_is() {
    let (stream, asked) = (said(&[TEXT]), asked(""));
    let whole = || broken(OnBreak::ContinueOrRestart, &stream, Some(&asked));
    for cause in Cause::ALL {
        let how = Broken { cause, ..whole() }.how();
        assert_eq!(how.is_ok(), cause.fault() == Fault::Upstream, "{cause}");
    }
    assert!(Broken { before: RESUMES_MAX, ..whole() }.how().is_err());
    assert!(Broken { beyond_repair: true, ..whole() }.how().is_err());
    for barred in [
        Broken { cause: Cause::Repetition, ..whole() },
        Broken { most_tokens: 11, ..whole() },
        Broken { asked: None, ..whole() },
    ] {
        assert_eq!(barred.how(), Ok(Resumed::Restart));
        assert!(Broken { policy: OnBreak::Continue, ..barred }.how().is_err());
    }
    let ended = said(&[TEXT]);
    let mut ended = ended;
    ended.push(
        b"data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n",
        &mut Vec::new(),
    );
    assert!(broken(OnBreak::Restart, &ended, None).how().is_err());
}

#[test]
fn those_who_failed_are_not_asked_again_and_each_is_asked_in_its_own_dialect() {
    let kinds = [Kind::Openai, Kind::Ollama, Kind::Vllm, Kind::Anthropic, Kind::Gemini, Kind::Llamacpp];
    let all: Vec<Candidate> = (0..kinds.len())
        .map(|target| Candidate {
            delivery: route::Delivery::Streamed,
            target,
            model: "m".to_owned(),
            wire: Dialect::OpenaiCompletions,
            inlined: false,
            memory: crate::memory::admit::Admission::Goes,
            patience: None,
            again: false,
            deadlines: Deadlines::default(),
            context: None,
            loads: false,
            place: Place::Local,
            max_retries: 0,
            hedge: true,
            reluctant: false,
            last_resort: false,
        })
        .collect();
    let kind = |target: usize| kinds.get(target).copied();
    let restart = left(&all, &[0, 2], Resumed::Restart, kind);
    assert_eq!(restart.iter().map(|c| c.target).collect::<Vec<_>>(), [1, 3, 4, 5]);
    assert!(restart.iter().all(|c| c.wire == Dialect::OpenaiCompletions && !c.hedge));
    let goes_on: Vec<_> = left(&all, &[], Resumed::Continue, kind).iter().map(|c| c.wire).collect();
    let wanted = [CHAT, Dialect::OllamaChat, CHAT, Dialect::Anthropic, Dialect::Gemini, CHAT];
    assert_eq!(goes_on, wanted);
}
