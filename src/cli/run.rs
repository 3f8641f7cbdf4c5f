//! `edgeward run`: from a configuration to a process that serves until it is told to stop.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use tokio::net::{TcpListener, UnixListener};
use tokio::runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::{LocalSet, spawn_local};
use tokio_rustls::TlsAcceptor;

use super::{EXIT_CONFIG, EXIT_FAILED, EXIT_GOOD, footing};
use crate::cause::Cause;
use crate::config::{self, Config, Env, Loaded};
use crate::limits;
use crate::observe::{self, events};
use crate::proxy::gateway::Gateway;
use crate::proxy::upstream::ProxyRules;
use crate::proxy::{discovery, listen};
use crate::time::now;

/// Serves until SIGTERM or SIGINT. Returns the exit code.
///
/// # Errors
/// Only when stderr cannot be written.
pub fn run(path: Option<&Path>, env: &Env<'_>, err: &mut dyn Write) -> io::Result<u8> {
    let loaded = match config::load_or_discover(path, env) {
        Ok(loaded) => loaded,
        Err(problems) => {
            writeln!(err, "{problems}")?;
            return Ok(EXIT_CONFIG);
        }
    };
    match observe::Log::from_env() {
        Ok(log) => observe::init(log),
        Err(unknown) => {
            writeln!(err, "environment: {unknown}")?;
            return Ok(EXIT_CONFIG);
        }
    }
    // stderr may be a file on a full disk, or read by nobody any more: serving matters more.
    let _unread = write!(err, "{}", config::plan_text(&loaded.config, &loaded.warnings));
    let _unread = err.flush();
    match serve(loaded, err) {
        Ok(()) => Ok(EXIT_GOOD),
        Err(Unable::Config(what)) => {
            writeln!(err, "edgeward: {what}")?;
            Ok(EXIT_CONFIG)
        }
        Err(Unable::System(what)) => {
            writeln!(err, "edgeward: {what}")?;
            Ok(EXIT_FAILED)
        }
    }
}

/// Why it cannot serve.
enum Unable {
    Config(String),
    System(String),
}

/// Everything that is bound before the first client may come.
struct Bound {
    clients: Vec<TcpListener>,
    tls: Option<TlsAcceptor>,
    operators: Option<(UnixListener, PathBuf)>,
}

fn serve(mut loaded: Loaded, err: &mut dyn Write) -> Result<(), Unable> {
    footing::descriptors(&mut loaded.config.limits);
    footing::clock();
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        // Only name resolution blocks.
        .max_blocking_threads(limits::BLOCKING_THREADS)
        .build()
        .map_err(|e| Unable::System(format!("cannot start the event loop: {e}")))?;
    let local = LocalSet::new();
    let result = local.block_on(&runtime, async {
        let gateway = Gateway::new(loaded.config, &ProxyRules::from_env())
            .map(Rc::new)
            .map_err(|e| Unable::Config(e.to_string()))?;
        let bound = bind(&gateway.config, err)?;
        footing::memory(&gateway.config);
        // A task of its own: this future is polled each time that any other task is woken.
        spawn_local(async move { main_loop(&gateway, bound).await })
            .await
            .unwrap_or_else(|e| Err(Unable::System(format!("the main loop failed: {e}"))))
    });
    // A name look-up that hangs must not hold the exit.
    runtime.shutdown_background();
    result
}

fn bind(config: &Config, err: &mut dyn Write) -> Result<Bound, Unable> {
    let tls = config.tls.as_ref().map(listen::tls).transpose().map_err(Unable::Config)?;
    let mut clients = Vec::new();
    for address in &config.listen {
        let listener = listen::bind(*address).map_err(|e| {
            Unable::System(format!("cannot listen on {address}: {e}; is another edgeward running?"))
        })?;
        let local: SocketAddr = listener.local_addr().unwrap_or(*address);
        let scheme = if tls.is_some() { "https" } else { "http" };
        // Nobody may read stderr; serving matters more.
        let _unread = writeln!(err, "listening on {scheme}://{local}");
        clients.push(listener);
    }
    let operators = match &config.admin_listen {
        None => None,
        Some(path) => match listen::bind_admin(path) {
            Ok(listener) => Some((listener, path.clone())),
            // A read-only or missing folder takes the operators' comfort, not the clients' answers.
            Err(e) => {
                events::admin_unavailable(path, &e);
                None
            }
        },
    };
    let _unread = err.flush();
    Ok(Bound { clients, tls, operators })
}

async fn main_loop(gateway: &Rc<Gateway>, bound: Bound) -> Result<(), Unable> {
    let mut terminate = signal(SignalKind::terminate())
        .map_err(|e| Unable::System(format!("cannot wait for SIGTERM: {e}")))?;
    let mut interrupt = signal(SignalKind::interrupt())
        .map_err(|e| Unable::System(format!("cannot wait for SIGINT: {e}")))?;
    let addresses: Vec<SocketAddr> = bound.clients.iter().filter_map(|l| l.local_addr().ok()).collect();
    let mut accepting: Vec<_> = bound
        .clients
        .into_iter()
        .map(|listener| spawn_local(listen::clients(Rc::clone(gateway), listener, bound.tls.clone())))
        .collect();
    let admin_path = bound.operators.map(|(listener, path)| {
        accepting.push(spawn_local(listen::operators(Rc::clone(gateway), listener)));
        path
    });
    let keeping = [
        spawn_local(discovery::keep_looking(Rc::clone(gateway))),
        spawn_local(keep_connections(Rc::clone(gateway))),
    ];
    events::started(&addresses, gateway.config.targets.len());

    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    accepting.iter().for_each(tokio::task::JoinHandle::abort);
    keeping.iter().for_each(tokio::task::JoinHandle::abort);
    drain(gateway, &mut terminate, &mut interrupt).await;
    if let Some(path) = admin_path {
        let _already_gone = std::fs::remove_file(path);
    }
    Ok(())
}

/// Spares for the fallbacks, and an end to connections that have idled too long.
pub(super) async fn keep_connections(gateway: Rc<Gateway>) {
    let spares = gateway.config.targets.iter().enumerate().filter(|(_, target)| target.spare);
    for (index, _) in spares {
        spawn_local(warm(Rc::clone(&gateway), index));
    }
    let mut failed_before = vec![now(); gateway.config.targets.len()];
    loop {
        tokio::time::sleep(limits::SWEEP_INTERVAL).await;
        if let Some(waited) = gateway.clock_was_set() {
            failed_before.fill(now());
            for target in waited {
                spawn_local(warm(Rc::clone(&gateway), target));
            }
        }
        for cold in gateway.upstreams.sweep(now()) {
            // A cloud that cannot be reached is not asked every second.
            if let Some(next) = failed_before.get_mut(cold)
                && now() >= *next
            {
                *next = now() + limits::SPARE_PAUSE;
                spawn_local(warm(Rc::clone(&gateway), cold));
            }
        }
    }
}

/// One spare connection, in time or not at all.
pub(super) async fn warm(gateway: Rc<Gateway>, target: usize) {
    gateway.warm(target).await;
}

/// Lets running requests finish for `limits.drain`, then ends them honestly. A second signal ends the wait.
async fn drain(
    gateway: &Rc<Gateway>,
    terminate: &mut tokio::signal::unix::Signal,
    interrupt: &mut tokio::signal::unix::Signal,
) {
    gateway.draining.set(true);
    let _none_left = gateway.closing.send(true);
    let limit = gateway.config.limits.drain;
    events::stopping(gateway.live.len(), limit);
    let done = async {
        while gateway.connections.get() > 0 {
            gateway.connection_closed.notified().await;
        }
    };
    let in_time = tokio::select! {
        () = done => true,
        () = tokio::time::sleep(limit) => false,
        _ = terminate.recv() => false,
        _ = interrupt.recv() => false,
    };
    if in_time {
        return;
    }
    gateway.metrics.limit(observe::Limit::Drain);
    events::limit_hit(observe::Limit::Drain, None);
    gateway.live.stop_all(Cause::Draining);
    let last_words = async {
        while gateway.connections.get() > 0 {
            gateway.connection_closed.notified().await;
        }
    };
    let _late = tokio::time::timeout(limits::LAST_WORDS, last_words).await;
    gateway.live.stop_connections(None, Cause::Draining);
}
