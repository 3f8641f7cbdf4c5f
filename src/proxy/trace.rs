//! What `edgeward record` gets of a running one: the watchdog's samples, events and decisions since it last asked. Nothing
//! is kept while nobody asks.

use std::time::Instant;

use http::{Request, Response, StatusCode};
use hyper::body::Incoming;

use super::auth::Client;
use super::gateway::Gateway;
use super::operator;
use super::outlet::ClientBody;
use super::server::text;
use crate::dialect::reply::Problem;
use crate::limits;
use crate::memory::recorder::{self, Entry};
use crate::memory::{Decision, Event, Sample, State};
use crate::time::now;

/// Lines that nobody has fetched yet. For one who records: two would have half of it each.
#[derive(Debug, Default)]
pub struct Tap {
    lines: Vec<u8>,
    /// When it was last asked for.
    asked: Option<Instant>,
    /// It has begun: what is known so far is in it.
    begun: bool,
}

impl Tap {
    /// Whether somebody records.
    fn is_open(&self, at: Instant) -> bool {
        self.asked.is_some_and(|asked| at.saturating_duration_since(asked) < limits::MEMORY_TAP_TIME)
    }

    /// Whether somebody else who records would lose lines to one who begins.
    fn is_held(&self, at: Instant) -> bool {
        self.asked.is_some_and(|asked| at.saturating_duration_since(asked) < limits::MEMORY_TAP_HELD)
    }

    /// A look, with the events before it; `state` is as it was before those.
    pub fn before(&mut self, state: &State, events: &[Event], at: Instant) {
        if !self.is_open(at) {
            if self.begun {
                *self = Tap::default();
            }
            return;
        }
        if !std::mem::replace(&mut self.begun, true) {
            self.put(&Entry::Terms(*state.terms()));
            state.known().into_iter().for_each(|(at, number)| self.put(&Entry::Known(at, number)));
        }
        events.iter().for_each(|event| self.put(&Entry::Event(state.elapsed(at), *event)));
    }

    /// And what was decided on it.
    pub fn after(&mut self, state: &State, sample: &Sample, decision: &Decision, at: Instant) {
        if self.begun {
            self.put(&Entry::Sample(state.elapsed(at), *sample, *decision));
        }
    }

    /// By other terms from here on.
    pub fn terms(&mut self, state: &State) {
        if self.begun {
            self.put(&Entry::Terms(*state.terms()));
        }
    }

    /// Lines for who asks with `query`.
    ///
    /// # Errors
    /// Another one records.
    fn answer(&mut self, query: Option<&str>, at: Instant) -> Result<Vec<u8>, Problem> {
        if query == Some("begin") {
            if self.is_held(at) {
                return Err(Problem::new(
                    409,
                    "already_recording",
                    "another `edgeward record` is running; wait for its end, or stop it",
                ));
            }
            *self = Tap::default();
        }
        self.asked = Some(at);
        let lines = std::mem::take(&mut self.lines);
        if query == Some("end") {
            *self = Tap::default();
        }
        Ok(lines)
    }

    fn put(&mut self, entry: &Entry) {
        let mut line = [0; limits::MEMORY_LINE_BYTES];
        // Of what is not fetched in time the newest is left out.
        if let Some(line) = recorder::write(entry, &mut line).and_then(|length| line.get(..length))
            && self.lines.len() + line.len() <= limits::MEMORY_TAP_BYTES
        {
            self.lines.extend_from_slice(line);
        }
    }
}

/// `POST /edgeward/trace`: the lines since the last time; from the first time on there are some. With `?begin` it is a
/// trace of its own from here on: what somebody recorded a moment ago is not gone on with. With `?end` these are the last.
///
/// # Errors
/// 403 for who is no operator; 409 for who begins while another one records.
pub fn answer(
    gateway: &Gateway,
    client: &Client,
    request: &Request<Incoming>,
) -> Result<Response<ClientBody>, Problem> {
    operator::may_change(client, request.headers())?;
    let mut tap = gateway.process.tap.borrow_mut();
    tap.answer(request.uri().query(), now()).map(|lines| text(StatusCode::OK, lines))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::{Board, Memory};
    use crate::memory::recorder::Replay;
    use crate::memory::{Field, Terms, board, step};

    #[test]
    fn who_records_is_not_cut_short_by_another() {
        let (mut tap, start) = (Tap::default(), now());
        let second = |n| start + Duration::from_secs(n);
        assert!(tap.answer(Some("begin"), start).is_ok());
        tap.lines = b"s 1\n".to_vec();
        let refused = tap.answer(Some("begin"), second(4)).unwrap_err();
        assert_eq!((refused.status, refused.code), (409, "already_recording"));
        assert_eq!(tap.answer(None, second(4)).unwrap(), b"s 1\n", "the first one's lines are still there");
        assert!(tap.answer(Some("begin"), second(8)).is_err(), "and it goes on");
        // It has ended, or is gone without a word.
        tap.lines = b"s 2\n".to_vec();
        assert_eq!(tap.answer(Some("end"), second(8)).unwrap(), b"s 2\n");
        assert!(tap.answer(Some("begin"), second(8)).is_ok());
        assert!(tap.answer(Some("begin"), second(8) + limits::MEMORY_TAP_HELD).is_ok());
    }

    #[test]
    fn what_a_running_one_saw_knew_and_decided_replays_and_nothing_is_kept_for_nobody() {
        let start = now();
        let mut state = State::new(Terms::new(&Memory::default(), board::of(Board::JetsonOrin)), start);
        let (mut tap, mut sample, mut at) = (Tap::default(), Sample::default(), start);
        sample.set(Field::Total, 8 << 20);
        let mut look = |tap: &mut Tap, free: u64, events: &[Event]| {
            at += Duration::from_millis(100);
            tap.before(&state, events, at);
            events.iter().for_each(|event| state.note(*event, at));
            sample.set(Field::Available, free);
            let decision = step(&mut state, &sample, at);
            tap.after(&state, &sample, &decision, at);
            at
        };
        // It has lived for a while, with a set of models.
        look(&mut tap, 2 << 20, &[Event::Resident(7)]);
        for n in 0..1000 {
            look(&mut tap, (2 << 20) - n % 7 * 1000, &[]);
        }
        let at = look(&mut tap, 2 << 20, &[]);
        assert!(tap.lines.is_empty());
        tap.asked = Some(at);
        for n in 0..80 {
            look(&mut tap, (2 << 20) - n % 7 * 1000, &[]);
        }
        look(&mut tap, 2 << 20, &[Event::Loading(1 << 20)]);
        for n in 0..20 {
            look(&mut tap, (2 << 20) - n * 60_000, &[]);
        }
        look(&mut tap, 800_000, &[Event::Loaded, Event::Resident(8)]);
        for n in 0..50 {
            look(&mut tap, 800_000 - n * 10_000, &[]);
        }

        let mut replay = Replay::new(start + Duration::from_secs(5));
        let (mut samples, mut events) = (0, 0);
        for line in tap.lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let entry = recorder::read(line).unwrap();
            let decided = replay.play(&entry);
            events += usize::from(matches!(entry, Entry::Event(..)));
            if let (Some(decided), Entry::Sample(_, _, recorded)) = (decided, entry) {
                samples += 1;
                // From the first on: the trace begins with what was known.
                assert_eq!(decided, recorded, "{samples}");
            }
        }
        assert_eq!((samples, events), (152, 3), "{}", String::from_utf8_lossy(&tap.lines));
        // Nobody fetches: it is bounded, and ends.
        for n in 0..299 {
            look(&mut tap, 300_000 - n, &[]);
        }
        let end = look(&mut tap, 300_000, &[]);
        assert!(!tap.begun && tap.lines.is_empty() && !tap.is_open(end));
        tap.asked = Some(end);
        tap.begun = true;
        tap.lines = vec![0; limits::MEMORY_TAP_BYTES - 10];
        look(&mut tap, 300_000, &[]);
        assert_eq!(tap.lines.len(), limits::MEMORY_TAP_BYTES - 10);
    }
}
