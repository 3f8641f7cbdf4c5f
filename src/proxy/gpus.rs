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
    loop {
        tokio::time::sleep(limits::HELPER_ASKED_EVERY).await;
        let states = process.helper.gpus(|known| {
            (known.sight() == Sight::Sees).then(|| known.gpus().iter().all(|gpu| gpu.down.is_none()))
        });
        if let Some(answers) = states {
            deaths::gpu_answers(process, answers);
        }
        for inode in deaths::unowned(process) {
            if let Some(owner) = process.helper.who_has(inode).await {
                deaths::owned(process, inode, owner.pid);
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
