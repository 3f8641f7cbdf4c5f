//! No allocation while frames are split and inspected, none in the gate and the watchdog once they were made, none for
//! what a token tells.
#![expect(unsafe_code, reason = "a counting allocator is an unsafe trait's implementation")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use edgeward::cause::{Cause, Failure};
use edgeward::config::{Board, CommitOn, Memory, OnEmptyStop};
use edgeward::dialect::{Dialect, inspect_answer, inspect_cut, inspect_event};
use edgeward::gate::pool::Pool;
use edgeward::gate::{Gate, Rules, Verdict};
use edgeward::health::Pressure;
use edgeward::memory::recorder::{self, Entry};
use edgeward::memory::{Event, Field, Sample, State, Terms, board, step};
use edgeward::observe::{self, Limit, events};
use edgeward::proxy::gaps::Gaps;
use edgeward::watch::sampler::Sampler;
use edgeward::wire::json::profile;
use edgeward::wire::{Splitter, sse};

/// The system's allocator, counting this thread's allocations.
struct Counting;

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

fn count() {
    // A thread that is ending has no counter any more; nobody reads it then.
    let _ = COUNT.try_with(|count| count.set(count.get() + 1));
}

// SAFETY: every call goes on to `System` unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as this function's own contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as this function's own contract.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: as this function's own contract.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How often `work` allocates.
fn allocations(work: impl FnOnce()) -> usize {
    let before = COUNT.get();
    work();
    COUNT.get() - before
}

const STREAMS: [(Dialect, &str); 6] = [
    (
        Dialect::OpenaiChat,
        "\u{feff}: OPENROUTER PROCESSING\n\n\
         data: {\"id\":\"c1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":{\"content\":[{\"token\":\"a\",\"top_logprobs\":[{\"bytes\":[1,2]}]}]},\"finish_reason\":null}],\"usage\":null}\r\n\r\n\
         data: {\"id\":\"c1\",\"model\":\"m\",\ndata: \"choices\":[{\"delta\":{\"content\":\"\\u00e9\\n\\\"x\\\"\"}}]}\n\n\
         data: {\"id\":\"c1\",\"model\":\"m\",\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":1}\"}}]}}]}\n\n\
         data: {\"id\":\"c1\",\"model\":\"m\",\"choices\":[],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2,\"completion_tokens_details\":{\"a\":{\"b\":[0]}}}}\n\n\
         data: [DONE]\n\n",
    ),
    (
        Dialect::OpenaiResponses,
        "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"r\",\"model\":\"m\",\"tools\":[{\"a\":{\"b\":[{}]}}]}}\n\n\
         event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"A\\n\"}\n\n\
         event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"usage\":{\"input_tokens\":1,\"output_tokens\":2}}}\n\n",
    ),
    (
        Dialect::Anthropic,
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"content\":[],\"model\":\"m\",\"usage\":{\"input_tokens\":9}}}\n\n\
         event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":\"o\\\"k\"}}\n\n\
         event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
    ),
    (
        Dialect::OllamaChat,
        "{\"model\":\"m\",\"message\":{\"role\":\"assistant\",\"content\":\"\\n\",\"tool_calls\":[{\"function\":{\"arguments\":{\"a\":[1]}}}]},\"done\":false}\n\n\
         {\"model\":\"m\",\"message\":{\"content\":\"\"},\"done\":true,\"done_reason\":\"stop\",\"eval_count\":2}\n",
    ),
    (
        Dialect::OllamaGenerate,
        "{\"model\":\"m\",\"response\":\"Hi\",\"done\":false}\n{\"model\":\"m\",\"response\":\"\",\"done\":true,\"context\":[1,[2]]}\n",
    ),
    (
        Dialect::Gemini,
        "data: {\"candidates\":[{\"content\":{\"role\":\"model\",\"parts\":[{\"text\":\"a\\tb\",\"thought\":true}]},\"safetyRatings\":[{\"a\":{\"b\":[]}}]}],\"usageMetadata\":{\"promptTokenCount\":9}}\r\n\r\n",
    ),
];

#[test]
fn ordinary_frames_cost_no_allocation() {
    let mut join = [0; 4096];
    for (dialect, stream) in STREAMS {
        let mut tokens = 0;
        let count = allocations(|| {
            let mut splitter = Splitter::new(dialect.framing());
            let mut rest = stream.as_bytes();
            while let Some(len) = splitter.push(rest) {
                let (raw, after) = rest.split_at(len);
                let facts = inspect_event(dialect, raw, &mut join);
                assert!(!facts.alien && facts.error.is_none());
                tokens += usize::from(facts.content || facts.thinking);
                let cut = inspect_cut(dialect, dialect.framing(), &raw[..len.saturating_sub(3)]);
                assert!(!cut.alien || raw.ends_with(b"[DONE]\n\n"), "{dialect:?}");
                assert!(sse::without_comments(raw).all(|kept| kept.end <= len));
                rest = after;
            }
            assert!(rest.is_empty() && splitter.is_between());
        });
        assert!(tokens > 0, "{dialect:?}");
        assert_eq!(count, 0, "{dialect:?}");
    }
}

#[test]
fn a_whole_answer_and_a_profile_cost_none_either() {
    let answer = br#"{"id":"c","model":"m","choices":[{"message":{"content":"a\nb","x":[[{}]]},"finish_reason":"stop"}]}"#;
    let count = allocations(|| {
        assert!(inspect_answer(Dialect::OpenaiChat, answer).content);
        assert_eq!(profile(answer).map(|profile| profile.depth), Ok(7));
    });
    assert_eq!(count, 0);
}

#[test]
fn the_count_counts() {
    assert_eq!(allocations(|| drop(std::hint::black_box(Box::new(1)))), 1);
}

/// Before the first token: role frames, empty deltas, comments, progress, in every dialect.
const BEFORE: [(Dialect, &str); 6] = [
    (
        Dialect::OpenaiChat,
        ": ping\r\n\r\ndata: {\"id\":\"c\",\"model\":\"m\",\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n\
         data: {\"id\":\"c\",\"model\":\"m\",\ndata: \"choices\":[{\"delta\":{\"content\":null}}],\"prompt_progress\":{\"total\":9,\"processed\":4}}\n\n\
         data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"loading\"}}]}\n\n",
    ),
    (
        Dialect::OpenaiResponses,
        "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"status\":\"in_progress\"}}\n\n",
    ),
    (Dialect::Anthropic, "event: ping\ndata: {\"type\":\"ping\"}\n\n"),
    (Dialect::OllamaChat, "{\"model\":\"m\",\"message\":{\"content\":\"\"},\"done\":false}\n\n"),
    (Dialect::OllamaGenerate, "{\"model\":\"m\",\"response\":\"\",\"done\":false}\n"),
    (Dialect::Gemini, "data: {\"usageMetadata\":{\"promptTokenCount\":9}}\r\n\r\n"),
];

const fn rules(dialect: Dialect) -> Rules {
    Rules {
        dialect,
        commit_on: CommitOn::Any,
        on_empty_stop: OnEmptyStop::FailoverOnce,
        drop_anonymous_reasoning: true,
        tiny: false,
        drop_progress: true,
    }
}

/// The verdict on a stream that comes in chunks of `size`, and how often the gate allocated for it.
fn gated(pool: &Pool, rules: Rules, stream: &[u8], size: usize) -> Option<(Verdict, usize)> {
    let mut gate = Gate::new(rules, pool.take()?);
    let mut verdict = None;
    let count = allocations(|| {
        verdict = stream.chunks(size).find_map(|chunk| gate.push(chunk).verdict);
        assert!(gate.held().len() <= stream.len());
    });
    verdict.map(|verdict| (verdict, count))
}

#[test]
fn the_gate_costs_none_whatever_way_a_stream_is_cut() {
    let pool = Pool::new(1, 4096);
    for ((dialect, before), (same, stream)) in
        BEFORE.into_iter().zip([0, 1, 2, 3, 4, 5].map(|at| STREAMS[at]))
    {
        assert_eq!(dialect, same);
        let whole = [before.repeat(3), stream.to_owned()].concat();
        for size in (1..40).chain([64, 100, 1000, usize::MAX]) {
            let outcome = gated(&pool, rules(dialect), whole.as_bytes(), size);
            assert_eq!(outcome, Some((Verdict::Commit, 0)), "{dialect:?} in pieces of {size}");
        }
    }
}

#[test]
fn nor_do_a_full_buffer_an_empty_end_and_the_way_home() {
    let pool = Pool::new(1, 4096);
    let long = "data: {\"id\":\"c\",\"model\":\"m\",\"choices\":[{\"delta\":{\"content\":\"".to_owned()
        + &"a".repeat(9000);
    let comments = ": ping\n".repeat(3000) + STREAMS[0].1.trim_start_matches('\u{feff}');
    let role = BEFORE[0].1.repeat(100);
    for (stream, want) in [
        (long.as_str(), Verdict::Commit),
        (&comments, Verdict::Commit),
        (&role, Verdict::Overflow),
        ("data: [DONE]\n\n", Verdict::Empty(edgeward::gate::Emptiness::NoToken)),
    ] {
        for size in [1, 7, 4096, usize::MAX] {
            assert_eq!(
                gated(&pool, rules(Dialect::OpenaiChat), stream.as_bytes(), size),
                Some((want.clone(), 0))
            );
        }
    }
    let failure = Failure::new(Cause::Reset);
    let count = allocations(|| {
        let buffer = pool.take().expect("a buffer");
        let mut gate = Gate::new(rules(Dialect::OpenaiChat), buffer);
        assert!(gate.push(BEFORE[0].1.as_bytes()).verdict.is_none());
        let again = gate.into_buffer();
        let mut gate = Gate::new(rules(Dialect::OpenaiChat), again);
        assert!(matches!(gate.expire(Cause::TimeoutFirstToken), Verdict::Failed(_)));
        assert_eq!(gate.broken(failure), Verdict::Failed(Failure::new(Cause::Reset)));
        assert!(matches!(gate.end(), Verdict::Empty(_)));
        drop(gate);
        assert_eq!(pool.in_use(), 0);
    });
    assert_eq!(count, 0);
}

#[test]
fn what_is_learned_of_each_token_costs_none() {
    let (mut gaps, start) = (Gaps::default(), edgeward::time::now());
    let count = allocations(|| {
        for token in 0..5000_u32 {
            gaps.token(token % 100 == 0, start + std::time::Duration::from_millis(20) * token);
        }
    });
    assert_eq!(count, 0);
    assert_eq!(gaps.seen().map(edgeward::health::Sketch::len), Some(4950));
}

#[test]
fn trouble_is_told_without_memory() {
    observe::init(observe::Log { format: observe::Format::Text, ..observe::Log::default() });
    let exhausted = std::io::Error::from_raw_os_error(24);
    let failure = Failure::with(Cause::Reset, "told by the target");
    // The first of its kind, too: nobody has rehearsed it.
    assert_eq!(allocations(|| events::accept_failed(&exhausted)), 0);
    assert_eq!(allocations(|| events::limit_hit(Limit::Connections, None)), 0);
    assert_eq!(allocations(|| events::memory_not_locked("it is a test", false)), 0);
    // Too many of one kind are counted, and that costs none either.
    let flood = || (0..100).for_each(|_| events::memory_not_locked("it is a test", false));
    assert_eq!(allocations(flood), 0);
    let took = std::time::Duration::from_millis(1);
    assert_eq!(allocations(|| events::attempt_failed("r-1", "box", &failure, took, false)), 0);
}

#[test]
fn the_watchdog_judges_and_records_without_memory() {
    let start = edgeward::time::now();
    let terms = Terms::new(&Memory::default(), board::of(Board::Generic));
    let mut state = State::new(terms, start);
    let (mut sample, mut line) = (Sample::default(), [0; edgeward::limits::MEMORY_LINE_BYTES]);
    let meminfo = std::fs::read("/proc/meminfo").unwrap();
    let mut worst = Pressure::Green;
    let count = allocations(|| {
        for second in 0..600 {
            let at = start + std::time::Duration::from_secs(second);
            sample.meminfo(&meminfo);
            sample.pressure(b"some avg10=1.00 avg60=0.00 avg300=0.00 total=0\n");
            sample.set(Field::Total, 8 << 20);
            sample.set(Field::Available, (4_u64 << 20).saturating_sub(second * 10 * 1024));
            state.note(Event::Resident(second / 100), at);
            let decision = step(&mut state, &sample, at);
            worst = worst.max(decision.pressure);
            let length = recorder::write(&Entry::Sample(second, sample, decision), &mut line).unwrap();
            assert!(recorder::read(&line[..length - 1]).is_some());
        }
    });
    assert_eq!((count, worst), (0, Pressure::Red));
    // Open files are read again into one buffer.
    let mut sampler = Sampler::new(&Memory::default());
    assert!(sampler.read(start).get(Field::Available).is_some());
    assert_eq!(allocations(|| assert!(sampler.read(start).get(Field::Free).is_some())), 0);
}
