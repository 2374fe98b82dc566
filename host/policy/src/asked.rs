//! What a call of a policy asked for: the part of a decision record that lets the decision be repeated.

use std::sync::Arc;

use crate::facts::{Pool, Summary};

/// One function that a policy called to learn something. Edits are not among these: what came of them is the route.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked {
    /// `INTERFACE.FUNCTION`, as in `wit/policy.wit`.
    pub function: &'static str,
    /// What it asked about, for functions that have an argument.
    pub argument: Option<Box<str>>,
    /// The answer, where it does not follow from the facts.
    pub answer: Option<HostAnswer>,
}

/// What the server answered to a function of the interface `host`.
#[derive(Clone, Debug, PartialEq)]
pub enum HostAnswer {
    /// `now`.
    Now(f64),
    /// `get`.
    Stored(Option<Vec<u8>>),
    /// `statistics`.
    Statistics(Option<Summary>),
    /// `pools`.
    Pools(Arc<[Pool]>),
}
