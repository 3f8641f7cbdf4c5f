//! No allocation while frames are split and inspected.
#![expect(unsafe_code, reason = "a counting allocator is an unsafe trait's implementation")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use edgeward::dialect::{Dialect, inspect_answer, inspect_cut, inspect_event};
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
