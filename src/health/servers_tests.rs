//! How a local server that died, hangs, or ran out of memory is left alone, and how it comes back.

use super::*;
use crate::config::Health;
use crate::health::{Change, Ended, Pressure, Restricted, Standing, Why};
use crate::limits;
use proptest::prelude::*;

const SECOND: Duration = Duration::from_secs(1);

fn store() -> Store {
    let mut store = Store::new(&Health::default(), 1, [false, false]);
    store.watch(0);
    store
}

fn standing(store: &Store, model: &str, prompt: u64, now: Instant) -> Standing {
    store.summary(0, model, prompt, now).standing
}

/// One attempt. Gives what it changed, without its target and model.
fn attempt(store: &mut Store, prompt: u64, ended: Ended, now: Instant) -> Vec<Change> {
    let mut ticket = store.begin(0, "m", false, now).expect("it is asked");
    ticket.prompt_tokens = prompt;
    if ended == Ended::Well {
        store.answered(&ticket, prompt, None, now);
    }
    store.end(ticket, ended, now).into_iter().map(|news| news.what).collect()
}

fn fails(store: &mut Store, prompt: u64, cause: Cause, now: Instant) -> Vec<Change> {
    attempt(store, prompt, Ended::Failed(cause, None), now)
}

#[test]
fn a_death_is_a_rest_then_its_probe_and_steady_memory_and_one_trial() {
    let (mut store, start) = (store(), crate::time::now());
    let waiting = store.begin(0, "m", false, start).expect("it is asked");
    let rest = store.died(0, Cause::OomKill, true, start);
    assert!((limits::DEATH_REST..limits::DEATH_REST * 2).contains(&rest), "{rest:?}");
    assert!(matches!(standing(&store, "m", 1, start), Standing::Out(Why::Down(_, Cause::OomKill))));
    assert!(matches!(standing(&store, "other", 1, start), Standing::Out(Why::Down(..))), "all of its models");
    assert!(store.begin(0, "m", false, start).is_err());
    // What its death ended is not counted once more.
    assert_eq!(store.end(waiting, Ended::Failed(Cause::OomKill, None), start), []);
    assert_eq!(store.view(0, start)[0].samples, 0);

    let rested = start + rest + rest;
    assert_eq!(standing(&store, "m", 1, rested), Standing::Out(Why::Returning(Cause::OomKill)), "no probe");
    store.set_pressure(0, Pressure::Red);
    store.tick(rested);
    store.set_pressure(0, Pressure::Green);
    store.probed(0, Ok(()), rested);
    assert_eq!(standing(&store, "m", 1, rested), Standing::Out(Why::Returning(Cause::OomKill)), "not steady");
    let steady = rested + limits::DEATH_CALM;
    assert_eq!(standing(&store, "m", 1, steady), Standing::Trial(Why::HalfOpen(Cause::OomKill)));
    let trial = store.begin(0, "m", false, steady).expect("one may try");
    assert!(trial.trial && store.begin(0, "m", false, steady).is_err(), "and no second one");
    store.answered(&trial, 1, None, steady);
    let news = store.end(trial, Ended::Well, steady);
    assert_eq!(news.iter().map(|news| news.what).collect::<Vec<_>>(), [Change::Back]);
    assert_eq!(standing(&store, "m", 1, steady), Standing::Fit);
    let summary = store.summary(0, "m", 1, steady);
    assert!(summary.share < 1000 && summary.back_since == Some(steady), "in steps: {summary:?}");
    assert_eq!(standing(&store, "m", 1, steady + SECOND * 600), Standing::Fit);
}

#[test]
fn a_server_that_was_restarted_is_tried_as_soon_as_its_probe_succeeds() {
    let (mut store, now) = (store(), crate::time::now());
    store.died(0, Cause::Crashed, true, now);
    assert!(matches!(standing(&store, "m", 1, now), Standing::Out(Why::Down(..))));
    let _news = store.probed(0, Err(Cause::Refused), now);
    assert!(matches!(standing(&store, "m", 1, now), Standing::Out(Why::Down(..))));
    let _news = store.probed(0, Ok(()), now + SECOND);
    assert_eq!(standing(&store, "m", 1, now + SECOND), Standing::Trial(Why::HalfOpen(Cause::Crashed)));
    assert!(attempt(&mut store, 1, Ended::Well, now + SECOND).contains(&Change::Back));
    // The second time it is no operator.
    let again = now + SECOND * 30;
    store.died(0, Cause::Crashed, true, again);
    let _news = store.probed(0, Ok(()), again);
    assert!(matches!(standing(&store, "m", 1, again), Standing::Out(Why::Down(..))));
    // Nor is it one whose cause is known, or comes to be.
    for late in [false, true] {
        let mut store = self::store();
        store.died(0, if late { Cause::Crashed } else { Cause::OomKill }, true, now);
        store.died_of(0, Cause::OomKill);
        let _news = store.probed(0, Ok(()), now);
        assert!(matches!(standing(&store, "m", 1, now), Standing::Out(Why::Down(..))), "{late}");
    }
}

#[test]
fn each_further_death_doubles_the_rest_up_to_ten_minutes_and_a_trial_that_fails_does_too() {
    let (mut store, mut now) = (store(), crate::time::now());
    let mut before = Duration::ZERO;
    for _ in 0..8 {
        let rest = store.died(0, Cause::Crashed, false, now);
        assert!(rest > before || rest >= limits::DEATH_REST_MAX, "{rest:?}");
        assert!(rest <= limits::DEATH_REST_MAX * 11 / 10, "{rest:?}");
        before = rest.min(limits::DEATH_REST_MAX);
        now += rest;
    }
    let (mut store, now) = (self::store(), crate::time::now());
    let rest = store.died(0, Cause::Crashed, false, now);
    let changes = fails(&mut store, 1, Cause::Refused, now + rest);
    let Some(Change::Opened(again, Cause::Refused)) = changes.first().copied() else { panic!("{changes:?}") };
    assert!(again >= limits::DEATH_REST * 2, "{again:?}");
    assert!(matches!(standing(&store, "m", 1, now + rest), Standing::Out(Why::Down(..))));
}

#[test]
fn with_nobody_else_it_is_asked_all_the_same_and_is_back_when_it_answers() {
    let (mut store, now) = (store(), crate::time::now());
    store.died(0, Cause::Crashed, true, now);
    assert!(Why::Down(SECOND, Cause::Crashed).is_rest() && Why::Returning(Cause::Crashed).is_rest());
    let last = store.begin(0, "m", true, now).expect("rather than nobody");
    assert!(store.begin(0, "m", true, now).is_err(), "one at a time");
    store.answered(&last, 1, None, now);
    let news = store.end(last, Ended::Well, now);
    assert!(news.iter().any(|news| news.what == Change::Back), "{news:?}");
    assert_eq!(standing(&store, "m", 1, now), Standing::Fit);
}

#[test]
fn a_model_that_rests_gives_the_servers_trial_back() {
    let mut health = Health::default();
    health.breaker.cooldown = SECOND * 60;
    let (mut store, start) = (Store::new(&health, 1, [false]), crate::time::now());
    store.watch(0);
    while store.begin(0, "m", false, start).is_ok_and(|ticket| {
        store.end(ticket, Ended::Failed(Cause::Http5xx, None), start);
        true
    }) {}
    let now = start + store.died(0, Cause::Crashed, false, start);
    assert!(matches!(store.begin(0, "m", false, now), Err(Why::Open(..))), "the model's own rest is longer");
    let other = standing(&store, "other", 1, now);
    assert!(store.begin(0, "other", false, now).is_ok(), "the trial is free: {other:?}");
}

#[test]
fn two_first_tokens_too_late_in_a_row_are_a_hang_unless_it_answers_others() {
    let after = |store: &mut Store, waited: Duration, now: Instant| {
        let ticket = store.begin(0, "m", false, now).expect("it is asked");
        let ended = Ended::Failed(Cause::TimeoutFirstToken, None);
        store.end(ticket, ended, now + waited).into_iter().map(|news| news.what).collect::<Vec<_>>()
    };
    let late = |store: &mut Store, now| after(store, limits::HANG_LEAST, now);
    let (mut hangs, now) = (store(), crate::time::now());
    assert_eq!(late(&mut hangs, now), []);
    assert_eq!(late(&mut hangs, now), [Change::Hangs]);
    assert!(matches!(standing(&hangs, "m", 1, now), Standing::Out(Why::Down(_, Cause::Hang))));

    let mut hasty = store();
    for _ in 0..2 {
        assert_eq!(after(&mut hasty, limits::HANG_LEAST / 10, now), [], "a route that does not wait");
    }

    let mut answers = store();
    for _ in 0..4 {
        late(&mut answers, now);
        attempt(&mut answers, 1, Ended::Well, now);
    }
    assert_eq!(standing(&answers, "m", 1, now), Standing::Fit, "not in a row");

    let mut models = store();
    for model in ["a", "b", "c"] {
        let ticket = models.begin(0, model, false, now).expect("it is asked");
        assert_eq!(
            models.end(ticket, Ended::Failed(Cause::TimeoutFirstToken, None), now + limits::HANG_LEAST),
            [],
            "each may load"
        );
    }

    let mut busy = store();
    let stream = busy.begin(0, "m", false, now).expect("it is asked");
    busy.answered(&stream, 1, None, now);
    late(&mut busy, now);
    assert_eq!(late(&mut busy, now), [], "it streams to another one");

    let mut down = store();
    for _ in 0..3 {
        down.probed(0, Err(Cause::Refused), now);
    }
    late(&mut down, now);
    assert!(!late(&mut down, now).contains(&Change::Hangs), "its probe says so, too");

    let mut cloud = Store::new(&Health::default(), 1, [false]);
    late(&mut cloud, now);
    assert!(!late(&mut cloud, now).contains(&Change::Hangs), "not on this box");
}

#[test]
fn twice_out_of_memory_costs_the_model_its_long_prompts_and_nobody_else() {
    let (mut store, start) = (store(), crate::time::now());
    assert!(fails(&mut store, 9000, Cause::CudaOom, start).is_empty());
    let later = start + SECOND * 60;
    assert_eq!(fails(&mut store, 8000, Cause::OomKill, later), [Change::Strained(Restricted::To(4000))]);
    assert_eq!(standing(&store, "m", 4000, later), Standing::Fit);
    let Standing::Out(why) = standing(&store, "m", 4001, later) else { panic!("it is too long") };
    assert_eq!(why, Why::PromptTooLong(4000, limits::STRAIN_BAN));
    assert!(why.in_words().contains("prompts of 4000 tokens at most") && !why.is_rest() && !why.yields());
    assert_eq!(standing(&store, "other", 50_000, later), Standing::Fit);
    assert_eq!(store.view(0, later)[0].most_prompt, Some(4000));
    assert_eq!(standing(&store, "m", 50_000, later + limits::STRAIN_BAN), Standing::Fit);
}

#[test]
fn a_failed_gpu_keeps_all_from_it_until_it_is_reset_or_an_operator_reloads() {
    let (mut store, now) = (store(), crate::time::now());
    assert!(store.latch(0, Some(79)) && !store.latch(0, Some(48)), "told once");
    assert!(!store.latch(1, Some(79)), "not this box's");
    assert_eq!(standing(&store, "m", 1, now), Standing::Out(Why::Latched(Some(79))));
    let why = Why::Latched(Some(79));
    assert!(why.yields() && store.begin(0, "m", false, now).is_ok(), "but rather than nobody");
    assert!(why.in_words().contains("Xid 79") && why.in_words().contains("reset"), "{}", why.in_words());
    let reloaded = store.renewed(&Health::default(), [(Some(0), false)]);
    assert_eq!(standing(&reloaded, "m", 1, now), Standing::Fit);
    assert!(store.unlatch(0) && !store.unlatch(0));
    assert_eq!(standing(&store, "m", 1, now), Standing::Fit);
}

proptest! {
    #[test]
    fn one_trial_at_a_time_whatever_happens(events in proptest::collection::vec((0_u8..6, 0_u64..30), 1..80)) {
        let (mut store, mut now) = (store(), crate::time::now());
        let mut under_way = Vec::new();
        for (event, after) in events {
            now += SECOND * u32::try_from(after).unwrap_or(1);
            match event {
                0 => { store.died(0, Cause::Crashed, after % 2 == 0, now); }
                1 => { store.probed(0, Ok(()), now); }
                2 | 3 => under_way.extend(store.begin(0, "m", false, now)),
                _ => if let Some(ticket) = under_way.pop() {
                    let ended = if event == 4 { Ended::Neutral } else { Ended::Failed(Cause::Reset, None) };
                    store.end(ticket, ended, now);
                },
            }
            if let Standing::Trial(_) = standing(&store, "m", 1, now) {
                under_way.push(store.begin(0, "m", false, now).expect("it said so"));
            }
            // What is left alone is never asked in its turn.
            if let Standing::Out(Why::Down(..) | Why::Returning(_)) = standing(&store, "m", 1, now) {
                prop_assert!(store.begin(0, "m", false, now).is_err());
            }
        }
    }
}
