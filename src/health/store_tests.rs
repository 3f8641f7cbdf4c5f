//! What the store makes of attempts, probes and time, as routing sees it.

use super::*;
use crate::limits;

fn store<const N: usize>(absent: [bool; N]) -> Store {
    Store::new(&Health::default(), 1, absent)
}

fn commit(store: &mut Store, target: usize, model: &str, now: Instant) {
    let ticket = store.begin(target, model, now).expect("it is asked");
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
    let ticket = store.begin(target, model, now).expect("it is asked");
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
