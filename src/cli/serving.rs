//! What a serving process does beside its requests: signals, signs of life, and a good end.

use std::rc::Rc;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinHandle;

use super::listeners::Listeners;
use super::reload::{By, Serving, Source};
use super::run::{Bound, Unable};
use crate::cause::Cause;
use crate::config::rollout::Verdict;
use crate::limits;
use crate::observe::{self, events, health_events};
use crate::proxy::current::Current;
use crate::proxy::gateway::Gateway;
use crate::proxy::{deaths, discovery, facts, gpus, pressure, probe, spending};
use crate::systemd::{Notify, Order, Orders};
use crate::task;
use crate::time::{monotonic_micros, now};
use crate::watch::helper;

/// Serves from here on, until it is told to stop and has drained.
pub(super) async fn main_loop(current: &Rc<Current>, bound: Bound, source: Source) -> Result<(), Unable> {
    let Bound { open, notify, watchdog, leash } = bound;
    let mut asked = Asked::new(leash.map(crate::systemd::Leash::orders).transpose())?;
    let listeners = Listeners::accept(current, open);
    let addresses = listeners.addresses();
    let mut serving = Serving::new(current, listeners, source);
    let notify = Rc::new(notify);
    if let Some(within) = watchdog {
        task::start(signs_of_life(Rc::clone(&notify), within));
    }
    task::start(tell_held_back());
    events::started(&addresses, current.get().config.targets.len());
    let caps = spending::caps(&current.get().config);
    if !caps.is_empty() {
        health_events::spending_caps(&caps);
    }
    notify.say(&format!("READY=1\nSTATUS={}", summary(current)));
    let place = helper::Place::from_env(&|name: &str| std::env::var(name).ok(), !notify.is_nobody());
    task::start(gpus::keep_listening(Rc::clone(&current.get().process), place));
    task::start(pressure::keep_watching(Rc::clone(current)));
    task::start(deaths::keep_watching(Rc::clone(current)));
    task::start(facts::keep_asking(Rc::clone(current)));

    loop {
        let gateway = current.get();
        let by = tokio::select! {
            () = gateway.process.sights.differ() => {
                serving.know_servers();
                continue;
            }
            order = asked.next() => match order {
                Order::Stop => break,
                Order::Reload => By::Order,
            },
            () = serving.file_changed() => By::Change,
            verdict = verdict(current) => {
                serving.decide(verdict);
                notify.status(&summary(current));
                continue;
            }
        };
        notify.say(&format!("RELOADING=1\nMONOTONIC_USEC={}", monotonic_micros()));
        serving.reload(by);
        notify.say(&format!("READY=1\nSTATUS={}", summary(current)));
    }
    notify.say("STOPPING=1");
    // A successor reads it while this one still drains.
    keep_now(&current.get());
    serving.close().await;
    let gateway = current.get();
    if asked.orders.is_some() {
        end_if_stuck(gateway.config.limits.drain);
        notify.let_go();
    }
    drain(&gateway, &mut asked).await;
    keep_now(&gateway);
    Ok(())
}

/// Writes what outlives the process.
fn keep_now(gateway: &Gateway) {
    gateway.process.spending.keep_now();
    gateway.process.usual.keep_now();
}

/// Waits until a rollout is to end.
async fn verdict(current: &Current) -> Verdict {
    match current.candidate() {
        Some(candidate) => candidate.trial.verdict().await,
        None => std::future::pending().await,
    }
}

/// What `systemctl status` shows of it.
fn summary(current: &Current) -> String {
    let rollout = if current.candidate().is_some() { ", a rollout in progress" } else { "" };
    format!("serving, {} targets{rollout}", current.get().config.targets.len())
}

/// Who may ask for something: signals, and the anchor.
struct Asked {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    orders: Option<Orders>,
}

impl Asked {
    fn new(orders: std::io::Result<Option<Orders>>) -> Result<Self, Unable> {
        let wait =
            |kind, name| signal(kind).map_err(|e| Unable::System(format!("cannot wait for {name}: {e}")));
        Ok(Asked {
            terminate: wait(SignalKind::terminate(), "SIGTERM")?,
            interrupt: wait(SignalKind::interrupt(), "SIGINT")?,
            hangup: wait(SignalKind::hangup(), "SIGHUP")?,
            orders: orders.map_err(|e| Unable::System(format!("cannot hear the main process: {e}")))?,
        })
    }

    async fn next(&mut self) -> Order {
        let order = async {
            match &mut self.orders {
                Some(orders) => orders.next().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.terminate.recv() => Order::Stop,
            _ = self.interrupt.recv() => Order::Stop,
            _ = self.hangup.recv() => Order::Reload,
            order = order => order,
        }
    }

    /// A signal that says stop. The anchor says it once.
    async fn hurried(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Of lines that were held back, those that nothing else tells of.
async fn tell_held_back() {
    loop {
        tokio::time::sleep(limits::LOG_HELD).await;
        observe::tell_held_back(false);
    }
}

/// From this event loop itself, so that one that is stuck gives none.
async fn signs_of_life(notify: Rc<Notify>, within: Duration) {
    loop {
        notify.say("WATCHDOG=1");
        tokio::time::sleep(within / 2).await;
    }
}

/// What goes on for as long as a configuration is in use.
pub(super) fn keep(gateway: &Rc<Gateway>) -> [JoinHandle<()>; 4] {
    [
        task::start(discovery::keep_looking(Rc::clone(gateway))),
        task::start(keep_connections(Rc::clone(gateway))),
        task::start(probe::keep_probing(Rc::clone(gateway))),
        task::start(spending::keep_written(Rc::clone(gateway))),
    ]
}

/// Spares for the fallbacks, and an end to connections that have idled too long.
pub(super) async fn keep_connections(gateway: Rc<Gateway>) {
    let spares = gateway.config.targets.iter().enumerate().filter(|(_, target)| target.spare);
    for (index, _) in spares {
        task::start(warm(Rc::clone(&gateway), index));
    }
    let mut failed_before = vec![now(); gateway.config.targets.len()];
    loop {
        tokio::time::sleep(limits::SWEEP_INTERVAL).await;
        gateway.tick(now());
        if let Some(waited) = gateway.clock_was_set() {
            failed_before.fill(now());
            for target in waited {
                task::start(warm(Rc::clone(&gateway), target));
            }
        }
        for cold in gateway.upstreams.sweep(now()) {
            // A cloud that cannot be reached is not asked every second.
            if let Some(next) = failed_before.get_mut(cold)
                && now() >= *next
            {
                *next = now() + limits::SPARE_PAUSE;
                task::start(warm(Rc::clone(&gateway), cold));
            }
        }
    }
}

/// One spare connection, in time or not at all.
pub(super) async fn warm(gateway: Rc<Gateway>, target: usize) {
    gateway.warm(target).await;
}

/// Lets running requests finish for `limits.drain`, then ends them honestly. A second signal ends the wait.
async fn drain(gateway: &Rc<Gateway>, asked: &mut Asked) {
    let process = &gateway.process;
    process.draining.set(true);
    let _none_left = process.closing.send(true);
    let limit = gateway.config.limits.drain;
    events::stopping(process.live.len(), limit);
    let done = async {
        while process.connections.get() > 0 {
            process.connection_closed.notified().await;
        }
    };
    let in_time = tokio::select! {
        () = done => true,
        () = tokio::time::sleep(limit) => false,
        () = asked.hurried() => false,
    };
    if in_time {
        return;
    }
    gateway.metrics.limit(observe::Limit::Drain);
    events::limit_hit(observe::Limit::Drain, None);
    process.live.stop_all(Cause::Draining);
    let last_words = async {
        while process.connections.get() > 0 {
            process.connection_closed.notified().await;
        }
    };
    let _late = tokio::time::timeout(limits::LAST_WORDS, last_words).await;
    process.live.stop_connections(None, Cause::Draining);
}

/// A server that was let off its leash has no watchdog: this thread is it.
fn end_if_stuck(drain: Duration) {
    let limit = drain + limits::LAST_WORDS + limits::DRAIN_STUCK;
    let wait = move || {
        let (_held, nobody_sends) = std::sync::mpsc::channel::<()>();
        let _time_is_up = nobody_sends.recv_timeout(limit);
        std::process::exit(i32::from(super::EXIT_FAILED));
    };
    // Without it a stuck one is left for the operator; there is no memory for a thread, it will hardly last.
    let _unguarded = std::thread::Builder::new().name("drain".to_owned()).spawn(wait);
}
