//! `GetTree`.

use pointsman_proto::rev2::{Directory, DirectoryNode, GetTreeRequest, GetTreeResponse};
use prost::Message;

use super::*;

fn directory(children: &[(&str, Digest)]) -> Vec<u8> {
    let node = |(name, digest): &(&str, Digest)| DirectoryNode {
        name: (*name).to_owned(),
        digest: Some(digest.to_proto()),
    };
    Directory { directories: children.iter().map(node).collect(), ..Default::default() }.encode_to_vec()
}

async fn pages(
    fixture: &Fixture,
    root: &Digest,
    size: i32,
    token: &str,
) -> Result<Vec<GetTreeResponse>, Status> {
    let request = GetTreeRequest {
        root_digest: Some(root.to_proto()),
        page_size: size,
        page_token: token.to_owned(),
        ..Default::default()
    };
    let mut stream = fixture.cas().get_tree(request).await?.into_inner();
    let mut pages = Vec::new();
    while let Some(page) = stream.message().await? {
        pages.push(page);
    }
    Ok(pages)
}

/// A root with two children that share a grandchild; returns the root and the names of all that it leads to.
async fn sample(fixture: &Fixture) -> (Digest, Vec<Vec<u8>>) {
    let leaf = directory(&[]);
    let shared = directory(&[("leaf", digest(&leaf))]);
    let left = directory(&[("l", digest(&shared))]);
    let right = directory(&[("r", digest(&shared))]);
    let root = directory(&[("left", digest(&left)), ("right", digest(&right))]);
    let all = vec![root, left, right, shared, leaf];
    for content in &all {
        fixture.put(content).await;
    }
    (digest(&all[0]), all)
}

fn encoded(pages: &[GetTreeResponse]) -> Vec<Vec<u8>> {
    pages.iter().flat_map(|page| &page.directories).map(Message::encode_to_vec).collect()
}

#[tokio::test]
async fn every_directory_comes_once_in_pages_of_the_size_asked() {
    let fixture = Fixture::new().await;
    let (root, all) = sample(&fixture).await;
    let one = pages(&fixture, &root, 0, "").await.unwrap();
    assert_eq!((one.len(), &one[0].next_page_token[..]), (1, ""));
    assert_eq!(encoded(&one), all);

    let several = pages(&fixture, &root, 2, "").await.unwrap();
    assert_eq!(several.iter().map(|page| page.directories.len()).collect::<Vec<_>>(), [2, 2, 1]);
    assert_eq!(encoded(&several), all);
    assert!(several[2].next_page_token.is_empty());
    // A call that broke is taken up where it ended.
    let rest = pages(&fixture, &root, 2, &several[0].next_page_token).await.unwrap();
    assert_eq!(encoded(&rest), all[2..]);
}

#[tokio::test]
async fn an_empty_directory_is_a_tree() {
    let fixture = Fixture::new().await;
    let pages = pages(&fixture, &digest(b""), 0, "").await.unwrap();
    assert_eq!(encoded(&pages), [b""]);
}

#[tokio::test]
async fn a_directory_that_is_missing_is_named() {
    let fixture = Fixture::new().await;
    let gone = digest(b"gone");
    assert_status(
        pages(&fixture, &gone, 0, "").await,
        Code::NotFound,
        &format!("directory {gone} of the tree"),
    );
    let root = fixture.put(&directory(&[("gone", gone)])).await;
    assert_status(
        pages(&fixture, &root, 0, "").await,
        Code::NotFound,
        &format!("directory {gone} of the tree"),
    );
}

#[tokio::test]
async fn what_is_no_tree_is_refused() {
    let fixture = Fixture::new().await;
    let nonsense = fixture.put(b"\xff\xff").await;
    assert_status(pages(&fixture, &nonsense, 0, "").await, Code::InvalidArgument, "is no Directory message");
    assert_status(
        pages(&fixture, &nonsense, -1, "").await,
        Code::InvalidArgument,
        "page_size -1 is negative",
    );
    assert_status(
        pages(&fixture, &nonsense, 0, "x").await,
        Code::InvalidArgument,
        "page_token \"x\" was not",
    );
    let no_root = fixture.cas().get_tree(GetTreeRequest::default()).await.map(|_| ());
    assert_status(no_root, Code::InvalidArgument, "root_digest is not set");
}
