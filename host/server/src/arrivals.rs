//! What became of Execute calls that were not queued, in numbers.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tonic::Code;

/// gRPC's codes by their numbers.
const CODES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

/// Counters; they only grow.
#[derive(Debug, Default)]
pub struct Arrivals {
    cached: AtomicU64,
    errors: [AtomicU64; CODES.len()],
}

impl Arrivals {
    /// One was answered from the action cache.
    pub fn note_cached(&self) {
        self.cached.fetch_add(1, Relaxed);
    }

    /// One ended with an error.
    pub fn note_error(&self, code: Code) {
        self.errors[code as usize].fetch_add(1, Relaxed);
    }

    /// Answered from the action cache so far.
    pub fn cached(&self) -> u64 {
        self.cached.load(Relaxed)
    }

    /// Errors so far by gRPC code, those codes that there were.
    pub fn errors(&self) -> Vec<(&'static str, u64)> {
        let counts = CODES.into_iter().zip(self.errors.iter().map(|count| count.load(Relaxed)));
        counts.filter(|(_, count)| *count > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_their_names() {
        let arrivals = Arrivals::default();
        for code in [Code::ResourceExhausted, Code::Unavailable, Code::Unavailable, Code::Unauthenticated] {
            arrivals.note_error(code);
        }
        assert_eq!(
            arrivals.errors(),
            [("RESOURCE_EXHAUSTED", 1), ("UNAVAILABLE", 2), ("UNAUTHENTICATED", 1)]
        );
    }
}
