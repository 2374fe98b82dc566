//! `Capabilities`: what clients ask before anything else, and without which they refuse to build.

use pointsman_proto::rev2::capabilities_server::Capabilities;
use pointsman_proto::rev2::priority_capabilities::PriorityRange;
use pointsman_proto::rev2::{
    ActionCacheUpdateCapabilities, CacheCapabilities, ExecutionCapabilities, GetCapabilitiesRequest,
    PriorityCapabilities, ServerCapabilities, compressor, symlink_absolute_path_strategy,
};
use pointsman_proto::semver::SemVer;
use pointsman_storage::DigestFunction;
use tonic::{Request, Response, Status};

use super::cas::BATCH_MAX_BYTES;
use super::instance_name;
use crate::config::Services;

/// The service. The same answer for every instance name.
#[derive(Clone, Debug, Default)]
pub struct CapabilitiesService {
    services: Services,
}

impl CapabilitiesService {
    /// The service of a port that has these.
    pub fn new(services: Services) -> Self {
        Self { services }
    }
}

#[tonic::async_trait]
impl Capabilities for CapabilitiesService {
    async fn get_capabilities(
        &self,
        request: Request<GetCapabilitiesRequest>,
    ) -> Result<Response<ServerCapabilities>, Status> {
        instance_name::validate(&request.get_ref().instance_name)?;
        Ok(Response::new(capabilities(self.services)))
    }
}

/// What this server can do. What it has switched off is shown without the means to use it, not left out: Bazel looks for
/// digest functions in both parts.
fn capabilities(services: Services) -> ServerCapabilities {
    let functions: Vec<i32> = DigestFunction::SERVED.iter().map(|it| it.to_proto().into()).collect();
    ServerCapabilities {
        cache_capabilities: Some(match services {
            Services::All | Services::Cache => cache(functions.clone()),
            Services::Execution => CacheCapabilities {
                digest_functions: functions.clone(),
                cache_priority_capabilities: Some(any_priority()),
                symlink_absolute_path_strategy: symlink_absolute_path_strategy::Value::Allowed.into(),
                ..Default::default()
            },
        }),
        execution_capabilities: Some(ExecutionCapabilities {
            // Bazel 2 reads only this field, newer clients only the list.
            digest_function: DigestFunction::Sha256.to_proto().into(),
            digest_functions: functions,
            exec_enabled: services != Services::Cache,
            execution_priority_capabilities: Some(any_priority()),
            ..Default::default()
        }),
        deprecated_api_version: None,
        // Bazel up to 7 speaks 2.0 and nothing else, and refuses a server whose lowest version is higher.
        low_api_version: Some(version(0)),
        high_api_version: Some(version(12)),
    }
}

fn cache(digest_functions: Vec<i32>) -> CacheCapabilities {
    let zstd = vec![compressor::Value::Zstd.into()];
    CacheCapabilities {
        digest_functions,
        action_cache_update_capabilities: Some(ActionCacheUpdateCapabilities { update_enabled: true }),
        cache_priority_capabilities: Some(any_priority()),
        max_batch_total_size_bytes: BATCH_MAX_BYTES as i64,
        symlink_absolute_path_strategy: symlink_absolute_path_strategy::Value::Allowed.into(),
        supported_compressors: zstd.clone(),
        supported_batch_update_compressors: zstd,
        ..Default::default()
    }
}

/// Every priority there is: without a range that holds it, a client that is given a priority ends the build.
fn any_priority() -> PriorityCapabilities {
    PriorityCapabilities {
        priorities: vec![PriorityRange { min_priority: i32::MIN, max_priority: i32::MAX }],
    }
}

fn version(minor: i32) -> SemVer {
    SemVer { major: 2, minor, ..Default::default() }
}
