//! The one tracing subscriber: filters, takes an event's fields apart, hands them to the journal or to stderr.

use std::fmt::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber};

use super::journal::Journal;
use super::limit::{Held, Limits, Verdict};
use super::line::{Line, Stderr};
use crate::limits;

/// The prefix of our fields; text leaves it out.
pub const FIELD_PREFIX: &str = "edgeward_";
/// How many lines before this one found nobody to take them.
const LINES_LOST: &str = "edgeward_lines_lost";
/// How many of its kind before this one were not written.
const HELD_BACK: &str = "edgeward_held_back";

/// Fields of an event at most: tracing's own bound.
const FIELDS: usize = 32;

/// Spans are not used: a request's identity is a field of its events.
pub struct Sink {
    level: LevelFilter,
    output: Output,
    /// Reused from line to line; contended only if a second thread logs.
    scratch: Mutex<Scratch>,
    /// Lost lines that no line has told of yet.
    untold: AtomicU64,
    /// By kind, what passes.
    limits: Mutex<Limits>,
}

enum Output {
    Journal(Journal),
    Text(Stderr),
}

impl Sink {
    /// To journald.
    pub fn journal(level: LevelFilter, journal: Journal) -> Self {
        Sink::new(level, Output::Journal(journal))
    }

    /// To stderr.
    pub fn text(level: LevelFilter, stderr: Stderr) -> Self {
        Sink::new(level, Output::Text(stderr))
    }

    fn new(level: LevelFilter, output: Output) -> Self {
        Sink {
            level,
            output,
            scratch: Mutex::new(Scratch::new()),
            untold: AtomicU64::new(0),
            limits: Mutex::new(Limits::new()),
        }
    }

    fn passes(&self, metadata: &Metadata<'_>) -> bool {
        let ours = metadata.target().split("::").next() == Some("edgeward");
        let level = match metadata.target() {
            super::ALWAYS => self.most(),
            _ if ours => self.level,
            _ => self.level.min(LevelFilter::WARN),
        };
        metadata.is_event() && super::level_of(metadata) <= level
    }

    /// The level of what is written at every level but `off`.
    fn most(&self) -> LevelFilter {
        if self.level == LevelFilter::OFF { self.level } else { self.level.max(LevelFilter::INFO) }
    }

    fn write(&self, event: &Event<'_>, scratch: &mut Scratch) {
        let Scratch { fields, out, text } = scratch;
        fields.clear();
        out.clear();
        text.clear();
        event.record(fields);
        let level = super::level_of(event.metadata());
        let Some(held) = self.passes_limit(fields, level) else { return };
        if held > 0 {
            fields.put(HELD_BACK, format_args!("{held}"));
            // Text takes everything.
            let _infallible = write!(fields.message, " ({held} more like this were held back)");
        }
        let untold = self.untold.load(Ordering::Relaxed);
        if untold > 0 {
            fields.put(LINES_LOST, format_args!("{untold}"));
        }
        Line { level, at: crate::time::wall(), fields }.write_to(text);
        keep(fields, text);
        let written = match &self.output {
            Output::Journal(journal) => journal.send(event.metadata(), fields, out),
            Output::Text(stderr) => stderr.write(text),
        };
        if written {
            self.untold.fetch_sub(untold, Ordering::Relaxed);
        } else {
            self.untold.fetch_add(1, Ordering::Relaxed);
            super::LOST.fetch_add(1, Ordering::Relaxed);
            self.with_limits(|limits| {
                let (id, name) = kind(fields);
                limits.untold(id, name, held, level <= Level::WARN, crate::time::now());
            });
        }
    }

    /// How many lines of this one's kind it has to tell of; `None` where it is held back itself.
    fn passes_limit(&self, fields: &Fields, level: Level) -> Option<u32> {
        let (id, name) = kind(fields);
        if id.is_empty() {
            return Some(0);
        }
        let verdict =
            self.with_limits(|limits| limits.line(id, name, level <= Level::WARN, crate::time::now()));
        match verdict {
            Verdict::Held => None,
            Verdict::Passes(held) => Some(held),
        }
    }

    /// Another thread has them for some comparisons at most, and nothing is logged within: a count that nobody could give
    /// back would be lost.
    fn with_limits<T>(&self, act: impl FnOnce(&mut Limits) -> T) -> T {
        act(&mut self.limits.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// See [`Limits::overdue`].
    pub fn overdue(&self, now: Instant, all: bool) -> Option<Held> {
        self.with_limits(|limits| limits.overdue(now, all))
    }

    /// Whether the last line, which told of `held`, was taken; else that is told by a later one.
    pub fn told_or_kept(&self, held: &Held, now: Instant) -> bool {
        if self.untold.load(Ordering::Relaxed) == 0 {
            return true;
        }
        let mut id = heapless::String::<32>::new();
        // 32 digits hold every number of 128 bits.
        let _fits = write!(id, "{:032x}", held.id);
        self.with_limits(|limits| limits.untold(&id, &held.name, held.count, held.loud, now));
        false
    }
}

/// Its `MESSAGE_ID`, which our events have as their first field, and its name.
fn kind(fields: &Fields) -> (&str, &str) {
    let id = fields.iter().next().filter(|(name, _)| *name == "message_id").map_or("", |(_, id)| id);
    (id, fields.get("edgeward_event").unwrap_or_default())
}

/// Among the last lines; not what shows a request's body. Another thread that is at it now has the better line.
fn keep(fields: &Fields, line: &[u8]) {
    if fields.get("edgeward_event") != Some("request_body")
        && let Ok(mut recent) = super::RECENT.try_lock()
    {
        recent.push(line);
    }
}

impl Subscriber for Sink {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.passes(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.passes(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        // Events beyond it do not even get to `register_callsite`.
        Some(self.most())
    }

    fn event(&self, event: &Event<'_>) {
        // Not to be had: another thread logs, or a field's Debug does. A buffer of its own, then.
        match self.scratch.try_lock() {
            Ok(mut scratch) => self.write(event, &mut scratch),
            Err(_) => self.write(event, &mut Scratch::new()),
        }
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// What a line is made in, with room for every line of ours from the start: a box without memory can still be told
/// of.
struct Scratch {
    fields: Fields,
    /// As it goes to journald.
    out: Vec<u8>,
    /// As people read it.
    text: Vec<u8>,
}

impl Scratch {
    fn new() -> Self {
        let fields = Fields {
            message: String::with_capacity(limits::LOG_LINE_BYTES),
            names: Vec::with_capacity(FIELDS),
            values: String::with_capacity(limits::LOG_LINE_BYTES),
        };
        let room = || Vec::with_capacity(2 * limits::LOG_LINE_BYTES);
        Scratch { fields, out: room(), text: room() }
    }
}

/// An event's fields as text, in their order.
#[derive(Default)]
pub struct Fields {
    /// What people read.
    pub message: String,
    names: Vec<(&'static str, usize)>,
    values: String,
}

impl Fields {
    fn clear(&mut self) {
        self.message.clear();
        self.names.clear();
        self.values.clear();
    }

    /// All but the message, as `(name, value)`.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let mut begin = 0;
        self.names.iter().map(move |&(name, end)| {
            let value = self.values.get(begin..end).unwrap_or_default();
            begin = end;
            (name, value)
        })
    }

    /// The value of one field.
    pub fn get(&self, wanted: &str) -> Option<&str> {
        self.iter().find(|(name, _)| *name == wanted).map(|(_, value)| value)
    }

    fn add(&mut self, field: &Field, value: fmt::Arguments<'_>) {
        // A Debug that fails leaves what it wrote; there is nobody to tell.
        if field.name() == "message" {
            let _ = self.message.write_fmt(value);
        } else {
            self.put(field.name(), value);
        }
    }

    fn put(&mut self, name: &'static str, value: fmt::Arguments<'_>) {
        let _ = self.values.write_fmt(value);
        self.names.push((name, self.values.len()));
    }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field, format_args!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixDatagram;

    /// A sink whose journal is a socket of this test, and that socket.
    fn journal(level: LevelFilter) -> (Sink, UnixDatagram, tempdir::Dir) {
        let dir = tempdir::Dir::new();
        let path = dir.path().join("journal");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_nonblocking(true).unwrap();
        (Sink::journal(level, Journal::open(&path).unwrap()), socket, dir)
    }

    fn received(socket: &UnixDatagram) -> Vec<Vec<u8>> {
        let mut buffer = [0; 65536];
        std::iter::from_fn(|| socket.recv(&mut buffer).ok().map(|n| buffer[..n].to_vec()))
            .filter(|datagram| !datagram.is_empty())
            .collect()
    }

    #[test]
    fn only_what_is_asked_for_passes() {
        let (sink, socket, _dir) = journal(LevelFilter::INFO);
        tracing::subscriber::with_default(sink, || super::super::fine("ours, but fine", None, &""));
        assert_eq!(received(&socket).len(), 0);
        let (sink, socket, _dir) = journal(LevelFilter::DEBUG);
        tracing::subscriber::with_default(sink, || {
            super::super::fine("ours", Some("box"), &"why");
            tracing::trace!("ours, too fine");
            tracing::info!(target: "h2::client", "others'");
            tracing::warn!(target: "edgeward_not_us", "others' warning");
            tracing::info_span!("a span").in_scope(|| tracing::info!("in a span"));
        });
        let messages: Vec<String> = received(&socket)
            .iter()
            .map(|datagram| super::super::journal::tests::parse(datagram).remove("MESSAGE").unwrap())
            .collect();
        assert_eq!(messages, ["ours", "others' warning", "in a span"]);
    }

    /// The README's advice for flash keeps the one line a day that tells what the others would have.
    #[test]
    fn the_morning_line_is_written_at_every_level_but_off() {
        for (level, lines) in [(LevelFilter::WARN, 1), (LevelFilter::ERROR, 1), (LevelFilter::OFF, 0)] {
            let (sink, socket, _dir) = journal(level);
            // Tests beside this one have an INFO of their own: the hint is asked for by itself.
            assert_eq!(sink.max_level_hint() >= Some(LevelFilter::INFO), lines == 1, "{level}");
            tracing::subscriber::with_default(sink, || {
                let start = crate::time::now();
                let sum = super::super::history::History::new(start, 0).morning(start);
                super::super::morning::morning("2026-12-01 07:00", &sum, "0.00");
                super::super::events::request_done(&super::super::events::tests::RECORD);
            });
            let told: Vec<_> = received(&socket)
                .iter()
                .map(|datagram| super::super::journal::tests::parse(datagram).remove("EDGEWARD_EVENT"))
                .collect();
            assert_eq!(told, vec![Some("morning".to_owned()); lines], "{level}");
        }
    }

    /// Lost lines are counted for the whole process: tests that lose some take turns.
    static LOSING: Mutex<()> = Mutex::new(());

    #[test]
    fn a_full_journal_loses_lines_without_waiting_long_and_says_so_later() {
        let _turn = LOSING.lock();
        let (sink, socket, _dir) = journal(LevelFilter::INFO);
        let begun = crate::time::now();
        let before = super::super::lost_lines();
        tracing::subscriber::with_default(sink, || {
            // Nobody reads: the socket's queue fills (net.unix.max_dgram_qlen).
            for n in 0..5000 {
                tracing::info!("line {n}");
            }
            assert!(crate::time::now() - begun < std::time::Duration::from_secs(2));
            let lost = super::super::lost_lines() - before;
            assert!(lost > 0);
            let kept = received(&socket).len() as u64;
            assert_eq!(kept + lost, 5000);
            tracing::info!("room again");
            tracing::info!("and still");
            let told: Vec<_> = received(&socket)
                .iter()
                .map(|datagram| super::super::journal::tests::parse(datagram).remove("EDGEWARD_LINES_LOST"))
                .collect();
            assert_eq!(told, [Some(lost.to_string()), None]);
        });
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_one_kind_is_held_back_and_counted() {
        let (sink, socket, _dir) = journal(LevelFilter::INFO);
        let _guard = tracing::subscriber::set_default(sink);
        let shed = |n: u32| {
            super::super::memory_events::request_shed(&format!("r-{n}"), "box", "memory is red", "red");
        };
        let told = || -> Vec<_> {
            received(&socket).iter().map(|datagram| super::super::journal::tests::parse(datagram)).collect()
        };
        // Read as it comes: the socket's queue is short.
        let mut written = 0;
        for n in 0..1000 {
            shed(n);
            written += told().len();
        }
        assert_eq!(written, limits::LOG_BURST as usize);
        // Requests and other kinds go on.
        super::super::events::request_done(&super::super::events::tests::RECORD);
        super::super::health_events::probe_up("box");
        assert_eq!(told().len(), 2);
        tokio::time::advance(limits::LOG_REFILL).await;
        shed(1000);
        let line = told().pop().unwrap();
        assert_eq!(line.get("EDGEWARD_HELD_BACK").map(String::as_str), Some("980"));
        assert_eq!(
            line.get("MESSAGE").map(String::as_str),
            Some("Request r-1000 does not go to box: memory is red (980 more like this were held back)")
        );
        // The flood ends: the rest is told by a line of its own.
        shed(1001);
        shed(1002);
        super::super::tell_held_back(false);
        assert_eq!(told().len(), 0);
        tokio::time::advance(limits::LOG_HELD).await;
        super::super::tell_held_back(false);
        super::super::tell_held_back(true);
        let lines = told();
        assert_eq!(lines.len(), 1, "{lines:?}");
        let field = |name: &str| lines[0].get(name).map(String::as_str);
        assert_eq!(field("EDGEWARD_HELD_BACK"), Some("2"));
        assert_eq!(field("EDGEWARD_KIND"), Some("request_shed"));
        assert_eq!(field("EDGEWARD_KIND_ID"), Some(super::super::memory_events::REQUEST_SHED));
        assert_eq!(field("PRIORITY"), Some("6"));
    }

    /// What a reader of the journal has of a night in which memory ran out, in their words.
    #[tokio::test(start_paused = true)]
    async fn a_night_can_be_retold() {
        use super::super::{events, health_events, memory_events};
        let (sink, socket, _dir) = journal(LevelFilter::INFO);
        let _guard = tracing::subscriber::set_default(sink);
        let memory = |pressure, reason, available: u64, exhausted_in| {
            memory_events::pressure(&memory_events::Memory {
                pressure,
                reason,
                axis: "host",
                available: available << 20,
                total: 7620 << 20,
                floor: 762 << 20,
                rate: 98 << 20,
                exhausted_in,
            });
        };
        let told = || -> Vec<String> {
            let message =
                |line: Vec<u8>| super::super::journal::tests::parse(&line).remove("MESSAGE").unwrap();
            received(&socket).into_iter().map(message).collect()
        };
        let mut night = Vec::new();
        memory("amber", "it falls fast, beyond what is usual", 1900, Some(19_000));
        memory("red", "little is left, and it goes on falling", 312, Some(3000));
        night.extend(told());
        for n in 0..500 {
            memory_events::request_shed(&format!("r-{n}"), "box", "memory is red", "red");
            night.extend(told());
        }
        let cause = crate::cause::Cause::Reset;
        health_events::breaker_opened("box", None, std::time::Duration::from_secs(10), cause);
        tokio::time::advance(2 * limits::LOG_HELD).await;
        super::super::tell_held_back(false);
        memory("green", "enough is free", 5200, None);
        health_events::breaker_closed("box", None);
        events::request_done(&events::tests::RECORD);
        night.extend(told());
        let shed = "Request r-";
        let (shed, story): (Vec<_>, Vec<_>) =
            night.into_iter().partition(|line| line.starts_with(shed) && line.contains("does not go"));
        assert_eq!(shed.len(), limits::LOG_BURST as usize);
        assert_eq!(
            story,
            [
                "Memory is amber: it falls fast, beyond what is usual: 1900 MiB of 7620 MiB (host), low below 762 MiB, \
                 98 MiB less each second, used up in 19 s; local targets get only small requests for models that they \
                 have loaded",
                "Memory is red: little is left, and it goes on falling: 312 MiB of 7620 MiB (host), low below 762 MiB, 98 \
                 MiB less each second, used up in 3 s; local targets get no new requests",
                "box rests for 10 s after failing repeatedly: connection reset",
                "480 more lines of the kind request_shed were held back",
                "Memory is green: enough is free: 5200 MiB of 7620 MiB (host), low below 762 MiB; local targets get \
                 requests as usual",
                "box answers again",
                "Request r-1: answered (box:oom,cloud:committed)",
            ]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_count_that_the_journal_did_not_take_is_told_later() {
        let _turn = LOSING.lock();
        let (sink, socket, _dir) = journal(LevelFilter::INFO);
        let _guard = tracing::subscriber::set_default(sink);
        let shed = || super::super::memory_events::request_shed("r", "box", "memory is red", "red");
        for _ in 0..limits::LOG_BURST + 5 {
            shed();
            received(&socket);
        }
        // Full: neither the next line nor one of its own gets through.
        for n in 0..5000 {
            tracing::info!("line {n}");
        }
        tokio::time::advance(limits::LOG_REFILL).await;
        shed();
        super::super::tell_held_back(true);
        received(&socket);
        super::super::tell_held_back(true);
        let lines = received(&socket);
        let line = super::super::journal::tests::parse(&lines[0]);
        assert_eq!(line.get("EDGEWARD_HELD_BACK").map(String::as_str), Some("5"));
    }

    /// What a box writes for each request: journald keeps a little more than this, or less where it compresses.
    #[test]
    fn a_request_costs_the_journal_less_than_a_kilobyte() {
        let (sink, socket, _dir) = journal(LevelFilter::INFO);
        tracing::subscriber::with_default(sink, || {
            super::super::events::request_done(&super::super::events::tests::RECORD);
        });
        let sizes: Vec<usize> = received(&socket).iter().map(Vec::len).collect();
        println!("journal: {} bytes a request", sizes[0]);
        assert!(sizes.len() == 1 && sizes[0] < 1024, "{sizes:?}");
    }

    #[test]
    fn the_last_lines_are_kept_but_no_bodies() {
        let (sink, _socket, _dir) = journal(LevelFilter::INFO);
        tracing::subscriber::with_default(sink, || {
            super::super::events::request_body("r-77", b"zebra-77");
            super::super::discovery_events::target_found("kept-77", "vLLM", "http://127.0.0.1:1");
        });
        let kept = String::from_utf8(super::super::recent_lines()).unwrap();
        assert!(kept.contains("target_found target=kept-77"), "{kept}");
        assert!(!kept.contains("zebra-77") && !kept.contains("r-77"), "{kept}");
    }

    #[test]
    fn two_at_once_do_not_wait_for_each_other() {
        let (sink, socket, _dir) = journal(LevelFilter::INFO);
        let sink = std::sync::Arc::new(sink);
        let held = sink.scratch.lock().unwrap();
        tracing::subscriber::with_default(std::sync::Arc::clone(&sink), || tracing::info!("meanwhile"));
        assert_eq!(received(&socket).len(), 1);
        drop(held);
    }

    mod tempdir {
        use std::path::{Path, PathBuf};
        use std::sync::atomic::{AtomicU32, Ordering};

        static NEXT: AtomicU32 = AtomicU32::new(0);

        /// A folder that goes with its owner.
        pub struct Dir(PathBuf);

        impl Dir {
            pub fn new() -> Self {
                let name =
                    format!("edgeward-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
                let path = std::env::temp_dir().join(name);
                std::fs::create_dir_all(&path).unwrap();
                Dir(path)
            }

            pub fn path(&self) -> &Path {
                &self.0
            }
        }

        impl Drop for Dir {
            fn drop(&mut self) {
                drop(std::fs::remove_dir_all(&self.0));
            }
        }
    }
}
