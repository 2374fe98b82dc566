//! `ByteStream.Read`.

use super::*;

const MIB: usize = 1 << 20;

#[tokio::test]
async fn parts_by_offset_and_limit() {
    let fixture = Fixture::new().await;
    for bytes in [1000, 2 * MIB] {
        let content = content(1, bytes);
        let name = format!("blobs/{}", fixture.put(&content).await);
        let end = bytes as i64;
        for (offset, limit) in [(0, 0), (10, 0), (0, 10), (990, 300), (500, 1 << 20), (end, 0), (end - 1, 9)]
        {
            let until = if limit == 0 { bytes } else { bytes.min((offset + limit) as usize) };
            let part = fixture.read_part(&name, offset, limit).await.unwrap();
            assert!(part == content[offset as usize..until], "{offset} {limit} of {bytes}");
        }
        let behind = fixture.read_part(&name, end + 1, 0).await;
        assert_status(behind, Code::OutOfRange, "is behind the end of blob");
    }
}

#[tokio::test]
async fn compressed_reads_unpack_to_the_blob() {
    let fixture = Fixture::new().await;
    for (seed, bytes) in [(0, 0), (1, 6), (2, 40_000), (3, 256 << 10), (4, (256 << 10) + 1), (5, 3 * MIB)] {
        let content = content(seed, bytes);
        let name = format!("compressed-blobs/zstd/{}", fixture.put(&content).await);
        let packed = fixture.read(&name).await.unwrap();
        assert!(zstd::decode_all(&packed[..]).unwrap() == content, "{bytes}");
        if bytes > 1000 {
            assert!(packed.len() < bytes * 7 / 10, "{} of {bytes}", packed.len());
        }
        // The offset counts bytes of the blob itself.
        let offset = bytes / 3;
        let packed = fixture.read_part(&name, offset as i64, 0).await.unwrap();
        assert!(zstd::decode_all(&packed[..]).unwrap() == content[offset..], "{bytes}");
        let packed = fixture.read_part(&name, bytes as i64, 0).await.unwrap();
        assert_eq!(zstd::decode_all(&packed[..]).unwrap(), b"");
        let limited = fixture.read_part(&name, 0, 5).await;
        assert_status(limited, Code::InvalidArgument, "read_limit must be 0 for compressed-blobs");
    }
}

#[tokio::test]
async fn what_is_not_here_or_not_asked_rightly() {
    let fixture = Fixture::new().await;
    let gone = digest(b"gone");
    let here = format!("blobs/{}", fixture.put(b"here").await);
    for form in ["blobs", "compressed-blobs/zstd"] {
        let result = fixture.read(&format!("{form}/{gone}")).await;
        assert_status(result, Code::NotFound, &format!("blob {gone} not found"));
    }
    assert_status(fixture.read_part(&here, -1, 0).await, Code::OutOfRange, "read_offset -1 is negative");
    assert_status(fixture.read_part(&here, 0, -2).await, Code::InvalidArgument, "read_limit -2 is negative");
    assert_status(fixture.read("nonsense").await, Code::InvalidArgument, "none of the segments blobs");
    let git = "blobs/gitsha1/da39a3ee5e6b4b0d3255bfef95601890afd80709/0";
    assert_status(fixture.read(git).await, Code::InvalidArgument, "digest function GITSHA1 is not served");
    let named = "blobs/sha256/da39a3ee5e6b4b0d3255bfef95601890afd80709/0";
    assert_status(fixture.read(named).await, Code::InvalidArgument, "a SHA256 hash has 64");
}

#[tokio::test]
async fn a_damaged_blob_is_not_found() {
    let fixture = Fixture::new().await;
    let content = content(1, 2 * MIB);
    let digest = fixture.put(&content).await;
    let hash = digest.hash_hex();
    let file = format!("cas/sha256/{}/{hash}-{}", &hash[..2], content.len());
    std::fs::write(fixture.folder.path().join(file), &content[..MIB]).unwrap();
    for form in ["blobs", "compressed-blobs/zstd"] {
        assert_status(fixture.read(&format!("{form}/{digest}")).await, Code::NotFound, "not found");
    }
    let name = upload_name("blobs", &digest);
    fixture.write(messages(&name, &content, 16 << 10)).await.unwrap();
    assert!(fixture.read(&format!("blobs/{digest}")).await.unwrap() == content);
}

#[tokio::test]
async fn a_client_that_stops_reading_harms_nobody() {
    let fixture = Fixture::new().await;
    let content = content(1, 8 * MIB);
    let name = format!("blobs/{}", fixture.put(&content).await);
    let request = ReadRequest { resource_name: name.clone(), ..Default::default() };
    // One that stalls for good, on a connection of its own: its unread bytes take up the connection's window.
    let stalled = ByteStreamClient::new(fixture.connect().await).read(request.clone()).await.unwrap();
    for _ in 0..20 {
        let mut stream = fixture.bytestream().read(request.clone()).await.unwrap().into_inner();
        stream.message().await.unwrap().unwrap();
    }
    assert!(fixture.read(&name).await.unwrap() == content);
    drop(stalled);
}
