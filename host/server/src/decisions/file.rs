//! The file of records: written by a thread of its own, rotated by size.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use super::{Counts, Entry, Mask, form, frames, mask};
use crate::config::DecisionLog;

/// Records that may wait to be written; further ones are counted and left out.
const QUEUE: usize = 4096;
/// How long a record may wait for others of its frame: so much a killed process loses.
const FRAME_LIFE: Duration = Duration::from_secs(1);
/// Bytes of a frame before it is compressed.
const FRAME_BYTES: usize = 256 << 10;
/// The log says so often at most that the file can't be written.
const COMPLAINT_INTERVAL: Duration = Duration::from_secs(60);
/// How long the end of the server waits for the last records.
const CLOSE_WITHIN: Duration = Duration::from_secs(2);

/// The file can't be written.
#[derive(Debug, thiserror::Error)]
#[error("the decision log {} can't be written (decision_log.file): {error}", file.display())]
pub struct OpenError {
    file: PathBuf,
    error: io::Error,
}

enum Message {
    Record(Arc<Entry>),
    Close(SyncSender<()>),
}

/// The thread's end of the queue.
#[derive(Debug)]
pub(super) struct Writer {
    queue: SyncSender<Message>,
}

impl Writer {
    pub(super) fn start(
        path: &Path,
        config: &DecisionLog,
        masks: Arc<[Mask]>,
        counts: Arc<Counts>,
    ) -> Result<Self, OpenError> {
        let failed = |error| OpenError { file: path.to_owned(), error };
        let log = LogFile::open(path, config.rotate_bytes, config.keep_files).map_err(failed)?;
        let (queue, inbox) = sync_channel(QUEUE);
        let work = Work { log, masks, counts, pending: Vec::new(), records: 0, due: None, complained: None };
        let thread = std::thread::Builder::new().name("decision-log".into());
        thread.spawn(move || work.run(&inbox)).map_err(failed)?;
        Ok(Self { queue })
    }

    /// Has a record written, if there is time.
    pub(super) fn offer(&self, entry: Arc<Entry>, counts: &Counts) {
        // Nobody is there any more once the log is closed: then the server ends.
        if let Err(TrySendError::Full(_)) = self.queue.try_send(Message::Record(entry)) {
            counts.no_time.fetch_add(1, Relaxed);
        }
    }

    pub(super) fn close(&self) {
        let (closed, done) = sync_channel(1);
        if self.queue.send(Message::Close(closed)).is_ok() {
            // A disk that hangs must not keep the server from ending.
            _ = done.recv_timeout(CLOSE_WITHIN);
        }
    }
}

/// What the thread does.
struct Work {
    log: LogFile,
    masks: Arc<[Mask]>,
    counts: Arc<Counts>,
    /// Lines of the frame to come.
    pending: Vec<u8>,
    records: u64,
    /// When it is to be written.
    due: Option<Instant>,
    complained: Option<Instant>,
}

impl Work {
    fn run(mut self, inbox: &Receiver<Message>) {
        loop {
            let message = match self.due {
                None => inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(due) => inbox.recv_timeout(due.saturating_duration_since(Instant::now())),
            };
            match message {
                Ok(Message::Record(entry)) => self.add(&entry),
                Ok(Message::Close(closed)) => {
                    self.flush();
                    // Whoever waits may have lost patience.
                    _ = closed.send(());
                    return;
                }
                Err(RecvTimeoutError::Timeout) => self.flush(),
                Err(RecvTimeoutError::Disconnected) => return self.flush(),
            }
        }
    }

    fn add(&mut self, entry: &Entry) {
        let shown = mask::masked(form::form(&entry.record), &self.masks);
        // Writing to memory does not fail.
        _ = writeln!(self.pending, "{shown}");
        self.records += 1;
        let due = *self.due.get_or_insert_with(|| Instant::now() + FRAME_LIFE);
        if self.pending.len() >= FRAME_BYTES || due <= Instant::now() {
            self.flush();
        }
    }

    fn flush(&mut self) {
        self.due = None;
        if self.pending.is_empty() {
            return;
        }
        let written = frames::compress(&self.pending).and_then(|frame| self.log.append(&frame));
        let records = std::mem::take(&mut self.records);
        self.pending.clear();
        match written {
            Ok(bytes) => {
                self.counts.written.fetch_add(records, Relaxed);
                self.counts.written_bytes.fetch_add(bytes, Relaxed);
                if self.complained.take().is_some() {
                    tracing::info!(file = %self.log.path.display(), "the decision log can be written again");
                }
            }
            Err(error) => {
                self.counts.failed.fetch_add(records, Relaxed);
                self.complain(&error);
            }
        }
    }

    fn complain(&mut self, error: &io::Error) {
        let now = Instant::now();
        if self.complained.is_some_and(|last| now.duration_since(last) < COMPLAINT_INTERVAL) {
            return;
        }
        self.complained = Some(now);
        tracing::error!(
            file = %self.log.path.display(),
            %error,
            "the decision log can't be written; records are lost until it can be, and decisions go on"
        );
    }
}

/// A file that frames are added to, and its predecessors: `FILE.1` is the latest of them.
struct LogFile {
    path: PathBuf,
    rotate_bytes: u64,
    keep: u32,
    /// Not there after it could not be opened.
    file: Option<File>,
    size: u64,
}

impl LogFile {
    fn open(path: &Path, rotate_bytes: u64, keep: u32) -> io::Result<Self> {
        let mut log = Self { path: path.to_owned(), rotate_bytes, keep, file: None, size: 0 };
        log.reopen()?;
        Ok(log)
    }

    fn reopen(&mut self) -> io::Result<()> {
        if let Some(folder) = self.path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            std::fs::create_dir_all(folder)?;
        }
        let file = OpenOptions::new().create(true).append(true).open(&self.path)?;
        self.size = file.metadata()?.len();
        self.file = Some(file);
        Ok(())
    }

    /// Adds a frame as a whole, or nothing of it.
    fn append(&mut self, frame: &[u8]) -> io::Result<u64> {
        let length = frame.len() as u64;
        if self.file.is_none() {
            self.reopen()?;
        }
        if self.size > 0 && self.size + length > self.rotate_bytes {
            self.rotate()?;
            self.reopen()?;
        }
        let Some(file) = &mut self.file else { return Ok(0) };
        if let Err(error) = file.write_all(frame) {
            // On a full disk half of it may be there. If that can't be taken back, who reads passes over it.
            _ = file.set_len(self.size);
            // Somebody may have made room by taking the file away.
            self.file = None;
            return Err(error);
        }
        self.size += length;
        Ok(length)
    }

    fn rotate(&mut self) -> io::Result<()> {
        self.file = None;
        if self.keep == 0 {
            std::fs::remove_file(&self.path)?;
        }
        for n in (0..self.keep).rev() {
            let renamed = std::fs::rename(self.numbered(n), self.numbered(n + 1));
            match renamed {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// The file itself, or one of its predecessors.
    fn numbered(&self, n: u32) -> PathBuf {
        match n {
            0 => self.path.clone(),
            n => {
                let mut name = self.path.clone().into_os_string();
                name.push(format!(".{n}"));
                name.into()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_files_are_kept_up_to_a_number() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("made/decisions.zst");
        let mut log = LogFile::open(&path, 100, 2).unwrap();
        for n in 0..5_u8 {
            assert_eq!(log.append(&[n; 60]).unwrap(), 60);
        }
        let content = |n| std::fs::read(log.numbered(n)).map(|bytes| bytes[0]).ok();
        assert_eq!([content(0), content(1), content(2), content(3)], [Some(4), Some(3), Some(2), None]);
        let mut again = LogFile::open(&path, 100, 2).unwrap();
        again.append(&[9; 30]).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 90, "it goes on where it was");
    }

    #[test]
    fn a_frame_that_can_not_be_written_is_lost_and_the_next_is_tried() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("decisions.zst");
        let mut log = LogFile::open(&path, 10, 1).unwrap();
        log.append(&[1; 8]).unwrap();
        // What rotation would make way for can't be moved there.
        let way = log.numbered(1);
        std::fs::create_dir(&way).unwrap();
        std::fs::write(way.join("x"), "").unwrap();
        assert!(log.append(&[2; 8]).is_err());
        std::fs::remove_dir_all(&way).unwrap();
        log.append(&[3; 8]).unwrap();
        assert_eq!(std::fs::read(&path).unwrap()[0], 3);
    }
}
