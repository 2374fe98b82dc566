//! All that the project promises about speed, as rows to measure.
use super::{Aim, Settings};
use std::time::Duration;

/// Which server a row measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The yardstick.
    Echo,
    /// The scheduler.
    Pointsman,
}

/// A row that is to be measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What is special about it.
    pub name: String,
    /// Which server.
    pub kind: Kind,
    /// What is measured.
    pub settings: Settings,
    /// What it should reach.
    pub aims: Vec<Aim>,
}

/// Rows that are compared with the first of them.
#[derive(Clone, Debug)]
pub struct PlannedGroup {
    /// Short, to be chosen by.
    pub key: &'static str,
    /// What its rows have in common.
    pub title: String,
    /// At least one.
    pub plans: Vec<Plan>,
}

/// Flat: processor time per action must not depend on what an action has nothing to do with.
const FLAT: Aim = Aim::Cpu(1.1);

/// Pools of the rows that have many.
const POOLS: usize = 50;

/// Clients of the rows about the number of workers: as many as the smallest number of workers, so that a worker is
/// always free and all rows make the same calls.
const FLEET_CLIENTS: usize = 10;

/// Streams of the rows about memory.
const WAITING: usize = 20_000;

/// All groups; each row takes `window` after `warm_up`.
pub fn suite(window: Duration, warm_up: Duration) -> Vec<PlannedGroup> {
    let base = Settings { window, warm_up, ..Settings::default() };
    vec![
        throughput(&base),
        one_at_a_time(&base),
        depth(&base),
        fleet(&base, 1),
        fleet(&base, POOLS),
        both(&base),
        busy(&base),
        one_slot(&base),
        memory(&base),
    ]
}

fn plan(name: impl Into<String>, kind: Kind, settings: Settings, aims: &[Aim]) -> Plan {
    Plan { name: name.into(), kind, settings, aims: aims.to_vec() }
}

fn throughput(base: &Settings) -> PlannedGroup {
    let title = format!("{} hosts x {} threads, {} clients", base.hosts, base.threads, base.clients);
    let aims = [Aim::Rate(0.7), Aim::Cpu(1.6)];
    let plans = vec![
        plan("echo", Kind::Echo, base.clone(), &[]),
        plan("pointsman", Kind::Pointsman, base.clone(), &aims),
    ];
    PlannedGroup { key: "throughput", title, plans }
}

fn one_at_a_time(base: &Settings) -> PlannedGroup {
    let settings = Settings { clients: 1, ..base.clone() };
    let plans = vec![
        plan("echo", Kind::Echo, settings.clone(), &[]),
        plan("pointsman", Kind::Pointsman, settings, &[Aim::Assignment(1.5)]),
    ];
    PlannedGroup { key: "one", title: "one client, one action at a time".to_owned(), plans }
}

fn depth(base: &Settings) -> PlannedGroup {
    let row = |unmatched, unmatched_classes| {
        let settings = Settings { pools: 1, unmatched, unmatched_classes, ..base.clone() };
        let aims = if unmatched == 0 { vec![] } else { vec![FLAT] };
        let name = match unmatched {
            0 => "nothing waits".to_owned(),
            _ => format!("{unmatched} wait in {unmatched_classes} classes"),
        };
        plan(name, Kind::Pointsman, settings, &aims)
    };
    let plans = vec![row(0, 1), row(1000, 100), row(10_000, 100), row(100_000, 100), row(100_000, 10_000)];
    PlannedGroup { key: "depth", title: "queued actions that no worker can run".to_owned(), plans }
}

fn fleet(base: &Settings, pools: usize) -> PlannedGroup {
    let pointsman = [10, 100, 1000, 5000].map(|workers| {
        let aims = if workers == 10 { vec![] } else { vec![FLAT] };
        let settings = in_fleet(base, workers, pools);
        plan(format!("{workers} workers, {} pools", settings.pools), Kind::Pointsman, settings, &aims)
    });
    // What the same costs without scheduling: more memory that is cold, for one.
    let echo = [10, 5000].map(|workers| {
        plan(format!("echo, {workers} workers"), Kind::Echo, in_fleet(base, workers, pools), &[])
    });
    let plans = pointsman.into_iter().chain(echo).collect();
    let key = if pools == 1 { "fleet" } else { "fleet-pools" };
    let title = format!("workers, all in use, in {pools} pools or fewer; {FLEET_CLIENTS} clients");
    PlannedGroup { key, title, plans }
}

/// Clients take the pools in turn, and no two of them the same.
fn in_fleet(base: &Settings, workers: usize, pools: usize) -> Settings {
    Settings {
        hosts: workers,
        threads: 1,
        worker_connections: 10,
        clients: FLEET_CLIENTS,
        pools: pools.min(workers),
        // Whole rounds of all clients and pools.
        actions: 4000,
        ..base.clone()
    }
}

fn both(base: &Settings) -> PlannedGroup {
    let large = Settings { unmatched: 100_000, unmatched_classes: 100, ..in_fleet(base, 5000, POOLS) };
    let plans = vec![
        plan("10 workers, nothing waits", Kind::Pointsman, in_fleet(base, 10, 1), &[]),
        plan("5000 workers, 50 pools, 100000 wait", Kind::Pointsman, large, &[FLAT]),
    ];
    PlannedGroup { key: "both", title: "many workers and a deep queue".to_owned(), plans }
}

fn busy(base: &Settings) -> PlannedGroup {
    let settings = Settings {
        hosts: 250,
        threads: 4,
        clients: 3000,
        connections: 12,
        actions: 6000,
        action_time: Duration::from_millis(200),
        // Until all clients are there and the slots have been full for a while.
        warm_up: base.warm_up.max(Duration::from_secs(3)),
        ..base.clone()
    };
    let plans = vec![
        plan("echo", Kind::Echo, settings.clone(), &[]),
        plan("pointsman", Kind::Pointsman, settings, &[Aim::Slots(0.95)]),
    ];
    PlannedGroup { key: "busy", title: "1000 slots, actions of 200 ms, 3000 clients".to_owned(), plans }
}

fn one_slot(base: &Settings) -> PlannedGroup {
    let settings = Settings { hosts: 1, threads: 1, ..base.clone() };
    let plans = vec![
        plan("echo", Kind::Echo, settings.clone(), &[]),
        plan("pointsman", Kind::Pointsman, settings, &[Aim::Tail(1.3)]),
    ];
    PlannedGroup { key: "one-slot", title: "one slot, 64 clients".to_owned(), plans }
}

fn memory(base: &Settings) -> PlannedGroup {
    let settings = Settings { hosts: 0, clients: 0, unmatched: WAITING, pools: 1, ..base.clone() };
    let plans = vec![
        plan("echo", Kind::Echo, settings.clone(), &[]),
        plan("pointsman", Kind::Pointsman, settings, &[Aim::BytesOverFirst(2048.0)]),
    ];
    PlannedGroup { key: "memory", title: format!("memory of {WAITING} streams that wait"), plans }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn clients_of_a_fleet_never_meet_in_a_pool() {
        for workers in [10, 100, 5000] {
            let s = in_fleet(&Settings::default(), workers, POOLS);
            let owner = |action: usize| action % s.clients;
            for (a, b) in (0..s.actions).map(|a| (a, a + s.pools)).take_while(|(_, b)| *b < s.actions) {
                assert_eq!(owner(a), owner(b), "actions {a} and {b} of the same pool");
            }
            assert!(
                s.hosts >= s.pools
                    && s.actions.is_multiple_of(s.clients)
                    && s.actions.is_multiple_of(s.pools)
            );
        }
    }

    #[test]
    fn each_group_begins_with_what_the_others_are_compared_with() {
        let second = Duration::from_secs(1);
        for group in suite(second, second) {
            let first = group.plans.first().unwrap();
            assert!(first.aims.is_empty(), "{}", group.key);
            assert!(group.plans.iter().all(|p| p.settings.window == second));
        }
    }
}
