//! edgeward's helper beside the NVIDIA driver: says its version to whoever may ask, and ends.
//!
//! A program of its own since a static one cannot load the driver's library, and a driver that hangs must
//! hang nothing else. From systemd it gets a listening Unix socket; without one it is a child on a pipe.

use std::fs;
use std::io::{self, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::linux::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::ExitCode;

use rustix::net::sockopt::socket_peercred;

/// The first line that the other end reads. Ends with a newline.
const HELLO: &str = concat!("edgeward-nvml ", env!("CARGO_PKG_VERSION"), "\n");

const HELP: &str = "\
edgeward-nvml: edgeward's helper beside the NVIDIA driver

Started by edgeward-nvml.socket, or by edgeward over a pipe; not by hand.

  -h, --help     this
  -V, --version  the version
";

/// The first descriptor that systemd passes.
const SD_LISTEN_FDS_START: i32 = 3;

/// It failed.
const EXIT_FAILED: u8 = 1;
/// The command line was wrong.
const EXIT_USAGE: u8 = 2;

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

fn serve() -> io::Result<()> {
    match passed_socket() {
        Some(listener) => say(&mut accept(&listener)?, HELLO),
        None => say(&mut io::stdout(), HELLO),
    }
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

/// Waits for a peer that may ask: root, or the owner of the socket's file. Others are hung up on.
///
/// # Errors
/// No socket any more, or one without a file.
fn accept(listener: &UnixListener) -> io::Result<UnixStream> {
    let address = listener.local_addr()?;
    let path =
        address.as_pathname().ok_or_else(|| io::Error::other("the socket has no file, and so no owner"))?;
    let owner = fs::metadata(path)?.st_uid();
    loop {
        let (stream, _) = listener.accept()?;
        let uid = socket_peercred(&stream)?.uid;
        if uid.is_root() || uid.as_raw() == owner {
            return Ok(stream);
        }
    }
}

fn say(to: &mut impl Write, text: &str) -> io::Result<()> {
    to.write_all(text.as_bytes())?;
    to.flush()
}
