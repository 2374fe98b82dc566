//! `Capabilities`: each line is something that some client insists on.

use pointsman_proto::rev2::priority_capabilities::PriorityRange;
use pointsman_proto::rev2::{
    GetCapabilitiesRequest, PriorityCapabilities, compressor, digest_function, symlink_absolute_path_strategy,
};

use super::*;

fn request(instance_name: &str) -> GetCapabilitiesRequest {
    GetCapabilitiesRequest { instance_name: instance_name.to_owned() }
}

#[tokio::test]
async fn clients_find_what_they_insist_on() {
    let fixture = Fixture::new().await;
    let all = fixture.capabilities().get_capabilities(request("a/b")).await.unwrap().into_inner();
    let low = all.low_api_version.unwrap();
    assert_eq!((low.major, low.minor, low.patch), (2, 0, 0));
    let high = all.high_api_version.unwrap();
    assert!((high.major, high.minor) >= (2, 0));
    let any = PriorityCapabilities {
        priorities: vec![PriorityRange { min_priority: i32::MIN, max_priority: i32::MAX }],
    };

    let execution = all.execution_capabilities.unwrap();
    assert!(execution.exec_enabled);
    assert_eq!(execution.digest_function(), digest_function::Value::Sha256);
    use digest_function::Value::{Blake3, Md5, Sha1, Sha256, Sha384, Sha512};
    let functions = [Sha256, Sha1, Sha384, Sha512, Md5, Blake3].map(i32::from);
    assert_eq!(execution.digest_functions, functions);
    assert_eq!(execution.execution_priority_capabilities, Some(any.clone()));

    let cache = all.cache_capabilities.unwrap();
    assert_eq!(cache.digest_functions, functions);
    assert!(cache.action_cache_update_capabilities.unwrap().update_enabled);
    assert_eq!(cache.cache_priority_capabilities, Some(any));
    assert_eq!(cache.supported_compressors, [i32::from(compressor::Value::Zstd)]);
    assert_eq!(cache.supported_batch_update_compressors, [i32::from(compressor::Value::Zstd)]);
    assert_eq!(cache.max_batch_total_size_bytes, 4_128_768);
    assert_eq!(
        cache.symlink_absolute_path_strategy,
        i32::from(symlink_absolute_path_strategy::Value::Allowed)
    );
    assert!(!cache.split_blob_support && !cache.splice_blob_support);
}

#[tokio::test]
async fn a_wrong_instance_name_shows_here_first() {
    let fixture = Fixture::new().await;
    let result = fixture.capabilities().get_capabilities(request("a/")).await;
    assert_status(result, Code::InvalidArgument, "instance name \"a/\" begins or ends with a slash");
}
