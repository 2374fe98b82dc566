//! What policies cost: `cargo bench --profile ci --bench route [-- COMPONENT.wasm …]`.
//!
//! Prints the median of many short batches in nanoseconds, so that what else the machine does falls into few of them, for
//! one thread and for as many as there are cores. Further components, in whatever language, are put in force one after
//! the other with the configuration `{}`.

#![allow(clippy::print_stdout)]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pointsman_policy::{
    ActionFacts, Attempt, Candidate, CommandFacts, Isolation, LinkPlan, Manager, ManagerOptions, Mode,
    Options, Outcome, Plan, Push, Rollout, Runtime, Source, Terms, WatchOptions, WorkerFacts,
};
use pointsman_scheduler::route::{Property, Route};

const BATCH: u32 = 100;

fn main() {
    // Cargo hands its own flags on.
    let files: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    if let Err(error) = run(&files) {
        println!("{error}");
        std::process::exit(1);
    }
}

fn run(files: &[String]) -> Result<(), Box<dyn std::error::Error>> {
    let runtime = Arc::new(Runtime::new(Options::default())?);
    let cores = std::thread::available_parallelism().map_or(1, Into::into);
    let Actions { facts, route, old_client } = Actions::new();
    println!("{:<58}{:>12}{:>12}", "", "ns/call", "calls/s");

    for threads in [1, cores] {
        let own: Vec<Actions> = (0..threads).map(|_| Actions::new()).collect();
        report_each(&format!("the default policy, natively, {threads} threads"), threads, |thread| {
            drop(black_box(natively(&own[thread].facts, own[thread].route.clone())));
        });
    }
    report("clone of the route, 8 properties", 1, || drop(black_box(route.clone())));
    for threads in [1, cores, 8 * cores] {
        // Actions that have nothing in common, as those of a server.
        let own: Vec<Actions> = (0..threads).map(|_| Actions::new()).collect();
        report_each(&format!("default policy, 8 properties, {threads} threads"), threads, |thread| {
            drop(black_box(runtime.route(&own[thread].facts, own[thread].route.clone())));
        });
    }
    let call = || drop(black_box(runtime.route(&old_client, Route::default())));
    report("default policy, properties in the Command", 1, call);
    for links in [1, 3] {
        let _manager = chain_of(&runtime, links)?;
        let call = || drop(black_box(runtime.route(&facts, route.clone())));
        report(&format!("chain of {links}"), 1, call);
    }
    {
        let manager = chain_of(&runtime, 1)?;
        push(&manager, Runtime::default_bytes().into(), Some(Rollout::Trial(Mode::Shadow(1.0))))?;
        let call = || drop(black_box(runtime.route(&facts, route.clone())));
        report("with a shadow that is asked about everything", 1, call);
    }
    runtime.install(runtime.load_isolated(Runtime::default_bytes(), "{}", Isolation::Call)?);
    report("isolation: \"call\"", 1, || drop(black_box(runtime.route(&facts, route.clone()))));
    recorded(&facts, &route)?;
    swaps()?;
    for file in files {
        others(&runtime, Path::new(file), &facts, &route)?;
    }
    println!("instances made: {}", runtime.counters().instances);
    Ok(())
}

struct Actions {
    facts: Arc<ActionFacts>,
    route: Route,
    old_client: Arc<ActionFacts>,
}

impl Actions {
    fn new() -> Self {
        let platform: Vec<Property> =
            (0..8).map(|i| Property::new(format!("name{i}"), format!("value{i}"))).collect();
        let facts = ActionFacts {
            digest: "0a1b2c3d/142".into(),
            platform: Some(platform.clone()),
            invocation_id: "0a1b2c3d-0000-4000-8000-000000000001".into(),
            correlated_invocations_id: "0a1b2c3d-0000-4000-8000-000000000002".into(),
            ..ActionFacts::default()
        };
        let command = CommandFacts { platform: platform.clone(), ..CommandFacts::default() };
        let old_client = ActionFacts { platform: None, command: Some(command.into()), ..facts.clone() };
        let route = Route { platform, ..Route::default() };
        Self { facts: Arc::new(facts), route, old_client: Arc::new(old_client) }
    }
}

/// What the default policy does, without Wasm: the yardstick.
fn natively(facts: &ActionFacts, mut route: Route) -> Route {
    if facts.platform.is_none()
        && let Some(command) = &facts.command
    {
        route.platform.clone_from(&command.platform);
        route.sort_platform();
    }
    let keys = [&facts.correlated_invocations_id, &facts.invocation_id];
    route.invocation_keys = keys.into_iter().filter(|key| !key.is_empty()).cloned().collect();
    route
}

/// A chain of default policies.
fn chain_of(runtime: &Arc<Runtime>, links: usize) -> Result<Manager, Box<dyn std::error::Error>> {
    let names: Vec<Arc<str>> = (0..links).map(|number| format!("link {number}").into()).collect();
    let plan = Plan {
        links: names.iter().map(|name| (name.clone(), LinkPlan::default())).collect(),
        chains: BTreeMap::from([("".into(), names)]),
        ..Plan::default()
    };
    let options = ManagerOptions { watch: WatchOptions::default(), on_swap: Box::new(|_| ()) };
    Ok(Manager::start(runtime.clone(), plan, options)?)
}

fn push(
    manager: &Manager,
    bytes: Vec<u8>,
    rollout: Option<Rollout>,
) -> Result<String, Box<dyn std::error::Error>> {
    Ok(manager.push(Push { link: String::new(), bytes, signature: None, rollout, again: true })?)
}

/// The same with decision records, which are made and dropped here.
fn recorded(facts: &Arc<ActionFacts>, route: &Route) -> Result<(), Box<dyn std::error::Error>> {
    let recorder = Arc::new(|record| drop(black_box(record)));
    let runtime = Runtime::new(Options { recorder: Some(recorder), ..Options::default() })?;
    report("default policy, recorded", 1, || drop(black_box(runtime.route(facts, route.clone()))));
    Ok(())
}

/// From a file that is replaced until its policy is in force: compiled, and from the cache of compiled ones.
fn swaps() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("policy.wasm");
    let state_dir = Some(folder.path().join("policies"));
    let runtime = Arc::new(Runtime::new(Options { state_dir, ..Options::default() })?);
    // The same with a custom section at its end: its id, its size, the length of its name, its name.
    let version = |name: u8| [Runtime::default_bytes(), &[0, 2, 1, name]].concat();
    let replace = |content: &[u8]| -> std::io::Result<Duration> {
        let next = file.with_extension("next");
        std::fs::write(&next, content)?;
        let (before, started) = (runtime.in_force().number(), Instant::now());
        std::fs::rename(&next, &file)?;
        while runtime.in_force().number() == before {
            std::thread::sleep(Duration::from_micros(200));
        }
        Ok(started.elapsed())
    };
    std::fs::write(&file, version(b'0'))?;
    let link = LinkPlan { source: Source::File(file.clone()), ..LinkPlan::default() };
    let plan = Plan { links: BTreeMap::from([("default".into(), link)]), ..Plan::default() };
    let options = ManagerOptions { watch: WatchOptions::default(), on_swap: Box::new(|_| ()) };
    let _manager = Manager::start(runtime.clone(), plan, options)?;
    for (name, versions) in [("compiled", b"abcde"), ("from the cache", b"abcde")] {
        let mut took = versions.iter().map(|v| replace(&version(*v))).collect::<Result<Vec<_>, _>>()?;
        took.sort_unstable();
        println!("file replaced to policy in force, {name}: {:?} to {:?}", took[0], took[took.len() - 1]);
    }
    Ok(())
}

/// All hooks of a component, and what it takes to load it.
fn others(
    runtime: &Arc<Runtime>,
    file: &Path,
    facts: &Arc<ActionFacts>,
    route: &Route,
) -> Result<(), Box<dyn std::error::Error>> {
    let bytes = std::fs::read(file)?;
    let started = Instant::now();
    let policy = runtime.load(&bytes, "{}")?;
    let took = started.elapsed();
    let hooks: Vec<_> = policy.hooks().iter().map(|hook| hook.name()).collect();
    println!("{}: {} bytes, loaded in {took:?}, hooks {}", file.display(), bytes.len(), hooks.join(", "));
    runtime.install(policy);
    if hooks.contains(&"on-action") {
        if let Some(failed) = runtime.route(facts, route.clone()).fallback {
            return Err(failed.into());
        }
        report("  on-action", 1, || drop(black_box(runtime.route(facts, route.clone()))));
    }
    let worker = Arc::new(WorkerFacts { platform: route.platform.clone(), ..WorkerFacts::default() });
    let terms = Terms { platform: route.platform.clone(), ..Terms::default() };
    if hooks.contains(&"on-worker") {
        report("  on-worker", 1, || drop(black_box(runtime.admit(&worker, terms.clone()))));
    }
    if hooks.contains(&"on-result") {
        report("  on-result", 1, || drop(black_box(runtime.completed(facts, &attempt(), route.clone()))));
    }
    if hooks.contains(&"on-assignment") {
        let candidates = [candidate("a"), candidate("b"), candidate("c")];
        report("  on-assignment, 3 candidates", 1, || drop(black_box(runtime.rank(facts, &candidates))));
    }
    Ok(())
}

fn attempt() -> Attempt {
    Attempt {
        outcome: Outcome::Succeeded,
        exit_code: 0,
        signal: None,
        size_class: 0,
        worker: "worker".into(),
        strategy: None,
        wall: Duration::from_secs(1),
        cores: Some(1.0),
        peak_memory_mib: Some(100),
    }
}

fn candidate(name: &str) -> Candidate {
    Candidate {
        worker: name.into(),
        pool: "default".into(),
        executing: 1,
        affine: false,
        idle: Duration::ZERO,
    }
}

/// Prints the median time of a call in nanoseconds, as each of so many threads sees it, and how many calls all of them
/// made in a second.
fn report(name: &str, threads: usize, call: impl Fn() + Sync) {
    report_each(name, threads, |_| call());
}

/// The same for a call that knows which of the threads makes it.
fn report_each(name: &str, threads: usize, call: impl Fn(usize) + Sync) {
    let (started, call) = (Instant::now(), &call);
    let mut samples: Vec<u64> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                scope.spawn(move || {
                    let end = started + Duration::from_millis(1000);
                    let mut samples = Vec::new();
                    while Instant::now() < end {
                        let start = Instant::now();
                        (0..BATCH).for_each(|_| call(thread));
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
    println!("{name:<58}{median:>12}{per_second:>12.0}");
}
