//! The record over two days and more, and when its line is due.

use proptest::prelude::*;

use super::*;
use crate::time::now;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const ASKED: Ended = Ended { cloud: None, lost: false };

fn cloud(away: Option<Away>, cause: Option<Cause>) -> Ended {
    Ended { cloud: Some((away, cause)), lost: false }
}

#[test]
fn a_night_is_one_line() {
    let start = now();
    let mut history = History::new(start, 0);
    for _ in 0..3 {
        history.request(ASKED, start);
        history.request(cloud(Some(Away::Busy), None), start + MINUTE);
    }
    history.request(cloud(None, Some(Cause::Crashed)), start + HOUR);
    history.request(cloud(None, Some(Cause::TimeoutFirstToken)), start + HOUR);
    history.request(cloud(None, None), start + HOUR);
    history.request(Ended { cloud: None, lost: true }, start + HOUR);
    history.died(Cause::OomKill, start + HOUR);
    history.spent(340_000, start + HOUR);
    history.spent(0, start + 3 * HOUR);
    let sum = history.since(9 * HOUR, start + 2 * HOUR);
    assert_eq!(
        sum.in_words("0.34"),
        "10 requests, 6 at the cloud (busy 3; dead 1: crashed 1; failed 1: timeout_first_token 1; chosen 1), \
         1 death (oom_kill 1), 1 lost, 0.34 spent"
    );
    assert_eq!((sum.cloud(), sum.spent, sum.reach, sum.ago), (6, 340_000, Reach::Start, 2 * HOUR));
    let late = history.since(MINUTE * 61, start + 2 * HOUR);
    assert_eq!((late.requests, late.reach, late.ago), (4, Reach::Asked, MINUTE * 65), "of whole steps");
    assert_eq!(
        history.since(MINUTE, start + 2 * HOUR).in_words("0.00"),
        "0 requests, 0 at the cloud, 0 deaths, 0 lost, 0.00 spent"
    );
}

#[test]
fn steps_begin_with_the_boxs_minutes() {
    let start = now();
    // At 21:58:20.
    let mut history = History::new(start, 21 * 3600 + 58 * 60 + 20);
    history.request(ASKED, start);
    let at_ten = start + Duration::from_secs(100);
    history.request(ASKED, at_ten - Duration::from_millis(1));
    history.request(ASKED, at_ten);
    let later = at_ten + 3 * HOUR;
    let sum = history.since(3 * HOUR, later);
    assert_eq!((sum.requests, sum.reach, sum.ago), (1, Reach::Asked, 3 * HOUR));
    let sum = history.since(3 * HOUR + Duration::from_millis(1), later);
    let all = 3 * HOUR + Duration::from_secs(100);
    assert_eq!((sum.requests, sum.reach, sum.ago), (3, Reach::Asked, all), "no earlier than the start");
    assert_eq!(history.since(4 * HOUR, later).reach, Reach::Start);
}

#[test]
fn two_days_are_kept_in_bounded_memory() {
    let start = now();
    let mut history = History::new(start, 0);
    let room = history.steps.capacity();
    for step in 0..3000 {
        history.request(ASKED, start + limits::HISTORY_STEP * step);
    }
    assert_eq!((history.steps.len(), history.steps.capacity()), (limits::HISTORY_STEPS, room));
    let bytes = room * size_of::<Step>();
    assert!(bytes < 200_000, "{bytes}");
    let sum = history.since(72 * HOUR, start + limits::HISTORY_STEP * 2999);
    assert_eq!((sum.requests, sum.reach), (576, Reach::Record));
    // Long after: what is too old is not told, though nothing has pushed it out.
    let sum = history.since(72 * HOUR, start + limits::HISTORY_STEP * 4000);
    assert_eq!((sum.requests, sum.reach), (0, Reach::Record));
}

#[test]
fn each_morning_tells_what_no_other_one_does() {
    let start = now();
    let mut told = Vec::new();
    let mut again = History::new(start, 6 * 3600);
    for minute in 0..4000 {
        let at = start + MINUTE * minute;
        // One that comes late, since the clock was set: in the midst of a step.
        if [60, 1500, 2942].contains(&minute) {
            let sum = again.morning(at);
            told.push((sum.requests, sum.reach, sum.ago));
        }
        again.request(ASKED, at);
    }
    assert_eq!(
        told,
        [(60, Reach::Start, HOUR), (1440, Reach::Asked, 24 * HOUR), (1442, Reach::Asked, MINUTE * 1442)]
    );
    let all = again.since(48 * HOUR, start + MINUTE * 3999).requests;
    assert_eq!(all, 48 * 60, "two steps of one tell the same as one: {all}");
    // Told again and again, as by a clock that goes astray: within its room.
    let room = again.steps.capacity();
    for second in 0..5000 {
        again.request(ASKED, start + MINUTE * 4000 + Duration::from_secs(second));
        again.morning(start + MINUTE * 4000 + Duration::from_secs(second));
    }
    assert_eq!(again.steps.capacity(), room);
}

/// Each look's day and minute, and whether the line is due.
fn looks(looks: &[(i64, u16, bool)]) {
    let mut mornings = Mornings::default();
    for (n, (day, minute, due)) in looks.iter().enumerate() {
        assert_eq!(mornings.is_due(*day, *minute), *due, "{n}: day {day}, minute {minute}");
    }
}

#[test]
fn the_line_is_due_once_a_day_at_seven() {
    looks(&[
        (9, 419, false),
        (9, 420, true),
        (9, 421, false),
        (10, 0, false),
        (10, 425, true),
        (12, 5, true),
    ]);
    // Started later than seven: the next one.
    looks(&[(9, 420, false), (9, 1439, false), (10, 419, false), (10, 420, true)]);
    // The clock is set back over seven: not again. By days: by the new time.
    looks(&[(9, 400, false), (9, 420, true), (9, 410, false), (9, 420, false), (10, 420, true)]);
    looks(&[(9, 400, false), (99, 500, true), (9, 500, false), (10, 419, false), (10, 420, true)]);
    // Set forward over seven, or over days: once.
    looks(&[(9, 400, false), (9, 1000, true), (10, 400, false), (40, 30, true), (40, 420, true)]);
}

proptest! {
    #[test]
    fn a_clock_that_only_runs_gives_one_line_a_day(steps in proptest::collection::vec(1_u64..300, 1..400)) {
        let mut mornings = Mornings::default();
        let (mut minutes, mut due) = (9 * 1440, 0);
        mornings.is_due(9, 0);
        for step in steps {
            minutes += step;
            due += u64::from(mornings.is_due((minutes / 1440) as i64, (minutes % 1440) as u16));
        }
        let sevens = (minutes + 1440 - 420) / 1440 - 9;
        prop_assert_eq!(due, sevens);
    }
}
