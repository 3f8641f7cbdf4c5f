//! Places at targets with `max_concurrent`: taken when an attempt begins, given back once, waited for in turn.

use std::cell::RefCell;
use std::collections::HashMap;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Instant;

use crate::config::{Config, Priority, Queue};
use crate::route::queue::{Entry, Lane, Pass, Queues};

/// All targets' places. One for the process, so that a reload loses none.
#[derive(Debug, Default)]
pub struct Places {
    queues: RefCell<Queues>,
    waiting: RefCell<HashMap<Pass, Waiting>>,
}

#[derive(Debug, Default)]
struct Waiting {
    /// What became of it.
    told: Option<bool>,
    waker: Option<Waker>,
}

/// A place at a target, or in its queue. Dropping it gives it back, and lets the next one in.
#[derive(Debug)]
pub struct Place {
    places: Rc<Places>,
    pass: Pass,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.waiting.borrow_mut().remove(&self.pass);
        let next = self.places.queues.borrow_mut().leave(self.pass);
        if let Some(next) = next {
            self.places.tell(next, true);
        }
    }
}

impl Places {
    /// The lanes of a configuration's targets, in their order. No bound changes by that.
    pub fn lanes(&self, config: &Config) -> Vec<Lane> {
        self.queues.borrow_mut().lanes(bounds(config))
    }

    /// The bounds of `config` count from here on, and those of targets that only `tried` has.
    pub fn configure(&self, config: &Config, tried: Option<&Config>) {
        let only = |name: &str| config.targets.iter().all(|target| target.name != name);
        let tried = tried.into_iter().flat_map(bounds).filter(|(name, _)| only(name));
        let (_, let_in) = self.queues.borrow_mut().configure(bounds(config).chain(tried));
        let_in.into_iter().for_each(|pass| self.tell(pass, true));
    }

    /// Whether a place is free.
    #[must_use]
    pub fn is_free(&self, lane: Lane) -> bool {
        self.queues.borrow().is_free(lane)
    }

    /// How many wait.
    #[must_use]
    pub fn waiting(&self, lane: Lane) -> usize {
        self.queues.borrow().waiting(lane)
    }

    /// A place, if one is free now.
    #[must_use]
    pub fn take(self: &Rc<Self>, lane: Lane, now: Instant) -> Option<Place> {
        let at_once = Queue { length: 0, ..Queue::default() };
        let entry = self.queues.borrow_mut().enter(lane, 0, Priority::Normal, &at_once, now);
        match entry {
            Entry::In(pass) => Some(self.place(pass)),
            Entry::Waits { .. } | Entry::Shed => None,
        }
    }

    /// A place, now or in its turn: as long and as many may wait as `queue` says. `client` is the same number for all
    /// requests of one client key. `None`: it gets none.
    pub async fn wait(
        self: &Rc<Self>,
        lane: Lane,
        client: u64,
        priority: Priority,
        queue: &Queue,
        now: Instant,
    ) -> Option<Place> {
        let entry = self.queues.borrow_mut().enter(lane, client, priority, queue, now);
        let (place, until) = match entry {
            Entry::In(pass) => return Some(self.place(pass)),
            Entry::Shed => return None,
            Entry::Waits { pass, until, instead_of } => {
                if let Some(out) = instead_of {
                    self.tell(out, false);
                }
                (self.place(pass), until)
            }
        };
        self.waiting.borrow_mut().insert(place.pass, Waiting::default());
        let told = poll_fn(|cx| match self.waiting.borrow_mut().get_mut(&place.pass) {
            Some(Waiting { told: Some(told), .. }) => Poll::Ready(*told),
            Some(waiting) => {
                waiting.waker = Some(cx.waker().clone());
                Poll::Pending
            }
            None => Poll::Ready(false),
        });
        let told = tokio::time::timeout_at(until.into(), told).await;
        (told == Ok(true)).then_some(place)
    }

    fn place(self: &Rc<Self>, pass: Pass) -> Place {
        Place { places: Rc::clone(self), pass }
    }

    fn tell(&self, pass: Pass, is_in: bool) {
        if let Some(waiting) = self.waiting.borrow_mut().get_mut(&pass) {
            waiting.told = Some(is_in);
            if let Some(waker) = waiting.waker.take() {
                waker.wake();
            }
        }
    }
}

fn bounds(config: &Config) -> impl Iterator<Item = (&str, Option<u32>)> {
    config.targets.iter().map(|target| (target.name.as_str(), target.max_concurrent))
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use super::*;
    use crate::time::now;

    const QUEUE: Queue = Queue { length: 2, time: Duration::from_secs(2) };

    fn places(most: u32) -> (Rc<Places>, Lane) {
        let text = format!(
            "[[target]]\nname = \"t\"\nkind = \"vllm\"\nurl = \"http://127.0.0.1:1\"\nmax_concurrent = {most}\n"
        );
        let config = crate::config::parse(&text, Path::new("test"), &|_| None).expect(&text).config;
        let places = Rc::new(Places::default());
        let lane = places.lanes(&config)[0];
        (places, lane)
    }

    async fn wait(places: &Rc<Places>, lane: Lane, client: u64) -> Option<Place> {
        places.wait(lane, client, Priority::Normal, &QUEUE, now()).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_place_is_given_back_once_and_the_next_one_is_let_in() {
        let (places, lane) = places(1);
        let first = places.take(lane, now()).unwrap();
        assert!(places.take(lane, now()).is_none() && !places.is_free(lane));
        let (second, ()) = tokio::join!(wait(&places, lane, 1), async {
            tokio::task::yield_now().await;
            assert_eq!(places.waiting(lane), 1);
            drop(first);
        });
        assert!(second.is_some() && !places.is_free(lane));
        drop(second);
        assert!(places.is_free(lane) && places.waiting.borrow().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_ends_in_time_or_with_its_request_and_leaves_nothing() {
        let (places, lane) = places(1);
        let held = places.take(lane, now());
        assert!(wait(&places, lane, 1).await.is_none());
        let gone = tokio::time::timeout(Duration::from_secs(1), wait(&places, lane, 1)).await;
        assert!(gone.is_err() && places.waiting(lane) == 0);
        drop(held);
        assert!(places.is_free(lane) && places.waiting.borrow().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_was_let_in_and_went_away_lets_the_next_in() {
        let (places, lane) = places(1);
        let held = places.take(lane, now());
        let mut goes = Box::pin(wait(&places, lane, 1));
        let stays = wait(&places, lane, 2);
        assert!(futures_poll(&mut goes).await.is_none());
        let (stays, ()) = tokio::join!(stays, async {
            tokio::task::yield_now().await;
            drop(held);
            // It has the place, and nobody asks it for it any more.
            drop(goes);
        });
        assert!(stays.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_queue_sheds_who_has_the_most_in_it() {
        let (places, lane) = places(1);
        let _held = places.take(lane, now());
        let (mut first, mut second) = (Box::pin(wait(&places, lane, 1)), Box::pin(wait(&places, lane, 1)));
        assert!(futures_poll(&mut first).await.is_none() && futures_poll(&mut second).await.is_none());
        let mut other = Box::pin(wait(&places, lane, 2));
        assert!(futures_poll(&mut other).await.is_none());
        assert!(matches!(futures_poll(&mut second).await, Some(None)), "the newest of who has two");
        assert!(futures_poll(&mut first).await.is_none());
    }

    /// Polls once.
    async fn futures_poll<T>(future: &mut std::pin::Pin<Box<impl Future<Output = T>>>) -> Option<T> {
        poll_fn(|cx| {
            Poll::Ready(match future.as_mut().poll(cx) {
                Poll::Ready(done) => Some(done),
                Poll::Pending => None,
            })
        })
        .await
    }
}
