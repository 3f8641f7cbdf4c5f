//! Scenes in virtual time: what each request saw, in tables.

use super::simulation::{Attempt, Does, Script, World};
use super::*;

const MINUTE: u64 = 60;

/// A box and a cloud behind it.
fn two() -> String {
    let cloud = CLOUD.to_owned() + "models = { \"*\" = \"g\" }\nmax_retries = 1\n";
    [target("box", "group = \"primary\"\nmax_retries = 1"), cloud].concat()
}

fn script(does: impl Fn(Attempt) -> Does + 'static) -> Script {
    Box::new(does)
}

fn well() -> Script {
    script(|_| Does::Answers(200, 1000))
}

/// Fails with a chance of so many thousandths, before its first token, in every way that there is.
fn fails_now_and_then(thousandths: u64) -> Script {
    let kinds = [
        Does::Fails(Cause::Http5xx, 20),
        Does::Fails(Cause::Refused, 1),
        Does::Fails(Cause::Reset, 150),
        Does::Fails(Cause::Closed, 300),
        Does::Fails(Cause::TimeoutFirstToken, 20_000),
        Does::Fails(Cause::Overloaded, 10),
        Does::Fails(Cause::ErrorInStream, 250),
        Does::Fails(Cause::Empty, 400),
        Does::Fails(Cause::Truncated, 500),
        Does::Pauses(2),
    ];
    script(move |attempt| {
        if attempt.chance < thousandths * 1000 {
            kinds[usize::try_from(attempt.chance % 10).unwrap()]
        } else {
            Does::Answers(200, 1000)
        }
    })
}

/// Of all requests, in millionths, those whose clients saw a failure.
fn seen(world: &World) -> u64 {
    let (all, bad) = world.saw().fold((0, 0), |(all, bad), saw| (all + 1, bad + u64::from(saw.by.is_none())));
    bad * 1_000_000 / all
}

#[test]
fn of_12_7_percent_failures_clients_see_next_to_none_with_a_healthy_fallback() {
    for seed in 1..=5 {
        let mut world = World::new(&two(), seed, vec![fails_now_and_then(127), well()]);
        world.play(60 * MINUTE, 500);
        let raw = world.attempts.iter().filter(|(_, target)| *target == 0).count();
        assert!(raw > 500, "the box was tried: {raw} times");
        let failed = world.saw().filter(|saw| saw.tried.iter().any(|(target, _)| *target == 0)).count();
        assert!((80..180).contains(&(failed * 1000 / raw)), "{failed} of {raw}");
        assert!(seen(&world) < 1_000, "{} in a million\n{}", seen(&world), world.table(5 * MINUTE));
    }
}

#[test]
fn and_few_with_a_fallback_that_fails_as_often() {
    // Six hours each: within one, an unlucky rest of both at once may weigh more.
    for seed in 1..=4 {
        let scripts = vec![fails_now_and_then(127), fails_now_and_then(127)];
        let mut world = World::new(&two(), seed, scripts);
        world.play(360 * MINUTE, 500);
        assert!(seen(&world) < 21_000, "{} in a million\n{}", seen(&world), world.table(30 * MINUTE));
    }
}

/// Bad between these seconds, with this cause.
fn out(from: u64, to: u64, does: Does) -> Script {
    script(
        move |attempt| {
            if (from * 1000..to * 1000).contains(&attempt.at) { does } else { Does::Answers(200, 1000) }
        },
    )
}

#[test]
fn a_minute_of_503_costs_five_requests_and_no_client_sees_it() {
    for seed in 1..=20 {
        // At any pace, one after the other, and up to a hundred at once.
        for (every, long) in [(200, 50), (200, 1000), (200, 20_000), (500, 10_000), (1000, 800)] {
            let failing = script(move |attempt| match attempt.at {
                60_000..120_000 => Does::Fails(Cause::Http5xx, 20),
                _ => Does::Answers(100, long),
            });
            let mut world = World::new(&two(), seed, vec![failing, well()]);
            world.play(6 * MINUTE, every);
            let told = world.table(10);
            assert_eq!(seen(&world), 0, "{told}");
            let outage = world.row(60, 120);
            assert!(outage.attempts[0] <= 5, "{} primary requests in the outage\n{told}", outage.attempts[0]);
            assert_eq!(world.row(0, 60).by[1], 0, "{told}");
            // The rests were 10, 20, 40 s, with jitter: it is back within the last of them.
            let back =
                world.saw().find(|saw| saw.at >= 120_000 && saw.by == Some(0)).map(|saw| saw.at / 1000);
            assert!(back.is_some_and(|back| back <= 120 + 44), "back at {back:?}\n{told}");
            let last = world.row(300, 360);
            assert_eq!((last.by[0], last.by[1]), (60_000 / usize::try_from(every).unwrap(), 0), "{told}");
        }
    }
}

#[test]
fn a_flapping_target_is_seen_by_no_client_and_asked_less_and_less() {
    for seed in 1..=5 {
        // Half a minute well, half a minute not, for two hours.
        let flapping = script(|attempt| {
            let bad = attempt.at / 30_000 % 2 == 1;
            if bad { Does::Fails(Cause::Reset, 100) } else { Does::Answers(200, 1000) }
        });
        let mut world = World::new(&two(), seed, vec![flapping, well()]);
        world.play(120 * MINUTE, 500);
        let told = world.table(10 * MINUTE);
        assert_eq!(seen(&world), 0, "{told}");
        let failed = world.saw().filter(|saw| !saw.tried.is_empty()).count();
        let all = world.saw().count();
        // Left alone, half of them would.
        assert!(failed * 50 < all, "{failed} of {all} took a detour\n{told}");
    }
}

#[test]
fn a_slow_decay_ends_at_the_fallback_and_a_recovery_brings_it_back() {
    // From 200 ms to 2 s within an hour, half an hour there, then well again.
    let decaying = script(|attempt| {
        let minute = attempt.at / 60_000;
        let first = match minute {
            0..30 => 200,
            30..90 => 200 + (attempt.at - 1_800_000) / 2_000,
            90..120 => 2_000,
            _ => 200,
        };
        Does::Answers(first, 1000)
    });
    let mut world = World::new(&two(), 3, vec![decaying, well()]);
    world.play(180 * MINUTE, 1000);
    let told = world.table(10 * MINUTE);
    assert_eq!(seen(&world), 0, "{told}");
    assert_eq!(world.row(0, 30 * MINUTE).by[0], 1800, "{told}");
    let worst = world.row(100 * MINUTE, 120 * MINUTE);
    assert!(worst.by[1] * 10 >= 1200 * 8, "ten times slower is out, but for a trickle\n{told}");
    assert!(worst.by[0] > 0, "the trickle\n{told}");
    let last = world.row(150 * MINUTE, 180 * MINUTE);
    assert_eq!(last.by[0], 1800, "{told}");
}

#[test]
fn in_a_429_storm_the_time_that_was_named_is_kept() {
    // A minute of it every ten minutes; 7 s each time.
    let stormy =
        script(
            |attempt| {
                if attempt.at / 60_000 % 10 == 5 { Does::Pauses(7) } else { Does::Answers(200, 1000) }
            },
        );
    let mut world = World::new(&two(), 3, vec![stormy, well()]);
    world.play(60 * MINUTE, 100);
    let told = world.table(MINUTE);
    assert_eq!(seen(&world), 0, "{told}");
    for storm in 0..6 {
        let from = (10 * storm + 5) * MINUTE;
        let row = world.row(from, from + MINUTE);
        // Ten at most, and at each those that came before its 429 did.
        assert!((8..=10).contains(&row.attempts[0]), "storm {storm}\n{told}");
        let after = world.row(from + MINUTE + 7, from + 2 * MINUTE);
        assert_eq!(after.by[1], 0, "no failure, so no ramp afterwards: storm {storm}\n{told}");
    }
}

/// Dead for two minutes; then it must warm up for two more, and breaks under the load of all requests at once.
fn recovering() -> Script {
    script(|attempt| match attempt.at / 60_000 {
        1..3 => Does::Fails(Cause::Crashed, 10),
        3..5 if attempt.in_flight > 20 => Does::Fails(Cause::Oom, 50),
        _ => Does::Answers(200, 1000),
    })
}

#[test]
fn a_recovering_target_is_not_flooded() {
    for seed in 1..=5 {
        let mut world = World::new(&two(), seed, vec![recovering(), well()]);
        // 20 a second for 1.2 s each are 24 at once.
        world.play(10 * MINUTE, 50);
        let told = world.table(10);
        assert_eq!(seen(&world), 0, "{told}");
        let back =
            world.saw().find(|saw| saw.at >= 180_000 && saw.by == Some(0)).map_or(0, |saw| saw.at / 1000);
        let steps: Vec<_> = (0..3).map(|n| world.row(back + 1 + 10 * n, back + 11 + 10 * n).by[0]).collect();
        assert!(
            steps.is_sorted() && steps[0] < 100 && steps[0] > 0,
            "of 200 each, in steps: {steps:?}\n{told}"
        );
        assert_eq!(world.row(540, 600).by[0], 1200, "{told}");
    }
}

/// Two regions of two each, and a cloud.
fn regions() -> String {
    let at = |name, region| target(name, &format!("group = \"primary\"\nregion = \"{region}\""));
    let cloud = CLOUD.to_owned() + "models = { \"*\" = \"g\" }\n";
    let router = "[router]\nregion = \"north\"\n".to_owned();
    [router, at("n1", "north"), at("n2", "north"), at("s1", "south"), at("s2", "south"), cloud].concat()
}

#[test]
fn when_one_region_is_lost_the_other_serves_and_the_cloud_is_left_alone() {
    let lost = || out(300, 600, Does::Fails(Cause::Unreachable, 1));
    let mut world = World::new(&regions(), 3, vec![lost(), lost(), well(), well(), well()]);
    world.play(15 * MINUTE, 100);
    let told = world.table(MINUTE);
    assert_eq!(seen(&world), 0, "{told}");
    assert_eq!(world.row(0, 300).by, [1500, 1500, 0, 0, 0], "{told}");
    let during = world.row(310, 600);
    assert_eq!((during.by[0] + during.by[1], during.by[4]), (0, 0), "{told}");
    assert!(during.by[2].abs_diff(during.by[3]) <= 2, "the other region shares it\n{told}");
    let after = world.row(840, 900);
    assert_eq!(after.by, [300, 300, 0, 0, 0], "{told}");
}

#[test]
fn when_all_are_lost_nobody_is_hammered_and_clients_are_told_until_when() {
    for seed in 1..=5 {
        let lost = || out(300, 600, Does::Fails(Cause::Refused, 1));
        let mut world = World::new(&two(), seed, vec![lost(), lost()]);
        world.play(20 * MINUTE, 100);
        let told = world.table(MINUTE);
        assert_eq!(world.row(0, 300).by, [3000, 0], "{told}");
        let during = world.row(300, 600);
        assert_eq!(during.by, [0, 0], "{told}");
        // Of 3000 requests.
        assert!(during.attempts.iter().sum::<usize>() <= 40, "{told}");
        let without =
            world.saw().filter(|saw| saw.by.is_none() && saw.tried.is_empty() && saw.again.is_none());
        assert!(without.count() * 20 <= 3000, "who is refused is told when to come again\n{told}");
        let back = world.saw().find(|saw| saw.at >= 600_000 && saw.by.is_some()).map(|saw| saw.at / 1000);
        assert!(back.is_some_and(|back| back <= 600 + 300), "back at {back:?}\n{told}");
        assert_eq!(world.row(1140, 1200).failed + world.row(1140, 1200).refused, 0, "{told}");
    }
}
