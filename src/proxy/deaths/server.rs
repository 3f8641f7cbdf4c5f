//! One local server: its processes, the attempts that wait for it, and of what it died.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Instant;

use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::fate::Fate;
use crate::cause::Cause;
use crate::limits;
use crate::watch::process::{Address, Found, Held, Kills, NotFound, find, is_exiting};
use crate::watch::sockets::listeners;

/// Targets at one address share it, over all reloads.
#[derive(Debug)]
pub struct Server {
    pub(super) address: Address,
    /// It starts a process for each model that it loads, as Ollama does.
    pub(super) loads: bool,
    pub(super) state: RefCell<State>,
    pub(super) fates: RefCell<Vec<Rc<Fate>>>,
    /// When it last died, and by what.
    pub(super) died: Cell<Option<(Instant, Cause)>>,
    /// When attempts that went on elsewhere were ended by TCP, since it is there.
    early: RefCell<heapless::Deque<Instant, { limits::DEATH_EARLY }>>,
    /// Whoever looks at it.
    wake: Rc<Notify>,
}

/// What is known of its processes.
#[derive(Debug, Default)]
pub(super) struct State {
    pub found: Option<Found>,
    pub why_not: Option<NotFound>,
    pub looked: Option<Instant>,
    pub watched: Vec<Watched>,
    pub kills: Option<Kills>,
    /// When the OOM killer last took something of its cgroup, and of the box.
    pub killed: (Option<Instant>, Option<Instant>),
    /// Which model each runner serves.
    pub runners: Vec<(u32, String)>,
    /// A model that has answered, and whose runner is not known.
    pub unbound: Option<String>,
    /// What a request there was last told about memory.
    pub said: Option<(Instant, Cause)>,
    /// Of what was found last, what was told.
    pub told: Option<(Option<u32>, Option<u64>)>,
}

/// A process whose end is waited for.
#[derive(Debug)]
pub(super) struct Watched {
    pub pid: u32,
    pub since: Instant,
    held: Rc<Held>,
    task: JoinHandle<()>,
}

impl Watched {
    fn new(pid: u32, held: Held, since: Instant, watch: &impl Fn(u32, Rc<Held>) -> JoinHandle<()>) -> Self {
        let held = Rc::new(held);
        let task = watch(pid, Rc::clone(&held));
        Watched { pid, since, held, task }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    pub(super) fn new(address: Address, loads: bool, wake: &Rc<Notify>) -> Rc<Self> {
        Rc::new(Server {
            address,
            loads,
            state: RefCell::default(),
            fates: RefCell::default(),
            died: Cell::default(),
            early: RefCell::default(),
            wake: Rc::clone(wake),
        })
    }

    /// Whether requests are under way there.
    pub(super) fn is_busy(&self) -> bool {
        !self.fates.borrow().is_empty()
    }

    /// When it is to be looked at next.
    pub(super) fn due(&self) -> Option<Instant> {
        let state = self.state.borrow();
        // What is not known by another's configuration or rights is looked for at leisure: it takes a walk.
        let may_come = matches!(state.why_not, None | Some(NotFound::Nobody | NotFound::Unheld));
        // What starts no process for a model has its end told all the same.
        let changes = self.loads || state.found.as_ref().is_none_or(|found| found.main.is_none());
        let returns = || {
            let since = |(at, _)| {
                state.looked.is_some_and(|now| now.saturating_duration_since(at) < limits::DEATH_REST_MAX)
            };
            state.found.is_none() && self.died.get().is_some_and(since)
        };
        let soon = may_come && ((self.is_busy() && changes) || returns());
        let pause = if soon { limits::DEATH_LOOK } else { limits::DEATH_LOOK_IDLE };
        state.looked.and_then(|at| at.checked_add(pause))
    }

    /// Looks at its processes. `watch` starts what waits for the end of one. Gives what was found, where that is news.
    pub(super) fn look(
        &self,
        owner: &dyn Fn(u64) -> Option<u32>,
        now: Instant,
        watch: &impl Fn(u32, Rc<Held>) -> JoinHandle<()>,
    ) -> Option<Found> {
        let mut state = self.state.borrow_mut();
        state.looked = Some(now);
        if state.watched.iter().any(|one| one.held.has_ended()) {
            // Whoever waits for that end has its turn first: it would be dropped with what is not found any more.
            return None;
        }
        let before = state.found.take();
        let mut found = find(&self.address, before.as_ref(), owner);
        if let Ok(one) = &found
            && one.main.is_some_and(|main| state.watched.iter().all(|watched| watched.pid != main))
        {
            let held = one.main.and_then(|main| Some((main, alive(main)?)));
            // Its number may have been another's before it was held.
            found = find(&self.address, Some(one), owner);
            match (held, &found) {
                (Some((main, held)), Ok(again)) if again.main == Some(main) => {
                    state.watched.push(Watched::new(main, held, now, watch));
                }
                _ => {
                    state.why_not = Some(NotFound::Unheld);
                    return None;
                }
            }
        }
        match found {
            // Who ends closes its socket first, and a GPU's memory may take seconds behind it; nor does an answer that the
            // kernel has no memory for end anybody. Its end is waited for.
            Err(why) if why != NotFound::Several && state.watches(before.as_ref()) => {
                state.found = before;
                None
            }
            Err(why) => {
                state.why_not = Some(why);
                state.watched.clear();
                state.runners.clear();
                None
            }
            Ok(mut found) => {
                state.watch_others(&mut found, now, watch);
                state.bind(&found.others);
                if before
                    .as_ref()
                    .is_none_or(|before| (before.main, &before.group) != (found.main, &found.group))
                {
                    state.kills = Some(Kills::new(found.main, found.group.as_deref()));
                }
                state.count_kills(now);
                let news = state.told.replace((found.main, found.socket)) != Some((found.main, found.socket));
                state.why_not = None;
                state.found = Some(found.clone());
                news.then_some(found)
            }
        }
    }

    /// Whether this process was the server: it is known to be, or with it the server's socket is gone.
    pub(super) fn was_the_server(&self, pid: u32) -> bool {
        let (main, socket) = match &self.state.borrow().found {
            Some(found) => (found.main, found.socket),
            None => return false,
        };
        match (main, socket) {
            (Some(main), _) => main == pid,
            (None, Some(socket)) => listeners(self.address.ip, self.address.port)
                .is_ok_and(|all| all.iter().all(|listener| listener.inode != socket)),
            (None, None) => false,
        }
    }

    /// TCP has ended an attempt, which goes on elsewhere: by this server's death, if that shows next.
    pub(super) fn ended_by_tcp(&self, now: Instant) {
        if self.state.borrow().found.is_none() {
            return;
        }
        let mut early = self.early.borrow_mut();
        if early.is_full() {
            early.pop_front();
        }
        // There is room by now.
        let _full = early.push_back(now);
    }

    /// It died: how many of those it were.
    pub(super) fn take_early(&self, now: Instant) -> usize {
        let mut early = self.early.borrow_mut();
        let by_it = |at: &&Instant| now.saturating_duration_since(**at) < limits::DEATH_EXPLAINS;
        let count = early.iter().filter(by_it).count();
        early.clear();
        count
    }

    /// The server's number, where it is ending or has ended, and nobody was told yet.
    pub(super) fn is_ending(&self) -> Option<u32> {
        let main = self.state.borrow().found.as_ref().and_then(|found| found.main);
        self.has_ended().or_else(|| main.filter(|main| is_exiting(*main)))
    }

    /// The server's number, where its end is there and nobody was told yet.
    pub(super) fn has_ended(&self) -> Option<u32> {
        let state = self.state.borrow();
        let main = state.found.as_ref()?.main?;
        state.watched.iter().any(|one| one.pid == main && one.held.has_ended()).then_some(main)
    }

    /// Attempts without a token fail by `cause`: all, or those for one model. Gives how many.
    pub(super) fn tell(&self, cause: Cause, model: Option<&str>) -> usize {
        let waiting: Vec<Rc<Fate>> = self.waiting(model).collect();
        waiting.iter().for_each(|fate| fate.tell(cause));
        waiting.len()
    }

    /// Those that would be told.
    pub(super) fn waiting(&self, model: Option<&str>) -> impl Iterator<Item = Rc<Fate>> {
        let fates = self.fates.borrow();
        let of =
            |fate: &&Rc<Fate>| fate.waits() && model.is_none_or(|model| fate.model == model && !fate.reloads);
        fates.iter().filter(of).cloned().collect::<Vec<_>>().into_iter()
    }

    /// A model has answered: if its runner is not known, the next look may tell.
    pub(super) fn answered(&self, model: &str) {
        let mut state = self.state.borrow_mut();
        if self.loads && state.runners.iter().all(|(_, known)| known != model) {
            state.unbound = Some(model.to_owned());
            // At once: another runner may be started in a moment.
            state.looked = None;
            self.wake.notify_one();
        }
    }
}

impl State {
    /// The end of what was found is waited for.
    fn watches(&self, found: Option<&Found>) -> bool {
        let is = |found: &Found| self.watched.iter().any(|one| found.main.is_none_or(|main| main == one.pid));
        found.is_some_and(is)
    }

    /// The socket of which only somebody with more rights can say whose it is.
    pub(super) fn unowned(&self) -> Option<u64> {
        match (&self.found, self.why_not) {
            (Some(found), _) => found.socket.filter(|_| found.main.is_none()),
            (None, Some(NotFound::Hidden(socket))) => socket,
            (None, _) => None,
        }
    }

    fn watch_others(
        &mut self,
        found: &mut Found,
        now: Instant,
        watch: &impl Fn(u32, Rc<Held>) -> JoinHandle<()>,
    ) {
        self.watched.retain(|one| found.main == Some(one.pid) || found.others.contains(&one.pid));
        for pid in found.others.iter().copied() {
            if self.watched.len() > limits::DEATH_PROCESSES {
                break;
            }
            if self.watched.iter().all(|one| one.pid != pid)
                && let Some(held) = alive(pid)
            {
                self.watched.push(Watched::new(pid, held, now, watch));
            }
        }
        // Others have ended, and nobody has waited for them yet.
        found.others.retain(|pid| self.watched.iter().any(|one| one.pid == *pid));
        self.runners.retain(|(pid, _)| found.others.contains(pid));
    }

    /// One model without a runner, and one runner without a model: they belong together.
    fn bind(&mut self, others: &[u32]) {
        let Some(model) = self.unbound.take() else { return };
        let known = |pid: &u32| self.runners.iter().any(|(known, _)| known == pid);
        let mut free = others.iter().filter(|pid| !known(pid));
        if let (Some(pid), None) = (free.next(), free.next()) {
            self.runners.push((*pid, model));
        }
    }

    /// Whether the OOM killer took something since the last look.
    pub(super) fn count_kills(&mut self, now: Instant) {
        if let Some(kills) = &mut self.kills {
            let (group, all) = kills.look();
            if group.is_some_and(|kills| kills > 0) {
                self.killed.0 = Some(now);
            }
            if all > 0 {
                self.killed.1 = Some(now);
            }
        }
    }
}

/// Held, unless it has ended.
fn alive(pid: u32) -> Option<Held> {
    Held::new(pid).ok().filter(|held| !held.has_ended())
}
