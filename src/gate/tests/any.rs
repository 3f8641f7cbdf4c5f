//! Any sequence of frames, cut anywhere, ending in any way.

use proptest::prelude::*;

use super::frames::{Is, STREAMING, of};
use super::*;

/// How a stream stops.
#[derive(Clone, Copy, Debug)]
enum Stops {
    Ends,
    Breaks,
    Expires,
}

/// A stream, and how it is cut and stops.
#[derive(Clone, Debug)]
struct Play {
    rules: Rules,
    frames: Vec<(Is, String)>,
    cuts: Vec<usize>,
    stops: Stops,
}

fn plays() -> impl Strategy<Value = Play> {
    let rules = (0..STREAMING.len(), any::<bool>(), any::<bool>()).prop_map(|(dialect, pass, tiny)| Rules {
        on_empty_stop: if pass { OnEmptyStop::Pass } else { OnEmptyStop::FailoverOnce },
        tiny,
        ..rules(STREAMING[dialect])
    });
    let stops = prop_oneof![Just(Stops::Ends), Just(Stops::Breaks), Just(Stops::Expires)];
    // Mostly frames that decide nothing, or every stream would be over with its second frame.
    let picks = prop::collection::vec((any::<prop::sample::Index>(), 0..8_u8), 0..12);
    let cuts = prop::collection::vec(1..90_usize, 1..20);
    (rules, picks, cuts, stops, any::<bool>()).prop_map(|(rules, picks, cuts, stops, crlf)| {
        let (quiet, all): (Vec<_>, Vec<_>) = {
            let all = of(rules.dialect);
            (all.iter().filter(|(is, _)| matches!(is, Is::Comment | Is::Noise)).cloned().collect(), all)
        };
        let line_end = |text: String| if crlf { text.replace('\n', "\r\n") } else { text };
        let frames = picks
            .into_iter()
            .map(|(at, decides)| if decides == 0 { at.get(&all).clone() } else { at.get(&quiet).clone() })
            .map(|(is, text)| (is, line_end(text)))
            .collect();
        Play { rules, frames, cuts, stops }
    })
}

/// What the gate must come to, by what each frame *is*, not by what is in it; and after how many frames.
fn expected(play: &Play) -> (Expected, usize) {
    let (mut finish, mut tokens, mut began) = (None, false, false);
    let over = |finish: Option<Is>, tokens: bool, marked: bool, began: bool| match finish {
        Some(_) if play.rules.tiny => Expected::Commit,
        Some(Is::Stop) if tokens && play.rules.on_empty_stop == OnEmptyStop::Pass => Expected::Commit,
        Some(Is::Stop) if tokens => Expected::Empty(StopWithTokens),
        Some(_) => Expected::Empty(NoToken),
        None if marked => Expected::Empty(NoToken),
        None if began => Expected::Failed,
        None => Expected::Empty(Nothing),
    };
    for (at, (is, _)) in play.frames.iter().enumerate() {
        began |= *is != Is::Comment;
        match is {
            Is::Comment | Is::Noise => {}
            Is::Token | Is::Whole => return (Expected::Commit, at + 1),
            Is::Error | Is::Alien => return (Expected::Failed, at + 1),
            Is::Stop | Is::Length => finish = Some(*is),
            Is::Tokens => tokens = true,
            Is::Done => return (over(finish, tokens, true, began), at + 1),
            Is::StopDone => return (over(Some(Is::Stop), tokens, true, began), at + 1),
        }
    }
    let end = match (play.stops, finish) {
        (Stops::Ends, _) | (_, Some(_)) => over(finish, tokens, false, began),
        (Stops::Breaks | Stops::Expires, None) => Expected::Failed,
    };
    (end, play.frames.len())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    Commit,
    Failed,
    Empty(Emptiness),
}

fn of_verdict(verdict: &Verdict) -> Expected {
    match verdict {
        Verdict::Commit => Expected::Commit,
        Verdict::Failed(_) | Verdict::Overflow => Expected::Failed,
        Verdict::Empty(emptiness) => Expected::Empty(*emptiness),
    }
}

/// The events of held bytes, line ends as LF. A CR that ends a chunk ends its line there, so that its LF
/// counts to what follows: a blank line more or less between two events says nothing.
fn plain(bytes: &[u8]) -> Vec<String> {
    let text = String::from_utf8(bytes.to_vec()).unwrap().replace("\r\n", "\n").replace('\r', "\n");
    let events = text.split("\n\n").map(|event| event.trim_matches('\n').to_owned());
    events.filter(|event| !event.is_empty()).collect()
}

/// A verdict, but for where in its words a line end stands.
fn said(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Failed(failure) => {
            format!("{} {}", failure.cause, failure.detail.split_whitespace().collect::<Vec<_>>().join(" "))
        }
        Verdict::Commit | Verdict::Empty(_) | Verdict::Overflow => format!("{verdict:?}"),
    }
}

fn chunks<'a>(stream: &'a [u8], cuts: &'a [usize]) -> impl Iterator<Item = &'a [u8]> {
    let mut at = 0;
    cuts.iter().cycle().map_while(move |cut| {
        let start = at;
        at = (at + cut).min(stream.len());
        (start < stream.len()).then(|| &stream[start..at])
    })
}

/// Pushes a stream in pieces: the verdict, what was held, how many bytes were taken.
fn run(gate: &mut Gate, stream: &[u8], cuts: &[usize], stops: Stops) -> (Verdict, usize) {
    let mut taken = 0;
    for chunk in chunks(stream, cuts) {
        let step = gate.push(chunk);
        taken += step.consumed;
        assert!(gate.held().len() <= taken && gate.held().len() <= gate.buffer.bytes().len());
        match step.verdict {
            Some(verdict) => return (verdict, taken),
            None => assert_eq!(step.consumed, chunk.len(), "less than the chunk only with a verdict"),
        }
    }
    let verdict = match stops {
        Stops::Ends => gate.end(),
        Stops::Breaks => gate.broken(Failure::new(Cause::Reset)),
        Stops::Expires => gate.expire(Cause::TimeoutFirstToken),
    };
    (verdict, taken)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// No sequence commits without a token (or an answer that has none by right), and each that has one
    /// does, with that frame; nothing is lost, reordered, or held of what comes after.
    #[test]
    fn a_stream_comes_to_what_its_frames_are(play in plays()) {
        let stream: String = play.frames.iter().map(|(_, text)| text.as_str()).collect();
        let (want, frames) = expected(&play);
        let pool = Pool::new(1, 64 * 1024);
        let mut gate = Gate::new(play.rules, pool.take().unwrap());
        let (verdict, taken) = run(&mut gate, stream.as_bytes(), &play.cuts, play.stops);
        prop_assert_eq!(of_verdict(&verdict), want, "{:?}", verdict);
        let until: usize = play.frames[..frames].iter().map(|(_, text)| text.len()).sum();
        // A verdict may come with the CR of the event's CRLF, if the chunk ended there.
        prop_assert!(taken == until || (taken + 1 == until && stream.as_bytes()[taken] == b'\n'), "{} {}", taken, until);
        let held: String = play.frames[..frames].iter().filter(|(is, _)| *is != Is::Comment).map(|(_, text)| text.as_str()).collect();
        prop_assert_eq!(plain(gate.held()), plain(held.as_bytes()));
        prop_assert_eq!(pool.in_use(), 1);
        drop(gate);
        prop_assert_eq!(pool.in_use(), 0);
    }

    #[test]
    fn any_cut_gives_the_same(play in plays(), other in prop::collection::vec(1..9_usize, 1..9)) {
        let stream: String = play.frames.iter().map(|(_, text)| text.as_str()).collect();
        let mut whole = gate(play.rules, 64 * 1024);
        let mut cut = gate(play.rules, 64 * 1024);
        let one = run(&mut whole, stream.as_bytes(), &[usize::MAX / 2], play.stops);
        let many = run(&mut cut, stream.as_bytes(), &other, play.stops);
        prop_assert_eq!(said(&one.0), said(&many.0));
        prop_assert_eq!(plain(whole.held()), plain(cut.held()));
    }

    /// However the buffer runs full: what is held is bounded, and a prefix of what came, but for comments.
    #[test]
    fn a_small_buffer_is_never_exceeded(play in plays(), size in 8..400_usize) {
        let stream: String = play.frames.iter().map(|(_, text)| text.as_str()).collect();
        let mut gate = gate(play.rules, size);
        let (verdict, taken) = run(&mut gate, stream.as_bytes(), &play.cuts, play.stops);
        prop_assert!(gate.held().len() <= size);
        if verdict == Verdict::Commit {
            prop_assert_eq!(of_verdict(&verdict), expected(&play).0, "an overflow is never a commit");
        }
        let mut rest = stream.as_bytes()[..taken].iter();
        prop_assert!(gate.held().iter().all(|byte| rest.any(|came| came == byte)), "in order");
    }

    #[test]
    fn arbitrary_bytes_never_panic(
        dialect in 0..STREAMING.len(),
        bytes in prop::collection::vec(prop_oneof![any::<u8>(), prop::sample::select(b"\r\n: {}[]\"\\data".to_vec())], 0..600),
        cuts in prop::collection::vec(1..40_usize, 1..9),
        size in 1..200_usize,
    ) {
        let mut gate = gate(rules(STREAMING[dialect]), size);
        let (verdict, _) = run(&mut gate, &bytes, &cuts, Stops::Ends);
        prop_assert_ne!(verdict, Verdict::Commit);
        prop_assert!(gate.held().len() <= size);
    }
}
