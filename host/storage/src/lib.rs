//! pointsman-storage
