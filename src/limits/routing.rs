//! Bounds of health, routing and reloads, each with its unit.

use std::time::Duration;

use super::{CANDIDATES_MAX, KIB, MIB, TARGETS_MAX};

/// Buckets of a breaker's window: with the default window of 60 s, 10 s each.
pub const WINDOW_BUCKETS: usize = 6;
/// `breaker.window`.
pub const BREAKER_WINDOW: Duration = Duration::from_secs(60);
/// `breaker.min_samples`.
pub const BREAKER_MIN_SAMPLES: u32 = 10;
/// `breaker.failure_rate`, in thousandths.
pub const BREAKER_FAILURE_RATE: u16 = 500;
/// `breaker.consecutive`: with the cool-downs below, an outage of a minute costs five requests at most.
pub const BREAKER_CONSECUTIVE: u32 = 3;
/// `breaker.cooldown`.
pub const BREAKER_COOLDOWN: Duration = Duration::from_secs(10);
/// `breaker.cooldown_max`.
pub const BREAKER_COOLDOWN_MAX: Duration = Duration::from_secs(300);
/// A target that rests is asked all the same where nobody else is left, once in this: a client that would get an error
/// loses nothing by it, and a server that is starting is not hammered.
pub const LAST_RESORT_PAUSE: Duration = Duration::from_secs(1);
/// `breaker.trials`.
pub const BREAKER_TRIALS: u32 = 1;
/// `breaker.recovery`.
pub const BREAKER_RECOVERY: Duration = Duration::from_secs(30);
/// `degrade.above`, in thousandths.
pub const DEGRADE_ABOVE: u16 = 50;
/// `degrade.below`, in thousandths.
pub const DEGRADE_BELOW: u16 = 20;
/// `degrade.least`, in thousandths.
pub const DEGRADE_LEAST: u16 = 100;
/// `latency.times`: "reachable but ten times slower" is well above, a busy box's usual swing below.
pub const LATENCY_TIMES: u32 = 4;
/// `latency.first_token`.
pub const LATENCY_FIRST_TOKEN: Duration = Duration::from_millis(1500);
/// `latency.gap`.
pub const LATENCY_GAP: Duration = Duration::from_millis(500);
/// `latency.min_samples`.
pub const LATENCY_MIN_SAMPLES: u32 = 10;
/// `latency.out_after`.
pub const LATENCY_OUT_AFTER: Duration = Duration::from_secs(60);
/// `latency.back_after`.
pub const LATENCY_BACK_AFTER: Duration = Duration::from_secs(300);
/// `latency.trickle`.
pub const LATENCY_TRICKLE: Duration = Duration::from_secs(10);
/// `probe.every`.
pub const PROBE_EVERY: Duration = Duration::from_secs(10);
/// `probe.every_cloud`.
pub const PROBE_EVERY_CLOUD: Duration = Duration::from_secs(300);
/// How long a target may take to count a prompt's tokens before edgeward's own estimate stands for its count.
pub const COUNT_TIME: Duration = Duration::from_secs(3);
/// `probe.timeout`.
pub const PROBE_TIMEOUT: Duration = Duration::from_secs(2);
/// `probe.down_after`.
pub const PROBE_DOWN_AFTER: u32 = 2;
/// `retry.backoff`.
pub const RETRY_BACKOFF: Duration = Duration::from_millis(200);
/// `retry.jitter`.
pub const RETRY_JITTER: Duration = Duration::from_millis(50);
/// `retry.backoff` at most: whoever waits longer is better off elsewhere.
pub const RETRY_BACKOFF_MAX: Duration = Duration::from_secs(10);
/// `retry.jitter` at most.
pub const RETRY_JITTER_MAX: Duration = Duration::from_secs(1);
/// `max_retries` of a target that names none.
pub const RETRIES: u32 = 1;
/// `max_retries` at most: past the second the next target is the better bet.
pub const RETRIES_MAX: u32 = 2;
/// `retry.budget`, in thousandths.
pub const RETRY_BUDGET: u16 = 200;
/// Attempts of one request: each candidate once, and again as often as it may be.
pub const ATTEMPTS_MAX: usize = CANDIDATES_MAX * (1 + RETRIES_MAX as usize);
/// Retries and requests are compared over this.
pub const RETRY_WINDOW: Duration = Duration::from_secs(10);
/// Retries in [`RETRY_WINDOW`] that are allowed however few requests there were: all that one request may have
/// (`max_retries` is 2 at most), so that a lone one on a quiet box is not refused them; 0.2 a second is no storm.
pub const RETRY_FLOOR: u64 = 2;
/// A target that names a longer pause than this is not waited for: its client is told.
pub const RETRY_WAIT_MAX: Duration = Duration::from_secs(5);
/// Hedges that quiet times save up for busy ones: with the default share, those of 100 requests.
pub const HEDGE_SAVED_MAX: u32 = 5;
/// Between two looks whether the day's money must be written to its file.
pub const SPENT_INTERVAL: Duration = Duration::from_secs(60);
/// `hedge.share`, in thousandths.
pub const HEDGE_SHARE: u16 = 50;
/// Lanes of the queue above this take the place of targets that no configuration names any more and that are idle.
pub const QUEUE_LANES: usize = 4 * TARGETS_MAX;
/// `queue.length` at most, as many as there may be connections.
pub const QUEUE_LENGTH_MAX: u64 = 65_536;
/// `queue.length`.
pub const QUEUE_LENGTH: usize = 32;
/// `elsewhere.after` for targets on the LAN: they cost nothing, and the prompt stays near.
pub const ELSEWHERE_LAN: Duration = Duration::from_secs(2);
/// `elsewhere.after` for clouds: about as long as a person waits without a word, and longer than most answers of a box
/// hold its slot.
pub const ELSEWHERE_CLOUD: Duration = Duration::from_secs(10);
/// A conversation that is on its way home keeps the next one off it for this long at most: its prompt has to be read
/// anew there.
pub const HOMECOMING: Duration = Duration::from_secs(60);
/// `sticky.idle`.
pub const STICKY_IDLE: Duration = Duration::from_secs(600);
/// `sticky.away`.
pub const STICKY_AWAY: Duration = Duration::from_secs(900);
/// `rollout.share`, in thousandths.
pub const ROLLOUT_SHARE: u16 = 100;
/// `rollout.hold`.
pub const ROLLOUT_HOLD: Duration = Duration::from_secs(60);
/// `rollout.min_samples`.
pub const ROLLOUT_MIN_SAMPLES: u32 = 20;
/// `max_concurrent` of a target at most.
pub const CONCURRENT_MAX: u64 = 65_536;
/// `price.input` and `price.output` at most, in millionths: a request of a thousand million tokens at this price
/// still fits 64 bits.
pub const PRICE_MAX: u64 = 10_000_000_000;
/// `budget.money_per_day` at most, in millionths.
pub const MONEY_PER_DAY_MAX: u64 = 1_000_000_000_000;
/// `budget.requests_per_minute` at most.
pub const REQUESTS_PER_MINUTE_MAX: u64 = 1_000_000;
/// `budget.tokens_per_minute` at most.
pub const TOKENS_PER_MINUTE_MAX: u64 = 1_000_000_000;
/// Header conditions of one route.
pub const ROUTE_HEADERS_MAX: usize = 8;
/// A header condition's name, its value, or a probe's path, in bytes.
pub const CONDITION_BYTES: usize = 256;
/// `price.input` of a cloud that names none, for a million tokens, in millionths of a dollar: that of a large model
/// in 2026, so that a cap is met early rather than late.
pub const PRICE_INPUT: u64 = 5_000_000;
/// `price.output`, likewise.
pub const PRICE_OUTPUT: u64 = 25_000_000;
/// `budget.money_per_day` of a cloud that names none, in millionths of a dollar.
pub const CLOUD_MONEY_PER_DAY: u64 = 5_000_000;
/// What a target is assumed to answer with before it has answered, in tokens.
pub const ANSWER_TOKENS: u64 = 1000;
/// An answer's length is learned from up to this, in tokens: no model in use writes more at once.
pub const ANSWER_TOKENS_MAX: u64 = 128 * 1024;
/// Accounts of budgets above this take the place of names that no configuration has any more.
pub const BOOKS_ACCOUNTS: usize = 1024;
/// The file that keeps the day's money, in bytes: a line of 100 for each account, of which a configuration may name
/// some ten thousand.
pub const BOOKS_BYTES_MAX: usize = 2 * MIB;
/// A drill ends by itself after this, however few requests it has met.
pub const DRILL_TIME_MAX: Duration = Duration::from_secs(600);
/// Requests that one drill fails at most: the times of each are kept.
pub const DRILL_REQUESTS_MAX: u32 = 1000;
/// The body that starts a drill, in bytes: a target's name and three figures.
pub const DRILL_BODY_BYTES: usize = 4 * KIB;
/// `edgeward drill` asks how far it is once in this.
pub const DRILL_LOOK: Duration = Duration::from_millis(250);
/// What `edgeward support` takes of one tool's words, in bytes: 200 lines of a journal, each at its longest.
pub const TOOL_BYTES: u64 = MIB as u64;
/// How long it waits for them; a journal on a slow card is searched for seconds.
pub const TOOL_TIME: Duration = Duration::from_secs(10);
/// Keys from this length on are taken out of what targets say, and of a bundle, in bytes; shorter ones would hide words.
pub const REDACTED_BYTES: usize = 6;
/// Lines of the log that are kept in memory, for `edgeward support`.
pub const RECENT_LINES: usize = 256;
/// The same, in bytes, taken at the start; a usual line has 250.
pub const RECENT_BYTES: usize = 128 * KIB;
/// What a running edgeward answers its operator's commands, in bytes; the metrics of 64 targets are the longest.
pub const OPERATOR_ANSWER_BYTES: usize = 4 * MIB;
/// Models of targets that give no streams, which are remembered.
pub const UNSTREAMED_MAX: usize = 64;
/// And for so long.
pub const UNSTREAMED_TIME: Duration = Duration::from_secs(3600);
/// Models whose health is kept for one target: their names are the clients' to choose. The least recently used
/// healthy one makes room.
pub const HEALTH_MODELS_MAX: usize = 32;
/// A model that is unwell makes room too once nobody has asked for it for this long.
pub const HEALTH_MODEL_IDLE: Duration = Duration::from_secs(600);
/// What a whole failure weighs; others are thousandths of it.
pub const FAILURE_WEIGHT: u16 = 1000;
/// Failures lighter than this say nothing about a run of failures: they neither lengthen nor end it.
pub const BREAKER_RUN_WEIGHT: u16 = 500;
/// A breaker that is on its way back opens again after so many failures in a row, if `breaker.consecutive` is not less.
/// After one, a target that fails now and then (an eighth of its requests) would rest for ever longer.
pub const BREAKER_RECOVERING_RUN: u32 = 2;
/// A breaker that stayed closed for this long (or for its last rest, if that was longer) begins with the first
/// cool-down again.
pub const BREAKER_FORGET: Duration = Duration::from_secs(120);
/// Added to a rest, at most, in thousandths of it, so that a fleet's trials do not fall together.
pub const BREAKER_JITTER: u16 = 100;
/// After a breaker has closed: the share in each third of `breaker.recovery`, in thousandths.
pub const RECOVERY_STEPS: [u16; 3] = [100, 250, 500];
/// The window of `degrade`, in [`WINDOW_BUCKETS`] buckets.
pub const DEGRADE_WINDOW: Duration = Duration::from_secs(60);
/// Between two steps of a share: one burst of failures, which stays in the window for three of these, takes it
/// down to an eighth at most.
pub const DEGRADE_EVERY: Duration = Duration::from_secs(20);
/// Below this a share does not fall: a single failure in 20 is not above 5 %.
pub const DEGRADE_MIN_SAMPLES: u32 = 20;
/// Latencies are kept in this many slices, the oldest of which is forgotten.
pub const LATENCY_SLICES: usize = 5;
/// A slice's length while there are enough requests: five of them are five minutes.
pub const LATENCY_SLICE: Duration = Duration::from_secs(60);
/// A slice's length at most: it is kept longer than [`LATENCY_SLICE`] where requests are few, so that ten of them
/// come together even at one in five minutes.
pub const LATENCY_SLICE_MAX: Duration = Duration::from_secs(1200);
/// Slow answers without which nobody is out: one cold load is one, and two clients may have waited for it.
pub const LATENCY_SLOW_MIN: u32 = 3;
/// A target that is out for this long is what is usual now: it is learned anew.
pub const LATENCY_FORGET: Duration = Duration::from_secs(24 * 3600);
/// A stream with fewer gaps than this is no sample of its target's speed.
pub const STREAM_GAPS_MIN: u32 = 8;
/// Classes of prompt length for what is usual: up to 255 tokens, then one an octave, the last from 16,384 on.
pub const USUAL_CLASSES: usize = 8;
/// Samples of one class from which its first idea is made: their median.
pub const USUAL_FIRST: usize = 3;
/// What is usual is moved once in this many samples, or once a minute if there are [`USUAL_SAMPLES_MIN`].
pub const USUAL_SAMPLES: u8 = 20;
/// See [`USUAL_SAMPLES`].
pub const USUAL_SAMPLES_MIN: u8 = 10;
/// A class is believed after this many moves and [`USUAL_AGE`].
pub const USUAL_MOVES: u8 = 4;
/// See [`USUAL_MOVES`].
pub const USUAL_AGE: Duration = Duration::from_secs(180);
/// A believed class follows improvements by this much a minute at most: half in 23 minutes.
pub const USUAL_FASTER: f32 = 0.03;
/// A believed class follows slowness by this much a minute at most: a fifth in an hour, so that a slow decay is seen.
pub const USUAL_SLOWER: f32 = 0.003;
/// A class that is not believed yet follows slowness at once, and improvements down to this part at each move: its
/// first samples may have been cold loads, and its last ones out of a cache.
pub const USUAL_FASTER_YOUNG: f32 = 0.4;
/// Time counts for a move up to this many minutes.
pub const USUAL_MINUTES_MAX: f32 = 10.0;
/// Of the time between two probes, added or taken away at most, in thousandths.
pub const PROBE_JITTER: u16 = 100;
/// A probe of which nothing was heard for this many of its timeouts is lost, and the next one is due.
pub const PROBE_LOST: u32 = 3;

/// A configuration file that changed is read when it was left alone for this long: an editor may write it in parts.
pub const CONFIG_SETTLE: Duration = Duration::from_millis(500);
/// And at the latest this long after the first change.
pub const CONFIG_SETTLE_MAX: Duration = Duration::from_secs(5);
/// Symbolic links that are followed to a configuration file, as many as the kernel follows (`path_resolution(7)`).
pub const CONFIG_LINKS_MAX: usize = 40;
/// Lines of what a reload changed that the log tells.
pub const DIFF_LINES_MAX: usize = 20;
/// A rollout with fewer requests than `rollout.min_samples` goes on for this many times `rollout.hold`.
pub const ROLLOUT_EXTENDED: u32 = 4;
/// A rollout's new side is not worse below this much more of a share, in thousandths.
pub const ROLLOUT_MARGIN: u16 = 50;
/// Nor below this log-likelihood ratio of the two shares, which is 4 standard deviations squared: with 3, and a look
/// after each of thousands of requests, one equal side in 25 would be taken for a worse one.
pub const ROLLOUT_RATIO: f64 = 16.0;
/// Slow is a request of a rollout that takes this many times what 95 of 100 of the old side's keep to its first token,
pub const ROLLOUT_SLOWER_TIMES: u32 = 2;
/// and at least this much longer.
pub const ROLLOUT_SLOWER: Duration = Duration::from_millis(500);
