//! `ByteStream.Write` and `QueryWriteStatus`.

use pointsman_proto::bytestream::{QueryWriteStatusRequest, QueryWriteStatusResponse};

use super::*;

const MIB: usize = 1 << 20;

#[tokio::test]
async fn blobs_of_any_size_in_messages_of_any_size() {
    let fixture = Fixture::new().await;
    for (seed, bytes, piece) in [
        (0, 1, 16 << 10),
        (1, 100_000, 16 << 10),
        (2, 3 * MIB, 16 << 10),
        (3, 5 * MIB, 2 * MIB),
        (4, 20 * MIB, 20 * MIB),
    ] {
        let content = content(seed, bytes);
        let digest = digest(&content);
        let name = upload_name("blobs", &digest);
        assert_eq!(fixture.write(messages(&name, &content, piece)).await.unwrap(), bytes as i64);
        assert!(fixture.read(&format!("blobs/{digest}")).await.unwrap() == content, "{bytes} in {piece}");
    }
    fixture.assert_nothing_left_behind().await;
}

#[tokio::test]
async fn blobs_are_shared_between_instance_names() {
    let fixture = Fixture::new().await;
    let digest = digest(b"shared");
    let name = format!("a/b/uploads/{ID}/blobs/{digest}/path/of/the/file.txt");
    fixture.write(messages(&name, b"shared", 4)).await.unwrap();
    assert_eq!(fixture.read(&format!("c/blobs/{digest}")).await.unwrap(), b"shared");
}

#[tokio::test]
async fn only_the_first_message_needs_the_name() {
    let fixture = Fixture::new().await;
    let content = content(1, 50_000);
    let mut messages = messages(&upload_name("blobs", &digest(&content)), &content, 16 << 10);
    messages[1..].iter_mut().for_each(|message| message.resource_name.clear());
    // A message without data says that the client is still there.
    let mut alive = messages[1].clone();
    alive.data = Bytes::new();
    messages.insert(1, alive);
    fixture.write(messages).await.unwrap();
    assert!(fixture.has(&digest(&content)).await);
}

#[tokio::test]
async fn the_end_may_come_in_a_message_of_its_own() {
    let fixture = Fixture::new().await;
    let name = upload_name("blobs", &digest(b"abc"));
    let mut parts = messages(&name, b"abc", 3);
    parts[0].finish_write = false;
    parts.push(WriteRequest { write_offset: 3, finish_write: true, ..Default::default() });
    assert_eq!(fixture.write(parts).await.unwrap(), 3);
}

#[tokio::test]
async fn the_empty_blob_is_taken() {
    let fixture = Fixture::new().await;
    assert_eq!(fixture.write(messages(&upload_name("blobs", &digest(b"")), b"", 1)).await.unwrap(), 0);
    let packed = zstd::encode_all(&b""[..], 1).unwrap();
    let name = upload_name("compressed-blobs/zstd", &digest(b""));
    assert_eq!(fixture.write(messages(&name, &packed, 100)).await.unwrap(), -1);
}

#[tokio::test]
async fn a_blob_that_is_here_ends_the_upload_early() {
    let fixture = Fixture::new().await;
    for bytes in [100, 8 * MIB] {
        let content = content(1, bytes);
        let digest = fixture.put(&content).await;
        let parts = messages(&upload_name("blobs", &digest), &content, 16 << 10);
        assert_eq!(fixture.write(parts).await.unwrap(), bytes as i64);
        // The answer comes while the client waits to send the rest.
        let first = messages(&upload_name("blobs", &digest), &content, 50).swap_remove(0);
        let stalled = futures_util::StreamExt::chain(
            tokio_stream::iter([first]),
            futures_util::stream::poll_fn(move |_| match bytes > MIB {
                true => std::task::Poll::Pending,
                false => std::task::Poll::Ready(None),
            }),
        );
        let response = fixture.bytestream().write(stalled).await.unwrap();
        assert_eq!(response.into_inner().committed_size, bytes as i64);
        let packed = zstd::encode_all(&content[..], 1).unwrap();
        let parts = messages(&upload_name("compressed-blobs/zstd", &digest), &packed, 16 << 10);
        assert_eq!(fixture.write(parts).await.unwrap(), -1);
    }
}

#[tokio::test]
async fn compressed_uploads_are_stored_unpacked() {
    let fixture = Fixture::new().await;
    for (seed, bytes, piece) in
        [(0, 6, 100), (1, 100_000, 1000), (2, 3 * MIB, 16 << 10), (3, 3 * MIB, 2 * MIB)]
    {
        let content = content(seed, bytes);
        let packed = zstd::encode_all(&content[..], 3).unwrap();
        let digest = digest(&content);
        let parts = messages(&upload_name("compressed-blobs/zstd", &digest), &packed, piece);
        assert_eq!(fixture.write(parts).await.unwrap(), packed.len() as i64, "compressed bytes are counted");
        assert!(fixture.read(&format!("blobs/{digest}")).await.unwrap() == content);
    }
}

#[tokio::test]
async fn several_frames_make_one_blob_wherever_they_are_cut() {
    let fixture = Fixture::new().await;
    // Sizes around that of the buffer that is unpacked into.
    for (seed, sizes) in
        [(1, [10, 20]), (2, [128 << 10, 1]), (3, [(128 << 10) - 1, 128 << 10]), (4, [0, 300_000])]
    {
        let content = content(seed, sizes[0] + sizes[1]);
        let (one, two) = content.split_at(sizes[0]);
        let packed = [zstd::encode_all(one, 1).unwrap(), zstd::encode_all(two, 19).unwrap()].concat();
        let name = upload_name("compressed-blobs/zstd", &digest(&content));
        fixture.write(messages(&name, &packed, packed.len())).await.unwrap();
        assert!(fixture.read(&format!("blobs/{}", digest(&content))).await.unwrap() == content, "{sizes:?}");
    }
    let content = content(9, 1000);
    let packed = zstd::encode_all(&content[..], 1).unwrap();
    let name = upload_name("compressed-blobs/zstd", &digest(&content));
    fixture.write(messages(&name, &packed, 1)).await.unwrap();
}

#[tokio::test]
async fn a_blob_that_compresses_extremely_is_unpacked_in_pieces() {
    let fixture = Fixture::new().await;
    let content = vec![0; 30 * MIB];
    let packed = zstd::encode_all(&content[..], 3).unwrap();
    assert!(packed.len() < 10_000);
    let digest = digest(&content);
    let name = upload_name("compressed-blobs/zstd", &digest);
    fixture.write(messages(&name, &packed, packed.len())).await.unwrap();
    assert_eq!(fixture.read_part(&format!("blobs/{digest}"), 30 * MIB as i64 - 5, 0).await.unwrap(), [0; 5]);
}

#[tokio::test]
async fn uploads_of_one_blob_at_once_all_succeed() {
    let fixture = Fixture::new().await;
    let content = content(1, 2 * MIB);
    let packed = zstd::encode_all(&content[..], 1).unwrap();
    let plain = messages(&upload_name("blobs", &digest(&content)), &content, 16 << 10);
    let compressed = messages(&upload_name("compressed-blobs/zstd", &digest(&content)), &packed, 16 << 10);
    let uploads = (0..8).map(|i| fixture.write(if i % 2 == 0 { plain.clone() } else { compressed.clone() }));
    for committed in futures_util::future::join_all(uploads).await {
        let committed = committed.unwrap();
        assert!([content.len() as i64, packed.len() as i64, -1].contains(&committed), "{committed}");
    }
    assert!(fixture.read(&format!("blobs/{}", digest(&content))).await.unwrap() == content);
    fixture.assert_nothing_left_behind().await;
}

#[tokio::test]
async fn the_state_of_an_upload_is_that_of_its_blob() {
    let fixture = Fixture::new().await;
    let query = async |name: String| {
        let request = QueryWriteStatusRequest { resource_name: name };
        fixture.bytestream().query_write_status(request).await.map(tonic::Response::into_inner)
    };
    let here = fixture.put(b"here").await;
    for form in ["blobs", "compressed-blobs/zstd"] {
        let complete = QueryWriteStatusResponse { committed_size: 4, complete: true };
        assert_eq!(query(upload_name(form, &here)).await.unwrap(), complete);
        let nothing = QueryWriteStatusResponse { committed_size: 0, complete: false };
        assert_eq!(query(upload_name(form, &digest(b"gone"))).await.unwrap(), nothing);
    }
    assert_status(query(format!("blobs/{here}")).await, Code::InvalidArgument, "segments uploads");
}
