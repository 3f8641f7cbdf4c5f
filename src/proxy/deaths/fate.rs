//! What an attempt that has no token yet is told when the process that it waits for dies.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use super::server::Server;
use crate::cause::Cause;

/// One attempt's.
#[derive(Debug)]
pub struct Fate {
    /// The model, as the server knows it.
    pub(super) model: String,
    /// Its request may be why a runner ends: it asks for one with other options.
    pub(super) reloads: bool,
    told: Cell<Option<Cause>>,
    /// It has its first token: what becomes of its stream TCP tells.
    spoke: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Fate {
    pub(super) fn new(model: &str, reloads: bool) -> Rc<Self> {
        let (told, spoke) = (Cell::default(), Cell::default());
        Rc::new(Fate { model: model.to_owned(), reloads, told, spoke, waker: RefCell::default() })
    }

    /// Whether it is over, and by what; else the task is woken when it is.
    pub fn poll(&self, cx: &mut Context<'_>) -> Poll<Cause> {
        if let Some(cause) = self.told.get() {
            return Poll::Ready(cause);
        }
        let mut slot = self.waker.borrow_mut();
        if !slot.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            *slot = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Whether it still waits for its first token.
    pub(super) fn waits(&self) -> bool {
        !self.spoke.get() && self.told.get().is_none()
    }

    pub(super) fn tell(&self, cause: Cause) {
        self.told.set(Some(cause));
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }
}

/// An attempt's place among those of its server; dropping it gives it back.
#[derive(Debug)]
pub struct Bound {
    server: Rc<Server>,
    fate: Rc<Fate>,
}

impl Bound {
    pub(super) fn new(server: &Rc<Server>, fate: Rc<Fate>) -> Self {
        server.fates.borrow_mut().push(Rc::clone(&fate));
        Bound { server: Rc::clone(server), fate }
    }

    /// What it is told by.
    #[must_use]
    pub fn fate(&self) -> Rc<Fate> {
        Rc::clone(&self.fate)
    }

    /// Its first token came.
    pub fn spoke(&self) {
        self.server.answered(&self.fate.model);
    }

    /// The client has its answer: the server's death is no reason to begin another one.
    pub fn answered(&self) {
        self.fate.spoke.set(true);
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        let mut fates = self.server.fates.borrow_mut();
        if let Some(at) = fates.iter().position(|fate| Rc::ptr_eq(fate, &self.fate)) {
            fates.swap_remove(at);
        }
    }
}
