//! What the store makes of attempts, probes and time, as routing sees it.

use super::*;
use crate::limits;
use proptest::prelude::*;

fn store<const N: usize>(absent: [bool; N]) -> Store {
    Store::new(&Health::default(), 1, absent)
}

fn commit(store: &mut Store, target: usize, model: &str, now: Instant) {
    let ticket = store.begin(target, model, false, now).expect("it is asked");
    store.answered(&ticket, 10, None, now);
    assert_eq!(store.end(ticket, Ended::Well, now), []);
}

/// An attempt that fails. Returns whether that was news of a misconfiguration.
fn failed(
    store: &mut Store,
    target: usize,
    model: &str,
    cause: Cause,
    retry_after: Option<Duration>,
    now: Instant,
) -> bool {
    let ticket = store.begin(target, model, false, now).expect("it is asked");
    let news = store.end(ticket, Ended::Failed(cause, retry_after), now);
    news.iter().any(|news| news.what == Change::Misconfigured(cause))
}

#[test]
fn a_429_cools_down_as_told_within_bounds() {
    let now = crate::time::now();
    let mut store = store([false, false, false]);
    failed(&mut store, 0, "m", Cause::RateLimited, Some(Duration::from_secs(7)), now);
    failed(&mut store, 1, "m", Cause::RateLimited, None, now);
    failed(&mut store, 2, "m", Cause::RateLimited, Some(Duration::from_secs(1_000_000)), now);
    let until = |t| store.target(t).cooldown_until.map(|at| at - now);
    assert_eq!(until(0), Some(Duration::from_secs(7)));
    assert_eq!(until(1), Some(limits::COOLDOWN_DEFAULT));
    assert_eq!(until(2), Some(limits::COOLDOWN_MAX));
}

#[test]
fn who_began_before_a_429_does_not_end_its_cool_down() {
    let now = crate::time::now();
    let mut store = store([false]);
    let before = store.begin(0, "m", false, now).expect("it is asked");
    failed(&mut store, 0, "m", Cause::RateLimited, Some(Duration::from_secs(7)), now);
    store.answered(&before, 10, None, now);
    assert!(matches!(standing(&store, 0, "m", now), Standing::Out(Why::CoolingDown(_))));
    store.end(before, Ended::Well, now);
    assert!(store.begin(0, "m", false, now + Duration::from_secs(6)).is_err());
    assert!(store.begin(0, "m", false, now + Duration::from_secs(7)).is_ok());
}

#[test]
fn misconfigured_is_news_once_and_ends_with_a_commit() {
    let now = crate::time::now();
    let mut store = store([false]);
    assert!(failed(&mut store, 0, "m", Cause::Unauthorized, None, now));
    assert!(!failed(&mut store, 0, "m", Cause::Unauthorized, None, now));
    assert!(store.misconfigured(0, "other", now));
    commit(&mut store, 0, "other", now);
    assert!(!store.misconfigured(0, "m", now));
}

#[test]
fn a_missing_model_is_missing_alone_and_not_for_ever() {
    let now = crate::time::now();
    let mut store = store([false]);
    assert!(failed(&mut store, 0, "typo", Cause::ModelMissing, None, now));
    assert!(!failed(&mut store, 0, "typo", Cause::ModelMissing, None, now));
    assert!(store.misconfigured(0, "typo", now));
    assert!(!store.misconfigured(0, "m", now), "other models are served as before");
    commit(&mut store, 0, "m", now);
    assert!(store.misconfigured(0, "typo", now), "another model's answer says nothing of this one");
    assert!(!store.misconfigured(0, "typo", now + limits::MISCONFIGURED_PAUSE), "it may have been pulled");
    commit(&mut store, 0, "typo", now);
    assert!(!store.misconfigured(0, "typo", now));
}

#[test]
fn clients_cannot_fill_memory_with_names() {
    let now = crate::time::now();
    let mut store = store([false]);
    for n in 0..limits::MISSING_MODELS_MAX + 3 {
        failed(&mut store, 0, &n.to_string(), Cause::ModelMissing, None, now);
    }
    assert_eq!(store.target(0).missing.len(), limits::MISSING_MODELS_MAX);
    assert!(store.misconfigured(0, "18", now) && !store.misconfigured(0, "0", now));
}

#[test]
fn waiting_for_time_is_no_failure_and_ends_with_the_clock_a_connection_or_patience() {
    let now = crate::time::now();
    let mut store = store([false, false, false]);
    for target in 0..3 {
        assert!(store.waits_for_time(target, now));
        assert!(!store.waits_for_time(target, now), "told once");
        failed(&mut store, target, "m", Cause::Clock, None, now);
        assert_eq!(store.target(target).failed, 0);
        assert!(store.comes_last(target, "m", now));
        assert!(!store.comes_last(target, "m", now + limits::CLOCK_PATIENCE));
    }
    commit(&mut store, 0, "m", now);
    store.reached(1);
    assert!(!store.comes_last(0, "m", now) && !store.comes_last(1, "m", now));
    assert_eq!(store.clock_was_set(), [2]);
    assert!(!store.comes_last(2, "m", now));
    assert_eq!(store.clock_was_set(), [0; 0]);
}

#[test]
fn the_clients_own_ends_count_against_nobody() {
    let now = crate::time::now();
    let mut store = store([false]);
    for cause in [Cause::ClientGone, Cause::ClientFault, Cause::Cancelled, Cause::Draining] {
        failed(&mut store, 0, "m", cause, None, now);
    }
    assert_eq!(store.target(0).failed, 0);
    assert!(store.target(0).last_failure.is_none());
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn standing(store: &Store, target: usize, model: &str, now: Instant) -> Standing {
    store.summary(target, model, 10, now).standing
}

/// An attempt that ends well, its first token after `millis`.
fn served(store: &mut Store, target: usize, model: &str, millis: u64, now: Instant) -> Vec<News> {
    let ticket = store.begin(target, model, false, now).expect("it is asked");
    store.answered(&ticket, 10, Some(Duration::from_millis(millis)), now);
    store.end(ticket, Ended::Well, now)
}

fn changes(news: &[News]) -> Vec<Change> {
    news.iter().map(|news| news.what).collect()
}

#[test]
fn a_minute_of_503_costs_five_requests_and_ends_within_a_rest() {
    let start = crate::time::now();
    let mut store = store([false, false]);
    let (mut asked, mut back, mut news) = (0, None, Vec::new());
    for half in 0..400_u64 {
        let now = start + Duration::from_millis(500 * half);
        let down = half < 120;
        news.extend(store.tick(now));
        let fit = !matches!(standing(&store, 0, "m", now), Standing::Out(_));
        if fit && down {
            asked += 1;
            let ticket = store.begin(0, "m", false, now).expect("the plan said so");
            news.extend(store.end(ticket, Ended::Failed(Cause::Http5xx, None), now));
        } else if fit {
            back.get_or_insert(half / 2 - 60);
            news.extend(served(&mut store, 0, "m", 200, now));
            continue;
        }
        served(&mut store, 1, "m", 300, now);
    }
    assert!(asked <= 5, "{asked}");
    assert!(back.is_some_and(|back| back <= 44), "{back:?}");
    let told = changes(&news);
    let opened = told.iter().filter(|what| matches!(what, Change::Opened(..))).count();
    assert!(opened <= 3 && told.contains(&Change::Closed), "{told:?}");
    assert!(news.iter().all(|news| news.target == 0 && news.model.as_deref() == Some("m")));
}

#[test]
fn a_breaker_is_one_models_own() {
    let now = crate::time::now();
    let mut store = store([false]);
    for _ in 0..3 {
        failed(&mut store, 0, "m", Cause::Oom, None, now);
    }
    assert!(matches!(standing(&store, 0, "m", now), Standing::Out(Why::Open(_, Cause::Oom))));
    assert!(matches!(store.begin(0, "m", false, now), Err(Why::Open(..))));
    assert_eq!(standing(&store, 0, "small", now), Standing::Fit);
    assert_eq!(store.target(0).in_flight, 0, "who may not begin is not under way");
}

#[test]
fn a_429_never_counts() {
    let start = crate::time::now();
    let mut store = store([false]);
    for n in 0..100 {
        let now = start + secs(6 * n);
        failed(&mut store, 0, "m", Cause::RateLimited, Some(secs(5)), now);
        assert_eq!(standing(&store, 0, "m", now), Standing::Out(Why::CoolingDown(secs(5))));
        assert_eq!(
            store.begin(0, "m", false, now),
            Err(Why::CoolingDown(secs(5))),
            "said between plan and attempt"
        );
        assert_eq!(store.tick(now), []);
        let after = store.summary(0, "m", 10, now + secs(5));
        assert_eq!((after.standing, after.share), (Standing::Fit, 1000));
    }
    assert_eq!(store.view(0, start + secs(600))[0].samples, 0);
}

#[test]
fn the_worst_reason_is_told_first() {
    let now = crate::time::now();
    let mut store = store([true]);
    store.set_pressure(0, Pressure::Red);
    assert_eq!(standing(&store, 0, "m", now), Standing::Out(Why::Absent));
    assert_eq!(store.begin(0, "m", false, now), Err(Why::Absent));
    store.set_absent(0, false);
    assert_eq!(standing(&store, 0, "m", now), Standing::Out(Why::PressureRed));
    assert!(store.begin(0, "m", true, now).is_ok(), "rather than nobody");
    store.set_pressure(0, Pressure::Amber);
    assert_eq!((standing(&store, 0, "m", now), store.pressure(0)), (Standing::Fit, Pressure::Amber));
    failed(&mut store, 0, "m", Cause::ModelMissing, None, now);
    assert_eq!(standing(&store, 0, "m", now), Standing::Last(Why::ModelMissing));
    failed(&mut store, 0, "m", Cause::Unauthorized, None, now);
    assert_eq!(standing(&store, 0, "m", now), Standing::Last(Why::RefusedKey));
    for _ in 0..2 {
        store.probed(0, Err(Cause::Refused), now);
    }
    assert_eq!(standing(&store, 0, "m", now), Standing::Out(Why::ProbeDown(Cause::Refused)));
    for _ in 0..3 {
        failed(&mut store, 0, "m", Cause::Reset, None, now);
    }
    assert!(matches!(standing(&store, 0, "m", now), Standing::Out(Why::Open(..))));
    assert_eq!(store.summary(7, "m", 10, now).standing, Standing::Fit, "an unknown index");
    assert!(store.begin(7, "m", false, now).is_ok());
}

#[test]
fn probes_mark_down_fast_help_up_and_close_no_breaker() {
    let now = crate::time::now();
    let mut store = store([false]);
    for _ in 0..3 {
        failed(&mut store, 0, "m", Cause::Refused, None, now);
    }
    assert_eq!(store.probed(0, Ok(()), now), [], "it was not down: the rest goes on");
    assert!(matches!(standing(&store, 0, "m", now), Standing::Out(Why::Open(..))));
    assert_eq!(store.probed(0, Err(Cause::Refused), now), []);
    assert_eq!(store.probed(0, Err(Cause::RateLimited), now), [], "it answers");
    assert_eq!(changes(&store.probed(0, Err(Cause::Refused), now)), [Change::ProbeDown(Cause::Refused)]);
    assert_eq!(store.probe_down(0), Some(Cause::Refused));
    assert_eq!(standing(&store, 0, "other", now), Standing::Out(Why::ProbeDown(Cause::Refused)));
    assert!(store.begin(0, "other", false, now).is_ok(), "rather than nobody");
    assert_eq!(changes(&store.probed(0, Ok(()), now)), [Change::ProbeUp]);
    assert_eq!(
        standing(&store, 0, "m", now),
        Standing::Trial(Why::HalfOpen(Cause::Refused)),
        "at once, and only half open"
    );
    let trial = store.begin(0, "m", false, now).unwrap();
    assert!(trial.trial);
    assert_eq!(standing(&store, 0, "m", now), Standing::Out(Why::HalfOpen(Cause::Refused)));
    assert_eq!(changes(&store.end(trial, Ended::Well, now)), [Change::Closed]);
    assert_eq!(
        store.summary(0, "m", 10, now),
        Summary { standing: Standing::Fit, share: 100, first_token: None, back_since: Some(now) }
    );
}

#[test]
fn a_user_that_is_served_knows_better_than_a_probe() {
    let now = crate::time::now();
    let mut store = store([false]);
    for _ in 0..2 {
        store.probed(0, Err(Cause::Protocol), now);
    }
    assert_eq!(changes(&served(&mut store, 0, "m", 100, now)), [Change::ProbeUp]);
    assert_eq!(standing(&store, 0, "m", now), Standing::Fit);
    assert_eq!(store.probed(0, Err(Cause::Protocol), now), [], "counted from the beginning");
}

#[test]
fn a_slow_target_is_out_tried_by_a_trickle_and_back() {
    let mut now = crate::time::now();
    let mut store = store([false]);
    let mut news = Vec::new();
    let mut run = |store: &mut Store, now: &mut Instant, seconds: u64, millis: u64| {
        let mut asked = 0;
        for _ in 0..seconds {
            *now += secs(1);
            news.extend(store.tick(*now));
            if !matches!(standing(store, 0, "m", *now), Standing::Out(_)) {
                asked += 1;
                news.extend(served(store, 0, "m", millis, *now));
            }
        }
        (asked, std::mem::take(&mut news))
    };
    assert_eq!(run(&mut store, &mut now, 900, 200), (900, vec![]));
    let first_token = store.summary(0, "m", 10, now).first_token.unwrap();
    assert!(first_token > Duration::from_millis(150) && first_token < Duration::from_millis(250));
    let (asked, told) = run(&mut store, &mut now, 600, 2000);
    assert!(matches!(changes(&told)[..], [Change::Ejected(Why::SlowFirstToken(_))]), "{told:?}");
    assert!(asked < 300, "{asked}");
    let view = &store.view(0, now)[0];
    assert!(view.first_token_p95.is_some_and(|p95| p95 > Duration::from_millis(1800)), "{view:?}");
    assert!(
        matches!(store.view(0, now)[0].standing, Standing::Out(why) | Standing::Trial(why) if why.yields())
    );
    now += secs(10);
    assert!(matches!(standing(&store, 0, "m", now), Standing::Trial(Why::SlowFirstToken(_))));
    let trial = store.begin(0, "m", false, now).unwrap();
    assert!(trial.trial);
    assert!(matches!(standing(&store, 0, "m", now + secs(60)), Standing::Out(Why::SlowFirstToken(_))));
    let anyway = store.begin(0, "m", false, now).expect("rather than nobody");
    assert!(!anyway.trial);
    store.answered(&anyway, 10, Some(secs(2)), now);
    store.end(anyway, Ended::Neutral, now);
    assert!(
        matches!(standing(&store, 0, "m", now + secs(60)), Standing::Out(_)),
        "the trickle's is still under way"
    );
    store.answered(&trial, 10, Some(secs(2)), now);
    assert!(
        matches!(standing(&store, 0, "m", now + secs(60)), Standing::Trial(_)),
        "it has shown its first token"
    );
    store.end(trial, Ended::Neutral, now);
    let (_, told) = run(&mut store, &mut now, 600, 200);
    assert_eq!(changes(&told), [Change::Readmitted]);
    assert_eq!(standing(&store, 0, "m", now), Standing::Fit);
}

#[test]
fn failures_now_and_then_cost_a_share() {
    let start = crate::time::now();
    let mut store = store([false]);
    let mut news = Vec::new();
    for n in 0..120_u64 {
        let now = start + secs(n);
        if n % 8 == 3 {
            let ticket = store.begin(0, "m", false, now).unwrap();
            news.extend(store.end(ticket, Ended::Failed(Cause::Truncated, None), now));
        } else {
            news.extend(served(&mut store, 0, "m", 200, now));
        }
        news.extend(store.tick(now));
    }
    assert!(changes(&news).starts_with(&[Change::Degraded(500), Change::Degraded(250)]), "{news:?}");
    let summary = store.summary(0, "m", 10, start + secs(120));
    assert!(summary.standing == Standing::Fit && summary.share <= 250, "{summary:?}");
}

#[test]
fn clients_cannot_fill_memory_with_models_and_what_is_unwell_stays() {
    let start = crate::time::now();
    let mut store = store([false]);
    for _ in 0..3 {
        failed(&mut store, 0, "bad", Cause::Refused, None, start);
    }
    let running = store.begin(0, "running", false, start).unwrap();
    for n in 0..200 {
        served(&mut store, 0, &n.to_string(), 100, start + secs(1));
    }
    let names: Vec<_> = store.view(0, start).into_iter().map(|view| view.model).collect();
    assert_eq!(names.len(), limits::HEALTH_MODELS_MAX);
    assert!(
        ["bad", "running", "199"].iter().all(|name| names.iter().any(|known| known == name)),
        "{names:?}"
    );
    // No room: nothing is remembered, everything is counted.
    let tickets: Vec<_> =
        (0..40).map(|n| store.begin(0, &format!("x{n}"), false, start + secs(2)).unwrap()).collect();
    assert_eq!(store.target(0).in_flight, 41);
    assert_eq!(store.view(0, start).len(), limits::HEALTH_MODELS_MAX);
    for ticket in tickets {
        store.answered(&ticket, 10, Some(secs(1)), start);
        assert_eq!(store.end(ticket, Ended::Failed(Cause::Reset, None), start), []);
    }
    store.end(running, Ended::Well, start);
    assert_eq!(store.target(0).in_flight, 0);
    // What is unwell, and of no interest to anybody any more, goes in the end.
    for n in 0..40 {
        served(&mut store, 0, &format!("y{n}"), 100, start + limits::HEALTH_MODEL_IDLE);
    }
    assert!(store.view(0, start).iter().all(|view| view.model != "bad"));
}

#[test]
fn a_changed_configuration_keeps_the_health_of_those_that_stay() {
    let now = crate::time::now();
    let mut store = store([false, false]);
    for _ in 0..3 {
        failed(&mut store, 1, "m", Cause::Refused, None, now);
    }
    let rest = store.summary(1, "m", 10, now).standing;
    let Standing::Out(Why::Open(left, _)) = rest else { panic!("{rest:?}") };
    let trial = store.begin(1, "m", false, now + left).unwrap();
    let mut renewed = store.renewed(&Health::default(), [(Some(1), false), (None, true)]);
    assert_eq!(
        standing(&renewed, 0, "m", now),
        Standing::Trial(Why::HalfOpen(Cause::Refused)),
        "the trial is the old store's"
    );
    assert_eq!(renewed.target(0).in_flight, 0);
    assert_eq!(standing(&renewed, 1, "m", now), Standing::Out(Why::Absent));
    assert!(renewed.begin(0, "m", false, now + left).is_ok_and(|ticket| ticket.trial));
    assert_eq!(changes(&store.end(trial, Ended::Well, now + left)), [Change::Closed]);
}

#[derive(Clone, Debug)]
enum Step {
    Begin(usize, usize),
    Answered(prop::sample::Index, u64),
    Gaps(prop::sample::Index, u64),
    End(prop::sample::Index, Ended),
    Tick,
    Probed(usize, Result<(), Cause>),
    Pressure(usize, Pressure),
    Renewed,
}

fn steps() -> impl Strategy<Value = Vec<(u64, Step)>> {
    let cause = || prop::sample::select(&Cause::ALL[..]);
    let ended = prop_oneof![
        Just(Ended::Well),
        Just(Ended::Neutral),
        (cause(), prop::option::of(0_u64..100))
            .prop_map(|(cause, after)| Ended::Failed(cause, after.map(Duration::from_secs))),
    ];
    let pressure = prop::sample::select(vec![Pressure::Green, Pressure::Amber, Pressure::Red]);
    let any = any::<prop::sample::Index>;
    let step = prop_oneof![
        8 => (0_usize..3, 0_usize..40).prop_map(|(target, model)| Step::Begin(target, model)),
        5 => (any(), 0_u64..100_000).prop_map(|(at, millis)| Step::Answered(at, millis)),
        2 => (any(), 0_u64..100_000).prop_map(|(at, millis)| Step::Gaps(at, millis)),
        8 => (any(), ended).prop_map(|(at, ended)| Step::End(at, ended)),
        3 => Just(Step::Tick),
        1 => (0_usize..3, prop_oneof![Just(Ok(())), cause().prop_map(Err)])
            .prop_map(|(target, result)| Step::Probed(target, result)),
        1 => (0_usize..3, pressure).prop_map(|(target, pressure)| Step::Pressure(target, pressure)),
        1 => Just(Step::Renewed),
    ];
    let time = prop_oneof![9 => 0_u64..5000, 1 => 1_000_000_u64..90_000_000];
    prop::collection::vec((time, step), 1..200)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    #[test]
    fn in_flight_is_exact_and_the_summary_and_begin_agree(steps in steps()) {
        let start = crate::time::now();
        // The third target is not in the store.
        let mut store = store([false, false]);
        let mut at = 50_000_000_u64;
        let mut tickets: Vec<Ticket> = Vec::new();
        for (turn, (time, step)) in steps.into_iter().enumerate() {
            at = if time >= 1_000_000 { time } else { at + time };
            let now = start + Duration::from_millis(at);
            match step {
                Step::Begin(target, model) => {
                    let model = format!("m{model}");
                    let said = standing(&store, target, &model, now);
                    match store.begin(target, &model, false, now) {
                        Ok(ticket) => {
                            let lets = |why: Why| why.yields() || why == Why::PressureRed;
                            prop_assert!(!matches!(said, Standing::Out(why) if !lets(why)), "{said:?}");
                            prop_assert!(ticket.trial || !matches!(said, Standing::Trial(_)), "{said:?}");
                            tickets.push(ticket);
                        }
                        Err(why) => prop_assert!(matches!(said, Standing::Out(_)), "{said:?} {why:?}"),
                    }
                }
                Step::Answered(which, millis) if !tickets.is_empty() => {
                    let ticket = which.get(&tickets);
                    store.answered(ticket, millis, Some(Duration::from_millis(millis)), now);
                }
                Step::Gaps(which, millis) if !tickets.is_empty() => {
                    let mut gaps = Sketch::new();
                    (0..20).for_each(|_| gaps.add_time(Duration::from_millis(millis)));
                    store.gaps(which.get(&tickets), &gaps, now);
                }
                Step::End(which, ended) if !tickets.is_empty() => {
                    let ticket = tickets.swap_remove(which.index(tickets.len()));
                    store.end(ticket, ended, now);
                }
                Step::Answered(..) | Step::Gaps(..) | Step::End(..) => {}
                Step::Tick => drop(store.tick(now)),
                Step::Probed(target, result) => drop(store.probed(target, result, now)),
                Step::Pressure(target, pressure) => store.set_pressure(target, pressure),
                Step::Renewed => {
                    store = store.renewed(&Health::default(), [(Some(0), false), (Some(1), false)]);
                    tickets.clear();
                }
            }
            for target in 0..2 {
                let running = tickets.iter().filter(|ticket| ticket.target == target).count();
                prop_assert_eq!(store.target(target).in_flight, running);
                // It merges sketches, which takes its time in a test build.
                if turn % 16 != 0 {
                    continue;
                }
                let view = store.view(target, now);
                prop_assert!(view.len() <= limits::HEALTH_MODELS_MAX);
                prop_assert!(view.iter().all(|view| (1..=1000).contains(&view.share)));
                prop_assert!(view.iter().map(|view| view.in_flight).sum::<usize>() <= running);
            }
        }
    }
}
