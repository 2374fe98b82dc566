//! `FindMissingBlobs`, `BatchUpdateBlobs`, `BatchReadBlobs`.

use pointsman_proto::rev2::{
    self, BatchReadBlobsRequest, BatchUpdateBlobsRequest, FindMissingBlobsRequest, SplitBlobRequest,
    batch_read_blobs_response, batch_update_blobs_request, compressor, digest_function,
};
use tonic::Response;

use super::*;

fn update(digest: Option<&Digest>, data: &[u8], compressor: i32) -> batch_update_blobs_request::Request {
    batch_update_blobs_request::Request {
        digest: digest.map(Digest::to_proto),
        data: Bytes::copy_from_slice(data),
        compressor,
    }
}

async fn read(
    fixture: &Fixture,
    digests: &[Digest],
    compressors: &[compressor::Value],
) -> Result<Vec<batch_read_blobs_response::Response>, Status> {
    let request = BatchReadBlobsRequest {
        digests: digests.iter().map(Digest::to_proto).collect(),
        acceptable_compressors: compressors.iter().map(|it| i32::from(*it)).collect(),
        ..Default::default()
    };
    fixture.cas().batch_read_blobs(request).await.map(|response| response.into_inner().responses)
}

#[tokio::test]
async fn missing_blobs_are_found() {
    let fixture = Fixture::new().await;
    let (here, gone) = (fixture.put(b"here").await, digest(b"gone"));
    let request = FindMissingBlobsRequest {
        instance_name: "a/b".to_owned(),
        blob_digests: [here, gone, digest(b""), gone].iter().map(Digest::to_proto).collect(),
        digest_function: digest_function::Value::Sha256.into(),
    };
    let response = fixture.cas().find_missing_blobs(request).await.unwrap().into_inner();
    assert_eq!(response.missing_blob_digests, [gone.to_proto()]);
}

#[tokio::test]
async fn a_whole_tree_is_asked_for_at_once() {
    let fixture = Fixture::new().await;
    let here = fixture.put(b"here").await;
    let mut digests: Vec<Digest> = (0..50_000u32).map(|i| digest(&i.to_le_bytes())).collect();
    digests.push(here);
    let blob_digests = digests.iter().map(Digest::to_proto).collect();
    let request = FindMissingBlobsRequest { blob_digests, ..Default::default() };
    let mut client = fixture.cas().max_decoding_message_size(MESSAGE_MAX_BYTES);
    let response = client.find_missing_blobs(request).await.unwrap().into_inner();
    assert_eq!(response.missing_blob_digests.len(), 50_000);
}

#[tokio::test]
async fn digests_that_are_wrong_are_named() {
    let fixture = Fixture::new().await;
    let good = digest(b"x").to_proto();
    let cases = [
        (
            rev2::Digest { hash: "abc".into(), size_bytes: 1 },
            "blob_digests[1]: hash \"abc\" has 3 characters",
        ),
        (rev2::Digest { size_bytes: -5, ..good.clone() }, "blob_digests[1]: size -5 of the blob"),
        (rev2::Digest { hash: "g".repeat(64), size_bytes: 1 }, "not made of lower-case hexadecimal digits"),
    ];
    for (bad, text) in cases {
        let request = FindMissingBlobsRequest { blob_digests: vec![good.clone(), bad], ..Default::default() };
        assert_status(fixture.cas().find_missing_blobs(request).await, Code::InvalidArgument, text);
    }
}

#[tokio::test]
async fn instance_names_and_functions_are_checked_in_every_call() {
    let fixture = Fixture::new().await;
    for (instance_name, digest_function, text) in [
        ("a//b", 0, "two slashes in a row"),
        ("", 8, "digest function SHA256TREE is not served; served: SHA256, SHA1, SHA384"),
    ] {
        let instance_name = instance_name.to_owned();
        let request = FindMissingBlobsRequest {
            instance_name: instance_name.clone(),
            digest_function,
            ..Default::default()
        };
        assert_status(fixture.cas().find_missing_blobs(request).await, Code::InvalidArgument, text);
        let request = BatchUpdateBlobsRequest {
            instance_name: instance_name.clone(),
            digest_function,
            ..Default::default()
        };
        assert_status(fixture.cas().batch_update_blobs(request).await, Code::InvalidArgument, text);
        let request = BatchReadBlobsRequest {
            instance_name: instance_name.clone(),
            digest_function,
            ..Default::default()
        };
        assert_status(fixture.cas().batch_read_blobs(request).await, Code::InvalidArgument, text);
        let request = rev2::GetTreeRequest { instance_name, digest_function, ..Default::default() };
        assert_status(fixture.cas().get_tree(request).await.map(|_| ()), Code::InvalidArgument, text);
    }
}

#[tokio::test]
async fn each_blob_of_a_batch_has_its_own_fate() {
    let fixture = Fixture::new().await;
    let zstd = compressor::Value::Zstd.into();
    let (plain, packed, other) = (digest(b"plain"), digest(b"packed"), digest(b"other"));
    let long = content(1, 100);
    let requests = vec![
        update(Some(&plain), b"plain", 0),
        update(Some(&packed), &zstd::encode_all(&b"packed"[..], 1).unwrap(), zstd),
        update(Some(&other), b"OTHER", 0),
        update(Some(&other), b"other and more", 0),
        update(None, b"x", 0),
        update(Some(&other), b"other", zstd),
        update(Some(&other), b"other", compressor::Value::Deflate.into()),
        update(Some(&digest(&long)), &zstd::encode_all(&long[..50], 1).unwrap(), zstd),
        update(Some(&plain), b"plain", 0),
    ];
    let request = BatchUpdateBlobsRequest { requests, ..Default::default() };
    let response = fixture.cas().batch_update_blobs(request).await.map(Response::into_inner).unwrap();
    let expected = [
        (0, ""),
        (0, ""),
        (3, "wrong hash"),
        (3, "with more bytes than its digest says"),
        (3, "digest is not set"),
        (3, "is not valid zstd"),
        (3, "compressor DEFLATE is not served"),
        (3, "with only 50 bytes"),
        (0, ""),
    ];
    assert_eq!(response.responses.len(), expected.len());
    for (response, (code, text)) in response.responses.iter().zip(expected) {
        let status = response.status.as_ref().unwrap();
        assert_eq!(status.code, code, "{}", status.message);
        assert!(status.message.contains(text), "{}", status.message);
    }
    assert_eq!(response.responses[0].digest, Some(plain.to_proto()));
    assert!(fixture.has(&plain).await && fixture.has(&packed).await && !fixture.has(&other).await);
}

#[tokio::test]
async fn a_batch_may_be_larger_than_four_mebibytes() {
    let fixture = Fixture::new().await;
    let blobs: Vec<Vec<u8>> = (0..20).map(|seed| content(seed, 1 << 20)).collect();
    let requests = blobs.iter().map(|blob| update(Some(&digest(blob)), blob, 0)).collect();
    let request = BatchUpdateBlobsRequest { requests, ..Default::default() };
    let response = fixture.cas().batch_update_blobs(request).await.unwrap().into_inner();
    assert!(response.responses.iter().all(|blob| blob.status.as_ref().unwrap().code == 0));
}

#[tokio::test]
async fn batches_are_read_with_a_status_for_each() {
    let fixture = Fixture::new().await;
    let long = content(1, 10_000);
    let (short, gone) = (fixture.put(b"short").await, digest(b"gone"));
    let asked = [fixture.put(&long).await, gone, short, digest(b"")];
    let responses = read(&fixture, &asked, &[]).await.unwrap();
    let codes: Vec<i32> = responses.iter().map(|blob| blob.status.as_ref().unwrap().code).collect();
    assert_eq!(codes, [0, 5, 0, 0]);
    assert!(responses[0].data == long && responses[2].data == "short" && responses[3].data.is_empty());
    assert_eq!(responses[1].digest, Some(gone.to_proto()));

    let responses = read(&fixture, &asked, &[compressor::Value::Zstd]).await.unwrap();
    assert_eq!(responses[0].compressor(), compressor::Value::Zstd);
    assert!(responses[0].data.len() < long.len());
    assert!(zstd::decode_all(&responses[0].data[..]).unwrap() == long);
    assert_eq!(
        (responses[2].compressor(), &responses[2].data[..]),
        (compressor::Value::Identity, &b"short"[..])
    );
}

#[tokio::test]
async fn a_batch_that_no_client_could_receive_is_refused() {
    let fixture = Fixture::new().await;
    let largest = fixture.put(&content(1, (4 << 20) - (64 << 10))).await;
    assert_eq!(read(&fixture, &[largest], &[]).await.unwrap().len(), 1);
    let over = read(&fixture, &[largest, digest(b"x")], &[]).await;
    assert_status(over, Code::InvalidArgument, "the batch asks for 4128769 bytes, at most 4128768");
}

#[tokio::test]
async fn what_is_not_served_is_unimplemented() {
    let fixture = Fixture::new().await;
    let result = fixture.cas().split_blob(SplitBlobRequest::default()).await;
    assert_status(result, Code::Unimplemented, "SplitBlob is not served");
}
