//! Mistakes and warnings: where each is, what it is, and what to write instead.

use std::fmt;
use std::path::PathBuf;

use super::Config;

/// One mistake, or one warning. Never holds the value of a key, a credential or a URL that contains one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file that it is in; `None`: it comes from the environment.
    pub file: Option<PathBuf>,
    /// The line, from 1; `None` where there is no line to point at.
    pub line: Option<usize>,
    /// Which key: `limits.max_body`, `target "box".url`, `target[1].url` where the target has no usable name.
    /// Empty for a mistake about the whole file.
    pub key: String,
    /// What is wrong, without a full stop.
    pub what: String,
    /// What to write, or do, instead.
    pub hint: Option<String>,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.file {
            Some(file) => write!(f, "{}", file.display())?,
            None => write!(f, "environment")?,
        }
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        if !self.key.is_empty() {
            write!(f, ": {}", self.key)?;
        }
        write!(f, ": {}", self.what)?;
        match &self.hint {
            Some(hint) => write!(f, "; hint: {hint}"),
            None => Ok(()),
        }
    }
}

/// Every mistake of one configuration, in the file's order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, problem) in self.0.iter().enumerate() {
            if n > 0 {
                writeln!(f)?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// A good configuration, and what its owner should know about it.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    /// Not mistakes, but worth a line in the log.
    pub warnings: Vec<Problem>,
}
