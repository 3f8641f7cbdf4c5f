//! A staged rollout at work: two gateways, the judge between them, and the requests that tell it how they ended.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::gateway::Gateway;
use crate::config::Rollout;
use crate::config::rollout::{Judge, Pick, Sample, Verdict};
use crate::observe::Outcome;
use crate::time::now;

/// One rollout, as long as it lasts.
pub struct Trial {
    judge: RefCell<Judge>,
    judged: Notify,
}

impl Trial {
    /// It begins.
    #[must_use]
    pub fn new(terms: Rollout) -> Rc<Self> {
        Rc::new(Trial { judge: RefCell::new(Judge::new(terms, now())), judged: Notify::new() })
    }

    /// What is known of it now.
    #[must_use]
    pub fn judge(&self) -> Judge {
        self.judge.borrow().clone()
    }

    /// For the next request.
    pub(super) fn pick(&self, answer: bool) -> Pick {
        self.judge.borrow_mut().pick(answer)
    }

    /// A request of `side` ended.
    fn ended(&self, side: Pick, ended: &Ended) {
        let sample = match ended.outcome {
            Outcome::Answered if ended.failures == 0 => Sample::Well,
            Outcome::Answered => Sample::Rescued,
            Outcome::Failed | Outcome::Broken | Outcome::Unavailable => Sample::Failed,
            // The client's doing, or ours by order; nothing is known of the routing.
            Outcome::Refused | Outcome::ClientGone | Outcome::Cancelled | Outcome::Drained => return,
        };
        let mut judge = self.judge.borrow_mut();
        // What had begun before is none of the comparison. Without a model it was a list, or refused before it was
        // routed at all.
        if ended.began < judge.began() || ended.model.is_empty() {
            return;
        }
        judge.record(side, sample, ended.first_token);
        if judge.verdict(now()) != Verdict::Hold {
            self.judged.notify_one();
        }
    }

    /// Waits until it is to end, and says how.
    pub async fn verdict(&self) -> Verdict {
        loop {
            let at = now();
            let due = {
                let judge = self.judge.borrow();
                match judge.verdict(at) {
                    Verdict::Hold => judge.due(at),
                    verdict => return verdict,
                }
            };
            tokio::select! {
                () = self.judged.notified() => {}
                () = tokio::time::sleep(due.saturating_duration_since(at)) => {}
            }
        }
    }
}

/// How a request ended, for the rollout that it was a part of.
pub struct Ended<'a> {
    /// The model that was asked for.
    pub model: &'a str,
    /// When its head had come.
    pub began: Instant,
    /// How it ended.
    pub outcome: Outcome,
    /// Attempts that failed by their target's fault.
    pub failures: usize,
    /// From the request's head to its first token.
    pub first_token: Option<Duration>,
}

/// A gateway's part in a rollout, while there is one.
#[derive(Default)]
pub struct Part(RefCell<Option<(Rc<Trial>, Pick)>>);

impl Part {
    /// This gateway is that side of `trial`.
    pub(super) fn is(&self, trial: &Rc<Trial>, side: Pick) {
        self.0.replace(Some((Rc::clone(trial), side)));
    }

    /// No rollout any more.
    pub(super) fn none(&self) {
        self.0.take();
    }

    /// The rollout that it is a part of.
    #[must_use]
    pub fn trial(&self) -> Option<Rc<Trial>> {
        self.0.borrow().as_ref().map(|(trial, _)| Rc::clone(trial))
    }

    /// A request of this gateway ended.
    pub fn ended(&self, ended: &Ended<'_>) {
        if let Some((trial, side)) = &*self.0.borrow() {
            trial.ended(*side, ended);
        }
    }
}

/// The routing that is tried, and by which trial.
#[derive(Clone)]
pub struct Candidate {
    /// What requests of the new side go through.
    pub gateway: Rc<Gateway>,
    /// Its trial.
    pub trial: Rc<Trial>,
}
