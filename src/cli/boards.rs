//! `edgeward boards`: which board this is, what tells of its memory and of deaths, what is missing, and what to set.

use std::io::{self, Write};
use std::path::Path;

use tokio::runtime;

use super::ask::Running;
use super::{EXIT_CONFIG, EXIT_GOOD};
use crate::config::{Board, Config, Env, Memory, show_bytes};
use crate::limits::MIB;
use crate::memory::gpu::{Gpu, Sight};
use crate::memory::{Axis, Decision, Field, State, advice, board, record, step};
use crate::proxy::deaths;
use crate::proxy::pressure::told;
use crate::time::now;
use crate::watch::helper::{self, Helper, Process};
use crate::watch::process::{Found, NotFound};
use crate::watch::sampler::Sampler;
use crate::watch::{places, reach};

/// Prints what is found with the configuration at `path`. Returns the exit code.
///
/// # Errors
/// Only when `out` or `err` cannot be written.
pub fn boards(
    path: Option<&Path>,
    env: &Env<'_>,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> io::Result<u8> {
    let running = match Running::new(path, env) {
        Ok(running) => running,
        Err(problems) => {
            writeln!(err, "{problems}")?;
            return Ok(EXIT_CONFIG);
        }
    };
    running.tell(err)?;
    let config = running.config;
    let memory = &config.memory;
    let (helper, found) = asked(&config, env)?;
    let mut sampler = Sampler::new(memory);
    let (here, why) = sampler.board;
    for (name, board) in Board::ALL {
        let sign = if board == here { "*" } else { " " };
        let known = if board == here { format!("this one: {why}") } else { String::new() };
        writeln!(out, "{}", format!("{sign} {name:<12} {known}").trim_end())?;
    }
    let start = now();
    let mut state = State::new(sampler.terms(memory), start);
    sampler.device(helper.memory());
    let sample = *sampler.read(start);
    let decision = step(&mut state, &sample, start);
    if memory.enabled {
        writeln!(out, "memory: {}", told(&decision).in_words())?;
    } else {
        writeln!(out, "memory is not watched: `enabled = false` in [memory]")?;
    }
    let profile = board::of(here).with(memory);
    writeln!(out, "{}", judged(here, memory, &profile, &decision))?;
    writeln!(out, "sources:")?;
    for report in sampler.report() {
        let path = report.path.display();
        match report.state {
            Ok((age, cost)) => {
                let (age, cost) = (age.as_millis(), cost.as_micros());
                writeln!(out, "  + {path}: {age} ms old, {cost} µs each time")?;
            }
            Err((why, remedy)) => writeln!(out, "  - {path}: {why}; {remedy}")?,
        }
    }
    gpus(&helper, out)?;
    if sample.axis(Axis::Device, false).is_none() && !profile.shared && here != Board::Generic {
        writeln!(out, "  - the card's own memory: no file tells it, and no helper")?;
    }
    if sample.axis(Axis::Group, false).is_none() {
        writeln!(
            out,
            "  - a cgroup's limit: none is met here; if the model server has one, name it: `cgroup` in [memory]"
        )?;
    }
    let whose = if reach::is_root() {
        "root; the service sees less: sudo -u edgeward edgeward boards"
    } else {
        "this user"
    };
    writeln!(out, "a model server's death, as seen by {whose}:")?;
    for way in reach::ways(&helper, env) {
        match way.state {
            Ok(how) => writeln!(out, "  + {}: {how}", way.what)?,
            Err((why, remedy)) => writeln!(out, "  - {}: {why}; {remedy}", way.what)?,
        }
    }
    // Without a configuration these are places where one may be.
    let is_told = |found: &Process| path.is_some() || !matches!(found, Some(Err(NotFound::Nobody)));
    for (target, found) in config.targets.iter().zip(&found).filter(|(_, found)| is_told(found)) {
        server(&target.name, found, out)?;
    }
    let (servers, total) = (reach::servers(&config), sample.get(Field::Total).unwrap_or(0));
    writeln!(out, "advice:")?;
    reach::seen(Path::new(places::ROOT), here, profile.shared, total, &servers, |seen| {
        advice::on(seen).try_for_each(|advice| writeln!(out, "  {advice}"))
    })?;
    if servers.is_empty() {
        writeln!(out, "  no local model server accepts connections now; with one running there may be more")?;
    }
    Ok(EXIT_GOOD)
}

/// What the helper says within a moment, and the process of each target, where it is one of this box.
fn asked(config: &Config, env: &Env<'_>) -> io::Result<(Helper, Vec<Process>)> {
    let (helper, servers) =
        (Helper::default(), config.targets.iter().map(deaths::address).collect::<Vec<_>>());
    // Where systemd does not have its socket none is started: it would see what this user may see, not the service.
    let place = helper::Place::from_env(env, true);
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let found = runtime.block_on(helper::once(&helper, place, &servers));
    Ok((helper, found))
}

/// What the helper tells of the GPUs; nothing where there is none.
fn gpus(helper: &Helper, out: &mut dyn Write) -> io::Result<()> {
    let mib = |bytes: u64| bytes >> 20;
    let one = |gpu: &Gpu| match (gpu.down, gpu.figures.state) {
        (Some(fault), _) => format!("  - GPU {}: {}", gpu.device, fault.as_str()),
        (None, record::State::Told) => {
            let (free, total) = (mib(gpu.figures.free), mib(gpu.figures.total));
            format!("  + GPU {}: {free} MiB of {total} MiB free, by the helper", gpu.device)
        }
        (None, record::State::Asleep) => {
            format!("  + GPU {}: asleep; it is not woken to be asked", gpu.device)
        }
        (None, record::State::Shared) => format!("  + GPU {}: its memory is the box's", gpu.device),
    };
    let (sight, blind, all) =
        helper.gpus(|known| (known.sight(), known.blind(), known.gpus().iter().map(one).collect::<Vec<_>>()));
    match (sight, blind) {
        (Sight::Sees, _) => all.iter().try_for_each(|line| writeln!(out, "{line}")),
        (_, Some((why, code))) => {
            writeln!(out, "  - GPUs, by the helper: {} (NVML {code}); {}", why.as_str(), helper::remedy(why))
        }
        (Sight::Starting | Sight::Stale, None) => {
            writeln!(
                out,
                "  - GPUs, by the helper: nothing so far; look whether nvidia-smi answers, and try again"
            )
        }
        (Sight::Absent | Sight::Blind(..), None) => Ok(()),
    }
}

/// The process behind a target: as edgeward watches it.
fn server(name: &str, found: &Process, out: &mut dyn Write) -> io::Result<()> {
    match found {
        None => Ok(()),
        Some(Ok(Found { how, main: Some(pid), others, .. })) => {
            writeln!(out, "  + {name}'s process: {pid}, by {how}; {} more with it", others.len())
        }
        Some(Ok(Found { how, others, .. })) => {
            let count = others.len();
            writeln!(
                out,
                "  + {name}'s process: one of {count}, by {how}; a helper with its capabilities knows which"
            )
        }
        Some(Err(why)) => {
            let (why, remedy) = why.in_words();
            writeln!(out, "  - {name}'s process: {why}; {remedy}")
        }
    }
}

/// By which values memory is judged, and which of them the configuration says.
fn judged(board: Board, memory: &Memory, profile: &board::Profile, decision: &Decision) -> String {
    let Memory { gpu_shared, huge_pages, fill_per_second, floor, .. } = memory;
    let own = |set: bool| if set { " (configured)" } else { "" };
    let gpu = if profile.shared { "shared" } else { "own" };
    let fill = usize::try_from(profile.fill_mib_per_second).unwrap_or(usize::MAX).saturating_mul(MIB);
    format!(
        "judged by {}, where `[memory]` says nothing else: the GPU's memory is {gpu}{}, huge pages {}{}, low below {} MiB{}, \
         filled by {} a second at most{}",
        board.as_str(),
        own(gpu_shared.is_some()),
        if profile.huge_pages { "are the GPU's" } else { "count for nothing" },
        own(huge_pages.is_some()),
        decision.floor / 1024,
        own(floor.is_some()),
        show_bytes(fill),
        own(fill_per_second.is_some()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> String {
        let folder = std::env::temp_dir().join(format!("edgeward-boards-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("edgeward.toml");
        std::fs::write(&path, text).unwrap();
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let helper =
            |name: &str| (name == "EDGEWARD_NVML_SOCKET").then(|| "/nonexistent/nvml.sock".to_owned());
        assert_eq!(boards(Some(&path), &helper, &mut out, &mut err).unwrap(), EXIT_GOOD);
        std::fs::remove_dir_all(folder).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn each_way_is_told_with_what_helps() {
        let told = said(
            "[memory]\nboard = \"dgx-spark\"\nfloor = \"1GiB\"\nfill_per_second = \"3GiB\"\ncgroup = \"/nonexistent\"\n\
             [[target]]\nname = \"box\"\nkind = \"vllm\"\nurl = \"http://127.0.0.1:1\"\n",
        );
        assert!(!told.contains("GPU 0"), "{told}");
        for line in [
            "* dgx-spark    this one: the configuration says so",
            "  + /proc/meminfo: ",
            "  - /nonexistent/memory.max: ",
            "does memory.cgroup name its cgroup",
            "low below 1024 MiB (configured), filled by 3GiB a second at most (configured)",
            "the GPU's memory is shared, huge pages are the GPU's",
            "  - the helper, edgeward-nvml: No such file",
            "systemctl enable --now edgeward-nvml.socket",
            "the end of a process: ",
            "who serves a port: ",
            "  - box's process: nobody listens there; start it",
            "advice:\n",
        ] {
            assert!(told.contains(line), "{line}\n{told}");
        }
    }
}
