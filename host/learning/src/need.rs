//! How much to set aside for an action on its host, by what is known under its learning key. Amounts are rounded up in coarse
//! steps, so that there are few different ones: each costs time whenever a worker asks for work.

use crate::record::Record;

/// Use of cores is known so coarsely that a tenth more is no other number of cores.
const TOLERANCE: f64 = 1.1;

/// Whole cores for 95% of the runs, at least one; `None`: too few than `min_attempts` are known.
pub fn cores_needed(record: &Record, min_attempts: u32) -> Option<u64> {
    let p95 = record.cores(0.95).filter(|_| record.measured() >= min_attempts)?;
    Some(((p95 / TOLERANCE).ceil() as u64).max(1))
}

/// The most memory that a run has had, in units of `unit_bytes`, rounded up to 2 or 3 times a power of two of them; `None`:
/// less than `min_attempts` are known.
///
/// It is of the largest process of each run, as workers report no more: an action of several large ones needs more. Memory
/// that is short kills, so it is the most, where of cores 95% is enough.
pub fn memory_needed(record: &Record, min_attempts: u32, unit_bytes: u64) -> Option<u64> {
    if record.memories.total() < min_attempts.max(1) {
        return None;
    }
    let bytes = u64::from(record.peak_memory_mib()) << 20;
    Some(rounded_up(bytes.div_ceil(unit_bytes.max(1))))
}

/// 1, 2, 3, 4, 6, 8, 12, 16, …
fn rounded_up(amount: u64) -> u64 {
    let power = amount.max(1).checked_next_power_of_two().unwrap_or(u64::MAX);
    let between = power / 4 * 3;
    if between >= amount.max(1) { between } else { power }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::ran;

    #[test]
    fn steps_are_coarse() {
        let steps =
            [(0, 1), (1, 1), (2, 2), (3, 3), (4, 4), (5, 6), (6, 6), (7, 8), (9, 12), (13, 16), (1000, 1024)];
        for (amount, step) in steps {
            assert_eq!(rounded_up(amount), step, "{amount}");
        }
        assert_eq!(rounded_up(u64::MAX), u64::MAX);
        assert!((1..10_000).all(|n| rounded_up(n) >= n && rounded_up(n) * 2 <= n * 3 + 2));
    }

    #[test]
    fn needs_follow_from_runs() {
        let mut record = Record::default();
        for (runs, cores, memory) in [(4, None, None), (1, Some(2), Some(768)), (0, Some(2), Some(768))] {
            (0..runs).for_each(|_| record.note(&ran(1.0, 2.1, 700), 1));
            assert_eq!((cores_needed(&record, 5), memory_needed(&record, 5, 1 << 20)), (cores, memory));
        }
        record.note(&ran(1.0, 0.01, 1100), 1);
        assert_eq!(memory_needed(&record, 5, 1 << 20), Some(1536));
        assert_eq!(memory_needed(&record, 5, 1 << 30), Some(2));
        assert_eq!(memory_needed(&Record::default(), 0, 1), None);
        let mut idle = Record::default();
        (0..9).for_each(|_| idle.note(&ran(1.0, 0.05, 1), 1));
        assert_eq!(cores_needed(&idle, 5), Some(1));
    }
}
