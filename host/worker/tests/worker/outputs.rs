//! What comes back.
#![allow(deprecated)]
use crate::harness::{Harness, sh};
use pointsman_proto::rev2::{command::OutputDirectoryFormat, *};
use prost::Message as _;
use std::collections::HashMap;
use tonic::Code;

#[tokio::test(flavor = "multi_thread")]
async fn directories_come_back_as_canonical_trees() {
    let harness = Harness::start().await;
    let script = "mkdir -p d/x/sub d/y/sub d/empty; echo a > d/x/sub/f; echo a > d/y/sub/f; echo b > d/z; \
        chmod +x d/z; ln -s z d/link; ln -s ../gone d/x/dangling; mkfifo d/pipe";
    let action = sh(script).outputs(&["d"]).with(|a| {
        a.command.output_directory_format = OutputDirectoryFormat::TreeAndDirectory as i32;
    });
    let response = harness.run(action).await;
    let result = response.result.unwrap();
    let output = &result.output_directories[0];
    assert_eq!(output.path, "d");
    assert!(output.is_topologically_sorted);
    let bytes = harness.storage.get(output.tree_digest.as_ref().unwrap());
    let tree = Tree::decode(bytes.clone()).unwrap();
    assert_eq!(tree.encode_to_vec(), bytes);
    let root = tree.root.unwrap();
    assert_eq!(output.root_directory_digest, Some(crate::storage::digest_of(&root.encode_to_vec())));
    // root, empty, x, y, and one `sub` that x and y share.
    assert_eq!(tree.children.len(), 4);
    let mut seen: HashMap<String, usize> = HashMap::new();
    for (index, directory) in std::iter::once(&root).chain(&tree.children).enumerate() {
        let digest = crate::storage::digest_of(&directory.encode_to_vec());
        assert_eq!(harness.storage.get(&digest).len() as i64, digest.size_bytes);
        assert!(seen.insert(digest.hash, index).is_none());
    }
    for (index, directory) in std::iter::once(&root).chain(&tree.children).enumerate() {
        for child in &directory.directories {
            assert!(seen[&child.digest.as_ref().unwrap().hash] > index);
        }
    }
    let names: Vec<_> = root.directories.iter().map(|d| d.name.as_str()).collect();
    assert_eq!(names, ["empty", "x", "y"]);
    assert_eq!((root.files[0].name.as_str(), root.files[0].is_executable), ("z", true));
    assert_eq!((root.symlinks[0].name.as_str(), root.symlinks[0].target.as_str()), ("link", "z"));
    assert_eq!(harness.text(&root.files[0].digest), "b\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn formats_of_directories() {
    let harness = Harness::start().await;
    for (format, tree, root) in
        [(OutputDirectoryFormat::TreeOnly, true, false), (OutputDirectoryFormat::DirectoryOnly, false, true)]
    {
        let action = sh("mkdir d; echo 1 > d/f")
            .outputs(&["d"])
            .with(|a| a.command.output_directory_format = format as i32);
        let output = harness.run(action).await.result.unwrap().output_directories.remove(0);
        assert_eq!((output.tree_digest.is_some(), output.root_directory_digest.is_some()), (tree, root));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn links_are_reported_in_old_and_new_lists() {
    let harness = Harness::start().await;
    let script = "mkdir d; echo > f; ln -s f lf; ln -s d ld; ln -s nowhere dangling";
    let result = harness.run(sh(script).outputs(&["dangling", "ld", "lf"])).await.result.unwrap();
    let names =
        |list: &[OutputSymlink]| list.iter().map(|l| format!("{}>{}", l.path, l.target)).collect::<Vec<_>>();
    assert_eq!(names(&result.output_symlinks), ["dangling>nowhere", "ld>d", "lf>f"]);
    assert_eq!(names(&result.output_file_symlinks), ["dangling>nowhere", "lf>f"]);
    assert_eq!(names(&result.output_directory_symlinks), ["ld>d"]);

    // A client of REv2 2.0.
    let script = "echo > f; ln -s f lf; rmdir ld; ln -s d ld";
    let action = sh(script).with(|a| {
        a.command.output_files = vec!["f".into(), "lf".into(), "absent".into()];
        a.command.output_directories = vec!["d".into(), "ld".into()];
    });
    let result = harness.run(action).await.result.unwrap();
    assert_eq!(result.output_symlinks, []);
    assert_eq!(names(&result.output_file_symlinks), ["lf>f"]);
    assert_eq!(names(&result.output_directory_symlinks), ["ld>d"]);
    assert_eq!((result.output_files.len(), result.output_directories.len()), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn parents_of_outputs_are_made_and_output_directories_of_old_clients() {
    let harness = Harness::start().await;
    let script = "test -d a/b && test ! -e a/b/c && test -d e/f && pwd && echo 1 > a/b/c";
    let action = sh(script).input("w/keep", "").with(|a| {
        a.command.working_directory = "w/.".into();
        a.command.output_files = vec!["a/b/c".into()];
        a.command.output_directories = vec!["e/f".into()];
    });
    let result = harness.run(action).await.result.unwrap();
    assert_eq!(result.exit_code, 0);
    assert!(harness.text(&result.stdout_digest).ends_with("/root/w\n"));
    assert_eq!(result.output_files[0].path, "a/b/c");
    assert_eq!(result.output_directories[0].path, "e/f");
    // Of an `output_paths` nobody knows what it becomes.
    let action = sh("test -d e && test ! -e e/f").outputs(&["e/f"]).with(|a| {
        a.command.output_directories = vec!["e/f".into()];
    });
    assert_eq!(harness.run(action).await.result.unwrap().exit_code, 0);
    // The whole working directory.
    let action = sh("echo 1 > f").with(|a| a.command.output_directories = vec!["".into()]);
    let result = harness.run(action).await.result.unwrap();
    assert_eq!(result.output_directories[0].path, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn outputs_of_the_wrong_kind() {
    let harness = Harness::start().await;
    let action = |script: &str| sh(script).with(|a| a.command.output_files = vec!["x".into()]);
    let response = harness.run(action("mkdir x")).await;
    assert_eq!(response.status.unwrap().code, Code::FailedPrecondition as i32);
    let response = harness.run(action("mkdir x; exit 4")).await;
    assert_eq!((response.status.unwrap().code, response.result.unwrap().exit_code), (0, 4));
    let response = harness.run(sh("mkfifo x").outputs(&["x"])).await;
    assert_eq!(response.status.unwrap().code, Code::FailedPrecondition as i32);
}

#[tokio::test(flavor = "multi_thread")]
async fn properties_of_outputs_on_request() {
    let harness = Harness::start().await;
    let action =
        sh("echo > f; touch -d @1000000000 f; chmod 640 f; mkdir d; echo > d/g; chmod 0 d/g; chmod 0 d")
            .outputs(&["d", "f"])
            .with(|a| a.command.output_node_properties = vec!["mtime".into(), "unix_mode".into()]);
    let result = harness.run(action).await.result.unwrap();
    let properties = result.output_files[0].node_properties.clone().unwrap();
    assert_eq!(properties.unix_mode, Some(0o640));
    assert_eq!(properties.mtime.unwrap().seconds, 1_000_000_000);
    assert_eq!(result.output_directories.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_output_without_end_can_be_cancelled() {
    let harness = Harness::start().await;
    harness.submit(sh("truncate -s 8T out; echo $$ > pid").outputs(&["out"]));
    harness.marker("pid").await;
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    harness.scheduler.with(|inner| inner.bound.clear());
    let response = harness.run(sh("true")).await;
    assert_eq!(response.result.unwrap().exit_code, 0);
}
