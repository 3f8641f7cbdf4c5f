//! Two attempts beside each other: when the second begins, who wins, and what becomes of the other.

use super::*;

/// The first candidate's first token is late after 3 s.
fn late(count: usize) -> Table {
    let mut table = Table::of(count);
    table.machine.hedging(vec![Some(secs(3))]);
    table.gating()
}

/// Both run.
fn both(count: usize) -> Table {
    let mut table = late(count);
    assert_eq!((table.due(), table.wait()), (Some(secs(3)), Action::Hedge { candidate: 1 }));
    assert_eq!(table.on(Event::Hedges(1)), Action::Wait);
    table
}

#[test]
fn the_hedge_wins_and_the_late_one_is_nobodys_failure() {
    let mut table = both(2);
    assert_eq!(table.on(Event::HedgeWon), Action::Commit);
    assert_eq!(table.tried(), [(0, Cause::Hedged)]);
    assert_eq!(table.on(Event::HedgeWon), Action::Wait, "one commits");
    assert_eq!(table.on(moved(false, true, true)), Action::Read);
    assert_eq!(table.on(Event::Ended { whole: false }), Action::EndClean);
}

#[test]
fn the_first_wins_after_all() {
    let mut table = both(2);
    assert_eq!(table.on(Event::Verdict(&Verdict::Commit)), Action::Commit);
    assert_eq!(table.tried(), [(1, Cause::Hedged)]);
    assert_eq!(table.on(Event::HedgeWon), Action::Wait);
}

#[test]
fn the_hedge_fails_and_the_first_goes_on() {
    let mut table = both(3);
    assert_eq!(table.on(Event::HedgeFailed(Cause::Refused, None)), Action::Wait);
    assert_eq!(table.due(), Some(secs(10)), "no second hedge of one attempt");
    assert_eq!(table.on(Event::Verdict(&failed(Cause::Oom))), connect(2), "who was asked is not asked again");
    assert_eq!(table.tried(), [(1, Cause::Refused), (0, Cause::Oom)]);
}

#[test]
fn the_first_fails_and_the_hedge_is_the_attempt() {
    let adopted = || {
        let mut table = both(3);
        assert_eq!(table.on(Event::Verdict(&failed(Cause::Oom))), Action::Adopt { candidate: 1 });
        table
    };
    let mut wins = adopted();
    assert_eq!(wins.on(Event::HedgeWon), Action::Commit);
    assert_eq!(wins.tried(), [(0, Cause::Oom)]);
    let mut fails = adopted();
    assert_eq!(fails.on(Event::HedgeFailed(Cause::Reset, None)), connect(2));
    assert_eq!(fails.tried(), [(0, Cause::Oom), (1, Cause::Reset)]);
    let mut refuses = adopted();
    assert_eq!(refuses.on(Event::HedgeFailed(Cause::ClientFault, None)), Action::PassRejection);
    let mut late = adopted();
    assert_eq!(late.due(), Some(secs(3 + 1 + 10)), "to connect, and to a first token");
    assert_eq!(late.wait(), connect(2));
    assert_eq!(late.tried(), [(0, Cause::Oom), (1, Cause::TimeoutFirstToken)]);
}

#[test]
fn a_hedge_has_its_own_time_and_the_first_its_own() {
    let mut table = both(2);
    assert_eq!((table.due(), table.wait()), (Some(secs(10)), Action::Expire(Cause::TimeoutFirstToken)));
    assert_eq!(table.on(Event::Verdict(&failed(Cause::TimeoutFirstToken))), Action::Adopt { candidate: 1 });
    let mut long = Table::new(vec![
        Candidate { deadlines: Deadlines { first_token: secs(60), ..DEADLINES }, ..candidate(0) },
        candidate(1),
    ]);
    long.machine.hedging(vec![Some(secs(3))]);
    let mut long = long.gating();
    long.wait();
    long.on(Event::Hedges(1));
    assert_eq!((long.due(), long.wait()), (Some(secs(14)), Action::DropHedge));
    assert_eq!(long.tried(), [(1, Cause::TimeoutFirstToken)]);
    assert_eq!(long.on(Event::Verdict(&Verdict::Commit)), Action::Commit);
}

#[test]
fn no_hedge_without_anybody_or_where_none_may_be_had() {
    let mut alone = late(1);
    assert_eq!(alone.wait(), Action::Wait);
    assert_eq!(alone.due(), Some(secs(10)));
    let mut denied = late(2);
    assert_eq!(denied.wait(), Action::Hedge { candidate: 1 });
    assert_eq!(denied.due(), Some(secs(10)), "asked once");
    assert_eq!(denied.on(Event::HedgeWon), Action::Wait, "there is none");
    assert_eq!(denied.on(Event::Verdict(&failed(Cause::Oom))), connect(1));
    let mut on_time = late(2);
    on_time.on(Event::Verdict(&Verdict::Commit));
    assert_eq!(on_time.due(), Some(secs(20)), "only the stall is left");
}

#[test]
fn a_stop_ends_both() {
    for cause in [Cause::Cancelled, Cause::Draining] {
        let mut table = both(2);
        assert_eq!(table.on(Event::Stop(cause)), Action::Refuse(cause));
        assert_eq!(table.tried(), [(0, cause), (1, cause)]);
    }
    assert_eq!(both(2).on(Event::Stop(Cause::ClientGone)), Action::Abandon);
}
