//! The bound and the order of eviction.

use futures_util::StreamExt;

use super::*;

#[tokio::test]
async fn the_least_recently_used_goes_first() {
    let fixture = Fixture::on_disk(3).await;
    let [a, b, c] = [fixture.put(b"a").await, fixture.put(b"b").await, fixture.put(b"c").await];
    assert!(fixture.has(&a).await);
    fixture.get(&b).await.unwrap();
    let d = fixture.put(b"d").await;
    let missing = fixture.storage.find_missing(&[a, b, c, d]).await.unwrap();
    assert_eq!(missing, [c]);
    assert!(!fixture.path(&c).exists());
    assert_eq!(fixture.storage.stats().evicted_blobs, 1);
    assert_eq!(fixture.storage.stats().bytes, 3 * 4096);
}

#[tokio::test]
async fn the_order_survives_a_restart() {
    let fixture = Fixture::on_disk(100).await;
    let [a, b, c] = [fixture.put(b"a").await, fixture.put(b"b").await, fixture.put(b"c").await];
    age(&fixture.path(&a), 1);
    age(&fixture.path(&b), 3);
    age(&fixture.path(&c), 2);
    let fixture = fixture.reopen(|config| config.max_bytes = 3 * 4096).await;
    let d = fixture.put(b"d").await;
    assert_eq!(fixture.storage.find_missing(&[a, b, c, d]).await.unwrap(), [b]);
}

#[tokio::test]
async fn a_lowered_bound_holds_from_the_start() {
    let fixture = Fixture::on_disk(100).await;
    let mut blobs = Vec::new();
    for seed in 0..10 {
        blobs.push(fixture.put(&[seed]).await);
        age(&fixture.path(&blobs[usize::from(seed)]), 20 - u64::from(seed));
    }
    let fixture = fixture.reopen(|config| config.max_bytes = 4 * 4096).await;
    assert_eq!(fixture.storage.find_missing(&blobs).await.unwrap(), blobs[..6]);
    assert!(!fixture.path(&blobs[0]).exists());
}

#[tokio::test]
async fn a_stream_survives_the_eviction_of_its_blob() {
    let fixture = Fixture::on_disk(600).await;
    let content = content(1, 2 << 20);
    let digest = fixture.put(&content).await;
    let mut stream = fixture.storage.read(&digest, 0, None).await.unwrap();
    let mut read = stream.next().await.unwrap().unwrap().to_vec();
    fixture.put(&super::content(2, 2 << 20)).await;
    assert!(!fixture.has(&digest).await && !fixture.path(&digest).exists());
    while let Some(chunk) = stream.next().await {
        read.extend(chunk.unwrap());
    }
    assert_eq!(read, content);
}

#[tokio::test]
async fn a_blob_larger_than_the_store_is_refused_and_evicts_nothing() {
    let fixture = Fixture::on_disk(2).await;
    let kept = fixture.put(b"kept").await;
    for bytes in [3 * 4096, 2 << 20] {
        let content = content(1, bytes);
        let digest = digest(&content);
        let error = fixture.storage.write_blob(&digest, content.into()).await.unwrap_err();
        assert!(matches!(error, StorageError::Full { .. }), "{error}");
        assert!(matches!(fixture.storage.write(&digest).await, Err(StorageError::Full { .. })));
    }
    assert!(fixture.has(&kept).await);
}

#[tokio::test]
async fn uploads_in_progress_count_and_give_their_room_back() {
    let fixture = Fixture::on_disk(600).await;
    let old = fixture.put(b"old").await;
    let content = Bytes::from(content(1, 2 << 20));
    let mut first = fixture.storage.write(&digest(&content)).await.unwrap();
    // The second write waits for the first to be on disk, so its room is taken from here on.
    first.write(content.slice(..3 << 19)).await.unwrap();
    first.write(content.slice(3 << 19..)).await.unwrap();
    let other = super::content(2, 2 << 20);
    let error = fixture.storage.write_blob(&digest(&other), other.clone().into()).await.unwrap_err();
    assert!(matches!(error, StorageError::Full { .. }), "{error}");
    assert!(fixture.has(&old).await, "what was refused evicted nothing");
    first.commit().await.unwrap();
    fixture.put(&other).await;
    assert!(!fixture.has(&digest(&content)).await);
    assert!(fixture.storage.stats().bytes <= 600 * 4096);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_readers_and_eviction_at_once_never_serve_anything_wrong() {
    // Twelve blobs in room for six, so that eviction and uploads of the same blobs meet all the time.
    let fixture = std::sync::Arc::new(Fixture::on_disk(6).await);
    let tasks: Vec<_> = (0..6u8)
        .map(|task| {
            let fixture = fixture.clone();
            tokio::spawn(async move {
                for round in 0..150u8 {
                    let content = content(round.wrapping_mul(task + 1) % 12, 3000);
                    let digest = fixture.put(&content).await;
                    match fixture.get(&digest).await {
                        Ok(read) => assert_eq!(read, content),
                        Err(StorageError::NotFound { .. }) => {}
                        Err(other) => panic!("{other}"),
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let stats = fixture.storage.stats();
    let shards = std::fs::read_dir(fixture.folder.path().join("cas/sha256")).unwrap();
    let on_disk: usize = shards.map(|shard| files_in(&shard.unwrap().path())).sum();
    assert_eq!(on_disk, stats.blobs, "index and disk agree");
    assert!(stats.blobs <= 6);
}
