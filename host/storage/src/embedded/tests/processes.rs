//! Faults that need a process of their own: this test binary runs itself again.

use std::process::{Child, Command, Stdio};

use super::*;

/// Names the folder to a child process; without it the children's tests do nothing.
const FOLDER: &str = "POINTSMAN_STORAGE_TEST_FOLDER";

fn myself(test: &str, folder: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let name = format!("embedded::tests::processes::{test}");
    command.args(["--exact", &name, "--ignored", "--nocapture"]).env(FOLDER, folder);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn wait_for_blobs(folder: &Path, child: &mut Child, wanted: usize) {
    for _ in 0..3000 {
        assert!(child.try_wait().unwrap().is_none(), "the writing process ended by itself");
        let shards = std::fs::read_dir(folder.join("cas/sha256"));
        let blobs: usize =
            shards.map_or(0, |shards| shards.map(|shard| files_in(&shard.unwrap().path())).sum());
        if blobs >= wanted {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("no {wanted} blobs after 30 seconds");
}

#[tokio::test]
async fn a_killed_process_leaves_whole_blobs_only() {
    let folder = tempfile::tempdir().unwrap();
    let mut blobs = 0;
    for round in 1..=5 {
        let mut child = myself("child_that_writes_for_ever", folder.path()).spawn().unwrap();
        wait_for_blobs(folder.path(), &mut child, blobs + 5 * round);
        child.kill().unwrap();
        child.wait().unwrap();
        // The lock went with the process.
        let mut config = EmbeddedConfig::new(folder.path());
        config.memory_max_bytes = 0;
        let storage = EmbeddedStorage::open(config).await.unwrap();
        assert_eq!(files_in(&folder.path().join("tmp")), 0);
        for shard in std::fs::read_dir(folder.path().join("cas/sha256")).unwrap() {
            for file in std::fs::read_dir(shard.unwrap().path()).unwrap() {
                let name = file.unwrap().file_name().into_string().unwrap();
                let digest: Digest = name.replace('-', "/").parse().unwrap();
                collect(&storage, &digest, 0, None).await.unwrap();
            }
        }
        blobs = storage.stats().blobs;
        assert_eq!(storage.stats().damaged_blobs, 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "run by a_killed_process_leaves_whole_blobs_only"]
async fn child_that_writes_for_ever() {
    let Ok(folder) = std::env::var(FOLDER) else { return };
    let storage = std::sync::Arc::new(EmbeddedStorage::open(EmbeddedConfig::new(folder)).await.unwrap());
    let seed = std::process::id();
    let writers = (0..4u32).map(|writer| {
        let storage = storage.clone();
        tokio::spawn(async move {
            for round in 0u32.. {
                let mut content = content(writer as u8, if round % 2 == 0 { 50_000 } else { 1_500_000 });
                content[..4].copy_from_slice(&seed.to_le_bytes());
                content[4..8].copy_from_slice(&round.to_le_bytes());
                storage.write_blob(&digest(&content), content.into()).await.unwrap();
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
}

/// Needs a user namespace in which a file system may be mounted; where there is none it checks nothing.
#[test]
fn a_full_disk_is_said_to_be_full() {
    let folder = tempfile::tempdir().unwrap();
    let child = myself("child_on_a_small_disk", folder.path());
    let script = "mount -t tmpfs -o size=3m none \"$0\" || exit 77; exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", script]);
    command.arg(folder.path()).arg(child.get_program()).args(child.get_args()).env(FOLDER, folder.path());
    match command.output() {
        Ok(output) if output.status.success() => {}
        Ok(output) if output.status.code() == Some(101) => {
            panic!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        }
        other => eprintln!("skipped, no small disk can be mounted here: {other:?}"),
    }
}

#[tokio::test]
#[ignore = "run by a_full_disk_is_said_to_be_full"]
async fn child_on_a_small_disk() {
    let Ok(folder) = std::env::var(FOLDER) else { return };
    let storage = EmbeddedStorage::open(EmbeddedConfig::new(&folder)).await.unwrap();
    let kept = content(0, 500_000);
    storage.write_blob(&digest(&kept), kept.clone().into()).await.unwrap();
    for bytes in [1_000_000, 4_000_000] {
        let mut full = false;
        for seed in 1..6 {
            let content = content(seed, bytes);
            let digest = digest(&content);
            match storage.write_blob(&digest, content.clone().into()).await {
                Ok(()) => assert_eq!(collect(&storage, &digest, 0, None).await.unwrap(), content),
                Err(StorageError::Full { reason }) => {
                    assert!(reason.starts_with("no space left on the disk"), "{reason}");
                    assert_eq!(storage.find_missing(&[digest]).await.unwrap(), [digest]);
                    full = true;
                }
                Err(other) => panic!("{other}"),
            }
        }
        assert!(full);
    }
    assert_eq!(files_in(&Path::new(&folder).join("tmp")), 0);
    assert_eq!(collect(&storage, &digest(&kept), 0, None).await.unwrap(), kept);
}
