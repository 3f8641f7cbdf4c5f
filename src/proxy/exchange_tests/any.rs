//! Events in any order, at any time: what must hold whatever happens.

use proptest::prelude::*;

use super::*;
use crate::config::{Retry, RetryFirst};
use crate::limits::RETRY_WAIT_MAX;

const TOTAL: Duration = secs(60);

/// What may happen next. `Deadline` waits for the machine's own, if it has one.
#[derive(Clone, Debug)]
enum Happens {
    Waits(Duration),
    Leaves(Duration),
    Connected,
    Stale,
    Failed(Cause),
    Head,
    Progress,
    Answering,
    AsksWhole,
    Judged(Verdict),
    Rejected(Cause, Option<Duration>),
    Moved(bool, bool, bool),
    Ended(bool),
    Broke,
    ErrorEvent,
    Budget(bool),
    HedgeWon,
    HedgeFailed(Cause),
    Deadline,
    Stop(Cause),
}

fn happens() -> impl Strategy<Value = Happens> {
    let failing = || {
        prop::sample::select(vec![
            Cause::Refused,
            Cause::Reset,
            Cause::Oom,
            Cause::ContextOverflow,
            Cause::Unsupported,
            Cause::RateLimited,
            Cause::Suspended,
            Cause::Drill,
            Cause::Internal,
        ])
    };
    let wait = || prop::option::of((0..20_u64).prop_map(secs));
    let verdict = prop_oneof![
        2 => Just(Verdict::Commit),
        4 => failing().prop_map(failed),
        1 => Just(Verdict::Overflow),
        1 => Just(Verdict::Empty(Emptiness::Nothing)),
        2 => Just(Verdict::Empty(Emptiness::NoToken)),
        2 => Just(Verdict::Empty(Emptiness::StopWithTokens)),
    ];
    prop_oneof![
        8 => Just(Happens::Connected),
        1 => (0..20_u64).prop_map(|wait| Happens::Waits(secs(wait))),
        1 => (0..20_u64).prop_map(|after| Happens::Leaves(secs(after))),
        2 => Just(Happens::Stale),
        2 => failing().prop_map(Happens::Failed),
        8 => Just(Happens::Head),
        3 => Just(Happens::Progress),
        3 => Just(Happens::Answering),
        1 => Just(Happens::AsksWhole),
        8 => verdict.prop_map(Happens::Judged),
        2 => (prop_oneof![failing(), Just(Cause::ClientFault)], wait())
            .prop_map(|(cause, wait)| Happens::Rejected(cause, wait)),
        2 => any::<bool>().prop_map(Happens::Budget),
        2 => Just(Happens::HedgeWon),
        2 => failing().prop_map(Happens::HedgeFailed),
        3 => any::<(bool, bool, bool)>().prop_map(|(a, b, c)| Happens::Moved(a, b, c)),
        1 => any::<bool>().prop_map(Happens::Ended),
        1 => Just(Happens::Broke),
        1 => Just(Happens::ErrorEvent),
        8 => Just(Happens::Deadline),
        1 => prop::sample::select(vec![Cause::Cancelled, Cause::Draining, Cause::ClientGone]).prop_map(Happens::Stop),
    ]
}

fn candidates() -> impl Strategy<Value = Vec<Candidate>> {
    let delivery = prop::sample::select(vec![Delivery::Streamed, Delivery::Collected, Delivery::Whole]);
    let one = (prop::option::of(1..5_u32), any::<bool>(), 1..30_u64, 0..=2_u32, delivery);
    prop::collection::vec(one, 0..6).prop_map(|all| {
        all.into_iter()
            .enumerate()
            .map(|(target, (context, loads, first, max_retries, delivery))| Candidate {
                context,
                delivery,
                loads,
                max_retries,
                deadlines: Deadlines { first_token: secs(first), ..DEADLINES },
                ..candidate(target)
            })
            .collect()
    })
}

/// What was seen of the machine from outside, and the rules that it is held to.
struct Watch {
    machine: Exchange,
    start: Instant,
    now: Instant,
    /// When the time before the commit is used up; an answer that has begun begins it anew.
    total: Instant,
    every: Option<Duration>,
    current: Option<usize>,
    first: RetryFirst,
    /// Every attempt, by its candidate, and whether it was made anew after a stale connection.
    connected: Vec<usize>,
    stale: bool,
    /// When each candidate last failed, and how long it must be left alone.
    failed: Vec<Option<(Instant, Cause, Duration)>>,
    /// The budget was asked, and what it said last.
    asking: bool,
    granted: bool,
    denied: bool,
    /// The hedge that was asked for.
    offered: Option<usize>,
    sent: Option<Instant>,
    committed: bool,
    over: bool,
    last_beat: Option<Instant>,
    /// What is known of the target's work.
    works: bool,
    seen_working: bool,
    /// When the attempt is left that waits at its server.
    leaves: Option<Instant>,
    window: Option<u32>,
    hidden: usize,
    kept: bool,
    refusal: bool,
    asked: bool,
}

impl Watch {
    fn new(candidates: Vec<Candidate>, prompt: u64, every: Option<Duration>, first: RetryFirst) -> Self {
        let now = crate::time::now();
        let policy = Retry { first, ..Retry::default() };
        let failed = vec![None; candidates.len()];
        let late_after = vec![Some(secs(2)); candidates.len()];
        let mut watch = Watch {
            machine: Exchange::new(candidates, prompt, every, now + TOTAL, now).retrying(&policy, 7),
            start: now,
            now,
            total: now + TOTAL,
            every,
            current: None,
            first,
            connected: Vec::new(),
            stale: false,
            failed,
            asking: false,
            granted: false,
            denied: false,
            offered: None,
            sent: None,
            committed: false,
            over: false,
            last_beat: None,
            works: false,
            seen_working: false,
            leaves: None,
            window: None,
            hidden: 0,
            kept: false,
            refusal: false,
            asked: false,
        };
        watch.machine.hedging(late_after);
        watch
    }

    /// Something happens, as the driver would report it: after `Expire` it is the gate's verdict.
    fn next(&mut self, happens: &Happens) {
        let timed_out = Happens::Judged(failed(Cause::TimeoutFirstToken));
        let happens = if self.asked && !matches!(happens, Happens::Judged(_)) { &timed_out } else { happens };
        self.asked = false;
        let draws = Happens::Budget(true);
        let happens = match happens {
            Happens::Budget(_) | Happens::Stop(_) => happens,
            _ if self.asking => &draws,
            _ => happens,
        };
        self.granted = self.asking && matches!(happens, Happens::Budget(true));
        self.denied |= self.asking && matches!(happens, Happens::Budget(false));
        self.asking = false;
        // It is begun at once, or not at all.
        if let Some(hedge) = self.offered.take()
            && !matches!(happens, Happens::Stop(_) | Happens::Deadline)
        {
            assert_eq!(self.machine.on(Event::Hedges(hedge), self.now), Action::Wait);
            assert!(matches!(self.machine.hedge, Some(Hedge::Running(n, _)) if n == hedge));
            self.connected.push(hedge);
        }
        let before = self.machine.deadline();
        let event = match happens {
            Happens::Waits(wait) => Event::Waits(*wait),
            Happens::Leaves(after) => Event::Leaves(Some(self.now + *after), Cause::Busy),
            Happens::Connected => Event::Connected,
            Happens::Stale => Event::Stale,
            Happens::Failed(cause) => Event::Failed(*cause),
            Happens::Head => Event::Head,
            Happens::Progress => Event::Progress,
            Happens::Answering => Event::Answering,
            Happens::AsksWhole => Event::AsksWhole,
            Happens::Judged(verdict) => Event::Verdict(verdict),
            Happens::Rejected(cause, wait) => Event::Rejected(*cause, *wait),
            Happens::Budget(may) => Event::MayRetry(*may),
            Happens::HedgeWon => Event::HedgeWon,
            Happens::HedgeFailed(cause) => Event::HedgeFailed(*cause, None),
            Happens::Moved(spoke, finished, done) => moved(*spoke, *finished, *done),
            Happens::Ended(whole) => Event::Ended { whole: *whole },
            Happens::Broke => Event::Broke(Cause::Reset),
            Happens::ErrorEvent => Event::ErrorEvent(Cause::Oom),
            Happens::Deadline => {
                self.now = before.unwrap_or(self.now).max(self.now);
                Event::Deadline
            }
            Happens::Stop(cause) => Event::Stop(*cause),
        };
        self.remember(event);
        let renews = match self.machine.state {
            State::Gating { .. } => event == Event::Answering,
            State::Collecting { .. } => matches!(event, Event::Moved { spoke: true, .. }),
            _ => false,
        };
        if renews {
            self.total = self.now + TOTAL;
        }
        let tried = self.machine.tried().len();
        let mut action = self.machine.on(event, self.now);
        if action == Action::AskWork {
            assert!(event == Event::Deadline && !self.committed);
            self.works = !self.works;
            action = self.machine.on(Event::Works(self.works), self.now);
            self.seen_working |= self.works;
        }
        for tried in &self.machine.tried()[tried..] {
            let wait = match event {
                Event::Rejected(_, wait) => wait.unwrap_or_default(),
                _ => Duration::ZERO,
            };
            self.failed[tried.candidate] = Some((self.now, tried.cause, wait));
        }
        self.seen_working |= event == Event::Progress;
        if let Event::Leaves(at, _) = event {
            self.leaves = at;
        }
        self.check(event, action);
        if event == Event::Deadline && before.is_some() {
            let moved = self.asked
                || matches!(
                    action,
                    Action::Connect { .. }
                        | Action::AskRetry
                        | Action::Adopt { .. }
                        | Action::Hedge { .. }
                        | Action::DropHedge
                );
            let later = self.machine.deadline().is_none_or(|at| at > self.now);
            assert!(moved || later, "{action:?}: a deadline that stays would spin");
        }
    }

    fn remember(&mut self, event: Event<'_>) {
        let Some(current) = self.current else { return };
        let gating = !self.committed && !self.over;
        let overflow = match event {
            Event::Failed(cause) | Event::Rejected(cause, _) => cause == Cause::ContextOverflow,
            Event::Verdict(Verdict::Failed(failure)) => failure.cause == Cause::ContextOverflow,
            Event::HedgeFailed(cause, _) => self.is_adopted() && cause == Cause::ContextOverflow,
            _ => false,
        };
        if overflow && gating {
            let has = self.machine.candidates()[current].context.unwrap_or(0);
            // A verdict that the machine does not wait for is ignored; then nothing is tried by it either.
            if self.fits(event) {
                self.window = Some(self.window.unwrap_or(0).max(has));
            }
        }
        if gating && self.fits(event) {
            self.refusal |= match event {
                Event::Rejected(cause, _) => cause == Cause::ClientFault || cause.is_of_the_request(),
                Event::HedgeFailed(cause, _) => self.is_adopted() && cause.is_of_the_request(),
                _ => false,
            };
            if let Event::Verdict(Verdict::Empty(emptiness)) = event {
                self.kept |= *emptiness != Emptiness::Nothing;
                self.hidden += usize::from(*emptiness == Emptiness::StopWithTokens);
            }
        }
    }

    /// Whether the present attempt began as a hedge.
    fn is_adopted(&self) -> bool {
        matches!(self.machine.state, State::Attempting { phase: Phase::Adopted { .. }, .. })
    }

    /// Whether the machine listens to this now.
    fn fits(&self, event: Event<'_>) -> bool {
        match self.machine.state {
            State::Gating { .. } => true,
            State::Collecting { .. } => {
                matches!(event, Event::Failed(_) | Event::Verdict(_) | Event::Stop(_))
            }
            State::Attempting { .. } => !matches!(event, Event::Verdict(_)),
            _ => false,
        }
    }

    fn check(&mut self, event: Event<'_>, action: Action) {
        assert!(!self.over || action == Action::Wait, "{action:?} after the end");
        match action {
            Action::Connect { candidate, fresh } => self.connects(event, candidate, fresh),
            Action::Send => (self.sent, self.seen_working) = (Some(self.now), false),
            Action::AskRetry => {
                assert!(!self.committed && !self.denied, "one refusal is enough");
                self.asking = true;
                self.current = None;
            }
            Action::Pause => assert!(self.granted && event == Event::MayRetry(true)),
            Action::AskWork => panic!("asked again"),
            Action::Read | Action::Wait => {}
            Action::Beat => {
                assert!(!self.committed && self.every.is_some());
                let since = self.last_beat.replace(self.now).unwrap_or(self.start);
                assert!(self.now - since >= self.every.unwrap());
            }
            Action::Expire(_) => {
                assert!(!self.committed && event == Event::Deadline);
                self.asked = true;
            }
            Action::Commit => {
                assert!(!self.committed);
                assert!(event == Event::Verdict(&Verdict::Commit) || event == Event::HedgeWon);
                assert_eq!(self.connected.len(), self.tried().len() + 1, "of all attempts one commits");
                self.committed = true;
            }
            Action::Hedge { candidate } => {
                assert!(!self.committed && event == Event::Deadline);
                self.offered = Some(candidate);
            }
            Action::DropHedge => assert!(!self.committed && event == Event::Deadline),
            Action::Adopt { candidate } => {
                assert!(!self.committed && self.connected.contains(&candidate));
                (self.current, self.sent) = (Some(candidate), None);
            }
            Action::PassRejection => assert!(self.refusal),
            Action::PassEmpty => assert!(self.kept),
            Action::Refuse(_) => {}
            Action::EndClean | Action::EndBroken(_) => assert!(self.committed),
            Action::Abandon => assert_eq!(event, Event::Stop(Cause::ClientGone)),
        }
        let before_commit = matches!(action, Action::PassRejection | Action::PassEmpty | Action::Refuse(_));
        assert!(!(before_commit && self.committed));
        if before_commit {
            assert_eq!(self.tried(), self.asked(), "each attempt is accounted for once");
        }
        assert!(self.connected.len() <= self.tried().len() + 2, "two at most are under way");
        let ends = matches!(action, Action::EndClean | Action::EndBroken(_) | Action::Abandon);
        self.over |= before_commit || ends;
        assert_eq!(self.machine.is_done(), self.over);
        assert!(self.hidden < 2 || self.over, "never a loop of empty answers");
        self.deadlines();
    }

    fn tried(&self) -> Vec<usize> {
        let mut tried: Vec<usize> = self.machine.tried().iter().map(|tried| tried.candidate).collect();
        tried.sort_unstable();
        tried
    }

    fn asked(&self) -> Vec<usize> {
        let mut asked = self.connected.clone();
        asked.sort_unstable();
        asked
    }

    fn connects(&mut self, event: Event<'_>, candidate: usize, fresh: bool) {
        assert!(!self.committed && self.now < self.total, "nobody new after the commit or the total");
        let at = &self.machine.candidates()[candidate];
        let before = self.connected.iter().filter(|n| **n == candidate).count();
        if fresh {
            assert!(event == Event::Stale && self.current == Some(candidate) && !self.stale);
        } else {
            assert!(
                self.window.is_none_or(|least| at.context.is_none_or(|has| has > least)),
                "larger and unknown windows only"
            );
            assert_eq!(self.tried(), self.asked(), "nobody else is under way");
            if before == 0 {
                assert!(self.connected.iter().all(|n| *n < candidate), "in order");
            } else {
                self.again(candidate, before);
            }
            self.connected.push(candidate);
        }
        if !fresh {
            self.leaves = None;
        }
        self.stale = fresh;
        self.current = Some(candidate);
        self.sent = None;
    }

    /// A candidate is asked again, after it was asked this often.
    fn again(&self, candidate: usize, before: usize) {
        let candidates = self.machine.candidates();
        let (at, cause, wait) = self.failed[candidate].expect("it failed");
        assert!(before <= candidates[candidate].max_retries as usize, "no more often than it may be");
        assert!(cause.retryable() && wait <= RETRY_WAIT_MAX);
        assert!(
            self.now >= at + wait.max(Retry::default().backoff * (1 << (before - 1))),
            "after its back-off"
        );
        assert!(!self.denied, "only what the budget grants");
        let fits = |c: &Candidate| self.window.is_none_or(|least| c.context.is_none_or(|has| has > least));
        let fresh = candidates
            .iter()
            .enumerate()
            .any(|(n, c)| !self.connected.contains(&n) && fits(c) && self.connected.iter().all(|m| *m < n));
        assert!(!fresh || self.first == RetryFirst::Retry, "others first");
    }

    fn deadlines(&self) {
        let Some(deadline) = self.machine.deadline() else { return };
        let d = |current: usize| self.machine.candidates()[current].deadlines;
        if let (State::Collecting { .. }, Some(current)) = (self.machine.state, self.current) {
            assert!(deadline <= self.now + d(current).between_tokens, "a stall is seen");
            return;
        }
        if self.committed {
            return;
        }
        assert!(deadline <= self.total, "the total is never passed");
        if let (Some(sent), Some(current)) = (self.sent, self.current) {
            let candidates = self.machine.candidates();
            let d = &candidates[current].deadlines;
            let allowance = d.first_token + d.first_token_per_1k * 2;
            let loads = candidates[current].loads && self.connected.contains(&(candidates.len() - 1));
            let wait = match candidates[current].delivery {
                Delivery::Whole => d.total,
                _ if loads => d.load + allowance,
                _ => allowance,
            };
            // Not once the target is seen to work.
            let wait = if self.seen_working { TOTAL } else { wait };
            let bound = self.leaves.map_or(sent + wait, |at| at.max(sent + wait));
            assert!(deadline <= bound, "only work moves it");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(800))]

    #[test]
    fn whatever_happens_the_rules_hold_and_it_ends(
        candidates in candidates(),
        every in prop::option::of(1..20_u64),
        first in prop::sample::select(vec![RetryFirst::Failover, RetryFirst::Retry]),
        events in prop::collection::vec((happens(), 0..4000_u64), 0..60),
    ) {
        let mut watch = Watch::new(candidates, 2000, every.map(secs), first);
        let action = watch.machine.on(Event::Start, watch.now);
        watch.check(Event::Start, action);
        for (event, pause) in &events {
            if !watch.asked {
                // The driver reports a deadline before anything that came later.
                let due = watch.machine.deadline();
                watch.now = due.map_or(watch.now, |due| due.max(watch.now)).min(watch.now + Duration::from_millis(*pause));
            }
            watch.next(event);
        }
        // Left alone, it ends by its deadlines.
        let mut steps = 0;
        while !watch.over {
            watch.next(&Happens::Deadline);
            steps += 1;
            prop_assert!(steps < 400, "it must end");
        }
        prop_assert!(watch.machine.is_done() && watch.machine.deadline().is_none());
    }

    /// Nothing but progress moves the first-token clock.
    #[test]
    fn the_first_token_clock_stands(noise in prop::collection::vec((0..4_u8, 0..900_u64), 0..12)) {
        let mut table = Table::of(2).sent();
        let due = table.due();
        table.on(Event::Head);
        for (what, pause) in noise {
            table.now = (table.now + Duration::from_millis(pause)).min(table.start + secs(9));
            let event = match what {
                0 => Event::Head,
                1 => Event::Connected,
                2 => Event::Deadline,
                _ => moved(true, false, false),
            };
            prop_assert_eq!(table.on(event), Action::Wait);
            prop_assert_eq!(table.due(), due);
        }
    }
}
