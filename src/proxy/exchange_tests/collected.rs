//! Answers that the client wants whole: put together from a stream, or given whole.

use super::*;
use crate::gate::Verdict;

fn of(delivery: Delivery) -> Candidate {
    Candidate { delivery, ..candidate(0) }
}

/// Its first candidate has been sent the request, and its head is there.
fn gating(delivery: Delivery) -> Table {
    let mut table = Table::new(vec![of(delivery), Candidate { delivery, ..candidate(1) }]).sent();
    assert_eq!(table.on(Event::Head), Action::Read);
    table
}

#[test]
fn an_answer_that_is_put_together_may_take_longer_than_any_deadline() {
    let mut table = gating(Delivery::Collected);
    assert_eq!(table.due(), Some(secs(10)), "its first token has a deadline as a stream's");
    assert_eq!(table.on(Event::Answering), Action::Read);
    // Far beyond `total`, as a healthy stream may.
    for _ in 0..40 {
        table.now += secs(19);
        assert_eq!(table.on(moved(true, false, false)), Action::Read);
    }
    assert_eq!(table.on(Event::Verdict(&Verdict::Commit)), Action::Commit);
}

#[test]
fn a_stall_is_seen_and_leads_to_the_next() {
    let mut table = gating(Delivery::Collected);
    table.on(Event::Answering);
    table.now += secs(300);
    table.on(moved(true, false, false));
    assert_eq!(table.due_now(), Action::AskWork);
    assert_eq!(table.on(Event::Works(true)), Action::Wait, "it computes something else");
    assert_eq!(table.due_now(), Action::AskWork);
    assert_eq!(table.on(Event::Works(false)), Action::Expire(Cause::TimeoutBetweenTokens));
    let late = failed(Cause::TimeoutBetweenTokens);
    assert_eq!(table.on(Event::Verdict(&late)), Action::Connect { candidate: 1, fresh: false });
}

#[test]
fn a_death_midway_leads_to_the_next_however_late() {
    let mut table = gating(Delivery::Collected);
    table.on(Event::Answering);
    for _ in 0..16 {
        table.now += secs(19);
        table.on(moved(true, false, false));
    }
    assert!(table.now - table.start > DEADLINES.total);
    assert_eq!(table.on(Event::Failed(Cause::Crashed)), Action::Connect { candidate: 1, fresh: false });
    assert_eq!(table.machine.tried(), [Tried { candidate: 0, cause: Cause::Crashed }]);
}

#[test]
fn an_end_marker_ends_it_though_the_connection_stays_open() {
    let mut table = gating(Delivery::Collected);
    table.on(Event::Answering);
    table.on(moved(true, true, true));
    assert_eq!(table.wait(), Action::Expire(Cause::TimeoutBetweenTokens));
    assert!(table.now - table.start <= DONE_GRACE);
}

#[test]
fn a_whole_answer_has_a_deadline_of_its_own() {
    // With others left they keep a share of the total.
    for (answer, due) in [(None, secs(225)), (Some(secs(90)), secs(90))] {
        let deadlines = Deadlines { answer, ..DEADLINES };
        let mut table = Table::new(vec![Candidate { deadlines, ..of(Delivery::Whole) }, candidate(1)]).sent();
        assert_eq!(table.due(), Some(due));
        table.on(Event::Head);
        assert_eq!(table.due(), Some(due), "its head changes nothing");
    }
    let deadlines = Deadlines { answer: Some(secs(90)), ..DEADLINES };
    let mut table = Table::new(vec![Candidate { deadlines, ..of(Delivery::Whole) }, candidate(1)]).sent();
    assert_eq!(table.wait(), Action::Connect { candidate: 1, fresh: false });
    assert_eq!(table.machine.tried(), [Tried { candidate: 0, cause: Cause::TimeoutAnswer }]);
}

#[test]
fn one_that_refuses_streams_has_the_whole_answers_deadline() {
    let mut table = Table::new(vec![of(Delivery::Collected), candidate(1)]).sent();
    assert_eq!(table.due(), Some(secs(10)));
    table.now += secs(1);
    assert_eq!(table.on(Event::AsksWhole), Action::Send);
    assert_eq!(table.due(), Some(secs(1) + secs(299) * 3 / 4));
    let mut begun = gating(Delivery::Collected);
    begun.on(Event::Answering);
    assert_eq!(begun.on(Event::AsksWhole), Action::Send, "its stream cannot be put together");
}

#[test]
fn a_server_that_is_seen_to_work_is_waited_for_but_others_keep_a_share() {
    for (others, head, bound) in [(0, false, 300), (0, true, 300), (1, false, 225), (1, true, 225)] {
        let mut table = Table::of(1 + others).sent();
        if head {
            table.on(Event::Head);
        }
        assert_eq!(table.due_now(), Action::AskWork);
        assert_eq!((table.now - table.start, table.on(Event::Works(true))), (secs(10), Action::Wait));
        while table.due() < Some(secs(bound)) {
            assert_eq!(table.due_now(), Action::AskWork);
            assert_eq!(table.on(Event::Works(true)), Action::Wait);
        }
        let over = match (others, head) {
            (0, false) => Action::Refuse(Cause::TimeoutTotal),
            (0, true) => Action::Expire(Cause::TimeoutTotal),
            (_, false) => Action::Connect { candidate: 1, fresh: false },
            (_, true) => Action::Expire(Cause::TimeoutFirstToken),
        };
        assert_eq!((table.due_now(), table.now - table.start), (over, secs(bound)));
    }
}

#[test]
fn signs_of_life_alone_end_with_the_total() {
    let mut table = gating(Delivery::Collected);
    table.on(Event::Answering);
    while table.now - table.start < DEADLINES.total {
        table.now += secs(10);
        if table.machine.deadline() <= Some(table.now) {
            break;
        }
        assert_eq!(table.on(moved(false, false, false)), Action::Read);
    }
    assert_eq!(table.due_now(), Action::Expire(Cause::TimeoutBetweenTokens));
}

#[test]
fn a_server_that_is_not_is_left_at_once() {
    let mut table = Table::of(2).sent();
    assert_eq!(table.due_now(), Action::AskWork);
    assert_eq!(table.on(Event::Works(false)), Action::Connect { candidate: 1, fresh: false });
    let mut table = gating(Delivery::Streamed);
    assert_eq!(table.due_now(), Action::AskWork);
    assert_eq!(table.on(Event::Works(false)), Action::Expire(Cause::TimeoutFirstToken));
}
