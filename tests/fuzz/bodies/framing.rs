//! Framing and the gate: whatever way a stream is cut, it says the same and is judged the same.

use edgeward::config::{CommitOn, OnEmptyStop};
use edgeward::dialect::{Dialect, inspect_cut, inspect_event};
use edgeward::gate::pool::Pool;
use edgeward::gate::{Gate, Rules, Verdict};
use edgeward::wire::{Framing, sse};

use super::stream::{Heard, Input, check_ranges, heard, pieces};

/// Soon full.
const SMALL: usize = 48;

pub fn run(data: &[u8]) {
    let Some(input) = Input::read(data) else { return };
    let framing = input.dialect.framing();
    let chunks = input.chunks();
    let (whole, between) = pieces(framing, &[input.stream]);
    let (cut, cut_between) = pieces(framing, &chunks);
    assert_eq!(whole.concat(), input.stream);
    assert_eq!(cut.concat(), input.stream);
    assert_eq!(between, cut_between);
    let said = heard(input.dialect, &whole);
    assert_eq!(said, heard(input.dialect, &cut));
    if framing == Framing::Sse {
        by_the_book(input.stream, &whole);
    }
    for piece in &whole {
        inspection(&input, piece);
    }
    gate(&input, &chunks);
}

/// The same data as a reader gives that knows whole streams only.
fn by_the_book(stream: &[u8], pieces: &[Vec<u8>]) {
    const MARK: &[u8] = b"\xEF\xBB\xBF";
    if stream.windows(3).any(|bytes| bytes == MARK) {
        return;
    }
    let mut lines = Vec::new();
    let mut line = Vec::new();
    let mut bytes = stream.iter().peekable();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\r' | b'\n' => {
                if *byte == b'\r' {
                    bytes.next_if(|next| **next == b'\n');
                }
                lines.push(std::mem::take(&mut line));
            }
            other => line.push(*other),
        }
    }
    lines.push(line);
    lines.push(Vec::new());
    let mut expected = Vec::new();
    let mut data: Option<Vec<u8>> = None;
    for line in lines {
        let value = match line.strip_prefix(b"data") {
            Some(b"") => Some(&b""[..]),
            Some(rest) => rest.strip_prefix(b":").map(|value| value.strip_prefix(b" ").unwrap_or(value)),
            None => None,
        };
        match (&mut data, value) {
            (Some(so_far), Some(value)) => {
                so_far.push(b'\n');
                so_far.extend_from_slice(value);
            }
            (None, Some(value)) => data = Some(value.to_vec()),
            (_, None) if line.is_empty() => expected.extend(data.take()),
            (_, None) => {}
        }
    }
    let found = pieces.iter().filter_map(|piece| {
        let mut join = vec![0; piece.len()];
        sse::parse(piece, &mut join).ok().and_then(|event| event.data.map(<[u8]>::to_vec))
    });
    assert_eq!(found.collect::<Vec<_>>(), expected);
}

/// Too little room for joined data, and a cut event, are judged by what is there.
fn inspection(input: &Input<'_>, piece: &[u8]) {
    let framing = input.dialect.framing();
    let mut join = [0; 16];
    check_ranges(&inspect_event(input.dialect, piece, &mut join), piece);
    let mut room = vec![0; piece.len()];
    let facts = inspect_event(input.dialect, piece, &mut room);
    let event = sse::parse(piece, &mut room);
    let good = !facts.alien
        && facts.error.is_none()
        && match (framing, event) {
            (Framing::Ndjson, _) => true,
            (Framing::Sse, Ok(event)) => {
                // Whatever a whole ping's body is, it is excused.
                let ping = matches!(event.name, b"ping" | b"heartbeat" | b"keep-alive");
                let object = event.data_at.is_some_and(|at| piece[at].starts_with(b"{"));
                event.stray.is_none() && object && !ping
            }
            (Framing::Sse, Err(_)) => false,
        };
    let step = 1 + piece.len() / 8;
    for end in (0..=piece.len()).step_by(step) {
        let start = &piece[..end];
        let cut = inspect_cut(input.dialect, framing, start);
        check_ranges(&cut, start);
        assert!(!good || !cut.alien, "the beginning of {:?} is alien", String::from_utf8_lossy(piece));
    }
}

fn gate(input: &Input<'_>, chunks: &[&[u8]]) {
    let rules = Rules {
        dialect: input.dialect,
        commit_on: if input.option(0) { CommitOn::Content } else { CommitOn::Any },
        on_empty_stop: if input.option(1) { OnEmptyStop::Pass } else { OnEmptyStop::FailoverOnce },
        drop_anonymous_reasoning: input.option(2),
        tiny: input.option(3),
        drop_progress: input.option(4),
    };
    // All of it, and room to join all of it.
    let large = 2 * input.stream.len() + 1;
    let whole = judged(rules, large, &[input.stream]);
    let cut = judged(rules, large, chunks);
    match (&whole.verdict, &cut.verdict) {
        // Its words are those at the same place, but may begin with the other half of a line's end.
        (Verdict::Failed(a), Verdict::Failed(b)) => assert_eq!(a.cause, b.cause),
        (a, b) => assert_eq!(a, b),
    }
    assert_eq!(whole.at_end, cut.at_end);
    assert_eq!(whole.said(rules.dialect), cut.said(rules.dialect));
    if whole.verdict == Verdict::Commit && !rules.tiny {
        let answers = |heard: &Heard| {
            let facts = &heard.facts;
            facts.content || facts.thinking || facts.anonymous_thinking || facts.finish.is_some()
        };
        assert!(whole.said(rules.dialect).iter().any(answers), "committed without a token or a finish");
    }
    judged(rules, SMALL, chunks);
}

struct Judged {
    verdict: Verdict,
    /// Only the stream's end brought it.
    at_end: bool,
    held: Vec<u8>,
}

impl Judged {
    fn said(&self, dialect: Dialect) -> Vec<Heard> {
        heard(dialect, &pieces(dialect.framing(), &[&self.held]).0)
    }
}

fn judged(rules: Rules, size: usize, chunks: &[&[u8]]) -> Judged {
    let pool = Pool::new(1, size);
    let Some(buffer) = pool.take() else { unreachable!("a new pool") };
    let mut gate = Gate::new(rules, buffer);
    let mut taken = Vec::new();
    let mut verdict = None;
    for chunk in chunks {
        let step = gate.push(chunk);
        taken.extend_from_slice(&chunk[..step.consumed]);
        assert!(step.verdict.is_some() || step.consumed == chunk.len(), "bytes left without a verdict");
        verdict = step.verdict;
        if verdict.is_some() {
            break;
        }
    }
    let at_end = verdict.is_none();
    let verdict = verdict.unwrap_or_else(|| gate.end());
    let held = gate.held().to_vec();
    let mut left = taken.iter();
    assert!(held.iter().all(|byte| left.any(|other| other == byte)), "held what never came, or reordered");
    drop(gate);
    assert_eq!(pool.in_use(), 0, "a buffer outlived its gate");
    Judged { verdict, at_end, held }
}
