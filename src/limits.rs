//! Every bound of the program, each with its unit. Defaults that the config may change say so.

use std::time::Duration;

mod admission;
mod answer;
mod deaths;
mod dialect;
mod helper;
mod history;
mod media;
mod memory;
mod routing;

pub use admission::*;
pub use answer::*;
pub use deaths::*;
pub use dialect::*;
pub use helper::*;
pub use history::*;
pub use media::*;
pub use memory::*;
pub use routing::*;

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
/// Alternatives to each token, above which an answer is asked for whole: each takes some 100 bytes, and
/// `limits.answer_buffer` bounds what is put together.
pub const COLLECTED_LOGPROBS_MAX: u32 = 5;
/// What is reserved first for an answer that is put together from a stream, in bytes: some 1,500 tokens of text.
pub const COLLECT_STEP_BYTES: usize = 8 * KIB;
/// `limits.answer_memory`: all such answers together, in bytes.
pub const ANSWER_MEMORY: usize = 32 * MIB;
/// `limits.connections`: client connections at once.
pub const CONNECTIONS: usize = 1024;
/// `limits.max_headers`: header fields in a client's request.
pub const MAX_HEADERS: usize = 100;
/// `limits.header_bytes`: a client's request head, in bytes.
pub const HEADER_BYTES: usize = 16 * KIB;
/// `limits.header_time`: a client's request head must be whole in this time from its first byte.
pub const HEADER_TIME: Duration = Duration::from_secs(60);
/// `limits.idle_time`: a client's connection without a request is closed after this. Clients' pools must drop theirs
/// first, or a request meets the closing: Go's transport keeps one for 90 s, nginx and AWS's balancers for 60 s.
pub const IDLE_TIME: Duration = Duration::from_secs(130);
/// `limits.body_time`: a client's request body must be whole in this time.
pub const BODY_TIME: Duration = Duration::from_secs(60);
/// `limits.request_time`: from the request's head to its commit, whatever happens; a whole answer that is put together may
/// take longer, as a stream may, while its tokens come.
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
/// How far back a stream is looked at for a text that repeats itself, in bytes.
pub const REPETITION_WINDOW_BYTES: usize = 4 * KIB;
/// How much of a text comes between two such looks, in bytes.
pub const REPETITION_STEP_BYTES: usize = 64;
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
/// Rows of turns: models whose names fall on one row share it.
pub const TURNS_ROWS: usize = 16;
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
/// A server that was found on its usual port and is gone is looked for after this, for [`STRANGER_YOUNG`].
pub const GONE_INTERVAL: Duration = Duration::from_secs(1);
/// A usual port on which something else answers is looked at again after this.
pub const STRANGER_INTERVAL: Duration = Duration::from_secs(60);
/// It is looked at after [`DISCOVERY_INTERVAL`] for this long: it may be a server that has just started.
pub const STRANGER_YOUNG: Duration = Duration::from_secs(120);
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
/// Lines of one kind (`MESSAGE_ID`) at once; requests, attempts and hit limits are not counted. Chosen: a dozen targets
/// that go at once are all told.
pub const LOG_BURST: u32 = 20;
/// After that one more in this time: six a minute tell that it goes on, and cost a flash card little.
pub const LOG_REFILL: Duration = Duration::from_secs(10);
/// A count of lines that were held back is told within twice this, if no line of their kind tells it before.
pub const LOG_HELD: Duration = Duration::from_secs(30);
/// Kinds of lines that are told apart: a third of them have warnings beside what is only told.
pub const LOG_KINDS: usize = 128;
/// A stopping service's successor waits this long for the listeners before it does without.
pub const HANDOVER: Duration = Duration::from_secs(3);
/// A connection that was accepted just before the end may take this long to send its first request, which is served.
pub const FIRST_BYTES: Duration = Duration::from_secs(2);
/// A drain that is still not over this long after its limits is stuck, and ended by force.
pub const DRAIN_STUCK: Duration = Duration::from_secs(15);
/// Sockets that systemd may pass.
pub const PASSED_SOCKETS_MAX: usize = 64;
/// A limit that is hit all the time is logged once in this.
pub const LIMIT_LOG_INTERVAL: Duration = Duration::from_secs(1);
/// That no connection can be accepted is tried ten times a second, and logged once in this.
pub const ACCEPT_LOG_INTERVAL: Duration = Duration::from_secs(60);

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
