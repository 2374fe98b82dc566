//! What is wrong with an upload is said, and nothing of it stays.

use futures_util::StreamExt;

use super::*;

const MIB: usize = 1 << 20;

async fn refused(fixture: &Fixture, messages: Vec<WriteRequest>, text: &str) {
    assert_status(fixture.write(messages).await, Code::InvalidArgument, text);
    assert_eq!(fixture.storage.stats().blobs, 0);
    fixture.assert_nothing_left_behind().await;
}

#[tokio::test]
async fn content_that_is_not_what_its_digest_says() {
    let fixture = Fixture::new().await;
    for bytes in [1000, 3 * MIB] {
        let right = content(1, bytes);
        let name = upload_name("blobs", &digest(&right));
        let mut changed = right.clone();
        changed[bytes - 1] ^= 1;
        refused(&fixture, messages(&name, &changed, 16 << 10), "wrong hash: content uploaded as").await;
        let text = format!("was uploaded with only {} bytes", bytes - 1);
        refused(&fixture, messages(&name, &right[1..], 16 << 10), &text).await;
        let long = [&right[..], b"x"].concat();
        refused(&fixture, messages(&name, &long, 16 << 10), "with more bytes than its digest says").await;
    }
}

#[tokio::test]
async fn compressed_content_that_is_not_what_its_digest_says() {
    let fixture = Fixture::new().await;
    for bytes in [1000, 3 * MIB] {
        let right = content(1, bytes);
        let packed = zstd::encode_all(&right[..], 1).unwrap();
        let name = upload_name("compressed-blobs/zstd", &digest(&right));
        let upload = |packed: &[u8]| messages(&name, packed, 16 << 10);
        refused(&fixture, upload(&packed[..packed.len() - 1]), "it ends inside a frame").await;
        refused(&fixture, upload(&right), "is not valid zstd").await;
        refused(&fixture, upload(&[&packed[..], b"trailing"].concat()), "is not valid zstd").await;
        refused(&fixture, upload(&zstd::encode_all(&right[1..], 1).unwrap()), "with only").await;
        let two = [&packed[..], &packed[..]].concat();
        refused(&fixture, upload(&two), "with more bytes than its digest says").await;
    }
}

#[tokio::test]
async fn a_small_upload_that_unpacks_to_a_huge_one() {
    let fixture = Fixture::new().await;
    let zeros = vec![0; 64 * MIB];
    let packed = zstd::encode_all(&zeros[..], 1).unwrap();
    let name = upload_name("compressed-blobs/zstd", &digest(b"tiny"));
    refused(&fixture, messages(&name, &packed, packed.len()), "with more bytes than its digest says").await;
    // A window larger than a server should have to set aside for one client.
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
    encoder.window_log(27).unwrap();
    std::io::Write::write_all(&mut encoder, &zeros).unwrap();
    let packed = encoder.finish().unwrap();
    let name = upload_name("compressed-blobs/zstd", &digest(&zeros));
    refused(&fixture, messages(&name, &packed, packed.len()), "is not valid zstd").await;
}

#[tokio::test]
async fn messages_that_do_not_fit_together() {
    let fixture = Fixture::new().await;
    let content = content(1, 40_000);
    let name = upload_name("blobs", &digest(&content));
    let good = messages(&name, &content, 16 << 10);

    refused(&fixture, vec![], "a write without any message").await;
    let text = "ended after 32768 bytes without finish_write: go on there";
    refused(&fixture, good[..2].to_vec(), text).await;
    let mut resumed = good.clone();
    resumed[0].write_offset = 100;
    let text = "write_offset is 100, but 32768 bytes of this upload are here: go on there, or begin at 0";
    assert_status(fixture.write(resumed).await, Code::Aborted, text);
    let mut negative = good.clone();
    negative[0].write_offset = -1;
    refused(&fixture, negative, "write_offset -1 is negative").await;
    let mut gap = good.clone();
    gap[1].write_offset += 1;
    refused(&fixture, gap, "write_offset is 16385, 16384 was expected").await;
    let mut renamed = good.clone();
    renamed[1].resource_name = upload_name("blobs", &digest(b"other"));
    refused(&fixture, renamed, "resource_name differs").await;
    let mut early = good.clone();
    early[1].finish_write = true;
    refused(&fixture, early, "was uploaded with only 32768 bytes").await;
}

#[tokio::test]
async fn names_that_are_wrong() {
    let fixture = Fixture::new().await;
    let hash = digest(b"abc").hash_hex();
    for (name, text) in [
        (String::new(), "it holds none of the segments uploads"),
        (format!("uploads/1/blobs/{hash}/3"), "upload id \"1\" is no UUID"),
        (format!("a//b/uploads/{ID}/blobs/{hash}/3"), "two slashes in a row"),
        (format!("uploads/{ID}/blobs/{hash}/x"), "size \"x\" is no decimal number"),
        (format!("uploads/{ID}/blobs/{}/3", &hash[1..]), "has 63 characters"),
        (format!("uploads/{ID}/blobs/{}/3", hash.to_uppercase()), "lower-case"),
        (format!("uploads/{ID}/blobs/sha256tree/{hash}/3"), "SHA256TREE is not served; served: SHA256"),
        (format!("uploads/{ID}/compressed-blobs/brotli/{hash}/3"), "compressor \"brotli\" is not served"),
    ] {
        refused(&fixture, messages(&name, b"abc", 3), text).await;
    }
}

#[tokio::test]
async fn a_client_that_goes_away_leaves_nothing() {
    let fixture = Fixture::new().await;
    for form in ["blobs", "compressed-blobs/zstd"] {
        let content = content(1, 4 * MIB);
        let data = if form == "blobs" { content.clone() } else { zstd::encode_all(&content[..], 1).unwrap() };
        let parts = messages(&upload_name(form, &digest(&content)), &data, 64 << 10);
        let half = parts[..parts.len() / 2].to_vec();
        let (sent, mut all_sent) = tokio::sync::mpsc::channel::<()>(1);
        let stalled = tokio_stream::iter(half).chain(futures_util::stream::poll_fn(move |_| {
            let _ = sent.try_send(());
            std::task::Poll::Pending
        }));
        let mut client = fixture.bytestream();
        let upload = tokio::spawn(async move { client.write(stalled).await });
        all_sent.recv().await.unwrap();
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        upload.abort();
        assert!(upload.await.unwrap_err().is_cancelled());
        fixture.assert_nothing_left_behind().await;
        assert_eq!(fixture.storage.stats().bytes, 0);
        assert!(!fixture.has(&digest(&content)).await);
    }
}

#[tokio::test]
async fn a_blob_that_can_not_fit_is_resource_exhausted() {
    let fixture = Fixture::with_bound(MIB as u64).await;
    let kept = fixture.put(b"kept").await;
    for (bytes, form) in [(2 * MIB, "blobs"), (2 * MIB, "compressed-blobs/zstd")] {
        let content = content(1, bytes);
        let name = upload_name(form, &digest(&content));
        let result = fixture.write(messages(&name, &content, 16 << 10)).await;
        assert_status(result, Code::ResourceExhausted, "storage is full: blob");
    }
    assert!(fixture.has(&kept).await);
}
