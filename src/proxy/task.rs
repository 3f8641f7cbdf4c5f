//! Starts a task. Boxed: what runs a task is compiled for each kind of future there is, a few kB a kind.

use std::pin::Pin;

use tokio::task::{JoinHandle, JoinSet, spawn_local};

/// A future that lives on this thread.
pub type Local<T> = Pin<Box<dyn Future<Output = T>>>;

/// Starts `future` on this thread, in the [`tokio::task::LocalSet`] that runs.
pub fn start(future: impl Future<Output = ()> + 'static) -> JoinHandle<()> {
    boxed(Box::pin(future))
}

fn boxed(future: Local<()>) -> JoinHandle<()> {
    spawn_local(future)
}

/// The same for one of a set, which ends it when dropped.
pub fn start_in(set: &mut JoinSet<()>, future: impl Future<Output = ()> + 'static) {
    boxed_in(set, Box::pin(future));
}

fn boxed_in(set: &mut JoinSet<()>, future: Local<()>) {
    set.spawn_local(future);
}
