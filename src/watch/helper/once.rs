//! The helper, asked once, for `edgeward boards`: what it sees by now, and whose the sockets of model servers are.

use std::cell::Cell;
use std::time::Instant;

use super::{Helper, Place};
use crate::limits;
use crate::memory::gpu::Sight;
use crate::memory::kernel::Notice;
use crate::watch::process::{Address, Found, NotFound, find};

/// The process of a target, or why it is not known; `None` where it is none of this box.
pub type Process = Option<Result<Found, NotFound>>;

/// Listens to it until it has told of the GPUs, or for [`limits::HELPER_LOOK`]. Gives the process of each of `servers`,
/// of which it is asked where this user cannot see whose it is.
pub async fn once(helper: &Helper, place: Place, servers: &[Option<Address>]) -> Vec<Process> {
    let wanted = place.is_wanted();
    let nobody = |_: &Notice, _: Instant| {};
    let look = async {
        if wanted {
            let told = async {
                while !has_told(helper) {
                    tokio::time::sleep(limits::HELPER_LOOK_STEP).await;
                }
                // The other GPUs come right behind the first.
                tokio::time::sleep(limits::HELPER_LOOK_STEP).await;
            };
            // What it has not told by then is not known.
            let _late = tokio::time::timeout(limits::HELPER_LOOK, told).await;
        }
        let mut found = Vec::with_capacity(servers.len());
        for server in servers {
            found.push(match server {
                Some(address) => Some(process(helper, address).await),
                None => None,
            });
        }
        found
    };
    tokio::select! {
        found = look => found,
        () = helper.keep_reading(place, &nobody) => Vec::new(),
    }
}

fn has_told(helper: &Helper) -> bool {
    helper.trouble().is_some() || helper.gpus(|known| matches!(known.sight(), Sight::Sees | Sight::Blind(..)))
}

async fn process(helper: &Helper, address: &Address) -> Result<Found, NotFound> {
    let unknown = Cell::new(None);
    let found = find(address, None, &|inode| {
        unknown.set(Some(inode));
        None
    });
    let known = found.as_ref().is_ok_and(|found| found.main.is_some());
    let Some(inode) = unknown.get().filter(|_| !known) else { return found };
    match helper.who_has(inode).await {
        Some(owner) => find(address, None, &|socket| (socket == inode).then_some(owner.pid)),
        None => found,
    }
}
