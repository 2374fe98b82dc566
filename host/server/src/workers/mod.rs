//! Worker front ends.
mod admission;
mod identity;
mod judge;
pub mod refused;
mod report;
mod results;
pub mod status_table;
pub mod synchronize;
mod too_small;

pub(crate) use identity::json as id_json;
