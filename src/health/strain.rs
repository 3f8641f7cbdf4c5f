//! A model that runs a server out of memory again and again: first its long prompts go elsewhere, then all of it.

use std::time::{Duration, Instant};

use super::report::Why;
use crate::limits;

/// What is known of one model at one server.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Strain {
    /// When it last ran out of memory, and by a prompt of how many tokens at least.
    last: Option<(Instant, u64)>,
    /// Prompts of more tokens than this are not for it, until then.
    limit: Option<(u64, Instant)>,
    banned: Option<Instant>,
}

/// What follows for the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restricted {
    /// It gets no prompt of more tokens than this.
    To(u64),
    /// It gets none.
    Banned,
}

impl Strain {
    /// Memory ran out under a prompt of so many tokens. What ends several attempts at once is one event, and of its
    /// prompts the shortest counts.
    pub fn oom(&mut self, prompt: u64, now: Instant) -> Option<Restricted> {
        let since = |at: Instant| now.saturating_duration_since(at);
        let before = self.last.filter(|(at, _)| since(*at) < limits::STRAIN_WINDOW);
        if let Some((at, least)) = before.filter(|(at, _)| since(*at) < limits::STRAIN_SAME) {
            self.last = Some((at, least.min(prompt)));
            return None;
        }
        self.last = Some((now, prompt));
        let least = before?.1.min(prompt);
        let under_limit = self.limit(now).is_some();
        let until = now.checked_add(limits::STRAIN_BAN).unwrap_or(now);
        if under_limit || least / 2 < limits::STRAIN_LEAST {
            self.banned = Some(until);
            Some(Restricted::Banned)
        } else {
            self.limit = Some((least / 2, until));
            Some(Restricted::To(least / 2))
        }
    }

    /// The longest prompt that it gets, in tokens, where there is a bound.
    pub fn limit(&self, now: Instant) -> Option<u64> {
        self.limit.filter(|(_, until)| *until > now).map(|(tokens, _)| tokens)
    }

    /// Why a prompt of so many tokens is not for it.
    pub fn bars(&self, prompt: u64, now: Instant) -> Option<Why> {
        let left = |until: Instant| until.checked_duration_since(now).filter(|left| *left > Duration::ZERO);
        if let Some(left) = self.banned.and_then(left) {
            return Some(Why::Banned(left));
        }
        let (most, until) = self.limit?;
        left(until).filter(|_| prompt > most).map(|left| Why::PromptTooLong(most, left))
    }

    /// Whether something of it still counts.
    pub fn counts(&self, now: Instant) -> bool {
        self.bars(u64::MAX, now).is_some()
            || self.last.is_some_and(|(at, _)| now.saturating_duration_since(at) < limits::STRAIN_WINDOW)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn the_second_time_halves_its_prompts_and_the_third_bans_it() {
        let (mut strain, start) = (Strain::default(), crate::time::now());
        assert_eq!(strain.oom(8000, start), None);
        assert_eq!(strain.oom(6000, start + Duration::from_secs(1)), None, "one kill ends several attempts");
        assert_eq!(strain.bars(u64::MAX, start), None);
        let second = start + MINUTE;
        assert_eq!(strain.oom(9000, second), Some(Restricted::To(3000)));
        assert_eq!(strain.bars(3000, second), None);
        assert_eq!(strain.bars(3001, second), Some(Why::PromptTooLong(3000, limits::STRAIN_BAN)));
        let third = second + MINUTE;
        assert_eq!(strain.oom(2000, third), Some(Restricted::Banned));
        assert_eq!(strain.bars(1, third), Some(Why::Banned(limits::STRAIN_BAN)));
        assert_eq!(strain.bars(u64::MAX, third + limits::STRAIN_BAN), None, "for a time");
    }

    #[test]
    fn a_short_prompt_that_does_it_bans_the_model_and_once_an_hour_does_nothing() {
        let (mut strain, start) = (Strain::default(), crate::time::now());
        assert_eq!(strain.oom(20, start), None);
        assert_eq!(strain.oom(20, start + limits::STRAIN_WINDOW), None);
        assert_eq!(strain.oom(20, start + limits::STRAIN_WINDOW + MINUTE), Some(Restricted::Banned));
    }

    proptest! {
        #[test]
        fn it_never_bars_for_longer_than_it_may_nor_lets_through_what_it_said(
            events in proptest::collection::vec((0_u64..5000, 0_u64..20_000), 1..40)
        ) {
            let (mut strain, mut now) = (Strain::default(), crate::time::now());
            for (after, prompt) in events {
                now += Duration::from_secs(after);
                match strain.oom(prompt, now) {
                    Some(Restricted::To(most)) => {
                        prop_assert!(most >= limits::STRAIN_LEAST && most <= prompt / 2);
                        prop_assert!(strain.bars(most + 1, now).is_some());
                    }
                    Some(Restricted::Banned) => prop_assert!(strain.bars(0, now).is_some()),
                    None => {}
                }
                prop_assert!(strain.bars(u64::MAX, now + limits::STRAIN_BAN).is_none());
            }
        }
    }
}
