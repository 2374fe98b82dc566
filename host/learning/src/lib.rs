//! What earlier runs say about an action: how long it takes, how many cores and how much memory it uses, on which size
//! class it was killed or timed out; and what follows for the next run.
//!
//! Nothing here reads a clock, a file or the network: times are given, and the same runs in the same order give the same
//! record. A [`Record`] is some 350 bytes, whatever it has seen.
//!
//! | File | Holds |
//! | --- | --- |
//! | `histogram.rs` | counts by logarithmic buckets, quantiles from them, and how old counts fade |
//! | `record.rs` | what is known under one learning key |
//! | `statistics.rs` | all keys: a bounded number, least recently used ones dropped |
//! | `encoding.rs` | a record as a line of JSON that later versions can read |
//! | `size.rs` | the rule by which a size class is chosen |
//! | `need.rs` | amounts of cores and memory to set aside |

#![forbid(unsafe_code)]

mod encoding;
mod histogram;
mod need;
mod record;
mod size;
mod statistics;

pub use encoding::{BrokenRecord, FORMAT, decode, encode};
pub use need::{cores_needed, memory_needed};
pub use record::{ClassCount, Ended, Record, Run};
pub use size::{ClassCores, Rule, Suggestion, Why, suggest};
pub use statistics::{KEY_BYTES_MAX, Statistics, bounded};
