//! A version that is in force, was, or is tried out.

use std::sync::Arc;
use std::time::SystemTime;

use crate::archive;
use crate::decision::PolicyId;
use crate::loader::digest_hex;
use crate::policy::Policy;

pub(super) use crate::archive::Source as Origin;

/// A version, with what is needed to load it once more.
#[derive(Clone)]
pub(super) struct Version {
    pub(super) policy: Arc<Policy>,
    pub(super) bytes: Bytes,
    pub(super) origin: Origin,
    pub(super) since: SystemTime,
}

/// What a version is made of.
#[derive(Clone, Debug)]
pub(super) struct Bytes {
    pub(super) content: Arc<[u8]>,
    pub(super) signature: Option<Arc<str>>,
}

impl Version {
    pub(super) fn new(policy: Policy, bytes: Bytes, origin: Origin) -> Self {
        Self { policy: Arc::new(policy), bytes, origin, since: SystemTime::now() }
    }

    pub(super) fn id(&self) -> &PolicyId {
        self.policy.policy()
    }

    pub(super) fn digest(&self) -> &str {
        &self.id().digest_hex
    }

    /// As it is kept in the state folder.
    pub(super) fn kept(&self) -> archive::Version {
        archive::Version {
            digest_hex: self.digest().to_owned(),
            name: self.id().name.to_string(),
            version: self.id().version.to_string(),
            config_sha256: digest_hex(self.policy.config().as_bytes()),
            since_unix_ms: unix_ms(self.since),
            source: self.origin,
            signature: self.bytes.signature.as_deref().map(str::to_owned),
        }
    }
}

pub(super) fn unix_ms(at: SystemTime) -> u64 {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
