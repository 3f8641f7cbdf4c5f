//! What the health store has to tell, told in the journal.

use super::gateway::Gateway;
use crate::cause::Failure;
use crate::health::{Change, News};
use crate::observe::{events, health_events};

/// Tells each once.
pub fn say(gateway: &Gateway, news: &[News]) {
    for News { target, model, what } in news {
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
