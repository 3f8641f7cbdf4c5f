//! Every bound of the program, each with its unit. Defaults that the config may change say so.

use std::time::Duration;

/// One kibibyte, in bytes.
pub const KIB: usize = 1024;
/// One mebibyte, in bytes.
pub const MIB: usize = 1024 * KIB;

/// `limits.max_body`: a request body, in bytes. 32 MiB holds a dozen photos in base64.
pub const MAX_BODY: usize = 32 * MIB;
/// `limits.body_memory`: all request bodies held for replay together, in bytes.
pub const BODY_MEMORY: usize = 96 * MIB;
/// `limits.gate_buffer`: what one gated stream may send before its first token, in bytes.
pub const GATE_BUFFER: usize = 64 * KIB;
/// `limits.gated_streams`: gate buffers in the pool.
pub const GATED_STREAMS: usize = 64;
/// `limits.answer_buffer`: a non-streamed answer that is judged whole, in bytes.
pub const ANSWER_BUFFER: usize = 4 * MIB;
/// `limits.answer_memory`: all such answers together, in bytes.
pub const ANSWER_MEMORY: usize = 32 * MIB;
/// `limits.connections`: client connections at once.
pub const CONNECTIONS: usize = 1024;
/// `limits.max_headers`: header fields in a client's request.
pub const MAX_HEADERS: usize = 100;
/// `limits.header_bytes`: a client's request head, in bytes.
pub const HEADER_BYTES: usize = 16 * KIB;
/// `limits.header_time`: a client's request head must be whole in this time; it also ends an idle connection.
pub const HEADER_TIME: Duration = Duration::from_secs(60);
/// `limits.body_time`: a client's request body must be whole in this time.
pub const BODY_TIME: Duration = Duration::from_secs(60);
/// `limits.request_time`: from the request's head to its commit, whatever happens.
pub const REQUEST_TIME: Duration = Duration::from_secs(900);
/// `limits.write_time`: a client that takes no byte for this long is gone.
pub const WRITE_TIME: Duration = Duration::from_secs(120);
/// `limits.queue_time`: how long a request waits for a gate buffer, or for body memory, before its 503.
pub const QUEUE_TIME: Duration = Duration::from_secs(2);
/// `limits.drain`: how long running streams may go on after SIGTERM.
pub const DRAIN: Duration = Duration::from_secs(30);

/// `deadlines.connect`.
pub const CONNECT: Duration = Duration::from_millis(1500);
/// `deadlines.first_token`.
pub const FIRST_TOKEN: Duration = Duration::from_secs(20);
/// `deadlines.first_token_per_1k`: added for each thousand estimated prompt tokens.
pub const FIRST_TOKEN_PER_1K: Duration = Duration::from_secs(4);
/// `deadlines.between_tokens`.
pub const BETWEEN_TOKENS: Duration = Duration::from_secs(30);
/// `deadlines.load`.
pub const LOAD: Duration = Duration::from_secs(300);
/// `deadlines.total`.
pub const TOTAL: Duration = Duration::from_secs(600);
/// After a finish reason, how long the stream's own end marker may take before edgeward ends the answer.
/// WIRE.md B79: a gateway in production uses 10 s; a client that has its finish reason need not wait so long.
pub const FINISH_GRACE: Duration = Duration::from_secs(2);
/// After the protocol's end marker, how long the body's own end may take: enough for one more packet, so that
/// the connection can be used again.
pub const DONE_GRACE: Duration = Duration::from_millis(250);
/// Reported prompt progress may extend the first-token deadline up to this many times its length.
pub const PROGRESS_EXTENSION_MAX: u32 = 6;
/// A connection that is closed over a request not read to its end is read from for this long still.
pub const LINGER: Duration = Duration::from_secs(2);
/// What a client may send ahead of its turn and is still watched for its end, in bytes.
pub const PIPELINED_BYTES: usize = 16 * KIB;
/// Retry-After on our own 503, in seconds.
pub const RETRY_AFTER_SECS: u64 = 5;
/// A 429's Retry-After is believed up to this.
pub const COOLDOWN_MAX: Duration = Duration::from_secs(600);
/// A target that refused our key, or does not have the model, is tried last for this long; then once more in its place.
pub const MISCONFIGURED_PAUSE: Duration = Duration::from_secs(60);
/// Models of one target that are remembered as missing: their names are the clients' to choose.
pub const MISSING_MODELS_MAX: usize = 16;
/// Cool-down of a 429 that names no time.
pub const COOLDOWN_DEFAULT: Duration = Duration::from_secs(5);

/// JSON nesting that any parser here is given; a chat request nests about 10 deep, a tool schema 30.
pub const JSON_DEPTH_MAX: usize = 100;
/// A target's error text, as kept and shown, in bytes.
pub const ERROR_TEXT_BYTES: usize = 300;
/// An error body is read up to this to classify it, in bytes.
pub const ERROR_BODY_BYTES: usize = 16 * KIB;
/// An error body that is not there in this time is done without: its status is known.
pub const ERROR_BODY_TIME: Duration = Duration::from_secs(1);
/// How long a broken stream's error may take to reach its client before the connection is closed over it.
pub const LAST_WORDS: Duration = Duration::from_secs(5);
/// A cancelled request whose client takes no bytes in this time loses its connection: its target must be free.
pub const DEAF: Duration = Duration::from_millis(250);
/// Of an error's text, labels first, this much is searched for what it means, in bytes. The longest
/// text known that ends with its point is Ollama's, with a runner's last line of stderr.
pub const NEEDLE_TEXT_BYTES: usize = 2 * KIB;
/// A client-fault 4xx is passed back whole up to this, in bytes.
pub const CLIENT_FAULT_BODY_BYTES: usize = MIB;
/// After the commit: an event longer than this is passed on unlooked-at, in bytes.
pub const RELAY_EVENT_BYTES: usize = 64 * KIB;
/// A configuration file, in bytes; a hundred times what anyone writes by hand.
pub const CONFIG_BYTES_MAX: u64 = MIB as u64;
/// Any duration in a configuration.
pub const CONFIG_DURATION_MAX: Duration = Duration::from_secs(24 * 3600);
/// `limits.gate_buffer` at its smallest, in bytes.
pub const GATE_BUFFER_MIN: usize = 4 * KIB;
/// `limits.gate_buffer` times `limits.gated_streams` at most, in bytes: all of it is allocated at start.
pub const GATE_POOL_MAX: usize = 1024 * MIB;
/// `limits.header_bytes` at its smallest, in bytes: hyper takes no smaller buffer (its h1 `MINIMUM_MAX_BUFFER_SIZE`).
pub const HEADER_BYTES_MIN: usize = 8 * KIB;
/// A key, from a file or elsewhere, in bytes. The longest in use are JWTs of a few KiB.
pub const SECRET_BYTES_MAX: usize = 16 * KIB;
/// A client's key shorter than this draws a warning, in bytes.
pub const CLIENT_KEY_BYTES_GOOD: usize = 16;
/// `name` of a target or a key, `group`, `region`, `embeddings`, in bytes: they are labels in metrics.
pub const NAME_BYTES: usize = 64;
/// A Unix socket's path, in bytes: `sun_path` less its closing zero, unix(7).
pub const SOCKET_PATH_BYTES: usize = 107;
/// After the commit: what has come already is passed on together, up to this, in bytes.
pub const RELAY_GATHER_BYTES: usize = 16 * KIB;
/// Targets in one config.
pub const TARGETS_MAX: usize = 64;
/// Candidates in one plan.
pub const CANDIDATES_MAX: usize = 16;
/// A model name, in bytes.
pub const MODEL_NAME_BYTES: usize = 256;
/// Of a conversation's beginning, so much tells it from others, in bytes.
pub const CONVERSATION_BYTES: usize = 64 * KIB;
/// Conversations whose targets are remembered; the one that was silent for longest makes room.
pub const CONVERSATIONS_MAX: usize = 4096;
/// Of its configured weight, a slow target keeps at least this much, in thousandths.
pub const WEIGHT_LATENCY_LEAST: u64 = 250;
/// Times to first token are compared with this added to each: a few milliseconds more or less are no reason to
/// depart from the weights that were configured.
pub const WEIGHT_LATENCY_FLOOR: Duration = Duration::from_millis(100);
/// A prompt's tokens are estimated to this factor.
pub const PROMPT_ESTIMATE_FACTOR: u64 = 2;
/// Header fields in an upstream's response.
pub const UPSTREAM_HEADERS_MAX: usize = 100;
/// An upstream's response head, in bytes.
pub const UPSTREAM_HEAD_BYTES: usize = 64 * KIB;

/// Between two looks for local servers that were not found on their usual ports.
pub const DISCOVERY_INTERVAL: Duration = Duration::from_secs(5);
/// Between two looks at idle connections.
pub const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
/// Between two tries to have a spare connection to one target.
pub const SPARE_PAUSE: Duration = Duration::from_secs(15);
/// Threads for what blocks: name resolution, which may hang on a bad network for several names at once.
pub const BLOCKING_THREADS: usize = 8;

/// Idle connections to a local or LAN target are not reused after this: uvicorn and llama.cpp close at 5 s.
pub const IDLE_LOCAL: Duration = Duration::from_secs(3);
/// Idle connections to a cloud target are not reused after this.
pub const IDLE_CLOUD: Duration = Duration::from_secs(50);
/// Idle connections kept per target.
pub const IDLE_MAX: usize = 8;
/// A warm spare's whole handshake must be done in this time; nobody waits for it.
pub const WARM_TIME: Duration = Duration::from_secs(10);
/// The next address of a name is tried beside the ones before it after this; RFC 8305 section 5 recommends 250 ms.
pub const CONNECT_STAGGER: Duration = Duration::from_millis(250);
/// Addresses of one name that are tried at all.
pub const CONNECT_ADDRESSES_MAX: usize = 8;
/// TCP keep-alive towards targets: the first probe after this much silence.
pub const TCP_KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
/// TCP keep-alive towards targets: between two probes.
pub const TCP_KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// A forward proxy's answer to CONNECT, head only, in bytes.
pub const PROXY_HEAD_BYTES: usize = 8 * KIB;
/// HTTP/2: what a target may send on one stream before we read it, in bytes. This is the backpressure
/// of a slow client, so it is also what one costs in memory.
pub const H2_STREAM_WINDOW: u32 = 256 * 1024;
/// HTTP/2: the same for all streams of one connection, in bytes.
pub const H2_CONNECTION_WINDOW: u32 = 2 * 1024 * 1024;
/// HTTP/2: requests on one connection at once; common servers allow 100 to 128.
pub const H2_STREAMS_MAX: usize = 100;
/// HTTP/2: a connection in use that is silent for this long is asked for a sign of life.
pub const H2_PING_INTERVAL: Duration = Duration::from_secs(10);
/// HTTP/2: a connection that gives none in this time is dead.
pub const H2_PING_TIMEOUT: Duration = Duration::from_secs(5);

/// What one client connection and its request take beside their bodies and buffers, in bytes: hyper's read buffer
/// may double, and what the client has not taken yet of its answer waits in an outlet's queue.
pub const CONNECTION_BYTES: usize = 96 * KIB;
/// The program itself, its code included, in bytes, with room to spare: 10 MiB locked were measured.
pub const MEMORY_AT_REST: usize = 24 * MIB;
/// File descriptors that clients and their attempts never get: listeners, the log, the event loop, name look-ups,
/// spares, connections that are being turned away.
pub const DESCRIPTORS_RESERVED: u64 = 48;
/// Connections that are being turned away at once; more are closed without a word.
pub const TURNED_AWAY_MAX: usize = 16;

/// Seconds since 1970 that no right clock can show less than: the day on which the oldest compiler that builds this
/// (`rust-version`, 1.95) came out, 2026-04-16. `SOURCE_DATE_EPOCH` at build time names a later one.
pub const BUILT_AFTER: u64 = 1_776_297_600;
/// The wall clock moved by more than this against the monotonic one between two looks: somebody set it.
pub const CLOCK_STEP: Duration = Duration::from_secs(1);
/// A target whose certificate is not valid yet is tried last for this long, or until the clock is set.
pub const CLOCK_PATIENCE: Duration = Duration::from_secs(60);

/// A log line as text, in bytes, its newline included. A pipe that polls writable has room for a page.
pub const LOG_LINE_BYTES: usize = 4096;
/// One field's value in the journal, in bytes.
pub const LOG_VALUE_BYTES: usize = 2048;
/// How long a log line may wait for room, and hold up everything else meanwhile; under a second.
pub const LOG_WAIT: Duration = Duration::from_millis(5);
/// A stopping service's successor waits this long for the listeners before it does without.
pub const HANDOVER: Duration = Duration::from_secs(3);
/// A drain that is still not over this long after its limits is stuck, and ended by force.
pub const DRAIN_STUCK: Duration = Duration::from_secs(15);
/// Sockets that systemd may pass.
pub const PASSED_SOCKETS_MAX: usize = 64;
/// A limit that is hit all the time is logged once in this.
pub const LIMIT_LOG_INTERVAL: Duration = Duration::from_secs(1);
/// That no connection can be accepted is tried ten times a second, and logged once in this.
pub const ACCEPT_LOG_INTERVAL: Duration = Duration::from_secs(60);

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
/// Keys from this length on are looked for in it once more, in bytes; shorter ones would hide words.
pub const REDACTED_BYTES: usize = 6;
/// Lines of the log that are kept in memory, for `edgeward support`.
pub const RECENT_LINES: usize = 256;
/// The same, in bytes, taken at the start; a usual line has 250.
pub const RECENT_BYTES: usize = 128 * KIB;
/// What a running edgeward answers its operator's commands, in bytes; the metrics of 64 targets are the longest.
pub const OPERATOR_ANSWER_BYTES: usize = 4 * MIB;
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

const _: () = assert!(GATE_BUFFER >= GATE_BUFFER_MIN);
const _: () = assert!(GATE_BUFFER * GATED_STREAMS <= GATE_POOL_MAX);
const _: () = assert!(HEADER_BYTES >= HEADER_BYTES_MIN);
const _: () = assert!(BODY_MEMORY >= MAX_BODY);
const _: () = assert!(ANSWER_MEMORY >= ANSWER_BUFFER);
const _: () = assert!(H2_CONNECTION_WINDOW > H2_STREAM_WINDOW);
// A dead connection is noticed while there is still time to send its request on a fresh one.
const _: () = assert!(H2_PING_INTERVAL.as_secs() + H2_PING_TIMEOUT.as_secs() < FIRST_TOKEN.as_secs());
// hyper refuses a smaller read buffer than this.
const _: () = assert!(UPSTREAM_HEAD_BYTES >= 8 * KIB);
