//! The action cache.

use std::fs;

use pointsman_proto::rev2::{
    ActionResult, Directory, DirectoryNode, FileNode, OutputDirectory, OutputFile, Tree,
};
use prost::Message;

use super::*;
use crate::outputs_present;

/// A result with one output file.
fn result_with(file: &Digest) -> ActionResult {
    let output = OutputFile { path: "out".into(), digest: Some(file.to_proto()), ..Default::default() };
    ActionResult { output_files: vec![output], exit_code: 3, ..Default::default() }
}

fn file_node(file: &Digest) -> FileNode {
    FileNode { name: "f".into(), digest: Some(file.to_proto()), ..Default::default() }
}

async fn lookup(fixture: &Fixture, instance: &str, action: &Digest) -> Option<ActionResult> {
    fixture.storage.get_action_result(instance, action).await.unwrap()
}

async fn store(fixture: &Fixture, action: &Digest, result: &ActionResult) {
    fixture.storage.update_action_result("", action, result).await.unwrap();
}

fn action_files(fixture: &Fixture) -> Vec<PathBuf> {
    let shards = fs::read_dir(fixture.folder.path().join("ac")).unwrap();
    shards
        .flat_map(|shard| fs::read_dir(shard.unwrap().path()).unwrap())
        .map(|file| file.unwrap().path())
        .collect()
}

#[tokio::test]
async fn results_are_kept_per_instance_name_over_restarts() {
    let fixture = Fixture::new().await;
    let action = digest(b"action");
    let [x, y] = [fixture.put(b"x").await, fixture.put(b"y").await];
    store(&fixture, &action, &result_with(&x)).await;
    fixture.storage.update_action_result("a/b", &action, &result_with(&y)).await.unwrap();
    let fixture = fixture.reopen(|_| {}).await;
    assert_eq!(lookup(&fixture, "", &action).await, Some(result_with(&x)));
    assert_eq!(lookup(&fixture, "a/b", &action).await, Some(result_with(&y)));
    assert_eq!(lookup(&fixture, "a", &action).await, None);
    store(&fixture, &action, &result_with(&y)).await;
    assert_eq!(lookup(&fixture, "", &action).await, Some(result_with(&y)));
}

#[tokio::test]
async fn a_result_is_a_miss_without_any_of_its_outputs() {
    let fixture = Fixture::new().await;
    let action = digest(b"action");
    let here = fixture.put(b"here").await;
    let gone = digest(b"gone");
    store(&fixture, &action, &result_with(&gone)).await;
    assert_eq!(lookup(&fixture, "", &action).await, None);
    for field in [0, 1] {
        let mut result = result_with(&here);
        let digests = [&mut result.stdout_digest, &mut result.stderr_digest];
        *digests.into_iter().nth(field).unwrap() = Some(gone.to_proto());
        store(&fixture, &action, &result).await;
        assert_eq!(lookup(&fixture, "", &action).await, None);
    }
    fixture.put(b"gone").await;
    assert!(lookup(&fixture, "", &action).await.is_some());
}

#[tokio::test]
async fn files_in_output_trees_count() {
    let fixture = Fixture::new().await;
    let action = digest(b"action");
    let [top, below] = [fixture.put(b"top").await, digest(b"below")];
    let child = Directory { files: vec![file_node(&below)], ..Default::default() };
    let root = Directory { files: vec![file_node(&top)], ..Default::default() };
    let tree = Tree { root: Some(root), children: vec![child] }.encode_to_vec();
    let output = OutputDirectory { tree_digest: Some(digest(&tree).to_proto()), ..Default::default() };
    let result = ActionResult { output_directories: vec![output], ..Default::default() };
    store(&fixture, &action, &result).await;
    assert_eq!(lookup(&fixture, "", &action).await, None, "no tree");
    fixture.put(&tree).await;
    assert_eq!(lookup(&fixture, "", &action).await, None, "a file in the tree is missing");
    fixture.put(b"below").await;
    assert_eq!(lookup(&fixture, "", &action).await, Some(result));
}

#[tokio::test]
async fn output_directories_given_by_their_root_are_walked() {
    let fixture = Fixture::new().await;
    let leaf = fixture.put(b"leaf").await;
    let below = Directory { files: vec![file_node(&leaf)], ..Default::default() }.encode_to_vec();
    let node = |name: &str| DirectoryNode { name: name.into(), digest: Some(digest(&below).to_proto()) };
    let root = Directory { directories: vec![node("a"), node("b")], ..Default::default() }.encode_to_vec();
    let output =
        OutputDirectory { root_directory_digest: Some(digest(&root).to_proto()), ..Default::default() };
    let result = ActionResult { output_directories: vec![output], ..Default::default() };
    let present = async || outputs_present(&fixture.storage, DigestFunction::Sha256, &result).await.unwrap();
    assert!(!present().await);
    fixture.put(&root).await;
    assert!(!present().await);
    fixture.put(&below).await;
    assert!(present().await);
}

#[tokio::test]
async fn a_tree_that_is_none_makes_a_miss() {
    let fixture = Fixture::new().await;
    let action = digest(b"action");
    let nonsense = fixture.put(b"\xff\xff\xff").await;
    let bad_digest = FileNode { name: "f".into(), ..Default::default() };
    let tree =
        Tree { root: Some(Directory { files: vec![bad_digest], ..Default::default() }), children: vec![] };
    let incomplete = fixture.put(&tree.encode_to_vec()).await;
    for tree in [nonsense, incomplete] {
        let output = OutputDirectory { tree_digest: Some(tree.to_proto()), ..Default::default() };
        store(&fixture, &action, &ActionResult { output_directories: vec![output], ..Default::default() })
            .await;
        assert_eq!(lookup(&fixture, "", &action).await, None);
    }
}

#[tokio::test]
async fn a_hit_keeps_its_outputs_from_eviction() {
    let fixture = Fixture::on_disk(3).await;
    let action = digest(b"action");
    let output = fixture.put(b"output").await;
    store(&fixture, &action, &result_with(&output)).await;
    for other in 0..10u8 {
        fixture.put(&[other]).await;
        assert!(lookup(&fixture, "", &action).await.is_some());
    }
    for other in 10..13u8 {
        fixture.put(&[other]).await;
    }
    assert_eq!(lookup(&fixture, "", &action).await, None);
}

#[tokio::test]
async fn malformed_digests_are_refused() {
    let fixture = Fixture::new().await;
    let mut result = result_with(&digest(b"x"));
    result.output_files[0].digest = None;
    let error = fixture.storage.update_action_result("", &digest(b"action"), &result).await.unwrap_err();
    assert_eq!(error.to_string(), "digest of an output file is not set");
}

#[tokio::test]
async fn damaged_results_are_misses() {
    let fixture = Fixture::new().await;
    let action = digest(b"action");
    for damage in [&b""[..], b"short", &[7; 100]] {
        store(&fixture, &action, &ActionResult::default()).await;
        assert!(lookup(&fixture, "", &action).await.is_some());
        let path = action_files(&fixture).remove(0);
        fs::write(&path, damage).unwrap();
        assert_eq!(lookup(&fixture, "", &action).await, None);
        assert!(!path.exists());
    }
    assert_eq!(fixture.storage.stats().action_results, 0);
}

#[tokio::test]
async fn a_result_under_the_name_of_another_is_a_miss() {
    let fixture = Fixture::new().await;
    let (one, two) = (digest(b"one"), digest(b"two"));
    store(&fixture, &one, &ActionResult::default()).await;
    let of_one = fs::read(action_files(&fixture).remove(0)).unwrap();
    store(&fixture, &two, &ActionResult { exit_code: 1, ..Default::default() }).await;
    for path in action_files(&fixture) {
        fs::write(path, &of_one).unwrap();
    }
    assert!(lookup(&fixture, "", &one).await.is_some());
    assert_eq!(lookup(&fixture, "", &two).await, None);
}

#[tokio::test]
async fn the_number_of_results_is_bounded() {
    let fixture = Fixture::with(|config| config.max_action_results = 2).await;
    let [a, b, c] = [digest(b"a"), digest(b"b"), digest(b"c")];
    store(&fixture, &a, &ActionResult::default()).await;
    store(&fixture, &b, &ActionResult::default()).await;
    assert!(lookup(&fixture, "", &a).await.is_some());
    store(&fixture, &c, &ActionResult::default()).await;
    assert_eq!(lookup(&fixture, "", &b).await, None);
    assert_eq!(action_files(&fixture).len(), 2);
    for path in action_files(&fixture) {
        age(&path, 1);
    }
    store(&fixture, &c, &ActionResult::default()).await;
    let fixture = fixture.reopen(|config| config.max_action_results = 1).await;
    assert_eq!(lookup(&fixture, "", &a).await, None);
    assert!(lookup(&fixture, "", &c).await.is_some());
}
