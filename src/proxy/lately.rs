//! What was asked lately and what became of it: counted where requests, deaths and money are accounted for, told on
//! `status` and in the morning line.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::gateway::Gateway;
use super::since::Since;
use crate::cause::{Cause, Failure, Fault};
use crate::config::{Micros, Place};
use crate::health::{Standing, Why};
use crate::limits;
use crate::observe::history::{Away, Ended, History, Mornings, Reach, Sum};
use crate::observe::{Outcome, Shed, morning};
use crate::route::budget::in_money;
use crate::route::{Passed, Plan};
use crate::time::{Local, local_now};

/// The record, and when its line is due. One for the process.
#[derive(Debug)]
pub struct Lately {
    history: RefCell<History>,
    mornings: RefCell<Mornings>,
}

impl Lately {
    /// From `now` on. `local`: the same by the box's clock, where that can be right.
    #[must_use]
    pub fn new(now: Instant, local: Option<Local<'_>>) -> Self {
        let mut mornings = Mornings::default();
        let second = local.map_or(0, |local| {
            let _first_look = mornings.is_due(local.day(), local.minute());
            local.second()
        });
        Lately { history: RefCell::new(History::new(now, second)), mornings: RefCell::new(mornings) }
    }
}

/// A server of this box died by `cause`, or a process that it had started for a model. The one place where deaths are
/// counted.
pub(super) fn died(gateway: &Gateway, cause: Cause) {
    gateway.process.lately.history.borrow_mut().died(cause, crate::time::now());
}

/// An attempt cost so much.
pub(super) fn spent(gateway: &Gateway, cost: Micros, at: Instant) {
    gateway.process.lately.history.borrow_mut().spent(cost, at);
}

/// Tells the morning line when it is due; to be called about once a second.
pub(super) fn tick(gateway: &Gateway, at: Instant) {
    let lately = &gateway.process.lately;
    let Some(local) = local_now() else { return };
    if lately.mornings.borrow_mut().is_due(local.day(), local.minute()) {
        let sum = lately.history.borrow_mut().morning(at);
        morning::morning(&begins(&sum, Some(local)), &sum, &in_money(sum.spent));
    }
}

/// Why one request leaves the box, as far as its plan and its memory tell; its failures are added at its end.
#[derive(Debug, Default)]
pub struct Leaves {
    /// It was taken on.
    counts: bool,
    /// Nobody can serve such a request, now or later.
    impossible: bool,
    shed: Option<Shed>,
    planned: Option<(Away, Option<Cause>)>,
}

impl Leaves {
    /// It is taken on. Why a cloud stands before the box in its plan, if one does.
    pub fn planned(&mut self, gateway: &Gateway, plan: &Plan, model: &str, prompt_tokens: u64, at: Instant) {
        self.counts = true;
        let nobody = plan.candidates.is_empty() && plan.full.is_empty();
        self.impossible = nobody && plan.passed.iter().all(|(_, why)| !why.passes());
        let is_cloud = |target: usize| is_cloud(gateway, target);
        if plan.candidates.first().is_some_and(|first| !is_cloud(first.target)) {
            return;
        }
        let near = plan.candidates.iter().find(|candidate| !is_cloud(candidate.target));
        self.planned = match near {
            Some(near) => {
                match gateway.store.borrow().summary(near.target, model, prompt_tokens, at).standing {
                    Standing::Fit => None,
                    Standing::Trial(why) | Standing::Last(why) | Standing::Out(why) => Some(by_health(why)),
                }
            }
            None => plan
                .passed
                .iter()
                .filter(|(target, _)| !is_cloud(*target))
                .find_map(|(_, passed)| by_passed(*passed)),
        };
    }

    /// Its memory or its slots keep it from the box.
    pub fn shed(&mut self, shed: Shed) {
        self.shed = Some(shed);
    }

    /// The request has ended: the one place where requests are counted, each once, whatever attempts it took.
    pub fn ended(
        &self,
        gateway: &Gateway,
        committed: Option<usize>,
        failures: &[(usize, Failure)],
        outcome: Outcome,
    ) {
        // What was refused at the door was no request for an answer, unless it is we who had no room for it.
        if !self.counts && !outcome.is_trouble() {
            return;
        }
        let by_client = |cause: Cause| {
            Away::from(cause) == Away::Unfit
                || cause == Cause::ModelMissing
                || cause.fault() == Fault::Downstream
        };
        // It asks for what nobody has.
        let asked_wrongly = self.impossible
            || committed.is_none()
                && !failures.is_empty()
                && failures.iter().all(|(_, failure)| by_client(failure.cause));
        let ended = Ended {
            cloud: committed.filter(|target| is_cloud(gateway, *target)).map(|_| self.why(gateway, failures)),
            lost: outcome.is_trouble() && !asked_wrongly,
        };
        gateway.process.lately.history.borrow_mut().request(ended, crate::time::now());
    }

    /// Why a cloud answered: what failed on the box says most, then what kept the request from it.
    fn why(&self, gateway: &Gateway, failures: &[(usize, Failure)]) -> (Option<Away>, Option<Cause>) {
        let on_the_box = failures.iter().filter(|(target, _)| !is_cloud(gateway, *target));
        let mut causes = on_the_box.map(|(_, failure)| failure.cause);
        // Who left for want of memory is told by what was short.
        let said = causes.clone().find(|cause| !matches!(cause, Cause::Suspended | Cause::LowMemory));
        match (said, self.shed, self.planned) {
            (Some(cause), ..) => (None, Some(cause)),
            (None, Some(shed), _) => (Some(shed.into()), None),
            (None, None, Some((away, cause))) => (Some(away), cause),
            (None, None, None) => (None, causes.next()),
        }
    }
}

fn is_cloud(gateway: &Gateway, target: usize) -> bool {
    gateway.config.targets.get(target).is_some_and(|target| target.place == Place::Cloud)
}

/// By the health of the box.
fn by_health(why: Why) -> (Away, Option<Cause>) {
    match why {
        Why::Down(_, cause) | Why::Returning(cause) | Why::ProbeDown(cause) => (Away::Dead, Some(cause)),
        Why::Latched(_) => (Away::Dead, Some(Cause::Xid)),
        Why::Absent => (Away::Dead, None),
        Why::Open(_, cause) | Why::HalfOpen(cause) => (Away::from(cause), Some(cause)),
        Why::SlowFirstToken(_) | Why::SlowTokens(_) => (Away::Failed, None),
        Why::CoolingDown(_) => (Away::Failed, Some(Cause::RateLimited)),
        Why::RefusedKey => (Away::Failed, Some(Cause::Unauthorized)),
        Why::ModelMissing => (Away::Failed, Some(Cause::ModelMissing)),
        Why::WaitingForTime => (Away::Other, Some(Cause::Clock)),
        Why::Banned(_) | Why::PromptTooLong(..) => (Away::NoRoom, None),
        Why::PressureRed | Why::PressureAmber => (Away::Red, None),
    }
}

/// By why the box is no candidate; `None` where the configuration wants no other.
fn by_passed(passed: Passed) -> Option<(Away, Option<Cause>)> {
    match passed {
        Passed::Full => Some((Away::Busy, None)),
        Passed::Health(why) => Some(by_health(why)),
        Passed::Memory(why) => Some((super::facts::room::shed(why).into(), None)),
        Passed::Budget(..) => Some((Away::Other, None)),
        Passed::Lacks(_)
        | Passed::Urls
        | Passed::Files
        | Passed::Context(_)
        | Passed::Dialect
        | Passed::EmbeddingFamily => Some((Away::Unfit, None)),
        Passed::Group | Passed::Model | Passed::LocalOnly(_) => None,
    }
}

/// What was asked lately and what became of it, for `status`.
#[derive(Debug, Default, Serialize)]
pub struct LatelyStatus {
    /// Since when, by the box's time zone; `None` while its clock is wrong.
    pub since: Option<String>,
    /// Seconds since then.
    pub since_secs: u64,
    /// `asked`: then as asked for. Later: `start`, with the start of this process; `record`, as far back as it counts.
    pub begins: &'static str,
    /// Requests for an answer that ended.
    pub requests: u64,
    /// Of these, those that a cloud answered.
    pub cloud: u64,
    /// Why it did, and how often: `busy`, `loading`, `red`, `no_room`, `dead`, `failed`, `unfit`, `chosen`, `other`.
    pub why: BTreeMap<&'static str, u64>,
    /// By which causes, where it was by one.
    pub causes: BTreeMap<&'static str, u64>,
    /// Deaths of this box's servers, and of processes that they had started for models, by cause.
    pub deaths: BTreeMap<&'static str, u64>,
    /// Requests that got no whole answer, and not by their clients' doing.
    pub lost: u64,
    /// Money spent, in millionths of the unit that prices are in.
    pub spent_micros: u64,
    /// The same in words.
    #[serde(skip)]
    pub words: String,
}

/// What happened since then; without it over [`limits::HISTORY_SHOWN`].
///
/// # Errors
/// Why it cannot be told: that is yet to come, or no clock says when it was.
pub fn status(gateway: &Gateway, since: Option<Since>, at: Instant) -> Result<LatelyStatus, String> {
    let local = local_now();
    let ago = since.map_or(Ok(limits::HISTORY_SHOWN), |since| since.ago(local))?;
    let sum = gateway.process.lately.history.borrow().since(ago, at);
    let begins = begins(&sum, local);
    let names = |(cause, count): (Cause, u64)| (cause.as_str(), count);
    Ok(LatelyStatus {
        since: local.map(|local| local.before(sum.ago).to_string()),
        since_secs: sum.ago.as_secs(),
        begins: match sum.reach {
            Reach::Asked => "asked",
            Reach::Start => "start",
            Reach::Record => "record",
        },
        requests: sum.requests,
        cloud: sum.cloud(),
        why: sum.why().collect(),
        causes: sum.causes().map(names).collect(),
        deaths: sum.deaths().map(names).collect(),
        lost: sum.lost,
        spent_micros: sum.spent,
        words: format!("since {begins}: {}", sum.in_words(&in_money(sum.spent))),
    })
}

/// Since when, in words; completes "since …".
fn begins(sum: &Sum, local: Option<Local<'_>>) -> String {
    let when = local.map_or_else(|| minutes_ago(sum.ago), |local| local.before(sum.ago).to_string());
    match sum.reach {
        Reach::Asked => when,
        Reach::Start if local.is_some() => format!("its start at {when}"),
        Reach::Start => format!("its start {when}"),
        Reach::Record => format!("{when}, as far back as it counts"),
    }
}

fn minutes_ago(ago: Duration) -> String {
    format!("{} min ago", ago.as_secs() / 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Health;
    use crate::health::store::Store;

    #[test]
    fn what_leaves_during_a_trial_leaves_by_what_went_before_it() {
        let now = crate::time::now();
        let mut store = Store::new(&Health::default(), 1, [false]);
        let why = |store: &Store| match store.summary(0, "m", 1, now).standing {
            Standing::Trial(why) | Standing::Out(why) => Some(by_health(why)),
            Standing::Fit | Standing::Last(_) => None,
        };
        store.watch(0);
        store.died(0, Cause::Crashed, true, now);
        let _news = store.probed(0, Ok(()), now);
        assert_eq!(why(&store), Some((Away::Dead, Some(Cause::Crashed))), "it may be tried");
        let trial = store.begin(0, "m", false, now).expect("the trial");
        assert!(trial.trial);
        assert_eq!(why(&store), Some((Away::Dead, Some(Cause::Crashed))), "the trial is under way");
        // The kernel's word of it comes late.
        store.died_of(0, Cause::OomKill);
        assert_eq!(why(&store), Some((Away::Dead, Some(Cause::OomKill))));
    }
}
