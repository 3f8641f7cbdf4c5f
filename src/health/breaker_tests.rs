//! What opens a breaker, what closes it, and what doesn't, whatever the order and the clock.

use super::super::weights::weight;
use super::*;
use proptest::prelude::*;

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn failed(cause: Cause) -> Verdict {
    match weight(cause) {
        0 => Verdict::Neutral,
        weight => Verdict::Failed(cause, weight),
    }
}

fn one(breaker: &mut Breaker, verdict: Verdict, now: Instant) -> Option<Change> {
    let policy = Policy::default();
    let pass = breaker.begin(&policy, now).expect("it is asked");
    breaker.end(&policy, pass, verdict, now)
}

/// Opened by three failures at `now`. Returns its rest.
fn opened(breaker: &mut Breaker, now: Instant) -> Duration {
    for _ in 0..2 {
        assert_eq!(one(breaker, failed(Cause::Refused), now), None);
    }
    match one(breaker, failed(Cause::Refused), now) {
        Some(Change::Opened(rest, Cause::Refused)) => rest,
        other => panic!("{other:?}"),
    }
}

#[test]
fn three_failures_in_a_row_open_it_and_a_success_between_does_not() {
    let (policy, now) = (Policy::default(), crate::time::now());
    let mut breaker = Breaker::new(&policy, 1);
    for _ in 0..4 {
        one(&mut breaker, failed(Cause::Http5xx), now);
        one(&mut breaker, failed(Cause::Http5xx), now);
        assert_eq!(one(&mut breaker, Verdict::Well, now), None);
        for _ in 0..3 {
            one(&mut breaker, Verdict::Well, now);
        }
    }
    let rest = opened(&mut breaker, now);
    assert!(rest >= secs(10) && rest <= secs(11), "{rest:?}");
    assert_eq!(breaker.gate(&policy, now), Gate::Shut(Why::Open(rest, Cause::Refused)));
    assert_eq!(breaker.gate(&policy, now + rest), Gate::Trial(Cause::Refused));
}

#[test]
fn half_of_ten_failing_opens_it() {
    let (policy, now) = (Policy::default(), crate::time::now());
    let mut breaker = Breaker::new(&policy, 1);
    let changes = (0..10).map(|n| {
        let verdict = if n % 2 == 1 { failed(Cause::Truncated) } else { Verdict::Well };
        one(&mut breaker, verdict, now + secs(n))
    });
    let changes: Vec<_> = changes.collect();
    assert!(changes[..9].iter().all(Option::is_none));
    assert!(matches!(changes[9], Some(Change::Opened(_, Cause::Truncated))));
}

#[test]
fn light_causes_do_not_open_it_and_neutral_ones_are_nothing() {
    let now = crate::time::now();
    for cause in Cause::ALL.into_iter().filter(|cause| weight(*cause) < limits::BREAKER_RUN_WEIGHT) {
        let mut breaker = Breaker::new(&Policy::default(), 1);
        for n in 0..50 {
            assert_eq!(one(&mut breaker, failed(cause), now + secs(n)), None, "{cause}");
        }
    }
    let mut breaker = Breaker::new(&Policy::default(), 1);
    for _ in 0..2 {
        one(&mut breaker, failed(Cause::Refused), now);
        one(&mut breaker, failed(Cause::RateLimited), now);
        one(&mut breaker, failed(Cause::Empty), now);
    }
    assert!(one(&mut breaker, failed(Cause::Refused), now).is_some(), "they do not end a run either");
}

#[test]
fn a_trial_decides_and_who_began_before_does_not() {
    let (policy, now) = (Policy::default(), crate::time::now());
    let mut breaker = Breaker::new(&policy, 1);
    let (early, late) = (breaker.begin(&policy, now).unwrap(), breaker.begin(&policy, now).unwrap());
    let at = now + opened(&mut breaker, now);
    assert_eq!(breaker.end(&policy, early, Verdict::Well, at), None);
    let trial = breaker.begin(&policy, at).unwrap();
    assert!(trial.trial);
    assert_eq!(breaker.begin(&policy, at), Err(Why::HalfOpen(Cause::Refused)));
    assert_eq!(breaker.end(&policy, late, failed(Cause::Reset), at), None);
    assert_eq!(breaker.gate(&policy, at), Gate::Shut(Why::HalfOpen(Cause::Refused)), "still half open");
    assert_eq!(breaker.end(&policy, trial, Verdict::Neutral, at), None);
    let again = breaker.begin(&policy, at).expect("a trial that told nothing frees its place");
    assert_eq!(breaker.end(&policy, again, Verdict::Well, at), Some(Change::Closed));
    assert_eq!(breaker.gate(&policy, at), Gate::Fit);
}

#[test]
fn in_its_rest_one_request_at_a_time_is_let_through_where_nobody_else_is_left() {
    let (policy, now) = (Policy::default(), crate::time::now());
    let mut breaker = Breaker::new(&policy, 1);
    let rest = opened(&mut breaker, now);
    let open = |breaker: &Breaker, at| matches!(breaker.gate(&policy, at), Gate::Shut(Why::Open(..)));
    assert!(breaker.begin(&policy, now).is_err());
    let first = breaker.begin_last_resort(&policy, now).expect("nobody else is left");
    assert!(breaker.begin_last_resort(&policy, now + secs(2)).is_err(), "one at a time");
    assert_eq!(breaker.end(&policy, first, failed(Cause::Refused), now), None);
    assert!(open(&breaker, now + rest - secs(1)), "it rests as long as it would have, and no longer");
    assert_eq!(breaker.gate(&policy, now + rest), Gate::Trial(Cause::Refused));
    assert!(breaker.begin_last_resort(&policy, now).is_err(), "nor is it hammered");
    let again = breaker.begin_last_resort(&policy, now + secs(1)).expect("a second later");
    assert_eq!(breaker.end(&policy, again, Verdict::Well, now + secs(1)), Some(Change::Closed));
    assert_eq!(breaker.gate(&policy, now + secs(1)), Gate::Fit);
}

#[test]
fn beside_a_long_trial_one_request_a_second_is_let_through_where_nobody_else_is_left() {
    let (policy, now) = (Policy::default(), crate::time::now());
    let mut breaker = Breaker::new(&policy, 1);
    let at = now + opened(&mut breaker, now);
    let trial = breaker.begin(&policy, at).expect("its rest is over");
    breaker.spoke(trial);
    let first = breaker.begin_last_resort(&policy, at).expect("the trial may stream for minutes");
    assert!(breaker.begin_last_resort(&policy, at + secs(2)).is_err(), "no first token yet");
    breaker.spoke(first);
    let second = breaker.begin_last_resort(&policy, at + secs(2)).expect("it answers");
    assert!(breaker.begin_last_resort(&policy, at + secs(9)).is_err());
    assert_eq!(breaker.end(&policy, first.having(true), failed(Cause::Reset), at + secs(9)), None);
    assert!(breaker.begin_last_resort(&policy, at + secs(9)).is_err(), "the second one is still waited for");
    assert_eq!(breaker.end(&policy, second, Verdict::Well, at + secs(9)), Some(Change::Closed));
}

#[test]
fn its_share_returns_in_steps_and_two_failures_meanwhile_double_the_rest() {
    let (policy, now) = (Policy::default(), crate::time::now());
    let mut breaker = Breaker::new(&policy, 1);
    let at = now + opened(&mut breaker, now);
    one(&mut breaker, Verdict::Well, at);
    let shares = [0, 9, 10, 19, 20, 29, 30].map(|after| breaker.share(&policy, at + secs(after)));
    assert_eq!(shares, [100, 100, 250, 250, 500, 500, 1000]);
    assert_eq!(breaker.state(&policy, at), "recovering");
    assert_eq!(breaker.share(&Policy { recovery: Duration::ZERO, ..policy.clone() }, at), 1000);
    assert_eq!(one(&mut breaker, failed(Cause::Oom), at + secs(28)), None, "one may be bad luck");
    let Some(Change::Opened(rest, _)) = one(&mut breaker, failed(Cause::Oom), at + secs(29)) else {
        panic!("two are enough")
    };
    assert!(rest >= secs(20) && rest <= secs(22), "{rest:?}");
}

#[test]
fn old_streams_that_end_well_do_not_hide_that_new_ones_fail() {
    let (policy, now) = (Policy::default(), crate::time::now());
    let mut breaker = Breaker::new(&policy, 1);
    let begin = |breaker: &mut Breaker| breaker.begin(&policy, now).expect("closed");
    let old: Vec<Pass> = (0..3).map(|_| begin(&mut breaker)).collect();
    for pass in &old {
        breaker.spoke(*pass);
    }
    let mut last = None;
    for pass in old {
        let new = begin(&mut breaker);
        last = breaker.end(&policy, new, failed(Cause::Http5xx), now);
        breaker.end(&policy, Pass { spoke: true, ..pass }, Verdict::Well, now);
    }
    assert!(matches!(last, Some(Change::Opened(..))), "three in a row, whatever ended meanwhile");
    // A first token between them is a sign of life; streams that break after theirs are a run of their own.
    let mut breaker = Breaker::new(&policy, 1);
    for broken in [false, true, false, true] {
        let pass = begin(&mut breaker);
        breaker.spoke(pass);
        assert_eq!(breaker.end(&policy, Pass { spoke: broken, ..pass }, failed(Cause::Reset), now), None);
    }
    let pass = begin(&mut breaker);
    let end = breaker.end(&policy, Pass { spoke: true, ..pass }, failed(Cause::Reset), now);
    assert!(matches!(end, Some(Change::Opened(..))), "the third that broke");
}

#[test]
fn rests_double_up_to_the_most_and_are_forgotten_after_a_long_while() {
    let (policy, mut at) = (Policy::default(), crate::time::now());
    let mut breaker = Breaker::new(&policy, 1);
    let mut rest = opened(&mut breaker, at);
    for expected in [20, 40, 80, 160, 300, 300] {
        at += rest;
        let Some(Change::Opened(next, _)) = one(&mut breaker, failed(Cause::Refused), at) else { panic!() };
        assert!(next >= secs(expected) && next <= secs(expected) + secs(expected) / 10, "{next:?}");
        rest = next;
    }
    at += rest;
    // A full server is no worse than before: as long again.
    let Some(Change::Opened(next, _)) = one(&mut breaker, failed(Cause::Overloaded), at) else { panic!() };
    assert!(next >= secs(300) && next <= secs(330));
    at += next;
    assert_eq!(one(&mut breaker, Verdict::Well, at), Some(Change::Closed));
    let mut soon = breaker.clone();
    assert!(opened(&mut soon, at + secs(100)) >= secs(300));
    assert!(opened(&mut breaker, at + limits::BREAKER_FORGET.max(secs(300))) <= secs(11));
}

#[test]
fn a_flapping_target_rests_longer_each_time() {
    let (policy, start) = (Policy::default(), crate::time::now());
    let mut breaker = Breaker::new(&policy, 1);
    let mut asked = [0; 2];
    // Ten seconds good, ten bad, for twenty minutes; a request each half second.
    for half in 0..2400_u64 {
        let now = start + Duration::from_millis(half * 500);
        let good = (half / 20) % 2 == 0;
        if !matches!(breaker.gate(&policy, now), Gate::Shut(Why::HalfOpen(_)))
            && let Ok(pass) = breaker.begin(&policy, now)
        {
            asked[usize::from(good)] += 1;
            breaker.end(&policy, pass, if good { Verdict::Well } else { failed(Cause::Reset) }, now);
        }
    }
    assert!(asked[0] <= 30, "{asked:?}: without a breaker 1200 would have failed");
}

#[test]
fn a_minute_of_503_costs_five_requests_at_most() {
    let policy = Policy::default();
    for seed in 0..500 {
        let start = crate::time::now();
        let mut breaker = Breaker::new(&policy, seed);
        let (mut outage, mut back) = (0, None);
        for half in 0..300_u64 {
            let now = start + Duration::from_millis(half * 500);
            let down = half < 120;
            let Ok(pass) = breaker.begin(&policy, now) else { continue };
            outage += u32::from(down);
            if !down {
                back.get_or_insert(half / 2 - 60);
            }
            breaker.end(&policy, pass, if down { failed(Cause::Http5xx) } else { Verdict::Well }, now);
        }
        assert!(outage <= 5, "seed {seed}: {outage}");
        assert!(
            back.is_some_and(|back| back <= 44),
            "seed {seed}: {back:?} s, its third rest is 44 s at most"
        );
    }
}

#[test]
fn off_it_never_opens() {
    let policy = Policy { enabled: false, ..Policy::default() };
    let mut breaker = Breaker::new(&policy, 1);
    let now = crate::time::now();
    for _ in 0..50 {
        let pass = breaker.begin(&policy, now).unwrap();
        assert_eq!(breaker.end(&policy, pass, failed(Cause::Refused), now), None);
    }
    // Open, then off by a reload.
    let mut breaker = Breaker::new(&policy, 1);
    opened(&mut breaker, now);
    assert_eq!((breaker.gate(&policy, now), breaker.share(&policy, now)), (Gate::Fit, 1000));
}

#[derive(Clone, Debug)]
enum Step {
    Begin,
    LastResort,
    End(prop::sample::Index, Verdict),
    Up,
}

fn steps() -> impl Strategy<Value = Vec<(u64, Step)>> {
    let verdict = prop_oneof![
        2 => Just(Verdict::Well),
        3 => prop::sample::select(&Cause::ALL[..]).prop_map(failed),
        1 => Just(Verdict::Neutral),
    ];
    let step = prop_oneof![
        8 => Just(Step::Begin),
        8 => (any::<prop::sample::Index>(), verdict).prop_map(|(at, verdict)| Step::End(at, verdict)),
        1 => Just(Step::Up),
        1 => Just(Step::LastResort),
    ];
    // Mostly small steps of time; now and then a jump anywhere, back too.
    let time = prop_oneof![9 => (0_u64..3000).prop_map(|ms| ms), 1 => 1_000_000_u64..40_000_000];
    prop::collection::vec((time, step), 1..300)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn no_order_and_no_clock_opens_it_without_cause_or_keeps_it_open(
        steps in steps(),
        trials in 1_u32..4,
        seed in any::<u64>(),
    ) {
        let policy = Policy { trials, ..Policy::default() };
        let start = crate::time::now();
        let mut breaker = Breaker::new(&policy, seed);
        let mut at = 20_000_000_u64;
        let mut passes: Vec<Pass> = Vec::new();
        // Of the attempts of the present state: failures since the last success, and all outcomes.
        let (mut run, mut samples, mut weights, mut opened_once) = (0_u32, 0_u32, 0_u32, false);
        for (time, step) in steps {
            at = if time >= 1_000_000 { time } else { at + time };
            let now = start + Duration::from_millis(at);
            match step {
                Step::Begin => {
                    if let Ok(pass) = breaker.begin(&policy, now) {
                        prop_assert!(!pass.trial || opened_once, "a trial needs an opening");
                        passes.push(pass);
                    }
                }
                Step::End(which, verdict) if !passes.is_empty() => {
                    let pass = passes.remove(which.index(passes.len()));
                    let current = pass.generation == breaker.generation;
                    if current && !pass.trial && !pass.last_resort {
                        match verdict {
                            Verdict::Well => { samples += 1; run = 0; }
                            Verdict::Failed(_, weight) => {
                                samples += 1;
                                weights += u32::from(weight);
                                run += u32::from(weight);
                            }
                            Verdict::Neutral => {}
                        }
                    }
                    let recovering = breaker.share(&policy, now) < 1000;
                    match breaker.end(&policy, pass, verdict, now) {
                        Some(Change::Opened(rest, _)) => {
                            prop_assert!(rest <= policy.cooldown_max + policy.cooldown_max / 10);
                            let most = if recovering { limits::BREAKER_RECOVERING_RUN } else { u32::MAX };
                            let by_run = run >= policy.consecutive.min(most) * 1000;
                            let by_rate = samples >= policy.min_samples && weights > 0;
                            prop_assert!(pass.trial || by_run || by_rate, "{run} {samples} {weights}");
                            prop_assert!(matches!(verdict, Verdict::Failed(..)));
                            opened_once = true;
                            (run, samples, weights) = (0, 0, 0);
                        }
                        Some(Change::Closed) => {
                            prop_assert!((pass.trial || pass.last_resort) && verdict == Verdict::Well);
                            (run, samples, weights) = (0, 1, 0);
                        }
                        other => prop_assert!(other.is_none()),
                    }
                }
                Step::End(..) => {}
                Step::LastResort => {
                    let before = breaker.state(&policy, now);
                    if let Ok(pass) = breaker.begin_last_resort(&policy, now) {
                        prop_assert!(!pass.last_resort || before == "open" || before == "half_open");
                        passes.push(pass);
                    }
                }
                Step::Up => breaker.end_rest(),
            }
            let under_way = passes.iter().filter(|p| p.trial && p.generation == breaker.generation).count();
            prop_assert!(under_way <= trials as usize);
            let resorts =
                passes.iter().filter(|p| p.last_resort && p.generation == breaker.generation).count();
            prop_assert!(resorts <= 1, "one at a time");
            prop_assert!(breaker.share(&policy, now) >= 1);
        }
        // All that is under way ends, the target is healthy, time goes on: it closes.
        let mut now = start + Duration::from_millis(at);
        for pass in passes {
            breaker.end(&policy, pass, Verdict::Neutral, now);
        }
        let mut tries = 0;
        while breaker.state(&policy, now) != "closed" {
            if let Ok(pass) = breaker.begin(&policy, now) {
                breaker.end(&policy, pass, Verdict::Well, now);
            }
            now += secs(10);
            tries += 1;
            prop_assert!(tries < 50, "{breaker:?}");
        }
    }
}
