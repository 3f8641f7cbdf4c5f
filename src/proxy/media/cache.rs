//! What was behind references in a client's earlier turns: bounded, aged, and never another client's.

use std::time::Instant;

use crate::config::Images;
use crate::dialect::Dialect;
use crate::dialect::conversation::{Blob, Reference};
use crate::limits::{MEDIA_CACHE_ITEMS, MEDIA_CACHE_SHARE};

/// Who it belongs to: a client key's SHA-256. Clients without a key are nobody, and have nothing kept.
pub type Owner = [u8; 32];

/// A reference that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Name {
    /// At a URL.
    Url(String),
    /// In the files of the provider that is native to this dialect.
    File(Dialect, String),
}

impl From<Reference<'_>> for Name {
    fn from(reference: Reference<'_>) -> Self {
        match reference {
            Reference::Url(url) => Name::Url(url.to_owned()),
            Reference::File(dialect, id) => Name::File(provider(dialect), id.to_owned()),
        }
    }
}

impl Name {
    /// Whether it is this one.
    #[must_use]
    pub fn is(&self, reference: Reference<'_>) -> bool {
        match (self, reference) {
            (Name::Url(name), Reference::Url(url)) => name == url,
            (Name::File(of, name), Reference::File(dialect, id)) => *of == provider(dialect) && name == id,
            _ => false,
        }
    }

    fn len(&self) -> usize {
        match self {
            Name::Url(name) | Name::File(_, name) => name.len(),
        }
    }
}

/// OpenAI's protocols share their files.
const fn provider(dialect: Dialect) -> Dialect {
    match dialect {
        Dialect::OpenaiResponses | Dialect::OpenaiCompletions | Dialect::OpenaiEmbeddings => {
            Dialect::OpenaiChat
        }
        own => own,
    }
}

/// What is kept, the least recently used first.
#[derive(Debug, Default)]
pub struct Cache {
    items: Vec<Item>,
}

#[derive(Debug)]
struct Item {
    owner: Owner,
    name: Name,
    blob: Blob,
    until: Instant,
}

impl Item {
    fn bytes(&self) -> usize {
        self.blob.bytes.len() + self.name.len()
    }
}

impl Cache {
    /// What is kept for `owner` of this reference.
    pub fn get(&mut self, owner: &Owner, reference: Reference<'_>, now: Instant) -> Option<Blob> {
        let its = |item: &Item| item.owner == *owner && item.name.is(reference);
        let at = self.items.iter().position(its)?;
        let item = self.items.remove(at);
        if item.until <= now {
            return None;
        }
        let blob = item.blob.clone();
        self.items.push(item);
        Some(blob)
    }

    /// Keeps `blob`, in place of what was known by that name; others make room, its owner's first. One that is larger
    /// than a client's part is not kept.
    pub fn put(&mut self, owner: Owner, name: Name, blob: Blob, rules: &Images, now: Instant) {
        let item = Item { owner, name, blob, until: now + rules.cache_time };
        let part = rules.cache / MEDIA_CACHE_SHARE;
        self.items.retain(|old| old.owner != owner || old.name != item.name);
        if item.bytes() > part {
            return;
        }
        while self.bytes(Some(&owner)) + item.bytes() > part {
            let Some(first) = self.items.iter().position(|old| old.owner == owner) else { break };
            self.items.remove(first);
        }
        self.items.push(item);
        self.sweep(rules, now);
    }

    /// Lets go of what is too old, and of what there is no room for (any more).
    pub fn sweep(&mut self, rules: &Images, now: Instant) {
        self.items.retain(|item| item.until > now);
        while self.items.len() > MEDIA_CACHE_ITEMS || self.bytes(None) > rules.cache {
            self.items.remove(0);
        }
    }

    /// What is held, by one or by all, in bytes.
    #[must_use]
    pub fn bytes(&self, owner: Option<&Owner>) -> usize {
        let its = |item: &&Item| owner.is_none_or(|owner| item.owner == *owner);
        self.items.iter().filter(its).map(Item::bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;

    fn rules(cache: usize) -> Images {
        Images { cache, cache_time: Duration::from_secs(60), ..Images::default() }
    }

    fn blob(bytes: usize) -> Blob {
        Blob { media_type: "image/png".to_owned(), bytes: Bytes::from(vec![7; bytes]) }
    }

    fn url(text: &str) -> Name {
        Name::Url(text.to_owned())
    }

    #[test]
    fn what_one_client_has_shown_is_no_other_clients() {
        let (mut cache, now) = (Cache::default(), crate::time::now());
        cache.put([1; 32], url("u"), blob(10), &rules(4000), now);
        cache.put(
            [1; 32],
            Reference::File(Dialect::OpenaiResponses, "f").into(),
            blob(10),
            &rules(4000),
            now,
        );
        assert!(cache.get(&[1; 32], Reference::Url("u"), now).is_some());
        assert!(cache.get(&[2; 32], Reference::Url("u"), now).is_none());
        // A file is known at its provider, by whichever of its protocols.
        assert!(cache.get(&[1; 32], Reference::File(Dialect::OpenaiChat, "f"), now).is_some());
        assert!(cache.get(&[1; 32], Reference::File(Dialect::Anthropic, "f"), now).is_none());
        assert!(cache.get(&[2; 32], Reference::File(Dialect::OpenaiChat, "f"), now).is_none());
        assert!(cache.get(&[1; 32], Reference::Url("f"), now).is_none());
    }

    #[test]
    fn nothing_is_older_than_its_time_nor_kept_where_it_is_off() {
        let (mut cache, now) = (Cache::default(), crate::time::now());
        cache.put([1; 32], url("u"), blob(10), &rules(4000), now);
        let late = now + Duration::from_secs(60);
        assert!(cache.get(&[1; 32], Reference::Url("u"), late - Duration::from_millis(1)).is_some());
        assert!(cache.get(&[1; 32], Reference::Url("u"), late).is_none());
        cache.put([1; 32], url("u"), blob(10), &rules(4000), now);
        cache.sweep(&rules(4000), late);
        assert_eq!(cache.bytes(None), 0);
        cache.put([1; 32], url("u"), blob(10), &rules(0), now);
        assert_eq!(cache.bytes(None), 0);
        // A reload that turns it off.
        cache.put([1; 32], url("u"), blob(10), &rules(4000), now);
        cache.sweep(&rules(0), now);
        assert_eq!(cache.bytes(None), 0);
    }

    #[test]
    fn a_client_makes_room_in_its_own_part_first() {
        let (mut cache, now) = (Cache::default(), crate::time::now());
        cache.put([2; 32], url("others"), blob(900), &rules(4000), now);
        for name in ["a", "b", "c"] {
            cache.put([1; 32], url(name), blob(400), &rules(4000), now);
        }
        assert!(cache.get(&[2; 32], Reference::Url("others"), now).is_some());
        assert!(cache.get(&[1; 32], Reference::Url("a"), now).is_none(), "the oldest of its own went");
        assert!(cache.get(&[1; 32], Reference::Url("b"), now).is_some());
        cache.put([1; 32], url("d"), blob(400), &rules(4000), now);
        assert!(cache.get(&[1; 32], Reference::Url("c"), now).is_none(), "the one not asked for since");
        cache.put([1; 32], url("b"), blob(1001), &rules(4000), now);
        assert!(
            cache.get(&[1; 32], Reference::Url("b"), now).is_none(),
            "too large, and the old one is stale"
        );
    }

    proptest! {
        #[test]
        fn it_stays_within_its_bounds(puts in prop::collection::vec((0_u8..6, 0_u8..9, 0_usize..1200), 1..60)) {
            let (mut cache, now, rules) = (Cache::default(), crate::time::now(), rules(4000));
            for (owner, name, size) in puts {
                cache.put([owner; 32], url(&name.to_string()), blob(size), &rules, now);
                prop_assert!(cache.bytes(None) <= 4000);
                prop_assert!((0..6).all(|owner| cache.bytes(Some(&[owner; 32])) <= 1000));
                prop_assert!(cache.items.len() <= MEDIA_CACHE_ITEMS);
            }
        }
    }
}
