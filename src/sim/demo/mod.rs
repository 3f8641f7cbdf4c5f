//! The demo's story: scenes as data, what the servers tell in words, the timeline, and what was promised.
//!
//! Pure: `cli::demo` starts the servers and the gateway, asks as a client, and prints what comes out of here.

mod promise;
mod scenes;
mod teller;
mod timeline;

pub use promise::{Frame, Frames, Seen, faults};
pub use scenes::{HALF, HEALTHY, Promise, SCENES, Scene, boxes, config, env, models};
pub use teller::Teller;
pub use timeline::{Style, Timeline, WIDTH};
