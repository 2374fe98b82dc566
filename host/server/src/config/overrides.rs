//! Flags of the command line, which win over the file.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use super::http::HttpListen;
use super::raw::{Raw, RawPlatformValues};

/// What the command line sets; what is absent is left as the file or the default has it. Relative paths start from
/// the current folder.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// Replaces `listen`.
    pub listen: Option<SocketAddr>,
    /// Replaces `http.listen`.
    pub http_listen: Option<HttpListen>,
    /// Replaces `state_dir`.
    pub state_dir: Option<PathBuf>,
    /// Replaces `storage.embedded.dir`.
    pub storage_dir: Option<PathBuf>,
    /// Replaces `policy.file`.
    pub policy_file: Option<PathBuf>,
    /// Replaces `policy.config`.
    pub policy_config: Option<serde_json::Value>,
    /// Sets `worker.enabled`; false leaves the file's word.
    pub with_worker: bool,
    /// Replaces `worker.concurrency`.
    pub worker_concurrency: Option<u32>,
    /// Replaces keys of `worker.platform`, one by one.
    pub worker_platform: BTreeMap<String, Vec<String>>,
}

impl Overrides {
    pub(super) fn apply(&self, raw: &mut Raw) {
        fn replace<T: Clone>(place: &mut Option<T>, flag: &Option<T>) {
            if flag.is_some() {
                place.clone_from(flag);
            }
        }
        replace(&mut raw.listen, &self.listen);
        replace(&mut raw.http.listen, &self.http_listen);
        replace(&mut raw.state_dir, &self.state_dir);
        replace(&mut raw.storage.embedded.dir, &self.storage_dir);
        replace(&mut raw.policy.file, &self.policy_file);
        replace(&mut raw.policy.config, &self.policy_config);
        replace(&mut raw.worker.concurrency, &self.worker_concurrency);
        if self.with_worker {
            raw.worker.enabled = Some(true);
        }
        let platform = self.worker_platform.iter();
        raw.worker
            .platform
            .extend(platform.map(|(key, values)| (key.clone(), RawPlatformValues::listed(values.clone()))));
    }
}
