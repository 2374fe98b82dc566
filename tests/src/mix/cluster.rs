//! Nodes, the workers on them, and how fast actions execute there.
use super::Action;
use std::time::Duration;

/// Cores of a node.
pub const NODE_CORES: f64 = 16.0;

/// What a worker requests of its node, and what it is.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// How it is called.
    pub name: &'static str,
    /// As it registers.
    pub size_class: u32,
    /// Cores that it requests. It may use more where the node has some left.
    pub cores: f64,
    /// Memory limit in MiB; whoever needs more is killed.
    pub memory_mib: u32,
    /// So many are on a node, next to what else runs there.
    pub per_node: usize,
}

/// One worker: executes an action at a time.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) shape: Shape,
    pub(super) node: usize,
    pub(super) runs: Option<Running>,
    pub(super) busy_s: f64,
}

#[derive(Clone, Debug)]
pub(super) struct Running {
    /// Index of the action.
    pub(super) action: usize,
    /// Seconds it would still take with as many cores as it likes.
    left_s: f64,
    cores: f64,
    began_s: f64,
}

#[derive(Debug, Default)]
pub(super) struct Cluster {
    pub(super) workers: Vec<Worker>,
    pub(super) nodes: usize,
    pub(super) now_s: f64,
}

impl Cluster {
    /// Nodes full of workers of a shape.
    pub(super) fn add(&mut self, shape: Shape, nodes: usize) {
        for node in self.nodes..self.nodes + nodes {
            self.workers.extend((0..shape.per_node).map(|_| Worker { shape, node, runs: None, busy_s: 0.0 }));
        }
        self.nodes += nodes;
    }

    pub(super) fn begin(&mut self, worker: usize, index: usize, action: &Action, times: f64) {
        let left_s = action.wall.as_secs_f64() * times;
        let running = Running { action: index, left_s, cores: action.cores, began_s: self.now_s };
        self.workers[worker].runs = Some(running);
    }

    /// How fast actions execute on each node: fully, until their cores are more than the node has.
    fn speeds(&self) -> Vec<f64> {
        let mut asked = vec![0.0; self.nodes];
        for worker in &self.workers {
            asked[worker.node] += worker.runs.as_ref().map_or(0.0, |r| r.cores);
        }
        asked.into_iter().map(|cores| (NODE_CORES / cores).min(1.0)).collect()
    }

    /// Lets time pass until the next action ends: its worker, which action it was, how long it took, and its cores meanwhile.
    pub(super) fn next_end(&mut self) -> Option<(usize, usize, Duration, f64)> {
        let speeds = self.speeds();
        let ends = self
            .workers
            .iter()
            .enumerate()
            .filter_map(|(i, w)| Some((i, w.runs.as_ref()?.left_s / speeds[w.node])));
        let (worker, after) = ends.min_by(|a, b| a.1.total_cmp(&b.1))?;
        self.now_s += after;
        for w in &mut self.workers {
            if let Some(running) = &mut w.runs {
                running.left_s -= after * speeds[w.node];
                w.busy_s += after;
            }
        }
        let running = self.workers[worker].runs.take()?;
        let took = self.now_s - running.began_s;
        Some((worker, running.action, Duration::from_secs_f64(took), running.cores))
    }
}
