//! What Bazel does with the flags: for an action, which strategies are tried, in which order, and which one runs it.
//!
//! The rules, first to last: the last `--strategy_regexp` that matches the description; the last `--strategy` of the mnemonic
//! (`--genrule_strategy` is one of Genrule that comes before all of them); `--spawn_strategy`; what is registered. Whichever
//! it is, the list of the action's execution platform takes out what it does not have. The first of what is left that can
//! run the action does; if there is none the action fails, and no other execution platform is tried.

mod decide;
mod regex_filter;
mod strategies;
mod tags;
mod text;

pub use decide::{Candidate, Decision, Legs, Model, Restriction, Source, Spawn};
pub use regex_filter::RegexFilter;
pub use strategies::{Os, Registry, STRATEGIES};
pub use tags::Tags;

#[cfg(test)]
mod tests;
