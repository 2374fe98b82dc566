//! Uploads that broke off go on where they were.

use futures_util::StreamExt;
use pointsman_proto::bytestream::{QueryWriteStatusRequest, QueryWriteStatusResponse};

use super::*;

const MIB: usize = 1 << 20;

async fn query(fixture: &Fixture, name: &str) -> QueryWriteStatusResponse {
    let request = QueryWriteStatusRequest { resource_name: name.to_owned() };
    fixture.bytestream().query_write_status(request).await.unwrap().into_inner()
}

/// Sends the first messages of an upload, then loses the connection; returns what the server has of it.
async fn break_off(fixture: &Fixture, messages: &[WriteRequest], count: usize) -> i64 {
    let name = messages[0].resource_name.clone();
    let stalled = tokio_stream::iter(messages[..count].to_vec())
        .chain(futures_util::stream::poll_fn(|_| std::task::Poll::Pending));
    let mut client = ByteStreamClient::new(fixture.connect().await);
    let upload = tokio::spawn(async move { client.write(stalled).await });
    tokio::time::sleep(Duration::from_millis(200)).await;
    upload.abort();
    for _ in 0..50 {
        let status = query(fixture, &name).await;
        assert!(!status.complete);
        if status.committed_size > 0 {
            return status.committed_size;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("nothing is known of the upload");
}

/// The rest of an upload, from `offset` on.
fn rest(name: &str, data: &[u8], offset: i64) -> Vec<WriteRequest> {
    let mut rest = messages(name, &data[offset as usize..], 64 << 10);
    rest.iter_mut().for_each(|message| message.write_offset += offset);
    rest
}

#[tokio::test]
async fn a_broken_upload_goes_on_where_it_was() {
    let fixture = Fixture::new().await;
    for (seed, form, bytes) in [
        (1, "blobs", 5 * MIB),
        (2, "blobs", 200_000),
        (3, "compressed-blobs/zstd", 5 * MIB),
        (4, "compressed-blobs/zstd", 300_000),
    ] {
        let content = content(seed, bytes);
        let digest = digest(&content);
        let data = if form == "blobs" { content.clone() } else { zstd::encode_all(&content[..], 1).unwrap() };
        let name = upload_name(form, &digest);
        assert_eq!(query(&fixture, &name).await.committed_size, 0, "nothing is here yet");
        let all = messages(&name, &data, 64 << 10);
        let received = break_off(&fixture, &all, all.len() / 2).await;
        assert!(received <= (all.len() / 2 * (64 << 10)) as i64);

        // Not at an offset that is not here; what is here stays.
        let wrong = fixture.write(rest(&name, &data, received - 1)).await;
        let text = format!("write_offset is {}, but {received} bytes of this upload are here", received - 1);
        assert_status(wrong, Code::Aborted, &text);
        assert_eq!(fixture.write(rest(&name, &data, received)).await.unwrap(), data.len() as i64);
        assert!(fixture.read(&blob_name("blobs", &digest)).await.unwrap() == content);
        assert!(query(&fixture, &name).await.complete);
    }
    fixture.assert_nothing_left_behind().await;
}

#[tokio::test]
async fn a_broken_upload_may_begin_anew_or_break_twice() {
    let fixture = Fixture::new().await;
    let content = content(1, 3 * MIB);
    let name = upload_name("blobs", &digest(&content));
    let all = messages(&name, &content, 64 << 10);
    let first = break_off(&fixture, &all, 10).await;
    // Longer in the second try, from the beginning.
    let second = break_off(&fixture, &all, 20).await;
    assert!(second > first, "{first} {second}");
    let third = rest(&name, &content, second);
    let more = break_off(&fixture, &third, 3).await;
    assert!(more > second, "{second} {more}");
    assert_eq!(fixture.write(rest(&name, &content, more)).await.unwrap(), content.len() as i64);
}

#[tokio::test]
async fn what_was_sent_wrong_shows_at_the_end() {
    let fixture = Fixture::new().await;
    let content = content(1, 2 * MIB);
    let name = upload_name("blobs", &digest(&content));
    let mut all = messages(&name, &content, 64 << 10);
    all[0].data = Bytes::from(vec![0; 64 << 10]);
    let received = break_off(&fixture, &all, 10).await;
    let result = fixture.write(rest(&name, &content, received)).await;
    assert_status(result, Code::InvalidArgument, "wrong hash");
    // And is gone: the next try begins at 0.
    assert_eq!(query(&fixture, &name).await.committed_size, 0);
    fixture.write(messages(&name, &content, 64 << 10)).await.unwrap();
}

#[tokio::test]
async fn uploads_are_told_apart_by_their_ids() {
    let fixture = Fixture::new().await;
    let content = content(1, 2 * MIB);
    let name = upload_name("blobs", &digest(&content));
    let received = break_off(&fixture, &messages(&name, &content, 64 << 10), 10).await;
    let other = name.replace(ID, "7b5fe9d0-93ab-4f54-a3a5-6d5f1ad6a9b7");
    assert_eq!(query(&fixture, &other).await.committed_size, 0);
    let result = fixture.write(rest(&other, &content, received)).await;
    assert_status(result, Code::Aborted, "but 0 bytes of this upload are here: go on there");
    // Whoever is first makes the blob; the other is told so at any offset.
    fixture.write(messages(&other, &content, 64 << 10)).await.unwrap();
    assert_eq!(fixture.write(rest(&name, &content, received)).await.unwrap(), content.len() as i64);
    fixture.assert_nothing_left_behind().await;
}

#[tokio::test]
async fn only_so_many_broken_uploads_are_kept_and_not_for_long() {
    let fixture = Fixture::new().await;
    let upload = |seed: u8| {
        let content = content(seed, 100_000);
        messages(&upload_name("blobs", &digest(&content)), &content, 10_000)
    };
    for seed in 0..70 {
        // A stream that ends before its end breaks off as well, and at once.
        let result = fixture.write(upload(seed)[..5].to_vec()).await;
        assert_status(result, Code::InvalidArgument, "ended after 50000 bytes without finish_write");
    }
    assert_eq!(query(&fixture, &upload(0)[0].resource_name).await.committed_size, 0);
    assert_eq!(query(&fixture, &upload(69)[0].resource_name).await.committed_size, 50_000);
    tokio::time::sleep(PARTIAL_UPLOADS_KEPT + Duration::from_millis(300)).await;
    assert_eq!(query(&fixture, &upload(69)[0].resource_name).await.committed_size, 0);
    fixture.assert_nothing_left_behind().await;
}
