//! Compiles the protocol definitions without `protoc`.
use prost::Message as _;
use std::{env, fs, path::PathBuf};

const FILES: [&str; 12] = [
    "build/bazel/remote/execution/v2/remote_execution.proto",
    "google/bytestream/bytestream.proto",
    "google/rpc/code.proto",
    "google/rpc/error_details.proto",
    "buildbarn/buildqueuestate/buildqueuestate.proto",
    "buildbarn/remoteactionrouter/remoteactionrouter.proto",
    "buildbarn/remoteworker/remoteworker.proto",
    "buildbarn/resourceusage/resourceusage.proto",
    "pointsman/v1/admin.proto",
    "pointsman/v1/pointsman.proto",
    "pointsman/v1/policies.proto",
    "pointsman/v1/sizes.proto",
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(FILES, ["proto"])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);

    // Comments become documentation of the generated code; reflection does not need them.
    let mut embedded = descriptors.clone();
    embedded.file.iter_mut().for_each(|file| file.source_code_info = None);
    fs::write(out.join("descriptors.bin"), embedded.encode_to_vec())?;

    let mut config = tonic_prost_build::Config::new();
    config.enable_type_names().type_name_domain(["."], "type.googleapis.com");
    // Our own messages are what the command line prints as JSON.
    let serialize = "#[derive(serde::Serialize)]";
    tonic_prost_build::configure()
        .type_attribute(".pointsman.v1", serialize)
        .type_attribute(".build.bazel.remote.execution.v2.Platform.Property", serialize)
        .type_attribute(".build.bazel.remote.execution.v2.Command.EnvironmentVariable", serialize)
        // A component is nothing to print.
        .field_attribute("PushPolicyRequest.component", "#[serde(skip)]")
        .bytes(".")
        // Ours keep the action as it came (`src/action_router.rs`).
        .extern_path(
            ".buildbarn.remoteactionrouter.RouteActionRequest",
            "crate::action_router::RouteActionRequest",
        )
        .extern_path(
            ".buildbarn.remoteactionrouter.RouteActionResponse",
            "crate::action_router::RouteActionResponse",
        )
        .include_file("all.rs")
        .compile_fds_with_config(descriptors, config)?;
    Ok(())
}
