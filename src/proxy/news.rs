//! What the health store has to tell, told in the journal.

use super::gateway::Gateway;
use crate::cause::{Cause, Failure};
use crate::health::{Change, News, Restricted};
use crate::limits;
use crate::observe::{Turned, death_events, events, health_events};

/// Tells each once, and those who wait for a target.
pub fn say(gateway: &Gateway, news: &[News]) {
    if !news.is_empty() {
        gateway.process.locals.changed();
    }
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
            Change::Hangs => death_events::server_hangs(name, gateway.advice(*target, Cause::Hang)),
            Change::Back => death_events::server_back(name),
            Change::Strained(to) => {
                let most = match to {
                    Restricted::To(tokens) => Some(tokens),
                    Restricted::Banned => None,
                };
                let advice = gateway.advice(*target, Cause::OomKill);
                death_events::model_banned(name, model, most, limits::STRAIN_BAN, advice);
            }
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
        Change::Hangs => Turned::Hangs,
        Change::Back => Turned::Back,
        Change::Strained(_) => Turned::Banned,
    }
}
