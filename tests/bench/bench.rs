//! edgeward against nginx and HAProxy as plain proxies: same upstream, same run. `tests/bench/run` starts it.

use std::io;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Instant;

mod client;
mod phases;
mod proxies;
mod report;
mod upstream;

use proxies::{Setup, Via};

const HELP: &str = "\
tests/bench/run [--quick] [--rounds N] [--only LIST] [--phases LIST] [--no-pin]

  --quick        a tenth of everything: shows that it works, not how well
  --rounds N     interleaved rounds of each comparison (default 10)
  --only LIST    of nginx,haproxy,edgeward (default all; direct is always there)
  --phases LIST  of latency,memory,flat,failover,start (default all)
  --no-pin       do not give the proxies the last CPU to themselves

EDGEWARD_BIN names the program to measure; else it is target/release/edgeward.
EDGEWARD_LOG is passed on to it; its log lines go to a file.
";

/// What to do, from the command line.
pub struct Plan {
    /// Interleaved rounds.
    pub rounds: usize,
    /// Every count is divided by this.
    pub divide: usize,
    /// What is compared; `Via::Direct` comes first.
    pub vias: Vec<Via>,
    phases: Vec<String>,
    pin: bool,
}

/// The bench's clock.
#[expect(clippy::disallowed_methods, reason = "a program of its own, which measures with the real clock")]
pub fn now() -> Instant {
    Instant::now()
}

/// Where `needle` begins.
pub fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    memchr::memmem::find(haystack, needle)
}

fn main() -> ExitCode {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let done = match args.first().map(String::as_str) {
        Some("upstream") => upstream::serve(),
        // cargo bench says so; `cargo test --all-targets` does not, and must not run this.
        Some(_) if args.iter().any(|arg| arg == "--bench") => {
            args.retain(|arg| arg != "--bench");
            match parse(args) {
                Ok(Some(plan)) => bench(&plan),
                Ok(None) => {
                    print!("{HELP}");
                    Ok(())
                }
                Err(mistake) => {
                    eprintln!("{mistake}\n\n{HELP}");
                    return ExitCode::from(2);
                }
            }
        }
        _ => {
            println!("not run: this is a bench, started by tests/bench/run");
            Ok(())
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn parse(args: Vec<String>) -> Result<Option<Plan>, lexopt::Error> {
    use lexopt::prelude::*;
    let mut plan = Plan {
        rounds: 10,
        divide: 1,
        vias: Via::ALL.to_vec(),
        phases: ["latency", "memory", "flat", "failover", "start"].map(str::to_owned).to_vec(),
        pin: true,
    };
    let mut parser = lexopt::Parser::from_args(args);
    while let Some(arg) = parser.next()? {
        match arg {
            Long("quick") => {
                plan.divide = 10;
                plan.rounds = plan.rounds.min(3);
            }
            Long("rounds") => plan.rounds = parser.value()?.parse::<usize>()?.max(1),
            Long("only") => {
                let list = parser.value()?.string()?;
                let names: Vec<&str> = list.split(',').collect();
                if let Some(name) = names.iter().find(|&&name| Via::ALL.iter().all(|via| via.name() != name))
                {
                    return Err(format!("--only: no {name:?} here").into());
                }
                plan.vias.retain(|via| *via == Via::Direct || names.contains(&via.name()));
            }
            Long("phases") => {
                plan.phases = parser.value()?.string()?.split(',').map(str::to_owned).collect();
            }
            Long("no-pin") => plan.pin = false,
            Short('h') | Long("help") => return Ok(None),
            _ => return Err(arg.unexpected()),
        }
    }
    Ok(Some(plan))
}

fn bench(plan: &Plan) -> io::Result<()> {
    let cpu = pin(plan)?;
    let dir = std::env::temp_dir().join(format!("edgeward-bench-{}", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    let upstream = Upstream::start()?;
    let setup = Setup { dir: dir.clone(), upstream: upstream.addrs, edgeward: edgeward()?, cpu };
    if plan.vias.contains(&Via::Edgeward) && !setup.edgeward.exists() {
        let path = setup.edgeward.display();
        return Err(io::Error::other(format!(
            "no {path}: build it (cargo build --release --no-default-features) or set EDGEWARD_BIN"
        )));
    }
    report::machine(&setup, plan);
    let wanted = |phase: &str| plan.phases.iter().any(|name| name == phase);
    let mut goals = Vec::new();
    if wanted("start") {
        goals.extend(phases::start(&setup, plan)?);
    }
    if wanted("memory") {
        goals.extend(phases::memory(&setup, plan)?);
    }
    if wanted("latency") {
        goals.extend(phases::latency(&setup, plan)?);
    }
    if wanted("failover") && plan.vias.contains(&Via::Edgeward) {
        goals.extend(phases::failover(&setup, plan)?);
    }
    if wanted("flat") {
        goals.extend(phases::flat(&setup, plan)?);
    }
    report::goals(&goals);
    drop(upstream);
    // Kept after an error, for its logs.
    std::fs::remove_dir_all(&dir)
}

fn edgeward() -> io::Result<PathBuf> {
    let named = std::env::var_os("EDGEWARD_BIN").map(PathBuf::from);
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/release/edgeward");
    std::path::absolute(named.unwrap_or(built))
}

/// Starts this program again on all CPUs but the last, which is the proxies'; gives that CPU.
fn pin(plan: &Plan) -> io::Result<Option<usize>> {
    const PINNED: &str = "EDGEWARD_BENCH_CPU";
    if let Some(cpu) = std::env::var(PINNED).ok().and_then(|cpu| cpu.parse().ok()) {
        return Ok(Some(cpu));
    }
    let cpus = std::thread::available_parallelism()?.get();
    if !plan.pin || cpus < 2 {
        return Ok(None);
    }
    let error = Command::new("taskset")
        .args(["-c", &format!("0-{}", cpus - 2)])
        .arg(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .env(PINNED, (cpus - 1).to_string())
        .exec();
    eprintln!("not pinned: taskset: {error}");
    Ok(None)
}

/// The upstream, a process of its own.
struct Upstream {
    child: Child,
    addrs: [SocketAddr; 2],
}

impl Upstream {
    fn start() -> io::Result<Self> {
        let mut child =
            Command::new(std::env::current_exe()?).arg("upstream").stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        if let Some(out) = child.stdout.take() {
            BufReader::new(out).read_line(&mut line)?;
        }
        let ports: Vec<u16> = line.split_whitespace().filter_map(|port| port.parse().ok()).collect();
        let &[first, second] = ports.as_slice() else {
            return Err(io::Error::other(format!("the upstream said {line:?}")));
        };
        let addr = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        Ok(Upstream { child, addrs: [addr(first), addr(second)] })
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        proxies::stop(&mut self.child);
    }
}
