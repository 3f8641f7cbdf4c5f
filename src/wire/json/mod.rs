//! JSON as it passes by: a cursor that keeps nothing, and a profile of a whole body.

mod cursor;
mod profile;

pub use cursor::{Cursor, Stop, Str, key_is, readable};
pub use profile::{BYTES_PER_TOKEN, Profile, TooDeep, profile};

#[cfg(test)]
mod tests;
