//! `edgeward record` and `edgeward replay`: every sample and decision into a file, and the same machine over it.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use tokio::runtime;
use tokio::signal::unix::{SignalKind, signal};

use super::{EXIT_CONFIG, EXIT_FAILED, EXIT_GOOD, ask};
use crate::config::{Config, Env, Memory};
use crate::health::Pressure;
use crate::limits;
use crate::memory::recorder::{self, Entry, Replay};
use crate::memory::{Decision, Field, Reason, Sample, State, step};
use crate::time::now;
use crate::watch::sampler::Sampler;

/// Writes a new trace at `file`, for `time` or until SIGINT or SIGTERM: of what a running one sees, knows and decides; of
/// this process's own looks where none runs, or where a sample is wanted `every` so often. Returns the exit code.
///
/// # Errors
/// Only when `err` cannot be written.
pub fn record(
    path: Option<&Path>,
    time: Option<Duration>,
    every: Option<Duration>,
    file: &Path,
    env: &Env<'_>,
    err: &mut dyn Write,
) -> io::Result<u8> {
    let asked = match ask::Running::new(path, env) {
        Ok(asked) => asked,
        Err(problems) => {
            writeln!(err, "{problems}")?;
            return Ok(EXIT_CONFIG);
        }
    };
    asked.tell(err)?;
    let config = asked.config;
    // A new one: what was recorded is not lost by a slip.
    let trace = match File::create_new(file) {
        Ok(trace) => trace,
        Err(error) => {
            writeln!(err, "edgeward: cannot record to {}: {error}; name a new file", file.display())?;
            return Ok(EXIT_FAILED);
        }
    };
    let running = match every.map_or_else(|| fetch(&config, "?begin").map(|_| true), |_| Ok(false)) {
        Ok(running) => running,
        Err(Unheard::Taken) => {
            // It is new, and empty: the next try may have its name.
            drop(std::fs::remove_file(file));
            writeln!(
                err,
                "edgeward: another `edgeward record` is running; wait for its end, or stop it, or take this process's own \
                 looks beside it: --every 1s"
            )?;
            return Ok(EXIT_FAILED);
        }
        Err(Unheard::Not(why)) => {
            writeln!(
                err,
                "edgeward: no running one is recorded: {why}\n\
                 edgeward: recording this process's own looks at memory instead, with nothing of what a running one knows"
            )?;
            false
        }
    };
    if running {
        writeln!(err, "edgeward: recording the one that runs")?;
    }
    let recorded = runtime::Builder::new_current_thread().enable_all().build().and_then(|runtime| {
        runtime.block_on(async {
            match running {
                true => fetched(&config, time, trace).await,
                false => samples(&config.memory, time, every, &mut BufWriter::new(trace)).await,
            }
        })
    });
    match recorded {
        Ok(0) => {
            writeln!(
                err,
                "edgeward: 0 samples in {}: the running one took none in this time; record for longer, and see that \
                 memory.enabled is not false",
                file.display()
            )?;
            Ok(EXIT_FAILED)
        }
        Ok(count) => {
            writeln!(err, "edgeward: {count} samples in {}", file.display())?;
            Ok(EXIT_GOOD)
        }
        Err(error) => {
            writeln!(err, "edgeward: the record in {} ends early: {error}", file.display())?;
            Ok(EXIT_FAILED)
        }
    }
}

/// Why a running one tells nothing.
enum Unheard {
    /// It tells another `edgeward record`.
    Taken,
    /// None answers, or it does not take this for an operator's question: in words.
    Not(String),
}

impl From<Unheard> for io::Error {
    fn from(unheard: Unheard) -> Self {
        io::Error::other(match unheard {
            Unheard::Taken => "another `edgeward record` has begun".to_owned(),
            Unheard::Not(why) => why,
        })
    }
}

/// What a running one has to tell since it was last asked, or since `?begin`.
fn fetch(config: &Config, query: &str) -> Result<Vec<u8>, Unheard> {
    match ask::ask(config, "POST", &format!("/edgeward/trace{query}"), "text/plain", "{}") {
        Ok(said) if said.status == 200 => Ok(said.body),
        Ok(said) if said.status == 409 => Err(Unheard::Taken),
        Ok(said) => Err(Unheard::Not(ask::refused(said.status))),
        Err(why) => Err(Unheard::Not(why)),
    }
}

/// A running one's trace. Gives how many samples there are.
async fn fetched(config: &Config, time: Option<Duration>, mut out: File) -> io::Result<u64> {
    let mut signals = [signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?];
    let [interrupt, terminate] = &mut signals;
    let end = time.and_then(|time| now().checked_add(time));
    let mut take = |query| -> io::Result<u64> {
        let lines = fetch(config, query)?;
        out.write_all(&lines)?;
        Ok(lines.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"s ")).count() as u64)
    };
    let mut count = 0;
    loop {
        let stopped = tokio::select! {
            () = tokio::time::sleep(limits::MEMORY_TAP_INTERVAL) => false,
            _ = interrupt.recv() => true,
            _ = terminate.recv() => true,
        };
        count += take("")?;
        // It looks once a second at the least: a short time has one look in it, too.
        let patience = if count == 0 { 2 * limits::MEMORY_TAP_INTERVAL } else { Duration::ZERO };
        if stopped || end.is_some_and(|end| now() >= end + patience) {
            // Another one need not wait for this one's silence.
            return Ok(count + take("?end")?);
        }
    }
}

async fn samples(
    config: &Memory,
    time: Option<Duration>,
    every: Option<Duration>,
    out: &mut dyn Write,
) -> io::Result<u64> {
    let mut signals = [signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?];
    let [interrupt, terminate] = &mut signals;
    let mut sampler = Sampler::new(config);
    let start = now();
    let end = time.and_then(|time| start.checked_add(time));
    let mut state = State::new(sampler.terms(config), start);
    let mut line = [0; limits::MEMORY_LINE_BYTES];
    let mut put = |entry: &Entry| {
        let length = recorder::write(entry, &mut line).ok_or(io::ErrorKind::WriteZero)?;
        out.write_all(line.get(..length).unwrap_or_default())?;
        // What is about to be killed for memory keeps nothing back.
        out.flush()
    };
    put(&Entry::Terms(*state.terms()))?;
    let mut count = 0;
    loop {
        let at = now();
        let sample = *sampler.read(at);
        // A replay knows whole milliseconds.
        let ms = u64::try_from(at.saturating_duration_since(start).as_millis()).unwrap_or(u64::MAX);
        let decision = step(&mut state, &sample, start + Duration::from_millis(ms));
        put(&Entry::Sample(ms, sample, decision))?;
        count += 1;
        let next = at + every.unwrap_or(Duration::from_millis(u64::from(decision.next)));
        if end.is_some_and(|end| next > end) {
            return Ok(count);
        }
        tokio::select! {
            () = tokio::time::sleep_until(next.into()) => {}
            _ = interrupt.recv() => return Ok(count),
            _ = terminate.recv() => return Ok(count),
        }
    }
}

/// Plays the trace at `file`, and prints what the watchdog makes of it. `looks`: it takes a sample only when it would
/// have looked, which tells a trace of many samples from what the watchdog had seen of it. Returns the exit code: 1 where
/// it is no trace.
///
/// # Errors
/// Only when `out` or `err` cannot be written.
pub fn replay(file: &Path, looks: bool, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<u8> {
    let trace = match File::open(file) {
        Ok(trace) => trace.take(limits::MEMORY_TRACE_BYTES),
        Err(error) => {
            writeln!(err, "edgeward: cannot read {}: {error}", file.display())?;
            return Ok(EXIT_FAILED);
        }
    };
    let mut told = Told::new(looks, now());
    for (number, line) in BufReader::new(trace).split(b'\n').enumerate() {
        let entry = line.ok().and_then(|line| recorder::read(&line));
        match entry {
            None if number == 0 => {
                writeln!(
                    err,
                    "edgeward: {} is no trace of this version: `edgeward record FILE` makes one",
                    file.display()
                )?;
                return Ok(EXIT_FAILED);
            }
            Some(entry) => told.play(&entry, out)?,
            // A box that went down leaves half a line.
            None => writeln!(out, "line {} is not a trace's, and left out", number + 1)?,
        }
    }
    told.end(out)?;
    Ok(EXIT_GOOD)
}

/// What is told of a trace.
struct Told {
    replay: Replay,
    /// When it would look next, where only that counts.
    due: Option<u64>,
    samples: u64,
    differ: u64,
    episodes: u32,
    kills: u32,
    unseen: u32,
    pressure: Pressure,
    /// When this episode became Amber, and Red.
    since: [Option<u64>; 2],
    /// Milliseconds under Amber, and under Red.
    under: [u64; 2],
    /// When its first sample was taken: a running one counts from its own start.
    begun: Option<u64>,
    /// Since then.
    at: u64,
    killed: [Option<u32>; 2],
}

/// `12.3 s`, from milliseconds.
fn seconds(ms: u64) -> String {
    format!("{}.{} s", ms / 1000, ms % 1000 / 100)
}

impl Told {
    fn new(looks: bool, start: Instant) -> Self {
        Told {
            replay: Replay::new(start),
            due: looks.then_some(0),
            samples: 0,
            differ: 0,
            episodes: 0,
            kills: 0,
            unseen: 0,
            pressure: Pressure::Green,
            since: [None; 2],
            under: [0; 2],
            begun: None,
            at: 0,
            killed: [None; 2],
        }
    }

    fn play(&mut self, entry: &Entry, out: &mut dyn Write) -> io::Result<()> {
        let Entry::Sample(elapsed, sample, recorded) = entry else {
            self.replay.play(entry);
            return Ok(());
        };
        let ms = elapsed.saturating_sub(*self.begun.get_or_insert(*elapsed));
        if self.due.is_some_and(|due| ms < due) {
            // When it was killed is known to the sample, whoever looked.
            return self.kill(ms, sample, out);
        }
        let Some(decision) = self.replay.play(entry) else { return Ok(()) };
        self.samples += 1;
        self.differ += u64::from(decision != *recorded);
        self.due = self.due.map(|_| ms.saturating_add(decision.next.into()));
        let passed = ms.saturating_sub(self.at);
        match self.pressure {
            Pressure::Green => {}
            Pressure::Amber => self.under[0] += passed,
            Pressure::Red => self.under[1] += passed,
        }
        self.at = ms;
        // A kill frees memory: what was seen before it counts.
        self.kill(ms, sample, out)?;
        self.turn(&decision, out)
    }

    fn turn(&mut self, decision: &Decision, out: &mut dyn Write) -> io::Result<()> {
        let before = std::mem::replace(&mut self.pressure, decision.pressure);
        if before == decision.pressure {
            return Ok(());
        }
        let name = match decision.pressure {
            Pressure::Green => "green",
            Pressure::Amber => "amber",
            Pressure::Red => "red",
        };
        self.episodes += u32::from(before == Pressure::Green);
        match decision.pressure {
            Pressure::Green => self.since = [None; 2],
            Pressure::Amber => self.since[0] = self.since[0].or(Some(self.at)),
            Pressure::Red => self.since = self.since.map(|since| since.or(Some(self.at))),
        }
        let why = if decision.reason == Reason::Held { "a sign is over" } else { decision.reason.in_words() };
        let (available, axis) = (decision.available / 1024, decision.axis.as_str());
        writeln!(out, "{}: {name}, {why}: {available} MiB ({axis})", seconds(self.at))
    }

    fn kill(&mut self, ms: u64, sample: &Sample, out: &mut dyn Write) -> io::Result<()> {
        // Where a cgroup is watched, others' kills are none of its.
        let group = sample.get(Field::GroupKills);
        let count = group.or_else(|| sample.get(Field::Kills));
        let before = &mut self.killed[usize::from(group.is_some())];
        let more = count.map_or(0, |count| count.wrapping_sub(before.replace(count).unwrap_or(count)));
        if more == 0 {
            return Ok(());
        }
        self.kills += more;
        let lead = |since: Option<u64>| since.map(|since| seconds(ms.saturating_sub(since)));
        let seen: Vec<String> = ["amber", "red"]
            .into_iter()
            .zip(self.since)
            .filter_map(|(name, since)| Some(format!("{name} {} before", lead(since)?)))
            .collect();
        let seen = if seen.is_empty() { "nothing was seen of it".to_owned() } else { seen.join(", ") };
        self.unseen += u32::from(self.since[0].is_none());
        writeln!(out, "{}: killed for memory; {seen}", seconds(ms))
    }

    fn end(&self, out: &mut dyn Write) -> io::Result<()> {
        let Told { samples, episodes, kills, unseen, differ, .. } = self;
        let [amber, red] = self.under.map(seconds);
        writeln!(
            out,
            "{samples} samples over {}; {episodes} episodes, amber for {amber}, red for {red}; {kills} kills, of which \
             {unseen} were not seen",
            seconds(self.at)
        )?;
        match differ {
            _ if self.due.is_some() => Ok(()),
            0 => writeln!(out, "each decision is as it was recorded"),
            _ => {
                writeln!(
                    out,
                    "{differ} decisions are not as they were recorded: another version judged then, or lines are missing"
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Board;
    use crate::memory::{Terms, board};

    fn replayed(file: &Path) -> String {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        assert_eq!(
            replay(file, false, &mut out, &mut err).unwrap(),
            EXIT_GOOD,
            "{}",
            String::from_utf8_lossy(&err)
        );
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn what_is_recorded_is_replayed() {
        let folder = std::env::temp_dir().join(format!("edgeward-trace-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (config, file) = (folder.join("edgeward.toml"), folder.join("memory.trace"));
        // Not the usual port: somebody's edgeward may run there.
        std::fs::write(&config, "listen = [\"127.0.0.1:1\"]\n").unwrap();
        let mut err = Vec::new();
        let mut record = || {
            record(Some(&config), Some(Duration::from_millis(1)), None, &file, &|_: &str| None, &mut err)
                .unwrap()
        };
        assert_eq!(record(), EXIT_GOOD);
        let said = replayed(&file);
        assert!(said.starts_with("1 samples over 0.0 s; 0 episodes"), "{said}");
        assert!(said.ends_with("each decision is as it was recorded\n"), "{said}");
        assert_eq!(record(), EXIT_FAILED, "an old one is not written over");
        let said = String::from_utf8(err).unwrap();
        assert!(said.contains("name a new file"));
        let why = said.split("no running one is recorded: ").nth(1).unwrap();
        assert!(why.starts_with("127.0.0.1:1: ") && why.contains("own looks"), "{said}");
        std::fs::remove_dir_all(folder).unwrap();
    }

    /// One that runs and gives `answer` to whatever it is asked.
    fn answering(answer: &'static str) -> std::net::SocketAddr {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for mut asked in listener.incoming().map_while(Result::ok) {
                let mut request = [0; 1024];
                let _read = asked.read(&mut request).unwrap();
                write!(asked, "HTTP/1.1 {answer}\r\ncontent-length: 0\r\n\r\n").unwrap();
            }
        });
        address
    }

    #[test]
    fn a_record_of_nothing_and_one_beside_another_are_failures() {
        let folder = std::env::temp_dir().join(format!("edgeward-no-trace-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (config, file) = (folder.join("edgeward.toml"), folder.join("memory.trace"));
        for (answer, words) in
            [("409 Conflict", "another `edgeward record` is running"), ("200 OK", "0 samples in")]
        {
            std::fs::write(&config, format!("listen = [\"{}\"]\n", answering(answer))).unwrap();
            let mut err = Vec::new();
            let time = Some(Duration::from_millis(1));
            let code = record(Some(&config), time, None, &file, &|_: &str| None, &mut err).unwrap();
            let said = String::from_utf8(err).unwrap();
            assert_eq!(code, EXIT_FAILED, "{said}");
            assert!(said.contains(words), "{said}");
        }
        std::fs::remove_dir_all(folder).unwrap();
    }

    /// What is recorded of one that has run for long counts from its first sample, and is judged by what that one knew.
    #[test]
    fn a_record_of_one_that_runs_is_as_long_as_it_took() {
        let (terms, start) = (Terms::new(&Memory::default(), board::of(Board::Generic)), now());
        let mut state = State::new(terms, start);
        let mut sample = Sample::default();
        sample.set(Field::Total, 8 << 20);
        let mut look = |state: &mut State, second: u64| {
            // It breathes, and falls in the end: slopes, what is usual and signs in a row all count.
            let fall = second.saturating_sub(1000) * 150_000;
            sample.set(Field::Available, (4_u64 << 20).saturating_sub(second % 7 * 30_000 + fall));
            let decision = step(state, &sample, start + Duration::from_secs(second));
            Entry::Sample(second * 1000, sample, decision)
        };
        (0..1000).for_each(|second| _ = look(&mut state, second));
        for begin in [1000, 1020] {
            (1000..begin).for_each(|second| _ = look(&mut state, second));
            let (mut told, mut out) = (Told::new(false, start), Vec::new());
            told.play(&Entry::Terms(terms), &mut out).unwrap();
            let mut line = [0; limits::MEMORY_LINE_BYTES];
            for (at, number) in state.known() {
                let length = recorder::write(&Entry::Known(at, number), &mut line).unwrap();
                told.play(&recorder::read(&line[..length - 1]).unwrap(), &mut out).unwrap();
            }
            for second in begin..begin + 10 {
                told.play(&look(&mut state, second), &mut out).unwrap();
            }
            told.end(&mut out).unwrap();
            let said = String::from_utf8(out).unwrap();
            assert!(said.contains("10 samples over 9.0 s; "), "{said}");
            assert!(said.ends_with("each decision is as it was recorded\n"), "{said}");
        }
    }

    #[test]
    fn a_replay_tells_alarms_leads_and_episodes() {
        let terms = Terms::new(&Memory::default(), board::of(Board::Generic));
        let mut told = Told::new(false, now());
        let mut out = Vec::new();
        let mut sample = Sample::default();
        sample.set(Field::Total, 8 << 20);
        told.play(&Entry::Terms(terms), &mut out).unwrap();
        // Wrong on purpose, so that each differs.
        let blind = step(&mut State::new(terms, now()), &Sample::default(), now());
        for tenth in 0..3000_u64 {
            // From 2 GiB, 10 MiB a second from second 100 on; killed at second 300.
            let leak = tenth.saturating_sub(1000) * 1024;
            sample.set(Field::Available, (2_u64 << 20).saturating_sub(leak));
            told.play(&Entry::Sample(tenth * 100, sample, blind), &mut out).unwrap();
        }
        sample.set(Field::Kills, 0);
        told.play(&Entry::Sample(300_000, sample, blind), &mut out).unwrap();
        sample.set(Field::Kills, 1);
        sample.set(Field::Available, 2 << 20);
        for second in 301..400 {
            told.play(&Entry::Sample(second * 1000, sample, blind), &mut out).unwrap();
        }
        told.end(&mut out).unwrap();
        let said = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = said.lines().collect();
        assert!(lines[0].contains(" s: amber, ") && lines[0].ends_with(" MiB (host)"), "{said}");
        assert!(lines[1].contains(" s: red, "), "{said}");
        assert!(lines.iter().any(|line| line.starts_with("301.0 s: killed for memory; amber ")), "{said}");
        assert!(lines.iter().any(|line| line.contains(" s: green, ")), "{said}");
        assert!(said.contains("1 episodes, amber for ") && said.contains("; 1 kills, of which 0 "), "{said}");
        assert!(said.contains("3100 decisions are not"), "{said}");
    }
}
