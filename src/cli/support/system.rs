//! What the box says of itself: files of the kernel's, and tools that may be missing.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;

use crate::limits;

/// Tools are looked for here and nowhere else: whoever runs this may be root, with any PATH.
const FOLDERS: [&str; 4] = ["/usr/bin", "/bin", "/usr/sbin", "/sbin"];

/// Of edgeward, the kernel, the system, the board.
pub(super) fn versions() -> String {
    let mut text = super::super::version();
    let mut add = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            text.push_str(&format!("{name}: {value}\n"));
        }
    };
    add("kernel", line("/proc/version"));
    add("system", file("/etc/os-release").as_deref().and_then(pretty_name));
    add("systemd", said("systemctl", &["--version"]).lines().next().map(str::to_owned));
    let board = line("/proc/device-tree/model").or_else(|| line("/sys/class/dmi/id/product_name"));
    add("board", board);
    add("jetson", line("/etc/nv_tegra_release"));
    add("processors", std::thread::available_parallelism().ok().map(|n| n.to_string()));
    let memory = file("/proc/meminfo").unwrap_or_default();
    for name in ["MemTotal", "MemAvailable", "SwapTotal", "SwapFree"] {
        let value = memory.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        add(name, value.map(|value| value.trim().to_owned()));
    }
    text
}

fn pretty_name(release: &str) -> Option<String> {
    let name = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(name.trim_matches('"').to_owned())
}

/// The beginning of a small file.
fn file(path: &str) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(limits::TOOL_BYTES).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Its first line; the device tree's texts end with a zero.
fn line(path: &str) -> Option<String> {
    let text = file(path)?;
    let line = text.lines().next()?.trim_end_matches('\0').trim();
    (!line.is_empty()).then(|| line.to_owned())
}

/// What a tool prints, its errors too; or that it is missing, or too slow.
pub(super) fn said(tool: &str, args: &[&str]) -> String {
    let Some(path) = found(tool) else { return format!("{tool} is not on this box\n") };
    match run(&path, args) {
        Ok(text) => text,
        Err(error) => format!("{tool} could not be asked: {error}\n"),
    }
}

fn found(tool: &str) -> Option<PathBuf> {
    FOLDERS.iter().map(|folder| Path::new(folder).join(tool)).find(|path| path.is_file())
}

fn run(path: &Path, args: &[&str]) -> io::Result<String> {
    let (reader, writer) = io::pipe()?;
    let mut command = Command::new(path);
    command.args(args).env_clear().env("LC_ALL", "C.UTF-8").env("PATH", FOLDERS.join(":"));
    command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
    let mut child = command.spawn()?;
    // It holds the pipe's writing end, which has to be closed here for its end to be seen.
    drop(command);
    let (done, all) = mpsc::channel();
    // Its reading is bounded, and it ends with the pipe: when the tool is over, or is killed.
    std::thread::Builder::new().spawn(move || {
        let mut bytes = Vec::new();
        let read = reader.take(limits::TOOL_BYTES).read_to_end(&mut bytes);
        // Nobody waits any more: too late.
        let _late = done.send(read.map(|_| bytes));
    })?;
    let read = all.recv_timeout(limits::TOOL_TIME);
    // What has not ended by now says no more.
    let _over = child.kill();
    let _reaped = child.wait();
    match read {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes?).into_owned()),
        Err(_) => Err(io::Error::other(format!("no answer in {} s", limits::TOOL_TIME.as_secs()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_is_heard_or_its_absence_said() {
        assert_eq!(run(Path::new("/bin/sh"), &["-c", "echo out; echo err >&2"]).unwrap(), "out\nerr\n");
        assert_eq!(said("no-such-tool-here", &[]), "no-such-tool-here is not on this box\n");
        let long = run(Path::new("/bin/sh"), &["-c", "yes"]).unwrap();
        assert_eq!(long.len() as u64, limits::TOOL_BYTES, "bounded, and ended");
    }

    #[test]
    fn the_box_is_described() {
        let text = versions();
        for word in ["edgeward ", "kernel: Linux", "MemTotal: ", "processors: "] {
            assert!(text.contains(word), "{word}: {text}");
        }
        assert_eq!(pretty_name("ID=debian\nPRETTY_NAME=\"Debian 12\"\n").as_deref(), Some("Debian 12"));
    }
}
