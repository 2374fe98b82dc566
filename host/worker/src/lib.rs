//! pointsman-worker
