//! Asks NVML twice a second, on a thread of its own: what hangs there keeps nobody else from being heard.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enums::device::{SampleValue, UsedGpuMemory};
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try};
use nvml_wrapper::event::EventSet;
use nvml_wrapper::struct_wrappers::device::ProcessInfo;
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::sys_exports::field_id::NVML_FI_DEV_GET_GPU_RECOVERY_ACTION;
use nvml_wrapper::{Device, Nvml};
use rustix::thread::CapabilitySet;

use super::cards::{self, Card};
use super::peers::Peers;
use super::record::{DEVICES, Fault, Figures, Held, PROCESSES, Record, State, Why};

/// Between two looks.
const TICK: Duration = Duration::from_millis(500);
/// What changes seldom, or is long, is asked each so many looks.
const SELDOM: u64 = 10;
/// Until NVML is tried again where it cannot be had: a driver may be loaded, a box is seldom upgraded.
const RETRY: Duration = Duration::from_secs(60);
/// Another time, in milliseconds.
const RETRY_VARIABLE: &str = "EDGEWARD_NVML_RETRY_MS";
/// Looks that find nobody at a GPU that may sleep, after which it is let: 10 s.
const IDLE: u32 = 20;
/// Looks that it then has for that: 15 s. The kernel waits for less (omencore#166: 9 s).
const REST: u32 = 30;
/// How often a list is asked for again that grew while it was.
const AGAIN: usize = 3;
/// How long to wait for an event, in milliseconds; then it is looked whether to go on.
const WAIT_MS: u32 = 1000;

/// Why a session with NVML is over.
enum Over {
    /// Nobody uses a GPU that may sleep.
    Idle,
    /// A card is awake that was not.
    Woke,
    /// Every GPU is down. Whoever resets one needs it to be left alone.
    Down,
    /// NVML fails altogether.
    Failed(NvmlError),
}

/// For ever.
pub fn watch(peers: &Peers) {
    // A driver's library needs none of them. What filters system calls may not let it: then it has what the unit has.
    let _kept = super::ear::give_up(CapabilitySet::all());
    let asked = std::env::var(RETRY_VARIABLE).ok().and_then(|ms| ms.parse().ok());
    let retry = asked.map_or(RETRY, Duration::from_millis);
    // GPUs that were last seen down, and why: what NVML cannot find any more, where one was, is still that.
    let mut down = Down::new();
    loop {
        let cards = cards::all();
        if !cards.is_empty() && cards.iter().all(Card::sleeps) {
            asleep(&cards, peers);
            thread::park_timeout(TICK);
            continue;
        }
        peers.phase(true);
        let over = match Nvml::init() {
            Ok(nvml) => Session { nvml: &nvml, cards: &cards, peers }.run(&mut down),
            Err(error) => Over::Failed(error),
        };
        peers.phase(false);
        match over {
            Over::Idle => rest(&cards, peers),
            Over::Woke => {}
            Over::Down => still_down(&down, retry, peers),
            Over::Failed(error) if !down.is_empty() && why(&error) != Why::Mismatch => {
                still_down(&down, retry, peers);
            }
            Over::Failed(error) => {
                let why = why(&error);
                let record = Record::Blind(why, error.into());
                until_retry(retry, || peers.tell(&record));
                if why == Why::Mismatch {
                    // A library once loaded may stay so; a new process has the new one.
                    super::end(true);
                }
            }
        }
    }
}

/// GPUs that are down: why, and where they are.
type Down = BTreeMap<u8, (Fault, u32)>;

fn until_retry(retry: Duration, tell: impl Fn()) {
    for _ in 0..(retry.as_millis() / TICK.as_millis()).max(1) {
        tell();
        thread::park_timeout(TICK.min(retry));
    }
}

fn still_down(down: &Down, retry: Duration, peers: &Peers) {
    until_retry(retry, || {
        down.iter().for_each(|(n, (fault, pci))| peers.tell(&Record::Down(*n, *fault, *pci)));
    });
}

/// NVML is not in use: cards that may sleep have a while to fall asleep.
fn rest(cards: &[Card], peers: &Peers) {
    let mut slept = false;
    for _ in 0..REST {
        asleep(cards, peers);
        thread::park_timeout(TICK);
        let sleeps = cards.iter().all(Card::sleeps);
        if slept && !sleeps {
            // Somebody uses it.
            return;
        }
        slept = sleeps;
    }
}

fn asleep(cards: &[Card], peers: &Peers) {
    for (n, card) in (0..).zip(cards.iter().take(DEVICES)) {
        let figures = Figures { state: State::Asleep, pci: card.address(), ..Figures::default() };
        peers.tell(&Record::Figures(n, figures));
    }
}

fn why(error: &NvmlError) -> Why {
    match error {
        NvmlError::LibloadingError(_) | NvmlError::LibraryNotFound => Why::NoLibrary,
        NvmlError::DriverNotLoaded => Why::NoDriver,
        NvmlError::LibRmVersionMismatch => Why::Mismatch,
        NvmlError::NotFound => Why::NoDevice,
        NvmlError::OperatingSystem | NvmlError::NoPermission => Why::NotAllowed,
        _ => Why::Failed,
    }
}

fn fault(error: &NvmlError) -> Option<Fault> {
    match error {
        NvmlError::GpuLost => Some(Fault::Lost),
        NvmlError::ResetRequired => Some(Fault::NeedsReset),
        _ => None,
    }
}

/// How a GPU was found.
enum Seen {
    /// Whether somebody uses it.
    Up {
        used: bool,
    },
    Down(Fault),
}

/// A GPU that NVML has been asked for.
struct Known<'n> {
    device: Device<'n>,
    /// The driver wants it reset.
    to_reset: bool,
}

/// NVML, loaded.
struct Session<'n> {
    nvml: &'n Nvml,
    /// As the kernel has them; none where the GPU is on no bus.
    cards: &'n [Card],
    peers: &'n Peers,
}

impl<'n> Session<'n> {
    fn run(&self, down: &mut Down) -> Over {
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let events = || self.events(&stop);
            // Without it an Xid is heard from the kernel's log.
            let _without = thread::Builder::new().name("events".to_owned()).spawn_scoped(scope, events);
            let over = self.looks(down);
            stop.store(true, Ordering::Relaxed);
            over
        })
    }

    fn looks(&self, down: &mut Down) -> Over {
        let awake = self.awake();
        let (mut idle, mut known) = (0, BTreeMap::new());
        for tick in 0_u64.. {
            let now = self.awake();
            if now.iter().any(|n| !awake.contains(n)) {
                return Over::Woke;
            }
            let (mut told, mut failed, mut busy) = (0, NvmlError::NotFound, false);
            for n in now.iter().copied() {
                match self.look(n, tick, &mut known) {
                    Ok(Seen::Up { used }) => {
                        down.remove(&n);
                        told += 1;
                        busy |= used;
                    }
                    Ok(Seen::Down(fault)) => self.down(n, fault, down),
                    Err(error) => {
                        // Its handle is no good any more.
                        known.remove(&n);
                        match fault(&error).or_else(|| down.get(&n).map(|(fault, _)| *fault)) {
                            Some(fault) => self.down(n, fault, down),
                            None => failed = error,
                        }
                    }
                }
            }
            if told == 0 && !now.is_empty() || self.count() == 0 {
                let some = now.iter().any(|n| down.contains_key(n));
                return if some { Over::Down } else { Over::Failed(failed) };
            }
            for (n, card) in (0..).zip(self.cards.iter().take(DEVICES)).filter(|(n, _)| !now.contains(n)) {
                let figures = Figures { state: State::Asleep, pci: card.address(), ..Figures::default() };
                self.peers.tell(&Record::Figures(n, figures));
            }
            let may_sleep = self.cards.iter().any(|card| card.may_sleep());
            idle = if busy || !may_sleep { 0 } else { idle + 1 };
            if idle >= IDLE || now.is_empty() {
                return Over::Idle;
            }
            thread::park_timeout(TICK);
        }
        Over::Woke
    }

    /// GPUs by their number with the driver.
    fn count(&self) -> u8 {
        let cards = u32::try_from(self.cards.len()).unwrap_or(0);
        let count = if cards > 0 { cards } else { self.nvml.device_count().unwrap_or(0) };
        u8::try_from(count).unwrap_or(u8::MAX).min(DEVICES as u8)
    }

    /// Those that may be asked.
    fn awake(&self) -> Vec<u8> {
        (0..self.count())
            .filter(|n| self.cards.get(usize::from(*n)).is_none_or(|card| !card.sleeps()))
            .collect()
    }

    fn address(&self, n: u8) -> u32 {
        self.cards.get(usize::from(n)).map_or(0, Card::address)
    }

    fn device(&self, n: u8) -> Result<Device<'n>, NvmlError> {
        match self.cards.get(usize::from(n)) {
            // By number, NVML might wake those before it.
            Some(card) => self.nvml.device_by_pci_bus_id(card.name.clone()),
            None => self.nvml.device_by_index(u32::from(n)),
        }
    }

    fn down(&self, n: u8, fault: Fault, down: &mut Down) {
        let pci = self.address(n);
        down.insert(n, (fault, pci));
        self.peers.tell(&Record::Down(n, fault, pci));
    }

    /// One GPU's figures, told where it is up.
    fn look(&self, n: u8, tick: u64, known: &mut BTreeMap<u8, Known<'n>>) -> Result<Seen, NvmlError> {
        let Known { device, to_reset } = match known.entry(n) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(room) => room.insert(Known { device: self.device(n)?, to_reset: false }),
        };
        let (state, total, free) = match memory(device) {
            Ok((total, free)) => (State::Told, total, free),
            Err(NvmlError::NotSupported) => (State::Shared, 0, 0),
            Err(error) => return Err(error),
        };
        if tick.is_multiple_of(SELDOM) {
            *to_reset = recovery(device) > 0;
        }
        if *to_reset {
            return Ok(Seen::Down(Fault::Recovery));
        }
        let clocks = device.current_throttle_reasons().map_or(0, |reasons| reasons.bits());
        self.peers.tell(&Record::Figures(n, Figures { state, pci: self.address(n), total, free, clocks }));
        let compute = listed(|| device.running_compute_processes());
        if let Some(list) = &compute {
            self.processes(n, list);
        }
        let used = |list: Option<Vec<ProcessInfo>>| list.is_none_or(|list| !list.is_empty());
        let used = used(compute) || used(listed(|| device.running_graphics_processes()));
        Ok(Seen::Up { used })
    }

    fn processes(&self, n: u8, list: &[ProcessInfo]) {
        let held: Vec<Held> = list
            .iter()
            .filter_map(|process| match process.used_gpu_memory {
                UsedGpuMemory::Used(bytes) => {
                    Some(Held { pid: process.pid, kib: u32::try_from(bytes / 1024).unwrap_or(u32::MAX) })
                }
                UsedGpuMemory::Unavailable => None,
            })
            .collect();
        // An empty list is news as well.
        for at in (0..held.len().max(1)).step_by(PROCESSES) {
            let some = held.iter().skip(at).take(PROCESSES).copied().collect();
            self.peers.tell(&Record::Processes(n, at == 0, some));
        }
    }

    /// Waits for what the driver tells by itself.
    fn events(&self, stop: &AtomicBool) {
        let awake = self.awake();
        let mut wanted: Vec<Device<'n>> = awake.iter().filter_map(|n| self.device(*n).ok()).collect();
        let xid = EventTypes::CRITICAL_XID_ERROR;
        wanted.retain(|device| device.supported_event_types().is_ok_and(|types| types.contains(xid)));
        // A failed registration takes the set along: another try, without that one.
        let Some(set) = (0..=wanted.len()).find_map(|_| self.registered(&mut wanted, xid)) else { return };
        while !stop.load(Ordering::Relaxed) {
            match set.wait(WAIT_MS) {
                Ok(event) => {
                    let code = match event.event_data {
                        Some(XidError::Value(code)) => code,
                        Some(XidError::Unknown) | None => continue,
                    };
                    let n = event.device.index().ok().and_then(|n| u8::try_from(n).ok()).unwrap_or(0);
                    self.peers.tell(&Record::Xid(n, u32::try_from(code).unwrap_or(u32::MAX)));
                }
                Err(NvmlError::Timeout) => {}
                // One is lost, and says so at once at each call.
                Err(NvmlError::GpuLost) => thread::park_timeout(TICK),
                Err(_) => return,
            }
        }
    }

    fn registered(&self, wanted: &mut Vec<Device<'n>>, types: EventTypes) -> Option<EventSet<'n>> {
        let mut set = self.nvml.create_event_set().ok()?;
        for at in 0..wanted.len() {
            match wanted[at].register_events(types, set) {
                Ok(with_it) => set = with_it,
                Err(_) => {
                    wanted.remove(at);
                    return None;
                }
            }
        }
        (!wanted.is_empty()).then_some(set)
    }
}

/// All memory and what is free of it, in bytes: by version 2 of the call, which counts what the driver keeps, else by
/// version 1 (before R510, and where version 2 fails).
fn memory(device: &Device<'_>) -> Result<(u64, u64), NvmlError> {
    match device.memory_info() {
        Ok(info) => Ok((info.total, info.free)),
        Err(error) if fault(&error).is_some() => Err(error),
        Err(_) => memory_1(device),
    }
}

#[expect(unsafe_code, reason = "nvml-wrapper has version 2 only")]
fn memory_1(device: &Device<'_>) -> Result<(u64, u64), NvmlError> {
    let ask = nvml_sym(device.nvml().lib().nvmlDeviceGetMemoryInfo.as_ref())?;
    // SAFETY: the struct is three numbers, for which zeros are values.
    let mut info = unsafe { mem::zeroed() };
    // SAFETY: the symbol is of the library that is loaded, the handle is its own, and the struct is the one of this
    // version of the function, as the wrapper's own bindings have both.
    nvml_try(unsafe { ask(device.handle(), &raw mut info) })?;
    Ok((info.total, info.free))
}

/// What the driver wants done with it, 0: nothing. Drivers before R550 do not say.
fn recovery(device: &Device<'_>) -> u64 {
    let asked = device.field_values_for(&[FieldId(NVML_FI_DEV_GET_GPU_RECOVERY_ACTION)]);
    match asked.ok().and_then(|mut fields| fields.pop()?.ok()?.value.ok()) {
        Some(SampleValue::U32(action)) => u64::from(action),
        Some(SampleValue::U64(action)) => action,
        _ => 0,
    }
}

/// A list that may grow between being measured and being filled. `None`: it cannot be had.
fn listed(ask: impl Fn() -> Result<Vec<ProcessInfo>, NvmlError>) -> Option<Vec<ProcessInfo>> {
    for _ in 0..AGAIN {
        match ask() {
            Ok(list) => return Some(list),
            Err(NvmlError::InsufficientSize(_)) => {}
            Err(NvmlError::NotSupported) => return Some(Vec::new()),
            Err(_) => return None,
        }
    }
    None
}
