//! Stickiness: where each conversation's KV cache is, for as long as that is worth something.

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use crate::config::Sticky;
use crate::limits::CONVERSATIONS_MAX;

/// Conversations and their targets; bounded, the longest silent one goes first.
#[derive(Debug, Default)]
pub(super) struct Table {
    entries: HashMap<u64, Entry>,
    /// Uses in their order, by number, and their keys. Those that are not their key's last one count for nothing.
    order: VecDeque<(u64, u64)>,
    uses: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    target: usize,
    last: Instant,
    /// It is away from where its plan would have it, which failed.
    away: bool,
    /// Until then it may be away: since it first was.
    away_until: Option<Instant>,
    /// It has come home before that, and failed there again: it does not try a third time before then.
    again: bool,
    /// Where it was served last before it was away.
    began: Option<usize>,
    used: u64,
}

/// Where a conversation stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stay {
    pub(super) target: usize,
    /// When it was last served there.
    pub(super) last: Instant,
    /// It is away from home.
    pub(super) away: bool,
    /// Where it was served last at home.
    pub(super) began: Option<usize>,
    /// It has come home already, and failed there again.
    pub(super) again: bool,
}

impl Table {
    /// That of a changed configuration: `place` gives each target's new place, if it has one.
    pub(super) fn renewed(&self, place: impl Fn(usize) -> Option<usize>) -> Self {
        let mut renewed = Table { uses: self.uses, ..Table::default() };
        for (used, key) in &self.order {
            if let Some(entry) = self.entries.get(key).filter(|entry| entry.used == *used)
                && let Some(target) = place(entry.target)
            {
                renewed.order.push_back((*used, *key));
                let began = entry.began.and_then(&place);
                renewed.entries.insert(*key, Entry { target, began, ..*entry });
            }
        }
        renewed
    }

    /// Where `key` belongs, and why.
    pub(super) fn stay(&self, key: u64, policy: &Sticky, now: Instant) -> Option<Stay> {
        let target = self.target(key, policy, now)?;
        let Entry { last, away, began, again, .. } = *self.entries.get(&key)?;
        Some(Stay { target, last, away, began, again })
    }

    /// Where `key` belongs.
    pub(super) fn target(&self, key: u64, policy: &Sticky, now: Instant) -> Option<usize> {
        let entry = self.entries.get(&key)?;
        let silent = now.saturating_duration_since(entry.last) >= policy.idle;
        let home = entry.away && entry.away_until.is_some_and(|until| now >= until);
        (!silent && !home).then_some(entry.target)
    }

    /// `key` is served by `target`; `away`: not where its plan would have it if all were well; `failed`: it was to come home
    /// now, and that failed.
    pub(super) fn served(
        &mut self,
        key: u64,
        target: usize,
        (away, failed): (bool, bool),
        policy: &Sticky,
        now: Instant,
    ) {
        let known = self.target(key, policy, now) == Some(target);
        let before = self.entries.get(&key).copied();
        let recent = before.filter(|before| before.away_until.is_some_and(|until| now < until));
        let (away_until, again) = match recent {
            // Later turns at the fallback do not put off the way home, and at home it is not forgotten at once.
            Some(before) if !away || (known && before.away) => (before.away_until, before.again || failed),
            Some(_) => (Some(now + policy.away), true),
            None => (away.then(|| now + policy.away), false),
        };
        let began = if away { before.and_then(|before| before.began) } else { Some(target) };
        self.uses += 1;
        self.order.push_back((self.uses, key));
        let entry = Entry { target, last: now, away, away_until, again, began, used: self.uses };
        self.entries.insert(key, entry);
        let entries = &mut self.entries;
        while entries.len() > CONVERSATIONS_MAX
            && let Some((used, oldest)) = self.order.pop_front()
        {
            if entries.get(&oldest).is_some_and(|entry| entry.used == used) {
                entries.remove(&oldest);
            }
        }
        if self.order.len() > 2 * CONVERSATIONS_MAX {
            self.order.retain(|(used, key)| entries.get(key).is_some_and(|entry| entry.used == *used));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    const POLICY: Sticky =
        Sticky { enabled: true, idle: Duration::from_secs(600), away: Duration::from_secs(900) };

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn a_conversation_stays_until_it_is_idle() {
        let (mut table, now) = (Table::default(), crate::time::now());
        table.served(1, 7, (false, false), &POLICY, now);
        assert_eq!(table.target(1, &POLICY, now + secs(599)), Some(7));
        assert_eq!(table.target(1, &POLICY, now + secs(600)), None);
        assert_eq!(table.target(2, &POLICY, now), None);
        for minute in 1..100 {
            let at = now + secs(60 * minute);
            assert_eq!(table.target(1, &POLICY, at), Some(7));
            table.served(1, 7, (false, false), &POLICY, at);
        }
    }

    #[test]
    fn away_it_goes_home_in_time_however_busy_it_is() {
        let (mut table, now) = (Table::default(), crate::time::now());
        table.served(1, 7, (true, false), &POLICY, now);
        for minute in 1..15 {
            let at = now + secs(60 * minute);
            assert_eq!(table.target(1, &POLICY, at), Some(7));
            table.served(1, 7, (true, false), &POLICY, at);
        }
        let over = now + secs(900);
        assert_eq!(table.target(1, &POLICY, over), None);
        table.served(1, 7, (true, false), &POLICY, over);
        assert_eq!(table.target(1, &POLICY, over + secs(599)), Some(7), "and away again, if it must");
    }

    #[test]
    fn a_reload_keeps_what_stays() {
        let (mut table, now) = (Table::default(), crate::time::now());
        for key in 0..4 {
            table.served(key, usize::try_from(key).unwrap() % 2, (false, false), &POLICY, now);
        }
        let renewed = table.renewed(|target| (target == 1).then_some(5));
        let targets: Vec<_> = (0..4).map(|key| renewed.target(key, &POLICY, now)).collect();
        assert_eq!(targets, [None, Some(5), None, Some(5)]);
    }

    proptest! {
        #[test]
        fn it_is_bounded_and_keeps_the_latest(keys in prop::collection::vec(0_u64..6000, 0..9000)) {
            let (mut table, now) = (Table::default(), crate::time::now());
            for key in &keys {
                table.served(*key, 0, (false, false), &POLICY, now);
                prop_assert!(table.entries.len() <= CONVERSATIONS_MAX);
                prop_assert!((table.entries.len()..=2 * CONVERSATIONS_MAX).contains(&table.order.len()));
            }
            let renewed = table.renewed(Some);
            prop_assert!(renewed.order.len() == renewed.entries.len() && renewed.entries.len() == table.entries.len());
            prop_assert!(renewed.order.iter().is_sorted());
            let mut latest: Vec<u64> = Vec::new();
            for key in keys.iter().rev() {
                if latest.len() < 100 && !latest.contains(key) {
                    latest.push(*key);
                }
            }
            prop_assert!(latest.iter().all(|key| table.target(*key, &POLICY, now).is_some()));
        }
    }
}
