//! What the core does, one short story each.

#![allow(clippy::unwrap_used)]

mod attempts;
mod candidates;
mod capacities;
mod clients;
mod declared;
mod exact_set;
mod exclusive;
mod explain;
mod fairness;
mod groups;
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
mod reservations;
mod run_again;
mod sharing;
mod sizes;
mod strategies;
#[path = "../support/mod.rs"]
mod support;
mod synchronize;
mod unschedulable;
