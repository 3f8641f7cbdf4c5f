//! A model server's death: who is told of it, and what becomes of the attempts at it.
//!
//! The process behind each target of this box is held by a pidfd. When it ends, the store is told, then each attempt that
//! has no token yet, in the same turn of the loop; the journal comes after, once late evidence may be there.

mod fate;
mod gpu;
mod late;
mod server;

use std::cell::{Cell, RefCell};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::rc::Rc;
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::sync::Notify;

pub use fate::{Bound, Fate};
pub use gpu::gpu_answers;
pub use server::Server;

use gpu::{Gpu, act};
use late::{Told, tell_late};

use super::current::Current;
use super::discovery;
use super::facts;
use super::gateway::{Gateway, Process};
use super::lately;
use crate::cause::{Cause, Failure};
use crate::config::{Config, Kind, Place, Target, TargetUrl};
use crate::health::death::{self, Evidence};
use crate::health::{Pressure, probe};
use crate::limits;
use crate::memory::kernel::Notice;
use crate::observe::{Turned, death_events};
use crate::task;
use crate::time::now;
use crate::watch::process::{Address, Found, Held, exit};

/// What outlives a reload of it.
#[derive(Debug, Default)]
pub struct Deaths {
    servers: RefCell<Vec<Rc<Server>>>,
    notices: RefCell<heapless::Deque<(Notice, Instant), { limits::DEATH_NOTICES }>>,
    /// Xids that nobody has acted upon.
    xids: RefCell<heapless::Vec<u16, { limits::DEATH_NOTICES }>>,
    gpu: Cell<Gpu>,
    /// Who has which socket, as told by who may see it.
    owners: RefCell<heapless::Deque<(u64, u32), { limits::DEATH_PROCESSES }>>,
    wake: Rc<Notify>,
    /// There is a socket whose owner is not known.
    asks: Notify,
}

/// The process behind a target, for `status`.
#[derive(Debug, Serialize)]
pub struct ProcessStatus {
    /// Its number, where it is known for certain.
    pub pid: Option<u32>,
    /// Seconds since it was found.
    pub since_secs: Option<u64>,
    /// By what it was found; or why it was not, and what helps.
    pub found: String,
    /// Processes that it has started, or that it may be one of.
    pub others: usize,
    /// What they hold of the GPUs' memory, in bytes, where the driver says.
    pub gpu_bytes: Option<u64>,
}

impl Deaths {
    /// The server of each target of `config`, where it is one that can be watched.
    #[must_use]
    pub fn servers(&self, config: &Config) -> Vec<Option<Rc<Server>>> {
        let mut known = self.servers.borrow_mut();
        // Those that a configuration in use has are held by it.
        known.retain(|server| Rc::strong_count(server) > 1);
        let mut server = |target: &Target| {
            let address = address(target)?;
            let loads = target.kind == Kind::Ollama;
            let same = known.iter().find(|known| known.address == address && known.loads == loads);
            Some(same.cloned().unwrap_or_else(|| {
                let new = Server::new(address, loads, &self.wake);
                known.push(Rc::clone(&new));
                new
            }))
        };
        config.targets.iter().map(&mut server).collect()
    }

    fn recent(&self, now: Instant, is: impl Fn(&Notice) -> bool) -> Option<Notice> {
        let notices = self.notices.borrow();
        let young = |at: Instant| now.saturating_duration_since(at) < limits::DEATH_EVIDENCE;
        notices.iter().rev().find(|(notice, at)| young(*at) && is(notice)).map(|(notice, _)| notice.clone())
    }

    fn owner(&self, inode: u64) -> Option<u32> {
        self.owners.borrow().iter().rev().find(|(known, _)| *known == inode).map(|(_, pid)| *pid)
    }
}

/// The kernel has said something, by way of the helper or of its own log.
pub fn noticed(process: &Process, notice: &Notice, now: Instant) {
    let deaths = &process.deaths;
    let mut notices = deaths.notices.borrow_mut();
    if notices.is_full() {
        notices.pop_front();
    }
    // There is room by now.
    let _full = notices.push_back((notice.clone(), now));
    if let Notice::Xid { code, .. } = notice
        && death::latches(*code)
    {
        // More at once say nothing new.
        let _full = deaths.xids.borrow_mut().push(*code);
        deaths.wake.notify_one();
    }
}

/// A server was found: its process is looked for at once.
pub fn look_now(process: &Process) {
    process.deaths.wake.notify_one();
}

/// Sockets, by their numbers, of which only somebody with more rights can say whose they are.
#[must_use]
pub fn unowned(process: &Process) -> Vec<u64> {
    process.deaths.servers.borrow().iter().filter_map(|server| server.state.borrow().unowned()).collect()
}

/// Resolves when there is one more of them.
pub async fn more_unowned(process: &Process) {
    process.deaths.asks.notified().await;
}

/// Somebody with more rights says whose socket this is.
pub fn owned(process: &Process, inode: u64, pid: u32) {
    let deaths = &process.deaths;
    let mut owners = deaths.owners.borrow_mut();
    if owners.is_full() {
        owners.pop_front();
    }
    // There is room by now.
    let _full = owners.push_back((inode, pid));
    deaths.servers.borrow().iter().for_each(|server| server.state.borrow_mut().looked = None);
    deaths.wake.notify_one();
}

/// An attempt at `target` begins. `reloads`: it may have Ollama start its model anew.
#[must_use]
pub fn begins(gateway: &Gateway, target: usize, model: &str, reloads: bool, now: Instant) -> Option<Bound> {
    let server = gateway.servers.get(target)?.as_ref()?;
    let known = gateway.config.targets.get(target).and_then(|target| target.models.resolve(model));
    let bound = Bound::new(server, Fate::new(known.unwrap_or(model), reloads));
    if server.due().is_none_or(|due| due <= now) {
        gateway.process.deaths.wake.notify_one();
    }
    Some(bound)
}

/// What an attempt's failure really is, where the server behind `target` has just died or the kernel has said more. Gives
/// what counts against its model: one that was not even connected has run nobody out of memory.
pub fn explain(gateway: &Gateway, target: usize, failure: &mut Failure, now: Instant) -> Cause {
    let before = failure.cause;
    explained(gateway, target, failure, now);
    if before == Cause::Refused { before } else { failure.cause }
}

/// The same for an attempt that goes on elsewhere. `first`: its request has had no other one at `target`.
pub fn goes_on(gateway: &Gateway, target: usize, failure: &mut Failure, first: bool, now: Instant) -> Cause {
    let by_tcp = failure.cause != Cause::Crashed && is_an_end(failure.cause);
    if let Some(server) = gateway.servers.get(target).and_then(Option::as_ref).filter(|_| by_tcp && first) {
        server.ended_by_tcp(now);
    }
    explain(gateway, target, failure, now)
}

/// What a failure at `target` is called by now: that its server has died may have become known since it failed `at` that
/// time, or of what.
#[must_use]
pub fn called(gateway: &Gateway, target: usize, cause: Cause, at: Instant) -> Cause {
    let server = gateway.servers.get(target).and_then(Option::as_ref).filter(|_| is_an_end(cause));
    let apart = |died: Instant| died.saturating_duration_since(at).max(at.saturating_duration_since(died));
    match server.and_then(|server| server.died.get()) {
        Some((died, of)) if apart(died) < limits::DEATH_EXPLAINS => of,
        _ => cause,
    }
}

/// What an attempt shows of its server's end.
const fn is_an_end(cause: Cause) -> bool {
    matches!(cause, Cause::Refused | Cause::Reset | Cause::Closed | Cause::Truncated | Cause::Crashed)
}

fn explained(gateway: &Gateway, target: usize, failure: &mut Failure, now: Instant) {
    let Some(server) = gateway.servers.get(target).and_then(Option::as_ref) else { return };
    let process = &gateway.process;
    let by_its_end = is_an_end(failure.cause);
    if failure.cause.is_oom() {
        server.state.borrow_mut().said = Some((now, failure.cause));
    }
    let died =
        server.died.get().filter(|(at, _)| now.saturating_duration_since(*at) < limits::DEATH_EXPLAINS);
    if by_its_end && let Some((_, cause)) = died {
        failure.cause = cause;
    } else if by_its_end && let Some(pid) = server.is_ending() {
        // TCP was first in this turn of the loop.
        failure.cause = evidence(process, server, pid, now).0.cause();
    } else if matches!(failure.cause, Cause::Oom | Cause::CudaOom | Cause::Crashed | Cause::Http5xx)
        && process.deaths.recent(now, |notice| matches!(notice, Notice::NvMap(_))).is_some()
        && is_memory_fine(process)
    {
        failure.cause = Cause::LoadRefused;
    }
}

/// What `status` says of the process behind `target`.
#[must_use]
pub fn status(gateway: &Gateway, target: usize, now: Instant) -> Option<ProcessStatus> {
    let server = gateway.servers.get(target)?.as_ref()?;
    let state = server.state.borrow();
    let Some(found) = &state.found else {
        let found = state.why_not.map_or_else(
            || "not looked for yet".to_owned(),
            |why| {
                let (why, remedy) = why.in_words();
                format!("{why}; {remedy}")
            },
        );
        return Some(ProcessStatus { pid: None, since_secs: None, found, others: 0, gpu_bytes: None });
    };
    let since = state.watched.iter().find(|one| found.main.is_none_or(|main| main == one.pid));
    let since = since.map(|one| now.saturating_duration_since(one.since).as_secs());
    let found_by = match found.main {
        Some(_) => found.how.to_owned(),
        None => format!("{}, one of its processes; edgeward-nvml would tell which", found.how),
    };
    let held = state.watched.iter().filter_map(|one| gateway.process.helper.held_by(one.pid));
    Some(ProcessStatus {
        pid: found.main,
        since_secs: since,
        found: found_by,
        others: found.others.len(),
        gpu_bytes: held.map(|kib| u64::from(kib) * 1024).reduce(u64::saturating_add),
    })
}

/// Watches for as long as edgeward runs.
pub async fn keep_watching(current: Rc<Current>) {
    loop {
        let gateway = current.get();
        let at = now();
        let mut servers = gateway.process.deaths.servers.borrow().clone();
        // What listens on a usual port is nobody's server until it has said that it is one.
        servers.retain(|server| !is_unfound(&gateway, server));
        for server in &servers {
            if server.due().is_none_or(|due| due <= at) {
                look(&current, &gateway, server, at);
            }
        }
        act(&current, &gateway);
        let due = servers.iter().filter_map(|server| server.due()).min();
        let next = due.unwrap_or(at + limits::DEATH_LOOK_IDLE);
        let process = Rc::clone(&gateway.process);
        drop((servers, gateway));
        tokio::select! {
            () = process.deaths.wake.notified() => {}
            () = tokio::time::sleep_until(next.into()) => {}
        }
    }
}

fn look(current: &Rc<Current>, gateway: &Rc<Gateway>, server: &Rc<Server>, at: Instant) {
    let watch = |pid: u32, held: Rc<Held>| {
        let (current, server) = (Rc::clone(current), Rc::downgrade(server));
        task::start(async move {
            held.ended().await;
            if let Some(server) = server.upgrade() {
                ended(&current, &server, pid);
            }
        })
    };
    let deaths = &gateway.process.deaths;
    let unowned = server.state.borrow().unowned();
    if let Some(Found { how, main, others, .. }) = server.look(&|inode| deaths.owner(inode), at, &watch) {
        for target in targets(gateway, server) {
            death_events::server_found(gateway.name(target), main, others.len(), how);
        }
        if server.died.get().is_some() {
            ask_if_it_is_back(current, server);
        }
    }
    let now_unowned = server.state.borrow().unowned();
    if now_unowned.is_some() && now_unowned != unowned {
        deaths.asks.notify_one();
    }
}

/// It died and is there again: its probe need not wait for its time.
fn ask_if_it_is_back(current: &Current, server: &Server) {
    for gateway in both(current) {
        for target in targets(&gateway, server).into_iter().filter(|target| is_probed(&gateway, *target)) {
            let gateway = Rc::clone(&gateway);
            task::start(async move { super::probe::probe(&gateway, target).await });
        }
    }
}

/// A process of `server` has ended.
fn ended(current: &Rc<Current>, server: &Rc<Server>, pid: u32) {
    let at = now();
    let gateway = current.get();
    let was_the_server = server.was_the_server(pid);
    let exit = exit(pid).unwrap_or_default();
    let (evidence, xid) = evidence(&gateway.process, server, pid, at);
    let cause = evidence.cause();
    if was_the_server {
        let since = server.state.borrow().watched.iter().find(|one| one.pid == pid).map(|one| one.since);
        server.died.set(Some((at, cause)));
        // The store first: who fails over plans nothing more there.
        let mut rest = Duration::ZERO;
        for gateway in both(current) {
            for target in targets(&gateway, server) {
                rest = gateway.store.borrow_mut().died(target, cause, is_probed(&gateway, target), at);
                gateway.metrics.turned(target, Turned::Died);
                facts::died(&gateway, target, cause.is_oom(), at);
                discovery::ended(&gateway, target);
            }
        }
        let failed_over = server.tell(cause, None) + server.take_early(at);
        let after = since.map_or(Duration::ZERO, |since| at.saturating_duration_since(since));
        let told = Told { pid, exit, after, failed_over, rest };
        task::start(tell_late(Rc::clone(current), Rc::clone(server), told, (cause, xid)));
    } else {
        runner_ended(&gateway, server, pid, cause);
    }
    let mut state = server.state.borrow_mut();
    state.looked = None;
    state.watched.retain(|one| one.pid != pid);
    if was_the_server {
        state.found = None;
        state.told = None;
        state.watched.clear();
        state.runners.clear();
    }
    gateway.process.deaths.wake.notify_one();
}

/// A process that the server has started, or that is in its cgroup.
fn runner_ended(gateway: &Gateway, server: &Server, pid: u32, cause: Cause) {
    let (model, alone) = {
        let mut state = server.state.borrow_mut();
        let alone = state.found.as_ref().is_some_and(|found| found.main.is_some() && found.others == [pid]);
        let at = state.runners.iter().position(|(runner, _)| *runner == pid);
        (at.map(|at| state.runners.swap_remove(at).1), alone)
    };
    // Only a kill shows that it did not end because it was to: then whose it was is known, too, where it was alone.
    let killed = cause == Cause::OomKill;
    let failed_over = match &model {
        Some(model) => server.tell(cause, Some(model)),
        None if killed && (alone || !server.loads) => server.tell(cause, None),
        None => 0,
    };
    if !server.loads && failed_over == 0 {
        // Compilers and other helpers come and go.
        return;
    }
    let cause = (failed_over > 0 || killed).then_some(cause);
    if let Some(cause) = cause {
        lately::died(gateway, cause);
    }
    for target in targets(gateway, server) {
        match cause {
            Some(cause) => facts::died(gateway, target, cause.is_oom(), now()),
            None => facts::unloaded(gateway, target, now()),
        }
        let advice = cause.map_or("", |cause| gateway.advice(target, cause));
        death_events::runner_exited(gateway.name(target), pid, model.as_deref(), cause, failed_over, advice);
    }
}

/// What speaks for a cause at this moment, and which Xid.
fn evidence(process: &Process, server: &Server, pid: u32, at: Instant) -> (Evidence, Option<u16>) {
    let mut state = server.state.borrow_mut();
    state.count_kills(at);
    let young = |then: Option<Instant>| {
        then.is_some_and(|then| at.saturating_duration_since(then) < limits::DEATH_EVIDENCE)
    };
    let deaths = &process.deaths;
    let ours =
        |of: &Option<u32>| of.is_none_or(|of| of == pid || state.watched.iter().any(|one| one.pid == of));
    let xid = deaths.recent(at, |notice| matches!(notice, Notice::Xid { pid, .. } if ours(pid)));
    let xid = match xid {
        Some(Notice::Xid { code, .. }) => Some(code),
        _ => None,
    };
    let can_count = state.kills.as_ref().is_some_and(|kills| kills.counts_group());
    let evidence = Evidence {
        group_kills: can_count.then(|| u64::from(young(state.killed.0))),
        box_kills: u64::from(young(state.killed.1)),
        killed: deaths
            .recent(at, |notice| matches!(notice, Notice::Killed { pid: of, .. } if *of == pid))
            .is_some(),
        xid,
        nvmap: deaths.recent(at, |notice| matches!(notice, Notice::NvMap(_))).is_some(),
        memory_fine: is_memory_fine(process),
        said: state.said.filter(|(then, _)| young(Some(*then))).map(|(_, cause)| cause),
    };
    (evidence, xid)
}

/// The routing in use, and the one that is tried.
fn both(current: &Current) -> Vec<Rc<Gateway>> {
    let candidate = current.candidate().map(|candidate| Rc::clone(&candidate.gateway));
    std::iter::once(current.get()).chain(candidate).collect()
}

fn targets(gateway: &Gateway, server: &Server) -> Vec<usize> {
    let is = |of: &Option<Rc<Server>>| of.as_ref().is_some_and(|of| std::ptr::eq(&**of, server));
    gateway.servers.iter().enumerate().filter(|(_, of)| is(of)).map(|(target, _)| target).collect()
}

fn is_unfound(gateway: &Gateway, server: &Server) -> bool {
    let (targets, store) = (targets(gateway, server), gateway.store.borrow());
    let absent = |target: &usize| store.get(*target).is_some_and(|health| health.absent);
    !targets.is_empty() && targets.iter().all(absent)
}

fn is_probed(gateway: &Gateway, target: usize) -> bool {
    let config = gateway.config.targets.get(target);
    config.is_some_and(|target| probe::interval(&gateway.config.health.probe, target).is_some())
}

fn is_memory_fine(process: &Process) -> bool {
    process.memory.get().is_none_or(|decision| decision.pressure == Pressure::Green)
}

/// Where its process listens: on this box's own address.
/// Where the server of `target` is looked for, where it is one of this box that can be watched.
#[must_use]
pub fn address(target: &Target) -> Option<Address> {
    let (TargetUrl::Http { host, port, .. } | TargetUrl::Https { host, port, .. }) = &target.url else {
        return None;
    };
    let ip =
        if host == "localhost" { Some(IpAddr::V4(Ipv4Addr::LOCALHOST)) } else { host.parse::<IpAddr>().ok() };
    let own = |ip: IpAddr| match ip {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    let ip = ip.map(own).filter(|ip| ip.to_canonical().is_loopback() || target.process.is_some())?;
    (target.place == Place::Local).then(|| Address { ip, port: *port, hint: target.process.clone() })
}

#[cfg(test)]
#[path = "deaths_tests.rs"]
mod tests;
