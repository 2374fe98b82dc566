//! pointsman-policy-default
