//! Bounds of pictures and files that a request only names.

use std::time::Duration;

use super::{KIB, MIB};

/// `images.max_bytes`: a picture that is fetched, in bytes. Anthropic takes up to 5 MB, OpenAI and Gemini up to 20 MB (their
/// pages on vision); photos of phones are below.
pub const IMAGE_BYTES: usize = 10 * MIB;
/// `images.max_bytes` at most, in bytes: in base64 it must fit where a body of [`super::MAX_BODY`] does.
pub const IMAGE_BYTES_MAX: usize = 20 * MIB;
/// `images.timeout`: for all pictures of one request together.
pub const IMAGES_TIME: Duration = Duration::from_secs(10);
/// Pictures that are fetched for one request; the others are not. A long chat names each of its pictures in each turn.
pub const IMAGES_FETCHED_MAX: usize = 16;
/// Redirects that one picture's URL may lead through.
pub const IMAGE_REDIRECTS_MAX: usize = 3;
/// A picture's URL, in bytes; signed ones of clouds' stores have up to some 2000.
pub const IMAGE_URL_BYTES: usize = 8 * KIB;
/// Memory is set aside in such steps while a picture comes, in bytes.
pub const IMAGE_STEP_BYTES: usize = 256 * KIB;
/// `images.cache`: pictures and files kept for later turns, of all clients together, in bytes. A box with 8 GiB has as
/// much to spare.
pub const MEDIA_CACHE_BYTES: usize = 16 * MIB;
/// One client's part of it: so many parts of all.
pub const MEDIA_CACHE_SHARE: usize = 4;
/// `images.cache_time`: a chat's next turn comes in minutes, and what a URL leads to may change.
pub const MEDIA_CACHE_TIME: Duration = Duration::from_secs(15 * 60);
/// Pictures and files that are kept; each has a name as well.
pub const MEDIA_CACHE_ITEMS: usize = 256;
/// Pictures and files that a body names and that may go along in it; one that names more is not given to who must not
/// have URLs.
pub const NAMED_MAX: usize = 64;
/// A text of a body that is longer is not copied out of it while it is read, in bytes: a picture.
pub const LONG_TEXT_BYTES: usize = 16 * KIB;

const _: () = assert!(IMAGE_BYTES <= IMAGE_BYTES_MAX);
const _: () = assert!(IMAGE_BYTES_MAX.div_ceil(3) * 4 <= super::MAX_BODY);
