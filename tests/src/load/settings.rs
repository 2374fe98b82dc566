//! What is measured.
use crate::fake_client::ActionSpec;
use std::time::Duration;

/// The key that spreads workers and actions over pools. The server has to know it as `exact`.
pub(super) const POOL_KEY: &str = "load-pool";

/// What is measured, the same for each server.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Worker hosts.
    pub hosts: usize,
    /// Threads of each host; each is a worker by itself.
    pub threads: usize,
    /// HTTP/2 connections that the hosts share.
    pub worker_connections: usize,
    /// Execute streams that are open at any time, one action after another. With 0 nothing runs: only what waits
    /// is measured.
    pub clients: usize,
    /// HTTP/2 connections that the clients share.
    pub connections: usize,
    /// Length of the measured window.
    pub window: Duration,
    /// Time before the window that is not measured.
    pub warm_up: Duration,
    /// Distinct actions that the clients go round in. None is cacheable, so that none is shared.
    pub actions: usize,
    /// Properties of both actions and workers.
    pub platform: Vec<(String, String)>,
    /// Pools that hosts and actions are spread over, by one more property; with 0 there is no such property.
    pub pools: usize,
    /// Further workers, spread over as many pools of their own, which no action asks for.
    pub idle_workers: usize,
    /// Actions queued before that ask for pools without workers.
    pub unmatched: usize,
    /// How many different pools those ask for.
    pub unmatched_classes: usize,
    /// How long each action executes.
    pub action_time: Duration,
}

impl Default for Settings {
    /// 16 hosts of 4 threads, 64 clients, and nothing else.
    fn default() -> Self {
        Self {
            hosts: 16,
            threads: 4,
            worker_connections: 16,
            clients: 64,
            connections: 4,
            window: Duration::from_secs(10),
            warm_up: Duration::from_secs(2),
            actions: 4096,
            platform: vec![("OSFamily".to_owned(), "linux".to_owned())],
            pools: 0,
            idle_workers: 0,
            unmatched: 0,
            unmatched_classes: 100,
            action_time: Duration::ZERO,
        }
    }
}

impl Settings {
    /// Actions that can execute at one time.
    pub fn slots(&self) -> usize {
        self.hosts * self.threads
    }

    /// Without what only waits, for a server that does not match: it would give the workers all of it.
    pub fn without_bystanders(&self) -> Self {
        Self { idle_workers: 0, unmatched: 0, ..self.clone() }
    }

    /// All of it in one line.
    pub fn summary(&self) -> String {
        let mut text = format!(
            "{} hosts x {} threads on {} connections, {} clients on {} connections, {} distinct actions",
            self.hosts, self.threads, self.worker_connections, self.clients, self.connections, self.actions
        );
        let mut also = |number: u128, what: &str| {
            if number > 0 {
                text.push_str(&format!(", {number} {what}"));
            }
        };
        also(self.pools as u128, "pools");
        also(self.idle_workers as u128, "idle workers");
        also(self.unmatched as u128, "actions that wait");
        also(self.action_time.as_millis(), "ms per action");
        let (window, warm_up) = (self.window.as_secs_f64(), self.warm_up.as_secs_f64());
        format!("{text}, {window:.1} s after {warm_up:.1} s of warm-up")
    }

    /// Whether the server has to know the pools' key.
    pub fn needs_pools(&self) -> bool {
        self.pools > 0 || self.idle_workers > 0 || self.unmatched > 0
    }

    /// Properties of hosts and actions of this index.
    pub(super) fn platform_of(&self, index: usize) -> Vec<(String, String)> {
        match self.pools {
            0 => self.platform.clone(),
            pools => self.in_pool(format!("pool-{}", index % pools)),
        }
    }

    /// Properties with a pool.
    pub(super) fn in_pool(&self, pool: String) -> Vec<(String, String)> {
        let mut platform = self.platform.clone();
        platform.push((POOL_KEY.to_owned(), pool));
        platform
    }

    /// What all actions have in common.
    pub(super) fn action(&self) -> ActionSpec {
        ActionSpec { platform: self.platform.clone(), do_not_cache: true, ..ActionSpec::default() }
    }
}
