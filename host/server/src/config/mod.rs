//! What an operator may set: one JSON5 file, none needed, overridden by flags.
//!
//! Two steps. [`raw`] mirrors the file: every key optional, unknown keys refused. [`checked`] is what the program
//! uses: complete, free of contradictions, and nothing else can build it. All problems of a file are reported
//! together, each with its line, because an operator who fixes one per restart stays up all night.

mod bazel;
mod check;
mod checked;
mod checked_policy;
mod config_files;
mod decision_log;
mod error;
mod http;
mod learning;
mod locate;
mod overrides;
mod path;
mod print;
mod raw;
mod raw_platform;
mod raw_policy;
mod read;
mod router;
mod state_dir;
#[cfg(test)]
mod tests;
mod tree;
mod units;

pub use bazel::{Bazel, BazelHost, BazelPool};
pub use checked::{
    ActionCache, Attempts, BundledWorker, Config, EmbeddedStorage, HostKey, Limits, Matching, Placement,
    PlatformValues, Policy, Pool, PropertyType, RemoteStorage, Services, Sizes, Timers, TooSmall,
    UnknownProperty, Values,
};
pub use checked_policy::{Isolation, NewVersions, OnError, PolicyLink, Probation};
pub use config_files::{ConfigFile, Seen};
pub use decision_log::DecisionLog;
pub use error::{ConfigError, Problem};
pub use http::{Http, HttpListen};
pub use learning::{Learning, MemoryUnit, PackBy, Packing};
pub use overrides::Overrides;
pub use router::{RouterSettings, Unsupported};
pub use units::{parse_duration, parse_size};

/// The candidate that is closest to what was written, if any is close enough to be a slip of the fingers.
///
/// Used for unknown configuration keys, property types and platform property keys alike, so that all of them
/// guess the same way: letter case is not held against the writer, and a third of the letters may differ.
pub fn nearest<'a>(written: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let folded = written.to_lowercase();
    let allowed = (written.chars().count() / 3).max(1);
    candidates
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(&folded, &candidate.to_lowercase()), candidate))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}
