//! The same candidate again: when, how often, and what ends the wait.

use super::*;
use crate::config::RetryFirst;

const EXACT: Retry = Retry {
    first: RetryFirst::Failover,
    backoff: millis(200),
    jitter: Duration::ZERO,
    budget: Permille(1000),
};

use crate::config::Permille;

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn retried(target: usize, max_retries: u32) -> Candidate {
    Candidate { max_retries, ..candidate(target) }
}

fn table(retries: &[u32], first: RetryFirst) -> Table {
    let all = retries.iter().enumerate().map(|(target, retries)| retried(target, *retries)).collect();
    let mut table = Table::new(all);
    table.machine = table.machine.retrying(&Retry { first, ..EXACT }, 1);
    assert_eq!(table.on(Event::Start), connect(0));
    table
}

fn refused(table: &mut Table) -> Action {
    table.on(Event::Failed(Cause::Refused))
}

/// The budget grants one, and its pause passes.
fn granted(table: &mut Table, pause: Duration) -> Action {
    assert_eq!(table.on(Event::MayRetry(true)), Action::Pause);
    assert_eq!(table.machine.deadline(), Some(table.now + pause));
    table.wait()
}

#[test]
fn others_first_then_each_again_in_order() {
    let mut table = table(&[1, 0, 2], RetryFirst::Failover);
    assert_eq!(refused(&mut table), connect(1));
    assert_eq!(refused(&mut table), connect(2));
    assert_eq!(refused(&mut table), Action::AskRetry);
    assert_eq!(granted(&mut table, millis(200)), connect(0));
    assert_eq!(refused(&mut table), Action::AskRetry);
    assert_eq!(table.on(Event::MayRetry(true)), connect(2), "its own back-off has passed meanwhile");
    assert_eq!(refused(&mut table), Action::AskRetry);
    assert_eq!(granted(&mut table, millis(400)), connect(2));
    assert_eq!(refused(&mut table), Action::Refuse(Cause::Refused));
    assert_eq!(table.tried().iter().map(|(n, _)| *n).collect::<Vec<_>>(), [0, 1, 2, 0, 2, 2]);
}

#[test]
fn the_same_first_where_the_configuration_says_so() {
    let mut table = table(&[2, 1], RetryFirst::Retry);
    for pause in [200, 400] {
        assert_eq!(refused(&mut table), Action::AskRetry);
        assert_eq!(granted(&mut table, millis(pause)), connect(0));
    }
    assert_eq!(refused(&mut table), connect(1));
    assert_eq!(refused(&mut table), Action::AskRetry);
    assert_eq!(table.on(Event::MayRetry(false)), Action::Refuse(Cause::Refused));
}

#[test]
fn a_refused_retry_is_a_failover_and_the_budget_is_asked_once() {
    let mut table = table(&[2, 2], RetryFirst::Retry);
    assert_eq!(refused(&mut table), Action::AskRetry);
    assert_eq!(table.on(Event::MayRetry(false)), connect(1));
    assert_eq!(refused(&mut table), Action::Refuse(Cause::Refused));
}

#[test]
fn what_a_retry_cannot_mend_is_not_retried() {
    for cause in
        [Cause::Unauthorized, Cause::ModelMissing, Cause::ContextOverflow, Cause::Suspended, Cause::Drill]
    {
        let mut table = table(&[2], RetryFirst::Failover);
        assert_eq!(table.on(Event::Failed(cause)), Action::Refuse(cause), "{cause}");
    }
    let mut table = table(&[2], RetryFirst::Failover);
    table.on(Event::Connected);
    assert_eq!(table.on(Event::Rejected(Cause::ClientFault, None)), Action::PassRejection);
}

#[test]
fn a_named_pause_is_kept_and_a_long_one_is_left_to_the_client() {
    let limited = |wait| Event::Rejected(Cause::RateLimited, wait);
    let mut kept = table(&[1], RetryFirst::Failover);
    assert_eq!(kept.on(limited(Some(secs(5)))), Action::AskRetry);
    assert_eq!(granted(&mut kept, millis(5200)), connect(0));
    let mut short = table(&[1], RetryFirst::Failover);
    short.on(limited(Some(Duration::ZERO)));
    assert_eq!(granted(&mut short, millis(200)), connect(0), "never sooner than the back-off");
    let mut long = table(&[1], RetryFirst::Failover);
    assert_eq!(long.on(limited(Some(secs(6)))), Action::Refuse(Cause::RateLimited));
    let mut other = table(&[1, 0], RetryFirst::Retry);
    assert_eq!(other.on(limited(Some(secs(1)))), connect(1), "not waited for while somebody else is there");
    assert_eq!(refused(&mut other), Action::AskRetry);
    assert_eq!(granted(&mut other, millis(1200)), connect(0));
    let mut unnamed = table(&[1, 0], RetryFirst::Retry);
    assert_eq!(unnamed.on(limited(None)), connect(1), "nor is a cool-down");
    assert_eq!(refused(&mut unnamed), Action::AskRetry);
    assert_eq!(granted(&mut unnamed, millis(5200)), connect(0), "which is waited for");
}

#[test]
fn a_place_that_is_waited_for_puts_off_the_connections_deadline_but_not_the_total() {
    let mut table = table(&[0, 0], RetryFirst::Failover);
    assert_eq!((refused(&mut table), table.machine.has_fresh()), (connect(1), false));
    assert_eq!(table.on(Event::Waits(secs(2))), Action::Wait);
    assert_eq!(
        (table.due(), table.wait()),
        (Some(DEADLINES.connect + secs(2)), Action::Refuse(Cause::TimeoutConnect))
    );
    let mut late = Table::with(vec![retried(0, 0)], 0, None);
    late.on(Event::Start);
    late.on(Event::Waits(DEADLINES.total));
    assert_eq!((late.due(), late.wait()), (Some(DEADLINES.total), Action::Refuse(Cause::TimeoutTotal)));
}

#[test]
fn who_is_left_for_now_is_asked_again_behind_the_others() {
    let again = |target| Candidate { again: true, ..candidate(target) };
    // Nothing was sent: it was busy for too long.
    let mut left = Table::new(vec![candidate(0), candidate(1), again(0)]);
    left.on(Event::Start);
    assert_eq!(left.on(Event::Waits(secs(9))), Action::Wait);
    assert_eq!(left.on(Event::Failed(Cause::Busy)), connect(1));
    assert!(left.machine.has_fresh());
    assert_eq!((refused(&mut left), left.machine.has_fresh()), (connect(2), false));
    assert_eq!(refused(&mut left), Action::Refuse(Cause::Refused));
    // Asked and failed, it is not.
    let mut failed = Table::new(vec![candidate(0), candidate(1), again(0)]);
    failed.on(Event::Start);
    assert_eq!((refused(&mut failed), failed.machine.has_fresh()), (connect(1), false));
    assert_eq!(refused(&mut failed), Action::Refuse(Cause::Refused));
}

#[test]
fn who_waits_at_the_server_is_left_in_time_or_as_late_as_a_load_may_take() {
    let begun = |leaves: Option<Duration>| {
        let mut table = Table::new(vec![candidate(0), candidate(1)]);
        table.on(Event::Start);
        let at = leaves.map(|after| table.now + after);
        assert_eq!(table.on(Event::Leaves(at, Cause::NotLoaded)), Action::Wait);
        assert_eq!(table.on(Event::Connected), Action::Send);
        table
    };
    let mut short = begun(Some(secs(4)));
    assert_eq!((short.due(), short.wait()), (Some(secs(4)), connect(1)));
    assert_eq!(short.tried(), [(0, Cause::NotLoaded)]);
    // The next attempt has its own time.
    short.on(Event::Connected);
    assert_eq!(short.machine.deadline(), Some(short.now + secs(10)));
    // Headers are no token.
    let mut head = begun(Some(secs(4)));
    assert_eq!(head.on(Event::Head), Action::Read);
    assert_eq!((head.due(), head.wait()), (Some(secs(4)), Action::Expire(Cause::NotLoaded)));
    let mut never = begun(None);
    assert_eq!((never.due(), never.wait()), (Some(secs(100)), connect(1)));
    assert_eq!(never.tried(), [(0, Cause::TimeoutLoad)]);
}

#[test]
fn no_retry_begins_after_the_total() {
    let mut table = table(&[1], RetryFirst::Failover);
    table.now = table.start + DEADLINES.total - millis(200);
    assert_eq!(refused(&mut table), Action::Refuse(Cause::Refused), "it would begin when the time is up");
}

#[test]
fn a_pause_beats_and_ends_with_a_stop() {
    let pausing = || {
        let mut table = Table::with(vec![retried(0, 1)], 0, Some(secs(3)));
        table.machine = table.machine.retrying(&EXACT, 1);
        table.on(Event::Start);
        table.on(Event::Rejected(Cause::RateLimited, Some(secs(5))));
        assert_eq!(table.on(Event::MayRetry(true)), Action::Pause);
        table
    };
    let mut beats = pausing();
    assert_eq!((beats.due(), beats.wait()), (Some(secs(3)), Action::Beat));
    assert_eq!((beats.due(), beats.wait()), (Some(millis(5200)), connect(0)));
    for cause in [Cause::Cancelled, Cause::Draining, Cause::ClientGone] {
        let mut table = pausing();
        let want = if cause == Cause::ClientGone { Action::Abandon } else { Action::Refuse(cause) };
        assert_eq!(table.on(Event::Stop(cause)), want);
        assert_eq!(table.tried(), [(0, Cause::RateLimited)], "the attempt was over already");
    }
}

#[test]
fn jitter_is_added_within_its_bound_and_differs() {
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..50 {
        let mut table = Table::new(vec![retried(0, 1)]);
        table.machine = table.machine.retrying(&Retry { jitter: millis(50), ..EXACT }, seed);
        table.on(Event::Start);
        refused(&mut table);
        table.on(Event::MayRetry(true));
        let pause = table.machine.deadline().unwrap() - table.now;
        assert!(pause >= millis(200) && pause <= millis(250), "{pause:?}");
        seen.insert(pause);
    }
    assert!(seen.len() > 10);
}

#[test]
fn a_retry_of_the_last_one_may_load_for_long() {
    let mut table = Table::new(vec![Candidate { loads: true, ..retried(0, 1) }, candidate(1)]);
    table.machine = table.machine.retrying(&EXACT, 1);
    table.on(Event::Start);
    table.on(Event::Connected);
    assert_eq!(table.due(), Some(secs(10)), "somebody else is left");
    assert_eq!(table.on(Event::Failed(Cause::Reset)), connect(1));
    refused(&mut table);
    assert_eq!(granted(&mut table, millis(200)), connect(0));
    table.on(Event::Connected);
    assert_eq!(table.machine.deadline(), Some(table.now + secs(100)));
}
