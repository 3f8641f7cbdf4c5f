//! What is kept of local servers, and given back, whatever becomes of a request.

use std::path::Path;
use std::time::Duration;

use super::home::{Home, Ready};
use super::room::{self, Wants};
use super::*;
use crate::cause::Cause;
use crate::dialect::Dialect;
use crate::dialect::request::Call;
use crate::health::{Ended, Pressure};
use crate::memory::admit::{Admission, NoRoom, Outcome, Room};
use crate::proxy::upstream::ProxyRules;
use crate::time::now;

const BOX: &str =
    "[[target]]\nname = \"box\"\nkind = \"ollama\"\nurl = \"http://127.0.0.1:1\"\nplace = \"local\"\n";

fn config(text: &str) -> Config {
    crate::config::parse(text, Path::new("test"), &|_| None).expect(text).config
}

fn gateway(text: &str, pressure: Pressure) -> Rc<Gateway> {
    let gateway = Gateway::new(config(text), &ProxyRules::from_env(), None).unwrap();
    let free = Some(8 << 20);
    let (total, floor) = (Some(16 << 20), 1 << 20);
    gateway.process.room.set(Some(Room {
        pressure,
        free,
        total,
        floor,
        spill: None,
        promised: 0,
        elsewhere: false,
    }));
    Rc::new(gateway)
}

fn wants(model: &str) -> Wants {
    Wants::of(&Call::bare(Dialect::OllamaChat, model), None)
}

fn says(names: &[&str]) -> Facts {
    let one = |name: &&str| Resident {
        name: (*name).to_owned(),
        size: 1 << 20,
        context: Some(4096),
        ..Resident::default()
    };
    Facts { resident: Some(names.iter().map(one).collect()), ..Facts::default() }
}

fn noted(gateway: &Gateway) -> Vec<Event> {
    std::mem::take(&mut *gateway.process.noted.borrow_mut()).to_vec()
}

fn local(gateway: &Gateway) -> &Rc<Local> {
    gateway.locals[0].as_ref().unwrap()
}

#[test]
fn a_server_is_the_same_after_a_reload_by_its_name_its_place_and_its_kind() {
    let gateway = gateway(BOX, Pressure::Green);
    let renewed = |text: &str| gateway.renewed(config(text), &ProxyRules::from_env()).unwrap();
    let same = |text: &str| {
        let new = renewed(text);
        new.locals[0].as_ref().is_some_and(|new| Rc::ptr_eq(new, local(&gateway)))
    };
    assert!(same(BOX) && same(&format!("{BOX}weight = 7\n")));
    assert!(!same(&BOX.replace("box", "other")) && !same(&BOX.replace(":1\"", ":2\"")));
    assert!(!same(&BOX.replace("ollama", "vllm")));
    assert!(renewed(&BOX.replace("\"local\"", "\"lan\"")).locals[0].is_none());
    assert!(renewed(&format!("{BOX}[memory]\nenabled = false\n")).locals[0].is_none());
    let again = renewed(BOX);
    assert_eq!(gateway.process.locals.all.borrow().len(), 1, "those of no configuration are let go");
    drop(again);
}

#[test]
fn whatever_becomes_of_a_request_what_it_held_is_given_back_once() {
    let gateway = gateway(BOX, Pressure::Green);
    let (wants, at) = (wants("m"), now());
    local(&gateway).heard(&gateway.process, Some(says(&["m"])), at);
    let begin = || room::begin(&gateway, &wants, 0, at).unwrap().expect("it is local");
    let in_flight = || local(&gateway).server.borrow().in_flight();
    for ended in [Ended::Well, Ended::Neutral, Ended::Failed(Cause::Reset, None)] {
        let mut held = begin();
        assert_eq!(in_flight(), 1);
        held.answers(at);
        held.end(&Outcome::default(), ended, at);
        held.end(&Outcome::default(), ended, at);
        drop(held);
        assert_eq!(in_flight(), 0);
    }
    let (one, other) = (begin(), begin());
    assert_eq!(in_flight(), 2);
    drop(one);
    drop(other);
    assert_eq!(in_flight(), 0);
}

#[test]
fn the_predictor_hears_of_loads_and_of_what_is_resident() {
    let gateway = gateway(BOX, Pressure::Green);
    let (cold, at) = (wants("m"), now());
    let server = local(&gateway);
    server.heard(&gateway.process, Some(says(&["a", "b"])), at);
    assert!(matches!(noted(&gateway)[..], [Event::Resident(_)]));
    server.heard(&gateway.process, Some(says(&["a", "b"])), at);
    assert!(noted(&gateway).is_empty(), "nothing is new");
    server.heard(&gateway.process, Some(says(&["a"])), at);
    assert!(matches!(noted(&gateway)[..], [Event::Unloaded, Event::Resident(_)]));

    let admission = room::admission(&gateway, &cold, 0, false, at);
    assert!(matches!(admission, Admission::Loads(_)), "{admission:?}");
    let mut held = room::begin(&gateway, &cold, 0, at).unwrap().unwrap();
    assert!(matches!(noted(&gateway)[..], [Event::Loading(_)]));
    assert_eq!(server.status(at).loading, Some(("m".to_owned(), 0)));
    held.answers(at);
    assert_eq!(noted(&gateway), [Event::Loaded]);
    drop(held);
    assert!(noted(&gateway).is_empty(), "once");

    // Its process dies while it loads another: nothing is there any more.
    let held = room::begin(&gateway, &wants("n"), 0, at).unwrap();
    assert!(matches!(noted(&gateway)[..], [Event::Loading(_)]));
    died(&gateway, 0, true, at);
    assert_eq!(noted(&gateway), [Event::Loaded, Event::Unloaded]);
    assert_eq!((server.residents(), server.status(at).loading), (Some(0), None));
    drop(held);
    assert!(noted(&gateway).is_empty());
}

#[test]
fn a_load_of_which_nothing_is_known_overruns_nothing() {
    let gateway = gateway(BOX, Pressure::Green);
    let (server, at) = (local(&gateway), now());
    server.heard(&gateway.process, Some(says(&[])), at);
    let loading = || {
        let held = room::begin(&gateway, &wants("m"), 0, at).unwrap().unwrap();
        let told = noted(&gateway);
        drop(held);
        noted(&gateway);
        server.heard(&gateway.process, Some(says(&[])), at);
        told
    };
    assert!(matches!(loading()[..], [.., Event::Loading(u32::MAX)]));
    let shape = crate::memory::need::Shape { weights: 1 << 20, ..Default::default() };
    server.server.borrow_mut().shape("m", Some(&shape), at);
    assert!(matches!(loading()[..], [.., Event::Loading(need)] if (1 << 20..2 << 20).contains(&need)));
}

#[test]
fn what_two_servers_have_is_one_set() {
    let two = format!("{BOX}{}", BOX.replace("box", "other").replace(":1\"", ":2\""));
    let gateway = gateway(&two, Pressure::Green);
    let at = now();
    let say = |target: usize, facts: Facts, at| {
        let local = gateway.locals[target].as_ref().unwrap();
        local.heard(&gateway.process, Some(facts), at);
        noted(&gateway).into_iter().find_map(|event| match event {
            Event::Resident(key) => Some(key),
            _ => None,
        })
    };
    let one = say(0, says(&["a"]), at).unwrap();
    let both = say(1, says(&["b"]), at).unwrap();
    assert_ne!(one, both);
    // Each says the same again, and says nothing for a while: nothing is new.
    let later = at + Duration::from_secs(60);
    assert_eq!((say(0, says(&["a"]), later), say(1, says(&["b"]), later)), (None, None));
    assert_eq!(say(0, Facts::default(), later + Duration::from_secs(60)), None);
    assert_eq!(say(0, says(&["a"]), later + Duration::from_secs(61)), None);
    assert!(say(0, says(&[]), later).is_some_and(|key| key != both));
    assert_eq!(say(0, says(&["a"]), later), Some(both), "in whatever order they come");
}

#[test]
fn the_end_of_a_request_is_not_the_end_of_anothers_load() {
    let gateway = gateway(BOX, Pressure::Green);
    let (server, at) = (local(&gateway), now());
    server.heard(&gateway.process, Some(says(&[])), at);
    let mut first = room::begin(&gateway, &wants("m"), 0, at).unwrap().unwrap();
    first.answers(at);
    // It still answers when another model is loaded, and ends before that is there.
    let second = room::begin(&gateway, &wants("n"), 0, at).unwrap();
    first.end(&Outcome::default(), Ended::Well, at);
    assert_eq!(server.status(at).loading, Some(("n".to_owned(), 0)));
    // Nor does one whose server died in between end the next.
    died(&gateway, 0, false, at);
    let third = room::begin(&gateway, &wants("o"), 0, at).unwrap();
    drop(second);
    assert_eq!(server.status(at).loading, Some(("o".to_owned(), 0)));
    drop(third);
    assert_eq!(server.status(at).loading, None);
}

#[test]
fn a_server_is_asked_often_while_requests_come_and_seldom_else() {
    let gateway = gateway(BOX, Pressure::Green);
    let (server, locals, at) = (local(&gateway), &gateway.process.locals, now());
    let later = |secs| at + Duration::from_secs(secs);
    assert_eq!((server.due.get() <= at, server.pause(at)), (true, limits::LOCAL_EVERY_IDLE));
    server.heard(&gateway.process, Some(says(&[])), at);
    server.asked.set(Some(at));
    server.due.set(at + server.pause(at));
    assert_eq!(server.due.get(), later(60));
    server.used(locals, later(1));
    assert_eq!((server.due.get(), server.pause(later(1))), (later(5), limits::LOCAL_EVERY_OLLAMA));
    assert_eq!(server.pause(later(30)), limits::LOCAL_EVERY_IDLE, "it has been idle for long");
    // It says nothing any more: if it is gone it may be back soon, if it cannot say it never will.
    server.heard(&gateway.process, None, later(5));
    assert_eq!(server.pause(later(5)), limits::LOCAL_EVERY_OLLAMA);
    server.said.borrow_mut().there = true;
    assert_eq!(server.pause(later(5)), limits::LOCAL_EVERY_IDLE);
}

#[test]
fn short_memory_refuses_at_the_beginning_of_an_attempt_too() {
    let gateway = gateway(BOX, Pressure::Red);
    let (wants, at) = (wants("m"), now());
    assert_eq!(room::admission(&gateway, &wants, 0, false, at), Admission::Not(NoRoom::Red));
    let failure = room::begin(&gateway, &wants, 0, at).err().expect("nothing new");
    assert_eq!(failure.cause, Cause::Suspended);
    // Not watched any more.
    gateway.process.room.set(None);
    assert!(room::begin(&gateway, &wants, 0, at).is_ok_and(|held| held.is_none()));
}

#[tokio::test(start_paused = true)]
async fn who_waits_goes_as_soon_as_there_is_memory_and_not_too_many_wait() {
    let text = format!("{BOX}[queue]\nlength = 2\ntime = \"3s\"\n");
    let gateway = gateway(&text, Pressure::Red);
    let wants = wants("m");
    let wait = || room::wait(&gateway, &wants, 0);
    let begun = tokio::time::Instant::now();
    let (first, second, third, ()) = tokio::join!(wait(), wait(), wait(), async {
        tokio::task::yield_now().await;
        assert_eq!(local(&gateway).waiting.get(), 2);
        // Something else has changed.
        gateway.process.locals.changed();
        tokio::time::sleep(Duration::from_secs(1)).await;
        let room = gateway.process.room.get();
        gateway.process.room.set(room.map(|room| Room { pressure: Pressure::Green, ..room }));
        gateway.process.locals.changed();
    });
    assert_eq!((first, second, third), (Some(()), Some(()), None), "the third finds the queue full");
    assert_eq!((begun.elapsed(), local(&gateway).waiting.get()), (Duration::from_secs(1), 0));
    let room = gateway.process.room.get();
    gateway.process.room.set(room.map(|room| Room { pressure: Pressure::Red, ..room }));
    assert!(wait().await.is_none() && begun.elapsed() == Duration::from_secs(4));
    let gone = tokio::time::timeout(Duration::from_secs(1), wait()).await;
    assert!(gone.is_err() && local(&gateway).waiting.get() == 0);
}

/// Somebody holds the one slot of a server; a request waits for it, for ten seconds, while `meanwhile` happens.
async fn waits(gateway: &Rc<Gateway>, meanwhile: impl Future<Output = ()>) -> (Option<Cause>, u64) {
    let (at, begun) = (now(), tokio::time::Instant::now());
    let home = Home {
        gateway,
        wants: wants("m"),
        target: 0,
        lane: gateway.lanes[0],
        dialect: Dialect::OllamaChat,
        client: 1,
        priority: crate::config::Priority::Normal,
        load: Duration::from_secs(300),
        until: at + Duration::from_secs(10),
    };
    let waits = async {
        let ready = home.ready(at).await;
        (ready, begun.elapsed().as_secs())
    };
    let ((ready, took), ()) = tokio::join!(waits, meanwhile);
    assert!(gateway.locals[0].as_ref().is_none_or(|local| local.waiting.get() == 0));
    assert_eq!(gateway.process.places.waiting(gateway.lanes[0]), 0);
    match ready {
        Ready::Now(_) => (None, took),
        Ready::ToLoad(_) => panic!("it is loaded"),
        Ready::Left(left) => (Some(left.failure.cause), took),
    }
}

#[tokio::test(start_paused = true)]
async fn a_busy_box_is_waited_for_until_it_is_free_fails_or_takes_too_long() {
    let text = BOX.replace("ollama", "llamacpp");
    let busy = || {
        let gateway = gateway(&text, Pressure::Green);
        let facts = Facts { slots: Some(1), ..Facts::default() };
        local(&gateway).heard(&gateway.process, Some(facts), now());
        let held = room::begin(&gateway, &wants("m"), 0, now()).unwrap().unwrap();
        (gateway, held)
    };
    let later = || tokio::time::sleep(Duration::from_secs(5));
    let (gateway, held) = busy();
    assert_eq!(waits(&gateway, later()).await, (Some(Cause::Busy), 10), "as long as it may");
    let free = async {
        later().await;
        drop(held);
    };
    assert_eq!(waits(&gateway, free).await, (None, 5));

    let (gateway, _held) = busy();
    let red = async {
        later().await;
        let room = gateway.process.room.get();
        gateway.process.room.set(room.map(|room| Room { pressure: Pressure::Red, ..room }));
        gateway.store.borrow_mut().set_pressure(0, Pressure::Red);
        gateway.process.locals.changed();
    };
    assert_eq!(waits(&gateway, red).await, (Some(Cause::LowMemory), 5), "nothing binds in red");

    let (gateway, _held) = busy();
    let dies = async {
        later().await;
        gateway.store.borrow_mut().died(0, Cause::Crashed, false, now());
        died(&gateway, 0, false, now());
    };
    assert_eq!(waits(&gateway, dies).await, (Some(Cause::Suspended), 5));

    // So many may wait, and no more.
    let gateway = self::gateway(&format!("{text}[queue]\nlength = 0\n"), Pressure::Green);
    local(&gateway).heard(&gateway.process, Some(Facts { slots: Some(1), ..Facts::default() }), now());
    let _held = room::begin(&gateway, &wants("m"), 0, now()).unwrap();
    assert_eq!(waits(&gateway, later()).await, (Some(Cause::Busy), 0));
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_a_place_at_a_box_that_fails_or_is_short_meanwhile() {
    let later = || tokio::time::sleep(Duration::from_secs(5));
    let text = format!("{BOX}max_concurrent = 1\n[memory]\nenabled = ");
    // Also where memory is not looked at.
    for watched in ["true", "false"] {
        let full = || {
            let gateway = gateway(&format!("{text}{watched}\n"), Pressure::Green);
            let place = gateway.process.places.take(gateway.lanes[0], now()).expect("it is free");
            (gateway, place)
        };
        let (gateway, _place) = full();
        assert_eq!(waits(&gateway, later()).await, (Some(Cause::Busy), 10), "as long as it may");

        let (gateway, _place) = full();
        let hangs = async {
            later().await;
            let probed = |_| gateway.store.borrow_mut().probed(0, Err(Cause::TimeoutConnect), now());
            (0..3).map(probed).for_each(|told| crate::proxy::news::say(&gateway, &told));
        };
        assert_eq!(waits(&gateway, hangs).await, (Some(Cause::Suspended), 5), "its probe");

        let (gateway, _place) = full();
        let dies = async {
            later().await;
            gateway.store.borrow_mut().died(0, Cause::Crashed, false, now());
            died(&gateway, 0, false, now());
        };
        assert_eq!(waits(&gateway, dies).await, (Some(Cause::Suspended), 5), "its process");

        let (gateway, _place) = full();
        let red = async {
            later().await;
            gateway.store.borrow_mut().set_pressure(0, Pressure::Red);
            gateway.process.locals.changed();
        };
        assert_eq!(waits(&gateway, red).await, (Some(Cause::LowMemory), 5), "memory");
    }
}
