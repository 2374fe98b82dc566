//! Records on disk: `statistics` in a folder of its own, one record a line, the last line of a key counting.
//!
//! What changed is appended, and when the file has become twice as long as what is known it is written anew beside and put
//! in place. Each line begins with eight digits of its SHA-256, so one that was damaged, or not written to its end, is passed
//! over and harms no other. A file with lines of a newer version, or damaged ones, is kept as `statistics.old` before it is
//! written anew. One server at a time writes: another that takes over later reads what the first has written since. All of
//! this is blocking code.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use pointsman_learning::{Record, Statistics};

use super::BATCH;
use super::lines::{Content, line, read};

const NAME: &str = "statistics";
const NEW: &str = "statistics.new";
const OLD: &str = "statistics.old";
/// So many files are kept that could not be read in full; then somebody has to look.
const OLD_MAX: u32 = 20;
const LOCK: &str = "lock";
/// Below this length a file is not worth being written anew.
const REWRITE_MIN: u64 = 1 << 20;

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
    /// The file has lines that a newer version may read, or that were damaged: it is not to be written over.
    keep: bool,
    /// Another server may have written to the file since it was read.
    unseen: bool,
    /// Writing failed the last time, and the log says so.
    failing: bool,
}

impl Keeper {
    /// What is kept in a folder, which need not be there; and how many lines were no records.
    /// Times after `now` (seconds since the Unix epoch) count as now.
    pub(super) fn load(
        dir: &Path,
        keys_max: NonZeroUsize,
        now: u32,
    ) -> Result<(Statistics, Self, u64), OpenError> {
        let path = dir.join(NAME);
        let mut keeper = Self {
            dir: dir.to_owned(),
            lock: None,
            file: None,
            len: 0,
            whole: 0,
            stale: false,
            keep: false,
            unseen: false,
            failing: false,
        };
        // Before it is read, so that nobody writes to it afterwards. While there is no folder, nobody does either, and it is
        // made when there is something to write.
        keeper.unseen = dir.exists() && keeper.lock().is_err();
        let open_error = |error| OpenError { file: path.clone(), error };
        let mut statistics = Statistics::new(keys_max);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((statistics, keeper, 0)),
            Err(error) => return Err(open_error(error)),
        };
        keeper.len = file.metadata().map_err(open_error)?.len();
        let Content { records, broken, keep } = read(file, &path).map_err(open_error)?;
        (keeper.stale, keeper.keep) = (broken > 0, keep);
        let mut records: Vec<_> = records.into_iter().collect();
        records.iter_mut().for_each(|(_, (record, _))| record.not_after(now));
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
        if batch.is_none() && !self.stale {
            return Ok(());
        }
        // Some are taken already: all are written then, should this fail.
        let claimed = self.claim(statistics);
        if claimed.is_err() || self.stale || self.len > REWRITE_MIN.max(2 * self.whole) {
            // The list of what changed says nothing more, and must not grow for as long as this fails.
            while take().is_some() {}
            return claimed.and_then(|()| self.rewrite(statistics));
        }
        let mut file = match self.file.take() {
            Some(file) => file,
            None => options().append(true).create(true).open(self.dir.join(NAME))?,
        };
        while let Some(records) = batch {
            let text: Vec<u8> = records.iter().flat_map(|(key, record)| line(key, record)).collect();
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
        if self.keep {
            self.keep_old(&path)?;
        }
        fs::rename(&new, &path)?;
        File::open(&self.dir)?.sync_all()?;
        self.file = Some(options().append(true).open(&path)?);
        (self.len, self.whole, self.stale) = (len, len, false);
        Ok(())
    }

    /// Gives the file a further name, that of no file that is there.
    fn keep_old(&mut self, path: &Path) -> io::Result<()> {
        let names = std::iter::once(OLD.to_owned()).chain((2..=OLD_MAX).map(|n| format!("{OLD}.{n}")));
        for old in names.map(|name| self.dir.join(name)) {
            match fs::hard_link(path, &old) {
                Ok(()) => {
                    tracing::warn!(
                        file = %path.display(),
                        kept = %old.display(),
                        "what this version can't read of what was learned is kept in a file beside; put it back in place \
                         for the version that wrote it, or remove it"
                    );
                    self.keep = false;
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::other(format!(
            "{} has lines that can't be read, and {OLD} to {OLD}.{OLD_MAX} hold such files already; look at them and \
             remove them",
            path.display()
        )))
    }

    /// Makes the folder if it isn't there, keeps other servers out of it, and reads what they have written.
    fn claim(&mut self, statistics: &Mutex<Statistics>) -> io::Result<()> {
        if self.lock.is_some() && !self.unseen {
            return Ok(());
        }
        DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)?;
        self.lock()?;
        self.read_again(statistics)
    }

    /// Takes in what another server has written since the file was read. It is all written anew then.
    fn read_again(&mut self, statistics: &Mutex<Statistics>) -> io::Result<()> {
        let path = self.dir.join(NAME);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.unseen = false;
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let len = file.metadata()?.len();
        let Content { records, keep, .. } = read(file, &path)?;
        let count = records.len();
        let mut records = records.into_iter().peekable();
        while records.peek().is_some() {
            let mut statistics = statistics.lock().unwrap_or_else(PoisonError::into_inner);
            for (key, (record, _)) in records.by_ref().take(BATCH) {
                statistics.merge(key.into(), record);
            }
        }
        (self.len, self.keep, self.stale, self.unseen) = (len, keep, true, false);
        tracing::info!(file = %path.display(), keys = count, "read what another server has learned of actions");
        Ok(())
    }

    /// Keeps other servers out of the folder.
    fn lock(&mut self) -> io::Result<()> {
        if self.lock.is_some() {
            return Ok(());
        }
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

#[cfg(test)]
mod tests;
