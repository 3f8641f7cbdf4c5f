//! The attempt beside a late one: when it begins, and what its end means.

use std::time::{Duration, Instant};

use super::{Action, Exchange, Hedge};
use crate::cause::Cause;
use crate::proxy::turns::Turn;

impl Exchange {
    /// The present attempt is late: the next candidate that was not asked yet, if there is one.
    pub(super) fn hedge_deadline(&mut self, now: Instant) -> Option<Action> {
        match self.hedge {
            Some(Hedge::Due(at)) if now >= at => {
                self.hedge = None;
                let Turn::First(candidate) = self.next_turn(None, now) else { return None };
                Some(Action::Hedge { candidate })
            }
            Some(Hedge::Running(_, until)) if now >= until => {
                self.hedge_failed(Cause::TimeoutFirstToken, None, now);
                Some(Action::DropHedge)
            }
            Some(_) | None => None,
        }
    }

    pub(super) fn hedges(&mut self, candidate: usize, now: Instant) -> Action {
        let Some(hedge) = self.candidates.get(candidate) else { return Action::Wait };
        if self.hedge.is_none() && self.next_turn(None, now) == Turn::First(candidate) {
            let until = now + hedge.deadlines.connect + self.allowance(hedge);
            self.turns.asked(candidate);
            self.hedge = Some(Hedge::Running(candidate, until));
        }
        Action::Wait
    }

    pub(super) fn hedge_won(&mut self, n: usize, now: Instant) -> Action {
        match self.hedge.take() {
            Some(Hedge::Running(winner, _)) => {
                self.note(n, Cause::Hedged);
                self.commit(winner, now)
            }
            Some(Hedge::Due(_)) | None => Action::Wait,
        }
    }

    pub(super) fn hedge_failed(&mut self, cause: Cause, wait: Option<Duration>, now: Instant) {
        if let Some(Hedge::Running(n, _)) = self.hedge {
            self.hedge = None;
            self.note(n, cause);
            let most = self.candidates.get(n).map_or(0, |candidate| candidate.max_retries);
            self.turns.failed(n, most, cause, wait, now);
        }
    }

    /// Whatever the hedge would have said is of no use any more.
    pub(super) fn lose_hedge(&mut self, cause: Cause) {
        if let Some(Hedge::Running(n, _)) = self.hedge.take() {
            self.note(n, cause);
        }
    }
}
