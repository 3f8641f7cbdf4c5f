//! A changed configuration that cannot be used: since when, and why. Everything goes on by the one before it.

use std::path::Path;
use std::time::Instant;

use crate::config::{Problem, Problems};

/// What was refused at the last reload.
#[derive(Clone, Debug)]
pub struct Refused {
    /// Every reload since then was refused.
    pub since: Instant,
    /// The first mistake of the last one.
    pub first: Problem,
    /// How many mistakes there are besides.
    pub more: usize,
}

impl Refused {
    /// By its mistakes.
    #[must_use]
    pub fn by_mistakes(Problems(problems): Problems, at: Instant) -> Option<Self> {
        let more = problems.len().saturating_sub(1);
        let first = problems.into_iter().next()?;
        Some(Refused { since: at, first, more })
    }

    /// It is well written, and what it asks for cannot be had.
    #[must_use]
    pub fn unable(file: Option<&Path>, why: &str, at: Instant) -> Self {
        let file = file.map(Path::to_owned);
        let first = Problem { file, line: None, key: String::new(), what: why.to_owned(), hint: None };
        Refused { since: at, first, more: 0 }
    }
}
