//! GPUs that have failed: what is on this box is left alone until they were reset.

use super::both;
use crate::cause::Cause;
use crate::config::Place;
use crate::observe::{Turned, death_events};
use crate::proxy::current::Current;
use crate::proxy::gateway::{Gateway, Process};

/// What is known of this box's GPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Gpu {
    /// One is lost, or needs a reset, as the driver says.
    down: bool,
    /// One has failed by an Xid.
    failed: bool,
    /// Since then the driver was not asked for a time: it was let go of, as a reset needs, or it hung.
    unasked: bool,
    /// All answer again, and nobody has acted upon it.
    back: bool,
}

/// The GPUs answer their driver, or one does not: it is lost, or needs a reset. `None`: the driver is not asked.
pub fn gpu_answers(process: &Process, answers: Option<bool>) {
    let before = process.deaths.gpu.get();
    let gpu = match answers {
        None => Gpu { unasked: before.unasked || before.failed, ..before },
        Some(false) => Gpu { down: true, back: false, ..before },
        // An Xid alone does not keep a GPU from answering; answering again is what shows a reset.
        Some(true) if before.down || before.unasked => {
            Gpu { down: false, unasked: false, back: true, ..before }
        }
        Some(true) => before,
    };
    if gpu != before {
        process.deaths.gpu.set(gpu);
        process.deaths.wake.notify_one();
    }
}

/// Acts upon what the kernel and the driver have said of the GPU.
pub(super) fn act(current: &Current, gateway: &Gateway) {
    let deaths = &gateway.process.deaths;
    let xids = std::mem::take(&mut *deaths.xids.borrow_mut());
    let gpu = deaths.gpu.get();
    // A configuration that came since knows nothing of one that is still down.
    let fault = xids.first().map(|code| Some(*code)).or(gpu.down.then_some(None));
    let up = gpu.back && fault.is_none();
    deaths.gpu.set(Gpu { failed: (gpu.failed || !xids.is_empty()) && !up, back: false, ..gpu });
    if fault.is_none() && !up {
        return;
    }
    for (n, gateway) in both(current).into_iter().enumerate() {
        for (target, config) in gateway.config.targets.iter().enumerate() {
            if config.place != Place::Local {
                continue;
            }
            let mut store = gateway.store.borrow_mut();
            if let Some(xid) = fault
                && store.latch(target, xid)
                && n == 0
            {
                gateway.metrics.turned(target, Turned::Latched);
                death_events::latched(&config.name, xid, gateway.advice(target, Cause::Xid));
            } else if up && store.unlatch(target) && n == 0 {
                death_events::unlatched(&config.name);
            }
        }
        gateway.process.locals.changed();
    }
}
