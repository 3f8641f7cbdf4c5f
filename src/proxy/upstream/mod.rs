//! Connections to targets: opens them, keeps idle ones, speaks HTTP on them, and decides nothing.
//!
//! A request's way: [`Upstreams::connect`] gives a [`Link`], [`Link::send`] a [`Reply`] at the
//! response's head, [`Reply::chunk`] its body. Each owns what it stands on: **dropping any of them,
//! or the future that makes it, is the cancel**; an HTTP/1 socket closes there and then, an HTTP/2
//! stream is reset. Nothing here has a deadline of its own: the caller races it.
//!
//! HTTP/1 runs inside the caller's task, so that a token costs no hop between tasks. HTTP/2 has one
//! task a connection, so everything here must run in a [`tokio::task::LocalSet`].

mod body;
mod dial;
mod fault;
mod gunzip;
mod http1;
mod link;
mod meter;
mod reply;
mod slot;
#[cfg(test)]
mod tests;
mod tls;
mod visit;

use std::fmt;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Instant;

pub use body::RequestBody;
pub use hyper_util::client::proxy::matcher::Matcher as ProxyRules;
pub use link::{Link, SendError};
pub use reply::Reply;
pub use visit::{Visits, resolve};

use crate::cause::{Cause, Failure};
use crate::config::{Roots, Target, TargetUrl};
use slot::Slot;
use tls::Trust;

/// All targets' connections. A target is named by its position in [`crate::config::Config::targets`].
pub struct Upstreams {
    slots: Vec<Rc<Slot>>,
}

impl Upstreams {
    /// Prepares each target: trust store, TLS configuration, forward proxy. Opens nothing.
    ///
    /// `proxies` is usually [`ProxyRules::from_env`]; targets with place `local` and plain HTTP ignore it.
    ///
    /// # Errors
    ///
    /// The first target that cannot work: its certificate file, its host's name, or its proxy.
    pub fn new(targets: &[Target], proxies: &ProxyRules) -> Result<Self, SetupError> {
        let mut trust = Trust::default();
        let slots = targets
            .iter()
            .map(|target| match Slot::new(target, &mut trust, proxies) {
                Ok(slot) => Ok(Rc::new(slot)),
                Err(message) => Err(SetupError {
                    target: target.name.clone(),
                    file: match &target.roots {
                        Roots::File(path) => Some(path.clone()),
                        Roots::Bundled | Roots::System => None,
                    },
                    message,
                }),
            })
            .collect::<Result<_, _>>()?;
        Ok(Upstreams { slots })
    }

    /// A connection to `target` that is ready for one request: an idle one unless `fresh`, else a new one.
    ///
    /// # Errors
    ///
    /// `Refused`, `Unreachable`, `Reset`, `Closed`, `Tls`, `Clock`, `TimeoutConnect` (the kernel's own),
    /// `Protocol` (of a forward proxy), `Exhausted` (out of file descriptors), `Internal` (no such target).
    pub async fn connect(&self, target: usize, fresh: bool) -> Result<Link, Failure> {
        let slot = self.slots.get(target).ok_or_else(no_such_target)?;
        if !fresh && let Some(via) = slot.checkout(crate::time::now()) {
            return Ok(Link::new(Rc::clone(slot), via, true));
        }
        self.open(slot).await
    }

    /// As [`Upstreams::connect`], but takes no idle connection that a request might want: only a stream of one that
    /// is shared anyway.
    ///
    /// # Errors
    ///
    /// As [`Upstreams::connect`].
    pub async fn connect_beside(&self, target: usize, fresh: bool) -> Result<Link, Failure> {
        let slot = self.slots.get(target).ok_or_else(no_such_target)?;
        if !fresh && let Some(via) = slot.share(crate::time::now()) {
            return Ok(Link::new(Rc::clone(slot), via, true));
        }
        self.open(slot).await
    }

    async fn open(&self, slot: &Rc<Slot>) -> Result<Link, Failure> {
        // Name resolution, TCP and TLS make a large future; most requests reuse a connection and need none of it.
        let via = match Box::pin(slot.open()).await {
            // An idle connection is worth less than this request.
            Err(failure) if failure.cause == Cause::Exhausted && self.close_idle() > 0 => {
                // The tasks of closed HTTP/2 connections let their sockets go.
                tokio::task::yield_now().await;
                Box::pin(slot.open()).await?
            }
            opened => opened?,
        };
        Ok(Link::new(Rc::clone(slot), via, false))
    }

    /// Closes every connection that carries nothing, spares included, for want of file descriptors. Returns
    /// how many those were.
    pub fn close_idle(&self) -> usize {
        self.slots.iter().map(|slot| slot.close_idle()).sum()
    }

    /// Makes sure that an idle connection to `target` is ready, handshake done. For spares: at the start,
    /// after one was taken, when [`Upstreams::sweep`] says so, and when the clock was set.
    ///
    /// # Errors
    ///
    /// As [`Upstreams::connect`], and `TimeoutConnect` after [`crate::limits::WARM_TIME`]. It counts against nobody.
    pub async fn warm(&self, target: usize) -> Result<(), Failure> {
        match self.slots.get(target) {
            Some(slot) => slot.warm().await,
            None => Err(no_such_target()),
        }
    }

    /// Closes idle connections that are too old, or that their servers have closed. Returns the
    /// spare targets that are left without one, for [`Upstreams::warm`]. For a timer of about a second.
    #[must_use]
    pub fn sweep(&self, now: Instant) -> Vec<usize> {
        let cold = |slot: &Rc<Slot>| slot.sweep(now) && slot.wants_spare();
        self.slots.iter().enumerate().filter(|(_, slot)| cold(slot)).map(|(at, _)| at).collect()
    }

    /// Idle connections to `target`, for status.
    #[must_use]
    pub fn idle(&self, target: usize) -> usize {
        self.slots.get(target).map_or(0, |slot| slot.idle_count())
    }
}

fn no_such_target() -> Failure {
    Failure::with(Cause::Internal, "no such target")
}

/// What a Host header says for `url`: `host`, or `host:port` where the port is not the scheme's own.
#[must_use]
pub fn authority(url: &TargetUrl) -> String {
    let (host, port, own) = match url {
        TargetUrl::Http { host, port, .. } => (host, *port, 80),
        TargetUrl::Https { host, port, .. } => (host, *port, 443),
        TargetUrl::Unix { .. } => return "localhost".to_owned(),
    };
    if port != own {
        return dial::bracketed(host, port);
    }
    if host.contains(':') { format!("[{host}]") } else { host.clone() }
}

/// A target whose connections cannot be set up, whatever the network does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetupError {
    /// The target's name.
    pub target: String,
    /// Its `ca_file`, where it has one.
    pub file: Option<PathBuf>,
    /// What is wrong.
    pub message: String,
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "target `{}`: ", self.target)?;
        if let Some(file) = &self.file {
            write!(f, "{}: ", file.display())?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for SetupError {}
