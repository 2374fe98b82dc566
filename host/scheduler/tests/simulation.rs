//! Clients, workers and misfortunes from a seed. `POINTSMAN_SIM_SEED=n` plays one seed again, `POINTSMAN_SIM_STEPS=n`
//! plays longer.
//!
//! Ten million steps, on all cores: `cargo test --profile ci -p pointsman-scheduler --test simulation -- --ignored`; more
//! with `POINTSMAN_SIM_SEEDS=n`. There large states are looked at now and then only; what it finds is looked at after
//! every step when it is played again.

#![allow(clippy::unwrap_used)]

mod sim;
mod support;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use sim::Sim;

const SEEDS: u64 = 100;
const STEPS: u64 = 600;

fn number(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|text| text.parse().unwrap_or_else(|_| panic!("{name} must be a number, not '{text}'")))
}

/// Seeds and steps of the long run: a thousand states of mind, and time for each to go wrong.
const LONG_SEEDS: u64 = 1_000;
const LONG_STEPS: u64 = 10_000;
const FIRST_LONG_SEED: u64 = 1_000_000;

/// Plays one seed; returns a hash of its history, and what happened.
fn play(seed: u64, steps: u64) -> (u64, BTreeMap<&'static str, u64>) {
    play_looking(seed, steps, true)
}

fn play_looking(seed: u64, steps: u64, thorough: bool) -> (u64, BTreeMap<&'static str, u64>) {
    let mut sim = Sim::new(seed);
    sim.thorough = thorough;
    for step in 0..steps {
        if let Err(text) = sim.turn() {
            panic!(
                "seed {seed}, step {step}: {text}\nplay it again: POINTSMAN_SIM_SEED={seed} POINTSMAN_SIM_STEPS={} \
                 cargo test --test simulation",
                step + 1
            );
        }
    }
    let history = sim.history();
    if let Err(text) = sim.drain() {
        panic!("seed {seed}, drained after {steps} steps: {text}");
    }
    (history, sim.model.seen)
}

/// A worker is lost and a task comes back from the host it waited for, both in one step: the one due first is handed out
/// first, whatever the other's priority.
#[test]
fn what_is_due_in_one_step_happens_in_order_of_time() {
    play(1_000_971, 441);
}

/// A task is given back and brings its host into quarantine, where another waited for that host: both are in the queue
/// again, and the worker that waits elsewhere takes the older one.
#[test]
fn what_waited_for_a_host_does_not_overtake_what_failed_there() {
    play(1_000_092, 3_240);
    play(1_000_697, 6_402);
}

/// A group's token comes back, and what it is for waits for the host of its affinity key, which is not the first that is open.
#[test]
fn a_token_finds_what_waits_for_one_host() {
    play(1_000_188, 7_262);
}

/// A host is well again, and so the last resort of what had failed elsewhere is none any more.
#[test]
fn what_had_a_host_kept_as_a_last_resort_comes_after_those_who_chose() {
    play(1_000_613, 8_281);
}

/// The last worker of the largest size is lost. In the same step a task of that size has its turn and a host is kept free for it,
/// while another, of the size that is meant now, waits with room for it.
#[test]
fn what_has_its_turn_as_its_size_goes_runs_where_there_is_room() {
    play(1_000_671, 3_800);
}

#[test]
fn nothing_is_lost_when_operators_end_tasks_and_workers() {
    let mut seen: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in sim::ENDS_FROM..sim::ENDS_FROM + SEEDS / 4 {
        for (what, n) in play(seed, STEPS).1 {
            *seen.entry(what).or_default() += n;
        }
    }
    println!("{seen:?}");
    assert!(["killed", "told to go"].iter().all(|what| seen.get(what).is_some_and(|n| *n >= 20)), "{seen:?}");
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
        "alone",
        "accepted",
        "another than before",
        "all-busy",
        "assigned",
        "backing-off",
        "cancelled",
        "drained",
        "exclusive",
        "forgotten",
        "gave up",
        "given back",
        "group-full",
        "in a group",
        "joined",
        "keeps a host free",
        "lost",
        "never-fits",
        "no-exclusive",
        "no-property-match",
        "not run again",
        "not yet what it says it is",
        "of a relative size",
        "on trial",
        "paused",
        "quarantined",
        "refused",
        "refused submission",
        "released",
        "reported",
        "answered by the cache",
        "reserved",
        "resumed",
        "run again",
        "sent again",
        "to a preferred host",
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

/// Some three minutes of two cores.
#[test]
#[ignore = "long: run with --ignored, optimised"]
fn ten_million_steps() {
    let (seeds, steps) = (
        number("POINTSMAN_SIM_SEEDS").unwrap_or(LONG_SEEDS),
        number("POINTSMAN_SIM_STEPS").unwrap_or(LONG_STEPS),
    );
    let next = AtomicU64::new(FIRST_LONG_SEED);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= FIRST_LONG_SEED + seeds {
                        return;
                    }
                    play_looking(seed, steps, false);
                }
            });
        }
    });
}
