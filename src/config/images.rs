//! `[images]`: pictures that a request only names.

use std::time::Duration;

use super::client::host_names;
use super::describe::{Flat, Is};
use super::schema_policy;
use super::value::{bytes, duration};
use super::walk::{Section, Walk};
use crate::limits::{self, KIB, MIB};

/// `[images]`: what is done about a picture that a request names by its URL, and what is kept of such.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Images {
    /// `fetch`: edgeward fetches it for a target that must not, or cannot, do so itself.
    pub fetch: bool,
    /// `hosts`: from these alone, in lower case; empty: from any.
    pub hosts: Vec<String>,
    /// `private_hosts`: these may be at an address of this network or this box, in lower case.
    pub private_hosts: Vec<String>,
    /// `max_bytes`: one picture, in bytes.
    pub max_bytes: usize,
    /// `timeout`: all pictures of one request together.
    pub timeout: Duration,
    /// `local_urls`: a server on this box or this network is given URLs, and fetches what it likes.
    pub local_urls: bool,
    /// `cache`: what is kept of pictures and files for their clients' later turns, in bytes; 0: nothing.
    pub cache: usize,
    /// `cache_time`: for so long.
    pub cache_time: Duration,
}

impl Default for Images {
    fn default() -> Self {
        Images {
            fetch: false,
            hosts: Vec::new(),
            private_hosts: Vec::new(),
            max_bytes: limits::IMAGE_BYTES,
            timeout: limits::IMAGES_TIME,
            local_urls: false,
            cache: limits::MEDIA_CACHE_BYTES,
            cache_time: limits::MEDIA_CACHE_TIME,
        }
    }
}

/// Reads `[images]`.
pub(super) fn images(walk: &mut Walk<'_>, top: &Section<'_, '_>) -> Images {
    let mut images = Images::default();
    let Some(section) = top.table(walk, "images", &schema_policy::IMAGES) else { return images };
    for (key, field) in [("fetch", &mut images.fetch), ("local_urls", &mut images.local_urls)] {
        *field = section.flag(walk, key).unwrap_or(*field);
    }
    let hint = "write the name or the IPv4 address alone, without http://, port or *";
    images.hosts = host_names(walk, &section, "hosts", "[\"images.example.com\"]", hint);
    images.private_hosts = host_names(walk, &section, "private_hosts", "[\"nas.lan\"]", hint);
    if let Some(size) = section.value(walk, "max_bytes", |value| bytes(value, KIB, limits::IMAGE_BYTES_MAX)) {
        images.max_bytes = size;
    }
    if let Some(size) = section.value(walk, "cache", |value| bytes(value, 0, KIB * MIB)) {
        images.cache = size;
    }
    for (key, field) in [("timeout", &mut images.timeout), ("cache_time", &mut images.cache_time)] {
        if let Some(time) = section.value(walk, key, |value| duration(value, false)) {
            *field = time;
        }
    }
    images
}

impl Flat {
    pub(super) fn images(&mut self, images: &Images) {
        let Images { fetch, hosts, private_hosts, max_bytes, timeout, local_urls, cache, cache_time } =
            images;
        self.all(
            "images",
            &[
                ("fetch", Is::Flag(*fetch)),
                ("hosts", Is::List(hosts)),
                ("private_hosts", Is::List(private_hosts)),
                ("max_bytes", Is::Bytes(*max_bytes)),
                ("timeout", Is::Time(*timeout)),
                ("local_urls", Is::Flag(*local_urls)),
                ("cache", Is::Bytes(*cache)),
                ("cache_time", Is::Time(*cache_time)),
            ],
        );
    }
}
