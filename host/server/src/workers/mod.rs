//! Worker front ends.
pub mod refused;
pub mod synchronize;
