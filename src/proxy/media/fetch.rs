//! Fetches a picture that a stranger named: from public addresses alone, looked up once, bounded in size and time.

use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use http::{HeaderValue, Request, StatusCode, Uri, header};

use super::addresses::{Reach, reach};
use crate::cause::Failure;
use crate::config::{Images, TargetUrl, show_bytes};
use crate::dialect::conversation::{Blob, image_type};
use crate::limits;
use crate::proxy::body::{Budget, Reserved};
use crate::proxy::upstream::{Reply, RequestBody, Visits};
use crate::task::Local;

/// Who says where a host is. It is asked once for each host that a picture's way leads to.
pub type Resolver<'a> = &'a dyn Fn(String, u16) -> Local<Result<Vec<SocketAddr>, Failure>>;

/// How pictures are fetched.
#[derive(Clone, Copy)]
pub struct Fetch<'a> {
    /// From where, and how much.
    pub rules: &'a Images,
    /// How hosts are reached.
    pub visits: &'a Visits,
    /// How hosts are found.
    pub resolve: Resolver<'a>,
    /// What the bytes are held in.
    pub memory: &'a Budget,
}

/// A picture, and the memory that is set aside for it.
pub type Picture = (Blob, Option<Reserved>);

/// A URL as it is fetched.
struct Place {
    url: TargetUrl,
    /// With its query.
    path: String,
}

impl Fetch<'_> {
    /// The picture at `url`. The caller bounds the time.
    ///
    /// # Errors
    /// Why there is none, in words that end a sentence which names the picture.
    pub async fn picture(&self, url: &str) -> Result<Picture, String> {
        let mut place = Place::parse(url)?;
        for _ in 0..=limits::IMAGE_REDIRECTS_MAX {
            let mut reply = self.ask(&place).await?;
            match reply.status {
                StatusCode::OK => return self.body(&mut reply).await,
                StatusCode::MOVED_PERMANENTLY
                | StatusCode::FOUND
                | StatusCode::SEE_OTHER
                | StatusCode::TEMPORARY_REDIRECT
                | StatusCode::PERMANENT_REDIRECT => {
                    place = place.moved(reply.headers.get(header::LOCATION))?
                }
                status => return Err(format!("its host answered {}", status.as_u16())),
            }
        }
        Err(format!("it leads through more than {} redirects", limits::IMAGE_REDIRECTS_MAX))
    }

    /// One host, asked at addresses that were looked at.
    async fn ask(&self, place: &Place) -> Result<Reply, String> {
        let (host, port) = place.host().ok_or("it is no http or https URL")?;
        let named = |hosts: &[String]| hosts.iter().any(|named| named.eq_ignore_ascii_case(host));
        let private = named(&self.rules.private_hosts);
        if !self.rules.hosts.is_empty() && !private && !named(&self.rules.hosts) {
            return Err(format!("its host {host} is not one of `images.hosts`"));
        }
        let addresses = (self.resolve)(host.to_owned(), port).await.map_err(|failure| failure.to_string())?;
        for address in &addresses {
            // One bad address among good ones is no accident.
            allowed(address.ip(), private).map_err(|why| format!("its host {host} is {why}"))?;
        }
        let link = self.visits.connect(place.url.clone(), addresses).await;
        let request = Request::builder()
            .uri(place.path.as_str())
            .header(header::USER_AGENT, concat!("edgeward/", env!("CARGO_PKG_VERSION")))
            .header(header::ACCEPT, "image/*")
            .header(header::ACCEPT_ENCODING, "identity")
            .header(header::CONNECTION, "close")
            .body(RequestBody::empty())
            .map_err(|error| error.to_string())?;
        let reply = link.map_err(|failure| failure.to_string())?.send(request).await;
        reply.map_err(|error| error.into_failure().to_string())
    }

    async fn body(&self, reply: &mut Reply) -> Result<Picture, String> {
        let told = reply.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        if !told.is_some_and(|told| told.get(..6).is_some_and(|kind| kind.eq_ignore_ascii_case("image/"))) {
            return Err(format!("its host says that it is {}, no picture", told.unwrap_or("something")));
        }
        let most = self.rules.max_bytes;
        let too_large = || format!("it is larger than {} (images.max_bytes)", show_bytes(most));
        let length =
            reply.headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
        if length.is_some_and(|length: usize| length > most) {
            return Err(too_large());
        }
        let mut bytes = Vec::new();
        let mut room: Option<Reserved> = None;
        let mut reserved = 0;
        while let Some(chunk) = reply.chunk().await {
            let chunk = chunk.map_err(|failure| failure.to_string())?;
            let whole = bytes.len() + chunk.len();
            if whole > most {
                return Err(too_large());
            }
            while reserved < whole {
                let step = length.map_or(limits::IMAGE_STEP_BYTES, |length| length.max(whole) - reserved);
                let more = self.memory.reserve(step, whole, limits::QUEUE_TIME).await;
                let more = more.ok_or("there is no memory for it now (limits.body_memory)")?;
                match &mut room {
                    Some(room) => room.add(more),
                    None => room = Some(more),
                }
                reserved += step;
                bytes.reserve_exact(reserved - bytes.len());
            }
            bytes.extend_from_slice(&chunk);
        }
        let media_type = image_type(&bytes).ok_or("it is no PNG, JPEG, GIF or WebP")?;
        let bytes = Bytes::from(bytes.into_boxed_slice());
        Ok((Blob { media_type: media_type.to_owned(), bytes }, room))
    }
}

/// Whether a picture may come from this address; else what the address is.
fn allowed(address: IpAddr, private: bool) -> Result<(), String> {
    match reach(address) {
        Reach::Public => Ok(()),
        Reach::Private if private => Ok(()),
        Reach::Private => {
            Err(format!("at {address}, on this network, and not one of `images.private_hosts`"))
        }
        Reach::Never => Err(format!("at {address}, from where nothing is fetched")),
    }
}

impl Place {
    fn parse(url: &str) -> Result<Place, String> {
        if url.len() > limits::IMAGE_URL_BYTES {
            return Err(format!("its URL is longer than {} bytes", limits::IMAGE_URL_BYTES));
        }
        let uri: Uri = url.parse().map_err(|_| "its URL cannot be read")?;
        let (scheme, authority) =
            uri.scheme_str().zip(uri.authority()).ok_or("its URL is not a whole one")?;
        if authority.as_str().contains('@') {
            return Err("its URL has a user or a password in it".to_owned());
        }
        let https = match scheme {
            "https" => true,
            "http" => false,
            _ => return Err("it is no http or https URL".to_owned()),
        };
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
        if host.is_empty() {
            return Err("its URL names no host".to_owned());
        }
        let port = authority.port_u16().unwrap_or(if https { 443 } else { 80 });
        let base = String::new();
        let url =
            if https { TargetUrl::Https { host, port, base } } else { TargetUrl::Http { host, port, base } };
        let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        Ok(Place { url, path })
    }

    fn host(&self) -> Option<(&str, u16)> {
        match &self.url {
            TargetUrl::Http { host, port, .. } | TargetUrl::Https { host, port, .. } => Some((host, *port)),
            TargetUrl::Unix { .. } => None,
        }
    }

    /// Where a redirect from here leads.
    fn moved(&self, location: Option<&HeaderValue>) -> Result<Place, String> {
        let to = location.and_then(|value| value.to_str().ok()).ok_or("its host redirects nowhere")?;
        let https = matches!(self.url, TargetUrl::Https { .. });
        let scheme = if https { "https" } else { "http" };
        let authority = crate::proxy::upstream::authority(&self.url);
        let url = if to.contains("://") {
            to.to_owned()
        } else if to.starts_with("//") {
            format!("{scheme}:{to}")
        } else if to.starts_with('/') {
            format!("{scheme}://{authority}{to}")
        } else {
            let path = self.path.split('?').next().unwrap_or_default();
            let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
            format!("{scheme}://{authority}{folder}/{to}")
        };
        let place = Place::parse(&url).map_err(|why| format!("it is redirected, and then {why}"))?;
        if https && matches!(place.url, TargetUrl::Http { .. }) {
            return Err("it is redirected from https to http".to_owned());
        }
        Ok(place)
    }
}

#[cfg(test)]
#[path = "fetch_tests.rs"]
mod tests;
