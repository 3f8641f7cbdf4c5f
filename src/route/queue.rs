//! Admission: at most `max_concurrent` requests at a target, and a short, fair, bounded wait for the others.

use std::collections::VecDeque;
use std::time::Instant;

use crate::config::{Priority, Queue};
use crate::limits;

/// A target's place here. It means the same target in every configuration, so that a reload loses no count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lane(usize);

/// One request at one target, from [`Queues::enter`] to [`Queues::leave`]. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pass {
    lane: Lane,
    number: u64,
}

/// What became of a request at the door.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// It may go to the target.
    In(Pass),
    /// It waits until it is told, at most until then.
    Waits {
        /// Its place.
        pass: Pass,
        /// When its wait is over.
        until: Instant,
        /// The queue was full: this other one is out, and gets its 503.
        instead_of: Option<Pass>,
    },
    /// Too many wait already: 503.
    Shed,
}

/// All targets' doors. Among those who wait at one the highest priority is first; within a priority clients take
/// turns, each with its oldest request. A full queue sheds the newest request of who has the most in it.
#[derive(Debug, Default)]
pub struct Queues {
    lanes: Vec<Door>,
    last: u64,
}

#[derive(Debug)]
struct Door {
    /// The target's name.
    name: String,
    /// Whether the present configuration has it.
    named: bool,
    /// `max_concurrent`.
    room: Option<usize>,
    /// The requests at the target.
    inside: Vec<u64>,
    /// The clients that wait, by priority, the highest first; each in its turn.
    waiting: [VecDeque<Client>; 3],
}

#[derive(Debug)]
struct Client {
    key: u64,
    /// Its requests, the oldest first: number, and when its wait is over. Never empty.
    requests: VecDeque<(u64, Instant)>,
}

impl Queues {
    /// The lanes of these targets, by name, in the same order. One that is known keeps its bound; another one has this.
    pub fn lanes<'a>(&mut self, targets: impl IntoIterator<Item = (&'a str, Option<u32>)>) -> Vec<Lane> {
        targets.into_iter().map(|(name, most)| self.lane(name, most)).collect()
    }

    /// Takes up a configuration: for each target, by name, its `max_concurrent`. Returns their lanes in the same
    /// order, and who is let in because there is more room now.
    pub fn configure<'a>(
        &mut self,
        targets: impl IntoIterator<Item = (&'a str, Option<u32>)>,
    ) -> (Vec<Lane>, Vec<Pass>) {
        self.lanes.iter_mut().for_each(|door| door.named = false);
        let targets = targets.into_iter().map(|(name, most)| {
            let lane = self.lane(name, most);
            if let Some(door) = self.lanes.get_mut(lane.0) {
                (door.named, door.room) = (true, room(most));
            }
            lane
        });
        let lanes: Vec<Lane> = targets.collect();
        let mut woken = Vec::new();
        for lane in 0..self.lanes.len() {
            while let Some(pass) = self.let_in(Lane(lane)) {
                woken.push(pass);
            }
        }
        (lanes, woken)
    }

    fn lane(&mut self, name: &str, most: Option<u32>) -> Lane {
        if let Some(at) = self.lanes.iter().position(|door| door.name == name) {
            return Lane(at);
        }
        let waiting = Default::default();
        let door = Door { name: name.to_owned(), named: true, room: room(most), inside: Vec::new(), waiting };
        let full = self.lanes.len() >= limits::QUEUE_LANES;
        match self.lanes.iter_mut().enumerate().find(|(_, door)| full && !door.named && door.is_idle()) {
            Some((at, unused)) => {
                *unused = door;
                Lane(at)
            }
            None => {
                self.lanes.push(door);
                Lane(self.lanes.len() - 1)
            }
        }
    }

    /// Whether a request would be let in at once.
    #[must_use]
    pub fn is_free(&self, lane: Lane) -> bool {
        self.lanes.get(lane.0).is_none_or(Door::has_room)
    }

    /// A request is at the door of `lane`. `client` is the same number for all requests of one client key.
    #[must_use]
    pub fn enter(
        &mut self,
        lane: Lane,
        client: u64,
        priority: Priority,
        queue: &Queue,
        now: Instant,
    ) -> Entry {
        self.last += 1;
        let pass = Pass { lane, number: self.last };
        // No configuration gave out such a lane.
        let Some(door) = self.lanes.get_mut(lane.0) else { return Entry::In(pass) };
        if door.has_room() {
            door.inside.push(pass.number);
            return Entry::In(pass);
        }
        if queue.length == 0 || queue.time.is_zero() {
            return Entry::Shed;
        }
        let mut instead_of = None;
        if door.waiting() >= queue.length {
            let Some(number) = door.push_out(client, priority) else { return Entry::Shed };
            instead_of = Some(Pass { lane, number });
        }
        let until = now + queue.time;
        if let Some(clients) = door.waiting.get_mut(rank(priority)) {
            match clients.iter_mut().find(|one| one.key == client) {
                Some(one) => one.requests.push_back((pass.number, until)),
                None => {
                    clients
                        .push_back(Client { key: client, requests: VecDeque::from([(pass.number, until)]) });
                }
            }
        }
        Entry::Waits { pass, until, instead_of }
    }

    /// A request is over, or gives up its wait: the same call, whether it was let in meanwhile or not. Returns who is
    /// let in now in its place, and must be told. Calling it again, or after a shed, does nothing.
    #[must_use = "who is let in must be told"]
    pub fn leave(&mut self, pass: Pass) -> Option<Pass> {
        let door = self.lanes.get_mut(pass.lane.0)?;
        if let Some(at) = door.inside.iter().position(|number| *number == pass.number) {
            door.inside.swap_remove(at);
            return self.let_in(pass.lane);
        }
        door.retain(|number, _| number != pass.number);
        None
    }

    /// Requests at the target.
    #[must_use]
    pub fn inside(&self, lane: Lane) -> usize {
        self.lanes.get(lane.0).map_or(0, |door| door.inside.len())
    }

    /// Requests that wait for it.
    #[must_use]
    pub fn waiting(&self, lane: Lane) -> usize {
        self.lanes.get(lane.0).map_or(0, Door::waiting)
    }

    fn let_in(&mut self, lane: Lane) -> Option<Pass> {
        let door = self.lanes.get_mut(lane.0)?;
        if !door.has_room() {
            return None;
        }
        let number = door.next()?;
        door.inside.push(number);
        Some(Pass { lane, number })
    }
}

impl Door {
    fn has_room(&self) -> bool {
        self.room.is_none_or(|room| self.inside.len() < room)
    }

    fn is_idle(&self) -> bool {
        self.inside.is_empty() && self.waiting() == 0
    }

    fn waiting(&self) -> usize {
        self.waiting.iter().flatten().map(|client| client.requests.len()).sum()
    }

    /// Takes the next one out of the queue; its client's next turn is after all others'.
    fn next(&mut self) -> Option<u64> {
        let clients = self.waiting.iter_mut().find(|clients| !clients.is_empty())?;
        let mut client = clients.pop_front()?;
        let (number, _) = client.requests.pop_front()?;
        if !client.requests.is_empty() {
            clients.push_back(client);
        }
        Some(number)
    }

    /// Makes room for a request of `client`: the newest one of whoever waits with the most requests in the lowest
    /// priority goes, if that priority is lower, or if they still have no fewer there than `client` then.
    fn push_out(&mut self, client: u64, priority: Priority) -> Option<u64> {
        let lowest = self.waiting.iter().rposition(|clients| !clients.is_empty())?;
        let clients = self.waiting.get_mut(lowest)?;
        let own = clients.iter().find(|one| one.key == client).map_or(0, |one| one.requests.len());
        // Of several with the most, the last in turn.
        let most = clients.iter_mut().max_by_key(|one| one.requests.len())?;
        let fair = match lowest.cmp(&rank(priority)) {
            std::cmp::Ordering::Greater => true,
            std::cmp::Ordering::Equal => most.requests.len() > own + 1,
            std::cmp::Ordering::Less => false,
        };
        let (number, _) = fair.then(|| most.requests.pop_back()).flatten()?;
        clients.retain(|one| !one.requests.is_empty());
        Some(number)
    }

    /// Keeps those in the queue of whom `stays` says so.
    fn retain(&mut self, mut stays: impl FnMut(u64, Instant) -> bool) {
        for clients in &mut self.waiting {
            for client in clients.iter_mut() {
                client.requests.retain(|(number, until)| stays(*number, *until));
            }
            clients.retain(|client| !client.requests.is_empty());
        }
    }
}

fn room(most: Option<u32>) -> Option<usize> {
    most.map(|most| usize::try_from(most).unwrap_or(usize::MAX))
}

/// Its row in [`Door::waiting`].
const fn rank(priority: Priority) -> usize {
    match priority {
        Priority::High => 0,
        Priority::Normal => 1,
        Priority::Low => 2,
    }
}

#[cfg(test)]
mod tests;
