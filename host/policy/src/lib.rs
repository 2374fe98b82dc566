//! pointsman-policy
