//! The latest records in memory, bounded by number and by bytes.

use std::collections::VecDeque;
use std::sync::Arc;

use pointsman_policy::{ActionFacts, Asked, HostAnswer, Question, Record};

use super::Entry;

/// Oldest first.
#[derive(Debug)]
pub(super) struct Ring {
    entries: VecDeque<(Arc<Entry>, usize)>,
    records_max: usize,
    bytes: usize,
    bytes_max: usize,
    sequence: u64,
}

/// What went out at the other end: it is dropped without the lock, since that takes longest.
pub(super) type Gone = Vec<(Arc<Entry>, usize)>;

impl Ring {
    pub(super) fn new(records_max: usize, bytes_max: u64) -> Self {
        let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        Self { entries: VecDeque::new(), records_max, bytes: 0, bytes_max, sequence: 0 }
    }

    /// The place of the next record in the sequence.
    pub(super) fn next(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    pub(super) fn push(&mut self, entry: Arc<Entry>, weight: usize) -> Gone {
        self.entries.push_back((entry, weight));
        self.bytes += weight;
        let mut gone = Gone::new();
        while self.entries.len() > self.records_max || self.bytes > self.bytes_max {
            let Some((entry, weight)) = self.entries.pop_front() else { break };
            self.bytes -= weight;
            gone.push((entry, weight));
        }
        gone
    }

    pub(super) fn entries(&self) -> Vec<Arc<Entry>> {
        self.entries.iter().map(|(entry, _)| entry.clone()).collect()
    }
}

/// Bytes of a record without its texts, about.
const FRAME: usize = 1024;

/// Bytes that a record holds, about. What may be large is counted: commands, and stored values.
pub(super) fn weight(record: &Record) -> usize {
    let asked: usize = record.steps.iter().flat_map(|step| &step.asked).map(of_asked).sum();
    let of = match &record.question {
        Question::Rank { facts, candidates } => of_facts(facts) + 128 * candidates.len(),
        Question::Route { facts, .. } | Question::Completed { facts, .. } => of_facts(facts),
        Question::Admit { worker, .. } => 128 * (worker.id.len() + worker.platform.len()),
    };
    FRAME + asked + of
}

fn of_asked(asked: &Asked) -> usize {
    let answer = match &asked.answer {
        Some(HostAnswer::Stored(Some(value))) => value.len(),
        Some(HostAnswer::Pools(pools)) => 64 * pools.len(),
        _ => 0,
    };
    size_of::<Asked>() + asked.argument.as_ref().map_or(0, |argument| argument.len()) + answer
}

fn of_facts(facts: &ActionFacts) -> usize {
    let Some(command) = &facts.command else { return 0 };
    let texts = command.arguments.iter().chain(&command.output_paths);
    let pairs = command.environment.iter().flat_map(|(name, value)| [name, value]);
    texts.chain(pairs).map(|text| text.len() + size_of::<Arc<str>>()).sum()
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    fn entry(sequence: u64) -> Arc<Entry> {
        let question = Question::Rank { facts: Arc::default(), candidates: Vec::new() };
        let record = Record {
            at: SystemTime::UNIX_EPOCH,
            generation: 1,
            question,
            steps: Arc::new([]),
            remarks: vec![],
        };
        Arc::new(Entry { sequence, record })
    }

    fn push(ring: &mut Ring, weight: usize) -> usize {
        let entry = entry(ring.next());
        ring.push(entry, weight).len()
    }

    #[test]
    fn the_oldest_go_when_there_are_too_many_or_they_are_too_large() {
        let mut ring = Ring::new(3, 100);
        assert_eq!([1, 1, 1, 1].map(|weight| push(&mut ring, weight)), [0, 0, 0, 1]);
        assert_eq!(push(&mut ring, 98), 1, "three, and a hundred bytes");
        assert_eq!(push(&mut ring, 50), 3, "the large one goes with those before it");
        let sequences: Vec<u64> = ring.entries().iter().map(|entry| entry.sequence()).collect();
        assert_eq!(sequences, [6]);
        assert_eq!(push(&mut ring, 1000), 2, "one that is too large by itself is not kept");
        assert_eq!(push(&mut Ring::new(0, 100), 1), 1);
    }
}
