//! Damaged files, foreign folders, leftovers.

use std::fs;

use super::*;
use crate::OpenError;

#[tokio::test]
async fn a_truncated_blob_is_missing_and_can_be_uploaded_again() {
    let fixture = Fixture::on_disk(100).await;
    let digest = fixture.put(b"some content").await;
    fs::write(fixture.path(&digest), b"some").unwrap();
    assert!(matches!(fixture.get(&digest).await, Err(StorageError::NotFound { .. })));
    assert!(!fixture.has(&digest).await);
    assert!(!fixture.path(&digest).exists());
    fixture.put(b"some content").await;
    assert_eq!(fixture.get(&digest).await.unwrap(), b"some content");
    assert_eq!(fixture.storage.stats().damaged_blobs, 1);
}

#[tokio::test]
async fn a_changed_blob_is_missing_in_the_same_process() {
    let fixture = Fixture::on_disk(10_000).await;
    for bytes in [100, 2 << 20] {
        let mut content = content(1, bytes);
        let digest = fixture.put(&content).await;
        fixture.get(&digest).await.unwrap();
        content[bytes / 2] ^= 1;
        // The clock behind modification times ticks every few milliseconds.
        std::thread::sleep(Duration::from_millis(20));
        fs::write(fixture.path(&digest), &content).unwrap();
        // Not even a part that is right is served.
        assert!(collect(&fixture.storage, &digest, 0, Some(1)).await.is_err());
        assert!(!fixture.has(&digest).await && !fixture.path(&digest).exists());
    }
}

#[tokio::test]
async fn damage_done_while_no_process_looked_is_found_at_start_or_first_read() {
    let fixture = Fixture::on_disk(100).await;
    let [short, changed, whole] =
        [fixture.put(b"short").await, fixture.put(b"changed").await, fixture.put(b"whole").await];
    fs::write(fixture.path(&short), b"").unwrap();
    fs::write(fixture.path(&changed), b"CHANGED").unwrap();
    let fixture = fixture.reopen(|_| {}).await;
    assert!(!fixture.has(&short).await);
    assert!(matches!(fixture.storage.read_blob(&changed, 100).await, Err(StorageError::NotFound { .. })));
    assert!(!fixture.has(&changed).await);
    assert_eq!(fixture.get(&whole).await.unwrap(), b"whole");
}

#[tokio::test]
async fn a_blob_removed_by_hand_is_missing() {
    let fixture = Fixture::on_disk(100).await;
    let digest = fixture.put(b"gone").await;
    fs::remove_file(fixture.path(&digest)).unwrap();
    assert!(matches!(fixture.get(&digest).await, Err(StorageError::NotFound { .. })));
    assert!(!fixture.has(&digest).await);
    assert_eq!(fixture.storage.stats().bytes, 0);
}

#[tokio::test]
async fn a_look_at_the_disk_finds_what_is_gone() {
    let fixture = Fixture::on_disk(100).await;
    let [here, gone] = [fixture.put(b"here").await, fixture.put(b"gone").await];
    age(&fixture.path(&here), 5);
    fs::remove_file(fixture.path(&gone)).unwrap();
    assert_eq!(fixture.storage.files.recheck(&[here, gone]), [gone]);
    let accessed = fs::metadata(fixture.path(&here)).unwrap().accessed().unwrap();
    assert!(accessed.elapsed().unwrap() < Duration::from_secs(60), "its use was recorded");
    assert_eq!(fixture.get(&here).await.unwrap(), b"here");
}

#[tokio::test]
async fn a_file_that_shrinks_under_a_reader_ends_the_stream_with_an_error() {
    let fixture = Fixture::on_disk(10_000).await;
    let digest = fixture.put(&content(1, 2 << 20)).await;
    let stream = fixture.storage.read(&digest, 0, None).await.unwrap();
    fs::OpenOptions::new().write(true).open(fixture.path(&digest)).unwrap().set_len(1 << 20).unwrap();
    let read: Result<Vec<Bytes>, _> = stream.try_collect().await;
    assert!(matches!(read, Err(StorageError::Corrupt { .. })));
    assert!(!fixture.has(&digest).await);
}

#[tokio::test]
async fn leftovers_of_a_dead_process_are_removed_at_start() {
    let fixture = Fixture::new().await;
    let digest = fixture.put(b"kept").await;
    fs::write(fixture.folder.path().join("tmp/.tmpAbCdEf"), b"half").unwrap();
    let fixture = fixture.reopen(|_| {}).await;
    assert_eq!(fixture.temporary_files(), 0);
    assert_eq!(fixture.get(&digest).await.unwrap(), b"kept");
}

#[tokio::test]
async fn strange_files_are_left_alone() {
    let fixture = Fixture::new().await;
    let shard = fixture.folder.path().join("cas/sha256/ab");
    fs::create_dir_all(&shard).unwrap();
    let other_shard = format!("{}-1", "c".repeat(64));
    for name in ["README", &other_shard, &format!("{}-007", "ab".repeat(32))] {
        fs::write(shard.join(name), b"1234567").unwrap();
    }
    fs::create_dir(shard.join("folder")).unwrap();
    let fixture = fixture.reopen(|_| {}).await;
    assert_eq!(fixture.storage.stats().blobs, 0);
    assert_eq!(files_in(&shard), 4);
}

#[tokio::test]
async fn one_folder_is_for_one_server() {
    let fixture = Fixture::new().await;
    let second = EmbeddedStorage::open(EmbeddedConfig::new(fixture.folder.path())).await;
    let error = second.err().unwrap();
    assert!(matches!(error, OpenError::InUse { .. }));
    let owner = format!("in use by process {}: stop it", std::process::id());
    assert!(error.to_string().contains(&owner), "{error}");
    fixture.reopen(|_| {}).await;
}

#[tokio::test]
async fn a_folder_with_other_files_is_refused_untouched() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("tmp")).unwrap();
    fs::write(folder.path().join("tmp/precious"), b"work").unwrap();
    let error = EmbeddedStorage::open(EmbeddedConfig::new(folder.path())).await.err().unwrap();
    assert!(error.to_string().contains("holds other files (tmp)"), "{error}");
    assert!(folder.path().join("tmp/precious").exists());
    assert_eq!(files_in(folder.path()), 1);
}

#[tokio::test]
async fn another_layout_is_refused() {
    let fixture = Fixture::new().await;
    let Fixture { folder, storage } = fixture;
    drop(storage);
    fs::write(folder.path().join("pointsman-storage"), "pointsman storage, layout 99\n").unwrap();
    let error = EmbeddedStorage::open(EmbeddedConfig::new(folder.path())).await.err().unwrap();
    assert!(error.to_string().contains("has layout \"pointsman storage, layout 99\""), "{error}");
}

#[tokio::test]
async fn bounds_of_zero_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = EmbeddedConfig::new(folder.path());
    config.max_bytes = 0;
    let error = EmbeddedStorage::open(config).await.err().unwrap();
    assert_eq!(error.to_string(), "storage max_bytes is 0, it must be at least 1");
}
