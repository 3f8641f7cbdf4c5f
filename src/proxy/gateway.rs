//! What all requests share: configuration, health, pools, budgets, counters; and how a reload renews it.

use std::cell::{Cell, OnceCell, RefCell};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use ring::rand::{SecureRandom, SystemRandom};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};

use super::body::Budget;
use super::cancel::Live;
use super::deaths::{Deaths, Server};
use super::discovery::Sights;
use super::facts::{Local, Locals};
use super::lately::Lately;
use super::places::Places;
use super::refused::Refused;
use super::rollout::{Candidate, Part};
use super::spending::{Accounts, Spending};
use super::trace::Tap;
use super::unstreamed::Unstreamed;
use super::upstream::{ProxyRules, SetupError, Upstreams, Visits};
use super::usual::Usual;
use super::{drills, lately, media, news, pressure};
use crate::cause::{Cause, Failure};
use crate::config::{Config, Kind, Place, Target};
use crate::gate::pool::{Buffer, Pool};
use crate::health::death::{Engine, advice};
use crate::health::store::Store;
use crate::memory::admit::Room;
use crate::memory::{self, Decision};
use crate::observe::metrics::{Gauges, Metrics};
use crate::observe::{self, events};
use crate::route;
use crate::route::budget::When;
use crate::route::drill::Drills;
use crate::route::hedge::HedgeShare;
use crate::route::queue::Lane;
use crate::route::retry::RetryBudget;
use crate::time::Steps;
use crate::watch::helper::Helper;

/// What outlives a reload: the process's own state.
pub struct Process {
    /// Requests under way.
    pub live: Rc<Live>,
    /// Client connections at present.
    pub connections: Cell<usize>,
    /// No new requests: edgeward is stopping.
    pub draining: Cell<bool>,
    /// Becomes true when connections are to close as soon as they are idle.
    pub closing: watch::Sender<bool>,
    /// Told each time a client connection closes.
    pub connection_closed: Notify,
    /// When this process began to serve.
    pub started: Instant,
    /// What retries may draw on.
    pub retries: RefCell<RetryBudget>,
    /// What hedges may draw on.
    pub hedges: RefCell<HedgeShare>,
    /// Attempts that fail on purpose.
    pub drills: RefCell<Drills>,
    /// Places at targets.
    pub places: Rc<Places>,
    /// What attempts cost.
    pub spending: Spending,
    /// What was asked and what became of it.
    pub lately: Lately,
    /// How memory stands; `None` while it is not watched.
    pub memory: Cell<Option<Decision>>,
    /// What is free for models at present; `None` while memory is not watched.
    pub room: Cell<Option<Room>>,
    /// What local servers have.
    pub locals: Locals,
    /// What memory the box usually lives with.
    pub usual: Usual,
    /// The changed configuration that could not be used, until one can.
    pub refused: RefCell<Option<Refused>>,
    /// What is recorded of the watchdog.
    pub tap: RefCell<Tap>,
    /// Pictures and files of clients' earlier turns.
    pub media: RefCell<media::cache::Cache>,
    /// How pictures are fetched, once one was.
    pub visits: OnceCell<Visits>,
    /// What the predictor is told at its next look; more than it takes is lost.
    pub noted: RefCell<heapless::Vec<memory::Event, 16>>,
    /// What knows the GPUs and hears the kernel.
    pub helper: Helper,
    /// What is known of local servers' processes.
    pub deaths: Deaths,
    /// What is asked for whole answers, since it gives no streams.
    pub unstreamed: RefCell<Unstreamed>,
    /// What answers on the usual ports.
    pub sights: Sights,
}

/// One per configuration, on the process's one thread. A request keeps the one that it began with.
pub struct Gateway {
    /// What all configurations of this process share.
    pub process: Rc<Process>,
    /// The configuration.
    pub config: Config,
    /// Health, by target.
    pub store: RefCell<Store>,
    /// What routing remembers.
    pub routing: RefCell<route::State>,
    /// Connections to targets.
    pub upstreams: Upstreams,
    /// Where places at each target are taken.
    pub lanes: Vec<Lane>,
    /// The process behind each target, where it is this box's.
    pub servers: Vec<Option<Rc<Server>>>,
    /// The targets that are local servers, where memory is watched.
    pub locals: Vec<Option<Rc<Local>>>,
    /// Where each target's and key's budgets are counted.
    pub accounts: Accounts,
    /// Counters.
    pub metrics: Rc<Metrics>,
    /// Memory for request bodies.
    pub bodies: Rc<Budget>,
    /// Memory for answers that are judged whole.
    pub answers: Rc<Budget>,
    /// Its part in a rollout.
    pub part: Part,
    clock: RefCell<Steps>,
    pool: Pool,
    gates: Arc<Semaphore>,
    random: SystemRandom,
}

/// A gate buffer and the permit that says that it was free.
#[derive(Debug)]
pub struct GateRoom {
    /// The buffer.
    pub buffer: Buffer,
    _permit: OwnedSemaphorePermit,
}

/// The parts of a room; the permit must outlive the buffer.
impl GateRoom {
    /// Takes the buffer out; give the permit back after it.
    pub fn split(self) -> (Buffer, OwnedSemaphorePermit) {
        (self.buffer, self._permit)
    }
}

impl Gateway {
    /// A gateway for `config`. `state`: the folder for what must outlive the process, if there is one.
    ///
    /// # Errors
    /// A target that cannot be set up: its CA file, its host, its proxy.
    pub fn new(config: Config, proxies: &ProxyRules, state: Option<&Path>) -> Result<Self, SetupError> {
        let upstreams = Upstreams::new(&config.targets, proxies)?;
        let limits = &config.limits;
        let (places, spending, usual) = (Rc::new(Places::default()), Spending::default(), Usual::default());
        if let Some(folder) = state {
            spending.open(folder, utc());
            usual.open(folder);
        }
        let (lanes, accounts) = (places.lanes(&config), spending.accounts(&config));
        let deaths = Deaths::default();
        let servers = deaths.servers(&config);
        let locals = Locals::default();
        let of_targets = locals.of(&config, crate::time::now());
        let gateway = Gateway {
            process: Rc::new(Process {
                live: Rc::new(Live::default()),
                connections: Cell::new(0),
                draining: Cell::new(false),
                closing: watch::Sender::new(false),
                connection_closed: Notify::new(),
                started: crate::time::now(),
                retries: RefCell::default(),
                hedges: RefCell::default(),
                drills: RefCell::default(),
                places,
                spending,
                lately: Lately::new(crate::time::now(), crate::time::local_now()),
                memory: Cell::default(),
                room: Cell::default(),
                locals,
                usual,
                refused: RefCell::default(),
                tap: RefCell::default(),
                media: RefCell::default(),
                visits: OnceCell::new(),
                noted: RefCell::default(),
                helper: Helper::default(),
                deaths,
                unstreamed: RefCell::default(),
                sights: Sights::default(),
            }),
            servers,
            lanes,
            locals: of_targets,
            accounts,
            store: RefCell::new(Store::new(
                &config.health,
                seed(),
                config.targets.iter().map(|target| target.discovered),
            )),
            routing: RefCell::new(route::State::new(&config, seed())),
            upstreams,
            metrics: Rc::new(Metrics::new(names(&config))),
            bodies: Rc::new(Budget::new(limits.body_memory, limits.max_body)),
            answers: Rc::new(Budget::new(limits.answer_memory, limits.answer_buffer)),
            part: Part::default(),
            clock: RefCell::new(Steps::new(crate::time::now(), crate::time::wall())),
            pool: Pool::new(limits.gated_streams, limits.gate_buffer),
            gates: Arc::new(Semaphore::new(limits.gated_streams)),
            random: SystemRandom::new(),
            config,
        };
        gateway.watch_servers();
        gateway.bounds_count(None);
        Ok(gateway)
    }

    /// The bounds that all requests share, at places and in budgets, are this configuration's from here on, and for
    /// targets that only the candidate has that one's.
    pub(super) fn bounds_count(&self, candidate: Option<&Candidate>) {
        let tried = candidate.map(|candidate| &candidate.gateway.config);
        self.process.places.configure(&self.config, tried);
        self.process.spending.configure(&self.config, tried);
    }

    /// The same process with another configuration: health and counters of targets that stay are kept, and
    /// so is all memory that was allocated at the start: `config` asks for the same of that.
    ///
    /// # Errors
    /// A target that cannot be set up: its CA file, its host, its proxy.
    pub fn renewed(&self, config: Config, proxies: &ProxyRules) -> Result<Self, SetupError> {
        let upstreams = Upstreams::new(&config.targets, proxies)?;
        let same = |target: &Target| {
            self.config.targets.iter().position(|old| old.name == target.name && old.url == target.url)
        };
        let store = self
            .store
            .borrow()
            .renewed(&config.health, config.targets.iter().map(|new| (same(new), new.discovered)));
        let lanes = self.process.places.lanes(&config);
        let accounts = self.process.spending.accounts(&config);
        let gateway = Gateway {
            process: Rc::clone(&self.process),
            servers: self.process.deaths.servers(&config),
            lanes,
            locals: self.process.locals.of(&config, crate::time::now()),
            accounts,
            store: RefCell::new(store),
            routing: RefCell::new(self.routing.borrow().renewed(&config)),
            upstreams,
            metrics: Rc::new(self.metrics.renewed(names(&config))),
            bodies: Rc::clone(&self.bodies),
            answers: Rc::clone(&self.answers),
            part: Part::default(),
            pool: self.pool.clone(),
            gates: Arc::clone(&self.gates),
            clock: RefCell::new(Steps::new(crate::time::now(), crate::time::wall())),
            random: SystemRandom::new(),
            config,
        };
        gateway.watch_servers();
        Ok(gateway)
    }

    fn watch_servers(&self) {
        let mut store = self.store.borrow_mut();
        for (index, target) in self.config.targets.iter().enumerate() {
            if target.place == Place::Local {
                store.watch(index);
            }
        }
    }

    /// A gate buffer; waits at most `limits.queue_time` for one. Waiters are served in order. A gated attempt
    /// that is past its deadline gives its buffer up by its own timer, which fires before any waiter's.
    pub async fn gate_room(&self) -> Option<GateRoom> {
        let permit = match Arc::clone(&self.gates).try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => {
                let waiting = Arc::clone(&self.gates).acquire_owned();
                tokio::time::timeout(self.config.limits.queue_time, waiting).await.ok()?.ok()?
            }
        };
        Some(GateRoom { buffer: self.pool.take()?, _permit: permit })
    }

    /// A gate buffer, if one is free now.
    #[must_use]
    pub fn free_gate_room(&self) -> Option<GateRoom> {
        let permit = Arc::clone(&self.gates).try_acquire_owned().ok()?;
        Some(GateRoom { buffer: self.pool.take()?, _permit: permit })
    }

    /// An unguessable request id: 128 random bits in hex.
    #[must_use]
    pub fn request_id(&self) -> String {
        let mut bits = [0_u8; 16];
        // The kernel's generator fails only where it does not exist; a repeated id would then only make
        // cancelling ambiguous, which is no reason to refuse a request.
        if self.random.fill(&mut bits).is_err() {
            bits = self.process.started.elapsed().as_nanos().to_be_bytes();
        }
        bits.iter().fold(String::with_capacity(32), |mut hex, byte| {
            for digit in [byte >> 4, byte & 15] {
                hex.push(char::from_digit(u32::from(digit), 16).unwrap_or('0'));
            }
            hex
        })
    }

    /// Both clocks, for budgets.
    #[must_use]
    pub fn when(&self, now: Instant) -> When {
        When { now, utc: utc() }
    }

    /// Whether the retry budget has one left; it is drawn.
    #[must_use]
    pub fn may_retry(&self, now: Instant) -> bool {
        self.process.retries.borrow_mut().take(self.config.retry.budget, now)
    }

    /// Different for each request.
    #[must_use]
    pub fn random(&self) -> u64 {
        let mut bits = [0_u8; 8];
        let _alike = self.random.fill(&mut bits);
        u64::from_le_bytes(bits)
    }

    /// A spare connection to `target`, in time or not at all; nobody waits for it.
    pub async fn warm(&self, target: usize) {
        match self.upstreams.warm(target).await {
            Ok(()) if self.upstreams.idle(target) > 0 => self.store.borrow_mut().reached(target),
            // Another task is at it.
            Ok(()) => {}
            Err(failure) if failure.cause == Cause::Clock => self.waits_for_time(target, &failure),
            // Left to the request that meets it.
            Err(failure) => observe::fine("no warm spare", Some(self.name(target)), &failure),
        }
    }

    /// The certificate of `target` is not valid yet by this box's clock. Said once.
    pub fn waits_for_time(&self, target: usize, failure: &Failure) {
        if self.store.borrow_mut().waits_for_time(target, crate::time::now()) {
            events::target_waiting(self.name(target), failure);
        }
    }

    /// Looks whether the wall clock was set since the last look, says so, and gives those who waited for it.
    pub fn clock_was_set(&self) -> Option<Vec<usize>> {
        let wall = crate::time::wall();
        let set = self.clock.borrow_mut().look(crate::time::now(), wall);
        set.then(|| {
            let waited = self.store.borrow_mut().clock_was_set();
            events::clock_set(wall, waited.len());
            waited
        })
    }

    /// What time alone has changed of the targets' health; about once a second.
    pub fn tick(&self, now: Instant) {
        let news = self.store.borrow_mut().tick(now);
        news::say(self, &news);
        drills::tick(self, now);
        lately::tick(self, now);
        self.process.media.borrow_mut().sweep(&self.config.images, now);
    }

    /// Gauges for the metrics page.
    #[must_use]
    pub fn gauges(&self) -> Gauges {
        Gauges {
            connections: self.process.connections.get(),
            gated_streams: self.pool.in_use(),
            body_memory: self.bodies.in_use(),
            answer_memory: self.answers.in_use(),
            memory: self
                .process
                .memory
                .get()
                .map(|decision| (pressure::told(&decision), decision.pressure as u8)),
            uptime: self.process.started.elapsed(),
        }
    }

    /// A prompt of so many tokens was sent to `target`: it has left the box, unless that is on it.
    pub fn sent_to(&self, target: usize, prompt_tokens: u64) {
        let place = self.config.targets.get(target).map(|target| target.place);
        if place.is_some_and(|place| place != Place::Local) {
            self.metrics.left(target, prompt_tokens, self.day());
        }
    }

    /// The day (UTC), in days since 1970, by this box's clock.
    #[must_use]
    pub fn day(&self) -> u64 {
        self.seconds() / 86_400
    }

    /// Seconds since 1970, by this box's clock.
    #[must_use]
    pub fn seconds(&self) -> u64 {
        let since = crate::time::wall().duration_since(std::time::UNIX_EPOCH);
        since.map_or(0, |since| since.as_secs())
    }

    /// Where a target computes `model`, as clients name it: a local Ollama passes some on to a cloud.
    #[must_use]
    pub fn place(&self, target: usize, model: &str) -> Option<&'static str> {
        let target = self.config.targets.get(target)?;
        let away = target.models.resolve(model).is_some_and(memory::facts::ollama_cloud);
        Some(if away { Place::Cloud } else { target.place }.as_str())
    }

    /// What its operator can do about such a death of `target`.
    #[must_use]
    pub fn advice(&self, target: usize, cause: Cause) -> &'static str {
        let engine = match self.config.targets.get(target).map(|target| target.kind) {
            Some(Kind::Ollama) => Engine::Ollama,
            Some(Kind::Llamacpp) => Engine::Llamacpp,
            Some(Kind::Vllm) => Engine::Vllm,
            _ => Engine::Other,
        };
        advice(engine, cause)
    }

    /// A target's name.
    #[must_use]
    pub fn name(&self, target: usize) -> &str {
        self.config.targets.get(target).map_or("?", |target| target.name.as_str())
    }
}

/// Seconds since 1970, if the wall clock can be right.
fn utc() -> Option<u64> {
    let wall = crate::time::wall();
    let since = wall.duration_since(std::time::UNIX_EPOCH).ok()?;
    (!crate::time::is_wrong(wall)).then_some(since.as_secs())
}

/// Different for each process, so that a fleet's retries and probes do not fall together.
fn seed() -> u64 {
    let mut bits = [0_u8; 8];
    // Without the kernel's generator all boxes jitter alike, which is no reason not to serve.
    let _alike = SystemRandom::new().fill(&mut bits);
    u64::from_le_bytes(bits)
}

fn names(config: &Config) -> impl Iterator<Item = &str> {
    config.targets.iter().map(|target| target.name.as_str())
}
