//! The judge of a rollout: its split, what it rolls back, and how seldom by chance.

use proptest::prelude::*;

use super::*;
use crate::config::Permille;

const HOLD: Duration = Duration::from_secs(60);
const LEAST: u32 = 20;

fn terms(share: u16) -> Rollout {
    Rollout { share: Permille(share), hold: HOLD, min_samples: LEAST }
}

fn start() -> Instant {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    *START.get_or_init(crate::time::now)
}

/// A small generator with a seed (splitmix64), so that each run of a test is the same.
struct Dice(u64);

impl Dice {
    /// From 0 to 999,999.
    fn throw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % 1_000_000
    }
}

/// How a side's requests end: shares in millionths, and times to first token.
#[derive(Clone, Copy)]
struct World {
    failed: u64,
    rescued: u64,
    /// This many have their first token after 3 s, the others after 150 to 450 ms.
    heavy: u64,
    /// All times are this many times as long.
    times: u32,
}

const GOOD: World = World { failed: 1_000, rescued: 10_000, heavy: 0, times: 1 };

impl World {
    fn next(&self, dice: &mut Dice) -> (Sample, Option<Duration>) {
        let (end, time) = (dice.throw(), dice.throw());
        let millis = if dice.throw() < self.heavy { 3000 } else { 150 + time % 300 };
        let first_token = Duration::from_millis(millis) * self.times;
        if end < self.failed {
            (Sample::Failed, None)
        } else if end < self.failed + self.rescued {
            (Sample::Rescued, Some(first_token))
        } else {
            (Sample::Well, Some(first_token))
        }
    }
}

/// `requests` go through a rollout; the first verdict that is not to hold, before the time is over.
fn play(share: u16, requests: usize, old: World, new: World, dice: &mut Dice) -> (Verdict, Judge) {
    let mut judge = Judge::new(terms(share), start());
    for _ in 0..requests {
        let side = judge.pick(true);
        let world = if side == Pick::New { new } else { old };
        let (sample, first_token) = world.next(dice);
        judge.record(side, sample, first_token);
        let verdict = judge.verdict(start());
        if verdict != Verdict::Hold {
            return (verdict, judge);
        }
    }
    (Verdict::Hold, judge)
}

proptest! {
    #[test]
    fn the_split_is_exact_at_any_time(share in 0_u16..=1000, requests in 0_usize..3000) {
        let mut judge = Judge::new(terms(share), start());
        let mut new = [0, 0];
        for _ in 0..requests {
            for answer in [false, true] {
                new[usize::from(answer)] += usize::from(judge.pick(answer) == Pick::New);
            }
        }
        prop_assert_eq!(new, [requests * usize::from(share) / 1000; 2]);
    }

    #[test]
    fn a_new_side_that_always_fails_is_rolled_back_at_its_least_samples(
        share in 1_u16..=1000,
        failed in 0_u64..300_000,
        seed in any::<u64>(),
    ) {
        let (old, new) = (World { failed, ..GOOD }, World { failed: 1_000_000, ..GOOD });
        let enough = 1000 * 2 * LEAST as usize;
        let (verdict, judge) = play(share, enough, old, new, &mut Dice(seed));
        prop_assert!(matches!(verdict, Verdict::RollBack(_)), "{:?} {:?}", verdict, judge.side(Pick::Old));
        // At once, but where the few requests of the old side that there are failed by chance.
        let patience = if share <= 500 { 3 * LEAST } else { u32::MAX };
        prop_assert!(judge.side(Pick::New).requests <= patience, "{}", judge.side(Pick::New).requests);
    }

    /// No order of events brings a verdict from fewer samples than were asked for, but for the end of the patience.
    #[test]
    fn nothing_is_judged_below_the_least_samples(
        events in prop::collection::vec((any::<bool>(), 0_u8..3, 0_u64..100_000, 0_u64..400), 0..200),
    ) {
        let mut judge = Judge::new(terms(100), start());
        for (new, sample, millis, secs) in events {
            let side = if new { Pick::New } else { Pick::Old };
            let sample = [Sample::Well, Sample::Rescued, Sample::Failed][usize::from(sample)];
            judge.record(side, sample, (sample != Sample::Failed).then_some(Duration::from_millis(millis)));
            let now = start() + Duration::from_secs(secs);
            let (new, old) = (judge.side(Pick::New).requests, judge.side(Pick::Old).requests);
            match judge.verdict(now) {
                Verdict::Hold => prop_assert!(now < start() + HOLD * ROLLOUT_EXTENDED),
                Verdict::RollBack(reason) => {
                    prop_assert!(new >= LEAST);
                    prop_assert!(old >= LEAST || reason == Reason::AllFailed);
                }
                Verdict::Promote { few } => {
                    prop_assert!(now >= start() + HOLD);
                    prop_assert_eq!(few, new < LEAST);
                }
            }
            prop_assert!(judge.due(now) > now || now >= start() + HOLD * ROLLOUT_EXTENDED);
        }
    }

    #[test]
    fn a_bucket_holds_its_times(millis in 1_u64..900_000) {
        let took = Duration::from_millis(millis);
        let mut side = Side::EMPTY;
        side.record(Sample::Well, Some(took));
        let shown = side.first_token_p95().unwrap();
        prop_assert!(shown > took && shown <= took * 5 / 4 + Duration::from_millis(1), "{:?} {:?}", took, shown);
    }
}

/// The bound that is stated: fewer than 1 in 100 rollouts that change nothing are rolled back by chance, each judged
/// after each of 1000 requests. Of 21,000 such rollouts, each of 2000 requests, 8 were.
#[test]
fn an_equal_side_is_rolled_back_by_chance_in_fewer_than_one_of_a_hundred_rollouts() {
    const ROLLOUTS: u64 = 200;
    let worlds = [
        ("good", GOOD),
        ("2 % fail", World { failed: 20_000, ..GOOD }),
        ("12.7 % fail, 20 % are rescued", World { failed: 127_000, rescued: 200_000, ..GOOD }),
        ("half fail", World { failed: 500_000, ..GOOD }),
        ("3 % load a model first", World { heavy: 30_000, ..GOOD }),
        ("6 % load a model first", World { heavy: 60_000, ..GOOD }),
        ("half load a model first", World { heavy: 500_000, ..GOOD }),
    ];
    for (name, world) in worlds {
        for share in [100, 500] {
            let back = (0..ROLLOUTS).filter(|seed| {
                let (verdict, _) = play(share, 1000, world, world, &mut Dice(seed * 7919 + u64::from(share)));
                verdict != Verdict::Hold
            });
            let back = back.count() as u64;
            assert!(back * 100 < ROLLOUTS, "{name}, share {share}: {back} of {ROLLOUTS}");
        }
    }
}

/// And what it is there for, within a hundred requests of the new side.
#[test]
fn a_worse_side_is_rolled_back_for_the_right_reason() {
    let often = World { failed: 200_000, ..GOOD };
    let cases = [
        (GOOD, often, Reason::Fails),
        (World { failed: 100_000, ..GOOD }, World { failed: 500_000, ..GOOD }, Reason::Fails),
        (GOOD, World { rescued: 1_000_000, failed: 0, ..GOOD }, Reason::NeedsRescue),
        (GOOD, World { rescued: 300_000, ..GOOD }, Reason::NeedsRescue),
        (GOOD, World { times: 10, ..GOOD }, Reason::Slower),
        (GOOD, World { heavy: 300_000, ..GOOD }, Reason::Slower),
    ];
    for (old, new, reason) in cases {
        for seed in 0..50 {
            let (verdict, judge) = play(100, 1000, old, new, &mut Dice(seed));
            let right = verdict == Verdict::RollBack(reason)
                // A failed request counts as troubled too.
                || reason == Reason::Fails && verdict == Verdict::RollBack(Reason::NeedsRescue);
            assert!(right, "{reason:?} seed {seed}: {verdict:?} {:?}", judge.side(Pick::New));
        }
    }
    // Twice as slow, but nobody minds 300 ms.
    let quick = World { times: 2, ..GOOD };
    assert_eq!(play(100, 1000, GOOD, quick, &mut Dice(1)).0, Verdict::Hold);
}

#[test]
fn time_promotes_it_and_with_few_samples_later() {
    let mut judge = Judge::new(terms(100), start());
    let at = |secs| start() + Duration::from_secs(secs);
    for _ in 0..LEAST - 1 {
        judge.record(Pick::New, Sample::Well, None);
    }
    assert_eq!((judge.verdict(at(59)), judge.due(at(59))), (Verdict::Hold, at(60)));
    assert_eq!((judge.verdict(at(60)), judge.due(at(60))), (Verdict::Hold, at(240)));
    assert_eq!(judge.verdict(at(240)), Verdict::Promote { few: true });
    judge.record(Pick::New, Sample::Well, None);
    assert_eq!(judge.verdict(at(59)), Verdict::Hold);
    assert_eq!(judge.verdict(at(61)), Verdict::Promote { few: false });
}

/// Both fail: the new routing is perhaps what an operator tries against it.
#[test]
fn where_the_old_side_fails_too_a_failing_new_one_is_not_worse() {
    let dead = World { failed: 1_000_000, ..GOOD };
    assert_eq!(play(100, 1000, dead, dead, &mut Dice(1)).0, Verdict::Hold);
}

#[test]
fn routing_is_told_from_everything_else() {
    let parse = |text: &str| {
        let target = "[[target]]\nname = \"box\"\nkind = \"ollama\"\nurl = \"http://127.0.0.1:1\"\n";
        let env = |_: &str| Some("0123456789abcdef".to_owned());
        crate::config::parse(&format!("{text}\n{target}"), std::path::Path::new("t"), &env).unwrap().config
    };
    let old = parse("");
    for same in ["", "log_prompts = true", "listen = [\"127.0.0.1:9\"]", "[limits]\nmax_body = \"1MiB\""] {
        let new = parse(same);
        assert!(new.routes_like(&old) && old.routes_like(&new), "{same}");
        assert_eq!(same.is_empty(), new.with_routing_of(&old) == old, "{same}");
    }
    for other in ["heartbeat = \"5s\"", "commit_on = \"content\"", "[deadlines]\nfirst_token = \"9s\""] {
        let new = parse(other);
        assert!(!new.routes_like(&old), "{other}");
        assert_eq!(new.with_routing_of(&old), old, "{other}");
    }
}
