//! The scheduling core of Pointsman: pure, deterministic, without clock, I/O or async.

pub mod route;
