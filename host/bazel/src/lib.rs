//! Bazel's and Buck2's side of a scheduler's pools: which files make a build use them, and whether a `.bazelrc` does what its
//! author means.
//!
//! Text in, text out: nothing is started and nothing is asked over a network.
//!
//! | Folder | Holds |
//! | --- | --- |
//! | `rc/` | reads a `.bazelrc` as Bazel does: words, sections, imports, configs |
//! | `flags.rs` | the options that decide where an action runs |
//! | `model/` | what Bazel makes of them: flags, action and platform to a list of strategies, or an error |
//! | `lint/` | what is wrong with them |
//! | `emit/` | platforms and flags from pools |

#![forbid(unsafe_code)]

pub mod emit;
pub mod flags;
mod label;
pub mod lint;
pub mod model;
mod place;
pub mod rc;
mod version;

pub use label::{Label, TargetPattern};
pub use place::Place;
pub use version::Version;
