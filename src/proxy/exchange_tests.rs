//! The machine of one request, rule by rule; any order of events is in `any`.

use super::*;
use crate::cause::Failure;
use crate::config::{Deadlines, Place};

#[path = "exchange_tests/again.rs"]
mod again;
#[path = "exchange_tests/any.rs"]
mod any;
#[path = "exchange_tests/collected.rs"]
mod collected;
#[path = "exchange_tests/hedge.rs"]
mod hedge;

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

const DEADLINES: Deadlines = Deadlines {
    connect: secs(1),
    first_token: secs(10),
    first_token_per_1k: secs(4),
    between_tokens: secs(20),
    load: secs(100),
    answer: None,
    total: secs(300),
};

fn candidate(target: usize) -> Candidate {
    Candidate {
        target,
        model: "m".to_owned(),
        wire: crate::dialect::Dialect::OpenaiChat,
        delivery: Delivery::Streamed,
        inlined: false,
        deadlines: DEADLINES,
        context: None,
        loads: false,
        max_retries: 0,
        place: Place::Local,
        hedge: false,
        reluctant: false,
        last_resort: false,
        memory: crate::memory::admit::Admission::Goes,
        patience: None,
        again: false,
    }
}

/// A machine and its clock.
struct Table {
    machine: Exchange,
    start: Instant,
    now: Instant,
}

impl Table {
    fn new(candidates: Vec<Candidate>) -> Self {
        Table::with(candidates, 0, None)
    }

    fn of(count: usize) -> Self {
        Table::new((0..count).map(candidate).collect())
    }

    fn with(candidates: Vec<Candidate>, prompt: u64, heartbeat: Option<Duration>) -> Self {
        let now = crate::time::now();
        let machine = Exchange::new(candidates, prompt, heartbeat, now + DEADLINES.total, now);
        Table { machine, start: now, now }
    }

    fn on(&mut self, event: Event<'_>) -> Action {
        self.machine.on(event, self.now)
    }

    /// When the deadline is due, since the start.
    fn due(&self) -> Option<Duration> {
        self.machine.deadline().map(|at| at - self.start)
    }

    /// Moves the clock to the deadline.
    fn due_now(&mut self) -> Action {
        self.now = self.machine.deadline().expect("a deadline");
        self.on(Event::Deadline)
    }

    /// The same at a target of whose work nothing is known.
    fn wait(&mut self) -> Action {
        match self.due_now() {
            Action::AskWork => self.on(Event::Works(false)),
            action => action,
        }
    }

    /// As far as the request being sent.
    fn sent(mut self) -> Self {
        assert_eq!(self.on(Event::Start), connect(0));
        assert_eq!(self.on(Event::Connected), Action::Send);
        self
    }

    fn gating(self) -> Self {
        let mut table = self.sent();
        assert_eq!(table.on(Event::Head), Action::Read);
        table
    }

    fn relaying(self) -> Self {
        let mut table = self.gating();
        assert_eq!(table.on(Event::Verdict(&Verdict::Commit)), Action::Commit);
        table
    }

    /// The current candidate, from its connection to this verdict.
    fn judged(&mut self, verdict: &Verdict) -> Action {
        assert_eq!(self.on(Event::Connected), Action::Send);
        assert_eq!(self.on(Event::Head), Action::Read);
        self.on(Event::Verdict(verdict))
    }

    fn tried(&self) -> Vec<(usize, Cause)> {
        self.machine.tried().iter().map(|tried| (tried.candidate, tried.cause)).collect()
    }
}

fn connect(candidate: usize) -> Action {
    Action::Connect { candidate, fresh: false }
}

fn failed(cause: Cause) -> Verdict {
    Verdict::Failed(Failure::new(cause))
}

const fn moved(spoke: bool, finished: bool, done: bool) -> Event<'static> {
    Event::Moved { spoke, finished, done }
}

#[test]
fn the_ordinary_way() {
    let mut table = Table::of(2).relaying();
    assert_eq!(table.on(moved(true, false, false)), Action::Read);
    assert_eq!(table.on(moved(false, true, true)), Action::Read);
    assert_eq!(table.on(Event::Ended { whole: false }), Action::EndClean);
    assert!(table.machine.is_done() && table.tried().is_empty() && table.due().is_none());
}

#[test]
fn every_failure_goes_to_the_next_and_the_last_one_is_told() {
    let mut table = Table::of(4);
    assert_eq!(table.on(Event::Start), connect(0));
    assert_eq!(table.on(Event::Failed(Cause::Refused)), connect(1));
    assert_eq!(table.judged(&failed(Cause::Oom)), connect(2));
    assert_eq!(table.on(Event::Connected), Action::Send);
    assert_eq!(table.on(Event::Rejected(Cause::RateLimited, None)), connect(3));
    assert_eq!(table.judged(&Verdict::Overflow), Action::Refuse(Cause::Overflow));
    let want = [(0, Cause::Refused), (1, Cause::Oom), (2, Cause::RateLimited), (3, Cause::Overflow)];
    assert_eq!(table.tried(), want);
    assert_eq!(table.on(Event::Start), Action::Wait, "done is done");
}

#[test]
fn nobody_to_try_is_refused() {
    assert_eq!(Table::of(0).on(Event::Start), Action::Refuse(Cause::Refused));
}

#[test]
fn a_stale_connection_is_tried_once_more_and_no_failure() {
    let mut table = Table::of(2).sent();
    assert_eq!(table.on(Event::Stale), Action::Connect { candidate: 0, fresh: true });
    assert!(table.tried().is_empty());
    assert_eq!(table.on(Event::Connected), Action::Send);
    assert_eq!(table.on(Event::Stale), connect(1), "a fresh one cannot be stale");
    assert_eq!(table.tried(), [(0, Cause::Closed)]);
}

#[test]
fn a_connection_has_its_own_time() {
    let mut table = Table::of(2);
    table.on(Event::Start);
    assert_eq!(table.due(), Some(secs(1)));
    assert_eq!(table.wait(), connect(1));
    assert_eq!(table.tried(), [(0, Cause::TimeoutConnect)]);
    assert_eq!(table.due(), Some(secs(2)));
}

#[test]
fn the_first_token_clock_runs_from_the_request_and_grows_with_the_prompt() {
    let mut table = Table::with(vec![candidate(0), candidate(1)], 2500, None);
    table.on(Event::Start);
    table.now += Duration::from_millis(500);
    table.on(Event::Connected);
    let due = Duration::from_millis(500) + secs(20);
    assert_eq!(table.due(), Some(due), "10 s, and 2.5 times 4 s");
    table.now += secs(5);
    table.on(Event::Head);
    assert_eq!(table.due(), Some(due), "headers move nothing");
    assert_eq!(table.wait(), Action::Expire(Cause::TimeoutFirstToken));
    assert_eq!(table.on(Event::Verdict(&failed(Cause::TimeoutFirstToken))), connect(1));
}

#[test]
fn silence_before_the_head_is_the_same_clock() {
    let mut table = Table::of(2).sent();
    assert_eq!(table.due(), Some(secs(10)));
    assert_eq!(table.wait(), connect(1));
    assert_eq!(table.tried(), [(0, Cause::TimeoutFirstToken)]);
}

#[test]
fn progress_extends_the_clock_up_to_the_total() {
    let mut table = Table::of(1).gating();
    for at in (4..296).step_by(8) {
        table.now = table.start + secs(at);
        assert_eq!(table.on(Event::Progress), Action::Read);
        assert_eq!(table.due(), Some(secs(at + 10).min(DEADLINES.total)));
    }
    assert_eq!(table.wait(), Action::Expire(Cause::TimeoutTotal));
}

#[test]
fn only_the_last_candidate_may_load_for_long_and_only_until_its_head() {
    let loads = |target| Candidate { loads: true, ..candidate(target) };
    assert_eq!(Table::new(vec![loads(0), loads(1)]).sent().due(), Some(secs(10)));
    assert_eq!(Table::of(1).sent().due(), Some(secs(10)), "it does not load inside a request");
    let mut last = Table::new(vec![loads(0)]).sent();
    assert_eq!(last.due(), Some(secs(100)));
    last.now += secs(50);
    last.on(Event::Head);
    assert_eq!(last.due(), Some(secs(60)), "its head is there: now a token");
    let mut silent = Table::new(vec![loads(0)]).sent();
    assert_eq!(silent.wait(), Action::Refuse(Cause::TimeoutLoad));
    assert_eq!(silent.tried(), [(0, Cause::TimeoutLoad)]);
}

#[test]
fn the_total_bounds_everything_before_the_commit() {
    let slow = |target| Candidate {
        deadlines: Deadlines { first_token: secs(200), ..DEADLINES },
        ..candidate(target)
    };
    let mut table = Table::new((0..3).map(slow).collect()).gating();
    assert_eq!(table.wait(), Action::Expire(Cause::TimeoutFirstToken));
    assert_eq!(table.on(Event::Verdict(&failed(Cause::TimeoutFirstToken))), connect(1));
    table.on(Event::Connected);
    assert_eq!(table.due(), Some(secs(300)));
    let mut waiting = table;
    assert_eq!(waiting.wait(), Action::Refuse(Cause::TimeoutTotal));
    assert_eq!(waiting.tried(), [(0, Cause::TimeoutFirstToken), (1, Cause::TimeoutTotal)]);
    let mut gated = Table::new((0..3).map(slow).collect()).gating();
    gated.now = gated.start + secs(300);
    assert_eq!(gated.on(Event::Deadline), Action::Expire(Cause::TimeoutTotal));
    assert_eq!(gated.on(Event::Verdict(&failed(Cause::TimeoutTotal))), Action::Refuse(Cause::TimeoutTotal));
    let mut stale = Table::of(2).sent();
    stale.now = stale.start + secs(300);
    assert_eq!(stale.on(Event::Stale), Action::Refuse(Cause::TimeoutTotal), "not once more either");
    let mut late = Table::of(2).sent();
    late.now = late.start + secs(300);
    assert_eq!(late.on(Event::Failed(Cause::Reset)), Action::Refuse(Cause::TimeoutTotal), "nobody else then");
}

#[test]
fn a_clients_fault_goes_back_and_nobody_else_is_asked() {
    let mut table = Table::of(3).sent();
    assert_eq!(table.on(Event::Rejected(Cause::ClientFault, None)), Action::PassRejection);
    assert!(table.machine.is_done());
}

#[test]
fn too_long_a_prompt_goes_only_to_larger_and_unknown_windows() {
    let window = |target, context| Candidate { context, ..candidate(target) };
    let windows = || vec![window(0, Some(8)), window(1, Some(8)), window(2, Some(16)), window(3, Some(9))];
    let mut table = Table::new(windows()).sent();
    assert_eq!(table.on(Event::Rejected(Cause::ContextOverflow, None)), connect(2));
    assert_eq!(table.judged(&failed(Cause::Oom)), connect(3), "another failure narrows nothing");
    let mut too_long = Table::new(windows()).sent();
    too_long.on(Event::Rejected(Cause::ContextOverflow, None));
    too_long.on(Event::Connected);
    assert_eq!(too_long.on(Event::Rejected(Cause::ContextOverflow, None)), Action::PassRejection);
    assert_eq!(too_long.tried(), [(0, Cause::ContextOverflow), (2, Cause::ContextOverflow)]);
    let mut unknown = Table::new(vec![window(0, Some(8)), window(1, Some(8)), window(2, None)]).sent();
    assert_eq!(unknown.on(Event::Rejected(Cause::ContextOverflow, None)), connect(2));
}

#[test]
fn what_nobody_takes_is_refused_as_the_last_one_said() {
    let refused = Event::Rejected(Cause::Unsupported, None);
    let mut alone = Table::of(1).sent();
    assert_eq!(alone.on(refused), Action::PassRejection);
    let mut both = Table::of(2).sent();
    assert_eq!(both.on(refused), connect(1));
    both.on(Event::Connected);
    assert_eq!(both.on(refused), Action::PassRejection);
    // Of two the one that failed may take it another time.
    let mut failing = Table::of(2).sent();
    assert_eq!(failing.on(Event::Failed(Cause::Reset)), connect(1));
    failing.on(Event::Connected);
    assert_eq!(failing.on(refused), Action::Refuse(Cause::Unsupported));
}

#[test]
fn an_overflow_told_inside_a_stream_has_no_refusal_to_pass() {
    let mut table = Table::of(1).gating();
    let verdict = failed(Cause::ContextOverflow);
    assert_eq!(table.on(Event::Verdict(&verdict)), Action::Refuse(Cause::ContextOverflow));
}

#[test]
fn stop_with_tokens_fails_over_once_and_then_is_the_answer() {
    let hidden = Verdict::Empty(Emptiness::StopWithTokens);
    let mut twice = Table::of(3);
    twice.on(Event::Start);
    assert_eq!(twice.judged(&hidden), connect(1));
    assert_eq!(twice.judged(&hidden), Action::PassEmpty, "never a loop: the third is not asked");
    assert_eq!(twice.tried(), [(0, Cause::Empty), (1, Cause::Empty)]);
    let mut alone = Table::of(2);
    alone.on(Event::Start);
    assert_eq!(alone.judged(&hidden), connect(1));
    assert_eq!(alone.on(Event::Failed(Cause::Refused)), Action::PassEmpty, "better than nothing");
}

#[test]
fn an_empty_answer_is_given_only_if_everybody_says_empty() {
    let (none, nothing) = (Verdict::Empty(Emptiness::NoToken), Verdict::Empty(Emptiness::Nothing));
    for (verdicts, want) in [
        ([&none, &none], Action::PassEmpty),
        ([&none, &nothing], Action::PassEmpty),
        ([&nothing, &nothing], Action::Refuse(Cause::Empty)),
        ([&failed(Cause::Oom), &none], Action::Refuse(Cause::Empty)),
        ([&none, &failed(Cause::Oom)], Action::Refuse(Cause::Oom)),
    ] {
        let mut table = Table::of(2);
        table.on(Event::Start);
        assert_eq!(table.judged(verdicts[0]), connect(1));
        assert_eq!(table.judged(verdicts[1]), want, "{verdicts:?}");
    }
}

#[test]
fn the_kept_empty_answer_is_the_better_one() {
    let mut table = Table::of(3);
    table.on(Event::Start);
    assert!(!table.machine.keeps(Emptiness::Nothing) && table.machine.keeps(Emptiness::NoToken));
    table.judged(&Verdict::Empty(Emptiness::StopWithTokens));
    assert!(!table.machine.keeps(Emptiness::NoToken) && table.machine.keeps(Emptiness::StopWithTokens));
}

#[test]
fn beats_come_in_time_and_stop_at_the_commit() {
    let mut table = Table::with(vec![candidate(0), candidate(1)], 0, Some(secs(3))).gating();
    for at in [3, 6, 9] {
        assert_eq!(table.due(), Some(secs(at)));
        assert_eq!(table.wait(), Action::Beat);
    }
    assert_eq!(table.wait(), Action::Expire(Cause::TimeoutFirstToken), "they move no deadline");
    table.on(Event::Verdict(&failed(Cause::TimeoutFirstToken)));
    table.on(Event::Connected);
    assert_eq!((table.due(), table.wait()), (Some(secs(12)), Action::Beat), "they go on over attempts");
    table.on(Event::Head);
    table.on(Event::Verdict(&Verdict::Commit));
    assert_eq!(table.due(), Some(secs(12 + 20)));
}

#[test]
fn after_the_commit_an_end_is_told_as_it_was() {
    let broken = Action::EndBroken;
    let cases: [(&[Event<'_>], Action); 9] = [
        (&[Event::Ended { whole: false }], broken(Cause::Truncated)),
        (&[Event::Ended { whole: true }], Action::EndClean),
        (&[Event::Broke(Cause::Reset)], broken(Cause::Reset)),
        (&[Event::ErrorEvent(Cause::Oom)], broken(Cause::Oom)),
        (&[moved(true, true, false), Event::Ended { whole: false }], Action::EndClean),
        (&[moved(false, true, false), Event::Broke(Cause::Reset)], Action::EndClean),
        (&[moved(false, false, true), Event::Broke(Cause::Reset)], Action::EndClean),
        (&[moved(false, true, true), Event::ErrorEvent(Cause::Oom)], broken(Cause::Oom)),
        (&[Event::Failed(Cause::Internal)], broken(Cause::Internal)),
    ];
    for (events, want) in cases {
        let mut table = Table::of(2).relaying();
        let last = events.iter().map(|event| table.on(*event)).last();
        assert_eq!(last, Some(want), "{events:?}");
        assert!(table.machine.is_done() && table.tried().is_empty());
    }
}

#[test]
fn a_stall_ends_broken_and_a_finish_without_a_marker_ends_clean() {
    let mut stalled = Table::of(2).relaying();
    stalled.now += secs(5);
    stalled.on(moved(true, false, false));
    assert_eq!(stalled.due(), Some(secs(25)));
    assert_eq!(stalled.wait(), Action::EndBroken(Cause::TimeoutBetweenTokens));
    let mut finished = Table::of(2).relaying();
    finished.on(moved(false, true, false));
    assert_eq!(finished.due(), Some(FINISH_GRACE));
    finished.now += secs(1);
    finished.on(moved(false, true, false));
    assert_eq!(finished.due(), Some(FINISH_GRACE), "pings do not keep it open");
    assert_eq!(finished.wait(), Action::EndClean);
    let mut done = Table::of(2).relaying();
    done.on(moved(false, true, true));
    assert_eq!((done.due(), done.wait()), (Some(DONE_GRACE), Action::EndClean));
}

#[test]
fn one_choices_end_is_not_the_others() {
    let mut table = Table::of(1).relaying();
    table.on(moved(false, true, false));
    table.now += secs(1);
    table.on(moved(true, false, false));
    assert_eq!(table.due(), Some(secs(21)), "it goes on");
    let mut cut = Table::of(1).relaying();
    cut.on(moved(false, true, false));
    cut.on(moved(true, false, false));
    assert_eq!(cut.on(Event::Ended { whole: false }), Action::EndBroken(Cause::Truncated));
    table.now += secs(2);
    table.on(moved(true, true, false));
    assert_eq!(table.due(), Some(secs(3) + FINISH_GRACE));
    assert_eq!(table.wait(), Action::EndClean);
}

#[test]
fn a_stop_ends_it_in_any_state() {
    let states: [fn() -> Table; 5] = [
        || Table::of(2),
        || {
            let mut table = Table::of(2);
            table.on(Event::Start);
            table
        },
        || Table::of(2).sent(),
        || Table::of(2).gating(),
        || Table::of(2).relaying(),
    ];
    for (at, state) in states.iter().enumerate() {
        for cause in [Cause::Cancelled, Cause::Draining, Cause::ClientGone] {
            let mut table = state();
            let want = match (cause, at) {
                (Cause::ClientGone, _) => Action::Abandon,
                (_, 4) => Action::EndBroken(cause),
                _ => Action::Refuse(cause),
            };
            assert_eq!(table.on(Event::Stop(cause)), want, "{at} {cause}");
            assert!(table.machine.is_done() && table.due().is_none());
            let noted = cause != Cause::ClientGone && matches!(at, 1..=3);
            assert_eq!(table.tried(), if noted { vec![(0, cause)] } else { vec![] });
            assert_eq!(table.on(Event::Stop(Cause::Draining)), Action::Wait);
        }
    }
}

#[test]
fn what_does_not_fit_is_ignored() {
    let mut table = Table::of(2).sent();
    for event in [
        Event::Start,
        Event::Connected,
        Event::Progress,
        Event::Verdict(&Verdict::Commit),
        moved(true, true, true),
        Event::Ended { whole: true },
    ] {
        assert_eq!(table.on(event), Action::Wait, "{event:?}");
    }
    assert_eq!(Table::of(1).on(Event::Failed(Cause::Internal)), Action::Refuse(Cause::Internal));
}
