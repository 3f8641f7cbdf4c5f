//! A credential that never prints.

use std::fmt;

/// A key, as it goes into a header. Debug and Display show `***`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a key; surrounding white space (a file's last newline) is cut.
    #[must_use]
    pub fn new(key: &str) -> Self {
        Secret(key.trim().to_owned())
    }

    /// The key itself: for the one place that writes it into an upstream header.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
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
