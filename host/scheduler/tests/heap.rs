//! Heap of the core per queued action, counted by the allocator. In a binary of its own, with a single test: nothing else
//! allocates meanwhile.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod support;

use std::sync::Arc;
use std::time::Duration;

use peak_alloc::PeakAlloc;
use pointsman_scheduler::effect::Output;
use pointsman_scheduler::event::{Event, Submit};
use pointsman_scheduler::route::Route;
use pointsman_scheduler::scheduler::{Config, Scheduler};
use pointsman_scheduler::time::Time;

use support::{ask, digest, schema};

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

const ACTIONS: usize = 100_000;

/// Bytes of heap for each of many actions that wait, one after another by these routes. Digests and names are the
/// core's and count; routes are what it is handed, and don't.
fn bytes_per_action(routes: &[Arc<Route>]) -> usize {
    let config = Config { abandoned: Duration::from_secs(1 << 30), ..Config::default() };
    let schema = schema();
    let mut core = Scheduler::new(config, schema.clone());
    let mut out = Output::default();
    let before = HEAP.current_usage();
    for (n, route) in routes.iter().cycle().take(ACTIONS).enumerate() {
        let submit = Submit {
            name: uuid(n).into(),
            instance: "".into(),
            digest: digest(&format!("{n:032}")),
            route: route.clone(),
            asked: schema.action(&route.platform).unwrap(),
            preferred: Vec::new(),
        };
        core.step(Time(n as u64), Event::Submit(submit), &mut out);
        out.clear();
    }
    assert_eq!(core.counts().queued, ACTIONS);
    (HEAP.current_usage() - before) / ACTIONS
}

/// As long as a real name.
fn uuid(n: usize) -> String {
    format!("{n:036}")
}

#[test]
fn a_kibibyte_per_queued_action_at_most() {
    let plain =
        || ask("").with("os", "linux").with("cpu", "1").with("image", "debian").invocation("user/build");
    let one = [Arc::new(plain().route)];
    let builds: Vec<_> =
        (0..1000).map(|n| Arc::new(plain().invocation(&format!("user/{n}")).route)).collect();
    let classes: Vec<_> = (0..10_000).map(|n| Arc::new(plain().with("tag", &n.to_string()).route)).collect();
    let figures = [
        ("of one class and one build", bytes_per_action(&one)),
        ("of a thousand builds", bytes_per_action(&builds)),
        ("of ten thousand classes", bytes_per_action(&classes)),
    ];
    for (name, bytes) in figures {
        println!("{bytes} bytes per queued action {name}");
    }
    for (name, bytes) in figures {
        assert!(bytes <= 1024, "{bytes} bytes per queued action {name}");
    }
}
