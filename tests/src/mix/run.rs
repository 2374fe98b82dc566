//! One build on one cluster, scheduled by the core.
use super::{
    Action, NODE_CORES, Shape,
    actions::Draws,
    cluster::{Cluster, Worker},
};
use anyhow::{Context as _, Result, ensure};
use pointsman_learning::{ClassCores, Ended, Rule, Run, Statistics, cores_needed, suggest};
use pointsman_scheduler::{
    effect::{Effect, Output, Reply},
    event::{Event, Poll, Report, Submit, Terms, Verdict, WorkerSpec},
    ids::{ActionDigest, PollId},
    properties::{Amounts, Asked, Offered, PropertyType, Schema, UnknownProperty},
    route::{Route, SizeClass},
    scheduler::{Config, Scheduler},
    time::Time,
};
use std::{collections::BTreeMap, num::NonZeroUsize, sync::Arc, time::Duration};

/// The property of which hosts have so much, if workers share them.
const CORES: &str = "cpu_count";

/// Builds from which sizes are learned before the one that counts.
const LEARNING_BUILDS: usize = 5;

/// Workers, all of them there all the time.
#[derive(Clone, Debug)]
pub struct Setup {
    /// How it is called.
    pub name: &'static str,
    /// Shapes, and nodes full of each.
    pub nodes: Vec<(Shape, usize)>,
    /// What is learned decides on the size class.
    pub by_size: bool,
    /// The workers of a node are one host with so many cores, of which as many are set aside for an action as it was measured
    /// to need; `None`: each worker is a host of its own.
    pub host_cores: Option<u64>,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// How the setup is called.
    pub name: &'static str,
    /// Nodes.
    pub nodes: usize,
    /// From the first action to the last.
    pub took: Duration,
    /// By shape: its name, actions, their wall time, and how long its workers executed as a share of the build's time.
    pub shapes: Vec<(&'static str, usize, Duration, f64)>,
    /// Core hours that workers requested while they executed.
    pub requested_core_hours: f64,
    /// Core hours that actions used.
    pub used_core_hours: f64,
    /// Node hours of the part of each node that workers took while they executed: what is left if idle workers go.
    pub busy_node_hours: f64,
    /// Actions that needed more memory than their worker had.
    pub killed: usize,
}

impl Outcome {
    /// Node hours if all nodes stay.
    pub fn node_hours(&self) -> f64 {
        self.nodes as f64 * self.took.as_secs_f64() / 3600.0
    }
}

/// Runs the actions on the first setup, from which sizes are learned, and then on the others.
///
/// # Errors
/// When the core leaves something undone, which would be its fault.
pub fn compare(actions: &[Action], first: &Setup, others: &[Setup]) -> Result<Vec<Outcome>> {
    let keys = NonZeroUsize::new(actions.len()).context("no actions")?;
    let mut learned = Statistics::new(keys);
    let mut outcomes = Vec::new();
    for build in 0..LEARNING_BUILDS {
        outcomes = vec![build_once(actions, first, build as u64, &mut learned)?];
    }
    for setup in others {
        // Each knows what was learned at first, and not what another has seen.
        let mut learned = learned.clone();
        outcomes.push(build_once(actions, setup, LEARNING_BUILDS as u64, &mut learned)?);
    }
    Ok(outcomes)
}

struct Build<'a> {
    actions: &'a [Action],
    cluster: Cluster,
    core: Scheduler,
    specs: Vec<Arc<WorkerSpec>>,
    polls: u64,
    /// By digest.
    index: BTreeMap<Vec<u8>, usize>,
    draws: Draws,
}

fn build_once(actions: &[Action], setup: &Setup, build: u64, learned: &mut Statistics) -> Result<Outcome> {
    let mut cluster = Cluster::default();
    setup.nodes.iter().for_each(|(shape, nodes)| cluster.add(*shape, *nodes));
    let schema = Arc::new(Schema::new([(CORES.into(), PropertyType::Minimum)], UnknownProperty::Ignore));
    let specs = cluster.workers.iter().enumerate().map(|(i, w)| spec(i, w, setup.host_cores)).collect();
    // Nobody calls in vain, so nobody is missed.
    let never = Duration::from_secs(1 << 30);
    let config = Config { abandoned: never, worker_expiry: never, ..Config::default() };
    let core = Scheduler::new(config, schema.clone());
    let draws = Draws::new(build + 100);
    let mut build = Build { actions, cluster, core, specs, polls: 0, index: BTreeMap::new(), draws };
    let classes = classes(setup);
    let mut set_aside = Vec::with_capacity(actions.len());
    let rule = Rule {
        min_attempts: LEARNING_BUILDS as u32,
        long: Duration::from_secs(60),
        forget_after: Duration::from_secs(7 * 24 * 3600),
    };
    for worker in 0..build.specs.len() {
        build.poll(worker, Report::Idle)?;
    }
    for (i, action) in actions.iter().enumerate() {
        let known = learned.get(&action.target);
        let suggested = known.filter(|_| setup.by_size).and_then(|r| suggest(r, &classes, &rule, 0));
        let size = suggested.map_or(SizeClass::Learned, |s| SizeClass::AtLeast(s.at_least));
        let mut asked = schema.action(&[])?;
        if setup.by_size || setup.host_cores.is_some() {
            asked.expected = known.and_then(|record| record.wall(0.5));
        }
        if setup.host_cores.is_some() {
            asked.measured = known
                .and_then(|r| cores_needed(r, LEARNING_BUILDS as u32))
                .map(|n| Amounts::from_slice(&[n]));
        }
        set_aside.push(asked.measured.as_ref().map(|m| m[0] as f64));
        build.submit(i, Route { size, ..Route::default() }, asked)?;
    }
    let mut outcome = Outcome {
        name: setup.name,
        nodes: build.cluster.nodes,
        took: Duration::ZERO,
        shapes: setup.nodes.iter().map(|(s, _)| (s.name, 0, Duration::ZERO, 0.0)).collect(),
        requested_core_hours: 0.0,
        used_core_hours: 0.0,
        busy_node_hours: 0.0,
        killed: 0,
    };
    while let Some((worker, index, took, cores)) = build.cluster.next_end() {
        let (shape, action) = (build.cluster.workers[worker].shape, &actions[index]);
        let killed = action.memory_mib > shape.memory_mib;
        let used = action.cores * action.wall.as_secs_f64();
        let run = Run {
            ended: if killed { Ended::Killed } else { Ended::Succeeded },
            size_class: shape.size_class,
            wall: took,
            cores: Some((used / took.as_secs_f64()).min(cores)),
            peak_memory_mib: Some(action.memory_mib),
        };
        learned.note(&action.target, &run, 0);
        let (_, n, wall, _) =
            outcome.shapes.iter_mut().find(|s| s.0 == shape.name).context("an unknown shape")?;
        *n += 1;
        *wall += took;
        outcome.requested_core_hours += set_aside[index].unwrap_or(shape.cores) * took.as_secs_f64() / 3600.0;
        outcome.used_core_hours += used / 3600.0;
        let of_node = match (set_aside[index], setup.host_cores) {
            (Some(cores), Some(all)) => cores / all as f64,
            _ => 1.0 / shape.per_node as f64,
        };
        outcome.busy_node_hours += took.as_secs_f64() * of_node / 3600.0;
        outcome.killed += usize::from(killed);
        build.poll(worker, Report::Completed(digest(index), Verdict::Answer))?;
    }
    outcome.took = Duration::from_secs_f64(build.cluster.now_s);
    for (name, _, _, busy) in &mut outcome.shapes {
        let workers: Vec<f64> =
            build.cluster.workers.iter().filter(|w| w.shape.name == *name).map(|w| w.busy_s).collect();
        *busy = workers.iter().sum::<f64>() / (workers.len() as f64 * build.cluster.now_s);
    }
    let counts = build.core.counts();
    ensure!(counts.queued + counts.running == 0, "left undone: {counts:?}");
    Ok(outcome)
}

/// A worker of a node has its share of the node's cores, not only what it requests.
fn classes(setup: &Setup) -> Vec<ClassCores> {
    let of = |(shape, _): &(Shape, usize)| ClassCores {
        size_class: shape.size_class,
        cores: Some(NODE_CORES / shape.per_node as f64),
    };
    let mut classes: Vec<ClassCores> = setup.nodes.iter().map(of).collect();
    classes.sort_by_key(|c| c.size_class);
    classes
}

fn spec(index: usize, worker: &Worker, host_cores: Option<u64>) -> Arc<WorkerSpec> {
    let name = worker.shape.name;
    let host: Arc<str> = match host_cores {
        Some(_) => format!("node-{}", worker.node).into(),
        None => format!("{name}-{index}").into(),
    };
    let totals = Amounts::from_slice(&[host_cores.unwrap_or(0)]);
    Arc::new(WorkerSpec {
        id: vec![("hostname".into(), host.clone()), ("thread".into(), index.to_string().into())],
        host,
        instance_name_prefix: "".into(),
        properties: Vec::new(),
        offered: Offered { atoms: Vec::new(), totals },
        size_class: worker.shape.size_class,
        pool: name.into(),
        max_inflight_tasks: 0,
        terms: Terms::default(),
    })
}

fn digest(index: usize) -> ActionDigest {
    ActionDigest::new(1, &index.to_be_bytes(), 1)
}

impl Build<'_> {
    fn now(&self) -> Time {
        Time(1_000_000 + (self.cluster.now_s * 1000.0) as u64)
    }

    fn submit(&mut self, index: usize, route: Route, asked: Asked) -> Result<()> {
        let action = &self.actions[index];
        let invocation_keys = vec![format!("project-{}", action.project).into()];
        self.index.insert(digest(index).hash().to_vec(), index);
        self.step(Event::Submit(Submit {
            name: format!("operation-{index}").into(),
            instance: "".into(),
            digest: digest(index),
            route: Arc::new(Route { invocation_keys, ..route }),
            asked,
            preferred: Vec::new(),
        }))
    }

    fn poll(&mut self, worker: usize, report: Report) -> Result<()> {
        // Calls are cheap here: they wait for as long as it takes.
        let wait_until = Time(u64::MAX / 2);
        self.polls += 1;
        let poll = PollId(self.polls * self.specs.len() as u64 + worker as u64);
        let spec = self.specs[worker].clone();
        let key = format!("{}/{worker}", spec.host).into();
        self.step(Event::Poll(Poll {
            poll,
            worker: key,
            spec,
            report,
            prefer_idle: false,
            outcome: Default::default(),
            wait_until,
        }))
    }

    fn step(&mut self, event: Event) -> Result<()> {
        let mut out = Output::default();
        self.core.step(self.now(), event, &mut out);
        for effect in out.effects {
            match effect {
                Effect::Refused(refusal) => anyhow::bail!("refused: {refusal}"),
                Effect::Reply { poll, reply: Reply::Execute(task) } => {
                    let worker = (poll.0 % self.specs.len() as u64) as usize;
                    let task = self.core.task(task).context("a task that is gone")?;
                    let index = *self.index.get(task.digest.hash()).context("an unknown action")?;
                    // Two builds are not alike to the second.
                    let times = (0.05 * self.draws.normal()).exp();
                    self.cluster.begin(worker, index, &self.actions[index], times);
                }
                _ => {}
            }
        }
        Ok(())
    }
}
