//! Pictures and files in a body: data URLs, base64, what their first bytes say they are.

use super::json::At;
use super::{Blob, Source, Text};
use crate::dialect::request::BadRequest;

/// The type of bytes of which nothing is known.
pub(super) const UNKNOWN: &str = "application/octet-stream";

/// A URL of any kind that a body may hold.
pub(super) fn url(url: impl Into<Text>, at: &At<'_>) -> Result<Source, BadRequest> {
    let url = url.into();
    let text: &str = &url;
    let scheme = text.split(':').next().unwrap_or_default().to_ascii_lowercase();
    match scheme.as_str() {
        "http" | "https" => Ok(Source::Url(url.into_string())),
        "data" => {
            let comma = text.find(',').ok_or_else(|| at.bad("a data URL has a comma before its data"))?;
            let head = text.get("data:".len()..comma).unwrap_or_default();
            let Some(head) = head.strip_suffix(";base64") else {
                return Err(at.bad("a data URL must be in base64"));
            };
            let media_type = head.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
            data(Some(media_type).filter(|it| !it.is_empty()), url.from(comma + 1), at)
        }
        _ => Err(at.bad("must be an http, https or data URL")),
    }
}

/// Base64, of a type that is told or read off its beginning.
pub(super) fn data(
    media_type: Option<String>,
    base64: impl Into<Text>,
    at: &At<'_>,
) -> Result<Source, BadRequest> {
    let base64 = tidy(base64.into()).ok_or_else(|| at.bad("broken base64"))?;
    let media_type = match media_type {
        Some(told) if !plain(&told) => return Err(at.bad("not of a known MIME type")),
        Some(told) => match told.to_ascii_lowercase().as_str() {
            // Many clients call it so; OpenAI takes that, others don't.
            "image/jpg" => "image/jpeg".to_owned(),
            UNKNOWN => sniff(&base64).unwrap_or(UNKNOWN).to_owned(),
            told => told.to_owned(),
        },
        None => sniff(&base64).unwrap_or(UNKNOWN).to_owned(),
    };
    Ok(Source::Data { media_type, base64 })
}

/// A MIME type without parameters, as it may stand in a data URL.
fn plain(media_type: &str) -> bool {
    let part = |part: &str| {
        !part.is_empty()
            && part
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'+' | b'-' | b'_'))
    };
    media_type.split_once('/').is_some_and(|(kind, subtype)| part(kind) && part(subtype))
}

/// Bytes that a reference led to: their type, and themselves in base64.
#[must_use]
pub fn in_base64(blob: &Blob) -> (String, String) {
    let media_type = blob.media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let known = plain(&media_type).then_some(media_type);
    (known.unwrap_or_else(|| UNKNOWN.to_owned()), encode(&blob.bytes))
}

/// Base64 in its standard alphabet, padded, without line ends; nothing, if it is none.
fn tidy(text: Text) -> Option<Text> {
    let bytes = text.bytes();
    let pads = bytes.iter().rev().take(3).take_while(|byte| **byte == b'=').count();
    let (body, _) = bytes.split_at(bytes.len() - pads);
    let padded = bytes.len().is_multiple_of(4) && pads <= 2;
    // Without a branch a byte: it may be many megabytes.
    if padded && !body.is_empty() && body.iter().fold(true, |good, byte| good & DIGIT[usize::from(*byte)]) {
        return Some(text);
    }
    let mut out = String::with_capacity(text.len() + 2);
    let mut pads = 0_usize;
    for byte in bytes.iter().copied() {
        match byte {
            b'\r' | b'\n' | b' ' | b'\t' => {}
            b'=' => pads += 1,
            _ if pads > 0 => return None,
            b'-' => out.push('+'),
            b'_' => out.push('/'),
            _ if DIGIT[usize::from(byte)] => out.push(char::from(byte)),
            _ => return None,
        }
    }
    let missing = (4 - out.len() % 4) % 4;
    if out.is_empty() || missing == 3 || (pads > 0 && pads != missing) {
        return None;
    }
    out.extend(std::iter::repeat_n('=', missing));
    Some(out.into())
}

/// Whether a byte is one of base64's standard alphabet.
const DIGIT: [bool; 256] = {
    let mut digits = [false; 256];
    let mut byte = 0_u8;
    while byte < 128 {
        digits[byte as usize] = byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
        byte += 1;
    }
    digits
};

/// What the first bytes say, as they stand in base64.
fn sniff(base64: &str) -> Option<&'static str> {
    const MAGIC: [(&str, &str); 7] = [
        ("iVBORw0KGg", "image/png"),
        ("/9j/", "image/jpeg"),
        ("R0lGOD", "image/gif"),
        ("UklGR", "image/webp"),
        ("Qk", "image/bmp"),
        ("JVBERi0", "application/pdf"),
        ("SUkqA", "image/tiff"),
    ];
    MAGIC.iter().find(|(start, _)| base64.starts_with(start)).map(|(_, media_type)| *media_type)
}

/// What a picture's first bytes say it is: of those that every provider with eyes takes.
#[must_use]
pub fn image_type(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', 0x0D, 0x0A, 0x1A, 0x0A, ..] => Some("image/png"),
        [0xFF, 0xD8, 0xFF, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        _ => None,
    }
}

/// The text behind base64 of a text file.
pub(super) fn text(base64: &str) -> Option<String> {
    String::from_utf8(bytes(base64)).ok()
}

/// The bytes behind base64 that was found to be good.
pub(super) fn bytes(base64: &str) -> Vec<u8> {
    let value = |byte: u8| match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let mut bytes = Vec::with_capacity(base64.len() / 4 * 3);
    let (mut held, mut bits) = (0_u32, 0_u32);
    for digit in base64.bytes().map_while(value) {
        held = held << 6 | u32::from(digit);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push((held >> bits & 0xFF) as u8);
        }
    }
    bytes
}

fn encode(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let byte = |at: usize| u32::from(three.get(at).copied().unwrap_or_default());
        let held = byte(0) << 16 | byte(1) << 8 | byte(2);
        for at in 0..4_usize {
            let digit = DIGITS.get((held >> (18 - 6 * at) & 63) as usize).copied().unwrap_or(b'A');
            out.push(if at <= three.len() { char::from(digit) } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn base64_there_and_back(words in "[a-zé漢 ]{0,40}") {
            let there = encode(words.as_bytes());
            prop_assert_eq!(text(&there), Some(words.clone()));
            if !words.is_empty() {
                prop_assert_eq!(tidy(there.clone().into()), Some(there.clone().into()));
                let bare = there.trim_end_matches('=').replace('+', "-").replace('/', "_");
                prop_assert_eq!(tidy(bare.into()), Some(there.into()));
            }
        }
    }

    #[test]
    fn broken_base64_is_told() {
        for broken in ["", "A", "AB=C", "A===", "AB!=", "ABCDE", "=", "AA=", "héll"] {
            assert_eq!(tidy(broken.to_owned().into()), None, "{broken}");
        }
        assert_eq!(tidy("QUJD\r\nREVG".to_owned().into()).as_deref(), Some("QUJDREVG"));
    }

    #[test]
    fn pictures_are_known_by_their_beginning() {
        assert_eq!(sniff(&encode(b"\x89PNG\r\n\x1a\nmore")), Some("image/png"));
        assert_eq!(sniff(&encode(b"\xff\xd8\xff\xe0")), Some("image/jpeg"));
        assert_eq!(sniff(&encode(b"RIFFabcdWEBP")), Some("image/webp"));
        assert_eq!(sniff(&encode(b"%PDF-1.7")), Some("application/pdf"));
        assert_eq!(sniff(&encode(b"words")), None);
    }
}
