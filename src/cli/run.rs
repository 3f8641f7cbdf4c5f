//! `edgeward run`: from a configuration to a process that serves until it is told to stop.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use tokio::net::{TcpListener, UnixListener};
use tokio::runtime;
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;

use super::listeners::{self, Open, open_to_all};
use super::reload::Source;
use super::{EXIT_CONFIG, EXIT_FAILED, EXIT_GOOD, footing, serving};
use crate::config::{self, Config, Env, Loaded};
use crate::limits;
use crate::observe::{self, events};
use crate::proxy::current::Current;
use crate::proxy::gateway::Gateway;
use crate::proxy::listen;
use crate::proxy::upstream::ProxyRules;
use crate::systemd::{Leash, Notify, Passed, Systemd, anchor};
use crate::task;

/// Serves until SIGTERM or SIGINT. Returns the exit code.
///
/// # Errors
/// Only when stderr cannot be written.
pub fn run(path: Option<&Path>, env: &Env<'_>, err: &mut dyn Write) -> io::Result<u8> {
    if anchor::is_wanted(env) {
        return anchor::run(env).or_else(|error| {
            writeln!(err, "edgeward: cannot start the server: {error}").map(|()| EXIT_FAILED)
        });
    }
    // Before anything else is opened: what was passed is known by its number alone.
    let systemd = Systemd::take(env);
    // Before it is loaded: what changes from here on is seen later.
    let source = Source::new(path);
    let loaded = match config::load_or_discover(path, env) {
        Ok(loaded) => loaded,
        Err(problems) => {
            systemd.notify.status("wrong configuration; edgeward check shows it");
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
    match serve(loaded, systemd, source, err) {
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
pub(super) enum Unable {
    Config(String),
    System(String),
}

/// Everything that is open before the first client may come.
pub(super) struct Bound {
    pub open: Open,
    pub notify: Notify,
    pub watchdog: Option<Duration>,
    pub leash: Option<Leash>,
}

fn serve(mut loaded: Loaded, systemd: Systemd, source: Source, err: &mut dyn Write) -> Result<(), Unable> {
    footing::descriptors(&mut loaded.config.limits);
    footing::clock();
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        // Only name resolution blocks.
        .max_blocking_threads(limits::BLOCKING_THREADS)
        .build()
        .map_err(|e| Unable::System(format!("cannot start the event loop: {e}")))?;
    let mut result = Err(Unable::System("the event loop ended early".to_owned()));
    task::run(&runtime, pin!(async { result = start(loaded.config, systemd, source, err).await }));
    observe::tell_held_back(true);
    // A name look-up that hangs must not hold the exit.
    runtime.shutdown_background();
    result
}

async fn start(config: Config, systemd: Systemd, source: Source, err: &mut dyn Write) -> Result<(), Unable> {
    let gateway = Gateway::new(config, &ProxyRules::from_env(), state_folder().as_deref())
        .map(Rc::new)
        .map_err(|e| Unable::Config(e.to_string()))?;
    let tls = server_tls(&gateway.config).map_err(Unable::Config)?;
    let bound = bind(&gateway.config, &tls, systemd, err)?;
    footing::memory(&gateway.config);
    let current = Current::new(gateway, tls);
    // A task of its own: this future is polled each time that any other task is woken.
    let (say, said) = oneshot::channel();
    task::start(async move {
        let _heard = say.send(serving::main_loop(&current, bound, source).await);
    });
    said.await.unwrap_or_else(|_| Err(Unable::System("the main loop failed".to_owned())))
}

/// Where what must outlive the process is kept: the unit's state directory, or the user's; else nothing is.
fn state_folder() -> Option<PathBuf> {
    if let Some(folders) = std::env::var_os("STATE_DIRECTORY") {
        return std::env::split_paths(&folders).next().filter(|folder| folder.is_absolute());
    }
    let home = PathBuf::from(std::env::var_os("XDG_STATE_HOME")?);
    let folder = home.join("edgeward");
    // One that cannot be made is told of when it is written to.
    let _told_later = home.is_absolute().then(|| std::fs::create_dir_all(&folder));
    home.is_absolute().then_some(folder)
}

/// The LAN side's certificate, where there is one.
pub(super) fn server_tls(config: &Config) -> Result<Option<TlsAcceptor>, String> {
    config.tls.as_ref().map(listen::tls).transpose()
}

fn bind(
    config: &Config,
    tls: &Option<TlsAcceptor>,
    systemd: Systemd,
    err: &mut dyn Write,
) -> Result<Bound, Unable> {
    let Systemd { notify, watchdog, sockets, leash } = systemd;
    let mut open = Open::default();
    passed(config, sockets, &mut open)?;
    if open.passed.is_empty() && open.local_clients.is_empty() {
        for address in &config.listen {
            let listener = listen::bind(*address, false).map_err(|e| {
                Unable::System(format!("cannot listen on {address}: {e}; is another edgeward running?"))
            })?;
            open.clients.push((*address, listener));
        }
    }
    let scheme = if tls.is_some() { "https" } else { "http" };
    for listener in open.clients.iter().map(|(_, listener)| listener).chain(&open.passed) {
        let Ok(address) = listener.local_addr() else { continue };
        // Nobody may read stderr; serving matters more.
        let _unread = writeln!(err, "listening on {scheme}://{address}");
    }
    if let (Some(path), true) = (&config.admin_listen, open.operators.is_empty()) {
        match listen::bind_admin(path) {
            Ok(listener) => open.operators.push((Some(path.clone()), listener)),
            // A read-only or missing folder takes the operators' comfort, not the clients' answers.
            Err(e) => events::admin_unavailable(path, &e),
        }
    }
    let _unread = err.flush();
    Ok(Bound { open, notify, watchdog, leash })
}

/// Sockets that systemd has opened win over `listen`.
fn passed(config: &Config, sockets: Vec<Passed>, open: &mut Open) -> Result<(), Unable> {
    let failed = |e: io::Error| Unable::System(format!("cannot use a socket from systemd: {e}"));
    let addresses: Vec<SocketAddr> = sockets.iter().filter_map(Passed::tcp_address).collect();
    open_to_all(config, &addresses).map_err(Unable::Config)?;
    if !addresses.is_empty() && addresses != config.listen {
        listeners::passed_win(&addresses, config);
    }
    for socket in sockets {
        match socket {
            Passed::Tcp(listener) => open.passed.push(TcpListener::from_std(listener).map_err(failed)?),
            Passed::Unix(listener) => {
                open.local_clients.push(UnixListener::from_std(listener).map_err(failed)?);
            }
            Passed::Admin(listener) => {
                open.operators.push((None, UnixListener::from_std(listener).map_err(failed)?));
            }
            Passed::Useless(why) => events::passed_sockets(&why),
        }
    }
    Ok(())
}
