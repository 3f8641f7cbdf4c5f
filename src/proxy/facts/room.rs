//! What the memory of a local server says to one request, and what the request takes there while it is under way.

use std::rc::Rc;
use std::time::{Duration, Instant};

use super::Local;
use crate::cause::{Cause, Failure};
use crate::config::{Config, Egress, Place};
use crate::dialect::request::Call;
use crate::health::{Ended, Pressure, Standing};
use crate::memory::admit::{Admission, Asked, NoRoom, Outcome, Room, Runner, Ticket};
use crate::observe::Shed;
use crate::proxy::gateway::Gateway;
use crate::route::{self, Passed};

/// What a request wants of memory, whoever serves it.
#[derive(Clone, Debug)]
pub struct Wants {
    /// By the client's name.
    pub model: String,
    prompt: u64,
    output_max: Option<u64>,
    image: bool,
    options: Runner,
}

impl Wants {
    /// Of a call, whose answer has at most `output_max` tokens.
    #[must_use]
    pub fn of(call: &Call, output_max: Option<u64>) -> Self {
        let options = call.options;
        Wants {
            model: call.model.clone(),
            prompt: call.prompt_tokens,
            output_max,
            image: call.needs.images,
            options: Runner {
                num_ctx: options.num_ctx,
                num_batch: options.num_batch,
                num_gpu: options.num_gpu,
            },
        }
    }

    /// Of this target, by its own name for the model.
    pub(super) fn asked<'a>(&'a self, config: &'a Config, target: usize) -> Asked<'a> {
        let models = config.targets.get(target).map(|target| &target.models);
        Asked {
            model: models.and_then(|models| models.resolve(&self.model)).unwrap_or(&self.model),
            prompt: self.prompt,
            output_max: self.output_max,
            image: self.image,
            options: self.options,
        }
    }
}

/// Whether the memory of `target` has room for such a request now; `others`: as [`elsewhere`] says. A target that is not
/// local, or a box that is not watched, always has.
#[must_use]
pub fn admission(gateway: &Gateway, wants: &Wants, target: usize, others: bool, at: Instant) -> Admission {
    let Some((local, room)) = local(gateway, target).zip(space(gateway, others, at)) else {
        return Admission::Goes;
    };
    // Also for those who are sent away: they may come back as soon as it says so.
    local.used(&gateway.process.locals, at);
    local.server.borrow().ask(&wants.asked(&gateway.config, target), &room, at)
}

/// A local target, where it is watched.
pub(super) fn local(gateway: &Gateway, target: usize) -> Option<&Rc<Local>> {
    gateway.locals.get(target)?.as_ref()
}

fn space(gateway: &Gateway, elsewhere: bool, at: Instant) -> Option<Room> {
    let room = gateway.process.room.get()?;
    Some(Room { promised: gateway.process.locals.promised(room.free, at), elsewhere, ..room })
}

/// Whether somebody off this box would get such a request.
#[must_use]
pub fn elsewhere(gateway: &Gateway, call: &Call, egress: Egress, at: Instant) -> bool {
    let store = gateway.store.borrow();
    let fit = |target: usize| store.summary(target, &call.model, call.prompt_tokens, at).standing;
    gateway.config.targets.iter().enumerate().any(|(index, target)| {
        target.place != Place::Local
            && egress.allows(target.place)
            && route::wire(target.kind, call.dialect).is_some()
            && target.models.resolve(&call.model).is_some()
            && matches!(fit(index), Standing::Fit)
    })
}

/// In which time `target` would be ready for such a request, to which `admission` was said now. `None`: nothing is known.
#[must_use]
pub fn ready_in(
    gateway: &Gateway,
    wants: &Wants,
    target: usize,
    admission: Admission,
    at: Instant,
) -> Option<Duration> {
    let local = local(gateway, target)?;
    let most = gateway.config.targets.get(target).and_then(|target| target.max_concurrent);
    let queued = gateway.lanes.get(target).map_or(0, |lane| gateway.process.places.waiting(*lane));
    let ahead = u32::try_from(queued.saturating_add(local.waiting.get())).unwrap_or(u32::MAX);
    let asked = wants.asked(&gateway.config, target);
    local.server.borrow().ready_in(&asked, admission, (most, ahead), at)
}

/// Waits until the memory of `target` has room, for as long and with as many others as `[queue]` says. `None`: it has
/// not.
pub async fn wait(gateway: &Gateway, wants: &Wants, target: usize) -> Option<()> {
    let queue = &gateway.config.queue;
    let _waits = local(gateway, target)?.wait(queue.length)?;
    let room = async {
        loop {
            let changed = gateway.process.locals.changed.notified();
            match admission(gateway, wants, target, false, crate::time::now()) {
                Admission::Not(why) if route::is_short(why) => changed.await,
                _ => return,
            }
        }
    };
    tokio::time::timeout(queue.time, room).await.ok()
}

/// Why a request does not go to a local server now, for the journal and for metrics.
#[must_use]
pub fn why(admission: Admission) -> Option<(Shed, String)> {
    let why = match admission {
        Admission::Goes => return None,
        Admission::Loads(_) => return Some((Shed::Cold, "its model has to be loaded first".to_owned())),
        Admission::Not(why) => why,
    };
    Some((shed(why), format!("it {}", Passed::Memory(why).in_words())))
}

/// The same as a word of the bounded set.
#[must_use]
pub const fn shed(why: NoRoom) -> Shed {
    match why {
        NoRoom::Red => Shed::Red,
        NoRoom::NotResident => Shed::NotResident,
        NoRoom::NotSmall(_) => Shed::NotSmall,
        NoRoom::TooLarge { .. } => Shed::TooLarge,
        NoRoom::Evicts => Shed::Evicts,
        NoRoom::Loading => Shed::Loading,
        NoRoom::Busy(_) => Shed::Busy,
        NoRoom::Tokens => Shed::Tokens,
    }
}

/// How memory stands.
#[must_use]
pub fn pressure(gateway: &Gateway) -> &'static str {
    gateway.process.room.get().map_or(Pressure::Green, |room| room.pressure).as_str()
}

/// What one attempt takes of a local server's memory and slots. Given back when it is dropped, at the latest.
pub struct Held {
    gateway: Rc<Gateway>,
    local: Rc<Local>,
    ticket: Option<Ticket>,
    /// The load of its model, which it has begun.
    loads: Option<u64>,
}

/// An attempt at `target` begins. `None`: nothing is taken there.
///
/// # Errors
/// It does not: since it was planned, memory has become short.
pub fn begin(
    gateway: &Rc<Gateway>,
    wants: &Wants,
    target: usize,
    at: Instant,
) -> Result<Option<Held>, Failure> {
    let Some((local, room)) = local(gateway, target).zip(space(gateway, false, at)) else { return Ok(None) };
    let asked = wants.asked(&gateway.config, target);
    let admission = local.server.borrow().ask(&asked, &room, at);
    if let Admission::Not(why) = admission
        && route::is_short(why)
    {
        return Err(Failure::with(Cause::Suspended, &Passed::Memory(why).in_words()));
    }
    let process = &gateway.process;
    let loads = match admission {
        // What is not there it does not load.
        Admission::Loads(need) => (!local.server.borrow().lacks(asked.model, at)).then_some(need),
        // Nobody else serves it, and its server may make room.
        Admission::Not(NoRoom::TooLarge { need, .. }) => {
            (local.server.borrow().resident(asked.model, at) == Some(false)).then_some(need)
        }
        Admission::Goes | Admission::Not(_) => None,
    };
    let loads = loads.map(|need| local.load_begins(process, &asked, need, "a request", at));
    let ticket = local.server.borrow_mut().begins(&asked, at);
    let (gateway, local) = (Rc::clone(gateway), Rc::clone(local));
    Ok(Some(Held { gateway, local, ticket: Some(ticket), loads }))
}

impl Held {
    /// Whether it found no free slot, and waits at the server.
    #[must_use]
    pub fn is_queued(&self) -> bool {
        self.ticket.as_ref().is_some_and(Ticket::is_queued)
    }

    /// Its answer has begun.
    pub fn answers(&mut self, at: Instant) {
        if let Some(ticket) = &mut self.ticket {
            self.local.server.borrow_mut().answers(ticket, at);
        }
        if let Some(load) = self.loads.take() {
            let process = &self.gateway.process;
            self.local.load_over(process, Some(load), &Ok(()), at);
            self.local.ask_now(&process.locals, at);
        }
    }

    /// It is over, with what its answer says of its tokens.
    pub fn end(&mut self, outcome: &Outcome, ended: Ended, at: Instant) {
        let Some(ticket) = self.ticket.take() else { return };
        self.local.server.borrow_mut().ends(ticket, outcome, at);
        let process = &self.gateway.process;
        if let Some(load) = self.loads.take() {
            let result = match ended {
                Ended::Well => Ok(()),
                Ended::Failed(cause, _) => Err((cause.is_oom(), cause.in_words().to_owned())),
                // Ollama gives a load up whose client leaves.
                Ended::Neutral => Err((false, String::new())),
            };
            self.local.load_over(process, Some(load), &result, at);
            self.local.ask_now(&process.locals, at);
        }
        process.locals.changed();
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.end(&Outcome::default(), Ended::Neutral, crate::time::now());
    }
}
