//! Worker front ends.
