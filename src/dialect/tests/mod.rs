//! What each frame that servers are known to send says, as tables; and what holds for any bytes.

mod any;
mod cases;
mod openai;
mod others;

use super::event::{Facts, Finish};
use super::{Dialect, inspect_answer, inspect_event};

/// Facts as words, in a fixed order; empty: the frame says nothing.
fn words(facts: &Facts) -> String {
    let mut words: Vec<String> = Vec::new();
    let flags = [
        (facts.content, "content"),
        (facts.thinking, "thinking"),
        (facts.anonymous_thinking, "anonymous"),
        (facts.usage_only, "usage_only"),
        (facts.done, "done"),
        (facts.alien, "alien"),
        (facts.nameless, "nameless"),
    ];
    words.extend(flags.iter().filter(|(set, _)| *set).map(|(_, word)| (*word).to_owned()));
    if let Some(finish) = facts.finish {
        words.push(
            match finish {
                Finish::Stop => "stop",
                Finish::Length => "length",
                Finish::Filtered => "filtered",
                Finish::Loaded => "loaded",
                Finish::Failed => "failed",
            }
            .to_owned(),
        );
    }
    if let Some(usage) = facts.usage {
        let count = |count: Option<u64>| count.map_or("-".to_owned(), |count| count.to_string());
        words.push(format!("{}/{}", count(usage.prompt), count(usage.completion)));
    }
    if let Some(progress) = facts.progress {
        words.push(format!("progress={}/{}", progress.processed, progress.total));
    }
    if let Some(error) = &facts.error {
        words.push(format!("error={}", error.cause));
    }
    words.join(" ")
}

/// The facts of one raw event, with the ranges checked to lie in it.
fn facts(dialect: Dialect, raw: &[u8]) -> Facts {
    let mut join = vec![0; raw.len()];
    let facts = inspect_event(dialect, raw, &mut join);
    check_ranges(&facts, raw);
    facts
}

fn check_ranges(facts: &Facts, bytes: &[u8]) {
    if let Some(model) = &facts.model {
        assert!(serde_json::from_slice::<serde_json::Value>(&bytes[model.clone()]).unwrap().is_string());
    }
    if let Some(null) = &facts.usage_null {
        assert_eq!(&bytes[null.clone()], b"null");
    }
    if let Some(error) = &facts.error {
        assert!(bytes.get(error.text.clone()).is_some());
    }
    assert!(facts.finish != Some(Finish::Failed) || facts.error.is_some());
}

/// What one frame's JSON says, framed as its dialect frames it.
fn frame(dialect: Dialect, json: &str) -> String {
    let raw = match dialect.framing() {
        crate::wire::Framing::Sse => format!("data: {json}\n\n"),
        crate::wire::Framing::Ndjson => format!("{json}\n"),
    };
    words(&facts(dialect, raw.as_bytes()))
}

fn frames(dialect: Dialect, table: &[(&str, &str)]) {
    for (json, says) in table {
        assert_eq!(frame(dialect, json), *says, "{json}");
    }
}

/// As [`frames`], for events with names or more: raw SSE.
fn events(dialect: Dialect, table: &[(&str, &str)]) {
    for (raw, says) in table {
        assert_eq!(words(&facts(dialect, raw.as_bytes())), *says, "{raw}");
    }
}

fn answers(dialect: Dialect, table: &[(&str, &str)]) {
    for (json, says) in table {
        let facts = inspect_answer(dialect, json.as_bytes());
        check_ranges(&facts, json.as_bytes());
        assert_eq!(words(&facts), *says, "{json}");
    }
}
