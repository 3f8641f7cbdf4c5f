//! The gate, rule by rule: WIRE.md 10.1 and 10.2, and what the buffer may hold.

mod any;
#[cfg(feature = "sim")]
mod cases;
mod frames;

use super::pool::Pool;
use super::*;
use Emptiness::{NoToken, Nothing, StopWithTokens};

const SIZE: usize = 4096;

pub(super) fn rules(dialect: Dialect) -> Rules {
    Rules {
        dialect,
        commit_on: CommitOn::Any,
        on_empty_stop: OnEmptyStop::FailoverOnce,
        drop_anonymous_reasoning: true,
        tiny: false,
        drop_progress: true,
    }
}

fn chat() -> Rules {
    rules(Dialect::OpenaiChat)
}

pub(super) fn gate(rules: Rules, size: usize) -> Gate {
    Gate::new(rules, Pool::new(1, size).take().unwrap())
}

/// What a whole stream comes to, and what is held then.
fn judged(rules: Rules, stream: &str) -> (Verdict, String) {
    let mut gate = gate(rules, SIZE);
    let step = gate.push(stream.as_bytes());
    let verdict = step.verdict.unwrap_or_else(|| gate.end());
    (verdict, String::from_utf8(gate.held().to_vec()).unwrap())
}

fn verdict(rules: Rules, stream: &str) -> Verdict {
    judged(rules, stream).0
}

fn cause(verdict: &Verdict) -> Cause {
    match verdict {
        Verdict::Failed(failure) => failure.cause,
        Verdict::Commit | Verdict::Empty(_) | Verdict::Overflow => panic!("{verdict:?} is no failure"),
    }
}

fn data(json: &str) -> String {
    format!("data: {json}\n\n")
}

/// An OpenAI chat frame of one choice.
fn choice(choice: &str) -> String {
    data(&format!(r#"{{"id":"c1","model":"m","choices":[{{"index":0,{choice}}}]}}"#))
}

fn delta(delta: &str) -> String {
    choice(&format!(r#""delta":{{{delta}}}"#))
}

const ROLE: &str = r#""role":"assistant","content":"""#;
const DONE: &str = "data: [DONE]\n\n";

fn stop() -> String {
    choice(r#""delta":{},"finish_reason":"stop""#)
}

fn usage(tokens: u64) -> String {
    data(&format!(r#"{{"id":"c1","model":"m","choices":[],"usage":{{"completion_tokens":{tokens}}}}}"#))
}

#[test]
fn a_token_commits_with_its_event_and_takes_nothing_after_it() {
    let (role, token, more) = (delta(ROLE), delta(r#""content":"A""#), delta(r#""content":"B""#));
    let mut gate = gate(chat(), SIZE);
    let chunk = format!(": hi\n\n{role}{token}{more}");
    let step = gate.push(chunk.as_bytes());
    assert_eq!(step.verdict, Some(Verdict::Commit));
    assert_eq!(step.consumed, chunk.len() - more.len());
    assert_eq!(gate.held(), format!("{role}{token}").as_bytes(), "in order, without the comment");
}

#[test]
fn half_a_token_is_none() {
    let token = delta(r#""content":"A""#);
    let mut gate = gate(chat(), SIZE);
    assert_eq!(gate.push(&token.as_bytes()[..token.len() - 1]).verdict, None);
    assert_eq!(gate.push(b"\n").verdict, Some(Verdict::Commit));
    assert_eq!(gate.held(), token.as_bytes());
}

#[test]
fn a_last_event_without_its_blank_line_counts_at_the_end() {
    let token = delta(r#""content":"A""#);
    for cut in [1, 2] {
        assert_eq!(verdict(chat(), &token[..token.len() - cut]), Verdict::Commit);
    }
    assert_eq!(
        cause(&verdict(chat(), &token[..token.len() - 4])),
        Cause::Protocol,
        "half a JSON is no event"
    );
}

#[test]
fn done_is_no_evidence_of_success() {
    assert_eq!(verdict(chat(), DONE), Verdict::Empty(NoToken));
    assert_eq!(verdict(chat(), &format!("{}{DONE}", delta(ROLE))), Verdict::Empty(NoToken));
    assert_eq!(verdict(chat(), &format!("{DONE}{}", delta(r#""content":"A""#))), Verdict::Empty(NoToken));
}

#[test]
fn an_end_without_any_marker_is_told_from_an_empty_answer() {
    assert_eq!(verdict(chat(), ""), Verdict::Empty(Nothing));
    assert_eq!(verdict(chat(), ": ping\n\n: ping\n\n"), Verdict::Empty(Nothing));
    assert_eq!(cause(&verdict(chat(), &delta(ROLE))), Cause::Truncated);
    let progress = data(
        r#"{"id":"c","model":"m","choices":[{"delta":{"role":"assistant","content":null}}],"prompt_progress":{"total":9,"processed":1}}"#,
    );
    assert_eq!(cause(&verdict(chat(), &progress)), Cause::Truncated, "it began, although nothing is held");
    let nameless = data(
        r#"{"id":"c","model":"","system_fingerprint":"fp_ollama","choices":[{"delta":{"role":"assistant","content":""}}]}"#,
    );
    assert_eq!(cause(&verdict(chat(), &nameless)), Cause::Crashed);
    assert_eq!(cause(&verdict(chat(), &format!("{nameless}{}", delta(ROLE)))), Cause::Truncated);
}

#[test]
fn stop_with_reported_tokens_is_policy() {
    let pass = Rules { on_empty_stop: OnEmptyStop::Pass, ..chat() };
    let stream = format!("{}{}{DONE}", stop(), usage(1));
    assert_eq!(verdict(chat(), &stream), Verdict::Empty(StopWithTokens));
    assert_eq!(verdict(pass, &stream), Verdict::Commit);
    for nothing in [format!("{}{}{DONE}", stop(), usage(0)), format!("{}{DONE}", stop()), stop()] {
        assert_eq!(verdict(chat(), &nothing), Verdict::Empty(NoToken));
        assert_eq!(verdict(pass, &nothing), Verdict::Empty(NoToken));
    }
    let length = format!("{}{}{DONE}", choice(r#""delta":{},"finish_reason":"length""#), usage(9));
    assert_eq!(verdict(pass, &length), Verdict::Empty(NoToken), "a limit that left nothing to show");
}

#[test]
fn one_allowed_token_makes_none_an_answer() {
    let tiny = Rules { tiny: true, ..chat() };
    for reason in ["stop", "length"] {
        let finish = choice(&format!(r#""delta":{{}},"finish_reason":"{reason}""#));
        assert_eq!(verdict(tiny, &format!("{finish}{DONE}")), Verdict::Commit);
        assert_eq!(verdict(chat(), &format!("{finish}{DONE}")), Verdict::Empty(NoToken));
    }
    assert_eq!(verdict(tiny, DONE), Verdict::Empty(NoToken), "but a marker alone is none");
    assert_eq!(cause(&verdict(tiny, &delta(ROLE))), Cause::Truncated);
}

#[test]
fn filters_and_loads_are_answers_at_once() {
    let filtered = choice(r#""delta":{},"finish_reason":"content_filter""#);
    let mut gate = gate(chat(), SIZE);
    assert_eq!(gate.push(filtered.as_bytes()).verdict, Some(Verdict::Commit));
    for (dialect, stream) in [
        (
            Dialect::OllamaChat,
            r#"{"model":"m","message":{"role":"assistant","content":""},"done":true,"done_reason":"load"}"#,
        ),
        (Dialect::OllamaGenerate, r#"{"model":"m","response":"","done":true,"done_reason":"unload"}"#),
        (Dialect::Gemini, "data: {\"promptFeedback\":{\"blockReason\":\"SAFETY\"}}"),
        (Dialect::Anthropic, "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"refusal\"}}"),
    ] {
        assert_eq!(verdict(rules(dialect), stream), Verdict::Commit, "{dialect:?}");
    }
}

#[test]
fn thinking_commits_unless_content_is_asked_for() {
    let thinking = delta(r#""reasoning_content":"hm""#);
    let content = Rules { commit_on: CommitOn::Content, ..chat() };
    assert_eq!(verdict(chat(), &thinking), Verdict::Commit);
    assert_eq!(cause(&verdict(content, &thinking)), Cause::Truncated);
    let (outcome, held) = judged(content, &format!("{thinking}{}", delta(r#""content":"A""#)));
    assert_eq!(outcome, Verdict::Commit);
    assert!(held.starts_with(&thinking), "what was thought is held, not lost");
    let error = data(r#"{"error":{"message":"CUDA out of memory"}}"#);
    assert_eq!(cause(&verdict(content, &format!("{thinking}{error}"))), Cause::CudaOom);
}

#[test]
fn a_model_swappers_banner_is_no_token() {
    let banner = data(r#"{"choices":[{"delta":{"reasoning_content":"loading model"}}]}"#);
    let shown = Rules { drop_anonymous_reasoning: false, ..chat() };
    assert_eq!(cause(&verdict(chat(), &banner)), Cause::Truncated);
    assert_eq!(verdict(shown, &banner), Verdict::Commit);
    assert_eq!(verdict(chat(), &format!("{banner}{}", delta(r#""content":"A""#))), Verdict::Commit);
    let content = Rules { commit_on: CommitOn::Content, ..shown };
    assert_eq!(cause(&verdict(content, &banner)), Cause::Truncated, "it is thinking still");
}

#[test]
fn a_finish_without_done_is_judged_when_time_is_up_or_the_connection_breaks() {
    let pass = Rules { on_empty_stop: OnEmptyStop::Pass, ..chat() };
    for (rules, stream, want) in [
        (chat(), stop(), Verdict::Empty(NoToken)),
        (chat(), format!("{}{}", stop(), usage(3)), Verdict::Empty(StopWithTokens)),
        (pass, format!("{}{}", stop(), usage(3)), Verdict::Commit),
        (Rules { tiny: true, ..chat() }, stop(), Verdict::Commit),
    ] {
        let mut expired = gate(rules, SIZE);
        assert_eq!(expired.push(stream.as_bytes()).verdict, None);
        assert_eq!(expired.expire(Cause::TimeoutFirstToken), want);
        let mut broken = gate(rules, SIZE);
        assert_eq!(broken.push(stream.as_bytes()).verdict, None);
        assert_eq!(broken.broken(Failure::new(Cause::Reset)), want);
    }
    let mut unfinished = gate(chat(), SIZE);
    assert_eq!(unfinished.push(delta(ROLE).as_bytes()).verdict, None);
    assert_eq!(cause(&unfinished.broken(Failure::new(Cause::Reset))), Cause::Reset);
    assert_eq!(cause(&unfinished.expire(Cause::TimeoutTotal)), Cause::TimeoutTotal);
}

#[test]
fn progress_is_recorded_and_not_held_and_hides_no_trouble() {
    let frame = |n: u64, more: &str| {
        data(&format!(
            r#"{{"id":"c","model":"m","choices":[{{"delta":{{"role":"assistant","content":null}}}}],"prompt_progress":{{"total":90,"processed":{n}}}{more}}}"#
        ))
    };
    let mut asked = gate(chat(), SIZE);
    assert_eq!(asked.push(format!("{}{}", frame(10, ""), frame(20, "")).as_bytes()).verdict, None);
    assert_eq!(asked.progress(), Some(Progress { processed: 20, total: 90 }));
    assert!(asked.held().is_empty());
    assert_eq!(cause(&asked.expire(Cause::TimeoutFirstToken)), Cause::TimeoutFirstToken);
    let mut clients = gate(Rules { drop_progress: false, ..chat() }, SIZE);
    assert_eq!(clients.push(frame(10, "").as_bytes()).verdict, None);
    assert_eq!(clients.held(), frame(10, "").as_bytes(), "the client asked for it");
    assert_eq!(clients.progress(), Some(Progress { processed: 10, total: 90 }));
    let failed = frame(30, r#","error":{"message":"CUDA out of memory"}"#);
    assert_eq!(cause(&verdict(chat(), &failed)), Cause::CudaOom);
}

#[test]
fn comments_of_any_length_never_fill_the_buffer() {
    let token = delta(r#""content":"A""#);
    for comment in [": keep-alive\n\n", ": keep-alive\n", ":\r\n", ": a\r"] {
        let mut gate = gate(chat(), SIZE);
        for _ in 0..SIZE {
            assert_eq!(gate.push(comment.as_bytes()).verdict, None, "{comment:?}");
            assert!(gate.held().len() <= SIZE);
        }
        assert_eq!(gate.push(token.as_bytes()).verdict, Some(Verdict::Commit), "{comment:?}");
        assert!(gate.held().ends_with(token.as_bytes()), "{comment:?}");
    }
    let mut line = gate(chat(), SIZE);
    assert_eq!(line.push(b":").verdict, None);
    for _ in 0..100 {
        assert_eq!(line.push(&[b'x'; 999]).verdict, None, "one comment line without end");
    }
    assert_eq!(line.push(format!("\n\n{token}").as_bytes()).verdict, Some(Verdict::Commit));
    assert_eq!(line.held(), token.as_bytes());
}

#[test]
fn ndjson_has_no_comments() {
    let mut gate = gate(rules(Dialect::OllamaChat), SIZE);
    assert_eq!(gate.push(&[b':'; SIZE]).verdict, None);
    assert_eq!(gate.push(b":").verdict, Some(Verdict::Overflow));
}

#[test]
fn anything_else_without_end_overflows() {
    for piece in
        [delta(ROLE), "data: x".to_owned(), "data: {\"a\":\"aaaaaaaaaaaa".to_owned(), "event: a\n".to_owned()]
    {
        let mut gate = gate(chat(), SIZE);
        let mut pushed = 0;
        let outcome = loop {
            let step = gate.push(piece.as_bytes());
            pushed += step.consumed;
            assert!(pushed <= SIZE, "never more than the buffer");
            if let Some(outcome) = step.verdict {
                break outcome;
            }
        };
        assert_eq!(outcome, Verdict::Overflow, "{piece}");
        assert_eq!(pushed, SIZE);
    }
}

#[test]
fn a_first_frame_larger_than_the_buffer_commits_if_its_beginning_shows_a_token() {
    let filler = "a".repeat(SIZE);
    for (big, want) in [
        (delta(&format!(r#""content":"{filler}""#)), Verdict::Commit),
        (delta(&format!(r#""x":"{filler}","content":"a""#)), Verdict::Overflow),
        (delta(&format!(r#""content":"","x":"{filler}""#)), Verdict::Overflow),
        (
            data(&format!(
                r#"{{"error":{{"message":"x"}},"choices":[{{"delta":{{"content":"{filler}"}}}}]}}"#
            )),
            Verdict::Overflow,
        ),
        (format!("<html>{filler}"), Verdict::Overflow),
    ] {
        let stream = format!("{}{big}", delta(ROLE));
        let mut gate = gate(chat(), SIZE);
        let step = gate.push(stream.as_bytes());
        assert_eq!(step.verdict, Some(want));
        assert_eq!(step.consumed, SIZE);
        assert_eq!(gate.held(), &stream.as_bytes()[..SIZE]);
    }
}

#[test]
fn the_buffer_goes_home_after_any_verdict_and_without_one() {
    let pool = Pool::new(1, SIZE);
    for stream in
        [delta(r#""content":"A""#), DONE.to_owned(), "<html>\n\n".to_owned(), String::new(), delta(ROLE)]
    {
        let mut gate = Gate::new(chat(), pool.take().unwrap());
        let _verdict = gate.push(stream.as_bytes());
        assert_eq!(pool.in_use(), 1);
        drop(gate);
        assert_eq!(pool.in_use(), 0);
        let buffer = Gate::new(chat(), pool.take().unwrap()).into_buffer();
        assert_eq!((pool.in_use(), buffer.bytes().len()), (1, SIZE));
    }
    assert_eq!(pool.in_use(), 0);
}
