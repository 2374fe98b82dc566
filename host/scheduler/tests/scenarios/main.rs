//! What the core does, one short story each.

#![allow(clippy::unwrap_used)]

mod attempts;
mod candidates;
mod clients;
mod declared;
mod exact_set;
mod explain;
mod fairness;
mod health;
mod holds;
mod hosts;
mod limits;
mod matching;
mod metrics;
mod order;
mod placement;
mod platform_properties;
mod purity;
mod records;
mod run_again;
mod sharing;
#[path = "../support/mod.rs"]
mod support;
mod synchronize;
mod unschedulable;
