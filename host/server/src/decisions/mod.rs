//! What policies decided, and why: the latest in memory, all of it in a file on request, and live for who asks.
//!
//! A record comes from the thread that decides, so taking it is a few list operations: it is put into JSON, masked,
//! compressed and written by others, later, and what they have no time for is left out and counted.

mod file;
mod filter;
mod form;
mod frames;
mod mask;
mod ring;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use pointsman_policy::{Answer, Next, Record};
use serde_json::Value;
use tokio::sync::broadcast::{self, Receiver};

use crate::config::DecisionLog;
use file::Writer;
use ring::Ring;

pub use file::OpenError;
pub use filter::Filter;
pub use frames::{Damage, read};
pub use mask::{Mask, MaskError};

/// Records that a follower may be behind.
const BEHIND_MAX: usize = 256;

/// A record and its place in the sequence of all that were kept.
#[derive(Debug)]
pub struct Entry {
    sequence: u64,
    record: Record,
}

/// Takes records.
#[derive(Debug)]
pub struct Decisions {
    ring: Mutex<Ring>,
    sample: f64,
    masks: Arc<[Mask]>,
    writer: Option<Writer>,
    live: broadcast::Sender<Arc<Entry>>,
    followers: Arc<AtomicUsize>,
    counts: Arc<Counts>,
}

/// What became of records; all only grow.
#[derive(Debug, Default)]
pub struct Counts {
    /// Kept in memory or handed on.
    pub(crate) recorded: AtomicU64,
    /// Left out by `decision_log.sample`.
    pub(crate) not_sampled: AtomicU64,
    /// In the file.
    pub(crate) written: AtomicU64,
    /// Compressed bytes of those.
    pub(crate) written_bytes: AtomicU64,
    /// Not in the file, since they came faster than they could be written.
    pub(crate) no_time: AtomicU64,
    /// Not in the file, since it could not be written.
    pub(crate) failed: AtomicU64,
}

impl Decisions {
    /// Takes records as configured; `None`: nobody wants any.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn start(config: &DecisionLog) -> Result<Option<Arc<Self>>, OpenError> {
        if config.memory_records_max == 0 && config.file.is_none() {
            return Ok(None);
        }
        let masks: Arc<[Mask]> = config.mask.clone().into();
        let counts = Arc::<Counts>::default();
        let writer = match &config.file {
            Some(file) => Some(Writer::start(file, config, masks.clone(), counts.clone())?),
            None => None,
        };
        Ok(Some(Arc::new(Self {
            ring: Mutex::new(Ring::new(config.memory_records_max, config.memory_max_bytes)),
            sample: config.sample,
            masks,
            writer,
            live: broadcast::Sender::new(BEHIND_MAX),
            followers: Arc::default(),
            counts,
        })))
    }

    /// Takes one. Waits for nobody but others who take one.
    pub fn record(&self, record: Record) {
        if self.sample < 1.0 && fastrand::f64() >= self.sample && !is_notable(&record) {
            self.counts.not_sampled.fetch_add(1, Relaxed);
            return;
        }
        self.counts.recorded.fetch_add(1, Relaxed);
        let weight = ring::weight(&record);
        let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = Arc::new(Entry { sequence: ring.next(), record });
        let gone = ring.push(entry.clone(), weight);
        // Under the lock, so that followers have them in order. Without any nothing is sent.
        if self.followers.load(Relaxed) > 0 {
            // They may have gone just now.
            _ = self.live.send(entry.clone());
        }
        drop(ring);
        drop(gone);
        if let Some(writer) = &self.writer {
            writer.offer(entry, &self.counts);
        }
    }

    /// What became of records so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// As the latest records are in JSON, masked, oldest first: `at_most` of those that a filter lets through. Takes some
    /// microseconds for each record that is kept.
    pub fn latest(&self, filter: &Filter, at_most: usize) -> Vec<(u64, Value)> {
        let kept = self.ring.lock().unwrap_or_else(PoisonError::into_inner).entries();
        let shown = kept.iter().rev().filter_map(|entry| Some((entry.sequence, self.show(entry, filter)?)));
        let mut shown: Vec<_> = shown.take(at_most).collect();
        shown.reverse();
        shown
    }

    /// A record in JSON, masked, if the filter lets it through.
    pub fn show(&self, entry: &Entry, filter: &Filter) -> Option<Value> {
        let shown = mask::masked(form::form(&entry.record), &self.masks);
        filter.lets_through(&shown).then_some(shown)
    }

    /// Records from now on.
    pub fn follow(&self) -> Follower {
        self.followers.fetch_add(1, Relaxed);
        Follower { records: self.live.subscribe(), followers: self.followers.clone() }
    }

    /// Writes what is not yet in the file, and closes it.
    pub fn close(&self) {
        if let Some(writer) = &self.writer {
            writer.close();
        }
    }
}

/// Who listens to records.
#[derive(Debug)]
pub struct Follower {
    /// What comes.
    pub records: Receiver<Arc<Entry>>,
    followers: Arc<AtomicUsize>,
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.followers.fetch_sub(1, Relaxed);
    }
}

impl Entry {
    /// Its place in the sequence of all.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }
}

/// Somebody was refused, or some policy failed.
fn is_notable(record: &Record) -> bool {
    record
        .steps
        .iter()
        .any(|step| matches!(&step.answer, Err(_) | Ok(Answer::Rejected(_) | Answer::Next(Next::Fail(_)))))
}
