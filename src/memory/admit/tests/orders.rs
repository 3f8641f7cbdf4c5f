//! Orders of events that nobody thought of: what must hold after each of them.

use proptest::prelude::*;

use super::*;

const NAMES: [&str; 20] =
    ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q", "r", "s", "t"];

#[derive(Clone, Debug)]
enum Step {
    Heard(Facts),
    Silent,
    Restarted,
    Shape(usize, Option<u32>),
    /// Asks, and does what is said.
    Ask(usize, u64, Option<u64>, bool, Option<u32>, Room),
    Answers(usize),
    Ends(usize, Outcome),
    LoadEnded(Went),
    Later(u16),
}

fn some_room() -> impl Strategy<Value = Room> {
    let pressure = prop::sample::select(vec![Pressure::Green, Pressure::Amber, Pressure::Red]);
    let kib = || prop::option::of(prop_oneof![Just(u32::MAX), 0..40 * GIB]);
    (pressure, kib(), kib(), 0..4 * GIB, kib(), 0..8 * GIB, any::<bool>()).prop_map(
        |(pressure, free, total, floor, spill, promised, elsewhere)| Room {
            pressure,
            free,
            total,
            floor,
            spill,
            promised,
            elsewhere,
        },
    )
}

fn some_facts() -> impl Strategy<Value = Facts> {
    let some = || prop::option::of(prop_oneof![Just(u32::MAX), 0_u32..10]);
    let one = (0..NAMES.len(), any::<u32>(), prop::option::of(any::<u32>()))
        .prop_map(|(name, size, context)| Resident { context, ..resident(NAMES[name], size) });
    let list = prop::option::of(prop::collection::vec(one, 0..4));
    let wide = || prop::option::of(any::<u64>());
    (list, any::<bool>(), some(), some(), some(), wide(), prop::option::of(any::<u16>()), wide()).prop_map(
        |(resident, router, slots, busy, waiting, cache_tokens, cache_used, preemptions)| Facts {
            work: None,
            resident,
            router,
            slots,
            busy,
            waiting,
            cache_tokens,
            cache_used,
            preemptions,
        },
    )
}

fn some_outcome() -> impl Strategy<Value = Outcome> {
    let wide = || prop::option::of(any::<u64>());
    (wide(), wide(), prop::option::of(any::<u32>()), any::<bool>(), any::<bool>()).prop_map(
        |(prompt, output, grew, whole, out_of_memory)| Outcome { prompt, output, grew, whole, out_of_memory },
    )
}

fn step() -> impl Strategy<Value = Step> {
    let went = prop_oneof![
        prop::option::of(any::<u32>()).prop_map(Went::Loaded),
        Just(Went::OutOfMemory),
        Just(Went::Failed)
    ];
    let names = 0..NAMES.len();
    let wide = || prop_oneof![Just(u64::MAX), 0_u64..10_000];
    prop_oneof![
        3 => some_facts().prop_map(Step::Heard),
        1 => Just(Step::Silent),
        1 => Just(Step::Restarted),
        2 => (names.clone(), prop::option::of(any::<u32>())).prop_map(|(name, size)| Step::Shape(name, size)),
        8 => (names, wide(), prop::option::of(wide()), any::<bool>(), prop::option::of(any::<u32>()), some_room())
            .prop_map(|(name, prompt, most, image, ctx, room)| Step::Ask(name, prompt, most, image, ctx, room)),
        3 => (0_usize..8).prop_map(Step::Answers),
        5 => ((0_usize..8), some_outcome()).prop_map(|(at, outcome)| Step::Ends(at, outcome)),
        2 => went.prop_map(Step::LoadEnded),
        2 => any::<u16>().prop_map(Step::Later),
    ]
}

proptest! {
    #[test]
    fn nothing_leaks_and_no_rule_is_broken(
        kind in prop::sample::select(vec![Kind::Ollama, Kind::Vllm, Kind::Llamacpp, Kind::Openai]),
        steps in prop::collection::vec(step(), 0..120),
    ) {
        let mut now = crate::time::now();
        let mut server = Server::new(kind);
        let mut tickets: Vec<Ticket> = Vec::new();
        let mut models = 0;
        for step in steps {
            match step {
                Step::Heard(facts) => server.heard(&facts, now),
                Step::Silent => server.silent(),
                Step::Restarted => server.restarted(now),
                Step::Shape(name, size) => {
                    let shape = size.map(|weights| Shape { weights, kept: weights, context: 8192, ..Shape::default() });
                    server.shape(NAMES[name], shape.as_ref(), now);
                }
                Step::Ask(name, prompt, output_max, image, num_ctx, room) => {
                    let options = Runner { num_ctx, ..Runner::default() };
                    let asked = Asked { prompt, output_max, image, options, ..asked(NAMES[name]) };
                    let answer = server.ask(&asked, &room, now);
                    let goes = matches!(answer, Admission::Goes | Admission::Loads(_));
                    prop_assert!(!goes || room.pressure != Pressure::Red);
                    if let Admission::Loads(need) = answer {
                        prop_assert_eq!(room.pressure, Pressure::Green);
                        prop_assert_eq!(server.loading(now), None, "one at a time");
                        // All that could come back counts, and no more.
                        let back: u64 = if kind == Kind::Ollama || server.resident(NAMES[name], now) == Some(true) {
                            server.resident_sizes()
                        } else {
                            0
                        };
                        if let Some(free) = room.free {
                            let free = u64::from(free.saturating_sub(room.floor)) + back + u64::from(room.spill.unwrap_or(0));
                            prop_assert!(u64::from(need) <= free, "{} > {}", need, free);
                        }
                        server.load_begins(&asked, need, room.free, now);
                        prop_assert!(server.promised(room.free, now) <= need);
                    }
                    if goes && tickets.len() < 64 {
                        tickets.push(server.begins(&asked, now));
                    }
                }
                Step::Answers(at) => if let Some(ticket) = tickets.get_mut(at) {
                    server.answers(ticket, now);
                },
                Step::Ends(at, outcome) => if at < tickets.len() {
                    server.ends(tickets.swap_remove(at), &outcome, now);
                },
                Step::LoadEnded(went) => server.load_ended(went, now),
                Step::Later(ms) => now += Duration::from_millis(ms.into()),
            }
            prop_assert_eq!(server.in_flight() as usize, tickets.len());
            let reserved = tickets.iter().fold(0_u64, |sum, ticket| sum.saturating_add(ticket.tokens));
            // Sums that hit the ceiling may come back lower, never below what is there.
            prop_assert!(server.reserved <= reserved || reserved == u64::MAX);
            models = models.max(server.models());
        }
        prop_assert!(models <= limits::ADMIT_MODELS);
        for ticket in tickets {
            server.ends(ticket, &Outcome::default(), now);
        }
        prop_assert_eq!((server.in_flight(), server.reserved), (0, 0));
        prop_assert_eq!(server.busy_models(), 0);
    }

    /// Nothing heard, nothing known of memory: it goes, unless Red.
    #[test]
    fn what_was_never_heard_fails_open(
        kind in prop::sample::select(vec![Kind::Ollama, Kind::Vllm, Kind::Llamacpp, Kind::Openai]),
        prompt in any::<u64>(),
        room in some_room(),
    ) {
        let answer = Server::new(kind).ask(&Asked { prompt, ..asked("a") }, &room, crate::time::now());
        match room.pressure {
            Pressure::Green => prop_assert_eq!(answer, Admission::Goes),
            Pressure::Amber => prop_assert!(!matches!(answer, Admission::Loads(_))),
            Pressure::Red => prop_assert_eq!(answer, Admission::Not(NoRoom::Red)),
        }
    }
}
