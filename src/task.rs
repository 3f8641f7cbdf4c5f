//! Starts tasks, and the loop that runs them. Futures are boxed here, or behind a pointer: what runs one is compiled for
//! each kind there is, a few kB a kind.

use std::pin::Pin;

use tokio::runtime::Runtime;
use tokio::task::{JoinHandle, JoinSet, LocalSet, spawn_local};

/// A future that lives on this thread.
pub type Local<T> = Pin<Box<dyn Future<Output = T>>>;

/// Runs `main`, and the tasks that it starts until it is over.
pub fn run(runtime: &Runtime, main: Pin<&mut dyn Future<Output = ()>>) {
    LocalSet::new().block_on(runtime, main);
}

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
