//! A tool call's id in the form that another provider demands, and back, without a table.
//!
//! A client sends a call's id back with its result, to whichever target is tried then. Ids of a form that everyone
//! takes stay as they are; others are spelled out in such a form behind a mark, so that they can be read back; ids
//! too long for that become a digest, which cannot be read back but is the same each time.

use std::hash::{DefaultHasher, Hasher};

use super::super::Dialect;
use super::Flavor;
use crate::limits;

/// An id that is another one, spelled in hexadecimal.
const SPELLED: &str = "call_ew_x";
/// An id that is the digest of another one.
const DIGEST: &str = "call_ew_d";

/// The id that a client is shown for a target's call: any client's provider would take it.
#[must_use]
pub fn to_client(id: &str) -> String {
    if plain(id) && id.len() <= limits::OPENAI_CALL_ID_BYTES { id.to_owned() } else { spell(id, usize::MAX) }
}

/// The id that a target is sent for the one that its client used; a target's own comes back as it was.
#[must_use]
pub fn to_target(to: Dialect, flavor: Flavor, id: &str) -> String {
    let own = read(id);
    let id = own.as_deref().unwrap_or(id);
    let most = match (to, flavor) {
        (Dialect::OpenaiChat, Flavor::Openai) => limits::OPENAI_CALL_ID_BYTES,
        _ => limits::CALL_ID_BYTES,
    };
    let any_characters = !matches!(to, Dialect::Anthropic);
    if id.len() <= most && !id.is_empty() && (any_characters || plain(id)) {
        id.to_owned()
    } else {
        spell(id, most)
    }
}

/// The id of a call to which its target gave none: the `index`th of the answer `answer`.
#[must_use]
pub fn fresh(answer: &str, index: u32) -> String {
    format!("call_{:016x}{index:x}", digest(answer))
}

/// `^[a-zA-Z0-9_-]+$`, which Anthropic demands.
fn plain(id: &str) -> bool {
    !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}

fn spell(id: &str, most: usize) -> String {
    use std::fmt::Write as _;
    if SPELLED.len() + 2 * id.len() > most {
        return format!("{DIGEST}{:016x}", digest(id));
    }
    let mut out = SPELLED.to_owned();
    for byte in id.bytes() {
        // To a string nothing fails.
        let _written = write!(out, "{byte:02x}");
    }
    out
}

fn read(id: &str) -> Option<String> {
    let digits = id.strip_prefix(SPELLED)?.as_bytes();
    let (pairs, rest) = digits.as_chunks::<2>();
    let byte = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let bytes: Option<Vec<u8>> = pairs.iter().map(byte).collect();
    rest.is_empty().then(|| String::from_utf8(bytes?).ok())?
}

fn digest(text: &str) -> u64 {
    let mut hash = DefaultHasher::new();
    hash.write(text.as_bytes());
    hash.finish()
}
