//! Clients, workers and misfortunes from a seed. `POINTSMAN_SIM_SEED=n` plays one seed again, `POINTSMAN_SIM_STEPS=n`
//! plays longer.

#![allow(clippy::unwrap_used)]

mod sim;
mod support;

use std::collections::BTreeMap;

use sim::Sim;

const SEEDS: u64 = 100;
const STEPS: u64 = 600;

fn number(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|text| text.parse().unwrap_or_else(|_| panic!("{name} must be a number, not '{text}'")))
}

/// Plays one seed; returns a hash of its history, and what happened.
fn play(seed: u64, steps: u64) -> (u64, BTreeMap<&'static str, u64>) {
    let mut sim = Sim::new(seed);
    for step in 0..steps {
        if let Err(text) = sim.turn() {
            panic!(
                "seed {seed}, step {step}: {text}\nplay it again: POINTSMAN_SIM_SEED={seed} cargo test --test simulation"
            );
        }
    }
    let history = sim.history();
    if let Err(text) = sim.drain() {
        panic!("seed {seed}, drained after {steps} steps: {text}");
    }
    (history, sim.model.seen)
}

#[test]
fn nothing_is_lost_or_done_twice() {
    let steps = number("POINTSMAN_SIM_STEPS").unwrap_or(STEPS);
    if let Some(seed) = number("POINTSMAN_SIM_SEED") {
        println!("{:?}", play(seed, steps));
        return;
    }
    let mut seen: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in 0..SEEDS {
        for (what, n) in play(seed, steps).1 {
            *seen.entry(what).or_default() += n;
        }
    }
    println!("{seen:?}");
    for what in [
        "abandoned",
        "accepted",
        "all-busy",
        "assigned",
        "backing-off",
        "cancelled",
        "drained",
        "forgotten",
        "gave up",
        "given back",
        "joined",
        "lost",
        "never-fits",
        "no-property-match",
        "on trial",
        "paused",
        "quarantined",
        "refused",
        "refused submission",
        "released",
        "reported",
        "resumed",
        "sent again",
        "waits for a host",
        "unschedulable",
    ] {
        assert!(seen.get(what).is_some_and(|n| *n >= 20), "hardly ever {what}: {seen:?}");
    }
}

#[test]
fn the_same_seed_has_the_same_history() {
    for seed in 1000..1005 {
        assert_eq!(play(seed, STEPS).0, play(seed, STEPS).0, "seed {seed}");
    }
    assert_ne!(play(1, STEPS).0, play(2, STEPS).0);
}
