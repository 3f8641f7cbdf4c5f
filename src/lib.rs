//! edgeward: one LAN endpoint before a local model server; a stream that outlives it.
//!
//! # The way of a request
//!
//! | # | step | where | gives | on failure |
//! |---|---|---|---|---|
//! | 1 | accept, authenticate | `proxy::server` | a connection, a client | 503, 401, 403 |
//! | 2 | read and bound the body | `proxy::body` | bytes that can be replayed | 413, 408, 400 |
//! | 3 | decode | `dialect::request`; all of it `dialect::conversation` | a `Call`: dialect, model, stream, where to edit | 400 |
//! | 4 | plan | `route` | candidates, in order | 503 + Retry-After |
//! | 5 | attempt: connect, send; anew in the target's dialect | `proxy::drive`, `proxy::upstream` | a response head | next candidate |
//! | 6 | gate | `gate` | a verdict | next candidate |
//! | 7 | relay | `proxy::relay`, `dialect::translate` | the client's stream | `proxy::resume`, or an honest, unclean end |
//! | 8 | account | `observe` | one line a request, one a failed attempt | never |
//!
//! Steps 4 to 8 are decided by one pure machine, `proxy::exchange`, and performed by its
//! driver, `proxy::drive`, whose arms stand in this order: read `proxy/drive/mod.rs` first.
//!
//! Beside it, on the same thread: `watch` reads, `memory` judges, and `proxy::pressure` tells health how memory stands;
//! `proxy::facts` asks local servers what they have, by which `memory::admit` lets requests in; `proxy::deaths` holds their
//! processes; `proxy::gpus` listens to the helper, `src/bin/edgeward-nvml`.
//!
//! Pure rooms (`wire`, `dialect`, `gate`, `route`, `health`, `memory`) take bytes, events and `now`,
//! and import no runtime; `tests/layers.rs` holds the table of who may use whom.

pub mod cause;
pub mod cli;
pub mod config;
pub mod dialect;
pub mod gate;
pub mod health;
pub mod limits;
pub mod memory;
pub mod observe;
pub mod proxy;
pub mod route;
#[cfg(feature = "sim")]
pub mod sim;
pub mod systemd;
pub mod task;
pub mod time;
pub mod watch;
pub mod wire;
