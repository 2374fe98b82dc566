//! pointsman-tests
