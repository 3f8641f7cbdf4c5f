//! Pictures and files that a request only names: what the box holds of them, and what it fetches.

pub mod addresses;
pub mod cache;
pub mod fetch;

use std::cell::{Cell, RefCell};

use bytes::Bytes;

use super::body::Reserved;
use super::gateway::Gateway;
use super::upstream::{self, ProxyRules, Visits};
use crate::config::{Place, Roots};
use crate::dialect::Dialect;
use crate::dialect::conversation::{self, Blob, Conversation, Reference};
use crate::dialect::request::Call;
use crate::limits;
use crate::route::Candidate;
use crate::task::Local;
use crate::time::now;
use cache::{Name, Owner};
use fetch::{Fetch, Picture};

/// What one request's references led to. Dropped with it: its memory is given back then.
#[derive(Debug, Default)]
pub struct Held {
    /// Whose later turns find it in the cache; nobody's, for a client without a key.
    owner: Option<Owner>,
    found: RefCell<Vec<(Name, Result<Blob, String>)>>,
    room: RefCell<Vec<Reserved>>,
    fetched: Cell<bool>,
}

impl Held {
    /// Nothing yet, for this client.
    #[must_use]
    pub fn new(owner: Option<Owner>) -> Self {
        Held { owner, ..Held::default() }
    }

    /// The bytes behind a reference, where the box holds them.
    #[must_use]
    pub fn blob(&self, gateway: &Gateway, reference: Reference<'_>) -> Option<Blob> {
        if let Some((_, found)) = self.found.borrow().iter().find(|(name, _)| name.is(reference)) {
            return found.clone().ok();
        }
        gateway.process.media.borrow_mut().get(self.owner.as_ref()?, reference, now())
    }

    /// Why the box has no picture, in words that end a sentence: of the first that could not be fetched.
    #[must_use]
    pub fn why(&self) -> Option<String> {
        self.found.borrow().iter().find_map(|(_, found)| found.as_ref().err().cloned())
    }

    /// Keeps files whose bytes stand beside their ids, and tells whether all that the request only names by an id are
    /// held.
    pub fn knows_files(&self, gateway: &Gateway, talk: &Conversation) -> bool {
        if let Some(owner) = self.owner {
            for (reference, media_type, bytes) in talk.named_bytes() {
                let blob = Blob { media_type: media_type.to_owned(), bytes: Bytes::from(bytes) };
                let rules = &gateway.config.images;
                gateway.process.media.borrow_mut().put(owner, reference.into(), blob, rules, now());
            }
        }
        let mut all = true;
        for (_, reference) in talk.references() {
            if matches!(reference, Reference::File(..)) {
                match self.blob(gateway, reference) {
                    // Until it is sent, whatever becomes of the cache.
                    Some(blob) => self.found.borrow_mut().push((reference.into(), Ok(blob))),
                    None => all = false,
                }
            }
        }
        all
    }

    /// Fetches the pictures that the request names by their URLs, once.
    pub async fn fetch_all(&self, gateway: &Gateway, call: &Call, body: &Bytes) {
        if self.fetched.get() {
            return;
        }
        // A body that could not be read was refused.
        if let Ok(talk) = conversation::decode_shared(call.dialect, body) {
            self.fetch(gateway, &talk).await;
        }
        self.fetched.set(true);
    }

    async fn fetch(&self, gateway: &Gateway, talk: &Conversation) {
        let rules = &gateway.config.images;
        let mut urls: Vec<&str> = Vec::new();
        for (_, reference) in talk.references() {
            if let Reference::Url(url) = reference
                && !urls.contains(&url)
                && self.blob(gateway, reference).is_none()
            {
                urls.push(url);
            }
        }
        let late = tokio::time::Instant::now() + rules.timeout;
        for (at, url) in urls.into_iter().enumerate() {
            let found = if at < limits::IMAGES_FETCHED_MAX {
                let one = tokio::time::timeout_at(late, picture(gateway, url)).await;
                one.unwrap_or_else(|_| {
                    Err(format!("it was not there within {:?} (images.timeout)", rules.timeout))
                })
            } else {
                Err(format!("the request names more than {}", limits::IMAGES_FETCHED_MAX))
            };
            let found = found.map(|(blob, room)| {
                if let Some(owner) = self.owner {
                    let name = Name::Url(url.to_owned());
                    gateway.process.media.borrow_mut().put(owner, name, blob.clone(), rules, now());
                }
                self.room.borrow_mut().extend(room);
                blob
            });
            self.found.borrow_mut().push((Name::Url(url.to_owned()), found));
        }
    }
}

/// One picture, by this box's own resolver.
async fn picture(gateway: &Gateway, url: &str) -> Result<Picture, String> {
    let process = &gateway.process;
    if process.visits.get().is_none() {
        // Made when the first picture is fetched; a second one at the same time changes nothing.
        let _another = process.visits.set(Visits::new(&Roots::Bundled, ProxyRules::from_env())?);
    }
    let visits = process.visits.get().ok_or("nothing can be fetched")?;
    let resolve = |host: String, port: u16| -> Local<_> {
        Box::pin(async move { upstream::resolve(&host, port).await })
    };
    let fetch = Fetch { rules: &gateway.config.images, visits, resolve: &resolve, memory: &gateway.bodies };
    Box::pin(fetch.picture(url)).await
}

/// Whether this candidate can be asked only with the bytes of pictures that the request names by their URLs.
#[must_use]
pub fn wants_pictures(gateway: &Gateway, call: &Call, candidate: &Candidate) -> bool {
    let rules = &gateway.config.images;
    let fetches = matches!(
        candidate.wire,
        Dialect::OpenaiChat | Dialect::OpenaiResponses | Dialect::Anthropic | Dialect::OpenaiCompletions
    );
    call.needs.urls && rules.fetch && !(fetches && may_have_urls(gateway, candidate.place))
}

/// Whether a server there may be given URLs, which it fetches itself.
#[must_use]
pub fn may_have_urls(gateway: &Gateway, place: Place) -> bool {
    place == Place::Cloud || gateway.config.images.local_urls
}
