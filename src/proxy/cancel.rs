//! Stopping a request from outside: by its id, or because edgeward stops.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::task::{Context, Waker};

use crate::cause::Cause;

/// One request's handle for stopping it.
#[derive(Debug, Default)]
pub struct Cancel {
    cause: Cell<Option<Cause>>,
    /// Its driver has seen the stop, and let go of its target by that.
    seen: Cell<bool>,
    waker: RefCell<Option<Waker>>,
    /// Stops the whole client connection, for a client that takes no bytes and so cannot be told.
    connection: RefCell<Option<Rc<Cancel>>>,
}

impl Cancel {
    /// Asks for the stop. The first cause stays.
    pub fn stop(&self, cause: Cause) {
        if self.cause.get().is_none() {
            self.cause.set(Some(cause));
        }
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }

    /// Whether a stop was asked for; else the task is woken when it is.
    pub fn poll(&self, cx: &mut Context<'_>) -> Option<Cause> {
        if let Some(cause) = self.cause.get() {
            self.seen.set(true);
            return Some(cause);
        }
        let mut slot = self.waker.borrow_mut();
        if !slot.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            *slot = Some(cx.waker().clone());
        }
        None
    }

    /// Binds this request to its connection's handle.
    pub fn on_connection(&self, connection: &Rc<Cancel>) {
        *self.connection.borrow_mut() = Some(Rc::clone(connection));
    }

    /// Stops the connection itself.
    pub fn stop_connection(&self, cause: Cause) {
        if let Some(connection) = self.connection.borrow().as_ref() {
            connection.stop(cause);
        }
    }
}

/// The requests under way, by id.
#[derive(Debug, Default)]
pub struct Live {
    requests: RefCell<HashMap<String, Entry>>,
}

#[derive(Clone, Debug)]
struct Entry {
    cancel: Rc<Cancel>,
    /// The client key that made it: its SHA-256.
    key: Option<[u8; 32]>,
}

/// What became of a cancel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// It is being stopped.
    Yes,
    /// No such request runs (any more), or it is someone else's: not told apart.
    Unknown,
}

impl Live {
    /// Registers a request; the guard takes it out again.
    #[must_use]
    pub fn enter(self: &Rc<Self>, id: &str, cancel: &Rc<Cancel>, key: Option<[u8; 32]>) -> Registered {
        self.requests.borrow_mut().insert(id.to_owned(), Entry { cancel: Rc::clone(cancel), key });
        Registered { live: Rc::clone(self), id: id.to_owned() }
    }

    /// Cancels by id, for the key that made the request or for an operator.
    #[must_use]
    pub fn cancel(&self, id: &str, key: Option<[u8; 32]>, operator: bool) -> Cancelled {
        let Some(entry) = self.requests.borrow().get(id).cloned() else { return Cancelled::Unknown };
        if !operator && entry.key != key {
            return Cancelled::Unknown;
        }
        entry.cancel.stop(Cause::Cancelled);
        Cancelled::Yes
    }

    /// Stops every request.
    pub fn stop_all(&self, cause: Cause) {
        let entries: Vec<_> = self.requests.borrow().values().cloned().collect();
        entries.iter().for_each(|entry| entry.cancel.stop(cause));
    }

    /// Stops the connection of a request whose driver has not seen its stop: its client takes no bytes, and
    /// drivers run when their connection wants more.
    pub fn cut_if_deaf(&self, id: &str, cause: Cause) {
        let entry = self.requests.borrow().get(id).cloned();
        if let Some(entry) = entry.filter(|entry| !entry.cancel.seen.get()) {
            entry.cancel.stop_connection(cause);
        }
    }

    /// Stops the connections of one request, or of all that are left.
    pub fn stop_connections(&self, id: Option<&str>, cause: Cause) {
        let entries: Vec<_> = match id {
            Some(id) => self.requests.borrow().get(id).cloned().into_iter().collect(),
            None => self.requests.borrow().values().cloned().collect(),
        };
        entries.iter().for_each(|entry| entry.cancel.stop_connection(cause));
    }

    /// How many run.
    #[must_use]
    pub fn len(&self) -> usize {
        self.requests.borrow().len()
    }

    /// Whether none runs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A request's place among the live ones.
#[derive(Debug)]
pub struct Registered {
    live: Rc<Live>,
    id: String,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.live.requests.borrow_mut().remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_own_key_or_an_operator_cancels() {
        let live = Rc::new(Live::default());
        for (own, key, operator, wanted) in [
            (Some([0; 32]), Some([0; 32]), false, Cancelled::Yes),
            (Some([0; 32]), Some([1; 32]), false, Cancelled::Unknown),
            (Some([0; 32]), None, false, Cancelled::Unknown),
            (None, Some([1; 32]), false, Cancelled::Unknown),
            (None, None, false, Cancelled::Yes),
            (Some([0; 32]), Some([1; 32]), true, Cancelled::Yes),
        ] {
            let cancel = Rc::new(Cancel::default());
            let registered = live.enter("id", &cancel, own);
            assert_eq!(live.cancel("id", key, operator), wanted, "{own:?} {key:?} {operator}");
            assert_eq!(cancel.cause.get().is_some(), wanted == Cancelled::Yes);
            drop(registered);
            assert_eq!(live.cancel("id", own, true), Cancelled::Unknown);
        }
    }

    #[test]
    fn a_driver_that_does_not_run_loses_its_connection_and_one_that_runs_does_not() {
        let live = Rc::new(Live::default());
        let (cancel, connection) = (Rc::new(Cancel::default()), Rc::new(Cancel::default()));
        cancel.on_connection(&connection);
        let _registered = live.enter("id", &cancel, None);
        cancel.stop(Cause::Cancelled);
        assert!(cancel.poll(&mut Context::from_waker(Waker::noop())).is_some());
        live.cut_if_deaf("id", Cause::Cancelled);
        assert_eq!(connection.cause.get(), None);
        cancel.seen.set(false);
        live.cut_if_deaf("id", Cause::Cancelled);
        assert_eq!(connection.cause.get(), Some(Cause::Cancelled));
    }
}
