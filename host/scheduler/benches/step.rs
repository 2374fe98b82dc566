//! What a step costs, in nanoseconds: an action is submitted to a worker that waits, and completed. Beside it wait
//! actions that nobody may run, and workers of which only those of one pool may run it.
//!
//! Then the same where all workers are busy and many invocations want them: an action is queued, and a completion brings
//! the next.
//!
//! The last column of the first table is one look at all counts, as monitoring takes it.
//!
//! `cargo bench -p pointsman-scheduler` prints two tables.

#![allow(missing_docs, clippy::unwrap_used, clippy::print_stdout)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use pointsman_scheduler::effect::{Effect, Output, Reply};
use pointsman_scheduler::event::{Event, Poll, Report, Submit, Terms, Verdict, WorkerSpec};
use pointsman_scheduler::ids::{ActionDigest, PollId};
use pointsman_scheduler::properties::{PropertyType, Schema, UnknownProperty};
use pointsman_scheduler::route::{Property, Route};
use pointsman_scheduler::scheduler::{Config, Scheduler};
use pointsman_scheduler::time::Time;

const QUEUED: [usize; 4] = [0, 1_000, 10_000, 100_000];
const WORKERS: [usize; 3] = [10, 1_000, 5_000];
const POOLS: [usize; 2] = [1, 50];
const CYCLES: u64 = 20_000;
/// Invocations among which busy workers are shared out, and how many actions wait in all.
const INVOCATIONS: [u64; 3] = [1, 100, 10_000];
const BUSY_QUEUED: u64 = 20_000;
const BUSY_WORKERS: usize = 16;

struct Bench {
    core: Scheduler,
    schema: Arc<Schema>,
    out: Output,
    now: Time,
    names: u64,
    workers: Vec<(Arc<str>, Arc<WorkerSpec>)>,
}

impl Bench {
    fn new(queued: usize, workers: usize, pools: usize) -> Self {
        let types = [
            ("OSFamily", PropertyType::Priority),
            ("container-image", PropertyType::Exact),
            ("cpu_count", PropertyType::Minimum),
        ];
        let schema = Arc::new(Schema::new(types.map(|(k, t)| (k.into(), t)), UnknownProperty::Reject));
        let config = Config { queued_tasks_max: 1_000_000, classes_max: 1_000_000, ..Config::default() };
        let core = Scheduler::new(config, schema.clone());
        let mut bench =
            Self { core, schema, out: Output::default(), now: Time(0), names: 0, workers: vec![] };
        for i in 0..queued {
            // Each asks for another image: as many classes as actions.
            bench.submit(&bench.route(&format!("none-{i}"), "pool0"), i as u64);
        }
        for i in 0..workers {
            let spec = bench.spec(&format!("host{i}"), &format!("pool{}", i % pools));
            let key = spec.host.clone();
            bench.workers.push((key, spec));
            bench.poll(i, Report::Idle);
        }
        bench
    }

    fn route(&self, image: &str, pool: &str) -> Arc<Route> {
        let mut route = Route { pool: Some(pool.into()), shared: true, ..Route::default() };
        let properties = [("OSFamily", "linux"), ("container-image", image), ("cpu_count", "1")];
        route.platform = properties.map(|(k, v)| Property::new(k, v)).to_vec();
        route.sort_platform();
        Arc::new(route)
    }

    fn spec(&self, host: &str, pool: &str) -> Arc<WorkerSpec> {
        let properties = [("OSFamily", "linux"), ("container-image", "real"), ("cpu_count", "8")];
        let properties = properties.map(|(k, v)| Property::new(k, v)).to_vec();
        Arc::new(WorkerSpec {
            id: vec![("hostname".into(), host.into())],
            host: host.into(),
            instance_name_prefix: "".into(),
            offered: self.schema.worker(&properties).unwrap(),
            properties,
            size_class: 0,
            pool: pool.into(),
            terms: Terms::default(),
            max_inflight_tasks: 0,
        })
    }

    fn step(&mut self, event: Event) {
        self.out.clear();
        self.core.step(self.now, event, &mut self.out);
    }

    fn submit(&mut self, route: &Arc<Route>, n: u64) {
        self.names += 1;
        let digest = digest(n);
        self.step(Event::Submit(Submit {
            name: format!("operation-{}", self.names).into(),
            instance: "main".into(),
            digest,
            route: route.clone(),
            asked: self.schema.action(&route.platform).unwrap(),
            preferred: Vec::new(),
        }));
    }

    fn poll(&mut self, worker: usize, report: Report) {
        let (worker, spec) = self.workers[worker].clone();
        self.names += 1;
        let wait_until = self.now + Duration::from_secs(3600);
        let poll = PollId(self.names);
        self.step(Event::Poll(Poll {
            poll,
            worker,
            spec,
            report,
            prefer_idle: false,
            outcome: Default::default(),
            wait_until,
        }));
    }

    /// All workers are busy and much waits: one action comes for each that is completed. Returns what each took per step.
    fn busy_cycles(&mut self, invocations: u64) -> (Duration, Duration) {
        let routes: Vec<Arc<Route>> = (0..invocations).map(|i| self.route_for(i)).collect();
        let mut next = 0;
        while next < BUSY_QUEUED + BUSY_WORKERS as u64 {
            self.submit(&routes[(next % invocations) as usize].clone(), next);
            next += 1;
        }
        let mut runs: Vec<ActionDigest> = Vec::new();
        for worker in 0..BUSY_WORKERS {
            let spec = self.spec(&format!("host{worker}"), "pool0");
            self.workers.push((spec.host.clone(), spec));
            self.poll(worker, Report::Idle);
            runs.push(self.executes().expect("something waits"));
        }
        let (mut submitting, mut completing) = (Duration::ZERO, Duration::ZERO);
        for _ in 0..CYCLES {
            self.now = self.now + Duration::from_millis(10);
            let start = Instant::now();
            self.submit(&routes[(next % invocations) as usize].clone(), next);
            submitting += start.elapsed();
            let worker = next as usize % BUSY_WORKERS;
            let report = Report::Completed(runs[worker].clone(), Verdict::Answer);
            let start = Instant::now();
            self.poll(worker, report);
            completing += start.elapsed();
            runs[worker] = self.executes().expect("something waits");
            next += 1;
        }
        (submitting / CYCLES as u32, completing / CYCLES as u32)
    }

    fn route_for(&self, invocation: u64) -> Arc<Route> {
        let keys = [format!("user{}", invocation % 10), format!("invocation{invocation}")];
        let invocation_keys = keys.map(Into::into).to_vec();
        Arc::new(Route { invocation_keys, ..(*self.route("real", "pool0")).clone() })
    }

    /// What the last step gave to a worker.
    fn executes(&self) -> Option<ActionDigest> {
        let task = self.out.effects.iter().find_map(|e| match e {
            Effect::Reply { reply: Reply::Execute(task), .. } => Some(*task),
            _ => None,
        })?;
        self.core.task(task).map(|t| t.digest.clone())
    }

    /// What one look at all counts takes.
    fn counts(&self) -> Duration {
        let start = Instant::now();
        for _ in 0..1_000 {
            std::hint::black_box(self.core.metrics(self.now));
        }
        start.elapsed() / 1_000
    }

    /// Submits and completes; returns what each took per step.
    fn cycles(&mut self, pools: usize) -> (Duration, Duration) {
        let route = self.route("real", "pool0");
        let (mut submitting, mut completing) = (Duration::ZERO, Duration::ZERO);
        let by_poll: std::collections::HashMap<Arc<str>, usize> =
            self.workers.iter().enumerate().map(|(i, (k, _))| (k.clone(), i)).collect();
        for n in 0..CYCLES {
            // Fast enough for ended operations to be forgotten on the way.
            self.now = self.now + Duration::from_millis(10);
            let start = Instant::now();
            self.submit(&route, 1_000_000 + n);
            submitting += start.elapsed();
            let task = self.out.effects.iter().find_map(|e| match e {
                Effect::Reply { reply: Reply::Execute(task), .. } => Some(*task),
                _ => None,
            });
            let host = task.and_then(|t| self.core.running_on(t)).map(|(host, _)| host.clone());
            let worker = by_poll[&host.expect("a worker waits")];
            assert_eq!(worker % pools, 0);
            let start = Instant::now();
            self.poll(worker, Report::Completed(digest(1_000_000 + n), Verdict::Answer));
            completing += start.elapsed();
        }
        (submitting / CYCLES as u32, completing / CYCLES as u32)
    }
}

fn digest(n: u64) -> ActionDigest {
    let mut hash = [0; 32];
    hash[..8].copy_from_slice(&n.to_le_bytes());
    ActionDigest::new(1, &hash, 142)
}

fn main() {
    // With the argument `busy` only the second.
    if !std::env::args().any(|a| a == "busy") {
        waiting();
    }
    busy();
}

fn waiting() {
    println!(
        "{:>9} {:>8} {:>6} {:>12} {:>12} {:>10} {:>10}",
        "queued", "workers", "pools", "submit ns", "complete ns", "look-ups", "counts ns"
    );
    for queued in QUEUED {
        for workers in WORKERS {
            for pools in POOLS {
                if pools > workers {
                    continue;
                }
                let mut bench = Bench::new(queued, workers, pools);
                let before = bench.core.probes();
                let (submit, complete) = bench.cycles(pools);
                let probes = (bench.core.probes() - before) as f64 / (2 * CYCLES) as f64;
                let counts = bench.counts();
                println!(
                    "{queued:>9} {workers:>8} {pools:>6} {:>12} {:>12} {probes:>10.1} {:>10}",
                    submit.as_nanos(),
                    complete.as_nanos(),
                    counts.as_nanos()
                );
            }
        }
    }
}

fn busy() {
    println!("{:>12} {:>12} {:>12} {:>10}", "invocations", "submit ns", "complete ns", "look-ups");
    for invocations in INVOCATIONS {
        let mut bench = Bench::new(0, 0, 1);
        let before = bench.core.probes();
        let (submit, complete) = bench.busy_cycles(invocations);
        let probes = (bench.core.probes() - before) as f64 / (2 * CYCLES + BUSY_QUEUED) as f64;
        println!("{invocations:>12} {:>12} {:>12} {probes:>10.1}", submit.as_nanos(), complete.as_nanos());
    }
}
