//! Writing and reading.

use std::sync::Arc;

use bytes::Bytes;

use super::*;
use crate::InvalidBlob;

const MIB: usize = 1 << 20;

#[tokio::test]
async fn small_and_large_blobs_come_back_whole() {
    let fixture = Fixture::on_disk(10_000).await;
    for bytes in [1, 4096, 256 << 10, (256 << 10) + 1, MIB, MIB + 1, 3 * MIB + 17] {
        let content = content(1, bytes);
        let digest = fixture.put(&content).await;
        assert!(fixture.has(&digest).await);
        assert_eq!(fixture.get(&digest).await.unwrap(), content, "{bytes} bytes");
        assert_eq!(fixture.storage.read_blob(&digest, u64::MAX).await.unwrap(), content);
    }
    assert_eq!(fixture.temporary_files(), 0);
}

#[tokio::test]
async fn chunks_of_any_size_make_a_blob() {
    let fixture = Fixture::on_disk(10_000).await;
    for (bytes, chunk) in [(100_000, 16_384), (2 * MIB + 5, 16_384), (2 * MIB, 2 * MIB), (5000, 1)] {
        let content = content(2, bytes);
        let digest = digest(&content);
        let mut writer = fixture.storage.write(&digest).await.unwrap();
        for chunk in content.chunks(chunk) {
            writer.write(Bytes::copy_from_slice(chunk)).await.unwrap();
        }
        assert!(!fixture.has(&digest).await, "visible before it is complete");
        writer.commit().await.unwrap();
        assert_eq!(fixture.get(&digest).await.unwrap(), content);
    }
}

#[tokio::test]
async fn parts_are_read_by_offset_and_limit() {
    let fixture = Fixture::on_disk(10_000).await;
    for bytes in [1000, MIB + 1000] {
        let content = content(3, bytes);
        let digest = fixture.put(&content).await;
        let end = bytes as u64;
        for (offset, limit) in
            [(0, Some(10)), (7, None), (7, Some(500)), (999, Some(5000)), (end, None), (0, Some(0))]
        {
            let part = collect(&fixture.storage, &digest, offset, limit).await.unwrap();
            let until = limit.map_or(bytes, |limit| bytes.min(offset as usize + limit as usize));
            assert_eq!(part, content[offset as usize..until], "{offset} {limit:?} of {bytes}");
        }
        let behind = collect(&fixture.storage, &digest, end + 1, None).await.unwrap_err();
        assert!(matches!(behind, StorageError::OutOfRange { offset, .. } if offset == end + 1));
    }
}

#[tokio::test]
async fn parts_of_what_is_in_memory_are_the_same() {
    let fixture = Fixture::new().await;
    let digest = fixture.put(b"hello world").await;
    assert_eq!(fixture.storage.stats().memory_blobs, 1);
    assert_eq!(collect(&fixture.storage, &digest, 6, Some(3)).await.unwrap(), b"wor");
    assert_eq!(collect(&fixture.storage, &digest, 11, None).await.unwrap(), b"");
    assert!(collect(&fixture.storage, &digest, 12, None).await.is_err());
}

#[tokio::test]
async fn memory_is_filled_by_reads_too() {
    let fixture = Fixture::new().await;
    let small = fixture.put(b"small").await;
    let large = fixture.put(&content(4, MIB)).await;
    let fixture = fixture.reopen(|config| config.memory_max_bytes = 1 << 20).await;
    assert_eq!(fixture.storage.stats().memory_blobs, 0);
    assert_eq!(fixture.get(&small).await.unwrap(), b"small");
    fixture.get(&large).await.unwrap();
    assert_eq!(fixture.storage.stats().memory_blobs, 1);
    assert_eq!(fixture.storage.read_blob(&small, 5).await.unwrap(), "small");
}

#[tokio::test]
async fn the_empty_blob_always_exists() {
    let fixture = Fixture::new().await;
    let empty = digest(b"");
    assert!(fixture.has(&empty).await);
    assert_eq!(fixture.get(&empty).await.unwrap(), b"");
    assert_eq!(fixture.storage.read_blob(&empty, 0).await.unwrap(), "");
    fixture.put(b"").await;
    fixture.storage.write(&empty).await.unwrap().commit().await.unwrap();
    assert_eq!(fixture.storage.stats().blobs, 0);
    let impostor = Digest::new(DigestFunction::Sha256, &"1".repeat(64), 0).unwrap();
    assert!(!fixture.has(&impostor).await);
    assert!(matches!(fixture.get(&impostor).await, Err(StorageError::NotFound { .. })));
}

#[tokio::test]
async fn uploads_that_are_not_what_they_claim_leave_nothing() {
    let fixture = Fixture::new().await;
    for bytes in [1000, 2 * MIB] {
        let right = content(5, bytes);
        let digest = digest(&right);
        let mut wrong = right.clone();
        wrong[bytes / 2] ^= 1;
        let upload = async |data: Vec<u8>| fixture.storage.write_blob(&digest, data.into()).await;

        let error = upload(wrong).await.unwrap_err();
        assert!(matches!(error, StorageError::Invalid(InvalidBlob::WrongHash { .. })), "{error}");
        let error = upload(right[1..].to_vec()).await.unwrap_err();
        assert!(matches!(error, StorageError::Invalid(InvalidBlob::TooShort { .. })), "{error}");
        let error = upload([&right[..], b"!"].concat()).await.unwrap_err();
        assert!(matches!(error, StorageError::Invalid(InvalidBlob::TooLong { .. })), "{error}");
        assert!(!fixture.has(&digest).await);
    }
    assert_eq!(fixture.storage.stats().blobs, 0);
    assert_eq!(fixture.temporary_files(), 0);
}

#[tokio::test]
async fn too_many_bytes_are_refused_as_they_come() {
    let fixture = Fixture::new().await;
    let mut writer = fixture.storage.write(&digest(b"abc")).await.unwrap();
    writer.write("ab".into()).await.unwrap();
    let error = writer.write("cd".into()).await.unwrap_err();
    assert!(error.to_string().starts_with("wrong size: blob ba7816bf"), "{error}");
}

#[tokio::test]
async fn a_dropped_writer_leaves_nothing() {
    let fixture = Fixture::new().await;
    let content = content(6, 4 * MIB);
    for bytes in [0, 1000, 600 << 10, 2 * MIB, 4 * MIB] {
        let mut writer = fixture.storage.write(&digest(&content)).await.unwrap();
        for chunk in content[..bytes].chunks(16 << 10) {
            writer.write(Bytes::copy_from_slice(chunk)).await.unwrap();
        }
    }
    // The files are removed by the blocking pool.
    for _ in 0..500 {
        if fixture.temporary_files() == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(fixture.temporary_files(), 0);
    assert_eq!(fixture.storage.stats().bytes, 0);
    assert_eq!(fixture.get(&fixture.put(&content).await).await.unwrap(), content);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_of_one_blob_at_once_all_succeed() {
    let fixture = Arc::new(Fixture::on_disk(10_000).await);
    for bytes in [100, 2 * MIB] {
        let content = Bytes::from(content(7, bytes));
        let tasks: Vec<_> = (0..8)
            .map(|_| {
                let (fixture, content) = (fixture.clone(), content.clone());
                tokio::spawn(async move {
                    let digest = digest(&content);
                    let mut writer = fixture.storage.write(&digest).await?;
                    for start in (0..content.len()).step_by(64 << 10) {
                        let end = content.len().min(start + (64 << 10));
                        writer.write(content.slice(start..end)).await?;
                        tokio::task::yield_now().await;
                    }
                    writer.commit().await
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap().unwrap();
        }
        assert_eq!(fixture.get(&digest(&content)).await.unwrap(), content);
    }
    assert_eq!(fixture.storage.stats().blobs, 2);
    assert_eq!(fixture.temporary_files(), 0);
}

#[tokio::test]
async fn missing_blobs_are_named_once_in_the_order_asked() {
    let fixture = Fixture::new().await;
    let here = fixture.put(b"here").await;
    let (a, b) = (digest(b"a"), digest(b"b"));
    let asked = [b, here, a, b, digest(b"")];
    assert_eq!(fixture.storage.find_missing(&asked).await.unwrap(), [b, a]);
    assert!(matches!(fixture.get(&a).await, Err(StorageError::NotFound { digest }) if digest == a));
}

#[tokio::test]
async fn a_blob_too_large_for_its_reader_is_refused_unread() {
    let fixture = Fixture::new().await;
    let digest = fixture.put(b"four").await;
    assert_eq!(fixture.storage.read_blob(&digest, 4).await.unwrap(), "four");
    let error = fixture.storage.read_blob(&digest, 3).await.unwrap_err();
    assert!(matches!(error, StorageError::TooLarge { max_bytes: 3, .. }));
}
