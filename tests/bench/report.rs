//! Medians, tables, and which goals were met.

use std::process::Command;
use std::time::Duration;

use crate::Plan;
use crate::proxies::{Setup, Via};

/// A bound that the issue sets and what was measured against it.
pub struct Goal {
    name: String,
    value: f64,
    bound: f64,
    unit: &'static str,
}

impl Goal {
    /// Met when `value` is not above `bound`.
    pub fn at_most(name: String, value: f64, bound: f64, unit: &'static str) -> Self {
        Goal { name, value, bound, unit }
    }
}

/// Prints each goal, met or missed.
pub fn goals(goals: &[Goal]) {
    if goals.is_empty() {
        return;
    }
    println!("\nGoals of edgeward");
    let mut rows = vec![row(&["goal", "at most", "measured", ""])];
    for goal in goals {
        rows.push(row(&[
            &goal.name,
            &format!("{} {}", goal.bound, goal.unit),
            &format!("{:.2} {}", goal.value, goal.unit),
            if goal.value <= goal.bound { "met" } else { "MISSED" },
        ]));
    }
    table(&rows);
}

/// What it ran on: figures mean nothing without it.
pub fn machine(setup: &Setup, plan: &Plan) {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo
        .lines()
        .find(|line| line.starts_with("model name"))
        .and_then(|line| line.split(": ").nth(1))
        .unwrap_or("unknown CPU");
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let cpus = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    println!("{cpus} × {model}, Linux {}", kernel.trim());
    println!("load average at the start {}", load.split(' ').next().unwrap_or("?"));
    match setup.cpu {
        Some(cpu) => println!("proxies pinned to CPU {cpu}, client and upstream to the others"),
        None => println!("nothing pinned"),
    }
    let version = |program: &str, flag: &str| {
        let output = Command::new(program).arg(flag).output().ok();
        let text = output.map(|output| [output.stdout, output.stderr].concat()).unwrap_or_default();
        String::from_utf8_lossy(&text).lines().next().unwrap_or("missing").to_owned()
    };
    for via in &plan.vias {
        match via {
            Via::Direct => {}
            Via::Nginx => println!("{}", version("nginx", "-v")),
            Via::Haproxy => println!("{}", version("haproxy", "-v")),
            Via::Edgeward => {
                let path = setup.edgeward.display();
                println!("{}: {}", version(&path.to_string(), "--version"), path);
            }
        }
    }
}

/// One line of a table.
pub fn row(cells: &[&str]) -> Vec<String> {
    cells.iter().map(|cell| (*cell).to_owned()).collect()
}

/// Prints a Markdown table, its first row the head.
pub fn table(rows: &[Vec<String>]) {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for (n, row) in rows.iter().enumerate() {
        let cells: Vec<String> = row
            .iter()
            .zip(&widths)
            .enumerate()
            .map(
                |(column, (cell, &width))| {
                    if column == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
                },
            )
            .collect();
        println!("| {} |", cells.join(" | "));
        if n == 0 {
            let rules: Vec<String> = widths
                .iter()
                .enumerate()
                .map(
                    |(column, width)| {
                        if column == 0 { "-".repeat(width + 2) } else { "-".repeat(width + 1) + ":" }
                    },
                )
                .collect();
            println!("|{}|", rules.join("|"));
        }
    }
}

/// The `percent`th percentile, by nearest rank; 100 is the maximum. Zero of nothing.
pub fn percentile(values: &mut [Duration], percent: usize) -> Duration {
    values.sort_unstable();
    let rank = (values.len() * percent).div_ceil(100).max(1);
    values.get(rank - 1).copied().unwrap_or_default()
}

/// The middle of the values, sorted; the mean of both where there are two.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    match (values.len(), values.len() / 2) {
        (0, _) => f64::NAN,
        (count, middle) if count % 2 == 1 => values[middle],
        (_, middle) => (values[middle - 1] + values[middle]) / 2.0,
    }
}

/// A median with its least and greatest.
pub fn ranged(values: &[f64]) -> String {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    format!("{:.2} ({least:.2}–{most:.2})", median(values.to_vec()))
}

/// In microseconds.
pub fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

/// KiB as MiB.
pub fn mib(kib: u64) -> String {
    format!("{:.1}", kib as f64 / 1024.0)
}
