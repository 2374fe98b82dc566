//! Policies are swapped under running calls, and nobody notices.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use pointsman_policy::Runtime;

use crate::guests::{ACCEPT, Guest, import};
use crate::support::{facts, first, runtime, strings, wishes};

/// A policy that notes its own name.
fn noting(name: &str) -> Vec<u8> {
    let length = name.len();
    let mut guest = Guest::routing(
        &import("route", "note", "i32 i32", ""),
        &format!("(call $route.note (i32.const 128) (i32.const {length})) {ACCEPT}"),
    );
    guest.name = name.into();
    guest.build()
}

#[test]
fn every_decision_names_the_version_that_made_it() {
    let runtime = runtime();
    let files: Vec<Vec<u8>> = ["one", "two", "three"].iter().map(|name| noting(name)).collect();
    runtime.install(runtime.load(&files[0], "{}").unwrap());
    let stop = AtomicBool::new(false);
    let seen: Mutex<HashMap<(u64, Arc<str>), u64>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let facts = Arc::new(facts());
                let mut last = 0;
                while !stop.load(Relaxed) {
                    let decision = runtime.route(&facts, wishes(&facts));
                    assert_eq!(decision.fallback, None);
                    assert_eq!(strings(&decision.route.notes), [&*decision.policy.name]);
                    assert!(decision.generation >= last, "a thread never goes back to an older version");
                    last = decision.generation;
                    let key = (decision.generation, decision.policy.digest_hex.clone());
                    *seen.lock().unwrap().entry(key).or_default() += 1;
                }
            });
        }
        for file in files.iter().cycle().take(60) {
            runtime.install(runtime.load(file, "{}").unwrap());
        }
        stop.store(true, Relaxed);
    });
    let seen = seen.into_inner().unwrap();
    let generations: std::collections::HashSet<u64> =
        seen.keys().map(|(generation, _)| *generation).collect();
    assert_eq!(generations.len(), seen.len(), "each generation is of one version");
    let digests: std::collections::HashSet<&str> = seen.keys().map(|(_, digest)| &**digest).collect();
    assert_eq!(digests.len(), 3, "all versions decided: {seen:?}");
    assert_eq!(runtime.counters().fallbacks, 0);
    assert_eq!(runtime.in_force().number(), 62);
}

#[test]
fn replaced_generations_are_freed() {
    let runtime = runtime();
    let install = |runtime: &Runtime, name| {
        Arc::downgrade(&runtime.install(runtime.load(&noting(name), "{}").unwrap()))
    };
    let old = install(&runtime, "old");
    let held = runtime.in_force();
    let new = install(&runtime, "new");
    assert!(old.upgrade().is_some(), "as long as somebody looks at it");
    drop(held);
    assert!(old.upgrade().is_none());
    assert!(new.upgrade().is_some());
    runtime.install(runtime.load(Runtime::default_bytes(), "{}").unwrap());
    assert!(new.upgrade().is_none());
    assert_eq!(&*first(&runtime.in_force()).policy().name, "default");
}

#[test]
fn more_threads_than_instances() {
    let runtime = Runtime::new(pointsman_policy::Options { instances: 2, ..Default::default() }).unwrap();
    let facts = Arc::new(facts());
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                for _ in 0..500 {
                    assert_eq!(runtime.route(&facts, wishes(&facts)).fallback, None);
                }
            });
        }
    });
    assert_eq!(runtime.counters().calls, 8_000);
    assert!(runtime.counters().instances <= 2, "{}", runtime.counters().instances);
}
