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

    println!("{:<50}{:>12}{:>12}", "", "ns/action", "actions/s");
    for (name, facts, route) in [
        ("platform in the Action (8 properties)", facts, route),
        ("platform in the Command", old_client, empty),
    ] {
        let facts = Arc::new(facts);
        let properties = route.platform.len();
        report(&format!("clone of the route, {properties} properties"), 1, || drop(black_box(route.clone())));
        for threads in [1, cores, 8 * cores] {
            let call = || drop(black_box(runtime.route(&facts, route.clone())));
            report(&format!("{name}, {threads} threads"), threads, call);
        }
    }
    println!("instances made: {}", runtime.counters().instances);
}

/// Prints the median time of a call in nanoseconds, as each of so many threads sees it, and how many calls all of them
/// made in a second.
fn report(name: &str, threads: usize, call: impl Fn() + Sync) {
    let started = Instant::now();
    let mut samples: Vec<u64> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    let end = started + Duration::from_millis(1000);
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
    let per_second = samples.len() as f64 * f64::from(BATCH) / started.elapsed().as_secs_f64();
    samples.sort_unstable();
    let median = samples.get(samples.len() / 2).copied().unwrap_or_default();
    println!("{name:<50}{median:>12}{per_second:>12.0}");
}
