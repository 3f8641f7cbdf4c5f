//! What healthy boxes do is left alone: little that is enough, loads, swap, prompts that take nearly all.

use super::*;

#[test]
fn a_box_that_lives_at_a_little_is_left_alone() {
    for (total, free) in
        [(128 * GIB, 3 * GIB / 2), (121 * GIB, GIB), (8 * GIB, 300 * MIB), (2 * GIB, 100 * MIB)]
    {
        let mut it = Box::new(total);
        it.live(60 * MINUTE, |ms| free - (ms / 1000 % 13) * free / 400);
        assert_eq!(it.episodes, 0, "{free} of {total}");
        // A model server that starts after edgeward: low until it has lasted, never red.
        let mut it = Box::new(total);
        it.live(MINUTE, |_| total - total / 8);
        it.live(10 * MINUTE, |_| free);
        assert_eq!((it.reds, it.last), (0, Green), "{free} of {total}");
        let before = it.episodes;
        it.live(60 * MINUTE, |ms| free - (ms / 1000 % 13) * free / 400);
        assert_eq!(it.episodes, before, "{free} of {total}");
    }
}

#[test]
fn a_fast_load_with_much_left_is_not_red_though_programs_wait_or_one_was_killed() {
    for (total, free) in [(8 * GIB, 7 * GIB), (128 * GIB, 100 * GIB)] {
        let mut it = Box::new(total);
        it.sample.set(Field::Kills, 1);
        it.live(MINUTE, |_| free);
        it.sample.set(Field::Kills, 2);
        it.sample.set(Field::PsiSome, 6000);
        it.sample.set(Field::PsiFull, 6000);
        it.live(Duration::from_secs(5), |ms| free - free * ms / 10_000);
        it.live(Duration::from_secs(5), |_| free / 2);
        assert_eq!(it.reds, 0, "{total}");
    }
}

#[test]
fn a_small_box_lives_with_a_little_swap() {
    let mut it = Box::new(8 * GIB);
    it.sample.set(Field::SwapIn, 0);
    it.live(MINUTE, |_| 400 * MIB);
    for n in 1..100 {
        // 300 pages at once, while memory dips.
        it.live(Duration::from_millis(600), |_| 130 * MIB);
        it.sample.set(Field::SwapIn, n * 300);
        it.live(Duration::from_millis(200), |_| 130 * MIB);
        it.live(Duration::from_secs(5), |_| 390 * MIB);
    }
    assert_eq!(it.reds, 0);
    let mut it = Box::new(8 * GIB);
    it.sample.set(Field::PsiSome, 2000);
    it.live(20 * MINUTE, |_| 400 * MIB);
    assert_eq!(it.episodes, 0, "some always wait a little");
}

#[test]
fn what_a_small_box_survives_each_time_is_usual_in_the_end() {
    // Each prompt takes much of what is left, and gives it back.
    for (rest, low, fall) in [(400, 100, 1500), (700, 150, 4000)] {
        let mut it = Box::new(8 * GIB);
        it.live(MINUTE, |_| rest * MIB);
        let prompts = |it: &mut Box, count| {
            for _ in 0..count {
                it.live(Duration::from_secs(30), |ms| {
                    let part = if ms < 8000 { ms.min(fall) } else { 0 };
                    (rest - (rest - low) * part / fall) * MIB - ms / 100 % 3 * 256
                });
            }
        };
        prompts(&mut it, 10);
        let before = it.reds;
        prompts(&mut it, 100);
        assert_eq!(it.reds, before, "{rest} {low}");
        assert!(it.last < Red, "{rest} {low}");
    }
}

#[test]
fn a_load_that_leaves_a_little_ends_green_though_it_breathes() {
    for (total, free, left, takes) in [
        (8 * GIB, 6 * GIB, 400 * MIB, 8),
        (128 * GIB, 115 * GIB, 5 * GIB, 2),
        (128 * GIB, 115 * GIB, 9 * GIB, 20),
    ] {
        for swing in [10, 50, 80, 110] {
            let mut it = Box::new(total);
            it.live(2 * MINUTE, |_| free);
            it.live(Duration::from_secs(takes), |ms| free - (free - left) * ms / (takes * 1000));
            it.live(5 * MINUTE, |ms| left - left * (ms / 700 % 7) * swing / 3000);
            assert!(it.reds <= 1 && it.last == Green, "{left} of {total}, {swing}: {:?}", it.last);
            it.live(60 * MINUTE, |ms| left - left * (ms / 700 % 7) * swing / 3000);
            assert_eq!((it.episodes, it.last), (1, Green), "{left} of {total}, {swing}");
        }
    }
}

#[test]
fn a_card_or_huge_pages_that_are_all_taken_are_left_alone() {
    let taken = |total: Field, free: Field| {
        let mut it = Box::new(128 * GIB);
        it.state.set_terms(Terms::new(&Memory::default(), board::of(Board::DgxSpark)));
        it.sample.set(total, 100 * GIB);
        for (second, left) in (0_u64..).zip((0..60).rev().chain([0; 600])) {
            it.sample.set(free, left * GIB / 2);
            it.sample.set(Field::PsiFull, if second > 300 { 2000 } else { 0 });
            it.live(Duration::from_secs(1), |_| 20 * GIB);
        }
        it
    };
    for (total, free) in [(Field::DeviceTotal, Field::DeviceFree), (Field::HugeTotal, Field::HugeFree)] {
        let it = taken(total, free);
        assert!(it.last == Green && it.reds <= 1, "{total:?}: {:?}, {} reds", it.last, it.reds);
    }
}

#[test]
fn what_was_usual_before_a_restart_is_usual_again_on_the_same_box() {
    let mut it = Box::new(8 * GIB);
    it.live(2 * MINUTE, |_| 300 * MIB);
    let kept = it.state.kept();
    // The model server comes back after edgeward, and takes what it always takes.
    let begin = |total: u64, seen: u64| {
        let mut it = Box::new(total);
        it.sample.set(Field::Available, seen);
        it.state.remember(&kept, &it.sample);
        it.live(MINUTE, |_| 7 * GIB);
        it.live(Duration::from_secs(5), |ms| 7 * GIB - (7 * GIB - 300 * MIB) * ms / 5000);
        it.live(2 * MINUTE, |_| 300 * MIB);
        it
    };
    assert_eq!(
        begin(8 * GIB - 40 * MIB, 7 * GIB).episodes,
        0,
        "another kernel keeps a little more for itself"
    );
    assert!(begin(16 * GIB, 7 * GIB).episodes > 0, "half of its memory is new");
    let mut it = begin(8 * GIB, 7 * GIB);
    assert_eq!((it.episodes, it.state.kept().differs(&kept)), (0, false));
    it.live(3 * MINUTE, |_| 150 * MIB);
    assert!(it.state.kept().differs(&kept), "and it goes on learning");
    // Which models are there comes later.
    let mut it = Box::new(8 * GIB);
    it.state.note(Event::Resident(7), it.at);
    it.live(2 * MINUTE, |_| 300 * MIB);
    let kept = it.state.kept();
    let mut it = Box::new(8 * GIB);
    it.sample.set(Field::Available, 7 * GIB);
    it.state.remember(&kept, &it.sample);
    it.live(MINUTE, |_| 7 * GIB);
    it.state.note(Event::Resident(7), it.at);
    it.live(MINUTE, |_| 300 * MIB);
    assert_eq!(it.episodes, 0);
}

#[test]
fn a_calm_box_is_looked_at_more_rarely_and_one_that_moves_is_not() {
    let looks = |level: u64, jitter: u64| {
        let mut it = Box::new(8 * GIB);
        it.live(MINUTE, |_| level);
        let mut count = 0;
        it.live(MINUTE, |ms| {
            count += 1;
            level - ms / 100 % 7 * jitter
        });
        count / 60
    };
    assert_eq!([looks(6 * GIB, 0), looks(GIB, 0), looks(200 * MIB, 0)], [1, 1, 3]);
    assert_eq!([looks(GIB, 2 * MIB), looks(GIB, 40 * MIB)], [1, 9]);
}
