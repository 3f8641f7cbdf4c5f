//! The watchdog's promises: leaks are seen in time, what is usual is left alone, less memory is never better, a trace
//! replays.

use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::recorder::{self, Entry, Replay};
use super::*;
use crate::config::{Board, Memory};
use crate::health::Pressure::{self, Amber, Green, Red};
use crate::limits::MEMORY_LINE_BYTES;

mod healthy;

const MIB: u64 = 1024;
const GIB: u64 = 1024 * MIB;

fn terms() -> Terms {
    Terms::new(&Memory::default(), board::of(Board::JetsonOrin))
}

/// A box whose memory a test plays.
struct Box {
    state: State,
    at: Instant,
    sample: Sample,
    /// Rises from Green.
    episodes: u32,
    last: Pressure,
    reds: u32,
}

impl Box {
    fn new(total: u64) -> Box {
        let at = crate::time::now();
        let mut sample = Sample::default();
        sample.set(Field::Total, total);
        Box { state: State::new(terms(), at), at, sample, episodes: 0, last: Green, reds: 0 }
    }

    fn look(&mut self, available: u64) -> Decision {
        self.sample.set(Field::Available, available);
        let decision = step(&mut self.state, &self.sample, self.at);
        self.episodes += u32::from(self.last == Green && decision.pressure > Green);
        self.reds += u32::from(self.last < Red && decision.pressure == Red);
        self.last = decision.pressure;
        self.at += Duration::from_millis(decision.next.into());
        decision
    }

    /// Lives for `time` at what `available` says, after so many milliseconds.
    fn live(&mut self, time: Duration, mut available: impl FnMut(u64) -> u64) {
        let start = self.at;
        while self.at - start < time {
            let ms = u64::try_from((self.at - start).as_millis()).unwrap();
            self.look(available(ms));
        }
    }
}

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(86_400);

/// How long before the last page Amber and Red came, at a leak of so many KiB a second from `level` on.
fn leads(total: u64, level: u64, rate: u64, jitter: u64) -> (Duration, Duration) {
    let mut it = Box::new(total);
    let mut odd = 1_u64;
    let mut noise = || {
        odd = odd.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (odd >> 33) % (jitter + 1)
    };
    it.live(10 * MINUTE, |_| level - noise());
    assert_eq!((it.episodes, it.last), (0, Green), "{level} of {total} is usual");
    let start = it.at;
    let end = Duration::from_millis(level * 1000 / rate);
    let (mut amber, mut red) = (None, None);
    while it.at - start < end {
        let ms = u64::try_from((it.at - start).as_millis()).unwrap();
        let decision = it.look((level - level.min(rate * ms / 1000)).saturating_sub(noise()));
        let lead = end.saturating_sub(it.at - start);
        if decision.pressure >= Amber {
            amber = amber.or(Some(lead));
        }
        if decision.pressure == Red {
            red = red.or(Some(lead));
        }
    }
    (amber.unwrap_or_default(), red.unwrap_or_default())
}

#[test]
fn a_leak_is_seen_five_seconds_before_the_last_page() {
    for (total, level) in [(8 * GIB, 2 * GIB), (8 * GIB, GIB), (64 * GIB, 6 * GIB), (128 * GIB, 3 * GIB / 2)]
    {
        for rate in [MIB, 10 * MIB, 100 * MIB] {
            for jitter in [0, 2 * MIB, total / 1000] {
                let (amber, red) = leads(total, level, rate, jitter);
                let shown = format!("{level} of {total} at {rate}, ±{jitter}: {amber:?} {red:?}");
                assert!(amber >= Duration::from_secs(5), "{shown}");
                assert!(red >= Duration::from_secs(5), "{shown}");
                assert!(amber >= red, "{shown}");
            }
        }
    }
}

#[test]
fn a_page_cache_that_fills_is_no_sign() {
    let mut it = Box::new(8 * GIB);
    it.live(10 * MINUTE, |_| 4 * GIB);
    for second in 0..600 {
        it.sample.set(Field::Free, (4 * GIB).saturating_sub(second * 20 * MIB));
        it.sample.set(Field::PsiSome, 300);
        let decision = it.look(4 * GIB - second % 7 * MIB);
        assert_eq!(decision.pressure, Green, "{second}: {decision:?}");
    }
}

#[test]
fn a_sawtooth_makes_no_episode_in_a_day() {
    let hours = 3600 * Duration::from_secs(1);
    for (height, period, time) in
        [(GIB, 60_000, DAY), (GIB / 2, 7000, hours), (3 * GIB / 2, 1_800_000, 3 * hours)]
    {
        let mut it = Box::new(8 * GIB);
        // The first tooth could be a leak's.
        it.live(2 * Duration::from_millis(period), |ms| 5 * GIB / 2 - height * (ms % period) / period);
        it.episodes = 0;
        it.live(time, |ms| 5 * GIB / 2 - height * (ms % period) / period);
        assert_eq!(it.episodes, 0, "{height} each {period} ms");
    }
}

#[test]
fn red_takes_two_signs_and_says_which() {
    let mut it = Box::new(8 * GIB);
    it.live(2 * MINUTE, |_| 2 * GIB);
    // Suddenly little, and it stays so: one sign.
    it.live(MINUTE / 2, |_| 300 * MIB);
    let level = it.look(300 * MIB);
    assert_eq!((level.pressure, level.reason, it.reds), (Amber, Reason::Level, 0));
    it.sample.set(Field::PsiFull, 2500);
    let stall = it.look(300 * MIB);
    assert_eq!((stall.pressure, stall.reason), (Red, Reason::LevelAndStall));
    it.sample.set(Field::PsiFull, 0);
    let held = it.look(300 * MIB);
    assert_eq!((held.pressure, held.reason), (Red, Reason::Held));
    it.live(MINUTE, |_| 4 * GIB);
    assert_eq!(it.last, Green);
    // A kill, and little left.
    it.sample.set(Field::Kills, 4);
    it.live(MINUTE, |_| 4 * GIB);
    it.live(Duration::from_secs(5), |_| 200 * MIB);
    it.sample.set(Field::Kills, 5);
    assert_eq!(it.look(200 * MIB).pressure, Red);
}

#[test]
fn waiting_programs_are_a_sign_only_where_little_is_left() {
    let mut it = Box::new(8 * GIB);
    it.sample.set(Field::PsiSome, 4000);
    it.sample.set(Field::PsiFull, 4000);
    it.live(MINUTE, |_| 4 * GIB);
    assert_eq!(it.last, Green);
    let mut it = Box::new(8 * GIB);
    it.live(MINUTE, |_| 4 * GIB);
    it.look(1200 * MIB);
    it.sample.set(Field::PsiSome, 4000);
    let decision = it.look(1200 * MIB);
    assert_eq!((decision.pressure, decision.reason), (Amber, Reason::Stall));
}

#[test]
fn swapping_back_is_trouble_too() {
    let mut it = Box::new(8 * GIB);
    it.sample.set(Field::SwapIn, u64::from(u32::MAX) - 100);
    it.live(MINUTE, |_| 2 * GIB);
    it.live(MINUTE / 4, |_| 300 * MIB);
    it.sample.set(Field::SwapIn, 10_000);
    it.live(Duration::from_millis(1100), |_| 300 * MIB);
    assert_eq!(it.last, Red, "the count wraps");
}

#[test]
fn a_load_that_was_let_in_is_judged_by_what_it_was_to_take() {
    let load = |note: bool, takes: u64| {
        let mut it = Box::new(8 * GIB);
        it.live(2 * MINUTE, |_| 7 * GIB);
        if note {
            it.state.note(Event::Loading(u32::try_from(5 * GIB).unwrap()), it.at);
        }
        it.live(Duration::from_secs(10), |ms| 7 * GIB - takes * ms / 10_000);
        it
    };
    assert!(load(false, 5 * GIB).episodes > 0, "nobody knew of it");
    assert_eq!(load(true, 5 * GIB).episodes, 0);
    let mut over = load(true, 6 * GIB);
    let decision = over.look(GIB);
    assert_eq!((decision.pressure, decision.reason), (Amber, Reason::Overrun));
    over.state.note(Event::Loaded, over.at);
    over.live(2 * MINUTE, |_| GIB);
    assert_eq!(over.last, Green);
}

#[test]
fn a_cgroup_has_a_bottom_of_its_own_and_a_kill_in_it_is_said() {
    let mut it = Box::new(64 * GIB);
    it.sample.set(Field::GroupMax, 4 * GIB);
    it.sample.set(Field::GroupFile, GIB);
    it.sample.set(Field::GroupKills, 0);
    it.sample.set(Field::GroupCurrent, 3 * GIB);
    it.live(2 * MINUTE, |_| 50 * GIB);
    assert_eq!(it.last, Green);
    it.sample.set(Field::GroupCurrent, 9 * GIB / 2);
    let decision = (0..3).map(|_| it.look(50 * GIB)).last().unwrap();
    assert_eq!((decision.axis, decision.available), (Axis::Group, u32::try_from(GIB / 2).unwrap()));
    it.sample.set(Field::GroupCurrent, 2 * GIB);
    it.live(MINUTE, |_| 50 * GIB);
    assert_eq!(it.last, Green);
    it.sample.set(Field::GroupKills, 1);
    assert_eq!(it.look(50 * GIB).reason, Reason::Killed);
}

#[test]
fn a_blind_watchdog_says_so_and_bars_nothing() {
    let at = crate::time::now();
    let mut state = State::new(terms(), at);
    let decision = step(&mut state, &Sample::default(), at);
    assert_eq!((decision.pressure, decision.reason, decision.next), (Green, Reason::Blind, 1000));
}

#[test]
fn a_fixed_floor_does_not_move() {
    let config = Memory { floor: Some(1 << 30), ..Memory::default() };
    let mut it = Box::new(8 * GIB);
    it.state.set_terms(Terms::new(&config, board::of(Board::Generic)));
    it.live(10 * MINUTE, |_| GIB - 1);
    assert_eq!((it.last, it.look(GIB - 1).floor), (Amber, u32::try_from(GIB).unwrap()));
}

fn random_sample() -> impl Strategy<Value = Sample> {
    let values = proptest::collection::vec((0u64..16_000_000, 0u8..8), Field::ALL.len());
    values.prop_map(|values| {
        let mut sample = Sample::default();
        for (field, (value, there)) in Field::ALL.into_iter().zip(values) {
            match there {
                0 => {}
                1 => {
                    sample.set(field, value);
                    sample.fade(&[field]);
                }
                _ => sample.set(field, value),
            }
        }
        sample
    })
}

fn random_event() -> impl Strategy<Value = Option<Event>> {
    prop_oneof![
        12 => Just(None),
        1 => any::<u32>().prop_map(|kib| Some(Event::Loading(kib))),
        1 => Just(Some(Event::Loaded)),
        1 => Just(Some(Event::Unloaded)),
        1 => any::<u64>().prop_map(|key| Some(Event::Resident(key))),
    ]
}

/// Memory that wanders, in KiB of 8 GiB.
fn wandering() -> impl Strategy<Value = Vec<u64>> {
    proptest::collection::vec((0u64..8 * GIB, 1u64..40, any::<bool>()), 1..12).prop_map(|legs| {
        let (mut now, mut all) = (4 * GIB, Vec::new());
        for (to, steps, jump) in legs {
            for n in 1..=steps {
                all.push(if jump { to } else { (now * (steps - n) + to * n) / steps });
            }
            now = to;
        }
        all
    })
}

proptest! {
    #[test]
    fn less_memory_is_never_less_pressure(
        history in wandering(),
        psi in 0u64..3000,
        last in 0u64..8 * GIB,
        less in 0u64..8 * GIB,
    ) {
        let mut it = Box::new(8 * GIB);
        it.sample.set(Field::PsiSome, psi);
        it.sample.set(Field::PsiFull, psi / 2);
        for available in history {
            it.look(available);
        }
        let (state, at) = (it.state.clone(), it.at);
        let more = it.look(last).pressure;
        (it.state, it.at) = (state, at);
        let fewer = it.look(last.saturating_sub(less)).pressure;
        prop_assert!(fewer >= more, "{last} - {less}: {fewer:?} < {more:?}");
    }

    #[test]
    fn it_does_not_flap_whatever_memory_does(history in wandering(), psi in 0u64..3000) {
        let mut it = Box::new(8 * GIB);
        it.sample.set(Field::PsiFull, psi);
        let start = it.at;
        for available in history.iter().cycle().take(1000) {
            it.look(*available);
        }
        let took = (it.at - start).as_secs();
        prop_assert!(u64::from(it.episodes) <= 6 + took / 300, "{} in {took} s", it.episodes);
    }

    #[test]
    fn a_trace_is_read_as_it_was_written_and_replays(
        steps in proptest::collection::vec((random_sample(), random_event(), 1u64..3000), 1..60),
        seed in any::<[u32; 3]>(),
    ) {
        let start = crate::time::now();
        let terms = Terms { floor: (seed[0] % 2 == 0).then_some(seed[1] % 9_000_000), ..terms() };
        let mut state = State::new(terms, start);
        let (mut trace, mut buffer, mut ms) = (Vec::new(), [0; MEMORY_LINE_BYTES], 0);
        let mut put = |entry: &Entry| {
            let length = recorder::write(entry, &mut buffer).expect("it fits");
            assert_eq!(recorder::read(&buffer[..length - 1]), Some(*entry));
            trace.extend_from_slice(&buffer[..length]);
        };
        put(&Entry::Terms(terms));
        for (mut sample, event, gap) in steps {
            ms += gap;
            let at = start + Duration::from_millis(ms);
            if let Some(event) = event {
                state.note(event, at);
                put(&Entry::Event(ms, event));
            }
            // Of what is not good only that it was there is kept.
            for field in Field::ALL {
                if sample.get(field).is_none() {
                    sample.values[field as usize] = 0;
                }
            }
            put(&Entry::Sample(ms, sample, step(&mut state, &sample, at)));
        }
        let mut replay = Replay::new(start + Duration::from_secs(7));
        for line in trace.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let entry = recorder::read(line).expect("a line");
            if let (Some(decided), Entry::Sample(_, _, recorded)) = (replay.play(&entry), entry) {
                prop_assert_eq!(decided, recorded);
            }
        }
    }

    #[test]
    fn no_line_makes_the_reader_panic(line in proptest::collection::vec(any::<u8>(), 0..80), words in "(s|e|edgeward-trace 1)( [0-9]{0,22}){0,40}( = [0-9 ]{0,40})?") {
        let mut replay = Replay::new(crate::time::now());
        for line in [&line[..], words.as_bytes()] {
            if let Some(entry) = recorder::read(line) {
                replay.play(&Entry::Terms(terms()));
                replay.play(&entry);
            }
        }
    }
}
