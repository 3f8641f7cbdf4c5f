//! The simulated servers' cases as data: what they send as a stream, played into the gate.

use std::time::Duration;

use super::*;
use crate::sim::cases::{Case, End, all};
use crate::sim::script::{Head, Op};

/// The gate's subject: a 200 that promises this dialect's stream.
fn is_stream(case: &Case, head: &Head) -> bool {
    let promised = match case.dialect.framing() {
        Framing::Sse => "text/event-stream",
        Framing::Ndjson => "application/x-ndjson",
    };
    case.stream && head.status == 200 && head.content_type.starts_with(promised)
}

/// A case's ops in order, repetitions unrolled.
fn unrolled(ops: &[Op]) -> Vec<Op> {
    let mut flat = Vec::new();
    for op in ops {
        match op {
            Op::Every { gap, times, op } => {
                for _ in 0..*times {
                    flat.extend([(**op).clone(), Op::Wait(*gap)]);
                }
            }
            op => flat.push(op.clone()),
        }
    }
    flat
}

/// The verdict on a case's stream; `None` where it sends none, or frames its bytes itself.
fn played(case: &Case, pieces: usize) -> Option<Verdict> {
    let ops = unrolled(&case.script.ops);
    let mut gate = gate(
        Rules { drop_progress: case.kind == "llamacpp", ..rules(case.dialect) },
        crate::limits::GATE_BUFFER,
    );
    let (mut time, mut streams) = (Duration::ZERO, false);
    for op in &ops {
        match op {
            Op::Head(head) if is_stream(case, head) => streams = true,
            Op::Head(_) | Op::Reply(..) | Op::Raw(_) | Op::Refuse => return None,
            Op::Wait(wait) | Op::Hang(wait) => {
                time += *wait;
                if time > case.first_token {
                    return streams.then(|| gate.expire(Cause::TimeoutFirstToken));
                }
            }
            Op::Chunk(bytes) | Op::Bytes(bytes) => {
                for chunk in bytes.chunks(pieces) {
                    if let Some(verdict) = gate.push(chunk).verdict {
                        return Some(verdict);
                    }
                }
            }
            Op::End | Op::EndClose if streams => return Some(gate.end()),
            Op::Cut if streams => return Some(gate.broken(Failure::new(Cause::Closed))),
            Op::Reset if streams => return Some(gate.broken(Failure::new(Cause::Reset))),
            Op::End | Op::EndClose | Op::Cut | Op::Reset | Op::Every { .. } => return None,
        }
    }
    streams.then(|| gate.expire(Cause::TimeoutFirstToken))
}

#[test]
fn every_streams_verdict_is_the_one_its_case_wants() {
    let mut judged = 0;
    for case in all().unwrap() {
        for pieces in [usize::MAX, 7, 1] {
            let Some(verdict) = played(&case, pieces) else { continue };
            judged += usize::from(pieces == 1);
            let cause = match &verdict {
                Verdict::Commit => None,
                Verdict::Failed(failure) => Some(failure.cause),
                Verdict::Empty(_) => Some(Cause::Empty),
                Verdict::Overflow => Some(Cause::Overflow),
            };
            let what = format!("{} in pieces of {pieces}: {verdict:?}", case.id);
            match case.end {
                // What comes after the commit is the relay's.
                End::Pass | End::MidstreamError => assert_eq!(cause, None, "{what}"),
                End::Failover => assert!(cause.is_some_and(|cause| case.causes.contains(&cause)), "{what}"),
                End::ClientFault => panic!("{what}: a refusal is no stream"),
            }
        }
    }
    assert!(judged > 130, "{judged}");
}

#[test]
fn geminis_cases_are_among_them() {
    let gemini: Vec<_> = all().unwrap().into_iter().filter(|case| case.dialect == Dialect::Gemini).collect();
    assert!(gemini.len() >= 6);
    for case in gemini {
        assert!(played(&case, 1).is_some(), "{}: nothing else plays it", case.id);
    }
}
