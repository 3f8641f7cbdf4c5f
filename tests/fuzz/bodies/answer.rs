//! A server's answer after the gate: inspection, classification, the relay, and edgeward's own words.

use bytes::Bytes;
use edgeward::config::{CommitOn, OnEmptyStop};
use edgeward::dialect::event::Facts;
use edgeward::dialect::reply::Problem;
use edgeward::dialect::{
    classify, classify_status, error_text, inspect_answer, inspect_answer_prefix, inspect_event,
};
use edgeward::gate::{Rules, answer};
use edgeward::proxy::relay::{Edits, Relay, Said};
use edgeward::wire::{Framing, json};
use serde_json::value::RawValue;

use super::stream::{Heard, Input, check_ranges, hear, heard, pieces};

/// The name that clients see, where an option says so.
const NAME: &str = "\"asked-for\"";

pub fn run(data: &[u8]) {
    let Some(input) = Input::read(data) else { return };
    whole_answer(&input);
    error_body(&input);
    untouched(&input);
    edited(&input);
    held(&input);
}

fn whole_answer(input: &Input<'_>) {
    let body = input.stream;
    let rules = Rules {
        dialect: input.dialect,
        commit_on: CommitOn::Any,
        on_empty_stop: if input.option(3) { OnEmptyStop::Pass } else { OnEmptyStop::FailoverOnce },
        drop_anonymous_reasoning: input.option(4),
        tiny: input.option(5),
        drop_progress: false,
    };
    let (_, facts) = answer::judge(rules, body);
    check_ranges(&facts, body);
    check_ranges(&inspect_answer(input.dialect, body), body);
    let _ = answer::judge_beginning(rules, body);
    let object = body.trim_ascii_start().starts_with(b"{");
    let good = object && json::profile(body).is_ok() && is_json(body);
    assert!(!good || !facts.alien, "an object is alien");
    for end in (0..=body.len()).step_by(1 + body.len() / 16) {
        let facts = inspect_answer_prefix(input.dialect, &body[..end]);
        check_ranges(&facts, &body[..end]);
        assert!(!good || !facts.alien, "the beginning of an object, {end} bytes, is alien");
    }
}

fn error_body(input: &Input<'_>) {
    let body = input.stream;
    let status = 100 + input.plan % 900;
    let _ = (classify(None, body), classify(Some(status), body), classify_status(status, body));
    assert!(body.get(error_text(body)).is_some(), "an error's text is outside its body");
    let problem = Problem::new(status, "code", format!("box: {}", String::from_utf8_lossy(body)));
    assert!(is_json(&problem.body(input.dialect)));
    let event = problem.event(input.dialect);
    let (pieces, between) = pieces(input.dialect.framing(), &[&event]);
    assert!(pieces.len() == 1 && between, "an error is one event");
    let mut join = vec![0; event.len()];
    assert!(inspect_event(input.dialect, &event, &mut join).error.is_some(), "an error is read as one");
}

/// Without edits a stream passes byte for byte, up to an error in it.
fn untouched(input: &Input<'_>) {
    let relayed = relay(input, Edits::default(), &input.chunks());
    if relayed.said.error.is_some() {
        assert!(input.stream.starts_with(&relayed.out), "not what came");
        return;
    }
    let Some(added) = relayed.out.strip_prefix(input.stream) else {
        // Half an event at the end is not passed on.
        assert!(input.stream.starts_with(&relayed.out), "not what came");
        let (_, between) = pieces(input.dialect.framing(), &[input.stream]);
        assert!(!between, "a whole event is missing");
        return;
    };
    let (_, between) = pieces(input.dialect.framing(), &[input.stream]);
    assert!(added.is_empty() || !between && added.iter().all(|byte| *byte == b'\n'), "added {added:?}");
    assert!(relayed.between, "the next event would be part of the last one");
}

/// With edits it says the same, but for what they change, whatever way it was cut.
fn edited(input: &Input<'_>) {
    let edits = Edits {
        hide_thinking: false,
        hide_usage: input.option(0),
        hide_progress: input.option(1),
        model: input.option(2).then(|| Bytes::from_static(NAME.as_bytes())),
        ..Edits::default()
    };
    let whole = relay(input, edits.clone(), &[input.stream]);
    let cut = relay(input, edits.clone(), &input.chunks());
    assert_eq!(whole.heard, cut.heard);
    assert_eq!(whole.said.error.is_some(), cut.said.error.is_some());
    assert_eq!((whole.said.finished, whole.said.done), (cut.said.finished, cut.said.done));
    if whole.said.error.is_some() {
        return;
    }
    let came = came(input);
    let hidden = |heard: &Heard| {
        let facts = &heard.facts;
        edits.hide_usage && facts.usage_only
            || edits.hide_progress && facts.progress.is_some() && !facts.content && !facts.thinking
    };
    // Of one that is hidden what else it says may be there.
    let mut goes = whole.heard.iter().peekable();
    for was in &came {
        if hidden(was) {
            let what_else = |is: &&Heard| was.facts.besides != 0 && is.facts.besides == was.facts.besides;
            if let Some(is) = goes.next_if(|is| what_else(is) && is.facts.usage.is_none()) {
                assert!(!is_json(data(was)) || is_json(data(is)), "{:?}", String::from_utf8_lossy(data(is)));
            }
            continue;
        }
        let Some(is) = goes.next() else { panic!("an event is missing: {:?}", whole.heard) };
        let (was_data, is_data) = (data(was), data(is));
        assert!(!is_json(was_data) || is_json(is_data), "{:?}", String::from_utf8_lossy(is_data));
        assert_eq!(but_for_the_name(was), but_for_the_name(is));
        assert!(!edits.hide_usage || !is.usage_null || !is_json(was_data) || doubled(was_data));
        match (&was.model, &is.model) {
            (Some(_), Some(name)) if edits.model.is_some() => assert_eq!(name, NAME.as_bytes()),
            (was, is) => assert_eq!(was, is),
        }
    }
    assert!(goes.next().is_none(), "one too many: {:?}", whole.heard);
}

/// What the gate held is released without its comments, and otherwise as it came.
fn held(input: &Input<'_>) {
    let mut relay = Relay::new(input.dialect, Edits::default());
    let mut out = Vec::new();
    relay.held(Bytes::copy_from_slice(input.stream), &mut out);
    relay.end(&mut out);
    if relay.said().error.is_some() {
        return;
    }
    let without = |mut heard: Heard| {
        heard.facts.comments = false;
        heard
    };
    let came = came(input);
    let went = heard(input.dialect, &pieces(input.dialect.framing(), &[&out.concat()]).0);
    assert!(went.iter().all(|heard| !heard.facts.comments), "a comment passed");
    assert_eq!(came.into_iter().map(without).collect::<Vec<_>>(), went);
}

/// What the stream says with the line end that a cut last event is given; half an event is not passed on.
fn came(input: &Input<'_>) -> Vec<Heard> {
    let framing = input.dialect.framing();
    let mut stream = input.stream.to_vec();
    let (pieces_of_it, between) = pieces(framing, &[&stream]);
    if !between {
        let last = pieces_of_it.last().map_or(0, Vec::len);
        let facts = hear(input.dialect, &stream[stream.len() - last..]).facts;
        if facts.alien && facts.error.is_none() {
            stream.truncate(stream.len() - last);
        } else {
            stream.extend_from_slice(match framing {
                Framing::Sse => b"\n\n",
                Framing::Ndjson => b"\n",
            });
        }
    }
    heard(input.dialect, &pieces(framing, &[&stream]).0)
}

struct Relayed {
    out: Vec<u8>,
    heard: Vec<Heard>,
    between: bool,
    said: Said,
}

fn relay(input: &Input<'_>, edits: Edits, chunks: &[&[u8]]) -> Relayed {
    let mut relay = Relay::new(input.dialect, edits);
    let mut out = Vec::new();
    for chunk in chunks {
        relay.push(Bytes::copy_from_slice(chunk), &mut out);
        assert!(!relay.cut_inside_event() || input.stream.len() > edgeward::limits::RELAY_EVENT_BYTES);
    }
    relay.end(&mut out);
    assert!(out.iter().all(|slice| !slice.is_empty()), "an empty slice would end a chunked body");
    let out = out.concat();
    let (pieces, between) = pieces(input.dialect.framing(), &[&out]);
    Relayed { heard: heard(input.dialect, &pieces), between, said: relay.said().clone(), out }
}

/// An empty name says something, and is replaced, too.
fn but_for_the_name(heard: &Heard) -> Facts {
    Facts { nameless: false, ..heard.facts.clone() }
}

fn data(heard: &Heard) -> &[u8] {
    heard.data.as_deref().unwrap_or_default()
}

fn is_json(bytes: &[u8]) -> bool {
    serde_json::from_slice::<&RawValue>(bytes).is_ok()
}

/// A key may be given twice: only the last one is looked at.
fn doubled(data: &[u8]) -> bool {
    data.windows(4).filter(|bytes| bytes == b"null").count() > 1
}
