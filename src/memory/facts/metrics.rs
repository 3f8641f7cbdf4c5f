//! `/metrics` of vLLM and llama.cpp, in Prometheus' text format: what runs, what waits, how full the cache is.

use super::Facts;
use crate::limits::FACTS_BYTES;

/// `GET /metrics`. Whether there was anything in it that is known. Of several engines (vLLM's data parallel ranks)
/// the sum, and the fullest cache.
pub fn metrics(body: &[u8], facts: &mut Facts) -> bool {
    let body = body.get(..body.len().min(FACTS_BYTES)).unwrap_or_default();
    let mut seen = Seen::default();
    for line in body.split(|byte| *byte == b'\n').filter_map(|line| std::str::from_utf8(line).ok()) {
        sample(line, &mut seen);
    }
    let count = |seen: Option<u64>| seen.map(|count| u32::try_from(count).unwrap_or(u32::MAX));
    facts.busy = count(seen.busy).or(facts.busy);
    facts.waiting = count(seen.waiting).or(facts.waiting);
    facts.cache_used = seen.cache_used.or(facts.cache_used);
    facts.cache_tokens = seen.cache_tokens.or(facts.cache_tokens);
    facts.preemptions = seen.preemptions.or(facts.preemptions);
    facts.work = seen.work.or(facts.work);
    seen != Seen::default()
}

/// Sums of one answer.
#[derive(Default, PartialEq)]
struct Seen {
    busy: Option<u64>,
    waiting: Option<u64>,
    cache_used: Option<u16>,
    cache_tokens: Option<u64>,
    preemptions: Option<u64>,
    work: Option<u64>,
}

/// `name{labels} value`, where there are labels.
fn sample(line: &str, seen: &mut Seen) {
    let end = line.find(['{', ' ']).unwrap_or(0);
    let Some((name, rest)) = line.split_at_checked(end) else { return };
    let name = match name.split_once(':') {
        Some(("vllm" | "llamacpp", name)) => name,
        _ => return,
    };
    let (labels, value) = match rest.strip_prefix('{') {
        // A label may hold a brace; the value never does.
        Some(rest) => rest.rsplit_once('}').unwrap_or_default(),
        None => ("", rest),
    };
    if name == "cache_config_info" {
        if let Some(tokens) = tokens(labels) {
            seen.cache_tokens = add(seen.cache_tokens, tokens);
        }
        return;
    }
    // A time may stand behind the value.
    let value = value.split_ascii_whitespace().next().and_then(|value| value.parse::<f64>().ok());
    let Some(value) = value.filter(|value| value.is_finite() && *value >= 0.0) else { return };
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "saturates; it is finite and not negative"
    )]
    let whole = |value: f64| value as u64;
    let count = whole(value);
    match name {
        "num_requests_running" | "requests_processing" => seen.busy = add(seen.busy, count),
        "num_requests_waiting" | "requests_deferred" => seen.waiting = add(seen.waiting, count),
        "num_preemptions_total" => seen.preemptions = add(seen.preemptions, count),
        // vLLM's own and llama.cpp's; some rise with each step, some at a request's end.
        "prompt_tokens_total"
        | "generation_tokens_total"
        | "iteration_tokens_total_sum"
        | "tokens_predicted_total"
        | "n_decode_total" => seen.work = add(seen.work, count),
        "kv_cache_usage_perc" | "gpu_cache_usage_perc" => {
            // "perc" is a part of one.
            let used = u16::try_from(whole(value * 1000.0)).unwrap_or(1000).min(1000);
            seen.cache_used = seen.cache_used.max(Some(used));
        }
        _ => {}
    }
}

/// By `kv_cache_size_tokens`, else by blocks.
fn tokens(labels: &str) -> Option<u64> {
    let label = |key: &str| {
        let value = |(at, found): (usize, &str)| {
            // Not `mamba_block_size` for `block_size`.
            let whole = at == 0 || labels.as_bytes().get(at - 1) == Some(&b',');
            let rest = labels.get(at + found.len()..)?.strip_prefix("=\"")?;
            whole.then(|| rest.split_once('"')?.0.parse::<u64>().ok()).flatten()
        };
        labels.match_indices(key).find_map(value)
    };
    label("kv_cache_size_tokens")
        .or_else(|| label("num_gpu_blocks")?.checked_mul(label("block_size")?))
        .filter(|tokens| *tokens > 0)
}

fn add(sum: Option<u64>, more: u64) -> Option<u64> {
    Some(sum.unwrap_or(0).saturating_add(more))
}
