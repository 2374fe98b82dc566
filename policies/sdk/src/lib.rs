//! pointsman-policy-sdk
