//! Adapters between versions of the policy interface and the plain data of this crate.
//!
//! One module per version of `wit/policy.wit` that is not compatible with the one before. Everything outside speaks
//! of [`Loaded`] and [`Instance`] only.

mod v0_1;

pub(crate) use v0_1::{Instance, Loaded, WIT, WORLD};

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
}
