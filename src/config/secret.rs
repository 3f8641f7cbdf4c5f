//! A credential that never prints.

use std::fmt;

use crate::limits;

/// A key, as it goes into a header. Debug and Display show `***`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a key; surrounding white space (a file's last newline) is cut.
    #[must_use]
    pub fn new(key: &str) -> Self {
        Secret(key.trim().to_owned())
    }

    /// What stands for the key of `line` that only the service may read: none, since no header can carry it.
    #[must_use]
    pub(super) fn not_read(line: Option<usize>) -> Self {
        Secret(format!(
            "\0the key of line {:width$}",
            line.unwrap_or(0),
            width = limits::CLIENT_KEY_BYTES_GOOD
        ))
    }

    /// The key itself: for the one place that writes it into an upstream header.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Takes it out of what somebody else has said. One that is shorter than [`limits::REDACTED_BYTES`] stays: its
    /// letters are in other words too.
    pub fn hide_in(&self, text: &mut String) {
        if self.0.len() >= limits::REDACTED_BYTES && text.contains(&self.0) {
            *text = text.replace(&self.0, "***");
        }
    }
}

/// The same for bytes, and a key that is no configured one.
#[must_use]
pub fn hidden(key: &[u8], text: Vec<u8>) -> Vec<u8> {
    if key.len() < limits::REDACTED_BYTES {
        return text;
    }
    let (mut out, mut rest) = (Vec::new(), text.as_slice());
    while let Some(at) = memchr::memmem::find(rest, key) {
        let (before, from) = rest.split_at(at);
        out.extend_from_slice(before);
        out.extend_from_slice(b"***");
        rest = from.get(key.len()..).unwrap_or_default();
    }
    if out.is_empty() {
        return text;
    }
    out.extend_from_slice(rest);
    out
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_repeats_a_key_is_told_without_it() {
        let told = |key: &str, text: &str| {
            let mut string = text.to_owned();
            Secret::new(key).hide_in(&mut string);
            assert_eq!(hidden(key.as_bytes(), text.into()), string.as_bytes());
            string
        };
        assert_eq!(told("sk-1234", "bad sk-1234, sk-1234"), "bad ***, ***");
        assert_eq!(told("sk-1234", "sk-1234"), "***");
        assert_eq!(told("sk-1234", "bad sk-123"), "bad sk-123");
        assert_eq!(told("a", "a day"), "a day");
    }
}
