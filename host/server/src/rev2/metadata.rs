//! RequestMetadata: what clients say of themselves in a header.

use pointsman_proto::pack_encoded;
use pointsman_proto::rev2::RequestMetadata;
use prost::Message as _;
use prost_types::Any;
use tonic::metadata::MetadataMap;

/// REv2's header, and the one of its predecessor that Pants 2.17 still sends.
const HEADERS: [&str; 2] = [
    "build.bazel.remote.execution.v2.requestmetadata-bin",
    "google.devtools.remoteexecution.v1test.requestmetadata-bin",
];

/// Reads the header, and keeps it as it came for whoever it is passed on to. What can't be read is as good as absent,
/// since REv2 makes it optional.
pub fn request_metadata(headers: &MetadataMap) -> Option<(RequestMetadata, Any)> {
    let value = HEADERS.iter().find_map(|h| headers.get_bin(*h))?;
    let bytes = value.to_bytes().ok()?;
    let metadata = RequestMetadata::decode(&bytes[..]).ok()?;
    Some((metadata, pack_encoded::<RequestMetadata>(bytes.into())))
}
