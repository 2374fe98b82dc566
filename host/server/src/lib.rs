//! pointsman
