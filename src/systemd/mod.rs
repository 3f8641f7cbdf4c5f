//! What edgeward and systemd say to each other: readiness, signs of life, sockets, and who is the main process.
//!
//! # A restart without a pause
//!
//! `systemctl restart` starts the new process only when the old main process has ended, and that one may have
//! streams to finish for `limits.drain`. No process can give running streams to another. So the unit's main
//! process is an [`anchor`]: it starts the server as its child, passes on what the two say, and holds nothing.
//! Told to stop, it waits until the server has let go of its listeners and ends; the unit's `KillMode=process`
//! leaves the server alone with its streams, and the successor has the listeners a moment later.
//!
//! Without [`HANDOVER_VARIABLE`] there is no anchor: the server is the main process and drains before it ends.

use std::time::Duration;

pub mod anchor;
mod leash;
mod notify;
mod sockets;

pub use leash::{Leash, Order, Orders};
pub use notify::Notify;
pub use sockets::Passed;

/// The unit sets it, beside `KillMode=process`: the main process is an anchor.
pub const HANDOVER_VARIABLE: &str = "EDGEWARD_HANDOVER";
/// Set by an anchor for its server.
const LEASH_VARIABLE: &str = "EDGEWARD_LEASH";

/// Gives environment variables.
pub type Env<'e> = dyn Fn(&str) -> Option<String> + 'e;

/// What this process was given by systemd, or by its anchor; nothing of it outside systemd.
pub struct Systemd {
    /// Where to say how it goes.
    pub notify: Notify,
    /// A sign of life is due within this.
    pub watchdog: Option<Duration>,
    /// Listening sockets.
    pub sockets: Vec<Passed>,
    /// The anchor's orders, where there is one.
    pub leash: Option<Leash>,
}

impl Systemd {
    /// Takes it over. Once a process: the sockets are its own from here on.
    #[must_use]
    pub fn take(env: &Env<'_>) -> Systemd {
        let leash = if env(LEASH_VARIABLE).is_some() { Leash::take() } else { None };
        let notify = match &leash {
            Some(leash) => Notify::through(leash),
            None => Notify::from_env(env),
        };
        Systemd { notify, watchdog: watchdog(env), sockets: sockets::take(env), leash }
    }
}

/// `WATCHDOG_USEC`, if it is meant for this process (`sd_watchdog_enabled(3)`).
fn watchdog(env: &Env<'_>) -> Option<Duration> {
    let micros: u64 = env("WATCHDOG_USEC")?.parse().ok()?;
    (is_ours(env, "WATCHDOG_PID") && micros > 0).then(|| Duration::from_micros(micros))
}

/// Whether `variable` names this process, or nobody.
fn is_ours(env: &Env<'_>, variable: &str) -> bool {
    env(variable).is_none_or(|pid| pid.parse() == Ok(std::process::id()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watchdog_is_this_process_s_or_nobody_s() {
        let own = std::process::id().to_string();
        for (micros, pid, wanted) in [
            (Some("20000000"), None, Some(Duration::from_secs(20))),
            (Some("20000000"), Some(own.as_str()), Some(Duration::from_secs(20))),
            (Some("20000000"), Some("1"), None),
            (Some("0"), None, None),
            (Some("soon"), None, None),
            (None, None, None),
        ] {
            let env = |name: &str| match name {
                "WATCHDOG_USEC" => micros.map(str::to_owned),
                "WATCHDOG_PID" => pid.map(str::to_owned),
                _ => None,
            };
            assert_eq!(watchdog(&env), wanted, "{micros:?} {pid:?}");
        }
    }
}
