//! Records on disk: `statistics` in a folder of its own, one record a line, the last line of a key counting.
//!
//! What changed is appended, and when the file has become twice as long as what is known it is written anew beside and put
//! in place. Each line begins with eight digits of its SHA-256, so one that was damaged, or not written to its end, is passed
//! over and harms no other. All of this is blocking code.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::num::NonZeroUsize;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use pointsman_learning::{Record, Statistics, decode, encode};
use sha2::{Digest as _, Sha256};

use super::BATCH;

const NAME: &str = "statistics";
const NEW: &str = "statistics.new";
const LOCK: &str = "lock";
/// No record is as long.
const LINE_MAX: usize = 64 << 10;
/// Below this length a file is not worth being written anew.
const REWRITE_MIN: u64 = 1 << 20;
/// So many broken lines are told one by one.
const TOLD_MAX: u64 = 10;

/// What was kept can't be read.
#[derive(Debug, thiserror::Error)]
#[error("what was learned can't be read from {}: {error}; make it readable, or move it away to begin anew", .file.display())]
pub struct OpenError {
    file: PathBuf,
    error: io::Error,
}

/// Writes records.
#[derive(Debug)]
pub(super) struct Keeper {
    dir: PathBuf,
    /// Held while this server uses the folder; the system lets go of it when the process ends, however it ends.
    lock: Option<File>,
    /// What is appended to.
    file: Option<File>,
    len: u64,
    /// Its length when it was last written anew; after a start, what it would have been.
    whole: u64,
    /// Appending is not enough: it has broken lines, or something failed.
    stale: bool,
    /// Writing failed the last time, and the log says so.
    failing: bool,
}

impl Keeper {
    /// What is kept in a folder, which need not be there; and how many lines were no records.
    pub(super) fn load(dir: &Path, keys_max: NonZeroUsize) -> Result<(Statistics, Self, u64), OpenError> {
        let path = dir.join(NAME);
        let mut keeper = Self {
            dir: dir.to_owned(),
            lock: None,
            file: None,
            len: 0,
            whole: 0,
            stale: false,
            failing: false,
        };
        let open_error = |error| OpenError { file: path.clone(), error };
        let mut statistics = Statistics::new(keys_max);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((statistics, keeper, 0)),
            Err(error) => return Err(open_error(error)),
        };
        keeper.len = file.metadata().map_err(open_error)?.len();
        let (records, broken) = read(file, &path).map_err(open_error)?;
        keeper.stale = broken > 0;
        let mut records: Vec<_> = records.into_iter().collect();
        records.sort_by(|(a_key, (a, _)), (b_key, (b, _))| (a.seen().1, a_key).cmp(&(b.seen().1, b_key)));
        let drop = records.len().saturating_sub(keys_max.get());
        for (key, (record, len)) in records.drain(drop..) {
            keeper.whole += len;
            statistics.restore(key.into(), record);
        }
        tracing::info!(keys = statistics.len(), broken, "read what was learned of actions");
        Ok((statistics, keeper, broken))
    }

    /// Writes what changed. `false`: it could not, and will write all of it the next time.
    pub(super) fn flush(&mut self, statistics: &Mutex<Statistics>) -> bool {
        match self.try_flush(statistics) {
            Ok(()) => {
                if std::mem::take(&mut self.failing) {
                    tracing::info!(dir = %self.dir.display(), "what is learned of actions is written again");
                }
                true
            }
            Err(error) => {
                self.stale = true;
                self.file = None;
                if !std::mem::replace(&mut self.failing, true) {
                    tracing::warn!(
                        dir = %self.dir.display(),
                        %error,
                        "what is learned of actions can't be written; it is kept in memory, and tried again"
                    );
                }
                false
            }
        }
    }

    fn try_flush(&mut self, statistics: &Mutex<Statistics>) -> io::Result<()> {
        let take = || statistics.lock().unwrap_or_else(PoisonError::into_inner).take_changed(BATCH);
        let mut batch = take();
        if batch.is_empty() && !self.stale {
            return Ok(());
        }
        // The first ones are taken already: all are written then, should this fail.
        self.claim()?;
        if self.stale || self.len > REWRITE_MIN.max(2 * self.whole) {
            while !take().is_empty() {}
            return self.rewrite(statistics);
        }
        let mut file = match self.file.take() {
            Some(file) => file,
            None => options().append(true).create(true).open(self.dir.join(NAME))?,
        };
        while !batch.is_empty() {
            let text: Vec<u8> = batch.iter().flat_map(|(key, record)| line(key, record)).collect();
            file.write_all(&text)?;
            self.len += text.len() as u64;
            batch = take();
        }
        file.sync_data()?;
        self.file = Some(file);
        Ok(())
    }

    /// Writes all records beside, and puts that in the file's place.
    fn rewrite(&mut self, statistics: &Mutex<Statistics>) -> io::Result<()> {
        let statistics = || statistics.lock().unwrap_or_else(PoisonError::into_inner);
        let (new, path) = (self.dir.join(NEW), self.dir.join(NAME));
        let mut file = options().write(true).create(true).truncate(true).open(&new)?;
        let keys = statistics().keys();
        let mut len = 0;
        for batch in keys.chunks(BATCH) {
            let records: Vec<(&Arc<str>, Record)> = {
                let statistics = statistics();
                batch.iter().filter_map(|key| Some((key, statistics.get(key)?.clone()))).collect()
            };
            let text: Vec<u8> = records.iter().flat_map(|(key, record)| line(key, record)).collect();
            file.write_all(&text)?;
            len += text.len() as u64;
        }
        file.sync_all()?;
        drop(file);
        fs::rename(&new, &path)?;
        File::open(&self.dir)?.sync_all()?;
        self.file = Some(options().append(true).open(&path)?);
        (self.len, self.whole, self.stale) = (len, len, false);
        Ok(())
    }

    /// Makes the folder if it isn't there, and keeps other servers out of it.
    fn claim(&mut self) -> io::Result<()> {
        if self.lock.is_some() {
            return Ok(());
        }
        DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)?;
        let lock = options().write(true).create(true).truncate(false).open(self.dir.join(LOCK))?;
        match lock.try_lock() {
            Ok(()) => self.lock = Some(lock),
            Err(TryLockError::WouldBlock) => {
                return Err(io::Error::other(
                    "another server uses the folder; give each server a learning.dir or a state_dir of its own",
                ));
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
        Ok(())
    }
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600);
    options
}

fn line(key: &str, record: &Record) -> Vec<u8> {
    let text = encode(key, record);
    format!("{} {text}\n", checksum(text.as_bytes())).into_bytes()
}

fn checksum(text: &[u8]) -> String {
    Sha256::digest(text)[..4].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Records by key, each with the bytes of its line.
type Records = HashMap<String, (Record, u64)>;

/// The last record of each key, and how many lines were none.
fn read(file: File, path: &Path) -> io::Result<(Records, u64)> {
    let (mut records, mut broken, mut number) = (Records::new(), 0, 0_u64);
    let mut reader = BufReader::new(file);
    let mut text = Vec::new();
    loop {
        text.clear();
        if reader.by_ref().take(LINE_MAX as u64).read_until(b'\n', &mut text)? == 0 {
            break;
        }
        number += 1;
        match whole(&text) {
            Ok((key, record)) => _ = records.insert(key, (record, text.len() as u64)),
            Err(why) => {
                broken += 1;
                if broken <= TOLD_MAX {
                    tracing::warn!(file = %path.display(), line = number, why, "a record of what was learned is dropped");
                }
            }
        }
    }
    if broken > TOLD_MAX {
        tracing::warn!(file = %path.display(), broken, "more records of what was learned were dropped");
    }
    Ok((records, broken))
}

fn whole(text: &[u8]) -> Result<(String, Record), String> {
    let text = text.strip_suffix(b"\n").ok_or("it was not written to its end")?;
    let text = std::str::from_utf8(text).map_err(|error| error.to_string())?;
    let (sum, text) = text.split_once(' ').ok_or("it has no checksum")?;
    if sum != checksum(text.as_bytes()) {
        return Err("it is not what was written".to_owned());
    }
    decode(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use pointsman_learning::{Ended, Run};

    use super::*;

    const RUN: Run = Run {
        ended: Ended::Succeeded,
        size_class: 1,
        wall: Duration::from_secs(3),
        cores: Some(2.0),
        peak_memory_mib: Some(70),
    };

    fn open(dir: &Path, keys_max: usize) -> (Mutex<Statistics>, Keeper, u64) {
        let (statistics, keeper, broken) = Keeper::load(dir, NonZeroUsize::new(keys_max).unwrap()).unwrap();
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
        let (statistics, _, broken) = open(dir.path(), 10);
        assert_eq!((attempts(&statistics, "a"), attempts(&statistics, "e"), broken), (Some(1), Some(1), 0));
    }

    #[test]
    fn the_file_stays_bounded_and_keeps_what_was_used_last() {
        let dir = tempfile::tempdir().unwrap();
        let (statistics, mut keeper, _) = open(dir.path(), 500);
        for round in 0..40 {
            (0..600)
                .for_each(|i| note(&statistics, &format!("key {i} {}", "x".repeat(200)), 100 * round + i));
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
        drop(keeper);
        assert!(other.flush(&second));
        let (third, ..) = open(dir.path(), 10);
        assert_eq!((attempts(&third, "a"), attempts(&third, "b")), (Some(1), Some(1)));
    }

    #[test]
    fn a_file_that_cant_be_read_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join(NAME)).unwrap();
        let error = Keeper::load(dir.path(), NonZeroUsize::MIN).unwrap_err().to_string();
        assert!(error.contains("can't be read from") && error.contains("move it away"), "{error}");
    }
}
