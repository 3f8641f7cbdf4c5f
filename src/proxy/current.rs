//! Which gateway and which certificate are in use now: a reload replaces them, a rollout has two for a while.

use std::cell::RefCell;
use std::rc::Rc;

use tokio_rustls::TlsAcceptor;

use super::gateway::Gateway;
use super::rollout::Candidate;
use crate::config::rollout::Pick;

/// The gateway that new requests take, and the certificate that new connections are shown. During a rollout a second
/// gateway takes its share of the requests that are routed.
pub struct Current {
    stable: RefCell<Rc<Gateway>>,
    candidate: RefCell<Option<Candidate>>,
    tls: RefCell<Option<TlsAcceptor>>,
}

impl Current {
    /// Serves with `gateway` until it is replaced.
    #[must_use]
    pub fn new(gateway: Rc<Gateway>, tls: Option<TlsAcceptor>) -> Rc<Self> {
        Rc::new(Current {
            stable: RefCell::new(gateway),
            candidate: RefCell::new(None),
            tls: RefCell::new(tls),
        })
    }

    /// For one connection, one look, and everything of a request but its routing.
    #[must_use]
    pub fn get(&self) -> Rc<Gateway> {
        Rc::clone(&self.stable.borrow())
    }

    /// For the routing of one request; `answer`: a model is to answer it.
    #[must_use]
    pub fn pick(&self, answer: bool) -> Rc<Gateway> {
        match &*self.candidate.borrow() {
            Some(candidate) if candidate.trial.pick(answer) == Pick::New => Rc::clone(&candidate.gateway),
            _ => self.get(),
        }
    }

    /// The routing that is being tried.
    #[must_use]
    pub fn candidate(&self) -> Option<Candidate> {
        self.candidate.borrow().clone()
    }

    /// For one connection.
    #[must_use]
    pub fn tls(&self) -> Option<TlsAcceptor> {
        self.tls.borrow().clone()
    }

    /// From here on new connections are shown this.
    pub fn set_tls(&self, tls: Option<TlsAcceptor>) {
        self.tls.replace(tls);
    }

    /// From here on for all that is new. A rollout ends.
    pub fn replace(&self, gateway: Rc<Gateway>) {
        self.end_rollout();
        gateway.bounds_count(None);
        self.stable.replace(gateway);
    }

    /// `stable` for all that is new, but for `candidate`'s share. A rollout before it ends.
    pub fn try_out(&self, stable: Rc<Gateway>, candidate: Candidate) {
        self.replace(stable);
        self.get().part.is(&candidate.trial, Pick::Old);
        candidate.gateway.part.is(&candidate.trial, Pick::New);
        self.get().bounds_count(Some(&candidate));
        self.candidate.replace(Some(candidate));
    }

    /// Ends a rollout and stays with the routing before it. Gives what was tried.
    pub fn end_rollout(&self) -> Option<Candidate> {
        let candidate = self.candidate.take()?;
        candidate.gateway.part.none();
        self.get().part.none();
        self.get().bounds_count(None);
        Some(candidate)
    }
}
