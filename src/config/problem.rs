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
        write!(f, ": {}", self.in_words())
    }
}

impl Problem {
    /// Without the file and the line.
    #[must_use]
    pub fn in_words(&self) -> String {
        let key = if self.key.is_empty() { String::new() } else { format!("{}: ", self.key) };
        let hint = self.hint.as_ref().map(|hint| format!("; hint: {hint}")).unwrap_or_default();
        format!("{key}{}{hint}", self.what)
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

/// Who reads a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// The service, which needs all of it.
    Service,
    /// A command in an operator's shell: what it may not read there, the service may. That is a warning.
    Operator,
}

/// What was understood of a configuration, mistakes or not.
#[derive(Clone, Debug)]
pub struct Seen {
    /// What could not be understood has its default; `None`: there was nothing to read.
    pub config: Option<Config>,
    /// As in [`Loaded`].
    pub warnings: Vec<Problem>,
    /// Every mistake.
    pub problems: Problems,
}

impl Seen {
    /// It, if it is good.
    ///
    /// # Errors
    /// Every mistake.
    pub fn loaded(self) -> Result<Loaded, Problems> {
        match self {
            Seen { config: Some(config), warnings, problems } if problems.0.is_empty() => {
                Ok(Loaded { config, warnings })
            }
            Seen { problems, .. } => Err(problems),
        }
    }
}

/// A good configuration, and what its owner should know about it.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    /// Not mistakes, but worth a line in the log.
    pub warnings: Vec<Problem>,
}
