//! What the lint found.

use std::fmt;

use crate::place::Place;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Bazel refuses it, or actions fail.
    Error,
    /// It does something else than it seems to.
    Warning,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error => "error",
            Self::Warning => "warning",
        })
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The line; none if what is wrong is that there is no line.
    pub place: Option<Place>,
    /// How bad it is.
    pub severity: Severity,
    /// Its kind, in words that stay the same between versions.
    pub code: &'static str,
    /// What there is.
    pub what: String,
    /// What Bazel makes of it.
    pub why: String,
    /// What to do.
    pub advice: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(place) = &self.place {
            write!(f, "{place}: ")?;
        }
        write!(
            f,
            "{}[{}]: {}\n  why: {}\n  do:  {}",
            self.severity, self.code, self.what, self.why, self.advice
        )
    }
}
