//! What the kernel's log tells of memory and of the GPU: one line in, one notice out. Compiled into the helper as well,
//! which reads that log.

/// A command's name at most, in bytes: the kernel's `TASK_COMM_LEN`, less its end.
const NAME_BYTES: usize = 15;

/// A command's name as the kernel shows it: 15 bytes at most.
pub type Name = heapless::String<16>;

/// One thing that the kernel said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The OOM killer took this process.
    Killed {
        /// Its number, in the first PID namespace.
        pid: u32,
        /// Its name.
        name: Name,
        /// Whether a cgroup's limit, not the box, was full.
        group: bool,
    },
    /// The NVIDIA driver reports a fault of the GPU.
    Xid {
        /// Its number.
        code: u16,
        /// The process that it names, if it does.
        pid: Option<u32>,
    },
    /// `NvMap` refused memory to the GPU on a Jetson, with this errno.
    NvMap(u16),
}

impl Notice {
    /// Of one line of `/dev/kmsg`, its prefix included or not. With the prefix only the kernel's own lines count: any
    /// process that may write to `/dev/kmsg` can say what it likes there, but not as the kernel.
    #[must_use]
    pub fn parse(line: &[u8]) -> Option<Self> {
        let text = message(line)?;
        killed(text).or_else(|| xid(text)).or_else(|| nvmap(text))
    }
}

/// What a line says: behind `priority,number,microseconds,flags;`, if its facility is the kernel's (0), which the kernel
/// grants nobody else. <https://www.kernel.org/doc/Documentation/ABI/testing/dev-kmsg>
fn message(line: &[u8]) -> Option<&[u8]> {
    const FACILITY_SHIFT: u32 = 3;
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let Some(end) = line.iter().position(|byte| *byte == b';') else { return Some(line) };
    let (prefix, text) = line.split_at(end);
    let mut fields = prefix.split(|byte| *byte == b',');
    let numbers: heapless::Vec<u64, 3> = fields.by_ref().take(3).map_while(whole).collect();
    match (numbers.first(), numbers.len(), fields.next()) {
        (Some(priority), 3, Some(_)) => (priority >> FACILITY_SHIFT == 0).then_some(&text[1..]),
        // A semicolon of the text itself.
        _ => Some(line),
    }
}

/// Of oom_kill.c's `__oom_kill_process`: at the line's beginning, since the names of processes stand in other lines.
fn killed(text: &[u8]) -> Option<Notice> {
    const BEFORE: [(&[u8], bool); 4] = [
        (b"Memory cgroup out of memory: ", true),
        (b"Out of memory (oom_kill_allocating_task): ", false),
        (b"Out of memory: ", false),
        // Up to Linux 4.20 on a line of its own.
        (b"", false),
    ];
    let (rest, group) = BEFORE.iter().find_map(|(before, group)| {
        Some((text.strip_prefix(*before)?.strip_prefix(b"Killed process ")?, *group))
    })?;
    let (pid, rest) = digits(rest);
    let rest = rest.strip_prefix(b" (")?;
    // A name may have brackets of its own.
    let longest = rest.get(..NAME_BYTES + 1).unwrap_or(rest);
    let end = longest.iter().rposition(|byte| *byte == b')')?;
    let name = rest.get(..end)?.iter().map(|byte| if byte.is_ascii() { char::from(*byte) } else { '?' });
    Some(Notice::Killed { pid: u32::try_from(pid?).ok()?, name: name.collect(), group })
}

/// Of kernel_rc.c: `NVRM: Xid (PCI:0000:01:00): 79, pid=1234, name=…`. The process is not always known.
fn xid(text: &[u8]) -> Option<Notice> {
    let rest = text.strip_prefix(b"NVRM: Xid (")?;
    let end = rest.windows(3).position(|part| part == b"): ")?;
    let (code, rest) = digits(rest.get(end + 3..)?);
    let rest = rest.strip_prefix(b", pid=").unwrap_or_default();
    let pid = digits(rest.strip_prefix(b"'").unwrap_or(rest)).0;
    let pid = pid.and_then(|pid| u32::try_from(pid).ok()).filter(|pid| *pid > 0);
    Some(Notice::Xid { code: u16::try_from(code?).ok()?, pid })
}

/// `NvMapMemAllocInternalTagged: 1075072515 error 12`, of which the last is an errno.
fn nvmap(text: &[u8]) -> Option<Notice> {
    let rest = text.strip_prefix(b"NvMapMemAllocInternalTagged: ")?;
    let (Some(_), rest) = digits(rest) else { return None };
    let error = digits(rest.strip_prefix(b" error ")?).0?;
    u16::try_from(error).ok().map(Notice::NvMap)
}

/// A number and nothing else.
fn whole(text: &[u8]) -> Option<u64> {
    match digits(text) {
        (number, []) => number,
        _ => None,
    }
}

/// The number that a text begins with, and what follows.
fn digits(text: &[u8]) -> (Option<u64>, &[u8]) {
    let end = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let (number, rest) = text.split_at(end);
    let add = |sum: u64, byte: &u8| sum.checked_mul(10)?.checked_add(u64::from(byte - b'0'));
    ((end > 0).then(|| number.iter().try_fold(0, add)).flatten(), rest)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn killed(pid: u32, name: &str, group: bool) -> Option<Notice> {
        Some(Notice::Killed { pid, name: name.try_into().unwrap(), group })
    }

    #[test]
    fn what_the_kernel_says_is_understood() {
        let rest =
            "total-vm:9kB, anon-rss:8kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:60kB oom_score_adj:0";
        for (line, want) in [
            (
                format!("3,1,2,-;Out of memory: Killed process 42 (ollama) {rest}\n"),
                killed(42, "ollama", false),
            ),
            (
                format!(
                    "3,99,12345678901,-,caller=T1;Memory cgroup out of memory: Killed process 7 (a) b) {rest}"
                ),
                killed(7, "a) b", true),
            ),
            (format!("Killed process 9 (tmux: server), UID 0, {rest}"), killed(9, "tmux: server", false)),
            (
                format!("Out of memory: Killed process 5 (fifteen-bytes15) {rest}"),
                killed(5, "fifteen-bytes15", false),
            ),
            (format!("Out of memory: Killed process 5 () {rest}"), killed(5, "", false)),
            (
                "4,5,6,-;NVRM: Xid (PCI:0000:01:00): 79, pid=1234, name=python3, GPU has fallen off the bus."
                    .into(),
                Some(Notice::Xid { code: 79, pid: Some(1234) }),
            ),
            (
                "NVRM: Xid (PCI:0009:01:00): 31, pid='77', name=x".into(),
                Some(Notice::Xid { code: 31, pid: Some(77) }),
            ),
            (
                "NVRM: Xid (PCI:0000:01:00): 154, pid='<unknown>', name=<unknown>, GPU recovery action"
                    .into(),
                Some(Notice::Xid { code: 154, pid: None }),
            ),
            ("NVRM: Xid (0000:01:00): 13, 0003 00000000".into(), Some(Notice::Xid { code: 13, pid: None })),
            ("NvMapMemAllocInternalTagged: 1075072515 error 12".into(), Some(Notice::NvMap(12))),
        ] {
            assert_eq!(Notice::parse(line.as_bytes()), want, "{line}");
        }
    }

    #[test]
    fn what_it_does_not_say_is_nothing() {
        for line in [
            "",
            "\n",
            ";",
            "3,1,2,-;",
            // As a process writes it: facility 1, or whatever it asked for but 0.
            "12,1,2,-;Out of memory: Killed process 42 (ollama) total-vm:1kB",
            "27,1,2,-;NVRM: Xid (PCI:0000:01:00): 79, pid=1234",
            // In what the kernel says of a process with such a name.
            "6,1,2,-;Killed process[8]: segfault at 0 ip 0",
            "6,1,2,-;traps: Out of memory: Killed process 1 (x) trap",
            " Out of memory: Killed process 42 (ollama) total-vm:1kB",
            "Out of memory: Killed process 99999999999999999999 (x)",
            "Out of memory: Killed process 4294967296 (x)",
            "Out of memory: Killed process 1 (a name of more than fifteen)",
            "Out of memory: Killed process 1",
            "NVRM: Xid (PCI:0000:01:00): 99999999, pid=1",
            "NVRM: Xid (PCI:0000:01:00)",
            "NvMapMemAllocInternalTagged: error 12",
        ] {
            assert_eq!(Notice::parse(line.as_bytes()), None, "{line}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(
            raw in proptest::collection::vec(any::<u8>(), 0..96),
            text in "([0-9]{1,3},){0,4}(-;)?(Out of memory: )?(Killed process [0-9]{0,12} \\(?|NVRM: Xid \\(|NvMapMemAllocInternalTagged: )\\PC{0,24}",
        ) {
            let _ = Notice::parse(&raw);
            let _ = Notice::parse(text.as_bytes());
        }

        #[test]
        fn a_process_cannot_speak_as_the_kernel(facility in 1u64..1000, level in 0u64..8, pid in any::<u32>()) {
            let line = format!("{},5,6,-;Out of memory: Killed process {pid} (x) total-vm:1kB", facility << 3 | level);
            prop_assert_eq!(Notice::parse(line.as_bytes()), None);
        }
    }
}
