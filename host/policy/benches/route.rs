//! What routing one action costs: `cargo bench -p pointsman-policy --profile ci`.
//!
//! Prints the median of many batches in nanoseconds, for one thread and for as many as there are cores. The batches
//! are short, so that what else the machine does falls into few of them.

#![allow(clippy::print_stdout)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pointsman_policy::{ActionFacts, CommandFacts, Options, Runtime};
use pointsman_scheduler::route::{Property, Route};

const BATCH: u32 = 200;

fn main() {
    let runtime = match Runtime::new(Options::default()) {
        Ok(runtime) => runtime,
        Err(error) => {
            println!("{error}");
            std::process::exit(1);
        }
    };
    let platform: Vec<Property> =
        (0..8).map(|i| Property::new(format!("name{i}"), format!("value{i}"))).collect();
    let facts = ActionFacts {
        platform: Some(platform.clone()),
        invocation_id: "0a1b2c3d-0000-4000-8000-000000000001".into(),
        correlated_invocations_id: "0a1b2c3d-0000-4000-8000-000000000002".into(),
        ..ActionFacts::default()
    };
    let command = CommandFacts { platform: platform.clone(), ..CommandFacts::default() };
    let old_client = ActionFacts { platform: None, command: Some(command), ..facts.clone() };
    let route = Route { platform, ..Route::default() };
    let empty = Route::default();
    let cores = std::thread::available_parallelism().map_or(1, Into::into);

    println!("{:<50}{:>10}", "", "ns/action");
    for (name, facts, route) in [
        ("platform in the Action (8 properties)", facts, route),
        ("platform in the Command", old_client, empty),
    ] {
        let facts = Arc::new(facts);
        let clone = median(1, || drop(black_box(route.clone())));
        println!("{:<50}{clone:>10}", format!("clone of the route, {} properties", route.platform.len()));
        for threads in [1, cores, 4 * cores] {
            let call = median(threads, || drop(black_box(runtime.route(&facts, route.clone()))));
            println!("{:<50}{call:>10}", format!("{name}, {threads} threads"));
        }
    }
    println!("instances made: {}", runtime.counters().instances);
}

/// Median time of a call in nanoseconds, as each of so many threads sees it.
fn median(threads: usize, call: impl Fn() + Sync) -> u64 {
    let mut samples: Vec<u64> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    let end = Instant::now() + Duration::from_millis(700);
                    let mut samples = Vec::new();
                    while Instant::now() < end {
                        let start = Instant::now();
                        (0..BATCH).for_each(|_| call());
                        samples.push(start.elapsed().as_nanos() as u64 / u64::from(BATCH));
                    }
                    samples
                })
            })
            .collect();
        workers.into_iter().filter_map(|worker| worker.join().ok()).flatten().collect()
    });
    samples.sort_unstable();
    samples.get(samples.len() / 2).copied().unwrap_or_default()
}
