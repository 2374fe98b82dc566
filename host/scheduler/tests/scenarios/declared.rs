//! Pools that the operator declares, whose workers come and go.

use pointsman_scheduler::declared::DeclaredPool;
use pointsman_scheduler::explain::{Obstacle, Reason};
use pointsman_scheduler::explain_text::Verdict;
use pointsman_scheduler::route::{Property, SizeClass};

use crate::support::{Ask, World, ask, worker};

/// A pool of hosts with such a platform.
fn pool(w: &World, name: &str, platform: &[(&str, &str)]) -> DeclaredPool {
    let platform: Vec<_> = platform.iter().map(|(k, v)| Property::new(*k, *v)).collect();
    DeclaredPool {
        name: name.into(),
        instance_name_prefix: None,
        size_class: None,
        asks: w.schema.action(&platform).unwrap(),
        offers: w.schema.worker(&platform).unwrap(),
        strategies: vec![],
        max_inflight_tasks: 0,
    }
}

fn world() -> World {
    let mut w = World::default();
    let gpu = pool(&w, "gpu", &[("gpu", "a100"), ("cpu", "16")]);
    w.core.declare([gpu].into());
    w
}

fn waits(w: &mut World, ask: &Ask) -> String {
    let operation = w.submit(ask);
    w.pass(3600);
    w.state(operation)
}

#[test]
fn what_a_declared_pool_could_run_waits_for_its_workers() {
    let mut w = world();
    let a = w.submit(&ask("a").with("gpu", "a100").with("cpu", "8"));
    w.pass(3600);
    assert_eq!(w.state(a), "queued");
    assert_eq!(
        w.core.explain(w.task(a)).unwrap().to_string(),
        "queued for 60 min (pool-empty): a declared pool could run it, and no worker of that pool that can is there now \
         (gpu); to unblock it: start a worker of the pool gpu, or see why none comes by itself"
    );
    assert_eq!(w.idle(&worker("h").with("gpu", "a100").with("cpu", "16").pool("gpu")), "run a");
}

#[test]
fn what_no_declared_pool_could_run_ends() {
    let mut w = world();
    assert!(waits(&mut w, &ask("a").with("gpu", "h100")).starts_with("unschedulable: "));
    assert!(waits(&mut w, &ask("b").with("gpu", "a100").with("cpu", "17")).starts_with("unschedulable: "));
    assert!(waits(&mut w, &ask("c").with("gpu", "a100").pool("cpu")).starts_with("unschedulable: "));
    assert_eq!(waits(&mut w, &ask("d").with("gpu", "a100").pool("gpu")), "queued");
}

#[test]
fn of_one_lane_each_class_is_looked_at() {
    let mut w = world();
    let [a, b] = ["h100", "a100"].map(|gpu| w.submit(&ask(gpu).with("gpu", gpu)));
    assert_eq!(w.core.counts().lanes, 1);
    w.pass(3600);
    assert!(w.state(a).starts_with("unschedulable: "));
    assert_eq!(w.state(b), "queued");
}

#[test]
fn a_plan_says_that_it_would_wait() {
    let w = world();
    let plan = w.plan(&ask("a").with("gpu", "a100"));
    assert_eq!((plan.verdict(), plan.declared.as_deref()), (Verdict::Waits, Some("gpu")));
    assert_eq!(w.plan(&ask("b").with("gpu", "h100")).verdict(), Verdict::Never);
}

#[test]
fn a_pool_of_one_prefix_or_size() {
    let mut w = World::default();
    let mut big = pool(&w, "big", &[("cpu", "16")]);
    big.instance_name_prefix = Some("main".into());
    big.size_class = Some(2);
    w.core.declare([big].into());
    let ask = |name| ask(name).with("cpu", "16");
    assert!(waits(&mut w, &ask("a").instance("other").size(2)).starts_with("unschedulable: "));
    assert!(waits(&mut w, &ask("b").instance("main/x").size(1)).starts_with("unschedulable: "));
    assert_eq!(waits(&mut w, &ask("c").instance("main/x").size(2)), "queued");
    assert_eq!(waits(&mut w, &ask("d").instance("main")), "queued");
}

#[test]
fn what_is_meant_for_a_size_waits_for_its_pool_and_runs_on_no_other() {
    let mut w = World::default();
    let mut big = pool(&w, "big", &[]);
    big.size_class = Some(4);
    w.core.declare([big].into());
    let small = worker("small").size(1);
    w.idle(&small);
    for (name, size) in
        [("a", SizeClass::Largest), ("b", SizeClass::AtLeast(2)), ("c", SizeClass::AtLeast(9))]
    {
        let op = w.submit(&ask(name).sized(size));
        let why = w.why(op);
        assert_eq!((why.reason, why.declared.as_deref()), (Reason::PoolEmpty, Some("big")), "{name}");
        let plan = w.plan(&ask(name).sized(size));
        assert_eq!((plan.verdict(), plan.counts), (Verdict::Waits, vec![(Obstacle::OtherSizeClass, 1)]));
    }
    let d = w.submit(&ask("d").sized(SizeClass::Smallest));
    assert_eq!(w.state(d), "on small");
    assert_eq!(w.idle(&worker("big").size(4).pool("big")), "run a");
}

#[test]
fn a_worker_is_of_the_pool_whose_platform_it_has() {
    let w = World::default();
    let gpu = pool(&w, "gpu", &[("gpu", "a100"), ("cpu", "16")]);
    let has = |properties: &[(&str, &str)]| {
        let properties: Vec<_> = properties.iter().map(|(k, v)| Property::new(*k, *v)).collect();
        gpu.has("", 0, &w.schema.worker(&properties).unwrap())
    };
    assert!(has(&[("gpu", "a100"), ("cpu", "16"), ("os", "linux")]));
    assert!(has(&[("gpu", "a100"), ("gpu", "mig"), ("cpu", "32")]));
    assert!(!has(&[("gpu", "a100"), ("cpu", "8")]));
    assert!(!has(&[("gpu", "none"), ("cpu", "16")]));
    assert!(!has(&[("cpu", "16")]));
}

#[test]
fn when_its_workers_go_what_waits_is_kept() {
    let mut w = world();
    let h = worker("h").with("gpu", "a100").with("cpu", "16").pool("gpu");
    w.idle(&h);
    let [a, b] = ["a", "b"].map(|name| w.submit(&ask(name).with("gpu", "a100")));
    assert_eq!((w.state(a), w.state(b)), ("on h".to_owned(), "queued".to_owned()));
    w.pass(7200);
    assert_eq!((w.state(a), w.state(b)), ("queued".to_owned(), "queued".to_owned()));
}

#[test]
fn a_declared_pool_says_what_its_workers_offer() {
    let mut w = World::default();
    let gpu = pool(&w, "gpu", &[("gpu", "a100")]);
    w.core.declare([DeclaredPool { strategies: vec!["remote".into()], ..gpu }].into());
    let one = waits(&mut w, &ask("a").with("gpu", "a100").strategies(&["local", "remote"]));
    assert_eq!(one, "queued");
    let other = waits(&mut w, &ask("b").with("gpu", "a100").strategies(&["local"]));
    assert!(other.starts_with("unschedulable"), "{other}");
}
