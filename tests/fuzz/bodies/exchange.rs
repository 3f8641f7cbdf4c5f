//! The machine of one request, under any events at any time: it never acts out of order, and always ends.

use std::time::{Duration, Instant};

use edgeward::cause::{Cause, Failure};
use edgeward::config::{Deadlines, Place, Retry};
use edgeward::gate::{Emptiness, Verdict};
use edgeward::limits::CANDIDATES_MAX;
use edgeward::proxy::exchange::{Action, Event, Exchange};
use edgeward::route::{Candidate, Delivery};

/// Deadlines alone end every machine within so many of them: signs of life every 20 ms within a total
/// of at most 51 s, and a few for each candidate.
const DEADLINES_MAX: usize = 3000;

/// An input: how many candidates, the heartbeat, the total, the prompt's length; two bytes a
/// candidate; then two bytes an event: which, and how much later it happens or what it carries.
pub fn run(data: &[u8]) {
    let Some((&[count, heartbeat, total, prompt], rest)) = data.split_first_chunk() else { return };
    let count = usize::from(count) % (CANDIDATES_MAX + 1);
    let Some((candidates, events)) = rest.split_at_checked(2 * count) else { return };
    let candidates = candidates.chunks_exact(2).map(|bytes| candidate(bytes[0], bytes[1])).collect();
    let start = edgeward::time::now();
    let heartbeat = (heartbeat > 0).then(|| Duration::from_millis(20 * u64::from(heartbeat)));
    let total = start + Duration::from_millis(200 * u64::from(total));
    let mut machine = Exchange::new(candidates, 64 * u64::from(prompt), heartbeat, total, start)
        .retrying(&Retry::default(), u64::from(prompt));
    machine.hedging(vec![Some(Duration::from_millis(100)); count]);
    let mut watch =
        Watch { machine, seen: Seen::default(), now: start, beats: heartbeat.is_some(), grants: true };
    for event in events.chunks_exact(2) {
        watch.play(event[0], event[1]);
    }
    watch.silence();
}

fn candidate(kind: u8, size: u8) -> Candidate {
    let unit = Duration::from_millis(10 * (1 + u64::from(size)));
    Candidate {
        target: 0,
        model: String::new(),
        wire: edgeward::dialect::Dialect::OpenaiChat,
        delivery: match kind >> 5 & 3 {
            0 => Delivery::Collected,
            1 => Delivery::Whole,
            _ => Delivery::Streamed,
        },
        inlined: false,
        deadlines: Deadlines {
            connect: unit,
            first_token: unit * 3,
            first_token_per_1k: unit / 2,
            between_tokens: unit * 2,
            load: unit * 20,
            answer: (kind & 128 != 0).then_some(unit * 50),
            total: unit * 100,
        },
        context: (kind & 1 != 0).then(|| 1024 << (kind >> 4)),
        loads: kind & 2 != 0,
        max_retries: u32::from(kind >> 2 & 3).min(2),
        place: Place::Local,
        hedge: false,
        reluctant: false,
        last_resort: false,
        memory: edgeward::memory::admit::Admission::Goes,
        patience: None,
        again: false,
    }
}

/// What the machine was told and what it did so far.
#[derive(Default)]
struct Seen {
    committed: bool,
    last: Option<usize>,
    again: bool,
    /// How often each candidate was connected to, stale connections aside.
    asked: [u32; CANDIDATES_MAX],
    /// The answer is whole by one of the rules.
    finished: bool,
    empties: bool,
    over: bool,
}

struct Watch {
    machine: Exchange,
    seen: Seen,
    now: Instant,
    beats: bool,
    /// What the budget says.
    grants: bool,
}

impl Watch {
    fn play(&mut self, kind: u8, with: u8) {
        self.now += Duration::from_millis(u64::from(kind >> 4).pow(2));
        let cause = Cause::ALL[usize::from(with) % Cause::ALL.len()];
        let verdict = match with % 8 {
            0..=2 => Verdict::Commit,
            3 => Verdict::Empty(Emptiness::Nothing),
            4 => Verdict::Empty(Emptiness::NoToken),
            5 => Verdict::Empty(Emptiness::StopWithTokens),
            6 => Verdict::Overflow,
            _ => Verdict::Failed(Failure::new(Cause::ALL[usize::from(with / 8)])),
        };
        let event = match kind & 15 {
            0 => Event::Start,
            1 => Event::Connected,
            2 => Event::Stale,
            3 => Event::Failed(cause),
            4 => Event::Head,
            5 => Event::Progress,
            7 if with >= 224 => Event::AsksWhole,
            6 | 7 => Event::Verdict(&verdict),
            8 => {
                Event::Rejected(cause, (with & 64 != 0).then(|| Duration::from_millis(100 * u64::from(with))))
            }
            10 if with >= 192 => Event::Answering,
            9 | 10 => Event::Moved { spoke: with & 4 != 0, finished: with & 1 != 0, done: with & 2 != 0 },
            11 => Event::Ended { whole: with & 1 != 0 },
            12 if with < 128 => Event::Broke(cause),
            12 => Event::HedgeWon,
            13 if with < 128 => Event::ErrorEvent(cause),
            13 => Event::HedgeFailed(cause, None),
            14 if with < 250 => {
                if let Some(due) = self.machine.deadline() {
                    self.now = self.now.max(due);
                }
                Event::Deadline
            }
            14 => Event::Stop(cause),
            _ => {
                self.now += Duration::from_millis(10 * u64::from(with));
                Event::Deadline
            }
        };
        self.grants = with & 32 == 0;
        self.tell(event);
    }

    /// From here on nothing happens but deadlines.
    fn silence(&mut self) {
        self.tell(Event::Start);
        let mut left = DEADLINES_MAX;
        while !self.machine.is_done() {
            left -= 1;
            assert!(left > 0, "still waiting");
            let due = self.machine.deadline();
            let Some(due) = due else { panic!("waits for ever: {:?}", self.machine) };
            self.now = self.now.max(due);
            if let Action::Expire(cause) = self.tell(Event::Deadline) {
                self.tell(Event::Verdict(&Verdict::Failed(Failure::new(cause))));
            }
        }
    }

    fn tell(&mut self, event: Event<'_>) -> Action {
        let committed = self.seen.committed;
        match event {
            Event::Moved { finished, done, .. } if committed => self.seen.finished |= finished || done,
            Event::Ended { whole } if committed => self.seen.finished |= whole,
            Event::Verdict(Verdict::Empty(_)) => self.seen.empties = true,
            _ => {}
        }
        let mut action = self.machine.on(event, self.now);
        if action == Action::AskWork {
            assert!(event == Event::Deadline && !committed);
            action = self.machine.on(Event::Works(!self.grants), self.now);
        }
        if self.seen.over {
            assert_eq!(action, Action::Wait, "after the end");
        }
        let stopped = matches!(event, Event::Stop(_));
        match action {
            Action::Connect { candidate, fresh } => self.connects(candidate, fresh),
            Action::Commit => {
                assert!(event == Event::Verdict(&Verdict::Commit) || event == Event::HedgeWon);
                assert!(!committed && self.seen.last.is_some());
                self.seen.committed = true;
            }
            Action::Send => assert!(matches!(event, Event::Connected | Event::AsksWhole)),
            Action::Beat => assert!(self.beats && !committed && event == Event::Deadline),
            Action::Expire(cause) => assert!(!committed && is_timeout(cause), "{cause:?}"),
            Action::PassRejection => assert!(!committed && !self.machine.tried().is_empty()),
            Action::PassEmpty => assert!(!committed && self.seen.empties),
            Action::Refuse(_) => assert!(!committed),
            Action::EndClean => assert!(committed && self.seen.finished, "a faked end"),
            Action::EndBroken(_) => assert!(committed),
            Action::Abandon => assert_eq!(event, Event::Stop(Cause::ClientGone)),
            Action::AskRetry => assert!(!committed),
            Action::Hedge { candidate } => self.hedged(candidate, committed),
            Action::DropHedge => assert!(!committed && event == Event::Deadline),
            Action::Adopt { candidate } => {
                assert!(!committed);
                (self.seen.last, self.seen.again) = (Some(candidate), true);
            }
            Action::Pause => assert_eq!(event, Event::MayRetry(true)),
            Action::AskWork => panic!("asked twice"),
            Action::Read | Action::Wait => {}
        }
        let ended = matches!(
            action,
            Action::PassRejection
                | Action::PassEmpty
                | Action::Refuse(_)
                | Action::EndClean
                | Action::EndBroken(_)
                | Action::Abandon
        );
        self.seen.over |= ended;
        assert_eq!(self.machine.is_done(), self.seen.over, "{action:?}");
        assert!(!stopped || self.seen.over);
        assert!(!self.seen.over || self.machine.deadline().is_none());
        let tried = self.machine.tried();
        assert!(tried.iter().all(|tried| tried.candidate < self.machine.candidates().len()));
        let asked: u32 = self.seen.asked.iter().sum();
        assert!(tried.len() <= asked as usize, "{tried:?}");
        if action == Action::AskRetry { self.tell(Event::MayRetry(self.grants)) } else { action }
    }

    /// It runs at once, or not at all.
    fn hedged(&mut self, candidate: usize, committed: bool) {
        assert!(!committed && self.seen.asked[candidate..].iter().all(|asked| *asked == 0), "in order");
        if self.grants {
            self.machine.on(Event::Hedges(candidate), self.now);
            self.seen.asked[candidate] += 1;
        }
    }

    /// In order, each once, or again as often as it may be; a second time at once only on a fresh connection.
    fn connects(&mut self, candidate: usize, fresh: bool) {
        assert!(!self.seen.committed, "the stream has an owner");
        assert!(candidate < self.machine.candidates().len());
        if fresh {
            assert_eq!((Some(candidate), false), (self.seen.last, self.seen.again));
        } else {
            let before = self.seen.asked[candidate];
            assert!(before <= self.machine.candidates()[candidate].max_retries);
            assert!(before > 0 || self.seen.asked[candidate..].iter().all(|asked| *asked == 0), "in order");
            self.seen.asked[candidate] += 1;
        }
        self.seen.last = Some(candidate);
        self.seen.again = fresh;
    }
}

fn is_timeout(cause: Cause) -> bool {
    matches!(
        cause,
        Cause::TimeoutFirstToken
            | Cause::TimeoutBetweenTokens
            | Cause::TimeoutAnswer
            | Cause::TimeoutLoad
            | Cause::TimeoutTotal
    )
}
