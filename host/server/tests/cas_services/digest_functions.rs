//! Every digest function in every service, named and told by the length of the hash.

use pointsman_proto::rev2::{
    ActionResult, BatchReadBlobsRequest, BatchUpdateBlobsRequest, Directory, DirectoryNode, FileNode,
    FindMissingBlobsRequest, GetActionResultRequest, GetTreeRequest, OutputDirectory, Tree,
    UpdateActionResultRequest, batch_update_blobs_request,
};
use prost::Message;

use super::*;

/// Each function with the ways to name it in a request: by its number, and by 0 where the length tells it.
fn ways() -> impl Iterator<Item = (DigestFunction, i32)> {
    let both = |function: &DigestFunction| {
        let unset = function.is_told_by_length().then_some((*function, 0));
        std::iter::once((*function, function.to_proto().into())).chain(unset)
    };
    DigestFunction::SERVED.iter().flat_map(both)
}

async fn upload_batch(fixture: &Fixture, digest: &Digest, digest_function: i32, data: &[u8]) -> i32 {
    let request = batch_update_blobs_request::Request {
        digest: Some(digest.to_proto()),
        data: Bytes::copy_from_slice(data),
        ..Default::default()
    };
    let request = BatchUpdateBlobsRequest { requests: vec![request], digest_function, ..Default::default() };
    let answer = fixture.cas().batch_update_blobs(request).await.unwrap().into_inner();
    answer.responses[0].status.as_ref().unwrap().code
}

async fn is_missing(fixture: &Fixture, digest: &Digest, digest_function: i32) -> bool {
    let request = FindMissingBlobsRequest {
        blob_digests: vec![digest.to_proto()],
        digest_function,
        ..Default::default()
    };
    let answer = fixture.cas().find_missing_blobs(request).await.unwrap().into_inner();
    !answer.missing_blob_digests.is_empty()
}

#[tokio::test]
async fn blobs_go_in_and_out_by_every_function() {
    let fixture = Fixture::new().await;
    for (seed, (function, number)) in ways().enumerate() {
        for (size, bytes) in [100, 200_000].into_iter().enumerate() {
            let content = content((seed * 2 + size) as u8, bytes);
            let digest = Digest::of(function, &content);
            assert!(is_missing(&fixture, &digest, number).await);
            let forged = [&content[1..], b"x"].concat();
            match seed % 3 {
                0 => {
                    assert_eq!(upload_batch(&fixture, &digest, number, &forged).await, 3);
                    assert_eq!(upload_batch(&fixture, &digest, number, &content).await, 0);
                }
                1 => {
                    let name = upload_name("blobs", &digest);
                    let result = fixture.write(messages(&name, &forged, 16 << 10)).await;
                    assert_status(result, Code::InvalidArgument, "wrong hash");
                    fixture.write(messages(&name, &content, 16 << 10)).await.unwrap();
                }
                _ => {
                    let name = upload_name("compressed-blobs/zstd", &digest);
                    let packed = zstd::encode_all(&content[..], 1).unwrap();
                    fixture.write(messages(&name, &packed, 16 << 10)).await.unwrap();
                }
            }
            assert!(!is_missing(&fixture, &digest, number).await, "{digest:?}");
            assert!(fixture.read(&blob_name("blobs", &digest)).await.unwrap() == content);
            let packed = fixture.read(&blob_name("compressed-blobs/zstd", &digest)).await.unwrap();
            assert!(zstd::decode_all(&packed[..]).unwrap() == content);
            let request = BatchReadBlobsRequest {
                digests: vec![digest.to_proto()],
                digest_function: number,
                ..Default::default()
            };
            let answer = fixture.cas().batch_read_blobs(request).await.unwrap().into_inner();
            assert!(answer.responses[0].data == content);
        }
        assert!(
            !is_missing(&fixture, &Digest::of(function, b""), number).await,
            "the empty blob is always here"
        );
    }
}

#[tokio::test]
async fn blake3_and_sha256_are_kept_apart() {
    let fixture = Fixture::new().await;
    let [sha, blake] =
        [DigestFunction::Sha256, DigestFunction::Blake3].map(|function| Digest::of(function, b"abc"));
    fixture.write(messages(&upload_name("blobs", &blake), b"abc", 3)).await.unwrap();
    // The same 64 digits, read as the other function.
    assert!(is_missing(&fixture, &blake, 0).await);
    assert!(is_missing(&fixture, &sha, 0).await);
    assert!(!is_missing(&fixture, &blake, 9).await);
    let unnamed = format!("blobs/{blake}");
    assert_status(fixture.read(&unnamed).await, Code::NotFound, "not found");
    assert_eq!(fixture.read(&format!("x/{}", blake.path())).await.unwrap(), b"abc");
    assert_eq!(upload_batch(&fixture, &blake, 0, b"abc").await, 3, "no SHA256 of that content");
}

#[tokio::test]
async fn results_and_trees_are_checked_by_every_function() {
    let fixture = Fixture::new().await;
    for (function, number) in ways() {
        let store = async |data: Vec<u8>| {
            let digest = Digest::of(function, &data);
            fixture.storage.write_blob(&digest, data.into()).await.unwrap();
            digest
        };
        let file = store(b"a file".to_vec()).await;
        let child = Directory {
            files: vec![FileNode {
                name: "f".to_owned(),
                digest: Some(file.to_proto()),
                ..Default::default()
            }],
            ..Default::default()
        };
        let child_digest = store(child.encode_to_vec()).await;
        let node = DirectoryNode { name: "d".to_owned(), digest: Some(child_digest.to_proto()) };
        let root = Directory { directories: vec![node], ..Default::default() };
        let root_digest = store(root.encode_to_vec()).await;
        let request = GetTreeRequest {
            root_digest: Some(root_digest.to_proto()),
            digest_function: number,
            ..Default::default()
        };
        let mut pages = fixture.cas().get_tree(request).await.unwrap().into_inner();
        let directories = pages.message().await.unwrap().unwrap().directories;
        assert_eq!(directories, [root.clone(), child.clone()]);

        let tree = Tree { root: Some(root), children: vec![child] };
        let output = OutputDirectory {
            tree_digest: Some(store(tree.encode_to_vec()).await.to_proto()),
            ..Default::default()
        };
        let result = ActionResult {
            output_directories: vec![output],
            stdout_digest: Some(store(b"to stdout".to_vec()).await.to_proto()),
            ..Default::default()
        };
        let action = Digest::of(function, format!("action of {function:?} by {number}").as_bytes());
        let update = UpdateActionResultRequest {
            action_digest: Some(action.to_proto()),
            action_result: Some(result),
            digest_function: number,
            ..Default::default()
        };
        fixture.action_cache().update_action_result(update.clone()).await.unwrap();
        let request = GetActionResultRequest {
            action_digest: Some(action.to_proto()),
            inline_stdout: true,
            digest_function: number,
            ..Default::default()
        };
        let found = fixture.action_cache().get_action_result(request.clone()).await.unwrap().into_inner();
        assert_eq!(found.stdout_raw, "to stdout");
        // The same with a file in the tree that is not here.
        let gone = FileNode {
            name: "gone".to_owned(),
            digest: Some(Digest::of(function, b"never uploaded").to_proto()),
            ..Default::default()
        };
        let root = Directory { files: vec![gone], ..Default::default() };
        let tree = store(Tree { root: Some(root), children: vec![] }.encode_to_vec()).await;
        let output = OutputDirectory { tree_digest: Some(tree.to_proto()), ..Default::default() };
        let result = ActionResult { output_directories: vec![output], ..Default::default() };
        let update = UpdateActionResultRequest { action_result: Some(result), ..update };
        fixture.action_cache().update_action_result(update).await.unwrap();
        let found = fixture.action_cache().get_action_result(request).await;
        assert_status(found, Code::NotFound, "no result of action");
    }
}
