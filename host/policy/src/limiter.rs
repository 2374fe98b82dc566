//! Bounds the memory of one instance, and remembers what it refused.

use wasmtime::ResourceLimiter;

use crate::options::Limits;

/// A guest that is refused memory aborts just as one that panics; only the record here tells them apart.
#[derive(Debug)]
pub(crate) struct Limiter {
    memory_left: usize,
    table_left: usize,
    memory_limit: usize,
    table_limit: usize,
    refused: Option<String>,
}

impl Limiter {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            memory_left: limits.memory_bytes,
            table_left: limits.table_elements,
            memory_limit: limits.memory_bytes,
            table_limit: limits.table_elements,
            refused: None,
        }
    }

    /// Bytes of memory in use.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.memory_limit - self.memory_left
    }

    /// What was refused since the last call of [`forget`](Self::forget).
    pub(crate) fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    /// To be called before each call of the guest: what it survived earlier explains nothing now.
    pub(crate) fn forget(&mut self) {
        self.refused = None;
    }
}

impl ResourceLimiter for Limiter {
    fn memory_growing(
        &mut self,
        now: usize,
        wanted: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let more = wanted.saturating_sub(now);
        let allowed = more <= self.memory_left && maximum.is_none_or(|maximum| wanted <= maximum);
        if allowed {
            self.memory_left -= more;
        } else {
            let limit = self.memory_limit;
            self.refused =
                Some(format!("it asked for {wanted} bytes of memory, allowed are {limit} bytes in all"));
        }
        Ok(allowed)
    }

    fn table_growing(&mut self, now: usize, wanted: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        let more = wanted.saturating_sub(now);
        let allowed = more <= self.table_left && maximum.is_none_or(|maximum| wanted <= maximum);
        if allowed {
            self.table_left -= more;
        } else {
            let limit = self.table_limit;
            self.refused =
                Some(format!("it asked for a table of {wanted} elements, allowed are {limit} in all"));
        }
        Ok(allowed)
    }

    // A component made by any of the known toolchains has up to five core instances; these bounds only stop one that
    // was built to hurt.
    fn instances(&self) -> usize {
        50
    }

    fn tables(&self) -> usize {
        20
    }

    fn memories(&self) -> usize {
        10
    }
}
