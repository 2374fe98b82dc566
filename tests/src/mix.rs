//! What size classes that learn are worth: a build's actions, as many and as long as a published measurement of five projects has them,
//! on workers that are all alike and on small and big ones.
//!
//! The scheduling core and the rule by which sizes are learned are the server's own; workers and time are a model, so that hours take
//! seconds and come out the same each time. Actions that execute on one node share its cores, as containers without a CPU limit do.
mod actions;
mod cluster;
mod report;
mod run;

pub use actions::{Action, BANDS, Band, actions};
pub use cluster::{NODE_CORES, Shape};
pub use report::table;
pub use run::{Outcome, Setup, compare};
