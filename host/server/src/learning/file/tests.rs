//! What is learned stays, whoever else is there and whatever happens to the file.

use std::time::Duration;

use pointsman_learning::{Ended, Run, encode};

use super::*;
use crate::learning::lines::checksum;

const RUN: Run = Run {
    ended: Ended::Succeeded,
    size_class: 1,
    wall: Duration::from_secs(3),
    cores: Some(2.0),
    peak_memory_mib: Some(70),
};

fn open(dir: &Path, keys_max: usize) -> (Mutex<Statistics>, Keeper, u64) {
    let keys_max = NonZeroUsize::new(keys_max).unwrap();
    let (statistics, keeper, broken) = Keeper::load(dir, keys_max, 5000).unwrap();
    (Mutex::new(statistics), keeper, broken)
}

fn note(statistics: &Mutex<Statistics>, key: &str, now: u32) {
    statistics.lock().unwrap().note(key, &RUN, now);
}

fn attempts(statistics: &Mutex<Statistics>, key: &str) -> Option<u32> {
    statistics.lock().unwrap().get(key).map(|record| record.attempts().0)
}

#[test]
fn what_is_written_is_there_again() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("a/b");
    let (statistics, mut keeper, _) = open(&folder, 10);
    assert!(keeper.flush(&statistics) && !folder.exists(), "nothing was learned, so nothing is written");
    for (key, times) in [("a", 3), ("b", 1), ("a", 2)] {
        (0..times).for_each(|_| note(&statistics, key, 7));
        assert!(keeper.flush(&statistics));
    }
    // As after a kill: nobody closes anything.
    drop(keeper);
    let (statistics, _, broken) = open(&folder, 10);
    assert_eq!((attempts(&statistics, "a"), attempts(&statistics, "b"), broken), (Some(5), Some(1), 0));
}

#[test]
fn a_broken_line_harms_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let (statistics, mut keeper, _) = open(dir.path(), 10);
    ["a", "b", "c"].iter().for_each(|key| note(&statistics, key, 7));
    assert!(keeper.flush(&statistics));
    drop(keeper);
    let file = dir.path().join(NAME);
    let text = fs::read_to_string(&file).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let find = |key: &str| lines.iter().find(|l| l.contains(&format!("\"key\":\"{key}\""))).unwrap();
    let damaged = find("b").replace("\"runs\":1", "\"runs\":9");
    let (half, newer) =
        (&find("c")[..60], encode("d", &Record::default()).replace("\"format\":1", "\"format\":99"));
    let newer = format!("{} {newer}", checksum(newer.as_bytes()));
    fs::write(&file, format!("{damaged}\n\u{fffd}\n{newer}\n{}\n{half}", find("a"))).unwrap();
    let (statistics, mut keeper, broken) = open(dir.path(), 10);
    let keys = statistics.lock().unwrap().len();
    assert_eq!((keys, attempts(&statistics, "a"), broken), (1, Some(1), 4));
    // What comes next does not stand behind half a line.
    note(&statistics, "e", 9);
    assert!(keeper.flush(&statistics));
    drop(keeper);
    let (statistics, _, broken) = open(dir.path(), 10);
    assert_eq!((attempts(&statistics, "a"), attempts(&statistics, "e"), broken), (Some(1), Some(1), 0));
}

#[test]
fn the_file_stays_bounded_and_keeps_what_was_used_last() {
    let dir = tempfile::tempdir().unwrap();
    let (statistics, mut keeper, _) = open(dir.path(), 500);
    for round in 0..40 {
        (0..600).for_each(|i| note(&statistics, &format!("key {i} {}", "x".repeat(200)), 100 * round + i));
        assert!(keeper.flush(&statistics));
    }
    let len = fs::metadata(dir.path().join(NAME)).unwrap().len();
    assert_eq!(len, keeper.len);
    let once = keeper.whole.max(300 * 500);
    assert!(len < 3 * once.max(REWRITE_MIN), "{len} bytes for {once}");
    drop(keeper);
    // A start is no reason to let it grow further.
    let (_, keeper, _) = open(dir.path(), 500);
    assert!(keeper.len == len && keeper.whole <= once, "{} bytes for {once}", keeper.whole);
    drop(keeper);
    let (statistics, _, _) = open(dir.path(), 3);
    let keys = statistics.lock().unwrap().keys();
    assert!(keys.len() == 3 && keys[0].starts_with("key 599 "), "{keys:?}");
}

#[test]
fn one_server_at_a_time_and_what_failed_is_written_later() {
    let dir = tempfile::tempdir().unwrap();
    let (first, mut keeper, _) = open(dir.path(), 10);
    note(&first, "a", 7);
    assert!(keeper.flush(&first));
    let (second, mut other, _) = open(dir.path(), 10);
    note(&second, "b", 7);
    assert!(!other.flush(&second) && !other.flush(&second));
    // The first goes on for a while, as in a rolling restart.
    note(&first, "a", 8);
    note(&first, "c", 8);
    assert!(keeper.flush(&first));
    drop(keeper);
    assert!(other.flush(&second));
    assert_eq!((attempts(&second, "a"), attempts(&second, "c")), (Some(2), Some(1)));
    drop(other);
    let (third, ..) = open(dir.path(), 10);
    let known = ["a", "b", "c"].map(|key| attempts(&third, key));
    assert_eq!(known, [Some(2), Some(1), Some(1)]);
}

#[test]
fn who_comes_before_there_is_a_folder_sees_what_another_wrote_meanwhile() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("learning");
    let (first, mut keeper, _) = open(&folder, 10);
    let (second, mut other, _) = open(&folder, 10);
    note(&first, "a", 7);
    assert!(keeper.flush(&first));
    drop(keeper);
    note(&second, "b", 7);
    assert!(other.flush(&second));
    assert_eq!(attempts(&second, "a"), Some(1));
}

#[test]
fn nothing_is_listed_for_as_long_as_another_has_the_folder() {
    let dir = tempfile::tempdir().unwrap();
    let (first, mut keeper, _) = open(dir.path(), 10);
    note(&first, "a", 7);
    assert!(keeper.flush(&first));
    let (second, mut other, _) = open(dir.path(), 10);
    for round in 0..3 {
        (0..4 * BATCH).for_each(|n| note(&second, &format!("{round} {n}"), 7));
        assert!(!other.flush(&second));
        assert!(second.lock().unwrap().take_changed(1).is_none());
    }
}

#[test]
fn what_a_newer_version_wrote_is_kept_beside() {
    let dir = tempfile::tempdir().unwrap();
    let (file, old) = (dir.path().join(NAME), |end: &str| dir.path().join(format!("{OLD}{end}")));
    let newer = encode("d", &Record::default()).replace("\"format\":1", "\"format\":99");
    let newer = format!("{} {newer}\n", checksum(newer.as_bytes()));
    for end in ["", ".2"] {
        fs::write(&file, &newer).unwrap();
        let (statistics, mut keeper, _) = open(dir.path(), 10);
        note(&statistics, "a", 7);
        assert!(keeper.flush(&statistics));
        assert_eq!(fs::read_to_string(old(end)).unwrap(), newer);
        assert!(!fs::read_to_string(&file).unwrap().contains("99"));
        (0..3).for_each(|_| note(&statistics, "a", 7));
        assert!(keeper.flush(&statistics));
    }
    assert!(!old(".3").exists());
    // Half a line is what every power cut leaves, and no reason to keep anything.
    let whole = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("{whole}{}", &whole[..40])).unwrap();
    let (statistics, mut keeper, broken) = open(dir.path(), 10);
    note(&statistics, "a", 7);
    assert!(keeper.flush(&statistics) && broken == 1 && !old(".3").exists());
}

#[test]
fn times_of_a_clock_that_was_ahead_are_now() {
    let dir = tempfile::tempdir().unwrap();
    let (statistics, mut keeper, _) = open(dir.path(), 10);
    note(&statistics, "a", 4_000_000_000);
    assert!(keeper.flush(&statistics));
    drop(keeper);
    let (statistics, ..) = open(dir.path(), 10);
    assert_eq!(statistics.lock().unwrap().get("a").unwrap().seen(), (5000, 5000));
}

#[test]
fn a_file_that_cant_be_read_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join(NAME)).unwrap();
    let error = Keeper::load(dir.path(), NonZeroUsize::MIN, 5000).unwrap_err().to_string();
    assert!(error.contains("can't be read from") && error.contains("move it away"), "{error}");
}
