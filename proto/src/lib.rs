//! pointsman-proto
