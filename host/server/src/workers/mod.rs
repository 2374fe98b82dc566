//! Worker front ends.
mod identity;
pub mod refused;
mod report;
mod results;
pub mod status_table;
pub mod synchronize;
