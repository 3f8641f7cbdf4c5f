//! The status in words, as `edgeward status` prints it.

use super::deaths::ProcessStatus;
use super::facts::LocalStatus;
use super::gpus::{GpuStatus, OneGpu};
use super::operator::{MemoryStatus, RefusedStatus, RolloutStatus, SideStatus, Status};
use super::standing::{SentStatus, TargetStatus};
use crate::config::Permille;
use crate::route::budget::in_money;

/// A terminal's width, in columns.
const WIDTH: usize = 80;

/// What `edgeward status` prints: lines of at most 80 columns, each paragraph's further lines under its first word.
#[must_use]
pub fn render(status: &Status) -> String {
    let mut page = Page(String::new());
    show(status, &mut page);
    page.0
}

fn show(status: &Status, page: &mut Page) {
    let stopping = if status.draining { ", stopping" } else { "" };
    page.line(
        "",
        &format!(
            "edgeward {}, up {} s, {} connections, {} requests running{stopping}",
            status.version, status.uptime_secs, status.connections, status.requests
        ),
    );
    if status.clock_wrong {
        page.line("  ! ", "this box's clock is wrong: it shows a time before this program was built");
    }
    if let Some(refused) = &status.config_refused {
        page.line("  ! ", &refused_words(refused));
    }
    if let Some(drill) = &status.drill {
        page.line(
            "  ! ",
            &format!("a drill fails {} to {}, {} so far", drill.amount, drill.target, drill.drilled),
        );
    }
    if let Some(rollout) = &status.rollout {
        let RolloutStatus { share_permille, since_secs, hold_secs, min_samples, old, new } = rollout;
        let share = Permille(*share_permille);
        page.line(
            "  ~ ",
            &format!("a new routing takes {share} of the requests, for {since_secs} s of {hold_secs} s"),
        );
        page.line("    ", &format!("new: {} (judged from {min_samples} on)", side(new)));
        page.line("    ", &format!("old: {}", side(old)));
    }
    page.line("  ", &status.lately.words);
    if let Some(MemoryStatus { pressure, reason, figures, .. }) = &status.memory {
        let indent = if pressure == "green" { "  " } else { "  ! " };
        page.line(indent, &format!("memory is {pressure}, {reason}: {figures}"));
    }
    if let Some(gpu) = &status.gpu {
        show_gpus(gpu, page);
    }
    let width = status.targets.iter().map(|target| target.name.len()).max().unwrap_or(0);
    for target in &status.targets {
        show_target(target, width, page);
    }
    if status.targets.is_empty() {
        page.line("  ", "no targets");
    }
    if !status.local_only.is_empty() {
        page.line("  ", &format!("prompts of these keys stay near: {}", status.local_only.join("; ")));
    }
}

fn refused_words(refused: &RefusedStatus) -> String {
    let RefusedStatus { since, since_secs, file, line, mistake, more } = refused;
    let file = file.as_deref().unwrap_or("configuration on disk");
    let line = line.map(|line| format!(" line {line}:")).unwrap_or_default();
    let more = if *more > 0 { format!(" (and {more} more: edgeward check)") } else { String::new() };
    format!(
        "{file} is refused since {since} ({since_secs} s ago), the one before it counts:{line} {mistake}{more}"
    )
}

/// What stands well is said in a line.
fn show_gpus(GpuStatus { helper, detail, gpus, .. }: &GpuStatus, page: &mut Page) {
    let indent = if helper == "sees" || helper == "starting" { "  " } else { "  ! " };
    page.line(indent, &format!("the GPU helper {helper}: {detail}"));
    for OneGpu { gpu, state, total_bytes, free_bytes } in gpus {
        let (total, free) = (total_bytes >> 20, free_bytes >> 20);
        match state.as_str() {
            "up" => page.line("    ", &format!("GPU {gpu}: {free} MiB of {total} MiB free")),
            "asleep" | "shared" => page.line("    ", &format!("GPU {gpu}: {state}")),
            fault => page.line("  ! ", &format!("GPU {gpu} {fault}")),
        }
    }
}

fn side(side: &SideStatus) -> String {
    let SideStatus { requests, rescued, failed, first_token_p95_ms } = side;
    let p95 = first_token_p95_ms.map(|p95| format!(", first token within {p95} ms")).unwrap_or_default();
    format!("{requests} requests, {rescued} rescued, {failed} failed{p95}")
}

fn show_target(target: &TargetStatus, width: usize, page: &mut Page) {
    let sign = if target.candidate { "+" } else { "-" };
    let TargetStatus { name, kind, place, url, committed, failed, in_flight, reason, .. } = target;
    page.line("  ", &format!("{sign} {name:width$}  {kind:9} {place:6} {url}"));
    page.line("      ", &format!("answered {committed}, failed {failed}, running {in_flight}: {reason}"));
    let mut terms = Vec::new();
    if target.share_permille < 1000 {
        terms.push(format!("{} of its weight of {}", Permille(target.share_permille), target.weight));
    }
    if let Some(most) = target.max_concurrent {
        terms.push(format!("{most} requests at once at most, {} waiting", target.waiting));
    }
    if let Some(sent) = target.sent_today.filter(|sent| sent.requests > 0) {
        let SentStatus { requests, prompt_tokens } = sent;
        terms.push(format!("sent off this box today: {requests} requests, {prompt_tokens} prompt tokens"));
    }
    if let Some(money) = &target.money {
        let cap = money.cap_micros.map_or_else(|| "no cap".to_owned(), in_money);
        let assumed = if money.price_assumed { " (its price is assumed)" } else { "" };
        terms.push(format!("spent {} today of {cap}{assumed}", in_money(money.spent_micros)));
    }
    if !terms.is_empty() {
        page.line("      ", &terms.join("; "));
    }
    if let Some(ProcessStatus { pid, since_secs, found, others, gpu_bytes }) = &target.process {
        let who = pid.map_or_else(String::new, |pid| format!("process {pid}, "));
        let since = since_secs.map_or_else(String::new, |secs| format!(", known for {secs} s"));
        let more = if *others > 0 { format!(", {others} beside it") } else { String::new() };
        let held =
            gpu_bytes.map(|bytes| format!(", with {} MiB of GPU memory", bytes >> 20)).unwrap_or_default();
        let line = match since_secs {
            Some(_) => format!("{who}found by {found}{since}{more}{held}"),
            None => format!("its process is not known: {found}"),
        };
        page.line("      ", &line);
    }
    if let Some(words) = target.local.as_ref().and_then(has) {
        page.line("      ", &words);
    }
    for model in &target.models {
        let mut figures = Vec::new();
        figures.extend(model.first_token_p95_ms.map(|ms| format!("first token p95 {ms} ms")));
        figures.extend(model.gap_p95_ms.map(|ms| format!("gaps p95 {ms} ms")));
        if model.failure_permille > 0 {
            let rate = Permille(model.failure_permille);
            figures.push(format!("{rate} of {} failed in the last minute", model.samples));
        }
        if let Some(most) = model.most_prompt_tokens {
            figures.push(format!("prompts of {most} tokens at most: it ran out of memory twice"));
        }
        let reason = model.reason.as_deref().unwrap_or("is fit");
        let sign = match model.standing.as_str() {
            "fit" => "+",
            "out" => "-",
            _ => "~",
        };
        let figures = if figures.is_empty() { String::new() } else { format!("; {}", figures.join(", ")) };
        page.line("      ", &format!("{sign} {} {reason}{figures}", model.model));
    }
}

/// What a local server has; nothing of one that never said so.
fn has(local: &LocalStatus) -> Option<String> {
    let LocalStatus { resident, slots, busy, in_flight: _, waiting, loading, heard_secs } = local;
    let heard = (*heard_secs)?;
    let mut all = Vec::new();
    all.extend(resident.as_ref().map(|models| match models.as_slice() {
        [] => "no model loaded".to_owned(),
        models => format!("loaded: {}", models.join(", ")),
    }));
    all.extend(loading.as_ref().map(|(model, secs)| format!("loading {model} for {secs} s")));
    all.extend(slots.map(|slots| format!("{} of {slots} slots taken", busy.unwrap_or(0))));
    if *waiting > 0 {
        all.push(format!("{waiting} wait for memory"));
    }
    all.push(format!("as it said {heard} s ago"));
    Some(all.join("; "))
}

/// Lines of at most [`WIDTH`] columns.
struct Page(String);

impl Page {
    /// One paragraph; its further lines stand under its first word. Some names are clients' to choose: nothing of them
    /// moves a cursor.
    fn line(&mut self, indent: &str, text: &str) {
        let text: String = text.chars().map(|c| if is_plain(c) { c } else { '?' }).collect();
        let mut line = indent.to_owned();
        let mut length = indent.len();
        for (at, word) in text.split(' ').enumerate() {
            let columns = word.chars().count();
            if at > 0 && length + 1 + columns > WIDTH && columns > 0 {
                self.end(&line);
                line = format!("{}  ", " ".repeat(indent.len()));
                length = line.len();
            } else if at > 0 {
                line.push(' ');
                length += 1;
            }
            line.push_str(word);
            length += columns;
        }
        self.end(&line);
    }

    fn end(&mut self, line: &str) {
        self.0.push_str(line.trim_end());
        self.0.push('\n');
    }
}

/// Neither a control character nor one that turns the direction of writing.
#[must_use]
pub fn is_plain(c: char) -> bool {
    !c.is_control()
        && !matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::lately::LatelyStatus;
    use crate::proxy::standing::{ModelStatus, MoneyStatus};

    fn target() -> TargetStatus {
        TargetStatus {
            name: "cloud".to_owned(),
            kind: "openai".to_owned(),
            place: "cloud".to_owned(),
            group: "fallback".to_owned(),
            url: "https://api.example.com/v1".to_owned(),
            candidate: true,
            reason: "answered 2 s ago".to_owned(),
            committed: 12,
            failed: 1,
            in_flight: 2,
            idle_connections: 1,
            weight: 100,
            share_permille: 505,
            max_concurrent: Some(4),
            waiting: 3,
            money: Some(MoneyStatus {
                spent_micros: 1_250_000,
                held_micros: 0,
                cap_micros: Some(5_000_000),
                price_assumed: true,
            }),
            sent_today: Some(SentStatus { requests: 12, prompt_tokens: 3400 }),
            process: Some(ProcessStatus {
                pid: Some(71),
                since_secs: Some(9),
                found: "its socket".to_owned(),
                others: 2,
                gpu_bytes: Some(3 << 30),
            }),
            local: Some(LocalStatus {
                resident: Some(vec!["m (2048 MiB, 4096 tokens)".to_owned()]),
                slots: Some(4),
                busy: Some(1),
                in_flight: 1,
                waiting: 0,
                loading: None,
                heard_secs: Some(3),
            }),
            models: vec![ModelStatus {
                model: "big\u{1b}[2J\u{202e}".to_owned(),
                standing: "out".to_owned(),
                reason: Some("rests for another 8 s after failing repeatedly: out of memory".to_owned()),
                breaker: "open".to_owned(),
                share_permille: 505,
                samples: 10,
                failure_permille: 600,
                in_flight: 0,
                first_token_p95_ms: Some(412),
                gap_p95_ms: None,
                most_prompt_tokens: Some(4000),
            }],
        }
    }

    fn shown(targets: Vec<TargetStatus>) -> String {
        let status = Status {
            version: "1.2.3".to_owned(),
            uptime_secs: 5,
            draining: false,
            clock_wrong: true,
            config_refused: Some(RefusedStatus {
                since: "2026-12-01T03:12:00Z".to_owned(),
                since_secs: 40,
                file: Some("/etc/edgeward/edgeward.toml".to_owned()),
                line: Some(7),
                mistake: "limit: is not a key that exists here; hint: did you mean \"limits\"?".to_owned(),
                more: 2,
            }),
            connections: 1,
            requests: 2,
            rollout: None,
            drill: None,
            local_only: vec!["shop: this box".to_owned()],
            lately: LatelyStatus {
                words: "since 2026-12-01 07:00: 214 requests, 2 at the cloud (busy 1; dead 1: crashed 1), 1 death \
                        (crashed 1), 0 lost, 0.34 spent"
                    .to_owned(),
                ..LatelyStatus::default()
            },
            memory: Some(MemoryStatus {
                pressure: "amber".to_owned(),
                reason: "it falls fast, beyond what is usual".to_owned(),
                figures: "312 MiB of 7620 MiB (host), low below 762 MiB".to_owned(),
                available_bytes: 312 << 20,
            }),
            gpu: Some(GpuStatus {
                helper: "sees".to_owned(),
                detail: "edgeward-nvml 1.2.3".to_owned(),
                hears_kernel: true,
                restarts: 0,
                gpus: ["up", "has fallen off the bus"]
                    .into_iter()
                    .zip(0..)
                    .map(|(state, gpu)| OneGpu {
                        gpu,
                        state: state.to_owned(),
                        total_bytes: 24 << 30,
                        free_bytes: 20 << 30,
                    })
                    .collect(),
            }),
            targets,
        };
        render(&status)
    }

    #[test]
    fn it_reads_well_at_80_columns() {
        assert_eq!(
            shown(vec![target()]),
            "edgeward 1.2.3, up 5 s, 1 connections, 2 requests running
  ! this box's clock is wrong: it shows a time before this program was built
  ! /etc/edgeward/edgeward.toml is refused since 2026-12-01T03:12:00Z (40 s
      ago), the one before it counts: line 7: limit: is not a key that exists
      here; hint: did you mean \"limits\"? (and 2 more: edgeward check)
  since 2026-12-01 07:00: 214 requests, 2 at the cloud (busy 1; dead 1: crashed
    1), 1 death (crashed 1), 0 lost, 0.34 spent
  ! memory is amber, it falls fast, beyond what is usual: 312 MiB of 7620 MiB
      (host), low below 762 MiB
  the GPU helper sees: edgeward-nvml 1.2.3
    GPU 0: 20480 MiB of 24576 MiB free
  ! GPU 1 has fallen off the bus
  + cloud  openai    cloud  https://api.example.com/v1
      answered 12, failed 1, running 2: answered 2 s ago
      50.5% of its weight of 100; 4 requests at once at most, 3 waiting; sent
        off this box today: 12 requests, 3400 prompt tokens; spent 1.25 today of
        5.00 (its price is assumed)
      process 71, found by its socket, known for 9 s, 2 beside it, with 3072 MiB
        of GPU memory
      loaded: m (2048 MiB, 4096 tokens); 1 of 4 slots taken; as it said 3 s ago
      - big?[2J? rests for another 8 s after failing repeatedly: out of memory;
        first token p95 412 ms, 60% of 10 failed in the last minute, prompts of
        4000 tokens at most: it ran out of memory twice
  prompts of these keys stay near: shop: this box
"
        );
        assert!(shown(Vec::new()).contains("  no targets\n"));
    }

    #[test]
    fn no_line_is_longer_than_its_longest_word_asks_for() {
        let long = TargetStatus { reason: "word ".repeat(200), ..target() };
        assert!(shown(vec![long]).lines().all(|line| line.chars().count() <= WIDTH));
    }
}
