//! Slots never leak and never exceed the limit; who waits is told once; clients take turns.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use proptest::prelude::*;

use super::*;

const QUEUE: Queue = Queue { length: 8, time: Duration::from_secs(2) };

fn one(most: u32) -> (Queues, Lane) {
    let mut queues = Queues::default();
    let (lanes, woken) = queues.configure([("box", Some(most))]);
    assert!(woken.is_empty());
    (queues, lanes[0])
}

fn waits(entry: Entry) -> Pass {
    match entry {
        Entry::Waits { pass, instead_of: None, .. } => pass,
        _ => panic!("{entry:?}"),
    }
}

fn is_in(entry: Entry) -> Pass {
    match entry {
        Entry::In(pass) => pass,
        _ => panic!("{entry:?}"),
    }
}

#[derive(Clone, Debug)]
enum Step {
    Enter {
        lane: usize,
        client: u64,
        priority: Priority,
    },
    /// The nth of all requests ever, whatever became of it.
    Leave(usize),
    Pass(u64),
    Configure(Option<u32>),
}

fn step() -> impl Strategy<Value = Step> {
    let priority = prop_oneof![Just(Priority::Low), Just(Priority::Normal), Just(Priority::High)];
    prop_oneof![
        6 => (0..2_usize, 0..4_u64, priority).prop_map(|(lane, client, priority)| Step::Enter { lane, client, priority }),
        5 => any::<prop::sample::Index>().prop_map(|at| Step::Leave(at.index(200))),
        2 => (0..1500_u64).prop_map(Step::Pass),
        1 => prop::option::of(0..5_u32).prop_map(Step::Configure),
    ]
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Waits(Instant),
    In,
    Out,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn slots_never_leak_nor_exceed_the_limit_and_who_waits_is_told_once(
        steps in prop::collection::vec(step(), 1..200),
    ) {
        let mut queues = Queues::default();
        let mut most = [Some(2), Some(1)];
        let (lanes, _) = queues.configure([("a", most[0]), ("b", most[1])]);
        let mut now = crate::time::now();
        let mut all: Vec<Pass> = Vec::new();
        let mut states: HashMap<Pass, (usize, State)> = HashMap::new();
        for step in steps {
            // Nobody is let in above a limit; one that was lowered is only waited for.
            let before = lanes.iter().map(|lane| queues.inside(*lane)).collect::<Vec<_>>();
            let mut woken = Vec::new();
            match step {
                Step::Enter { lane, client, priority } => {
                    let free = queues.is_free(lanes[lane]);
                    let full = queues.waiting(lanes[lane]) == QUEUE.length;
                    let entry = queues.enter(lanes[lane], client, priority, &QUEUE, now);
                    prop_assert_eq!(matches!(entry, Entry::In(_)), free);
                    prop_assert!(full || entry != Entry::Shed);
                    match entry {
                        Entry::In(pass) => {
                            prop_assert!(states.insert(pass, (lane, State::In)).is_none());
                            all.push(pass);
                        }
                        Entry::Waits { pass, until, instead_of } => {
                            prop_assert_eq!(instead_of.is_some(), full);
                            if let Some(out) = instead_of {
                                let old = states.insert(out, (lane, State::Out));
                                prop_assert!(matches!(old, Some((_, State::Waits(_)))), "{old:?}");
                            }
                            prop_assert!(states.insert(pass, (lane, State::Waits(until))).is_none());
                            all.push(pass);
                        }
                        Entry::Shed => {}
                    }
                }
                Step::Leave(nth) => {
                    let Some(pass) = all.get(nth) else { continue };
                    let next = queues.leave(*pass);
                    let (lane, old) = states[pass];
                    states.insert(*pass, (lane, State::Out));
                    prop_assert!(next.is_none() || old == State::In);
                    woken.extend(next);
                }
                Step::Pass(ms) => now += Duration::from_millis(ms),
                Step::Configure(limit) => {
                    most[0] = limit;
                    let (again, more) = queues.configure([("b", most[1]), ("a", most[0])]);
                    prop_assert_eq!(again, vec![lanes[1], lanes[0]]);
                    woken = more;
                }
            }
            for pass in woken {
                let (lane, old) = states[&pass];
                prop_assert!(matches!(old, State::Waits(_)), "told twice, or after it was out: {old:?}");
                states.insert(pass, (lane, State::In));
            }
            for (at, lane) in lanes.iter().enumerate() {
                let count = |wanted: fn(&State) -> bool| {
                    states.values().filter(|(lane, state)| *lane == at && wanted(state)).count()
                };
                prop_assert_eq!(queues.inside(*lane), count(|state| *state == State::In));
                prop_assert_eq!(queues.waiting(*lane), count(|state| matches!(state, State::Waits(_))));
                prop_assert!(queues.waiting(*lane) <= QUEUE.length);
                let room = most[at].map_or(usize::MAX, |most| most as usize);
                prop_assert!(queues.inside(*lane) <= room.max(before[at]), "above the limit");
                // Nobody waits before a free slot.
                prop_assert!(queues.waiting(*lane) == 0 || !queues.is_free(*lane));
            }
        }
        for pass in &all {
            // Whoever that lets in is one of `all`, too.
            let _next = queues.leave(*pass);
        }
        for pass in &all {
            let _next = queues.leave(*pass);
        }
        prop_assert!(lanes.iter().all(|lane| queues.inside(*lane) + queues.waiting(*lane) == 0), "leaked");
    }

    /// With `n` requests of its own ahead of it, a request lets each other client go first `n + 1` times at most,
    /// whatever they send meanwhile, and is not shed within its fair part of the queue.
    #[test]
    fn no_client_starves_another(
        others in prop::collection::vec(0..3_u64, 0..40),
        own in 1..3_usize,
        meanwhile in prop::collection::vec(prop::collection::vec(0..3_u64, 0..4), 60),
    ) {
        let (mut queues, lane) = one(1);
        let now = crate::time::now();
        let mut inside = is_in(queues.enter(lane, 0, Priority::Normal, &QUEUE, now));
        let mut owner: HashMap<Pass, u64> = HashMap::new();
        let mine = 99;
        let enter = |queues: &mut Queues, owner: &mut HashMap<Pass, u64>, client| {
            match queues.enter(lane, client, Priority::Normal, &QUEUE, now) {
                Entry::Waits { pass, instead_of, .. } => {
                    owner.insert(pass, client);
                    instead_of.map(|out| owner[&out])
                }
                _ => Some(client),
            }
        };
        others.iter().for_each(|client| { enter(&mut queues, &mut owner, *client); });
        for _ in 0..own {
            // Four clients and eight places: two of them are everybody's.
            prop_assert_ne!(enter(&mut queues, &mut owner, mine), Some(mine), "shed");
        }
        let (mut served, mut before) = (0, HashMap::<u64, usize>::new());
        for arrivals in meanwhile {
            for client in arrivals {
                prop_assert_ne!(enter(&mut queues, &mut owner, client), Some(mine), "pushed out");
            }
            let Some(next) = queues.leave(inside) else { break };
            inside = next;
            if owner[&next] == mine {
                served += 1;
                if served == own { break }
            } else {
                let count = before.entry(owner[&next]).or_default();
                *count += 1;
                prop_assert!(*count <= served + 1, "{before:?} after {served} of mine");
            }
        }
        prop_assert_eq!(served, own);
    }
}

#[test]
fn clients_take_turns_each_with_its_oldest() {
    let (mut queues, lane) = one(1);
    let now = crate::time::now();
    let mut inside = is_in(queues.enter(lane, 1, Priority::Normal, &QUEUE, now));
    let mut enter = |client, priority| waits(queues.enter(lane, client, priority, &QUEUE, now));
    let one = [enter(1, Priority::Normal), enter(1, Priority::Normal), enter(1, Priority::Normal)];
    let two = [enter(2, Priority::Normal), enter(2, Priority::Normal)];
    let low = enter(3, Priority::Low);
    let high = enter(1, Priority::High);
    for expected in [high, one[0], two[0], one[1], two[1], one[2], low] {
        inside = queues.leave(inside).unwrap();
        assert_eq!(inside, expected);
    }
    assert_eq!(queues.leave(inside), None);
    assert_eq!((queues.inside(lane), queues.waiting(lane)), (0, 0));
}

#[test]
fn a_full_queue_sheds_who_has_the_most_and_the_low_first() {
    let (mut queues, lane) = one(1);
    let queue = Queue { length: 3, ..QUEUE };
    let now = crate::time::now();
    let mut enter = |client, priority| queues.enter(lane, client, priority, &queue, now);
    let instead = |entry| match entry {
        Entry::Waits { pass, instead_of, .. } => (pass, instead_of),
        _ => panic!("{entry:?}"),
    };
    is_in(enter(1, Priority::Normal));
    let greedy: Vec<_> = (0..3).map(|_| waits(enter(1, Priority::Normal))).collect();
    assert_eq!(enter(1, Priority::Normal), Entry::Shed, "its own are no reason to push out another");
    assert_eq!(enter(1, Priority::Low), Entry::Shed);
    assert_eq!(instead(enter(2, Priority::Normal)).1, Some(greedy[2]));
    assert_eq!(enter(2, Priority::Normal), Entry::Shed, "two and two is no fairer than two and one");
    let (third, out) = instead(enter(3, Priority::Normal));
    assert_eq!(out, Some(greedy[1]));
    assert_eq!(enter(4, Priority::Normal), Entry::Shed, "one each");
    assert_eq!(instead(enter(4, Priority::High)).1, Some(third), "the last in turn");
}

#[test]
fn a_wait_ends_in_time_and_giving_up_is_leaving() {
    let (mut queues, lane) = one(1);
    let now = crate::time::now();
    let inside = is_in(queues.enter(lane, 1, Priority::Normal, &QUEUE, now));
    let first = waits(queues.enter(lane, 1, Priority::Normal, &QUEUE, now));
    let second = waits(queues.enter(lane, 1, Priority::Normal, &QUEUE, now + QUEUE.time / 2));
    assert_eq!(queues.leave(first), None, "nobody is let in by that");
    assert_eq!(queues.leave(first), None, "it is out already");
    assert_eq!(queues.leave(inside), Some(second));
    // Let in, but it went away before it was told: the slot is free again.
    assert_eq!(queues.leave(second), None);
    assert!(queues.is_free(lane));
}

#[test]
fn nobody_waits_where_waiting_is_off() {
    let (mut queues, lane) = one(1);
    let now = crate::time::now();
    is_in(queues.enter(lane, 1, Priority::High, &QUEUE, now));
    for queue in [Queue { length: 0, ..QUEUE }, Queue { time: Duration::ZERO, ..QUEUE }] {
        assert_eq!(queues.enter(lane, 2, Priority::High, &queue, now), Entry::Shed);
    }
}

#[test]
fn lanes_stay_with_their_names_and_are_bounded() {
    let mut queues = Queues::default();
    let now = crate::time::now();
    let (lanes, _) = queues.configure([("a", Some(1)), ("b", None)]);
    let inside = is_in(queues.enter(lanes[0], 1, Priority::Normal, &QUEUE, now));
    for _ in 0..9 {
        is_in(queues.enter(lanes[1], 1, Priority::Normal, &QUEUE, now));
    }
    // Out of the file, and back in: what is under way still counts.
    let (other, _) = queues.configure([("c", None)]);
    assert!(!lanes.contains(&other[0]));
    let (again, _) = queues.configure([("b", Some(3)), ("a", Some(1))]);
    assert_eq!(again, [lanes[1], lanes[0]]);
    assert!(!queues.is_free(lanes[0]) && !queues.is_free(lanes[1]));
    let waiter = waits(queues.enter(lanes[0], 1, Priority::Normal, &QUEUE, now));
    assert_eq!(queues.configure([("a", None)]).1, [waiter], "more room");
    // Names that come and go.
    for n in 0..2 * limits::QUEUE_LANES {
        queues.configure([(format!("t{n}").as_str(), Some(1))]);
    }
    assert_eq!(queues.lanes.len(), limits::QUEUE_LANES);
    assert_eq!(queues.inside(lanes[0]), 2, "never one that is in use");
    assert_eq!(queues.leave(inside), None);
    let distinct: HashSet<Lane> =
        queues.configure([("x", None), ("y", None), ("a", None)]).0.into_iter().collect();
    assert_eq!(distinct.len(), 3);
}
