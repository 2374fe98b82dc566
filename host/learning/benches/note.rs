//! What taking in one run costs, with as many keys as are kept by default.
#![allow(missing_docs, clippy::unwrap_used, clippy::print_stdout)]

use std::hint::black_box;
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use pointsman_learning::{Ended, Rule, Run, Statistics, suggest};

const KEYS: usize = 20_000;
const ROUNDS: usize = 50;

fn main() {
    let keys: Vec<String> =
        (0..KEYS).map(|i| format!("//some/package/of/a/project:target_{i} CppCompile")).collect();
    let mut all = Statistics::new(NonZeroUsize::new(KEYS).unwrap());
    let run = |i: usize| Run {
        ended: Ended::Succeeded,
        size_class: (i % 3) as u32,
        wall: Duration::from_millis(5 + (i % 5000) as u64),
        cores: Some(0.5 + (i % 8) as f64),
        peak_memory_mib: Some(40 + (i % 900) as u32),
    };
    let began = Instant::now();
    for round in 0..ROUNDS {
        for (i, key) in keys.iter().enumerate() {
            all.note(key, &run(i * 7 + round), 1_700_000_000 + i as u32);
        }
    }
    report("note a run", began.elapsed(), KEYS * ROUNDS);
    let classes = [1.5, 6.0, 16.0]
        .map(|cores| pointsman_learning::ClassCores { size_class: cores as u32, cores: Some(cores) });
    let rule = Rule {
        min_attempts: 5,
        long: Duration::from_secs(60),
        forget_after: Duration::from_secs(7 * 24 * 3600),
    };
    let began = Instant::now();
    for _ in 0..ROUNDS {
        for key in &keys {
            black_box(all.get(key).and_then(|record| suggest(record, &classes, &rule, 1_700_000_000)));
        }
    }
    report("look up a key and choose a class", began.elapsed(), KEYS * ROUNDS);
    let began = Instant::now();
    let mut bytes = 0;
    let mut count = 0;
    while let Some(taken) = all.take_changed(256) {
        count += taken.len();
        bytes +=
            taken.iter().map(|(key, record)| pointsman_learning::encode(key, record).len()).sum::<usize>();
    }
    report("encode a record", began.elapsed(), count);
    println!("{:>9} bytes of a record's line on average", bytes / count);
}

fn report(what: &str, took: Duration, times: usize) {
    println!("{:>9.0} ns to {what}", took.as_nanos() as f64 / times as f64);
}
