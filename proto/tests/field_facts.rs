//! Our definitions against independent sources: the generated code of `bazel-remote-apis` for REv2 and
//! google's packages, a table for Buildbarn's.
#![allow(clippy::unwrap_used)]
mod buildbarn;
mod facts;

use bazel_remote_apis as _; // only its source is read
use facts::{Facts, differences, ours, theirs};

fn assert_same(ours: &Facts, theirs: &Facts, at_least: usize) {
    let (wrong, compared) = differences(ours, theirs);
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(compared >= at_least, "the comparison saw only {compared} entries");
}

#[test]
fn rev2_agrees() {
    let package = "build.bazel.remote.execution.v2";
    assert_same(&ours::package(package), &theirs::package(package), 248);
}

#[test]
fn semver_bytestream_and_longrunning_agree() {
    for (package, at_least) in
        [("build.bazel.semver", 4), ("google.bytestream", 14), ("google.longrunning", 24)]
    {
        assert_same(&ours::package(package), &theirs::package(package), at_least);
    }
}

#[test]
fn rpc_status_agrees() {
    // Error details and codes are not in the crate.
    let (mut ours, theirs) = (ours::package("google.rpc"), theirs::package("google.rpc"));
    ours.retain(|name, _| theirs.contains_key(name));
    assert_same(&ours, &theirs, 3);
}

#[test]
fn buildbarn_agrees() {
    let mut ours = ours::package("buildbarn.remoteworker");
    ours.append(&mut ours::package("buildbarn.resourceusage"));
    ours.append(&mut ours::package("buildbarn.remoteactionrouter"));
    ours.append(&mut ours::package("buildbarn.buildqueuestate"));
    assert_same(&ours, &buildbarn::table(), 147);
}

#[test]
fn every_kind_of_difference_is_seen() {
    let package = "google.longrunning";
    let (good, mut bad) = (theirs::package(package), theirs::package(package));
    let name = "google.longrunning.operation";
    let operation = bad.get_mut(name).unwrap();
    // Operation.response out of its oneof, .done under another number, .name renamed.
    let changed = [
        operation.insert(facts::Key::Number(5), "google.protobuf.any response".into()),
        operation.remove(&facts::Key::Number(3)),
        operation.insert(facts::Key::Number(1), "string nom".into()),
    ];
    assert!(changed.iter().all(Option::is_some));
    bad.remove("google.longrunning.operationinfo").unwrap();
    let (wrong, _) = differences(&bad, &good);
    assert_eq!(wrong.len(), 4, "{wrong:#?}");
}
