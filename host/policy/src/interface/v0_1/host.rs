//! Interface `host`: the little that a policy may ask for at any time.

use super::convert::{pool_out, summary_out};
use super::imports::host::{self, Level};
use super::imports::types::{Pool, Summary};
use crate::asked::HostAnswer;
use crate::kv::Pending;
use crate::state::{State, bad};

impl host::Host for State {
    fn log(&mut self, level: Level, text: String) -> wasmtime::Result<()> {
        let (lines, limit) = (self.log_lines, self.limits.log_lines);
        self.log_lines = lines.saturating_add(1);
        let policy = self.identity.as_ref().map_or("(being configured)", |(policy, _)| &*policy.name);
        if lines == limit {
            tracing::warn!(policy, "this call logged more than {limit} lines; the others are dropped");
        }
        if lines >= limit {
            return Ok(());
        }
        // As a debug string: a policy's text must not forge lines of the server's log.
        let text = &text[..text.floor_char_boundary(self.limits.log_line_bytes)];
        match level {
            Level::Debug => tracing::debug!(policy, ?text, "policy log"),
            Level::Info => tracing::info!(policy, ?text, "policy log"),
            Level::Warn => tracing::warn!(policy, ?text, "policy log"),
            Level::Error => tracing::error!(policy, ?text, "policy log"),
        }
        Ok(())
    }

    fn statistics(&mut self, key: String) -> wasmtime::Result<Option<Summary>> {
        let found = (self.sources.statistics)(&key);
        let answer = found.as_ref().map(summary_out);
        self.note_asked("host.statistics", Some(&key), || Some(HostAnswer::Statistics(found)));
        Ok(answer)
    }

    fn get(&mut self, key: String) -> wasmtime::Result<Option<Vec<u8>>> {
        let clock = self.clock;
        let pending = self.pending.iter().rev().find(|pending| *pending.key == key);
        let found = match pending {
            Some(pending) => Some(pending.value.clone()).filter(|_| pending.expires > clock),
            None => self.identity.as_ref().and_then(|(_, values)| values.get(&key, clock)),
        };
        self.note_asked("host.get", Some(&key), || Some(HostAnswer::Stored(found.clone())));
        Ok(found)
    }

    fn set(&mut self, key: String, value: Vec<u8>, ttl_ms: u32) -> wasmtime::Result<()> {
        let key = self.text("the key of a stored value", key)?;
        let bytes: usize = self.pending.iter().map(|pending| pending.key.len() + pending.value.len()).sum();
        let (bytes, limit) = (bytes + key.len() + value.len(), self.limits.stored_bytes);
        if bytes > limit {
            return Err(bad(format!(
                "it set {bytes} bytes of values in one call, and {limit} can be kept in all"
            )));
        }
        let expires = self.clock + f64::from(ttl_ms) / 1000.0;
        self.pending.push(Pending { key, value, expires });
        Ok(())
    }

    fn pools(&mut self) -> wasmtime::Result<Vec<Pool>> {
        let pools = (self.sources.pools)();
        self.note_asked("host.pools", None, || Some(HostAnswer::Pools(pools.clone())));
        Ok(pools.iter().map(pool_out).collect())
    }

    fn now(&mut self) -> wasmtime::Result<f64> {
        let clock = self.clock;
        self.note_asked("host.now", None, || Some(HostAnswer::Now(clock)));
        Ok(clock)
    }
}
