//! What the journal says of a death, a moment after it: the kernel's word comes late.

use std::rc::Rc;
use std::time::Duration;

use super::{Server, both, evidence, targets};
use crate::cause::Cause;
use crate::limits;
use crate::observe::death_events;
use crate::proxy::current::Current;
use crate::proxy::lately;
use crate::time::now;

/// What is known of a death when it is told.
pub(super) struct Told {
    pub(super) pid: u32,
    pub(super) exit: String,
    pub(super) after: Duration,
    pub(super) failed_over: usize,
    pub(super) rest: Duration,
}

/// Tells of a death once late evidence may be there.
pub(super) async fn tell_late(
    current: Rc<Current>,
    server: Rc<Server>,
    told: Told,
    before: (Cause, Option<u16>),
) {
    tokio::time::sleep(limits::DEATH_LATE).await;
    let gateway = current.get();
    let (evidence, xid) = evidence(&gateway.process, &server, told.pid, now());
    let (mut cause, mut code) = before;
    // Nothing known is no better than something.
    if cause == Cause::Crashed && evidence.cause() != cause {
        (cause, code) = (evidence.cause(), xid);
        server.died.set(server.died.get().map(|(at, _)| (at, cause)));
        for gateway in both(&current) {
            let all = targets(&gateway, &server);
            all.iter().for_each(|target| gateway.store.borrow_mut().died_of(*target, cause));
        }
    }
    lately::died(&gateway, cause);
    for target in targets(&gateway, &server) {
        death_events::server_died(&death_events::Death {
            target: gateway.name(target),
            pid: told.pid,
            cause,
            xid: code,
            exit: &told.exit,
            after: told.after,
            failed_over: told.failed_over,
            rest: told.rest,
            advice: gateway.advice(target, cause),
        });
    }
}
