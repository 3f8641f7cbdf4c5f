//! edgeward's helper beside the NVIDIA driver, and its privileged ear: tells edgeward of the GPUs and of what the kernel
//! says, and answers whose a socket is.
//!
//! A program of its own since a static one cannot load the driver's library, and a driver that hangs must
//! hang nothing else. From systemd it gets a listening Unix socket; without one it is a child on a pipe.
//! What it says is in `memory/record.rs`, which both programs have.

use std::io::{self, Write};
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};

mod cards;
mod ear;
#[path = "../../memory/kernel.rs"]
mod kernel;
mod nvml;
mod peers;
#[expect(dead_code, reason = "edgeward's half of it")]
#[path = "../../memory/record.rs"]
mod record;
mod sockets;

use peers::{Peer, Peers};

/// The first line that the other end reads. Ends with a newline.
const HELLO: &str = concat!("edgeward-nvml ", env!("CARGO_PKG_VERSION"), "\n");

const HELP: &str = "\
edgeward-nvml: edgeward's helper beside the NVIDIA driver

Started by edgeward-nvml.socket, or by edgeward; not by hand. It tells edgeward of the GPUs' memory
and faults (NVML) and of what the kernel's log says of kills and of the GPU (/dev/kmsg), and finds
whose a socket is (/proc). It ends when nobody listens to it any more.

  -h, --help     this
  -V, --version  the version

It never asks a GPU that sleeps. What it may do is in edgeward-nvml.service:
  CAP_SYSLOG                               to open /dev/kmsg; given up then
  CAP_SYS_PTRACE, CAP_DAC_READ_SEARCH      to see whose a socket is
The thread that loads the driver's library has none of them.

For tests, by environment variables:
  EDGEWARD_NVML_KMSG      another file than /dev/kmsg
  EDGEWARD_NVML_PCI       another folder than /sys/bus/pci/devices
  EDGEWARD_NVML_RETRY_MS  how long until NVML is tried again, instead of a minute
";

/// The first descriptor that systemd passes.
const SD_LISTEN_FDS_START: i32 = 3;

/// It failed.
const EXIT_FAILED: u8 = 1;
/// The command line was wrong.
const EXIT_USAGE: u8 = 2;
/// What a driver's library does at the end of a process may hang as well; it has this long.
const END: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let answer = match (arguments.next(), arguments.next()) {
        (None, _) => serve(),
        (Some(one), None) if one == "--version" || one == "-V" => say(&mut io::stdout(), HELLO),
        (Some(one), None) if one == "--help" || one == "-h" => say(&mut io::stdout(), HELP),
        // Where stderr is gone, the code still says it.
        _ => return say(&mut io::stderr(), HELP).map_or(ExitCode::from(EXIT_USAGE), |()| EXIT_USAGE.into()),
    };
    match answer {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // As above.
            let _ = writeln!(io::stderr(), "edgeward-nvml: {error}");
            EXIT_FAILED.into()
        }
    }
}

/// Serves until nobody is there any more.
///
/// # Errors
/// No socket to serve on, or no memory for a thread.
fn serve() -> io::Result<()> {
    let listener = passed_socket();
    let peers = Arc::new(Peers::default());
    if listener.is_none() {
        let (from, to) =
            (io::stdin().as_fd().try_clone_to_owned()?, io::stdout().as_fd().try_clone_to_owned()?);
        peers.add(Peer::new(from, to));
    }
    let mut ear = ear::Ear::new(listener, Arc::clone(&peers));
    let driver = thread::Builder::new().name("nvml".to_owned());
    driver.spawn(move || nvml::watch(&peers))?;
    let ended = ear.listen();
    end(ended.is_ok())
}

/// Ends this process, whatever a driver does about it.
fn end(good: bool) -> ! {
    let _without = thread::Builder::new().spawn(|| {
        thread::park_timeout(END);
        // Not even this ends what sleeps in the kernel without being interruptible.
        let _ends = kill_process(getpid(), Signal::KILL);
    });
    std::process::exit(if good { 0 } else { i32::from(EXIT_FAILED) })
}

/// The listening socket from systemd, by the protocol of `sd_listen_fds(3)`: this process's, and exactly one.
#[expect(unsafe_code, reason = "the protocol passes descriptors by number; nothing else can own them")]
fn passed_socket() -> Option<UnixListener> {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u32>().ok();
    if number("LISTEN_PID") != Some(std::process::id()) || number("LISTEN_FDS") != Some(1) {
        return None;
    }
    // SAFETY: whoever set LISTEN_PID to this process has opened this descriptor for it, it is taken once, and
    // nothing was opened before that could have its number.
    Some(unsafe { OwnedFd::from_raw_fd(SD_LISTEN_FDS_START) }.into())
}

fn say(to: &mut impl Write, text: &str) -> io::Result<()> {
    to.write_all(text.as_bytes())?;
    to.flush()
}
