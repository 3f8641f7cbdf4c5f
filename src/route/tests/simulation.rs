//! Virtual time: requests against scripted targets through the plan and the store, hours in seconds.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt::Write as _;

use super::*;
use crate::health::store::Ticket;

/// What a target does with one attempt; times are milliseconds from its beginning.
#[derive(Clone, Copy, Debug)]
pub(super) enum Does {
    /// It fails so late.
    Fails(Cause, u64),
    /// It says 429 at once, with so many seconds in Retry-After.
    Pauses(u64),
    /// Its first token comes, and so much later its end.
    Answers(u64, u64),
}

/// What a script goes by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt {
    /// Milliseconds since the beginning.
    pub(super) at: u64,
    /// Attempts under way at this target, this one included.
    pub(super) in_flight: usize,
    /// Different for each attempt, 0 to 999,999.
    pub(super) chance: u64,
}

pub(super) type Script = Box<dyn Fn(Attempt) -> Does>;

/// What one request saw.
#[derive(Clone, Debug)]
pub(super) struct Saw {
    /// When it came.
    pub(super) at: u64,
    /// Who failed it, before anything reached its client.
    pub(super) tried: Vec<(usize, Cause)>,
    /// Who answered.
    pub(super) by: Option<usize>,
    /// When its first token came, since it came itself.
    pub(super) first_token: u64,
}

struct Request {
    call: Call,
    plan: Plan,
    next: usize,
    retries: u32,
    ticket: Option<(Ticket, u64)>,
    saw: Saw,
}

/// What is due; the order of those that are due together is theirs of coming.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Comes(u64),
    Fails(usize, Cause, Option<u64>),
    Speaks(usize),
    Ends(usize),
    Retries(usize),
    Tick,
}

pub(super) struct World {
    pub(super) config: Config,
    pub(super) store: Store,
    state: State,
    scripts: Vec<Script>,
    start: Instant,
    at: u64,
    due: BinaryHeap<Reverse<(u64, u64, Due)>>,
    order: u64,
    random: u64,
    requests: Vec<Request>,
    /// Every attempt: when, and at whom.
    pub(super) attempts: Vec<(u64, usize)>,
}

/// One row of what was seen in a time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Row {
    /// Answered, by target.
    pub(super) by: Vec<usize>,
    /// Attempted, by target.
    pub(super) attempts: Vec<usize>,
    /// Seen by clients: all attempts failed.
    pub(super) failed: usize,
    /// Refused without an attempt.
    pub(super) refused: usize,
    /// The latest first token, in milliseconds.
    pub(super) slowest: u64,
}

impl World {
    pub(super) fn new(text: &str, seed: u64, scripts: Vec<Script>) -> World {
        let config = config(text);
        let store = Store::new(&config.health, seed, config.targets.iter().map(|_| false));
        assert_eq!(config.targets.len(), scripts.len());
        World {
            state: State::new(&config, seed),
            store,
            config,
            scripts,
            start: crate::time::now(),
            at: 0,
            due: BinaryHeap::new(),
            order: 0,
            random: seed,
            requests: Vec::new(),
            attempts: Vec::new(),
        }
    }

    /// Plays `seconds`, in which a request comes every `every` milliseconds.
    pub(super) fn play(&mut self, seconds: u64, every: u64) {
        let end = self.at + seconds * 1000;
        self.put(0, Due::Comes(every));
        self.put(0, Due::Tick);
        while let Some(Reverse((at, _, due))) = self.due.pop() {
            self.at = at;
            match due {
                // What is under way then ends still.
                Due::Comes(_) | Due::Tick if at >= end => {}
                Due::Comes(every) => {
                    self.put(every, Due::Comes(every));
                    self.comes();
                }
                Due::Tick => {
                    self.put(1000, Due::Tick);
                    let now = self.now();
                    self.store.tick(now);
                }
                Due::Fails(id, cause, pause) => self.fails(id, cause, pause),
                Due::Speaks(id) => self.speaks(id),
                Due::Ends(id) => self.ends(id, Ended::Well),
                Due::Retries(id) => self.attempt(id),
            }
        }
        self.at = end;
    }

    pub(super) fn now(&self) -> Instant {
        self.start + Duration::from_millis(self.at)
    }

    pub(super) fn saw(&self) -> impl Iterator<Item = &Saw> {
        self.requests.iter().map(|request| &request.saw)
    }

    /// What requests saw that came in these seconds.
    pub(super) fn row(&self, from: u64, to: u64) -> Row {
        let targets = self.config.targets.len();
        let mut row = Row { by: vec![0; targets], attempts: vec![0; targets], ..Row::default() };
        let within = |at: u64| (from * 1000..to * 1000).contains(&at);
        for saw in self.saw().filter(|saw| within(saw.at)) {
            match saw.by {
                Some(target) => row.by[target] += 1,
                None if saw.tried.is_empty() => row.refused += 1,
                None => row.failed += 1,
            }
            row.slowest = row.slowest.max(saw.first_token);
        }
        for (_, target) in self.attempts.iter().filter(|(at, _)| within(*at)) {
            row.attempts[*target] += 1;
        }
        row
    }

    /// All rows of so many seconds each, as a person reads them; for a failing test.
    pub(super) fn table(&self, step: u64) -> String {
        let mut text = String::new();
        for from in (0..self.at / 1000).step_by(usize::try_from(step).unwrap()) {
            let row = self.row(from, from + step);
            let _infallible = writeln!(text, "{from:>5} s {row:?}");
        }
        text
    }

    fn put(&mut self, after: u64, due: Due) {
        self.order += 1;
        self.due.push(Reverse((self.at + after, self.order, due)));
    }

    /// splitmix64.
    fn chance(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % 1_000_000
    }

    fn comes(&mut self) {
        let mut call = chat("m");
        call.prompt_tokens = 200;
        let now = self.now();
        let plan = plan(&self.config, &self.store, &mut self.state, &Ask::bare(&call), now);
        let saw = Saw { at: self.at, tried: Vec::new(), by: None, first_token: 0 };
        self.requests.push(Request { call, plan, next: 0, retries: 0, ticket: None, saw });
        self.attempt(self.requests.len() - 1);
    }

    /// The next candidate that lets itself be asked; when there is none, the last one that failed once more, after
    /// its back-off.
    fn attempt(&mut self, id: usize) {
        let now = self.now();
        let request = &mut self.requests[id];
        while let Some(candidate) = request.plan.candidates.get(request.next) {
            let target = candidate.target;
            let last_resort = candidate.last_resort;
            let Ok(ticket) = self.store.begin(target, &request.call.model, last_resort, now) else {
                request.next += 1;
                continue;
            };
            request.ticket = Some((ticket, self.at));
            self.attempts.push((self.at, target));
            let in_flight = self.store.target(target).in_flight;
            let chance = self.chance();
            match (self.scripts[target])(Attempt { at: self.at, in_flight, chance }) {
                Does::Fails(cause, after) => self.put(after, Due::Fails(id, cause, None)),
                Does::Pauses(time) => self.put(5, Due::Fails(id, Cause::RateLimited, Some(time))),
                Does::Answers(first, whole) => {
                    self.put(first, Due::Speaks(id));
                    self.put(first + whole, Due::Ends(id));
                }
            }
            return;
        }
        let last = request.saw.tried.last().map(|(target, _)| *target);
        let again = request.plan.candidates.iter().position(|candidate| Some(candidate.target) == last);
        if let Some(again) =
            again.filter(|again| request.retries < request.plan.candidates[*again].max_retries)
        {
            request.retries += 1;
            request.next = again;
            let jitter = self.chance() % 50;
            self.put(200 + jitter, Due::Retries(id));
        }
    }

    fn fails(&mut self, id: usize, cause: Cause, pause: Option<u64>) {
        self.ends(id, Ended::Failed(cause, pause.map(Duration::from_secs)));
        let request = &mut self.requests[id];
        request.saw.tried.push((request.plan.candidates[request.next].target, cause));
        request.next = if request.retries == 0 { request.next + 1 } else { usize::MAX };
        self.attempt(id);
    }

    fn speaks(&mut self, id: usize) {
        let now = self.now();
        let request = &mut self.requests[id];
        let Some((ticket, since)) = &request.ticket else { return };
        let after = Duration::from_millis(self.at - since);
        self.store.answered(ticket, request.call.prompt_tokens, Some(after), now);
        let target = ticket.target;
        let failed_over = !request.saw.tried.is_empty();
        self.state.committed(
            &request.plan,
            target,
            if failed_over { Before::Failed } else { Before::Nothing },
            now,
        );
        request.saw.by = Some(target);
        request.saw.first_token = self.at - request.saw.at;
    }

    fn ends(&mut self, id: usize, ended: Ended) {
        let now = self.now();
        if let Some((ticket, _)) = self.requests[id].ticket.take() {
            self.store.end(ticket, ended, now);
        }
    }
}
