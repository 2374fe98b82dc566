//! Remote Execution API v2 services.
