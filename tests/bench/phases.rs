//! What is measured, one function each; every one prints its table and gives the goals it decides.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use crate::Plan;
use crate::client::{self, Clients};
use crate::proxies::{Memory, Proxy, Setup, Via};
use crate::report::{self, Goal, median, micros, percentile};
use crate::upstream::Mode;

/// Requests of one round, at full length: enough for a p99 of its own.
const ROUND_REQUESTS: [(usize, usize); 2] = [(1, 2_000), (32, 6_400)];
/// Paced streams take 100 ms each, so a round has fewer.
const ROUND_PACED: [(usize, usize); 2] = [(1, 20), (32, 960)];
/// Streams held open while memory is read.
const GATED: usize = 64;
/// Requests over which memory must be flat.
const FLAT_REQUESTS: usize = 100_000;
/// Failovers measured of each kind.
const FAILOVERS: usize = 400;
/// Starts of each proxy.
const STARTS: usize = 20;

/// One round of one proxy.
#[derive(Clone, Copy)]
struct Sample {
    p50: f64,
    p99: f64,
    rate: f64,
    /// Proxy CPU for each request, in µs.
    cpu: f64,
}

fn start_all(setup: &Setup, plan: &Plan) -> io::Result<Vec<Proxy>> {
    plan.vias.iter().map(|&via| setup.start(via)).collect()
}

fn within(via: Via, result: io::Result<client::Seen>) -> io::Result<client::Seen> {
    result.map_err(|error| io::Error::other(format!("{}: {error}", via.name())))
}

/// Time to first token, rate and CPU, proxies interleaved in rounds.
pub fn latency(setup: &Setup, plan: &Plan) -> io::Result<Vec<Goal>> {
    let proxies = start_all(setup, plan)?;
    let mut goals = Vec::new();
    for (mode, sizes) in [(Mode::Burst, ROUND_REQUESTS), (Mode::Paced, ROUND_PACED)] {
        for (clients, requests) in sizes {
            let requests = (requests / plan.divide).max(10);
            let mut samples: BTreeMap<Via, Vec<Sample>> = BTreeMap::new();
            let mut connected = Vec::new();
            for proxy in &proxies {
                let mut group = Clients::connect(proxy.addr, clients)?;
                within(proxy.via, group.run(Mode::Burst, clients * 20))?;
                connected.push(group);
            }
            for round in 0..plan.rounds {
                for turn in 0..proxies.len() {
                    // Another one begins each round, so that no proxy always follows the same one.
                    let at = (round + turn) % proxies.len();
                    let (proxy, group) = (&proxies[at], &mut connected[at]);
                    let before = proxy.cpu();
                    let mut seen = within(proxy.via, group.run(mode, requests))?;
                    let cpu = proxy.cpu() - before;
                    samples.entry(proxy.via).or_default().push(Sample {
                        p50: micros(percentile(&mut seen.first_token, 50)),
                        p99: micros(percentile(&mut seen.first_token, 99)),
                        rate: requests as f64 / seen.elapsed.as_secs_f64(),
                        cpu: micros(cpu) / requests as f64,
                    });
                }
            }
            goals.extend(latency_table(mode, clients, requests, plan, &samples));
        }
    }
    Ok(goals)
}

fn latency_table(
    mode: Mode,
    clients: usize,
    requests: usize,
    plan: &Plan,
    samples: &BTreeMap<Via, Vec<Sample>>,
) -> Vec<Goal> {
    let over = |via: Via, value: &dyn Fn(&Sample) -> f64| -> Vec<f64> {
        samples.get(&via).into_iter().flatten().map(value).collect()
    };
    // Differences and ratios are made within a round, then their median is taken.
    let pairs = |a: Vec<f64>, b: Vec<f64>, f: &dyn Fn(f64, f64) -> f64| -> Vec<f64> {
        a.into_iter().zip(b).map(|(a, b)| f(a, b)).collect()
    };
    let added = |via: Via, value: &dyn Fn(&Sample) -> f64| {
        pairs(over(via, value), over(Via::Direct, value), &|a, b| a - b)
    };
    let p50 = |sample: &Sample| sample.p50;
    let p99 = |sample: &Sample| sample.p99;
    let cpu = |sample: &Sample| sample.cpu;
    let speed = if mode == Mode::Paced { "a token each 5 ms" } else { "tokens at once" };
    println!(
        "\n{clients} client{}, 20-token streams, {speed}: medians of {} rounds of {requests} requests",
        if clients == 1 { "" } else { "s" },
        plan.rounds
    );
    let mut rows = vec![report::row(&[
        "via",
        "TTFT p50",
        "p99",
        "added p50",
        "added p99",
        "req/s",
        "CPU/req",
        "added ÷ nginx",
        "CPU ÷ nginx",
    ])];
    let mut goals = Vec::new();
    for &via in &plan.vias {
        let (mut added_cell, mut added99, mut cpu_cell) = (String::new(), String::new(), String::new());
        let (mut ratio_added, mut ratio_cpu) = (String::new(), String::new());
        if via != Via::Direct {
            added_cell = format!("{:.0} µs", median(added(via, &p50)));
            added99 = format!("{:.0} µs", median(added(via, &p99)));
            cpu_cell = format!("{:.0} µs", median(over(via, &cpu)));
        }
        if via != Via::Direct && plan.vias.contains(&Via::Nginx) {
            let by_added = pairs(added(via, &p50), added(Via::Nginx, &p50), &|a, b| a / b);
            let by_cpu = pairs(over(via, &cpu), over(Via::Nginx, &cpu), &|a, b| a / b);
            ratio_added = report::ranged(&by_added);
            ratio_cpu = report::ranged(&by_cpu);
            if via == Via::Edgeward {
                let name = |what: &str| format!("{what}, {clients} client(s), {speed}");
                goals.push(Goal::at_most(name("added TTFT ÷ nginx's"), median(by_added), 1.0, ""));
                goals.push(Goal::at_most(name("CPU per request ÷ nginx's"), median(by_cpu), 1.3, ""));
            }
        }
        rows.push(report::row(&[
            via.name(),
            &format!("{:.0} µs", median(over(via, &p50))),
            &format!("{:.0} µs", median(over(via, &p99))),
            &added_cell,
            &added99,
            &format!("{:.0}", median(over(via, &|sample| sample.rate))),
            &cpu_cell,
            &ratio_added,
            &ratio_cpu,
        ]));
    }
    report::table(&rows);
    goals
}

/// Memory at rest, with held streams, and after them.
pub fn memory(setup: &Setup, plan: &Plan) -> io::Result<Vec<Goal>> {
    println!("\nMemory, all processes of each, RSS (anonymous / proportional)");
    let mut rows =
        vec![report::row(&["via", "at rest", "after load", "64 held", "64 held, 48 KiB each", "after them"])];
    let mut goals = Vec::new();
    for &via in plan.vias.iter().filter(|via| **via != Via::Direct) {
        let proxy = setup.start(via)?;
        let rest = proxy.memory();
        let mut group = Clients::connect(proxy.addr, 32)?;
        within(via, group.run(Mode::Burst, 5_000 / plan.divide))?;
        let loaded = proxy.memory();
        drop(group);
        let held = hold(setup, &proxy, Mode::Hold)?;
        let full = hold(setup, &proxy, Mode::HoldFull)?;
        let after = proxy.memory();
        let cell = |memory: Memory| {
            format!(
                "{} ({} / {})",
                report::mib(memory.rss),
                report::mib(memory.anon),
                report::mib(memory.pss)
            )
        };
        rows.push(report::row(&[
            via.name(),
            &cell(rest),
            &cell(loaded),
            &cell(held),
            &cell(full),
            &cell(after),
        ]));
        if via == Via::Edgeward {
            let mib = |memory: Memory| memory.rss as f64 / 1024.0;
            goals.push(Goal::at_most("memory at rest".into(), mib(rest), 8.0, "MiB"));
            goals.push(Goal::at_most("memory with 64 gated streams".into(), mib(held), 16.0, "MiB"));
            goals.push(Goal::at_most("… each with 48 KiB held".into(), mib(full), 16.0, "MiB"));
        }
    }
    report::table(&rows);
    Ok(goals)
}

/// Opens held streams through `proxy`, reads its memory while they are held, then lets them end.
fn hold(setup: &Setup, proxy: &Proxy, mode: Mode) -> io::Result<Memory> {
    let mut group = Clients::connect(proxy.addr, GATED)?;
    group.send_all(mode)?;
    client::get(setup.upstream[0], &format!("/bench/held/{GATED}"))?;
    let memory = proxy.memory();
    client::get(setup.upstream[0], "/bench/release")?;
    within(proxy.via, group.collect_all())?;
    Ok(memory)
}

/// Memory over many requests.
pub fn flat(setup: &Setup, plan: &Plan) -> io::Result<Vec<Goal>> {
    let total = FLAT_REQUESTS / plan.divide;
    let step = total / 20;
    println!("\nRSS over {total} requests, 32 clients");
    let mut rows =
        vec![report::row(&["via", "after a twentieth", "a half", "all", "least", "most", "growth"])];
    let mut goals = Vec::new();
    for &via in plan.vias.iter().filter(|via| **via != Via::Direct) {
        let proxy = setup.start(via)?;
        let mut group = Clients::connect(proxy.addr, 32)?;
        let mut sizes = Vec::new();
        within(
            via,
            group.run_watched(Mode::Burst, total, &mut |count| {
                if count % step == 0 {
                    sizes.push(proxy.memory().rss);
                }
                Ok(())
            }),
        )?;
        let (Some(&first), Some(&last)) = (sizes.first(), sizes.last()) else { continue };
        // From a tenth on: the first requests fill pools and caches.
        let settled = sizes.get(1).copied().unwrap_or(first);
        let growth = last.saturating_sub(settled);
        rows.push(report::row(&[
            via.name(),
            &report::mib(first),
            &report::mib(sizes[sizes.len() / 2]),
            &report::mib(last),
            &report::mib(sizes.iter().copied().min().unwrap_or(0)),
            &report::mib(sizes.iter().copied().max().unwrap_or(0)),
            &format!("{growth} KiB"),
        ]));
        if via == Via::Edgeward {
            goals.push(Goal::at_most(format!("growth over {total} requests"), growth as f64, 256.0, "KiB"));
        }
    }
    report::table(&rows);
    Ok(goals)
}

/// From the reset of the local target's connection to the next target's request, on the upstream's clock.
pub fn failover(setup: &Setup, plan: &Plan) -> io::Result<Vec<Goal>> {
    let proxy = setup.start(Via::Edgeward)?;
    let mut client = Clients::connect(proxy.addr, 1)?;
    println!(
        "\nFailover: from the local target's reset to the next target's request, both seen by the upstream"
    );
    let mut rows = vec![report::row(&["the reset comes", "connection", "count", "p50", "p99", "most"])];
    let mut goals = Vec::new();
    for (mode, when) in [(Mode::DieHead, "before the head"), (Mode::DieRole, "after a role frame")] {
        client::get(setup.upstream[0], "/bench/failovers")?;
        let count = (FAILOVERS / plan.divide).max(20);
        for _ in 0..count {
            within(Via::Edgeward, client.run(mode, 1))?;
            // A good answer between, so that the local target is worth trying again.
            within(Via::Edgeward, client.run(Mode::Burst, 1))?;
        }
        let lines = client::get(setup.upstream[0], "/bench/failovers")?;
        for kind in ["warm", "cold"] {
            let mut took: Vec<Duration> = lines
                .lines()
                .filter_map(|line| line.split_once(' '))
                .filter(|(_, temperature)| *temperature == kind)
                .filter_map(|(nanos, _)| nanos.parse().ok().map(Duration::from_nanos))
                .collect();
            if took.is_empty() {
                continue;
            }
            let (p50, p99) = (percentile(&mut took, 50), percentile(&mut took, 99));
            rows.push(report::row(&[
                when,
                kind,
                &took.len().to_string(),
                &format!("{:.0} µs", micros(p50)),
                &format!("{:.0} µs", micros(p99)),
                &format!("{:.0} µs", micros(percentile(&mut took, 100))),
            ]));
            if kind == "warm" {
                goals.push(Goal::at_most(format!("failover p99, {when}"), micros(p99) / 1000.0, 1.0, "ms"));
            }
        }
    }
    report::table(&rows);
    Ok(goals)
}

/// From starting the program to the first whole answer through it.
pub fn start(setup: &Setup, plan: &Plan) -> io::Result<Vec<Goal>> {
    let count = (STARTS / plan.divide).max(5);
    println!("\nStart: from exec to the first whole answer, {count} starts each");
    let mut rows = vec![report::row(&["via", "p50", "most"])];
    let mut goals = Vec::new();
    let mut times: BTreeMap<Via, Vec<Duration>> = BTreeMap::new();
    for _ in 0..count {
        for &via in plan.vias.iter().filter(|via| **via != Via::Direct) {
            times.entry(via).or_default().push(setup.start(via)?.ready);
        }
    }
    for (via, mut times) in times {
        let p50 = percentile(&mut times, 50);
        rows.push(report::row(&[
            via.name(),
            &format!("{:.1} ms", micros(p50) / 1000.0),
            &format!("{:.1} ms", micros(percentile(&mut times, 100)) / 1000.0),
        ]));
        if via == Via::Edgeward {
            goals.push(Goal::at_most("ready after start".into(), micros(p50) / 1000.0, 20.0, "ms"));
        }
    }
    report::table(&rows);
    Ok(goals)
}
