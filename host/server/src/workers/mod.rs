//! Worker front ends.
pub mod synchronize;
