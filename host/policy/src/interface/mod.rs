//! Adapters between versions of the policy interface and the plain data of this crate.
//!
//! One module per version of `wit/policy.wit` that is not compatible with the one before. Everything outside speaks
//! of [`Loaded`] and [`Instance`] only.

mod v0_1;

use crate::asked::Asked;

pub(crate) use v0_1::{Instance, Loaded, WIT, WORLD};

/// An answer, and what it took.
#[derive(Debug)]
pub(crate) struct Called<T> {
    pub(crate) answer: T,
    /// Wasm instructions, roughly.
    pub(crate) fuel: u64,
    /// What it asked for; empty unless a record was wanted.
    pub(crate) asked: Vec<Asked>,
}

impl<T> Called<T> {
    pub(crate) fn map<U>(self, map: impl FnOnce(T) -> U) -> Called<U> {
        Called { answer: map(self.answer), fuel: self.fuel, asked: self.asked }
    }
}

/// What a policy says about itself.
#[derive(Clone, Debug)]
pub(crate) struct Manifest {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) config_schema: Option<String>,
}

/// A mistake in a policy's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigProblem {
    /// JSON pointer (RFC 6901) to the place; empty for the whole configuration.
    pub path: String,
    /// What is wrong there.
    pub message: String,
    /// Where that was written down, such as `sizes.json5:3:7`, if somebody knows.
    pub place: Option<String>,
}
