//! The helper beside the requests: it is listened to for as long as edgeward runs, what it hears is passed on, and
//! operators see what it sees.

use std::rc::Rc;

use serde::Serialize;

use super::deaths;
use super::gateway::Process;
use crate::limits;
use crate::memory::gpu::Sight;
use crate::memory::record::State;
use crate::observe::gpu_gauges::{GpuGauges, HelperGauges};
use crate::watch::helper::Place;

/// What the helper sees.
#[derive(Debug, Serialize)]
pub struct GpuStatus {
    /// `absent`, `starting`, `sees`, `blind` or `stale`.
    pub helper: String,
    /// Who it is and what of it, in words.
    pub detail: String,
    /// Whether the kernel's log is heard.
    pub hears_kernel: bool,
    /// How often it was started again.
    pub restarts: u32,
    /// The GPUs.
    pub gpus: Vec<OneGpu>,
}

/// One GPU.
#[derive(Debug, Serialize)]
pub struct OneGpu {
    /// Its number with the driver.
    pub gpu: u8,
    /// `up`, `asleep`, `shared` (its memory is the box's), or what is wrong with it.
    pub state: String,
    /// All its memory, in bytes.
    pub total_bytes: u64,
    /// What is free of it, in bytes.
    pub free_bytes: u64,
}

/// Listens to it for ever.
pub async fn keep_listening(process: Rc<Process>, place: Place) {
    let tell = |notice: &_, at| deaths::noticed(&process, notice, at);
    let hear = process.helper.keep_reading(place, &tell);
    tokio::select! {
        () = hear => {}
        () = keep_asking(&process) => {}
    }
}

/// Whose the sockets are of which this process may not see it, and whether the GPUs answer.
async fn keep_asking(process: &Process) {
    let helper = &process.helper;
    let mut pause = limits::HELPER_ASKED_EVERY;
    loop {
        let answer = helper.gpus(|known| {
            (known.sight() == Sight::Sees).then(|| known.gpus().iter().all(|gpu| gpu.down.is_none()))
        });
        deaths::gpu_answers(process, answer);
        let mut open = false;
        for inode in deaths::unowned(process) {
            match helper.who_has(inode).await {
                Some(owner) => deaths::owned(process, inode, owner.pid),
                None => open = true,
            }
        }
        tokio::select! {
            () = helper.changed() => {}
            () = deaths::more_unowned(process) => pause = limits::HELPER_ASKED_EVERY,
            // It walks through all of /proc for an answer: what it did not find it is asked for more and more seldom.
            () = tokio::time::sleep(pause), if open && helper.answers() => {
                pause = (pause * 2).min(limits::HELPER_PAUSE_MAX);
            }
        }
    }
}

/// How it stands; `None` where it is not asked.
#[must_use]
pub fn status(process: &Process) -> Option<GpuStatus> {
    let helper = &process.helper;
    let (sight, gpus) = helper.gpus(|known| {
        let one = |gpu: &crate::memory::gpu::Gpu| {
            let state = match (gpu.down, gpu.figures.state) {
                (Some(fault), _) => fault.as_str(),
                (None, State::Told) => "up",
                (None, State::Asleep) => "asleep",
                (None, State::Shared) => "shared",
            };
            let (total_bytes, free_bytes) = (gpu.figures.total, gpu.figures.free);
            OneGpu { gpu: gpu.device, state: state.to_owned(), total_bytes, free_bytes }
        };
        (known.sight(), known.gpus().iter().map(one).collect())
    });
    let (source, trouble) = (helper.source(), helper.trouble());
    if source.is_none() && trouble.is_none() {
        return None;
    }
    let detail = match (sight, source) {
        (Sight::Blind(why, code), _) => format!("{} (NVML {code})", why.as_str()),
        (_, Some(source)) => match helper.version() {
            Some(version) => format!("{source} {version}"),
            None => source.to_owned(),
        },
        (_, None) => trouble.unwrap_or_default(),
    };
    let (hears_kernel, restarts) = (helper.hears_kernel(), helper.restarts());
    Some(GpuStatus { helper: sight.as_str().to_owned(), detail, hears_kernel, restarts, gpus })
}

/// The same for metrics.
#[must_use]
pub fn gauges(process: &Process) -> Option<HelperGauges> {
    let status = status(process)?;
    let gauge = |gpu: &OneGpu| GpuGauges {
        gpu: gpu.gpu,
        up: matches!(gpu.state.as_str(), "up" | "asleep" | "shared"),
        memory: (gpu.state == "up").then_some((gpu.total_bytes, gpu.free_bytes)),
    };
    Some(HelperGauges {
        sees: status.helper == Sight::Sees.as_str(),
        there: process.helper.source().is_some() && status.helper != Sight::Stale.as_str(),
        hears: status.hears_kernel,
        restarts: status.restarts,
        gpus: status.gpus.iter().map(gauge).collect(),
    })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::path::Path;
    use std::time::Duration;

    use super::*;
    use crate::config;
    use crate::proxy::gateway::Gateway;
    use crate::proxy::upstream::ProxyRules;

    #[tokio::test(start_paused = true)]
    async fn where_there_is_nobody_to_ask_it_sleeps() {
        let config = config::parse("", Path::new("t"), &|_| None).unwrap().config;
        let gateway = Gateway::new(config, &ProxyRules::from_env(), None).unwrap();
        let turns = Cell::new(0);
        let mut asking = std::pin::pin!(keep_asking(&gateway.process));
        let counted = std::future::poll_fn(|cx| {
            turns.set(turns.get() + 1);
            asking.as_mut().poll(cx)
        });
        let hour = tokio::time::timeout(Duration::from_secs(3600), counted).await;
        assert!(hour.is_err() && turns.get() <= 2, "{}", turns.get());
    }
}
