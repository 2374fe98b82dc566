//! `decision_log`: records of what policies decided.

use std::path::PathBuf;
use std::str::FromStr as _;

use serde::{Deserialize, Serialize};

use super::check::{Checker, MIB};
use super::error::At;
use super::path::{KeyPath, Segment};
use super::units::RawSize;
use crate::decisions::Mask;

/// `decision_log`: what policies were asked and answered, for `pointsman policy log`.
#[derive(Clone, Debug, PartialEq)]
pub struct DecisionLog {
    /// `memory_records`: so many of the latest are kept in memory. Default 1,000; 0 keeps none.
    pub memory_records_max: usize,
    /// `memory_size`: bytes that those take at most, about. Default 16 MiB.
    pub memory_max_bytes: u64,
    /// `file`: all of them go here, as lines of JSON compressed with zstd. Default: nowhere. Give one to be able to say weeks
    /// later why something ran where it did; count on 150 bytes for each action.
    pub file: Option<PathBuf>,
    /// `rotate_size`: the file begins anew when it would be larger. Default 64 MiB.
    pub rotate_bytes: u64,
    /// `keep_files`: so many old ones are kept, `FILE.1` being the latest. Default 10.
    pub keep_files: u32,
    /// `mask`: what reads `***` in records: `principal`, `invocation_id`, `correlated_invocations_id`, `tool_name`,
    /// `tool_version`, `target_id`, `configuration_id`, `instance_name`, `working_directory`, `arguments`, `output_paths`,
    /// `environment`, `environment:NAME`, `property:NAME`, `stored_values`, `workers`. Default: nothing. A decision can't be
    /// repeated from a record in which the policy read something that is masked.
    pub mask: Vec<Mask>,
    /// `sample`: the share of decisions that is recorded, 0 to 1; refusals and failures always are. Default 1. Lower it where
    /// the disk or its reader can't follow.
    pub sample: f64,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default, expecting = "an object: { file: …, … }")]
pub(super) struct RawDecisionLog {
    pub(super) memory_records: Option<u32>,
    pub(super) memory_size: Option<RawSize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) file: Option<PathBuf>,
    pub(super) rotate_size: Option<RawSize>,
    pub(super) keep_files: Option<u32>,
    pub(super) mask: Vec<String>,
    pub(super) sample: Option<f64>,
}

impl Checker {
    pub(super) fn decision_log(&mut self, raw: RawDecisionLog) -> DecisionLog {
        let mut mask = Vec::new();
        for (index, field) in raw.mask.iter().enumerate() {
            match Mask::from_str(field) {
                Ok(field) => mask.push(field),
                Err(error) => {
                    let at = KeyPath::of("decision_log.mask").0.into_iter().chain([Segment::Index(index)]);
                    self.complain(KeyPath(at.collect()), At::Value, error.to_string());
                }
            }
        }
        DecisionLog {
            memory_records_max: raw.memory_records.unwrap_or(1_000) as usize,
            memory_max_bytes: self.size("decision_log.memory_size", raw.memory_size, 16 * MIB),
            file: raw.file,
            rotate_bytes: self.size("decision_log.rotate_size", raw.rotate_size, 64 * MIB),
            keep_files: raw.keep_files.unwrap_or(10),
            mask,
            sample: self.share(KeyPath::of("decision_log.sample"), raw.sample, 1.0),
        }
    }
}

impl From<&DecisionLog> for RawDecisionLog {
    fn from(log: &DecisionLog) -> Self {
        Self {
            memory_records: Some(u32::try_from(log.memory_records_max).unwrap_or(u32::MAX)),
            memory_size: Some(RawSize(log.memory_max_bytes)),
            file: log.file.clone(),
            rotate_size: Some(RawSize(log.rotate_bytes)),
            keep_files: Some(log.keep_files),
            mask: log.mask.iter().map(ToString::to_string).collect(),
            sample: Some(log.sample),
        }
    }
}
