//! One linear pass over a body before any parser: how deep it nests, how much text it holds.

use memchr::memchr2;

use crate::limits::JSON_DEPTH_MAX;

/// A string longer than this may be a picture or a sound rather than text, in bytes.
const BLOB_BYTES: usize = 8 * 1024;
/// So many bytes at a blob's beginning and in its middle tell base64 from text.
const BLOB_SAMPLE: usize = 256;
/// Bytes a token: about 4 for English in today's tokenizers; CJK has 3 bytes a character and
/// roughly one and a half characters a token, which comes near the same.
pub const BYTES_PER_TOKEN: u64 = 4;
/// Tokens a picture: OpenAI documents 765 to 1105 for one of 1024 pixels square, Llama 3.2 Vision
/// takes 1601, Qwen2-VL about 1300 a megapixel, Gemma 256.
const TOKENS_PER_BLOB: u64 = 1000;

/// What a JSON body is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// The deepest nesting of arrays and objects.
    pub depth: usize,
    /// Bytes inside strings that look like text, keys included, escapes as they stand.
    pub text_bytes: u64,
    /// Strings over 8 KiB that look like base64 or a data URL.
    pub blobs: u64,
}

impl Profile {
    /// A prompt's tokens by rule of thumb, good to a factor of two: enough for a deadline's slope.
    #[must_use]
    pub const fn estimated_tokens(&self) -> u64 {
        self.text_bytes / BYTES_PER_TOKEN + self.blobs.saturating_mul(TOKENS_PER_BLOB)
    }
}

/// Nested deeper than [`JSON_DEPTH_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooDeep;

/// Scans `bytes`, which need not be valid JSON; on valid JSON the figures are exact.
///
/// # Errors
/// [`TooDeep`], as soon as the nesting passes [`JSON_DEPTH_MAX`].
pub fn profile(bytes: &[u8]) -> Result<Profile, TooDeep> {
    let mut profile = Profile::default();
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        at += 1;
        match byte {
            b'{' | b'[' => {
                depth += 1;
                if depth > JSON_DEPTH_MAX {
                    return Err(TooDeep);
                }
                profile.depth = profile.depth.max(depth);
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'"' => {
                let end = string_end(bytes, at);
                let text = bytes.get(at..end).unwrap_or_default();
                if text.len() > BLOB_BYTES && is_blob(text) {
                    profile.blobs += 1;
                } else {
                    profile.text_bytes += text.len() as u64;
                }
                at = end + 1;
            }
            _ => {}
        }
    }
    Ok(profile)
}

/// Where the quote is that ends the string whose text begins at `at`; the input's end without one.
fn string_end(bytes: &[u8], mut at: usize) -> usize {
    while let Some(found) = bytes.get(at..).and_then(|rest| memchr2(b'"', b'\\', rest)) {
        at += found;
        if bytes.get(at) == Some(&b'"') {
            return at;
        }
        at += 2;
    }
    bytes.len()
}

fn is_blob(text: &[u8]) -> bool {
    let middle = text.len() / 2;
    let sample = |from: usize| text.get(from..from + BLOB_SAMPLE).is_some_and(|s| s.iter().all(is_base64));
    (text.starts_with(b"data:") || sample(0)) && sample(middle)
}

/// Both base64 alphabets, and the backslash of an escaped slash or line end.
fn is_base64(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_' | b'=' | b'\\')
}
