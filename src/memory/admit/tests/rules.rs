//! Each rule of admission, once.

use super::*;
use Admission::{Goes, Loads, Not};

const WHOLE: Outcome =
    Outcome { prompt: None, output: Some(20), grew: None, whole: true, out_of_memory: false };

/// 4 GiB, with nothing learned.
const NEED: u32 = 4 * GIB + limits::NEED_RESERVE + 8 * MIB + MIB / 512;

#[test]
fn red_takes_none_and_amber_only_what_is_there_and_small() {
    let now = crate::time::now();
    let server = ollama(&[resident("a", GIB)], &["a", "b"], now);
    assert_eq!(server.ask(&asked("a"), &with(Pressure::Red), now), Not(NoRoom::Red));
    assert_eq!(server.ask(&asked("a"), &with(Pressure::Amber), now), Goes);
    let large = Asked { prompt: 2000, ..asked("a") };
    assert_eq!(server.ask(&large, &with(Pressure::Amber), now), Not(NoRoom::NotSmall(2100)));
    assert_eq!(server.ask(&large, &room(), now), Goes);
    let image = Asked { image: true, ..asked("a") };
    assert_eq!(server.ask(&image, &with(Pressure::Amber), now), Not(NoRoom::NotSmall(200)));
    assert_eq!(server.ask(&asked("b"), &with(Pressure::Amber), now), Not(NoRoom::NotResident));
}

#[test]
fn a_model_that_is_not_there_has_to_fit() {
    let now = crate::time::now();
    let server = ollama(&[], &["a"], now);
    let Loads(need) = server.ask(&asked("a"), &room(), now) else { panic!() };
    assert!(need.abs_diff(NEED) < 8 * MIB, "{need}");
    // Alone it may take 95 % of what is above the floor.
    let least = u32::try_from(u64::from(need) * 1000 / limits::ADMIT_ALONE).unwrap() + GIB + 8;
    assert_eq!(server.ask(&asked("a"), &free(least), now), Loads(need));
    let short = free(least - MIB);
    let available = least - MIB - GIB;
    assert_eq!(server.ask(&asked("a"), &short, now), Not(NoRoom::TooLarge { need, free: available }));
    // A card that is too small has a box around it.
    assert_eq!(server.ask(&asked("a"), &Room { spill: Some(4 * GIB), ..short }, now), Loads(need));
    // What loads elsewhere still take is not free.
    let promised = Room { promised: 2 * MIB, ..free(least) };
    assert!(matches!(server.ask(&asked("a"), &promised, now), Not(NoRoom::TooLarge { .. })));
    // Where nothing is known of memory it is not held up.
    assert_eq!(server.ask(&asked("a"), &Room { free: None, ..room() }, now), Loads(need));
}

#[test]
fn beside_others_it_may_take_four_fifths_and_idle_ones_make_room() {
    let now = crate::time::now();
    let mut server = ollama(&[resident("big", 8 * GIB)], &["a"], now);
    // 5 GiB above the floor: enough alone, not beside another, which is idle and goes.
    assert!(matches!(server.ask(&asked("a"), &free(6 * GIB), now), Loads(_)));
    assert!(matches!(server.ask(&asked("a"), &free(2 * GIB), now), Loads(_)));
    // While it answers it does not.
    let ticket = server.begins(&asked("big"), now);
    assert_eq!(server.ask(&asked("a"), &free(6 * GIB), now), Not(NoRoom::Evicts));
    assert!(matches!(server.ask(&asked("a"), &free(7 * GIB), now), Loads(_)));
    // Without a cloud it waits at the server until that is over.
    assert!(matches!(server.ask(&asked("a"), &Room { elsewhere: false, ..free(6 * GIB) }, now), Loads(_)));
    server.ends(ticket, &WHOLE, now);
    assert!(matches!(server.ask(&asked("a"), &free(6 * GIB), now), Loads(_)));
    // A small one does not make enough.
    let server = ollama(&[resident("small", GIB)], &["a"], now);
    assert!(matches!(server.ask(&asked("a"), &free(2 * GIB), now), Not(NoRoom::TooLarge { .. })));
}

#[test]
fn where_only_so_many_may_be_loaded_one_has_to_go() {
    let now = crate::time::now();
    let mut server = ollama(&[resident("b", GIB)], &["a"], now);
    server.set(Settings { models: Some(1), ..Settings::default() });
    assert!(matches!(server.ask(&asked("a"), &room(), now), Loads(_)));
    let ticket = server.begins(&asked("b"), now);
    assert_eq!(server.ask(&asked("a"), &room(), now), Not(NoRoom::Evicts));
    server.ends(ticket, &WHOLE, now);
}

#[test]
fn other_options_load_it_again() {
    let now = crate::time::now();
    let mut server = ollama(&[resident("llama3.2:latest", GIB)], &["llama3.2"], now);
    let with = |options| Asked { options, ..asked("LLAMA3.2") };
    let ctx = |num_ctx| with(Runner { num_ctx: Some(num_ctx), ..Runner::default() });
    assert_eq!(server.ask(&asked("llama3.2"), &room(), now), Goes);
    assert_eq!(server.ask(&ctx(4096), &room(), now), Goes, "what it has");
    assert!(matches!(server.ask(&ctx(8192), &room(), now), Loads(_)));
    let batch = |num_batch| with(Runner { num_batch: Some(num_batch), ..Runner::default() });
    assert_eq!(server.ask(&batch(512), &room(), now), Goes, "the default");
    assert!(matches!(server.ask(&batch(1024), &room(), now), Loads(_)));
    let gpu = |num_gpu| with(Runner { num_gpu: Some(num_gpu), ..Runner::default() });
    assert_eq!(server.ask(&gpu(-1), &room(), now), Goes);
    assert!(matches!(server.ask(&gpu(20), &room(), now), Loads(_)));
    assert_eq!(server.ask(&ctx(8192), &with_amber(), now), Not(NoRoom::NotResident));
    // It waits for the model's own answers.
    let ticket = server.begins(&asked("llama3.2"), now);
    assert_eq!(server.ask(&ctx(8192), &room(), now), Not(NoRoom::Evicts));
    server.ends(ticket, &WHOLE, now);
    // Loaded by us with another context, which the next one wants as well, and then one that wants the default.
    let again = ctx(8192);
    let loaded = has(&[Resident { context: Some(8192), ..resident("llama3.2:latest", GIB) }]);
    server.load_begins(&again, GIB, Some(8 * GIB), now);
    server.heard(&has(&[]), now);
    server.heard(&loaded, now);
    assert_eq!(server.ask(&again, &room(), now), Not(NoRoom::Loading), "listed, and not there yet");
    server.load_ended(Went::Loaded(None), now);
    server.heard(&loaded, now);
    assert_eq!(server.ask(&again, &room(), now), Goes);
    assert!(matches!(server.ask(&asked("llama3.2"), &room(), now), Loads(_)));
    // More than it was trained for is as much as it was trained for.
    server.heard(&has(&[Resident { context: Some(131_072), ..resident("llama3.2", GIB) }]), now);
    assert_eq!(server.ask(&ctx(1_000_000), &room(), now), Goes);
}

fn with_amber() -> Room {
    with(Pressure::Amber)
}

#[test]
fn the_models_own_context_counts() {
    let now = crate::time::now();
    let mut server = ollama(&[resident("a", GIB)], &[], now);
    let shape = Shape {
        weights: GIB,
        context: 131_072,
        num_ctx: Some(16_384),
        kept: 65_536,
        embedding: 4096,
        vocabulary: 128_256,
        ..Shape::default()
    };
    server.shape("a", Some(&shape), now);
    // It is there with 4096.
    let Loads(need) = server.ask(&asked("a"), &room(), now) else { panic!() };
    assert!(need > GIB + 2 * GIB, "2 GiB of cache: {need}");
    // With two slots it needs twice as much, quantised about half.
    server.set(Settings { slots: Some(2), ..Settings::default() });
    let Loads(twice) = server.ask(&asked("a"), &room(), now) else { panic!() };
    server.set(Settings { slots: Some(2), cache: Cache::named("q8_0"), ..Settings::default() });
    let Loads(half) = server.ask(&asked("a"), &room(), now) else { panic!() };
    assert!(twice >= need + 2 * GIB && half < twice - GIB, "{need} {twice} {half}");
}

#[test]
fn one_load_at_a_time() {
    let now = crate::time::now();
    let mut server = ollama(&[resident("c", GIB)], &["a", "b"], now);
    let Loads(need) = server.ask(&asked("a"), &room(), now) else { panic!() };
    server.load_begins(&asked("a"), need, Some(10 * GIB), now);
    assert_eq!(server.ask(&asked("a"), &room(), now), Not(NoRoom::Loading));
    assert_eq!(server.ask(&asked("b"), &room(), now), Not(NoRoom::Loading));
    assert_eq!(server.ask(&asked("c"), &room(), now), Goes, "what is there is there");
    // Without a cloud whoever wants it waits for it.
    assert_eq!(server.ask(&asked("a"), &alone(), now), Goes);
    assert_eq!(server.ask(&asked("b"), &alone(), now), Not(NoRoom::Loading));
    // What it still takes is not free for others.
    assert_eq!(server.promised(Some(10 * GIB), now), need);
    assert_eq!(server.promised(Some(8 * GIB), now), need - 2 * GIB);
    assert_eq!(server.promised(Some(GIB), now), 0);
    assert_eq!(server.promised(None, now), need);
    server.load_ended(Went::Loaded(Some(need)), now);
    assert_eq!((server.promised(None, now), server.loading(now)), (0, None));
    assert_eq!(server.ask(&asked("a"), &room(), now), Goes, "before the server says so");
    // One that is never heard of again is over by itself.
    server.load_begins(&asked("b"), need, None, now);
    let much = later(now, 400);
    server.heard(&has(&[]), much);
    assert!(matches!(server.ask(&asked("a"), &room(), much), Loads(_)));
    assert_eq!(server.promised(None, much), 0);
}

#[test]
fn a_load_teaches_what_the_next_one_takes() {
    let now = crate::time::now();
    let mut server = ollama(&[], &["a"], now);
    // It is listed before it goes again.
    let gone = |server: &mut Server| {
        server.heard(&has(&[resident("a", 4 * GIB)]), now);
        server.heard(&has(&[]), now);
    };
    let Loads(need) = server.ask(&asked("a"), &room(), now) else { panic!() };
    server.load_begins(&asked("a"), need, None, now);
    server.load_ended(Went::Loaded(Some(need / 10 * 12)), now);
    gone(&mut server);
    let Loads(more) = server.ask(&asked("a"), &room(), now) else { panic!() };
    assert!(more.abs_diff(need / 10 * 12) < need / 100, "{need} {more}");
    server.load_begins(&asked("a"), more, None, now);
    server.load_ended(Went::OutOfMemory, now);
    gone(&mut server);
    let Loads(most) = server.ask(&asked("a"), &room(), now) else { panic!() };
    assert!(most > more / 10 * 12, "{more} {most}");
    // Where another one may have gone meanwhile, less is no sign.
    server.heard(&has(&[resident("b", GIB)]), now);
    server.load_begins(&asked("a"), most, Some(8 * GIB), now);
    server.load_ended(Went::Loaded(Some(GIB)), now);
    gone(&mut server);
    assert_eq!(server.ask(&asked("a"), &room(), now), Loads(most));
    // Never less than the weights.
    for _ in 0..100 {
        server.load_begins(&asked("a"), most, None, now);
        server.load_ended(Went::Loaded(Some(1)), now);
        gone(&mut server);
    }
    assert_eq!(server.ask(&asked("a"), &room(), now), Loads(4 * GIB));
}

#[test]
fn a_load_that_was_a_guess_teaches_nothing_about_predictions() {
    let now = crate::time::now();
    let mut server = ollama(&[], &[], now);
    let Loads(guess) = server.ask(&asked("a"), &room(), now) else { panic!() };
    assert_eq!(guess, limits::NEED_RESERVE);
    server.load_begins(&asked("a"), guess, Some(16 * GIB), now);
    server.load_ended(Went::Loaded(Some(5 * GIB)), now);
    server.heard(&has(&[resident("a", 5 * GIB)]), now);
    server.heard(&has(&[]), now);
    let Loads(need) = server.ask(&asked("a"), &room(), now) else { panic!() };
    assert_eq!(need, 5 * GIB + limits::NEED_RESERVE, "what it took, and the reserve");
}

#[test]
fn who_asks_for_the_context_that_is_there_makes_nobody_reload() {
    let now = crate::time::now();
    // By default, which this server's operator has set to 8192: it does not say so.
    let loaded = Resident { context: Some(8192), ..resident("a", GIB) };
    let mut server = ollama(std::slice::from_ref(&loaded), &["a"], now);
    let same = Asked { options: Runner { num_ctx: Some(8192), ..Runner::default() }, ..asked("a") };
    for asked in [&asked("a"), &same, &asked("a"), &same, &asked("a")] {
        assert_eq!(server.ask(asked, &room(), now), Goes);
        let ticket = server.begins(asked, now);
        server.ends(ticket, &WHOLE, now);
        server.heard(&has(std::slice::from_ref(&loaded)), now);
    }
    // Loaded by one who asked for it, it may be loaded again, once.
    server.load_begins(&same, GIB, None, now);
    server.load_ended(Went::Loaded(None), now);
    server.heard(&has(std::slice::from_ref(&loaded)), now);
    assert!(matches!(server.ask(&asked("a"), &room(), now), Loads(_)));
    server.load_begins(&asked("a"), GIB, None, now);
    server.load_ended(Went::Loaded(None), now);
    for asked in [&asked("a"), &same, &asked("a")] {
        server.heard(&has(std::slice::from_ref(&loaded)), now);
        assert_eq!(server.ask(asked, &room(), now), Goes);
        let ticket = server.begins(asked, now);
        server.ends(ticket, &WHOLE, now);
    }
}

#[test]
fn one_that_is_loaded_and_never_listed_is_not_loaded_for_ever() {
    let now = crate::time::now();
    // Another name for what is there; a model that runs elsewhere; a server that lets each go at once.
    let other = has(&[resident("m:latest", GIB)]);
    let mut server = ollama(&[resident("m:latest", GIB)], &["m:3b"], now);
    let Loads(need) = server.ask(&asked("m:3b"), &room(), now) else { panic!() };
    server.load_begins(&asked("m:3b"), need, None, now);
    server.heard(&other, now);
    server.load_ended(Went::Loaded(None), now);
    server.heard(&other, now);
    assert_eq!(server.ask(&asked("m:3b"), &room(), now), Goes);
    // It is still not let in where it would not fit, or nothing new is.
    assert!(matches!(server.ask(&asked("m:3b"), &free(GIB), now), Not(NoRoom::TooLarge { .. })));
    assert_eq!(server.ask(&asked("m:3b"), &with(Pressure::Amber), now), Not(NoRoom::NotResident));
    // Once it was listed, it is like any other.
    server.heard(&has(&[resident("m:3b", GIB)]), now);
    server.heard(&other, now);
    assert!(matches!(server.ask(&asked("m:3b"), &room(), now), Loads(_)));
    // One that was let go after its time was not unlisted.
    server.load_begins(&asked("m:3b"), need, None, now);
    server.load_ended(Went::Loaded(None), now);
    let much = later(now, 300);
    server.heard(&other, much);
    assert!(matches!(server.ask(&asked("m:3b"), &room(), much), Loads(_)));
}

#[test]
fn what_the_server_does_not_have_is_known_for_a_while() {
    let now = crate::time::now();
    let mut server = ollama(&[], &["a"], now);
    assert!(!server.lacks("a", now) && !server.lacks("b", now) && !server.knows("b", now));
    server.has_not("b", now);
    assert!(server.lacks("B:Latest", now) && server.knows("b", now), "alike for all ways to write it");
    assert!(
        !server.lacks("b", later(now, 61)) && !server.knows("b", later(now, 61)),
        "it may be there by then"
    );
    server.has_not("b", now);
    server.heard(&has(&[resident("b", GIB)]), now);
    assert!(!server.lacks("b", now));
}

#[test]
fn what_is_not_known_fails_open() {
    let now = crate::time::now();
    for kind in [Kind::Ollama, Kind::Vllm, Kind::Llamacpp, Kind::Openai] {
        let server = Server::new(kind);
        assert_eq!(server.ask(&asked("a"), &room(), now), Goes, "{kind:?}");
        assert_eq!(server.ask(&asked("a"), &with(Pressure::Red), now), Not(NoRoom::Red));
    }
    // Of one that cannot be asked, all is resident.
    assert_eq!(Server::new(Kind::Openai).ask(&asked("a"), &with(Pressure::Amber), now), Goes);
    assert_eq!(
        Server::new(Kind::Ollama).ask(&asked("a"), &with(Pressure::Amber), now),
        Not(NoRoom::NotResident)
    );
    // What was there stays there while asking fails; what was not is a load, and none under Amber.
    let mut server = ollama(&[resident("a", GIB)], &["b"], now);
    server.silent();
    assert_eq!(server.resident("a", now), None);
    for at in [now, later(now, 60)] {
        assert_eq!(server.ask(&asked("a"), &room(), at), Goes);
        assert_eq!(server.ask(&asked("a"), &with(Pressure::Amber), at), Goes);
        assert!(matches!(server.ask(&asked("b"), &room(), at), Loads(_)));
        assert!(matches!(server.ask(&asked("b"), &free(2 * GIB), at), Not(NoRoom::TooLarge { .. })));
        assert_eq!(server.ask(&asked("b"), &with(Pressure::Amber), at), Not(NoRoom::NotResident));
        assert_eq!(server.ask(&asked("unheard"), &free(GIB), at), Goes);
    }
    // After Ollama's own time it may be gone.
    let much = later(now, 301);
    assert_eq!(server.ask(&asked("a"), &room(), much), Goes);
    assert_eq!(server.ask(&asked("a"), &with(Pressure::Amber), much), Not(NoRoom::NotResident));
    server.heard(&has(&[]), much);
    assert!(!server.knows("a", much));
    assert!(matches!(server.ask(&asked("a"), &room(), much), Loads(_)), "a guess, and room for it");
    server.shape("a", None, much);
    assert!(server.knows("a", much) && !server.knows("a", later(much, 61)));
}

#[test]
fn a_new_process_has_nothing() {
    let now = crate::time::now();
    let mut server = ollama(&[resident("a", GIB)], &["a"], now);
    server.load_begins(&asked("b"), GIB, None, now);
    server.restarted(now);
    assert_eq!((server.resident("a", now), server.loading(now)), (Some(false), None));
    assert!(matches!(server.ask(&asked("a"), &room(), now), Loads(_)));
}

#[test]
fn a_slot_is_free_when_the_first_of_those_that_hold_one_has_ended() {
    let now = crate::time::now();
    let secs = Duration::from_secs;
    let mut server = ollama(&[resident("a", GIB), resident("b", GIB)], &[], now);
    server.set(Settings { slots: Some(2), ..Settings::default() });
    let ready = |server: &Server, ahead, at| {
        let admission = server.ask(&asked("a"), &room(), at);
        server.ready_in(&asked("a"), admission, (None, ahead), at)
    };
    assert_eq!(ready(&server, 9, now), None, "a guess sends nobody away");
    let learned = server.begins(&asked("a"), now);
    server.ends(learned, &WHOLE, now + limits::ADMIT_SERVICE);
    let first = server.begins(&asked("a"), now);
    assert_eq!(server.ask(&asked("a"), &room(), now), Goes);
    assert_eq!(
        (ready(&server, 0, now), ready(&server, 1, now)),
        (Some(secs(0)), Some(limits::ADMIT_SERVICE))
    );
    let second = server.begins(&asked("a"), later(now, 2));
    let at = later(now, 2);
    assert_eq!(server.ask(&asked("a"), &room(), at), Not(NoRoom::Busy(secs(3))));
    assert_eq!(server.ask(&asked("a"), &alone(), at), Goes, "nobody else: it waits at the server");
    assert_eq!(server.ask(&asked("b"), &room(), at), Goes, "slots of its own");
    // The first slot is free in 3 s, the second in 5 s, the first again in 8 s.
    let all: Vec<_> = (0..4).map(|ahead| ready(&server, ahead, at).unwrap().as_secs()).collect();
    assert_eq!(all, [3, 5, 8, 10]);
    // No more at once than are sent there.
    let busy = server.ask(&asked("a"), &room(), at);
    assert_eq!(server.ready_in(&asked("a"), busy, (Some(1), 1), at), Some(secs(13)));
    assert_eq!(ready(&server, 0, later(now, 99)), Some(secs(0)), "longer than usual: it may end at once");
    // One that took longer counts for little, one that was shorter for much.
    server.ends(first, &WHOLE, later(now, 12));
    assert_eq!(ready(&server, 1, later(now, 2)), Some(Duration::from_millis(5437)), "one is free");
    let third = server.begins(&asked("a"), later(now, 2));
    assert_eq!(ready(&server, 0, later(now, 2)), Some(Duration::from_millis(5437)));
    server.ends(second, &Outcome::default(), now);
    server.ends(third, &Outcome::default(), now);
    assert_eq!((server.in_flight(), server.running.len()), (0, 0));
    // More than are remembered.
    let many: Vec<_> = (0..40).map(|_| server.begins(&asked("a"), now)).collect();
    assert!(ready(&server, u32::MAX, now) > Some(secs(150)));
    many.into_iter().for_each(|ticket| server.ends(ticket, &Outcome::default(), now));
    assert!(server.running.is_empty());
}

#[test]
fn a_load_takes_as_long_as_it_took_and_what_was_given_up_is_forgotten() {
    let now = crate::time::now();
    let mut server = ollama(&[], &["a", "b"], now);
    let ready = |server: &Server, model, at| {
        let server_says = server.ask(&asked(model), &room(), at);
        (server_says, server.ready_in(&asked(model), server_says, (None, 0), at).map(|ready| ready.as_secs()))
    };
    let (said, takes) = ready(&server, "a", now);
    assert!(matches!(said, Loads(_)) && takes.is_none(), "{said:?} {takes:?}");
    server.load_begins(&asked("a"), GIB, None, now);
    assert_eq!(ready(&server, "a", now), (Not(NoRoom::Loading), None));
    server.load_ended(Went::Loaded(None), later(now, 8));
    server.heard(&has(&[resident("a", GIB)]), later(now, 8));
    server.heard(&has(&[]), later(now, 9));
    assert_eq!(ready(&server, "a", later(now, 9)).1, Some(8));
    // Another model's load has to end first.
    server.load_begins(&asked("a"), GIB, None, later(now, 10));
    assert_eq!(ready(&server, "a", later(now, 13)), (Not(NoRoom::Loading), Some(5)));
    assert_eq!(ready(&server, "b", later(now, 13)), (Not(NoRoom::Loading), Some(5)));
    // It is given up: it takes that long at least, for an hour.
    server.load_ended(Went::Failed, later(now, 40));
    server.heard(&has(&[]), later(now, 41));
    assert_eq!(ready(&server, "a", later(now, 41)).1, Some(30));
    let much = later(now, 4000);
    server.heard(&has(&[]), much);
    assert_eq!(ready(&server, "a", much).1, None);
}

#[test]
fn slots_that_nobody_tells_are_found_out() {
    let now = crate::time::now();
    let mut server = ollama(&[resident("a", GIB)], &[], now);
    let mut first = server.begins(&asked("a"), now);
    server.answers(&mut first, now);
    assert_eq!(server.ask(&asked("a"), &room(), now), Goes, "one is tried");
    let mut second = server.begins(&asked("a"), now);
    assert!(matches!(server.ask(&asked("a"), &room(), now), Not(NoRoom::Busy(_))));
    server.answers(&mut second, now);
    server.ends(second, &Outcome::default(), now);
    assert_eq!(server.ask(&asked("a"), &room(), now), Goes, "two were answered at once");
    let second = server.begins(&asked("a"), now);
    assert!(matches!(server.ask(&asked("a"), &room(), now), Not(NoRoom::Busy(_))));
    assert_eq!(server.ask(&asked("a"), &room(), later(now, 61)), Goes, "once a minute");
    server.ends(first, &WHOLE, now);
    server.ends(second, &WHOLE, now);
}

#[test]
fn others_at_the_server_count() {
    let now = crate::time::now();
    let mut server = Server::new(Kind::Llamacpp);
    let facts = Facts { slots: Some(2), busy: Some(2), waiting: Some(0), ..Facts::default() };
    server.heard(&facts, now);
    assert!(matches!(server.ask(&asked("x"), &room(), now), Not(NoRoom::Busy(_))));
    assert_eq!(server.ask(&asked("x"), &room(), later(now, 11)), Goes, "that was long ago");
    // One of the two is ours.
    let ticket = server.begins(&asked("x"), now);
    server.heard(&facts, now);
    server.ends(ticket, &WHOLE, now);
    assert_eq!(server.ask(&asked("x"), &room(), now), Goes);
}

#[test]
fn tokens_are_reserved_up_to_nine_tenths_of_the_cache() {
    let now = crate::time::now();
    let mut server = Server::new(Kind::Vllm);
    server.heard(&Facts { cache_tokens: Some(10_000), cache_used: Some(0), ..Facts::default() }, now);
    let long = Asked { prompt: 4000, output_max: Some(400), ..asked("m") };
    assert_eq!(
        server.ask(&Asked { prompt: 50_000, ..long }, &room(), now),
        Goes,
        "alone: the server judges it"
    );
    let first = server.begins(&long, now);
    assert_eq!(server.ask(&long, &room(), now), Goes);
    let second = server.begins(&long, now);
    assert_eq!(server.ask(&long, &room(), now), Not(NoRoom::Tokens));
    assert_eq!(server.ask(&long, &alone(), now), Goes, "vLLM lets it wait");
    assert_eq!(server.ask(&asked("m"), &room(), now), Goes, "8800 of 9000, and 200");
    server.ends(first, &WHOLE, now);
    server.ends(second, &WHOLE, now);
    // Others' tokens.
    server.heard(&Facts { cache_used: Some(899), ..Facts::default() }, now);
    assert_eq!(server.ask(&asked("m"), &room(), now), Not(NoRoom::Tokens));
    assert_eq!(server.ask(&asked("m"), &room(), later(now, 11)), Goes);
    // Answers that were learned to be short reserve little.
    for _ in 0..20 {
        let ticket = server.begins(&asked("m"), now);
        server.ends(ticket, &WHOLE, now);
    }
    let open = Asked { output_max: None, ..long };
    let tickets: Vec<_> = (0..2).map(|_| server.begins(&open, now)).collect();
    server.heard(&Facts { cache_used: Some(0), ..Facts::default() }, now);
    assert_eq!(server.ask(&Asked { prompt: 900, ..open }, &room(), now), Goes);
    tickets.into_iter().for_each(|ticket| server.ends(ticket, &WHOLE, now));
}

#[test]
fn vllm_is_busy_when_requests_wait_for_its_cache() {
    let now = crate::time::now();
    let mut server = Server::new(Kind::Vllm);
    let facts = |waiting, cache_used, preemptions| Facts {
        busy: Some(4),
        waiting: Some(waiting),
        cache_used: Some(cache_used),
        preemptions: Some(preemptions),
        ..Facts::default()
    };
    server.heard(&facts(8, 500, 7), now);
    assert_eq!(server.ask(&asked("m"), &room(), now), Goes, "they wait for their turn only");
    server.heard(&facts(0, 950, 7), now);
    assert_eq!(server.ask(&asked("m"), &room(), now), Goes, "full, and none waits");
    server.heard(&facts(8, 950, 7), now);
    assert!(matches!(server.ask(&asked("m"), &room(), now), Not(NoRoom::Busy(_))));
    assert_eq!(server.ask(&asked("m"), &alone(), now), Goes);
    server.heard(&facts(0, 500, 8), now);
    assert!(matches!(server.ask(&asked("m"), &room(), now), Not(NoRoom::Busy(_))), "one was taken back");
    server.heard(&facts(0, 500, 8), later(now, 11));
    assert_eq!(server.ask(&asked("m"), &room(), later(now, 11)), Goes);
}

#[test]
fn what_a_prompt_takes_beyond_the_model_is_kept_free() {
    let now = crate::time::now();
    let mut server = ollama(&[resident("a", GIB)], &["a"], now);
    let image = Asked { image: true, ..asked("a") };
    let tight = free(GIB + 100 * MIB);
    let want = NoRoom::TooLarge { need: limits::ADMIT_IMAGE_SPIKE, free: 100 * MIB };
    assert_eq!(server.ask(&image, &tight, now), Not(want));
    assert_eq!(server.ask(&asked("a"), &tight, now), Goes);
    // Images that took little are let in.
    let ticket = server.begins(&image, now);
    server.ends(ticket, &Outcome { grew: Some(50 * MIB), prompt: Some(500), ..WHOLE }, now);
    assert_eq!(server.ask(&image, &tight, now), Goes);
    // A prompt longer than any before takes what one took before.
    let ticket = server.begins(&asked("a"), now);
    server.ends(ticket, &Outcome { grew: Some(200 * MIB), ..WHOLE }, now);
    assert_eq!(server.ask(&Asked { prompt: 500, ..asked("a") }, &tight, now), Goes);
    let longer = Asked { prompt: 501, ..asked("a") };
    assert!(matches!(server.ask(&longer, &tight, now), Not(NoRoom::TooLarge { .. })));
    assert_eq!(server.ask(&longer, &room(), now), Goes);
}

#[test]
fn a_router_loads_and_throws_nothing_out_for_memory() {
    let now = crate::time::now();
    let mut server = Server::new(Kind::Llamacpp);
    server.heard(&Facts { router: true, ..has(&[resident("a", 8 * GIB)]) }, now);
    server.shape("b", Some(&Shape { weights: 4 * GIB, ..Shape::default() }), now);
    assert_eq!(server.ask(&asked("a"), &room(), now), Goes);
    assert!(matches!(server.ask(&asked("b"), &room(), now), Loads(_)));
    assert!(matches!(server.ask(&asked("b"), &free(3 * GIB), now), Not(NoRoom::TooLarge { .. })));
}

#[test]
fn sets_of_models_are_told_apart() {
    let now = crate::time::now();
    let key = |list: &[Resident]| ollama(list, &[], now).resident_key(now);
    let (a, b) = (resident("a", GIB), resident("b", GIB));
    assert_eq!(key(&[a.clone(), b.clone()]), key(&[b.clone(), a.clone()]));
    let other = Resident { context: Some(8192), ..a.clone() };
    assert_ne!(key(std::slice::from_ref(&a)), key(&[other]));
    assert_ne!(key(std::slice::from_ref(&a)), key(&[a.clone(), b]));
    assert_eq!(Server::new(Kind::Ollama).resident_key(now), None);
}
