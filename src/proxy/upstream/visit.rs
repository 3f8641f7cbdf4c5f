//! One request to a host that is no target, at addresses that somebody has looked at: no name is resolved again.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use rustls::ClientConfig;

use super::dial;
use super::link::Link;
use super::slot::{self, Slot};
use super::tls::{Tls, Trust};
use super::{ProxyRules, authority};
use crate::cause::{Cause, Failure};
use crate::config::{Roots, TargetUrl};

/// How such hosts are reached: their certificates, and the forward proxy.
pub struct Visits {
    tls: Arc<ClientConfig>,
    proxies: ProxyRules,
}

impl Visits {
    /// `proxies`, as for targets: it counts for HTTPS, and is told the address, not the name.
    ///
    /// # Errors
    /// No authority can be trusted.
    pub fn new(roots: &Roots, proxies: ProxyRules) -> Result<Self, String> {
        Ok(Visits { tls: Trust::default().config(roots, false)?, proxies })
    }

    /// A connection to `url` at one of these addresses, for one request.
    ///
    /// # Errors
    /// As [`super::Upstreams::connect`].
    pub async fn connect(&self, url: TargetUrl, addresses: Vec<SocketAddr>) -> Result<Link, Failure> {
        let internal = |message: String| Failure::with(Cause::Internal, &message);
        let (mut tls, mut forward) = (None, None);
        if let TargetUrl::Https { host, .. } = &url {
            tls = Some(Tls::new(Arc::clone(&self.tls), host).map_err(internal)?);
            forward = slot::forward_for(&authority(&url), &self.proxies).map_err(internal)?;
        }
        let tcp = match (&forward, addresses.first()) {
            (Some(proxy), Some(first)) => dial::tunnel(proxy, &first.ip().to_string(), first.port()).await?,
            _ => dial::at(addresses).await?,
        };
        let slot = Rc::new(Slot::visited(url, tls).map_err(internal)?);
        let via = slot.over(tcp).await?;
        Ok(Link::new(slot, via, false))
    }
}

/// The addresses of a host, as this box's resolver knows them now.
///
/// # Errors
/// `Unreachable`, `Exhausted`.
pub async fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>, Failure> {
    dial::resolve(host, port).await
}
