//! Who is out for its slowness, who isn't, and how it comes back.

use super::*;
use proptest::prelude::*;

/// A target, its clock, and what became of it.
struct Bench {
    latency: Latency,
    policy: Policy,
    start: Instant,
    now: Instant,
    changes: Vec<(u64, Change)>,
}

impl Bench {
    fn new() -> Self {
        let now = crate::time::now();
        let (latency, policy) = (Latency::default(), Policy::default());
        Bench { latency, policy, start: now, now, changes: Vec::new() }
    }

    fn minute(&self) -> u64 {
        (self.now - self.start).as_secs() / 60
    }

    /// For `minutes`, a request each `every` seconds, as long as it is asked: (tokens, milliseconds).
    fn run(&mut self, minutes: u64, every: u64, answer: impl Fn(u64) -> (u64, u64)) -> &mut Self {
        for second in 0..minutes * 60 {
            self.now += Duration::from_secs(1);
            if second % every == 0 && self.latency.out(&self.policy, self.now).is_none_or(|(_, due)| due) {
                let trickle = self.latency.begin(&self.policy, self.now);
                let (tokens, millis) = answer(second);
                self.latency.first_token(&self.policy, tokens, Duration::from_millis(millis), self.now);
                if trickle {
                    self.latency.end_trickle();
                }
            }
            if let Some(change) = self.latency.evaluate(&self.policy, self.now) {
                self.changes.push((self.minute(), change));
            }
        }
        self
    }

    /// The same for streams with `gap` milliseconds between their tokens.
    fn stream(&mut self, minutes: u64, every: u64, gap: impl Fn(u64) -> u64) -> &mut Self {
        for second in 0..minutes * 60 {
            self.now += Duration::from_secs(1);
            if second % every == 0 && self.latency.out(&self.policy, self.now).is_none_or(|(_, due)| due) {
                let trickle = self.latency.begin(&self.policy, self.now);
                let mut gaps = Sketch::new();
                (0..100).for_each(|n| gaps.add_time(Duration::from_millis(gap(second * 100 + n))));
                self.latency.gaps(&self.policy, &gaps, self.now);
                if trickle {
                    self.latency.end_trickle();
                }
            }
            if let Some(change) = self.latency.evaluate(&self.policy, self.now) {
                self.changes.push((self.minute(), change));
            }
        }
        self
    }
}

#[test]
fn a_slow_decay_is_caught_and_so_is_its_recovery() {
    // 200 ms to 2 s over an hour, evenly or by the same factor each minute; from the start where requests are many,
    // or after a good hour.
    let even = |second: u64| (100_u64, 200 + second / 2);
    let steep = |second: u64| (100_u64, (200.0 * 10_f64.powf(second as f64 / 3600.0)) as u64);
    for (good, every) in [(0, 2), (60, 2), (60, 20)] {
        for (decay, name) in [(&even as &dyn Fn(u64) -> (u64, u64), "even"), (&steep, "steep")] {
            let mut bench = Bench::new();
            bench.run(good, every, |_| (100, 200)).run(60, every, decay).run(10, every, |_| (100, 2000));
            let [(minute, Change::Ejected(Why::SlowFirstToken(tenths)))] = bench.changes[..] else {
                panic!("{name} {every}: {:?}", bench.changes)
            };
            assert!((40..=120).contains(&tenths), "{name} {tenths}");
            assert!(minute >= good + 30, "{name}: not before it was slow");
            // Recovered: the trickle shows it.
            bench.run(15, every, |_| (100, 220));
            assert!(matches!(bench.changes[1..], [(_, Change::Readmitted)]), "{:?}", bench.changes);
            let waited = bench.changes[1].0 - (good + 70);
            assert!((5..=13).contains(&waited), "{name} {every}: {waited}");
            bench.run(60, every, |_| (100, 220));
            assert_eq!(bench.changes.len(), 2);
        }
    }
}

#[test]
fn a_few_requests_are_enough() {
    // One in five minutes.
    let mut bench = Bench::new();
    bench.run(300, 300, |_| (100, 200)).run(180, 300, |_| (100, 5000));
    assert!(matches!(bench.changes[..], [(_, Change::Ejected(_))]), "{:?}", bench.changes);
    bench.run(180, 300, |_| (100, 200));
    assert!(matches!(bench.changes[1..], [(_, Change::Readmitted)]), "{:?}", bench.changes);
}

#[test]
fn a_trickle_of_one_in_ten_seconds_is_all_that_it_gets_and_brings_it_back() {
    let mut bench = Bench::new();
    bench.run(20, 1, |_| (100, 200)).run(5, 1, |_| (100, 4000));
    assert!(matches!(bench.changes[..], [(_, Change::Ejected(_))]), "{:?}", bench.changes);
    let before = bench.now;
    let mut asked = 0;
    while bench.latency.out(&bench.policy, bench.now).is_some() {
        assert!(bench.now - before < Duration::from_secs(600));
        bench.now += Duration::from_secs(1);
        if bench.latency.begin(&bench.policy, bench.now) {
            asked += 1;
            assert_eq!(bench.latency.out(&bench.policy, bench.now).map(|(_, due)| due), Some(false));
            bench.latency.first_token(&bench.policy, 100, Duration::from_millis(200), bench.now);
            bench.latency.end_trickle();
        }
        bench.latency.evaluate(&bench.policy, bench.now);
    }
    assert!((30..=48).contains(&asked), "{asked}");
    assert!(bench.now - before >= bench.policy.back_after);
}

#[test]
fn cold_loads_eject_nobody() {
    for every in [1, 6, 30, 120] {
        let mut bench = Bench::new();
        // One each twenty minutes; two more clients wait for the same load.
        for _ in 0..20 {
            for _ in 0..3 {
                bench.latency.first_token(&bench.policy, 100, Duration::from_secs(30), bench.now);
            }
            bench.run(20, every, |_| (100, 200));
        }
        assert_eq!(bench.changes, [], "{every}");
    }
}

#[test]
fn long_prompts_and_cache_misses_are_not_slowness() {
    let mut bench = Bench::new();
    let took = |second: u64| {
        let tokens = 100 + (second * 7919) % 16_000;
        // Two of three are in the cache.
        (tokens, if second.is_multiple_of(3) { 200 + tokens / 2 } else { 150 })
    };
    // Short ones at first; then long ones, of which nothing is known yet.
    bench.run(30, 7, |_| (100, 200)).run(120, 7, took).run(30, 7, |_| (40_000, 20_000));
    assert_eq!(bench.changes, []);
}

#[test]
fn below_the_floor_ten_times_as_slow_is_fast_enough() {
    let mut bench = Bench::new();
    bench.run(30, 2, |_| (100, 50)).run(30, 2, |_| (100, 1400));
    assert_eq!(bench.changes, []);
}

#[test]
fn gaps_between_tokens_are_judged_likewise() {
    let mut bench = Bench::new();
    bench.stream(30, 5, |n| if n % 20 == 0 { 90 } else { 30 });
    assert_eq!(bench.changes, []);
    bench.stream(10, 5, |n| 800 + n % 100);
    let [(_, Change::Ejected(Why::SlowTokens(tenths)))] = bench.changes[..] else {
        panic!("{:?}", bench.changes)
    };
    assert!(tenths > 60, "{tenths}");
    bench.stream(12, 5, |_| 40);
    assert!(matches!(bench.changes[1..], [(_, Change::Readmitted)]), "{:?}", bench.changes);
}

#[test]
fn what_stays_slow_for_a_day_is_usual_then() {
    let mut bench = Bench::new();
    bench.run(30, 5, |_| (100, 200)).run(24 * 60 + 30, 5, |_| (100, 3000));
    assert!(
        matches!(bench.changes[..], [(_, Change::Ejected(_)), (_, Change::Readmitted)]),
        "{:?}",
        bench.changes
    );
    bench.run(60, 5, |_| (100, 3000));
    assert_eq!(bench.changes.len(), 2);
    assert!(bench.latency.usual(100).is_some_and(|usual| usual > Duration::from_secs(2)));
}

#[test]
fn the_p95_for_a_length_is_what_hedges_wait_for() {
    let mut bench = Bench::new();
    bench.run(60, 5, |second| {
        let tokens = if second % 10 == 0 { 4000 } else { 200 };
        (tokens, tokens / 2 + 100)
    });
    let p95 = |tokens| bench.latency.first_token_p95_for(&bench.policy, tokens).unwrap().as_millis();
    assert!((170..300).contains(&p95(200)), "{}", p95(200));
    assert!((1900..2700).contains(&p95(4000)), "{}", p95(4000));
    assert_eq!(Latency::default().first_token_p95_for(&bench.policy, 200), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    // Any clock and any samples: nobody is out below `min_samples` or without slow answers.
    #[test]
    fn nobody_is_out_without_slow_samples(
        samples in prop::collection::vec((0_u64..120_000, 0_u64..100_000, 0_u64..60_000, any::<bool>()), 1..200),
        floor in 0_u64..10_000,
    ) {
        let policy = Policy { first_token: Duration::from_millis(floor), ..Policy::default() };
        let (mut latency, start) = (Latency::default(), crate::time::now());
        let (mut at, mut slow, mut seen) = (10_000_000_u64, 0, 0);
        for (step, tokens, millis, back) in samples {
            at = if back { at.saturating_sub(step) } else { at + step };
            let now = start + Duration::from_millis(at);
            latency.first_token(&policy, tokens, Duration::from_millis(millis), now);
            seen += 1;
            slow += u32::from(millis > floor);
            if let Some(Change::Ejected(_)) = latency.evaluate(&policy, now) {
                prop_assert!(slow >= limits::LATENCY_SLOW_MIN && seen >= policy.min_samples);
            }
        }
    }
}
