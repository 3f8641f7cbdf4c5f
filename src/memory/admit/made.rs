//! What models of one server are made of, as far as the server said.

use std::time::Instant;

use super::model::Model;
use super::server::{Server, key};
use crate::memory::need::Shape;

impl Server {
    /// What a model is made of, by `/api/show` and its like, its size included; `None`: the server did not say. Asked
    /// for where [`Server::knows`] says no.
    pub fn shape(&mut self, model: &str, shape: Option<&Shape>, now: Instant) {
        let key = key(self.kind, model);
        if let Some(model) = self.entry(key, now) {
            (model.shape_asked, model.missing) = (Some(now), false);
            if shape.is_some() {
                model.shape = shape.cloned();
            }
        }
    }

    /// It has no such model, it said when it was asked what that is made of.
    pub fn has_not(&mut self, model: &str, now: Instant) {
        let key = key(self.kind, model);
        if let Some(model) = self.entry(key, now) {
            (model.shape_asked, model.missing) = (Some(now), true);
        }
    }

    /// Whether it said so not long ago: there is nothing to load.
    #[must_use]
    pub fn lacks(&self, model: &str, now: Instant) -> bool {
        self.model(key(self.kind, model)).is_some_and(|model| model.missing && model.was_asked(now))
    }

    /// Whether it is known what the model needs, or was asked for not long ago. Where it is not, and the model is not
    /// resident, whoever admits should ask the server first: what it needs is a guess otherwise.
    #[must_use]
    pub fn knows(&self, model: &str, now: Instant) -> bool {
        !self.loads()
            || self
                .model(key(self.kind, model))
                .is_some_and(|model| model.shape.is_some() || model.was_asked(now))
    }

    /// Whether what a load of it needs is no mere guess: it said what it is made of, or had it before.
    #[must_use]
    pub fn can_tell(&self, model: &str) -> bool {
        let known = |model: &Model| model.seen > 0 || model.shape.as_ref().is_some_and(|it| it.weights > 0);
        self.model(key(self.kind, model)).is_some_and(known)
    }
}
