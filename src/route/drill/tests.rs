//! Drills: bounds, shares, ends, and what is told of them.

use proptest::prelude::*;

use super::*;

fn at(secs: u64) -> Instant {
    // A base that no test is before.
    static BASE: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    *BASE.get_or_init(crate::time::now) + Duration::from_secs(secs)
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[test]
fn one_request_is_failed_and_reported() {
    let mut drills = Drills::default();
    assert!(drills.report(at(0)).is_none() && drills.stop(at(0)).is_none());
    let begun = drills.start("box", Amount::Requests(1), at(0)).unwrap();
    assert_eq!((begun.stage, begun.left_secs), (Stage::Running, 600));
    assert!(drills.take("cloud", || None, at(1)).is_none());
    let mine = drills.take("box", || Some(ms(100)), at(1)).unwrap();
    assert!(drills.take("box", || None, at(1)).is_none(), "only one");
    assert!(!drills.is_running());
    assert_eq!(drills.report(at(1)).unwrap().stage, Stage::Finishing);
    assert!(drills.tick(at(1)).is_none(), "not over while it is under way");
    let over = drills.end(mine, Saw::Answered("cloud"), Some(ms(410)), at(2)).unwrap();
    assert_eq!(over.stage, Stage::Over);
    assert_eq!(
        over.in_words,
        "1 of 1 request was answered by `cloud`. First token after 0.41 s (median), 0.41 s (worst); 0.31 s and \
         0.31 s later than is usual from `box`. Clients noticed nothing."
    );
    assert!(drills.tick(at(700)).is_none(), "told once");
}

#[test]
fn what_clients_saw_is_said() {
    let mut drills = Drills::default();
    drills.start("box", Amount::Requests(6), at(0)).unwrap();
    let mut all: Vec<Drilled> = std::iter::from_fn(|| drills.take("box", || None, at(0))).collect();
    assert_eq!(all.len(), 6);
    let mut end = |saw, first| drills.end(all.pop().unwrap(), saw, first, at(1));
    end(Saw::Answered("cloud"), Some(ms(20)));
    end(Saw::Failed(Cause::Drill), None);
    end(Saw::Failed(Cause::RateLimited), None);
    end(Saw::Broken(Cause::Reset), Some(ms(5)));
    end(Saw::Refused, None);
    let report = end(Saw::Gone, None).unwrap();
    assert_eq!((report.failed.len(), report.broken.len()), (2, 1));
    assert_eq!(
        report.in_words,
        "1 of 6 requests was answered by `cloud`. First token after 20 ms (median), 20 ms (worst). 1 of 6 requests \
         was answered with an error: nobody else could answer. 1 of 6 requests was answered with an error: rate \
         limited. 1 of 6 requests was cut short: connection reset. 1 of 6 requests was refused as its client's own \
         fault. 1 of 6 requests was given up by its client."
    );
}

#[test]
fn one_at_a_time_and_it_ends_by_itself() {
    let mut drills = Drills::default();
    drills.start("box", Amount::Share(Permille(1000), Duration::from_secs(60)), at(0)).unwrap();
    let why = drills.start("lan", Amount::Requests(1), at(10)).unwrap_err();
    assert!(why.contains("`box`") && why.contains("50 s"), "{why}");
    assert!(drills.take("box", || None, at(59)).is_some());
    assert!(drills.take("box", || None, at(60)).is_none(), "its time is over");
    assert!(drills.tick(at(60)).is_none(), "one is under way");
    drills.start("lan", Amount::Requests(1), at(61)).unwrap();
    let (report, over) = drills.stop(at(62)).unwrap();
    assert!(over && report.stage == Stage::Over && report.drilled == 0);
    assert!(report.in_words.contains("nothing was tried"));
    assert!(!drills.stop(at(63)).unwrap().1, "its end is told once");
    // Nobody came for so long.
    drills.start("lan", Amount::Requests(1), at(100)).unwrap();
    assert!(drills.tick(at(699)).is_none());
    assert_eq!(drills.tick(at(700)).unwrap().drilled, 0);
}

#[test]
fn a_request_of_an_earlier_drill_counts_for_none() {
    let mut drills = Drills::default();
    drills.start("box", Amount::Requests(1), at(0)).unwrap();
    let old = drills.take("box", || None, at(0)).unwrap();
    drills.start("box", Amount::Requests(1), at(1)).unwrap();
    assert!(drills.end(old, Saw::Gone, None, at(2)).is_none());
    assert_eq!(drills.report(at(2)).unwrap().gone, 0);
}

#[test]
fn bounds_are_kept() {
    for (amount, word) in [
        (Amount::Requests(0), "1 to 1000"),
        (Amount::Requests(1001), "1 to 1000"),
        (Amount::Share(Permille(0), ms(1)), "above 0%"),
        (Amount::Share(Permille(1001), ms(1)), "at most 100%"),
        (Amount::Share(Permille(10), Duration::ZERO), "no time"),
        (Amount::Share(Permille(10), Duration::from_secs(601)), "10 minutes"),
    ] {
        let why = Drills::default().start("box", amount, at(0)).unwrap_err();
        assert!(why.contains(word), "{amount:?}: {why}");
    }
}

proptest! {
    /// However requests come and end: never more than was asked for, the share is exact, each is counted once, and the
    /// end is told once.
    #[test]
    fn it_fails_what_it_should(share in 1..=1000_u16, requests in 1..2000_u32, ends in prop::collection::vec(0..3_u8, 1..50)) {
        let mut drills = Drills::default();
        drills.start("box", Amount::Share(Permille(share), Duration::from_secs(60)), at(0)).unwrap();
        let (mut open, mut told, mut ended, mut ends) = (Vec::new(), 0, 0, ends.into_iter().cycle());
        for met in 1..=requests {
            open.extend(drills.take("box", || None, at(1)));
            if ends.next() == Some(0) && let Some(one) = open.pop() {
                ended += 1;
                told += u32::from(drills.end(one, Saw::Gone, None, at(1)).is_some());
            }
            let report = drills.report(at(1)).unwrap();
            let due = (u64::from(met) * u64::from(share)).div_ceil(1000);
            prop_assert_eq!(u64::from(report.drilled), due.min(u64::from(limits::DRILL_REQUESTS_MAX)));
            prop_assert_eq!(report.under_way + report.gone, report.drilled);
        }
        for one in open {
            ended += 1;
            told += u32::from(drills.end(one, Saw::Gone, None, at(60)).is_some());
        }
        told += u32::from(drills.tick(at(60)).is_some());
        let report = drills.report(at(60)).unwrap();
        prop_assert_eq!((told, report.gone, report.stage), (1, ended, Stage::Over));
    }
}
