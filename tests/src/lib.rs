//! What the tests of several crates share: clients and workers without anything behind them, and the load
//! generator.

pub mod fake_client;
pub mod fake_worker;
pub mod harness;
pub mod load;
pub mod mix;
