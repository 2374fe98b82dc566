//! Interface `host`.
#![expect(missing_docs, reason = "`wit/policy.wit` explains the functions")]

use super::always;
use crate::{Pool, Summary};

pub use crate::bindings::pointsman::policy::host::Level;

pub fn log(level: Level, text: &str) {
    always("host.log", |now| now.log.push((level, text.into())));
}

pub fn statistics(key: &str) -> Option<Summary> {
    always("host.statistics", |now| now.call.host.statistics.get(key).copied())
}

pub fn get(key: &str) -> Option<Vec<u8>> {
    always("host.get", |now| now.call.host.stored.get(key).cloned())
}

/// Nothing expires within a test.
pub fn set(key: &str, value: &[u8], _ttl_ms: u32) {
    always("host.set", |now| now.call.host.stored.insert(key.into(), value.into()));
}

pub fn pools() -> Vec<Pool> {
    always("host.pools", |now| now.call.host.pools.clone())
}

pub fn now() -> f64 {
    always("host.now", |now| now.call.host.now)
}
