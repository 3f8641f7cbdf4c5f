//! What the health store has to tell, told in the journal.

use super::gateway::Gateway;
use crate::cause::Failure;
use crate::health::{Change, News};
use crate::observe::{Turned, events, health_events};

/// Tells each once.
pub fn say(gateway: &Gateway, news: &[News]) {
    for News { target, model, what } in news {
        gateway.metrics.turned(*target, turned(*what));
        let (name, model) = (gateway.name(*target), model.as_deref());
        match *what {
            Change::Opened(left, cause) => health_events::breaker_opened(name, model, left, cause),
            Change::Closed => health_events::breaker_closed(name, model),
            Change::Misconfigured(cause) => events::target_misconfigured(name, &Failure::new(cause)),
            Change::Degraded(share) => health_events::target_degraded(name, model, share),
            Change::Restored => health_events::target_restored(name, model),
            Change::Ejected(why) => health_events::target_ejected(name, model, &why.in_words()),
            Change::Readmitted => health_events::target_readmitted(name, model),
            Change::ProbeDown(cause) => health_events::probe_down(name, cause),
            Change::ProbeUp => health_events::probe_up(name),
        }
    }
}

/// Its name among what is counted.
pub const fn turned(what: Change) -> Turned {
    match what {
        Change::Opened(..) => Turned::Opened,
        Change::Closed => Turned::Closed,
        Change::Misconfigured(_) => Turned::Misconfigured,
        Change::Degraded(_) => Turned::Degraded,
        Change::Restored => Turned::Restored,
        Change::Ejected(_) => Turned::Ejected,
        Change::Readmitted => Turned::Readmitted,
        Change::ProbeDown(_) => Turned::ProbeDown,
        Change::ProbeUp => Turned::ProbeUp,
    }
}
